"""Ray actors that hold environments and do jobs for them; an actor that dies is replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from memenvs.distributed.worker import Done, Facts, Job, Worker
from memenvs.extras import require
from memenvs.text_env import State
from memenvs.vector_options import is_whole


class WorkerDied(RuntimeError):
    """The actor of an environment died at every try of a job."""


class Pool:
    """Ray actors that hold N environments.

    The driver keeps the state of every environment as it was after its last job. An actor that dies is made
    anew, is given the states of its environments, and does the jobs again that it had not answered. An
    environment depends on its own state and replies alone, so the second answer is the one that was lost.

    Args:
        env: id of the environments.
        kwargs: their arguments.
        num_envs: N.
        workers: actors, at most N; environments are dealt in blocks.
        options: of the actors, as `ray.remote` takes them, such as `{"num_cpus": 0.5}`.
        tries: times a job is given out before the death of its actor is the job's error; the last time alone,
            so that of the environments of a block only the one that kills its actor fails.

    Raises:
        ValueError: `tries` is no whole number, or below 1.
    """

    def __init__(
        self,
        env: str,
        kwargs: dict[str, Any],
        num_envs: int,
        workers: int,
        options: dict[str, Any],
        tries: int = 3,
    ) -> None:
        if not is_whole(tries) or tries < 1:
            raise ValueError(f"tries must be a whole number, at least 1, got {tries!r}")
        self._ray = require("ray", "ray")
        if not self._ray.is_initialized():
            self._ray.init(include_dashboard=False, log_to_driver=False)
        remote = self._ray.remote(**options) if options else self._ray.remote
        self._actor, self._env, self._kwargs, self._tries = remote(Worker), env, kwargs, tries
        bounds = [num_envs * worker // workers for worker in range(workers + 1)]
        self._blocks = [list(range(bounds[w], bounds[w + 1])) for w in range(workers)]
        self._home = {number: w for w, block in enumerate(self._blocks) for number in block}
        self.states: list[State | None] = [None] * num_envs
        self._stale: set[int] = set()  # their actor does not have their state
        self.replaced = 0
        self.actors = [self._make(w) for w in range(workers)]
        told: Facts | Exception = self._ray.get(self.actors[0].facts.remote())
        if isinstance(told, Exception):
            self.close()
            raise told
        self.facts = told

    def set_state(self, number: int, state: State) -> None:
        """Let an environment go on from a state at its next job."""
        self.states[number] = state
        self._stale.add(number)

    def work(self, jobs: Iterable[Job]) -> dict[int, Done]:
        """Do jobs, at most one an environment, all actors at once.

        A job whose actor died again and again has a `WorkerDied` as its error, and its environment stands
        where it stood before.
        """
        waiting = {job.number: job for job in jobs}
        done: dict[int, Done] = {}
        for _ in range(self._tries - 1):
            if waiting:
                self._do(waiting, done)
        for job in list(waiting.values()):
            alone = {job.number: job}
            self._do(alone, done)
            if alone:
                error = WorkerDied(
                    f"the worker of environment {job.number} died {self._tries} times at one job; look at "
                    "its memory, and at what that environment does, or raise tries"
                )
                done[job.number] = Done(job.number, None, error, self.states[job.number])
        return done

    def close(self) -> None:
        """End the actors."""
        for actor in self.actors:
            self._ray.kill(actor)

    def _do(self, waiting: dict[int, Job], done: dict[int, Done]) -> None:
        """Give jobs out once and replace actors that died; answers move from `waiting` to `done`."""
        for w, answers in self._ask(list(waiting.values())):
            if answers is None:
                self._ray.kill(self.actors[w])  # it may still run behind a broken network
                self.actors[w] = self._make(w)
                self._stale.update(self._blocks[w])
                self.replaced += 1
                continue
            for answer in answers:
                done[answer.number] = answer
                self.states[answer.number] = answer.state
                self._stale.discard(answer.number)
                del waiting[answer.number]

    def _ask(self, jobs: Sequence[Job]) -> list[tuple[int, list[Done] | None]]:
        """Each asked actor's answers; None if it died."""
        dealt: dict[int, list[Job]] = {}
        for job in jobs:
            if job.number in self._stale:  # a beginning without a seed goes on with its generator
                job = job._replace(state=self.states[job.number])
            dealt.setdefault(self._home[job.number], []).append(job)
        promised = [(w, self.actors[w].work.remote(given)) for w, given in dealt.items()]
        return [(w, self._answers(promise)) for w, promise in promised]

    def _answers(self, promise: Any) -> list[Done] | None:
        known = self._ray.exceptions
        try:
            answers: list[Done] = self._ray.get(promise)
        except (known.RayActorError, known.OutOfMemoryError, known.ObjectLostError):
            return None  # dead, evicted for its memory, or gone with its node before its answer was fetched
        return answers

    def _make(self, worker: int) -> Any:
        return self._actor.remote(self._env, self._kwargs, self._blocks[worker])
