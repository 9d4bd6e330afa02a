"""OpenEnv: any text environment behind a web server, one episode a session, many sessions at once.

`memenvs serve openenv --env MemSearchQA-v0 --env-args tasks=world-test`.
"""

from __future__ import annotations

import functools
import html
import inspect
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import memenvs
from memenvs.adapters.common import open_env, turn_record
from memenvs.core.arguments import read_arguments
from memenvs.core.env import MAX_REPLY_CHARS, task_options, text_env_of
from memenvs.core.optional import check_version
from memenvs.core.spaces import clean_text

check_version("openenv", "0.10", "0.11", "openenv")

from openenv.core.env_server import (  # noqa: E402  # after the check
    Action,
    Environment,
    Observation,
    State,
    create_app,
)
from openenv.core.env_server.types import ConcurrencyConfig, EnvironmentMetadata  # noqa: E402
from pydantic import BeforeValidator  # noqa: E402

VARIABLE = "MEMENVS_ENV"
IDLE = 3600.0  # seconds after which a session without a request is ended


# Before pydantic reads it, which refuses the lone surrogates that a model may write.
def _clean_reply(reply: Any) -> Any:
    return clean_text(reply, MAX_REPLY_CHARS) if isinstance(reply, str) else reply


class MemAction(Action):
    """A reply: any text, lone surrogates included."""

    reply: Annotated[str, BeforeValidator(_clean_reply)]


class MemObservation(Observation):
    """What the policy must read now.

    `context` and `feedback` are those of the info (see `memenvs.TextEnv`): a client that keeps a chat sends
    `feedback` as the next message where the context is `"append"`, otherwise `text` alone. `reward` is the
    turn's; `done` is either end; `metadata` are those of `memenvs.adapters.common.turn_record`.
    """

    text: str
    context: str
    feedback: str = ""
    truncated: bool = False


class MemState(State):
    """Which task a session plays."""

    task: str = ""


class MemEnvironment(Environment):
    """A text environment of one session, with OpenEnv's Task API: its one split is its task set.

    Args:
        env: the environment's id. By default the variable `MEMENVS_ENV` has id and arguments, as on a command
            line: `MemSearchQA-v0 tasks=world-test k=5`.
        env_args: the environment's arguments.
        methods: reward methods around the environment.
        scorer: gives the methods log-probabilities.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        env: str | None = None,
        env_args: Mapping[str, Any] | None = None,
        methods: Sequence[Any] = (),
        scorer: Any = None,
    ) -> None:
        super().__init__()
        if env is None:
            env, *words = shlex.split(os.environ.get(VARIABLE, "")) or [""]
            env_args = read_arguments(words, VARIABLE)
        if not env:
            raise ValueError(f"no environment: set {VARIABLE} to an id, such as MemSokoban-v0")
        self._id = env
        self._env = open_env(env, env_args, methods, scorer)
        self._inner = text_env_of(self._env)
        self._state = MemState()

    def list_splits(self) -> list[str]:
        """The name of the task set."""
        return [self._inner.task_set()[0] or self._id]

    def num_tasks(self, split: str) -> int:
        """The number of tasks.

        Raises:
            IndexError: there is no such split.
        """
        if split not in (splits := self.list_splits()):
            raise IndexError(f"there is no split {split!r}; the one split is {splits[0]!r}")
        return self._inner.n_tasks

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """A task: its `index`, for `reset`, and an `id`."""
        number = range(self.num_tasks(split))[index]
        return {"id": f"{split}/{number}", "index": number}

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        """The tasks of a slice."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))[start:stop]]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """All tasks."""
        return self.get_task_range(split)

    def get_metadata(self) -> EnvironmentMetadata:
        """Id, summary and contract of the environment, and the version of memenvs."""
        contract = inspect.getdoc(type(self._inner)) or ""
        summary = contract.partition("\n")[0]
        return EnvironmentMetadata(
            name=self._id, description=summary, readme_content=contract, version=memenvs.__version__
        )

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **kwargs: Any,
    ) -> MemObservation:
        """Start an episode; `seed` as in `TextEnv.reset`, `index` the number of a task of `split`."""
        if kwargs:
            raise ValueError(
                f"unknown reset argument {min(kwargs)!r}; there are seed, episode_id, split and index"
            )
        if split is not None:
            self.num_tasks(split)  # raises for another split
        text, info = self._env.reset(seed=seed, options=task_options(index))
        self._state = MemState(episode_id=episode_id, task=info["task"])
        return MemObservation(text=text, context=info["context"], metadata=turn_record(info))

    def step(self, action: MemAction, timeout_s: float | None = None, **kwargs: Any) -> MemObservation:
        """Play a reply."""
        text, reward, terminated, truncated, info = self._env.step(action.reply)
        self._state.step_count += 1
        return MemObservation(
            text=text,
            context=info["context"],
            feedback=info["feedback"],
            truncated=truncated,
            reward=float(reward),
            done=terminated or truncated,
            metadata=turn_record(info),
        )

    @property
    def state(self) -> MemState:
        """The episode's id, its turns and its task."""
        return self._state

    def render_web(self, observation: dict[str, Any]) -> str:
        """The text as the policy reads it, for the web page."""
        return f"<pre style='white-space: pre-wrap'>{html.escape(observation['text'])}</pre>"

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def make_app(env: str, max_concurrent_envs: int = 64, **settings: Any) -> Any:
    """A FastAPI application that serves an environment, one for each session.

    With `ENABLE_WEB_INTERFACE=true` among the environment variables it has a page at `/web` to play by hand.

    Args:
        env: the environment's id.
        max_concurrent_envs: the most sessions at once; more are refused. An idle session ends after an hour.
        **settings: more arguments of `MemEnvironment`.
    """
    make = functools.partial(MemEnvironment, env, **settings)
    make().close()  # raises here for wrong arguments, not at the first client
    return create_app(
        make,
        MemAction,
        MemObservation,
        env_name=env,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=max_concurrent_envs, session_timeout=IDLE),
        state_cls=MemState,
    )
