"""A fixed suite of tasks that one command plays, for a table of scores."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import memenvs
from memenvs.core.files import write_json
from memenvs.evaluation.policies import ModelOptions
from memenvs.evaluation.run import evaluate
from memenvs.evaluation.summary import markdown_table

RESULT = "suite.json"
VERSION = 1


class Part(NamedTuple):
    """One line of a suite.

    Attributes:
        name: of the column.
        env: id of the environment.
        metric: the score.
        build: `memenvs build` arguments that make its tasks; empty for bundled tasks. SOURCE is the file
            that the user gives.
        env_args: more arguments of the environment.
        tasks: number of tasks, from the first.
    """

    name: str
    env: str
    metric: str
    build: str = ""
    env_args: Mapping[str, Any] = {}  # never changed
    tasks: int = 100


def _reading(name: str, source: str, tokens: int, tasks: int = 100) -> Part:
    chunk = 5000 if tokens > 8000 else 2000
    build = f"{source} --tokens {tokens} --num-tasks {tasks} --seed 1 --split test"
    return Part(name, "MemChunkQA-v0", "em", build, {"chunk_size": chunk}, tasks)


def _others(tasks: int) -> list[Part]:
    needles = f"niah --variant multikey_1 --tokens 32000 --num-tasks {tasks} --seed 1 --split test"
    bundled = {"tasks": "world-test"}
    return [
        Part("needles 32k", "MemNIAH-v0", "needle_exact", needles, {"chunk_size": 5000}, tasks),
        Part("search", "MemSearchQA-v0", "em", "", bundled, tasks),
        Part("tool call", "MemToolQA-v0", "em", "", bundled, tasks),
        Part("Sokoban", "MemSokoban-v0", "success", "", {"level_split": "test"}, tasks),
    ]


_WORLD, _HOTPOT = "world --entities 20000", "hotpotqa --source SOURCE"
SUITES: dict[str, list[Part]] = {
    "world": [_reading(f"reading {n}k", _WORLD, n * 1000) for n in (8, 32, 128)] + _others(100),
    "small": [_reading("reading 8k", _WORLD, 8000, 20), *_others(20)],
    "hotpotqa": [_reading(f"HotpotQA {n}k", _HOTPOT, n * 1000) for n in (8, 32, 128)],
}
"""The suites: `world` needs no download, `small` is for two cores, `hotpotqa` needs its official file."""


@dataclass(frozen=True)
class Score:
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
    tasks: int
    failed: int


@dataclass(frozen=True)
class SuiteResult:
    """What a policy reached in a suite; `suite.json` of its folder.

    Attributes:
        suite: name of the suite.
        version: of the suites' tasks; results of different versions do not compare.
        policy: who played, as it was named.
        date: of the last part.
        memenvs: version.
        scores: by the name of the part.
    """

    suite: str
    version: int
    policy: str
    date: str
    memenvs: str
    scores: dict[str, Score] = field(default_factory=dict)


def play_suite(
    suite: str,
    policy: Any,
    *,
    out: str | Path,
    build: Callable[[Sequence[str]], int],
    source: str | None = None,
    samples: int = 1,
    concurrency: int = 16,
    options: ModelOptions | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> SuiteResult:
    """Make the tasks of a suite where they are missing, play them, and write `suite.json`.

    Args:
        suite: a name of `SUITES`.
        policy: as for `evaluate`.
        out: folder; each part is an evaluation in a folder of its own. The same call resumes.
        build: runs `memenvs build` with arguments.
        source: the file of a suite that needs one.
        samples: episodes of each task.
        concurrency: episodes played at once.
        options: of a model.
        say: gets a line when a part begins.

    Raises:
        ValueError: no suite of this name, or its file is missing.
    """
    if suite not in SUITES:
        raise ValueError(f"no suite {suite!r}; choose one of {', '.join(SUITES)}")
    if source is None and any("SOURCE" in part.build for part in SUITES[suite]):
        raise ValueError(f"suite {suite} needs its official file; give --source FILE")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "memenvs" / "suites"
    scores: dict[str, Score] = {}
    for part in SUITES[suite]:
        say(part.name)
        env_args = dict(part.env_args)
        if part.build:
            folder = cache / f"{suite}-{VERSION}-{part.name.replace(' ', '-')}"
            words = [source if word == "SOURCE" and source else word for word in part.build.split()]
            if not folder.exists() and build([*words, "--out", str(folder)]):
                raise ValueError(f"the tasks of {part.name} could not be built")
            env_args["tasks"] = str(folder)
        place = Path(out) / part.name.replace(" ", "-")
        summary = evaluate(
            part.env,
            policy,
            env_args=env_args,
            tasks=f"0:{part.tasks}",
            samples=samples,
            concurrency=concurrency,
            out=place,
            options=options,
        )
        interval = summary.metrics[part.metric].interval
        scores[part.name] = Score(part.metric, *interval, part.tasks, summary.failed)
    name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
    today = datetime.date.today().isoformat()
    result = SuiteResult(suite, VERSION, name, today, memenvs.__version__, scores)
    write_json(Path(out) / RESULT, asdict(result))
    return result


def suite_table(results: Sequence[SuiteResult]) -> list[str]:
    """Markdown: a row for each result, a column for each part that any has."""
    parts = list(dict.fromkeys(name for result in results for name in result.scores))

    def cell(score: Score | None) -> str:
        return "" if score is None else f"{score.mean:.2f} [{score.low:.2f}, {score.high:.2f}]"

    rows = [[result.policy, *(cell(result.scores.get(part)) for part in parts)] for result in results]
    return markdown_table(["policy", *parts], rows)
