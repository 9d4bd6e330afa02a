"""`memenvs list`: what memenvs has, or one entry by its name."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

import memenvs  # noqa: F401  # registers the environments
from memenvs.core.arguments import (
    REQUIRED,
    Parameter,
    described,
    env_parameters,
    find_spec,
    parameters_of,
    shell_form,
)
from memenvs.core.errors import counted, near_names, unknown_name
from memenvs.core.files import CARD, TASKS, read_json
from memenvs.core.optional import import_object
from memenvs.core.terminal import CommandResult, terminal_width
from memenvs.data import bundled, bundled_names
from memenvs.models.packaged import AGENT, MODELS, shipped_agents
from memenvs.rollout.names import POLICIES
from memenvs.tasks.metrics import METRICS
from memenvs.wrappers.names import METHODS, SCORERS

_GROUPS = {
    "environments": ("environment", "gym.make(ID, NAME=VALUE), --env ID --env-args NAME=VALUE"),
    "tasks": ("task set", "tasks=NAME, or the folder of one that `memenvs build` made"),
    "levels": ("level set", "levels=NAME of Sokoban, or a file"),
    "metrics": ("metric", "metric=NAME"),
    "rewards": (
        "reward method",
        "RewardWrapper(env, [NAME]), --methods NAME SETTING=VALUE; for the learner grpo also --reward NAME "
        "--reward-args …, which compares episodes as the method does",
    ),
    "scorers": ("scorer", "scorer=NAME, or NAME:MODEL"),
    "policies": (
        "policy",
        "--policy NAME of play and evaluate; for play also me (you type the replies)",
    ),
    "models": (
        "model",
        "--model NAME, hf:NAME, vllm:NAME; packaged, and converted once into ~/.cache/memenvs",
    ),
}
"""The word that shows a group, the kind of its entries, and how a name is used."""

_MORE = (
    "`memenvs list GROUP` shows a group with its arguments, such as `memenvs list rewards`;",
    "`memenvs list NAME` shows everything about one entry.",
)


_FULL = 100
"""Characters of a full line in a docstring, the code's 110 less the indent; a shorter one ends a part."""


class Entry(NamedTuple):
    """Something chosen by name.

    Attributes:
        kind: the kind of a group.
        name: the name that chooses it.
        about: what it is, or a function that finds it out, since a list of names should not have to import
            everything; its first paragraph, on one line, is the summary.
        arguments: its arguments, or a function that finds them out; None if it takes any.
    """

    kind: str
    name: str
    about: str | Callable[[], str]
    arguments: Callable[[], Sequence[Parameter] | None] = tuple

    @property
    def text(self) -> str:
        """What it is."""
        return self.about() if callable(self.about) else self.about

    @property
    def summary(self) -> str:
        """Its first paragraph on one line."""
        return " ".join(self.text.strip().partition("\n\n")[0].split())


def show(name: str = "", /) -> CommandResult:
    """List what is chosen by name: all names, a group with arguments and defaults, or one entry.

    Examples:
      memenvs list
      memenvs list rewards
      memenvs list MemChunkQA-v0

    Args:
        name: a group (environments, tasks, levels, metrics, rewards, scorers, policies, models), or an entry,
            such as MemChunkQA-v0, TAMTRL or em, which is shown with its whole documentation.
    """
    if not name:
        return CommandResult(overview(), lambda: [*map(_plain, entries())])
    if groups := [word for word, (kind, _) in _GROUPS.items() if name.lower() in (word, kind, f"{kind}s")]:
        kind, _ = _GROUPS[groups[0]]
        shown = (entry for entry in entries() if entry.kind == kind)
        return CommandResult(summaries(groups[0]), lambda: [*map(_plain, shown)])
    try:
        named = [entry for entry in entries() if entry.name.lower() == name.lower()] or [_environment(name)]
        return CommandResult("\n".join(map(whole, named)), lambda: [*map(_plain, named)])
    except gym.error.NameNotFound:
        near = near_names(name, (entry.name for entry in entries()))
        raise ValueError(unknown_name("no entry and no group", name, [*near, *_GROUPS])) from None
    except (gym.error.Error, ImportError) as error:
        raise ValueError(f"no entry {name!r}: {error}") from error


def _plain(entry: Entry) -> dict[str, Any]:
    """An entry as plain data; an argument without a default is None."""
    arguments = {p.name: None if p.default is REQUIRED else p.default for p in entry.arguments() or ()}
    return {"kind": entry.kind, "name": entry.name, "summary": entry.summary, "arguments": arguments}


def entries() -> Iterator[Entry]:
    """Everything chosen by name, in the order of the headings."""
    for name in gym.registry:
        if name.startswith("Mem"):
            yield _environment(name)
    for name in bundled_names():
        path = bundled(name)
        if (path / TASKS).is_file():
            yield Entry("task set", name, functools.partial(_about, path))
    for name in bundled_names():
        if name.endswith(".npz"):
            yield Entry("level set", name.removesuffix(".npz"), "Levels with a shortest solution each.")
    for name, metric in METRICS.items():
        yield Entry("metric", name, _unwrapped(inspect.getdoc(metric) or ""))
    for kind, places in (("reward method", METHODS), ("scorer", SCORERS)):
        for name, place in places.items():
            yield Entry(
                kind, name, functools.partial(_documentation, place), functools.partial(_parameters, place)
            )
    for name, text in POLICIES.items():
        yield Entry("policy", name, text)
    yield Entry("policy", "hf:MODEL", "A model of transformers, by its folder or name; smollm2-reader reads.")
    yield Entry("policy", "openai:URL", "A model behind an OpenAI-compatible server.")
    yield Entry("policy", "replay:RUN", "The replies of an earlier run, again.")
    yield Entry("policy", "module:function", "Your own, called with observation and info.")
    yield from _models()


def _models() -> Iterator[Entry]:
    for model in MODELS.values():
        yield Entry("model", model.name, f"{model.title} ({model.licence}): `{model.install}`.")
    for name in shipped_agents():
        agent = read_json(bundled(name) / AGENT)
        yield Entry(
            "model", name, f"An adapter of {agent['model']} that plays {agent['env']}: `--policy hf:{name}`."
        )


def overview() -> str:
    """The names of every entry, by group."""
    everything, lines = list(entries()), list[str]()
    for word, (kind, usage) in _GROUPS.items():
        names = "  ".join(entry.name for entry in everything if entry.kind == kind)
        lines += [_filled(f"{word}: {usage}", "", 2), _filled(names, "  ", 2), ""]
    return "\n".join([*lines, *_MORE, ""])


def summaries(word: str) -> str:
    """The entries of a group, each with its summary, its arguments and their defaults."""
    kind, usage = _GROUPS[word]
    lines = [_filled(f"{word}: {usage}", "", 2)]
    for entry in entries():
        if entry.kind != kind:
            continue
        lines.append(_filled(f"{entry.name:20}{entry.summary}", "  ", 22))
        if parameters := entry.arguments():
            arguments = " ".join(shell_form(p).replace(" ", "\0") for p in parameters)
            lines.append(_filled(arguments, " " * 22, 22).replace("\0", " "))
    return "\n".join([*lines, "", _MORE[-1], ""])


def whole(entry: Entry) -> str:
    """An entry with the types of its arguments and the whole of its documentation."""
    lines = [f"{entry.name}, {entry.kind}"]
    for parameter in entry.arguments() or ():
        lines.append(_filled(f"{shell_form(parameter):32}  {described(parameter.annotation)}", "  ", 36))
    lines.append("")
    for line in entry.text.strip().split("\n"):
        indent = len(line) - len(line.lstrip())
        lines.append(_filled(line.strip(), " " * indent, indent))
    return "\n".join([*lines, ""])


def _environment(name: str) -> Entry:
    spec = find_spec(name)  # raises here, where there is none
    return Entry(
        "environment", name, functools.partial(_contract, spec), functools.partial(env_parameters, name)
    )


def _contract(spec: EnvSpec) -> str:
    """What the docstring of an environment promises."""
    from memenvs.commands.contract import argument_texts, contract

    point: str | Callable[..., Any] | None = spec.entry_point
    creator = load_env_creator(point) if isinstance(point, str) else point
    if creator is None:
        return ""
    summary, sections = contract(creator)
    sections = {title: _unwrapped(text) for title, text in sections.items()}
    if "Args" in sections:
        sections["Args"] = "\n".join(
            f"{argument}: {text}" for argument, text in argument_texts(creator).items()
        )
    parts = (f"{title}:\n{textwrap.indent(text, '    ')}" for title, text in sections.items())
    return "\n\n".join([_unwrapped(summary), *parts])


def _documentation(place: str) -> str:
    return _unwrapped(inspect.getdoc(import_object(place)) or "")


def _parameters(place: str) -> list[Parameter] | None:
    return parameters_of(import_object(place))


def _unwrapped(text: str) -> str:
    """A docstring with each line that its author wrapped joined to the one before it, except in equations."""
    lines = text.split("\n")
    joined = lines[:1]
    for before, line in pairwise(lines):
        words = line.split()
        is_own = re.match(r"\s*(- |\w+: )", line) or "  " in line.strip() or "  " in before.strip()
        if words and not is_own and len(before) + len(words[0]) > _FULL:
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line)
    return "\n".join(joined)


def _about(folder: Path) -> str:
    """What the card of a bundled task set says."""
    from memenvs.tasks.taskset import Card

    card = Card.read(folder / CARD)
    counts = card.counts
    return (
        f"{counted(counts['tasks'], 'task')} over {counted(counts['documents'], 'document')}, "
        f"up to {counts['max_tokens']:,} tokens a task (tokenizer {card.tokenizer['name']}); "
        f"for {card.environment}, by {card.metric}."
    )


def _filled(text: str, first: str, indent: int) -> str:
    fill = textwrap.TextWrapper(
        terminal_width(110), first, " " * indent, break_long_words=False, break_on_hyphens=False
    )
    return fill.fill(text)
