"""Arguments: options of a command from its signature, NAME=VALUE for environments, checked by annotations."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import shlex
import sys
import typing
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
import msgspec
from gymnasium.envs.registration import EnvSpec, load_env_creator

from memenvs.core.data import described, fits, is_plain, shown
from memenvs.core.errors import USER_ERRORS, near_names, unknown_name
from memenvs.core.optional import import_named
from memenvs.core.terminal import report_error, show_json, show_page, wrapped_help

T = TypeVar("T")

REQUIRED: Any = inspect.Parameter.empty
"""Default of a parameter that has none."""
_READ = object()
"""Marks a dataclass that tyro's own rule reads."""


def run_command(command: Callable[..., Any], argv: Sequence[str], prog: str) -> int:
    """Call a function with the options of a command line.

    Its signature gives the options: parameters before a `/` are positional, a dataclass becomes a group of
    options, `dict[str, Any]` takes NAME=VALUE … or a JSON object (`read_arguments`). Its docstring gives the
    help. With --json the plain data of its result is shown (`deferred`).

    Args:
        command: returns the exit status, None for 0, or a page, which is shown.
        argv: the words after the command.
        prog: the command as a user types it, such as "memenvs play".

    Returns:
        The exit status: 1 if the page has `failed` episodes, 2 after one line on standard error for
        `USER_ERRORS`, 130 after Ctrl-C.

    Raises:
        SystemExit: as `parse`.
    """
    try:
        result = parse(command, argv, prog)()
        if result is None or isinstance(result, int):
            return result or 0
        if "--json" in argv:
            show_json(result.to_json())
        else:
            show_page(str(result))
        return int(getattr(result, "failed", 0) > 0)
    except USER_ERRORS as error:
        return report_error(prog, error)
    except KeyboardInterrupt as interruption:
        done = f"; {interruption}" if str(interruption) else ""
        sys.stderr.write(f"{prog}: interrupted{done}\n")
        return 130


def parse(
    command: Any,
    argv: Sequence[str],
    prog: str,
    *,
    about: str | None = None,
    rule: Callable[[Any], Any] | None = None,
    repeatable: Collection[str] = (),
) -> Any:
    """A function bound to the options of a command line (`run_command`).

    Args:
        command: a function, or a dataclass or what `rule` reads, which is made at once.
        argv: the words after the command.
        prog: the command as a user types it.
        about: the head of its help; None: the docstring, up to its arguments.
        rule: says how tyro reads a type (`tyro.constructors.ConstructorRegistry.struct_rule`).
        repeatable: options that may be repeated; the last value counts. Others may be given once.

    Raises:
        SystemExit: tyro showed the help (status 0), or which option is unknown, missing or wrong (2).
        ValueError: an option is given twice.
    """
    if not argv and inspect.isfunction(command):
        parameters = inspect.signature(command).parameters.values()
        if all(parameter.default is not REQUIRED for parameter in parameters):
            return functools.partial(command)  # `memenvs list` takes half as long without tyro
    import tyro

    for flag, count in Counter(word.partition("=")[0].replace("_", "-") for word in argv).items():
        if flag.startswith("--") and count > 1 and flag not in repeatable:  # tyro takes the last
            raise ValueError(f"{flag} is given {count} times; give it once, with all its values")

    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_named_values)
    registry.struct_rule(dataclass_options)
    markers = [tyro.conf.OmitArgPrefixes, tyro.conf.PositionalMetavarFromFieldName]
    if rule is None:
        markers.append(tyro.conf.FlagCreatePairsOff)  # a default that is set can be turned off
    else:
        registry.struct_rule(rule)
    if about is None:  # tyro leaves examples out
        about = (inspect.getdoc(command) or "").partition("\n\nArgs:")[0]
    # tyro imports torch where sys.modules names it, also where None there blocks the import
    is_blocked = sys.modules.get("torch", "") is None
    if is_blocked:
        del sys.modules["torch"]
    try:
        return tyro.cli(
            deferred(command) if inspect.isfunction(command) else command,
            args=argv,
            prog=prog,
            description=wrapped_help(about, 2),  # tyro joins lines that are not indented, and breaks none
            config=markers,
            registry=registry,
        )
    except _WrongValue as wrong:
        raise wrong.__cause__ or wrong from None
    finally:
        if is_blocked:
            sys.modules["torch"] = None  # type: ignore[assignment]


def deferred(function: Callable[..., T]) -> Callable[..., functools.partial[T]]:
    """A function of the same signature and docstring that binds its arguments, and calls nothing.

    If the annotated result has `to_json`, there is the option --json, which `run_command` reads.
    """
    import tyro

    @functools.wraps(function)
    def bind(*args: Any, json: bool = False, **options: Any) -> functools.partial[T]:
        return functools.partial(function, *args, **options)

    hints = typing.get_type_hints(function, include_extras=True)
    if hasattr(hints.get("return"), "to_json"):
        signature = inspect.signature(function)
        option = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False)
        parameters = [*signature.parameters.values(), option]
        about = tyro.conf.arg(help="print the result as JSON, for other programs.")
        wrapper: Any = bind
        wrapper.__signature__ = signature.replace(parameters=parameters)
        wrapper.__annotations__ = {**hints, "json": typing.Annotated[bool, about]}
        del wrapper.__wrapped__  # whose annotations tyro would read
    return bind


def dataclass_options(info: Any) -> Any:
    """How tyro reads a dataclass: as it does by itself, but the text below a field becomes one line."""
    from tyro.constructors import ConstructorRegistry

    if not dataclasses.is_dataclass(info.type) or _READ in info.markers:
        return None
    marked = dataclasses.replace(info, markers=(*info.markers, _READ))  # or tyro would ask here again
    whole: Any = ConstructorRegistry.get_struct_spec(marked)
    fields = [dataclasses.replace(f, helptext=functools.partial(_one_line, f.helptext)) for f in whole.fields]
    return dataclasses.replace(
        whole, fields=tuple(fields), instantiate=functools.partial(_make, whole.instantiate)
    )


def _make(kind: Callable[..., T], /, *args: Any, **options: Any) -> T:
    try:
        return kind(*args, **options)
    except ValueError as error:
        raise _WrongValue from error


class _WrongValue(Exception):
    """Carries the error of a dataclass through tyro, which would draw a `ValueError` as a box."""


def _one_line(text: str | Callable[[], str | None] | None) -> str:
    return " ".join(((text() if callable(text) else text) or "").split())


def _named_values(info: Any) -> Any:
    """How tyro reads arguments by name."""
    from tyro.constructors import PrimitiveConstructorSpec

    if info.type not in (dict[str, Any], Mapping[str, Any], dict[str, Any] | None):
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME=VALUE",
        instance_from_str=read_arguments,
        is_instance=lambda value: value is None or isinstance(value, Mapping),
        str_from_instance=lambda value: [
            f"{name}={json.dumps(item)}" for name, item in (value or {}).items()
        ],
    )


class Parameter(NamedTuple):
    """An argument that a class or a function takes by name.

    Attributes:
        name: the argument's name.
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
        flag: the option that takes them, for the message.

    Raises:
        ValueError: a text is neither, or a name is given twice.

    >>> read_arguments(["k=3", "final_answer_turn=false", "tasks=world-test", '{"memory_mode": "rewrite"}'])
    {'k': 3, 'final_answer_turn': False, 'tasks': 'world-test', 'memory_mode': 'rewrite'}
    >>> read_arguments(["chunk-size=500"])
    {'chunk_size': 500}
    """
    arguments: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name[:1] + name[1:].replace("-", "_")  # an option such as --k=3 stays wrong
        if text.lstrip().startswith("{"):
            named = _json(text, None)
        else:
            named = {name: _json(value, value)} if separator and name.isidentifier() else None
        if not isinstance(named, dict):
            raise ValueError(f"{flag} must be NAME=VALUE …, or one JSON object, got {shown(text)}")
        for twice in arguments.keys() & named.keys():
            values = f"{shown(arguments[twice])} and {shown(named[twice])}"
            raise ValueError(f"{flag}: {twice} is given twice, {values}")
        arguments |= named
    return arguments


def _json(text: str, otherwise: Any) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return otherwise


def check_arguments(owner: str, arguments: Mapping[str, Any], parameters: Sequence[Parameter] | None) -> None:
    """Refuse arguments that `owner` does not take.

    Args:
        owner: what takes them, for the message.
        arguments: by name.
        parameters: what it takes; None if that is unknown; then nothing is refused.

    Raises:
        ValueError: a name is unknown (the valid ones follow, the closest first), a value has the wrong type,
            or an argument is missing.
    """
    if parameters is None:
        return
    known = {parameter.name: parameter for parameter in parameters}
    for name, value in arguments.items():
        if name not in known:
            raise ValueError(unknown_name(f"{owner} has no argument", name, known))
        if is_plain(known[name].annotation) and not fits(value, known[name].annotation):
            is_text = not isinstance(value, str) and fits("", known[name].annotation)
            fix = f"; as a string it is {name}='\"{value}\"'" if is_text else ""
            wanted = described(known[name].annotation)
            raise ValueError(f"{name} of {owner} must be {wanted}, got {shown(value)}{fix}")
    if missing := [p.name for p in parameters if p.default is REQUIRED and p.name not in arguments]:
        raise ValueError(f"{owner} needs the argument {missing[0]!r}: write {missing[0]}=…")


def check_env_arguments(env: str, arguments: Mapping[str, Any]) -> None:
    """Refuse an unregistered environment, and arguments that it does not take, without making it.

    Raises:
        gymnasium.error.Error: there is no such environment.
        ValueError: it has no such argument, or a value has the wrong type.
    """
    check_arguments(env, arguments, env_parameters(env))


def env_parameters(env: str) -> list[Parameter] | None:
    """What an environment takes, with the defaults of its registration; None where it takes any name.

    `render_mode` is left out: commands choose it themselves.
    """
    spec = find_spec(env)
    if spec.entry_point is None:
        return None
    creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    parameters = parameters_of(creator)
    if parameters is None:
        return None
    defaults = spec.kwargs
    return [
        p._replace(default=defaults.get(p.name, p.default)) for p in parameters if p.name != "render_mode"
    ]


def find_spec(env: str) -> EnvSpec:
    """The registration of an id, or of `module:ID`.

    Raises:
        gymnasium.error.Error: there is none.
        ModuleNotFoundError: there is no such module.
    """
    module, colon, name = env.rpartition(":")
    if module:
        try:
            import_named(module)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"no environment {env!r}: {error}", name=error.name) from error
    if name not in gym.registry:  # gym.spec would propose environments of Gymnasium's own
        packages = {id: _package_of(spec) for id, spec in gym.registry.items()}
        names = near_names(name, (id for id, package in packages.items() if package != "gymnasium"))
        package_name = module.partition(".")[0] or "memenvs"
        names += [id for id, package in packages.items() if package == package_name]
        more = "" if module else f"; package:{name} is one of another package"
        raise gym.error.NameNotFound(
            unknown_name("no environment", env, (f"{module}{colon}{id}" for id in names), more)
        )
    return gym.registry[name]


def _package_of(spec: EnvSpec) -> str:
    """The package that an environment is registered from."""
    place = spec.entry_point
    return (place if isinstance(place, str) else getattr(place, "__module__", "")).split(":")[0].split(".")[0]


def parameters_of(creator: Callable[..., Any]) -> list[Parameter] | None:
    """The parameters of a class's constructor, or of a function; None where it takes any name.

    `**kwargs` of a constructor are the parameters of the next class in the order of inheritance.
    """
    functions = [creator]
    if isinstance(creator, type):
        functions = [vars(kind)["__init__"] for kind in creator.__mro__[:-1] if "__init__" in vars(kind)]
    factories: dict[str, Any] = {}  # defaults of a dataclass that the signature does not show
    if dataclasses.is_dataclass(creator):
        fields = dataclasses.fields(creator)
        factories = {f.name: f.default_factory() for f in fields if callable(f.default_factory)}
    parameters: dict[str, Parameter] = {}
    for function in functions:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError):  # an annotation that only a type checker can resolve
            hints = {}
        signature = inspect.signature(function).parameters.values()
        for p in signature:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self":
                default = factories.get(p.name, p.default)
                parameters.setdefault(p.name, Parameter(p.name, hints.get(p.name, Any), default))
        if not any(p.kind is p.VAR_KEYWORD for p in signature):
            return list(parameters.values())
    return None


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
