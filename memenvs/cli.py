"""Arguments of every command: NAME=VALUE, JSON objects, and errors in one line."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import importlib
import inspect
import json
import os
import re
import shlex
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import gymnasium as gym
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    load_env_creator,
    parse_env_id,
)

from memenvs.core.checks import one_line
from memenvs.core.data import described, fits, is_plain, shown

REQUIRED: Any = inspect.Parameter.empty
"""Default of a parameter that has none."""

USER_ERRORS = (ValueError, OSError, TypeError, ImportError, FloatingPointError, gym.error.Error)
"""Errors of arguments and data, which a command reports in one line instead of a traceback."""

_COLOUR = re.compile(r"\x1b\[\d+m")
_FORM = "{} must be NAME=VALUE …, or one JSON object"


class Parser(argparse.ArgumentParser):
    """A parser of a command line whose errors are one line, and which takes options by their whole names."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """One line instead of usage and a line."""
        raise SystemExit(report_error(self.prog, f"{message}; `{self.prog} --help` shows every option"))

    def run(self, command: Callable[[argparse.Namespace], int | None], argv: Sequence[str] | None) -> int:
        """Run a command with the options of a command line; None reads `sys.argv`.

        Returns:
            The command's exit status, 0 for None; 2 and one line on standard error for `USER_ERRORS`.
        """
        with reader_may_stop():
            args = self.parse_args(argv)
            try:
                return command(args) or 0
            except BrokenPipeError:
                raise
            except USER_ERRORS as error:
                return report_error(self.prog, error)


@contextlib.contextmanager
def reader_may_stop() -> Iterator[None]:
    """End the process quietly, inside a `with`, if whatever reads standard output stops, such as `head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more
        raise SystemExit(0) from None


def report_error(prog: str, error: object) -> int:
    """Write an error of a command to standard error, in one line; the exit status 2.

    Args:
        prog: the command, `python -m memenvs NAME` or `python -m memenvs.NAME`; shown as `memenvs NAME`.
        error: what is wrong.
    """
    name = prog.removeprefix("python -m ").replace("memenvs.", "memenvs ", 1)
    sys.stderr.write(f"{name}: error: {one_line(error)}\n")
    return 2


def show(text: str) -> None:
    """Write to the terminal, in colour where it is one and NO_COLOR is not set."""
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    sys.stdout.write(_COLOUR.sub("", text) if plain else text)


class NamedValues(argparse.Action):
    """Reads the texts behind an option by `read_arguments`; an option given again adds to the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        flag: str | None = None,
    ) -> None:
        """Set the option's value, a dictionary."""
        before = json.dumps(getattr(namespace, self.dest))
        try:
            setattr(namespace, self.dest, read_arguments([before, *values], flag or self.dest))
        except ValueError as error:
            parser.error(str(error))


NAMED: dict[str, Any] = {"nargs": "+", "action": NamedValues, "default": {}, "metavar": "NAME=VALUE"}
"""Arguments of `add_argument` for an option that takes NAME=VALUE …, or a JSON object."""


class Parameter(NamedTuple):
    """An argument that a class or a function takes by name.

    Attributes:
        name: of it.
        annotation: its type; `typing.Any` where none is stated or it cannot be resolved.
        default: `REQUIRED` where there is none.
    """

    name: str
    annotation: Any = Any
    default: Any = REQUIRED


def read_arguments(texts: Sequence[str], flag: str = "arguments") -> dict[str, Any]:
    """The arguments that a command line gives.

    Args:
        texts: each `NAME=VALUE`, the value JSON if it reads as JSON and otherwise a text; or a JSON object.
            A hyphen in NAME means an underscore.
        flag: the option they stand behind, for the message.

    Raises:
        ValueError: one is neither, or a name is given twice.

    >>> read_arguments(["k=3", "final_answer_turn=false", "tasks=world-test", '{"memory_mode": "rewrite"}'])
    {'k': 3, 'final_answer_turn': False, 'tasks': 'world-test', 'memory_mode': 'rewrite'}
    >>> read_arguments(["chunk-size=500"])
    {'chunk_size': 500}
    """
    arguments: dict[str, Any] = {}
    for text in texts:
        for name, value in _read(text, flag).items():
            if name in arguments:
                twice = f"{shown(arguments[name])} and {shown(value)}"
                raise ValueError(f"{flag}: {name} is given twice, {twice}")
            arguments[name] = value
    return arguments


def check_arguments(owner: str, arguments: Mapping[str, Any], parameters: Sequence[Parameter] | None) -> None:
    """Refuse arguments that `owner` does not take.

    Args:
        owner: whose they are, for the message.
        arguments: by name.
        parameters: what it takes; None where that cannot be known, then nothing is refused.

    Raises:
        ValueError: an unknown name, with the valid ones, the closest first; a value of another type; or one
            that is missing.
    """
    if parameters is None:
        return
    known = {parameter.name: parameter for parameter in parameters}
    for name, value in arguments.items():
        if name not in known:
            takes = ", ".join(closest_first(name, known)) or "none"
            raise ValueError(f"{owner} has no argument {name!r}; its arguments: {takes}")
        if is_plain(known[name].annotation) and not fits(value, known[name].annotation):
            wanted = described(known[name].annotation)
            mend = _mend(known[name], value)
            raise ValueError(f"{name} of {owner} must be {wanted}, got {shown(value)}{mend}")
    if missing := [p.name for p in parameters if p.default is REQUIRED and p.name not in arguments]:
        raise ValueError(f"{owner} needs the argument {missing[0]!r}: write {missing[0]}=…")


def check_env_arguments(env: str, arguments: Mapping[str, Any]) -> None:
    """Refuse an environment that is not registered, and arguments that it does not take; nothing is made.

    Raises:
        gymnasium.error.Error: no such environment.
        ValueError: see `check_arguments`.
    """
    check_arguments(env, arguments, env_parameters(env))


def make_env(env: str, arguments: Mapping[str, Any], **settings: Any) -> gym.Env[Any, Any]:
    """Make an environment of checked arguments.

    Args:
        env: its id.
        arguments: of it, as a user gave them.
        **settings: more arguments of `gym.make`, such as `render_mode`.

    Raises:
        gymnasium.error.Error: see `check_env_arguments`.
        ValueError: likewise.
    """
    check_env_arguments(env, arguments)
    return gym.make(env, disable_env_checker=True, **settings, **arguments)


def env_parameters(env: str) -> list[Parameter] | None:
    """What an environment takes, the defaults of its registration counted in; None where it takes any name.

    `render_mode` is left out: commands choose it themselves.
    """
    spec = find_spec(env)
    if spec.entry_point is None:
        return None
    creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    own = parameters_of(creator)
    if own is None:
        return None
    given = spec.kwargs
    return [p._replace(default=given.get(p.name, p.default)) for p in own if p.name != "render_mode"]


def find_spec(env: str) -> EnvSpec:
    """The registration of an id, or of `module:Id`; of an id without a version the latest, as in `gym.make`.

    Raises:
        gymnasium.error.Error: there is none.
        ModuleNotFoundError: there is no such module.
    """
    module, _, name = env.rpartition(":")
    if module:
        importlib.import_module(module)
    if name not in gym.registry:
        namespace, base, version = parse_env_id(name)
        latest = find_highest_version(namespace, base)
        if version is None and latest is not None:
            name = get_env_id(namespace, base, latest)
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        if module:
            raise
        hint = f"an environment of another package needs its module: package:{env}"
        raise type(error)(f"{error} ({hint})") from error


def parameters_of(creator: Callable[..., Any]) -> list[Parameter] | None:
    """The parameters of a class's constructor, or of a function; None where it takes any name.

    `**kwargs` of a constructor stand for the parameters of the next class's in the order of inheritance.
    """
    if not isinstance(creator, type):
        own, is_open = _own_parameters(creator)
        return None if is_open else list(own.values())
    parameters: dict[str, Parameter] = {}
    for kind in creator.__mro__:
        if "__init__" not in vars(kind) or kind is object:
            continue
        own, is_open = _own_parameters(vars(kind)["__init__"])
        made = {field.name: field.default_factory for field in _fields(kind)}
        own = {n: p._replace(default=made[n]()) if n in made else p for n, p in own.items()}
        parameters |= {name: one for name, one in own.items() if name not in parameters}
        if not is_open:
            return list(parameters.values())
    return None if parameters else []


def closest_first(name: str, names: Iterable[str]) -> list[str]:
    """Names in their order, those that are spelled like `name` before the others.

    >>> closest_first("ChunkSize", ["tasks", "max_memory", "chunk_size"])
    ['chunk_size', 'tasks', 'max_memory']
    """
    listed = list(names)
    lower = [other.lower() for other in listed]
    close = [listed[lower.index(match)] for match in difflib.get_close_matches(name.lower(), lower, n=3)]
    return [*close, *(other for other in listed if other not in close)]


def shell_form(parameter: Parameter) -> str:
    """A parameter with its default, as it is typed in a shell.

    >>> shell_form(Parameter("separator", str, "||")), shell_form(Parameter("url", str))
    ("'separator=||'", 'url=…')
    """
    if parameter.default is REQUIRED:
        return f"{parameter.name}=…"
    value = parameter.default
    is_plain = isinstance(value, str) and read_arguments([f"x={value}"]) == {"x": value}
    return shlex.quote(f"{parameter.name}={value if is_plain else json.dumps(value, ensure_ascii=False)}")


def _read(text: str, flag: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            return dict(_parse_json(text))
        except ValueError as error:
            raise ValueError(f"{_FORM.format(flag)}, got {shown(text)} ({error})") from error
    name, separator, value = text.partition("=")
    name = name[:1] + name[1:].replace("-", "_")  # an option such as --k=3 stays wrong
    if not separator or not name.isidentifier():
        raise ValueError(f"{_FORM.format(flag)}, got {shown(text)}")
    try:
        return {name: _parse_json(value)}
    except ValueError:
        return {name: value}


def _parse_json(text: str) -> Any:
    """A JSON value; `ValueError` for what is none, NaN and Infinity among it."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _fields(kind: type[Any]) -> list[Any]:
    """The fields of a dataclass whose defaults a function makes; the signature does not show those."""
    every = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [field for field in every if field.default_factory is not dataclasses.MISSING]


def _own_parameters(function: Callable[..., Any]) -> tuple[dict[str, Parameter], bool]:
    """Parameters of a function by name, `self` left out, and whether it takes others too."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # an annotation that only a type checker can resolve
        hints = {}
    parameters, is_open = {}, False
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            is_open = True
        elif one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            hint = hints.get(one.name, Any)
            parameters[one.name] = Parameter(one.name, hint, one.default)
    parameters.pop("self", None)
    return parameters, is_open


def _mend(parameter: Parameter, value: Any) -> str:
    """How to write a number that is meant as a string."""
    if isinstance(value, str) or not fits("", parameter.annotation):
        return ""
    return f"; as a string it is {parameter.name}='\"{value}\"'"
