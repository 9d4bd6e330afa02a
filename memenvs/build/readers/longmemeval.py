"""Read LongMemEval: a question at the end of many dated sessions between a user and an assistant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.tasks.records import Answer, Id, read_records, scorable
from memenvs.tasks.taskset import Layout

_WHAT = "LongMemEval's longmemeval_s_cleaned.json, longmemeval_m_cleaned.json or longmemeval_oracle.json"


class _LongMemEvalTurn(msgspec.Struct):
    role: str
    content: str
    has_answer: bool | None = None


class _LongMemEvalRecord(msgspec.Struct):
    question_id: Id
    question_type: Literal[
        "single-session-user",
        "single-session-assistant",
        "single-session-preference",
        "multi-session",
        "temporal-reasoning",
        "knowledge-update",
    ]
    question: str
    answer: Answer
    question_date: str
    haystack_session_ids: list[str]
    haystack_dates: list[str]
    haystack_sessions: list[list[_LongMemEvalTurn]]
    answer_session_ids: list[str]


def read_longmemeval(source: str, split: str = "train") -> KeptContexts:
    """The questions of LongMemEval, each after its sessions by date, the earliest first.

    A document is a session: its date as the title, then its turns, `user: …` and `assistant: …`. The
    question begins with the date on which it is asked. Evidence are the sessions of `answer_session_ids` and
    those with a turn marked by `has_answer`; such turns are the `spans`. A question that cannot be answered
    (its id ends with `_abs`) has as its answer why not.

    The benchmark is scored by a judge, with a rubric for each type of question: `Judge(rubric="longmemeval",
    level="outcome")` reads the type from the task's id, `TYPE/QUESTION_ID`. The card names `f1`.

    Raises:
        ValueError: the source is something else; the line names the record.
    """

    def examples() -> Iterator[Example]:
        for number, record in enumerate(read_records(source, split, _LongMemEvalRecord, _WHAT)):
            columns = (record.haystack_dates, record.haystack_session_ids, record.haystack_sessions)
            if len({len(column) for column in columns}) > 1 or not record.haystack_dates:
                raise ValueError(
                    f"{source}: record {number} has another number of haystack_sessions than of their dates "
                    f"or ids; give {_WHAT}"
                )
            sessions = sorted(zip(*columns, strict=True), key=lambda row: row[0])
            documents, evidence, spans = [], [], []
            for place, (date, session, turns) in enumerate(sessions):
                text, marked = _session(turns)
                documents.append((f"Session Date: {date}", text))
                spans += [(place, start, end) for start, end in marked]
                if marked or session in record.answer_session_ids:
                    evidence.append(place)
            kind, id_ = record.question_type, str(record.question_id)
            yield Example(
                f"{kind}/{id_}",
                f"Current date: {record.question_date}\n{record.question}",
                scorable([record.answer]),
                tuple(documents),
                tuple(evidence),
                tuple(spans),
                {"type": kind, "answerable": not id_.endswith("_abs")},
            )

    return KeptContexts(examples(), Layout("### Session {i}:\n", "\n\n"), "f1", source)


def _session(turns: list[_LongMemEvalTurn]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a session, and the characters [start, end) of the contents that have the answer."""
    text, marked = "Session Content:", []
    for turn in turns:
        text += f"\n\n{turn.role}: "
        content = turn.content.strip()
        if turn.has_answer:
            marked.append((len(text), len(text) + len(content)))
        text += content
    return text, marked
