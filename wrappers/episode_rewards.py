"""What reward methods pay for an episode, and for a group of episodes of one task."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from memenvs.core.checks import error_line
from memenvs.core.env import End, Info
from memenvs.core.state import State, check_keys, from_plain, to_plain
from memenvs.core.text import Template
from memenvs.rollout.records import Credit, Episode, Turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import plain_method
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores

OUTCOME = "outcome"
NO_NUMBER = "the signal of this turn is no finite number"
INFO_FIELDS = {"task": str, "turn": int, "rewards": dict, "turn_rewards": list, "metrics": dict}
"""Entries of every info that rewards are computed from."""

Requests = dict[str, list[ScoreRequest]]
"""The requests of one turn, by method."""

Scores = dict[str, list[TokenScores]]
"""The scores of one turn's requests, by method."""


class MethodStack:
    """Reward methods that pay for the same episodes.

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
        self.replaces_outcome = any(method.replaces_outcome for method in self.methods)

    def check(self, info: Info) -> None:
        """ValueError if an environment has a component of a method's name, or lacks what a method needs."""
        for method in self.methods:
            if method.name in info["rewards"]:
                raise ValueError(
                    f"there is a component {method.name!r} below this wrapper already; wrap once, or make a "
                    "subclass with another `name`"
                )
            for path in method.needs:
                entry: Any = info
                for key in path.split("/"):
                    if not isinstance(entry, dict) or key not in entry:
                        raise ValueError(
                            f"{method.name} needs info[{path.replace('/', '][')}], which this environment "
                            f"does not give (task {info.get('task')!r}); see the environment's docstring for "
                            "what its infos hold"
                        )
                    entry = entry[key]

    def requests(self, turn: Turn) -> Requests:
        """What the methods ask a scorer about a turn."""
        return {method.name: method.requests(turn) for method in self.methods}

    def assign_credit(self, method: RewardMethod, episodes: Sequence[Episode]) -> list[list[Credit]]:
        """A method's credits of each ended episode: NaN, with the reason, where an error ended it."""
        scored = [episode for episode in episodes if not episode.error]
        # A group stays whole, or its last episode without an error would look like one without a group.
        given = list(episodes) if method.group and scored else scored
        credits = dict(zip(map(id, given), method.assign_credit(given) if given else [], strict=True))
        return [
            _failed_credits(episode, episode.signals[method.name])
            if episode.error
            else _measured(credits[id(episode)], episode.signals[method.name])
            for episode in episodes
        ]

    def get_state(self) -> State:
        """The methods with their settings, and what they remember of earlier episodes, as plain data."""
        memories = {method.name: method.get_state() for method in self.methods}
        state: State = to_plain({"methods": self._plain_methods, "memories": memories})
        return state

    def check_state(self, state: State) -> dict[str, Any]:
        """The memories of a state of `get_state`.

        Raises:
            ValueError: it is of other methods, or of other settings.
        """
        check_keys(state, "methods", "memories")
        own = {name: state[name] for name in ("methods", "memories")}
        held = from_plain(own, _StackState, "the state's wrapper")
        if state["methods"] != self._plain_methods:
            difference = _first_difference(held.methods, self._plain_methods)
            raise ValueError(f"this state is of {difference}; make the wrapper with the methods of the state")
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


class EpisodeRewards:
    """Reward state of one episode of one environment.

    Attributes:
        observation: what the next reply answers.
        env_info: the environment's info that came with it.
        info: that info with the methods' parts, to give out.
        record: the episode so far.
        env_rewards: the environment's own reward of each turn, less the outcome where a method replaces it.
        paid: for each method by name, what it paid at each turn.

    Args:
        stack: pays for it.
        observation: the first.
        info: that came with it.
        error: why the episode could not begin; empty otherwise.
    """

    def __init__(self, stack: MethodStack, observation: Any, info: Info, error: str = "") -> None:
        self.stack = stack
        self.observation, self.env_info = observation, info
        self.record = Episode(
            signals={name: [] for name in stack.names},
            credits={name: [] for name in stack.names},
            error=error,
        )
        self.env_rewards: list[float] = []
        self.paid: dict[str, list[float]] = {name: [] for name in stack.names}
        self.info = self._make_info(dict.fromkeys(stack.names, 0.0))

    def add_turn(self, action: str, observation: Any, info: Info, end: End) -> Turn:
        """Take a reply and what the environment returned."""
        turn = Turn(self.observation, action, self.env_info, observation, info, end)
        self.observation, self.env_info = observation, info
        self.record.turns.append(turn)
        return turn

    def fail(self, error: str) -> None:
        """End the episode at its last turn, which could not be played or not be scored."""
        turn = self.record.turns[-1]
        self.record.turns[-1] = turn._replace(end=turn.end or "truncated")
        self.record.error = error

    def pay(self, reward: float, scores: Scores) -> float:
        """The reward of the last turn, as far as it is known at that turn.

        Args:
            reward: the environment's.
            scores: answer the requests of the turn; not read after an error.
        """
        record, turn = self.record, self.record.turns[-1]
        outcome = float(turn.info["rewards"].get(OUTCOME, 0.0))
        record.outcomes.append(outcome)
        own = reward - outcome if self.stack.replaces_outcome else reward
        self.env_rewards.append(own)
        components: dict[str, float] = {}
        for method in self.stack.methods:
            signal = math.nan if record.error else float(method.signal(turn, scores.get(method.name, [])))
            signals = record.signals[method.name]
            signals.append(signal if math.isfinite(signal) else math.nan)
            if record.error and not method.immediate:
                signals[:] = [math.nan] * len(signals)
            components[method.name] = signals[-1] if method.immediate else 0.0
            self.paid[method.name].append(_nan_to_zero(components[method.name]))
        self._update_turn_rewards()
        self.info = self._make_info(components)
        return sum(map(_nan_to_zero, components.values()), own)

    def settle(self, name: str, credits: list[Credit]) -> float:
        """Take a method's credits, once; what they bring beyond what it paid at the turns, to be paid now."""
        record = self.record
        earned = [0.0] * len(record.turns)
        for credit in credits:
            if not math.isnan(credit.value):
                earned[credit.turn] += credit.value
        due = [value - paid for value, paid in zip(earned, self.paid[name], strict=True)]
        self.paid[name] = earned
        record.credits[name] = list(credits)
        record.turn_rewards = [reward + more for reward, more in zip(record.turn_rewards, due, strict=True)]
        unscored, total = sum(math.isnan(credit.value) for credit in credits), math.fsum(due)
        nothing = unscored == len(credits) and (bool(credits) or bool(record.error))
        component = math.nan if nothing else _nan_to_zero(self.info["rewards"][name]) + total
        self.info = {
            **self.info,
            "rewards": {**self.info["rewards"], name: component},
            "metrics": {**self.info["metrics"], f"{name}_unscored": float(unscored)},
            "credits": {**self.info["credits"], name: list(credits)},
            "turn_rewards": list(record.turn_rewards),
        }
        return total

    def to_state(self) -> EpisodeRewardsState:
        """All of it, each observation and each info of the environment once."""
        record, turns = self.record, self.record.turns
        return EpisodeRewardsState(
            observations=[*(turn.observation for turn in turns), self.observation],
            infos=[*(turn.before for turn in turns), self.env_info],
            actions=[turn.action for turn in turns],
            end=turns[-1].end if turns else "",
            error=record.error,
            outcomes=record.outcomes,
            signals=record.signals,
            credits=record.credits,
            turn_rewards=record.turn_rewards,
            env_rewards=self.env_rewards,
            paid=self.paid,
            rewards=self.info["rewards"],
            metrics=self.info["metrics"],
        )

    @classmethod
    def from_state(cls, stack: MethodStack, state: EpisodeRewardsState, env_state: Any) -> EpisodeRewards:
        """Go on from a state.

        Args:
            stack: methods of the state.
            state: of `to_state`.
            env_state: of the environment; None where its last reset failed, or it plays another episode.

        Raises:
            ValueError: no episode under these methods can be so.
        """
        state.check(stack.names, env_state)
        for info in () if state.error else state.infos:
            stack.check(info)
        made = cls(stack, state.observations[-1], state.infos[-1])
        made.record = Episode(
            turns=state.turns(),
            outcomes=state.outcomes,
            signals=state.signals,
            credits=state.credits,
            turn_rewards=state.turn_rewards,
            error=state.error,
        )
        made.env_rewards, made.paid = state.env_rewards, state.paid
        made.info = made._make_info(dict.fromkeys(stack.names, 0.0))
        own = {"rewards": state.rewards, "metrics": state.metrics}
        if any(set(made.info[part]) != set(values) for part, values in own.items()):
            raise ValueError("the state's record cannot be: it has rewards or metrics of other names")
        made.info |= own
        return made

    def _update_turn_rewards(self) -> None:
        """The turn rewards as far as they are known.

        The environment's own list counts, where it is complete: a wrapper below may have known only at the
        end what an earlier turn was worth.
        """
        record, env_rewards = self.record, self.record.turns[-1].info["turn_rewards"]
        if len(env_rewards) == len(self.env_rewards):
            replaced = record.outcomes if self.stack.replaces_outcome else [0.0] * len(env_rewards)
            self.env_rewards = [
                reward - outcome for reward, outcome in zip(env_rewards, replaced, strict=True)
            ]
        paid = [self.paid[name] for name in self.stack.names]
        record.turn_rewards = [
            sum(by_method, own) for own, *by_method in zip(self.env_rewards, *paid, strict=True)
        ]

    def _make_info(self, components: dict[str, float]) -> Info:
        """The environment's info with the methods' parts; always the same keys."""
        record, info, names = self.record, self.env_info, self.stack.names
        rewards = dict(info["rewards"])
        if self.stack.replaces_outcome and OUTCOME in rewards:
            rewards[OUTCOME] = 0.0
        # A wrapper below that has replaced the outcome keeps it here, and 0 in its component.
        metrics = {OUTCOME: record.outcome if record.over else 0.0, **info["metrics"]}
        signals = {name: (record.signals[name] or [0.0])[-1] for name in names}
        credits = {name: list(record.credits[name]) for name in names}
        return {
            **info,
            **({"error": record.error} if record.error else {}),
            "rewards": {**rewards, **components},
            "turn_rewards": list(record.turn_rewards),
            "metrics": {**metrics, **{f"{name}_unscored": 0.0 for name in names}},
            "signals": {**info.get("signals", {}), **signals},
            "credits": {**info.get("credits", {}), **credits},
        }


@dataclass
class EpisodeRewardsState:
    """An `EpisodeRewards` of K turns in a state, its lists as there.

    There are K + 1 observations and infos (from the reset on), K actions, and `end` is how the episode ended.
    `rewards` and `metrics` are of the info given out last.
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
    env_rewards: list[float]
    paid: dict[str, list[float]]
    rewards: dict[str, float]
    metrics: dict[str, float]

    def turns(self) -> list[Turn]:
        """The record's turns."""
        shown = pairwise(zip(self.observations, self.infos, strict=True))
        turns = [
            Turn(observation, action, before, next_observation, info)
            for ((observation, before), (next_observation, info)), action in zip(
                shown, self.actions, strict=True
            )
        ]
        if turns:
            turns[-1] = turns[-1]._replace(end=self.end)
        return turns

    def check(self, names: list[str], env_state: Any) -> None:
        """Raise a one-line `ValueError` for what no episode can be.

        Args:
            names: of the methods.
            env_state: see `EpisodeRewards.from_state`.
        """
        turns = len(self.actions)
        per_turn = [
            self.outcomes,
            self.turn_rewards,
            self.env_rewards,
            *self.signals.values(),
            *self.paid.values(),
        ]
        credits = [credit for some in self.credits.values() for credit in some]
        shown = len(self.observations), len(self.infos)
        played = _turns_played(env_state)
        wrong = {
            f"{turns} replies to {shown[0]} observations and {shown[1]} infos": shown != (turns + 1,) * 2,
            f"an info without its {', '.join(INFO_FIELDS)}": any(
                not isinstance(info.get(name), kind)
                for info in self.infos
                for name, kind in INFO_FIELDS.items()
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
                raise ValueError(f"the state's record cannot be: it has {what}")


@dataclass
class Slot:
    """The episodes of one environment of a group.

    Attributes:
        number: of the current episode, counted in step with the other environments of the group.
        current: the episode that is being played or has just ended; None before the first.
        waiting: ended episodes whose group is not complete, by number.
    """

    number: int = -1
    current: EpisodeRewards | None = None
    waiting: dict[int, EpisodeRewards] = field(default_factory=dict)

    def to_state(self) -> SlotState:
        """All of it; where the current episode waits, None stands for it among those that wait."""
        waiting = [
            (number, None if episode is self.current else episode.to_state())
            for number, episode in self.waiting.items()
        ]
        return SlotState(self.number, self.current.to_state() if self.current else None, waiting)

    @classmethod
    def from_state(cls, stack: MethodStack, state: SlotState, env_state: Any) -> Slot:
        """Go on from a state; the arguments as of `EpisodeRewards.from_state`.

        Raises:
            ValueError: no environment of a group can be so.
        """
        current = EpisodeRewards.from_state(stack, state.current, env_state) if state.current else None
        waiting: dict[int, EpisodeRewards] = {}
        for number, other in state.waiting:
            episode = EpisodeRewards.from_state(stack, other, None) if other else current
            if episode is None or not episode.record.over:
                raise ValueError(f"the state's slot cannot be: episode {number} waits and has not ended")
            waiting[number] = episode
        return cls(state.number, current, waiting)


@dataclass
class SlotState:
    """A slot in a state; see `Slot.to_state`."""

    number: int
    current: EpisodeRewardsState | None
    waiting: list[tuple[int, EpisodeRewardsState | None]]


class Groups:
    """Groups of G neighbouring environments: the n-th episodes of a group's environments belong together.

    An episode that is reset before its end leaves its number to the next one.

    Args:
        count: N environments.
        size: G, a divisor of N.

    Raises:
        ValueError: `size` does not divide `count`.
    """

    def __init__(self, count: int, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1 or count % size:
            raise ValueError(f"group_size must divide the {count} environments, got {size!r}")
        self.size = size
        self.slots = [Slot() for _ in range(count)]

    def neighbours(self, i: int) -> range:
        """The environments of environment i's group, itself included."""
        return range(i - i % self.size, i - i % self.size + self.size)

    def forget(self, i: int, *, restart: bool) -> None:
        """Begin afresh with the group of environment i: what waited is dropped.

        Args:
            i: the environment.
            restart: count its episodes from 0 again.
        """
        number = -1 if restart else max(self.slots[j].number for j in self.neighbours(i))
        for j in self.neighbours(i):
            self.slots[j] = Slot(number)

    def next_number(self, i: int) -> int:
        """The number of the episode that environment i would begin now."""
        slot = self.slots[i]
        return slot.number + (slot.current is None or slot.current.record.over)

    def begin(self, i: int, episode: EpisodeRewards) -> None:
        """Environment i begins an episode."""
        self.slots[i].number, self.slots[i].current = self.next_number(i), episode

    def current(self, i: int) -> EpisodeRewards:
        """The episode of environment i.

        Raises:
            ValueError: it has none.
        """
        episode = self.slots[i].current
        if episode is None:
            raise ValueError(f"environment {i} was reset before it was wrapped; call reset() on the wrapper")
        return episode

    def check_task(self, i: int) -> None:
        """Refuse environment i's first turn if its neighbours play, or have played, another task.

        Raises:
            ValueError: with the two tasks.
        """
        number, task = self.slots[i].number, self.current(i).env_info["task"]
        for j in self.neighbours(i):
            slot = self.slots[j]
            other = slot.waiting.get(number, slot.current if slot.number == number else None)
            if other is None or not other.record.turns:  # one that never began has no task
                continue
            if (theirs := other.env_info["task"]) != task:
                raise ValueError(
                    f"environments {i} and {j} are of one group but play tasks {task!r} and {theirs!r}; "
                    f"reset the {self.size} environments together, with one seed"
                )

    def end(self, i: int) -> list[tuple[int, EpisodeRewards]]:
        """Environment i's episode has ended: all of its group by environment, if that is complete."""
        number = self.slots[i].number
        self.slots[i].waiting[number] = self.current(i)
        if not all(number in self.slots[j].waiting for j in self.neighbours(i)):
            return []
        return [(j, self.slots[j].waiting.pop(number)) for j in self.neighbours(i)]


def score(scorer: Scorer | None, requests: Sequence[Requests], template: Template | None) -> list[Scores]:
    """Score every request of several turns by one call of the scorer, equal requests once.

    Args:
        scorer: may be None where nothing is asked.
        requests: of each turn.
        template: makes the model's prompt of a prompt; None leaves it as it is.

    Raises:
        ValueError: no scorer, and something is asked.
    """
    unique = {request: None for of in requests for some in of.values() for request in some}
    if not unique:
        return [{} for _ in requests]
    if scorer is None:
        raise ValueError("a method asks for log-probabilities; give a scorer, e.g. scorer='lexical'")
    rendered = list(unique)
    if template is not None:
        rendered = [ScoreRequest(template.fill(prompt=prompt), text) for prompt, text in unique]
    scores = dict(zip(unique, scorer.logprobs(rendered), strict=True))
    return [{name: [scores[request] for request in some] for name, some in of.items()} for of in requests]


def score_apart(
    scorer: Scorer | None, requests: Sequence[Requests], template: Template | None
) -> list[Scores | str]:
    """As `score`; if that call raises, turn by turn: the error in one line where it raises again."""
    try:
        return [*score(scorer, requests, template)]
    except Exception as error:
        if scorer is None:
            raise
        if len(requests) == 1:
            return [error_line(error)]
    return [scores for one in requests for scores in score_apart(scorer, [one], template)]


@dataclass
class _StackState:
    """What a state holds of a list of methods: names with settings, and what they remember."""

    methods: list[tuple[str, dict[str, Any]]]
    memories: dict[str, dict[str, Any]]


def _turns_played(state: Any) -> Any:
    """Turns of the text environment that a state is of, inside any wrappers; None where it does not say."""
    while isinstance(state, dict) and "inner" in state:
        state = state["inner"]
    episode = state.get("episode") if isinstance(state, dict) else None
    return episode.get("turn") if isinstance(episode, dict) else None


def _failed_credits(episode: Episode, signals: list[float]) -> list[Credit]:
    """Credits of an episode that an error ended; what was paid at its turn stays paid."""
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


def _nan_to_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
