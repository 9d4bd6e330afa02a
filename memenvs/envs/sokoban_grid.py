"""Sokoban a move at a time: a stack of planes goes out, one of four moves comes in."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from memenvs.envs.sokoban_rules import (
    BUNDLED,
    choose_levels,
    levels_hash,
    open_levels,
    read_weights,
    replay,
)
from memenvs.sokoban import Board, ansi, is_deadlocked, rgb
from memenvs.sokoban.board import CELLS
from memenvs.state import Stateful, check_keys, generator_state
from memenvs.tokens import check_positive
from memenvs.vector_options import is_whole

Planes = NDArray[np.uint8]

_LANES = np.zeros((16, 8), np.uint8)  # one plane a cell kind, and one that is never shown
_LANES[CELLS, range(7)] = 1
_LANES_AS_WORDS = _LANES.view(np.uint64).ravel()


def planes(cells: NDArray[np.uint8], channels_first: bool = False) -> Planes:
    """One-hot planes of boards (…, H, W): (…, H, W, 7) or (…, 7, H, W) uint8.

    Planes: wall, floor, target, box on target, box, player, player on target. Each square is looked up as one
    64-bit word, which is what makes this fast; the eighth byte is cut off, so the array is not contiguous.
    """
    words = _LANES_AS_WORDS.take(cells)
    lanes = words.view(np.uint8).reshape(*cells.shape, 8)[..., :7]
    return np.moveaxis(lanes, -1, -3) if channels_first else lanes


def planes_space(board: tuple[int, ...], channels_first: bool) -> gym.Space[Planes]:
    """The space of the planes of one board (H, W)."""
    height, width = board
    shape = (7, height, width) if channels_first else (height, width, 7)
    return cast(gym.Space[Planes], gym.spaces.Box(0, 1, shape, np.uint8))


def draw(board: NDArray[np.uint8], render_mode: str | None) -> Any:
    """A board (H, W) as text, as an RGB array, or not at all."""
    if render_mode == "rgb_array":
        return rgb(board, 32)
    return ansi(board) if render_mode == "ansi" else None


class SokobanGridEnv(Stateful, gym.Env[Planes, np.int64]):
    """Solve a Sokoban level a move at a time.

    Action:
        `Discrete(4)`: 0 up, 1 down, 2 left, 3 right. A player who cannot move stays.

    Observation:
        One-hot planes (H, W, 7) uint8, or (7, H, W) with `channels_first`: wall, floor, target, box on
        target, box, player, player on target.

    Reward:
        The weights of `MemSokoban-v0` without the format: `"mt_ppo"` +10 solved, +1 a box pushed on, -0.1 a
        step that leaves the level unsolved; `"classic"` also -1 a box pushed off and -0.1 for the last step;
        `"outcome"` +10 solved; or a dictionary of `Weights`' fields.

    End:
        `terminated` when solved, `truncated` after `max_steps`.

    Info:
        `level` (its number in the set), `steps`, `success` (1.0 or 0.0) and `deadlocked` (1.0 once no
        solution can be reached, as far as that is found without a search; else 0.0).

    Args:
        levels: a bundled level set's name, or a file: .npz, XSB or Boxoban text.
        level_split: a split of the set; None takes all levels.
        min_solution: fewest moves of a shortest solution.
        max_solution: most moves of one; None for any.
        max_steps: moves an episode.
        rewards: see Reward.
        channels_first: planes before rows.
        render_mode: `"ansi"`, `"rgb_array"` or None.

    Version:
        v0: first.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012
    unhashed = ("render_mode", "levels")

    def __init__(
        self,
        levels: str = BUNDLED,
        level_split: str | None = "train",
        min_solution: int = 1,
        max_solution: int | None = None,
        max_steps: int = 100,
        rewards: str | dict[str, float] = "mt_ppo",
        channels_first: bool = False,
        render_mode: str | None = None,
    ) -> None:
        check_positive("max_steps", max_steps, "moves")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None, ansi or rgb_array, got {render_mode!r}")
        self.levels, self._levels_name = open_levels(levels, level_split), Path(levels).name
        self.chosen = choose_levels(self.levels, min_solution, max_solution)
        self.max_steps, self.weights, self.channels_first = max_steps, read_weights(rewards), channels_first
        self.render_mode = render_mode
        self.action_space = gym.spaces.Discrete(4)
        self.observation_space = planes_space(self.levels.boards.shape[1:], channels_first)
        self._playing: Board | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Planes, dict[str, Any]]:
        """Start a level, drawn by the seed or given by `options={"task": i}`."""
        task = self.read_task(options or {})
        super().reset(seed=seed)
        if task is None:
            task = int(self.np_random.integers(len(self.chosen)))
        self._level = int(self.chosen[task])
        self._playing = Board(self.levels.boards[self._level])
        self._moves: list[int] = []
        self._over = False
        self._deadlocked = self.starts_deadlocked(self._level)
        return self._observe(), self._info(False)

    def step(self, action: Any) -> tuple[Planes, float, bool, bool, dict[str, Any]]:
        """Make one move.

        Raises:
            ResetNeeded: before a reset, and after the end.
            ValueError: an action that is not 0 to 3.
        """
        board = self._board
        if self._over:
            raise gym.error.ResetNeeded("the episode is over; call reset() before the next step()")
        move = _read_action(action)
        done = board.step(move)
        self._moves.append(move)
        if done.moved_box:
            self._deadlocked = is_deadlocked(board.grid)
        reward = sum(self.weights.components(done))
        truncated = not done.solved and len(self._moves) >= self.max_steps
        self._over = done.solved or truncated
        return self._observe(), reward, done.solved, truncated, self._info(done.solved)

    def task_set(self) -> tuple[str, str]:
        """The level set's file and the hash of its levels."""
        return self._levels_name, levels_hash(self.levels)

    def get_state(self) -> dict[str, Any]:
        """The moves of the episode and the random generator, as plain data; see `TextEnv.get_state`."""
        self._board  # noqa: B018  # raises where no episode has begun
        state = {"level": self._level, "moves": list(self._moves)}
        return {**self.identity(), **state, "np_random": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of `get_state`.

        Raises:
            ValueError: a state of another environment, or one that cannot be; nothing has changed then.
        """
        self.check_identity(state)
        check_keys(state, "level", "moves", "np_random")
        level, moves = state["level"], state["moves"]
        if not is_whole(level) or level not in self.chosen:
            raise ValueError(f"the state's level cannot be: {level!r} is none of those that are played")
        if not isinstance(moves, list) or not all(map(is_whole, moves)) or len(moves) > self.max_steps:
            raise ValueError(f"the state's moves must be a list of at most {self.max_steps} numbers")
        board = replay(self.levels.boards[level], moves)
        self.np_random.bit_generator.state = generator_state(state["np_random"], self.np_random)
        self._level, self._playing, self._moves = level, board, list(moves)
        self._over = board.solved or len(moves) >= self.max_steps
        self._deadlocked = is_deadlocked(board.grid)

    def render(self) -> Any:
        """The board as text or as an RGB array."""
        return draw(self._board.grid, self.render_mode)

    def read_task(self, options: dict[str, Any]) -> int | None:
        """The level that a reset's options pick; None where one is to be drawn.

        Raises:
            ValueError: an unknown option, or a task that is no number of a level.
        """
        if unknown := sorted(set(options) - {"task"}):
            raise ValueError(f"unknown reset option {unknown[0]!r}; the one option is 'task', a number")
        task = options.get("task")
        if task is not None and not (is_whole(task) and 0 <= task < len(self.chosen)):
            raise ValueError(
                f"options['task'] must be a number from 0 to {len(self.chosen) - 1}, got {task!r}"
            )
        return None if task is None else int(task)

    def starts_deadlocked(self, level: int) -> bool:
        """Whether a level is lost at its start; one whose solution is known is not, without a look."""
        return bool(self.levels.lengths[level] < 0) and is_deadlocked(self.levels.boards[level])

    @property
    def _board(self) -> Board:
        if self._playing is None:
            raise gym.error.ResetNeeded("no level yet; call reset() first")
        return self._playing

    def _observe(self) -> Planes:
        return planes(self._board.grid, self.channels_first)

    def _info(self, solved: bool) -> dict[str, Any]:
        return {
            "level": self._level,
            "steps": len(self._moves),
            "success": float(solved),
            "deadlocked": float(self._deadlocked),
        }


def _read_action(action: Any) -> int:
    try:
        move = operator.index(action)
    except TypeError:
        move = -1
    if not 0 <= move <= 3:
        raise ValueError(f"an action is 0 up, 1 down, 2 left or 3 right, got {action!r}")
    return move
