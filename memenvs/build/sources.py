"""The sources of `memenvs build`: their options, what makes their tasks, and where their files come from."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memenvs.build.contexts import KeptContexts, keep_contexts
from memenvs.build.conversations import ConversationOptions, conversations
from memenvs.build.draft import TEXTS, Draft, item_rng
from memenvs.build.examples import Pool, among_distractors
from memenvs.build.haystack import read_prose
from memenvs.build.holdout import Made, divide
from memenvs.build.multi import MixOptions, MultiOptions, mix, multi
from memenvs.build.niah import NiahOptions, niah
from memenvs.build.options import DrawnFile, Joined, Kept, Options
from memenvs.build.readers.ama_bench import read_ama_bench
from memenvs.build.readers.browsecomp_plus import read_browsecomp_plus
from memenvs.build.readers.flashrag import read_flashrag
from memenvs.build.readers.hotpotqa import read_2wiki, read_hotpotqa
from memenvs.build.readers.jsonl import JsonlOptions, jsonl
from memenvs.build.readers.locomo import Category, read_locomo
from memenvs.build.readers.longbench import read_longbench
from memenvs.build.readers.longmemeval import read_longmemeval
from memenvs.build.readers.memagent import read_memagent
from memenvs.build.readers.memoryagentbench import read_memoryagentbench
from memenvs.build.readers.mrcr import read_mrcr
from memenvs.build.readers.musique import read_musique
from memenvs.build.ruler import RulerOptions, ruler
from memenvs.build.worldgen import AggregateOptions, WorldOptions, aggregate, world
from memenvs.core.data import check, is_plain
from memenvs.core.files import read_json
from memenvs.tasks.taskset import Layout, open_questions
from memenvs.tasks.tokens import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class Wiki(DrawnFile):
    """2WikiMultihopQA.

    Args:
        aliases: id_aliases.json of the same zip (default: the one beside the source, if there is one).
    """

    aliases: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoCoMo(Kept):
    """LoCoMo.

    Args:
        category: category of the questions: multi-hop (1), temporal (2), open-domain (3), single-hop (4),
            adversarial (5); default: all.
    """

    category: Category | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryAgentBench(Kept):
    """MemoryAgentBench.

    Args:
        subset: the source in the records' metadata, such as ruler_qa1_197K; needed where a file holds
            several.
    """

    subset: str | None = None


@dataclass(frozen=True, kw_only=True)
class BrowseCompPlus(Kept):
    """BrowseComp-Plus.

    Args:
        canary: the text by which the obfuscated file is decoded, as its authors publish it.
    """

    canary: str | None = None


Make = Callable[[Any, TextTokenizer], Made]
"""From options and a tokenizer to a draft or its questions."""


@dataclass(frozen=True)
class Source:
    """What a task set can be built from: a benchmark's files, or a generator.

    Attributes:
        title: what it is, in a line.
        options: the class of its options.
        make: makes the tasks, or reads questions: a `Pool` for tasks with distractors drawn from it,
            `KeptContexts` for tasks over the documents that the file gives each question.
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
            One draft; with `holdout` a second one, of the questions set aside (`divide`).

        Raises:
            ValueError: an option out of range, a file that is not of the source's form, or too few questions.
        """
        for name, kind in typing.get_type_hints(self.options, include_extras=True).items():
            if is_plain(kind):
                check(f"--{name.replace('_', '-')}", getattr(options, name), kind)
        if holdout and isinstance(options, MultiOptions):
            raise ValueError(
                "--holdout: a question would be in tasks on both sides; build each --source with "
                "--holdout, and join the sets whose names end in -holdout apart"
            )
        count, split = options.num_tasks, options.split
        material = self.make(replace(options, num_tasks=count and count + holdout), tokenizer)
        inputs = [*_inputs(options), *(material.inputs if isinstance(material, Pool) else ())]
        if not holdout:
            return [replace(_draw(material, options, tokenizer, count, split), inputs=inputs)]
        rng = item_rng(getattr(options, "seed", 0), f"{split}\0holdout", 0)
        rest, held = divide(material, holdout, rng)
        drafts = (
            _draw(rest, options, tokenizer, count, split),
            _draw(held, options, tokenizer, None, f"{split}-holdout"),
        )
        return [replace(draft, inputs=inputs) for draft in drafts]


def _inputs(options: Any) -> list[Path]:
    """The files that are read."""
    if isinstance(options, Joined):
        return [open_questions(source).file for source in options.source]
    names = (getattr(options, name, None) for name in ("source", "pool", "corpus", "aliases"))
    files = [Path(name) for name in names if name and not name.startswith("hf:")]
    return [*files, *read_prose(options.essays)[1]] if getattr(options, "essays", None) else files


def _draw(material: Made, options: Any, tokenizer: TextTokenizer, count: int | None, split: str) -> Draft:
    """The tasks of what a source has made."""
    if isinstance(material, Draft):
        return material
    if isinstance(material, KeptContexts):
        return keep_contexts(material, tokenizer=tokenizer, count=count, questions=options.questions)
    documents = options.documents or (None if options.tokens else material.documents)
    if material.own_paragraphs and documents is None and options.tokens is None:
        kept = KeptContexts(material.examples, Layout(), "em", options.source)
        draft = keep_contexts(kept, tokenizer=tokenizer, count=count)
    else:
        draft = among_distractors(
            material.examples,
            tokenizer=tokenizer,
            documents=documents,
            tokens=options.tokens,
            count=count,
            split=split,
            seed=options.seed,
            workers=options.workers,
            extra=material.extra,
        )
    return replace(draft, left_out=material.left_out)


def _reads(read: Callable[..., Pool | KeptContexts], *more: str) -> Make:
    """Reads a benchmark's file by a function of the source, the split and these options."""
    return lambda options, tokenizer: read(*(getattr(options, name) for name in ("source", "split", *more)))


_READERS: dict[str, tuple[type[Options], Make]] = {
    "hotpotqa": (DrawnFile, _reads(read_hotpotqa)),
    "2wiki": (Wiki, _reads(read_2wiki, "aliases")),
    "musique": (DrawnFile, _reads(read_musique)),
    "memagent": (Kept, _reads(read_memagent)),
    "longbench": (Kept, _reads(read_longbench)),
    **dict.fromkeys(("nq", "triviaqa", "popqa", "bamboogle"), (Kept, _reads(read_flashrag))),
    "longmemeval": (Kept, _reads(read_longmemeval)),
    "mrcr": (Kept, _reads(read_mrcr)),
    "locomo": (LoCoMo, _reads(read_locomo, "category")),
    "memoryagentbench": (MemoryAgentBench, _reads(read_memoryagentbench, "subset")),
    "browsecomp_plus": (BrowseCompPlus, _reads(read_browsecomp_plus, "canary")),
    "ama_bench": (Kept, _reads(read_ama_bench)),
}
_FACTS = read_json(TEXTS / "benchmarks.json")
BENCHMARKS = {
    name: Source(options=kind, make=make, **_FACTS[name]) for name, (kind, make) in _READERS.items()
}
"""The published ones, read from their files."""

_GENERATORS: dict[str, tuple[str, type[Options], Make]] = {
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
