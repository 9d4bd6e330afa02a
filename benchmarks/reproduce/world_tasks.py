"""One-hop questions over a generated world, whose answer is a name or a year."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from memenvs.build.draft import Documents, Draft
from memenvs.build.multi import multi
from memenvs.build.worldgen import chronicle, generate
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card, Layout, Task, open_tasks
from memenvs.tasks.tokens import load_tokenizer

ENTITIES = 10_000  # so many that no question is met often: a model has to read, and cannot remember
QUESTIONS = 4 * ENTITIES  # asked of them; more than half can be used
PARTS = {
    "all": (0.0, 1.0),
    "warm": (0.0, 0.7),
    "train": (0.7, 0.95),
    "test": (0.95, 1.0),
}  # of the usable ones
YEARS = range(1000, 2030)


class Names:
    """People, towns, schools and what else the bundled generator makes.

    Attributes:
        entities, split, seed: as `memenvs.build.worldgen.generate` takes them.
        kinds: "town" for the name of a town and so on, also of short names; "year" for a year.

    Args:
        entities: see above.
        split: of the names.
        seed: of the facts.
        also: kinds of other names.
    """

    def __init__(
        self,
        entities: int = ENTITIES,
        split: str = "train",
        seed: int = 0,
        also: Mapping[str, str] | None = None,
    ) -> None:
        self.entities, self.split, self.seed = entities, split, seed
        facts = chronicle.build(entities, split, seed)
        years = {str(year): "year" for year in YEARS}
        own = {name: one.kind for one in facts.entities for name in (one.name, one.short)}
        self.kinds = {**years, **(also or {}), **own}

    @cached_property
    def of_kind(self) -> dict[str, list[str]]:
        """The names of each kind."""
        found: dict[str, list[str]] = {}
        for name, kind in self.kinds.items():
            found.setdefault(kind, []).append(name)
        return found

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds the names in a text, the longest first."""
        return re.compile("|".join(re.escape(name) for name in sorted(self.kinds, key=len, reverse=True)))

    def found_in(self, text: str) -> list[str]:
        """The names that a text holds, each once, in order."""
        return list(dict.fromkeys(self.pattern.findall(text)))


def save_world_tasks(folder: Path, names: Names) -> None:
    """Write the task sets "all", to be searched, and its parts "warm", "train" and "test".

    A question is kept if it names what it asks about, so that a search for that name finds the one document
    that answers it.
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
    """Write `PART-N`: tasks that ask N questions of a part at once, each about another document; its path."""
    tokenizer, out = load_tokenizer("world"), folder / f"{part}-{objectives}"
    sources = [open_tasks(folder / part)]
    draft = multi(sources, objectives=objectives, count=2 * count, tokenizer=tokenizer, split=part, seed=0)
    apart = [task for task in draft.tasks if len(task.evidence) == objectives][:count]
    card = Card("multi", arguments={"part": part, "objectives": objectives})
    write_task_set(out, replace(draft, tasks=apart), card, tokenizer)
    return out
