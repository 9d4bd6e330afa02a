"""Episodes of a careful and a careless scripted caller in a two-turn tool environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.env import Info
from memenvs.core.episode import Episode
from memenvs.envs.tool_qa import NO_TOOL, PROMPT
from memenvs.rollout.collect import collect
from research.reproduce.world_tasks import Names

CALL = '<reasoning></reasoning>\n<tool>\n{"name": "wiki_search", "args": {"query": "'
CALLED = '"}}\n</tool>'
MISCALLED = ('"}\n</tool>', '"}}')  # invalid JSON; no closing tag
ANSWER, ANSWERED = "<reasoning></reasoning>\n<answer>", "</answer>"
FIXED = [
    *PROMPT.fill(question="|", several="").split("|"),
    *(CALL, CALLED, *MISCALLED, ANSWER, ANSWERED),
    *("\n\n<result>\n", "\n</result>\n\n", 'Doc 1(Title: "', '") ', NO_TOOL, "Error: Invalid JSON format"),
]
REPLY = 6  # tokens: 4 for a careful reply, and some for a malformed one


class Caller:
    """Searches for what the question names and answers from the result, when it takes care.

    `care` is the probability of a careful reply. Otherwise a call is malformed, vague, or an answer guessed
    among all names of its kind; an answer is another name of the result, sometimes without its tags.
    """

    def __init__(self, names: Names, rng: np.random.Generator, care: float) -> None:
        self._names, self._rng, self._care = names, rng, care

    def call(self, question: str, subject: str, answer: str) -> str:
        """The first reply."""
        if self._rng.random() < self._care:
            return CALL + subject + CALLED
        fault = self._rng.integers(3)
        if fault == 0:
            return CALL + subject + str(self._rng.choice(MISCALLED))
        if fault == 1:
            return CALL + question.split()[0] + CALLED
        return ANSWER + self._guess(answer) + ANSWERED

    def answer(self, result: str, answer: str) -> str:
        """The second reply."""
        seen = self._names.found_in(result)
        if self._rng.random() < self._care:
            return ANSWER + (answer if answer in seen else self._guess(answer)) + ANSWERED
        others = [name for name in seen if name != answer]
        other = str(self._rng.choice(others)) if others else self._guess(answer)
        return other if self._rng.random() < 0.3 else ANSWER + other + ANSWERED

    def _guess(self, answer: str) -> str:
        return str(self._rng.choice(self._names.of_kind[self._names.kinds[answer]]))


def play(env: gym.Env[Any, Any], caller: Caller, tasks: range) -> Iterator[Episode]:
    """An episode for each task."""
    inner: Any = env.unwrapped

    def reply(observation: str, info: Info) -> str:
        task = inner.questions[inner.state.task]
        (subject,), answer = inner.questions.titles(task.evidence), task.answers[0][0]
        if info["turn"] == 0:
            return caller.call(task.question, subject, answer)
        return caller.answer(info["feedback"], answer)

    for number in tasks:
        yield from collect(lambda: env, reply, [0], tasks=[number], errors="raise")
