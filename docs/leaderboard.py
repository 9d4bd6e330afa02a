"""Write docs/leaderboard.md from docs/leaderboard/*.json, the results of `memenvs evaluate suite`.

`python docs/leaderboard.py` writes the same page for the same files.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import html
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memenvs.core.arguments import run_command
from memenvs.core.data import shown
from memenvs.core.errors import one_line
from memenvs.core.files import write_text
from memenvs.evaluation.suite import (
    SUITES,
    VERSION,
    SuitePart,
    SuiteResult,
    check_reading,
    read_suite,
    suite_table,
)
from memenvs.evaluation.summary import markdown_table
from memenvs.rollout.names import POLICIES, TEACHERS

DOCS = Path(__file__).parent
ROUNDING = 1e-9

PAGE = """\
# Leaderboard

This page shows the scores of policies on the fixed suites `small` and `world`, with 95% intervals. You send
your own row with [one command and one file](#send-a-row).

## What the numbers mean

| score | meaning |
| --- | --- |
| em (reading, search, tool call) | share of the tasks answered right, up to case, articles and punctuation |
| return (needles) | share of a task's needles that are found, less wrong ones; the mean over the tasks |
| success (Sokoban) | share of the boards that are solved within the limit of turns |

- **From 0 to 1, higher is better.** `silent` scores 0 and `gold` 1 in every part, so nothing is won by
  saying nothing, and every task can be solved.
- **The interval** says where the score on other tasks of the same kind would be. With 20 tasks per part
  (`small`) only large differences show: the smallest that Fisher's exact test finds at 5% are 0.50 against
  0.85, and 0 against 0.25. With 100 tasks (`world`) they are 0.50 against 0.65, and 0 against 0.06.
- **Two policies** play the same tasks, so [`memenvs evaluate compare`](compare.md) finds smaller differences
  between them, task by task. It needs the folders of both.
- **Parts cannot be compared with each other**: 0.3 in reading and 0.3 in search are different feats. Rows
  are sorted by the sum of their scores, which has no other meaning.
- **The suite fixes** the tasks, the metric, and the most that a policy may read and remember at once. A
  policy may choose its prompt, smaller chunks and a smaller memory; the last table of a suite shows them.
- **The worlds are invented**, so no model has seen the answers in training. Their texts are made by rules and
  are easier than what people write: a high score says that a model keeps and joins facts, not that it
  reads any prose.
- **Policies without a model** have tables of their own. They show the highest score that is possible
  (`gold`), what matching words reaches (`lexical`), and what is reached without any skill.

{tables}

## Send a row

1. Play a suite, here with a model that an endpoint serves:

   ```sh
   memenvs evaluate suite small --policy openai:http://127.0.0.1:8000/v1 --out runs/small/mine \\
       --note "4 B parameters, vLLM on one H100"
   ```

2. Send `runs/small/mine/suite.json`: attach it to an issue, or open a pull request that adds it as
   `docs/leaderboard/NAME.json`.

A row covers every part, has no failed episodes, and is of a policy that others can run. We write the pages
again from the files (`python docs/leaderboard.py`, then `python docs/environment_pages.py`).
"""

ABOUT = {
    "small": "For a small model on two cores: 2k tokens of reading, 20 tasks per part.",
    "world": "For a model that a GPU serves: up to 128k tokens of reading, 100 tasks per part. There is\n"
    "250 times as much to read as in `small`, which takes `smollm2-reader` 13 minutes of one core's time.",
}
"""What each suite is for."""

REASONS = {
    "lexical": "it keeps the sentences that share rare words with the question, follows the names in them, "
    "and copies a name or a number. A needle repeats the key of its question word for word, so matching "
    "words finds all of them. The rare words of an invented world are its names, so some of its questions "
    "are answered without understanding what they ask.",
}
"""Why a policy without a model may score above a model; a policy that sees the answer says so itself."""

NOTES = {
    "hf:smollm2-reader": "was trained to read in chunks and to answer from its memory, and for nothing else: "
    "it has seen no search, no tool call and no board.",
}
"""What readers need to know of a model."""


def sizes(parts: Sequence[SuitePart]) -> list[str]:
    """Markdown: what each part of a suite plays."""
    rows = [
        [part.name, part.env, str(part.tasks), part.metric, f"`{part.build}`" if part.build else "bundled"]
        for part in parts
    ]
    return markdown_table(["part", "environment", "tasks", "score", "`memenvs build`"], rows)


def ran(results: Sequence[SuiteResult]) -> list[str]:
    """Markdown: how each result was played."""

    def listed(values: dict[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in values.items())

    rows = [
        [
            *(result.policy, listed(result.sampling) or "no settings"),
            *(listed(result.reading) or "the suite's settings", str(result.samples)),
            *(result.note, result.date, result.memenvs),
        ]
        for result in results
    ]
    head = ["policy", "sampled with", "reads with", "samples per task", "note", "date", "memenvs"]
    return markdown_table(head, rows)


def check(result: SuiteResult) -> None:
    """Refuse a result that is no row of the page.

    Raises:
        ValueError: it is of another suite or version, not whole, or says what no run of the suite can.
    """
    if result.suite not in ABOUT:
        raise ValueError(f"suite {result.suite!r} is not on the page, which shows {', '.join(ABOUT)}")
    if not result.policy or result.policy != one_line(result.policy).replace("`", ""):
        raise ValueError(f"policy must be a name in one line without backticks, got {shown(result.policy)}")
    try:
        datetime.date.fromisoformat(result.date)
    except ValueError as error:
        raise ValueError(f"{error}; give the date as YYYY-MM-DD") from None
    parts = SUITES[result.suite]
    missing = [part.name for part in parts if part.name not in result.scores]
    if missing or result.version != VERSION:
        wrong = f"no {', '.join(missing)}" if missing else f"version {result.version}"
        raise ValueError(f"{wrong}; play the whole suite of version {VERSION}")
    if others := result.scores.keys() - {part.name for part in parts}:
        raise ValueError(f"{result.suite} has no part {', '.join(sorted(others))}; take them out")
    for part in parts:
        score = result.scores[part.name]
        if score.failed:
            raise ValueError(f"failed episodes in {part.name}; play them again")
        if (score.metric, score.tasks) != (part.metric, part.tasks):
            raise ValueError(
                f"{part.name} must have {part.metric} of {part.tasks} tasks, got {score.metric} of "
                f"{score.tasks}; play the suite again"
            )
        ends = (0.0, score.low, score.mean, score.high, 1.0)
        if not all(below <= above + ROUNDING for below, above in itertools.pairwise(ends)):
            raise ValueError(
                f"{part.name} must have a share and its interval, got {score.mean} [{score.low}, "
                f"{score.high}]; play the suite again"
            )
    check_reading(result.reading, parts)


@functools.cache
def all_results() -> tuple[SuiteResult, ...]:
    """The results of all files.

    Raises:
        ValueError: a file is damaged, is no row of the page, or repeats another.
    """
    rows: dict[Path, SuiteResult] = {}
    for path in sorted((DOCS / "leaderboard").glob("*.json")):
        result = read_suite(path)
        try:
            check(result)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        for other, row in rows.items():
            if dataclasses.replace(row, note=result.note, date=result.date) == result:
                raise ValueError(f"{path} repeats the row of {other.name}; remove one of them")
        rows[path] = result
    return tuple(rows.values())


def ranked(suite: str, parts: Sequence[SuitePart]) -> list[SuiteResult]:
    """The results in some parts of a suite, those with the highest sum of scores first."""
    results = [
        dataclasses.replace(row, scores={part.name: row.scores[part.name] for part in parts})
        for row in all_results()
        if row.suite == suite
    ]
    return sorted(results, key=lambda row: (-sum(score.mean for score in row.scores.values()), row.policy))


def reasons(models: Sequence[SuiteResult], scripted: Sequence[SuiteResult]) -> list[str]:
    """Markdown: why policies without a model score above models, for each that does.

    Raises:
        ValueError: for one of them no reason is known.
    """
    lines = []
    for row in scripted:
        if row.policy in TEACHERS:
            continue
        above = {
            model.policy: [name for name, score in row.scores.items() if score.mean > model.scores[name].mean]
            for model in models
        }
        if not any(above.values()):
            continue
        if row.policy not in REASONS:
            raise ValueError(f"{row.policy} scores above a model in {above}; add to REASONS why it does")
        where = "; ".join(f"`{model}` in {', '.join(names)}" for model, names in above.items() if names)
        lines.append(f"- **`{row.policy}` scores above** {where}, since {REASONS[row.policy]}")
    return lines


def by_kind(rows: Sequence[SuiteResult]) -> tuple[list[SuiteResult], list[SuiteResult]]:
    """The rows of models, and those of policies without one."""
    models = [row for row in rows if row.policy not in POLICIES]
    return models, [row for row in rows if row.policy in POLICIES]


def section(suite: str, parts: Sequence[SuitePart]) -> list[str]:
    """Markdown: everything about a suite."""
    rows = ranked(suite, parts)
    models, scripted = by_kind(rows)
    table = ["No model has played this suite yet; yours would be the first row."]
    if models:
        table = suite_table(models).splitlines()
    lines = ["", f"## {suite}", "", ABOUT[suite], "", *table, "", "Policies without a model:", ""]
    lines += suite_table(scripted).splitlines()
    notes = [f"- `{row.policy}` {NOTES[row.policy]}" for row in models if row.policy in NOTES]
    if bullets := [*reasons(models, scripted), *notes]:
        lines += ["", *bullets]
    for more in (sizes(parts), ran(rows)):
        lines += ["", *more]
    return [html.escape(line, quote=False) for line in lines]  # a row's texts are its sender's


def page() -> str:
    """The whole page."""
    tables = [line for suite in ABOUT for line in section(suite, SUITES[suite])]
    return PAGE.format(tables="\n".join(tables).strip())


def write() -> None:
    """Write docs/leaderboard.md from docs/leaderboard/*.json."""
    write_text(DOCS / "leaderboard.md", page())


if __name__ == "__main__":
    sys.exit(run_command(write, sys.argv[1:], "python docs/leaderboard.py"))
