"""Documents and tasks come in; a whole task-set folder, or nothing, is written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from memenvs.build.draft import Documents, Draft, frame_tokens, renumbered
from memenvs.build.export import export
from memenvs.build.replacing import replacing
from memenvs.card import CARD, DOCUMENTS, TASKS, Card, Layout
from memenvs.integrity import describe, sha256
from memenvs.tables import SCHEMAS
from memenvs.tasks import Task, TaskSet, open_tasks
from memenvs.tokens import TextTokenizer


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
        ValueError: `out` is something other than a task set and its exports; a task's evidence is not among
            its documents.
    """
    for task in draft.tasks:
        if stray := set(task.evidence) - set(task.documents):
            raise ValueError(f"task {task.id} has evidence {sorted(stray)} that it does not read")
    documents, tasks = _compact(draft.documents, draft.tasks)
    with replacing(out) as partial:
        _write(partial / DOCUMENTS, _document_columns(documents))
        _write(partial / TASKS, _task_columns(tasks))
        files = {name: describe(partial / name) for name in (DOCUMENTS, TASKS)}
        card = replace(
            card,
            inputs=_inputs(draft.inputs),
            layout=draft.layout,
            environment=draft.environment,
            metric=draft.metric,
            tokenizer={"name": tokenizer.name, "fingerprint": tokenizer.fingerprint},
            counts=_counts(documents, tasks, draft.layout, tokenizer),
            files=files,
        )
        (partial / CARD).write_text(card.to_json(), encoding="utf-8")
        opened = TaskSet(partial)  # what cannot be opened is not put in place
        for form in exports:
            export(opened, form, partial, tokenizer)
    return open_tasks(out)


def _inputs(paths: Sequence[Path]) -> dict[str, str]:
    """The SHA-256 of each file by its name, with as many folders before it as tell it from the others."""
    different = set(paths)
    depth = next(n for n in itertools.count(1) if len({path.parts[-n:] for path in paths}) == len(different))
    return {"/".join(path.parts[-depth:]): sha256(path) for path in paths}


def _compact(documents: Documents, tasks: Sequence[Task]) -> tuple[Documents, list[Task]]:
    """Only the documents that some task reads, and the tasks with their numbers among those."""
    used = np.unique(np.concatenate([np.array(task.documents, np.int64) for task in tasks])).tolist()
    numbers = np.zeros(len(documents.titles), np.int64)
    numbers[used] = np.arange(len(used))
    kept = Documents(
        [documents.titles[i] for i in used],
        [documents.texts[i] for i in used],
        [documents.gaps[i] for i in used],
    )
    return kept, [renumbered(task, numbers) for task in tasks]


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
    frames = np.append(0, frame_tokens(tokenizer, layout, most))
    numbers = [np.array(task.documents, np.int64) for task in tasks]
    tokens, chars = documents.tokens, documents.chars
    return {
        "tasks": len(tasks),
        "documents": len(documents.titles),
        "max_documents": most,
        "max_evidence": max(len(task.evidence) for task in tasks),
        "max_question_chars": max(len(task.question) for task in tasks),
        "max_chars": max(int(chars[read].sum()) + frame_chars * len(read) for read in numbers),
        "max_tokens": max(int(tokens[read].sum() + frames[len(read)]) for read in numbers),
    }
