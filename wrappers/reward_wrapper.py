"""The hosts of reward methods: one environment, and many with groups."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

import memenvs
from memenvs.core.checks import error_line, is_whole
from memenvs.core.env import End, Info
from memenvs.core.state import State, check_keys, from_plain, to_plain
from memenvs.core.text import Template
from memenvs.core.vector import Mask, Played, Step, TextVectorEnv, Told, read_mask
from memenvs.wrappers.method import Credit, Episode, RewardMethod, Turn
from memenvs.wrappers.registry import (
    MethodSpec,
    ScorerSpec,
    make_methods,
    make_scorer,
    plain_method,
    plain_scorer,
)
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores

__all__ = ["RewardWrapper", "VectorRewardWrapper"]

Asked = dict[str, list[ScoreRequest]]
"""The requests of one turn, by method."""

Answers = dict[str, list[TokenScores]]
"""The answers to them, in step."""

Render = Callable[[str], str]
"""Makes the model's prompt of a text prompt."""


def ask_all(methods: Sequence[RewardMethod], turns: Sequence[Turn]) -> list[Asked]:
    """What the methods ask about each turn."""
    return [{method.name: method.requests(turn) for method in methods} for turn in turns]


def score_all(scorer: Scorer | None, asked: Sequence[Asked], render: Render) -> list[Answers]:
    """Score every request of several turns by one call of the scorer, equal requests once.

    Args:
        scorer: may be None where nothing is asked.
        asked: the requests of each turn.
        render: see `Render`.

    Raises:
        ValueError: no scorer, and something is asked.
    """
    places: dict[ScoreRequest, int] = {}
    for requests in asked:
        for some in requests.values():
            for request in some:
                places.setdefault(request, len(places))
    if not places:
        return [{} for _ in asked]
    if scorer is None:
        raise ValueError("a method asks for log-probabilities; give a scorer, e.g. scorer='lexical'")
    rendered = [ScoreRequest(render(prompt), continuation) for prompt, continuation in places]
    answers = scorer.logprobs(rendered)
    return [
        {name: [answers[places[request]] for request in some] for name, some in requests.items()}
        for requests in asked
    ]


def score_apart(scorer: Scorer | None, asked: Sequence[Asked], render: Render) -> list[Answers | str]:
    """As `score_all`; if that call raises, turn by turn: the error's line where it raises again."""
    try:
        return [*score_all(scorer, asked, render)]
    except Exception as error:
        if scorer is None:
            raise
        if len(asked) == 1:
            return [error_line(error)]
    return [answers for one in asked for answers in score_apart(scorer, [one], render)]


def prompt_renderer(template: str | None) -> Callable[[str], str]:
    """Fills `{prompt}` of a template; without one a prompt is shown as it is.

    Raises:
        ValueError: the template has no place `{prompt}`.
    """
    if template is None:
        return str
    filled = Template(template, required=("prompt",), name="prompt")
    return lambda prompt: filled.fill(prompt=prompt)


_TOLD = {"task": str, "turn": int, "rewards": dict, "turn_rewards": list, "metrics": dict}
"""What every info tells that an account is kept by."""


@dataclass
class Account:
    """An episode that is being played, and what has been paid for it.

    Attributes:
        observation: what the next reply answers.
        info: the environment's info that came with it.
        episode: the record so far.
        base: the environment's own reward of each turn, less the outcome where a method spends it.
        paid: for each method by name, what it paid at each turn.
        given: the info given out last.
    """

    observation: Any
    info: Info
    episode: Episode = field(default_factory=Episode)
    base: list[float] = field(default_factory=list)
    paid: dict[str, list[float]] = field(default_factory=dict)
    given: Info = field(default_factory=dict)


@dataclass
class AccountState:
    """An account in a state: each observation and info once, and of the info given out what is its own.

    Attributes:
        observations: (K + 1) what was shown, from the first on.
        infos: (K + 1) the environment's infos that came with them.
        actions: (K) the replies between them.
        end: how the episode ended.
        error: see `Episode`, as `outcomes`, `signals`, `credits` and `turn_rewards`.
        base: see `Account`, as `paid`.
        rewards: of the info given out last.
        metrics: of it.
    """

    observations: list[Any]
    infos: list[dict[str, Any]]
    actions: list[str]
    end: End
    error: str
    outcomes: list[float]
    signals: dict[str, list[float]]
    credits: dict[str, list[Credit]]
    turn_rewards: list[float]
    base: list[float]
    paid: dict[str, list[float]]
    rewards: dict[str, float]
    metrics: dict[str, float]

    @classmethod
    def of(cls, account: Account) -> AccountState:
        """The state of an account."""
        episode = account.episode
        turns = episode.turns
        return cls(
            observations=[*(turn.observation for turn in turns), account.observation],
            infos=[*(turn.before for turn in turns), account.info],
            actions=[turn.action for turn in turns],
            end=turns[-1].end if turns else "",
            error=episode.error,
            outcomes=episode.outcomes,
            signals=episode.signals,
            credits=episode.credits,
            turn_rewards=episode.turn_rewards,
            base=account.base,
            paid=account.paid,
            rewards=account.given["rewards"],
            metrics=account.given["metrics"],
        )

    def check(self, names: list[str], inner: State | None) -> None:
        """Raise a one-line `ValueError` for what no account of these methods can be.

        Args:
            names: of the methods.
            inner: the state of the environment; None where its last reset failed.
        """
        turns = len(self.actions)
        per_turn = [self.outcomes, self.turn_rewards, self.base, *self.signals.values(), *self.paid.values()]
        credits = [credit for some in self.credits.values() for credit in some]
        shown = len(self.observations), len(self.infos)
        played = _turns_played(inner)
        wrong = {
            f"{turns} replies to {shown[0]} observations and {shown[1]} infos": shown != (turns + 1,) * 2,
            f"an info without its {', '.join(_TOLD)}": any(
                not isinstance(info.get(name), kind) for info in self.infos for name, kind in _TOLD.items()
            ),
            f"{turns} turns, and lists of another length": any(len(some) != turns for some in per_turn),
            "other methods": any(set(of) != set(names) for of in (self.signals, self.credits, self.paid)),
            f"a credit of none of its {turns} turns": not all(0 <= c.turn < turns for c in credits),
            "an end before the first turn": bool(self.end) and not turns,
            f"another turn than its environment's {played}": bool(self.infos)
            and not self.error
            and played not in (None, self.infos[-1].get("turn")),
        }
        for what, cannot_be in wrong.items():
            if cannot_be:
                raise ValueError(f"the state's account cannot be: it has {what}")

    def account(self) -> Account:
        """The account that goes on from here, without the info given out last."""
        shown = list(zip(self.observations, self.infos, strict=True))
        turns = [
            Turn(observation, action, before, next_observation, info)
            for ((observation, before), (next_observation, info)), action in zip(
                pairwise(shown), self.actions, strict=True
            )
        ]
        if turns:
            turns[-1] = turns[-1]._replace(end=self.end)
        episode = Episode(turns, self.outcomes, self.signals, self.credits, self.turn_rewards, self.error)
        return Account(*shown[-1], episode, self.base, self.paid)


def _turns_played(state: Any) -> Any:
    """Turns of the text environment that a state is of, inside any wrappers; None where it does not say."""
    while isinstance(state, dict) and "inner" in state:
        state = state["inner"]
    episode = state.get("episode") if isinstance(state, dict) else None
    return episode.get("turn") if isinstance(episode, dict) else None


OUTCOME = "outcome"
NO_NUMBER = "the signal of this turn is no finite number"


@dataclass
class _Held:
    """What a state holds of a list of methods: names with settings, and what they remember."""

    methods: list[tuple[str, dict[str, Any]]]
    memories: dict[str, dict[str, Any]]


class Bookkeeper:
    """Keeps accounts for a list of methods; the part that both hosts share.

    Args:
        methods: their names differ.

    Raises:
        ValueError: two methods have one name.
    """

    def __init__(self, methods: Sequence[RewardMethod]) -> None:
        self.methods = list(methods)
        self.names = [method.name for method in self.methods]
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(
                f"two methods are called {twice[0]!r}, and each would pay in full; leave one out, or make a "
                "subclass with another `name`"
            )
        self.spends_outcome = any(method.spends_outcome for method in self.methods)

    def open(self, observation: Any, info: Info, error: str = "") -> Account:
        """Begin an episode; `given` is the info to give out.

        Args:
            observation: the first.
            info: that came with it.
            error: why the episode could not begin.

        Raises:
            ValueError: a method needs what this environment does not tell.
        """
        for method in () if error else self.methods:
            if method.name in info["rewards"]:
                raise ValueError(
                    f"there is a component {method.name!r} below this wrapper already; wrap once, or make a "
                    "subclass with another `name`"
                )
        if not error:
            self._check_needs(info)
        empty: dict[str, list[Any]] = {name: [] for name in self.names}
        episode = Episode(signals=empty, credits=copy.deepcopy(empty), error=error)
        account = Account(observation, info, episode)
        account.paid = copy.deepcopy(empty)
        account.given = self._info(account, info, dict.fromkeys(self.names, 0.0))
        return account

    def play(self, account: Account, action: str, observation: Any, info: Info, end: End) -> Turn:
        """Write a step down; the arguments are what came back."""
        turn = Turn(account.observation, action, account.info, observation, info, end)
        account.observation, account.info = observation, info
        account.episode.turns.append(turn)
        return turn

    def fail(self, account: Account, error: str) -> None:
        """End an episode at the step that was written down last: it could not be played, or not scored."""
        turn = account.episode.turns[-1]
        account.episode.turns[-1] = turn._replace(end=turn.end or "truncated")
        account.episode.error = error

    def pay(self, account: Account, reward: float, scores: dict[str, list[TokenScores]]) -> float:
        """The reward of the step that was written down, as far as it is known; `given` is its info.

        Args:
            account: of the step.
            reward: the environment's.
            scores: for each method by name, the answers to its requests; not read after an error.
        """
        episode, turn = account.episode, account.episode.turns[-1]
        outcome = float(turn.info["rewards"].get(OUTCOME, 0.0))
        episode.outcomes.append(outcome)
        own = reward - outcome if self.spends_outcome else reward
        account.base.append(own)
        components: dict[str, float] = {}
        for method in self.methods:
            signal = math.nan if episode.error else float(method.signal(turn, scores.get(method.name, [])))
            signal = signal if math.isfinite(signal) else math.nan
            signals = episode.signals[method.name]
            signals.append(signal)
            if episode.error and not method.immediate:
                signals[:] = [math.nan] * len(signals)
            components[method.name] = signal if method.immediate else 0.0
            account.paid[method.name].append(_number(components[method.name]))
        self._reckon(account)
        account.given = self._info(account, turn.info, components)
        return sum(map(_number, components.values()), own)

    def compose(self, method: RewardMethod, episodes: Sequence[Episode]) -> list[list[Credit]]:
        """A method's credits of each ended episode: NaN, with the reason, where an error ended it."""
        living = [episode for episode in episodes if not episode.error]
        # A group stays whole, or its last member alive would look like an episode without a group.
        given = list(episodes) if method.group and living else living
        made = dict(zip(map(id, given), method.compose(given) if given else [], strict=True))
        return [
            _uncredited(method, episode)
            if episode.error
            else _measured(made[id(episode)], episode.signals[method.name])
            for episode in episodes
        ]

    def settle(self, account: Account, name: str, credits: list[Credit]) -> float:
        """Write a method's credits down, once; what they bring beyond what was paid, now to be paid too."""
        episode = account.episode
        earned = [0.0] * len(episode.turns)
        for credit in credits:
            if not math.isnan(credit.value):
                earned[credit.turn] += credit.value
        lacking = [value - paid for value, paid in zip(earned, account.paid[name], strict=True)]
        account.paid[name] = earned
        episode.credits[name] = list(credits)
        episode.turn_rewards = [had + more for had, more in zip(episode.turn_rewards, lacking, strict=True)]
        unscored = sum(math.isnan(credit.value) for credit in credits)
        given, total = account.given, math.fsum(lacking)
        nothing = unscored == len(credits) and (bool(credits) or bool(episode.error))
        value = math.nan if nothing else _number(given["rewards"][name]) + total
        account.given = {
            **given,
            "rewards": {**given["rewards"], name: value},
            "metrics": {**given["metrics"], f"{name}_unscored": float(unscored)},
            "credits": {**given["credits"], name: list(credits)},
            "turn_rewards": list(episode.turn_rewards),
        }
        return total

    def reopen(self, held: AccountState, inner: State | None) -> Account:
        """The account of a state; `inner` is that of its environment.

        Raises:
            ValueError: no account of these methods can be so.
        """
        held.check(self.names, inner)
        for info in () if held.error else held.infos:
            self._check_needs(info)
        account = held.account()
        own = {"rewards": held.rewards, "metrics": held.metrics}
        account.given = self._info(account, account.info, dict.fromkeys(self.names, 0.0))
        if any(set(account.given[part]) != set(numbers) for part, numbers in own.items()):
            raise ValueError("the state's account cannot be: it has rewards or metrics of other names")
        account.given |= own
        return account

    def get_state(self) -> State:
        """The methods with their settings, and what they remember of earlier episodes, as plain data."""
        state: State = to_plain(
            {
                "methods": self._plain_methods,
                "memories": {method.name: method.get_state() for method in self.methods},
            }
        )
        return state

    def check_state(self, state: State) -> dict[str, Any]:
        """The memories of a state of `get_state`.

        Raises:
            ValueError: it is of other methods, or of other settings.
        """
        check_keys(state, "methods", "memories")
        held = from_plain({name: state[name] for name in ("methods", "memories")}, _Held, "wrapper")
        if state["methods"] != self._plain_methods:
            differs = _first_difference(held.methods, self._plain_methods)
            raise ValueError(f"this state is of {differs}; make the wrapper with the methods of the state")
        if set(held.memories) != set(self.names):
            raise ValueError(f"the state's memories must be of {', '.join(self.names)}")
        return held.memories

    @contextlib.contextmanager
    def restored(self, state: State) -> Iterator[None]:
        """Let the methods remember what a state of `get_state` says, and take it back if the block raises.

        Raises:
            ValueError: see `check_state`; or a method refuses what it is to remember.
        """
        memories = self.check_state(state)
        before = [copy.deepcopy(method.get_state()) for method in self.methods]
        try:
            for method in self.methods:
                method.set_state(memories[method.name])
            yield
        except Exception:
            for method, memory in zip(self.methods, before, strict=True):
                method.set_state(memory)
            raise

    @functools.cached_property
    def _plain_methods(self) -> Any:
        """Names and settings as they are in states; methods do not change them."""
        return to_plain([plain_method(method) for method in self.methods])

    def _check_needs(self, info: Info) -> None:
        for method in self.methods:
            for path in method.needs:
                _check_told(method, path, info)

    def _reckon(self, account: Account) -> None:
        """The turn rewards as far as they are known.

        The environment's own list counts, where it keeps one: a wrapper below may have known only at the end
        what an earlier turn was worth.
        """
        episode, told = account.episode, account.episode.turns[-1].info["turn_rewards"]
        if len(told) == len(account.base):
            spent = episode.outcomes if self.spends_outcome else [0.0] * len(told)
            account.base = [reward - outcome for reward, outcome in zip(told, spent, strict=True)]
        paid = [account.paid[name] for name in self.names]
        episode.turn_rewards = [sum(now, own) for own, *now in zip(account.base, *paid, strict=True)]

    def _info(self, account: Account, info: Info, components: dict[str, float]) -> Info:
        """The environment's info with the methods' parts; always the same keys."""
        episode = account.episode
        rewards = dict(info["rewards"])
        if self.spends_outcome and OUTCOME in rewards:
            rewards[OUTCOME] = 0.0
        # What a wrapper below has written down stands: its outcome is 0 here if it has spent it.
        metrics = {OUTCOME: episode.outcome if episode.over else 0.0, **info["metrics"]}
        signals = {name: (episode.signals[name] or [0.0])[-1] for name in self.names}
        told = {**info, "error": episode.error} if episode.error else info
        return {
            **told,
            "rewards": {**rewards, **components},
            "turn_rewards": list(episode.turn_rewards),
            "metrics": {**metrics, **{f"{name}_unscored": 0.0 for name in self.names}},
            "signals": {**info.get("signals", {}), **signals},
            "credits": {
                **info.get("credits", {}),
                **{name: list(episode.credits[name]) for name in self.names},
            },
        }


def _uncredited(method: RewardMethod, episode: Episode) -> list[Credit]:
    """Credits of an episode that an error ended; what was paid at its turn stays paid."""
    signals = episode.signals[method.name]
    return [Credit(k, signal, reason=episode.error * math.isnan(signal)) for k, signal in enumerate(signals)]


def _measured(credits: list[Credit], signals: list[float]) -> list[Credit]:
    """The credits; NaN where one rests on a signal that is none, whatever a formula makes of it."""
    return [
        credit._replace(value=math.nan, reason=credit.reason or NO_NUMBER)
        if credit.of_signal and math.isnan(signals[credit.turn])
        else credit
        for credit in credits
    ]


def _first_difference(theirs: Sequence[Any], own: Sequence[Any]) -> str:
    """In which methods, or in which setting of one, two lists of methods differ."""
    names = [[name for name, _ in methods] for methods in (theirs, own)]
    if names[0] != names[1]:
        return f"the reward methods {names[0]!s:.200}, not of {names[1]!s:.200}"
    for (name, settings), (_, here) in zip(theirs, own, strict=True):
        for setting in {**here, **settings}:
            values = [some.get(setting, "no such setting") for some in (settings, here)]
            if values[0] != values[1]:
                return f"{name} with {setting!r:.60} {values[0]!r:.60}, not {values[1]!r:.60}"
    return "methods written otherwise"


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _check_told(method: RewardMethod, path: str, info: Info) -> None:
    place: Any = info
    for key in path.split("/"):
        if not isinstance(place, dict) or key not in place:
            raise ValueError(
                f"{method.name} needs info[{path.replace('/', '][')}], which this environment does not give "
                f"(task {info.get('task')!r}); see the environment's docstring for what it tells of its turns"
            )
        place = place[key]


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
            raise TypeError(f"env must be a memenvs.core.vector.TextVectorEnv, got {type(inner).__name__}")
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


class RewardWrapper(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Add the components of reward methods to a text environment.

    Reward:
        The environment's, and of each method a component of its name. What a method knows at its turn is paid
        there; what it knows only in hindsight is paid at the last turn. At the last turn
        `info["turn_rewards"]` says what each turn was worth; the two sums are equal. A method that spends the
        outcome sets that component to 0; `info["metrics"]["outcome"]` keeps it. A component whose method
        could not score is NaN; the reward leaves it out.

    Info:
        As the environment's, with `signals` (each method's raw number at this turn), `credits` (each method's
        `Credit`s; empty until the end) and, in `metrics`, `outcome` and for each method `NAME_unscored` (its
        credits without a number).

    Alone, a method that compares the rollouts of a task falls back to statistics of earlier episodes (its
    docstring says which); they are part of the state. `VectorRewardWrapper` compares real groups.

    Args:
        env: a text environment, wrapped or not.
        methods: see `memenvs.wrappers.registry.make_methods`; any order.
        scorer: see `memenvs.wrappers.registry.make_scorer`; a spec can be rebuilt only with a name.
        template: what the scorer's model is shown, `{prompt}` its place: its chat template, written out. The
            prompt as it is by default.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        template: str | None = None,
    ) -> None:
        made = make_methods(methods)
        RecordConstructorArgs.__init__(
            self,
            methods=[plain_method(method) for method in made],
            scorer=plain_scorer(scorer),
            template=template,
        )
        gym.Wrapper.__init__(self, env)
        self.scorer = make_scorer(scorer)
        self._book = Bookkeeper(made)
        self._render = prompt_renderer(template)
        self._scorer, self._template = scorer, template
        self._account: Account | None = None

    @property
    def methods(self) -> list[Any]:
        """The methods."""
        return self._book.methods

    @property
    def spends_outcome(self) -> bool:
        """Whether a method spends the outcome over the turns; R^O is then the last turn's reward."""
        return self._book.spends_outcome

    @property
    def record(self) -> Episode:
        """The record of the episode that is being played or has just ended."""
        return self._opened.episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; what methods remember of earlier ones is kept."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._account = self._book.open(observation, info)
        return observation, self._account.given

    def step(self, action: str) -> tuple[Any, float, bool, bool, Info]:
        """Play a reply and account for it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        account, book = self._opened, self._book
        end: End = "terminated" if terminated else "truncated" if truncated else ""
        turn = book.play(account, action, observation, info, end)
        (scores,) = score_all(self.scorer, ask_all(book.methods, [turn]), self._render)
        reward = book.pay(account, float(reward), scores)
        if end:
            for method in book.methods:
                (credits,) = book.compose(method, [account.episode])
                reward += book.settle(account, method.name, credits)
        return observation, reward, terminated, truncated, account.given

    def get_state(self) -> State:
        """The state of the environment, of this episode's account, and the methods with what they remember.

        Plain data that JSON gives back equal.

        Raises:
            TypeError: an observation, an info or a method holds something else; see
                `memenvs.core.state.to_plain`.
        """
        return {
            "inner": memenvs.get_state(self.env),
            "account": to_plain(AccountState.of(self._opened)),
            **self._book.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Go on from a state of a wrapper with the same methods and settings.

        Raises:
            ValueError: it is of another environment or of other methods, or nothing can come to it; nothing
                has changed then.
        """
        check_keys(state, "inner", "account")
        with self._book.restored(state):
            held = from_plain(state["account"], AccountState, "account")
            account = self._book.reopen(held, state["inner"])
            memenvs.set_state(self.env, state["inner"])
        self._account = account

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: a scorer that has a name is shared in a process and travels by it."""
        return {**self.__dict__, "scorer": None, "_render": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.scorer, self._render = make_scorer(self._scorer), prompt_renderer(self._template)

    @property
    def _opened(self) -> Account:
        if self._account is None:
            raise gym.error.ResetNeeded("no episode yet; call reset() first")
        return self._account
