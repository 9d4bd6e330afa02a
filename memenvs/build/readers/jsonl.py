"""Read questions and documents of one's own from JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from memenvs.build.contexts import KeptContexts, keep_contexts, titled
from memenvs.build.draft import Draft
from memenvs.build.examples import Example, among_distractors
from memenvs.build.readers.records import (
    Record,
    iterate_records,
    kept_examples,
    read_answers,
    read_examples,
    read_id,
    read_question,
    read_records,
    read_text,
)
from memenvs.core.data import Count, Whole, checked, convert
from memenvs.retrieval.corpus import read_jsonl as read_passages
from memenvs.tasks.taskset import Layout
from memenvs.tasks.tokens import TextTokenizer

_KEYS = ("question", "answers")
_WHAT = (
    'JSON Lines of {"question": "…", "answers": ["…"], "documents": [{"title": "…", "text": "…"}], '
    '"evidence": [0]}'
)
_POOL = 'JSON Lines of {"title": "…", "text": "…"}'
MOST_READ = 20_000_000  # documents that all tasks of a set read together

Corpus = Mapping[str, tuple[str, str]]
_Id = str | int


@checked
def jsonl(
    *,
    source: str,
    tokenizer: TextTokenizer,
    pool: str | None = None,
    corpus: str | None = None,
    documents: Count | None = None,
    tokens: Count | None = None,
    questions: Count = 1,
    count: Count | None = None,
    split: str = "train",
    seed: Whole = 0,
    workers: Count = 1,
    inputs: tuple[Path, ...] = (),
) -> Draft:
    """Tasks of questions of one's own: over their documents as they are, or with distractors drawn.

    Args:
        source: a line a question: question, answers, documents of title and text, evidence (numbers of those
            needed, from 0); see `read_jsonl`.
        tokenizer: counts the tokens.
        pool: more paragraphs to draw distractors from, a line each: title and text.
        corpus: documents that the questions name by id, a line each: id and contents.
        documents: documents of a task (default: those of the question, as they are).
        tokens: instead: most tokens of a task's text, tokenised whole; met within one document.
        questions: of one context asked in a task, at most (`keep_contexts`).
        count: tasks (default: every question once).
        split: name of the split; with the seed it decides every random choice.
        seed: decides every random choice.
        workers: processes; the result does not depend on them.
        inputs: the files that were read.

    Raises:
        ValueError: an argument out of range or that does not suit another, or a file of another form.
    """
    if documents is None and tokens is None:
        if pool is not None:
            raise ValueError("--pool is drawn from by --documents or --tokens; give one of them, or no pool")
        kept = read_own_contexts(source, split, corpus)
        return keep_contexts(kept, tokenizer=tokenizer, count=count, questions=questions, inputs=inputs)
    if questions > 1:
        raise ValueError("--questions joins those of one context; leave out --documents and --tokens")
    return among_distractors(
        read_jsonl(source, split, corpus),
        tokenizer=tokenizer,
        documents=documents,
        tokens=tokens,
        count=count,
        split=split,
        seed=seed,
        workers=workers,
        inputs=inputs,
        extra=[*([] if pool is None else read_pool(pool, split)), *read_corpus(corpus).values()],
    )


def read_jsonl(source: str, split: str, corpus: str | None = None) -> list[Example]:
    """Examples of JSON Lines, or of `hf:NAME[:CONFIG]` with these columns, to be hidden among distractors.

    A record has `question`, `answers` (accepted ones, the preferred one first), `documents` of `text` and, if
    they have one, `title` (`paragraphs` is another name), and `evidence`: the numbers of the documents that
    the answer needs, from 0, in the order of the reasoning. `id` is the record's number unless it is given;
    `meta` is kept. With a corpus, documents and evidence are ids of it, and its evidence alone will do.

    Args:
        source: the file, or `hf:NAME`.
        split: of the data set.
        corpus: JSON Lines of `id` and `contents`, as for `build index`.

    Raises:
        ValueError: the source is something else, or a question of it cannot be used; the line names it.
    """
    found = read_corpus(corpus)
    example = partial(_example, corpus=found, drawn=True)
    return read_examples(source, split, example, keys=_KEYS, what=_WHAT)


def read_own_contexts(source: str, split: str, corpus: str | None = None) -> KeptContexts:
    """The records of `read_jsonl` with their documents as they are, in their order; evidence may be missing.

    Where no record has documents they are for searching: among the corpus, if there is one.

    Raises:
        ValueError: as `read_jsonl`; or some questions have documents and others have none.
    """
    found = read_corpus(corpus)
    records = list(iterate_records(source, split, keys=_KEYS, what=_WHAT))
    bare = [_documents(record) is None for record in records]
    if any(bare) and not all(bare):
        raise ValueError(
            f"record {bare.index(True)} of {source} has no documents and others have some; build them apart"
        )
    if bare[0] and found and len(records) * len(found) > MOST_READ:
        raise ValueError(
            f"{len(records):,} questions over a corpus of {len(found):,} documents are too many to list; "
            f"build the questions without --corpus, and search it by `build index --corpus {corpus}`"
        )
    numbered = ({**record, "number": number} for number, record in enumerate(records))
    examples = partial(_kept, source=source, corpus=found)
    kept = kept_examples(numbered, examples, source=source, what=_WHAT)
    environment = "MemSearchQA-v0" if bare[0] else "MemChunkQA-v0"
    return KeptContexts(kept, Layout(), "em", source, environment)


def read_pool(source: str, split: str) -> list[tuple[str, str]]:
    """(title, text) paragraphs to draw distractors from, of JSON Lines or `hf:NAME[:CONFIG]`."""
    records = read_records(source, split, keys=("text",), what=_POOL)
    return [_paragraph(record, f"record {i} of {source}") for i, record in enumerate(records)]


def read_corpus(path: str | None) -> Corpus:
    """(title, text) of the documents of a corpus by their ids; none without a path.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no document, or two have one id.
    """
    documents: dict[str, tuple[str, str]] = {}
    if path is None:
        return documents
    if not Path(path).is_file():
        raise FileNotFoundError(f'no file at {path}; --corpus wants JSON Lines of {{"id", "contents"}}')
    for passage in read_passages(path):
        if passage.id in documents:
            raise ValueError(f"{path} has two documents of the id {passage.id!r}; give each its own")
        documents[passage.id] = titled(passage.contents)
    return documents


class _Question(msgspec.Struct):
    question: str
    answers: Annotated[list[str], Meta(min_length=1)]
    documents: list[Any] | None = None
    paragraphs: list[Any] | None = None
    evidence: list[_Id] | None = None
    meta: dict[str, Any] = {}


class _Document(msgspec.Struct):
    text: str
    title: str = ""


def _kept(record: Record, where: str, source: str, corpus: Corpus) -> Iterator[Example]:
    yield _example(record, record["number"], source, corpus, drawn=False)


def _example(record: Record, number: int, source: str, corpus: Corpus, drawn: bool) -> Example:
    id_ = read_id(record.get("id", number), source)
    where = f"question {id_} of {source}"
    question = convert(record, _Question, f"{where}: record")
    given, evidence = question.documents or question.paragraphs or None, question.evidence
    if drawn and not evidence:
        raise ValueError(
            f"{where} has no evidence, so that its answer may be left out of a task; give it, or leave out "
            "--documents and --tokens to read the documents as they are"
        )
    if corpus:
        paragraphs, needed = _of_corpus(given, evidence, corpus, drawn, where)
    else:
        paragraphs = tuple(_paragraph(paragraph, where) for paragraph in given or ())
        needed = _evidence(evidence, len(paragraphs), where) if evidence else ()
    return Example(
        id_,
        read_question(question.question, where),
        read_answers(question.answers[0], question.answers[1:], where),
        paragraphs,
        needed,
        meta={key: value for key, value in question.meta.items() if key != "spans"},  # the writer's own
    )


def _documents(record: Record) -> Any:
    """The documents of a record by either name; None where it has none."""
    return record.get("documents", record.get("paragraphs")) or None


def _of_corpus(
    given: list[Any] | None, evidence: list[_Id] | None, corpus: Corpus, drawn: bool, where: str
) -> tuple[tuple[tuple[str, str], ...], tuple[int, ...]]:
    """The documents of a question and which of them it needs, by ids of a corpus."""
    needed = [str(id_) for id_ in evidence or []]
    named = [str(id_) for id_ in given or ()]
    if given is None and not drawn:
        named = list(corpus)
    ids: Sequence[str] = list(dict.fromkeys([*named, *needed]))
    if unknown := next((id_ for id_ in ids if id_ not in corpus), None):
        raise ValueError(f"{where} names document {unknown!r:.80}, which --corpus does not have; add it")
    places = {id_: place for place, id_ in enumerate(ids)}
    return tuple(corpus[id_] for id_ in ids), tuple(dict.fromkeys(places[id_] for id_ in needed))


def _paragraph(paragraph: Any, where: str) -> tuple[str, str]:
    read = convert(paragraph, _Document, f"{where}: document", 'give {"title": "…", "text": "…"}')
    return read_text(read.title, "title", where), read_text(read.text, "text", where)


def _evidence(evidence: list[_Id], paragraphs: int, where: str) -> tuple[int, ...]:
    numbers = [number for number in evidence if isinstance(number, int) and 0 <= number < paragraphs]
    if len(numbers) < len(evidence):
        raise ValueError(
            f"{where} has {evidence!r:.80} as evidence; give the numbers of the documents that the answer "
            f"needs, 0 to {paragraphs - 1}"
        )
    return tuple(dict.fromkeys(numbers))
