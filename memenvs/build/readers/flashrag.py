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

    They are read as environments that search read the file itself (`memenvs.tasks.taskset.open_question`),
    but for questions that cannot be scored, which are left out here and refused there.

    Args:
        source: train.jsonl, dev.jsonl or test.jsonl of a data set, or hf:NAME[:CONFIG].
        split: of an `hf:` data set.

    Raises:
        ValueError: the source is something else; the line names the record.
    """
    return KeptContexts(_examples(source, split), Layout(), "em", source, "MemSearchQA-v0")


def _examples(source: str, split: str) -> Iterator[Example | None]:
    for number, record in enumerate(read_records(source, split, OpenRecord, _WHAT)):
        task = open_question(record, "", f"{source}: record {number}")
        yield Example(task.id, task.question, task.answers[0], (), (), meta=task.meta) if task else None
