"""OpenEnv: any text environment behind a web server, one episode a session, many sessions at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from memenvs.adapters.common import open_env, public_info
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.optional import check_version
from memenvs.core.spaces import clean_text

check_version("openenv", "0.10", "0.11", "openenv")

from openenv.core.env_server import (  # noqa: E402  # after the check
    Action,
    Environment,
    Observation,
    State,
    create_fastapi_app,
)
from pydantic import BeforeValidator  # noqa: E402


def _clean_reply(reply: Any) -> Any:
    return clean_text(reply, MAX_REPLY_CHARS) if isinstance(reply, str) else reply


class MemAction(Action):
    """A reply: any text, lone surrogates included."""

    reply: Annotated[str, BeforeValidator(_clean_reply)]


class MemObservation(Observation):
    """What the policy must read now.

    `context` and `feedback` are those of the info (see `memenvs.TextEnv`): a client that keeps a chat sends
    `feedback` as the next message where the context is `"append"`, otherwise `text` alone. `reward` is the
    turn's; `done` is either end; `metadata` are those of `memenvs.adapters.common.public_info`.
    """

    text: str
    context: str
    feedback: str = ""
    truncated: bool = False


class MemState(State):
    """Which task a session plays."""

    task: str = ""


class MemEnvironment(Environment):
    """A text environment of one session.

    Args:
        env: its id.
        env_args: its arguments.
        methods: reward methods around it.
        scorer: theirs.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        env: str,
        env_args: Mapping[str, Any] | None = None,
        methods: Sequence[Any] = (),
        scorer: Any = None,
    ) -> None:
        super().__init__()
        self._env = open_env(env, env_args, methods, scorer)
        self._state = MemState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: int | None = None,
        **kwargs: Any,
    ) -> MemObservation:
        """Start an episode; `seed` and `task` as in `TextEnv.reset`."""
        if kwargs:
            raise ValueError(f"unknown reset argument {min(kwargs)!r}; there are seed, episode_id and task")
        text, info = self._env.reset(seed=seed, options=None if task is None else {"task": task})
        self._state = MemState(episode_id=episode_id, task=info["task"])
        return MemObservation(text=text, context=info["context"], metadata=public_info(info))

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
            metadata=public_info(info),
        )

    @property
    def state(self) -> MemState:
        """The episode's id, its turns and its task."""
        return self._state

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def make_app(env: str, max_concurrent_envs: int = 64, **settings: Any) -> Any:
    """A FastAPI application that serves an environment, one for each session.

    Args:
        env: its id.
        max_concurrent_envs: the most sessions at once; more are refused.
        **settings: of `MemEnvironment`.
    """
    make = functools.partial(MemEnvironment, env, **settings)
    make().close()  # raises here for wrong arguments, not at the first client
    return create_fastapi_app(
        make, MemAction, MemObservation, max_concurrent_envs=max_concurrent_envs, state_cls=MemState
    )
