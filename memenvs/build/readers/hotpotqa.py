"""Read the official HotpotQA file, or its copy on the hub, and 2WikiMultihopQA, which has its form."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from memenvs.build.examples import Example, Pool, usable
from memenvs.build.readers.records import Id, read_answers, read_records
from memenvs.core.data import Whole

_WHAT = "HotpotQA's JSON in the distractor setting (hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json)"
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
    answer: str
    supporting_facts: Annotated[list[tuple[str, Whole]], Meta(min_length=1)] | _HotpotFacts
    context: list[tuple[str, list[str]]] | _Context
    _id: Id | None = None
    id: Id | None = None
    type: Any = UNSET
    level: Any = UNSET
    evidences: Any = UNSET


class _Wiki(_HotpotRecord, kw_only=True):
    evidences: Any


def read_hotpotqa(source: str, split: str = "train") -> Pool:
    """Examples of `hotpot_*.json` or `hf:hotpotqa/hotpot_qa:distractor`.

    A document is the paragraph's sentences joined; evidence are the paragraphs with a supporting fact, in the
    order in which the facts name them. Where paragraphs share a title, a fact belongs to the first that has
    its sentence.

    Args:
        source: hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json, or hf:NAME[:CONFIG].

    Raises:
        ValueError: the source is not HotpotQA, or a question of it cannot be used; the line names it.
    """
    return _read_pool(source, split, _HotpotRecord, _WHAT)


def read_2wiki(source: str, split: str = "train") -> Pool:
    """Examples of 2WikiMultihopQA's `train.json` or `dev.json`, as `read_hotpotqa` reads its own.

    `meta` has the `type` of the question and its `evidences`: triples of subject, relation and object.

    Args:
        source: train.json or dev.json of data_ids_april7.zip, or hf:NAME[:CONFIG].

    Raises:
        ValueError: the source is not 2WikiMultihopQA, or a question of it cannot be used; the line names it.
    """
    return _read_pool(source, split, _Wiki, _WIKI)


def _read_pool(source: str, split: str, kind: type[_HotpotRecord], what: str) -> Pool:
    records = enumerate(read_records(source, split, kind, what))
    examples = (_example(record, number, source, what) for number, record in records)
    return Pool(list(usable(examples, source)))


def _example(record: _HotpotRecord, number: int, source: str, what: str) -> Example:
    id_ = str(record._id or record.id or number)
    where = f"question {id_} of {source}"
    paragraphs, named = record.context, record.supporting_facts
    if isinstance(paragraphs, _Context):
        paragraphs = list(zip(paragraphs.title, paragraphs.sentences, strict=False))
    if isinstance(named, _HotpotFacts):
        named = list(zip(named.title, named.sent_id, strict=False))
    evidence, spans = [], []
    for title, sentence in named:
        titled = [i for i, (other, _) in enumerate(paragraphs) if other == title]
        if not titled:
            raise ValueError(f"{where} has evidence {title!r:.80}, which is no paragraph of it; use {what}")
        place = next((i for i in titled if sentence < len(paragraphs[i][1])), titled[0])
        evidence.append(place)
        parts = paragraphs[place][1]
        if sentence < len(parts):  # the official file names some that are not there
            start = len("".join(parts[:sentence]))
            spans.append((place, start, start + len(parts[sentence])))
    meta = {name: getattr(record, name) for name in ("type", "level", "evidences")}
    return Example(
        id_,
        record.question,
        read_answers(record.answer, [], where),
        tuple((title, "".join(parts)) for title, parts in paragraphs),
        tuple(dict.fromkeys(evidence)),
        tuple(spans),
        {key: value for key, value in meta.items() if value is not UNSET},
    )
