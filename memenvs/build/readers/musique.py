"""Read the official MuSiQue file, or its copy on the hub."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from memenvs.build.examples import Example, Pool
from memenvs.tasks.records import Answer, Id, read_records, scorable

_WHAT = "MuSiQue's JSON Lines (musique_ans_v1.0_train.jsonl, musique_ans_v1.0_dev.jsonl)"


class _MusiqueParagraph(msgspec.Struct):
    title: str
    paragraph_text: str
    is_supporting: bool
    idx: int | None = None


class _Step(msgspec.Struct):
    question: str = ""
    paragraph_support_idx: int | None = None


class _MusiqueRecord(msgspec.Struct):
    id: Id
    question: str
    answer: Answer
    paragraphs: list[_MusiqueParagraph]
    answer_aliases: list[Answer] | None = None
    question_decomposition: list[_Step] | None = None
    answerable: bool = True


def read_musique(source: str, split: str = "train") -> Pool:
    """Examples of `musique_*.jsonl` or `hf:NAME`; questions marked unanswerable are left out and counted.

    Evidence are the supporting paragraphs in the order of the question's decomposition.

    Raises:
        ValueError: the source is not MuSiQue, or one of its questions cannot be used, which
            the error names.
    """

    def examples() -> Iterator[Example]:
        for record in read_records(source, split, _MusiqueRecord, _WHAT):
            where, steps = f"question {record.id} of {source}", record.question_decomposition or []
            supporting = [i for i, paragraph in enumerate(record.paragraphs) if paragraph.is_supporting]
            positions = {
                i if paragraph.idx is None else paragraph.idx: i
                for i, paragraph in enumerate(record.paragraphs)
            }
            named = [step.paragraph_support_idx for step in steps]
            hops = [positions[idx] for idx in named if idx in positions and positions[idx] in supporting]
            evidence = tuple(dict.fromkeys([*hops, *supporting]))
            answers = scorable([record.answer, *(record.answer_aliases or [])]) if record.answerable else ()
            if answers and not evidence:
                raise ValueError(f"{where} has no supporting paragraph; use {_WHAT}")
            yield Example(
                str(record.id),
                record.question,
                answers,
                tuple((paragraph.title, paragraph.paragraph_text) for paragraph in record.paragraphs),
                evidence,
                meta={"hops": len(evidence), "steps": [step.question for step in steps]},
            )

    return Pool.of(examples(), source)
