"""Train every method in every world, compare its advantages with the exact ones, and report.

python -m research.credit_bench OUT --smoke       two worlds, three methods, one seed (seconds)
python -m research.credit_bench OUT --core        three worlds, K = 2 and 5, all methods, ten seeds
python -m research.credit_bench OUT               all worlds, K = 2, 3, 5 and 8, all methods, ten seeds
python -m research.credit_bench OUT --report      report on the runs in OUT
python -m research.credit_bench OUT --page        write research/'s record and tables; print that of replies
python -m research.credit_bench OUT --page --add  the same, but keep parts of the record that OUT lacks

Runs found in OUT are not repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from research.credit_bench.methods import METHODS
from research.credit_bench.report import write_report
from research.credit_bench.run import POLICIES, BenchJob, check_settings, compared, do
from research.credit_bench.train import CHECKED
from research.credit_bench.worlds import WORLDS
from research.harness import RESULTS, spread

STEPS = 300
CORE = ("chain", "calling", "late")
SMOKE = ("outcome", "turn", "reinforce")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the selected jobs and report them."""
    args = _read_args(argv)
    try:
        if not (args.report or args.page):
            check_settings(args.folder, args.steps, args.checked)
            jobs = [job for job in _jobs(args) if not job.file(args.folder).exists()]
            work = partial(do, folder=args.folder, steps=args.steps, checked=args.checked)
            for number, job in enumerate(spread(work, jobs, args.parallel), start=1):
                print(f"{number}/{len(jobs)} {' '.join(map(str, job))}", file=sys.stderr, flush=True)
        paths, replies = write_report(args.folder, RESULTS.parent if args.page else None, add=args.add)
        print(replies if args.page else "\n".join(map(str, paths)))
    except (ValueError, OSError, ImportError) as error:
        print(f"credit_bench: {error}", file=sys.stderr)
        return 1
    return 0


def _jobs(args: argparse.Namespace) -> Iterator[BenchJob]:
    """Training runs seed by seed, so that every method soon has one; then the comparisons."""
    places = [
        (world, turns, method)
        for world in args.worlds
        for turns in args.turns
        for method in args.methods
        if not METHODS[method].missing(WORLDS[world](turns))
    ]
    for seed in range(args.seeds):
        yield from (BenchJob(*place, seed) for place in places)
    for policy in POLICIES:
        yield from (
            BenchJob(*place, 0, policy) for place in places if compared(*place[:2], policy) is not None
        )


def _read_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m research.credit_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="OUT", type=Path, help="folder for runs and the report")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--core", action="store_true", help=f"{', '.join(CORE)}; K = 2 and 5")
    size.add_argument("--smoke", action="store_true", help="chain and late, K = 5; three methods; one seed")
    size.add_argument("--report", action="store_true", help="run nothing")
    size.add_argument("--page", action="store_true", help="run nothing, but write into research/")
    parser.add_argument(
        "--add", action="store_true", help="with --page: keep parts of the record that OUT lacks"
    )
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, help="default all")
    parser.add_argument("--turns", nargs="+", type=int, help="K, each 2 or more (default 2 3 5 8)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="default all")
    parser.add_argument("--seeds", type=int, help="default 10")
    parser.add_argument("--steps", type=int, help=f"maximum steps of a run (default {STEPS})")
    parser.add_argument("--parallel", type=int, default=1, help="processes (default 1)")
    args = parser.parse_args(argv)
    plan: dict[str, Any] = {"worlds": [*WORLDS], "turns": [2, 3, 5, 8], "methods": [*METHODS], "seeds": 10}
    plan |= {"steps": STEPS, "checked": CHECKED}
    if args.core:
        plan |= {"worlds": [*CORE], "turns": [2, 5]}
    if args.smoke:
        plan |= {"worlds": ["chain", "late"], "turns": [5], "methods": [*SMOKE], "seeds": 1}
        plan |= {"steps": 80, "checked": 60}
    for name, value in plan.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    for name, value in (("--turns", min(args.turns) - 1), ("--seeds", args.seeds), ("--steps", args.steps)):
        if value < 1:
            parser.error(f"{name} is too small; K must be 2 or more, seeds and steps 1 or more")
    if args.add and not args.page:
        parser.error("--add needs --page")
    if args.parallel < 1:
        parser.error(f"--parallel must be 1 or more, got {args.parallel}")
    return args


if __name__ == "__main__":
    sys.exit(main())
