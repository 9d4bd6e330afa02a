"""MaskablePPO and DQN on `MemSokobanGrid-v0`: trained on one split of the levels, tested on another.

MaskablePPO draws only moves that change something (`action_masks`). DQN explores all moves; in a test its
values choose among those that change something.

pip install -e ".[sb3]"
python examples/sb3_sokoban.py --steps 3000000 --curve curve.json --save sokoban.zip
python examples/sb3_sokoban.py --algorithm ppo dqn --moves 5 --steps 50000 --every 5000
"""

import argparse
import functools
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

import memenvs  # noqa: F401  # registers the environments
from memenvs.adapters.sb3 import POLICY_KWARGS, make_vec_env
from memenvs.evaluation.plots import line_style, new_figure, plain_axis, save_figure

ENV = "MemSokobanGrid-v0"
# MemSokoban-v0's levels of 5 to 9 moves. Rewards are a tenth of the paper's, so that the value function's
# loss does not dominate the policy's.
ENV_KWARGS: dict[str, Any] = {
    "channels_first": True,
    "min_solution": 5,
    "max_solution": 9,
    "max_steps": 30,
    "rewards": {"outcome": 1.0, "placed": 0.1, "step": -0.01},
}
BOARDS = 128
Choose = Callable[[np.ndarray, np.ndarray], np.ndarray]


def make_ppo(seed: int, **kwargs: Any) -> MaskablePPO:
    """MaskablePPO with settings for a few minutes on a CPU; `kwargs` are the environment's."""
    return MaskablePPO(
        "CnnPolicy",
        make_vec_env(ENV, BOARDS, seed, **{**ENV_KWARGS, **kwargs}),
        policy_kwargs=POLICY_KWARGS,
        n_steps=32,
        batch_size=512,
        n_epochs=6,
        learning_rate=lambda left: 1e-3 * left,  # to zero at the end
        gamma=0.95,
        ent_coef=0.005,
        seed=seed,
        device="cpu",
    )


def make_dqn(seed: int, **kwargs: Any) -> DQN:
    """DQN with a short horizon and an update for every four steps; `kwargs` are the environment's.

    With `gamma=0.8` a move that changes nothing is worth a fifth less than the best one. One-step returns
    learn faster here than returns of three steps, which contain random moves.
    """
    return DQN(
        "CnnPolicy",
        make_vec_env(ENV, 16, seed, **{**ENV_KWARGS, **kwargs}),
        policy_kwargs={**POLICY_KWARGS, "features_extractor_kwargs": {"filters": 16}},
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=2000,
        batch_size=256,
        gamma=0.8,
        train_freq=1,  # of all 16 boards
        gradient_steps=4,
        target_update_interval=1000,
        exploration_fraction=0.3,
        exploration_final_eps=0.1,
        seed=seed,
        device="cpu",
    )


MAKERS: dict[str, Callable[..., BaseAlgorithm]] = {"ppo": make_ppo, "dqn": make_dqn}


def success(choose: Choose, split: str, masked: bool = True, **kwargs: Any) -> float:
    """Share of a split's levels that are solved when `choose` picks the moves from observations and masks.

    Args:
        choose: picks a move for each board.
        split: name of the split.
        masked: mask the moves that change nothing.
        **kwargs: the environment's.
    """
    kwargs = {**ENV_KWARGS, "level_split": split, **kwargs}
    levels = len(gym.make(ENV, **kwargs).unwrapped.chosen)
    venv = gym.make_vec(ENV, num_envs=levels, **kwargs)
    observations, _ = venv.reset(options={"task": np.arange(levels)})
    solved, playing = np.zeros(levels, bool), np.ones(levels, bool)
    while playing.any():
        masks = venv.unwrapped.action_masks() | (not masked)
        moves = choose(np.ascontiguousarray(observations), masks)
        observations, _, terminated, truncated, _ = venv.step(moves)
        solved |= terminated & playing
        playing &= ~(terminated | truncated)
    return float(solved.mean())


def random_success(split: str, masked: bool, **kwargs: Any) -> float:
    """Mean success of ten random players."""

    def choose(rng: np.random.Generator, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        return (rng.random(masks.shape) * masks).argmax(-1)

    players = [functools.partial(choose, np.random.default_rng(seed)) for seed in range(10)]
    return float(np.mean([success(player, split, masked, **kwargs) for player in players]))


def best_moves(model: BaseAlgorithm, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """The model's most likely or most valuable moves (N,) of those that change something."""
    if isinstance(model, MaskablePPO):
        return model.predict(observations, action_masks=masks, deterministic=True)[0]
    with torch.no_grad():
        values = model.q_net(torch.as_tensor(observations)).numpy()
    return np.where(masks, values, -np.inf).argmax(-1)


class Curve(BaseCallback):
    """Held-out success at regular steps, until it is good enough.

    Args:
        every: steps between two measurements.
        enough: success at which training stops.
        **kwargs: the environment's.
    """

    def __init__(self, every: int, enough: float, **kwargs: Any) -> None:
        super().__init__()
        self.every, self.enough, self.kwargs = every, enough, kwargs
        self.points: list[tuple[int, float, float]] = []  # steps, seconds, success

    def _on_training_start(self) -> None:
        self._started = time.perf_counter()
        self._measure()

    def _on_step(self) -> bool:
        if self.num_timesteps - self.points[-1][0] >= self.every:
            self._measure()
        return self.points[-1][2] < self.enough

    def _measure(self) -> None:
        seconds = time.perf_counter() - self._started
        solved = success(functools.partial(best_moves, self.model), "validation", **self.kwargs)
        self.points.append((self.num_timesteps, seconds, solved))
        print(
            f"{self.num_timesteps:>9,} steps {seconds:6.0f} s  success {self.points[-1][2]:.3f}", flush=True
        )


def draw(path: Path) -> None:
    """Draw the points of a JSON file into the PNG beside it: mean and range of the seeds over steps."""
    read = json.loads(path.read_text())
    figure = new_figure(4.6, 3.2)
    axis = figure.subplots()
    for k, (algorithm, runs) in enumerate(read["runs"].items()):
        shared = min(len(run["points"]) for run in runs.values())
        points = np.array([run["points"][:shared] for run in runs.values()])  # (seeds, points, 3)
        steps, percent = points[0, :, 0] / 1000, 100 * points[:, :, 2]
        style, label = line_style(k), f"{algorithm.upper()}, {len(runs)} seeds"
        axis.plot(steps, percent.mean(0), marker="o", ms=3, label=label, **style)
        axis.fill_between(steps, percent.min(0), percent.max(0), alpha=0.15, lw=0, color=style["color"])
    axis.axhline(100 * read["random"], color="0.4", ls=":", label="random moves (masked)")
    axis.set(xlabel="thousand steps", ylabel="unseen levels solved, %", ylim=(0, 100))
    figure.legend(frameon=False, loc="outside upper center", ncols=3, fontsize=8, columnspacing=1.2)
    plain_axis(axis)
    save_figure(figure, path.with_suffix(".png"))


def main() -> None:
    """Train each seed and report the success on unseen levels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="maximum number of training steps")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--algorithm", choices=sorted(MAKERS), nargs="+", default=["ppo"])
    parser.add_argument("--moves", type=int, default=9, help="most moves of a level's shortest solution")
    parser.add_argument("--every", type=int, default=100_000, help="steps between two measurements")
    parser.add_argument("--save", type=Path, help="file for the model of the last algorithm and seed, .zip")
    parser.add_argument("--enough", type=float, default=0.95, help="success at which training stops")
    parser.add_argument("--curve", type=Path, help="write the curves into this JSON and draw them beside it")
    args = parser.parse_args()
    levels = {"max_solution": args.moves}
    chance, unmasked_chance = (random_success("test", masked, **levels) for masked in (True, False))
    print("test levels solved by moves that change something, and by all moves")
    print(f"random moves: {chance:.3f} and {unmasked_chance:.3f}")
    held_out_chance = random_success("validation", True, **levels) if args.curve else None
    runs: dict[str, dict[int, Any]] = {}
    for algorithm, seed in itertools.product(args.algorithm, args.seeds):
        model = MAKERS[algorithm](seed, **levels)
        curve = Curve(args.every, args.enough, **levels)
        started = time.perf_counter()
        model.learn(args.steps, callback=curve)
        seconds = time.perf_counter() - started
        best = functools.partial(best_moves, model)
        solved, unmasked = (success(best, "test", masked, **levels) for masked in (True, False))
        steps = f"{model.num_timesteps:,} steps, {seconds:.0f} s"
        print(f"{algorithm}, seed {seed}: {solved:.3f} and {unmasked:.3f} after {steps}")
        if args.save:
            model.save(args.save)
        # A point: steps, seconds, success.
        run = {"test": solved, "test_all_moves": unmasked, "points": curve.points}
        runs.setdefault(algorithm, {})[seed] = run
        if args.curve:
            args.curve.write_text(json.dumps({"random": held_out_chance, "runs": runs}) + "\n")
            draw(args.curve)


if __name__ == "__main__":
    main()
