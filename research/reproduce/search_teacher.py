"""Episodes of a scripted searcher that forgets, in a search environment with a memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.env import Info
from memenvs.core.episode import Episode
from memenvs.envs.search_forms import SearchForm
from memenvs.envs.search_qa import LAST
from memenvs.tasks.taskset import TaskSet
from research.demonstrations import demonstration, pairs_of, taught
from research.reproduce.world_tasks import Names

TEMPLATE = {"ask": "Questions: {question}\n<mem>{memory}</mem>{recent}\nReply: "}
"""A prompt without the number of questions or of turns left."""

BARE_TEMPLATE = {"ask": "Questions: {question}\nReply: "}
"""The same without a memory: all replies and passages follow it."""

UNKNOWN, BETWEEN, IS = "?", "; ", ": "
MEM, MEM_END = "<mem>", "</mem>"
THEN_SEARCH, SEARCHED = f"{MEM_END}<think></think><search>", "</search>"
THEN_ANSWER, ANSWERED = f"{MEM_END}<think></think><answer>", "</answer>"
TITLE = 'Doc 1(Title: "'
FIXED = [
    *re.split(r"{\w+}", TEMPLATE["ask"]),
    *(MEM, MEM_END, THEN_SEARCH, SEARCHED, THEN_ANSWER, "<answer>", ANSWERED, UNKNOWN, BETWEEN, IS),
    *("<think></think><search>", "\n\n<information>", "</information>\n\n", TITLE, '") '),
    *(f"\n{SearchForm.hint}\n", LAST),
]
_SHOWN = re.compile(re.escape(TITLE) + r'(?P<title>.*?)"\) ')


def reply_tokens(objectives: int) -> int:
    """Maximum tokens of a reply: a note of four and an answer of two per question, and some more."""
    return 6 * objectives + 6


def turns(objectives: int) -> int:
    """The number of turns for searches; one more is only for an answer."""
    return objectives + 3


def note(subject: str, answer: str) -> str:
    """What a memory says about a question."""
    return subject + IS + answer


class Searcher:
    """Notes each answer after its question's subject, and searches for the first question without a note.

    `care` is the probability, each turn, of making no mistake: to note a wrong name from the passage, to
    forget a note, or to search for a word.
    """

    def __init__(self, names: Names, rng: np.random.Generator, care: float) -> None:
        self._names, self._rng, self._care = names, rng, care

    def reply(
        self, memory: str, shown: str, subjects: Sequence[str], answers: Sequence[str], last: bool
    ) -> str:
        """The next reply, by the memory and the passage that the prompt shows; the last one answers."""
        fault = "" if self._rng.random() < self._care else self._rng.choice(("misread", "forget", "vague"))
        notes = dict(one.split(IS) for one in memory.split(BETWEEN)) if memory else {}
        if fault == "forget" and notes:
            del notes[str(self._rng.choice(list(notes)))]
        title = found["title"] if (found := _SHOWN.search(shown)) else ""
        if title in subjects and title not in notes:
            answer = answers[subjects.index(title)]
            notes[title] = self._misread(shown, answer) if fault == "misread" else answer
        held = MEM + BETWEEN.join(note(*one) for one in notes.items())
        unknown = [subject for subject in subjects if subject not in notes]
        if last or not unknown:
            answered = BETWEEN.join(notes.get(subject, UNKNOWN) for subject in subjects)
            return held + THEN_ANSWER + answered + ANSWERED
        return held + THEN_SEARCH + ("Which" if fault == "vague" else unknown[0]) + SEARCHED

    def _misread(self, shown: str, answer: str) -> str:
        others = [name for name in self._names.found_in(shown) if name != answer]
        return str(self._rng.choice(others or [UNKNOWN]))


def play(
    env: gym.Env[Any, Any], searcher: Searcher, tasks: range, rng: np.random.Generator
) -> Iterator[Episode]:
    """An episode for each task, and with it what MemPO asks a scorer: to answer at once.

    MemPO asks the same weights how likely the answer is after a memory alone and after the turns so far. A
    model trained from scratch must have seen such prompts. The answer is shown after half of the complete
    memories, a quarter of the others and, with two questions, half of the histories that hold both passages.
    """
    inner: Any = env.unwrapped

    def reply(observation: str, info: Info) -> str:
        passage = observation.rpartition("\n\n<information>")[2] if inner.state.passages else ""
        last = len(inner.state.history) >= inner.max_turns
        subjects, answers = _asked(inner.questions, inner.state.task)
        return searcher.reply(info["privileged"]["memory"], passage, subjects, answers, last)

    for number in tasks:
        subjects, answers = _asked(inner.questions, number)
        complete = {note(*named) for named in zip(subjects, answers, strict=True)}
        episode, pairs = taught(env, reply, number), list[tuple[str, str]]()
        for turn in episode.turns:
            pairs.append((turn.text, turn.action))
            told = turn.info["privileged"]
            whole = set(told["memory"].split(BETWEEN)) == complete
            if told["memory"] and rng.random() < (0.5 if whole else 0.25):
                pairs.append((told["prompt_with_memory"], told["target_wrapped"]))
            seen = [TITLE + subject in told["prompt_with_history"] for subject in subjects]
            if len(subjects) == 2 and not turn.over and all(seen) and rng.random() < 0.5:
                pairs.append((told["prompt_with_history"], told["target_wrapped"]))
        yield demonstration(pairs, "rewrite", episode.success)


def play_bare(env: gym.Env[Any, Any], searcher: Searcher, tasks: range) -> Iterator[Episode]:
    """An episode for each task in an environment without a memory; the searcher does not write its notes."""
    inner: Any = env.unwrapped
    memory = ""

    def reply(observation: str, info: Info) -> str:
        nonlocal memory
        memory = memory if info["turn"] else ""
        last = len(inner.state.history) >= inner.max_turns
        question = _asked(inner.questions, inner.state.task)
        held, _, rest = searcher.reply(memory, info["feedback"], *question, last).partition(MEM_END)
        memory = held.removeprefix(MEM)
        return rest

    for number in tasks:
        yield taught(env, reply, number)


def _asked(questions: TaskSet, number: int) -> tuple[list[str], list[str]]:
    """The subjects of a task's questions and their answers."""
    task = questions[number]
    return questions.titles(task.evidence), [accepted[0] for accepted in task.answers]


def renamed(played: Episode, names: Names, rng: np.random.Generator, times: int) -> Iterator[Episode]:
    """An episode with new names, this many times, so that a model learns to read, not to remember facts."""
    texts = [text for turn in pairs_of(played) for text in turn]
    context = played.turns[0].before["context"]
    for new in names.renamed(texts, rng, times):
        yield demonstration(list(zip(new[::2], new[1::2], strict=True)), context, played.success)
