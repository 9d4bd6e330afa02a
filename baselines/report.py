"""Episodes and a clock come in; the numbers that a step's line of the log holds go out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memenvs.baselines.episode import Episode, sound
from memenvs.baselines.rollout import Clock


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over sound episodes: return, tokens, every metric; and how many failed or were cut."""
    played = sound(episodes)
    numbers: dict[str, float] = {
        "failed": sum(episode.end == "failed" for episode in episodes),
        "cut_replies": sum(episode.cut_replies for episode in episodes),
        "unread": sum(episode.unread for episode in episodes),
    }
    if not played:
        return numbers
    numbers["return"] = float(np.mean([sum(episode.turn_rewards) for episode in played]))
    numbers["outcome"] = float(np.mean([episode.outcome for episode in played]))
    if any(episode.charge for episode in played):
        numbers["charge"] = float(np.mean([episode.charge for episode in played]))
    numbers["reply_tokens"] = float(np.mean([episode.tokens for episode in played]))
    for name in played[0].metrics:
        numbers.setdefault(name, float(np.mean([episode.metrics[name] for episode in played])))
    return numbers


def timings(clock: Clock, seconds: float, tokens: int) -> dict[str, float]:
    """Seconds of a step by their kind, and tokens a second of those that were sampled in it."""
    parts = dict(clock.seconds)
    parts["environment"] = parts.get("environment", 0.0) - parts.get("scoring", 0.0)
    told = {f"seconds_{name}": value for name, value in parts.items()}
    return {**told, "seconds": seconds, "tokens_per_second": tokens / seconds}
