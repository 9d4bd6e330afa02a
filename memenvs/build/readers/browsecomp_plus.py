"""Read BrowseComp-Plus: hard questions with documents that answer them and documents that mislead."""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

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

_WHAT = "BrowseComp-Plus's browsecomp_plus_decrypted.jsonl, or its obfuscated Parquet with --canary"
_LISTS = ("gold_docs", "evidence_docs", "negative_docs")


def read_browsecomp_plus(source: str, split: str = "train", canary: str | None = None) -> KeptContexts:
    """The questions of BrowseComp-Plus, for searching among the documents of all of them.

    A task's documents are those that hold the answer (gold), those needed besides (evidence) and those that
    mislead (negative), each once; its evidence are the first two. So the task set is a corpus of its own for
    `MemSearchQA-v0` and for `build index --corpus`. `meta` has the document ids, in the order of the
    documents, and how many of them are gold.

    Args:
        source: browsecomp_plus_decrypted.jsonl, or the obfuscated Parquet with a canary, or hf:NAME[:CONFIG].
        split: of an `hf:` data set (`test`).
        canary: the text by which the obfuscated file is decoded, as its authors publish it: every text but
            `query_id` is Base64 of its bytes, each XOR the repeated SHA-256 of this.

    Raises:
        ValueError: the source is something else, or is obfuscated and the canary is missing or wrong.
    """
    records = iterate_records(source, split, keys=("query_id", "query", "answer", *_LISTS), what=_WHAT)
    examples = partial(_examples, canary=canary)
    kept = kept_examples(records, examples, source=source, what=_WHAT)
    return KeptContexts(kept, Layout(), "em", source, "MemSearchQA-v0")


def _examples(record: Record, where: str, canary: str | None) -> Iterator[Example | None]:
    if canary is not None:
        hidden = {key: value for key, value in record.items() if key != "query_id"}
        record = {**record, **_decoded(hidden, canary, where)}
    elif _obfuscated(record["query"]) and _obfuscated(record["answer"]):
        raise ValueError(f"{where} is obfuscated; give --canary, which its authors' decrypt_dataset.py holds")
    documents: dict[str, str] = {}
    counts = []
    for name in _LISTS:
        for one in record[name]:
            documents.setdefault(read_id(one["docid"], where), read_text(one["text"], "text", where))
        counts.append(len(documents))
    gold, needed, _ = counts
    if not needed:
        raise ValueError(f"{where} has no gold_docs and no evidence_docs; give {_WHAT}")
    answers = read_scorable([record["answer"]], where)
    if answers is None:
        yield None
        return
    yield Example(
        read_id(record["query_id"], where),
        read_question(record["query"], where),
        answers,
        tuple(("", text) for text in documents.values()),
        tuple(range(needed)),
        meta={"docids": list(documents), "gold": gold},
    )


def _obfuscated(value: Any) -> bool:
    """Whether a text is Base64 and not words."""
    try:
        return isinstance(value, str) and len(value) > 3 and bool(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False


def _decoded(value: Any, canary: str, where: str) -> Any:
    """`value` with every text in it decoded."""
    if isinstance(value, dict):
        return {key: _decoded(part, canary, where) for key, part in value.items()}
    if isinstance(value, list):
        return [_decoded(part, canary, where) for part in value]
    if not isinstance(value, str):
        return value
    key = hashlib.sha256(canary.encode()).digest()
    try:
        hidden = base64.b64decode(value, validate=True)
        return bytes(a ^ b for a, b in zip(hidden, itertools.cycle(key), strict=False)).decode()
    except (binascii.Error, ValueError) as error:
        raise ValueError(
            f"{where} cannot be decoded by this --canary; give the one of its authors' decrypt_dataset.py, "
            "or leave it out of a decrypted file"
        ) from error
