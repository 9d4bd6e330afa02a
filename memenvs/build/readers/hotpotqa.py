"""Read the official HotpotQA file, or its copy on the hub, and 2WikiMultihopQA, which has its form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from memenvs.build.contexts import Example
from memenvs.build.examples import Pool
from memenvs.build.options import DrawnFile
from memenvs.core.data import Whole
from memenvs.tasks.cells import Answer, scorable
from memenvs.tasks.records import Id, read_records

_WHAT = "HotpotQA's JSON in the distractor setting (hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json)"
_ALIASES = 'JSON Lines of {"Q_id": "Q30", "aliases": ["USA"], "demonyms": ["American"]}'
ALIASES = "id_aliases.json"
"""The file of answers' other names in 2WikiMultihopQA's zip, which its scoring accepts since version 1.1."""
_WIKI = "2WikiMultihopQA's train.json or dev.json (of data_ids_april7.zip; test.json has no answers)"


class _Context(msgspec.Struct):
    """Columns of the copy on the hub."""

    title: list[str]
    sentences: list[list[str]]


class _HotpotFacts(msgspec.Struct):
    title: Annotated[list[str], Meta(min_length=1)]
    sent_id: list[Whole]


class _HotpotRecord(msgspec.Struct):
    question: str
    answer: Answer
    supporting_facts: Annotated[list[tuple[str, Whole]], Meta(min_length=1)] | _HotpotFacts
    context: list[tuple[str, list[str]]] | _Context
    _id: Id | None = None
    id: Id | None = None
    type: Any = UNSET
    level: Any = UNSET
    evidences: Any = UNSET


class _WikiRecord(_HotpotRecord, kw_only=True):
    evidences: Any
    answer_id: str | None = None


class _Names(msgspec.Struct):
    """The other names of an entity."""

    Q_id: str
    aliases: list[str] = []
    demonyms: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Wiki(DrawnFile):
    """2WikiMultihopQA."""

    aliases: str | None = None
    """id_aliases.json of the same zip (default: the one beside the source, if there is one)."""


def read_hotpotqa(source: str, split: str = "train") -> Pool:
    """Examples of `hotpot_*.json` or `hf:hotpotqa/hotpot_qa:distractor`.

    A document is the paragraph's sentences joined (`_join`); evidence are the paragraphs with a supporting
    fact, in the order in which the facts name them. Where paragraphs share a title, a fact belongs to the
    first that has its sentence.

    Raises:
        ValueError: the source is not HotpotQA, or one of its questions cannot be used, which
            the error names.
    """
    return Pool.of(_examples(source, split, _HotpotRecord, _WHAT), source)


def read_2wiki(source: str, split: str = "train", aliases: str | None = None) -> Pool:
    """Examples of 2WikiMultihopQA's `train.json` or `dev.json`, as `read_hotpotqa` reads its own.

    `meta` has the `type` of the question and its `evidences`: triples of subject, relation and object. The
    aliases and demonyms of an answer are accepted too, as by the benchmark's scoring from version 1.1.

    Raises:
        ValueError: the source is not 2WikiMultihopQA, or one of its questions cannot be used, which
            the error names.
    """
    beside = Path(source).parent / ALIASES
    if aliases is None and not source.startswith("hf:") and beside.is_file():
        return replace(read_2wiki(source, split, str(beside)), inputs=[beside])
    listed = read_records(aliases, split, _Names, _ALIASES) if aliases else ()
    names = {record.Q_id: [*record.aliases, *record.demonyms] for record in listed}
    return Pool.of(_examples(source, split, _WikiRecord, _WIKI, names), source)


def _examples(
    source: str,
    split: str,
    kind: type[_HotpotRecord],
    what: str,
    names: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[Example]:
    for number, record in enumerate(read_records(source, split, kind, what)):
        other = names.get(record.answer_id or "", ()) if isinstance(record, _WikiRecord) else ()
        yield _example(record, scorable([record.answer, *other]), number, source, what)


def _example(record: _HotpotRecord, answers: tuple[str, ...], number: int, source: str, what: str) -> Example:
    id_ = str(record._id or record.id or number)
    where = f"question {id_} of {source}"
    paragraphs, facts = record.context, record.supporting_facts
    if isinstance(paragraphs, _Context):
        paragraphs = list(zip(paragraphs.title, paragraphs.sentences, strict=False))
    if isinstance(facts, _HotpotFacts):
        facts = list(zip(facts.title, facts.sent_id, strict=False))
    documents = _join([parts for _, parts in paragraphs])
    evidence, spans = [], []
    for title, sentence in facts:
        titled = [i for i, (other, _) in enumerate(paragraphs) if other == title]
        if not titled:
            raise ValueError(f"{where} has evidence {title!r:.80}, which is no paragraph of it; use {what}")
        place = next((i for i in titled if sentence < len(paragraphs[i][1])), titled[0])
        evidence.append(place)
        _, sentences = documents[place]
        if sentence < len(sentences):  # the official file names some that are not there
            spans.append((place, *sentences[sentence]))
    meta = {name: getattr(record, name) for name in ("type", "level", "evidences")}
    return Example(
        id_,
        record.question,
        answers,
        tuple((title, text) for (title, _), (text, _) in zip(paragraphs, documents, strict=True)),
        tuple(dict.fromkeys(evidence)),
        tuple(spans),
        {key: value for key, value in meta.items() if value is not UNSET},
    )


def _join(paragraphs: Sequence[Sequence[str]]) -> list[tuple[str, list[tuple[int, int]]]]:
    """The text of each paragraph of a question, and the characters [start, end) of its sentences there.

    HotpotQA's sentences begin with the blank that was before them, 2WikiMultihopQA's do not. Where most begin
    without one, a blank is put where two sentences meet without any.
    """
    seams = [later[:1].isspace() for parts in paragraphs for later in parts[1:] if later]
    blank = "" if 2 * sum(seams) >= len(seams) else " "
    joined = []
    for parts in paragraphs:
        text, sentences = "", list[tuple[int, int]]()
        for part in parts:
            if text and part and not (text[-1].isspace() or part[0].isspace()):
                text += blank
            sentences.append((len(text), len(text) + len(part)))
            text += part
        joined.append((text, sentences))
    return joined
