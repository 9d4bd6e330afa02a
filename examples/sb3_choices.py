"""Stable-Baselines3's PPO reads and answers by choice: trained on one world, tested on another.

pip install -e ".[sb3]"
python examples/sb3_choices.py --steps 40960
"""

import argparse
import time

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import memenvs  # noqa: F401  # registers the environments
from memenvs.wrappers import ChooseReply, HashText

TESTED = 100  # tasks


def make(tasks: str) -> HashText:
    """One chunk of eight documents, then the question again; four candidate answers."""
    env = gym.make("MemChunkQA-v0", disable_env_checker=True, tasks=tasks, n_documents=8)
    return HashText(
        ChooseReply(env, n_answers=4), size=4
    )  # replies are told apart by what they share with the text


def success(model: PPO, tasks: str) -> float:
    """Share of the first tasks that the most likely choices answer."""
    env, solved = make(tasks), 0.0
    for task in range(TESTED):
        observation, info = env.reset(seed=task, options={"task": task})
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        solved += info["metrics"]["success"]
    return solved / TESTED


def main() -> None:
    """Train, and print the success on tasks of a world that shares no name with the training world."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40_960, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    venv = make_vec_env(lambda: make("world-train"), n_envs=16, seed=args.seed)
    model = PPO(
        "MlpPolicy",
        venv,
        n_steps=64,
        batch_size=256,
        n_epochs=8,
        learning_rate=2e-3,
        ent_coef=0.01,
        gamma=1.0,
        policy_kwargs={"net_arch": [64]},
        seed=args.seed,
        device="cpu",
    )
    print(f"before: {success(model, 'world-test'):.2f} of {TESTED} test tasks")
    start = time.perf_counter()
    model.learn(args.steps)
    print(
        f"after {args.steps:,} steps, {time.perf_counter() - start:.0f} s: {success(model, 'world-test'):.2f}"
    )


if __name__ == "__main__":
    main()
