"""Read MemoryAgentBench: a long context, and many questions about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from memenvs.build.contexts import WHOLE, Example, KeptContexts, split_documents
from memenvs.build.options import Kept
from memenvs.tasks.cells import Answer, scorable
from memenvs.tasks.records import read_records
from memenvs.tasks.taskset import Layout

_WHAT = "a file of MemoryAgentBench (Accurate_Retrieval … Test_Time_Learning .parquet)"
_METRICS = {
    **dict.fromkeys(("ruler_qa", "eventqa", "factconsolidation"), "sub_em"),
    **dict.fromkeys(("icl_", "detective_qa"), "em"),
    "longmemeval": "f1",
}
"""What a subset's README reports, by the beginning of its name, except for LongMemEval, which a judge
grades."""


class _Metadata(msgspec.Struct):
    source: str
    question_types: list[Any] | None = None
    qa_pair_ids: list[Any] | None = None


class _MemoryAgentBenchRecord(msgspec.Struct):
    context: str
    questions: list[str]
    answers: list[Answer | list[Answer]]
    metadata: _Metadata


@dataclass(frozen=True, kw_only=True)
class MemoryAgentBench(Kept):
    """MemoryAgentBench."""

    subset: str | None = None
    """the source in the records' metadata, such as ruler_qa1_197K; needed where a file holds several."""


def read_memoryagentbench(source: str, split: str = "train", subset: str | None = None) -> KeptContexts:
    """The questions of a subset of MemoryAgentBench, each over its context; a context is stored once.

    `sub_em` scores the questions of RULER, EventQA and FactConsolidation, `em` those of the classifications
    and DetectiveQA. LongMemEval's are judged (`Judge(rubric="longmemeval")`; `f1` without one).
    InfBench's summaries are refused, because their score is a judge's, fact by fact, and so are ReDial's
    recommendations, whose score is the recall at 5 of movies, matched by their names. No evidence is marked.
    Documents are those that a context marks by `Document 1:`; one that marks none is one document.

    Args:
        split: of an `hf:` data set: `Accurate_Retrieval`, `Test_Time_Learning`, `Long_Range_Understanding` or
            `Conflict_Resolution`.
        subset: the source in the records' metadata; needed where a file holds several.

    Raises:
        ValueError: the source is something else, or holds several subsets and none is named.
    """
    records = list(read_records(source, split, _MemoryAgentBenchRecord, _WHAT))
    names = sorted({record.metadata.source for record in records})
    if subset is None and len(names) > 1:
        raise ValueError(f"{source} holds several subsets; give one by --subset: {', '.join(names)}")
    chosen = subset or names[0]
    if chosen not in names:
        raise ValueError(f"{source} has no subset {chosen!r}; give one of {', '.join(names)}")
    metric = next((metric for start, metric in _METRICS.items() if chosen.startswith(start)), None)
    if metric is None:
        raise ValueError(
            f"subset {chosen!r} of {source} has no metric in memenvs (InfBench's summaries are scored by "
            f"a judge of each fact, ReDial by the recall at 5 of movies); give one whose name begins with "
            f"{', '.join(_METRICS)}"
        )
    mine = [record for record in records if record.metadata.source == chosen]
    layout = Layout() if all(split_documents(record.context, Layout()) for record in mine) else WHOLE
    examples = (
        example
        for place, record in enumerate(mine)
        for example in _examples(record, place, split_documents(record.context, layout), source)
    )
    return KeptContexts(examples, layout, metric, source)


def _examples(
    record: _MemoryAgentBenchRecord, place: int, documents: tuple[tuple[str, str], ...], source: str
) -> Iterator[Example]:
    questions, answers, about = record.questions, record.answers, record.metadata
    if len(questions) == 1 < len(answers):
        answers = [[answer for answer in answers if not isinstance(answer, list)]]
    if len(questions) != len(answers):
        counts = f"{len(questions)} questions and answers to {len(answers)}"
        raise ValueError(f"{source}: record {place} of {about.source} has {counts}; give {_WHAT}")
    kinds, ids = (
        values if values and len(values) == len(questions) else [None] * len(questions)
        for values in (about.question_types, about.qa_pair_ids)
    )
    for number, (question, accepted) in enumerate(zip(questions, answers, strict=True)):
        kind, id_ = kinds[number], ids[number] or f"{about.source}-{place}-{number}"
        yield Example(
            f"{kind}/{id_}" if kind else str(id_),
            question,
            scorable(accepted if isinstance(accepted, list) else [accepted]),
            documents,
            evidence=(),
            meta={"type": kind} if kind else {},
        )
