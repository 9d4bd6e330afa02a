"""Read your own questions and documents: `memenvs build jsonl --source questions.jsonl --out DIR`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from memenvs.build.contexts import Example, KeptContexts
from memenvs.build.examples import Pool
from memenvs.build.options import PUBLISHED_FORMS, DrawnFile
from memenvs.core.data import Count, convert, is_whole
from memenvs.retrieval.corpus import read_corpus as read_passages
from memenvs.tasks.records import Fields, Id, QuestionRecord, read_questions, read_records
from memenvs.tasks.taskset import Layout

_WHAT = (
    'JSON Lines of {"question": "…", "answers": ["…"], "documents": [{"title": "…", "text": "…"}], '
    '"evidence": [0]}'
)
_DOCUMENT = 'give {"title": "…", "text": "…"}'
_POOL = 'JSON Lines of {"title": "…", "text": "…"}'
_TEXTS = "context contexts ctxs paragraphs passages haystack_sessions gold_docs prompt".split()
"""Fields in which benchmarks have the texts that are read."""
MOST_READ = 20_000_000  # documents that all tasks of a set read together

TextsById = Mapping[str, tuple[str, str]]  # (title, text) by id


class _JsonlRecord(QuestionRecord):
    documents: list[Any] | None = None
    evidence: list[Any] | Id | None = None
    meta: dict[str, Any] | None = None

    @property
    def needed(self) -> list[Any]:
        """The evidence, of which a cell of a table has one."""
        parts = self.evidence if isinstance(self.evidence, list) else [self.evidence]
        return [] if parts in ([None], [""]) else parts


class _JsonlDocument(msgspec.Struct):
    text: str
    title: str | None = None

    @property
    def parts(self) -> tuple[str, str]:
        """Title and text."""
        return self.title or "", self.text


_Asked = tuple[_JsonlRecord, tuple[str, ...]]  # a question and its accepted answers


@dataclass(frozen=True, kw_only=True)
class JsonlOptions(DrawnFile):
    """Your own questions."""

    source: str
    """a line a question: question, answers, documents of title and text, evidence (numbers of those needed,
    from 0, or words quoted from them); or hf:NAME[:CONFIG] with these columns."""
    pool: str | None = None
    """more documents to draw distractors from, one per line: title and text."""
    corpus: str | None = None
    """documents that the questions name by id, as `build index --corpus` reads them."""
    questions: Count = 1
    """maximum number of consecutive questions about one context in a task."""


def jsonl(options: JsonlOptions) -> Pool | KeptContexts:
    """Your own questions, over their documents as they are or hidden among distractors.

    A record has `question`, `answers` (accepted ones, the preferred one first; `QuestionRecord` has the other
    names and forms that are read), `documents` of `text` and an
    optional `title`, and `evidence`: of each document that the answer needs, in the order of the reasoning,
    its number, from 0, or words quoted from it, or `[number, start, end]` of its characters; it may be
    missing where documents are read as they are. `id` is the record's number unless it is given; `meta` is
    kept. With a corpus, documents and evidence are ids of it. If no record has documents, they are for
    searching: in the corpus, if there is one.

    Raises:
        ValueError: an argument that does not suit another, or a file of another form.
    """
    source, pool, sized = options.source, options.pool, options.documents or options.tokens
    corpus = {} if options.corpus is None else _read_corpus(options.corpus)
    questions = read_questions(source, options.split, _JsonlRecord, _WHAT, _check_texts)
    records = [(record, answers) for _, record, answers in questions]
    fields = Fields(source, _JsonlDocument.__struct_fields__)
    for record, _ in records if options.corpus is None else ():
        for number, document in enumerate(record.documents or ()):
            fields.check(document, f"{source}: document {number} of {record.question!r:.40}")
    fields.report()
    if not sized:
        if pool is not None:
            raise ValueError("--pool is drawn from by --documents or --tokens; give one of them, or no pool")
        return _own_contexts(records, source, corpus)
    if options.questions > 1:
        raise ValueError("--questions joins those of one context; leave out --documents and --tokens")
    examples = (_example(question, i, source, corpus, drawn=True) for i, question in enumerate(records))
    more = read_records(pool, options.split, _JsonlDocument, _POOL, name_ignored=True) if pool else ()
    extra = [*(document.parts for document in more), *corpus.values()]
    return Pool.of(examples, source, extra)


def _check_texts(record: Mapping[str, Any], where: str) -> None:
    """Refuse a record whose text would be ignored, and say which source reads it."""
    if record.get("documents") or not (field := next(filter(record.get, _TEXTS), None)):
        return
    sources = [
        f"`memenvs build {name}`"
        for name, form in PUBLISHED_FORMS.items()
        if {field.lower() for field in form.fields} <= record.keys()
        and isinstance(record.get(form.context), str)
    ]
    read_by = " or ".join(sources) or "a benchmark's own source (`memenvs build --help`)"
    raise ValueError(
        f"{where} has its text in {field!r}, where it is not read; use {read_by}, or put it into 'documents'"
    )


def _read_corpus(path: str) -> dict[str, tuple[str, str]]:
    """(title, text) of the documents of a corpus by their ids."""
    documents: dict[str, tuple[str, str]] = {}
    for passage in read_passages(path):
        if passage.id in documents:
            raise ValueError(f"{path} has two documents of the id {passage.id!r}; give each its own")
        documents[passage.id] = passage.title, passage.text
    return documents


def _own_contexts(records: list[_Asked], source: str, corpus: TextsById) -> KeptContexts:
    """The records with their documents as they are, in their order."""
    bare = [not record.documents for record, _ in records]
    if any(bare) and not all(bare):
        raise ValueError(
            f"record {bare.index(True)} of {source} has no documents and others have some; build them apart"
        )
    if bare[0] and len(records) * len(corpus) > MOST_READ:
        raise ValueError(
            f"{len(records):,} questions over a corpus of {len(corpus):,} documents are too many to list; "
            "build the questions without --corpus, and search it by `build index --corpus`"
        )
    examples = (_example(question, i, source, corpus, drawn=False) for i, question in enumerate(records))
    return KeptContexts(examples, Layout(), "em", source, "MemSearchQA-v0" if bare[0] else "MemChunkQA-v0")


def _example(question: _Asked, number: int, source: str, corpus: TextsById, drawn: bool) -> Example:
    record, answers = question
    id_ = record.named(number)
    where = f"question {id_} of {source}"
    if drawn and not record.needed:
        raise ValueError(
            f"{where} has no evidence, so that its answer may be left out of a task; give it, or leave out "
            "--documents and --tokens to read the documents as they are"
        )
    spans = list[tuple[int, int, int]]()
    if corpus:
        paragraphs, evidence = _of_corpus(record, corpus, drawn, where)
    else:
        documents = convert(record.documents or [], list[_JsonlDocument], f"{where}: documents", _DOCUMENT)
        paragraphs = tuple(document.parts for document in documents)
        places = [_find(part, paragraphs, where) for part in record.needed]
        evidence = [place for place, *_ in places]
        spans = [(place, start, end) for place, start, end in places if end]
    return Example(
        id_,
        record.question or "",
        answers,
        paragraphs,
        tuple(dict.fromkeys(evidence)),
        tuple(spans),
        {key: value for key, value in (record.meta or {}).items() if key != "spans"},  # the writer's own
    )


def _find(part: Any, paragraphs: Sequence[tuple[str, str]], where: str) -> tuple[int, int, int]:
    """The paragraph that a part of the evidence names, and the characters [start, end) of it; 0 for all."""
    span = part if isinstance(part, list) else [part, 0, 0]
    if isinstance(part, str) and part.strip() and not part.isdecimal():
        words = re.compile(r"\s+".join(map(re.escape, part.split())))
        quotes = ((place, words.search(text)) for place, (_, text) in enumerate(paragraphs))
        span = next(([place, *quote.span()] for place, quote in quotes if quote), span)
    if len(span) == 3 and all(map(is_whole, span)) and 0 <= span[0] < len(paragraphs):
        place, start, end = span
        if start == end == 0 or 0 <= start < end <= len(paragraphs[place][1]):
            return place, start, end
    raise ValueError(
        f"{where} has {part!r:.80} as evidence; give the numbers of the documents that it needs, 0 to "
        f"{len(paragraphs) - 1}, words that one of them says to the letter, or [number, start, end]"
    )


def _of_corpus(
    record: _JsonlRecord, corpus: TextsById, drawn: bool, where: str
) -> tuple[tuple[tuple[str, str], ...], list[int]]:
    """The documents of a question and which of them it needs, by ids of a corpus."""
    needed = [str(id_) for id_ in record.needed]
    listed = [str(id_) for id_ in record.documents or ([] if drawn else corpus)]
    ids = list(dict.fromkeys([*listed, *needed]))
    if unknown := next((id_ for id_ in ids if id_ not in corpus), None):
        raise ValueError(f"{where} names document {unknown!r:.80}, which --corpus does not have; add it")
    return tuple(corpus[id_] for id_ in ids), [ids.index(id_) for id_ in needed]
