"""The records of benchmarks whose questions are not fields of them: a class and a function each."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from memenvs.build.contexts import Example
from memenvs.build.options import Kept
from memenvs.core.data import convert, decode, shown
from memenvs.tasks.cells import Answer, scorable
from memenvs.tasks.metrics import LOCOMO_ABSENT, MRCR_PREFIX
from memenvs.tasks.records import Id

Record = Mapping[str, Any]


def value_at(record: Any, path: str) -> Any:
    """The value of a field; of a list of objects, those of all."""
    value = record
    for name in path.split("."):
        if isinstance(value, list):
            value = [part.get(name) if isinstance(part, Mapping) else part for part in value]
        elif isinstance(value, Mapping) and name in value:
            value = value[name]
        else:
            raise ValueError(f"has no {path!r}")
    return value


def text_at(record: Any, path: str) -> str:
    """The value of a field that is a text; raises a `ValueError` otherwise."""
    text = value_at(record, path)
    if not isinstance(text, str):
        raise ValueError(f"has {shown(text)} as {path!r}, which is no text")
    return text


# QASPER: a section is a document, and the paragraphs that the annotators marked are the evidence.


class _Section(msgspec.Struct):
    paragraphs: list[str]
    section_name: str | None = None


class _QasperAnswer(msgspec.Struct):
    unanswerable: bool | None = None
    extractive_spans: list[str] = []
    free_form_answer: str | None = None
    yes_no: bool | None = None
    evidence: list[str] = []

    @property
    def text(self) -> str | None:
        """The answer as QASPER's evaluator words it."""
        if self.unanswerable:
            return "Unanswerable"
        verdict = None if self.yes_no is None else "Yes" if self.yes_no else "No"
        return ", ".join(self.extractive_spans) or self.free_form_answer or verdict


def _qasper(record: Record, number: int) -> Iterator[Example]:
    if "qas" not in record:  # the official file has all papers by their ids
        for id_, paper in record.items():
            yield from _qasper({"qas": None, "id": id_, **convert(paper, dict[str, Any], id_)}, number)
        return
    sections = convert(_in_rows(value_at(record, "full_text")), list[_Section], "in 'full_text',")
    documents = [(text_at(record, "title"), text_at(record, "abstract"))]
    documents += [(section.section_name or "", "\n".join(section.paragraphs)) for section in sections]
    for question in convert(_in_rows(value_at(record, "qas")), list[dict[str, Any]], "in 'qas',"):
        rows = value_at(_in_rows(value_at(question, "answers")), "answer")
        answers = convert(rows, list[_QasperAnswer], "in 'qas.answers',")
        spans = [
            (place, text.index(part), text.index(part) + len(part))
            for part in dict.fromkeys(part for answer in answers for part in answer.evidence)
            for place, (_, text) in enumerate(documents)
            if part and part in text
        ]
        yield Example(
            text_at(question, "question_id"),
            text_at(question, "question"),
            scorable(answer.text for answer in answers),
            tuple(documents),
            tuple(dict.fromkeys(place for place, _, _ in spans)),
            tuple(spans),
            {"paper": str(record.get("id", number))},
        )


def _in_rows(table: Any) -> Any:
    """Rows of columns, as the hub has lists of objects; anything else as it is."""
    if isinstance(table, Mapping) and all(isinstance(column, list) for column in table.values()):
        return [dict(zip(table, row, strict=False)) for row in zip(*table.values(), strict=False)]
    return table


# AMA-Bench: the agent's task, then its steps, numbered as in the file; nothing is marked as evidence.


class _AMATurn(msgspec.Struct):
    turn_idx: int
    action: str | None
    observation: str | None


class _AMAQuestion(msgspec.Struct):
    question: str
    answer: Answer
    type: str | None = None


def _ama_bench(record: Record, number: int) -> Iterator[Example]:
    documents = [("Task Description", text_at(record, "task"))]
    about = {name: text_at(record, name) for name in ("task_type", "domain")}
    for turn in convert(value_at(record, "trajectory"), list[_AMATurn], "in 'trajectory',"):
        text = f"Action: {turn.action or ''}\nObservation: {turn.observation or ''}"
        documents.append((f"Step {turn.turn_idx}:", text))
    pairs = convert(value_at(record, "qa_pairs"), list[_AMAQuestion], "in 'qa_pairs',")
    for order, pair in enumerate(pairs):
        id_, answers = f"{value_at(record, 'episode_id')}-{order}", scorable([pair.answer])
        meta = {"type": pair.type, **about}
        yield Example(id_, pair.question, answers, tuple(documents), (), meta=meta)


# MRCR: every message but the last is a document; evidence is the reply asked for, and its request.


class _MRCRMessage(msgspec.Struct):
    role: str
    content: str


_MESSAGES: Any = Annotated[list[_MRCRMessage], Meta(min_length=2)]


class _MRCR(msgspec.Struct):
    prompt: str
    answer: str
    random_string_to_prepend: Annotated[str, Meta(min_length=MRCR_PREFIX, max_length=MRCR_PREFIX)]
    n_needles: int
    desired_msg_index: int | None = None
    total_messages: int | None = None
    n_chars: int | None = None


def _mrcr(record: _MRCR, number: int) -> Iterator[Example]:
    messages: list[_MRCRMessage] = decode(record.prompt, _MESSAGES, "in 'prompt',")
    *history, asked = messages
    wanted = record.answer[MRCR_PREFIX:].strip()  # without the random string
    places = [place for place, message in enumerate(history) if message.content.strip() == wanted]
    place = record.desired_msg_index if record.desired_msg_index in places else next(iter(places), None)
    meta = {
        name: value
        for name in ("n_needles", "total_messages", "n_chars")
        if (value := getattr(record, name)) is not None
    }
    yield Example(
        str(number),
        asked.content,
        (record.answer,),
        tuple(("", f"{message.role.capitalize()}: {message.content}") for message in history),
        () if place is None else tuple(range(max(0, place - 1), place + 1)),
        meta=meta,
    )


# LongMemEval: dated sessions, the earliest first; turns marked by `has_answer` are the spans. A question that
# cannot be answered (its id ends with `_abs`) has as its answer why not.


class _LongMemEvalTurn(msgspec.Struct):
    role: str
    content: str
    has_answer: bool | None = None


class _LongMemEval(msgspec.Struct):
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


def _longmemeval(record: _LongMemEval, number: int) -> Iterator[Example]:
    columns = (record.haystack_dates, record.haystack_session_ids, record.haystack_sessions)
    if len({len(column) for column in columns}) > 1 or not record.haystack_dates:
        raise ValueError("has another number of haystack_sessions than of their dates or ids")
    documents, evidence, spans = list[tuple[str, str]](), list[int](), list[tuple[int, int, int]]()
    sessions = sorted(zip(*columns, strict=True), key=lambda session: session[0])
    for place, (date, session, turns) in enumerate(sessions):
        text = "Session Content:"
        for turn in turns:
            text += f"\n\n{turn.role}: "
            content = turn.content.strip()
            if turn.has_answer:
                spans.append((place, len(text), len(text) + len(content)))
            text += content
        documents.append((f"Session Date: {date}", text))
        if session in record.answer_session_ids or any(turn.has_answer for turn in turns):
            evidence.append(place)
    kind, id_ = record.question_type, str(record.question_id)
    yield Example(
        f"{kind}/{id_}",  # the judge's rubric depends on the type
        f"Current date: {record.question_date}\n{record.question}",
        scorable([record.answer]),
        tuple(documents),
        tuple(evidence),
        tuple(spans),
        {"type": kind, "answerable": not id_.endswith("_abs")},
    )


# MuSiQue: evidence are the supporting paragraphs, in the order of the question's decomposition. Questions
# marked unanswerable are left out and counted.


class _MusiqueParagraph(msgspec.Struct):
    title: str
    paragraph_text: str
    is_supporting: bool
    idx: int | None = None


class _Step(msgspec.Struct):
    question: str = ""
    paragraph_support_idx: int | None = None


class _MusiqueRecord(msgspec.Struct):
    id: Id
    question: str
    answer: Answer
    paragraphs: list[_MusiqueParagraph]
    answer_aliases: list[Answer] | None = None
    question_decomposition: list[_Step] | None = None
    answerable: bool = True


def _musique(record: _MusiqueRecord, number: int) -> Iterator[Example]:
    steps = record.question_decomposition or []
    supporting = [i for i, paragraph in enumerate(record.paragraphs) if paragraph.is_supporting]
    positions = {
        i if paragraph.idx is None else paragraph.idx: i for i, paragraph in enumerate(record.paragraphs)
    }
    indices = [step.paragraph_support_idx for step in steps]
    hops = [positions[idx] for idx in indices if idx in positions and positions[idx] in supporting]
    evidence = tuple(dict.fromkeys([*hops, *supporting]))
    answers = scorable([record.answer, *(record.answer_aliases or [])]) if record.answerable else ()
    if answers and not evidence:
        raise ValueError(f"(question {record.id}) has no supporting paragraph")
    yield Example(
        str(record.id),
        record.question,
        answers,
        tuple((paragraph.title, paragraph.paragraph_text) for paragraph in record.paragraphs),
        evidence,
        meta={"hops": len(evidence), "steps": [step.question for step in steps]},
    )


# LoCoMo: a document is a session: its date as the title, then a line for each turn, with the caption of a
# picture that was shared. Evidence are the sessions of the turns that the question names, which are the
# spans; some questions name none, or a turn that does not exist. The answers are as `locomo_f1` expects
# them: of category 1 each part between commas, of 3 what comes before a semicolon, of 5 that nothing was
# said.

Category = Literal["1", "2", "3", "4", "5"]
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_TURN = re.compile(r"D:?(\d+):(\d+)")  # the file also has "D:11:26", "D8:6; D9:17", and "D30:05" for D30:5


@dataclass(frozen=True, kw_only=True)
class LoCoMo(Kept):
    """LoCoMo."""

    category: Category | None = None
    """category of the questions: multi-hop (1), temporal (2), open-domain (3), single-hop (4), adversarial
    (5); default: all."""


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


def _locomo(record: _LocomoRecord, number: int, category: Category | None = None) -> Iterator[Example]:
    documents, turns = _sessions(record.conversation)
    for order, pair in enumerate(record.qa):
        if category not in (None, str(pair.category)):
            continue
        mentions = [(int(s), int(t)) for text in pair.evidence or [] for s, t in _TURN.findall(text)]
        spans = tuple(dict.fromkeys(turns[key] for key in mentions if key in turns))
        yield Example(
            f"{record.sample_id}-{order}",
            pair.question,
            _locomo_answers(pair),
            documents,
            tuple(dict.fromkeys(place for place, _, _ in spans)),
            spans,
            {"category": CATEGORIES[pair.category]},
        )


def _sessions(
    conversation: dict[str, Any],
) -> tuple[tuple[tuple[str, str], ...], dict[tuple[int, int], tuple[int, int, int]]]:
    """(title, text) of each session; and of each turn the session's place and the characters [start, end)."""
    numbers = sorted(int(key[8:]) for key in conversation if re.fullmatch(r"session_\d+", key))
    documents, places = [], {}
    for place, number in enumerate(numbers):
        name = f"session_{number}"
        date = convert(conversation.get(f"{name}_date_time"), str, f"in 'conversation.{name}_date_time',")
        text = ""
        for turn in convert(conversation[name], list[_LocomoTurn], f"in 'conversation.{name}',"):
            text += "\n" if text else ""
            start = len(text)
            text += f"{turn.speaker}: {turn.text}"
            text += f" [shares {turn.blip_caption}]" if turn.blip_caption else ""
            for session, order in _TURN.findall(turn.dia_id):
                places[int(session), int(order)] = place, start, len(text)
        documents.append((f"Date: {date}", text))
    return tuple(documents), places


def _locomo_answers(pair: _LocomoQuestion) -> tuple[str, ...]:
    """The answers of a question as `locomo_f1` reads them; none where there is nothing to be scored."""
    if pair.category == 5:
        return LOCOMO_ABSENT
    answer = next(iter(scorable([pair.answer])), "")
    if pair.category == 3:
        answer = answer.partition(";")[0].strip()
    if pair.category != 1:
        return scorable([answer])
    parts = [part for part in map(str.strip, answer.split(",")) if scorable([part])]
    return tuple(parts * 2 if len(parts) == 1 else parts)


# BrowseComp-Plus: a task's documents are those with the answer (gold), the others that it needs (evidence)
# and those that mislead (negative), each once; the first two groups are its evidence. So the set is a
# corpus to be searched. Of the obfuscated file every text but the query's id is Base64 of its bytes, each
# XOR the repeated SHA-256 of a canary.


@dataclass(frozen=True, kw_only=True)
class BrowseCompPlus(Kept):
    """BrowseComp-Plus."""

    canary: str | None = None
    """the text by which the obfuscated file is decoded, as its authors publish it."""


class _BrowseCompDocument(msgspec.Struct):
    docid: Id
    text: str


class _BrowseCompRecord(msgspec.Struct):
    query_id: Id
    query: str
    answer: str
    gold_docs: list[_BrowseCompDocument]
    evidence_docs: list[_BrowseCompDocument]
    negative_docs: list[_BrowseCompDocument]


def _browsecomp_plus(record: _BrowseCompRecord, number: int, canary: str | None = None) -> Iterator[Example]:
    if canary is not None:
        _decode(record, canary)
    elif _bytes_of(record.query) and _bytes_of(record.answer):
        raise ValueError("is obfuscated: --canary is that of its authors' decrypt_dataset.py")
    documents: dict[str, str] = {}
    counts = []  # documents up to the end of each group
    for group in (record.gold_docs, record.evidence_docs, record.negative_docs):
        for document in group:
            documents.setdefault(str(document.docid), document.text)
        counts.append(len(documents))
    gold, needed, _ = counts
    yield Example(
        str(record.query_id),
        record.query,
        scorable([record.answer]),
        tuple(("", text) for text in documents.values()),
        tuple(range(needed)),
        meta={"docids": list(documents), "gold": gold},
    )


def _bytes_of(text: str) -> bytes | None:
    """The bytes of a Base64 text; None for words."""
    try:
        return base64.b64decode(text, validate=True) if len(text) > 3 else None
    except ValueError:
        return None


def _decode(record: _BrowseCompRecord, canary: str) -> None:
    """Decode every text of a record but its id, in place."""
    key = hashlib.sha256(canary.encode()).digest()

    def decoded(text: Id) -> str:
        hidden = base64.b64decode(str(text), validate=True)
        return bytes(a ^ b for a, b in zip(hidden, itertools.cycle(key), strict=False)).decode()

    try:
        record.query, record.answer = decoded(record.query), decoded(record.answer)
        for document in (*record.gold_docs, *record.evidence_docs, *record.negative_docs):
            document.docid, document.text = decoded(document.docid), decoded(document.text)
    except ValueError as error:
        raise ValueError("cannot be decoded by this --canary, or is decrypted already") from error


READERS: dict[str, tuple[Any, Callable[..., Iterable[Example]]]] = {
    "qasper": (dict[str, Any], _qasper),
    "ama_bench": (dict[str, Any], _ama_bench),
    "mrcr": (_MRCR, _mrcr),
    "longmemeval": (_LongMemEval, _longmemeval),
    "musique": (_MusiqueRecord, _musique),
    "locomo": (_LocomoRecord, _locomo),
    "browsecomp_plus": (_BrowseCompRecord, _browsecomp_plus),
}
"""The class of a benchmark's records, and a function from a record, its number and the source's options to
its questions. The message of an error continues "record 3"."""
