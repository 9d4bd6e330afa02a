"""Episodes of a vector environment begin and end; which of them are a complete group goes out."""

from __future__ import annotations

from dataclasses import dataclass, field

from memenvs.wrappers.account import Account, AccountState


@dataclass
class Seat:
    """One environment's place in its groups.

    Attributes:
        number: of the episode that is being played, counted in step with the other seats of its group.
        account: that episode's.
        waiting: accounts of ended episodes whose group is not complete, by number.
    """

    number: int = -1
    account: Account | None = None
    waiting: dict[int, Account] = field(default_factory=dict)


@dataclass
class SeatState:
    """A seat in a state; of those that wait, the account of the episode that has just ended is None.

    Attributes:
        number: see `Seat`.
        account: see `Seat`.
        waiting: numbers and accounts.
    """

    number: int
    account: AccountState | None
    waiting: list[tuple[int, AccountState | None]]

    @classmethod
    def of(cls, seat: Seat) -> SeatState:
        """The state of a seat."""
        waiting = [
            (number, None if held is seat.account else AccountState.of(held))
            for number, held in seat.waiting.items()
        ]
        return cls(seat.number, AccountState.of(seat.account) if seat.account else None, waiting)


class Groups:
    """G neighbours sit together; their n-th episodes are a group.

    An episode that is reset before its end leaves its place to the next one.

    Args:
        seats: N environments.
        size: G, a divisor of N.

    Raises:
        ValueError: `size` does not divide `seats`.
    """

    def __init__(self, seats: int, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1 or seats % size:
            raise ValueError(f"group_size must divide the {seats} environments, got {size!r}")
        self.size = size
        self.seats = [Seat() for _ in range(seats)]

    def members(self, i: int) -> range:
        """The environments that sit with environment i."""
        return range(i - i % self.size, i - i % self.size + self.size)

    def forget(self, i: int, *, restart: bool) -> None:
        """Begin afresh with the group of environment i: nothing of it is waited for any more.

        Args:
            i: the environment.
            restart: count its episodes from 0 again.
        """
        number = -1 if restart else max(self.seats[j].number for j in self.members(i))
        for j in self.members(i):
            self.seats[j] = Seat(number)

    def next(self, i: int) -> int:
        """The number of the episode that environment i would begin now."""
        seat = self.seats[i]
        return seat.number + (seat.account is None or seat.account.episode.over)

    def begin(self, i: int, account: Account) -> None:
        """Environment i begins an episode."""
        seat = self.seats[i]
        seat.number = self.next(i)
        seat.account = account

    def check(self, i: int) -> None:
        """Refuse environment i's first turn if the others play, or have played, another task.

        Raises:
            ValueError: with the two tasks.
        """
        number, account = self.seats[i].number, self.account(i)
        for j in self.members(i):
            other = self.seats[j].waiting.get(number)
            seat = self.seats[j]
            if other is None and seat.number == number and seat.account and seat.account.episode.turns:
                other = seat.account
            played = other is not None and other.episode.turns  # one that never began has no task
            if other is not None and played and other.info["task"] != account.info["task"]:
                raise ValueError(
                    f"environments {i} and {j} are of one group but play tasks {account.info['task']!r} and "
                    f"{other.info['task']!r}; reset the {self.size} members together, with one seed"
                )

    def account(self, i: int) -> Account:
        """The account of environment i."""
        account = self.seats[i].account
        if account is None:
            raise ValueError(f"environment {i} was reset before it was wrapped; call reset() on the wrapper")
        return account

    def end(self, i: int) -> list[tuple[int, Account]]:
        """Environment i's episode has ended: environments and accounts of its group, if that is complete."""
        seat = self.seats[i]
        seat.waiting[seat.number] = self.account(i)
        if not all(seat.number in self.seats[j].waiting for j in self.members(i)):
            return []
        return [(j, self.seats[j].waiting.pop(seat.number)) for j in self.members(i)]
