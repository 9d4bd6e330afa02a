"""Read LongBench's question answering in English, contexts to the character."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from memenvs.build.contexts import WHOLE, KeptContexts, split_documents
from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    kept_examples,
    read_id,
    read_question,
    read_records,
    read_scorable,
    read_text,
)
from memenvs.tasks.taskset import Layout

TASKS = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")
"""Those of LongBench's tasks, and of LongBench-E's, that `longbench_f1` scores."""

_WHAT = f"a file of LongBench's data.zip for question answering in English ({', '.join(TASKS)})"
_KEYS = ("input", "context", "answers", "dataset", "_id")


def read_longbench(source: str, split: str = "train") -> KeptContexts:
    """The questions of one of LongBench's files, scored by `longbench_f1` (its `qa_f1_score`).

    The documents are the passages that a context marks, `Passage 1:` on a line and so on (HotpotQA,
    2WikiMultihopQA, MuSiQue); joined they are its text, to the character. A story or a paper (NarrativeQA,
    Qasper, MultiFieldQA) is one document. The files do not say which passages are evidence.

    Args:
        source: narrativeqa.jsonl, qasper.jsonl, 2wikimqa.jsonl, musique.jsonl … of data.zip, or
            hf:NAME[:CONFIG].
        split: of an `hf:` data set.

    Raises:
        ValueError: the source is something else, or of a task that another metric scores.
    """
    records = read_records(source, split, keys=_KEYS, what=_WHAT)
    for number, record in enumerate(records):
        if str(record["dataset"]).removesuffix("_e") not in TASKS:
            raise ValueError(f"{source} is not {_WHAT}: record {number} is of {record['dataset']!r:.40}")
    contexts = [read_text(record["context"], "context", f"a record of {source}") for record in records]
    examples = partial(_examples, layout=(layout := find_layout(contexts)))
    return KeptContexts(
        kept_examples(records, examples, source=source, what=_WHAT), layout, "longbench_f1", source
    )


def find_layout(contexts: Sequence[str]) -> Layout:
    """The layout of a file: passages with the longest separator that finds as many, or the whole text."""
    layouts = [Layout("Passage {i}:\n", separator) for separator in ("\n", "\n\n")]
    counts = [[len(split_documents(context, layout) or ()) for context in contexts] for layout in layouts]
    if 0 in counts[0]:
        return WHOLE
    return layouts[counts[0] == counts[1]]


def _examples(record: Record, where: str, layout: Layout) -> Iterator[Example | None]:
    context = record["context"]
    documents = (("", context),) if layout is WHOLE else split_documents(context, layout)
    answers = read_scorable(record["answers"], where)
    if answers is None:
        yield None
        return
    yield Example(
        read_id(record["_id"], where),
        read_question(record["input"], where),
        answers,
        documents or (),
        evidence=(),
        meta={key: record[key] for key in ("dataset", "length") if key in record},
    )
