"""Task sets in the forms that other projects read."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from memenvs.build.draft import TEXTS
from memenvs.core.files import DOCUMENTS, TASKS
from memenvs.core.text import Template
from memenvs.tasks.context import Context, open_reader
from memenvs.tasks.metrics import ALL_ANSWERS, BOXED_WINDOW, answer_form, boxed_em, gold_answer, wrap_answer
from memenvs.tasks.taskset import Task, TaskSet, read_arrow
from memenvs.tasks.tokens import TextTokenizer

_MOST_ORDERED = 6  # answers whose orders, 720, are listed for a reader of alternatives
_ROWS = 64  # rows of long contexts held in memory at once

ONE_PROMPT = Template(
    """\
Read the text, then answer the question after it.

{context}

Question: {question}
Give the answer as short as possible, in the form {format}.
""",
    required=("context", "question", "format"),
)
# Licences of our sources, as the hub spells them.
_HUB_LICENCES = ("mit", "apache-2.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0")


def _rows(
    make: Callable[[Task, Context, int, TaskSet], dict[str, Any]],
    path: Path,
    tasks: TaskSet,
    tokenizer: TextTokenizer,
) -> Iterator[dict[str, Any]]:
    """A row for each task, with its text in full."""
    if not tasks.n_documents:
        raise ValueError(
            f"--export {path.stem} writes the text of a task, and these questions have none; use --export "
            "rows"
        )
    reader = open_reader(tasks, tokenizer)
    return (make(task, reader.context(task.documents), i, tasks) for i, task in enumerate(tasks))


def _write_jsonl(make: Any, path: Path, tasks: TaskSet, tokenizer: TextTokenizer) -> None:
    rows = _rows(make, path, tasks, tokenizer)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_parquet(make: Any, path: Path, tasks: TaskSet, tokenizer: TextTokenizer) -> None:
    rows = _rows(make, path, tasks, tokenizer)
    batches = iter(lambda: list(itertools.islice(rows, _ROWS)), [])
    first = next(batches)
    schema = pa.Table.from_pylist(first[:1]).schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in itertools.chain([first], batches):
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _memagent(task: Task, context: Context, index: int, tasks: TaskSet) -> dict[str, Any]:
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


def _verl(task: Task, context: Context, index: int, tasks: TaskSet) -> dict[str, Any]:
    return {
        "data_source": "searchR1_musique" if tasks.card.source == "musique" else "searchR1_hotpotqa",
        "prompt": [{"role": "user", "content": _one_prompt(task, context, "tag")}],
        "ability": "qa",
        "reward_model": {"style": "rule", "ground_truth": {"target": _alternatives(task, tasks)}},
        "extra_info": {
            "index": index,
            "task": index,
            "split": _split(tasks),
            "id": task.id,
            "question": task.question,
        },
    }


RowSplit = Literal["train", "test"]


def _split(tasks: TaskSet) -> RowSplit:
    """`"train"`, or `"test"` of a set to evaluate on."""
    arguments = tasks.card.arguments
    return "train" if "part" not in arguments and arguments.get("split", "train") == "train" else "test"


def task_row(index: int, task: int, split: RowSplit, **info: Any) -> dict[str, Any]:
    """A row that names a task by its number, for verl, which plays it by our agent loop.

    Args:
        index: number of the row.
        task: number of the task.
        split: what the row is for.
        **info: more of `extra_info`.
    """
    return {
        "prompt": [{"role": "user", "content": f"task {task}"}],
        "data_source": "memenvs",
        "agent_name": "memenvs" if split == "train" else "memenvs_test",
        "extra_info": {"index": index, "task": task, "split": split, **info},
    }


def _write_rows(path: Path, tasks: TaskSet, tokenizer: TextTokenizer) -> None:
    """The tasks by their numbers, for trainers that play them by one of our adapters."""
    split = _split(tasks)
    rows = [
        {**task_row(index, index, split, id=task.id), "task": index, "metadata": {"task": index}}
        for index, task in enumerate(tasks)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def _ruler(task: Task, context: Context, index: int, tasks: TaskSet) -> dict[str, Any]:
    return {
        "index": index,
        "input": _one_prompt(task, context, "boxed"),
        "outputs": _ground_truth(task),
        "length": len(context.gaps),
    }


def _jsonl(task: Task, context: Context, index: int, tasks: TaskSet) -> dict[str, Any]:
    positions = [task.documents.index(document) for document in task.evidence]
    spans = []
    for document, start, end in task.meta.get("spans", []):
        position = task.documents.index(document)
        (title,), (begin, _) = tasks.titles([document]), context.spans[position]
        begin += len(title) + 1 if title else 0  # of the text, after the title and its newline
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
    """Accepted answers for a reader to whom each is a complete answer."""
    if tasks.card.metric not in ALL_ANSWERS:
        return _ground_truth(task)
    answers = [answer for accepted in task.answers for answer in accepted]
    if len(answers) > _MOST_ORDERED:
        raise ValueError(
            f"task {task.id} asks for {len(answers)} answers in any order; the orders of more than "
            f"{_MOST_ORDERED} cannot be listed as alternatives; use --export ruler or jsonl, which list the "
            "answers"
        )
    return [", ".join(order) for order in itertools.permutations(answers)]


def _write_hub(path: Path, tasks: TaskSet, tokenizer: TextTokenizer) -> None:
    """A folder with the tasks, the documents that they number, and a dataset card."""
    path.mkdir()
    card, whole = tasks.card, {"compression": "zstd", "store_schema": False}  # plain types, for any reader
    pq.write_table(read_arrow(tasks.path / TASKS), path / "tasks.parquet", **whole)
    documents = read_arrow(tasks.path / DOCUMENTS).drop_columns("gaps")
    pq.write_table(documents, path / "documents.parquet", **whole)
    licence = card.licence.lower().replace(" ", "-")
    text = (
        (TEXTS / "hub_card.txt")
        .read_text(encoding="utf-8")
        .format(
            card=card,
            licence=licence if licence in _HUB_LICENCES else "other",
            split=re.sub(r"\W", "_", card.arguments.get("split", "train")),
            citation=card.citation and f"\nThe data is from {card.citation} ({card.licence}).",
        )
    )
    (path / "README.md").write_text(text, encoding="utf-8")


Export = Literal["rows", "memagent", "verl", "ruler", "jsonl", "hf"]
EXPORTS: dict[Export, tuple[str, Callable[[Path, TaskSet, TextTokenizer], None]]] = {
    "rows": ("rows.parquet", _write_rows),
    "memagent": ("memagent.parquet", partial(_write_parquet, _memagent)),
    "verl": ("verl.parquet", partial(_write_parquet, _verl)),
    "ruler": ("ruler.jsonl", partial(_write_jsonl, _ruler)),
    "jsonl": ("jsonl.jsonl", partial(_write_jsonl, _jsonl)),
    "hf": ("hf", _write_hub),
}
"""The file or folder of each form, and what writes it.

- `rows`: the tasks by their numbers, without texts: what `memenvs.adapters` play in TRL (`prompt`), verl
  (`extra_info`) and SkyRL (`task`).
- `memagent`: the question as prompt and the `context` beside it, as MemAgent's training scripts read, for its
  boxed exact match: it knows that scorer by the `data_source` `hotpotqa`, whatever the set.
- `verl`: text and question in one prompt, as verl's data loader reads, for the exact match in `<answer>` of
  its `default_compute_score`: by the `data_source` `searchR1_musique` for MuSiQue, otherwise
  `searchR1_hotpotqa`.
- `ruler`: `index`, `input`, `outputs`, `length`, as RULER's evaluation reads.
- `jsonl`: everything we know. `evidence` has positions among the documents as they are read, from 0; `spans`
  [position, start, end], where `context[start:end]` is a sentence needed; `depths` where each evidence
  document begins, 0 to 1.
- `hf`: a folder that `datasets.load_dataset` reads, and that can be uploaded: tasks, and documents by number.

MemAgent and verl accept only alternatives. So the accepted answers of several objectives are one text,
separated by "; "; where a set asks for every answer (NIAH), the alternatives are all answers in every order,
separated by ", ". Part of the answers earns nothing there. They refuse a task with too many answers to list
their orders, and `memagent` one that its reward would never pay.
"""
