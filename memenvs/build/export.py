"""A task set comes in; a file that another project reads goes out, field names as they have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memenvs.context import Context, open_reader
from memenvs.prompts import Template
from memenvs.scoring import answer_form, gold_answer
from memenvs.tasks import Task, TaskSet
from memenvs.tokens import TextTokenizer

_ROWS = 64  # rows of long contexts held in memory at once

ONE_PROMPT = Template(
    """\
Read the text, then answer the question after it.

{context}

Question: {question}
Give the answer as short as it can be, in the form {format}.
""",
    required=("context", "question", "format"),
)

Row = dict[str, Any]
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_REWARD = pa.struct([("style", pa.string()), ("ground_truth", pa.list_(pa.string()))])


def export(tasks: TaskSet, form: str, folder: Path, tokenizer: TextTokenizer) -> Path:
    """Write `folder/FORM.parquet` or `.jsonl` with every task of the set, its text in full.

    The accepted answers of several objectives are one text, separated by "; ".

    - `memagent`: the question as prompt and the `context` beside it, as MemAgent's training scripts read.
    - `verl`: text and question in one prompt, as verl's data loader reads.
    - `ruler`: `index`, `input`, `outputs`, `length`, as RULER's evaluation reads.
    - `jsonl`: everything we know, evidence positions and depths included.

    Raises:
        ValueError: no such form.
    """
    if form not in FORMS:
        raise ValueError(f"--export must be one of {', '.join(FORMS)}, got {form!r}")
    suffix, make, schema = FORMS[form]
    reader = open_reader(tasks, tokenizer)
    name = str(tasks.card.source)
    rows = (make(task, reader.context(task.documents), i, name) for i, task in enumerate(tasks))
    path = folder / f"{form}.{suffix}"
    if schema is not None:
        _write_parquet(path, rows, schema)
    else:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return path


def _memagent(task: Task, context: Context, index: int, source: str) -> Row:
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": task.question}],
        "context": context.text,
        "ability": "memory",
        "reward_model": {"style": "rule", "ground_truth": _ground_truth(task)},
        "extra_info": {"index": index, "question": task.question, "num_docs": len(task.documents)},
    }


def _verl(task: Task, context: Context, index: int, source: str) -> Row:
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": _one_prompt(task, context)}],
        "ability": "qa",
        "reward_model": {"style": "rule", "ground_truth": _ground_truth(task)},
        "extra_info": {"index": index, "id": task.id, "question": task.question},
    }


def _ruler(task: Task, context: Context, index: int, source: str) -> Row:
    return {
        "index": index,
        "input": _one_prompt(task, context),
        "outputs": _ground_truth(task),
        "length": len(context.gaps),
    }


def _jsonl(task: Task, context: Context, index: int, source: str) -> Row:
    positions = [task.documents.index(document) for document in task.evidence]
    return {
        "id": task.id,
        "source": source,
        "question": task.question,
        "answers": [list(accepted) for accepted in task.answers],
        "context": context.text,
        "evidence": positions,
        "depths": [context.depth(position) for position in positions],
        "tokens": len(context.gaps),
        "meta": task.meta,
    }


def _one_prompt(task: Task, context: Context) -> str:
    form = answer_form("boxed", len(task.answers))
    return ONE_PROMPT.fill(question=task.question, context=context.text, format=form)


def _ground_truth(task: Task) -> list[str]:
    """Accepted answers. Those who read this take them for alternatives: several objectives are one answer."""
    return list(task.answers[0]) if len(task.answers) == 1 else [gold_answer(task.answers, "em")]


def _write_parquet(path: Path, rows: Iterator[Row], schema: pa.Schema) -> None:
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        held: list[Row] = []
        for row in rows:
            held.append(row)
            if len(held) == _ROWS:
                writer.write_table(pa.Table.from_pylist(held, schema))
                held.clear()
        if held:
            writer.write_table(pa.Table.from_pylist(held, schema))


def _schema(*, context: bool, extra: list[tuple[str, pa.DataType]]) -> pa.Schema:
    fields = [("data_source", pa.string()), ("prompt", _MESSAGES)]
    fields += [("context", pa.large_string())] if context else []
    fields += [("ability", pa.string()), ("reward_model", _REWARD), ("extra_info", pa.struct(extra))]
    return pa.schema(fields)


_Make = Callable[[Task, Context, int, str], Row]
FORMS: dict[str, tuple[str, _Make, pa.Schema | None]] = {
    "memagent": (
        "parquet",
        _memagent,
        _schema(
            context=True,
            extra=[("index", pa.int64()), ("question", pa.string()), ("num_docs", pa.int64())],
        ),
    ),
    "verl": (
        "parquet",
        _verl,
        _schema(context=False, extra=[("index", pa.int64()), ("id", pa.string()), ("question", pa.string())]),
    ),
    "ruler": ("jsonl", _ruler, None),
    "jsonl": ("jsonl", _jsonl, None),
}
