"""Read BrowseComp-Plus: hard questions with documents that answer them and documents that mislead."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator

import msgspec

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.tasks.records import Id, read_records, scorable
from memenvs.tasks.taskset import Layout

_WHAT = "BrowseComp-Plus's browsecomp_plus_decrypted.jsonl, or its obfuscated Parquet with --canary"


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


def read_browsecomp_plus(source: str, split: str = "train", canary: str | None = None) -> KeptContexts:
    """The questions of BrowseComp-Plus, for searching among the documents of all of them.

    A task's documents are those with the answer (gold), the others that it needs (evidence) and those that
    mislead (negative), each once; the first two groups are its evidence. So the task set is a corpus for
    `MemSearchQA-v0` and for `build index --corpus`. `meta` has the document ids, in the order of the
    documents, and how many of them are gold.

    Args:
        split: of an `hf:` data set (`test`).
        canary: the text by which the obfuscated file is decoded, as its authors publish it: every text but
            `query_id` is Base64 of its bytes, each XOR the repeated SHA-256 of this.

    Raises:
        ValueError: the source is something else, or is obfuscated and the canary is missing or wrong.
    """

    def examples() -> Iterator[Example]:
        for number, record in enumerate(read_records(source, split, _BrowseCompRecord, _WHAT)):
            where = f"{source}: record {number}"
            if canary is not None:
                _decode(record, canary, where)
            elif _bytes_of(record.query) and _bytes_of(record.answer):
                raise ValueError(f"{where} is obfuscated; give --canary, of its authors' decrypt_dataset.py")
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

    return KeptContexts(examples(), Layout(), "em", source, "MemSearchQA-v0")


def _bytes_of(text: str) -> bytes | None:
    """The bytes of a Base64 text; None for words."""
    try:
        return base64.b64decode(text, validate=True) if len(text) > 3 else None
    except ValueError:
        return None


def _decode(record: _BrowseCompRecord, canary: str, where: str) -> None:
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
        raise ValueError(
            f"{where} cannot be decoded by this --canary; give the one of its authors' decrypt_dataset.py, "
            "or none for a decrypted file"
        ) from error
