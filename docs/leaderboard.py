"""Write docs/leaderboard.md from docs/leaderboard/*.json, the results of `memenvs evaluate suite`.

`python docs/leaderboard.py` writes the same page for the same files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from memenvs.core.files import write_text
from memenvs.evaluation.suite import SUITES, SuitePart, SuiteResult, read_suite, suite_table
from memenvs.evaluation.summary import markdown_table
from memenvs.rollout.scripted import POLICIES

DOCS = Path(__file__).parent

PAGE = """\
# Leaderboard

This page shows the scores of policies on the fixed suites of `memenvs evaluate suite`, with 95% intervals.
`docs/leaderboard.py` writes it from the files in `docs/leaderboard`.

{tables}

- A machine with two cores plays `small` in a few minutes. Each part has 20 tasks, so only large differences
  show: the interval of 20 successes in 20 tasks is [0.84, 1.00]. `world` has 100 tasks per part and longer
  texts.
- `gold` asks the environment for the answer, which shows that every task can be solved. `random_text` and
  `silent` show the scores of a policy without skill. `lexical` matches words and has no model.
- `not played`: the policy has no rules for this environment. Rows are sorted by the sum of their scores.

## Send a row

1. Play the suite:

   ```sh
   memenvs evaluate suite small --policy openai:http://127.0.0.1:8000/v1 --out runs/small/mine
   ```

2. Copy `runs/small/mine/suite.json` to `docs/leaderboard/NAME.json` and run `python docs/leaderboard.py`.
3. Open a pull request with both files. Say which model it is, how it was sampled, and on what machine.

A row must cover a whole suite, without failed episodes, and others must be able to run the policy. Only a
scripted policy may lack the parts that it cannot play.
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
    rows = [[one.policy, str(one.samples), one.date, one.memenvs] for one in results]
    return markdown_table(["policy", "samples per task", "date", "memenvs"], rows)


def ranked(suite: str, parts: Sequence[SuitePart]) -> list[SuiteResult]:
    """The results in some parts of a suite, those with the highest sum of scores first."""
    names = {part.name for part in parts}
    found = []
    for path in sorted((DOCS / "leaderboard").glob("*.json")):
        result = read_suite(path)
        scores = {part: score for part, score in result.scores.items() if part in names}
        if result.suite == suite and scores:
            if (missing := names - scores.keys()) and result.policy not in POLICIES:
                raise ValueError(f"{path} lacks {', '.join(sorted(missing))}; play the whole suite")
            found.append(dataclasses.replace(result, scores=scores))
    return sorted(found, key=lambda one: (-sum(score.mean for score in one.scores.values()), one.policy))


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
