"""The official HotpotQA file (or its copy on the hub) comes in, examples go out."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from memenvs.build.examples import Example
from memenvs.build.sources import Record, read_records

_KEYS = ("question", "answer", "supporting_facts", "context")
_WHAT = "HotpotQA's JSON in the distractor setting (hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json)"


def read_hotpotqa(source: str, split: str) -> list[Example]:
    """Examples of `hotpot_*.json` or `hf:hotpotqa/hotpot_qa:distractor`.

    A document is the paragraph's sentences joined; evidence are the paragraphs with a supporting fact, in the
    order in which the facts name them.

    Raises:
        ValueError: the source is not HotpotQA, or a question's evidence is not among its paragraphs.
    """
    records = read_records(source, split, keys=_KEYS, what=_WHAT)
    return [_example(record, number, source) for number, record in enumerate(records)]


def _example(record: Record, number: int, source: str) -> Example:
    id_ = str(record.get("_id") or record.get("id") or number)
    try:
        paragraphs = _pairs(record["context"], "title", "sentences")
        facts = [
            (str(title), int(sentence))
            for title, sentence in _pairs(record["supporting_facts"], "title", "sent_id")
        ]
        sentences = [[str(sentence) for sentence in paragraph] for _, paragraph in paragraphs]
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"{source} is not {_WHAT}: question {id_}: {error!r}") from error
    numbers = {str(title): i for i, (title, _) in enumerate(paragraphs)}
    evidence = list(dict.fromkeys(title for title, _ in facts))
    if not evidence or not set(evidence) <= set(numbers):
        raise ValueError(
            f"question {id_} of {source} has evidence {evidence}, which is not among its paragraphs; "
            f"use {_WHAT}"
        )
    return Example(
        id_,
        str(record["question"]),
        (str(record["answer"]),),
        tuple((str(title), "".join(parts)) for (title, _), parts in zip(paragraphs, sentences, strict=True)),
        tuple(numbers[title] for title in evidence),
        tuple(
            (numbers[title], *_sentence(sentences[numbers[title]], sentence))
            for title, sentence in facts
            if sentence < len(sentences[numbers[title]])  # the official file names some that are not there
        ),
        {key: record[key] for key in ("type", "level") if key in record},
    )


def _pairs(column: Any, first: str, second: str) -> list[tuple[Any, Any]]:
    """Pairs of the official list form, or of the hub's dictionary of lists."""
    if isinstance(column, dict):
        return list(zip(column[first], column[second], strict=True))
    return [(a, b) for a, b in column]


def _sentence(sentences: list[str], number: int) -> tuple[int, int]:
    """The characters [start, end) of a sentence in the sentences joined."""
    ends = list(accumulate(map(len, sentences)))
    return ends[number] - len(sentences[number]), ends[number]
