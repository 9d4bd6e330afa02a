"""Typed plain data on msgspec: JSON, cards, states and arguments, checked once against their annotations.

Bounds are part of an annotation, as in `Annotated[int, Meta(ge=1)]`. An error is one line that names the
place and the value.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import reprlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Meta

from memenvs.core.address import without_secrets

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]
Step = Annotated[float, Meta(ge=0, lt=2**53)]  # as logs hold it
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    dict: "an object",
    Mapping: "an object",
    list: "a list",
    tuple: "a list",
    Sequence: "a list",
    type(None): "null",
}
_BOUNDS = (("at least", "ge"), ("above", "gt"), ("at most", "le"), ("below", "lt"))
_LENGTHS = (("at least", "min_length"), ("at most", "max_length"))
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 80


def convert(value: Any, kind: type[T], where: str, fix: str = "") -> T:
    """Plain data as a `kind`: a dataclass, a named tuple, a list of them.

    Fields that `kind` does not have are ignored.

    Args:
        value: as JSON gives it.
        kind: the type; its annotations are what is checked.
        where: what errors call the value, such as "the card".
        fix: what to do about it; the error ends in it.

    Raises:
        ValueError: a part is missing, or is not what its annotation allows; the line names it.
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        raise ValueError(_fault(value, kind, where, _matches) + (fix and f"; {fix}")) from None


def decode(text: str | bytes, kind: type[T], where: str, fix: str = "") -> T:
    """JSON as a `kind`; see `convert`.

    Raises:
        ValueError: it is not JSON, or not a `kind`.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError):  # msgspec also refuses lone surrogates, which Python reads
        return convert(parse_json(text, where, fix), kind, where, fix)


def parse_json(text: str | bytes, where: str, fix: str = "") -> Any:
    """The value of a JSON text, as Python reads it; `where` and `fix` are for the error (`convert`).

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error})" + (fix and f"; {fix}")) from error


def checked(target: F) -> F:
    """Check the arguments of a function or of a dataclass against their annotations; a decorator.

    Arguments that are annotated as plain data (numbers, strings, choices, lists of these …) are checked, and
    numbers must be finite. Other arguments and defaults are not checked.

        @checked
        def __init__(self, k: Count = 3, retriever: Retriever | None = None): ...

    Raises:
        ValueError: by the function, in one line: "k must be a whole number, at least 1, got 0".
    """
    constructor = "__init__"
    function: Callable[..., Any] = getattr(target, constructor) if isinstance(target, type) else target
    names = list(inspect.signature(function).parameters)

    @functools.lru_cache(maxsize=1)
    def hints() -> dict[str, Any]:
        annotations = typing.get_type_hints(target, include_extras=True)
        return {name: hint for name, hint in annotations.items() if is_plain(hint) and name != "return"}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        for name, hint in hints().items():
            if name in arguments:
                check(name, arguments[name], hint)
        return function(*args, **kwargs)

    if isinstance(target, type):
        setattr(target, constructor, call)
        return target
    return cast(F, call)


def check(name: str, value: Any, kind: Any) -> None:
    """Raise a one-line `ValueError` unless `value` may be given where `kind` is the annotation."""
    if not fits(value, kind):
        fix = f"; pass {name}.item()" if hasattr(value, "item") else ""
        raise ValueError(f"{_fault(value, kind, name, fits)}{fix}")


def check_fields(settings: Any, named: Callable[[str], str] = str) -> None:
    """Check the fields of a dataclass against their annotations, as `check` does one value.

    Args:
        settings: an instance.
        named: how errors name a field, such as `--num-tasks` for `num_tasks`.
    """
    for name, hint in typing.get_type_hints(type(settings), include_extras=True).items():
        if is_plain(hint):
            check(named(name), getattr(settings, name), hint)


def fits(value: Any, kind: Any) -> bool:
    """Whether `value` may be given where `kind` is the annotation; numbers must be finite, also in a list."""
    if isinstance(value, float):
        value = float(value)  # of NumPy
        if not math.isfinite(value):
            return False
    if not _matches(value, kind):
        return False
    return all(fits(part, hint) for part, hint in _parts(value, kind).values() if hint is not Any)


def is_whole(value: object) -> bool:
    """Whether a value is an integer of Python or NumPy; a bool is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_plain(kind: Any) -> bool:
    """Whether an annotation is of plain data, so that it can be checked."""
    if (origin := typing.get_origin(kind)) is Annotated:
        return is_plain(typing.get_args(kind)[0])
    if origin is Literal or kind in _WORDS:
        return True
    inner = [part for part in typing.get_args(kind) if part not in (Any, ...)]
    return (_is_union(kind) or origin in _WORDS) and all(map(is_plain, inner))


def described(kind: Any) -> str:
    """A type in words.

    >>> described(Count | None)
    'a whole number, at least 1, or null'
    >>> described(Literal["left", "right"])
    'one of left, right'
    """
    inner = typing.get_args(kind)
    if _is_union(kind):
        words = list(map(described, inner))
        return (", or " if any("," in word for word in words) else " or ").join(words)
    origin = typing.get_origin(kind)
    if origin is Literal:
        return "one of " + ", ".join(
            choice or "''" if isinstance(choice, str) else repr(choice) for choice in inner
        )
    if origin is Annotated:
        return ", ".join([described(inner[0]), *_bounds(inner[1:])])
    if origin is tuple and ... not in inner:
        return f"a list of {len(inner)}"
    return _WORDS.get(origin or kind, "an object")


def shown(value: Any) -> str:
    """A value in an error, in at most about 80 characters, without secrets."""
    return _short.repr(without_secrets(value))


def _bounds(metas: Sequence[Any]) -> Iterator[str]:
    for meta in metas:
        for unit, bounds in (("", _BOUNDS), (" long", _LENGTHS)):
            limits = [(word, getattr(meta, name)) for word, name in bounds]
            if words := [f"{word} {bound}{unit}" for word, bound in limits if bound is not None]:
                yield " and ".join(words)


def _fault(value: Any, kind: Any, where: str, right: Callable[[Any, Any], bool]) -> str:
    """What is wrong with a value, at the innermost place where `right` says that it does not fit."""
    for name, (inner, hint) in _parts(value, kind).items():
        if hint is not Any and not right(inner, hint):
            return _fault(inner, hint, f"{where}{name}", right)
    if isinstance(value, Mapping) and hasattr(kind, "__annotations__"):
        fields = inspect.signature(kind).parameters.values()
        missing = [field.name for field in fields if field.default is field.empty and field.name not in value]
        if missing:
            return f"{where} has no {missing[0]!r}"
    return f"{where} must be {described(kind)}, got {shown(value)}"


def _parts(value: Any, kind: Any) -> dict[str, tuple[Any, Any]]:
    """The parts of a value with their annotations, by how errors name them."""
    inner = typing.get_args(kind)
    if _is_union(kind):
        return next((parts for member in inner if (parts := _parts(value, member))), {})
    origin = typing.get_origin(kind) or kind
    if origin is Annotated:
        return _parts(value, inner[0])
    if isinstance(value, Mapping):
        if origin in (dict, Mapping) and inner:
            return {f".{name}": (part, inner[1]) for name, part in value.items()}
        if hasattr(kind, "__annotations__"):
            hints = typing.get_type_hints(kind, include_extras=True)
            return {f".{name}": (value[name], hint) for name, hint in hints.items() if name in value}
    if isinstance(value, (list, tuple)) and inner and origin in (list, tuple, Sequence):
        hints_of = inner if origin is tuple and ... not in inner else inner[:1] * len(value)
        return {f"[{i}]": pair for i, pair in enumerate(zip(value, hints_of, strict=False))}
    return {}


def _matches(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)
