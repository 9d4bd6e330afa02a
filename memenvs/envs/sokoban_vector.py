"""N Sokoban boards stepped in one array operation, behind Gymnasium's vector interface."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from memenvs.envs.sokoban_grid import SokobanGridEnv, draw, planes
from memenvs.sokoban import BoardBatch, is_deadlocked
from memenvs.tokens import check_positive
from memenvs.vector_options import one_each, read_mask, read_seeds

Mask = NDArray[np.bool_]


class SokobanVectorEnv(VectorEnv[Any, Any, Any]):
    """`SokobanGridEnv` N times: the same levels, seeds, rewards and infos as N of them in a `SyncVectorEnv`.

    Observations are (N, H, W, 7) or (N, 7, H, W) uint8. Sub-environment i of `reset(seed=s)` draws its levels
    as a single environment with seed `s + i` does.

    Args:
        num_envs: N.
        autoreset_mode: `"NextStep"` (the step after an end resets), `"SameStep"` (the final observation is in
            `infos["final_obs"]`, its info in `infos["final_info"]`) or `"Disabled"` (reset by
            `options={"reset_mask": mask}`).
        **kwargs: those of `SokobanGridEnv`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **kwargs: Any,
    ) -> None:
        check_positive("num_envs", num_envs, "boards")
        single = SokobanGridEnv(**kwargs)
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**single.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = single.render_mode
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)
        self._single = single
        self._generators: list[np.random.Generator] = [np.random.default_rng() for _ in range(num_envs)]
        self._drawn: list[list[int]] = [[] for _ in range(num_envs)]
        self._boards: BoardBatch | None = None
        self._level = np.zeros(num_envs, np.int64)
        self._steps = np.zeros(num_envs, np.int64)
        self._over: Mask = np.zeros(num_envs, np.bool_)
        self._deadlocked = np.zeros(num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start new levels, in all boards or in some.

        Args:
            seed: one a board, or a first one s for s, s + 1, …
            options: `task` is a level's number for all or one for each; `reset_mask` (N,) bool, which boards.

        Raises:
            ValueError: another number of seeds or tasks than boards, an unknown option, a level there is not.
        """
        options = dict(options or {})
        mask = read_mask("reset_mask", options.pop("reset_mask", None), self.num_envs)
        seeds = read_seeds(seed, self.num_envs)
        given = one_each("task", options.pop("task", None), self.num_envs)
        tasks = [self._single.read_task({**options, "task": task}) for task in given]
        if self._boards is None and not mask.all():
            raise gym.error.ResetNeeded("the first reset must start every board; leave reset_mask out")
        for i, value in enumerate(seeds):
            if value is not None and mask[i]:
                self._generators[i], _ = gym.utils.seeding.np_random(value)
                self._drawn[i] = []
        self._begin(np.flatnonzero(mask), tasks)
        return self._observe(), self._infos(mask)

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Move every board; what a board's end does is the autoreset mode's to say.

        Raises:
            ResetNeeded: before the first reset, and in mode "Disabled" where a board is over.
            ValueError: actions that are not (N,) integers from 0 to 3; no board has moved then.
        """
        boards = self._playing()
        over, mode = self._over, self.autoreset_mode
        if mode is AutoresetMode.DISABLED and over.any():
            raise gym.error.ResetNeeded(
                f"board {int(over.argmax())} is over; reset it by options={{'reset_mask': mask}}"
            )
        moves = self._read_actions(actions)
        starting = over if mode is AutoresetMode.NEXT_STEP else None
        active = None if starting is None or not starting.any() else ~starting
        done = boards.step(moves, active)
        rewards = self.single_weights.totals(done)
        self._steps += 1
        for row in np.flatnonzero(done.moved_box):
            self._deadlocked[row] = is_deadlocked(boards.cells[row])
        terminated, truncated = done.solved.copy(), ~done.solved & (self._steps >= self._single.max_steps)
        if starting is not None and starting.any():
            self._begin(np.flatnonzero(starting))
            rewards[starting] = 0.0
            terminated &= ~starting
            truncated &= ~starting
        self._over = terminated | truncated
        infos = self._infos(np.ones(self.num_envs, np.bool_), terminated)
        if mode is AutoresetMode.SAME_STEP and self._over.any():
            infos = self._restart(infos)
        return self._observe(), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """A picture or a text a board, by `render_mode`; None without one."""
        if self.render_mode is None:
            return None
        return tuple(draw(board, self.render_mode) for board in self._playing().cells)

    @property
    def single_weights(self) -> Any:
        """The weights of the rewards."""
        return self._single.weights

    def _playing(self) -> BoardBatch:
        if self._boards is None:
            raise gym.error.ResetNeeded("no levels yet; call reset() first")
        return self._boards

    def _read_actions(self, actions: Any) -> NDArray[np.integer]:
        moves = np.asarray(actions)
        if moves.shape != (self.num_envs,) or moves.dtype.kind not in "iu" or (moves & ~3).any():
            raise ValueError(
                f"actions are ({self.num_envs},) integers, 0 up, 1 down, 2 left, 3 right, got {actions!r}"
            )
        return moves

    def _begin(self, rows: NDArray[np.intp], tasks: list[int | None] | None = None) -> None:
        """Put new levels in these rows: those of `tasks` (N,), or drawn ones where there is None."""
        tasks = tasks or [None] * self.num_envs
        numbers = [self._draw(row) if (task := tasks[row]) is None else task for row in rows.tolist()]
        self._level[rows] = self._single.chosen[numbers]
        levels = self._single.levels.boards[self._level[rows]]
        if self._boards is None:
            self._boards = BoardBatch(levels)
        else:
            self._boards.replace(rows, levels)
        self._steps[rows] = 0
        self._deadlocked[rows] = [self._single.starts_deadlocked(level) for level in self._level[rows]]
        self._over = self._over.copy()
        self._over[rows] = False

    def _draw(self, row: int) -> int:
        """The next task of a row, drawn a few at once: the same numbers as one by one, sooner."""
        if not self._drawn[row]:
            self._drawn[row] = (
                self._generators[row].integers(len(self._single.chosen), size=32)[::-1].tolist()
            )
        return self._drawn[row].pop()

    def _restart(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Start anew what is over; the final observations and infos go under their own keys."""
        over = self._over
        finals, observed = np.full(self.num_envs, None, object), self._observe()
        for row in np.flatnonzero(over):
            finals[row] = observed[row]
        final_info = {name: np.where(over, value, np.zeros_like(value)) for name, value in infos.items()}
        self._begin(np.flatnonzero(over))
        fresh = self._infos(np.ones(self.num_envs, np.bool_))
        return {
            **fresh,
            "final_obs": finals,
            "_final_obs": over,
            "final_info": final_info,
            "_final_info": over,
        }

    def _observe(self) -> Any:
        return planes(self._playing().cells, self._single.channels_first)

    def _infos(self, mask: Mask, terminated: Mask | None = None) -> dict[str, Any]:
        """The infos of the single environments as arrays, with Gymnasium's `_key` masks."""
        success = np.zeros(self.num_envs) if terminated is None else terminated.astype(np.float64)
        values = {
            "level": self._level.copy(),
            "steps": self._steps.copy(),
            "success": success,
            "deadlocked": self._deadlocked.copy(),
        }
        return {**values, **{f"_{name}": mask.copy() for name in values}}
