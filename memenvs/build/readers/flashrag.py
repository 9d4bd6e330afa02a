"""Read questions without documents in the form of FlashRAG's collection, to be answered by searching."""

from __future__ import annotations

from collections.abc import Iterator

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.build.readers.records import Record, iterate_records, kept_examples
from memenvs.tasks.taskset import Layout, open_question

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
    records = iterate_records(source, split, keys=("id", "question", "golden_answers"), what=_WHAT)
    return KeptContexts(
        kept_examples(records, _examples, source=source, what=_WHAT), Layout(), "em", source, "MemSearchQA-v0"
    )


def _examples(record: Record, where: str) -> Iterator[Example | None]:
    task = open_question(record, "", where)
    if task is None:
        yield None
        return
    yield Example(
        task.id,
        task.question,
        task.answers[0],
        paragraphs=(),
        evidence=(),
        meta=task.meta,
    )
