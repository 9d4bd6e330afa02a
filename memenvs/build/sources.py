"""The sources of `memenvs build`: their options, what makes their tasks, and where their files come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from memenvs.build.conversations import ConversationOptions, conversations
from memenvs.build.draft import Draft, Material, item_rng
from memenvs.build.haystack import prose_files
from memenvs.build.multi import MixOptions, MultiOptions, mix, multi
from memenvs.build.niah import NiahOptions, niah
from memenvs.build.options import PUBLISHED, PUBLISHED_FORMS, DrawnFile, Joined, Kept, Options
from memenvs.build.readers.hotpotqa import Wiki, read_2wiki, read_hotpotqa
from memenvs.build.readers.jsonl import JsonlOptions, TextsOptions, jsonl
from memenvs.build.readers.memoryagentbench import MemoryAgentBench, read_memoryagentbench
from memenvs.build.readers.published import read_published, read_searched
from memenvs.build.readers.records import BrowseCompPlus, LoCoMo
from memenvs.build.ruler import RulerOptions, ruler
from memenvs.build.worldgen import AggregateOptions, WorldOptions, aggregate, world
from memenvs.core.data import check_fields
from memenvs.core.inputs import input_files, text_files
from memenvs.tasks.taskset import open_questions
from memenvs.tasks.tokens import TextTokenizer

Make = Callable[[Any, TextTokenizer], Material]
"""From options and a tokenizer to a draft or its questions."""


@dataclass(frozen=True)
class Source:
    """What a task set can be built from: a benchmark's files, or a generator.

    Attributes:
        title: what it is, in a line.
        options: the class of its options.
        make: makes the tasks (`Draft`), or reads questions: a `Pool` for tasks with distractors drawn from
            it, `KeptContexts` for tasks over the documents that the file gives each question.
        files: names of a benchmark's files.
        licence: licence of a benchmark's data, as its authors give it.
        citation: the benchmark's paper.
    """

    title: str
    options: type[Any]
    make: Make
    files: str = ""
    licence: str = ""
    citation: str = ""

    def drafts(self, options: Any, tokenizer: TextTokenizer, holdout: int = 0) -> list[Draft]:
        """The tasks, not written yet.

        Args:
            options: an instance of the source's `options`.
            tokenizer: counts the tokens.
            holdout: questions to set aside, chosen by the seed; `num_tasks` counts the other tasks.

        Returns:
            One draft; with `holdout` a second one, of the questions set aside (`Material.divide`).

        Raises:
            ValueError: an option out of range, a file that is not of the source's form, or too few questions.
        """
        check_fields(options, lambda name: f"--{name.replace('_', '-')}")
        if holdout and isinstance(options, MultiOptions):
            raise ValueError(
                "--holdout: a question would be in tasks on both sides; build each --source with "
                "--holdout, and join the sets whose names end in -holdout apart"
            )
        count, split = options.num_tasks, options.split
        material = self.make(replace(options, num_tasks=count and count + holdout), tokenizer)
        inputs = [*_inputs(options), *material.inputs]
        if not holdout:
            return [replace(material.draw(options, tokenizer, count, split), inputs=inputs)]
        rest, held = material.divide(holdout, item_rng(getattr(options, "seed", 0), f"{split}\0holdout", 0))
        drafts = (
            rest.draw(options, tokenizer, count, split),
            held.draw(options, tokenizer, None, f"{split}-holdout"),
        )
        return [replace(draft, inputs=inputs) for draft in drafts]


def _inputs(options: Any) -> list[Path]:
    """The files that are read."""
    if isinstance(options, Joined):
        return [file for source in options.source for file in open_questions(source).files]
    names = (getattr(options, name, None) for name in ("source", "pool", "aliases"))
    paths = [name for name in names if name and not name.startswith("hf:")]
    files = [file for path in paths for file in input_files(path, split=options.split)]
    if corpus := getattr(options, "corpus", None):
        files += text_files(corpus) or input_files(corpus, split=options.split)
    return [*files, *prose_files(options.essays)] if getattr(options, "essays", None) else files


_READERS: dict[str, tuple[type[Options], Callable[..., Material]]] = {
    "hotpotqa": (DrawnFile, read_hotpotqa),
    "2wiki": (Wiki, read_2wiki),
    "memoryagentbench": (MemoryAgentBench, read_memoryagentbench),
    "locomo": (LoCoMo, partial(read_published, "locomo")),
    "browsecomp_plus": (BrowseCompPlus, partial(read_published, "browsecomp_plus")),
}
"""The options of benchmarks that have some of their own, and a function from the source, the split and these
to the questions. The others are described by their forms, or have questions without documents."""


_OF_ALL_BENCHMARKS = {field.name for base in (DrawnFile, Kept) for field in fields(base)}
"""Options that no reader of its own is given."""


def _benchmark(name: str, facts: Mapping[str, Any]) -> Source:
    """A benchmark, read from its files."""
    kind: type[Options] = Kept
    read: Callable[..., Material] = read_searched
    if name in _READERS:
        kind, read = _READERS[name]
    elif form := PUBLISHED_FORMS.get(name):
        kind = DrawnFile if form.drawn else Kept
        read = partial(read_published, name)
    of_reader = {field.name for field in fields(kind)} - _OF_ALL_BENCHMARKS

    def make(options: Any, tokenizer: TextTokenizer) -> Material:
        return read(options.source, options.split, **{name: getattr(options, name) for name in of_reader})

    about = {fact: text for fact, text in facts.items() if fact != "form"}
    return Source(options=kind, make=make, **about)


BENCHMARKS = {name: _benchmark(name, facts) for name, facts in PUBLISHED.items()}
"""The published ones, by their names."""

_GENERATORS: dict[str, tuple[str, type[Options], Make]] = {
    "texts": (
        "a folder of texts and a table of questions of your own",
        TextsOptions,
        lambda options, tokenizer: jsonl(options),
    ),
    "jsonl": (
        "questions and documents of your own, as JSON Lines",
        JsonlOptions,
        lambda options, tokenizer: jsonl(options),
    ),
    "niah": ("needles in a haystack: RULER's eight variants", NiahOptions, niah),
    "ruler": ("RULER's thirteen tasks by its names", RulerOptions, ruler),
    "world": (
        "multi-hop questions over an invented world",
        WorldOptions,
        lambda options, tokenizer: world(options),
    ),
    "aggregate": (
        "counts, extremes, sums over a whole invented world, as CorpusQA's",
        AggregateOptions,
        aggregate,
    ),
    "mrcr_world": (
        "which of several equal requests was answered how, as in MRCR",
        ConversationOptions,
        conversations,
    ),
    "multi": ("several questions of task sets asked at once", MultiOptions, multi),
    "mix": ("tasks of several sets as one, by weights", MixOptions, mix),
}
SOURCES = {**BENCHMARKS, **{name: Source(*row) for name, row in _GENERATORS.items()}}
