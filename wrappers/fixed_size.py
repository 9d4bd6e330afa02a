"""Wrappers for learners of fixed-size spaces: a `Discrete` action chooses a reply, a `Box` shows the text."""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections.abc import Sequence
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from msgspec import Meta
from numpy.typing import NDArray

from memenvs.core.data import Count, checked, convert, shown
from memenvs.core.env import Info, check_text_actions, check_text_observations
from memenvs.core.state import NO_EPISODE
from memenvs.tasks.metrics import gold_answer, grade_answer

Floats32 = NDArray[np.float32]

_WORD = re.compile(r"\w+|[^\w\s]")


class ChooseReply(gym.Wrapper[Any, Any, Any, str], RecordConstructorArgs):
    """Choose a reply by its number, an action of Gymnasium's `Discrete`.

    A question comes with n candidate answers: its own, and those of other tasks of the set, in random order.
    The environment's `choices` turns them into replies:

    - `MemChunkQA-v0`, `MemNIAH-v0`: each candidate in the answer's form, and the memory as it is. Before the
      answer turn the reply is the new memory.
    - `MemSearchQA-v0`, `MemToolQA-v0`: to answer with each candidate; to search for the question; to search
      for the question with each candidate.
    - `MemSokoban-v0`: one move up, down, left or right.

    Action:
        `Discrete`: the number of a reply in `info["replies"]`.

    Observation, Reward, End:
        The environment's.

    Info:
        The environment's, and `replies`: the texts to choose from now, always the same number of them.

    Args:
        env: a text environment, wrapped or not.
        n_answers: candidates, the right one included; unused in Sokoban.

    Raises:
        TypeError: an environment without `choices`.
        ValueError: fewer than 2 candidates, or more than a task can have; questions are asked one by one; or
            a `ChooseReply` is inside.
    """

    @checked
    def __init__(self, env: gym.Env[Any, str], n_answers: Annotated[int, Meta(ge=2)] = 4) -> None:
        RecordConstructorArgs.__init__(self, n_answers=n_answers)
        gym.Wrapper.__init__(self, env)
        self._inner: Any = env.unwrapped
        count = getattr(self._inner, "n_choices", None)
        if count is None:
            raise TypeError(f"{type(self._inner).__name__} has no version with choices")
        check_text_actions(env)
        if (ask := getattr(self._inner, "ask", "together")) != "together":
            raise ValueError(
                f"candidates answer all questions at once, and ask={ask!r} does not; use ask='together'"
            )
        self.n_answers = n_answers
        self._answers: list[str] = []
        self.candidate_replies: list[str] = []
        self.action_space = gym.spaces.Discrete(count(n_answers))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and draw its candidates from the environment's own generator."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._answers = draw_answers(self._inner, self.n_answers) if hasattr(self._inner, "metric") else []
        return observation, self._shown(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Give the reply of that number."""
        if not self.candidate_replies:
            raise gym.error.ResetNeeded(NO_EPISODE)
        if not self.action_space.contains(action):
            last = len(self.candidate_replies) - 1
            raise ValueError(f"an action is the number of a reply, from 0 to {last}, got {shown(action)}")
        observation, reward, terminated, truncated, info = self.env.step(self.candidate_replies[int(action)])
        return observation, reward, terminated, truncated, self._shown(info)

    def get_memory(self) -> list[str]:
        """The candidates, for `memenvs.get_state`."""
        return list(self._answers)

    def action_masks(self) -> NDArray[np.bool_]:
        """Which replies change something, (n,) bool, as MaskablePPO of sb3-contrib asks for them.

        In Sokoban these are the moves that move the player, or all where none does; elsewhere all replies.
        """
        mask: list[bool] = getattr(self._inner, "choice_mask", list)()
        return np.array(mask if any(mask) else [True] * len(self.candidate_replies))

    def check_memory(self, memory: Any) -> None:
        """Raise a one-line `ValueError` unless a memory is one of candidates."""
        convert(memory, list[str], "the candidates of the state")

    def set_memory(self, memory: list[str]) -> None:
        """Show the candidates of a memory."""
        self._answers = list(memory)
        self.candidate_replies = self._inner.choices(self._answers)

    def _shown(self, info: dict[str, Any]) -> dict[str, Any]:
        self.candidate_replies = self._inner.choices(self._answers)
        return {**info, "replies": list(self.candidate_replies)}


class HashText(gym.ObservationWrapper[Floats32, Any, str], RecordConstructorArgs):
    """Show a text as a vector of hashed n-grams (feature hashing, Weinberger et al. 2009, without signs).

    Observation:
        `Box(0, 1)` of float32, `size` numbers for the text; inside `ChooseReply` of m replies, followed by
        `size` for each of its replies, and m numbers: the share of a reply's n-grams that the text has too,
        so that a learner sees which of them the text mentions. `(1 + m) * size + m` in all.

    Args:
        env: a text environment, wrapped or not.
        size: buckets of a text.

    Raises:
        ValueError: the observations are not texts.
    """

    @checked
    def __init__(self, env: gym.Env[str, Any], size: Count = 256) -> None:
        RecordConstructorArgs.__init__(self, size=size)
        gym.ObservationWrapper.__init__(self, env)
        check_text_observations(env)
        self.size = size
        self._chooses = env.has_wrapper_attr("candidate_replies")
        space = env.action_space
        replies = int(space.n) if isinstance(space, gym.spaces.Discrete) else 0
        width = (1 + replies) * size + replies
        self.observation_space = gym.spaces.Box(0.0, 1.0, (width,), np.float32)

    def observation(self, observation: str) -> Floats32:
        replies = self.env.get_wrapper_attr("candidate_replies") if self._chooses else []
        return features(observation, replies, self.size)


def draw_answers(env: Any, count: int) -> list[str]:
    """The right answer of the episode's task and `count - 1` wrong ones of other tasks, in random order.

    Raises:
        ValueError: the set has too few that are wrong.
    """
    tasks = env.tasks if hasattr(env, "tasks") else env.questions
    rng: np.random.Generator = env.np_random
    task = tasks[env.state.task]
    answers = [gold_answer(task.answers, env.metric)]
    for other in rng.permutation(len(tasks)).tolist():
        if len(answers) == count:
            break
        answer = gold_answer(tasks[other].answers, env.metric)
        if answer not in answers and grade_answer(answer, task.answers, metric=env.metric).outcome == 0:
            answers.append(answer)
    if len(answers) < count:
        raise ValueError(
            f"n_answers={count}, but task {task.id} has {len(answers)}; take fewer, or more tasks"
        )
    return [answers[place] for place in rng.permutation(count)]


def features(text: str, replies: Sequence[str], size: int) -> Floats32:
    """The vector of a text and m replies, ((1 + m) * size + m,)."""
    of_text, of_replies = grams.__wrapped__(text), [grams(reply) for reply in replies]
    distinct = set(of_text)
    shared = [sum(gram in distinct for gram in row) / max(len(row), 1) for row in of_replies]
    rows = [hashed(row, size) for row in (of_text, *of_replies)]
    return np.concatenate([*rows, np.array(shared, np.float32)])


def hashed(hashes: Sequence[int], size: int) -> Floats32:
    """1 + log of how often each of `size` buckets was hit, 0 where never, scaled to length 1."""
    counts = np.bincount(np.array(hashes, np.int64) % size, minlength=size).astype(np.float32)
    counts = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0)
    length = np.linalg.norm(counts)
    return (counts / length if length else counts).astype(np.float32)


@functools.lru_cache(maxsize=1000)  # the replies to choose from are the same at most turns
def grams(text: str) -> tuple[int, ...]:
    """Hashes of the words of a text, of its pairs of words and of the letter triples inside its words."""
    words = _WORD.findall(text.lower())
    pairs = [_hash(f"{word} {following}") for word, following in itertools.pairwise(words)]
    # Long words are not kept, as a policy may write many.
    hashes = (_word(word) if len(word) < 64 else _word.__wrapped__(word) for word in words)
    return (*itertools.chain.from_iterable(hashes), *pairs)


@functools.lru_cache(maxsize=100_000)
def _word(word: str) -> tuple[int, ...]:
    """Hashes of a word and of its letter triples, its ends marked."""
    marked = f"<{word}>"
    return (_hash(word), *(_hash(f"#{marked[i : i + 3]}") for i in range(len(marked) - 2)))


def _hash(gram: str) -> int:
    # Python's own hash differs from process to process.
    return zlib.crc32(gram.encode("utf-8", "replace"))
