"""Turns of several environments come in; all that methods ask about them is scored by one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memenvs.vector_errors import error_line
from memenvs.wrappers.method import RewardMethod, Turn
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores

Asked = dict[str, list[ScoreRequest]]
"""The requests of one turn, by method."""

Answers = dict[str, list[TokenScores]]
"""The answers to them, in step."""

Render = Callable[[str], str]
"""Makes the model's prompt of a text prompt."""


def ask_all(methods: Sequence[RewardMethod], turns: Sequence[Turn]) -> list[Asked]:
    """What the methods ask about each turn."""
    return [{method.name: method.requests(turn) for method in methods} for turn in turns]


def score_all(scorer: Scorer | None, asked: Sequence[Asked], render: Render) -> list[Answers]:
    """Score every request of several turns by one call of the scorer, equal requests once.

    Args:
        scorer: may be None where nothing is asked.
        asked: the requests of each turn.
        render: see `Render`.

    Raises:
        ValueError: no scorer, and something is asked.
    """
    places: dict[ScoreRequest, int] = {}
    for requests in asked:
        for some in requests.values():
            for request in some:
                places.setdefault(request, len(places))
    if not places:
        return [{} for _ in asked]
    if scorer is None:
        raise ValueError("a method asks for log-probabilities; give a scorer, e.g. scorer='lexical'")
    rendered = [ScoreRequest(render(prompt), continuation) for prompt, continuation in places]
    answers = scorer.logprobs(rendered)
    return [
        {name: [answers[places[request]] for request in some] for name, some in requests.items()}
        for requests in asked
    ]


def score_apart(scorer: Scorer | None, asked: Sequence[Asked], render: Render) -> list[Answers | str]:
    """As `score_all`; if that call raises, turn by turn: the error's line where it raises again."""
    try:
        return [*score_all(scorer, asked, render)]
    except Exception as error:
        if scorer is None:
            raise
        if len(asked) == 1:
            return [error_line(error)]
    return [answers for one in asked for answers in score_apart(scorer, [one], render)]
