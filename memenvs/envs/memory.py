"""Memory modes: how a reply changes the memory, and how the prompts show it."""

from __future__ import annotations

import functools
import itertools
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from memenvs.core.text import Template, Thoughts, first_pair
from memenvs.retrieval.lexical import rank
from memenvs.tasks.tokens import TextTokenizer

ModeName = Literal["rewrite", "callback", "mem1", "structured", "a_mem", "react"]

MAX_LINES = 32
"""The most operations, or notes, in one reply."""

NOTES_SHOWN = 5
"""The most notes that a query brings into the prompt; notes linked with them come on top."""

LINKS = 3
"""The most earlier notes that a new one is linked with."""

RECALLED = Template("\n<recalled>\n{memory}\n</recalled>\n", required=["memory"])
"""How a prompt shows what was called back."""

NO_THOUGHT = "Your last reply did not open with a closed <think>…</think>, so the memory is unchanged."

NO_MEMORY = "Your last reply did not open with <mem>…</mem>, so the memory is unchanged."

_LINE = re.compile(r"[^\n]+")
_OPERATION = re.compile(r"\s*(?:(ADD)\s*:\s*(\S.*)|(UPDATE)\s+(\d+)\s*:\s*(\S.*)|(DELETE)\s+(\d+)|(NOOP))\s*")


@dataclass
class MemoryEntry:
    """One entry of a memory of entries or notes."""

    number: int  # from 1, in the order of writing; never used again
    text: str  # a line
    keywords: str = ""  # a note's keywords
    links: list[int] = field(default_factory=list)  # numbers of other notes

    @property
    def line(self) -> str:
        """The note with its keywords."""
        return f"{self.text} | {self.keywords}" if self.keywords else self.text


@dataclass
class Memory:
    """What is remembered, as plain data for states. A mode uses the fields that it needs."""

    text: str = ""  # the memory, where it is one text
    # Texts that were the memory before this one, oldest first, none twice.
    earlier: list[str] = field(default_factory=list)
    recalled: str = ""  # the earlier text that the last reply called back
    # The memory, where it consists of entries or notes.
    entries: list[MemoryEntry] = field(default_factory=list)
    count: int = 0  # entries written so far, including those that are gone
    kept: list[int] = field(default_factory=list)  # numbers of the entries in `text`, where not all are
    notice: str = ""  # which part of the last reply was not carried out, and why
    replies: list[str] = field(default_factory=list)  # every reply, in the mode where they stay in the prompt
    # Where the last reply wrote to the memory, [start, end) in characters; None if it wrote nothing.
    span: tuple[int, int] | None = None
    written: str = ""  # the text at `span`
    overflows: int = 0  # replies that did not fit the limit in full

    def wrote(self, reply: str = "", done: Written | None = None) -> None:
        """Record what the last reply did to the memory; nothing by default."""
        self.span = done.span if done else None
        self.written = reply[slice(*self.span)] if self.span else ""
        self.overflows += bool(done and done.cut)


class Written(NamedTuple):
    """What a text did to a memory."""

    # [start, end) in characters of the text: the part that was kept or carried out; None if nothing.
    span: tuple[int, int] | None
    cut: bool = False  # whether something did not fit the limit

    def shift(self, by: int) -> Written:
        """The same for a text that begins `by` characters earlier."""
        return self._replace(span=self.span and (self.span[0] + by, self.span[1] + by))


class Shown(NamedTuple):
    """What a prompt shows of a memory."""

    memory: str = ""
    recalled: str = ""  # what was called back
    notice: str = ""  # what went wrong
    recalled_memory: str = ""  # what was called back, or what a prompt says instead


class MemoryMode:
    """How a memory is written and shown. In this plain mode the text becomes the memory.

    A text that breaks the rules of a mode leaves the memory as it was, and the notice says why; no text
    raises. An environment decides which part of a reply is the text.

    Attributes:
        rule: what a prompt asks for; `{text}` names the text, `{limit}` is the limit in tokens.
        in_thought: whether the memory is the thought that opens a reply.
        appends: whether everything stays in the prompt.

    A text of more than `limit` tokens is truncated. `thoughts` says what to do with the thought that opens a
    reply (`memenvs.core.text.thought_end`).
    """

    rule: ClassVar[str] = (
        "Rewrite the memory: keep what may still help with the question, add what is new, and leave out the "
        "rest. {text} becomes the memory, up to {limit} tokens."
    )
    in_thought: ClassVar[bool] = False
    appends: ClassVar[bool] = False

    def __init__(self, tokenizer: TextTokenizer, limit: int, thoughts: Thoughts = "strip") -> None:
        if self.in_thought and thoughts == "keep":
            raise ValueError("memory_mode='mem1' reads the thought as the memory; use thoughts='strip'")
        self.tokenizer, self.limit, self.thoughts = tokenizer, limit, thoughts

    def asks(self, subject: str) -> str:
        """The rule, as a prompt states it about the text that `subject` names."""
        return _template(self.rule).fill(text=subject, limit=self.limit)

    def read(self, memory: Memory, reply: str, start: int) -> Written:
        """Change the memory by a reply, whose opening thought ends at `start`; spans are its characters."""
        return self.write(memory, reply[start:]).shift(start)

    def write_block(self, memory: Memory, text: str) -> Written:
        """Change the memory by a text with space around it."""
        return self.write(memory, text.strip()).shift(len(text) - len(text.lstrip()))

    def missing(self, memory: Memory) -> None:
        """Take note of a reply that has no part for the memory."""
        memory.notice = NO_THOUGHT if self.in_thought else NO_MEMORY

    def answered(self, memory: Memory, reply: str) -> None:
        """Take note of a reply that is an answer, not a memory."""
        memory.notice = ""

    def write(self, memory: Memory, text: str) -> Written:
        """Change the memory by a text."""
        memory.text, cut = self.tokenizer.truncate(text, self.limit)
        return Written((0, len(memory.text)) if memory.text else None, cut)

    def show(self, memory: Memory, query: str) -> str:
        """The memory as a prompt about `query` shows it, at most `limit` tokens."""
        return memory.text

    def notes(self, memory: Memory) -> list[str]:
        """The lines that the memory holds."""
        return memory.text.splitlines()

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        """A text after which the memory holds these lines, as far as they fit."""
        return "\n".join(notes)


class CallbackMemory(MemoryMode):
    """ReMemR1: the text becomes the memory, and may call back an earlier one.

    `<recall>query</recall>` is not part of the memory: of the memories before this one, the one that shares
    the most words with the first query (BM25) is shown beside the memory in the next prompt. The paper ranks
    by TF-IDF. A text that is nothing but a callback leaves the memory as it was.
    """

    rule = (
        f"{MemoryMode.rule} To see an earlier memory again, add <recall>query</recall>: the one that "
        "best fits the query will be shown beside the memory. The request itself is not kept."
    )

    def write(self, memory: Memory, text: str) -> Written:
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
        memory.notice = "" if best or not query else "No earlier memory contains a word of your query."
        kept = "".join(text[start:end] for start, end in pieces)
        if queries and not kept.strip():
            return Written(None)
        if memory.text and memory.text not in memory.earlier:
            memory.earlier.append(memory.text)
        memory.text, cut = self.tokenizer.truncate(kept.strip() if queries else kept, self.limit)
        if not memory.text:
            return Written(None, cut)
        first = len(kept) - len(kept.lstrip()) if queries else 0
        return Written((_place(pieces, first), _place(pieces, first + len(memory.text) - 1) + 1), cut)


class ThoughtMemory(MemoryMode):
    """MEM1: memory and thinking are one text, the thought that opens a reply.

    Without a closed thought the memory stays as it was.
    """

    rule = (
        "Open your reply with <think>…</think>: what you know so far and what you make of it, merged into "
        "one text of up to {limit} tokens. It replaces the memory; nothing else is carried over."
    )
    in_thought = True

    def read(self, memory: Memory, reply: str, start: int) -> Written:
        memory.notice = ""
        inside = thought_inside(reply, start)
        if inside is None:
            self.missing(memory)
            return Written(None)
        return self.write(memory, reply[slice(*inside)]).shift(inside[0])


class Transcript(MemoryMode):
    """ReAct: no memory; every reply stays in the prompt."""

    rule = ""
    appends = True

    def read(self, memory: Memory, reply: str, start: int) -> Written:
        memory.replies.append(reply)
        return Written(None)

    def answered(self, memory: Memory, reply: str) -> None:
        memory.replies.append(reply)

    def write(self, memory: Memory, text: str) -> Written:
        return self.read(memory, text, 0)

    def notes(self, memory: Memory) -> list[str]:
        return [line for reply in memory.replies for line in reply.splitlines()]

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        held = self.notes(memory)
        return "\n".join(note for note in notes if note not in held)


class EntryMemory(MemoryMode):
    """A memory of numbered entries, which a text changes line by line, at most `MAX_LINES` of them.

    Lines that break the rules are skipped, and the notice says which, the first three of them, and why. It
    repeats no text of a reply, which would be a memory beyond the limit.
    """

    def write(self, memory: Memory, text: str) -> Written:
        spans, wrong, cut = list[tuple[int, int]](), list[str](), False
        lines = (line for line in _LINE.finditer(text) if not line.group().isspace())
        for count, match in enumerate(lines):
            line = match.group()
            used, reason, too_long = 0, f"only {MAX_LINES} lines are read at a time", False
            if count < MAX_LINES:
                used, reason, too_long = self.take(memory, line)
            cut |= too_long
            if used:
                spans.append((match.start(), match.start() + used))
            if reason:
                wrong.append(f"line {count + 1}: {reason}")
            if count == MAX_LINES:
                break
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        memory.notice = f"These lines failed: {'; '.join(wrong[:3])}{more}." if wrong else ""
        return Written((spans[0][0], spans[-1][1]) if spans else None, cut)

    @abstractmethod
    def take(self, memory: Memory, line: str) -> tuple[int, str, bool]:
        """Change the entries by a line.

        Returns:
            How many characters of the line were used; why none were, if it broke a rule; whether anything did
            not fit the limit.
        """

    def notes(self, memory: Memory) -> list[str]:
        return [entry.text for entry in memory.entries]

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        held = self.notes(memory)
        return "\n".join(note for note in notes if note not in held)


class StructuredMemory(EntryMemory):
    """Memory-R1, Mem-alpha: numbered entries that the lines of a text add, update and delete.

    `ADD: text`, `UPDATE 3: text`, `DELETE 3` and `NOOP`, one a line. A line that is none of these, names an
    entry that does not exist, repeats one, or does not fit the limit is not carried out; the others are.
    """

    rule = (
        "Change the memory line by line: `ADD: text` adds an entry, `UPDATE number: text` replaces one, "
        "`DELETE number` removes one, `NOOP` changes nothing. All entries together have up to {limit} tokens."
    )

    def take(self, memory: Memory, line: str) -> tuple[int, str, bool]:
        match = _OPERATION.fullmatch(line)
        if match is None:
            return 0, "it is not ADD: text, UPDATE number: text, DELETE number or NOOP", False
        add, added, _, updated, replacing, _, deleted, noop = match.groups()
        if noop:
            return len(line), "", False
        before, text = memory.entries, (added or replacing or "").rstrip()
        # Python refuses to read thousands of digits, and nine are more than any entry's number has.
        number = memory.count + 1 if add else int((updated or deleted)[:9])
        if same := next((entry.number for entry in before if text and entry.text == text), None):
            return 0, f"entry {same} already says this", False
        places = [entry.number for entry in before]
        if not add and number not in places:
            return 0, "there is no entry with this number", False
        place = len(before) if add else places.index(number)
        new = [MemoryEntry(number, text)] if text else []
        memory.entries = [*before[:place], *new, *before[place + 1 :]]
        if new and self.tokenizer.truncate(self.show(memory, ""), self.limit)[1]:
            memory.entries = before
            return 0, f"it does not fit in {self.limit} tokens; delete or shorten entries first", True
        memory.count += bool(add)
        return len(line), "", False

    def show(self, memory: Memory, query: str) -> str:
        return "\n".join(f"[{entry.number}] {entry.text}" for entry in memory.entries)

    def text_of(self, memory: Memory, notes: Sequence[str]) -> str:
        held = self.notes(memory)
        gone = [f"DELETE {entry.number}" for entry in memory.entries if entry.text not in notes]
        return "\n".join([*gone, *(f"ADD: {note}" for note in notes if note not in held)]) or "NOOP"


class NoteMemory(EntryMemory):
    """A-MEM: every line of a text is a note in a store, which a query brings back into the prompt.

    A note may end with ` | ` and its keywords. It is linked, both ways, with up to `LINKS` earlier notes that
    share words with it (BM25 over texts and keywords). Shown are the `NOTES_SHOWN` notes that fit the query
    best, without any the latest, and those linked with them, up to the limit. A-MEM has a model write
    keywords, choose links and rewrite the neighbours of a new note, and embeds the notes; here the agent
    writes the keywords, links follow from words, and no note is rewritten.
    """

    rule = (
        "Write notes, one per line, each optionally followed by ` | ` and keywords. They go into a store, "
        "and the notes that best fit the question are shown to you, up to {limit} tokens."
    )

    def take(self, memory: Memory, line: str) -> tuple[int, str, bool]:
        kept, cut = self.tokenizer.truncate(line, self.limit)
        note, keywords = (part.strip() for part in kept.partition(" | ")[::2])
        if note in self.notes(memory):
            return 0, "this note already exists", cut
        if not note:
            return 0, "", cut
        earlier = [entry.line for entry in memory.entries]
        near = [memory.entries[place] for place in rank(f"{note} {keywords}", earlier)[:LINKS]]
        memory.count += 1
        for entry in near:
            entry.links.append(memory.count)
        memory.entries.append(MemoryEntry(memory.count, note, keywords, [entry.number for entry in near]))
        return len(kept), "", cut

    def show(self, memory: Memory, query: str) -> str:
        by_number = {entry.number: entry for entry in memory.entries}
        best = rank(query, [entry.line for entry in memory.entries])[:NOTES_SHOWN]
        chosen = [memory.entries[place] for place in best] or memory.entries[-NOTES_SHOWN:]
        linked = [number for entry in chosen for number in entry.links[-LINKS:]]
        lines = list[tuple[int, str]]()
        # The best first, so that the limit drops the least.
        for number in dict.fromkeys([*(entry.number for entry in chosen), *linked]):
            more = [*lines, (number, by_number[number].line)]
            if self.tokenizer.truncate("\n".join(line for _, line in more), self.limit)[1]:
                break
            lines = more
        return "\n".join(line for _, line in sorted(lines))


MODES: dict[str, type[MemoryMode]] = {
    "rewrite": MemoryMode,
    "callback": CallbackMemory,
    "mem1": ThoughtMemory,
    "structured": StructuredMemory,
    "a_mem": NoteMemory,
    "react": Transcript,
}
"""Memory modes by name."""


def thought_inside(reply: str, end: int) -> tuple[int, int] | None:
    """[start, end) in characters of the inside of the closed thought that opens a reply and ends at `end`."""
    closing = reply.find("</think>")
    if not end or closing < 0:
        return None
    opens = reply.lstrip().startswith("<think>")  # otherwise the chat template wrote it
    return (reply.index("<think>") + len("<think>") if opens else 0, closing)


@functools.cache
def _template(rule: str) -> Template:
    return Template(rule, optional=["text", "limit"])


def recalled_block(memory: str) -> str:
    """What a prompt shows of a memory that was called back; nothing where none was."""
    return RECALLED.fill(memory=memory) if memory else ""


def _place(pieces: Sequence[tuple[int, int]], at: int) -> int:
    """Where the character `at` of the joined pieces is in the text that they are parts of."""
    places = itertools.chain.from_iterable(itertools.starmap(range, pieces))
    return next(itertools.islice(places, at, None))
