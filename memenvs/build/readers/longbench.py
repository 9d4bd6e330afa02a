"""Read LongBench's question answering in English, contexts to the character."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memenvs.build.contexts import WHOLE, KeptContexts, split_documents
from memenvs.build.examples import Example
from memenvs.tasks.records import Answer, Id, read_records, scorable
from memenvs.tasks.taskset import Layout

TASKS = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")
"""Those of LongBench's tasks, and of LongBench-E's, that `longbench_f1` scores."""

_WHAT = f"a file of LongBench's data.zip for question answering in English ({', '.join(TASKS)})"


class _LongBenchRecord(msgspec.Struct):
    input: str
    context: str
    answers: list[Answer]
    dataset: str
    _id: Id
    length: int | None = None


def read_longbench(source: str, split: str = "train") -> KeptContexts:
    """The questions of one of LongBench's files, scored by `longbench_f1` (its `qa_f1_score`).

    The documents are the passages that a context marks, `Passage 1:` on a line and so on (HotpotQA,
    2WikiMultihopQA, MuSiQue); joined they are its text, to the character. A story or a paper (NarrativeQA,
    Qasper, MultiFieldQA) is one document. The files do not say which passages are evidence.

    Raises:
        ValueError: the source is something else, or of a task that another metric scores.
    """
    records = list(read_records(source, split, _LongBenchRecord, _WHAT))
    for number, record in enumerate(records):
        if record.dataset.removesuffix("_e") not in TASKS:
            raise ValueError(f"{source} is not {_WHAT}: record {number} is of {record.dataset!r:.40}")
    layout = _find_layout([record.context for record in records])
    examples = (
        Example(
            str(record._id),
            record.input,
            scorable(record.answers),
            split_documents(record.context, layout),
            evidence=(),
            meta={"dataset": record.dataset, "length": record.length},
        )
        for record in records
    )
    return KeptContexts(examples, layout, "longbench_f1", source)


def _find_layout(contexts: Sequence[str]) -> Layout:
    """The layout of a file: passages with the longest separator that finds as many, or the whole text."""
    layouts = [Layout("Passage {i}:\n", separator) for separator in ("\n", "\n\n")]
    counts = [[len(split_documents(context, layout)) for context in contexts] for layout in layouts]
    if 0 in counts[0]:
        return WHOLE
    return layouts[counts[0] == counts[1]]
