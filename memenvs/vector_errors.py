"""An environment of several has raised; the infos of an episode that ends so go out."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from memenvs.arguments import one_line
from memenvs.text_env import Info

ERRORS = ("raise", "truncate")
MAX_ERROR_CHARS = 500


def error_line(error: BaseException) -> str:
    r"""Kind and message of an error in one line of at most `MAX_ERROR_CHARS` characters, never empty.

    >>> error_line(ConnectionError("no server\nat http://node:8000"))
    'ConnectionError: no server at http://node:8000'
    """
    message = one_line(error)
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return line[:MAX_ERROR_CHARS]


def failed_turn(info: Info) -> Info:
    """The info of a turn that failed: as it was before, one turn later, which earned and showed nothing."""
    return {
        **info,
        "turn": info["turn"] + 1,
        "feedback": "",
        "rewards": dict.fromkeys(info["rewards"], 0.0),
        "turn_rewards": [*info["turn_rewards"], 0.0],
    }


def failed_reset(env: gym.Env[Any, Any], info: Info) -> Info:
    """The info of an episode that did not begin: no task, no turns, and the keys of the episode before.

    Args:
        env: whose reset failed.
        info: its last one; empty if it never had any. What every text environment tells stands then.
    """
    inner: Any = env.unwrapped
    context = getattr(inner, "context", "append")
    components, metrics = getattr(inner, "components", ()), getattr(inner, "metric_names", ("success",))
    known = info or {"context": context, "rewards": components, "metrics": metrics, "privileged": {}}
    return {
        **known,
        "task": "",
        "turn": 0,
        "feedback": "",
        "rewards": dict.fromkeys(known["rewards"], 0.0),
        "turn_rewards": [],
        "metrics": dict.fromkeys(known["metrics"], 0.0),
    }
