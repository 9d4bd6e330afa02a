"""The command that evaluates a policy: `python -m memenvs evaluate run --env … --policy …`."""

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
from memenvs.cli import NAMED, Parser, check_env_arguments, read_arguments
from memenvs.core.checks import Range, check_numbers, one_line
from memenvs.core.env import TextEnv
from memenvs.core.files import naming, write_json, write_text
from memenvs.core.spaces import UnicodeText
from memenvs.core.vector import TextVectorEnv
from memenvs.evaluation.log import RESULTS, TABLE, Pair, RunLog
from memenvs.evaluation.play import Player
from memenvs.evaluation.policies import Make, choose_policy
from memenvs.evaluation.summary import Summary, summarise
from memenvs.retrieval.load import fingerprint

_EPILOG = """\
examples:
  python -m memenvs evaluate run --env MemChunkQA-v0 --env-args tasks=world-test --policy lexical
  python -m memenvs evaluate run --env MemSearchQA-v0 --env-args tasks=world-test k=5 \\
      --policy openai:http://127.0.0.1:8000/v1 --stop "</search>" "</answer>" --samples 4 --out runs/search
  python -m memenvs evaluate run --env MemSokoban-v0 --env-args level_split=test --task 0:200 \\
      --policy hf:runs/mt_ppo/checkpoints/step-200/policy --out runs/sokoban

A run that died goes on where it stopped, by the same command; --task and --samples may grow, --concurrency
may change. docs/evaluate.md tells what is averaged.
"""


def run_parser() -> argparse.ArgumentParser:
    """The parser."""
    parser = Parser(
        prog="python -m memenvs evaluate run",
        description="Play every task n times and average every metric, with bootstrap intervals.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--env", required=True, help="an environment's id, such as MemSearchQA-v0")
    add(
        "--env-args",
        **NAMED,
        help="its arguments, or one JSON object (`python -m memenvs list ID`)",
    )
    add(
        "--policy",
        required=True,
        help="lexical, gold, silent, random_text, hf:MODEL (a folder or a hub name) or openai:URL "
        "(its key, if it wants one, in OPENAI_API_KEY)",
    )
    add("--task", default=":", help="numbers and ranges: 0:100, 7, 3,5,90: (default all)")
    add("--samples", type=int, default=1, metavar="N", help="episodes of each task (default 1)")
    add("--concurrency", type=int, default=16, help="episodes under way at once (default 16)")
    add("--seed", type=int, default=0, help="decides every random choice (default 0)")
    add("--out", type=Path, metavar="FOLDER", help="keeps episodes and results, and is gone on from")
    _add_sampling(parser)
    return parser


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    sampling = parser.add_argument_group("models")
    add = sampling.add_argument
    add("--temperature", type=float, default=1.0, help="of sampling, 0 for the likeliest (default 1.0)")
    add("--top-p", type=float, help="only the likeliest tokens that together have this share are drawn")
    add("--top-k", type=int, help="only so many of the likeliest tokens are drawn")
    add("--min-p", type=float, help="only tokens this share as likely as the likeliest one are drawn")
    add("--max-new-tokens", type=int, default=1024, help="of a reply (default 1024)")
    add("--stop", nargs="+", default=[], metavar="TEXT", help="a reply ends behind it")
    add("--chat-args", **NAMED, help="arguments of the chat template: enable_thinking=false")
    add("--model", help="openai: its name there (default: the one that is served)")
    add("--conversation", action="store_true", help="openai: send a growing episode as messages")
    add("--body", **NAMED, help="openai: more fields of a request, as top_p=0.9, or one JSON object")
    add("--timeout", type=float, default=600.0, help="openai: seconds a wait for an answer (default 600)")
    add("--tries", type=int, default=6, help="openai: of a request, before its episode fails (default 6)")


_RANGES = {
    "samples": Range(1),
    "concurrency": Range(1),
    "max_new_tokens": Range(1),
    "seed": Range(0, below=2**32),
    "temperature": Range(0),
    "top_p": Range(above=0, most=1),
    "top_k": Range(1),
    "min_p": Range(0, 1),
    "timeout": Range(above=0),
}


def check_ranges(args: argparse.Namespace) -> None:
    """Raise a `ValueError` for a number out of its range."""
    for name, bounds in _RANGES.items():
        if (value := getattr(args, name)) is not None:
            check_numbers(bounds, **{f"--{name.replace('_', '-')}": value})


def read_tasks(text: str, n_tasks: int) -> list[int]:
    """Numbers of tasks, each once, in the order given.

    Args:
        text: numbers and half-open ranges behind commas; a range without an end goes on to the last task.
        n_tasks: of the environment.

    Raises:
        ValueError: what is neither, holds no task, or leads past the last one.

    >>> read_tasks("7,0:3", 10)
    [7, 0, 1, 2]
    """
    found: list[int] = []
    for part in text.split(","):
        first, colon, end = (piece.strip() for piece in part.partition(":"))
        if not all(piece.isdecimal() for piece in ((first or "0", end or "0") if colon else (first,))):
            raise ValueError(f"--task wants numbers and ranges such as 0:100, got {text!r}")
        start = int(first or 0)
        stop = (int(end) if end else n_tasks) if colon else start + 1
        if not start < stop <= n_tasks:
            raise ValueError(f"--task {part}: there are tasks 0 to {n_tasks - 1}, and a range holds one")
        found += range(start, stop)
    return list(dict.fromkeys(found))


def data_hashes(env: Any) -> dict[str, str]:
    """Hashes of what an environment's episodes are made of.

    Args:
        env: a `TextEnv` without its wrappers.

    Returns:
        `tasks`: of `TextEnv.task_set`; and, where the environment has a `retriever`, `retriever`: of its
        corpus and index. What nobody tells, such as a foreign retrieval server, is left out.

    Raises:
        ConnectionError: a retrieval server is unreachable.
    """
    found = {"tasks": env.task_set()[1]}
    if (retriever := getattr(env, "retriever", None)) is not None:
        found["retriever"] = fingerprint(retriever)
    return {name: digest for name, digest in found.items() if digest}


_BLIND = ("gold", "silent", "random_text")  # policies that play pictures too


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate; 1 if an episode failed, 2 and one line on standard error where nothing can be played."""
    args = run_parser().parse_args(argv)
    try:
        check_ranges(args)
        with naming(args.out):
            summary, title = evaluate(args)
    except (ValueError, OSError, TypeError, ImportError, FloatingPointError, gym.error.Error) as error:
        sys.stderr.write(f"memenvs evaluate run: error: {one_line(error)}\n")
        return 2
    except KeyboardInterrupt:
        kept = f"what ended is in {args.out}" if args.out else "nothing was kept, for want of --out"
        sys.stderr.write(f"memenvs evaluate run: interrupted; {kept}\n")
        return 130
    sys.stdout.write(summary.to_markdown(title))
    if not summary.failed:
        return 0
    again = "the same command plays them again" if args.out else "with --out they could be played again"
    sys.stderr.write(f"memenvs evaluate run: {summary.failed} episodes failed and are in no mean; {again}\n")
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
