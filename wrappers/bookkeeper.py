"""The book of one environment: its steps and signals come in; rewards and infos with the methods' go out."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memenvs.state import State, check_keys, from_plain, to_plain
from memenvs.text_env import End, Info
from memenvs.wrappers.account import Account, AccountState
from memenvs.wrappers.method import Credit, Episode, RewardMethod, Turn
from memenvs.wrappers.registry import plain_method
from memenvs.wrappers.scorers import TokenScores

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
