"""An HTML report of episodes: one file that needs nothing else, or a folder for many episodes.

The page loads nothing from the network. Its content-security policy allows its own script and style, by their
hashes, and in a folder the files of episodes beside it, by a nonce. The script puts the texts of models and
documents into the page as text, never as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.core.env import privileged_of
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EPISODES, read_lines
from memenvs.core.files import names_apart, whole_folder, write_text
from memenvs.evaluation.compare import paired_difference
from memenvs.evaluation.log import task_means
from memenvs.evaluation.plots import MEANINGS
from memenvs.evaluation.summary import metric_interval
from memenvs.evaluation.turns import PlayedTurn, fates, played_turns, turn_rows
from memenvs.tasks.metrics import extract_answer
from memenvs.view.provenance import run_settings

MAX_FILE = 32 * 2**20  # characters of episodes in one file, all read before the table is shown
BLOCK = 20  # episodes that are loaded together

SCRIPTS = ("dom", "line", "text", "credit", "read", "compare", "table", "find", "episode", "side", "main")
MAX_TEXT = 160  # characters of a question or an answer in the table

_FIRST = (
    *("question", "target", "answer", "run", "env", "phase", "step", "task", "number", "group", "member"),
    *("turns", "end", "return", "success"),
)
"""The first columns of the table."""


_COMPARED = ("success", "em", "sub_em", "f1", "accuracy", "outcome", "return")
"""The metrics in which runs are compared."""

MAX_PAIRED = 30_000  # tasks of all comparisons together, which take some seconds to resample


class Report(NamedTuple):
    """A report before it is written.

    Attributes:
        table: what is shown of each episode before it is opened, as plain data.
        lines: each episode as JSON without line ends.
    """

    table: dict[str, Any]
    lines: list[str]


def write_report(paths: Sequence[str | Path], out: str | Path) -> int:
    """Write a report of files of episodes, or of folders of runs.

    Args:
        paths: files of episodes, and folders, in which all `episodes.jsonl` are read.
        out: a file `….html`, or a folder, which gets files of episodes beside the page.

    Returns:
        The number of episodes.

    Raises:
        FileNotFoundError: a path does not exist, or has no file of episodes.
        ValueError: a line is not an episode, there is none, or there are too many for one file.
    """
    report, out = make_report(paths), Path(out)
    if out.suffix.lower() in (".html", ".htm"):
        write_text(out, one_file(report, out))
    else:
        others = {item.name for item in out.iterdir()} - {"report.html", "episodes"} if out.exists() else ()
        if others:
            raise ValueError(
                f"{out} has {min(others)!r}, which is not part of a report; choose another --out"
            )
        with whole_folder(out) as fresh:
            (fresh / "episodes").mkdir()
            for name, text in folder_files(report).items():
                (fresh / name).write_text(text, encoding="utf-8")
    return len(report.lines)


def find_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files of episodes among paths and under folders.

    Raises:
        FileNotFoundError: a path does not exist, or a folder has no such file.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        inside = [path] if path.is_file() else sorted(path.rglob(EPISODES))
        if not inside:
            raise FileNotFoundError(
                f"there is no {EPISODES} in {path}; `evaluate run --out` writes one, learners with "
                "--save-episodes"
            )
        files += [file for file in inside if file not in files]
    return files


def make_report(paths: Sequence[str | Path]) -> Report:
    """Read the episodes of paths; see `write_report`."""
    files = find_files(paths)
    runs = names_apart([path.parent if path.name == EPISODES else path for path in files])
    lines, run_of, fates_of = list[str](), list[int](), list[str]()
    facts = list[dict[str, Any]]()
    groups, tasks = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    turns: dict[str, list[PlayedTurn]] = {run: [] for run in runs}
    for run, path in enumerate(files):
        for line, episode in read_lines(path):
            groups.append(_group_of(run, len(lines), episode))
            tasks.append((episode.env, episode.task or len(lines), episode.number))
            facts.append(_facts(runs[run], episode))
            run_of.append(run)
            # Without the number of a task, as in an episode of one's own, each episode is its own.
            task = len(lines) if episode.number is None else episode.number
            labels = fates(episode)
            turns[runs[run]] += played_turns(episode, labels, task, len(lines))
            fates_of.append("".join(fate[0] if fate else "-" for fate in labels))
            lines.append(line.strip())
    if not lines:
        raise ValueError(f"no episode has ended yet in {', '.join(map(str, files))}")
    names = _columns(facts, with_run=len(runs) > 1)
    numbers = _numbered(tasks)
    means = []
    for run in range(len(runs)):
        ended = [k for k in range(len(lines)) if run_of[k] == run and facts[k]["end"] != "failed"]
        ended.sort(key=lambda k: facts[k]["number"] or 0)
        means.append(task_means((numbers[k], _scores(facts[k])) for k in ended))
    # A training run's policy changes from step to step, so that its means say nothing beside another run's.
    trained = {run for fact, run in zip(facts, run_of, strict=True) if fact["step"] is not None}
    index = {
        "intervals": [
            {name: [*metric_interval(name, [*by.values()])] for name, by in metrics.items()}
            for metrics in means
        ],
        "differences": _differences({run: means[run] for run in range(len(means)) if run not in trained}),
        "columns": names,
        "rows": [[fact.get(name) for name in names] for fact in facts],
        "runs": runs,
        "settings": [run_settings(file) for file in files],
        "run": run_of,
        "groups": _numbered(groups),
        "tasks": numbers,
        "fates": fates_of,  # the first letter of each turn's, or -
        "turns": [row._asdict() for row in turn_rows(turns)],
        "block": BLOCK,
    }
    return Report(index, lines)


def _group_of(run: int, here: int, episode: Episode) -> tuple[Any, ...]:
    """A key that the episodes of one task that were played together share; `here` is the episode's own."""
    of_evaluation = episode.step is None
    if of_evaluation and episode.number is not None:
        # The samples of a task; each is a group of its own to the loop that played them.
        return run, "task", episode.number
    key = (run, episode.step, episode.phase, episode.group)
    if episode.phase == "eval" or of_evaluation:
        # Without groups, as `RecordEpisodes` writes them, all have the number 0: each stands alone.
        return (*key, episode.task) if episode.group else (*key, here)
    return key


def one_file(report: Report, out: str | Path) -> str:
    """The report as the text of one HTML file.

    Raises:
        ValueError: it would be too large; with `out`, its name.
    """
    size = sum(map(len, report.lines))
    if size > MAX_FILE:
        folder = Path(out).with_suffix("")
        raise ValueError(f"{out} would have {size / 2**20:.0f} MB; give a folder instead, as --out {folder}")
    blocks = "\n".join(
        f'<script type="application/json" id="block-{number}">{_inside_script(text)}</script>'
        for number, text in enumerate(_blocks(report.lines))
    )
    return _page(report.table, blocks)


def folder_files(report: Report) -> dict[str, str]:
    """The report as texts by the names of their files in a folder: `report.html`, `episodes/N.js`."""
    nonce = secrets.token_urlsafe(18)
    texts = {"report.html": _page({**report.table, "nonce": nonce}, "", nonce)}
    for number, text in enumerate(_blocks(report.lines)):
        block = f"memenvsBlock({number},{json.dumps(text, ensure_ascii=False)});\n"
        block = block.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        texts[f"episodes/{number}.js"] = block
    return texts


def _page(index: dict[str, Any], blocks: str, nonce: str = "") -> str:
    """The page with its style, its scripts, and a content-security policy that allows these alone."""
    style = _colours() + _part("report.css")
    script = '(function () {\n"use strict";\n' + "\n".join(_part(f"{name}.js") for name in SCRIPTS) + "})();"
    sources = _hash(script) + (f" 'nonce-{nonce}'" if nonce else "")
    parts = {
        "CSP": f"default-src 'none'; script-src {sources}; style-src {_hash(style)}; img-src 'none'; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'",
        "STYLE": style,
        "SCRIPT": script,
        "INDEX": _inside_script(json.dumps(index, ensure_ascii=False, separators=(",", ":"))),
        "BLOCKS": blocks,
    }
    pieces = _part("report.html").split("%")  # text and names alternate; what is put in is not searched again
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def _colours() -> str:
    """The colours of `MEANINGS` as variables of the page's style, those of a dark page apart."""
    light, dark = ("".join(f"--{name}: {pair[side]}; " for name, pair in MEANINGS.items()) for side in (0, 1))
    return f":root {{ {light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"


def _part(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A source of a content-security policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}'"


def _inside_script(text: str) -> str:
    """JSON inside a `<script>`: `<`, which occurs only in strings, is written as an escape."""
    return text.replace("<", "\\u003c")


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(lines), BLOCK):
        yield "\n".join(lines[start : start + BLOCK])


def _columns(facts: Sequence[Mapping[str, Any]], with_run: bool) -> list[str]:
    """The names of the table's columns, those that are empty in every episode left out."""
    filled = [name for name in _FIRST if any(fact.get(name) not in (None, "") for fact in facts)]
    others = sorted({name for fact in facts for name in fact} - set(_FIRST))
    return [name for name in (*filled, *others) if with_run or name != "run"]


def _numbered(keys: Sequence[Any]) -> list[int]:
    """For each key its number, equal for equal keys, from 0 in the order in which they come."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _scores(facts: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an episode that are averaged: its metrics, its return and its means of signals."""
    return {
        name: value
        for name, value in facts.items()
        if name not in _FIRST[:-2] and isinstance(value, (int, float))
    }


def _differences(runs: Mapping[int, dict[str, dict[int, float]]]) -> list[dict[str, Any]]:
    """The differences of each pair of runs over the tasks that both have, as `evaluate compare` gives them.

    Only metrics of `_COMPARED` are compared, and pairs are left out once `MAX_PAIRED` is reached.

    Args:
        runs: the means of evaluations by metric and task, by the number of the run.
    """
    pairs, paired = [], 0
    for name in _COMPARED:
        for base, run in itertools.combinations([run for run in runs if name in runs[run]], 2):
            tasks = [task for task in runs[base][name] if task in runs[run][name]]
            paired += len(tasks)
            if not tasks or paired > MAX_PAIRED:
                continue
            before, after = (np.array([runs[r][name][task] for task in tasks]) for r in (base, run))
            row = paired_difference(name, "", before, after)
            plain = {**row._asdict(), "difference": [*row.difference]}
            pairs.append({**plain, "base": base, "run": run, "tasks": len(tasks)})
    return pairs


def _texts(episode: Episode) -> dict[str, str]:
    """What was asked, expected and answered, each in at most `MAX_TEXT` characters."""
    privileged = privileged_of(episode.turns[0].before) if episode.turns else {}
    accepted = [" or ".join(map(str, answers)) for answers in privileged.get("answers", [])]
    reply = episode.turns[-1].action if episode.turns else ""
    answer = extract_answer(reply, "tag") or extract_answer(reply, "boxed")
    texts = {
        "question": privileged.get("question", "").partition("\n\n#")[0],  # without a board
        "target": "; ".join(accepted) or privileged.get("target", ""),
        "answer": reply.rpartition("</think>")[2].strip() if answer is None else answer,
    }
    short = {name: text[: MAX_TEXT - 1] + "…" for name, text in texts.items() if len(text) > MAX_TEXT}
    return texts | short


def _facts(run: str, episode: Episode) -> dict[str, Any]:
    """What the table shows of an episode; numbers have six digits, and None where they are not finite."""
    signals = {f"mean {name}": values for name, values in episode.measured_signals.items()}
    numbers = {
        **episode.metrics,
        **{name: sum(values) / len(values) for name, values in signals.items() if values},
        "return": sum(episode.turn_rewards),
    }
    return {
        **{name: float(f"{v:.6g}") if math.isfinite(v) else None for name, v in numbers.items()},
        **_texts(episode),
        "run": run,
        "env": episode.env,
        "phase": episode.phase,
        "step": episode.step,
        "task": episode.task,
        "number": episode.number,
        "group": str(episode.group) if episode.phase == "train" else None,  # too long for JavaScript
        "member": episode.member,
        "turns": len(episode.turns),
        "end": episode.end,
    }
