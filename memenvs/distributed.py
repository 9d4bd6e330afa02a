"""Text environments in Ray actors, on this machine or many; see docs/trainers.md."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import memenvs
from memenvs.core.data import Count, checked
from memenvs.core.env import State, check_task, end_of
from memenvs.core.errors import error_line
from memenvs.core.processes import connect_ray
from memenvs.core.vector import Mask, TextVectorEnv, prepare_together

__all__ = ["RayTextVectorEnv", "WorkerDied"]

ENV_ATTRIBUTES = ("spec", "observation_space", "action_space", "metadata")
TEXT_ENV_ATTRIBUTES = ("context", "components", "metric_names", "n_tasks")


class RayTextVectorEnv(TextVectorEnv):
    """N text environments in Ray actors, with the interface of `TextVectorEnv`.

    Episodes depend on seeds and replies alone, not on the number of workers. A worker that dies is replaced
    and its environments continue from their last states; `replaced` counts such workers. If a
    worker dies `tries` times at a job, its environment raises `WorkerDied` or, with `errors="truncate"`, ends
    its episode.

    Replies of a step are played by all workers at once. Autoreset starts episodes one by one, so use mode
    `"Disabled"` and reset many by `reset_mask`, as `memenvs.rollout.engine.collect` does.

    Each worker loads its own task set and its own lexical index; for a large one let them share a server,
    `retriever="http://host:port"`. Reward methods and their scorer stay with the driver
    (`VectorRewardWrapper`).

    Args:
        env: the environments' id.
        num_envs: N.
        workers: actors; more than N are not started.
        autoreset_mode: see `TextVectorEnv`.
        errors: see `TextVectorEnv`.
        ray_options: of an actor, as `ray.remote` takes them; one CPU by default.
        tries: how often a job is tried before the death of its worker is an error. The last try runs it
            alone, so that only the environment that kills the worker fails.
        **kwargs: of the environment.

    Raises:
        ImportError: Ray is not installed.
        ValueError: an argument that the environment refuses.
    """

    @checked
    def __init__(
        self,
        env: str,
        num_envs: Count,
        workers: Count,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.DISABLED,
        errors: Literal["raise", "truncate"] = "raise",
        ray_options: dict[str, Any] | None = None,
        tries: Count = 3,
        **kwargs: Any,
    ) -> None:
        self._pool = WorkerPool(env, kwargs, num_envs, min(workers, num_envs), ray_options or {}, tries)
        self._remote = [RemoteEnv(self._pool, number) for number in range(num_envs)]
        makers = [functools.partial(self._remote.__getitem__, number) for number in range(num_envs)]
        super().__init__(makers, autoreset_mode=autoreset_mode, errors=errors)

    @property
    def replaced(self) -> int:
        """Workers that died and were replaced."""
        return self._pool.replaced

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers."""
        self._pool.close()

    def _prepare(self, actions: Sequence[str], plays: Mask) -> None:
        """Play the replies ahead, each worker searching for its own."""
        self._work_ahead([Job(i, actions[i], {}) for i in np.flatnonzero(plays).tolist()])

    def _reset_ahead(self, hows: dict[int, dict[str, Any]]) -> None:
        self._work_ahead([Job(i, None, how) for i, how in hows.items()])

    def _work_ahead(self, jobs: list[Job]) -> None:
        done = self._pool.work(jobs)
        # For all: after a step that raised, some may still hold a result of it.
        for number, env in enumerate(self._remote):
            env.ahead = done.get(number)


class WorkerDied(RuntimeError):
    """The actor of an environment died at every try of a job."""


class RemoteEnv(gym.Env[Any, str]):
    """An environment in an actor, as `TextVectorEnv` sees it.

    Attributes:
        ahead: a result that the pool computed with those of the others, which the next `reset` or `step`
            returns; None: the worker is asked then.
    """

    n_tasks: int  # of the pool's attributes

    def __init__(self, pool: WorkerPool, number: int) -> None:
        self._pool, self._number = pool, number
        self.ahead: JobResult | None = None
        self.render_mode = None
        vars(self).update(pool.attributes)
        self.episode = SimpleNamespace(end="")  # all of an episode that is read here

    def check_options(self, options: dict[str, Any]) -> None:
        """See `TextEnv.check_options`."""
        check_task(options, self.n_tasks)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self.episode.end = ""
        observation, info = self._take(Job(self._number, None, {"seed": seed, "options": options}))
        return observation, info

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play a reply."""
        observation, reward, terminated, truncated, info = self._take(Job(self._number, action, {}))
        self.episode.end = end_of(terminated, truncated)
        return observation, reward, terminated, truncated, info

    def get_state(self) -> State:
        """The state after the last job."""
        state = self._pool.states[self._number]
        if state is None:
            raise gym.error.ResetNeeded("no episode yet; call reset() first")
        return state

    def set_state(self, state: State) -> None:
        """Continue from a state of `get_state`, or of the same environment in this process."""
        self._pool.states[self._number] = state
        self._pool.stale.add(self._number)

    def _take(self, job: Job) -> Any:
        done, self.ahead = self.ahead or self._pool.work([job])[self._number], None
        if done.error is not None:
            raise done.error
        return done.result


class WorkerPool:
    """Ray actors that hold N environments.

    The driver keeps the state of every environment after its last job. An actor that dies is replaced: the
    new one gets the states of its environments and does the unanswered jobs again. An environment depends on
    its own state and replies alone, so the second answer is the one that was lost. Each actor gets a block of
    neighbouring environments.

    Attributes:
        states: of the environments; None before the first episode.
        stale: numbers of the environments whose actor does not have their state.
        replaced: actors that died.
    """

    def __init__(
        self,
        env: str,
        kwargs: dict[str, Any],
        num_envs: int,
        workers: int,
        options: dict[str, Any],
        tries: int,
    ) -> None:
        self._ray = connect_ray()
        remote = self._ray.remote(**options) if options else self._ray.remote
        self._actor, self._env, self._kwargs, self._tries = remote(EnvWorker), env, kwargs, tries
        self._blocks = [part.tolist() for part in np.array_split(np.arange(num_envs), workers)]
        self._home = {number: w for w, block in enumerate(self._blocks) for number in block}
        self.states: list[State | None] = [None] * num_envs
        self.stale: set[int] = set()
        self.replaced = 0
        self.actors = [self._make(w) for w in range(workers)]
        attributes: dict[str, Any] | Exception = self._ray.get(self.actors[0].attributes.remote())
        if isinstance(attributes, Exception):
            self.close()
            raise attributes
        self.attributes = attributes

    def work(self, jobs: Iterable[Job]) -> dict[int, JobResult]:
        """Do jobs, at most one for each environment, in all actors at once.

        A job whose actor died at every try has a `WorkerDied` as its error, and its environment keeps the
        state it had before.
        """
        waiting = {job.number: job for job in jobs}
        done: dict[int, JobResult] = {}
        for left in reversed(range(self._tries)):
            given = list(waiting.values())
            for part in [given] if left else [[job] for job in given]:
                self._give_out(part, done)
            waiting = {number: job for number, job in waiting.items() if number not in done}
        for number in waiting:
            error = WorkerDied(
                f"the worker of environment {number} died {self._tries} times at one job; look at its "
                "memory, and at what that environment does, or raise tries"
            )
            done[number] = JobResult(None, error, self.states[number])
        return done

    def close(self) -> None:
        """End the actors."""
        for actor in self.actors:
            self._ray.kill(actor)

    def _give_out(self, jobs: Sequence[Job], done: dict[int, JobResult]) -> None:
        """Ask for jobs once, put the answers into `done`, and replace actors that died."""
        dealt: dict[int, list[Job]] = {}
        for job in jobs:
            if job.number in self.stale:  # also at a reset: without a seed it uses the same generator
                job = job._replace(state=self.states[job.number])
            dealt.setdefault(self._home[job.number], []).append(job)
        promises = {w: self.actors[w].work.remote(given) for w, given in dealt.items()}
        died = self._ray.exceptions
        for w, given in dealt.items():
            try:
                answers: list[JobResult] = self._ray.get(promises[w])
            except (died.RayActorError, died.OutOfMemoryError, died.ObjectLostError):
                # Dead, evicted for its memory, or lost with its node before its answer was fetched.
                self._ray.kill(self.actors[w])  # it may still run behind a broken network
                self.actors[w] = self._make(w)
                self.stale.update(self._blocks[w])
                self.replaced += 1
                continue
            for job, answer in zip(given, answers, strict=True):
                done[job.number] = answer
                self.states[job.number] = answer.state
                self.stale.discard(job.number)

    def _make(self, worker: int) -> Any:
        return self._actor.remote(self._env, self._kwargs, self._blocks[worker])


class EnvWorker:
    """The environments of some numbers in one process; a Ray actor is made of it."""

    def __init__(self, env: str, kwargs: dict[str, Any], numbers: list[int]) -> None:
        self._env, self._kwargs, self._numbers = env, kwargs, numbers
        self._begun: set[int] = set()

    def attributes(self) -> dict[str, Any] | Exception:
        """The attributes that the environments have in common, or why they cannot be made."""
        try:
            env = self._envs[self._numbers[0]]
        except Exception as raised:
            return _sendable(raised)
        return {name: getattr(env, name) for name in ENV_ATTRIBUTES} | {
            name: getattr(env.unwrapped, name) for name in TEXT_ENV_ATTRIBUTES
        }

    def work(self, jobs: list[Job]) -> list[JobResult]:
        """Do the jobs, all searches among them as one call; if it fails, each environment searches alone."""
        for job in jobs:
            if job.state is not None:
                memenvs.set_state(self._envs[job.number], job.state)
                self._begun.add(job.number)
        replies = ((self._envs[job.number].unwrapped, job.reply) for job in jobs if job.reply is not None)
        prepare_together(replies, may_fail=True)
        return [self._do(job) for job in jobs]

    @functools.cached_property
    def _envs(self) -> dict[int, gym.Env[Any, Any]]:
        return {
            number: gym.make(self._env, disable_env_checker=True, **self._kwargs) for number in self._numbers
        }

    def _do(self, job: Job) -> JobResult:
        env = self._envs[job.number]
        result, error = None, None
        try:
            result = env.reset(**job.how) if job.reply is None else env.step(job.reply)
            self._begun.add(job.number)
        except Exception as raised:
            error = _sendable(raised)
        state = memenvs.get_state(env) if job.number in self._begun else None
        return JobResult(result, error, state)


class Job(NamedTuple):
    """A reset or a step of one environment."""

    number: int  # of the environment, over all workers
    reply: str | None  # to play; None for a reset
    how: dict[str, Any]  # seed and options of the reset
    state: State | None = None  # to continue from; None where the worker has it


class JobResult(NamedTuple):
    """The result of a job."""

    result: Any  # of `reset` or `step`; None where it raised
    error: Exception | None
    state: State | None  # of the environment now; None where it never began


def _sendable(error: Exception) -> Exception:
    """The error, or one that says the same where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(error_line(error))
    return error
