"""Policies without a model, by name."""

from __future__ import annotations

import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.env import Agent, Info, TextEnv
from memenvs.core.optional import import_object
from memenvs.core.text import split_sentences
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.passages import holds_answer
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.envs.sokoban import GOLD_BUDGET
from memenvs.envs.sokoban_grid import SokobanGridEnv
from memenvs.envs.tool_qa import ToolQAEnv
from memenvs.sokoban import solve
from memenvs.tasks.metrics import wrap_answer

POLICIES = {
    "gold": "Knows the answer, which the environment tells it. It reads until the evidence has been shown, "
    "searches or calls the tool for the question once, and then answers. In Sokoban it plays a shortest "
    "solution, which the board alone decides.",
    "silent": "Always replies with nothing.",
    "random_text": "Replies with random words of the observation, and random tags.",
    "lexical": "Keeps the sentences that share rare words with the question and answers from them; it plays "
    "chunked reading, searching and the one tool call.",
    "careful": "Knows which sentences are needed and notes them as it reads, with slips and distractors, or "
    "calls the tool for the question; it answers only what it has read. A teacher for chunked reading and "
    "the one tool call.",
}
"""What each policy of a text environment does, by its name."""

TEACHERS = frozenset({"gold", "careful"})
"""Policies that look up in their environment what only a trainer may see; tables of scores say so."""


def policy_label(name: str) -> str:
    """A policy's name as tables show it.

    >>> policy_label("gold")
    'gold (sees privileged information)'
    """
    return f"{name} (sees privileged information)" if name in TEACHERS else name


def make_policy(name: str, env: gym.Env[Any, Any], seed: int = 0) -> Agent:
    """A policy by name; `POLICIES` says what each does. `MemSokobanGrid-v0` has `gold` and `random`.

    `module:function` is a policy of your own. A function or class of one argument gets the environment and
    returns the policy.

    Args:
        name: name of the policy.
        env: environment that it will play, wrapped or not.
        seed: seed of its random choices.

    Raises:
        ValueError: no such policy for this environment, or nothing to import by this name.
    """
    if ":" in name:
        named = import_object(name)
        policy: Agent = named(env) if len(inspect.signature(named).parameters) == 1 else named
        return policy
    inner: Any = env.unwrapped
    makers: dict[str, Callable[[], Agent]] = {}
    also = ""
    if isinstance(inner, TextEnv):
        also = ", module:function of your own, or a model: hf:MODEL, openai:URL --model NAME"
        makers = {
            "gold": lambda: lambda observation, info: inner.gold_reply(),
            "silent": lambda: lambda observation, info: "",
            "random_text": lambda: RandomText(seed),
        }
    if isinstance(inner, ChunkQAEnv):
        makers |= {"lexical": lambda: LexicalReader(inner), "careful": lambda: CarefulReader(inner, seed)}
        makers["gold"] = lambda: _gold_reader(inner)
    elif isinstance(inner, SearchQAEnv):
        makers["lexical"] = lambda: LexicalSearcher(inner)
        makers["gold"] = lambda: _gold_searcher(inner)
        if isinstance(inner, ToolQAEnv):
            makers["careful"] = lambda: CarefulCaller(inner)
    elif isinstance(inner, SokobanGridEnv):
        makers = {"gold": lambda: _Solution(inner), "random": lambda: _random_moves(env, seed)}
    if name not in makers:
        raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(makers)}{also}")
    return makers[name]()


class RandomText:
    """Up to twenty random words of the observation, now and then inside a tag of one of the environments.

    Args:
        seed: of its own generator.
    """

    _FORMS = (
        "{}",
        "\\boxed{{{}}}",
        "<answer>{}</answer>",
        "<think>{}</think>",
        "<search>{}</search>",
        "<mem>{}</mem>",
    )

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, observation: str, info: Info) -> str:
        """A random reply."""
        text = observation if isinstance(observation, str) else observation["text"]
        words = text.split() or ["nothing"]
        drawn = self._rng.choice(len(words), self._rng.integers(0, 20))
        form = self._FORMS[self._rng.integers(len(self._FORMS))]
        return form.format(" ".join(words[i] for i in drawn))


_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"\b[A-Z][\w'-]*(?: (?:(?:of|the|and) )?[A-Z][\w'-]*)*|\b\d[\d,.]*\b")
_HEADER = re.compile(r"^Document \d+:$", re.MULTILINE)
_RESULTS = re.compile(r"<(information|result|tool_response)>(.*?)</\1>", re.DOTALL)
_PASSAGE = re.compile(r"^Doc \d+\(Title: (.*?)\) ", re.MULTILINE)
_SENTENCES_KEPT = 12
_NAME_WEIGHT = 4.0  # of the names in the question
_SECOND_HOP = 0.5  # weight of the names found in the best sentences, beside the question's own words
_LINKING = 3  # sentences whose names are followed
_NUMBER_ASKED = frozenset({"year", "when", "many", "number"})


class LexicalReader:
    """Plays chunked reading by word overlap.

    A sentence is worth the sum of the rarities (squared log inverse sentence frequency) of the words it
    shares with the question, the question's names counting more. While reading, names in the best sentences
    count half, so that a second hop can be found. The memory is the best sentences, each behind its
    document's title; the answer is the first name or number that the best of them adds to the question.

    Args:
        env: that it plays; it reads the observation and the memory.
    """

    def __init__(self, env: ChunkQAEnv) -> None:
        self._env = env

    def __call__(self, observation: str, info: Info) -> str:
        """The new memory, or the answer once no section is shown."""
        env, question = self._env, self._env.question
        memory = env.notes()
        if env.answering:
            return wrap_answer(_answer(question, memory), env.answer_format)
        section = _inside(observation, "section")
        for document in _HEADER.split(section):
            title, _, body = document.strip().partition("\n")
            memory += _sentences(f"{title}: ", body) if body else _sentences("", title)
        lines = list(dict.fromkeys(memory))
        return env.noting(_rank(question, lines, follow=_SECOND_HOP)[:_SENTENCES_KEPT])


class LexicalSearcher:
    """Plays searching and the one tool call by word overlap: one search, for the question itself.

    The answer is chosen from the passages as `LexicalReader` chooses it from its memory; it is empty where
    there are none. Each of several questions is answered by itself.

    Args:
        env: that it plays.
    """

    def __init__(self, env: SearchQAEnv) -> None:
        self._env = env

    def __call__(self, observation: str, info: Info) -> str:
        """A search at the first turn, then the answer."""
        env = self._env
        task = env.questions[env.episode.task]
        if info["turn"] == 0:
            return env.opening + env.form.call(task.question)
        lines = []
        for _, passages in _RESULTS.findall(observation):
            _, *parts = _PASSAGE.split(passages)
            for title, text in zip(parts[::2], parts[1::2], strict=True):
                lines += _sentences(f"{title}: ", text)
        questions = task.question.split("; ") if len(task.answers) > 1 else [task.question]
        return env.opening + env.form.answer("; ".join(_answer(question, lines) for question in questions))


class CarefulReader:
    """A teacher of memories: it knows which sentences are needed, and may still slip.

    At a chunk the memory is the notes before it and, one a line, the sentences of the chunk that the task set
    marks as needed, as the text has them; one that does not name its document follows the title. A
    needed sentence is missed with probability `slip`. With probability `distractor` a sentence that is not
    needed is noted: the one, of three drawn, that shares the most words with the question. The answer is the
    gold one where the notes hold it, otherwise "unknown".

    Args:
        env: that it plays; its task set marks sentences, as HotpotQA's and the world's do.
        seed: of slips and distractors.
        slip: probability, a needed sentence.
        distractor: probability, a chunk.
    """

    def __init__(self, env: ChunkQAEnv, seed: int = 0, slip: float = 0.1, distractor: float = 0.2) -> None:
        self._env, self._rng = env, np.random.default_rng(seed)
        self._slip, self._distractor = slip, distractor

    def __call__(self, observation: str, info: Info) -> str:
        """The new memory, or the answer once every chunk has been read."""
        env, notes = self._env, self._env.notes()
        if env.answering:
            return _known_answer(env, env.answer_format, notes)
        needed, others = (
            [line for line in lines if line not in notes] for lines in self._sentences(observation)
        )
        kept = [line for line in needed if self._rng.random() >= self._slip]
        if others and self._rng.random() < self._distractor:
            asked = set(_words(env.tasks[env.episode.task].question))
            drawn = self._rng.choice(len(others), min(3, len(others)), replace=False)
            likeliest = max(drawn, key=lambda i: len(asked.intersection(_words(others[i]))))
            kept.append(others[likeliest])
        return env.noting([*notes, *kept])

    def _sentences(self, observation: str) -> tuple[list[str], list[str]]:
        """The sentences that an observation shows whole, as notes: those that are needed, and the others."""
        tasks, documents = self._env.tasks, self._env.episode.documents
        spans = tasks[self._env.episode.task].meta.get("spans", [])
        needed, others = list[str](), list[str]()
        titles, texts = tasks.titles(documents), tasks.texts(documents)
        for document, title, text in zip(documents, titles, texts, strict=True):
            marked = [text[start:end].strip() for number, start, end in spans if number == document]
            for sentence in split_sentences(text):
                if sentence in observation:
                    line = sentence if title in sentence else f"{title}: {sentence}"
                    wanted = any(sentence in span or span in sentence for span in marked)
                    (needed if wanted else others).append(line)
        return needed, others


class CarefulCaller:
    """A teacher of the one tool call: it calls for the question and answers what the result holds.

    The reasoning of the answer is the first sentence of the result that holds it; an answer that no passage
    holds is "unknown".

    Args:
        env: that it plays.
    """

    def __init__(self, env: ToolQAEnv) -> None:
        self._env = env

    def __call__(self, observation: str, info: Info) -> str:
        """The call at the first turn, then the answer."""
        env = self._env
        if not env.episode.history:
            question = env.questions[env.episode.task].question
            return f"<reasoning>I look it up.</reasoning>\n{env.form.call(question)}"
        read = split_sentences(" ".join(env.episode.history[-1][1].split()))
        answers = env.privileged()["answers"]
        said = next((passage for passage in read if holds_answer([passage], answers)[0]), "")
        return f"<reasoning>{said}</reasoning>\n" + _known_answer(env, "tag", [said])


def _gold_reader(env: ChunkQAEnv) -> Agent:
    """Notes the answer once all evidence has been shown."""
    return lambda observation, info: env.gold_reply() if env.evidence_shown else env.noting(env.notes())


def _gold_searcher(env: SearchQAEnv) -> Agent:
    """Searches for the question, and answers at the next turn."""

    def reply(observation: str, info: Info) -> str:
        if env.episode.history or env.last_turn == 1:
            return env.gold_reply()
        return env.opening + env.form.call(env.questions[env.episode.task].question)

    return reply


class _Solution:
    """Makes the moves of a shortest solution of the level, if one is known or soon found; then up."""

    def __init__(self, env: SokobanGridEnv) -> None:
        self._env, self._moves = env, list[int]()

    def __call__(self, observation: Any, info: Info) -> int:
        if info["steps"] == 0:
            board, moves = self._env.levels[info["level"]]
            self._moves = list(solve(board, **GOLD_BUDGET).moves if moves is None else moves)
        return self._moves.pop(0) if self._moves else 0


def _random_moves(env: gym.Env[Any, Any], seed: int) -> Agent:
    env.action_space.seed(seed)
    return lambda observation, info: env.action_space.sample()


def _known_answer(env: TextEnv[Any, Any], answer_format: str, read: Sequence[str]) -> str:
    """The gold answer where what was read holds it, otherwise "unknown"."""
    privileged = env.privileged()
    known, _ = holds_answer(read, privileged["answers"])
    return wrap_answer(privileged["target"] if known else "unknown", answer_format)


def _inside(text: str, tag: str) -> str:
    """The text between the first opening and the last closing line of a tag."""
    _, opened, rest = text.partition(f"<{tag}>\n")
    return rest.rpartition(f"\n</{tag}>")[0] if opened else ""


def _sentences(title: str, text: str) -> list[str]:
    """Sentences of a text, each behind `title`."""
    return [title + sentence for sentence in split_sentences(" ".join(text.split()))]


def _rank(question: str, lines: Sequence[str], *, follow: float) -> list[str]:
    """The lines by worth, best first; names in the best of them count `follow` times their rarity."""
    bags = [set(_words(line)) for line in lines]
    frequency = Counter(word for bag in bags for word in bag)
    rarity = {word: math.log((1 + len(lines)) / count) ** 2 for word, count in frequency.items()}
    asked = set(_words(question))
    named = {word for name in _names(question) for word in _words(name)}
    worth = [  # summed exactly, as a set has another order in each process
        math.fsum(rarity[word] * (_NAME_WEIGHT if word in named else 1.0) for word in bag & asked)
        for bag in bags
    ]
    best = sorted(range(len(lines)), key=lambda i: -worth[i])[:_LINKING]
    linked = {word for i in best for name in _names(lines[i]) for word in _words(name)} - asked
    for i, bag in enumerate(bags):
        worth[i] += follow * math.fsum(rarity[word] for word in bag & linked)
    return [lines[i] for i in sorted(range(len(lines)), key=lambda i: -worth[i])]


def _answer(question: str, memory: Sequence[str]) -> str:
    """The first name or number, as the question wants it, that the best lines add to the question.

    Without any it is yes, and without lines nothing.
    """
    asked = set(_words(question))
    wants_number = not asked.isdisjoint(_NUMBER_ASKED)
    for line in _rank(question, memory, follow=0.0):
        for name in _names(line.partition(": ")[2] or line):
            if asked.isdisjoint(_words(name)) and name[0].isdigit() == wants_number:
                return name
    return "yes" if memory else ""


def _names(line: str) -> list[str]:
    """Capitalised words in a row, and numbers; not a single word that opens the line, as any word may."""
    names = [(match.start(), match.group().strip(" .,")) for match in _NAME.finditer(line)]
    return [name for start, name in names if start or " " in name]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
