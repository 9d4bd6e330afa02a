"""Read questions without documents in the form of FlashRAG's collection, to be answered by searching."""

from __future__ import annotations

from collections.abc import Iterator

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.build.readers.records import read_records
from memenvs.tasks.taskset import Layout, OpenRecord, open_question

_WHAT = "JSON Lines of FlashRAG's collection (train.jsonl, dev.jsonl or test.jsonl of a data set)"


def read_flashrag(source: str, split: str = "train") -> KeptContexts:
    """The questions of a file of `id`, `question`, `golden_answers` and `metadata`, without documents.

    Environments that search read the same file (`memenvs.tasks.taskset.open_questions`); they refuse a
    question that cannot be scored, which is left out here.

    Args:
        source: train.jsonl, dev.jsonl or test.jsonl of a data set, or hf:NAME[:CONFIG].

    Raises:
        ValueError: the source is something else; the line names the record.
    """

    def examples() -> Iterator[Example]:
        for number, record in enumerate(read_records(source, split, OpenRecord, _WHAT)):
            task = open_question(record, "", f"{source}: record {number}")
            yield Example(task.id, task.question, task.answers[0], (), (), meta=task.meta)

    return KeptContexts(examples(), Layout(), "em", source, "MemSearchQA-v0")
