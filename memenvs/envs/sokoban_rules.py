"""What the Sokoban environments share: which levels are played, and what a step earns."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from memenvs.data import bundled
from memenvs.sokoban import BatchStep, Board, LevelSet, Step
from memenvs.sokoban.board import Grid
from memenvs.state import text_hash

BUNDLED = "sokoban_6x6_1box"


@dataclass(frozen=True)
class Weights:
    """What a reward is made of.

    Attributes:
        outcome: once, when the level is solved.
        placed: for each box pushed onto a target.
        removed: for each box pushed off one.
        format: for each turn whose reply is well formed.
        malformed: for each turn whose reply is not.
        step: for each step that leaves the level unsolved.
        last_step: for the step that solves it.
    """

    outcome: float = 0.0
    placed: float = 0.0
    removed: float = 0.0
    format: float = 0.0
    malformed: float = 0.0
    step: float = 0.0
    last_step: float = 0.0

    def components(self, step: Step) -> tuple[float, float, float]:
        """Outcome, placement and step penalty of one step."""
        placement = self.placed * step.pushed_on + self.removed * step.pushed_off
        return self.outcome * step.solved, placement, self.last_step if step.solved else self.step

    def totals(self, step: BatchStep) -> NDArray[np.float64]:
        """The sum of the components, of N boards: (N,)."""
        totals = np.where(step.solved, self.outcome + self.last_step, self.step)
        if self.placed:
            totals += self.placed * step.pushed_on
        if self.removed:
            totals += self.removed * step.pushed_off
        return totals


REWARDS = {
    "mt_ppo": Weights(outcome=10.0, placed=1.0, format=0.5, step=-0.1),  # MT-PPO, appendix E
    "classic": Weights(outcome=10.0, placed=1.0, removed=-1.0, step=-0.1, last_step=-0.1),  # gym-sokoban
    "outcome": Weights(outcome=10.0),
    # No component can be earned again and again: a turn costs what it earned in "mt_ppo", and a box pushed
    # off gives back what pushing it on earned.
    "bounded": Weights(outcome=10.0, placed=1.0, removed=-1.0, malformed=-0.5, step=-0.1),
}


def read_weights(rewards: str | dict[str, float]) -> Weights:
    """Weights by name, or by the fields of `Weights`.

    Raises:
        ValueError: no such name or field.
    """
    if isinstance(rewards, dict):
        if unknown := sorted(set(rewards) - set(asdict(Weights()))):
            raise ValueError(
                f"rewards has no field {unknown[0]!r}; its fields are {', '.join(asdict(Weights()))}"
            )
        return Weights(**rewards)
    if rewards not in REWARDS:
        raise ValueError(f"rewards must be one of {', '.join(REWARDS)} or a dictionary, got {rewards!r}")
    return REWARDS[rewards]


@functools.lru_cache(maxsize=16)
def open_levels(name: str, split: str | None) -> LevelSet:
    """A level set by bundled name or by file, read once a process; `split` None takes all of it."""
    return LevelSet.load(bundled(f"{name}.npz") if name == BUNDLED else name, split, fill=True)


def levels_hash(levels: LevelSet) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the boards."""
    return text_hash(levels.boards.tobytes())


def replay(board: Grid, moves: Sequence[int]) -> Board:
    """The board after some moves, before the last of which it was not solved.

    Raises:
        ValueError: a move is not 0 to 3, or comes after the level is solved.
    """
    now = Board(board)
    for move in moves:
        if now.solved or move not in range(4):
            raise ValueError(f"the state's moves cannot be: {move} comes after the end or is none of 0 to 3")
        now.step(move)
    return now


def choose_levels(levels: LevelSet, least: int, most: int | None) -> NDArray[np.intp]:
    """Numbers of the levels whose shortest solution has `least` to `most` moves, or is not known.

    Raises:
        ValueError: there are none.
    """
    lengths = levels.lengths
    top = int(lengths.max()) if most is None else most
    (chosen,) = np.nonzero((lengths < 0) | ((lengths >= least) & (lengths <= top)))
    if not len(chosen):
        raise ValueError(
            f"no level has a shortest solution of {least} to {top} moves; this set has {lengths.min()} to "
            f"{lengths.max()}: change min_solution or max_solution, or allow more turns"
        )
    return chosen
