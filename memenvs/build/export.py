"""A task set comes in; a file that another project reads goes out, field names as they have them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memenvs.context import Context, open_reader
from memenvs.metrics import BOXED_WINDOW, boxed_em, wrap_answer
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
_ANSWERS = pa.list_(pa.string())


def export(tasks: TaskSet, form: str, folder: Path, tokenizer: TextTokenizer) -> Path:
    """Write `folder/FORM.parquet` or `.jsonl` with every task of the set, its text in full.

    - `memagent`: the question as prompt and the `context` beside it, as MemAgent's training scripts read, for
      its boxed exact match: it knows that scorer by the `data_source` `hotpotqa`, whatever the set.
    - `verl`: text and question in one prompt, as verl's data loader reads, for the exact match in `<answer>`
      of its `default_compute_score`: by the `data_source` `searchR1_musique` for MuSiQue, else
      `searchR1_hotpotqa`.
    - `ruler`: `index`, `input`, `outputs`, `length`, as RULER's evaluation reads.
    - `jsonl`: everything we know. `evidence` has positions among the documents as they are read, from 0;
      `spans` [position, start, end], where `context[start:end]` is a sentence needed; `depths` where each
      evidence document begins, 0 to 1.

    Both trainers know nothing but alternatives. So the accepted answers of several objectives are one text,
    separated by "; "; and of a set in which every answer is asked for (NIAH's `string_match_all`) the
    alternatives are all answers in every order, separated by ", ". Part of the answers earns nothing there.

    Raises:
        ValueError: no such form; a task that MemAgent's reward would pay nothing for whatever the reply.
    """
    if form not in FORMS:
        raise ValueError(f"--export must be one of {', '.join(FORMS)}, got {form!r}")
    if not tasks.n_documents:
        raise ValueError(f"--export {form} writes the text of a task, and these questions have none")
    suffix, make, schema = FORMS[form]
    reader = open_reader(tasks, tokenizer)
    rows = (make(task, reader.context(task.documents), i, tasks) for i, task in enumerate(tasks))
    path = folder / f"{form}.{suffix}"
    if schema is not None:
        _write_parquet(path, rows, schema)
    else:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return path


def _memagent(task: Task, context: Context, index: int, tasks: TaskSet) -> Row:
    accepted = _alternatives(task, tasks)
    if not boxed_em(wrap_answer(accepted[0], "boxed"), accepted):
        raise ValueError(
            f"--export memagent: task {task.id} has the answer {accepted[0]!r:.80}, which MemAgent's reward "
            f"cannot find in a box in its last {BOXED_WINDOW} characters; leave the task out, or join fewer"
        )
    return {
        "data_source": "hotpotqa",
        "prompt": [{"role": "user", "content": task.question}],
        "context": context.text,
        "ability": "memory",
        "reward_model": {"style": "rule", "ground_truth": accepted},
        "extra_info": {"index": index, "question": task.question, "num_docs": len(task.documents)},
    }


def _verl(task: Task, context: Context, index: int, tasks: TaskSet) -> Row:
    return {
        "data_source": "searchR1_musique" if tasks.card.source == "musique" else "searchR1_hotpotqa",
        "prompt": [{"role": "user", "content": _one_prompt(task, context, "tag")}],
        "ability": "qa",
        "reward_model": {"style": "rule", "ground_truth": {"target": _alternatives(task, tasks)}},
        "extra_info": {"index": index, "id": task.id, "question": task.question},
    }


def _ruler(task: Task, context: Context, index: int, tasks: TaskSet) -> Row:
    return {
        "index": index,
        "input": _one_prompt(task, context, "boxed"),
        "outputs": _ground_truth(task),
        "length": len(context.gaps),
    }


def _jsonl(task: Task, context: Context, index: int, tasks: TaskSet) -> Row:
    positions = [task.documents.index(document) for document in task.evidence]
    spans = []
    for document, start, end in task.meta.get("spans", []):
        position = task.documents.index(document)
        (title,), (begin, _) = tasks.titles([document]), context.spans[position]
        begin += len(title) + 1 if title else 0  # of the text, behind the title and its newline
        spans.append([position, begin + start, begin + end])
    return {
        "id": task.id,
        "source": tasks.card.source,
        "question": task.question,
        "answers": [list(accepted) for accepted in task.answers],
        "context": context.text,
        "evidence": positions,
        "depths": [context.depth(position) for position in positions],
        "spans": spans,
        "tokens": len(context.gaps),
        "meta": {key: value for key, value in task.meta.items() if key != "spans"},
    }


def _one_prompt(task: Task, context: Context, answer_format: str) -> str:
    form = answer_form(answer_format, len(task.answers))
    return ONE_PROMPT.fill(question=task.question, context=context.text, format=form)


def _ground_truth(task: Task) -> list[str]:
    """Accepted answers; several objectives are one answer."""
    return list(task.answers[0]) if len(task.answers) == 1 else [gold_answer(task.answers, "em")]


def _alternatives(task: Task, tasks: TaskSet) -> list[str]:
    """Accepted answers for a reader that takes each of them for a whole answer."""
    if tasks.card.metric != "string_match_all":
        return _ground_truth(task)
    answers = [answer for accepted in task.answers for answer in accepted]
    return [", ".join(order) for order in itertools.permutations(answers)]


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


def _schema(*, context: bool, truth: pa.DataType, extra: list[tuple[str, pa.DataType]]) -> pa.Schema:
    reward = pa.struct([("style", pa.string()), ("ground_truth", truth)])
    fields = [("data_source", pa.string()), ("prompt", _MESSAGES)]
    fields += [("context", pa.large_string())] if context else []
    fields += [("ability", pa.string()), ("reward_model", reward), ("extra_info", pa.struct(extra))]
    return pa.schema(fields)


_Make = Callable[[Task, Context, int, TaskSet], Row]
FORMS: dict[str, tuple[str, _Make, pa.Schema | None]] = {
    "memagent": (
        "parquet",
        _memagent,
        _schema(
            context=True,
            truth=_ANSWERS,
            extra=[("index", pa.int64()), ("question", pa.string()), ("num_docs", pa.int64())],
        ),
    ),
    "verl": (
        "parquet",
        _verl,
        _schema(
            context=False,
            truth=pa.struct([("target", _ANSWERS)]),
            extra=[("index", pa.int64()), ("id", pa.string()), ("question", pa.string())],
        ),
    ),
    "ruler": ("jsonl", _ruler, None),
    "jsonl": ("jsonl", _jsonl, None),
}
