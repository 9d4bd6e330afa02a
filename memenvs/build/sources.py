"""The sources of `memenvs build`: their options, what makes their tasks, and where their files come from."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from memenvs.build.contexts import KeptContexts, keep_contexts
from memenvs.build.conversations import Needles, conversations
from memenvs.build.draft import TEXTS, Draft, item_rng
from memenvs.build.examples import Pool, among_distractors
from memenvs.build.haystack import read_prose
from memenvs.build.holdout import Made, divide
from memenvs.build.multi import Objectives, mix, multi
from memenvs.build.niah import Variant, niah
from memenvs.build.readers.ama_bench import read_ama_bench
from memenvs.build.readers.browsecomp_plus import read_browsecomp_plus
from memenvs.build.readers.flashrag import read_flashrag
from memenvs.build.readers.hotpotqa import read_2wiki, read_hotpotqa
from memenvs.build.readers.jsonl import jsonl
from memenvs.build.readers.locomo import Category, read_locomo
from memenvs.build.readers.longbench import read_longbench
from memenvs.build.readers.longmemeval import read_longmemeval
from memenvs.build.readers.memagent import read_memagent
from memenvs.build.readers.memoryagentbench import read_memoryagentbench
from memenvs.build.readers.mrcr import read_mrcr
from memenvs.build.readers.musique import read_musique
from memenvs.build.ruler import Kind, ruler
from memenvs.build.worldgen import Entities, Hops, Split, aggregate, world
from memenvs.build.worldgen.aggregates import OPERATIONS, Operation
from memenvs.core.data import Count, Positive, Whole, check, is_plain
from memenvs.core.files import read_json
from memenvs.core.processes import Workers
from memenvs.tasks.taskset import Layout, open_questions
from memenvs.tasks.tokens import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class Options:
    """What tasks of every source are made of.

    Args:
        num_tasks: number of tasks (default: every question once); beyond that questions are used again.
        split: name of the split; an hf: source reads it. Split and seed decide every random choice.
    """

    num_tasks: Count | None = None
    split: str = "train"


@dataclass(frozen=True, kw_only=True)
class Kept(Options):
    """A file whose questions keep the contexts that they come with.

    Args:
        source: the benchmark's file (its names are above), or hf:NAME[:CONFIG].
        num_tasks: number of tasks, the first of the file (default: every question once).
        questions: maximum number of questions about one context in a task, in their order; MemChunkQA-v0 may
            ask them one by one (ask). A question with "; ", or an answer with ";", stays alone.
    """

    source: str
    questions: Count = 1


@dataclass(frozen=True, kw_only=True)
class Seeded(Options):
    """Sources that draw.

    Args:
        seed: decides every random choice.
    """

    seed: Whole = 0


@dataclass(frozen=True, kw_only=True)
class Drawn(Seeded):
    """Questions that are asked among documents of a pool.

    Args:
        documents: number of documents in a task; without it and --tokens, a question of a file keeps its own.
        tokens: instead of documents, the maximum tokens of a task's text; missed by less than a document.
        workers: number of processes, or ray for the workers of a Ray cluster; the result is the same.
    """

    documents: Count | None = None
    tokens: Count | None = None
    workers: Workers = 1


@dataclass(frozen=True, kw_only=True)
class DrawnFile(Drawn):
    """A file of questions, each with paragraphs of its own.

    Args:
        source: the benchmark's file (its names are above), or hf:NAME[:CONFIG].
    """

    source: str


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


@dataclass(frozen=True, kw_only=True)
class Jsonl(DrawnFile):
    """Your own questions.

    Args:
        source: a line a question: question, answers, documents of title and text, evidence (numbers of those
            needed, from 0); or hf:NAME[:CONFIG] with these columns.
        pool: more documents to draw distractors from, one per line: title and text.
        corpus: documents that the questions name by id, as `build index --corpus` reads them.
        questions: maximum number of consecutive questions about one context in a task.
    """

    pool: str | None = None
    corpus: str | None = None
    questions: Count = 1


@dataclass(frozen=True, kw_only=True)
class World(Drawn):
    """The invented world.

    Args:
        documents: number of documents in a task (default: 50).
        num_tasks: number of tasks.
        split: split of the world; no two splits share an entity's name.
        entities: number of people, places and works in the world, with a document each.
        hops: documents that a question chains, asked equally often.
    """

    num_tasks: Count = 512
    split: Split = "train"
    entities: Entities = 2000
    hops: Hops = (1, 2, 3, 4)


@dataclass(frozen=True, kw_only=True)
class Aggregate(Drawn):
    """Questions over a whole invented world.

    Args:
        documents: number of documents in a task.
        num_tasks: number of tasks; the first n are the same however many are asked.
        split: split of the world; no two splits share an entity's name.
        ask: kinds of question, used in turn.
        entities: number of documents in the world (default: as many as a task reads).
    """

    num_tasks: Count = 100
    split: Split = "train"
    ask: Annotated[Sequence[Operation], Meta(min_length=1)] = OPERATIONS
    entities: Entities | None = None


@dataclass(frozen=True, kw_only=True)
class Hidden(Seeded):
    """Tasks that are hidden in a long text.

    Args:
        tokens: maximum tokens of a task's text, tokenised whole; missed by less than one of its parts.
        num_tasks: number of tasks.
        essays: folder of *.txt, the long text (default: the bundled world).
    """

    tokens: Count
    essays: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Niah(Hidden):
    """Needles in a haystack.

    Args:
        variant: what is hidden, and in what.
        workers: number of processes, or ray for the workers of a Ray cluster; the result is the same.
    """

    num_tasks: Count = 100
    variant: Variant = "single_2"
    workers: Workers = 1


@dataclass(frozen=True, kw_only=True)
class Ruler(Hidden):
    """RULER's tasks.

    Args:
        kind: RULER's names of the tasks; each becomes a task set.
        num_tasks: number of tasks (default: 100, of qa_1 and qa_2 every question once).
        source: official file, of SQuAD for qa_1, of HotpotQA for qa_2.
        chains: number of chains in vt; the question is about one of them.
        hops: number of assignments in a chain of vt after the first.
        workers: number of processes, or ray for the workers of a Ray cluster; the result is the same.
    """

    kind: list[Kind]
    source: str | None = None
    chains: Count = 1
    hops: Count = 4
    workers: Workers = 1


@dataclass(frozen=True, kw_only=True)
class Conversations(Hidden):
    """Conversations.

    Args:
        needles: number of identical requests, 2 to 8.
    """

    num_tasks: Count = 100
    needles: Needles = 4


@dataclass(frozen=True, kw_only=True)
class Joined(Seeded):
    """Tasks of task sets.

    Args:
        source: task sets (folders or bundled names), or JSON Lines of questions and answers.
        num_tasks: number of tasks (default: as many as the sources have together).
        weights: weights of the sources, each above 0 (default: equal).
    """

    source: Sequence[str]
    weights: Sequence[Positive] | None = None


@dataclass(frozen=True, kw_only=True)
class Multi(Joined):
    """Several questions at once.

    Args:
        objectives: questions per task, 2 to 16, drawn from one source without replacement.
        singles: number of extra tasks with one question each, none twice (MemPO trains on both).
    """

    objectives: Objectives
    singles: Whole = 0


@dataclass(frozen=True, kw_only=True)
class Mix(Joined):
    """A mixture.

    Args:
        metric: metric of the mixture (default: the metric that all its sources share).
    """

    metric: str | None = None


Make = Callable[[Any, TextTokenizer, Any], Made]
"""From options, a tokenizer and the number of tasks with those set aside, to a draft or its questions."""


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
        if holdout and isinstance(options, Multi):
            raise ValueError(
                "--holdout: a question would be in tasks on both sides; build each --source with "
                "--holdout, and join the sets whose names end in -holdout apart"
            )
        count, split = options.num_tasks, options.split
        made = self.make(options, tokenizer, count and count + holdout)
        inputs = [*_inputs(options), *(made.inputs if isinstance(made, Pool) else ())]
        if not holdout:
            return [replace(_draw(made, options, tokenizer, count, split), inputs=inputs)]
        rng = item_rng(getattr(options, "seed", 0), f"{split}\0holdout", 0)
        rest, held = divide(made, holdout, rng)
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


def _draw(made: Made, options: Any, tokenizer: TextTokenizer, count: int | None, split: str) -> Draft:
    """The tasks of what a source has made."""
    if isinstance(made, Draft):
        return made
    if isinstance(made, KeptContexts):
        return keep_contexts(made, tokenizer=tokenizer, count=count, questions=options.questions)
    documents = options.documents or (None if options.tokens else made.documents)
    if made.own and documents is None and options.tokens is None:
        kept = KeptContexts(made.examples, Layout(), "em", options.source)
        draft = keep_contexts(kept, tokenizer=tokenizer, count=count)
    else:
        draft = among_distractors(
            made.examples,
            tokenizer=tokenizer,
            documents=documents,
            tokens=options.tokens,
            count=count,
            split=split,
            seed=options.seed,
            workers=options.workers,
            extra=made.extra,
        )
    return replace(draft, left_out=made.left_out)


def _but(options: Options, *others: str) -> dict[str, Any]:
    """The options as arguments, without the number of tasks and those that are named."""
    return {name: value for name, value in vars(options).items() if name not in ("num_tasks", *others)}


def _reads(read: Callable[..., Pool | KeptContexts], *options: str) -> Make:
    """Reads a benchmark's file by a function of the source, the split and these options."""
    return lambda o, tokenizer, count: read(*(getattr(o, name) for name in ("source", "split", *options)))


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
        Jsonl,
        lambda o, tokenizer, count: jsonl(**_but(o, "seed", "workers")),
    ),
    "niah": (
        "needles in a haystack: RULER's eight variants",
        Niah,
        lambda o, tokenizer, count: niah(
            **_but(o, "essays"), prose=read_prose(o.essays)[0], tokenizer=tokenizer, count=count
        ),
    ),
    "ruler": (
        "RULER's thirteen tasks by its names",
        Ruler,
        lambda o, tokenizer, count: ruler(
            **_but(o, "essays", "kind"),
            kind=o.kind[0],
            prose=read_prose(o.essays)[0],
            tokenizer=tokenizer,
            count=count,
        ),
    ),
    "world": (
        "multi-hop questions over an invented world",
        World,
        lambda o, tokenizer, count: world(**_but(o, "documents", "tokens", "workers"), count=count),
    ),
    "aggregate": (
        "counts, extremes, sums over a whole invented world, as CorpusQA's",
        Aggregate,
        lambda o, tokenizer, count: aggregate(**_but(o, "workers"), tokenizer=tokenizer, count=count),
    ),
    "mrcr_world": (
        "which of several equal requests was answered how, as in MRCR",
        Conversations,
        lambda o, tokenizer, count: conversations(
            **_but(o, "essays"), prose=read_prose(o.essays)[0], tokenizer=tokenizer, count=count
        ),
    ),
    "multi": (
        "several questions of task sets asked at once",
        Multi,
        lambda o, tokenizer, count: multi(
            [open_questions(source) for source in o.source],
            **_but(o, "source"),
            tokenizer=tokenizer,
            count=count,
        ),
    ),
    "mix": (
        "tasks of several sets as one, by weights",
        Mix,
        lambda o, tokenizer, count: mix(
            [open_questions(source) for source in o.source],
            **_but(o, "source"),
            tokenizer=tokenizer,
            count=count,
        ),
    ),
}
SOURCES = {**BENCHMARKS, **{name: Source(*row) for name, row in _GENERATORS.items()}}
