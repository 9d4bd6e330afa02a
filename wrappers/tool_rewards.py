"""The verifiable rewards of MT-GRPO for one tool call and an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memenvs.tags import first_pair
from memenvs.wrappers.method import Credit, Episode, RewardMethod, Turn
from memenvs.wrappers.scorers import TokenScores
from memenvs.wrappers.settings import check_numbers

FIELDS = (("reasoning",), ("tool", "answer"))


class Exchange(NamedTuple):
    """A reply, and what the environment said to it ("" where nothing came back)."""

    reply: str
    response: str


@dataclass
class ToolRewardsMethod(RewardMethod):
    """Reward the call at its turn, and answer and form at the end (MT-GRPO's six rewards).

        turn:     execution  0.2 * (calls that ran without an error / calls)
                  found      0.5 if an accepted answer stands in the first result
        outcome:  present    0.5 if the answer contains an accepted one
                  exact      1.0 if it is one
                  form       0.2 * mean over replies of `form_score`
                  tags       0.2 * mean over replies of `tag_score`

    Accepted answers are compared in lower case, as the code they are from does. As there, every reply's form
    is worth at least 0.2 (a check of spacing that is always true), so that 0.04 is the least. The outcome is
    contained, so the environment's own component of it counts 0 in the sum and stays in
    `info["metrics"]["outcome"]`.

    The turn rewards are paid at their turn, what depends on all replies at the end.

    Args:
        execution: a call that ran.
        found: an accepted answer in the first result.
        present: an accepted answer inside the answer.
        exact: the answer itself.
        form: the XML format.
        tags: every tag opened and closed once.
    """

    execution: float = 0.2
    found: float = 0.5
    present: float = 0.5
    exact: float = 1.0
    form: float = 0.2
    tags: float = 0.2

    name = "tool_rewards"

    def __post_init__(self) -> None:
        check_numbers(**self.settings())

    @property
    def spends_outcome(self) -> bool:
        """Always: `present` and `exact` take its place."""
        return True

    @property
    def needs(self) -> tuple[str, ...]:
        """The accepted answers."""
        return ("privileged/answers",)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """What this turn's call earned by itself."""
        exchange = _exchange(turn)
        found = self.found * _holds(_result(exchange), _accepted(turn))
        return self.execution * bool(_ran(exchange)) + found

    def compose(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        """The rewards of the call at the turns of the calls, the others at the last turn."""
        return [self._credits(episode) for episode in episodes]

    def parts(self, replies: Sequence[Exchange], accepted: Sequence[str]) -> dict[str, float]:
        """The six rewards of a whole episode.

        Args:
            replies: every reply and what came back.
            accepted: accepted answers in lower case.
        """
        calls = [ran for exchange in replies if (ran := _ran(exchange)) is not None]
        answer = _last_answer(replies)
        given = "" if answer is None else answer.lower()
        said = answer is not None
        first = next((found for exchange in replies if (found := _result(exchange)) is not None), None)
        return {
            "execution": self.execution * (sum(calls) / len(calls)) if calls else 0.0,
            "found": self.found * _holds(first, accepted),
            "present": self.present * (said and any(text in given for text in accepted)),
            "exact": self.exact * (said and any(text == given for text in accepted)),
            "form": self.form * _mean([form_score(reply) for reply, _ in replies]),
            "tags": self.tags * max(0.0, _mean([tag_score(reply) for reply, _ in replies])),
        }

    def _credits(self, episode: Episode) -> list[Credit]:
        replies = [_exchange(turn) for turn in episode.turns]
        parts = self.parts(replies, _accepted(episode.turns[-1]))
        calls = [k for k, exchange in enumerate(replies) if _ran(exchange) is not None]
        ran = [k for k in calls if _ran(replies[k])]
        credits = [Credit(k, parts["execution"] / len(ran)) for k in ran]
        results = [k for k, exchange in enumerate(replies) if _result(exchange) is not None]
        credits += [Credit(k, parts["found"]) for k in results[:1]]
        outcome = parts["present"] + parts["exact"] + parts["form"] + parts["tags"]
        return [*credits, Credit(len(replies) - 1, outcome)]


def form_score(reply: str) -> float:
    """How far a reply keeps the form, 0.2 to 1.0.

    0.4 times the share of the two places (a reasoning; a tool or an answer) that are filled, if any tag pair
    is complete; 0.2 always; 0.2 for opening with a reasoning; 0.2 for closing with a tool or an answer.
    """
    stripped = reply.strip()
    complete = any(first_pair(reply, tag) is not None for place in FIELDS for tag in place)
    filled = sum(any(f"<{tag}>" in reply or f"</{tag}>" in reply for tag in place) for place in FIELDS)
    score = 0.4 * (filled / len(FIELDS)) if complete else 0.0
    score += 0.2
    score += 0.2 * any(stripped.startswith(f"<{tag}>") for tag in FIELDS[0])
    return score + 0.2 * any(stripped.endswith(f"</{tag}>") for tag in FIELDS[-1])


def tag_score(reply: str) -> float:
    """Of the tags that a reply uses, how far each is opened and closed once; 1.0 at most, may be negative."""
    counts = [
        reply.count(form)
        for place in FIELDS
        for tag in place
        if f"<{tag}>" in reply or f"</{tag}>" in reply
        for form in (f"<{tag}>", f"</{tag}>")
    ]
    return _mean([1 - abs(count - 1) for count in counts])


def _exchange(turn: Turn) -> Exchange:
    """The reply of a turn and what came back, which the next observation ends in."""
    shown: Any = turn.next_observation
    text = shown if isinstance(shown, str) else ""
    if turn.info["context"] != "append":
        return Exchange(turn.action, text)
    return Exchange(turn.action, text[len(turn.observation) + len(turn.action) :])


def _ran(exchange: Exchange) -> bool | None:
    """Whether the call of a reply ran without an error; None where it made none that was answered."""
    if first_pair(exchange.reply, "tool") is None or not exchange.response:
        return None
    result = _result(exchange)
    return result is not None and not result.startswith("Error:")


def _result(exchange: Exchange) -> str | None:
    """The result of the call that a reply made; None without a call or a result."""
    pair = first_pair(exchange.response, "result")
    called = first_pair(exchange.reply, "tool") is not None
    return pair.text.strip() if called and pair is not None else None


def _holds(result: str | None, accepted: Sequence[str]) -> bool:
    return result is not None and any(text in result.lower() for text in accepted)


def _last_answer(replies: Sequence[Exchange]) -> str | None:
    answers: Iterator[str] = (
        pair.text.strip()
        for reply, _ in reversed(replies)
        if (pair := first_pair(reply, "answer")) is not None
    )
    return next(answers, None)


def _accepted(turn: Turn) -> list[str]:
    answers = turn.info["privileged"]["answers"]
    if len(answers) == 1:
        return [answer.strip().lower() for answer in answers[0]]
    return ["; ".join(accepted[0] for accepted in answers).strip().lower()]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
