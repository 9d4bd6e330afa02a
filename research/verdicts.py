"""Decide every row of docs/results.md by the page's rule, from the records in `research/results`.

python -m research.verdicts     rewrites the tables of the page
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from memenvs.core.arguments import run_command
from memenvs.core.files import write_text
from memenvs.credit import Array, all_equal
from memenvs.evaluation.summary import Interval, markdown_table
from research.credit_bench.methods import METHODS
from research.credit_bench.report import read_cells
from research.harness import RESULTS, read_record

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
HEAD = ("claim", "endpoint", "seeds", "first", "second", "difference", "p", "corrected", "verdict")
LEVEL = 0.05
FLIPS = 10  # fewest seeds for the sign-flip test: five cannot give a p below 2/32


class Endpoint(NamedTuple):
    """A number of a row's methods: by seed, whether more (1) or less (-1) is better, and its digits."""

    read: Callable[[str], Array]
    sign: int = 1
    digits: int = 3


class Row(NamedTuple):
    """A claim that one method is better than another in an endpoint.

    With a reason it has no verdict, and the numbers of its methods are not read. A row that was planned with
    the others of its table, and has not run, still counts in their correction.
    """

    claim: str
    endpoint: str
    first: str
    second: str
    reason: str = ""


@cache
def record(name: str) -> Any:
    """A record of `research/results`."""
    return read_record(RESULTS / f"{name}.json")


@cache
def bench() -> Any:
    """The cells of the bench's record."""
    return read_cells(record("credit_bench"))


def last(metric: str, *files: str) -> Endpoint:
    """The numbers of the reproductions' own tables, averaged by seed over their records."""
    return Endpoint(lambda name: np.mean([record(file)["last"][name][metric] for file in files], axis=0))


def by_seed(file: str, number: Callable[[Any], float], part: str = "") -> Endpoint:
    """A number of each seed's entry in a record, or in a part of it."""

    def read(name: str) -> Array:
        methods = record(file)[part] if part else record(file)
        return np.array([number(seed) for seed in methods[name]])

    return Endpoint(read)


def searchers(metric: str, *prompts: str) -> Endpoint:
    """A number of the last policies with two objectives, averaged over kinds of prompts."""
    return by_seed("mempo_objectives", lambda seed: np.mean([seed[prompt][metric] for prompt in prompts]))


def steps(world: str, turns: int, title: str) -> Array:
    """Steps to the goal in the bench; a miss counts with all steps, and single runs may not be recorded."""
    method = next(name for name, method in METHODS.items() if method.title == title)
    cell = bench()[world, turns, method]
    return np.array(cell.by_seed if cell.reached else [cell.steps.mean] * cell.runs, float)


def lead(turns: str) -> Array:
    """Steps by which turn credit is ahead of the sum of the rewards in `chain`; `turns` as "K = 8"."""
    count = int(turns.removeprefix("K = "))
    return steps("chain", count, "GRPO-MR") - steps("chain", count, "MT-GRPO")


READ, READ_AGAIN = "reading_methods", "reading_ablations_methods"
BENCH = {"chain": 8, "distracting": 5, "stopping": 5, "carrying": 8, "once": 5}
ENDPOINTS = {
    "one box": last("eval_success", "sokoban_1"),
    "two boxes": last("eval_success", "sokoban_2"),
    "share of calls": last("eval_called", "tool_use"),
    "calling or guessing": Endpoint(lambda name: np.array([])),
    "exact match": last("eval_em", "tool_use"),
    "tutorial": last("eval_success", "tutorial"),
    "first runs": last("eval_success", READ),
    "second runs": last("eval_success", READ_AGAIN),
    "first and second runs": last("eval_success", READ, READ_AGAIN),
    "1,024 episodes": by_seed("reading_ablations_memories", lambda seed: seed["em"], "shares"),
    "SmolLM2": by_seed("reader", lambda seed: seed["found"][-1]["em"], "methods"),
    "after 30 steps": by_seed("long_reader", lambda seed: seed["found"][-1]["em"], "methods"),
    "exact match, 2": last("eval_em", "mempo"),
    "exact match, 2 to 10": searchers("em", "2", "4", "6", "8", "10"),
    "prompt tokens, 10": searchers("prompt_tokens", "10")._replace(sign=-1, digits=0),
    "MemPO by prompt": Endpoint(lambda shown: searchers("em", shown.replace(" questions", "")).read("MemPO")),
    "P at turn 5": by_seed("mempo_objectives", lambda seed: seed["likely to all"]["turns"][4][0]),
    "lead in `chain`": Endpoint(lead, digits=1),
    **{
        f"`{world}`, K = {turns}": Endpoint(partial(steps, world, turns), -1, 1)
        for world, turns in BENCH.items()
    },
}
"""The endpoints of the rows, by the names that the page explains."""

SOKOBAN = {
    "PPO beats GRPO (MT-PPO Table 5)": ("PPO-OR", "GRPO-OR"),
    "Turn rewards beat their sum in PPO": ("MT-PPO", "PPO-MR"),
    "Turn rewards beat the outcome alone in PPO": ("MT-PPO", "PPO-OR"),
    "The sum of the rewards beats the outcome alone in PPO": ("PPO-MR", "PPO-OR"),
    "The sum of the rewards beats the outcome alone in GRPO": ("GRPO-MR", "GRPO-OR"),
}
CARRIED = ("TAMTRL", "MemPO", "ReMemR1", "IGPO", "InfoMem")
UNRECORDED = "its runs were not recorded"
NOT_RUN = "planned, and not all run yet"
UNLEARNED = "without a memory the model did not learn to find answers in what it had read"
ROWS = {
    "Sokoban: PPO and GRPO": [
        Row(claim, boxes, *methods)
        for boxes in ("one box", "two boxes")
        for claim, methods in SOKOBAN.items()
    ],
    "Tools: rewards for the call": [
        Row("MT-GRPO teaches the call", "share of calls", "MT-GRPO", "warmed up"),
        Row("The outcome alone teaches it less (MT-GRPO Table 2)", "share of calls", "MT-GRPO", "GRPO-OR"),
        Row("The same where guessing pays", "calling or guessing", "MT-GRPO", "GRPO-OR"),
        Row("MT-GRPO beats the outcome alone", "exact match", "MT-GRPO", "GRPO-OR"),
        Row("MT-GRPO beats the sum of the rewards", "exact match", "MT-GRPO", "GRPO-MR"),
    ],
    "Memories while reading: TAMTRL and InfoMem": [
        Row("TAMTRL beats the outcome alone (Table 1)", "tutorial", "TAMTRL", "outcome alone"),
        Row("TAMTRL beats the outcome alone (Table 1)", "first and second runs", "TAMTRL", "outcome only"),
        Row("TAMTRL should be paid for changes (ours)", "first and second runs", "TAMTRL, change", "TAMTRL"),
        Row("TAMTRL should be compared within a turn (ours)", "second runs", "TAMTRL, by turn", "TAMTRL"),
        Row("The same, without each turn's std", "second runs", "TAMTRL, by turn, no std", "TAMTRL"),
        Row("The same, for changes", "second runs", "TAMTRL, change, by turn", "TAMTRL, change"),
        Row(
            "The same, without std, for changes",
            "second runs",
            "TAMTRL, change, by turn, no std",
            "TAMTRL, change",
        ),
        Row("TAMTRL's product beats its sum (Table 3)", "first runs", "TAMTRL", "TAMTRL, plus"),
        Row("TAMTRL's min-max helps (Table 2)", "first runs", "TAMTRL", "TAMTRL, no min-max"),
        Row("TAMTRL's local view beats the global one (Table 3)", "first runs", "TAMTRL", "TAMTRL, global"),
        Row("TAMTRL's length norm helps (Table 2)", "second runs", "TAMTRL", "TAMTRL, no length norm"),
        Row("InfoMem beats the outcome alone (Table 2)", "first and second runs", "InfoMem", "outcome only"),
        Row("InfoMem should reward only successes (Fig. 3)", "first runs", "InfoMem", "InfoMem, both sides"),
        Row("InfoMem should not reward failures (Fig. 3)", "first runs", "InfoMem", "InfoMem, wrong side"),
        Row("InfoMem's z-score helps (Table 3)", "first runs", "InfoMem", "InfoMem, no normalisation"),
        Row("InfoMem beats ReMemR1's state reward (Table 2)", "second runs", "InfoMem", "ReMemR1"),
        Row(
            "InfoMem teaches without outcomes (Fig. 3)", "1,024 episodes", "InfoMem, no outcome", "warmed up"
        ),
        Row("TAMTRL beats the outcome alone", "SmolLM2", "TAMTRL", "outcome only"),
        Row("TAMTRL should be paid for changes (ours)", "SmolLM2", "TAMTRL, change", "TAMTRL"),
        Row("InfoMem beats the outcome alone", "SmolLM2", "InfoMem", "outcome only"),
        Row("InfoMem should score the answer (Table 3, Fig. 4)", "SmolLM2", "InfoMem", "InfoMem, query"),
    ],
    "A pretrained reader: longer runs": [
        Row("TAMTRL beats the outcome alone", "after 30 steps", "TAMTRL", "outcome only"),
        Row("IGPO beats the outcome alone", "after 30 steps", "IGPO", "outcome only", NOT_RUN),
        Row("InfoMem beats the outcome alone", "after 30 steps", "InfoMem", "outcome only", NOT_RUN),
    ],
    "Memory between turns: MemPO": [
        Row("MemPO beats GRPO with a memory (Fig. 3)", "exact match, 2 to 10", "MemPO", "GRPO"),
        Row("The same, paid also for form", "exact match, 2 to 10", "MemPO, strict", "GRPO, strict"),
        Row("A memory saves tokens (Table 1)", "prompt tokens, 10", "MemPO", "GRPO, no memory"),
        Row("A memory answers more (Table 1)", "exact match, 2", "MemPO", "GRPO, no memory", UNLEARNED),
        Row("MemPO should subtract b (eq. 4)", "exact match, 2", "MemPO", "MemPO, b = 0"),
        Row(
            "The whole history helps with few (Fig. 3)",
            "MemPO by prompt",
            "2 questions, all turns",
            "2 questions",
        ),
        Row(
            "The whole history hurts with many (Fig. 3)",
            "MemPO by prompt",
            "6 questions",
            "6 questions, all turns",
        ),
        Row("MemPO's memories make the answers likelier (Fig. 4)", "P at turn 5", "MemPO", "GRPO"),
        Row("The same, paid also for form", "P at turn 5", "MemPO, strict", "GRPO, strict"),
    ],
    "The bench: many turns": [
        Row("Turn credit is faster than the outcome alone", "`chain`, K = 8", "MT-GRPO", "GRPO-OR"),
        Row("Turn credit is faster than the sum of the rewards", "`chain`, K = 8", "MT-GRPO", "GRPO-MR"),
        Row("Its lead over the sum grows with the turns", "lead in `chain`", "K = 8", "K = 3"),
        Row("MT-GRPO should divide by each turn's std", "`distracting`, K = 5", "MT-GRPO", "MT-GRPO, no std"),
        Row("The same, where few reach the end", "`stopping`, K = 5", "MT-GRPO", "MT-GRPO, no std"),
        *(Row(f"{name} carries a fact over turns", "`carrying`, K = 8", name, "GRPO-OR") for name in CARRIED),
        Row("TAMTRL helps where evidence is rare", "`once`, K = 5", "TAMTRL", "GRPO-OR"),
        Row("The same, paid for changes (ours)", "`once`, K = 5", "TAMTRL, change", "GRPO-OR"),
    ],
}
"""The rows of each table; those of a table are corrected together."""


def p_value(lead: Array) -> float:
    """Two-sided p of a mean of 0: by all sign flips from `FLIPS` seeds on, below by a t test if they vary."""
    if len(lead) < FLIPS and not all_equal(lead):
        return float(stats.ttest_1samp(lead, 0).pvalue)
    flipped = stats.permutation_test((lead,), np.mean, permutation_type="samples", n_resamples=2 ** len(lead))
    return float(flipped.pvalue)


def interval(differences: Array) -> Interval:
    """The mean and its 95% interval by Student's t."""
    mean = float(differences.mean())
    half = float(stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences))
    return Interval(mean, mean - half, mean + half)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values: the k-th smallest of m times m - k + 1, never below an earlier one."""
    corrected, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(np.argsort(values)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = highest
    return corrected


def untested(row: Row, first: Array, second: Array) -> str:
    """Why a row has no verdict; empty if the numbers of its methods can be tested."""
    if row.reason or not (len(first) and len(second)):
        return row.reason or UNRECORDED
    if not np.isfinite([*first, *second]).all():
        return "a seed has no finite number"
    return "" if max(len(first), len(second)) > 1 else "it has one seed"


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of a Markdown table of rows that are corrected together."""
    pairs = [
        [
            np.array([]) if row.reason else ENDPOINTS[row.endpoint].read(name)
            for name in (row.first, row.second)
        ]
        for row in rows
    ]
    reasons = [untested(row, *pair) for row, pair in zip(rows, pairs, strict=True)]
    gaps = [first - second for (first, second), reason in zip(pairs, reasons, strict=True) if not reason]
    values = [p_value(gap) for gap in gaps]
    corrected_values = holm([*values, *[1.0] * reasons.count(NOT_RUN)])[: len(values)]
    tested = iter(zip(gaps, values, corrected_values, strict=True))
    lines = []
    for (claim, endpoint, *names, _), pair, reason in zip(rows, pairs, reasons, strict=True):
        if reason:
            lines.append([claim, endpoint, "", *names, "", "", "", f"no verdict: {reason}"])
            continue
        gap, value, corrected = next(tested)
        _, sign, digits = ENDPOINTS[endpoint]
        difference = interval(gap)
        word = "undecided"
        if corrected < LEVEL:
            word = "holds" if sign * difference.mean > 0 else "does not hold"
        p_texts = [f"{p:.3f}" if p >= 0.0005 else "< 0.001" for p in (value, corrected)]
        sides = [f"{name} {found.mean():,.{digits}f}" for name, found in zip(names, pair, strict=True)]
        lines.append(
            [claim, endpoint, f"{len(gap)}", *sides, difference.text("+", digits=digits), *p_texts, word]
        )
    return markdown_table(HEAD, lines)


def page(text: str) -> str:
    """The page with the table under each heading made again."""
    for title, rows in ROWS.items():
        lines = "".join(f"{line}\n" for line in table(rows))
        pattern = rf"(^### {title}\n.*?)^(?:\|[^\n]*\n)+"
        text, count = re.subn(pattern, rf"\g<1>{lines}", text, count=1, flags=re.DOTALL | re.MULTILINE)
        if not count:
            raise ValueError(f"{PAGE} has no table under the heading {title!r}; add both")
    return text


def write() -> None:
    """Write the tables of docs/results.md from the records in research/results."""
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8")))
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    sys.exit(run_command(write, sys.argv[1:], "python -m research.verdicts"))
