"""Read LongMemEval: a question at the end of many dated sessions between a user and an assistant."""

from __future__ import annotations

from collections.abc import Iterator

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    iterate_records,
    kept_examples,
    read_id,
    read_question,
    read_scorable,
    read_text,
)
from memenvs.tasks.taskset import Layout

TYPES = (
    *("single-session-user", "single-session-assistant", "single-session-preference"),
    *("multi-session", "temporal-reasoning", "knowledge-update"),
)
_WHAT = "LongMemEval's longmemeval_s_cleaned.json, longmemeval_m_cleaned.json or longmemeval_oracle.json"
_KEYS = (
    *("question_id", "question_type", "question", "answer", "question_date", "haystack_session_ids"),
    *("haystack_dates", "haystack_sessions", "answer_session_ids"),
)
_LAYOUT = Layout("### Session {i}:\n", "\n\n")


def read_longmemeval(source: str, split: str = "train") -> KeptContexts:
    """The questions of LongMemEval, each behind its sessions by date, the earliest first.

    A document is a session: its date as the title, then its turns, `user: …` and `assistant: …`. The
    question begins with the date on which it is asked. Evidence are the sessions of `answer_session_ids` and
    those with a turn marked by `has_answer`; such turns are the `spans`. A question that cannot be answered
    (its id ends with `_abs`) has as its answer why not.

    The benchmark is scored by a judge, with a rubric for each type of question: `Judge(rubric="longmemeval",
    level="outcome")` reads the type from the task's id, `TYPE/QUESTION_ID`. The card names `f1`.

    Args:
        source: longmemeval_s_cleaned.json, longmemeval_m_cleaned.json, longmemeval_oracle.json, or
            hf:NAME[:CONFIG].
        split: of an `hf:` data set.

    Raises:
        ValueError: the source is something else; the line names the record.
    """
    records = iterate_records(source, split, keys=_KEYS, what=_WHAT)
    return KeptContexts(kept_examples(records, _examples, source=source, what=_WHAT), _LAYOUT, "f1", source)


def _examples(record: Record, where: str) -> Iterator[Example | None]:
    kind = record["question_type"]
    if kind not in TYPES:
        raise ValueError(f"{where} has the question_type {kind!r:.80}; the types are {', '.join(TYPES)}")
    columns = [record[key] for key in ("haystack_dates", "haystack_session_ids", "haystack_sessions")]
    if len(set(map(len, columns))) > 1 or not columns[0]:
        raise ValueError(f"{where} has another number of haystack_sessions than of their dates or ids")
    sessions = sorted(zip(*columns, strict=True), key=lambda one: str(one[0]))
    wanted = set(record["answer_session_ids"])
    documents, evidence, spans = [], [], []
    for place, (date, session, turns) in enumerate(sessions):
        text, marked = _session(turns, where)
        documents.append((f"Session Date: {read_text(date, 'session date', where)}", text))
        spans += [(place, start, end) for start, end in marked]
        if marked or session in wanted:
            evidence.append(place)
    answers = read_scorable([record["answer"]], where)
    if answers is None:
        yield None
        return
    id_ = read_id(record["question_id"], where)
    question = read_question(record["question"], where)
    yield Example(
        f"{kind}/{id_}",
        f"Current date: {read_text(record['question_date'], 'question date', where)}\n{question}",
        answers,
        tuple(documents),
        tuple(evidence),
        tuple(spans),
        {"type": kind, "answerable": not id_.endswith("_abs")},
    )


def _session(turns: list[Record], where: str) -> tuple[str, list[tuple[int, int]]]:
    """The text of a session, and the characters [start, end) of the contents that have the answer."""
    text, marked = "Session Content:", []
    for turn in turns:
        text += f"\n\n{read_text(turn['role'], 'role', where)}: "
        content = read_text(turn["content"], "turn", where).strip()
        if turn.get("has_answer"):
            marked.append((len(text), len(text) + len(content)))
        text += content
    return text, marked
