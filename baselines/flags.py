"""Flags of the learners, which a command line and a recipe fill in."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

from memenvs.baselines.args import LEARNERS, EngineArgs, PlayArgs, TrainArgs
from memenvs.core.arguments import dataclass_options, parse
from memenvs.core.errors import USER_ERRORS, unknown_name
from memenvs.core.files import ARGS, read_json
from memenvs.core.optional import require
from memenvs.core.terminal import report_error
from memenvs.core.trackers import TrackerError
from memenvs.models.packaged import MODELS, pinned, shipped_agents, split_revision, with_revision

A = TypeVar("A", bound=TrainArgs)
R = TypeVar("R")

RECIPES = Path(__file__).parent / "recipes"
"""Folder of the recipes that ship, one file for each setting of a paper."""


def run_learner(
    kind: type[A], prepare: Callable[[A], R], train: Callable[[R, A], None], argv: Sequence[str], name: str
) -> int:
    """Read the flags of a learner, prepare its run and train.

    Args:
        kind: class of the learner's arguments.
        prepare: makes the run of the arguments.
        train: is given the run and the arguments.
        argv: the command line.
        name: the learner's name.

    Returns:
        The exit status: 2, and one line on standard error, for what is wrong before
        the training begins, and for a full disk or a server that does not answer during it; 130 after Ctrl-C.
    """
    prog = f"memenvs train {name}"
    try:
        args = read_args(kind, argv, prog)
        if isinstance(args, EngineArgs) and args.engine == "verl":
            return int(require("memenvs.baselines.verl", "verl").start(args, name))
        args.check()  # before the modules of torch are imported, which takes seconds
        run = prepare(args)
    except USER_ERRORS as error:
        return report_error(prog, error)
    try:
        train(run, args)
    except (TrackerError, OSError) as error:
        return report_error(prog, error)
    except KeyboardInterrupt:
        resume = f"memenvs train --resume --out {shlex.quote(str(args.out))}"
        sys.stderr.write(f"{prog}: interrupted; `{resume}` resumes from the newest checkpoint\n")
        return 130
    return 0


def main(argv: Sequence[str]) -> int:
    """Run the learner that the first word names, or without one that of the run whose flags are taken over.

    Args:
        argv: the words after `memenvs train`.
    """
    try:
        name, argv = (argv[0], argv[1:]) if argv and argv[0] in LEARNERS else (_learner_of_run(argv), argv)
    except USER_ERRORS as error:
        return report_error("memenvs train", error)
    module = f"memenvs.baselines.{name}"
    return run_learner(
        LEARNERS[name],
        lambda args: require(module, "train").prepare(args),
        lambda run, args: require(module, "train").train(run, args),
        argv,
        name,
    )


def _learner_of_run(argv: Sequence[str]) -> str:
    """The learner of the run that a command line resumes, merges or repeats."""
    recipe = _value_in(argv, "--recipe")
    file = Path(recipe) if recipe.endswith(".json") else _run_file(argv)
    if file is None:
        raise ValueError(
            f"no learner is given; choose one of {', '.join(LEARNERS)}, or add --resume to continue the run "
            "in --out"
        )
    return str(run_flags(file)["learner"])


def read_args(kind: type[A], argv: Sequence[str], prog: str) -> A:
    """The arguments on a command line.

    With `--recipe` the flags of a file are the defaults, and the command line overrides them: a
    `dict[str, Any]` name by name, and `{}` clears it. If another flag is repeated, the last value counts.
    With `--resume` or `--merge` and no recipe the flags of the run in `--out` are the defaults.

    Raises:
        ValueError: there is no such recipe, or a flag is unknown or cannot be read.
    """
    defaults, hints = kind(), get_type_hints(kind)
    if isinstance(defaults, PlayArgs):
        defaults = replace(defaults, env="")
    by_name = [name for name, hint in hints.items() if hint in (dict[str, Any], Mapping[str, Any])]
    repeatable = [f"--{name}".replace("_", "-") for name in hints.keys() - {*by_name}]
    recipe, run_file = _value_in(argv, "--recipe"), _run_file(argv)
    if not recipe and run_file is not None and run_file.is_file():
        recipe = str(run_file)
    if recipe.endswith(".json"):
        defaults = run_args(kind, Path(recipe), prog)
    elif recipe:
        defaults = _parse(recipe_flags(recipe), f"{prog} --recipe {recipe}", defaults, repeatable)
    args = _parse(argv, prog, defaults, repeatable)
    merged: dict[str, Any] = {}
    for name in by_name:
        if value := getattr(args, name):
            merged[name] = {**getattr(defaults, name), **value}
    args = replace(args, **merged)
    if args.revision and args.model:
        name = split_revision(args.model)[0]
        model = with_revision(name, args.revision)
        if name in (*MODELS, *shipped_agents()) or not split_revision(model)[1]:
            raise ValueError(f"--revision is for a model of the hub, got model {name!r}; leave it out")
        args = replace(args, model=model, revision="")
    args = replace(args, model=pinned(args.model))
    if run_file is not None and not recipe and not args.model:
        run_flags(run_file)
    if isinstance(args, PlayArgs) and not args.env:
        raise ValueError("no environment is given; add --env, such as --env MemChunkQA-v0, or a --recipe")
    return args


class Flags(dict[str, Any]):
    """The flags of a learner by name, which tyro reads as `_grouped` says."""


def _parse(argv: Sequence[str], prog: str, defaults: A, repeatable: Sequence[str]) -> A:
    """The arguments on a command line.

    Its help shows the flags that matter first, and then the learner's own; `--help-all` also shows those of
    every other class.
    """
    kind = type(defaults)
    shows_all = "--help-all" in argv
    if shows_all:
        argv = ["--help" if word == "--help-all" else word for word in argv]
    hides = not shows_all and not {"-h", "--help"}.isdisjoint(argv)
    about = inspect.getdoc(kind) or ""
    if hides:
        about += f"\n\n`{prog} --help-all` shows the other options too."
    rule = _grouped(defaults, hides)
    return kind(**parse(Flags, argv, prog, about=about, rule=rule, repeatable=repeatable))


def _grouped(defaults: TrainArgs, hides: bool) -> Callable[[Any], Any]:
    """A rule by which tyro reads the fields of a learner: first those that matter, then a group a class.

    `hides` leaves the groups of classes that the learner shares out of its help.
    """
    from tyro.conf import Suppress, arg
    from tyro.constructors import MISSING_NONPROP, StructConstructorSpec, StructFieldSpec, StructTypeInfo

    kind = type(defaults)
    whole = dataclass_options(StructTypeInfo.make(kind, defaults, in_union_context=False))
    rest = {field.name: field for field in whole.fields}
    members = [rest.pop(name) for name in kind.FIRST if name in rest]
    groups: dict[type, list[Any]] = {}
    for base in sorted(kind.__mro__, key=lambda base: base is EngineArgs):
        annotations = vars(base).get("__annotations__", {})
        groups[base] = [rest.pop(name) for name in [*rest] if name in annotations]
        if groups[base]:
            title = re.sub("Args$|Settings$", "", base.__name__).lower()
            form: Any = Annotated[base, arg(name=title)]
            if hides and base is not kind:
                form = Annotated[form, Suppress]
            about = "" if base is kind else (base.__doc__ or "").partition("\n")[0]
            members.append(StructFieldSpec(f"{title}_", form, MISSING_NONPROP, about))

    def read(**values: Any) -> Flags:
        flags = Flags()
        for name, value in values.items():
            flags |= value if isinstance(value, Flags) else {name: value}
        return flags

    def rule(info: Any) -> Any:
        fields = members if info.type is Flags else groups.get(info.type)
        return fields and StructConstructorSpec(read, tuple(fields))

    return rule


def _run_file(argv: Sequence[str]) -> Path | None:
    """The file with the flags of the run that a command line resumes or merges; None if it does neither."""
    if "--resume" not in argv and not _value_in(argv, "--merge"):
        return None
    return Path(_value_in(argv, "--out") or TrainArgs.out) / ARGS


def _value_in(argv: Sequence[str], flag: str) -> str:
    """The last value of a flag; empty without it."""
    last = ""
    for word, after in pairwise([*argv, ""]):
        name, equals, value = word.partition("=")
        if name == flag:
            last = value if equals else after
    return last


def run_args(kind: type[A], file: Path, prog: str) -> A:
    """The arguments in the `args.json` of a run, without those that say where it is written.

    Args:
        kind: class of the learner's arguments.
        file: as a run writes it.
        prog: the command that reads it, which ends in the name of the learner.

    Raises:
        ValueError: there is no such file, it is of another learner, or it has other arguments.
    """
    values = run_flags(file)
    learner = values.pop("learner")
    if learner != prog.rpartition(" ")[2]:
        raise ValueError(f"{file} is a run of {learner!r}, not of `{prog}`; name that learner, or none")
    of_call = ("out", "resume", "dry_run", "merge", "prompts")
    kept = {name: value for name, value in values.items() if name not in of_call}
    if unknown := sorted(kept.keys() - {field.name for field in fields(kind)}):
        raise ValueError(
            f"{file} holds arguments that {prog} does not have: {', '.join(unknown)}; take them out"
        )
    try:
        return msgspec.convert(kept, kind, dec_hook=lambda of, value: of(value))
    except msgspec.ValidationError as error:
        raise ValueError(f"{file} holds no flags of {prog}: {error}; give the args.json of a run") from None


def run_flags(file: Path) -> dict[str, Any]:
    """The flags of a run and its `learner`, as its `args.json` has them.

    Raises:
        ValueError: there is no such file, or it is not that of a run.
    """
    if not file.is_file():
        raise ValueError(
            f"no file {file}, so no run has begun there; give the folder or the args.json of a run"
        )
    values = read_json(file, "give the args.json of a run")
    if values.get("learner") not in [*LEARNERS]:
        raise ValueError(
            f"the learner in {file} must be one of {', '.join(LEARNERS)}, got {values.get('learner')!r}; "
            "give the args.json of a run"
        )
    return values


def recipe_names() -> list[str]:
    """Names of the recipes that ship: one for each setting of a paper."""
    return sorted(path.stem for path in RECIPES.glob("*.txt"))


def recipe_flags(recipe: str) -> list[str]:
    """The flags in a recipe, which is read as a shell would read it, with `#` comments.

    Args:
        recipe: one of `recipe_names()`, or a file.

    Raises:
        ValueError: there is no such recipe, it is not UTF-8, or a quotation mark in it is not closed.
    """
    from memenvs.core.inputs import read_text  # which loads pyarrow

    names = recipe_names()
    path = RECIPES / f"{recipe}.txt" if recipe in names else Path(recipe)
    if not path.is_file():
        raise ValueError(unknown_name("no recipe", recipe, names, ", or a file"))
    text = read_text(path)
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; write the flags as for a shell") from None
