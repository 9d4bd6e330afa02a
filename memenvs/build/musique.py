"""The official MuSiQue file (or its copy on the hub) comes in, examples go out."""

from __future__ import annotations

from memenvs.build.examples import Example
from memenvs.build.sources import Record, read_records

_KEYS = ("id", "question", "answer", "paragraphs")
_WHAT = "MuSiQue's JSON Lines (musique_ans_v1.0_train.jsonl, musique_ans_v1.0_dev.jsonl)"


def read_musique(source: str, split: str) -> list[Example]:
    """Examples of `musique_*.jsonl` or `hf:NAME`; questions marked unanswerable are left out.

    Evidence are the supporting paragraphs in the order of the question's decomposition.

    Raises:
        ValueError: the source is not MuSiQue, or a question has no supporting paragraph.
    """
    records = read_records(source, split, keys=_KEYS, what=_WHAT)
    answerable = [record for record in records if record.get("answerable", True)]
    return [_example(record, source) for record in answerable]


def _example(record: Record, source: str) -> Example:
    try:
        paragraphs = tuple((str(p["title"]), str(p["paragraph_text"])) for p in record["paragraphs"])
        supporting = [i for i, p in enumerate(record["paragraphs"]) if p["is_supporting"]]
        positions = {p.get("idx", i): i for i, p in enumerate(record["paragraphs"])}
        steps = record.get("question_decomposition") or []
        hops = [
            positions[step["paragraph_support_idx"]]
            for step in steps
            if step.get("paragraph_support_idx") in positions
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{source} is not {_WHAT}: question {record['id']}: {error!r}") from error
    evidence = tuple(dict.fromkeys([*(hop for hop in hops if hop in supporting), *supporting]))
    if not evidence:
        raise ValueError(f"question {record['id']} of {source} has no supporting paragraph; use {_WHAT}")
    answer = str(record["answer"])
    aliases = [str(alias) for alias in record.get("answer_aliases") or []]
    return Example(
        str(record["id"]),
        str(record["question"]),
        tuple(dict.fromkeys([answer, *aliases])),
        paragraphs,
        evidence,
        meta={"hops": len(evidence), "steps": [str(step.get("question", "")) for step in steps]},
    )
