"""A text environment comes in; one whose action is the number of a reply goes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

import memenvs
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.envs.sokoban import SokobanEnv
from memenvs.envs.tool_qa import ToolQAEnv
from memenvs.metrics import wrap_answer
from memenvs.scoring import gold_answer, grade_answer
from memenvs.state import State, check_keys
from memenvs.text_env import Info

Env = gym.Env[Any, str]


class ChooseReply(gym.Wrapper[Any, Any, Any, str], RecordConstructorArgs):
    """Choose a reply by its number: the choice version of a task, after Gymnasium's `Discrete`.

    A question comes with n candidate answers: its own, and those of other tasks of the set, in random order.

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
        The environment's, and `replies`: the texts to choose from now, always as many.

    Args:
        env: a text environment, wrapped or not.
        n_answers: candidates, the right one included; of no matter in Sokoban.

    Raises:
        TypeError: no such environment.
        ValueError: fewer than 2 candidates, or more than a task can have.
    """

    def __init__(self, env: Env, n_answers: int = 4) -> None:
        RecordConstructorArgs.__init__(self, n_answers=n_answers)
        gym.Wrapper.__init__(self, env)
        if isinstance(n_answers, bool) or not isinstance(n_answers, int) or n_answers < 2:
            raise ValueError(f"n_answers must be a whole number, at least 2, got {n_answers!r}")
        kind = next((kind for kind in MENUS if isinstance(env.unwrapped, kind)), None)
        if kind is None:
            raise TypeError(f"there is no choice version of {type(env.unwrapped).__name__}")
        self.n_answers, self._menu = n_answers, MENUS[kind]
        self._answers: list[str] = []
        self._replies: list[str] = []
        self.action_space = gym.spaces.Discrete(
            {ChunkQAEnv: n_answers + 1, SokobanEnv: 4}.get(kind, 2 * n_answers + 1)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and draw its candidates from the environment's own generator."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._answers = [] if self._menu is move_replies else draw_answers(self.env.unwrapped, self.n_answers)
        return observation, self._shown(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Give the reply of that number."""
        if not self.action_space.contains(action):
            raise ValueError(f"an action is a number from 0 to {len(self._replies) - 1}, got {action!r}")
        observation, reward, terminated, truncated, info = self.env.step(self._replies[int(action)])
        return observation, reward, terminated, truncated, self._shown(info)

    def get_state(self) -> State:
        """The state of the environment, and the candidates."""
        return {"inner": memenvs.get_state(self.env), "answers": list(self._answers)}

    def set_state(self, state: State) -> None:
        """Go on from a state of `get_state`."""
        check_keys(state, "inner", "answers")
        memenvs.set_state(self.env, state["inner"])
        self._answers = list(state["answers"])
        self._replies = self._menu(self.env.unwrapped, self._answers)

    def _shown(self, info: dict[str, Any]) -> dict[str, Any]:
        self._replies = self._menu(self.env.unwrapped, self._answers)
        return {**info, "replies": list(self._replies)}


def draw_answers(env: Any, count: int) -> list[str]:
    """The right answer of the episode's task and `count - 1` wrong ones of other tasks, in random order.

    Raises:
        ValueError: the set has too few that are wrong.
    """
    tasks = env.tasks if isinstance(env, ChunkQAEnv) else env.questions
    rng: np.random.Generator = env.np_random
    task = tasks[env.episode.task]
    found = [gold_answer(task.answers, env.metric)]
    for other in rng.permutation(len(tasks)).tolist():
        if len(found) == count:
            break
        answer = gold_answer(tasks[other].answers, env.metric)
        if answer not in found and grade_answer(answer, task.answers, metric=env.metric).outcome == 0:
            found.append(answer)
    if len(found) < count:
        raise ValueError(f"n_answers={count}, but task {task.id} has {len(found)}; take fewer, or more tasks")
    return [found[place] for place in rng.permutation(count)]


def reading_replies(env: ChunkQAEnv, answers: Sequence[str]) -> list[str]:
    """Each candidate in the answer's form, and the memory as it is."""
    return [*(wrap_answer(answer, env.answer_format) for answer in answers), env.episode.memories[-1]]


def search_replies(env: SearchQAEnv, answers: Sequence[str]) -> list[str]:
    """Answers, and searches for the question alone and with each candidate."""
    opening = ("<mem></mem>" if env.remembers else "") + "<think></think>"
    question = env.questions[env.episode.task].question
    queries = [question, *(f"{question} {answer}" for answer in answers)]
    return [
        *(opening + wrap_answer(answer, "tag") for answer in answers),
        *(f"{opening}<search>{query}</search>" for query in queries),
    ]


def tool_replies(env: ToolQAEnv, answers: Sequence[str]) -> list[str]:
    """As `search_replies`, in the form of a tool call."""
    question = env.questions[env.episode.task].question
    queries = [question, *(f"{question} {answer}" for answer in answers)]
    calls = [json.dumps({"name": "wiki_search", "args": {"query": query}}) for query in queries]
    return [
        *(f"<reasoning></reasoning>{wrap_answer(answer, 'tag')}" for answer in answers),
        *(f"<reasoning></reasoning><tool>{call}</tool>" for call in calls),
    ]


def move_replies(env: SokobanEnv, answers: Sequence[str]) -> list[str]:
    """One move each."""
    return [f"<think></think><answer>{name}</answer>" for name in env.action_names]


MENUS: dict[type, Callable[[Any, Sequence[str]], list[str]]] = {
    ChunkQAEnv: reading_replies,
    SearchQAEnv: search_replies,
    ToolQAEnv: tool_replies,
    SokobanEnv: move_replies,
}
"""What the replies of each environment are."""
