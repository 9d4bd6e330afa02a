"""`memenvs evaluate run`, `suite` and `compare`; `by`, `signals` and `table` are functions of their own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memenvs.commands import build
from memenvs.commands.options import EnvOptions, PolicyOptions
from memenvs.core.errors import counted
from memenvs.core.terminal import RED, RESET, CommandResult, show
from memenvs.evaluation.compare import CompareOptions
from memenvs.evaluation.run import EvaluationSettings, evaluate
from memenvs.evaluation.suite import RESULT, SuiteOptions, compare_parts, folder_of, play_suite, suite_table
from memenvs.evaluation.summary import Summary, TableFormat
from memenvs.models.settings import ModelOptions
from memenvs.wrappers.registry import read_methods


def run(
    *,
    task: str = ":",
    environment: EnvOptions,
    policy: PolicyOptions,
    models: ModelOptions,
    evaluation: EvaluationSettings,
) -> Summary:
    r"""Play every task n times and average every metric, with bootstrap intervals.

    The same command resumes a run that stopped; --task and --samples may grow, --concurrency may change.
    docs/evaluate.md says what is averaged.

    Examples:
      memenvs evaluate run --env MemChunkQA-v0 --env-args tasks=world-test --policy lexical
      memenvs evaluate run --env MemSearchQA-v0 --env-args tasks=world-test k=5 \
          --policy openai:http://127.0.0.1:8000/v1 --stop "</search>" "</answer>" --out runs/search
      memenvs evaluate run --env MemSokoban-v0 --env-args level_split=test --task 0:200 \
          --policy hf:runs/mt_ppo/checkpoints/step-200/policy --out runs/sokoban

    Args:
        task: task numbers and ranges, such as 0:100 or 7 or 3,5,90:; by default all.
    """
    if policy.policy is None:
        raise ValueError("no policy is given; add --policy, as in --policy lexical")
    summary = evaluate(
        environment.env,
        policy.policy,
        env_args=environment.env_args,
        tasks=task,
        options=models,
        methods=read_methods(policy.methods),
        scorer=policy.scorer,
        **vars(evaluation),
    )
    if summary.failed:
        again = "the same command plays them again"
        if not evaluation.out:
            again = "with --out you could play them again"
        failed = f"{RED}{counted(summary.failed, 'episode')} failed{RESET}"
        show(f"memenvs evaluate run: {failed} and left out of all means; {again}\n", sys.stderr)
    return summary


def suite(
    suite: str, /, *, options: SuiteOptions, models: ModelOptions, format: TableFormat = "markdown"
) -> CommandResult:
    """Play a fixed suite of tasks and print its scores as a row of a table, with 95% intervals.

    world needs no download, small is world for a machine with two cores, hotpotqa needs its official file.
    The tasks are built once and kept in ~/.cache/memenvs/suites. The same command resumes a suite that
    stopped.

    Examples:
      memenvs evaluate suite small --policy lexical --out runs/small/lexical
      memenvs evaluate suite world --policy openai:http://127.0.0.1:8000/v1 --out runs/world/qwen3-4b
      memenvs evaluate suite small --policy hf:smollm2-reader --reading template=short --out runs/small/reader
      memenvs evaluate suite hotpotqa --source hotpot_dev.json --policy hf:runs/policy --out runs/hotpotqa

    Args:
        suite: world, small or hotpotqa.
        format: latex prints a tabular with the rules of booktabs.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what builds say
        result = play_suite(suite, options, models, build.main)
    file = options.out / RESULT
    show(f"{file} is a row of the leaderboard; its page says how to send this file\n", sys.stderr)
    failed = sum(score.failed for score in result.scores.values())
    return CommandResult(suite_table([result], format), lambda: asdict(result), failed)


def compare(
    runs: Sequence[str],
    /,
    *,
    options: CompareOptions,
    out: Path | None = None,
    format: TableFormat = "markdown",
) -> CommandResult:
    """Compare policies task by task: differences with bootstrap intervals, a table, a plot.

    RUNS are folders that `evaluate run --out` wrote; the first is the baseline. Folders of `evaluate suite`
    are compared part by part. docs/compare.md says what is compared.

    Examples:
      memenvs evaluate compare runs/lexical runs/qwen3-4b
      memenvs evaluate compare runs/base runs/grpo runs/mt_ppo --metrics em f1 --out runs/comparison
      memenvs evaluate compare runs/whole runs/memory --allow env_args.memory_mode

    Args:
        runs: two or more folders that `evaluate run` or `evaluate suite` wrote, the baseline first.
        out: folder for comparison.md, comparison.json and, with matplotlib, two plots as .png and .svg.
        format: latex prints a tabular with the rules of booktabs.
    """
    pages, data = list[str](), dict[str, Any]()
    for part, compared in compare_parts(runs, **vars(options)).items():
        page = compared.latex() if format == "latex" else str(compared)
        pages.append(f"{'%' if format == 'latex' else '##'} {part}\n\n{page}" if part else page)
        data[part] = compared.to_json()
        if out:
            compared.write(out / folder_of(part))
    return CommandResult("\n".join(pages), lambda: data.get("", data))
