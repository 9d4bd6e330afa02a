"""Jobs for some environments come in; what came of each, and the state to go on from, goes out."""

from __future__ import annotations

import functools
import pickle
from typing import Any, NamedTuple

import gymnasium as gym

import memenvs
from memenvs.envs.searching import search_together
from memenvs.text_env import State
from memenvs.vector_errors import error_line


class Job(NamedTuple):
    """What an environment must do.

    Attributes:
        number: of the environment, over all workers.
        reply: to play; None to begin an episode.
        how: seed and options of the beginning.
        state: to go on from first; None where the worker has it.
    """

    number: int
    reply: str | None
    how: dict[str, Any]
    state: State | None = None


class Done(NamedTuple):
    """What came of a job.

    Attributes:
        number: of the environment.
        result: what `reset` or `step` returned; None where it raised.
        error: what it raised.
        state: of the environment now; None where it never began.
    """

    number: int
    result: Any
    error: Exception | None
    state: State | None


class Facts(NamedTuple):
    """What the driver must know of an environment that it does not hold."""

    spec: Any
    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    context: str
    components: tuple[str, ...]
    metric_names: tuple[str, ...]
    n_tasks: int


class Worker:
    """Some environments in one process; a Ray actor is made of it.

    Args:
        env: their id.
        kwargs: their arguments.
        numbers: which of all environments stand here.
    """

    def __init__(self, env: str, kwargs: dict[str, Any], numbers: list[int]) -> None:
        self._env, self._kwargs, self._numbers = env, kwargs, numbers
        self._begun: set[int] = set()

    def facts(self) -> Facts | Exception:
        """What the environments have in common, or why they cannot be made."""
        try:
            env = self._envs[self._numbers[0]]
        except Exception as raised:
            return sendable(raised)
        inner: Any = env.unwrapped
        told = (inner.context, inner.components, inner.metric_names, inner.n_tasks)
        return Facts(env.spec, env.observation_space, env.action_space, env.metadata, *told)

    def work(self, jobs: list[Job]) -> list[Done]:
        """Do the jobs, all searches among them as one call; if it fails, each environment searches alone."""
        for job in jobs:
            if job.state is not None:
                memenvs.set_state(self._envs[job.number], job.state)
                self._begun.add(job.number)
        replies = ((self._envs[job.number].unwrapped, job.reply) for job in jobs if job.reply is not None)
        search_together(replies, may_fail=True)
        return [self._do(job) for job in jobs]

    @functools.cached_property
    def _envs(self) -> dict[int, gym.Env[Any, Any]]:
        return {
            number: gym.make(self._env, disable_env_checker=True, **self._kwargs) for number in self._numbers
        }

    def _do(self, job: Job) -> Done:
        env = self._envs[job.number]
        result, error = None, None
        try:
            result = env.reset(**job.how) if job.reply is None else env.step(job.reply)
            self._begun.add(job.number)
        except Exception as raised:
            error = sendable(raised)
        state = memenvs.get_state(env) if job.number in self._begun else None
        return Done(job.number, result, error, state)


def sendable(error: Exception) -> Exception:
    """The error, or one that says the same where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(error_line(error))
    return error
