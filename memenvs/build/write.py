"""Task sets written as a folder, in memory that does not grow with their size."""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from memenvs.build.draft import Draft, frame_tokens, renumbered
from memenvs.build.export import EXPORTS, Export
from memenvs.core.files import CARD, DOCUMENTS, TASKS, describe, resolved, sha256, whole_folder
from memenvs.tasks.taskset import SCHEMAS, Card, Task, TaskSet, open_tasks
from memenvs.tasks.tokens import TextTokenizer

_ROWS = 256  # rows that are in memory at once
_BLOCK = 1 << 24  # bytes, likewise
_OURS = {CARD, DOCUMENTS, TASKS, *(name for name, _ in EXPORTS.values())}


def check_replaceable(out: Path) -> None:
    """Raise a one-line `ValueError` if `out` exists and is anything but a task set and its exports."""
    out = resolved(out)
    if out.exists() and not (out / CARD).is_file():
        raise ValueError(f"{out} exists and is not a task set; choose another --out or remove it")
    foreign = sorted({path.name for path in out.iterdir()} - _OURS) if out.exists() else []
    if foreign:
        raise ValueError(
            f"{out} holds {foreign[0]!r} beside its task set, which a new one would delete; "
            "move that away or choose another --out"
        )


def write_task_set(
    out: Path, draft: Draft, card: Card, tokenizer: TextTokenizer, exports: Sequence[Export] = ()
) -> TaskSet:
    """Write a task set whole: an interrupted build leaves the old folder, or none.

    Only documents that some task reads are kept, renumbered in their old order. Documents and tasks are gone
    through one by one, so that those on disk (`DiskList`) stay there.

    Args:
        out: the folder; an old task set there is replaced.
        draft: documents and tasks.
        card: source and arguments; the rest is filled in here.
        tokenizer: the one the documents were tokenised by.
        exports: forms of other projects to write beside it (`EXPORTS`).

    Raises:
        ValueError: `out` is something other than a task set and its exports.
    """
    check_replaceable(out)
    documents = draft.documents
    used, counts = _survey(draft, tokenizer)
    numbers = np.cumsum(used) - 1  # by the old number the new one
    with whole_folder(out) as folder:
        kept = np.flatnonzero(used).tolist()
        rows = ((documents.titles[i], documents.texts[i], documents.gaps[i]) for i in kept)
        _write_arrow(folder / DOCUMENTS, rows)
        _write_arrow(folder / TASKS, (_task_row(renumbered(task, numbers)) for task in draft.tasks))
        files = {name: describe(folder / name) for name in (DOCUMENTS, TASKS)}
        card = replace(
            card,
            inputs=_inputs(draft.inputs),
            layout=draft.layout,
            environment=draft.environment,
            metric=draft.metric,
            tokenizer={"name": tokenizer.name, "fingerprint": tokenizer.fingerprint},
            counts=counts,
            files=files,
        )
        card.write(folder)
        opened = TaskSet(folder)  # what cannot be opened is not put in place
        for form in exports:
            name, write = EXPORTS[form]
            write(folder / name, opened, tokenizer)
    return open_tasks(out)


def _inputs(paths: Sequence[Path]) -> dict[str, str]:
    """The SHA-256 of each file by its name, after as many folders as make the names unique."""
    different = set(paths)
    depth = next(n for n in itertools.count(1) if len({path.parts[-n:] for path in paths}) == len(different))
    return {"/".join(path.parts[-depth:]): sha256(path) for path in paths}


def _task_row(task: Task) -> tuple[Any, ...]:
    meta = json.dumps(task.meta, ensure_ascii=False, sort_keys=True)
    return task.id, task.question, task.answers, task.documents, task.evidence, meta


def _write_arrow(path: Path, rows: Iterable[tuple[Any, ...]]) -> None:
    """Write rows as one record batch, which readers map as a whole, without holding it in memory."""
    schema, rows = SCHEMAS[path.name], iter(rows)
    with contextlib.ExitStack() as files:
        columns = [_Column(field.type, path.parent, files) for field in schema]
        while some := list(itertools.islice(rows, _ROWS)):
            for column, values in zip(columns, zip(*some, strict=True), strict=True):
                column.append(pa.array(values, column.kind))
        maps: list[mmap.mmap] = []
        batch = pa.RecordBatch.from_arrays([column.mapped(maps) for column in columns], schema=schema)
        sink = _Sink(files.enter_context(path.open("wb")), maps)
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(batch)


class _Column:
    """An array that is in temporary files: the places where its items end, or its numbers, and its texts."""

    def __init__(self, kind: pa.DataType, folder: Path, files: contextlib.ExitStack) -> None:
        self.kind, self._length, self._end = kind, 0, 0
        self._file, self._texts = (files.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(2))
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        self._child = _Column(kind.value_type, folder, files) if is_list else None
        self._has_offsets = not pa.types.is_integer(kind)
        is_large = pa.types.is_large_list(kind) or pa.types.is_large_string(kind)
        self._offsets = np.dtype(np.int64 if is_large else np.int32)
        if self._has_offsets:
            self._file.write(bytes(self._offsets.itemsize))  # the first begins at 0

    def append(self, array: pa.Array) -> None:
        """Write an array of the same type, which has no nulls, behind the others."""
        _, data, *texts = array.buffers()
        self._length += len(array)
        if not self._has_offsets:
            self._file.write(array.to_numpy().tobytes())
            return
        offsets = np.frombuffer(data, self._offsets)[array.offset : array.offset + len(array) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        self._file.write((offsets[1:] - first + self._end).astype(self._offsets).tobytes())
        self._end += last - first
        if self._child:
            self._child.append(array.values.slice(first, last - first))
        elif last > first:
            self._texts.write(texts[0][first:last])

    def mapped(self, maps: list[mmap.mmap]) -> pa.Array:
        """The whole array, over maps of the files, which are added to `maps`."""

        def buffer(file: Any) -> pa.Buffer:
            file.flush()
            if not file.tell():
                return pa.py_buffer(b"")
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return pa.py_buffer(maps[-1])

        children = [self._child.mapped(maps)] if self._child else None
        buffers = [None, buffer(self._file)]
        if self._has_offsets and not self._child:
            buffers.append(buffer(self._texts))
        return pa.Array.from_buffers(self.kind, self._length, buffers, 0, children=children)


class _Sink:
    """A file for Arrow's writer that gives mapped pages back once they are written.

    They would count as memory of this process until the maps are closed.
    """

    closed = False

    def __init__(self, file: Any, maps: Sequence[mmap.mmap]) -> None:
        self._file, self._maps = file, maps
        self.flush, self.tell = file.flush, file.tell

    def write(self, content: Any) -> None:
        view = memoryview(content)
        for start in range(0, len(view), _BLOCK):
            self._file.write(view[start : start + _BLOCK])
            if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
                for mapped in self._maps:
                    mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        self.closed = True


def _survey(draft: Draft, tokenizer: TextTokenizer) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """(D,) which documents some task reads, and the sizes that environments and readers of the card need.

    `max_` and `mean_` are over tasks.
    """
    layout, tokens, chars = draft.layout, draft.documents.tokens, draft.documents.chars
    used = np.zeros(len(tokens), np.bool_)
    sizes = np.zeros((len(draft.tasks), 5), np.int64)
    for row, task in zip(sizes, draft.tasks, strict=True):
        numbers = np.array(task.documents, np.int64)
        used[numbers] = True
        row[:3] = len(numbers), len(task.evidence), len(task.question)
        row[3:] = chars[numbers].sum(), tokens[numbers].sum()
    read, evidence, questions, of_chars, of_tokens = sizes.T
    most = int(read.max())
    header = layout.header.replace("{i}", str(most))
    of_chars = of_chars + (len(header) + len(layout.separator)) * read
    of_tokens = of_tokens + np.append(0, frame_tokens(tokenizer, layout, most))[read]
    counts = {
        "tasks": len(sizes),
        "documents": int(used.sum()),
        "max_documents": most,
        "max_evidence": int(evidence.max()),
        "max_question_chars": int(questions.max()),
        "max_chars": int(of_chars.max()),
        "max_tokens": int(of_tokens.max()),
        "mean_chars": round(of_chars.mean()),
        "mean_tokens": round(of_tokens.mean()),
    }
    return used, counts | ({"left_out": draft.left_out} if draft.left_out else {})
