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

from memenvs.core.env import Agent, Info, TextEnv, text_env_of
from memenvs.core.episode import observation_text
from memenvs.core.errors import unknown_name
from memenvs.core.optional import import_object
from memenvs.core.text import split_sentences
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.passages import holds_answer
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.envs.tool_qa import ToolQAEnv
from memenvs.rollout.names import OTHER_POLICIES
from memenvs.sokoban import solve
from memenvs.sokoban.environments import GOLD_BUDGET
from memenvs.sokoban.grid import SokobanGridEnv
from memenvs.tasks.metrics import wrap_answer


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
        imported = import_object(name)
        policy: Agent = imported(env) if len(inspect.signature(imported).parameters) == 1 else imported
        return policy
    inner: Any = env.unwrapped
    makers: dict[str, Callable[[], Agent]] = {}
    also = ""
    if isinstance(inner, TextEnv):
        also = OTHER_POLICIES
        makers = {
            "gold": lambda: lambda observation, info: inner.gold_reply(),
            "silent": lambda: lambda observation, info: "",
            "random_text": lambda: _random_text(seed),
        }
    if isinstance(inner, ChunkQAEnv):
        makers |= {"lexical": lambda: lexical_reader(inner), "careful": lambda: CarefulReader(inner, seed)}
        # It notes the answer once all evidence has been shown.
        makers["gold"] = lambda: (
            lambda observation, info: (
                inner.gold_reply() if inner.evidence_shown else inner.noting(inner.notes())
            )
        )
    elif isinstance(inner, SearchQAEnv):
        makers["lexical"] = lambda: lexical_searcher(inner)
        makers["gold"] = lambda: _gold_searcher(inner)
        if isinstance(inner, ToolQAEnv):
            makers["careful"] = lambda: careful_caller(inner)
    elif isinstance(inner, SokobanGridEnv):
        makers = {"gold": lambda: _solution(inner), "random": lambda: _random_moves(env, seed)}
    if not makers:
        text_env_of(env)  # says what is wrong with the environment
    if name not in makers:
        raise ValueError(unknown_name("no policy", name, makers, also))
    return makers[name]()


_FORMS = (
    *("{}", "\\boxed{{{}}}", "<answer>{}</answer>", "<think>{}</think>"),
    *("<search>{}</search>", "<mem>{}</mem>"),
)


def _random_text(seed: int) -> Agent:
    """Up to twenty random words of the observation, now and then inside a tag of one of the environments."""
    rng = np.random.default_rng(seed)

    def reply(observation: Any, info: Info) -> str:
        words = observation_text(observation).split() or ["nothing"]
        drawn = rng.choice(len(words), rng.integers(0, 20))
        form = _FORMS[rng.integers(len(_FORMS))]
        return form.format(" ".join(words[i] for i in drawn))

    return reply


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


def lexical_reader(env: ChunkQAEnv) -> Agent:
    """Plays chunked reading by word overlap.

    A sentence is worth the sum of the rarities (squared log inverse sentence frequency) of the words it
    shares with the question, the question's names counting more. While reading, names in the best sentences
    count half, so that a second hop can be found. The memory is the best sentences, each behind its
    document's title; the answer is the first name or number that the best of them adds to the question.

    Args:
        env: that it plays; it reads the observation and the memory.
    """

    def reply(observation: str, info: Info) -> str:
        question, memory = env.question, env.notes()
        if env.answering:
            return wrap_answer(_answer(question, memory), env.answer_format)
        section = _inside(observation, "section")
        for document in _HEADER.split(section):
            title, _, body = document.strip().partition("\n")
            memory += _lines(f"{title}: ", body) if body else _lines("", title)
        lines = list(dict.fromkeys(memory))
        return env.noting(_rank(question, lines, follow=_SECOND_HOP)[:_SENTENCES_KEPT])

    return reply


def lexical_searcher(env: SearchQAEnv) -> Agent:
    """Plays searching and the one tool call by word overlap: one search, for the question itself.

    The answer is chosen from the passages as `lexical_reader` chooses it from its memory; it is empty where
    there are none. Each of several questions is answered by itself.

    Args:
        env: that it plays.
    """

    def reply(observation: str, info: Info) -> str:
        task = env.questions[env.state.task]
        if info["turn"] == 0:
            return env.opening + env.form.call(task.question)
        lines = []
        for _, passages in _RESULTS.findall(observation):
            _, *parts = _PASSAGE.split(passages)
            for title, text in zip(parts[::2], parts[1::2], strict=True):
                lines += _lines(f"{title}: ", text)
        questions = task.question.split("; ") if len(task.answers) > 1 else [task.question]
        return env.opening + env.form.answer("; ".join(_answer(question, lines) for question in questions))

    return reply


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
            [line for line in lines if line not in notes] for lines in self._noted_lines(observation)
        )
        kept = [line for line in needed if self._rng.random() >= self._slip]
        if others and self._rng.random() < self._distractor:
            in_question = set(_words(env.tasks[env.state.task].question))
            drawn = self._rng.choice(len(others), min(3, len(others)), replace=False)
            likeliest = max(drawn, key=lambda i: len(in_question.intersection(_words(others[i]))))
            kept.append(others[likeliest])
        return env.noting([*notes, *kept])

    def _noted_lines(self, observation: str) -> tuple[list[str], list[str]]:
        """The sentences that an observation shows whole, as notes: those that are needed, and the others."""
        tasks, documents = self._env.tasks, self._env.state.documents
        spans = tasks[self._env.state.task].meta.get("spans", [])
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


def careful_caller(env: ToolQAEnv) -> Agent:
    """A teacher of the one tool call: it calls for the question and answers what the result holds.

    The reasoning of the answer is the first sentence of the result that holds it; an answer that no passage
    holds is "unknown".

    Args:
        env: that it plays.
    """

    def reply(observation: str, info: Info) -> str:
        if not env.state.history:
            question = env.questions[env.state.task].question
            return f"<reasoning>I look it up.</reasoning>\n{env.form.call(question)}"
        sentences = split_sentences(" ".join(env.state.history[-1][1].split()))
        answers = env.privileged()["answers"]
        sentence = next((sentence for sentence in sentences if holds_answer([sentence], answers)[0]), "")
        return f"<reasoning>{sentence}</reasoning>\n" + _known_answer(env, "tag", [sentence])

    return reply


def _gold_searcher(env: SearchQAEnv) -> Agent:
    """Searches for the question, and answers at the next turn."""

    def reply(observation: str, info: Info) -> str:
        if env.state.history or env.last_turn == 1:
            return env.gold_reply()
        return env.opening + env.form.call(env.questions[env.state.task].question)

    return reply


def _solution(env: SokobanGridEnv) -> Agent:
    """Makes the moves of a shortest solution of the level, if one is known or soon found; then up."""
    left = list[int]()

    def move(observation: Any, info: Info) -> int:
        if info["steps"] == 0:
            board, moves = env.levels[info["level"]]
            left[:] = solve(board, **GOLD_BUDGET).moves if moves is None else moves
        return left.pop(0) if left else 0

    return move


def _random_moves(env: gym.Env[Any, Any], seed: int) -> Agent:
    env.action_space.seed(seed)
    return lambda observation, info: env.action_space.sample()


def _known_answer(env: TextEnv[Any, Any], answer_format: str, read: Sequence[str]) -> str:
    """The gold answer where what was read holds it, otherwise "unknown"."""
    privileged = env.privileged()
    is_read, _ = holds_answer(read, privileged["answers"])
    return wrap_answer(privileged["target"] if is_read else "unknown", answer_format)


def _inside(text: str, tag: str) -> str:
    """The text between the first opening and the last closing line of a tag."""
    _, opened, rest = text.partition(f"<{tag}>\n")
    return rest.rpartition(f"\n</{tag}>")[0] if opened else ""


def _lines(title: str, text: str) -> list[str]:
    """Sentences of a text, each behind `title`."""
    return [title + sentence for sentence in split_sentences(" ".join(text.split()))]


def _rank(question: str, lines: Sequence[str], *, follow: float) -> list[str]:
    """The lines by worth, best first; names in the best of them count `follow` times their rarity."""
    bags = [set(_words(line)) for line in lines]
    frequency = Counter(word for bag in bags for word in bag)
    rarity = {word: math.log((1 + len(lines)) / count) ** 2 for word, count in frequency.items()}
    in_question = set(_words(question))
    in_names = {word for name in _names(question) for word in _words(name)}
    worth = [  # summed exactly, as a set has another order in each process
        math.fsum(rarity[word] * (_NAME_WEIGHT if word in in_names else 1.0) for word in bag & in_question)
        for bag in bags
    ]
    best = sorted(range(len(lines)), key=lambda i: -worth[i])[:_LINKING]
    linked = {word for i in best for name in _names(lines[i]) for word in _words(name)} - in_question
    for i, bag in enumerate(bags):
        worth[i] += follow * math.fsum(rarity[word] for word in bag & linked)
    return [lines[i] for i in sorted(range(len(lines)), key=lambda i: -worth[i])]


def _answer(question: str, memory: Sequence[str]) -> str:
    """The first name or number, as the question wants it, that the best lines add to the question.

    Without any it is yes, and without lines nothing.
    """
    in_question = set(_words(question))
    wants_number = not in_question.isdisjoint(_NUMBER_ASKED)
    for line in _rank(question, memory, follow=0.0):
        for name in _names(line.partition(": ")[2] or line):
            if in_question.isdisjoint(_words(name)) and name[0].isdigit() == wants_number:
                return name
    return "yes" if memory else ""


def _names(line: str) -> list[str]:
    """Capitalised words in a row, and numbers; not a single word that opens the line, as any word may."""
    names = [(match.start(), match.group().strip(" .,")) for match in _NAME.finditer(line)]
    return [name for start, name in names if start or " " in name]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
