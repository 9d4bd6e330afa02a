r"""How well the credit of recorded conversations agrees with people who judged each step.

python -m research.agreement DATA
python -m research.agreement DATA --scorer hf:smollm2 --out scores.json

DATA is a folder with two files. `hotpotqa_30.jsonl` has conversations of AgentProcessBench (arXiv
2603.14465), whose `step_labels` are 1 (good), 0 or -1 (wrong) by number of a message; `judges_30.json` has
what language models said as judges. Agreement is the probability that a good step has more credit than a
wrong one, ties counted half: over all steps, and within runs, of steps that are not the answer. Intervals are
95%, over questions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.evaluation.plots import COLOURS, new_figure, plain_axis
from memenvs.evaluation.summary import Interval, markdown_table
from memenvs.logs.conversation import LogConversation
from memenvs.logs.files import LogFiles, episodes_of
from memenvs.wrappers import (
    IGPO,
    OTC,
    TRACE,
    GiGPO,
    InfoMem,
    RepeatedCalls,
    RewardMethod,
    StepSearch,
    assign_credit,
)
from memenvs.wrappers.comparison import COMPARISONS, ComparisonSettings
from memenvs.wrappers.credit import ScoreCache
from memenvs.wrappers.registry import make_scorer

RUNS, JUDGES = "hotpotqa_30.jsonl", "judges_30.json"
FIELDS = {"answer": "ground_truth.target", "group": "query_index", "reward": "final_label"}
RESAMPLES = 2000
NEW = "StepSearch, gains=new"
Scores = Mapping[tuple[int, int], float]
"""By run and number of a message."""

WITHOUT_MODEL: dict[str, RewardMethod] = {
    NEW: StepSearch(gains="new"),
    "RepeatedCalls": RepeatedCalls(),
    "GiGPO": GiGPO(),
    "OTC": OTC(),
}
WITH_SCORER: dict[str, RewardMethod] = {
    "IGPO": IGPO(target="bare"),
    "IGPO, log": IGPO(measure="log", target="bare"),
    "TRACE": TRACE(),
    "InfoMem": InfoMem(side="both"),
}


class Recorded(NamedTuple):
    """A run, with the labels of its steps by number of a message."""

    number: int
    question: int
    labels: dict[int, int]
    outcome: float
    conversation: LogConversation


class Agreement(NamedTuple):
    """Agreement over all steps, and within runs."""

    all: Interval
    within: Interval


def read(path: Path) -> list[Recorded]:
    """The runs of a file of AgentProcessBench."""
    return [
        Recorded(
            entry.record["total_index"],
            entry.record["query_index"],
            {int(number): label for number, label in entry.record["step_labels"].items()},
            entry.record["final_label"],
            conversation,
        )
        for entry in LogFiles([str(path)], fields=FIELDS).entries()
        for conversation in entry.conversations
    ]


def credit(
    runs: Sequence[Recorded],
    method: RewardMethod,
    scorer: Any = None,
    compare: str = "",
    cache: ScoreCache | None = None,
) -> dict[tuple[int, int], float]:
    """What each turn earns by a method, and by the outcome where the method keeps it.

    Args:
        runs: the runs.
        method: the reward method.
        scorer: gives it log-probabilities.
        compare: the comparison of a learner, whose advantages are returned instead.
        cache: scores of the last method, whose prompts are mostly the same.
    """
    conversations = [run.conversation for run in runs]
    tasks = [conversation.task for conversation in conversations]
    episodes = [episode for _, episode in episodes_of(conversations, tasks, scorer)]
    assign_credit(episodes, [method], scorer, errors="raise", cache=cache)
    earned: Sequence[Any] = [episode.turn_rewards for episode in episodes]
    if compare:
        earned = COMPARISONS[compare].advantages(episodes, ComparisonSettings())
    return {
        (run.number, int(key)): float(value)
        for run, values in zip(runs, earned, strict=True)
        for key, value in zip(run.conversation.keys, values, strict=True)
    }


def new_documents(runs: Sequence[Recorded]) -> dict[tuple[int, int], float]:
    """The share of a turn's documents that its run had not seen, of turns that brought any."""
    shares: dict[tuple[int, int], float] = {}
    for run in runs:
        seen: set[str] = set()
        episode = run.conversation.to_episode()
        for key, turn in zip(run.conversation.keys, episode.turns, strict=True):
            if turn.info["events"]["called"]:
                found = set(turn.info["privileged"]["passages"])
                shares[run.number, int(key)] = len(found - seen) / max(1, len(found))
                seen |= found
    return shares


def auc(good: Sequence[float], wrong: Sequence[float]) -> float:
    """The probability that a good step scores above a wrong one, ties count half; NaN without a pair."""
    if not (len(good) and len(wrong)):
        return np.nan
    difference = np.subtract.outer(np.asarray(good, float), np.asarray(wrong, float))
    return float(np.mean((difference > 1e-12) + 0.5 * (np.abs(difference) <= 1e-12)))


def within_runs(runs: Sequence[Recorded], scores: Scores) -> dict[int, float]:
    """The AUC within each run that has a good and a wrong step with a score, its answer left out."""
    found: dict[int, float] = {}
    for run in runs:
        last = run.conversation.keys[-1]
        calls = [(label, scores.get((run.number, n))) for n, label in run.labels.items() if n != last]
        good, wrong = ([s for label, s in calls if label * sign > 0 and s is not None] for sign in (1, -1))
        if good and wrong:
            found[run.number] = auc(good, wrong)
    return found


def agreement(runs: Sequence[Recorded], scores: Scores) -> Agreement:
    """How well scores of steps agree with the labels; steps without a score are left out."""
    steps: dict[int, list[tuple[int, float]]] = {}
    for run in runs:
        known = [(label, scores.get((run.number, n))) for n, label in run.labels.items()]
        steps.setdefault(run.question, []).extend((label, s) for label, s in known if s is not None)
    return Agreement(_interval(steps, _pooled), _over_questions(runs, within_runs(runs, scores)))


def difference(runs: Sequence[Recorded], scores: Scores, others: Scores) -> Interval:
    """By how much scores agree better than others within runs, run by run."""
    ours, theirs = within_runs(runs, scores), within_runs(runs, others)
    return _over_questions(runs, {run: ours[run] - theirs[run] for run in ours if run in theirs})


def _over_questions(runs: Sequence[Recorded], of_runs: Mapping[int, float]) -> Interval:
    by_question: dict[int, list[float]] = {}
    for run in runs:
        if run.number in of_runs:
            by_question.setdefault(run.question, []).append(of_runs[run.number])
    return _interval(by_question, lambda parts: float(np.mean(np.concatenate(parts))))


def _pooled(parts: Sequence[list[tuple[int, float]]]) -> float:
    good, wrong = ([score for part in parts for label, score in part if label * s > 0] for s in (1, -1))
    return auc(good, wrong)


def _interval(by_question: Mapping[int, Any], statistic: Callable[[Any], float]) -> Interval:
    """A statistic over questions with its bootstrap interval; NaN where there is nothing to compare."""
    parts = [by_question[question] for question in sorted(by_question)]
    if not parts:
        return Interval(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    drawn = [
        statistic([parts[i] for i in rng.integers(len(parts), size=len(parts))]) for _ in range(RESAMPLES)
    ]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Interval(statistic(parts), float(low), float(high))


def draw(results: Mapping[str, Agreement]) -> Any:
    """The agreement within runs of each kind of score, with its interval; judges in another colour."""
    rows = sorted(results.items(), key=lambda row: row[1].within.mean)
    figure = new_figure(7.0, 0.27 * len(rows) + 0.7)
    axis = figure.subplots()
    plain_axis(axis, "x")
    axis.axvline(0.5, color="0.4", linewidth=0.8, zorder=0)
    for y, (name, result) in enumerate(rows):
        mean, low, high = result.within
        colour, mark = (COLOURS[1], "s") if name.startswith("judge") else (COLOURS[0], "o")
        axis.plot([low, high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
        axis.plot([mean], [y], mark, color=colour, markersize=5)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=9)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlim(0.2, 1.02)
    axis.set_xlabel("how often a good step scores above a wrong one, within runs", fontsize=9)
    return figure


def table(results: Mapping[str, Agreement]) -> str:
    """A row for each kind of score, the best within runs first."""
    rows = sorted(results.items(), key=lambda row: -row[1].within.mean)
    cells = [[name, result.within.text(digits=2), result.all.text(digits=2)] for name, result in rows]
    return "\n".join(markdown_table(["credit or judge", "within runs", "all steps"], cells)) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table; with `--out` also keep the scores of the methods."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--scorer", nargs="+", default=["lexical"])
    parser.add_argument("--out", type=Path, help="file of the scores by method, run and message")
    parser.add_argument("--scores", type=Path, nargs="*", default=(), help="such files, of earlier calls")
    parser.add_argument("--picture", type=Path, help="file of the picture")
    args = parser.parse_args(argv)
    runs = read(args.data / RUNS)
    scores: dict[str, Scores] = {name: credit(runs, method) for name, method in WITHOUT_MODEL.items()}
    scores["share of new documents, searches alone"] = new_documents(runs)
    scores["outcome for every step"] = {(r.number, key): r.outcome for r in runs for key in r.labels}
    for spec in args.scorer:
        scorer, cache = make_scorer(spec), ScoreCache()
        name = f"MT-GRPO's advantage of IGPO ({spec})"
        scores[name] = credit(runs, IGPO(target="bare"), scorer, "turn", cache)
        for name, method in WITH_SCORER.items():
            scores[f"{name} ({spec})"] = credit(runs, method, scorer, cache=cache)
    for path in args.scores:
        for name, rows in json.loads(path.read_text()).items():
            scores[name] = {(run, number): score for run, number, score in rows}
    if args.out:
        kept = {name: [[*step, score] for step, score in of.items()] for name, of in scores.items()}
        args.out.write_text(json.dumps(kept))
    for judge, verdicts in json.loads((args.data / JUDGES).read_text()).items():
        scores[f"judge {judge}"] = {
            (int(run), int(number)): label
            for run, labels in verdicts.items()
            for number, label in labels.items()
        }
    results = {name: agreement(runs, of_steps) for name, of_steps in scores.items()}
    print(table(results))
    for name, of_steps in scores.items():
        if name.startswith("judge"):
            print(f"{NEW} less {name}:", difference(runs, scores[NEW], of_steps).text("+", digits=2))
    if args.picture:
        draw(results).savefig(args.picture, dpi=150)


if __name__ == "__main__":
    main()
