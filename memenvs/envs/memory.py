"""Memory modes: how a reply changes the memory, and how the prompts show it."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from memenvs.core.text import first_pair
from memenvs.retrieval.lexical import words
from memenvs.tasks.tokens import TextTokenizer

MAX_LINES = 32
"""Operations, or notes, that are taken from one reply."""

NOTES_SHOWN = 5
"""Notes that a query brings into the prompt, beside those that are linked with them."""

LINKS = 3
"""Earlier notes that a new one is linked with, at most."""

RECALLED = "\n<recalled>\n{}\n</recalled>\n"
"""How a prompt shows what was called back."""

NO_THOUGHT = "Your last reply opened with no closed <think>…</think>, so the memory is as it was."

NO_MEMORY = "Your last reply opened with no <mem>…</mem>, so the memory is as it was."

THOUGHT_KEPT = "memory_mode='mem1' takes the thought for the memory; use thoughts='strip'"

MAX_NOTICE = 400
"""Characters of the notice that says what of a reply was not carried out, at most."""

_OPERATION = re.compile(r"\s*(?:(ADD)\s*:\s*(\S.*)|(UPDATE)\s+(\d+)\s*:\s*(\S.*)|(DELETE)\s+(\d+)|(NOOP))\s*")
_K1, _B = 1.5, 0.75


@dataclass
class MemoryEntry:
    """One entry of a memory of entries or notes.

    Attributes:
        number: from 1, in the order of writing; never used again.
        text: a line.
        keywords: behind the text of a note.
        links: numbers of other notes.
    """

    number: int
    text: str
    keywords: str = ""
    links: list[int] = field(default_factory=list)


@dataclass
class Memory:
    """What is remembered, plain data of a state. A mode uses what it needs.

    Attributes:
        text: the memory, where it is one text.
        earlier: texts that were the memory before this one, oldest first, none twice.
        recalled: the earlier text that the last reply called back.
        entries: where the memory is made of entries or notes.
        count: entries written so far, those included that are gone.
        notice: what of the last reply was not carried out, and why.
        replies: every reply, where they stay in the prompt.
    """

    text: str = ""
    earlier: list[str] = field(default_factory=list)
    recalled: str = ""
    entries: list[MemoryEntry] = field(default_factory=list)
    count: int = 0
    notice: str = ""
    replies: list[str] = field(default_factory=list)


class Written(NamedTuple):
    """What a text did to a memory.

    Attributes:
        span: [start, end) in characters of the text, what of it was kept or carried out; None if nothing.
        cut: whether something did not fit the limit.
    """

    span: tuple[int, int] | None
    cut: bool = False

    def shift(self, by: int) -> Written:
        """The same of a text that begins `by` characters earlier."""
        return self._replace(span=self.span and (self.span[0] + by, self.span[1] + by))


class Shown(NamedTuple):
    """What a prompt shows of a memory: the memory, what was called back, and the notice."""

    memory: str = ""
    recalled: str = ""
    notice: str = ""


class MemoryMode:
    """How a memory is written and shown. This one is the plain one: the text becomes the memory.

    A text that breaks the rules of a mode leaves the memory as it was, and the notice says why; no text
    raises. An environment decides which part of a reply is the text: `in_thought` says that it is the thought
    that opens it.

    Attributes:
        rule: what a prompt asks for; `{limit}` is the limit in tokens.
        in_thought: whether the memory is the thought that opens a reply.
        recalls: whether a prompt has a place for what was called back.
        appends: whether everything stays in the prompt.

    Args:
        tokenizer: counts the tokens.
        limit: tokens of memory that are kept; of a longer text the beginning.
    """

    rule: ClassVar[str] = (
        "Write the memory anew: keep what may still help and add what is new. {text} becomes the memory, up "
        "to {limit} tokens."
    )
    in_thought: ClassVar[bool] = False
    recalls: ClassVar[bool] = False
    appends: ClassVar[bool] = False

    def __init__(self, tokenizer: TextTokenizer, limit: int) -> None:
        self.tokenizer, self.limit = tokenizer, limit

    def read(self, memory: Memory, reply: str, start: int) -> Written:
        """Change the memory by a reply; spans are characters of the reply.

        Args:
            memory: the memory.
            reply: the reply.
            start: where it resumes behind the thought that opens it (`memenvs.core.text.thought_end`).
        """
        return self.write(memory, reply[start:]).shift(start)

    def write_block(self, memory: Memory, text: str) -> Written:
        """Change the memory by a text with space around it."""
        return self.write(memory, text.strip()).shift(len(text) - len(text.lstrip()))

    def missing(self, memory: Memory) -> None:
        """Take note of a reply that has no part for the memory."""
        memory.notice = NO_MEMORY

    def answered(self, memory: Memory, reply: str) -> None:
        """Take note of a reply that is an answer, not a memory."""
        memory.notice = ""

    def write(self, memory: Memory, text: str) -> Written:
        """Change the memory by a text."""
        memory.text, cut = self.tokenizer.head(text, self.limit)
        return Written((0, len(memory.text)) if memory.text else None, cut)

    def show(self, memory: Memory, query: str) -> str:
        """The memory as a prompt shows it, at most `limit` tokens.

        Args:
            memory: the memory.
            query: what the prompt is about.
        """
        return memory.text

    def notes(self, memory: Memory) -> list[str]:
        """The lines that the memory holds."""
        return memory.text.splitlines()

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        """A text after which the memory holds these lines, as far as they fit."""
        return "\n".join(notes)


class CallbackMemory(MemoryMode):
    """ReMemR1: the text becomes the memory, and may call back an earlier one.

    `<recall>query</recall>` is no part of the memory: of the memories before this one, that which shares the
    most words with the first query (BM25) is shown beside the memory in the next prompt. The paper ranks by
    TF-IDF. A text that is nothing but a callback leaves the memory as it was.
    """

    rule = (
        f"{MemoryMode.rule} To see an earlier memory again, add <recall>query</recall>: the one that fits "
        "the query best will be shown beside the memory, and the request is not kept."
    )
    recalls = True

    def write(self, memory: Memory, text: str) -> Written:
        """Change the memory by a text, and call back what it asks for."""
        pieces, queries, at = list[tuple[int, int]](), list[str](), 0
        while pair := first_pair(text, "recall", at):
            pieces.append((at, pair.start))
            queries.append(pair.text.strip())
            at = pair.end
        pieces.append((at, len(text)))
        history = [*memory.earlier, memory.text]
        query = next(filter(None, queries), "")
        best = rank(query, history)[:1] if query else []
        memory.recalled = history[best[0]] if best else ""
        memory.notice = "" if best or not query else f"No earlier memory has a word of {query!r:.100}."
        kept = "".join(text[start:end] for start, end in pieces)
        if queries and not kept.strip():
            return Written(None)
        if memory.text and memory.text not in memory.earlier:
            memory.earlier.append(memory.text)
        lead = len(kept) - len(kept.lstrip()) if queries else 0
        memory.text, cut = self.tokenizer.head(kept.strip() if queries else kept, self.limit)
        if not memory.text:
            return Written(None, cut)
        return Written((_place(pieces, lead), _place(pieces, lead + len(memory.text) - 1) + 1), cut)


class StateMemory(MemoryMode):
    """MEM1: memory and thinking are one text, the thought that opens a reply; one state a turn."""

    rule = (
        "Open your reply with <think>…</think>: what you know so far and what you think of it now, merged "
        "into one text of up to {limit} tokens. It takes the place of the memory; nothing else is carried on."
    )
    in_thought = True

    def read(self, memory: Memory, reply: str, start: int) -> Written:
        """See `MemoryMode.read`; without a closed thought the memory stays as it was."""
        memory.notice, inside = "", thought_inside(reply, start)
        if inside is None:
            self.missing(memory)
            return Written(None)
        return self.write(memory, reply[slice(*inside)]).shift(inside[0])

    def missing(self, memory: Memory) -> None:
        """See `MemoryMode.missing`."""
        memory.notice = NO_THOUGHT


class Transcript(MemoryMode):
    """ReAct: no memory; every reply stays in the prompt."""

    rule = ""
    appends = True

    def read(self, memory: Memory, reply: str, start: int) -> Written:
        """Keep the whole reply, its thought too."""
        return self.write(memory, reply)

    def answered(self, memory: Memory, reply: str) -> None:
        """Keep the whole reply."""
        self.write(memory, reply)

    def write(self, memory: Memory, text: str) -> Written:
        """Keep a reply."""
        memory.replies.append(text)
        return Written(None)

    def notes(self, memory: Memory) -> list[str]:
        """The lines of all replies."""
        return [line for reply in memory.replies for line in reply.splitlines()]

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        """The lines that no reply has yet."""
        own = self.notes(memory)
        return "\n".join(note for note in notes if note not in own)


class StructuredMemory(MemoryMode):
    """Memory-R1, Mem-alpha: numbered entries that the lines of a text add, update and delete.

    `ADD: text`, `UPDATE 3: text`, `DELETE 3` and `NOOP`, one a line. Lines that are none of these, name an
    entry that there is not, repeat one, or do not fit the limit are not carried out, and the notice says why;
    the others are. At most `MAX_LINES` of a text.
    """

    rule = (
        "Change the memory line by line: `ADD: text` adds an entry, `UPDATE number: text` replaces one, "
        "`DELETE number` removes one, `NOOP` leaves all as it is. Entries have up to {limit} tokens together."
    )

    def write(self, memory: Memory, text: str) -> Written:
        """Carry out the operations of a text."""
        done, wrong, cut = list[tuple[int, int]](), list[str](), False
        for count, (start, line) in enumerate(_lines(text)):
            match = _OPERATION.fullmatch(line)
            if count >= MAX_LINES:
                reason = f"only {MAX_LINES} operations are carried out at a time"
            elif match is None:
                reason = "it is no ADD: text, UPDATE number: text, DELETE number or NOOP"
            else:
                reason = self._carry_out(memory, match)
                cut |= reason.startswith("there is no room")
            if not reason:
                done.append((start, start + len(line)))
                continue
            wrong.append(f"{line.strip()[:40]!r}: {reason}")
            if count >= MAX_LINES:
                break
        memory.notice = _notice(wrong)
        return Written((done[0][0], done[-1][1]) if done else None, cut)

    def show(self, memory: Memory, query: str) -> str:
        """The entries, a line each behind its number."""
        return "\n".join(f"[{entry.number}] {entry.text}" for entry in memory.entries)

    def notes(self, memory: Memory) -> list[str]:
        """The texts of the entries."""
        return [entry.text for entry in memory.entries]

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        """Deletions of the entries that are no such lines, then additions of the lines that are new."""
        own = self.notes(memory)
        gone = [f"DELETE {entry.number}" for entry in memory.entries if entry.text not in notes]
        return "\n".join([*gone, *(f"ADD: {note}" for note in notes if note not in own)]) or "NOOP"

    def _carry_out(self, memory: Memory, match: re.Match[str]) -> str:
        """Change the entries; why not, or nothing."""
        add, added, update, updated, replacing, delete, deleted, _ = match.groups()
        before = memory.entries
        if add or update:
            new = (added or replacing).rstrip()
            if same := next((entry.number for entry in before if entry.text == new), None):
                return f"entry {same} says so already"
        if update or delete:
            number = int((updated or deleted)[:9])
            if all(entry.number != number for entry in before):
                return f"there is no entry {number}"
            rest = [
                MemoryEntry(number, new) if entry.number == number and update else entry for entry in before
            ]
            memory.entries = rest if update else [entry for entry in before if entry.number != number]
        elif add:
            memory.entries = [*before, MemoryEntry(memory.count + 1, new)]
        if (add or update) and self.tokenizer.head(self.show(memory, ""), self.limit)[1]:
            memory.entries = before
            return f"there is no room for it in {self.limit} tokens; delete or shorten entries first"
        memory.count += bool(add)
        return ""


class NoteMemory(MemoryMode):
    """A-MEM: every line of a text is a note in a store, which a query brings back into the prompt.

    A note may end with ` | ` and its keywords. It is linked, both ways, with up to `LINKS` earlier notes that
    share words with it (BM25 over texts and keywords). Shown are the `NOTES_SHOWN` notes that fit the query
    best, without any the latest, and those linked with them, up to the limit. A-MEM has a model write
    keywords, choose links and rewrite the neighbours of a new note, and embeds the notes; here the agent
    writes the keywords, links follow from words, and no note is rewritten.
    """

    rule = (
        "Write notes, each on a line of its own, with ` | ` and keywords behind it if you like. They go "
        "into a store; of all notes those that fit the question best are shown to you, up to {limit} tokens."
    )

    def write(self, memory: Memory, text: str) -> Written:
        """Put the notes of a text into the store."""
        taken, wrong, cut = list[tuple[int, int]](), list[str](), False
        for count, (start, line) in enumerate(_lines(text)):
            if count >= MAX_LINES:
                wrong.append(f"{line.strip()[:40]!r}: only {MAX_LINES} notes are taken at a time")
                break
            kept, too_long = self.tokenizer.head(line, self.limit)
            note, _, keywords = kept.partition(" | ")
            cut |= too_long
            note, keywords = note.strip(), keywords.strip()
            if any(entry.text == note for entry in memory.entries):
                wrong.append(f"{note[:40]!r}: there is such a note already")
            elif note:
                self._add(memory, note, keywords)
                taken.append((start, start + len(kept)))
        memory.notice = _notice(wrong)
        return Written((taken[0][0], taken[-1][1]) if taken else None, cut)

    def show(self, memory: Memory, query: str) -> str:
        """The notes that fit a query, and those linked with them, in the order of writing."""
        entries = memory.entries
        best = rank(query, [_whole(entry) for entry in entries])[:NOTES_SHOWN]
        chosen = [entries[place] for place in best] or entries[-NOTES_SHOWN:]
        found = {entry.number: entry for entry in chosen}
        by_number = {entry.number: entry for entry in entries}
        for number in (number for entry in chosen for number in entry.links[-LINKS:]):
            if number in by_number:
                found.setdefault(number, by_number[number])
        lines = list[tuple[int, str]]()
        for number, entry in found.items():  # the best first, so that the limit drops the least
            more = [*lines, (number, _whole(entry))]
            if self.tokenizer.head("\n".join(line for _, line in more), self.limit)[1]:
                break
            lines = more
        return "\n".join(line for _, line in sorted(lines))

    def notes(self, memory: Memory) -> list[str]:
        """The texts of all notes."""
        return [entry.text for entry in memory.entries]

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        """The lines that are not in the store: none can be taken out."""
        own = self.notes(memory)
        return "\n".join(note for note in notes if note not in own)

    def _add(self, memory: Memory, note: str, keywords: str) -> None:
        earlier = [_whole(entry) for entry in memory.entries]
        near = [memory.entries[place] for place in rank(f"{note} {keywords}", earlier)[:LINKS]]
        memory.count += 1
        for entry in near:
            entry.links.append(memory.count)
        memory.entries.append(MemoryEntry(memory.count, note, keywords, [entry.number for entry in near]))


MODES: dict[str, type[MemoryMode]] = {
    "rewrite": MemoryMode,
    "callback": CallbackMemory,
    "mem1": StateMemory,
    "structured": StructuredMemory,
    "a_mem": NoteMemory,
    "react": Transcript,
}
"""Memory modes by name."""


def thought_inside(reply: str, end: int) -> tuple[int, int] | None:
    """Where the inside of the closed thought stands that ends a reply's opening, [start, end) in characters.

    Args:
        reply: the reply.
        end: where it goes on behind the thought (`memenvs.core.text.thought_end`).
    """
    closing = reply.find("</think>")
    if not end or closing < 0:
        return None
    opens = reply.lstrip().startswith("<think>")  # or the chat template wrote it
    return (reply.index("<think>") + len("<think>") if opens else 0, closing)


def rank(query: str, texts: Sequence[str]) -> list[int]:
    """Places of the texts that share a word with a query, best first (BM25); of equal ones the later.

    >>> rank("Ada's engine", ["a moth", "the engine", "Ada wrote for the engine"])
    [2, 1]
    """
    bags = [_bag(text) for text in texts]
    asked = [word for word in dict.fromkeys(words(query)) if any(word in bag for bag in bags)]
    if not asked:
        return []
    mean = sum(bag.total() for bag in bags) / len(bags)
    scores = [0.0] * len(bags)
    for word in asked:
        holding = sum(word in bag for bag in bags)
        rarity = math.log(1 + (len(bags) - holding + 0.5) / (holding + 0.5))
        for place, bag in enumerate(bags):
            times = bag[word]
            scores[place] += rarity * times / (times + _K1 * (1 - _B + _B * bag.total() / mean))
    found = [place for place, score in enumerate(scores) if score > 0]
    return sorted(found, key=lambda place: (-scores[place], -place))


@functools.lru_cache(maxsize=1024)
def _bag(text: str) -> Counter[str]:
    return Counter(words(text))


def _whole(entry: MemoryEntry) -> str:
    return f"{entry.text} | {entry.keywords}" if entry.keywords else entry.text


def _lines(text: str) -> list[tuple[int, str]]:
    """The lines of a text that are not blank, each behind the place where it begins."""
    return [(match.start(), match.group()) for match in re.finditer(r"[^\n]+", text) if match.group().strip()]


def _place(pieces: Sequence[tuple[int, int]], at: int) -> int:
    """Where the character `at` of the joined pieces stands in the text that they are of."""
    for start, end in pieces:
        if at < end - start:
            return start + at
        at -= end - start
    raise IndexError(at)


def _notice(wrong: Sequence[str]) -> str:
    """What was not carried out, the first three in full."""
    if not wrong:
        return ""
    more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return f"Of your last reply this was not carried out: {'; '.join(wrong[:3])}{more}."[:MAX_NOTICE]
