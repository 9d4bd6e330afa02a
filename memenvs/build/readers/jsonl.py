"""Read your own questions and documents from JSON Lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example, Pool
from memenvs.build.options import DrawnFile
from memenvs.core.data import Count, convert
from memenvs.retrieval.corpus import read_corpus as read_passages
from memenvs.tasks.records import Id, QuestionRecord, read_questions, read_records
from memenvs.tasks.taskset import Layout

_WHAT = (
    'JSON Lines of {"question": "…", "answers": ["…"], "documents": [{"title": "…", "text": "…"}], '
    '"evidence": [0]}'
)
_DOCUMENT = 'give {"title": "…", "text": "…"}'
_POOL = 'JSON Lines of {"title": "…", "text": "…"}'
MOST_READ = 20_000_000  # documents that all tasks of a set read together

TextsById = Mapping[str, tuple[str, str]]  # (title, text) by id


class _JsonlRecord(QuestionRecord):
    documents: list[Any] | None = None
    evidence: list[Id] | None = None
    meta: dict[str, Any] | None = None


class _JsonlDocument(msgspec.Struct):
    text: str
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class JsonlOptions(DrawnFile):
    """Your own questions.

    Args:
        source: a line a question: question, answers, documents of title and text, evidence (numbers of those
            needed, from 0); or hf:NAME[:CONFIG] with these columns.
        pool: more documents to draw distractors from, one per line: title and text.
        corpus: documents that the questions name by id, as `build index --corpus` reads them.
        questions: maximum number of consecutive questions about one context in a task.
    """

    pool: str | None = None
    corpus: str | None = None
    questions: Count = 1


def jsonl(options: JsonlOptions) -> Pool | KeptContexts:
    """Your own questions, over their documents as they are or hidden among distractors.

    A record has `question`, `answers` (accepted ones, the preferred one first; `QuestionRecord` has the other
    names and forms that are read), `documents` of `text` and an
    optional `title`, and `evidence`: the numbers, from 0, of the documents that the answer needs, in the
    order of the reasoning; it may be missing where documents are read as they are. `id` is the record's
    number unless it is given; `meta` is kept. With a corpus, documents and evidence are ids of it. If no
    record has documents, they are for searching: in the corpus, if there is one.

    Raises:
        ValueError: an argument that does not suit another, or a file of another form.
    """
    source, pool, sized = options.source, options.pool, options.documents or options.tokens
    listed = {} if options.corpus is None else _read_corpus(options.corpus)
    records = [record for _, record in read_questions(source, options.split, _JsonlRecord, _WHAT)]
    if not sized:
        if pool is not None:
            raise ValueError("--pool is drawn from by --documents or --tokens; give one of them, or no pool")
        return _own_contexts(records, source, listed)
    if options.questions > 1:
        raise ValueError("--questions joins those of one context; leave out --documents and --tokens")
    examples = (_example(record, i, source, listed, drawn=True) for i, record in enumerate(records))
    more = read_records(pool, options.split, _JsonlDocument, _POOL) if pool else ()
    extra = [*((document.title, document.text) for document in more), *listed.values()]
    return Pool.of(examples, source, extra)


def _read_corpus(path: str) -> dict[str, tuple[str, str]]:
    """(title, text) of the documents of a corpus by their ids."""
    if not Path(path).is_file():
        raise FileNotFoundError(f'no file at {path}; --corpus takes records of "id" and "contents"')
    documents: dict[str, tuple[str, str]] = {}
    for passage in read_passages(path):
        if passage.id in documents:
            raise ValueError(f"{path} has two documents of the id {passage.id!r}; give each its own")
        documents[passage.id] = passage.title, passage.text
    return documents


def _own_contexts(records: list[_JsonlRecord], source: str, corpus: TextsById) -> KeptContexts:
    """The records with their documents as they are, in their order."""
    bare = [not record.documents for record in records]
    if any(bare) and not all(bare):
        raise ValueError(
            f"record {bare.index(True)} of {source} has no documents and others have some; build them apart"
        )
    if bare[0] and len(records) * len(corpus) > MOST_READ:
        raise ValueError(
            f"{len(records):,} questions over a corpus of {len(corpus):,} documents are too many to list; "
            "build the questions without --corpus, and search it by `build index --corpus`"
        )
    examples = (_example(record, i, source, corpus, drawn=False) for i, record in enumerate(records))
    return KeptContexts(examples, Layout(), "em", source, "MemSearchQA-v0" if bare[0] else "MemChunkQA-v0")


def _example(record: _JsonlRecord, number: int, source: str, corpus: TextsById, drawn: bool) -> Example:
    id_ = record.named(number)
    where, evidence = f"question {id_} of {source}", record.evidence or []
    if drawn and not evidence:
        raise ValueError(
            f"{where} has no evidence, so that its answer may be left out of a task; give it, or leave out "
            "--documents and --tokens to read the documents as they are"
        )
    if corpus:
        paragraphs, needed = _of_corpus(record, corpus, drawn, where)
    else:
        documents = convert(record.documents or [], list[_JsonlDocument], f"{where}: documents", _DOCUMENT)
        paragraphs = tuple((document.title, document.text) for document in documents)
        needed = [i for i in evidence if isinstance(i, int) and 0 <= i < len(paragraphs)]
        if len(needed) < len(evidence):
            raise ValueError(
                f"{where} has {evidence!r:.80} as evidence; give the numbers of the documents that it needs, "
                f"0 to {len(paragraphs) - 1}"
            )
    return Example(
        id_,
        record.question or "",
        record.accepted(f"{source}: record {number}"),
        paragraphs,
        tuple(dict.fromkeys(needed)),
        meta={key: value for key, value in (record.meta or {}).items() if key != "spans"},  # the writer's own
    )


def _of_corpus(
    record: _JsonlRecord, corpus: TextsById, drawn: bool, where: str
) -> tuple[tuple[tuple[str, str], ...], list[int]]:
    """The documents of a question and which of them it needs, by ids of a corpus."""
    needed = [str(id_) for id_ in record.evidence or []]
    named = [str(id_) for id_ in record.documents or ([] if drawn else corpus)]
    ids = list(dict.fromkeys([*named, *needed]))
    if unknown := next((id_ for id_ in ids if id_ not in corpus), None):
        raise ValueError(f"{where} names document {unknown!r:.80}, which --corpus does not have; add it")
    return tuple(corpus[id_] for id_ in ids), [ids.index(id_) for id_ in needed]
