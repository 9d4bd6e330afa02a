"""Read the official MuSiQue file, or its copy on the hub."""

from __future__ import annotations

from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    read_answers,
    read_examples,
    read_id,
    read_question,
    read_text,
)

_KEYS = ("id", "question", "answer", "paragraphs")
_WHAT = "MuSiQue's JSON Lines (musique_ans_v1.0_train.jsonl, musique_ans_v1.0_dev.jsonl)"


def read_musique(source: str, split: str = "train") -> list[Example]:
    """Examples of `musique_*.jsonl` or `hf:NAME`; questions marked unanswerable are left out.

    Evidence are the supporting paragraphs in the order of the question's decomposition.

    Args:
        source: musique_ans_v1.0_train.jsonl, musique_ans_v1.0_dev.jsonl, or hf:NAME[:CONFIG].
        split: of an `hf:` data set; with the seed it also decides every random choice.

    Raises:
        ValueError: the source is not MuSiQue, or a question of it cannot be used; the line names it.
    """
    return read_examples(source, split, _example, keys=_KEYS, what=_WHAT)


def _example(record: Record, number: int, source: str) -> Example | None:
    if not record.get("answerable", True):
        return None
    id_ = read_id(record["id"], source)
    where = f"question {id_} of {source}"
    try:
        texts = [(p["title"], p["paragraph_text"]) for p in record["paragraphs"]]
        supporting = [i for i, p in enumerate(record["paragraphs"]) if p["is_supporting"]]
        positions = {p.get("idx", i): i for i, p in enumerate(record["paragraphs"])}
        steps = [
            (step.get("question", ""), step.get("paragraph_support_idx"))
            for step in record.get("question_decomposition") or []
        ]
        hops = [positions[hop] for _, hop in steps if hop in positions]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{source} is not {_WHAT}: question {id_}: {error!r}") from error
    evidence = tuple(dict.fromkeys([*(hop for hop in hops if hop in supporting), *supporting]))
    if not evidence:
        raise ValueError(f"{where} has no supporting paragraph; use {_WHAT}")
    return Example(
        id_,
        read_question(record["question"], where),
        read_answers(record["answer"], record.get("answer_aliases") or [], where),
        tuple((read_text(t, "title", where), read_text(text, "paragraph", where)) for t, text in texts),
        evidence,
        meta={
            "hops": len(evidence),
            "steps": [read_text(question, "decomposition", where) for question, _ in steps],
        },
    )
