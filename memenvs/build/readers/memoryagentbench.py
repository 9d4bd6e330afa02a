"""Read MemoryAgentBench: a long context, and many questions about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from memenvs.build.contexts import WHOLE, KeptContexts, split_documents
from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    iterate_records,
    kept_examples,
    read_question,
    read_scorable,
    read_text,
)
from memenvs.tasks.taskset import Layout

_WHAT = "a file of MemoryAgentBench (Accurate_Retrieval … Test_Time_Learning .parquet)"
_METRICS = {
    **dict.fromkeys(("ruler_qa", "eventqa", "factconsolidation"), "sub_em"),
    **dict.fromkeys(("icl_", "detective_qa", "recsys_"), "em"),
    "longmemeval": "f1",
}
"""By the beginning of a subset's name: what its README reports, but for LongMemEval, which it has judged, and
ReDial, whose answers are numbers of movies that a reward method compares with the names of a reply."""


def read_memoryagentbench(source: str, split: str = "train", subset: str | None = None) -> KeptContexts:
    """The questions of a subset of MemoryAgentBench, each over its context; a context is stored once.

    `sub_em` scores the questions of RULER, EventQA and FactConsolidation, `em` those of the classifications
    and DetectiveQA. LongMemEval's are judged (`Judge(rubric="longmemeval")`; `f1` without one). The movies of
    ReDial are scored by `MovieRecall` (recall at 5); without it `em` compares a reply with their numbers.
    InfBench's summaries are refused: their score is a judge's, fact by fact. No evidence is marked. Documents
    are those that a context marks by `Document 1:`, else it is one.

    Args:
        source: Accurate_Retrieval-….parquet, Conflict_Resolution-….parquet and the others, or
            hf:ai-hyz/MemoryAgentBench.
        split: of an `hf:` data set: `Accurate_Retrieval`, `Test_Time_Learning`, `Long_Range_Understanding` or
            `Conflict_Resolution`.
        subset: the source in the records' metadata, such as ruler_qa1_197K; needed where a file
            holds several.

    Raises:
        ValueError: the source is something else, or holds several subsets and none is named.
    """
    keys = ("context", "questions", "answers", "metadata")
    records = list(iterate_records(source, split, keys=keys, what=_WHAT))
    names = Counter(_subset(record, number, source) for number, record in enumerate(records))
    if subset is None and len(names) > 1:
        raise ValueError(f"{source} holds several subsets; give one by --subset: {', '.join(sorted(names))}")
    chosen = subset or next(iter(names))
    if chosen not in names:
        raise ValueError(f"{source} has no subset {chosen!r}; give one of {', '.join(sorted(names))}")
    metric = next((metric for start, metric in _METRICS.items() if chosen.startswith(start)), None)
    if metric is None:
        raise ValueError(
            f"subset {chosen!r} of {source} is scored by what memenvs has not (InfBench's summaries by a "
            f"judge of each fact); give one whose name begins with {', '.join(_METRICS)}"
        )
    mine = [record for record in records if record["metadata"]["source"] == chosen]
    contexts = [read_text(record["context"], "context", f"a record of {source}") for record in mine]
    layout = Layout() if all(split_documents(context, Layout()) for context in contexts) else WHOLE
    examples = kept_examples(_numbered(mine), partial(_examples, layout=layout), source=source, what=_WHAT)
    return KeptContexts(examples, layout, metric, source)


def _subset(record: Record, number: int, source: str) -> str:
    metadata = record["metadata"]
    if not isinstance(metadata, dict) or not isinstance(metadata.get("source"), str):
        raise ValueError(f"{source} is not {_WHAT}: record {number} has no source in its metadata")
    return str(metadata["source"])


def _numbered(records: Sequence[Record]) -> Iterator[Record]:
    return ({**record, "number": number} for number, record in enumerate(records))


def _examples(record: Record, where: str, layout: Layout) -> Iterator[Example | None]:
    context, metadata = record["context"], record["metadata"]
    documents = (("", context),) if layout is WHOLE else split_documents(context, layout)
    questions, answers = _list(record["questions"]), _list(record["answers"])
    if len(questions) == 1:
        answers = [answers[0] if len(answers) == 1 else answers]
    if len(questions) != len(answers):
        raise ValueError(
            f"{where} has {len(questions)} questions and answers to {len(answers)}; give {_WHAT}"
        )
    for number, (question, accepted) in enumerate(zip(questions, answers, strict=True)):
        scorable = read_scorable(_list(accepted), where)
        if scorable is None:
            yield None
            continue
        kind = _of(metadata, "question_types", number, len(questions))
        own = _of(metadata, "qa_pair_ids", number, len(questions))
        id_ = str(own) if own else f"{metadata['source']}-{record['number']}-{number}"
        yield Example(
            read_text(f"{kind}/{id_}" if kind else id_, "id", where),
            read_question(question, where),
            scorable,
            documents or (),
            evidence=(),
            meta={"type": kind} if kind else {},
        )


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _of(metadata: dict[str, Any], field: str, number: int, questions: int) -> Any:
    """What a list of the metadata says of a question; None where it is not a list of as many."""
    values = metadata.get(field)
    return values[number] if isinstance(values, list) and len(values) == questions else None
