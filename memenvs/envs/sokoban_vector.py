"""N Sokoban boards stepped in one array operation, behind Gymnasium's vector interface."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from memenvs.envs.sokoban_grid import SokobanGridEnv, planes
from memenvs.sokoban import BoardBatch, is_deadlocked

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

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new levels, in all boards or in those of `options["reset_mask"]`.

        `options["task"]`, (N,) numbers, picks the levels by hand.
        """
        mask = np.ones(self.num_envs, np.bool_)
        options = options or {}
        if "reset_mask" in options:
            mask = np.asarray(options["reset_mask"], np.bool_)
            if mask.shape != (self.num_envs,):
                raise ValueError(f"reset_mask must have shape ({self.num_envs},), got {mask.shape}")
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        for i, value in enumerate(seeds or ()):
            if value is not None and mask[i]:
                self._generators[i], _ = gym.utils.seeding.np_random(value)
                self._drawn[i] = []
        self._begin(np.flatnonzero(mask), options.get("task"))
        return self._observe(), self._infos(mask)

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Move every board; what a board's end does is the autoreset mode's to say."""
        boards = self._playing()
        over, mode = self._over, self.autoreset_mode
        if mode is AutoresetMode.DISABLED and over.any():
            raise ValueError(
                f"board {int(over.argmax())} is over; reset it by options={{'reset_mask': mask}}"
            )
        starting = over if mode is AutoresetMode.NEXT_STEP else None
        active = None if starting is None or not starting.any() else ~starting
        done = boards.step(np.asarray(actions), active)
        rewards = self.single_weights.totals(done)
        self._steps += 1
        terminated, truncated = done.solved.copy(), ~done.solved & (self._steps >= self._single.max_steps)
        if starting is not None and starting.any():
            self._begin(np.flatnonzero(starting))
            rewards[starting] = 0.0
            terminated &= ~starting
            truncated &= ~starting
        self._over = terminated | truncated
        infos = self._infos(np.ones(self.num_envs, np.bool_), terminated, truncated)
        if mode is AutoresetMode.SAME_STEP and self._over.any():
            infos = self._restart(infos)
        return self._observe(), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """One picture a board."""
        raise NotImplementedError("render single boards: memenvs.sokoban.rgb(board, tile)")

    @property
    def single_weights(self) -> Any:
        """The weights of the rewards."""
        return self._single.weights

    def _playing(self) -> BoardBatch:
        if self._boards is None:
            raise gym.error.ResetNeeded("no levels yet; call reset() first")
        return self._boards

    def _begin(self, rows: NDArray[np.intp], tasks: Any = None) -> None:
        """Put new levels in these rows: those of `tasks` (N,), or drawn ones."""
        chosen = self._single.chosen
        numbers = [self._draw(row) for row in rows.tolist()] if tasks is None else np.asarray(tasks)[rows]
        self._level[rows] = chosen[numbers]
        levels = self._single.levels.boards[self._level[rows]]
        if self._boards is None:
            if len(rows) < self.num_envs:
                raise gym.error.ResetNeeded("the first reset must start every board; leave reset_mask out")
            self._boards = BoardBatch(levels)
        else:
            self._boards.replace(rows, levels)
        self._steps[rows] = 0
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

    def _infos(
        self, mask: Mask, terminated: Mask | None = None, truncated: Mask | None = None
    ) -> dict[str, Any]:
        """The infos of the single environments as arrays, with Gymnasium's `_key` masks."""
        deadlocked = np.zeros(self.num_envs)
        if truncated is not None:
            for row in np.flatnonzero(truncated):
                deadlocked[row] = is_deadlocked(self._playing().cells[row])
        success = np.zeros(self.num_envs) if terminated is None else terminated.astype(np.float64)
        values = {
            "level": self._level.copy(),
            "steps": self._steps.copy(),
            "success": success,
            "deadlocked": deadlocked,
        }
        return {**values, **{f"_{name}": mask.copy() for name in values}}
