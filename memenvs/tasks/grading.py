"""Answers graded by a metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memenvs.core.checks import check_choice
from memenvs.tasks.metrics import (
    ANSWER_FORMATS,
    BOX_METRICS,
    METRICS,
    REPLY_METRICS,
    extract_answer,
    get_metric,
    wrap_answer,
)

Answers = Sequence[Sequence[str]]
"""For each objective, its accepted answers."""


class Grade(NamedTuple):
    """Scores in [0, 1]; of several objectives, their mean.

    Attributes:
        outcome: by the chosen metric.
        em: exact match of the extracted answer.
        f1: word F1 of the extracted answer.
        sub_em: whether the extracted answer contains an accepted one.
        format: 1.0 where an answer could be extracted.
    """

    outcome: float
    em: float
    f1: float
    sub_em: float
    format: float


def grade(reply: str, answers: Answers, *, metric: str = "em", answer_format: str = "boxed") -> Grade:
    r"""Grade a final reply.

    Several objectives are answered in one place, separated by ";" and matched by position; another number of
    parts scores 0 (MEM1's rule). Metrics that look for a box get each part in a box of its own. A reply
    without an answer in the format scores 0 on all but the metrics that read the whole reply.

    >>> grade("It is \\boxed{The Thames}.", [["Thames", "River Thames"]])
    Grade(outcome=1.0, em=1.0, f1=1.0, sub_em=1.0, format=1.0)
    """
    graded = grade_answer(extract_answer(reply, answer_format), answers, metric=metric)
    if metric in REPLY_METRICS and not (metric in BOX_METRICS and len(answers) > 1):
        outcome = sum(get_metric(metric)(reply, accepted) for accepted in answers) / len(answers)
        return graded._replace(outcome=outcome)
    return graded


def grade_answer(prediction: str | None, answers: Answers, *, metric: str = "em") -> Grade:
    """Grade an answer that stands alone, or None for none given; see `grade` for several objectives.

    Metrics that read a whole reply read the answer; those that look for a box get it in one.
    """
    scores = {name: _mean(name, prediction, answers) for name in ("em", "f1", "sub_em")}
    outcome = _mean(metric, prediction, answers)
    return Grade(outcome, scores["em"], scores["f1"], scores["sub_em"], float(prediction is not None))


def check_scoring(metric: str, answer_format: str) -> None:
    """Raise a one-line `ValueError` for an unknown metric or format, or a pair that scores nothing."""
    get_metric(metric)
    check_choice("answer_format", answer_format, ANSWER_FORMATS)
    if metric in BOX_METRICS and answer_format != "boxed":
        raise ValueError(
            f"metric {metric!r} reads a box, answer_format {answer_format!r} asks for none; "
            "use answer_format='boxed', or metric='em'"
        )


def answer_form(answer_format: str, objectives: int = 1) -> str:
    r"""How a prompt says that the answer must be given.

    >>> print(answer_form("boxed"))
    \boxed{…}
    >>> print(answer_form("boxed", 3))
    \boxed{…; …; …}: 3 answers in the order of the questions, separated by ";"
    """
    form = wrap_answer("; ".join("…" * objectives), answer_format)
    if objectives == 1:
        return form
    return f'{form}: {objectives} answers in the order of the questions, separated by ";"'


def gold_answer(answers: Answers, metric: str) -> str:
    """The text that scores 1.0: the preferred answers, or all where the metric wants every one contained."""
    if metric == "string_match_all":
        return ", ".join(answer for accepted in answers for answer in accepted)
    return "; ".join(accepted[0] for accepted in answers)


def _mean(metric: str, prediction: str | None, answers: Answers) -> float:
    if prediction is None:
        return 0.0
    parts = prediction.split(";") if len(answers) > 1 else [prediction]
    if len(parts) != len(answers):
        return 0.0
    texts = [part.strip() for part in parts]
    if metric in BOX_METRICS:
        texts = [wrap_answer(text, "boxed") for text in texts]
    scores = [METRICS[metric](text, accepted) for text, accepted in zip(texts, answers, strict=True)]
    return sum(scores) / len(answers)
