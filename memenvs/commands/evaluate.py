"""`memenvs evaluate run`, `suite`, `compare`, `by`, `signals` and `table`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from tyro.conf import Positional, PositionalRequiredArgs, arg

from memenvs.commands import build
from memenvs.commands.options import EnvOptions, PolicyOptions
from memenvs.core.arguments import deferred
from memenvs.core.data import Count, checked
from memenvs.core.files import path_in_errors, write_text
from memenvs.core.optional import install_line
from memenvs.core.processes import Workers
from memenvs.core.terminal import RED, RESET, show, show_page
from memenvs.core.trackers import TrackerName
from memenvs.evaluation.by import scores_by
from memenvs.evaluation.compare import PairedComparison
from memenvs.evaluation.policies import ModelOptions
from memenvs.evaluation.run import evaluate
from memenvs.evaluation.signals import SignalFigures, signal_figures
from memenvs.evaluation.suite import SUITES, compare_parts, folder_of, play_suite, suite_table
from memenvs.evaluation.summary import TableFormat
from memenvs.evaluation.table import main_table
from memenvs.wrappers.registry import read_methods

if TYPE_CHECKING:
    Suite: TypeAlias = str
else:
    Suite = Literal[tuple(SUITES)]


def run(
    *,
    environment: EnvOptions,
    policy: PolicyOptions,
    models: ModelOptions,
    task: str = ":",
    samples: int = 1,
    concurrency: int = 16,
    workers: Workers = 1,
    seed: int = 0,
    out: Path | None = None,
    texts: bool = True,
    price: tuple[float, float] | None = None,
    track: tuple[TrackerName, ...] = (),
) -> int:
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
        samples: episodes of each task.
        concurrency: episodes played at once, by each worker.
        workers: number of processes, or ray for the workers of a Ray cluster.
        seed: decides every random choice.
        out: folder for episodes and results; an existing run is resumed.
        texts: keep only the replies, not what was read (smaller files).
        price: price of a million tokens that the model reads, and of a million that it writes, for the cost.
        track: experiment trackers that get the means: tensorboard, wandb, mlflow, trackio; needs --out.

    Returns:
        0; 1 if an episode failed.
    """
    if policy.policy is None:
        raise ValueError("no policy is given; add --policy, as in --policy lexical")
    summary = evaluate(
        environment.env,
        policy.policy,
        env_args=environment.env_args,
        tasks=task,
        samples=samples,
        seed=seed,
        concurrency=concurrency,
        workers=workers,
        out=out,
        texts=texts,
        options=models,
        methods=read_methods(policy.methods),
        scorer=policy.scorer,
        price=price,
        track=track,
    )
    show_page(str(summary))
    if not summary.failed:
        return 0
    again = "the same command plays them again" if out else "with --out you could play them again"
    failed = f"{RED}{summary.failed} episodes failed{RESET}"
    show(f"memenvs evaluate run: {failed} and are left out of all means; {again}\n", sys.stderr)
    return 1


@checked
def suite(
    suite: Annotated[Suite, Positional],
    *,
    policy: str,
    models: ModelOptions,
    out: Path,
    source: Path | None = None,
    samples: Count = 1,
    concurrency: Count = 16,
    reading: dict[str, Any] | None = None,
    note: str = "",
    format: TableFormat = "markdown",
) -> int:
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
        policy: who plays, as for `evaluate run`.
        out: folder for the episodes and results of each part, and suite.json.
        source: the official file of a suite that needs one.
        samples: episodes of each task.
        concurrency: episodes played at once.
        reading: how the policy reads the parts whose text comes in chunks, such as template=short
            chunk_size=400: template, cut_at, and chunk_size and max_memory up to the suite's.
        note: kept in suite.json, such as the size of the model and the machine.
        format: latex prints a tabular with the rules of booktabs.

    Returns:
        0; 1 if an episode failed.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what builds say
        result = play_suite(
            suite,
            policy,
            out=out,
            build=build.main,
            source=source,
            samples=samples,
            concurrency=concurrency,
            options=models,
            reading=reading,
            note=note,
        )
    show_page(suite_table([result], format))
    return int(any(score.failed for score in result.scores.values()))


ComparedRuns = Annotated[
    Callable[[], dict[str, PairedComparison]],
    arg(constructor=deferred(compare_parts)),
    PositionalRequiredArgs,
]
Scores = Annotated[Callable[[], str], arg(constructor=deferred(scores_by)), PositionalRequiredArgs]
Signals = Annotated[
    Callable[[], SignalFigures],
    arg(constructor=deferred(signal_figures)),
    PositionalRequiredArgs,
]
Table = Annotated[Callable[[], str], arg(constructor=deferred(main_table)), PositionalRequiredArgs]


def compare(comparison: ComparedRuns, *, out: Path | None = None, format: TableFormat = "markdown") -> None:
    """Compare policies task by task: differences with bootstrap intervals, a table, a plot.

    RUNS are folders that `evaluate run --out` wrote; the first is the baseline. --allow takes env, env_args,
    n_tasks, data, methods, scorer, seed, memenvs and samples, or one value, as env_args.chunk_size. Folders
    of `evaluate suite` are compared part by part. docs/compare.md says what is compared.

    Examples:
      memenvs evaluate compare runs/lexical runs/qwen3-4b
      memenvs evaluate compare runs/base runs/grpo runs/mt_ppo --metrics em f1 --out runs/comparison
      memenvs evaluate compare runs/whole runs/memory --allow env_args.memory_mode

    Args:
        comparison: What to compare, and how.
        out: folder for comparison.md, comparison.json and, with matplotlib, forest.png and forest.svg.
        format: latex prints a tabular with the rules of booktabs.
    """
    for k, (part, compared) in enumerate(comparison().items()):
        heading = f"{'%' if format == 'latex' else '##'} {part}\n\n" if part else ""
        show_page("\n" * bool(k) + heading + (compared.latex() if format == "latex" else str(compared)))
        if out:
            folder = out / folder_of(part)
            _say_written(folder, compared.write(folder))


def _say_written(folder: Path, paths: Sequence[Path]) -> None:
    show(f"\n{folder}: {', '.join(path.name for path in paths)}\n")
    if not any(path.suffix == ".png" for path in paths):
        show(f"no plot was drawn, because matplotlib is missing: `{install_line('plots')}`\n")


def by(scores: Scores) -> None:
    """Print the scores of a run by a field of its tasks, with 95% intervals.

    A number with many values is cut into ranges with about as many tasks in each.

    Examples:
      memenvs evaluate by hops runs/lexical
      memenvs evaluate by depth runs/lexical --metrics em format

    Args:
        scores: What to show.
    """
    show_page(scores())


def signals(signals: Signals, *, out: Path | None = None) -> None:
    """Print what a reward method measured in runs, by step and by value, and how well their episodes did.

    METHOD is one that the runs were evaluated with. With MemPO bias=none these are figures 4 and 5 of the
    MemPO paper, P(y* given mem) by step and by value.

    Examples:
      memenvs evaluate signals MemPO runs/grpo runs/mempo --out runs/figures
      memenvs evaluate signals TAMTRL runs/credit --metric success

    Args:
        signals: What to show.
        out: folder for signals.md, signals.json and, with matplotlib, signals.png and signals.svg.
    """
    figures = signals()
    show_page(str(figures))
    if out:
        _say_written(out, figures.write(out))


def table(table: Table, *, out: Path | None = None) -> None:
    """Print evaluated runs as a paper's table, with a row for each method.

    SHAPE is memagent, which has a column for each task set, or infomem, mempo, mempo_tokens, mt_grpo, mt_ppo,
    mt_ppo_sokoban or tamtrl, which have the columns of their paper. A method is a folder that holds a folder
    of `evaluate run --out` for each task set: runs/tamtrl/eval_200. docs/tables.md says more.

    Examples:
      memenvs evaluate table memagent runs/base runs/tamtrl
      memenvs evaluate table memagent runs/base runs/tamtrl --metric f1
      memenvs evaluate table tamtrl runs/mine --published
      memenvs evaluate table memagent runs/base runs/tamtrl --intervals --format latex

    Args:
        table: What the table shows.
        out: also write the table to this file.
    """
    page = table()
    show_page(page)
    if out:
        with path_in_errors(out):
            write_text(out, page)
