"""Fields that are computed when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any


class LazyFields(Mapping[str, Any]):
    """Named values; some are computed when they are first read.

    It equals a dictionary of the same values; a copy or a pickle of it holds all values, computed.

    Args:
        fields: values by name, or a function that returns them. A function without arguments, here and among
            the values, is called on the first read, and what it returns is kept, so it must not depend on
            anything that changes later.

    >>> fields = LazyFields({"turn": 1, "prompt": lambda: "Who wrote it?"})
    >>> fields["prompt"], fields == {"turn": 1, "prompt": "Who wrote it?"}
    ('Who wrote it?', True)
    """

    def __init__(self, fields: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> None:
        self._given = fields

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return dict(self._given() if callable(self._given) else self._given)

    def __getitem__(self, name: str) -> Any:
        value = self._fields[name]
        if callable(value):
            value = self._fields[name] = value()
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> Any:
        return LazyFields, (dict(self),)
