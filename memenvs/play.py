"""The command line that shows an episode: `python -m memenvs.play MemChunkQA-v0 --policy lexical`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

import memenvs  # noqa: F401  # registers the environments
from memenvs.cli import NAMED, Parser, check_env_arguments, read_arguments
from memenvs.core.checks import one_line
from memenvs.core.env import TextEnv
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.sokoban_grid import SokobanGridEnv
from memenvs.evaluation.statistics import play_episode
from memenvs.rollout.scripted import make_policy
from memenvs.sokoban import solve

_COLOUR = re.compile(r"\x1b\[\d+m")


def main(argv: Sequence[str] | None = None) -> int:
    """Play one episode on the terminal; 2 and one line on standard error where it cannot be."""
    args = _parser().parse_args(argv)
    try:
        env_args = read_arguments(args.env_args, "--env-args")
        check_env_arguments(args.env, env_args)
        env: gym.Env[Any, Any] = gym.make(args.env, render_mode="ansi", **env_args)
        env = gym.wrappers.RecordEpisodeStatistics(env)  # its info["episode"]["r"] is the return
        policy = _make_policy(args.policy, env, args.seed)
        info = play_episode(
            env, policy, task=args.task, seed=args.seed, watch=lambda: show(str(env.render()) + "\n\n")
        )
    except (ValueError, OSError, TypeError, ImportError, gym.error.Error) as error:
        sys.stderr.write(f"memenvs.play: error: {one_line(error)}\n")
        return 2
    numbers = info["metrics"] if "metrics" in info else {k: v for k, v in info.items() if k != "episode"}
    shown = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
    show(f"return {info['episode']['r']:g}; {shown}\n")
    return 0


def show(text: str) -> None:
    """Write to the terminal, in colour where it is one and NO_COLOR is not set."""
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    sys.stdout.write(_COLOUR.sub("", text) if plain else text)


def _make_policy(name: str | None, env: gym.Env[Any, Any], seed: int) -> Callable[[Any, Any], Any]:
    """A policy by name; without one, `lexical` for chunked reading and `gold` for the others."""
    inner = env.unwrapped
    name = name or ("lexical" if isinstance(inner, ChunkQAEnv) else "gold")
    if isinstance(inner, TextEnv):
        return make_policy(name, env, seed)
    if not isinstance(inner, SokobanGridEnv):
        raise TypeError(f"play shows text environments and MemSokobanGrid-v0, not {type(inner).__name__}")
    if name not in ("gold", "random"):
        raise ValueError(f"unknown policy {name!r}; MemSokobanGrid-v0 is played by gold or random")
    if name == "random":
        env.action_space.seed(seed)
        return lambda observation, info: env.action_space.sample()
    plan: list[int] = []

    def follow(observation: Any, info: Any) -> int:
        if info["steps"] == 0:
            plan[:] = solve(inner.levels.boards[info["level"]]).moves
        return plan.pop(0) if plan else 0

    return follow


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m memenvs.play", description="Show one episode.")
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
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
