"""States by replay: an episode is its seed and its replies; playing them again leads to the same place.

`state = get_state(env)`, and later `set_state(env, state)` in an environment made alike.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import msgspec
import numpy as np

from memenvs.core.data import convert, shown

State = dict[str, Any]

NO_EPISODE = "no episode yet; call reset() first"
OVER = "the episode is over; call reset() before the next step()"

S = TypeVar("S", bound="Replayable")


class _Played(msgspec.Struct):
    """The episode in a state."""

    seed: int | None
    options: dict[str, Any]
    actions: list[Any]
    shown: str


def get_state(env: gym.Env[Any, Any]) -> State:
    """The state of an environment inside any stack of wrappers, as plain data that JSON gives back equal.

    `env`, `tasks` and `arguments` say which environment it is; `seed`, `options` and `actions` are the
    episode; `shown` is a hash of what it shows; `memories` are what wrappers remember, such as the numbers of
    earlier episodes in a `RewardWrapper`.

    Raises:
        ResetNeeded: no episode has begun.
    """
    inner: Any = env.unwrapped
    state = {**inner.get_state(), "memories": [layer.get_memory() for layer in _remembering(env)]}
    for layer in _layers(env):
        if hasattr(layer, "actions"):  # it keeps some replies from what is inside it
            state["actions"] = list(layer.actions)
            break
    return state


def set_state(env: gym.Env[Any, Any], state: State) -> None:
    """Play the episode of a state again, through all wrappers, which need not have been reset.

    A wrapper with other actions, such as `ChooseReply`, is passed over: it keeps what it must in its memory.

    Raises:
        ValueError: the state is of another environment or of other wrappers; an episode that was played
            here is lost only if the replies lead elsewhere.
    """
    inner: Any = env.unwrapped
    inner.check_identity(state)
    layers = _remembering(env)
    if not isinstance(memories := state.get("memories"), list) or len(memories) != len(layers):
        raise ValueError("this state was taken inside other wrappers; restore it inside the same ones")
    for layer, memory in zip(layers, memories, strict=True):
        layer.check_memory(memory)
    player = inner
    for layer in reversed(_layers(env)):
        if layer.action_space != inner.action_space:
            break
        player = layer
    play_again(player, state)
    for layer, memory in zip(layers, memories, strict=True):
        layer.set_memory(memory)


def play_again(env: gym.Env[Any, Any], state: State) -> None:
    """Play the seed and the actions of a state.

    Raises:
        ValueError: they lead elsewhere.
    """
    inner: Any = env.unwrapped
    env.reset(seed=state["seed"], options=dict(state["options"]))
    for action in state["actions"]:
        env.step(action)
    if inner.get_state()["shown"] != state["shown"]:
        raise ValueError(
            "the replies of this state lead to another state here, so the state or its data were changed; "
            "restore it with the data that it was taken with"
        )


def _remembering(env: gym.Env[Any, Any]) -> list[Any]:
    """The wrappers that remember something, from the outermost one inwards."""
    return [layer for layer in _layers(env) if hasattr(layer, "get_memory")]


def _layers(env: gym.Env[Any, Any]) -> list[gym.Wrapper[Any, Any, Any, Any]]:
    """The wrappers around an environment, from the outermost one inwards."""
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    return layers


class Replayable:
    """An environment whose states are its replies, which names itself in them and can be copied and pickled.

    A pickle holds the arguments and the state, so that task sets, indexes and tokenizers travel by name;
    loading it plays the episode again. A deep copy shares what does not change, and plays nothing.

    A subclass is a `gym.Env` whose `_observe()` makes the observation. Its `reset` sets `_begun`, the
    arguments of a reset that begins the same episode, and empties `_actions`, to which its `step` appends.

    Attributes:
        unhashed: arguments that do not tell one environment from another, such as `render_mode`, and those
            that `task_set` covers.
        changing: attributes that change while an episode is played, which a deep copy copies.
        template_texts: prompts that the argument `template` gives, by their parts; they tell environments
            apart, as the argument may name a file.
    """

    unhashed: ClassVar[tuple[str, ...]] = ("render_mode",)
    changing: ClassVar[tuple[str, ...]] = ("_actions", "_np_random", "action_space", "observation_space")
    template_texts: Mapping[str, str] = {}
    spec: Any
    _made_with: tuple[tuple[Any, ...], dict[str, Any]]
    _begun: dict[str, Any] | None = None
    _actions: list[Any]

    def __new__(cls: type[S], *args: Any, **kwargs: Any) -> S:
        """Keep the arguments: what `__init__` makes of them cannot be copied."""
        env = super().__new__(cls)
        env._made_with = (args, kwargs)
        return env

    def __reduce__(self) -> Any:
        state = None if self._begun is None else self.get_state()
        return _made_again, (type(self), *self._made_with, self.spec, state)

    def __deepcopy__(self: S, memo: dict[int, Any]) -> S:
        # Task sets and indexes are large, and a tree copies an environment for every branch.
        env = object.__new__(type(self))
        env.__dict__.update(self.__dict__)
        for name in self.changing:
            if name in env.__dict__:
                setattr(env, name, copy.deepcopy(getattr(self, name), memo))
        return env

    def get_state(self) -> State:
        """The environment's identity and the episode, without the memories of wrappers.

        Raises:
            ResetNeeded: no episode has begun.
        """
        if self._begun is None:
            raise gym.error.ResetNeeded(NO_EPISODE)
        env: Any = self
        return {
            **self._identity,
            **copy.deepcopy(self._begun),
            "actions": list(self._actions),
            "shown": _hash_of(env._observe()),
        }

    def task_set(self) -> tuple[str, str]:
        """The name and the hash of the tasks; the hash alone is compared. Nothing by default."""
        return "", ""

    def check_identity(self, state: Any) -> None:
        """Raise a one-line `ValueError` unless the state is of such an environment."""
        if not isinstance(state, Mapping) or not state.keys() >= {*self._identity, "seed", "shown"}:
            raise ValueError(f"a state is what get_state() returns, got {shown(state)}")
        convert(state, _Played, "the state")
        for name, here in self._identity.items():
            if state[name] != here:
                raise ValueError(
                    f"this state has another {name}: {shown(state[name])}, here {shown(here)}; restore it "
                    "in an environment that was made in the same way"
                )

    @functools.cached_property
    def _identity(self) -> State:
        """What a state is of: the class, and hashes of its tasks and of its arguments, defaults included."""
        args, kwargs = self._made_with
        arguments = inspect.signature(type(self).__init__).bind(self, *args, **kwargs)
        arguments.apply_defaults()
        (_, *items) = arguments.arguments.items()
        hashed = {name: value for name, value in items if name not in self.unhashed}
        if self.template_texts:
            hashed["template"] = self.template_texts
        text = json.dumps(hashed, sort_keys=True, default=lambda value: type(value).__qualname__)
        return {
            "env": f"{type(self).__module__}:{type(self).__qualname__}",
            "tasks": self.task_set()[1],
            "arguments": text_hash(text),
        }


def _made_again(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], spec: Any, state: State | None
) -> Any:
    env = cls(*args, **kwargs)
    env.spec = spec
    if state is not None:
        play_again(env, state)
    return env


def text_hash(text: str | bytes) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def _hash_of(value: Any) -> str:
    """The `text_hash` of an observation."""
    if isinstance(value, Mapping):
        return text_hash(" ".join(f"{name} {_hash_of(inner)}" for name, inner in value.items()))
    return text_hash(value.tobytes() if isinstance(value, np.ndarray) else str(value))
