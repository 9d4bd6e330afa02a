"""Read the files that MemAgent trains and evaluates on, their contexts to the character."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from memenvs.build.contexts import WHOLE, KeptContexts, split_documents
from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    iterate_records,
    kept_examples,
    read_id,
    read_question,
    read_scorable,
    read_text,
)
from memenvs.tasks.taskset import Layout

_WHAT = "MemAgent's hotpotqa_train.parquet, hotpotqa_dev.parquet or eval_*.json"
_Fields = Callable[[Record], tuple[object, object, dict[str, object]]]


def read_memagent(source: str, split: str = "train") -> KeptContexts:
    """The questions of a training file of MemAgent (Parquet), or of an evaluation file (JSON).

    The documents are those that the context marks, `Document 1:` on a line and so on; joined they are its
    text, to the character. A context that marks none, as of RULER's needles, is one document. The files do
    not say which documents are evidence.

    A training file is scored by `boxed_em`, as MemAgent's reward does; an evaluation file by
    `memagent_sub_em`, which its evaluation reports beside `em` and `f1`; of RULER's tasks in its form
    (`outputs` in the place of `answers`) those without marked documents by `string_match_all`.

    Args:
        source: hotpotqa_train.parquet, hotpotqa_dev.parquet, eval_*.json, or hf:NAME[:CONFIG].
        split: of an `hf:` data set.

    Raises:
        ValueError: the source is something else; the line names it.
    """
    records = iterate_records(source, split, keys=("context",), what=_WHAT)
    first = next(records)
    fields, metric = _form(first, source)
    layout = Layout() if split_documents(str(first["context"]), Layout()) else WHOLE
    if layout is WHOLE and "outputs" in first:
        metric = "string_match_all"
    examples = partial(_examples, fields=fields, layout=layout)
    records = itertools.chain([first], records)
    return KeptContexts(kept_examples(records, examples, source=source, what=_WHAT), layout, metric, source)


def _form(record: Record, source: str) -> tuple[_Fields, str]:
    """How the fields of a file's records are found, and the file's metric."""
    if {"prompt", "reward_model"} <= set(record):
        return _of_training, "boxed_em"
    if "input" in record and not {"answers", "outputs"}.isdisjoint(record):
        return _of_evaluation, "memagent_sub_em"
    raise ValueError(
        f"{source} is not {_WHAT}: record 0 has neither input and answers, nor prompt and reward_model"
    )


def _of_training(record: Record) -> tuple[object, object, dict[str, object]]:
    extra = record.get("extra_info") or {}
    return record["prompt"][0]["content"], record["reward_model"]["ground_truth"], extra


def _of_evaluation(record: Record) -> tuple[object, object, dict[str, object]]:
    return record["input"], record["answers"] if "answers" in record else record["outputs"], record


def _examples(record: Record, where: str, fields: _Fields, layout: Layout) -> Iterator[Example | None]:
    question, accepted, extra = fields(record)
    context = read_text(record["context"], "context", where)
    documents = (("", context),) if layout is WHOLE else split_documents(context, layout)
    if not documents or not context:
        raise ValueError(
            f"{where} has a context that does not begin with 'Document 1:', as the first one does"
        )
    answers = read_scorable(accepted, where)
    if answers is None:
        yield None
        return
    yield Example(
        read_id(extra.get("index", where.split()[1]), where),
        read_question(question, where),
        answers,
        documents,
        evidence=(),
        meta={key: extra[key] for key in ("num_docs", "length") if extra.get(key) is not None},
    )
