"""Read LoCoMo: questions about the many dated sessions of two people's conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.core.data import convert
from memenvs.tasks.metrics import LOCOMO_ABSENT
from memenvs.tasks.records import Answer, read_records, scorable
from memenvs.tasks.taskset import Layout

Category = Literal["1", "2", "3", "4", "5"]
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_WHAT = "LoCoMo's locomo10.json"
_TURN = re.compile(r"D:?(\d+):(\d+)")  # the file also has "D:11:26", "D8:6; D9:17", and "D30:05" for D30:5


class _LocomoTurn(msgspec.Struct):
    speaker: str
    text: str
    dia_id: str
    blip_caption: str | None = None


class _LocomoQuestion(msgspec.Struct):
    question: str
    category: Annotated[int, Meta(ge=1, le=5)]
    answer: Answer = ""
    evidence: list[str] | None = None


class _LocomoRecord(msgspec.Struct):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_LocomoQuestion]


def read_locomo(source: str, split: str = "train", category: Category | None = None) -> KeptContexts:
    """The questions of LoCoMo, each after the whole conversation, scored by `locomo_f1`.

    A document is a session: its date as the title, then a line for each turn, with the caption of a picture
    that was shared. Evidence are the sessions of the turns that the question names, which are the `spans`;
    some questions name none, or a turn that does not exist. The answers are as the metric expects them: of
    category 1 each part between commas, of 3 what comes before a semicolon, of 5 that nothing was said.

    Args:
        category: category of the questions: multi-hop (1), temporal (2), open-domain (3), single-hop (4),
            adversarial (5); default: all.

    Raises:
        ValueError: the source is something else; the line names the record.
    """

    def examples() -> Iterator[Example]:
        for number, record in enumerate(read_records(source, split, _LocomoRecord, _WHAT)):
            documents, turns = _sessions(record.conversation, f"{source}: record {number}.conversation")
            for order, asked in enumerate(record.qa):
                if category not in (None, str(asked.category)):
                    continue
                named = [
                    (int(s), int(t)) for mention in asked.evidence or [] for s, t in _TURN.findall(mention)
                ]
                spans = tuple(dict.fromkeys(turns[key] for key in named if key in turns))
                yield Example(
                    f"{record.sample_id}-{order}",
                    asked.question,
                    _answers(asked),
                    documents,
                    tuple(dict.fromkeys(place for place, _, _ in spans)),
                    spans,
                    {"category": CATEGORIES[asked.category]},
                )

    return KeptContexts(examples(), Layout("Session {i}. ", "\n\n"), "locomo_f1", source)


def _sessions(
    conversation: dict[str, Any], where: str
) -> tuple[tuple[tuple[str, str], ...], dict[tuple[int, int], tuple[int, int, int]]]:
    """(title, text) of each session; and of each turn the session's place and the characters [start, end)."""
    numbers = sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key))
    documents, places = [], {}
    for place, number in enumerate(numbers):
        name = f"session_{number}"
        date = convert(conversation.get(f"{name}_date_time"), str, f"{where}.{name}_date_time")
        text = ""
        for turn in convert(conversation[name], list[_LocomoTurn], f"{where}.{name}"):
            text += "\n" if text else ""
            start = len(text)
            text += f"{turn.speaker}: {turn.text}"
            text += f" [shares {turn.blip_caption}]" if turn.blip_caption else ""
            for session, order in _TURN.findall(turn.dia_id):
                places[int(session), int(order)] = place, start, len(text)
        documents.append((f"Date: {date}", text))
    return tuple(documents), places


def _answers(asked: _LocomoQuestion) -> tuple[str, ...]:
    """The answers of a question as `locomo_f1` reads them; none where there is nothing to be scored."""
    if asked.category == 5:
        return LOCOMO_ABSENT
    answer = str(asked.answer)
    if asked.category == 3:
        answer = answer.partition(";")[0].strip()
    if asked.category != 1:
        return scorable([answer])
    parts = [part for part in map(str.strip, answer.split(",")) if scorable([part])]
    return tuple(parts * 2 if len(parts) == 1 else parts)
