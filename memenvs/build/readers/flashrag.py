"""Read questions without documents, to be answered by searching."""

from __future__ import annotations

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.tasks.taskset import Layout, read_open


def read_flashrag(source: str, split: str = "train") -> KeptContexts:
    """The questions of a file as FlashRAG's collection or the benchmark's authors have it, without documents.

    Environments that search read the same files (`memenvs.tasks.taskset.open_questions`).

    Raises:
        ValueError: the source is something else; the line names the record.
    """
    examples = (
        Example(task.id, task.question, task.answers[0], (), (), meta=task.meta)
        for task in read_open(source, split)
    )
    return KeptContexts(examples, Layout(), "em", source, "MemSearchQA-v0")
