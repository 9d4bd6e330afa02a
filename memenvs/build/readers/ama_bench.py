"""Read AMA-Bench: questions about what an agent did and saw."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.tasks.records import Answer, Id, read_records, scorable
from memenvs.tasks.taskset import Layout

_WHAT = "AMA-Bench's open_end_qa_set.jsonl"


class _AMATurn(msgspec.Struct):
    turn_idx: int
    action: str | None
    observation: str | None


class _AMAQuestion(msgspec.Struct):
    question: str
    answer: Answer
    type: str | None = None


class _AMARecord(msgspec.Struct):
    episode_id: Id
    task: str
    task_type: str
    domain: str
    trajectory: list[_AMATurn]
    qa_pairs: list[_AMAQuestion]


def read_ama_bench(source: str, split: str = "train") -> KeptContexts:
    """The questions of AMA-Bench, each after the whole trajectory of an agent.

    The first document is the agent's task. Each of the others is a step, numbered as in the file, with its
    action and its observation. Nothing is marked as evidence. The benchmark is scored by a judge; the card
    names `f1`.

    Raises:
        ValueError: the source is something else; the line names the record.
    """

    def examples() -> Iterator[Example]:
        for record in read_records(source, split, _AMARecord, _WHAT):
            documents = [("Task Description", record.task)]
            for turn in record.trajectory:
                text = f"Action: {turn.action or ''}\nObservation: {turn.observation or ''}"
                documents.append((f"Step {turn.turn_idx}:", text))
            for order, asked in enumerate(record.qa_pairs):
                yield Example(
                    f"{record.episode_id}-{order}",
                    asked.question,
                    scorable([asked.answer]),
                    tuple(documents),
                    evidence=(),
                    meta={"type": asked.type, "task_type": record.task_type, "domain": record.domain},
                )

    return KeptContexts(examples(), Layout("", "\n\n"), "f1", source)
