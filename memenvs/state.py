"""A text environment inside wrappers comes in; its state, to be put back at any turn, goes out."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from memenvs.text_env import State

_WRAPPER_STATE: dict[type, str] = {OrderEnforcing: "_has_reset", TimeLimit: "_elapsed_steps"}


def get_state(env: gym.Env[Any, Any]) -> State:
    """The state of a text environment inside any stack of wrappers.

    A wrapper with a `get_state` of its own answers for everything below it; of Gymnasium's own wrappers the
    two that count or order steps are saved, the others are taken to have no state.
    """
    if isinstance(env, gym.Wrapper) and not hasattr(type(env), "get_state"):
        name = _WRAPPER_STATE.get(type(env))
        return {"inner": get_state(env.env), "own": getattr(env, name) if name else None}
    state: State = _stateful(env).get_state()
    return state


def set_state(env: gym.Env[Any, Any], state: State) -> None:
    """Put a state of `get_state` back into the same stack of wrappers, which need not have been reset."""
    if isinstance(env, gym.Wrapper) and not hasattr(type(env), "set_state"):
        set_state(env.env, state["inner"])
        if name := _WRAPPER_STATE.get(type(env)):
            setattr(env, name, state["own"])
        if isinstance(
            env, PassiveEnvChecker
        ):  # it compares the first step with a reset there may not have been
            env.checked_step = env.checked_data_reuse = True
        return
    _stateful(env).set_state(state)


def _stateful(env: Any) -> Any:
    if not hasattr(env, "get_state"):
        raise TypeError(f"{type(env).__name__} has no get_state; only memenvs environments have one")
    return env
