"""Read your own questions and documents: `memenvs build texts` and `memenvs build jsonl`."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import msgspec

from memenvs.build.contexts import Example, KeptContexts
from memenvs.build.examples import Pool
from memenvs.build.options import PUBLISHED_FORMS, DrawnFile, Seeded
from memenvs.core.data import Count, convert, is_whole, shown
from memenvs.core.errors import unknown_name
from memenvs.core.inputs import read_text, text_files
from memenvs.core.processes import Workers
from memenvs.core.spaces import replace_surrogates
from memenvs.core.text import split_sentences
from memenvs.core.words import units
from memenvs.retrieval.corpus import read_corpus as read_passages
from memenvs.tasks.cells import parse_printed
from memenvs.tasks.records import QUESTIONS, Fields, Id, QuestionRecord, note, read_questions, read_records
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
_Place = tuple[int, int, int]  # a paragraph, and characters [start, end) of it; 0, 0 for all
_SYNONYMS = {"document": "documents", "file": "documents", "quote": "evidence"}
"""What tables call fields, besides their own names."""
_LEAST = 0.5  # share of words, as F1, that a quote has in common with the sentence that is meant
_MOST_NAMES = 40  # ids in an error


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
    columns: dict[str, Any] = field(default_factory=dict)
    """what the file calls a field, such as question=Frage."""
    questions: Count = 1
    """maximum number of consecutive questions about one context in a task."""


@dataclass(frozen=True, kw_only=True)
class TextsOptions(Seeded):
    """Your own texts and questions."""

    documents: str
    """folder of .txt, .md and .pdf files, or a corpus as `build index --corpus` reads it."""
    questions: str
    """table (CSV, Excel, JSON Lines) with a question and its answer in each row, the document that it asks
    about, and as evidence words quoted from it or [start, end] of its characters. Questions that name no
    document are for searching."""
    columns: dict[str, Any] = field(default_factory=dict)
    """what the table calls a column, such as question=Frage evidence=Zitat."""
    tokens: Count | None = None
    """hide the document among others, with at most this many tokens in a task (default: read it alone)."""
    workers: Workers = 1
    """number of processes, or ray for the workers of a Ray cluster; the result is the same."""

    @property
    def of_records(self) -> JsonlOptions:
        """The same as options of `jsonl`."""
        options = {**vars(self), "source": self.questions, "corpus": self.documents}
        return JsonlOptions(**{**options, "questions": 1, "documents": None})


def jsonl(options: JsonlOptions) -> Pool | KeptContexts:
    """Your own questions, over their documents as they are or hidden among distractors.

    A record has `question`, `answers` (accepted ones, the preferred one first; `QuestionRecord` has the other
    names and forms that are read), `documents` of `text` and an
    optional `title`, and `evidence`: of each document that the answer needs, in the order of the reasoning,
    its number, from 0, or words quoted from it, or `[number, start, end]` of its characters; it may be
    missing where documents are read as they are. `id` is the record's number unless it is given; `meta` is
    kept. With a corpus, documents are ids of it, and evidence is such an id, or words or characters of these
    documents. If no record has documents, they are for searching: in the corpus, if there is one.

    Raises:
        ValueError: an argument that does not suit another, or a file of another form.
    """
    source, pool, sized = options.source, options.pool, options.documents or options.tokens
    corpus = None if options.corpus is None else _read_corpus(options.corpus)
    names = _JsonlRecord.__struct_fields__
    if unknown := next((name for name in options.columns if name not in names), None):
        raise ValueError(unknown_name("--columns has no field", unknown, names))

    missing = {str(column).strip().lower() for column in options.columns.values()}

    def adapt(row: dict[str, Any], where: str) -> dict[str, Any]:
        missing.difference_update(row)
        record = _renamed(row, options.columns, corpus is not None)
        if corpus is None:
            _check_texts(record, where)
        return record

    what = _WHAT if corpus is None else QUESTIONS
    questions = read_questions(source, options.split, _JsonlRecord, what, adapt)
    records = [(record, answers) for _, record, answers in questions]
    if missing:
        raise ValueError(f"{source} has no column {min(missing)!r}; correct --columns")
    fields = Fields(source, _JsonlDocument.__struct_fields__)
    for record, _ in records if corpus is None else ():
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
    extra = [*(document.parts for document in more), *(corpus or {}).values()]
    return Pool.of(examples, source, extra)


def _renamed(row: dict[str, Any], columns: Mapping[str, Any], is_over_corpus: bool) -> dict[str, Any]:
    """A record under the names of its fields; over a corpus, with documents and evidence as lists."""
    synonyms = _SYNONYMS if is_over_corpus else {}
    given = {str(column).strip().lower(): name for name, column in columns.items()}
    for column, name in {**synonyms, **given}.items():
        if column in row and (column in given or name not in columns):
            row[name] = row.pop(column)
    for name in ("documents", "evidence"):
        if is_over_corpus and name in row:
            row[name] = _list_of(row[name])
    return row


def _list_of(cell: Any) -> list[Any]:
    """The values in a cell: those of a list, also one that is printed in a text, or the cell itself."""
    listed = parse_printed(cell) if isinstance(cell, str) else cell
    if isinstance(listed, list):
        return listed
    return [] if cell is None or not str(cell).strip() else [cell]


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
    for file in text_files(path):  # before records: the table of questions may be in the same folder
        name, text = file.relative_to(Path(path).expanduser()), replace_surrogates(read_text(file))
        if text.strip():
            documents[name.as_posix()] = name.with_suffix("").as_posix(), text
        else:
            note(f"{file} is left out: it holds no text; read scanned pages by an OCR program first")
    try:
        for passage in () if documents else read_passages(path):
            if passage.id in documents:
                raise ValueError(f"{path} has two documents of the id {passage.id!r}; give each its own")
            documents[passage.id] = passage.title, passage.text
    except FileNotFoundError as error:
        fix = "give a folder of .txt, .md and .pdf files, or a corpus"
        raise FileNotFoundError(f"no documents at {path}; {fix}") from error
    return documents


def _own_contexts(records: list[_Asked], source: str, corpus: TextsById | None) -> KeptContexts:
    """The records with their documents as they are, in their order."""
    bare = [not record.documents for record, _ in records]
    if any(bare) and not all(bare):
        raise ValueError(
            f"record {bare.index(True)} of {source} has no documents and others have some; build them apart"
        )
    if bare[0] and corpus and len(records) * len(corpus) > MOST_READ:
        raise ValueError(
            f"{len(records):,} questions over a corpus of {len(corpus):,} documents are too many to list; "
            "build the questions without these, and search them by `build index`"
        )
    examples = (_example(question, i, source, corpus, drawn=False) for i, question in enumerate(records))
    return KeptContexts(examples, Layout(), "em", source, "MemSearchQA-v0" if bare[0] else "MemChunkQA-v0")


def _example(question: _Asked, number: int, source: str, corpus: TextsById | None, drawn: bool) -> Example:
    record, answers = question
    id_ = record.named(number)
    where = f"question {id_} of {source}"
    if corpus is not None:
        paragraphs, places = _of_corpus(record, corpus, drawn, where)
    else:
        documents = convert(record.documents or [], list[_JsonlDocument], f"{where}: documents", _DOCUMENT)
        paragraphs = tuple(document.parts for document in documents)
        places = [_find(part, paragraphs, where) for part in record.needed]
    if drawn and not places:
        raise ValueError(
            f"{where} has no evidence, so that its answer may be left out of a task; give it, or leave out "
            "--documents and --tokens to read the documents as they are"
        )
    return Example(
        id_,
        record.question or "",
        answers,
        paragraphs,
        tuple(dict.fromkeys(place for place, *_ in places)),
        tuple((place, start, end) for place, start, end in places if end),
        {key: value for key, value in (record.meta or {}).items() if key != "spans"},  # the writer's own
    )


def _of_corpus(
    record: _JsonlRecord, corpus: TextsById, drawn: bool, where: str
) -> tuple[tuple[tuple[str, str], ...], list[_Place]]:
    """The documents of a question and which parts of them it needs.

    Without evidence, a task that is drawn needs the documents that the question names.
    """
    listed = [_named(name, tuple(corpus), where) for name in record.documents or ()]
    searched, parts = listed or list(corpus), record.needed
    if len(parts) == 2 and all(map(is_whole, parts)) and not any(str(part) in corpus for part in parts):
        parts = [parts]  # [start, end] in a cell
    spans = list[tuple[str, int, int]]()
    texts = tuple(corpus[id_] for id_ in searched)
    for part in parts or (listed if drawn else ()):
        if str(part) in corpus:
            spans.append((str(part), 0, 0))
            continue
        if isinstance(part, list) and len(part) == 3:
            part = [searched.index(_named(part[0], searched, where)), *part[1:]]
        elif isinstance(part, list) and len(part) == 2 and len(searched) == 1:
            part = [0, *part]
        place, start, end = _find(part, texts, where)
        spans.append((searched[place], start, end))
    needed = [id_ for id_, *_ in spans]
    ids = list(dict.fromkeys([*(listed if drawn else searched), *needed]))
    return tuple(corpus[id_] for id_ in ids), [(ids.index(id_), start, end) for id_, start, end in spans]


def _named(name: Any, ids: Sequence[str], where: str) -> str:
    """The id that a question means: itself, or a path's last part, with or without its ending."""
    if id_ := _by_name(tuple(ids)).get(str(name).strip()):
        return id_
    raise ValueError(unknown_name(f"{where}: no document", str(name), sorted(ids)[:_MOST_NAMES]))


@functools.lru_cache(maxsize=4)
def _by_name(ids: tuple[str, ...]) -> dict[str, str]:
    """The ids by what they may be called; a name that several have is left out."""
    called: dict[str, set[str]] = {}
    for id_ in ids:
        for name in (PurePath(id_).name, PurePath(id_).stem):
            called.setdefault(name, set()).add(id_)
    return {name: min(several) for name, several in called.items() if len(several) == 1} | {i: i for i in ids}


def _find(part: Any, paragraphs: Sequence[tuple[str, str]], where: str) -> _Place:
    """The paragraph that a part of the evidence names, and the characters [start, end) of it; 0 for all."""
    span = part if isinstance(part, list) else [part, 0, 0]
    if isinstance(part, str) and part.strip() and not part.isdecimal():
        if quoted := _quoted(part, paragraphs, where):
            return quoted
    elif len(span) == 3 and all(map(is_whole, span)) and 0 <= span[0] < len(paragraphs):
        place, start, end = span
        if start == end == 0 or 0 <= start < end <= len(paragraphs[place][1]):
            return place, start, end
    raise ValueError(
        f"{where} has {part!r:.80} as evidence; give the numbers of the documents that it needs, 0 to "
        f"{len(paragraphs) - 1}, words that one of them says, or [number, start, end]"
    )


def _quoted(quote: str, paragraphs: Sequence[tuple[str, str]], where: str) -> _Place | None:
    """Where a paragraph says a quote, whatever its white space; otherwise the sentence nearest to it."""
    words = re.compile(r"\s+".join(map(re.escape, quote.split())))
    matches = ((place, words.search(text)) for place, (_, text) in enumerate(paragraphs))
    places = [(place, *match.span()) for place, match in matches if match]
    if len(places) > 1:
        titles = " and ".join(repr(paragraphs[place][0]) for place, *_ in places[:2])
        note(f"{where}: {len(places)} documents say {shown(quote)}; the first of {titles} counts")
    if places:
        return places[0]
    sought, best, nearest = Counter(units(quote)), _LEAST, None
    for place, (_, text) in enumerate(paragraphs):
        for start, end, held in _sentences(text):
            shared = 2 * (sought & held).total() / max(1, sought.total() + held.total())
            if shared > best:
                best, nearest = shared, (place, start, end)
    if nearest:
        place, start, end = nearest
        title, text = paragraphs[place]
        note(f"{where}: no document says {shown(quote)}; took {shown(text[start:end])} of {title!r}")
    return nearest


@functools.lru_cache(maxsize=4096)
def _sentences(text: str) -> list[tuple[int, int, Counter[str]]]:
    """Start, end and words of each sentence."""
    sentences, end = [], 0
    for sentence in split_sentences(text):
        start = text.index(sentence, end)
        end = start + len(sentence)
        sentences.append((start, end, Counter(units(sentence))))
    return sentences
