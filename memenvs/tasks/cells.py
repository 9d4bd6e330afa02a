"""Answers as files have them: texts, numbers, lists, and lists that a program printed into a cell."""

from __future__ import annotations

import ast
import datetime
import decimal
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from memenvs.core.data import shown
from memenvs.core.errors import counted

Answer = str | int | float | None  # some files have numbers as answers, or null where there is none
Tell = Callable[[str], None]
"""Is told how an ambiguous cell was read."""

_FIELDS = ("value", "text", "aliases", "humananswers", "number", "spans")
"""What objects of answers call them: TriviaQA's `Value` with `Aliases`, SQuAD's `text`, DROP's `spans`."""
_MISSING = frozenset({"nan", "NaN", "NaT", "<NA>", "#N/A", "None", "null", "NULL"})
"""What pandas, Python, JSON, SQL and Excel write into a cell without a value."""
_WORDS = {**dict.fromkeys((*_MISSING, "NA")), "true": True, "false": False}
_BEGINS = re.compile(r"[\[({]|(?:np\.|numpy\.)?(?:array|set|frozenset|list|tuple|str_)\(")
_TYPES = re.compile(r"array|str_|u?int\d*|float\d*|bool_?|list|tuple|set|frozenset")  # NumPy's and Python's
_GAP = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.)\]}]+)(\s+(?=['"\w(\[{+-]))?""", re.DOTALL)
"""A part of a list and the blank before the next: NumPy writes no commas, and Python would join two texts."""


def scorable(answers: Iterable[Answer]) -> tuple[str, ...]:
    """The accepted answers as texts, once each; blank ones, which an empty reply would equal, are left out.

    A whole float is a whole number too, since a column of whole numbers with a gap is one of floats.

    >>> scorable([1933.0, None, float("nan"), " ", "Ann", "Ann"])
    ('1933', '1933.0', 'Ann')
    """
    texts = list[str]()
    for answer in answers:
        if answer is None or (isinstance(answer, float) and math.isnan(answer)):
            continue
        text = str(answer)
        if isinstance(answer, float) and text.endswith(".0"):
            texts.append(text.removesuffix(".0"))
        texts.append(text)
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def read_answers(field: Any, where: str, tell: Tell) -> tuple[str, ...]:
    """The accepted answers in a field of a record, the preferred one first; none if it is blank or missing.

    Lists are JSON's, or as Python and NumPy print them: `['a', 'b']`, `['a' 'b']`, `array(['a'],
    dtype=object)`, tuples, sets, and SQuAD's object of `text`.

    Args:
        field: any plain value.
        where: the record's place, for errors.
        tell: is told how an ambiguous cell was read.

    Raises:
        ValueError: it holds something other than texts and numbers; the line begins with `where`.
    """
    return scorable(_answers(field, where, tell))


def _answers(field: Any, where: str, tell: Tell) -> Iterator[Answer]:
    if isinstance(field, bool):
        yield "yes" if field else "no"
    elif isinstance(field, str):
        yield from _of_cell(field, where, tell)
    elif field is None or isinstance(field, (int, float)):
        yield field
    elif isinstance(field, (decimal.Decimal, datetime.date)):  # of Parquet
        yield float(field) if isinstance(field, decimal.Decimal) else str(field).removesuffix(" 00:00:00")
    elif isinstance(field, (list, tuple)):
        for answer in field:
            if isinstance(answer, (list, tuple)):
                raise ValueError(f"{where} has {shown(field)} as answers; give texts or numbers in one list")
            yield from (answer,) if isinstance(answer, str) else _answers(answer, where, tell)
    elif isinstance(field, Mapping) and (parts := _fields(field)):
        for part in parts:
            yield from _answers(part, where, tell)
    else:
        raise ValueError(f"{where} has {shown(field)} as an answer; give a text or a number")


def _fields(answer: Mapping[Any, Any]) -> list[Any]:
    """The answers of an object that has fields for them."""
    parts = {str(name).lower(): value for name, value in answer.items()}
    return [parts[name] for name in _FIELDS if name in parts]


def _of_cell(text: str, where: str, tell: Tell) -> Iterator[Answer]:
    """The answers in a text: one, or those of a list that is written in it."""
    bare = text.strip()
    if bare in _MISSING:
        tell(f"{bare!r} is read as no answer")
        return
    if not _BEGINS.match(bare):
        if bare[:-2].lstrip("-").isdecimal() and bare.endswith(".0"):
            yield float(bare)  # as pandas writes whole numbers of a column with a gap
        elif re.search(r"\S\s*[;|]\s*\S", bare):
            tell(f'{shown(text)} is read as one answer; write ["…", "…"] for several')
        yield text
        return
    listed = parse_printed(bare)
    if listed is not None and not listed:
        return
    parts = listed if isinstance(listed, list) else [listed]
    unread = any(isinstance(part, list) or (isinstance(part, dict) and not _fields(part)) for part in parts)
    numbers = isinstance(listed, list) and all(isinstance(part, (int, float)) for part in parts)
    if listed is None or unread or (numbers and bare[0] in "({"):
        tell(f"{shown(text)} is read as one answer, although it begins with a bracket")
        yield text
        return
    if numbers:
        tell(f"{shown(text)} is read as {counted(len(listed), 'answer')}")
    yield from _answers(listed, where, tell)


def parse_printed(text: str) -> Any:
    """The list or object that a text is, in JSON or as Python or NumPy prints it; None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        source = _GAP.sub(lambda part: part[1] + ("," if part[2] else ""), text.replace("<NA>", "NA"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            return _value(ast.parse(source, mode="eval").body)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Any:
    """The value of parsed Python that is printed data; nothing is run."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return list(map(_value, parts))
        case ast.Dict(keys=names, values=parts):
            return {_value(name): _value(part) for name, part in zip(names, parts, strict=True) if name}
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if _TYPES.fullmatch(name):
            return _value(node.args[0]) if node.args else []
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _WORDS:
            return _WORDS[name]
    raise ValueError(f"{type(node).__name__} is no data")
