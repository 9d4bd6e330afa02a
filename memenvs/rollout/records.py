"""The record of an episode: its turns, what they earned, and the token ids that a model is trained on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.env import End, Info
from memenvs.core.state import plain_record
from memenvs.models import Ids, Policy, Reply

Floats = NDArray[np.float64]


class Turn(NamedTuple):
    """One observation, the reply to it, and what came back.

    Attributes:
        observation: what the policy read.
        action: its raw reply.
        before: the info that came with the observation.
        next_observation: what came back.
        info: the info that came back.
        end: `"terminated"` or `"truncated"` if the episode ended with this turn, else empty.
    """

    observation: Any
    action: str
    before: Info
    next_observation: Any
    info: Info
    end: End = ""

    @property
    def over(self) -> bool:
        """Whether the episode ended with this turn."""
        return self.end != ""


@plain_record
class Credit(NamedTuple):
    """A value given to a turn, or to a span of characters in its action.

    Attributes:
        turn: number of the turn, from 0.
        value: the value; NaN where none could be found.
        span: [start, end) in characters of the action; None for the whole turn.
        reason: why the value is NaN.
        of_signal: whether the value rests on the turn's signal, so that it is NaN where the signal is.
        advantage: whether the value is an advantage already, which a learner must not normalise again.
    """

    turn: int
    value: float
    span: tuple[int, int] | None = None
    reason: str = ""
    of_signal: bool = True
    advantage: bool = False


@dataclass
class Sample:
    """One training sequence: what a model read and what it sampled, token by token.

    Attributes:
        ids: (T,) tokens.
        response_mask: (T,) bool, the N tokens that the policy sampled.
        logprobs: (T,) nats of the sampled tokens when they were sampled; 0 elsewhere.
        turns: (T,) number of the turn that sampled a token; -1 elsewhere.
        values: (N,) a critic's values of the sampled tokens, if there is one.
        ref_logprobs: (N,) nats of the sampled tokens under a reference model, if there is one.
    """

    ids: Ids
    response_mask: NDArray[np.bool_]
    logprobs: Floats
    turns: NDArray[np.int64]
    values: Floats | None = None
    ref_logprobs: Floats | None = None

    @classmethod
    def prompt(cls, ids: Ids) -> Sample:
        """A sequence of which nothing is sampled yet."""
        none = np.zeros(len(ids), np.bool_)
        return cls(ids, none, np.zeros(len(ids)), np.full(len(ids), -1, np.int64))

    def trimmed(self) -> Sample:
        """This sequence to its last sampled token: the feedback behind it is in no loss."""
        end = int(np.flatnonzero(self.response_mask)[-1]) + 1
        return Sample(self.ids[:end], self.response_mask[:end], self.logprobs[:end], self.turns[:end])

    def then(self, ids: Ids, logprobs: Floats | None = None, turn: int = -1) -> Sample:
        """This sequence and what follows it: a reply with its log-probabilities, or feedback without."""
        sampled = logprobs is not None
        return Sample(
            np.concatenate([self.ids, ids]),
            np.concatenate([self.response_mask, np.full(len(ids), sampled)]),
            np.concatenate([self.logprobs, logprobs if logprobs is not None else np.zeros(len(ids))]),
            np.concatenate([self.turns, np.full(len(ids), turn if sampled else -1, np.int64)]),
        )


@dataclass
class Episode:
    """An episode of K turns, for reward methods, learners, evaluation and adapters.

    Reward wrappers keep the turns with their signals and credits. Who plays the episode adds which task it
    was, the replies with their token ids, and how it ended. What was not recorded is empty.

    Attributes:
        turns: (K,) what was read, replied and returned; empty in an episode that was read from a file.
        outcomes: (K,) the outcome component of each turn, as the environment paid it.
        signals: for each reward method by name, the signal (K,) of each turn.
        credits: for each reward method by name, its credits; empty until it has assigned them.
        turn_rewards: (K,) the reward of every turn; final when every method has assigned its credits.
        error: why it could not be played or scored to its end; empty otherwise. Signals that decide in
            hindsight are then NaN at every turn, the others at the turn that failed.
        end: how it ended; `"failed"` if the environment or a scorer broke.
        group: name of its group, the seed of the task that its members play.
        task: the task's id.
        number: number of the task in its task set; None where the seed draws it.
        member: which of the episodes of its group or task it is, from 0.
        seed: of the reset, so that the replies can be played again.
        replies: (K,) as they were sampled; of a turn whose prompt did not fit the window an empty one.
        samples: its training sequences in order: one for an episode whose prompts grow (`"append"`), one a
            turn where every prompt is fresh (`"rewrite"`). Each holds a sampled token.
        metrics: the environment's, and what whoever played it counted.
        rewards: of each component of the reward, its sum over the turns; NaN where it never was a number.
        signal_means: of each reward method, the mean of its signals over the turns that it had scored (over
            all, where it needs no scores); without an entry where there are none.
        replaces_outcome: whether a reward method paid for the result in place of the environment.
        length_penalty: what a learner adds to the result for its length (DAPO), at most 0.
        truncated_replies: number of replies that ended at their limit of tokens.
        overlong_prompts: number of turns whose prompt left no room for a reply, which was then empty.
    """

    turns: list[Turn] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)
    signals: dict[str, list[float]] = field(default_factory=dict)
    credits: dict[str, list[Credit]] = field(default_factory=dict)
    turn_rewards: list[float] = field(default_factory=list)
    error: str = ""
    end: Literal["", "terminated", "truncated", "failed"] = ""
    group: int = 0
    task: str = ""
    number: int | None = None
    member: int = 0
    seed: int = 0
    replies: list[Reply] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    signal_means: dict[str, float] = field(default_factory=dict)
    replaces_outcome: bool = False
    length_penalty: float = 0.0
    truncated_replies: int = 0
    overlong_prompts: int = 0

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.error or self.end) or (bool(self.turns) and self.turns[-1].over)

    @property
    def outcome(self) -> float:
        """What the environment paid for the result, whatever a reward method has made of it since."""
        metrics = self.metrics
        if not metrics and self.turns and self.over:
            metrics = self.turns[-1].info.get("metrics", {})
        return float(metrics.get("outcome", math.fsum(self.outcomes)))

    @property
    def outcome_rewards(self) -> list[float]:
        """(K,) R^O, the part of `turn_rewards` that is the outcome reward.

        Where a method replaces the environment's outcome, it is the reward of the last turn, without the
        credits that are advantages.
        """
        if not self.replaces_outcome:
            return self.outcomes
        return [0.0] * (len(self.turn_rewards) - 1) + [self.turn_rewards[-1] - self.turn_advantages[-1]]

    @property
    def turn_advantages(self) -> list[float]:
        """(K,) the part of `turn_rewards` that is credit marked as an advantage."""
        sums = [0.0] * len(self.turn_rewards)
        for credits in self.credits.values():
            for credit in credits:
                if credit.advantage and not math.isnan(credit.value):
                    sums[credit.turn] += credit.value
        return sums

    def marked_advantages(self, policy: Policy) -> Floats:
        """Credits (N,) that are advantages already, on the tokens of their turn or of their span.

        A token that lies half inside a span gets the whole credit: its choice wrote part of it.

        Args:
            policy: says which characters its tokens stand for.
        """
        turns = [np.zeros(len(reply.ids)) for reply in self.replies]
        for credit in (credit for credits in self.credits.values() for credit in credits):
            if not credit.advantage or math.isnan(credit.value):
                continue
            inside: Any = slice(None)
            if credit.span is not None:
                places = policy.spans(self.replies[credit.turn].ids)
                inside = (places[:, 0] < credit.span[1]) & (places[:, 1] > credit.span[0])
            turns[credit.turn][inside] += credit.value
        return np.concatenate(turns) if turns else np.zeros(0)

    @property
    def success(self) -> bool:
        """Whether the task was solved (the environment's own metric)."""
        metrics = self.metrics or (self.turns[-1].info["metrics"] if self.turns else {})
        return metrics.get("success") == 1.0

    @property
    def tokens(self) -> int:
        """Tokens sampled, N."""
        return sum(len(reply.ids) for reply in self.replies)

    @property
    def turn_ends(self) -> NDArray[np.int64]:
        """(K,) the last token of each turn, counted over all sampled tokens of the episode in order.

        A turn that sampled nothing ends where the one before it did (the first one on token 0).
        """
        lengths = [len(reply.ids) for reply in self.replies]
        return np.maximum(np.cumsum(lengths, dtype=np.int64) - 1, 0)

    def split(self, values: Floats) -> list[Floats]:
        """Numbers (N,) for its sampled tokens, sample by sample."""
        lengths = [int(sample.response_mask.sum()) for sample in self.samples]
        return np.split(values, np.cumsum(lengths)[:-1])

    def by_token(self, turns: Sequence[float] | Floats) -> Floats:
        """Numbers (K,) of turns, given to each token (N,) that the turn sampled."""
        return np.repeat(np.asarray(turns, np.float64), [len(reply.ids) for reply in self.replies])

    def to_json(self) -> str:
        """The episode in one line of JSON: its task, end, turn rewards, metrics and the replies' texts."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return json.dumps(kept | {"replies": [reply.text for reply in self.replies]}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Episode:
        """Read a line of `to_json`; the replies have no token ids.

        Raises:
            ValueError: the line is no episode; the message says why.
        """
        try:
            kept = json.loads(line)
            episode = cls(**{**kept, "replies": [text_reply(text) for text in kept["replies"]]})
            whole = isinstance(episode.number, int | None) and isinstance(episode.member, int)
            numbers = [*episode.metrics.values(), *episode.turn_rewards]
        except (TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(repr(error)) from error
        if set(kept) != {*_KEPT, "replies"}:
            raise ValueError(
                f"an episode has the fields {', '.join(_KEPT)} and replies, got {', '.join(kept)}"
            )
        if not whole or not all(isinstance(value, (int, float)) for value in numbers):
            raise ValueError("number, member, metrics or turn_rewards hold something that is no number")
        return episode


_KEPT = ("task", "number", "member", "seed", "end", "error", "turn_rewards", "metrics")


def text_reply(text: str) -> Reply:
    """A reply of which nothing is known but its text."""
    return Reply(text, np.zeros(0, np.int64), np.zeros(0), finished=True)


def component_sums(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each component over the turns, without those that could not be measured (NaN).

    >>> component_sums([{"format": 0.5, "judge": float("nan")}, {"format": 0.5, "judge": float("nan")}])
    {'format': 1.0, 'judge': nan}
    """
    sums = {}
    for name in turns[-1] if turns else ():
        measured = [turn[name] for turn in turns if not math.isnan(turn[name])]
        sums[name] = math.fsum(measured) if measured else math.nan
    return sums


def valid(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that a learner can use: nothing broke, and a token was sampled."""
    return [episode for episode in episodes if episode.end != "failed" and episode.tokens]
