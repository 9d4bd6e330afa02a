"""Tasks of task sets: several questions asked at once (`build multi`), or mixed by weights (`build mix`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from memenvs.build.draft import DiskList, Documents, Draft, frame_tokens, item_rng, make_items, renumbered
from memenvs.build.options import Joined
from memenvs.core.data import Whole
from memenvs.core.progress import progress
from memenvs.tasks.metrics import get_metric
from memenvs.tasks.taskset import SEPARATOR, Questions, Task, TaskSet, open_questions
from memenvs.tasks.tokens import TextTokenizer


@dataclass(frozen=True, kw_only=True)
class MultiOptions(Joined):
    """Several questions at once."""

    objectives: Annotated[int, Meta(ge=2, le=16)]
    """questions per task, 2 to 16, drawn from one source without replacement."""
    singles: Whole = 0
    """number of extra tasks with one question each, none twice (MemPO trains on both)."""


def multi(options: MultiOptions, tokenizer: TextTokenizer) -> Draft:
    """Tasks of `objectives` questions each, joined by `"; "`, their answers in the same order (MEM1, MemPO).

    The documents are those of the questions, once each, shuffled; the evidence follows the questions. If a
    source has questions alone (JSON Lines, as of NQ), the tasks have no documents either: they are for
    searching. A question with "; ", or one whose preferred answer has a ";", is never drawn, because these
    separate questions and answers.

    Raises:
        ValueError: not one weight a source; a source is too small, has such tasks already, has documents
            without headers, which have no boundaries once they are shuffled (a haystack), or has another
            metric than the first.
    """
    sources = [open_questions(source) for source in options.source]
    objectives, split, seed = options.objectives, options.split, options.seed
    shares, first = _shares(options.weights, len(sources)), sources[0]
    single = [_askable(source, first, objectives) for source in sources]
    pool, numbered = _together(sources, single)
    rng = item_rng(seed, f"{split}\0singles", 0)
    drawn = np.bincount(rng.choice(len(sources), options.singles, p=shares), minlength=len(sources)).tolist()
    alone = []
    for source, tasks, wanted in zip(sources, numbered, drawn, strict=True):
        if wanted > len(tasks):
            raise ValueError(
                f"{source.path} has {len(tasks)} tasks that can be asked alone, and {wanted} of --singles "
                f"{options.singles} fall to it; ask for fewer, or give other --weights"
            )
        for number in rng.choice(len(tasks), wanted, replace=False).tolist():
            alone.append(_join(f"single-{split}-{tasks[number].id}", [tasks[number]], rng))
    make = partial(_draw_task, numbered, shares, objectives, split, seed)
    joined = make_items(make, options.num_tasks or sum(map(len, sources)))
    joined.extend(alone)
    return Draft(
        Documents.tokenized(pool, tokenizer),
        joined,
        first.layout,
        environment="MemChunkQA-v0" if pool else "MemSearchQA-v0",
        metric=first.metric,
    )


def _askable(source: TaskSet | Questions, first: TaskSet | Questions, objectives: int) -> list[Task]:
    """The tasks of a source that can be joined to those of the first."""
    if not source.layout.header:
        raise ValueError(
            f"the documents of {source.path} are one text in pieces (a haystack), which joining would "
            "mix; join a set of documents with headers"
        )
    _check_metric(source, first, "join sets of one metric")
    tasks = list(source)
    if several := next((task.id for task in tasks if len(task.answers) > 1), None):
        raise ValueError(f"task {several} of {source.path} has several objectives already; join single ones")
    askable = [task for task in tasks if ";" not in task.answers[0][0] and SEPARATOR not in task.question]
    if len(askable) < objectives:
        raise ValueError(
            f"{source.path} has {len(askable)} tasks to join (without ';' in the answer, or '; ' in "
            f"the question), fewer than --objectives {objectives}; ask for fewer, or give a larger source"
        )
    return askable


def _shares(weights: Sequence[float] | None, sources: int) -> tuple[float, ...]:
    """The chance of each source."""
    chances = np.ones(sources) if weights is None else np.array(weights, np.float64)
    if len(chances) != sources:
        raise ValueError(f"--weights must be a number for each of {sources} sources, got {chances.tolist()}")
    return tuple((chances / chances.sum()).tolist())


def _check_metric(source: TaskSet | Questions, first: TaskSet | Questions, fix: str) -> None:
    if source.metric != first.metric:
        raise ValueError(f"{source.path} is scored by {source.metric}, {first.path} by {first.metric}; {fix}")


def _together(
    sources: Sequence[TaskSet | Questions], single: Sequence[Sequence[Task]]
) -> tuple[list[tuple[str, str]], tuple[tuple[Task, ...], ...]]:
    """The documents of all sources, once each, and their tasks by the numbers there.

    There are none where a source has none.
    """
    sets = [source for source in sources if isinstance(source, TaskSet) and source.n_documents]
    if len(sets) < len(sources):
        return [], tuple(tuple(map(_bare, tasks)) for tasks in single)
    index: dict[tuple[str, str], int] = {}
    renumbered_tasks = []
    for source, tasks in zip(sets, single, strict=True):
        numbered = range(source.n_documents)
        pairs = zip(source.titles(numbered), source.texts(numbered), strict=True)
        numbers = np.array([index.setdefault(pair, len(index)) for pair in pairs], np.int64)
        renumbered_tasks.append(tuple(renumbered(task, numbers) for task in tasks))
    return list(index), tuple(renumbered_tasks)


def _bare(task: Task) -> Task:
    """A task without its documents, and without what `meta` says of them."""
    return replace(
        task,
        documents=(),
        evidence=(),
        meta={name: value for name, value in task.meta.items() if name != "spans"},
    )


def _draw_task(
    sources: Sequence[Sequence[Task]],
    shares: Sequence[float],
    objectives: int,
    split: str,
    seed: int,
    item: int,
) -> Task:
    """Task number `item`."""
    rng, chosen = item_rng(seed, split, item), [0] * objectives
    if len(sources) > 1:
        chosen = rng.choice(len(sources), objectives, p=shares).tolist()
    orders = [iter(rng.choice(len(tasks), objectives, replace=False).tolist()) for tasks in sources]
    drawn = [sources[source][next(orders[source])] for source in chosen]
    return _join(f"multi{objectives}-{split}-{item}", drawn, rng)


def _join(name: str, drawn: Sequence[Task], rng: np.random.Generator) -> Task:
    """The questions of some tasks as one task over their documents, shuffled."""
    documents = list(dict.fromkeys(number for task in drawn for number in task.documents))
    return Task(
        name,
        SEPARATOR.join(task.question for task in drawn),
        tuple(task.answers[0] for task in drawn),
        tuple(documents[place] for place in rng.permutation(len(documents))),
        tuple(dict.fromkeys(number for task in drawn for number in task.evidence)),
        {
            "parts": [task.id for task in drawn],
            "spans": [span for task in drawn for span in task.meta.get("spans", [])],
        },
    )


@dataclass(frozen=True, kw_only=True)
class MixOptions(Joined):
    """A mixture."""

    metric: str | None = None
    """metric of the mixture (default: the metric that all its sources share)."""


def mix(options: MixOptions, tokenizer: TextTokenizer) -> Draft:
    """Tasks of several sets as one, each drawn from a source by its weight.

    A source's tasks come in a shuffled order, each once before any comes again (with "-2", "-3", … after its
    id). `meta` keeps what they had and adds the name of their `source` and two measures of difficulty:
    `hops` (evidence documents, where a source does not say) and `tokens` of the text.
    If a source has questions alone, as of NQ, the tasks of all have no documents: they are for searching.

    Raises:
        ValueError: not one weight a source; sources that differ in their metric (and none is given) or in how
            their documents are shown; a haystack beside questions without documents.
    """
    sources = [open_questions(source) for source in options.source]
    metric = options.metric
    shares, first = _shares(options.weights, len(sources)), sources[0]
    get_metric(metric or first.metric)
    read = all(source.n_documents for source in sources)
    for source in sources:
        if metric is None:
            _check_metric(source, first, "mix sets of one metric, or give --metric for all")
        if not read and source.n_documents and not source.layout.header:
            raise ValueError(
                f"{source.path} asks about one text in pieces (a haystack), which cannot be searched; leave "
                "it out, or mix sets that have documents"
            )
        if read and source.layout != first.layout:
            raise ValueError(
                f"the documents of {source.path} and {first.path} are shown differently (a haystack and "
                "documents with headers); mix sets of one kind"
            )
    every = [list(source) for source in sources]
    pool, numbered = _together(sources, every)
    documents = Documents.tokenized(pool, tokenizer)
    longest = max((len(task.documents) for tasks in numbered for task in tasks), default=0)
    frames = np.append(0, frame_tokens(tokenizer, first.layout, max(longest, 1)))
    names = [source.name for source in sources]
    names = [name if names.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(names, 1)]
    tasks = DiskList[Task]()
    for origin, number, cycle in _picks(list(map(len, numbered)), shares, options):
        task = numbered[origin][number]
        measures = {
            "source": names[origin],
            # of the source's own task: one without documents here may have had some there
            "hops": task.meta.get("hops", len(every[origin][number].evidence)),
            "tokens": int(documents.tokens[list(task.documents)].sum() + frames[len(task.documents)]),
        }
        again = f"-{cycle + 1}" if cycle else ""
        tasks.append(replace(task, id=f"{names[origin]}/{task.id}{again}", meta={**task.meta, **measures}))
    environments = {source.environment for source in sources}
    environment = environments.pop() if len(environments) == 1 else "MemChunkQA-v0"
    return Draft(
        documents, tasks, first.layout, environment if read else "MemSearchQA-v0", metric or first.metric
    )


def _picks(
    sizes: Sequence[int], shares: Sequence[float], options: MixOptions
) -> Iterator[tuple[int, int, int]]:
    """Number of the source, number of its task, and how often that has come before, of each task."""
    count, split, seed = options.num_tasks or sum(sizes), options.split, options.seed
    drawn = item_rng(seed, f"{split}\0sources", 0).choice(len(sizes), count, p=shares).tolist()
    used = [0] * len(sizes)
    orders = [np.zeros(0, np.int64)] * len(sizes)
    for source in progress(drawn, count, "tasks"):
        cycle, place = divmod(used[source], sizes[source])
        used[source] += 1
        if place == 0:  # it is used up: an order of its own for every cycle
            orders[source] = item_rng(seed, f"{split}\0order of {source}", cycle).permutation(sizes[source])
        yield source, int(orders[source][place]), cycle
