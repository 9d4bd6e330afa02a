"""A text environment inside wrappers comes in; its state, to be put back at any turn, goes out."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from memenvs.text_env import State

_KNOWN: dict[type, str | None] = {
    OrderEnforcing: "_has_reset",
    TimeLimit: "_elapsed_steps",
    PassiveEnvChecker: None,
}
"""Gymnasium's own wrappers whose state is one attribute, or nothing."""


def get_state(env: gym.Env[Any, Any]) -> State:
    """The state of a text environment inside any stack of wrappers.

    A wrapper with `get_state` and `set_state` of its own answers for everything below it.

    Raises:
        TypeError: a wrapper may have a state that nobody can ask it for.
    """
    if isinstance(env, gym.Wrapper) and not hasattr(type(env), "get_state"):
        name = _attribute(env)
        return {"inner": get_state(env.env), "own": getattr(env, name) if name else None}
    state: State = _stateful(env).get_state()
    return state


def set_state(env: gym.Env[Any, Any], state: State) -> None:
    """Put a state of `get_state` back into the same stack of wrappers, which need not have been reset."""
    if isinstance(env, gym.Wrapper) and not hasattr(type(env), "set_state"):
        name = _attribute(env)
        set_state(env.env, state["inner"])
        if name:
            setattr(env, name, state["own"])
        if isinstance(env, PassiveEnvChecker):
            # it compares the first step with a reset there may not have been
            env.checked_step = env.checked_data_reuse = True
        return
    _stateful(env).set_state(state)


def _attribute(env: gym.Wrapper[Any, Any, Any, Any]) -> str | None:
    if type(env) not in _KNOWN:
        raise TypeError(
            f"the wrapper {type(env).__name__} may have a state of its own; give it get_state and set_state, "
            "or take the state of the environment inside it"
        )
    return _KNOWN[type(env)]


def _stateful(env: Any) -> Any:
    if not hasattr(env, "get_state"):
        raise TypeError(f"{type(env).__name__} has no get_state; only memenvs environments have one")
    return env
