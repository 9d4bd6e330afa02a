"""States of environments as plain data, and whose state it is."""

from __future__ import annotations

import base64
import functools
import hashlib
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from memenvs.core.data import convert, shown

State = dict[str, Any]

D = TypeVar("D")
S = TypeVar("S", bound="Stateful")

_KNOWN: dict[type, str | None] = {
    OrderEnforcing: "_has_reset",
    TimeLimit: "_elapsed_steps",
    PassiveEnvChecker: None,
}
"""Gymnasium's own wrappers whose state is one attribute, or nothing."""

_IDENTITY = {
    "class": "another class",
    "version": "another version",
    "tasks": "other tasks",
    "arguments": "other arguments",
}
_FLOAT, _ARRAY = "__float__", "__array__"
_NUMBERS = "biuf"  # kinds of `np.dtype`: truth values, integers, floats
_RECORDS: dict[str, Any] = {}  # named tuples by their names in states


def get_state(env: gym.Env[Any, Any]) -> State:
    """The state of a text environment inside any stack of wrappers.

    A wrapper with `get_state` and `set_state` of its own gives the state of everything below it.

    Raises:
        TypeError: a wrapper may have a state that it does not give.
    """
    if isinstance(env, gym.Wrapper) and not hasattr(type(env), "get_state"):
        name = _attribute(env)
        return {"inner": get_state(env.env), "own": getattr(env, name) if name else None}
    inner: Any = env
    state: State = inner.get_state()
    return state


def set_state(env: gym.Env[Any, Any], state: State) -> None:
    """Put a state of `get_state` back into the same stack of wrappers, which need not have been reset.

    Raises:
        ValueError: it is of another environment, or of another stack; nothing has changed then.
    """
    if isinstance(env, gym.Wrapper) and not hasattr(type(env), "set_state"):
        name = _attribute(env)
        check_keys(state, "inner", "own")
        set_state(env.env, state["inner"])
        if name:
            setattr(env, name, state["own"])
        if isinstance(env, PassiveEnvChecker):
            # it compares the first step with a reset there may not have been
            env.checked_step = env.checked_data_reuse = True
        return
    inner: Any = env
    inner.set_state(state)


def check_keys(state: Any, *names: str) -> None:
    """Raise a one-line `ValueError` unless `state` is a dictionary that has these keys."""
    if not isinstance(state, Mapping) or not state.keys() >= {*names}:
        raise ValueError(
            f"a state here is a dictionary with {', '.join(names)}, got {shown(state)}; restore it where "
            "get_state() took it: in such an environment, inside the same wrappers"
        )


class Stateful:
    """An environment that names itself in its states, and can be copied and pickled.

    A copy is constructed with the same arguments and given the state, so that task sets, indexes and
    tokenizers are shared in a process and travel by name between two.

    A subclass has `get_state` and `set_state`, and a `spec`, as every `gym.Env` has.

    Attributes:
        version: raised when the same replies would no longer lead to the same results; states of another
            version are refused.
        unhashed: arguments that do not tell one environment from another, such as `render_mode`, and those
            that `task_set` covers.
    """

    version: ClassVar[int] = 0
    unhashed: ClassVar[tuple[str, ...]] = ("render_mode",)
    spec: Any
    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls: type[S], *args: Any, **kwargs: Any) -> S:
        """Keep the arguments: what `__init__` makes of them cannot be copied."""
        env = super().__new__(cls)
        env._made_with = (args, kwargs)
        return env

    def __reduce__(self) -> Any:
        try:
            state = self.get_state()  # type: ignore[attr-defined]
        except gym.error.ResetNeeded:
            state = None
        return _made_again, (type(self), *self._made_with, self.spec, state)

    def task_set(self) -> tuple[str, str]:
        """The name and the hash of the tasks; the hash alone is compared. Nothing by default."""
        return "", ""

    def identity(self) -> State:
        """What a state is of: environment, version, and the hashes of its arguments and tasks."""
        kind = f"{type(self).__module__}:{type(self).__qualname__}"
        return {
            "env": self.spec.id if self.spec is not None else kind,
            "class": kind,
            "version": self.version,
            "tasks": self._tasks,
            "arguments": self._arguments_hash,
        }

    def check_identity(self, state: Any) -> None:
        """Raise a one-line `ValueError` unless the state is of such an environment."""
        own = self.identity()
        check_keys(state, *own)
        for name, differs in _IDENTITY.items():
            there, here = state[name], own[name]
            if (there[-1:] != here[-1:]) if name == "tasks" else (there != here):
                raise ValueError(
                    f"this state is of {state['env']} with {differs}: {there!r}, here {here!r}; restore it "
                    "in an environment that was made in the same way"
                )

    @functools.cached_property
    def _tasks(self) -> list[str]:
        return list(self.task_set())

    @functools.cached_property
    def _arguments_hash(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the arguments, defaults included."""
        args, kwargs = self._made_with
        found: dict[str, Any] = {}
        for base in reversed(type(self).__mro__):  # a base class has the defaults of `**kwargs`
            if "__init__" in vars(base):
                parameters = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]
                found |= {p.name: p.default for p in parameters if p.default is not p.empty}
        signature = inspect.signature(type(self).__init__)
        (_, *given) = signature.bind(self, *args, **kwargs).arguments.items()
        for name, value in given:
            handed_on = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            found |= value if handed_on else {name: value}
        hashed = {name: value for name, value in found.items() if name not in self.unhashed}
        return text_hash(json.dumps(hashed, sort_keys=True, default=lambda value: type(value).__qualname__))


def _made_again(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], spec: Any, state: State | None
) -> Any:
    env = cls(*args, **kwargs)
    env.spec = spec
    if state is not None:
        env.set_state(state)
    return env


def text_hash(text: str | bytes) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def plain_record(kind: type[D]) -> type[D]:
    """A decorator that lets states hold a named tuple where no annotation names its type."""
    _RECORDS[f"__{kind.__name__}__"] = kind
    return kind


def to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples as lists, copied: what JSON can hold and give back equal.

    A value that JSON cannot express becomes a dictionary of one key that names its kind: NaN and infinities
    (`__float__`), arrays of numbers (`__array__`: type, shape, bytes in base64), and named tuples of
    `plain_record`.

    Raises:
        TypeError: something that JSON cannot hold.
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: repr(float(value))}
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, tuple) and (name := f"__{type(value).__name__}__") in _RECORDS:
        return {name: [to_plain(inner) for inner in value]}
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS:
        return {_ARRAY: [value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: to_plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(inner) for inner in value]
    raise TypeError(f"a state holds plain data only, not a {type(value).__name__}; store numbers and texts")


def from_plain(value: Any, kind: type[D], where: str) -> D:
    """An object of what `to_plain` made of it, checked against its annotations; see `data.convert`.

    Raises:
        ValueError: a part is missing or of another type; the line names it, with `where` before it.
    """
    return convert(_revived(value), kind, where)


def _revived(value: Any) -> Any:
    """Plain data in which the values that `to_plain` named are restored."""
    if isinstance(value, (list, tuple)):
        return [_revived(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        if name in _RECORDS:
            return convert(_revived(inner), _RECORDS[name], name)
        if name == _FLOAT:
            return float(inner)
        if name == _ARRAY:
            kind, shape, content = inner
            return np.frombuffer(base64.b64decode(content), kind).reshape(shape).copy()
    return {name: _revived(inner) for name, inner in value.items()}


def _attribute(env: gym.Wrapper[Any, Any, Any, Any]) -> str | None:
    if type(env) not in _KNOWN:
        raise TypeError(
            f"the wrapper {type(env).__name__} may have a state of its own; give it get_state and set_state, "
            "or take the state of the environment inside it"
        )
    return _KNOWN[type(env)]
