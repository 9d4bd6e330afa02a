"""The command that evaluates a policy: `python -m memenvs.evaluate run --env … --policy …`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from tqdm import tqdm

import memenvs
from memenvs.arguments import check_env_arguments, one_line, read_arguments
from memenvs.evaluation.arguments import check_numbers, read_tasks, run_parser
from memenvs.evaluation.choose import Make, choose_policy
from memenvs.evaluation.data import data_hashes
from memenvs.evaluation.log import RESULTS, TABLE, RunLog
from memenvs.evaluation.play import Player
from memenvs.evaluation.record import Pair
from memenvs.evaluation.summary import Summary, summarise
from memenvs.files import naming, write_json, write_text
from memenvs.spaces import UnicodeText
from memenvs.text_env import TextEnv
from memenvs.vector import TextVectorEnv

_BLIND = ("gold", "silent", "random_text")  # policies that play pictures too


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate; 1 if an episode failed, 2 and one line on standard error where nothing can be played."""
    args = run_parser().parse_args(argv)
    try:
        check_numbers(args)
        with naming(args.out):
            summary, title = evaluate(args)
    except (ValueError, OSError, TypeError, ImportError, FloatingPointError, gym.error.Error) as error:
        sys.stderr.write(f"memenvs.evaluate run: error: {one_line(error)}\n")
        return 2
    except KeyboardInterrupt:
        kept = f"what ended is in {args.out}" if args.out else "nothing was kept, for want of --out"
        sys.stderr.write(f"memenvs.evaluate run: interrupted; {kept}\n")
        return 130
    sys.stdout.write(summary.to_markdown(title))
    if not summary.failed:
        return 0
    again = "the same command plays them again" if args.out else "with --out they could be played again"
    sys.stderr.write(f"memenvs.evaluate run: {summary.failed} episodes failed and are in no mean; {again}\n")
    return 1


def evaluate(args: argparse.Namespace) -> tuple[Summary, str]:
    """Play what has not been played yet, and write the results; the summary and its title."""
    env_args = read_arguments(args.env_args, "--env-args")
    check_env_arguments(args.env, env_args)
    setting, make = choose_policy(args)
    first = _make_env(args.env, env_args, args.policy)
    n_tasks = first.unwrapped.n_tasks  # type: ignore[attr-defined]  # checked to be a TextEnv
    pairs = [Pair(task, sample) for task in read_tasks(args.task, n_tasks) for sample in range(args.samples)]
    setting = {
        "env": args.env,
        "env_args": env_args,
        "n_tasks": n_tasks,
        "data": data_hashes(first.unwrapped),
        **setting,
        "seed": args.seed,
        "memenvs": memenvs.__version__,
    }
    with contextlib.closing(RunLog(args.out, setting)) as log:
        missing = [pair for pair in pairs if pair not in log.records]
        others = min(args.concurrency, len(missing)) - 1
        copies = [lambda: first, *[lambda: gym.make(args.env, disable_env_checker=True, **env_args)] * others]
        with contextlib.closing(TextVectorEnv(copies, autoreset_mode="Disabled", errors="truncate")) as venv:
            if missing:
                _play(venv, make, log, missing, args.seed, len(pairs))
        summary = summarise((log.records[pair] for pair in pairs), args.samples)
    title = f"{args.env}, {args.policy}" + (f" ({model})" if (model := setting.get("model")) else "")
    if args.out:
        _write(args.out, {"setting": setting, **summary.to_json()}, summary.to_markdown(title))
    return summary, title


def _make_env(name: str, env_args: dict[str, Any], policy: str) -> gym.Env[Any, Any]:
    env = gym.make(name, disable_env_checker=True, **env_args)
    if not isinstance(env.unwrapped, TextEnv):
        raise ValueError(f"{name} is no text environment; its actions are {env.action_space}")
    if policy not in _BLIND and not isinstance(env.observation_space, UnicodeText):
        raise ValueError(f"{name} shows pictures, which only {', '.join(_BLIND)} can play here")
    return env


def _play(venv: TextVectorEnv, make: Make, log: RunLog, pairs: Sequence[Pair], seed: int, total: int) -> None:
    """Play pairs, each kept as it ends, with a progress bar."""
    failed = 0
    with (
        contextlib.closing(make(venv)) as policy,
        tqdm(total=total, initial=total - len(pairs), desc="episodes", disable=None) as bar,
    ):
        for record in Player(venv, policy, seed).play(pairs):
            log.keep(record)
            failed += bool(record.error)
            bar.update()
            bar.set_postfix(failed=failed)


def _write(folder: Path, results: dict[str, Any], table: str) -> None:
    write_json(folder / RESULTS, results)
    write_text(folder / TABLE, table)


if __name__ == "__main__":
    raise SystemExit(main())
