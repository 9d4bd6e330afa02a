"""Write docs/leaderboard.md from docs/leaderboard/*.json, the results of `memenvs evaluate suite`.

`python docs/leaderboard.py` writes the same page for the same files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memenvs.core.files import write_text
from memenvs.evaluation.suite import SUITES, VERSION, SuitePart, SuiteResult, read_suite, suite_table
from memenvs.evaluation.summary import markdown_table

DOCS = Path(__file__).parent

PAGE = """\
# Leaderboard

This page shows the scores of policies on the fixed suites of `memenvs evaluate suite`, with 95% intervals.
`docs/leaderboard.py` writes it from the files in `docs/leaderboard`.

{tables}

- Each part of `small` has 20 tasks, so only large differences show: the interval of 20 successes in 20 tasks
  is [0.84, 1.00]. `world` has 100 tasks per part and longer texts.
- `gold` asks the environment for the answer, which shows that every task can be solved. `random_text` and
  `silent` show the scores of a policy without skill. `lexical` matches words and has no model.
- `smollm2-reader` was trained to read in chunks and answer from its memory, and for nothing else.
- Every row covers every part. Where `lexical` has no rules, in Sokoban, it plays as `silent` does. Rows are
  sorted by the sum of their scores.
- The suite fixes the tasks, the metric, and the most that a policy may read and remember at once. A policy
  may choose its prompt, smaller chunks and a smaller memory; the last table shows what it chose.

## Send a row

1. Play the suite:

   ```sh
   memenvs evaluate suite small --policy openai:http://127.0.0.1:8000/v1 --out runs/small/mine \\
       --note "4 B parameters, vLLM on one H100"
   ```

2. Copy `runs/small/mine/suite.json` to `docs/leaderboard/NAME.json` and run `python docs/leaderboard.py`.
3. Open a pull request with both files.

A row has no failed episodes, and others must be able to run the policy.
"""


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


def ranked(suite: str, parts: Sequence[SuitePart]) -> list[SuiteResult]:
    """The results in some parts of a suite, those with the highest sum of scores first."""
    results = []
    for path in sorted((DOCS / "leaderboard").glob("*.json")):
        result = read_suite(path)
        if result.suite == suite:
            missing = [part.name for part in parts if part.name not in result.scores]
            if missing or result.version != VERSION:
                lacks = f"lacks {', '.join(missing)}" if missing else f"is of version {result.version}"
                raise ValueError(f"{path} {lacks}; play the whole suite of version {VERSION}")
            scores = {part.name: result.scores[part.name] for part in parts}
            results.append(dataclasses.replace(result, scores=scores))
    return sorted(results, key=lambda row: (-sum(score.mean for score in row.scores.values()), row.policy))


def page() -> str:
    """The whole page."""
    tables: list[str] = []
    for suite, parts in SUITES.items():
        if of_suite := ranked(suite, parts):
            tables += ["", f"## {suite}"]
            for lines in (suite_table(of_suite).splitlines(), sizes(parts), ran(of_suite)):
                tables += ["", *lines]
    return PAGE.format(tables="\n".join(tables).strip())


if __name__ == "__main__":
    write_text(DOCS / "leaderboard.md", page())
