"""The command that shows one episode: `python -m memenvs play MemChunkQA-v0 --policy lexical`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

import gymnasium as gym

import memenvs  # noqa: F401  # registers the environments
from memenvs.cli import NAMED, Parser, make_env
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.rollout.scripted import make_policy, play_episode

_COLOUR = re.compile(r"\x1b\[\d+m")


def main(argv: Sequence[str] | None = None) -> int:
    """Play one episode on the terminal; 2 and one line on standard error where it cannot be played."""
    parser = Parser(prog="python -m memenvs play", description="Show one episode.")
    parser.add_argument("env", help="an environment's id, such as MemChunkQA-v0")
    parser.add_argument(
        "--env-args",
        **NAMED,
        help="its arguments, as chunk_size=1000, or one JSON object; `python -m memenvs list ID` shows them",
    )
    parser.add_argument(
        "--policy",
        help="gold, silent, random_text or lexical; of MemSokobanGrid-v0 gold or random (default: lexical "
        "for chunked reading, gold elsewhere)",
    )
    parser.add_argument("--task", type=int, help="number of the task (default: drawn by the seed)")
    parser.add_argument("--seed", type=int, default=0, help="of the episode (default 0)")
    return parser.run(play, argv)


def play(args: argparse.Namespace) -> None:
    """Play the episode that the options describe, and show it turn by turn."""
    made = make_env(args.env, args.env_args, render_mode="ansi")
    env = gym.wrappers.RecordEpisodeStatistics(made)  # its info["episode"]["r"] is the return
    reading = isinstance(env.unwrapped, ChunkQAEnv)
    policy = make_policy(args.policy or ("lexical" if reading else "gold"), env, args.seed)
    info = play_episode(
        env, policy, task=args.task, seed=args.seed, on_turn=lambda: show(f"{env.render()}\n\n")
    )
    metrics = info["metrics"] if "metrics" in info else {k: v for k, v in info.items() if k != "episode"}
    shown = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    show(f"return {info['episode']['r']:g}; {shown}\n")


def show(text: str) -> None:
    """Write to the terminal, in colour where it is one and NO_COLOR is not set."""
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    sys.stdout.write(_COLOUR.sub("", text) if plain else text)


if __name__ == "__main__":
    raise SystemExit(main())
