"""The host of many environments: one scorer call a step, and credits when a group is complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from memenvs.state import State, check_keys, from_plain, to_plain
from memenvs.text_env import Info
from memenvs.vector import Mask, Step, TextVectorEnv
from memenvs.vector_options import is_whole, read_mask
from memenvs.vector_watch import Played, Told
from memenvs.wrappers.account import Account
from memenvs.wrappers.asking import Answers, ask_all, score_all, score_apart
from memenvs.wrappers.bookkeeper import Bookkeeper
from memenvs.wrappers.groups import Groups, Seat, SeatState
from memenvs.wrappers.method import Episode
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_methods, make_scorer
from memenvs.wrappers.rendering import prompt_renderer


class VectorRewardWrapper(VectorWrapper[Any, Any, Any, Any, Any]):
    """Add the components of reward methods to text environments that are stepped together.

    Reward and Info:
        As of `RewardWrapper`, for each environment. All requests of a step, over all environments and
        methods, are one call of the scorer; equal requests are scored once.

    Group:
        Environments 0 to G - 1 are a group, G to 2G - 1 the next, and so on; they play one task.
        `reset(seed=s)` gives the members of a group one seed (s, s + 1, … for the groups). An episode that
        begins without a seed has one of its group and its number, so that the n-th episodes of the members
        play one task whenever they begin. A method that compares rollouts composes when the last member has
        ended, and `completed_groups` holds the episodes of the groups that the last step completed.

        An episode that ended before its group shows at its end what is known by then. What its group
        brings is paid, with the then final `turn_rewards` and `credits` in its info, at the step that
        completes the group, if `autoreset_mode` is `"Disabled"`; a mode that has begun another episode by
        then leaves it to `completed_groups`.

    Errors:
        With the `TextVectorEnv`'s `errors="truncate"` a scorer that raises ends no more than it must: the
        requests are scored again environment by environment, and where that fails too the episode ends (as
        truncated, unless the step ended it) with the error in its info. Of an episode that an error ended
        the credits are NaN with the error as their reason, but for those paid at earlier turns; its group
        is composed without it when the others have ended, and holds it with its signals NaN.

    A vector environment has one host: it takes any number of methods.

    With `group_size=1` such a method falls back to statistics of earlier episodes, of all environments.

    Args:
        env: a `TextVectorEnv`, wrapped or not.
        methods: see `memenvs.wrappers.registry.make_methods`; any order.
        scorer: see `memenvs.wrappers.registry.make_scorer`.
        group_size: G, a divisor of the number of environments.
        template: see `RewardWrapper`.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        group_size: int = 1,
        template: str | None = None,
    ) -> None:
        inner = env.unwrapped
        if not isinstance(inner, TextVectorEnv):
            raise TypeError(f"env must be a memenvs.vector.TextVectorEnv, got {type(inner).__name__}")
        if inner.watchers:
            raise ValueError("this vector environment has a host already; give one host all the methods")
        super().__init__(env)
        self.scorer = make_scorer(scorer)
        self.completed_groups: list[list[Episode]] = []
        self._book = Bookkeeper(make_methods(methods))
        self._groups = Groups(inner.num_envs, group_size)
        self._render = prompt_renderer(template)
        self._venv = inner
        self._base = int(np.random.default_rng().integers(2**63))  # of the seeds nobody gives
        inner.watchers.append(self)

    @property
    def methods(self) -> list[Any]:
        """The methods."""
        return self._book.methods

    @property
    def spends_outcome(self) -> bool:
        """Whether a method spends the outcome; see `RewardWrapper`."""
        return self._book.spends_outcome

    @property
    def group_size(self) -> int:
        """G."""
        return self._groups.size

    @property
    def infos_list(self) -> list[Info]:
        """The last info of each environment as it was."""
        return self._venv.infos_list

    @property
    def records(self) -> list[Episode]:
        """The record of the episode that each environment is playing or has just ended."""
        return [self.record(i) for i in range(self.num_envs)]

    def record(self, i: int) -> Episode:
        """The record of environment i's episode; the others may not have begun any."""
        return self._groups.account(i).episode

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Start episodes; see `TextVectorEnv.reset`, and the class for seeds."""
        self.completed_groups = []
        chosen = read_mask("reset_mask", (options or {}).get("reset_mask"), self.num_envs)
        size = self._groups.size
        for first in range(0, self.num_envs, size):
            if chosen[first : first + size].all():
                self._groups.forget(first, restart=seed is not None)
        if seed is None:
            seed = [self.seed(i) for i in range(self.num_envs)]
        elif size > 1 and is_whole(seed):
            self._base = int(np.asarray(seed))
            seed = [self._base + i // size for i in range(self.num_envs)]
        return self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]

    def step(self, actions: Sequence[str], mask: Mask | None = None) -> Step:
        """Play one reply in each environment; see `TextVectorEnv.step`."""
        self.completed_groups = []
        # Wrappers of Gymnasium's between the two know nothing of masks.
        played: Step = self.env.step(actions, *(() if mask is None else (mask,)))
        return played

    def seed(self, index: int) -> int | None:
        """The seed of an episode that nobody gave one; of a group of one, none."""
        if self._groups.size == 1:
            return None
        place = [self._base, index // self._groups.size, self._groups.next(index)]
        return int(np.random.SeedSequence(place).generate_state(1)[0])

    def began(self, index: int, observation: Any, info: Info) -> Info:
        """Open an account; the vector environment calls it."""
        account = self._book.open(observation, info, self._error_of(info))
        self._groups.begin(index, account)
        if account.episode.error:
            self._compose({index: account}, {index: 0.0}, pays_late=False)
        return account.given

    def played(self, steps: Sequence[Played]) -> dict[int, Told]:
        """Account for a step of several environments; the vector environment calls it."""
        book, accounts = self._book, {step.number: self._groups.account(step.number) for step in steps}
        for step in steps:
            account = accounts[step.number]
            if not account.episode.turns:
                self._groups.check(step.number)
            book.play(account, step.action, step.observation, step.info, step.end)
            if error := self._error_of(step.info):
                book.fail(account, error)
        scores = self._score(accounts)
        rewards = {
            step.number: book.pay(accounts[step.number], step.reward, scores.get(step.number, {}))
            for step in steps
        }
        ended = {i: account for i, account in accounts.items() if account.episode.over}
        late = self._compose(ended, rewards, pays_late=self._venv.autoreset_mode is AutoresetMode.DISABLED)
        return {
            i: Told(rewards[i], account.given, fails=i in accounts and bool(account.episode.error))
            for i, account in {**accounts, **late}.items()
        }

    def _error_of(self, info: Info) -> str:
        return str(info["error"]) if self._venv.errors == "truncate" else ""

    def _score(self, accounts: dict[int, Account]) -> dict[int, Answers]:
        """The scorer's answers for each last turn; where there are none, the episode fails."""
        living = [i for i, account in accounts.items() if not account.episode.error]
        asked = ask_all(self._book.methods, [accounts[i].episode.turns[-1] for i in living])
        score = score_apart if self._venv.errors == "truncate" else score_all
        answers = dict(zip(living, score(self.scorer, asked, self._render), strict=True))
        for i, found in answers.items():
            if isinstance(found, str):
                self._book.fail(accounts[i], found)
        return {i: found for i, found in answers.items() if not isinstance(found, str)}

    def get_states(self) -> list[State]:
        """The state of every environment, its account and its ended episodes, and what the methods remember.

        See `RewardWrapper.get_state`.
        """
        inner: Any = self.env
        shared = {"group_size": self.group_size, "base": self._base, **self._book.get_state()}
        return [
            {"inner": state, "seat": to_plain(SeatState.of(seat)), **shared}
            for state, seat in zip(inner.get_states(), self._groups.seats, strict=True)
        ]

    def set_states(self, states: Sequence[State], observations: Sequence[Any]) -> None:
        """Go on from states, with the observations that were shown in them.

        What the methods remember, and the seeds of episodes that begin by themselves, are the first state's.

        Raises:
            ValueError: see `RewardWrapper.set_state` and `TextVectorEnv.set_states`; or the groups were of
                another size.
        """
        inner: Any = self.env
        if len(states) != self.num_envs:
            raise ValueError(f"states must have {self.num_envs} entries, got {len(states)}")
        seats = [self._seat(state) for state in states]
        with self._book.restored(states[0]):
            inner.set_states([state["inner"] for state in states], observations)
        self._groups.seats = seats
        for i, seat in enumerate(seats):
            self._venv.infos_list[i] = seat.account.given if seat.account else {}
        self._base = states[0]["base"]
        self.completed_groups = []

    def _seat(self, state: State) -> Seat:
        """The seat of a state, which is checked for what all environments share."""
        check_keys(state, "inner", "seat", "group_size", "base")
        check_keys(state["inner"], "inner")
        self._book.check_state(state)
        if state["group_size"] != self.group_size:
            raise ValueError(
                f"this state is of groups of {state['group_size']!r:.80}, not of {self.group_size}; "
                "make the wrapper with that group_size"
            )
        if not is_whole(state["base"]) or state["base"] < 0:
            raise ValueError(
                f"the state's base must be a whole number, at least 0, got {state['base']!r:.80}"
            )
        held = from_plain(state["seat"], SeatState, "seat")
        account = self._book.reopen(held.account, state["inner"]["inner"]) if held.account else None
        waiting: dict[int, Account] = {}
        for number, other in held.waiting:
            found = self._book.reopen(other, None) if other else account
            if found is None or not found.episode.over:
                raise ValueError(f"the state's seat cannot be: episode {number} waits and has not ended")
            waiting[number] = found
        return Seat(held.number, account, waiting)

    def _compose(
        self, ended: dict[int, Account], rewards: dict[int, float], *, pays_late: bool
    ) -> dict[int, Account]:
        """Settle what ended; adds to `rewards`, and returns the accounts of those that had ended before."""
        late: dict[int, Account] = {}
        if not ended:
            return late
        for method in self._book.methods:
            if not method.group:
                made = self._book.compose(method, [account.episode for account in ended.values()])
                for (i, account), credits in zip(ended.items(), made, strict=True):
                    rewards[i] += self._book.settle(account, method.name, credits)
        for i in ended:
            group = self._groups.end(i)
            if not group:
                continue
            for j, account in group:
                if ended.get(j) is not account:
                    account.given = {**account.given, "rewards": dict.fromkeys(account.given["rewards"], 0.0)}
                    if pays_late and self._groups.seats[j].account is account:
                        late[j] = account
                        rewards[j] = 0.0
            self._settle_group(group, rewards, {**ended, **late})
        return late

    def _settle_group(
        self, group: list[tuple[int, Account]], rewards: dict[int, float], paid: dict[int, Account]
    ) -> None:
        """Compose a complete group; whoever plays another episode by now is not paid for the one before."""
        episodes = [account.episode for _, account in group]
        for method in self._book.methods:
            if method.group:
                for (j, account), credits in zip(group, self._book.compose(method, episodes), strict=True):
                    total = self._book.settle(account, method.name, credits)
                    if paid.get(j) is account:
                        rewards[j] += total
        self.completed_groups.append(episodes)
