"""Read the official HotpotQA file, or its copy on the hub, and 2WikiMultihopQA, which has its form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    read_answers,
    read_examples,
    read_id,
    read_question,
    read_text,
)
from memenvs.core.data import Whole, convert

_KEYS = ("question", "answer", "supporting_facts", "context")
_WHAT = "HotpotQA's JSON in the distractor setting (hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json)"
_WIKI = "2WikiMultihopQA's train.json or dev.json (of data_ids_april7.zip; test.json has no answers)"


def read_hotpotqa(source: str, split: str = "train") -> list[Example]:
    """Examples of `hotpot_*.json` or `hf:hotpotqa/hotpot_qa:distractor`.

    A document is the paragraph's sentences joined; evidence are the paragraphs with a supporting fact, in the
    order in which the facts name them. Where paragraphs share a title, a fact belongs to the first that has
    its sentence.

    Args:
        source: hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json, or hf:NAME[:CONFIG].
        split: of an `hf:` data set; with the seed it also decides every random choice.

    Raises:
        ValueError: the source is not HotpotQA, or a question of it cannot be used; the line names it.
    """
    return read_examples(source, split, partial(_example, what=_WHAT), keys=_KEYS, what=_WHAT)


def read_2wiki(source: str, split: str = "train") -> list[Example]:
    """Examples of 2WikiMultihopQA's `train.json` or `dev.json`, as `read_hotpotqa` reads its own.

    `meta` has the `type` of the question and its `evidences`: triples of subject, relation and object.

    Args:
        source: train.json or dev.json of data_ids_april7.zip, or hf:NAME[:CONFIG].
        split: of an `hf:` data set; with the seed it also decides every random choice.

    Raises:
        ValueError: the source is not 2WikiMultihopQA, or a question of it cannot be used; the line names it.
    """
    return read_examples(
        source, split, partial(_example, what=_WIKI), keys=(*_KEYS, "_id", "evidences"), what=_WIKI
    )


def _example(record: Record, number: int, source: str, what: str) -> Example:
    id_ = read_id(record.get("_id") or record.get("id") or number, source)
    where = f"question {id_} of {source}"
    try:
        context = _pairs(record["context"], "title", "sentences")
        facts = _pairs(record["supporting_facts"], "title", "sent_id")
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"{source} is not {what}: question {id_}: {error!r}") from error
    context = convert(context, list[tuple[str, list[str]]], f"{where}: context")
    facts = convert(facts, list[tuple[str, Whole]], f"{where}: supporting_facts")
    titles = [read_text(title, "title", where) for title, _ in context]
    sentences = [[read_text(part, "sentence", where) for part in paragraph] for _, paragraph in context]
    places = [_place(title, sentence, titles, sentences, where, what) for title, sentence in facts]
    if not places:
        raise ValueError(f"{where} has no supporting fact; use {what}")
    spans = []
    for paragraph, sentence in places:
        if sentence < len(sentences[paragraph]):  # the official file names some that are not there
            start = len("".join(sentences[paragraph][:sentence]))
            spans.append((paragraph, start, start + len(sentences[paragraph][sentence])))
    return Example(
        id_,
        read_question(record["question"], where),
        read_answers(record["answer"], [], where),
        tuple((title, "".join(parts)) for title, parts in zip(titles, sentences, strict=True)),
        tuple(dict.fromkeys(paragraph for paragraph, _ in places)),
        tuple(spans),
        {key: record[key] for key in ("type", "level", "evidences") if key in record},
    )


def _pairs(column: Any, first: str, second: str) -> list[tuple[Any, Any]]:
    """Pairs of the official list form, or of the hub's dictionary of lists."""
    if isinstance(column, dict):
        return list(zip(column[first], column[second], strict=True))
    return [(a, b) for a, b in column]


def _place(
    title: str,
    sentence: int,
    titles: Sequence[str],
    sentences: Sequence[Sequence[str]],
    where: str,
    what: str,
) -> tuple[int, int]:
    """The paragraph and the sentence in it that a supporting fact names, both from 0."""
    named = [i for i, other in enumerate(titles) if other == title]
    if not named:
        raise ValueError(
            f"{where} has evidence {[title]!r:.80}, which is not among its paragraphs; use {what}"
        )
    return next((i for i in named if sentence < len(sentences[i])), named[0]), sentence
