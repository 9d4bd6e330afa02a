"""Documents and tasks come in; a whole task-set folder, or nothing, is written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from memenvs.build.export import export
from memenvs.tasks import (
    CARD,
    DOCUMENTS,
    SCHEMAS,
    TASKS,
    Card,
    Layout,
    Task,
    TaskSet,
    open_tasks,
    sha256,
    shown,
)
from memenvs.tokens import Gaps, TextTokenizer

_WIDEST = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class Documents:
    """Documents with their tokens counted once.

    Attributes:
        titles: one a document; empty for text without a title.
        texts: one a document.
        gaps: of each document as it is shown.
    """

    titles: Sequence[str]
    texts: Sequence[str]
    gaps: Sequence[Gaps]

    @classmethod
    def tokenized(cls, documents: Sequence[tuple[str, str]], tokenizer: TextTokenizer) -> Documents:
        """Documents from (title, text) pairs."""
        titles, texts = [title for title, _ in documents], [text for _, text in documents]
        gaps = []
        for number, found in enumerate(tokenizer.gaps([shown(*document) for document in documents])):
            if found.max(initial=0) > _WIDEST:
                raise ValueError(
                    f"document {number} ({titles[number]!r}) has a token of {found.max()} characters, "
                    f"more than {_WIDEST}: it is not prose; leave it out, or choose another tokenizer"
                )
            gaps.append(found.astype(np.uint16))
        return cls(titles, texts, gaps)

    @property
    def tokens(self) -> np.ndarray:
        """(D,) tokens of each document as it is shown, headers and separators not counted."""
        return np.fromiter(map(len, self.gaps), np.int64, len(self.gaps))

    @property
    def chars(self) -> np.ndarray:
        """(D,) characters of each document as it is shown."""
        return np.array([len(shown(*pair)) for pair in zip(self.titles, self.texts, strict=True)], np.int64)


@dataclass(frozen=True)
class Draft:
    """What a builder hands to the writer.

    Attributes:
        documents: the pool; those that no task reads are dropped by the writer.
        tasks: their document numbers are of that pool.
        layout: how documents are shown.
        inputs: the files that were read.
    """

    documents: Documents
    tasks: list[Task]
    layout: Layout
    inputs: tuple[Path, ...] = ()


def write_task_set(
    out: Path, draft: Draft, card: Card, tokenizer: TextTokenizer, exports: Sequence[str] = ()
) -> TaskSet:
    """Write a task set whole: an interrupted build leaves the old folder, or none.

    Only documents that some task reads are kept, numbered anew in their old order.

    Args:
        out: the folder; an old task set there is replaced.
        draft: documents and tasks.
        card: source and arguments; the rest is filled in here.
        tokenizer: the one the documents were tokenised by.
        exports: other projects' forms to write beside (`memenvs.build.export`).

    Raises:
        ValueError: `out` is something other than a task set; a task's evidence is not among its documents.
    """
    for task in draft.tasks:
        if stray := set(task.evidence) - set(task.documents):
            raise ValueError(f"task {task.id} has evidence {sorted(stray)} that it does not read")
    documents, tasks = _compact(draft.documents, draft.tasks)
    with replacing(out) as partial:
        _write(partial / DOCUMENTS, _document_columns(documents))
        _write(partial / TASKS, _task_columns(tasks))
        files = {
            name: {"bytes": (partial / name).stat().st_size, "sha256": sha256(partial / name)}
            for name in (DOCUMENTS, TASKS)
        }
        card = replace(
            card,
            inputs={path.name: sha256(path) for path in draft.inputs},
            layout=draft.layout,
            tokenizer={"name": tokenizer.name, "fingerprint": tokenizer.fingerprint},
            counts=_counts(documents, tasks, draft.layout, tokenizer),
            files=files,
        )
        (partial / CARD).write_text(card.to_json(), encoding="utf-8")
        opened = TaskSet(partial)  # what cannot be opened is not put in place
        for form in exports:
            export(opened, form, partial, tokenizer)
    return open_tasks(out)


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A folder to fill, put in the place of `out` when the block ends well and removed when it does not."""
    if out.exists() and not (out / CARD).is_file():
        raise ValueError(f"{out} is there and is not a task set; choose another --out or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    old = out.parent / f".{out.name}.old-{os.getpid()}"
    partial.mkdir()
    try:
        yield partial
        if out.exists():
            out.rename(old)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _compact(documents: Documents, tasks: Sequence[Task]) -> tuple[Documents, list[Task]]:
    """Only the documents that some task reads, and the tasks with their numbers among those."""
    used = np.unique(np.concatenate([np.array(task.documents) for task in tasks])).tolist()
    numbers = np.zeros(len(documents.titles), np.int64)
    numbers[used] = np.arange(len(used))
    kept = Documents(
        [documents.titles[i] for i in used],
        [documents.texts[i] for i in used],
        [documents.gaps[i] for i in used],
    )
    return kept, [_renumber(task, numbers) for task in tasks]


def _renumber(task: Task, numbers: NDArray[np.int64]) -> Task:
    meta = dict(task.meta)
    if "spans" in meta:
        meta["spans"] = [[int(numbers[document]), start, end] for document, start, end in meta["spans"]]
    return replace(
        task,
        documents=tuple(numbers[list(task.documents)].tolist()),
        evidence=tuple(numbers[list(task.evidence)].tolist()),
        meta=meta,
    )


def _document_columns(documents: Documents) -> dict[str, Any]:
    bounds = np.concatenate([[0], np.cumsum(documents.tokens)])
    values = np.concatenate(documents.gaps) if documents.gaps else np.zeros(0, np.uint16)
    gaps = pa.LargeListArray.from_arrays(pa.array(bounds, pa.int64()), pa.array(values, pa.uint16()))
    return {"title": documents.titles, "text": documents.texts, "gaps": gaps}


def _task_columns(tasks: Sequence[Task]) -> dict[str, Any]:
    return {
        "id": [task.id for task in tasks],
        "question": [task.question for task in tasks],
        "answers": [task.answers for task in tasks],
        "documents": [np.array(task.documents, np.int32) for task in tasks],
        "evidence": [np.array(task.evidence, np.int32) for task in tasks],
        "meta": [json.dumps(task.meta, ensure_ascii=False, sort_keys=True) for task in tasks],
    }


def _write(path: Path, columns: dict[str, Any]) -> None:
    schema = SCHEMAS[path.name]
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for field, column in zip(schema, columns.values(), strict=True)
    ]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _counts(
    documents: Documents, tasks: Sequence[Task], layout: Layout, tokenizer: TextTokenizer
) -> dict[str, int]:
    """The sizes that environments and readers of the card want; the largest ones are of one task."""
    most = max(len(task.documents) for task in tasks)
    header = layout.header.replace("{i}", str(most))
    frame_chars = len(header) + len(layout.separator)
    frames = frame_tokens(tokenizer, layout, most)
    numbers = [np.array(task.documents) for task in tasks]
    tokens, chars = documents.tokens, documents.chars
    return {
        "tasks": len(tasks),
        "documents": len(documents.titles),
        "max_documents": most,
        "max_evidence": max(len(task.evidence) for task in tasks),
        "max_question_chars": max(len(task.question) for task in tasks),
        "max_chars": max(int(chars[read].sum()) + frame_chars * len(read) for read in numbers),
        "max_tokens": max(int(tokens[read].sum() + frames[len(read) - 1]) for read in numbers),
    }


def frame_tokens(tokenizer: TextTokenizer, layout: Layout, most: int) -> NDArray[np.int64]:
    """(most,) tokens of the headers and separators of a text of the first 1, 2, … `most` documents."""
    numbers = range(1, most + 1) if "{i}" in layout.header else [1]
    headers = tokenizer.counts([layout.header.replace("{i}", str(i)) for i in numbers])
    if len(headers) < most:
        headers = headers * most
    return np.cumsum(headers) + tokenizer.count(layout.separator) * np.arange(most)
