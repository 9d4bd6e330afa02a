"""What the log says about the episodes of a step: means, counts, and what a memory kept."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from memenvs.core.env import privileged_of
from memenvs.core.episode import Episode, valid
from memenvs.envs.passages import holds_answer

WORD = re.compile(r"[^\W_]+")


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over valid episodes: return, tokens, every metric; and counts of what failed or was truncated.

    A component of the reward is `rewards/NAME`, its mean sum over an episode; what a method measures is
    `signals/NAME`, its mean over an episode's turns (TAMTRL's p_t, InfoMem's gain), and `signals/NAME_std`
    the standard deviation over the turns of all episodes. Each leaves out episodes that have none.
    """
    played = valid(episodes)
    metrics: dict[str, float] = {
        "failed": sum(episode.end == "failed" for episode in episodes),
        "truncated_replies": sum(episode.truncated_replies for episode in episodes),
        "overlong_prompts": sum(episode.overlong_prompts for episode in episodes),
    }
    has_penalty = any(episode.length_penalty for episode in played)
    values = defaultdict[str, list[float]](list)
    for episode in played:
        row = {
            **episode.metrics,
            **{f"rewards/{name}": value for name, value in episode.rewards.items()},
            **{
                f"signals/{name}": float(np.mean(signals))
                for name, signals in episode.measured_signals.items()
            },
            "return": math.nan if episode.lacks_score else sum(episode.turn_rewards),
            "outcome": episode.outcome,
            "reply_tokens": episode.tokens,
            **({"length_penalty": episode.length_penalty} if has_penalty else {}),
        }
        for name, value in row.items():
            if not math.isnan(value):
                values[name].append(value)
    metrics |= {name: float(np.mean(of_episodes)) for name, of_episodes in values.items()}
    for name in dict.fromkeys(name for episode in played for name in episode.measured):
        of_turns = [value for episode in played for value in episode.measured_signals.get(name, ())]
        metrics[f"signals/{name}_std"] = float(np.std(of_turns))
    return metrics


def evidence_in_memory(episode: Episode) -> dict[str, float]:
    """How much of the evidence a memory took and kept, as shares of words; empty without a memory.

    The words are those of the evidence and not of the question, with more than three letters or a digit.

    Returns:
        `evidence_taken`: the share of the words shown at a turn that are in the memory written at that turn,
        over all turns that showed any; missing if none did. `evidence_kept`: the share of all words that are
        in the last memory.
    """
    first = privileged_of(episode.turns[0].before) if episode.turns else {}
    evidence = [str(text) for text in first.get("evidence", ())]
    wanted = _content(" ".join(evidence)) - _content(str(first.get("question", "")))
    if not wanted or episode.turns[0].before.get("context") != "rewrite":
        return {}
    shown, taken, before, held = 0, 0, "", set[str]()
    for turn in episode.turns:
        now, memory = str(turn.observation), privileged_of(turn.info).get("memory")
        if not isinstance(memory, str):
            return {}
        held = _content(memory) & wanted
        parts = turn.before["privileged"].get("evidence_in_chunk")
        if parts is None:  # a search brings whole documents, below their titles
            bodies = [text.partition("\n")[2] or text for text in evidence]
            parts = [body for body in bodies if body in now and body not in before]
        read, before = _content(" ".join(parts)) & wanted, now
        shown, taken = shown + len(read), taken + len(read & held)
    return {**({"evidence_taken": taken / shown} if shown else {}), "evidence_kept": len(held) / len(wanted)}


def question_in_memory(episode: Episode) -> dict[str, float]:
    """Whether the last memory repeats the question (InfoMem, figure 4); empty without a memory.

    Returns:
        `question_in_memory`: 1.0 if it contains the whole question, word for word. Case, punctuation and
        accents do not matter.
    """
    first = episode.turns[0].before if episode.turns else {}
    question = str(privileged_of(first).get("question", ""))
    if not question or first.get("context") != "rewrite":
        return {}
    memory = privileged_of(episode.turns[-1].info).get("memory")
    if not isinstance(memory, str):
        return {}
    return {"question_in_memory": float(holds_answer([memory], [[question]])[0])}


def _content(text: str) -> set[str]:
    """The words that say what a text is about, as the report of episodes counts them."""
    return {word for word in WORD.findall(text.lower()) if len(word) > 3 or any(map(str.isdigit, word))}
