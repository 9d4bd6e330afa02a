"""A fixed suite of tasks that one command plays, for a table of scores.

`memenvs evaluate suite small --policy hf:MODEL --out RUN`.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import memenvs
from memenvs.core.arguments import check_arguments, env_parameters
from memenvs.core.data import Count, Whole, checked, convert
from memenvs.core.errors import unknown_name
from memenvs.core.files import cache_folder, read_json, sha256, write_json
from memenvs.core.terminal import say
from memenvs.evaluation.compare import PairedComparison, compare
from memenvs.evaluation.run import evaluate
from memenvs.evaluation.summary import Interval, TableFormat, table_text
from memenvs.models.settings import ModelOptions
from memenvs.rollout.collect import maker
from memenvs.rollout.names import OTHER_POLICIES, POLICIES, policy_label
from memenvs.rollout.policies import choose_policy
from memenvs.rollout.scripted import make_policy

RESULT = "suite.json"
VERSION = 2
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_new_tokens", "max_tokens", "stop")
LIMITS = ("chunk_size", "max_memory")
READING = (*LIMITS, "cut_at", "template")
"""What a policy chooses where a text comes in chunks. The suite has the tasks and the highest limits."""


@dataclass(frozen=True)
class SuitePart:
    """One line of a suite.

    Attributes:
        name: the column's title.
        env: id of the environment.
        metric: the score.
        tasks: number of tasks, from the first.
        build: `memenvs build` arguments that make its tasks; empty for bundled tasks. SOURCE is the file
            that the user gives.
        env_args: more arguments of the environment.
    """

    name: str
    env: str
    metric: str
    tasks: int
    build: str = ""
    env_args: dict[str, Any] = field(default_factory=dict)

    @property
    def is_chunked(self) -> bool:
        """Whether its text comes in chunks."""
        return "chunk_size" in self.env_args


SUITES = msgspec.json.decode(
    Path(__file__).with_name("suites.json").read_bytes(), type=dict[str, list[SuitePart]]
)
"""By name: `world` needs no download, `small` suits a small model on two cores, `hotpotqa` needs its
official file."""


@dataclass(frozen=True)
class PartScore:
    """A policy's score in one part of a suite, with its 95% interval.

    Attributes:
        metric: what was averaged.
        mean: over tasks.
        low: end of the interval.
        high: end of the interval.
        tasks: number of tasks.
        failed: episodes that ended in an error; they are in no mean.
    """

    metric: str
    mean: float
    low: float
    high: float
    tasks: Count
    failed: Whole


@dataclass(frozen=True)
class SuiteResult:
    """What a policy reached in a suite; `suite.json` of its folder.

    Attributes:
        suite: name of the suite.
        version: version of the suites' tasks; results of different versions cannot be compared.
        policy: who played; of an endpoint, the name of its model.
        samples: episodes of each task.
        date: when the last part ended.
        memenvs: version.
        scores: by the name of the part.
        sampling: how a model's replies were sampled.
        reading: what the policy chose of `READING`.
        note: what else readers need to know, such as the model's size and the machine.
    """

    suite: str
    version: int
    policy: str
    samples: Count
    date: str
    memenvs: str
    scores: dict[str, PartScore]
    sampling: dict[str, Any] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)
    note: str = ""


@checked
@dataclass(frozen=True)
class SuiteOptions:
    """How a suite is played."""

    policy: str
    """Who plays, as for `evaluate run`."""
    out: Path
    """Folder for the episodes and results of each part, and suite.json; the same call resumes."""
    source: Path | None = None
    """The official file of a suite that needs one."""
    samples: Count = 1
    """Episodes of each task."""
    concurrency: Count = 16
    """Episodes played at once."""
    reading: dict[str, Any] = field(default_factory=dict)
    """How the policy reads the parts whose text comes in chunks, such as template=short chunk_size=400:
    template, cut_at, and chunk_size and max_memory up to the suite's."""
    note: str = ""
    """Kept in suite.json, such as the size of the model and the machine."""


def play_suite(
    suite: str, how: SuiteOptions, models: ModelOptions, build: Callable[[Sequence[str]], int]
) -> SuiteResult:
    """Build the tasks of a suite where they are missing, play them, and write `suite.json`.

    Where a scripted policy has no rules for an environment, it plays as `silent` does.

    Args:
        suite: a name of `SUITES`.
        how: who plays and how; each part is an evaluation in its own folder.
        models: settings of a model.
        build: runs `memenvs build` with arguments and returns its exit status.

    Raises:
        ValueError: there is no such suite, its file is missing or it needs none, tasks could not be built, or
            `reading` has other arguments or higher limits.
    """
    if suite not in SUITES:
        raise ValueError(unknown_name("no suite", suite, SUITES))
    if ":" not in how.policy and how.policy not in POLICIES:  # before tasks are built, for minutes
        raise ValueError(unknown_name("no policy", how.policy, POLICIES, OTHER_POLICIES))
    parts = SUITES[suite]
    check_reading(how.reading, parts)
    version = f"{suite}-{VERSION}"
    if any("SOURCE" in part.build for part in parts):
        if how.source is None:
            raise ValueError(f"suite {suite} needs its official file; give --source FILE")
        version += f"-{sha256(how.source)[:12]}"
    elif how.source is not None:
        raise ValueError(f"suite {suite} needs no file, got --source {how.source}; leave it out")
    setting = choose_policy(how.policy, models).setting
    cache = cache_folder() / "suites"
    scores: dict[str, PartScore] = {}
    for part in parts:
        env_args = part.env_args | (how.reading if part.is_chunked else {})
        if part.build:
            folder = cache / f"{version}-{folder_of(part.name)}"
            words = [str(how.source) if word == "SOURCE" else word for word in part.build.split()]
            if not folder.exists() and build([*words, "--out", str(folder)]):
                raise ValueError(f"the tasks of {part.name} could not be built; fix the error above")
            env_args["tasks"] = str(folder)
        say(part.name)
        summary = evaluate(
            part.env,
            _player(how.policy, part.env, env_args),
            env_args=env_args,
            tasks=f"0:{part.tasks}",
            samples=how.samples,
            concurrency=how.concurrency,
            out=how.out / folder_of(part.name),
            options=models,
        )
        if (measured := summary.metrics.get(part.metric)) is None:
            raise ValueError(f"no episode of {part.name} has ended; the same command plays them again")
        scores[part.name] = PartScore(part.metric, *measured.interval, summary.tasks, summary.failed)
    settings = {**setting, **setting.get("body", {})}
    result = SuiteResult(
        suite=suite,
        version=VERSION,
        policy=setting.get("model") or setting["policy"],
        samples=how.samples,
        date=datetime.date.today().isoformat(),
        memenvs=memenvs.__version__,
        scores=scores,
        sampling={name: settings[name] for name in SAMPLING if settings.get(name) not in (None, (), [])},
        reading=how.reading,
        note=how.note,
    )
    write_json(how.out / RESULT, asdict(result))
    return result


def check_reading(reading: Mapping[str, Any], parts: Sequence[SuitePart]) -> None:
    """Refuse what a policy may not choose about how it reads the parts whose text comes in chunks.

    Raises:
        ValueError: `reading` has other arguments or higher limits.
    """
    if others := reading.keys() - {*READING}:
        fixed = ", ".join(sorted(others))
        raise ValueError(f"the suite fixes {fixed}; a policy chooses {', '.join(READING)}")
    for part in parts:
        if not part.is_chunked:
            continue
        parameters = env_parameters(part.env) or ()
        check_arguments(part.env, reading, parameters)
        most = {p.name: p.default for p in parameters} | part.env_args
        for name in reading.keys() & {*LIMITS}:
            if reading[name] > most[name]:
                raise ValueError(f"{name} must be at most {most[name]} in {part.name}, got {reading[name]}")


def _player(policy: str, env: str, env_args: Mapping[str, Any]) -> str:
    """The policy, or "silent" where a scripted one has no rules for an environment."""
    if policy not in POLICIES:
        return policy
    with contextlib.closing(maker(env, env_args)()) as example:
        try:
            make_policy(policy, example)
        except ValueError:
            say(f"{policy} has no rules for {env}, and plays as silent does")
            return "silent"
    return policy


def folder_of(part: str) -> str:
    """The name of a part's folder."""
    return part.replace(" ", "-")


def read_suite(path: str | Path) -> SuiteResult:
    """The result of a suite, from its `suite.json`.

    Raises:
        ValueError: the file holds something else.
    """
    fix = "play the suite again"
    return convert(read_json(Path(path), fix), SuiteResult, f"{path}: the result", fix)


def compare_parts(runs: Sequence[str | Path], **options: Any) -> dict[str, PairedComparison]:
    """Compare runs as `compare` does, or results of a suite part by part.

    Returns:
        By the name of the part; by `""` for runs of `evaluate`. A part is compared by its score unless
        `metrics` names others.

    Raises:
        ValueError: results of different suites or with different parts, and as `compare`.
    """
    if not all((Path(run) / RESULT).exists() for run in runs):
        return {"": compare(runs, **options)}
    first, *others = [read_suite(Path(run) / RESULT) for run in runs]
    for result in others:
        if (result.suite, result.version) != (first.suite, first.version):
            raise ValueError(
                f"results of {first.suite} of version {first.version} and {result.suite} of version "
                f"{result.version} cannot be compared; play one suite by all policies"
            )
        if lacking := first.scores.keys() ^ result.scores.keys():
            raise ValueError(f"one result lacks {', '.join(sorted(lacking))}; play the suite again")
    comparisons = {}
    for part, score in first.scores.items():
        folders = [Path(run) / folder_of(part) for run in runs]
        metrics = options.get("metrics") or [score.metric]
        comparisons[part] = compare(folders, **{**options, "metrics": metrics})
    return comparisons


def suite_table(results: Sequence[SuiteResult], form: TableFormat = "markdown") -> str:
    """A row for each result of a suite, a column for each part."""
    rows = [
        [
            policy_label(result.policy),
            *(
                Interval(score.mean, score.low, score.high).text(digits=2)
                for score in (result.scores[part] for part in results[0].scores)
            ),
        ]
        for result in results
    ]
    return table_text(["policy", *results[0].scores], rows, [], form)
