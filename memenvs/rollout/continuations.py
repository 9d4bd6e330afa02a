"""Values of states: the policy plays on from each, for methods that ask for `continuations`."""

from __future__ import annotations

import copy
import logging
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from memenvs.core.env import env_name, privileged_of
from memenvs.core.episode import Episode, Turn, observation_text
from memenvs.core.errors import counted, error_line
from memenvs.rollout.policy import Request
from memenvs.wrappers.method import RewardMethod

_log = logging.getLogger(__name__)


@dataclass
class State:
    """A state of a group: where to play on, the turns that act in it, and what was played from it.

    Attributes:
        start: the turn, with the environment and the episode before it.
        turns: of all episodes of the group, those that act in this state.
        played: the continuations, by the name of the method that asked for them.
    """

    start: Request
    turns: list[Turn] = field(default_factory=list)
    played: dict[str, list[Episode]] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether all continuations have ended."""
        return all(episode.over for played in self.played.values() for episode in played)

    def value(self, name: str) -> float:
        """The mean of what a method's continuations earned from here on; NaN if all failed."""
        before = len(self.start.episode.turns)
        earned = [
            math.fsum(value for turn in episode.turns[before:] for value in turn.components.values())
            for episode in self.played[name]
            if not episode.error
        ]
        return float(np.mean(earned)) if earned else math.nan


class Continuing:
    """Plays on from the states of ended groups, beside the episodes of a `Loop`, and values the states.

    Turns of a group act in one state if their number, what the policy reads and, where the environment has
    it, `privileged/state` are equal. A state's value becomes the signal of each of its turns. Continuation j
    of state i is drawn from the `SeedSequence` of the group with i, the number of the method, and j.

    Args:
        methods: reward methods, of which some may ask for continuations.
    """

    def __init__(self, methods: Sequence[RewardMethod]) -> None:
        self._counts = {method.name: method.continuations for method in methods if method.continuations}
        self._saved: dict[int, list[Request]] = {}  # the states of an episode's turns, by its id
        self._waiting: deque[tuple[Request, Episode, np.random.Generator]] = deque()
        self._open: list[tuple[Sequence[Episode], list[State]]] = []
        self._told = False

    @property
    def under_way(self) -> bool:
        """Whether a group waits for its values."""
        return bool(self._open)

    def save(self, request: Request) -> None:
        """Keep the state in which a turn is about to act, if a method asks for continuations.

        An episode whose first turn was not kept is a continuation, which has no states of its own.
        """
        if request.first and self._counts:
            self._saved[id(request.episode)] = []  # one of an interrupted play may have had the same id
        if (saved := self._saved.get(id(request.episode))) is not None:
            saved.append(branch(request, copied(request.episode), request.rng))

    def reset(self) -> None:
        """Forget what an interrupted play has left to play; what is saved is kept."""
        self._open.clear()
        self._waiting.clear()

    def next(self) -> Request | None:
        """Begin a continuation; None where none waits."""
        return branch(*self._waiting.popleft()) if self._waiting else None

    def value(self, ended: Iterable[Sequence[Episode]]) -> list[Sequence[Episode]]:
        """Take groups that have ended; return those, of these and earlier ones, that have their values."""
        self._open += [(group, self._plan(group)) for group in ended]
        valued: list[Sequence[Episode]] = []
        for group, states in self._open:
            if all(state.over for state in states):
                valued.append(group)
                for name in self._counts:
                    _measure(group, states, name)
        self._open = [pair for pair in self._open if not all(state.over for state in pair[1])]
        return valued

    def _plan(self, group: Sequence[Episode]) -> list[State]:
        """The states of a group, whose continuations now wait."""
        states: dict[tuple[int, str, str], State] = {}
        replies, draws = 0, sum(self._counts.values())
        # Last those that were over before the loop began, which have no states of their own to play on from.
        for episode in sorted(group, key=lambda episode: id(episode) not in self._saved) if draws else ():
            saved = self._saved.pop(id(episode), [])
            for number, turn in enumerate([] if episode.error else episode.turns):
                board = str(privileged_of(turn.before).get("state", ""))
                key = number, observation_text(turn.observation), board
                if key not in states and saved:
                    states[key] = State(saved[number])
                    replies += draws * (len(episode.turns) - number)
                if key in states:
                    states[key].turns.append(turn)
        if replies and not self._told:
            self._told = True
            replied = sum(len(episode.turns) for episode in group)
            _log.warning(
                "%s: playing on from %s of the first group, which has %s, takes about %d more replies; other "
                "groups are alike",
                " and ".join(self._counts),
                *(counted(len(states), "state"), counted(replied, "turn"), replies),
            )
        for i, state in enumerate(states.values()):
            for method, (name, count) in enumerate(self._counts.items()):
                state.played[name] = [copied(state.start.episode) for _ in range(count)]
                for j, episode in enumerate(state.played[name]):
                    # A spawn key, since [group, 0] and [group] would be one seed.
                    seed = np.random.SeedSequence(episode.group, spawn_key=(i, method, j))
                    self._waiting.append((state.start, episode, np.random.default_rng(seed)))
        return [*states.values()]


def _measure(group: Sequence[Episode], states: Sequence[State], name: str) -> None:
    """Write the values of states into the turns of a group, as the signals of a method."""
    for state in states:
        value = state.value(name)
        for turn in state.turns:
            turn.signals[name] = value
    for episode in group:
        values = [turn.signals.get(name, math.nan) for turn in episode.turns]
        episode.measured[name] = np.flatnonzero(np.isfinite(values)).tolist()


def branch(state: Request, episode: Episode, rng: np.random.Generator) -> Request:
    """Play on from a state: its turn, in an environment of its own.

    Args:
        state: the turn, which is not changed.
        episode: the record to fill, such as `copied(state.episode)`.
        rng: generator of the replies.

    Raises:
        ValueError: the environment cannot be copied.
    """
    try:
        # Nobody closes the copy: that could close what it shares with the others, such as a client.
        env = copy.deepcopy(state.env)
    except Exception as error:
        raise ValueError(
            f"{env_name(state.env)} cannot be copied, so nothing can be played on from its states "
            f"({error_line(error)})"
        ) from error
    return Request(env, episode, Turn(state.observation, state.info), rng, first=True)


def copied(episode: Episode) -> Episode:
    """A record of the same turns, to which others can be added; it keeps their signals, no credits."""
    turns = [replace(turn, signals=dict(turn.signals), credits={}) for turn in episode.turns]
    measured = {name: list(numbers) for name, numbers in episode.measured.items()}
    return replace(episode, turns=turns, metrics={}, measured=measured)
