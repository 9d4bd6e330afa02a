"""One-hop questions about a generated world, whose answer is a name or a year."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from memenvs.build.draft import Documents, Draft
from memenvs.build.multi import MultiOptions, multi
from memenvs.build.worldgen import chronicle, generate
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card, Layout, Task
from memenvs.tasks.tokens import load_tokenizer

ENTITIES = 10_000  # so many that no question comes often: a model has to read and cannot remember
QUESTIONS = 4 * ENTITIES  # asked about them; more than half can be used
PARTS = {"all": (0.0, 1.0), "warm": (0.0, 0.7), "train": (0.7, 0.95), "test": (0.95, 1.0)}  # of the usable
YEARS = range(1000, 2030)


class Named(NamedTuple):
    """Something that has a name, and another name that a text may use, or the same."""

    name: str
    short: str
    kind: str


class Names:
    """People, towns, schools and everything else that `memenvs.build.worldgen.generate` makes.

    `kinds` has "town" for the name of a town and so on, also for short names; "year" for a year; and `also`.
    """

    def __init__(
        self,
        entities: int = ENTITIES,
        split: str = "train",
        seed: int = 0,
        also: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.entities, self.split, self.seed = entities, split, seed
        facts = chronicle.build(entities, split, seed)
        plain = {**{str(year): "year" for year in YEARS}, **also}
        self._named = [Named(name, name, kind) for name, kind in plain.items()]
        self._named += [Named(one.name, one.short, one.kind) for one in facts.entities]
        self.kinds = {**plain, **{name: one.kind for one in self._named for name in (one.name, one.short)}}

    @cached_property
    def of_kind(self) -> dict[str, list[str]]:
        """The names of each kind."""
        names = defaultdict[str, list[str]](list)
        for name, kind in self.kinds.items():
            names[kind].append(name)
        return dict(names)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the names in a text, the longest first."""
        return re.compile("|".join(re.escape(name) for name in sorted(self.kinds, key=len, reverse=True)))

    def found_in(self, text: str) -> list[str]:
        """The names in a text, each once, in order."""
        return list(dict.fromkeys(self.pattern.findall(text)))

    def renamed(self, texts: Sequence[str], rng: np.random.Generator, times: int) -> Iterator[list[str]]:
        """`times` versions of the texts, each with new names of the same kinds, the same in every text.

        Where a text uses a short name, the version uses the short form of the new name.
        """
        between = [self.pattern.split(text) for text in texts]
        within = [self.pattern.findall(text) for text in texts]
        found = list(dict.fromkeys(name for names in within for name in names))
        for _ in range(times):
            new = self._others(found, rng)
            yield [
                "".join(
                    part
                    for pair in zip(parts, [*(new[name] for name in names), ""], strict=True)
                    for part in pair
                )
                for parts, names in zip(between, within, strict=True)
            ]

    def _others(self, names: Iterable[str], rng: np.random.Generator) -> dict[str, str]:
        """A name of the same kind for each name; two names of one thing get the names of one other thing."""
        others, taken, made = dict[Named, Named](), set[Named](), dict[str, str]()
        for name in names:
            named = self._of_name[name]
            if named not in others:
                of_kind = self._named_of_kind[named.kind]
                other = of_kind[rng.integers(len(of_kind))]
                while other in taken:
                    other = of_kind[rng.integers(len(of_kind))]
                others[named] = other
                taken.add(other)
            made[name] = others[named].name if name == named.name else others[named].short
        return made

    @cached_property
    def _of_name(self) -> dict[str, Named]:
        short = {one.short: one for one in self._named}
        return {**short, **{one.name: one for one in self._named}}

    @cached_property
    def _named_of_kind(self) -> dict[str, list[Named]]:
        things = defaultdict[str, list[Named]](list)
        for one in self._named:
            things[one.kind].append(one)
        return dict(things)


def save_world_tasks(folder: Path, names: Names) -> None:
    """Write the task sets "all", for the search, and its parts "warm", "train" and "test".

    A question is kept if it names its subject, so that a search for that name finds the one document that
    answers it.
    """
    questions = QUESTIONS * names.entities // ENTITIES
    made = generate(names.entities, questions, split=names.split, seed=names.seed, hops=(1,))
    tasks = list[Task]()
    for question in made.questions:
        (number,) = set(question.evidence)
        title, answer = made.documents[number][0], question.answers[0]
        if title in question.question and answer != title and answer in names.kinds:
            id = f"world-{len(tasks)}"
            tasks.append(Task(id, question.question, (tuple(question.answers),), (number,), (number,)))
    tokenizer = load_tokenizer("world")
    documents = Documents.tokenized(made.documents, tokenizer)
    for name, (start, end) in PARTS.items():
        part = tasks[int(start * len(tasks)) : int(end * len(tasks))]
        card = Card("world", arguments={"entities": names.entities, "seed": names.seed, "part": name})
        write_task_set(folder / name, Draft(documents, part, Layout()), card, tokenizer)


def save_joined(folder: Path, part: str, objectives: int, count: int) -> Path:
    """Write `PART-N`, tasks that ask N questions of a part about different documents; return its path."""
    tokenizer, out = load_tokenizer("world"), folder / f"{part}-{objectives}"
    source = [str(folder / part)]
    draft = multi(
        MultiOptions(source=source, objectives=objectives, num_tasks=2 * count, split=part), tokenizer
    )
    apart = [task for task in draft.tasks if len(task.evidence) == objectives][:count]
    card = Card("multi", arguments={"part": part, "objectives": objectives})
    write_task_set(out, replace(draft, tasks=apart), card, tokenizer)
    return out
