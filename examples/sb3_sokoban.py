"""Stable-Baselines3's PPO on `MemSokobanGrid-v0`: trained on one split of the levels, tested on another.

pip install -e ".[sb3]"
python examples/sb3_sokoban.py --steps 3000000 --curve curve.png
"""

import argparse
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import memenvs  # noqa: F401  # registers the environments

ENV = "MemSokobanGrid-v0"
ENV_KWARGS = {"max_steps": 50}
BOARDS = 128


def make_model(seed: int) -> PPO:
    """PPO with settings for a few minutes on a CPU."""
    envs = make_vec_env(ENV, n_envs=BOARDS, seed=seed, env_kwargs=ENV_KWARGS)
    return PPO(
        "MlpPolicy",
        envs,
        policy_kwargs={"net_arch": [512, 256], "activation_fn": torch.nn.ReLU},
        n_steps=64,
        batch_size=1024,
        n_epochs=4,
        learning_rate=7e-4,
        gamma=0.97,
        gae_lambda=0.95,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
    )


def success(model: PPO, split: str) -> float:
    """Share of the levels of a split that the most likely moves solve."""
    levels = len(gym.make(ENV, level_split=split).unwrapped.chosen)
    venv = gym.make_vec(ENV, num_envs=levels, level_split=split, **ENV_KWARGS)
    observations, _ = venv.reset(options={"task": np.arange(levels)})
    solved, playing = np.zeros(levels, bool), np.ones(levels, bool)
    while playing.any():
        actions, _ = model.predict(np.ascontiguousarray(observations), deterministic=True)
        observations, _, terminated, truncated, _ = venv.step(actions)
        solved |= terminated & playing
        playing &= ~(terminated | truncated)
    return float(solved.mean())


class Curve(BaseCallback):
    """Held-out success every so many steps, until it is good enough.

    Args:
        every: steps between two measurements.
        enough: success at which training stops.
    """

    def __init__(self, every: int, enough: float) -> None:
        super().__init__()
        self.every, self.enough = every, enough
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
        self.points.append((self.num_timesteps, seconds, success(self.model, "validation")))
        print(
            f"{self.num_timesteps:>9,} steps {seconds:6.0f} s  success {self.points[-1][2]:.3f}", flush=True
        )


def train(seed: int, steps: int, every: int, enough: float) -> tuple[PPO, Curve]:
    """Train until `steps` or until `enough` of the validation levels are solved."""
    model, curve = make_model(seed), Curve(every, enough)
    model.learn(steps, callback=curve)
    return model, curve


def draw(curves: dict[int, Curve], path: Path) -> None:
    """Success over steps, one line a seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for seed, curve in curves.items():
        steps, _, solved = zip(*curve.points, strict=True)
        axes.plot([s / 1e6 for s in steps], [100 * s for s in solved], marker="o", ms=3, label=f"seed {seed}")
    axes.axhline(90, color="grey", lw=0.8, ls="--")
    axes.set(xlabel="million steps", ylabel="held-out levels solved, %", ylim=(0, 100))
    axes.set_title("Stable-Baselines3 PPO on MemSokobanGrid-v0, 6x6, one box")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train each seed and report the success on levels it has not seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3_000_000, help="most steps of training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--enough", type=float, default=0.95, help="success at which training stops")
    parser.add_argument("--curve", type=Path, help="draw the curves into this PNG")
    args = parser.parse_args()
    curves = {}
    for seed in args.seeds:
        model, curves[seed] = train(seed, args.steps, 100_000, args.enough)
        steps, seconds, _ = curves[seed].points[-1]
        solved = success(model, "test")
        print(f"seed {seed}: {solved:.3f} of the test levels after {steps:,} steps, {seconds:.0f} s")
    if args.curve:
        draw(curves, args.curve)


if __name__ == "__main__":
    main()
