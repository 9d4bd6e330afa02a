"""The sources of `memenvs build`: their builders, their options, and where their files come from."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from memenvs.build.contexts import KeptContexts, keep_contexts
from memenvs.build.conversations import conversations
from memenvs.build.draft import TEXTS, Draft, item_rng
from memenvs.build.examples import Pool, among_distractors
from memenvs.build.haystack import read_prose
from memenvs.build.holdout import divide
from memenvs.build.multi import mix, multi
from memenvs.build.niah import niah
from memenvs.build.readers.ama_bench import read_ama_bench
from memenvs.build.readers.browsecomp_plus import read_browsecomp_plus
from memenvs.build.readers.flashrag import read_flashrag
from memenvs.build.readers.hotpotqa import read_2wiki, read_hotpotqa
from memenvs.build.readers.jsonl import jsonl
from memenvs.build.readers.locomo import read_locomo
from memenvs.build.readers.longbench import read_longbench
from memenvs.build.readers.longmemeval import read_longmemeval
from memenvs.build.readers.memagent import read_memagent
from memenvs.build.readers.memoryagentbench import read_memoryagentbench
from memenvs.build.readers.mrcr import read_mrcr
from memenvs.build.readers.musique import read_musique
from memenvs.build.ruler import ruler
from memenvs.build.worldgen import aggregate, world
from memenvs.core.data import check, is_plain
from memenvs.core.files import read_json
from memenvs.tasks.taskset import Layout, open_questions
from memenvs.tasks.tokens import TextTokenizer


class Option(NamedTuple):
    """An argument of a source, as a command line may offer it.

    Attributes:
        kind: its annotation, bounds and choices included.
        default: `inspect.Parameter.empty` where it must be given.
        help: from the docstring of the function that takes it.
    """

    kind: Any
    default: Any
    help: str


@dataclass(frozen=True)
class Source:
    """What a task set can be built from: a benchmark's files, or a generator.

    Attributes:
        title: what it is, in a line.
        make: makes the tasks, or reads questions: a `Pool` for tasks with distractors drawn from it,
            `KeptContexts` for tasks over the documents that the file gives each question.
        licence: of a benchmark's data, as its authors give it.
        citation: of its paper.
    """

    title: str
    make: Callable[..., Draft | Pool | KeptContexts]
    licence: str = ""
    citation: str = ""

    @property
    def _steps(self) -> tuple[Callable[..., Any], ...]:
        """The functions that take options: `make`, and those that take its result."""
        returned = typing.get_type_hints(self.make)["return"]
        kinds = typing.get_args(returned) or (returned,)
        return (self.make, *(_STEPS[kind] for kind in kinds if kind in _STEPS))

    @property
    def options(self) -> dict[str, Option]:
        """What a user may choose, by name: arguments of the functions that make the tasks."""
        found: dict[str, Option] = {}
        for step in self._steps:
            hints, helps = typing.get_type_hints(step, include_extras=True), _helps(step)
            for name, parameter in inspect.signature(step).parameters.items():
                if name in _MADE:
                    spelled, *rest = _MADE[name]
                    found[spelled] = Option(*rest)
                elif name not in _GIVEN:
                    option = Option(hints[name], parameter.default, helps.get(name) or _SHARED[name])
                    found.setdefault("num_tasks" if name == "count" else name, option)
        return found

    def drafts(self, tokenizer: TextTokenizer, holdout: int = 0, **chosen: Any) -> list[Draft]:
        """The tasks, not written yet.

        Args:
            tokenizer: counts the tokens.
            holdout: questions to set aside, chosen by the seed; `num_tasks` counts the other tasks.
            **chosen: of `options`; those that are left out have their defaults.

        Returns:
            One draft; with `holdout` a second one, of the questions set aside (see `divide`).

        Raises:
            ValueError: an option out of range, a file that is not of the source's form, or too few questions.
        """
        options = self.options
        for name, value in chosen.items():
            if is_plain(options[name].kind):
                check(f"--{name.replace('_', '-')}", value, options[name].kind)
        given = {"tokenizer": tokenizer, "count": chosen.get("num_tasks"), **chosen}
        files = (chosen.get(name) for name in ("source", "pool", "corpus", "aliases"))
        inputs = [Path(file) for file in files if isinstance(file, str) and not file.startswith("hf:")]
        if "essays" in options:
            given["prose"], essays = read_prose(chosen.get("essays"))
            inputs += essays
        if isinstance(several := chosen.get("source"), (list, tuple)):
            if holdout and self.make is multi:
                raise ValueError(
                    "--holdout: a question would be in tasks on both sides; build each --source with "
                    "--holdout, and join the sets whose names end in -holdout apart"
                )
            given["sources"] = [open_questions(source) for source in several]
            inputs += [source.file for source in given["sources"]]
        if not holdout:
            made = _call(self.make, given)
            return [replace(self._drawn(made, given), inputs=[*inputs, *_beside(made)])]
        generated = inspect.signature(self.make).parameters.get("count")
        count = given["count"] or (generated.default if generated else None)
        made = _call(self.make, {**given, "count": count and count + holdout})
        split = given.get("split", "train")
        rng = item_rng(given.get("seed", 0), f"{split}\0holdout", 0)
        rest, held = divide(made, holdout, rng)
        apart = {**given, "count": None, "split": f"{split}-holdout"}
        drafts = [self._drawn(rest, given), self._drawn(held, apart)]
        return [replace(draft, inputs=[*inputs, *_beside(made)]) for draft in drafts]

    def _drawn(self, made: Draft | Pool | KeptContexts, given: Mapping[str, Any]) -> Draft:
        """The tasks of what `make` has made."""
        if isinstance(made, KeptContexts):
            return _call(keep_contexts, {**given, "kept": made})
        if isinstance(made, Pool):
            size = given.get("documents") or (None if given.get("tokens") else made.documents)
            if made.own and size is None and given.get("tokens") is None:
                kept = KeptContexts(made.examples, Layout(), "em", str(given["source"]))
                return replace(_call(keep_contexts, {**given, "kept": kept}), left_out=made.left_out)
            drawn = {**given, "documents": size, "examples": made.examples, "extra": made.extra}
            return replace(_call(among_distractors, drawn), left_out=made.left_out)
        return made


def _beside(made: Draft | Pool | KeptContexts) -> Sequence[Path]:
    """Files that were found and read beside the source."""
    return made.inputs if isinstance(made, Pool) else ()


def _call(step: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """A function called with those of the arguments that it has and that are not None."""
    names = inspect.signature(step).parameters
    return step(**{name: value for name, value in given.items() if name in names and value is not None})


_STEPS: dict[Any, Callable[..., Draft]] = {KeptContexts: keep_contexts, Pool: among_distractors}
_GIVEN = {"tokenizer", "examples", "kept", "extra"}
"""Arguments that no user chooses."""
_SHARED = {
    "count": "number of tasks.",
    "split": "name of the split; an hf: source reads it. Split and seed decide every random choice.",
    "seed": "decides every random choice.",
    "workers": "number of processes, or ray for the workers of a Ray cluster; the result is the same.",
}
"""Help for the arguments that sources share, which their docstrings do not repeat."""
_MADE: dict[str, tuple[str, Any, Any, str]] = {
    "prose": ("essays", Path | None, None, "folder of *.txt, the long text (default: the bundled world)"),
    "sources": (
        "source",
        Sequence[str],
        inspect.Parameter.empty,
        "task sets (folders or bundled names), or JSON Lines of questions and answers",
    ),
}
"""Arguments that are made of an option: its name, annotation, default and help."""


def _helps(function: Callable[..., Any]) -> dict[str, str]:
    """What the docstring of a function says of each argument."""
    arguments = (inspect.getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


_READERS: dict[str, Callable[..., Pool | KeptContexts]] = {
    "hotpotqa": read_hotpotqa,
    "2wiki": read_2wiki,
    "musique": read_musique,
    "memagent": read_memagent,
    "longbench": read_longbench,
    "nq": read_flashrag,
    "triviaqa": read_flashrag,
    "popqa": read_flashrag,
    "bamboogle": read_flashrag,
    "longmemeval": read_longmemeval,
    "mrcr": read_mrcr,
    "locomo": read_locomo,
    "memoryagentbench": read_memoryagentbench,
    "browsecomp_plus": read_browsecomp_plus,
    "ama_bench": read_ama_bench,
}
_FACTS = read_json(TEXTS / "benchmarks.json")
BENCHMARKS = {name: Source(make=read, **_FACTS[name]) for name, read in _READERS.items()}
"""The published ones, read from their files."""

SOURCES = {
    **BENCHMARKS,
    "jsonl": Source("questions and documents of your own, as JSON Lines", jsonl),
    "niah": Source("needles in a haystack: RULER's eight variants", niah),
    "ruler": Source("RULER's thirteen tasks by its names", ruler),
    "world": Source("multi-hop questions over an invented world", world),
    "aggregate": Source("counts, extremes, sums over a whole invented world, as CorpusQA's", aggregate),
    "mrcr_world": Source("which of several equal requests was answered how, as in MRCR", conversations),
    "multi": Source("several questions of task sets asked at once", multi),
    "mix": Source("tasks of several sets as one, by weights", mix),
}
