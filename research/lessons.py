"""Lessons for a reader: the turns of a teacher on texts that several questions are asked about.

`sft --teacher FILE.jsonl --no-shuffle` trains on them: lessons of one text follow each other, and their
shared part is read once per batch. A note is a fact in a line, "Kemunitz, mayor: Postona Golmwyn". A copied
sentence starts before it says what it is about, and a small model that has found the document then takes any
of its sentences. What the question asks for, written first, leads it to the value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.build.worldgen import generate
from memenvs.build.worldgen.lexicon import RELATIONS
from memenvs.build.worldgen.names import Chain, FactComparison, FactTable
from memenvs.core.data import NonNegative, checked
from memenvs.core.env import Agent
from memenvs.core.episode import Episode, Turn
from memenvs.core.text import replace_templates
from memenvs.envs.chunk_qa import TEMPLATES, WORDINGS, draw_documents
from memenvs.rollout.scripted import careful_caller
from memenvs.tasks.context import open_reader
from memenvs.tasks.metrics import answer_form, gold_answer, wrap_answer
from memenvs.tasks.taskset import Task, TaskSet, open_tasks
from memenvs.tasks.tokens import load_tokenizer
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores
from research.demonstrations import demonstration

Fact = tuple[int, str]  # an entity of the world, and a relation that its document states


class Lessons:
    """Samples texts, questions about them and the notes before them; a teacher continues the notes.

    A text is a chunk of a task's documents. It is read for this task, for other tasks whose evidence it shows
    (short ones first) and for a random one. The notes before it hold what is needed from some of the
    documents that are elsewhere. Then the first questions are answered from complete notes.

    Args:
        tasks: of a world that `memenvs build world` built with all its hops.
        documents: number read for a task, including its evidence.
        chunk_sizes: tokens of a chunk, one of these.
        max_memory: tokens of notes; lessons with longer ones are left out.
        slip: probability that the teacher misses a needed fact.
        distractor: probability that it notes an unneeded fact of a document shown.
        seed: of all random choices.
    """

    QUESTIONS, ANSWERS = 8, 2

    def __init__(
        self,
        tasks: TaskSet,
        documents: int = 6,
        chunk_sizes: Sequence[int] = (300, 300, 400),
        max_memory: int = 128,
        slip: float = 0.05,
        distractor: float = 0.05,
        seed: int = 0,
    ):
        self._tasks, self._documents, self._sizes = tasks, documents, chunk_sizes
        self._slip, self._distractor = slip, distractor
        self._tokenizer, self._max_memory = load_tokenizer("world"), max_memory
        self._reader = open_reader(tasks, self._tokenizer)
        self._templates, _ = replace_templates(TEMPLATES, WORDINGS["short"])
        self._rng = np.random.default_rng(seed)
        self._facts, self._needed = facts_of(tasks)
        numbers = {entity.name: i for i, entity in enumerate(self._facts.entities)}
        self._entities = [numbers[title] for title in tasks.titles(range(tasks.n_documents))]
        self._about = defaultdict[int, list[int]](list)
        for number, needed in enumerate(self._needed):
            for entity in dict.fromkeys(entity for entity, _ in needed):
                self._about[entity].append(number)

    def draw(self, texts: int) -> Iterator[Episode]:
        """The lessons of this many texts, one turn each."""
        for _ in range(texts):
            yield from self._of_a_text()

    def _of_a_text(self) -> Iterator[Episode]:
        rng, own = self._rng, int(self._rng.integers(len(self._tasks)))
        drawn = draw_documents(self._tasks[own], self._documents, rng)
        documents = [drawn[i] for i in rng.permutation(len(drawn))]
        context = self._reader.context(documents)
        chunks = context.chunks(int(rng.choice(self._sizes)), "document")
        chunk = chunks[rng.integers(len(chunks))]
        text = context.text[chunk.start : chunk.end]
        places = [place for place in range(len(documents)) if context.inside(chunk, place)]
        shown = [self._entities[documents[place]] for place in places]
        near = list(dict.fromkeys(number for one in shown for number in self._about[one] if number != own))
        # Short questions about one document differ only in what they ask about it, so they come first.
        ease = rng.random(len(near)) ** [len(self._needed[number]) ** 2 for number in near]
        chosen = [near[i] for i in np.argsort(-ease)[: self.QUESTIONS - 2]]
        asked = [int(number) for number in (own, *chosen, rng.integers(len(self._tasks)))]
        for number in asked:
            before = self._before(number, shown)
            notes = list(dict.fromkeys([*before, *self._taken(number, shown)]))
            if self._fits(notes):
                prompt = self._fill("read", number, chunk=text, memory="\n".join(before))
                yield demonstration([(prompt, "\n".join(notes))], "rewrite", True)
        for number in asked[: self.ANSWERS]:
            task, notes = self._tasks[number], write_notes(self._facts, self._needed[number])
            if self._fits(notes):
                notes = [notes[i] for i in rng.permutation(len(notes))]
                reply = wrap_answer(gold_answer(task.answers, self._tasks.metric), "boxed")
                prompt = self._fill("answer", number, memory="\n".join(notes))
                yield demonstration([(prompt, reply)], "rewrite", True)

    def _before(self, number: int, shown: Sequence[int]) -> list[str]:
        """Notes on some of a question's documents that are elsewhere, in random order."""
        elsewhere = list(dict.fromkeys(one for one, _ in self._needed[number] if one not in shown))
        read = [one for one in self._rng.permutation(elsewhere).tolist() if self._rng.random() < 0.5]
        facts = [fact for one in read for fact in self._needed[number] if fact[0] == one]
        return write_notes(self._facts, facts)

    def _taken(self, number: int, shown: Sequence[int]) -> list[str]:
        """What the teacher notes from the documents shown, in their order."""
        rng, needed = self._rng, self._needed[number]
        taken = [fact for one in shown for fact in needed if fact[0] == one and rng.random() >= self._slip]
        if rng.random() < self._distractor:
            one = shown[rng.integers(len(shown))]
            others = [name for name in self._facts.entities[one].values if (one, name) not in needed]
            taken += [(one, str(rng.choice(others)))] if others else []
        return write_notes(self._facts, taken)

    def _fits(self, notes: Sequence[str]) -> bool:
        return self._tokenizer.counts(["\n".join(notes)])[0] <= self._max_memory

    def _fill(self, name: str, number: int, **values: str) -> str:
        task: Task = self._tasks[number]
        given = {"turn": 1, "turns": 1, "max_memory": self._max_memory}
        form = answer_form("boxed", len(task.answers))
        return self._templates[name].fill(question=task.question, format=form, **given, **values)


def fact_caller(env: gym.Env[Any, Any]) -> Agent:
    """A teacher of the one tool call who reasons in notes: `sft --teacher research.lessons:fact_caller`.

    It calls for the question. Before its answer it writes the facts that the answer follows from; an answer
    that the result does not hold is "unknown", without facts.

    Args:
        env: `MemToolQA-v0` on a world that `memenvs build world` built.
    """
    inner: Any = env.unwrapped
    careful, (facts, needed) = careful_caller(inner), facts_of(inner.questions)

    def reply(observation: str, info: dict[str, Any]) -> str:
        said = careful(observation, info)
        if not inner.state.history:
            return said
        _, closed, answer = said.partition("</reasoning>")
        notes = write_notes(facts, needed[inner.state.task]) if "unknown" not in answer else []
        return "<reasoning>" + "\n".join(notes) + closed + answer

    return reply


@checked
@dataclass
class FactNotes(RewardMethod):
    """Pays a memory for each needed fact that it adds, and charges for other lines.

        r_k = w(m_k) - w(m_{k-1}),   w(m) = needed facts that m holds - cost * lines that hold none of them

    A verifiable turn reward in the sense of MT-GRPO: `grpo --reward turn --reward-args alpha=0` with
    `--methods '[["research.lessons:FactNotes", {"tasks": "WORLD"}]]'`. A line holds a fact if it names its
    entity and its value. The last turn, which answers, is paid by the outcome alone.

    Args:
        tasks: the environment's task set, built by `memenvs build world`.
        cost: of a line that holds no needed fact.
    """

    tasks: str
    cost: NonNegative = 0.2

    name = "fact_notes"

    def __post_init__(self) -> None:
        self._needed = values_of(open_tasks(self.tasks))

    @property
    def needs(self) -> tuple[str, ...]:
        """The memory, and the question that identifies its facts."""
        return ("privileged/memory", "privileged/question")

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """r_k."""
        if turn.over:
            return 0.0
        after, before = (self._worth(**info["privileged"]) for info in (turn.info, turn.before))
        return after - before

    def _worth(self, memory: str, question: str, **_: Any) -> float:
        """w(m)."""
        lines = sum(bool(line.strip()) for line in memory.splitlines())
        held = sum(holds(memory, fact) for fact in self._needed[question])
        return held - self.cost * max(0, lines - held)


def values_of(tasks: TaskSet) -> dict[str, list[tuple[str, str]]]:
    """What the answer of each question of a built world needs: entities, and what is said of each."""
    facts, needed = facts_of(tasks)
    return {
        task.question: [(facts.entities[one].name, _value(facts, one, relation)) for one, relation in chosen]
        for task, chosen in zip(tasks, needed, strict=True)
    }


def holds(memory: str, fact: tuple[str, str]) -> bool:
    """Whether a line of a memory names an entity and its value."""
    return any(all(part in line for part in fact) for line in memory.splitlines())


def write_notes(facts: FactTable, chosen: Iterable[Fact]) -> list[str]:
    """Facts, one a line: "Kemunitz, mayor: Postona Golmwyn"."""
    return [
        f"{facts.entities[one].name}, {relation}: {_value(facts, one, relation)}" for one, relation in chosen
    ]


def _value(facts: FactTable, entity: int, relation: str) -> str:
    return facts.answer(relation, facts.entities[entity].values[relation])


def facts_of(tasks: TaskSet) -> tuple[FactTable, list[list[Fact]]]:
    """The facts of a built world, and for each task those that its answer needs, in the order of its hops."""
    given = tasks.card.arguments
    if "hops" not in given:
        raise ValueError(f"{tasks.name} was not built by `memenvs build world`; build one")
    drawn = {name: given[name] for name in ("split", "seed", "hops")}
    world = generate(given["entities"], len(tasks), **drawn)
    needed = []
    for task, (form, question) in zip(tasks, world.asked, strict=True):
        if task.question != question.question:
            raise ValueError(f"{tasks.name} does not match its card; build it again")
        needed.append(_needed(form, world.facts))
    return world.facts, needed


def _needed(form: Chain | FactComparison, facts: FactTable) -> list[Fact]:
    """The facts that a question's answer needs."""
    if isinstance(form, FactComparison):
        winner = form.winner(facts) if form.ask else None
        sides = [(form.left, form.relation), (form.right, form.relation)]
        return sides if winner is None else [*sides, (winner, form.ask)]
    steps = [int(next(iter(values))) for values, _ in zip(form.trail(facts), form.path, strict=False)]
    conditions = [(steps[0], name) for name, _ in form.where if name in RELATIONS]
    return list(dict.fromkeys([*conditions, *zip(steps, form.path, strict=True)]))
