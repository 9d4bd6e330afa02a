"""The command line that shows an episode: `python -m memenvs.play MemChunkQA-v0 --policy lexical`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

import memenvs  # noqa: F401  # registers the environments
from memenvs.evaluate import play_episode
from memenvs.policies import make_policy

_COLOUR = re.compile(r"\x1b\[\d+m")


def main(argv: Sequence[str] | None = None) -> int:
    """Play one episode on the terminal; 2 and one line on standard error where it cannot be."""
    args = _parser().parse_args(argv)
    kwargs: dict[str, Any] = {"tasks": args.tasks} if args.tasks else {}
    try:
        for setting in args.set:
            name, separator, value = setting.partition("=")
            if not separator:
                raise ValueError(f"--set wants NAME=VALUE, got {setting!r}")
            kwargs[name] = int(value) if value.lstrip("-").isdigit() else value
        env = gym.make(args.env, render_mode="ansi", **kwargs)
        policy = make_policy(args.policy, env, args.seed)
        info = play_episode(
            env, policy, task=args.task, seed=args.seed, watch=lambda: show(str(env.render()) + "\n\n")
        )
    except (ValueError, OSError, TypeError, gym.error.Error) as error:
        sys.stderr.write(f"memenvs.play: error: {error}\n")
        return 2
    shown = ", ".join(f"{name} {value:g}" for name, value in info["metrics"].items())
    show(f"return {sum(info['turn_rewards']):g}; {shown}\n")
    return 0


def show(text: str) -> None:
    """Write to the terminal, in colour where it is one and NO_COLOR is not set."""
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    sys.stdout.write(_COLOUR.sub("", text) if plain else text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m memenvs.play", description="Show one episode.")
    parser.add_argument("env", help="an environment's id, such as MemChunkQA-v0")
    parser.add_argument("--policy", default="lexical", help="gold, silent, random_text or lexical (default)")
    parser.add_argument("--tasks", help="a task set: a folder or a bundled name")
    parser.add_argument("--task", type=int, help="number of the task (default: drawn by the seed)")
    parser.add_argument("--seed", type=int, default=0, help="of the episode (default 0)")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="arguments of the environment: chunk_size=1000",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
