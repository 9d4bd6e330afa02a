"""A `TextVectorEnv` whose environments run in Ray actors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from memenvs.distributed.pool import Pool
from memenvs.distributed.worker import Done, Job
from memenvs.text_env import State, TextEnv
from memenvs.vector import Mask, TextVectorEnv
from memenvs.vector_options import is_whole


class RemoteEnv(gym.Env[Any, str]):
    """An environment in an actor, as `TextVectorEnv` sees it.

    What was done ahead, with all others at once, is handed out when it is asked for; anything else is done
    then.

    Args:
        pool: has it.
        number: of it.
    """

    def __init__(self, pool: Pool, number: int) -> None:
        facts = pool.facts
        self._pool, self._number = pool, number
        self._ahead: Done | None = None
        self.spec, self.metadata, self.render_mode = facts.spec, facts.metadata, None
        self.observation_space, self.action_space = facts.observation_space, facts.action_space
        self.context, self.components, self.metric_names = facts.context, facts.components, facts.metric_names
        self.n_tasks = facts.n_tasks
        self.episode = SimpleNamespace(end="")  # all of an episode that is asked for here

    def check_options(self, options: dict[str, Any]) -> None:
        """See `TextEnv.check_options`, which looks at the number of tasks alone."""
        TextEnv.check_options(self, options)  # type: ignore[arg-type]

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
        self.episode.end = "terminated" if terminated else "truncated" if truncated else ""
        return observation, reward, terminated, truncated, info

    def done_ahead(self, done: Done | None) -> None:
        """What the next `reset` or `step` will find; None: nothing."""
        self._ahead = done

    def get_state(self) -> State:
        """The state after the last job."""
        state = self._pool.states[self._number]
        if state is None:
            raise gym.error.ResetNeeded("no episode yet; call reset() first")
        return state

    def set_state(self, state: State) -> None:
        """Go on from a state of `get_state`, or of the same environment in this process."""
        self._pool.set_state(self._number, state)

    def _take(self, job: Job) -> Any:
        done, self._ahead = self._ahead or self._pool.work([job])[self._number], None
        if done.error is not None:
            raise done.error
        return done.result


class RayTextVectorEnv(TextVectorEnv):
    """N text environments in Ray actors, behind the interface of `TextVectorEnv`.

    Episodes depend on seeds and replies alone, not on the number of workers. A worker that dies is replaced
    and its environments go on from their last states; `replaced` counts them. An environment at whose job
    the worker dies `tries` times raises `WorkerDied`, or, with `errors="truncate"`, ends its own episode.

    Replies of a step are played by all workers at once; an environment that begins by itself (autoreset)
    begins alone, so use mode `"Disabled"` and reset many by `reset_mask`, as
    `memenvs.baselines.rollout.collect` does.

    Each worker loads its own task set and its own lexical index; for a large one let them share a server,
    `retriever="http://host:port"`. Reward methods and their scorer stay with the driver
    (`VectorRewardWrapper`).

    Args:
        env: the environments' id.
        num_envs: N.
        workers: actors, from 1 to N.
        autoreset_mode: see `TextVectorEnv`.
        errors: see `TextVectorEnv`.
        ray_options: of an actor, as `ray.remote` takes them; one CPU by default.
        tries: times a job is given out before the death of its worker is an error.
        **kwargs: of the environment.

    Raises:
        ImportError: Ray is not installed.
        ValueError: no such number of workers or tries.
    """

    def __init__(
        self,
        env: str,
        num_envs: int,
        workers: int,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.DISABLED,
        errors: str = "raise",
        ray_options: dict[str, Any] | None = None,
        tries: int = 3,
        **kwargs: Any,
    ) -> None:
        if not is_whole(num_envs) or not is_whole(workers) or not 1 <= workers <= num_envs:
            raise ValueError(f"workers must be from 1 to num_envs, got {workers!r} for {num_envs!r}")
        self._pool = Pool(env, kwargs, num_envs, workers, ray_options or {}, tries)
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

    def _search_for(self, actions: Sequence[str], plays: Mask) -> None:
        """Play the replies ahead, each worker searching for its own."""
        self._work_ahead([Job(i, actions[i], {}) for i in np.flatnonzero(plays).tolist()])

    def _reset_ahead(self, hows: dict[int, dict[str, Any]]) -> None:
        self._work_ahead([Job(i, None, how) for i, how in hows.items()])

    def _work_ahead(self, jobs: list[Job]) -> None:
        done = self._pool.work(jobs)
        # All of them: where a step was left by an error, some may still hold what was done for it.
        for number, env in enumerate(self._remote):
            env.done_ahead(done.get(number))
