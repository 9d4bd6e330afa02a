"""Sokoban as arrays: one board, and many stepped together.

`gym.make("MemSokobanGrid-v0")`, `gym.make_vec("MemSokobanGrid-v0", num_envs=1024)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from memenvs.core.data import Count, checked
from memenvs.core.env import check_task
from memenvs.core.state import OVER, Replayable
from memenvs.sokoban import Board, BoardBatch, is_deadlocked, rgb, to_text
from memenvs.sokoban.engine import planes
from memenvs.sokoban.environments import BUNDLED, Rewards, level_id, levels_hash, open_levels, read_weights
from memenvs.sokoban.solver import are_deadlocked

Planes = NDArray[np.uint8]
Mask = NDArray[np.bool_]


class SokobanGridEnv(Replayable, gym.Env[Planes, np.int64]):
    """Solve a Sokoban level one move at a time.

    The board is an array and an action is a number, for learners without a language model, such as those of
    Stable-Baselines3. `gym.make_vec` steps many boards in one array operation.

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
        `task` (the level's id), `level` (its number in the set), `steps`, `success` (1.0 or 0.0) and
        `deadlocked` (1.0 once no solution can be reached, as far as that is found without a search; 0.0
        otherwise).

    Args:
        levels: a bundled level set's name, or a file: .npz, or a collection in text or `.slc`. Levels that
            are solved or certainly lost at the start are left out.
        level_split: a split of the set; None takes all levels. A collection's levels are all "train".
        min_solution: minimum number of moves in a shortest solution.
        max_solution: maximum number of moves in a shortest solution; None for no limit, and levels need no
            known solution then.
        max_steps: moves per episode.
        rewards: see Reward.
        channels_first: planes before rows.
        render_mode: `"ansi"`, `"rgb_array"` or None.

    Version:
        v0: first.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012
    unhashed = ("render_mode", "levels")
    changing = (*Replayable.changing, "_playing")

    @checked
    def __init__(
        self,
        levels: str = BUNDLED,
        level_split: str | None = "train",
        min_solution: Count = 1,
        max_solution: Count | None = None,
        max_steps: Count = 100,
        rewards: Rewards = "mt_ppo",
        channels_first: bool = False,
        render_mode: Literal["ansi", "rgb_array"] | None = None,
    ) -> None:
        self.levels, self.chosen = open_levels(levels, level_split, min_solution, max_solution)
        self._levels_name = Path(levels).name
        self.max_steps, self.weights, self.channels_first = max_steps, read_weights(rewards), channels_first
        self.render_mode = render_mode
        self.action_space = gym.spaces.Discrete(4)
        shape = planes(self.levels.boards[0], channels_first).shape
        self.observation_space = cast(gym.Space[Planes], gym.spaces.Box(0, 1, shape, np.uint8))
        self._playing: Board | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Planes, dict[str, Any]]:
        """Start a level, drawn by the seed or given by `options={"task": i}`."""
        task = self.read_task(options or {})
        super().reset(seed=seed)
        drawn = task is None
        if task is None:
            task = int(self.np_random.integers(len(self.chosen)))
        self._level = int(self.chosen[task])
        self._playing = Board(self.levels.boards[self._level])
        # A seed draws the level again, as it drew it here, and then what a next reset draws.
        self._begun = {"seed": seed, "options": {} if drawn and seed is not None else {"task": task}}
        self._actions = []
        self._over = False
        self._deadlocked = False  # such levels are not chosen
        return self._observe(), self._info(False)

    def step(self, action: Any) -> tuple[Planes, float, bool, bool, dict[str, Any]]:
        """Make one move.

        Raises:
            ResetNeeded: before a reset, and after the end.
            ValueError: an action that is not 0 to 3.
        """
        board = self._board
        if self._over:
            raise gym.error.ResetNeeded(OVER)
        if not self.action_space.contains(action):
            raise ValueError(f"an action is 0 up, 1 down, 2 left or 3 right, got {action!r}")
        step = board.step(int(action))
        self._actions.append(int(action))
        if step.moved_box:
            self._deadlocked = is_deadlocked(board.grid)
        reward = sum(self.weights.components(step))
        truncated = not step.solved and len(self._actions) >= self.max_steps
        self._over = step.solved or truncated
        return self._observe(), reward, step.solved, truncated, self._info(step.solved)

    def action_masks(self) -> Mask:
        """Which moves change something, (4,) bool, as MaskablePPO of sb3-contrib asks for them.

        All are allowed where none does, so that a learner can always draw one.
        """
        return allowed(np.array(self._board.action_masks()))

    def task_set(self) -> tuple[str, str]:
        return self._levels_name, levels_hash(self.levels)

    def render(self) -> Any:
        """The board as text or as an RGB array."""
        return draw(self._board.grid, self.render_mode)

    def read_task(self, options: dict[str, Any]) -> int | None:
        """The level that a reset's options pick; None where one is to be drawn."""
        if options == {"task": None}:
            return None
        check_task(options, len(self.chosen))
        return int(options["task"]) if options else None

    @property
    def _board(self) -> Board:
        if self._playing is None:
            raise gym.error.ResetNeeded("no level yet; call reset() first")
        return self._playing

    def _observe(self) -> Planes:
        return planes(self._board.grid, self.channels_first)

    def _info(self, solved: bool) -> dict[str, Any]:
        return {
            "task": level_id(self._level),
            "level": self._level,
            "steps": len(self._actions),
            "success": float(solved),
            "deadlocked": float(self._deadlocked),
        }


class SokobanVectorEnv(VectorEnv[Any, Any, Any]):
    """`SokobanGridEnv` N times: the same levels, seeds, rewards and infos as N of them in a `SyncVectorEnv`.

    Observations are (N, H, W, 7) or (N, 7, H, W) uint8. Board i of `reset(seed=s)` draws its levels as a
    single environment with seed `s + i` does.

    Args:
        num_envs: N.
        autoreset_mode: the step after an end resets a board (`NEXT_STEP`), or the step that ends it
            (`SAME_STEP`, with Gymnasium's `final_obs` and `final_info` in the infos).
        **kwargs: those of `SokobanGridEnv`.
    """

    @checked
    def __init__(
        self,
        num_envs: Count = 1,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        **kwargs: Any,
    ) -> None:
        if autoreset_mode is AutoresetMode.DISABLED:
            raise ValueError("autoreset_mode must be NEXT_STEP or SAME_STEP, got DISABLED")
        single = SokobanGridEnv(**kwargs)
        self.num_envs = num_envs
        self.metadata = {**single.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = single.render_mode
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)
        self._single = single
        self._generators = [np.random.default_rng() for _ in range(num_envs)]
        self._drawn: list[list[int]] = [[] for _ in range(num_envs)]
        self._ids = np.array([level_id(number) for number in range(len(single.levels))])
        self._boards: BoardBatch | None = None
        self._level = np.zeros(num_envs, np.int64)
        self._steps = np.zeros(num_envs, np.int64)
        self._over: Mask = np.zeros(num_envs, np.bool_)
        self._deadlocked = np.zeros(num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new level on every board.

        Args:
            seed: one for each board, or a first one s for s, s + 1, …
            options: `task` is a level's number for all, or one for each.

        Raises:
            ValueError: another number of seeds or tasks than boards, an unknown option, a level there is not.
        """
        options = dict(options or {})
        tasks = self._one_each("task", options.pop("task", None))
        numbers = [self._single.read_task({**options, "task": task}) for task in tasks]
        if seed is not None:
            seeds = self._one_each("seed", seed + np.arange(self.num_envs) if np.ndim(seed) == 0 else seed)
            self._generators = [gym.utils.seeding.np_random(int(value))[0] for value in seeds]
            self._drawn = [[] for _ in seeds]
        drawn = [self._draw(row) if number is None else number for row, number in enumerate(numbers)]
        self._begin(np.arange(self.num_envs), drawn)
        return self._observe(), self._infos()

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Move every board, and reset those that were over, whose rewards are 0, or those that are over now.

        Raises:
            ResetNeeded: before the first reset.
            ValueError: actions that are not (N,) integers from 0 to 3; no board has moved then.
        """
        boards, over = self._playing(), np.flatnonzero(self._over)
        moves: NDArray[np.integer] = np.asarray(actions)
        if moves.shape != (self.num_envs,) or moves.dtype.kind not in "iu" or (moves & ~3).any():
            raise ValueError(
                f"actions are ({self.num_envs},) integers, 0 up, 1 down, 2 left, 3 right, got {actions!r}"
            )
        step = boards.step(moves)
        rewards, terminated = self._single.weights.totals(step), step.solved
        self._steps += 1
        truncated = (self._steps >= self._single.max_steps) & ~terminated
        pushed = np.flatnonzero(step.moved_box & (self._deadlocked == 0.0))  # a lost board stays lost
        dead = self._single.levels.dead[self._level[pushed]]
        self._deadlocked[pushed] = are_deadlocked(boards.cells[pushed], dead)
        if len(over):
            self._begin(over, [self._draw(row) for row in over.tolist()])
            rewards[over], terminated[over], truncated[over] = 0.0, False, False
        self._over = terminated | truncated
        observations, infos = self._observe(), self._infos(terminated)
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and self._over.any():
            observations, infos = self._renewed(observations, infos)
        return observations, rewards, terminated, truncated, infos

    def _renewed(self, observations: Any, infos: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Start a new level where one is over; what boards show then, with the ends in the infos."""
        over = self._over
        ended = np.flatnonzero(over)
        final_obs = np.full(self.num_envs, None, object)
        for row in ended.tolist():
            final_obs[row] = observations[row]
        final_info = {name: over if name.startswith("_") else value for name, value in infos.items()}
        self._begin(ended, [self._draw(row) for row in ended.tolist()])
        final = {"final_obs": final_obs, "_final_obs": over, "final_info": final_info, "_final_info": over}
        return self._observe(), {**self._infos(), **final}

    def render(self) -> tuple[Any, ...] | None:
        """A picture or a text for each board, by `render_mode`; None without one."""
        if self.render_mode is None:
            return None
        return tuple(draw(board, self.render_mode) for board in self._playing().cells)

    def action_masks(self) -> Mask:
        """`SokobanGridEnv.action_masks` of every board, (N, 4) bool."""
        return allowed(self._playing().action_masks())

    def _playing(self) -> BoardBatch:
        if self._boards is None:
            raise gym.error.ResetNeeded("no levels yet; call reset() first")
        return self._boards

    def _begin(self, rows: NDArray[np.intp], tasks: list[Any]) -> None:
        """Put the levels of these tasks in these rows."""
        self._level[rows] = self._single.chosen[tasks]
        levels = self._single.levels.boards[self._level[rows]]
        if self._boards is None:
            self._boards = BoardBatch(levels)
        else:
            self._boards.replace(rows, levels)
        self._steps[rows] = 0
        self._deadlocked[rows] = 0.0
        self._over = self._over.copy()
        self._over[rows] = False

    def _draw(self, row: int) -> int:
        """The next task of a row; drawing a few at once is faster and gives the same numbers."""
        if not self._drawn[row]:
            drawn = self._generators[row].integers(len(self._single.chosen), size=32)
            self._drawn[row] = drawn[::-1].tolist()
        return self._drawn[row].pop()

    def _one_each(self, name: str, value: Any) -> list[Any]:
        """N values, the same one N times where there is only one."""
        if np.ndim(value) == 0:
            return [value] * self.num_envs
        if len(value) != self.num_envs:
            raise ValueError(f"{name} must be one number or {self.num_envs}, got {len(value)}")
        return list(value)

    def _observe(self) -> Any:
        return self._playing().planes(self._single.channels_first)

    def _infos(self, terminated: Mask | None = None) -> dict[str, Any]:
        """The infos of the single environments as arrays, with Gymnasium's `_key` masks."""
        success = np.zeros(self.num_envs) if terminated is None else terminated.astype(np.float64)
        infos = {
            "task": self._ids.take(self._level),
            "level": self._level.copy(),
            "steps": self._steps.copy(),
            "success": success,
            "deadlocked": self._deadlocked.copy(),
        }
        return {**infos, **{f"_{name}": np.ones(self.num_envs, np.bool_) for name in infos}}


def allowed(masks: Mask) -> Mask:
    """Masks of actions (…, A) with all actions where there is none."""
    return masks | ~masks.any(-1, keepdims=True)


def draw(board: NDArray[np.uint8], render_mode: str | None) -> Any:
    """A board (H, W) as text, as an RGB array, or not at all."""
    if render_mode == "rgb_array":
        return rgb(board, 32)
    return to_text(board) if render_mode == "ansi" else None
