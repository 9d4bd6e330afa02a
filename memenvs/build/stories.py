"""Conversations as in MRCR and short stories as in bAbI, in a text of any length.

MRCR (OpenAI, after Vodrahalli et al. 2024) asks for the reply to one of several equal requests; bAbI (Weston
et al. 2015), hidden in a book as by BABILong (Kuratov et al. 2024), where people and things are. The rules
are theirs, all texts are ours or the haystack's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from memenvs.build.draft import TEXTS, Documents, Draft, item_rng, read_lists
from memenvs.build.haystack import (
    JOINED,
    Haystack,
    interleave,
    opening_tokens,
    prose_sentences,
    sizes_between,
    too_small,
)
from memenvs.build.niah import NOUNS
from memenvs.core.data import Count, Whole, checked
from memenvs.core.progress import progress
from memenvs.tasks.metrics import MRCR_PREFIX
from memenvs.tasks.taskset import Task
from memenvs.tasks.tokens import TextTokenizer

# Conversations.

_LISTS = read_lists(TEXTS, "stories", spaced=True)
FORMS = [form.replace("_", " ") for form in _LISTS["forms"]]
TOPICS = 24  # of the requests of a split
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_REPLY = (3, 6)  # sentences of a reply
_LETTERS = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"))


@checked
def conversations(
    *,
    tokens: Count,
    prose: Sequence[str],
    tokenizer: TextTokenizer,
    needles: Annotated[int, Meta(ge=2, le=8)] = 4,
    count: Count = 100,
    split: str = "train",
    seed: Whole = 0,
) -> Draft:
    """Tasks that ask for the reply to one of `needles` equal requests, after a random string.

    A message is a document, `User: …` or `Assistant: …`. A reply names what was asked for and continues with
    sentences of the prose, so the reply that is asked for looks like the others. An answer without the random
    string scores 0 (`mrcr_ratio`). Evidence are the request and its reply; `meta` has `needles`, `asked`
    (from 1), `request`, and `depths` of all requests that are equal to it.

    Args:
        tokens: maximum tokens of a task's text, tokenised whole; missed by less than a request with its
            reply.
        prose: what replies consist of.
        needles: number of identical requests, 2 to 8.

    Raises:
        ValueError: an argument out of range, no prose, or a budget too small for the needles.
    """
    lines = [text.strip() for text in prose_sentences(prose) if not set("\\{}") & set(text)]
    rng = item_rng(seed, f"{split}\0conversation", 0)
    topics = rng.choice(NOUNS, TOPICS, replace=False).tolist()
    requests = [(form, topic) for form in FORMS for topic in topics]
    a_round = tokenizer.count(" ".join(_round(requests[0], lines[: max(_REPLY)])))
    of_pool = rng.integers(len(requests), size=2 * tokens // a_round + 64)
    pool = [_round(requests[number], _draw_reply(lines, rng)) for number in of_pool.tolist()]
    asked, own = [], []
    rngs = [item_rng(seed, f"{split}/conversation", item) for item in range(count)]
    for rng in rngs:
        number = int(rng.integers(len(requests)))
        asked.append(number)
        own += [_round(requests[number], _draw_reply(lines, rng)) for _ in range(needles)]
    documents = Documents.tokenized([("", text) for both in [*pool, *own] for text in both], tokenizer)
    each = sizes_between(documents, documents, tokenizer)
    sizes, opening = each.reshape(-1, 2).sum(axis=1), opening_tokens(documents, each, tokenizer)
    chars = documents.chars.reshape(-1, 2).sum(axis=1)
    tasks = []
    for item, rng in enumerate(progress(rngs, count, "conversations")):
        mine = len(pool) + item * needles + np.arange(needles)
        room = tokens - opening - int(sizes[mine].sum())
        if room < 0:
            raise too_small(f"{needles} needles", tokens, f"they alone take {int(sizes[mine].sum())}")
        others = rng.permutation(np.flatnonzero(of_pool != asked[item]))
        others = others[: np.searchsorted(np.cumsum(sizes[others]), room, side="right")]
        places = np.sort(rng.integers(0, len(others) + 1, needles))
        rounds, depths = interleave(others, mine, places, chars)
        form, topic = requests[asked[item]]
        wanted, prefix = int(rng.integers(needles)), "".join(rng.choice(_LETTERS, MRCR_PREFIX).tolist())
        reply = own[item * needles + wanted][1].removeprefix(_ASSISTANT).rstrip("\n")
        tasks.append(
            Task(
                f"mrcr{needles}-{split}-{item}",
                f"Write {prefix} and right behind it, word for word, the {ORDINALS[wanted]} {form} about the "
                f"{topic} that the assistant wrote, and nothing else.",
                ((prefix + reply,),),
                documents.numbered((2 * rounds[:, None] + [0, 1]).ravel()),
                documents.numbered(2 * mine[wanted] + np.arange(2)),
                {
                    "needles": needles,
                    "asked": wanted + 1,
                    "request": [form, topic],
                    "depths": depths.tolist(),
                },
            )
        )
    return Draft(documents, tasks, JOINED, metric="mrcr_ratio")


_ASSISTANT = "Assistant: "


def _round(request: tuple[str, str], reply: Sequence[str]) -> tuple[str, str]:
    """A request and a reply, each a line with its newline."""
    form, topic = request
    return (
        f"User: Write a {form} about the {topic}.\n",
        f"{_ASSISTANT}Here is a {form} about the {topic}. {' '.join(reply)}\n",
    )


def _draw_reply(lines: Sequence[str], rng: np.random.Generator) -> list[str]:
    return [lines[i] for i in rng.integers(len(lines), size=int(rng.integers(_REPLY[0], _REPLY[1] + 1)))]


# Stories.

PEOPLE, PLACES, THINGS = (_LISTS[name] for name in ("people", "places", "things"))
Kind = Literal["qa1", "qa2", "qa3", "qa6", "qa7"]  # bAbI's numbers
KINDS: tuple[Kind, ...] = get_args(Kind)
_WORDS = ("none", "one", "two", "three", "four")
_CAST = (4, 6, 4)  # people, places and things of a story


@dataclass
class Story:
    """What happens, and where everybody and everything is.

    Attributes:
        events: the sentences so far.
        at: of each person the place, and the event that states it.
        carrier: of each thing that is carried who carries it, and the event of taking it.
        visited: of each thing the places it has been at, each with the events that state it.
        handled: of each person the events of taking and putting down.
    """

    events: list[str] = field(default_factory=list)
    at: dict[str, tuple[str, int]] = field(default_factory=dict)
    carrier: dict[str, tuple[str, int]] = field(default_factory=dict)
    visited: dict[str, list[tuple[str, list[int]]]] = field(default_factory=dict)
    handled: dict[str, list[int]] = field(default_factory=dict)

    def move(self, person: str, place: str) -> None:
        """A person goes to another place, with all that they carry."""
        here = len(self.events)
        self.events.append(f"{person} went to the {place}.")
        self.at[person] = place, here
        for thing, (who, taken) in self.carrier.items():
            if who == person:
                self.visited[thing].append((place, [taken, here]))

    def take(self, person: str, thing: str) -> None:
        """A person takes a thing where they are."""
        here, (place, came) = len(self.events), self.at[person]
        self.events.append(f"{person} picked up the {thing}.")
        self.carrier[thing] = person, here
        places = self.visited.setdefault(thing, [])
        if not places or places[-1][0] != place:
            places.append((place, [came, here]))
        self.handled.setdefault(person, []).append(here)

    def leave(self, person: str, thing: str) -> None:
        """A person puts down what they carry."""
        here, (place, came) = len(self.events), self.at[person]
        self.events.append(f"{person} put down the {thing}.")
        del self.carrier[thing]
        self.visited[thing][-1] = place, [came, here]
        self.handled.setdefault(person, []).append(here)

    def carried_by(self, person: str) -> list[str]:
        """What a person carries."""
        return [thing for thing, (who, _) in self.carrier.items() if who == person]

    def add_event(
        self, people: list[str], places: list[str], things: list[str], rng: np.random.Generator
    ) -> None:
        """One more event."""
        person = people[int(rng.integers(len(people)))]
        if person in self.at:
            free = [thing for thing in things if self._within_reach(person, thing)]
            carried, chance = self.carried_by(person), rng.random()
            if free and chance < 0.35:
                return self.take(person, free[int(rng.integers(len(free)))])
            if carried and 0.35 <= chance < 0.5:
                return self.leave(person, carried[int(rng.integers(len(carried)))])
        now = self.at.get(person, ("", 0))[0]
        others = [place for place in places if place != now]
        return self.move(person, others[int(rng.integers(len(others)))])

    def _within_reach(self, person: str, thing: str) -> bool:
        """Whether nobody carries a thing, and it lies where the person is or has not been seen yet."""
        if thing in self.carrier:
            return False
        return thing not in self.visited or self.visited[thing][-1][0] == self.at[person][0]

    def ask(
        self, kind: str, places: Sequence[str], rng: np.random.Generator
    ) -> tuple[str, tuple[str, ...], list[int]] | None:
        """A question of a kind, its answers and the events needed; None where there is none."""
        if kind in ("qa2", "qa3"):
            if not self.visited:
                return None
            thing = [*self.visited][int(rng.integers(len(self.visited)))]
            *before, (place, needed) = self.visited[thing]
            if kind == "qa2":
                return f"Where is the {thing} at the end?", (place,), sorted(set(needed))
            if not before or place in [one for one, _ in before]:
                return None
            last, stated = before[-1]
            needed = sorted({*stated, *needed})
            return f"Where was the {thing} before it came to the {place}?", (last,), needed
        if kind == "qa7":
            if not self.handled:
                return None
            person = [*self.handled][int(rng.integers(len(self.handled)))]
            number = len(self.carried_by(person))
            answers = (str(number), _WORDS[number])
            return f"How many things does {person} carry at the end?", answers, self.handled[person]
        person = [*self.at][int(rng.integers(len(self.at)))]
        place, came = self.at[person]
        if kind == "qa1":
            return f"Where is {person} at the end?", (place,), [came]
        right, others = bool(rng.integers(2)), [one for one in places if one != place]
        named = place if right else others[int(rng.integers(len(others)))]
        return f"Is {person} in the {named} at the end?", ("yes" if right else "no",), [came]


@checked
def stories(
    *,
    tokens: Count,
    prose: Sequence[str],
    tokenizer: TextTokenizer,
    kind: Annotated[Sequence[Kind], Meta(min_length=1)] = KINDS,
    events: Annotated[int, Meta(ge=4)] = 16,
    count: Count = 100,
    split: str = "train",
    seed: Whole = 0,
) -> Draft:
    """Tasks about a story whose events are, in their order, among the sentences of a long prose.

    An event is a document; evidence are those that the answer needs. `meta` has `type` (the `kind`),
    `hops` (events needed) and `depths`, where they begin.

    Args:
        tokens: maximum tokens of a task's text, tokenised whole; missed by less than a sentence.
        prose: hides the events; repeated where it ends.
        kind: what is asked, in turn: where a person is (qa1), where a thing is (qa2) or was before (qa3),
            whether a person is somewhere (qa6), how many things a person carries (qa7).
        events: number of events in a story, at least 4.

    Raises:
        ValueError: an argument out of range, no prose, or a small budget.
    """
    hay = prose_sentences(prose)
    known = {word for text in hay for word in re.findall(r"\w+", text)}
    people = [name for name in PEOPLE if name not in known]
    rngs = [item_rng(seed, f"{split}/story", item) for item in range(count)]
    made = [_story(kind[item % len(kind)], events, people, rng) for item, rng in enumerate(rngs)]
    pieces = [f" {event}" for story, *_ in made for event in story.events]
    haystack = Haystack(hay, pieces, count, tokens, tokenizer)
    haystack.check_room(f"{events} events")
    tasks = []
    for item, rng in enumerate(progress(rngs, count, "stories")):
        _, question, answers, needed = made[item]
        order = haystack.take(item, int(rng.integers(2**63)))
        places = np.sort(rng.integers(0, len(order) + 1, events))
        documents, own, depths = haystack.hide(item, order, places)
        asked = kind[item % len(kind)]
        meta = {"type": asked, "hops": len(needed), "depths": depths[needed].tolist()}
        evidence = tuple(own[i] for i in needed)
        tasks.append(Task(f"{asked}-{split}-{item}", question, (answers,), documents, evidence, meta))
    return Draft(haystack.documents, tasks, JOINED)


def _story(
    kind: str, events: int, people: Sequence[str], rng: np.random.Generator
) -> tuple[Story, str, tuple[str, ...], list[int]]:
    """A story of `events` events, and a question about it."""
    while True:
        among = zip((people, PLACES, THINGS), _CAST, strict=True)
        who, where, what = (rng.choice(names, number, replace=False).tolist() for names, number in among)
        story = Story()
        while len(story.events) < events:
            story.add_event(who, where, what, rng)
        if asked := story.ask(kind, where, rng):
            return (story, *asked)
