"""The finite environments of the bench, and the exact values of a policy in them.

A reply is one of A actions. A task is drawn when an episode starts; everything else, except a noise of mean 0
on rewards, follows from it and the replies. So a world is a table over its S states, each of which belongs to
one turn, and values are sums from the last turn to the first, without sampling. A policy reads not the state
but one of O observations of it, through the features (O, A, F) of a log-linear policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

END = -1
LETTERS, DIGITS = 4, 10
CALLS, CALL_SHARE = 0.7, 0.4  # what all calls of an episode pay together; how often the initial policy calls
NOISE, BAIT, COST = 1.0, 0.5, 0.1
# A memory holds one of eleven symbols or nothing. With few, avoiding what is not asked for would be enough.
TRUTH, DISTRACTOR, EMPTY, SYMBOLS = 0, 1, 11, 12
COPYING = (
    2.0  # logit of copying before training: evidence with nothing else to copy is copied in 40% of turns
)
EVIDENCE_SHOWN, DISTRACTOR_SHOWN, NOTHING_SHOWN = 0, 1, 2


@dataclass(frozen=True)
class TabularWorld:
    """An environment of K turns as tables.

    Attributes:
        name: name of the environment.
        turns: K.
        starts: (T,) the first state of each task; tasks are equally likely.
        turn: (S,) the turn of each state, from 0.
        observed: (S,) the observation in each state.
        follow: (S, A) the next state, or `END`.
        pay: (S, A) the turn's reward without the outcome.
        outcome: (S, A).
        noise: (S,) standard deviation of what is added to `pay`.
        good: (S, A) whether the best policy may reply so.
        features: (O, A, F) of a log-linear policy.
        initial: (F,) its parameters before training.
        passages: (S, A) number of the document that a reply returns, -1 for none; None if no reply searches.
        evidence: numbers of the documents with evidence.
        memory: (S,) the symbol in the memory; None without a memory.
        shown: (S,) what a reading turn shows; None without a memory.
    """

    name: str
    turns: int
    starts: Ints
    turn: Ints
    observed: Ints
    follow: Ints
    pay: Array
    outcome: Array
    noise: Array
    good: NDArray[np.bool_]
    features: Array
    initial: Array
    passages: Ints | None = None
    evidence: tuple[int, ...] = ()
    memory: Ints | None = None
    shown: Ints | None = None

    def best(self) -> float:
        """The return of the best policy."""
        return self.expected_return(self.good / self.good.sum(1, keepdims=True))

    def expected_return(self, by_state: Array) -> float:
        """The mean return of replies with these probabilities (S, A), over equally likely tasks."""
        values = self.action_values(by_state)
        return float((by_state * values).sum(1)[self.starts].mean())

    def action_values(self, by_state: Array) -> Array:
        """Q (S, A): the expected rewards from the reply on, of its own turn and later ones."""
        values = self.pay + self.outcome
        for turn in reversed(range(self.turns - 1)):
            rows = np.flatnonzero(self.turn == turn)
            after = (by_state * values).sum(1)
            follow = self.follow[rows]
            values[rows] += np.where(follow == END, 0.0, after[follow])
        return values

    def visits(self, by_state: Array) -> Array:
        """(S,) the probability that an episode visits a state."""
        visits = np.bincount(self.starts, minlength=len(self.turn)) / len(self.starts)
        for turn in range(self.turns - 1):
            rows = np.flatnonzero(self.turn == turn)
            follow, share = self.follow[rows], visits[rows, None] * by_state[rows]
            going = follow != END
            np.add.at(visits, follow[going], share[going])
        return visits

    def advantages(self, probs: Array) -> tuple[Array, Array]:
        """A(o, a) (O, A), exact, of the policy (O, A), and how often (O,) each observation occurs.

        The mean of Q - V over the states with an observation, weighted by their visits.
        """
        by_state = probs[self.observed]
        values = self.action_values(by_state)
        values -= (by_state * values).sum(1, keepdims=True)
        visits = self.visits(by_state)
        seen, total = np.zeros(len(probs)), np.zeros(probs.shape)
        np.add.at(seen, self.observed, visits)
        np.add.at(total, self.observed, visits[:, None] * values)
        return total / np.maximum(seen, 1e-300)[:, None], seen

    def turn_of_observation(self) -> Ints:
        """(O,) the turn of each observation; -1 if it never occurs."""
        turns = np.full(len(self.features), -1, np.int64)
        turns[self.observed] = self.turn
        return turns


def probabilities(features: Array, parameters: Array) -> Array:
    """(O, A) of the log-linear policy."""
    logits = features @ parameters
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def chain(turns: int) -> TabularWorld:
    """Each turn has its own right reply, paying 1 before the last turn; the outcome is 1 if all are right."""
    states = [(turn, sound) for turn in range(turns) for sound in (True, False) if turn or sound]

    def play(state: tuple[int, bool], action: int) -> dict[str, Any]:
        turn, sound = state
        right = action == turn % LETTERS
        last = turn == turns - 1
        return {
            "follow": None if last else (turn + 1, sound and right),
            "pay": float(right and not last),
            "outcome": float(last and sound and right),
            "good": right,
            "passage": -1 if last else turn if right else turns,  # wrong replies all return the same
        }

    return _world(
        "chain", turns, states, play, LETTERS, see=lambda state: state[0], evidence=range(turns - 1)
    )


def calling(turns: int) -> TabularWorld:
    """A call pays its part of 0.7 and continues; a digit answers, right once in ten, not at the last turn."""
    states = [(turn, digit) for turn in range(turns) for digit in range(DIGITS)]

    def play(state: tuple[int, int], action: int) -> dict[str, Any]:
        turn, digit = state
        called, last = action == 0, turn == turns - 1
        return {
            "follow": (turn + 1, digit) if called and not last else None,
            "pay": CALLS / (turns - 1) if called and not last else 0.0,
            "outcome": float(action == digit + 1 and not last),
            "good": called or last,
        }

    logits = np.log([CALL_SHARE] + [(1 - CALL_SHARE) / DIGITS] * DIGITS)
    return _world("calling", turns, states, play, DIGITS + 1, see=lambda state: state[0], logits=logits)


def late(turns: int) -> TabularWorld:
    """The first reply decides and the last turn pays; the turns between pay noise for any reply."""

    def pay(action: int) -> float:
        return 0.0

    return _decided("late", turns, pay, NOISE)


def distracting(turns: int) -> TabularWorld:
    """`late` without noise; one of the wrong first replies pays 0.5 at once."""

    def pay(action: int) -> float:
        return BAIT if action == 1 else 0.0

    return _decided("distracting", turns, pay, 0.0)


def stopping(turns: int) -> TabularWorld:
    """Continue for a cost of 0.1, or answer: right from a random turn on, which shows the evidence."""
    states = [(turn, when) for turn in range(turns) for when in range(turns)]

    def play(state: tuple[int, int], action: int) -> dict[str, Any]:
        turn, when = state
        on, found = action == 0, turn >= when
        return {
            "follow": (turn + 1, when) if on and turn < turns - 1 else None,
            "pay": -COST if on else 0.0,
            "outcome": float(not on and found),
            "good": on != found,
            "passage": -1 if not on else 0 if turn + 1 == when else 1,
        }

    return _world(
        "stopping", turns, states, play, 2, see=lambda state: (state[0], state[0] >= state[1]), evidence=(0,)
    )


def carrying(turns: int) -> TabularWorld:
    """The first turn shows a symbol that the last asks for; each turn before the last writes the memory."""
    return _memory("carrying", turns, [0])


def once(turns: int) -> TabularWorld:
    """`carrying`, but the symbol is shown at a random turn before the last."""
    return _memory("once", turns, range(turns - 1))


WORLDS: dict[str, Callable[[int], TabularWorld]] = {
    world.__name__: world for world in (chain, calling, late, distracting, stopping, carrying, once)
}


def _decided(name: str, turns: int, pay: Callable[[int], float], noise: float) -> TabularWorld:
    states = [(0, False)] + [(turn, right) for turn in range(1, turns) for right in (True, False)]

    def play(state: tuple[int, bool], action: int) -> dict[str, Any]:
        turn, right = state
        last = turn == turns - 1
        return {
            "follow": None if last else (turn + 1, right if turn else action == 0),
            "pay": 0.0 if turn else pay(action),
            "outcome": float(last and right),
            "noise": noise if 0 < turn < turns - 1 else 0.0,
            "good": turn > 0 or action == 0,
        }

    return _world(name, turns, states, play, LETTERS, see=lambda state: state[0])


def _memory(name: str, turns: int, when: Sequence[int]) -> TabularWorld:
    """A reading turn copies what is shown, copies the memory, or forgets; the last answers from the memory.

    A policy knows symbols only by their position: three features per reading turn for copying the evidence, a
    distractor and the memory, and one for writing nothing.
    """
    states = [
        (turn, start, memory)
        for turn in range(turns)
        for start in when
        for memory in (range(SYMBOLS) if turn else [EMPTY])
    ]

    def shown(state: tuple[int, int, int]) -> int:
        if state[0] == turns - 1:
            return NOTHING_SHOWN
        return EVIDENCE_SHOWN if state[0] == state[1] else DISTRACTOR_SHOWN

    def play(state: tuple[int, int, int], action: int) -> dict[str, Any]:
        turn, start, memory = state
        last = turn == turns - 1
        copied = TRUTH if turn == start else memory
        return {
            "follow": None if last else (turn + 1, start, action),
            "pay": 0.0,
            "outcome": float(last and action == TRUTH),
            "good": action == copied,
        }

    observations = [
        (turn, kind, memory) for turn in range(turns) for kind in range(3) for memory in range(SYMBOLS)
    ]
    features = np.zeros((len(observations), SYMBOLS, 4 * turns))
    for number, (turn, kind, memory) in enumerate(observations):
        own = features[number, :, 4 * turn : 4 * turn + 4]
        if kind == EVIDENCE_SHOWN:
            own[TRUTH, 0] = 1.0
        elif kind == DISTRACTOR_SHOWN:
            own[DISTRACTOR, 1] = 1.0
        if memory != EMPTY:
            own[memory, 2] = 1.0
        own[EMPTY, 3] = 1.0
    world = _world(
        name,
        turns,
        states,
        play,
        SYMBOLS,
        see=lambda state: (state[0], shown(state), state[2]),
        observations=observations,
    )
    return replace(
        world,
        features=features,
        initial=np.tile([COPYING, COPYING, COPYING, 0.0], turns),
        memory=np.array([state[2] for state in states]),
        shown=np.array([shown(state) for state in states]),
    )


def observation_of(turn: Any, kind: Any, memory: Any) -> Any:
    """The number of an observation of `carrying` and `once`; for arrays, an array."""
    return (turn * 3 + kind) * SYMBOLS + memory


def _world(
    name: str,
    turns: int,
    states: Sequence[Any],
    play: Callable[[Any, int], dict[str, Any]],
    actions: int,
    *,
    see: Callable[[Any], Any],
    observations: Sequence[Any] | None = None,
    logits: Array | None = None,
    evidence: Sequence[int] = (),
) -> TabularWorld:
    """The tables of a world from its rules, with a parameter for each reply to each observation."""
    if turns < 2:
        raise ValueError(f"a world needs 2 turns or more, got {turns}")
    number = {state: s for s, state in enumerate(states)}
    seen = list(dict.fromkeys(see(state) for state in states)) if observations is None else list(observations)
    place = {observation: o for o, observation in enumerate(seen)}
    rows = [[play(state, action) for action in range(actions)] for state in states]

    def table(key: str, missing: float = 0.0) -> Array:
        return np.array([[one.get(key, missing) for one in row] for row in rows], np.float64)

    follow = [[END if one["follow"] is None else number[one["follow"]] for one in row] for row in rows]
    size = len(seen) * actions
    start = np.zeros(actions) if logits is None else logits
    return TabularWorld(
        name=name,
        turns=turns,
        starts=np.array([s for s, state in enumerate(states) if state[0] == 0]),
        turn=np.array([state[0] for state in states]),
        observed=np.array([place[see(state)] for state in states]),
        follow=np.array(follow),
        pay=table("pay"),
        outcome=table("outcome"),
        noise=table("noise").max(1),
        good=table("good") > 0,
        features=np.eye(size).reshape(len(seen), actions, size),
        initial=np.tile(start, len(seen)),
        passages=table("passage", -1).astype(np.int64) if evidence else None,
        evidence=tuple(evidence),
    )
