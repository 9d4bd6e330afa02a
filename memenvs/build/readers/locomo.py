"""Read LoCoMo: questions about the many dated sessions of two people's conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    iterate_records,
    kept_examples,
    read_question,
    read_scorable,
    read_text,
)
from memenvs.core.data import checked
from memenvs.tasks.metrics import LOCOMO_ABSENT
from memenvs.tasks.taskset import Layout

Category = Literal["1", "2", "3", "4", "5"]
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_WHAT = "LoCoMo's locomo10.json"
_TURN = re.compile(r"D:?(\d+):(\d+)")  # the file also has "D:11:26", "D8:6; D9:17", and "D30:05" for D30:5


@checked
def read_locomo(source: str, split: str = "train", category: Category | None = None) -> KeptContexts:
    """The questions of LoCoMo, each behind the whole conversation, scored by `locomo_f1`.

    A document is a session: its date as the title, then a line for each turn, with the caption of a picture
    that was shared. Evidence are the sessions of the turns that the question names, which are the `spans`;
    some questions name none, or a turn that there is not. The answers are as the metric wants them: of
    category 1 each part between commas, of 3 what stands before a semicolon, of 5 that nothing was said.

    Args:
        source: locomo10.json, or hf:NAME[:CONFIG].
        split: of an `hf:` data set.
        category: of the questions: multi-hop (1), temporal (2), open-domain (3), single-hop (4), adversarial
            (5); default: all.

    Raises:
        ValueError: the source is something else; the line names the record.
    """
    records = iterate_records(source, split, keys=("sample_id", "conversation", "qa"), what=_WHAT)
    examples = partial(_examples, category=category)
    kept = kept_examples(records, examples, source=source, what=_WHAT)
    return KeptContexts(kept, Layout("Session {i}. ", "\n\n"), "locomo_f1", source)


def _examples(record: Record, where: str, category: str | None) -> Iterator[Example | None]:
    conversation, name = record["conversation"], read_text(record["sample_id"], "sample_id", where)
    numbers = sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key))
    if not numbers:
        raise ValueError(f"{where} has a conversation without sessions; give {_WHAT}")
    documents: list[tuple[str, str]] = []
    turns: dict[tuple[int, int], tuple[int, int, int]] = {}
    for place, number in enumerate(numbers):
        date = read_text(conversation[f"session_{number}_date_time"], "session date", where)
        text, places = _session(conversation[f"session_{number}"], where)
        documents.append((f"Date: {date}", text))
        turns |= {key: (place, start, end) for key, (start, end) in places.items()}
    for number, asked in enumerate(record["qa"]):
        kind = asked["category"]
        if kind not in CATEGORIES:
            raise ValueError(f"{where} has a question of category {kind!r:.40}; they are 1 to 5")
        if category not in (None, str(kind)):
            continue
        named = [_key(*found) for one in asked.get("evidence") or [] for found in _TURN.findall(one)]
        spans = list(dict.fromkeys(turns[key] for key in named if key in turns))
        answers = _answers(asked, kind, where)
        if answers is None:
            yield None
            continue
        yield Example(
            f"{name}-{number}",
            read_question(asked["question"], where),
            answers,
            tuple(documents),
            tuple(dict.fromkeys(place for place, _, _ in spans)),
            tuple(spans),
            {"category": CATEGORIES[kind]},
        )


def _session(turns: list[Record], where: str) -> tuple[str, dict[tuple[int, int], tuple[int, int]]]:
    """The text of a session, and the characters [start, end) of each turn in it."""
    text, spans = "", {}
    for turn in turns:
        line = f"{read_text(turn['speaker'], 'speaker', where)}: {read_text(turn['text'], 'turn', where)}"
        if caption := turn.get("blip_caption"):
            line += f" [shares {read_text(caption, 'caption', where)}]"
        text += "\n" if text else ""
        for found in _TURN.findall(turn["dia_id"]):
            spans[_key(*found)] = (len(text), len(text) + len(line))
        text += line
    return text, spans


def _key(session: str, turn: str) -> tuple[int, int]:
    return int(session), int(turn)


def _answers(asked: dict[str, Any], kind: int, where: str) -> tuple[str, ...] | None:
    """The answers of a question as `locomo_f1` reads them; None where there is nothing to be scored."""
    if kind == 5:
        return LOCOMO_ABSENT
    (answer,) = read_scorable([asked["answer"]], where) or ("",)
    if kind == 3:
        answer = answer.partition(";")[0].strip()
    if kind != 1:
        return read_scorable([answer], where)
    parts = [part.strip() for part in answer.split(",")]
    scorable = [part for part in parts if read_scorable([part], where)]
    return (*scorable, *scorable) if len(scorable) == 1 else tuple(scorable) or None
