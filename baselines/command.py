"""The learners' command line: flags come in as a dataclass, an exit status goes out."""

from __future__ import annotations

import argparse
import functools
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

import gymnasium as gym

from memenvs.arguments import one_line, read_arguments
from memenvs.extras import require

RECIPES = Path(__file__).parent / "recipes"

A = TypeVar("A")


def read_args(kind: type[A], argv: Sequence[str] | None, name: str) -> A:
    """Flags as the fields of a dataclass; `--help` shows the line under each field.

    A field of type `dict[str, Any]` takes what `read_arguments` reads: `--env-args max_turns=2 tasks=FOLDER`.
    With `--recipe` the flags of a file are the defaults: one on the command line wins, wherever it stands. Of
    such a field it wins name by name, and `{}` leaves none. Without tyro, or with what cannot be read, it
    exits with the status 2 and one line.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, prog=f"python -m {name}")
    parser.add_argument("--recipe", default="")
    recipe = parser.parse_known_args(given)[0].recipe
    try:
        if not recipe:
            return _parse(kind, given, prog=f"python -m {name}")
        flags = recipe_flags(recipe, kind, name.rpartition(".")[2])
        default = _parse(kind, flags, prog=f"recipe {recipe}")
    except (ImportError, OSError, ValueError) as error:
        _exit(str(error))
    args = _parse(kind, given, prog=f"python -m {name}", default=default)
    for field in _named(kind):
        own = getattr(args, field)
        setattr(args, field, {**getattr(default, field), **own} if own else {})
    return args


def _parse(kind: type[A], given: Sequence[str], **settings: Any) -> A:
    tyro = require("tyro", "train")
    count = Counter(text.partition("=")[0].replace("_", "-") for text in given)
    for flag in (f"--{field}".replace("_", "-") for field in _named(kind)):
        if count[flag] > 1:  # tyro would take the last alone
            _exit(f"{flag} is given {count[flag]} times; give it once: {flag} NAME=VALUE NAME=VALUE")
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(functools.partial(_named_values, tyro.constructors.PrimitiveConstructorSpec))
    with registry:
        args: A = tyro.cli(kind, args=list(given), **settings)
    return args


def _named(kind: type[Any]) -> list[str]:
    """The fields whose values are arguments by name."""
    return [name for name, hint in get_type_hints(kind).items() if hint == dict[str, Any]]


def _named_values(spec: Any, info: Any) -> Any:
    """How tyro reads a `dict[str, Any]`."""
    if info.type != dict[str, Any]:
        return None
    return spec(
        nargs="*",
        metavar="NAME=VALUE",
        instance_from_str=_read_or_exit,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{name}={json.dumps(one)}" for name, one in value.items()],
    )


def _read_or_exit(texts: Sequence[str]) -> dict[str, Any]:
    try:
        return read_arguments(texts)
    except ValueError as error:
        _exit(str(error))


def _exit(message: str) -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    raise SystemExit(2)


def recipe_names() -> list[str]:
    """Names of the recipes that ship: one for each setting of a paper."""
    return sorted(path.stem for path in RECIPES.glob("*.txt"))


def recipe_flags(recipe: str, kind: type[Any], learner: str) -> list[str]:
    """The flags of a recipe: a line each, as a shell would read it, with `#` comments.

    Args:
        recipe: one of `recipe_names()`, or a file.
        kind: dataclass of the learner's flags.
        learner: its name, for the error.

    Raises:
        ValueError: there is no such recipe, or a line of it is no flag of this learner.
    """
    names = recipe_names()
    path = RECIPES / f"{recipe}.txt" if recipe in names else Path(recipe)
    if not path.is_file():
        raise ValueError(f"no recipe {recipe!r}; give a file, or one of {', '.join(names)}")
    known = {f"--{field.name}".replace("_", "-") for field in fields(kind)} - {"--recipe"}
    known |= {flag.replace("--", "--no-", 1) for flag in known}
    found: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise ValueError(f"recipe {recipe}, line {number}: {error} in {line.strip()!r}") from error
        if words and words[0].partition("=")[0].replace("_", "-") not in known:
            raise ValueError(f"recipe {recipe}, line {number}: {learner} has no flag {words[0]!r}")
        found += words
    return found


def run(prepare: Callable[[Any], Any], train: Callable[[Any, Any], None], args: Any) -> int:
    """Prepare and train; what cannot be prepared is one line and the status 2."""
    try:
        prepared = prepare(args)
    except (FileNotFoundError, ImportError, TypeError, ValueError, gym.error.Error) as error:
        sys.stderr.write(f"error: {one_line(error)}\n")
        return 2
    train(prepared, args)
    return 0
