"""Read the files that MemAgent trains and evaluates on, their contexts to the character."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from memenvs.build.contexts import WHOLE, KeptContexts, split_documents
from memenvs.build.examples import Example
from memenvs.tasks.records import Answer, Id, read_records, scorable
from memenvs.tasks.taskset import Layout

_WHAT = "MemAgent's hotpotqa_train.parquet, hotpotqa_dev.parquet or eval_*.json"


class _MemAgentMessage(msgspec.Struct):
    content: str


class _Truth(msgspec.Struct):
    ground_truth: Annotated[list[Answer], Meta(min_length=1)]


class _MemAgentFacts(msgspec.Struct):
    """What either form says of a question beside it."""

    index: Id | None = None
    num_docs: int | None = None
    length: int | None = None


class _MemAgentRecord(_MemAgentFacts, kw_only=True):
    """A question to evaluate on, or one to train on (`prompt`, `reward_model`)."""

    context: str
    input: str | None = None
    answers: Annotated[list[Answer], Meta(min_length=1)] | None = None
    outputs: Annotated[list[Answer], Meta(min_length=1)] | None = None
    prompt: Annotated[list[_MemAgentMessage], Meta(min_length=1)] | None = None
    reward_model: _Truth | None = None
    extra_info: _MemAgentFacts | None = None

    @property
    def asked(self) -> tuple[str, list[Answer], _MemAgentFacts] | None:
        """The question, its answers and the facts; None where the record has neither form."""
        if self.prompt and self.reward_model:
            return self.prompt[0].content, self.reward_model.ground_truth, self.extra_info or _MemAgentFacts()
        answers = self.answers or self.outputs
        return None if self.input is None or answers is None else (self.input, answers, self)


def read_memagent(source: str, split: str = "train") -> KeptContexts:
    """The questions of a training file of MemAgent (Parquet), or of an evaluation file (JSON).

    The documents are those that the context marks, `Document 1:` on a line and so on; joined they are its
    text, to the character. A context that marks none, as of RULER's needles, is one document. The files do
    not say which documents are evidence.

    A training file is scored by `boxed_em`, as MemAgent's reward does; an evaluation file by
    `memagent_sub_em`, which its evaluation reports beside `em` and `f1`; of RULER's tasks in its form
    (`outputs` in the place of `answers`) those without marked documents by `string_match_all`.

    Raises:
        ValueError: the source is something else; the line names it.
    """
    records = read_records(source, split, _MemAgentRecord, _WHAT)
    first = next(records)
    layout = Layout() if split_documents(first.context, Layout()) else WHOLE
    metric = "boxed_em" if first.reward_model else "memagent_sub_em"
    if layout is WHOLE and first.outputs and not first.answers:
        metric = "string_match_all"

    def examples() -> Iterator[Example]:
        for number, record in enumerate(itertools.chain([first], records)):
            where = f"{source}: record {number}"
            if record.asked is None:
                raise ValueError(
                    f"{where} has neither input and answers, nor prompt and reward_model; give {_WHAT}"
                )
            documents = split_documents(record.context, layout)
            if not documents or not record.context:
                raise ValueError(
                    f"{where} has a context without 'Document 1:' at its beginning, where the first has it; "
                    "build the two forms apart"
                )
            question, answers, facts = record.asked
            meta = {"num_docs": facts.num_docs, "length": facts.length}
            yield Example(
                str(number if facts.index is None else facts.index),
                question,
                scorable(answers),
                documents,
                evidence=(),
                meta={key: value for key, value in meta.items() if value is not None},
            )

    return KeptContexts(examples(), layout, metric, source)
