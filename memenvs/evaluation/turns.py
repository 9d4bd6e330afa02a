"""Runs turn by turn: what each turn earned, and what it did with the evidence.

`memenvs evaluate compare RUN RUN` shows it below the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from memenvs.core.env import privileged_of
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EPISODES, read_lines
from memenvs.core.errors import counted
from memenvs.envs.passages import holds_answer
from memenvs.evaluation.log import EvaluatedRun, pair_of
from memenvs.evaluation.plots import line_style, new_figure, plain_axis
from memenvs.evaluation.summary import Interval, bootstrap, markdown_table

Fate = Literal["found", "kept", "lost", "wasted"]
FATES: tuple[Fate, ...] = get_args(Fate)
_SHOWN = 100  # characters of a document that say that it is there
_MOST_ROWS = 8  # longer episodes are shown by ranges of turns


def fates(episode: Episode) -> list[Fate | None]:
    """What each turn did with the evidence, by the accepted answers in the memory.

        lost:    an answer is not in the memory that was in it, or in evidence that the turn read
        found:   an answer is new in the memory, or a search brought evidence that none had brought before
        wasted:  the turn was a search that brought no new evidence
        kept:    an answer is in the memory as before

    Any accepted wording of an answer counts. Without a memory nothing is lost, since all that was read stays
    in the prompt. Yes and no are words of any text, so they do not count as answers here.

    Returns:
        (K,) of the turns, None where a turn did none of these; empty where no answers are known.
    """
    first = privileged_of(episode.turns[0].before) if episode.turns else {}
    accepted = list[list[str]]()  # of each answer its wordings
    for each in first.get("answers", ()):
        wordings = [wording for wording in each if wording.lower() not in ("yes", "no")]
        # A target that lists them all, as of needles, wants every one.
        wants_all = ", ".join(each) in first.get("target", "")
        accepted += [[wording] for wording in wordings] if wants_all else [wordings]
    evidence = [text.partition("\n")[2] or text for text in first.get("evidence", ())]  # without titles

    def held(texts: Iterable[str]) -> set[int]:  # the answers in them
        return {k for text in texts for k, each in enumerate(accepted) if holds_answer([text], [each])[0]}

    def documents(text: str) -> set[str]:
        return {document for document in evidence if document[:_SHOWN] in text}

    labels = list[Fate | None]()
    had, brought = set[int](), set[str]()  # answers in the memory, and documents that were shown
    following = [str(turn.observation) for turn in episode.turns[1:]]
    for turn, after in zip(episode.turns if any(accepted) else (), [*following, ""], strict=False):
        rewrites, memory = (
            turn.before.get("context") == "rewrite",
            privileged_of(turn.info).get("memory") or "",
        )
        part = privileged_of(turn.before).get("evidence_in_chunk")
        feedback = turn.info.get("feedback") or (after if rewrites and part is None else "")
        read = held(documents(str(turn.observation)) if part is None else part) if rewrites else set[int]()
        has = held([memory]) if rewrites else had | held([feedback])
        results = documents(feedback)
        if (had | read) - has:
            labels.append("lost")
        elif has - had or results - brought:
            labels.append("found")
        elif feedback and after:
            labels.append("wasted")
        else:
            labels.append("kept" if has else None)
        had = has
        brought |= results
    return labels


class TurnRow(NamedTuple):
    """A run's episodes at a turn, or in a range of turns.

    Attributes:
        turn: the first turn of the range, from 1.
        last: its last turn.
        run: name of the run.
        credit: what such a turn earned: the mean over tasks, and its 95% interval.
        fates: the share of these turns with each fate; empty where no turn has one.
        costly: numbers in the file, from 0, of the failed episodes whose last lost or wasted turn is here.
    """

    turn: int
    last: int
    run: str
    credit: Interval
    fates: dict[Fate, float]
    costly: tuple[int, ...]


class PlayedTurn(NamedTuple):
    """A turn of an episode.

    Attributes:
        task: what names the task.
        place: the turn, from 0.
        line: the number of the episode.
        credit: what the turn earned.
        fate: what it did with the evidence.
        is_costly: whether the episode failed, and this was its last turn that lost or wasted evidence.
    """

    task: int
    place: int
    line: int
    credit: float
    fate: Fate | None
    is_costly: bool


def played_turns(
    episode: Episode, labels: Sequence[Fate | None], task: int, line: int
) -> Iterator[PlayedTurn]:
    """The turns of an episode that have a credit; none if it failed to end.

    Args:
        episode: the episode.
        labels: its `fates`.
        task: what names its task.
        line: its number.
    """
    labels = labels or [None] * len(episode.turns)
    failed = episode.metrics.get("success", 1.0) <= 0
    last_loss = max((k for k, fate in enumerate(labels) if fate in ("lost", "wasted")), default=-1)
    for k, (credit, fate) in enumerate(zip(episode.turn_rewards, labels, strict=True)):
        if not (episode.error or np.isnan(credit)):
            yield PlayedTurn(task, k, line, credit, fate, failed and k == last_loss)


def turns_of_runs(runs: Sequence[EvaluatedRun]) -> dict[str, list[PlayedTurn]]:
    """The turns of the episodes that runs' results are about, by the name of the run."""
    turns: dict[str, list[PlayedTurn]] = {run.name: [] for run in runs}
    for run in runs:
        for line, (_, episode) in enumerate(read_lines(run.folder / EPISODES)):
            task, sample = pair_of(episode)
            if task in run.measured and sample < run.setting["samples"]:
                turns[run.name] += played_turns(episode, fates(episode), task, line)
    return turns


def turn_rows(turns: Mapping[str, Sequence[PlayedTurn]]) -> list[TurnRow]:
    """Every turn, or every range of turns, with a row for each run; none if all episodes have one turn.

    Args:
        turns: by the name of a run.
    """
    length = max((turn.place + 1 for played in turns.values() for turn in played), default=0)
    width, rows = -(-length // _MOST_ROWS) if length > 12 else 1, list[TurnRow]()
    for start in range(0, length if length > 1 else 0, width):
        for run, played in turns.items():
            here = [turn for turn in played if start <= turn.place < start + width]
            if not here:
                continue
            earned: dict[int, list[float]] = {}
            for turn in here:
                earned.setdefault(turn.task, []).append(turn.credit)
            credit = bootstrap([float(np.mean(values)) for values in earned.values()])
            counts = Counter(turn.fate for turn in here)
            shares = {
                fate: counts[fate] / len(here) for fate in FATES if len(counts) > 1 or None not in counts
            }
            costly = tuple(sorted(turn.line for turn in here if turn.is_costly))
            rows.append(TurnRow(start + 1, min(start + width, length), run, credit, shares, costly))
    return rows


def turn_table(rows: Sequence[TurnRow], folders: dict[str, Any]) -> list[str]:
    """Rows as a Markdown table; below it how to open an episode that a turn cost, for each run."""
    names = [fate for fate in FATES if any(row.fates.get(fate) for row in rows)]
    body = []
    for row in rows:
        is_first = row.run == rows[0].run
        label = f"{row.turn}" if row.turn == row.last else f"{row.turn} to {row.last}"
        shares = [f"{row.fates[name]:.0%}" if row.fates else "" for name in names]
        costs = [f"{len(row.costly):,}" if row.costly else ""] if names else []
        body.append([label if is_first else "", row.run, row.credit.text(digits=2), *shares, *costs])
    lines = markdown_table(
        ["turn", "run", "credit, 95% interval", *names, *(["cost"] if names else [])], body
    )
    opened = []
    for run, folder in folders.items():
        worst = max((row for row in rows if row.run == run), key=lambda row: len(row.costly), default=None)
        if worst and worst.costly:
            place = f"turn {worst.turn}" + (f" to {worst.last}" if worst.last > worst.turn else "")
            command = f"`memenvs view {folder} --terminal --episode {worst.costly[0]}`"
            opened.append(
                f"- {run}: {place} cost {counted(len(worst.costly), 'episode')}, the first: {command}"
            )
    return [*lines, *([""] if opened else []), *opened]


def draw_turns(rows: Sequence[TurnRow]) -> Any:
    """The mean credit of each turn as a line for each run, with its interval as a band.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure = new_figure(7.0, 2.6)
    axis = figure.subplots()
    for k, run in enumerate(dict.fromkeys(row.run for row in rows)):
        points = [(row.turn, *row.credit) for row in rows if row.run == run]
        turns, means, lows, highs = np.array(points).T
        style = line_style(k)
        axis.plot(turns, means, marker="o", markersize=3.5, label=run, **style)
        axis.fill_between(turns, lows, highs, color=style["color"], alpha=0.15, linewidth=0)
    plain_axis(axis, "y")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("turn", fontsize=9)
    axis.set_ylabel("credit, 95% interval", fontsize=9)
    axis.legend(fontsize=9, frameon=False)
    return figure
