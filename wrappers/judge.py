"""A judge model's scores as rewards: a whole episode goes out, a number a turn, or one, comes back."""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from memenvs.chat import EndpointError
from memenvs.wrappers.judge_client import ChatEndpoint
from memenvs.wrappers.judge_prompts import judge_template, reference, transcript
from memenvs.wrappers.method import Credit, Episode, RewardMethod
from memenvs.wrappers.settings import check_at_least, check_choice, check_numbers, check_whole

LEVELS = ("turn", "outcome")
_FENCE = re.compile(r"```(?:json)?\n(.*)\n```", re.DOTALL)
_log = logging.getLogger(__name__)

Score = tuple[float, str]
"""A number, or NaN and why."""


@dataclass
class JudgeMethod(RewardMethod):
    """Let a judge model score an episode, a number a turn or one for all (rubrics after MT-PPO D.2).

    The judge is asked when an episode has ended, once for all its turns; episodes that end together are asked
    about at once, at most `concurrency` at a time. The record it reads is JSON, so that nothing an agent
    writes can end it.

    A verdict that is not the JSON object asked for, has another number of scores, or a score out of range is
    NaN with the reason in its `Credit`, never 0; so is an endpoint that stays away. `failures` counts the
    reasons, the log warns of each once, and `info["metrics"]["judge_unscored"]` counts the credits.

    Args:
        url: of an OpenAI-compatible endpoint, e.g. `http://localhost:8000/v1`.
        model: its name there.
        level: `"turn"`, or `"outcome"`: one score, given to the last turn.
        prompt: a rubric of your own, with the place `{transcript}` and, if wanted, `{reference}`, `{turns}`,
            `{low}`, `{high}`; it must ask for `{"scores": […]}` or `{"score": …}`.
        weight: of a score in the reward.
        low: smallest score.
        high: largest score.
        concurrency: requests at a time.
        max_chars: characters shown of each text of the record, the middle left out.
        max_tokens: of a verdict.
        timeout: seconds.
        tries: of a request.
        pause: seconds before the second try; it doubles.
        cache: a folder that keeps verdicts by the hash of what was asked.
        key_variable: the environment variable with the endpoint's key.
    """

    url: str
    model: str
    level: str = "turn"
    prompt: str | None = None
    weight: float = 1.0
    low: float = 0.0
    high: float = 1.0
    concurrency: int = 8
    max_chars: int = 8000
    max_tokens: int = 1024
    timeout: float = 120.0
    tries: int = 4
    pause: float = 0.5
    cache: str | None = None
    key_variable: str | None = None
    failures: Counter[str] = field(default_factory=Counter, init=False, repr=False, compare=False)

    name = "judge"
    immediate = False

    def __post_init__(self) -> None:
        check_choice("level", self.level, LEVELS)
        for name in ("concurrency", "max_chars", "max_tokens", "tries"):
            check_whole(name, getattr(self, name), 1)
        check_numbers(weight=self.weight, low=self.low, high=self.high, timeout=self.timeout)
        check_at_least("pause", self.pause, 0)
        if not self.low < self.high:
            raise ValueError(f"low must be under high, got {self.low!r} and {self.high!r}")
        self._template = judge_template(self.level, self.prompt)
        self._endpoint = ChatEndpoint(
            self.url,
            self.model,
            max_tokens=self.max_tokens,
            timeout=self.timeout,
            tries=self.tries,
            pause=self.pause,
            cache=self.cache,
            key_variable=self.key_variable,
        )

    def compose(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        """The scores of each episode, times `weight`."""
        if not episodes:
            return []
        with ThreadPoolExecutor(min(self.concurrency, len(episodes))) as pool:
            verdicts = list(pool.map(self._judge, episodes))
        for reason in (reason for scores in verdicts for _, reason in scores if reason):
            kind = reason.partition(":")[0]
            if kind not in self.failures:
                _log.warning("the judge gave no score: %s", reason)
            self.failures[kind] += 1
        return [self._credits(episode, scores) for episode, scores in zip(episodes, verdicts, strict=True)]

    def _credits(self, episode: Episode, scores: list[Score]) -> list[Credit]:
        first = 0 if self.level == "turn" else len(episode.turns) - 1
        return [
            Credit(turn, self.weight * value, reason=reason)
            for turn, (value, reason) in enumerate(scores, first)
        ]

    def _judge(self, episode: Episode) -> list[Score]:
        turns = len(episode.turns)
        asked = self._template.fill(
            transcript=transcript(episode, self.max_chars),
            reference=reference(episode),
            turns=turns,
            low=f"{self.low:g}",
            high=f"{self.high:g}",
        )
        count = turns if self.level == "turn" else None

        def read(reply: str) -> list[Score]:
            return read_verdict(reply, count, self.low, self.high)

        try:
            reply = self._endpoint.ask(asked, lambda reply: not any(reason for _, reason in read(reply)))
        except EndpointError as error:
            return [(math.nan, f"endpoint: {error}")] * (count or 1)
        return read(reply)


def read_verdict(reply: str, count: int | None, low: float, high: float) -> list[Score]:
    """The scores of a verdict, read strictly: one JSON object, with a code fence around it or not.

    Args:
        reply: the judge's reply.
        count: scores that `{"scores": […]}` must hold; None wants `{"score": …}`.
        low: smallest score.
        high: largest score.

    >>> read_verdict('{"scores": [1, 0.5]}', 2, 0, 1)
    [(1.0, ''), (0.5, '')]
    """
    stripped = reply.strip()
    fenced = _FENCE.fullmatch(stripped)
    key = "score" if count is None else "scores"
    try:
        found: Any = json.loads(fenced[1] if fenced else stripped)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or set(found) != {key}:
        return _all(count, f"unreadable: not an object of {key!r} alone but {stripped[:120]!r}")
    given = [found[key]] if count is None else found[key]
    if not isinstance(given, list) or len(given) != (count or 1):
        size = len(given) if isinstance(given, list) else "no list"
        return _all(count, f"wrong number: {size} scores for {count} turns")
    return [_score(value, low, high) for value in given]


def _score(value: Any, low: float, high: float) -> Score:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan, f"no number: {str(value)[:60]!r}"
    if not low <= value <= high:
        return math.nan, f"out of range: {value!r} is not in [{low:g}, {high:g}]"
    return float(value), ""


def _all(count: int | None, reason: str) -> list[Score]:
    return [(math.nan, reason)] * (1 if count is None else count)
