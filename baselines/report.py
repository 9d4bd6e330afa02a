"""Episodes and a clock come in; the numbers that a step's line of the log holds go out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memenvs.baselines.episode import Episode, sound
from memenvs.baselines.rollout import Clock


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over sound episodes: return, tokens, every metric; and how many failed or were cut.

    A component of the reward is `rewards/NAME`, its mean sum over an episode; what a method measures is
    `signals/NAME`, its mean over an episode's turns (TAMTRL's p_t, InfoMem's gain). Both leave out episodes
    that have none.
    """
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
    for kind in ("rewards", "signals"):
        named: dict[str, list[float]] = {}
        for episode in played:
            for name, value in getattr(episode, kind).items():
                if not math.isnan(value):
                    named.setdefault(f"{kind}/{name}", []).append(value)
        numbers |= {name: float(np.mean(values)) for name, values in named.items()}
    return numbers


def overlong_prompts(count: float, window: int | None) -> str:
    """What to tell who trains on prompts that leave no room for a reply.

    Args:
        count: of them.
        window: of the model, tokens.
    """
    room = "the model's window" if window is None else f"the model's window of {window:,} tokens"
    return (
        f"{count:g} prompts left no room for a reply in {room} and were answered by an empty one: shorten "
        "them by --env-args (such as chunk_size, max_memory, k, max_turns), or take a model with a longer one"
    )


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(7.6), duration(250), duration(8000)
    ('8 s', '4 min 10 s', '2 h 13 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def timings(clock: Clock, seconds: float, tokens: int) -> dict[str, float]:
    """Seconds of a step by their kind, and tokens a second of those that were sampled in it."""
    parts = dict(clock.seconds)
    parts["environment"] = parts.get("environment", 0.0) - parts.get("scoring", 0.0)
    told = {f"seconds_{name}": value for name, value in parts.items()}
    return {**told, "seconds": seconds, "tokens_per_second": tokens / seconds}
