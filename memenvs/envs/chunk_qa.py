"""Question answering over a long document that is read chunk by chunk with a written memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np

from memenvs.core.checks import check_choice, check_whole
from memenvs.core.env import MAX_REPLY_CHARS, EpisodeState, TextEnv
from memenvs.core.text import THOUGHTS, Template, replace_templates, thought_end
from memenvs.envs.memory import (
    MAX_NOTICE,
    MODES,
    NO_THOUGHT,
    RECALLED,
    THOUGHT_KEPT,
    Memory,
    MemoryMode,
    Shown,
    Written,
    thought_inside,
)
from memenvs.envs.render import reading_turn, reward_line
from memenvs.tasks.context import CUTS, Chunk, Context, open_reader
from memenvs.tasks.metrics import Answers, Grade, answer_form, check_scoring, gold_answer, grade, wrap_answer
from memenvs.tasks.taskset import Task, open_tasks, tokenizer_of
from memenvs.tasks.tokens import HEAD_CHARS

READ = """\
You are reading a long text section by section, to answer a question when you have read it all. Only what \
you write into your memory is carried from one section to the next.

<question>
{question}
</question>

<memory>
{memory}
</memory>

<section>
{chunk}
</section>

This was section {turn} of {turns}. Write the memory anew: keep what may still help with the question, add \
what this section tells about it, and leave the rest out. Your whole reply becomes the memory, up to \
{max_memory} tokens.
"""

ANSWER = """\
You have read the whole text and kept this memory of it. Answer the question from the memory.

<question>
{question}
</question>

<memory>
{memory}
</memory>

Give the answer as short as it can be, in the form {format}.
"""

_PLACES = ("turn", "turns", "max_memory", "format")

READ_BY_MODE = """\
You are reading a long text section by section, to answer a question when you have read it all. Only your \
memory is carried from one section to the next.

<question>
{question}
</question>

<memory>
{memory}
</memory>
{recalled}
<section>
{chunk}
</section>

This was section {turn} of {turns}. {notice}{rule}
"""

ANSWER_BY_MODE = ANSWER.replace("</memory>\n", "</memory>\n{recalled}")

REACT_READ = """\
You are reading a long text section by section, to answer a question when you have read it all. Every \
section stays before you, and what you write about it.

<question>
{question}
</question>
"""

REACT_NEXT = """
<section>
{chunk}
</section>

This was section {turn} of {turns}. Say what it tells about the question.
"""

REACT_ANSWER = """
You have read the whole text. Answer the question: {question}

Give the answer as short as it can be, in the form {format}.
"""

TEMPLATES = {
    "read": Template(READ, required=("question", "memory", "chunk"), optional=_PLACES, name="read"),
    "answer": Template(ANSWER, required=("question", "memory"), optional=_PLACES, name="answer"),
}

_OPTIONAL = (*_PLACES, "rule", "notice", "recalled")

REACT = {
    "read": Template(REACT_READ + REACT_NEXT, required=("question", "chunk"), optional=_PLACES, name="read"),
    "next": Template(REACT_NEXT, required=("chunk",), optional=(*_PLACES, "question"), name="next"),
    "answer": Template(REACT_ANSWER, required=("question",), optional=_PLACES, name="answer"),
}
"""Of `memory_mode="react"`: the first section, each of the others, and what asks for an answer."""

WORDINGS = {
    "short": {
        "read": "Text:\n{chunk}\n\nNotes:\n{memory}\n\nQuestion: {question}\n"
        "Write the notes again and add what the text says for the question.",
        "answer": "Notes:\n{memory}\n\nQuestion: {question}\nAnswer from the notes: {format}",
    }
}
"""Other wordings by name. `short` asks for no more than a small model needs. The chunk comes first, so
that the episodes of a group, and several questions about one text, share what is read of it."""


ASKS = ("together", "each", "later")
"""When the questions of a task are asked; see `ChunkQAEnv`."""

UNSEEN = "It is not known yet: {count} will be asked about the text when you have read it all."


@dataclass
class ReadingEpisode(EpisodeState):
    """An episode of reading.

    Attributes:
        documents: document numbers in reading order.
        memories: what each reading turn left in the memory; the last one is the memory now.
        overflows: memories that were cut at `max_memory`.
        memory_span: where the last reply wrote the memory, [start, end) in characters; None if it wrote none.
        reply: what counts of the final reply.
    """

    documents: tuple[int, ...] = ()
    memories: list[str] = field(default_factory=lambda: [""])
    overflows: int = 0
    memory_span: tuple[int, int] | None = None
    reply: str = ""


@dataclass
class AskingEpisode(ReadingEpisode):
    """An episode of reading whose questions are asked one by one.

    Attributes:
        replies: what counts of the reply to each question answered; `reply` is the last of them.
    """

    replies: list[str] = field(default_factory=list)


@dataclass
class RememberingEpisode(AskingEpisode):
    """An episode of reading in another memory mode than `"rewrite"`; `memories` are as the prompts show them.

    Attributes:
        memory: the memory as it stands.
        written: what the last reply wrote of it, at `memory_span`.
        shown: what stood in the places of the memory in each prompt so far.
        history: every reply, with `"react"`.
    """

    memory: Memory = field(default_factory=Memory)
    written: str = ""
    shown: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)


class ChunkQAEnv(TextEnv[str, ReadingEpisode]):
    r"""Read a long context chunk by chunk with a written memory, then answer (the MemAgent workflow).

    Action:
        At each of the K reading turns the whole reply becomes the memory, cut at `max_memory` tokens, or
        changes it by the rules of another `memory_mode`, which the prompt states; a reply that breaks them
        leaves the memory as it was, and the next prompt says why. At the answer turn the reply holds the
        answer as `\boxed{…}` or `<answer>…</answer>`. Several objectives are answered in one, separated by
        ";", or, with `ask="each"` and `"later"`, in a turn each, all from the memory that the reading left.
        The thought that opens a reply is dropped before anything else: it is neither memory nor answer. A
        reply that is nothing but a thought, as one cut before `</think>`, is empty, and so is the memory it
        leaves.

    Observation:
        Question, memory and chunk; at the end question and memory. `info["context"]` is `"rewrite"`; with
        `memory_mode="react"` it is `"append"`, and the text so far stays in the prompt.

    Reward:
        `outcome`: the metric of the answer, at the last turn. Of n questions asked one by one each pays its
        metric / n at its own turn, so that the return is what it would be for all together.

    End:
        `terminated` after K + 1 turns; after K + n where n questions are asked one by one.

    Metrics:
        `success` (outcome 1.0), `em`, `f1`, `sub_em`, `format`, `memory_overflow` (memories cut), `turns`,
        `prompt_tokens` and `prompt_tokens_peak` (tokens of the observations, in all and of the longest).

    Privileged:
        `answers`; `evidence` (the evidence documents) and `depths` (where each begins, 0 to 1);
        `evidence_in_chunk` (their parts inside the chunk that is shown); `chunk_span` (the characters of the
        observation that are this chunk, [start, end); None if it shows none); and the scoring fields (see
        `TextEnv`). The prompts with and without memory are the answer prompt, and the one with history is
        that with memory: the turns before reach the agent in its memory only. The teacher's prompts hold in
        the chunk's place the evidence inside the chunk (`teacher_prompt`) or all of it (`…_global`); at the
        answer turn both are the answer prompt with all evidence behind the memory. Where questions are asked
        one by one, `question`, `answers`, the targets and the prompts are those of the question that is asked
        now; while the text is read, and after the end, those of all questions together. `answered` is whether
        the last reply was an answer. In another memory mode than `"rewrite"` `memory` is what the prompt
        shows, `written` what the last reply wrote at `memory_span` (operations, notes), and `recalled` what
        was called back; with `"react"` the scoring fields are those of an environment that appends.

    Args:
        tasks: a bundled task set's name or a folder made by `python -m memenvs.build`.
        chunk_size: tokens of a chunk.
        max_memory: tokens of memory kept; of a longer one the beginning, at most 16 characters a token.
        max_answer: tokens of the final reply that count.
        tokenizer: counts tokens: `"general"`, `"world"`, a file, a folder or a Hugging Face id; None: the one
            that the task set was built with.
        cut_at: `"token"`, or `"document"` to cut no document that fits a chunk with its header.
        n_documents: read only so many documents of the task, its evidence among them, drawn at reset.
        template: `{"read": …, "answer": …}` with the places `{question}`, `{memory}` and (read) `{chunk}`;
            `{turn}`, `{turns}`, `{max_memory}` and `{format}` (how to answer, and how many answers) may be
            used. Or `"short"`, a wording for small models. Own wording by default.
        answer_format: `"boxed"` or `"tag"`.
        thoughts: `"strip"` drops a leading `<think>…</think>`, and what stands before a lone `</think>`;
            `"opened"` also takes a reply without `</think>` for a thought that was cut, as it is where the
            chat template writes `<think>` itself; `"keep"` drops nothing.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's own. `boxed_em` and
            `math_em` need `"boxed"`.
        ask: several questions of a task (`python -m memenvs.build multi`) `"together"`, in one answer turn;
            `"each"` in a turn of its own, all of them shown while the text is read; or `"later"`, as `"each"`
            but not shown before the text has been read, so that the memory must serve any question.
        memory_mode: `"rewrite"` (MemAgent): the reply is the new memory. `"callback"` (ReMemR1): so it is,
            and `<recall>query</recall>` in it shows an earlier memory with the next chunk. `"mem1"`: the
            thought that opens the reply is memory and thinking in one. `"structured"` (Memory-R1, Mem-alpha):
            lines `ADD: text`, `UPDATE n: text`, `DELETE n` and `NOOP` change numbered entries. `"a_mem"`
            (A-MEM): lines are notes of a store, of which the prompt shows those that fit the question.
            `"react"`: no memory, everything stays in the prompt. See `memenvs.envs.memory`.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    context: Literal["append", "rewrite"] = "rewrite"
    episode_class = ReadingEpisode
    unhashed = ("render_mode", "tasks")
    metric_names = (
        *("success", "em", "f1", "sub_em", "format"),
        *("memory_overflow", "turns", "prompt_tokens", "prompt_tokens_peak"),
    )

    def __init__(
        self,
        tasks: str = "world-train",
        chunk_size: int = 5000,
        max_memory: int = 1024,
        max_answer: int = 1024,
        tokenizer: str | None = None,
        cut_at: str = "token",
        n_documents: int | None = None,
        template: dict[str, str] | str | None = None,
        answer_format: str = "boxed",
        thoughts: str = "strip",
        metric: str | None = None,
        ask: str = "together",
        memory_mode: str = "rewrite",
        render_mode: str | None = None,
    ) -> None:
        check_choice("ask", ask, ASKS)
        check_choice("memory_mode", memory_mode, (*MODES, "react"))
        if memory_mode == "mem1" and thoughts == "keep":
            raise ValueError(THOUGHT_KEPT)
        check_whole(chunk_size=chunk_size, max_memory=max_memory, max_answer=max_answer)
        check_choice("cut_at", cut_at, CUTS)
        check_choice("thoughts", thoughts, THOUGHTS)
        if not isinstance(tasks, str):
            raise ValueError(f"tasks must be a name or a path as a str, got {tasks!r}; pass str(path)")
        self.tasks = open_tasks(tasks)
        if not self.tasks.n_documents:
            raise ValueError(
                f"{tasks} has nothing to read; play its questions in MemSearchQA-v0 by a retriever"
            )
        self.tokenizer = tokenizer_of(self.tasks, tokenizer)
        self.chunk_size, self.max_memory, self.max_answer = chunk_size, max_memory, max_answer
        self.thoughts = thoughts
        self.cut_at, self.answer_format = cut_at, answer_format
        self.metric = self.tasks.metric if metric is None else metric
        check_scoring(self.metric, answer_format)
        if n_documents is not None:
            check_whole(n_documents=n_documents)
            if n_documents < (most := self.tasks.card.counts["max_evidence"]):
                raise ValueError(
                    f"n_documents={n_documents} does not hold the {most} evidence documents of a task"
                )
        self.n_documents = n_documents
        self.ask = ask
        if ask != "together":
            self.episode_class = AskingEpisode
            if joined := self.tasks.inseparable:
                raise ValueError(
                    f"ask={ask!r}: task {joined} of {tasks} has several answers to one question; "
                    "ask='together', or join single questions by `python -m memenvs.build multi`"
                )
        self.memory_mode = memory_mode
        self.mode = None if memory_mode == "react" else MODES[memory_mode](self.tokenizer, max_memory)
        own = TEMPLATES
        if memory_mode != "rewrite":
            self.episode_class = RememberingEpisode
            own = by_mode(self.mode) if self.mode else REACT
        if self.mode is None:
            self.context = "append"
        if isinstance(template, str):
            check_choice("template", template, tuple(WORDINGS))
            if memory_mode != "rewrite":
                raise ValueError(
                    f"template={template!r} is a wording for memory_mode='rewrite', not for {memory_mode!r}"
                )
            template = WORDINGS[template]
        self._templates = replace_templates(own, template)
        self._reader = open_reader(self.tasks, self.tokenizer)
        super().__init__(len(self.tasks), self._longest(), render_mode)

    def task_set(self) -> tuple[str, str]:
        """The task set's name and hash."""
        return self.tasks.name, self.tasks.hash

    def gold_reply(self) -> str:
        """The answer, at a reading turn as the memory."""
        answering = self.answering
        _, answers = self._asked()
        answer = gold_answer(answers, self.metric)
        return wrap_answer(answer, self.answer_format) if answering else self.noting([answer])

    def notes(self) -> list[str]:
        """The lines that the memory holds; with `"react"` those of all replies."""
        episode = self.episode
        if self.mode is None:
            history = episode.history if isinstance(episode, RememberingEpisode) else []
            return [line for reply in history for line in reply.splitlines()]
        memory = episode.memory if isinstance(episode, RememberingEpisode) else Memory(episode.memories[-1])
        return self.mode.notes(memory)

    def noting(self, notes: Sequence[str]) -> str:
        """A reply to a section after which the memory holds these lines, as far as its mode lets it."""
        episode = self.episode
        if self.mode is None:
            own = self.notes()
            return "\n".join(note for note in notes if note not in own)
        if not isinstance(episode, RememberingEpisode):
            return "\n".join(notes)
        text = self.mode.text_of(episode.memory, notes)
        return f"<think>{text}</think>" if self.mode.in_thought else text

    def render(self) -> str | None:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        episode, reading = self.episode, self._reading
        turn = episode.turn - bool(episode.end)
        return reading_turn(
            title=f"task {reading.task.id}, turn {turn + 1} of {self._turns}",
            question=self._asked()[0],
            memory=episode.memories[-1],
            chunk=reading.section(turn) if turn < len(reading.chunks) else None,
            evidence=reading.evidence_in(turn),
            reply=self._last.reply,
            earned=self.earned_or(reward_line(self._last.rewards)),
            end=episode.end,
        )

    def _begin(self, task: int) -> ReadingEpisode:
        chosen = self.tasks[task]
        documents = draw_documents(chosen, self.n_documents, self.np_random)
        kind: Any = self.episode_class
        episode: ReadingEpisode = kind(task, documents=documents)
        self._reading = self._read_task(chosen, episode.documents)
        if isinstance(episode, RememberingEpisode):
            episode.shown.append("")
        return episode

    def _read_task(self, task: Task, documents: tuple[int, ...]) -> Reading:
        context = self._reader.context(documents)
        chunks = context.chunks(self.chunk_size, self.cut_at)
        return Reading(task, context, chunks, [documents.index(document) for document in task.evidence])

    def _restored(self) -> None:
        episode, task = self.episode, self.tasks[self.episode.task]
        if not set(task.evidence) <= set(episode.documents) <= set(task.documents):
            raise ValueError(f"the state's episode cannot be: its documents are not those of task {task.id}")
        reading = self._read_task(task, episode.documents)
        turns, last = len(reading.chunks), len(reading.chunks) + self._questions_of(task)
        memories, answered = 1 + min(episode.turn, turns), max(0, episode.turn - turns)
        ended = "terminated" if episode.turn == last else ""
        odd = isinstance(episode, AskingEpisode) and len(episode.replies) != answered
        if isinstance(episode, RememberingEpisode):
            history = 0 if self.mode else episode.turn
            odd |= len(episode.shown) != episode.turn + 1 or len(episode.history) != history
        if episode.turn > last or len(episode.memories) != memories or episode.end != ended or odd:
            raise ValueError(
                f"the state's episode cannot be: turn={episode.turn} with {len(episode.memories)} memories "
                f"and end={episode.end!r}, in {turns} chunks"
            )
        self._reading = reading

    # The prompts.

    def _observe(self) -> str:
        episode = self.episode
        if self.mode is None:
            return self._whole_text()
        return "" if episode.end else self._prompt(episode.turn, self._show(episode.turn))

    def _feedback(self) -> str:
        """With `"react"`, what stands behind the last reply: the next section, or the question."""
        episode = self.episode
        return "" if episode.end else self._segment(episode.turn)

    def _whole_text(self) -> str:
        """With `"react"`, every section and reply so far."""
        episode = self.episode
        history = episode.history if isinstance(episode, RememberingEpisode) else []
        segments = [self._segment(turn) for turn in range(min(episode.turn + 1, self._turns))]
        return "".join(segment + reply for segment, reply in zip_longest(segments, history, fillvalue=""))

    def _segment(self, turn: int, until: str = "") -> str:
        """With `"react"`, what a turn adds to the prompt."""
        if turn >= len(self._reading.chunks):
            return self._fill("answer", turn)
        return self._fill("next" if turn else "read", turn, until, chunk=self._reading.section(turn))

    def _show(self, turn: int) -> Shown:
        """What the prompt of a turn shows of the memory."""
        episode = self.episode
        if not isinstance(episode, RememberingEpisode) or self.mode is None:
            return Shown(episode.memories[-1])
        unread = self.ask == "later" and turn < len(self._reading.chunks)
        query = self._reading.section(turn) if unread else self._asked(turn)[0]
        memory = episode.memory
        return Shown(self.mode.show(memory, query), memory.recalled, memory.notice)

    def _prompt(self, turn: int, shown: Shown, section: str | None = None, until: str = "") -> str:
        """The prompt of turn `turn`, from 0; past the chunks the one that asks for the answer.

        `section` replaces the turn's own section; `until` is that of `Template.fill`.
        """
        reading = self._reading
        places = {"memory": shown.memory, "recalled": "", "notice": shown.notice and f"{shown.notice} "}
        if shown.recalled:
            places["recalled"] = RECALLED.format(shown.recalled)
        if turn >= len(reading.chunks):
            return self._fill("answer", turn, **places)
        chunk = reading.section(turn) if section is None else section
        return self._fill("read", turn, until, **places, chunk=chunk)

    def _chunk_span(self) -> list[int] | None:
        """Where the observation shows the chunk, [start, end) in characters; None past the chunks."""
        turn = self.episode.turn
        if turn >= len(self._reading.chunks):
            return None
        if self.mode is None:
            before = len(self._whole_text()) - len(self._segment(turn))
            start = before + len(self._segment(turn, until="chunk"))
        else:
            start = len(self._prompt(turn, self._show(turn), until="chunk"))
        return [start, start + len(self._reading.section(turn))]

    def _fill(self, name: str, turn: int, until: str = "", **values: object) -> str:
        question, answers = self._asked(turn)
        if self.ask == "later" and name != "answer":
            question = unseen(len(answers))
        return self._templates[name].fill(
            until,
            question=question,
            turn=turn + 1,
            turns=len(self._reading.chunks),
            max_memory=self.max_memory,
            format=answer_form(self.answer_format, len(answers)),
            rule=self._rule,
            **values,
        )

    @property
    def _rule(self) -> str:
        """How the prompt asks for the memory."""
        if self.mode is None:
            return ""
        return self.mode.rule.format(text="Your whole reply", limit=self.max_memory)

    def _asked(self, turn: int | None = None) -> tuple[str, Answers]:
        """The question of turn `turn` (None: the next) and its accepted answers.

        While the text is read, and past the last turn, all of the task's.
        """
        task, read = self._reading.task, len(self._reading.chunks)
        number = (self.episode.turn if turn is None else turn) - read
        if self.ask == "together" or not 0 <= number < len(task.answers):
            return task.question, task.answers
        return task.questions[number], task.answers[number : number + 1]

    def _questions_of(self, task: Task) -> int:
        """Answer turns."""
        return 1 if self.ask == "together" else len(task.answers)

    @property
    def _turns(self) -> int:
        return len(self._reading.chunks) + self._questions_of(self._reading.task)

    def _longest(self) -> int:
        """Characters of the longest prompt, by the larger template."""
        counts = self.tasks.card.counts
        one = self.ask == "together"
        answers = 1 if one else self.tasks.max_objectives
        digits = len(str(counts["max_chars"] + answers))  # a chunk has at least one character
        hidden = len(unseen(answers)) if self.ask == "later" else 0
        most = {
            "question": max(counts["max_question_chars"], hidden),
            "memory": min(MAX_REPLY_CHARS, HEAD_CHARS * self.max_memory),
            "chunk": counts["max_chars"],
            "turn": digits,
            "turns": digits,
            "max_memory": len(str(self.max_memory)),
            "format": len(answer_form(self.answer_format, self.tasks.max_objectives)),
            "rule": len(self._rule),
            "notice": MAX_NOTICE + 1,
        }
        most["recalled"] = len(RECALLED) + most["memory"]
        longest = max(template.longest(**most) for template in self._templates.values())
        if self.mode is None:
            return (counts["max_chars"] + answers) * (longest + MAX_REPLY_CHARS)
        return longest

    def _privileged(self) -> dict[str, Any]:
        reading, episode = self._reading, self.episode
        turn, evidence = episode.turn, reading.whole_evidence()
        question, answers = self._asked()
        target = gold_answer(answers, self.metric)
        last = len(reading.chunks)
        asking = turn if last <= turn < self._turns else last if self.ask == "together" else self._turns
        own = {} if self.ask == "together" else {"answered": turn > last}
        return {
            "answers": [list(accepted) for accepted in answers],
            "evidence": evidence,
            "depths": [reading.context.depth(position) for position in reading.evidence],
            "evidence_in_chunk": reading.evidence_in(turn),
            "chunk_span": self._chunk_span(),
            "question": question,
            "target": target,
            "target_wrapped": wrap_answer(target, self.answer_format),
            **(self._appended(evidence) if self.mode is None else self._remembered(asking, evidence)),
            **own,
        }

    def _remembered(self, asking: int, evidence: list[str]) -> dict[str, Any]:
        """The scoring fields about the memory; turn `asking` is the one that asks for the answer."""
        episode, reading = self.episode, self._reading
        turn, last, shown = episode.turn, len(reading.chunks), self._show(asking)
        if turn < last:
            now = self._show(turn)
            teacher = self._prompt(turn, now, section="\n\n".join(reading.evidence_in(turn)))
            teacher_global = self._prompt(turn, now, section="\n\n".join(evidence))
        else:
            behind = shown._replace(memory="\n\n".join([shown.memory, *evidence]))
            teacher = teacher_global = self._prompt(turn, behind)
        prompts = self._prompt(asking, shown), self._prompt(asking, Shown())
        own = {}
        if isinstance(episode, RememberingEpisode):
            own = {"written": episode.written, "recalled": episode.memory.recalled}
        return {
            **self._rewritten_fields(shown.memory, *prompts, teacher, teacher_global),
            "memory_span": episode.memory_span and list(episode.memory_span),
            "reply": episode.reply,
            **own,
        }

    def _appended(self, evidence: list[str]) -> dict[str, Any]:
        """The same with `"react"`, where the last reply stands for the memory."""
        episode, reading = self.episode, self._reading
        start, now = self._segment(0), self._whole_text()
        here = "\n\n".join(reading.evidence_in(episode.turn) or evidence)
        fields = self._appended_fields(start, now, f"\n{here}\n")
        if not episode.end:
            fields["teacher_prompt_global"] = now + "\n" + "\n\n".join(evidence) + "\n"
        if episode.turn > len(reading.chunks):
            fields |= {"memory": "", "memory_span": None, "reply": episode.reply}
        return fields

    # The rules.

    def _play(self, reply: str) -> dict[str, float]:
        episode = self.episode
        if self.answering:
            outcome = self._answer(reply)
        else:
            outcome = {}
            self._read(reply)
        if isinstance(episode, RememberingEpisode):
            following = Shown() if self.mode is None or episode.end else self._show(episode.turn + 1)
            episode.shown.append("\n".join(filter(None, following)))
            if self.mode is None:
                episode.history.append(reply)
        return outcome

    def _read(self, reply: str) -> None:
        """Change the memory by a reply."""
        episode, mode, start = self.episode, self.mode, thought_end(reply, self.thoughts)
        if not isinstance(episode, RememberingEpisode):
            memory, cut = self.tokenizer.head(reply[start:], self.max_memory)
            episode.memories.append(memory)
            episode.memory_span = (start, start + len(memory)) if memory else None
            episode.overflows += cut
            return
        if mode is not None:
            inside = thought_inside(reply, start) if mode.in_thought else (start, len(reply))
            episode.memory.notice = "" if inside else NO_THOUGHT
            start, end = inside or (0, 0)
            written = mode.write(episode.memory, reply[start:end]) if inside else Written(None)
            span = written.span and (start + written.span[0], start + written.span[1])
            episode.memory_span, episode.overflows = span, episode.overflows + written.cut
            episode.written = reply[slice(*span)] if span else ""
        episode.memories.append(self._show(episode.turn + 1).memory)

    def _answer(self, reply: str) -> dict[str, float]:
        """Take a reply for an answer: what it earns."""
        episode, start = self.episode, thought_end(reply, self.thoughts)
        if isinstance(episode, RememberingEpisode):
            episode.written, episode.memory.notice = "", ""
        _, answers = self._asked()
        episode.memory_span = None
        episode.reply, _ = self.tokenizer.head(reply[start:], self.max_answer)
        if isinstance(episode, AskingEpisode):
            episode.replies.append(episode.reply)
        if episode.turn + 1 == self._turns:
            episode.end = "terminated"
        questions = self._questions_of(self._reading.task)
        return {"outcome": self._grade(episode.reply, answers).outcome / questions}

    def _metrics(self) -> dict[str, float]:
        scores, tokens = self._scores(), self._prompt_tokens()
        return {
            "success": float(scores.outcome == 1.0),
            **{name: getattr(scores, name) for name in ("em", "f1", "sub_em", "format")},
            "memory_overflow": self.episode.overflows,
            "turns": len(tokens),
            "prompt_tokens": sum(tokens),
            "prompt_tokens_peak": max(tokens),
        }

    def _scores(self) -> Grade:
        """The grade of the episode; of questions asked one by one the means, but the least `format`."""
        episode, answers = self.episode, self._reading.task.answers
        if not isinstance(episode, AskingEpisode) or self.ask == "together":
            return self._grade(episode.reply, answers)
        grades = [
            self._grade(reply, [accepted]) for reply, accepted in zip(episode.replies, answers, strict=True)
        ]
        means = [sum(scores) / len(grades) for scores in zip(*grades, strict=True)]
        return Grade(*means)._replace(format=min(one.format for one in grades))

    def _grade(self, reply: str, answers: Answers) -> Grade:
        return grade(reply, answers, metric=self.metric, answer_format=self.answer_format)

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts."""
        reading, last, episode = self._reading, len(self._reading.chunks), self.episode
        if self.mode is None:
            added = [self._segment(turn) for turn in range(self._turns)]
            history = episode.history if isinstance(episode, RememberingEpisode) else []
            counts = self.tokenizer.counts([*added, *history[:-1]])
            own, replies = counts[: self._turns], [0, *counts[self._turns :]]
            return list(accumulate(map(sum, zip(own, replies, strict=True))))
        asking = range(last, self._turns)
        frames = [
            self._frame("read", last - 1),
            *(self._frame("answer", last - 1 if self.ask == "together" else turn) for turn in asking),
        ]
        if isinstance(episode, RememberingEpisode):
            texts = episode.shown[: self._turns]
        else:
            texts = [*episode.memories, *[episode.memories[-1]] * (len(asking) - 1)]
        counts = self.tokenizer.counts([*frames, *texts])
        read, answers, memories = counts[0], counts[1 : len(frames)], counts[len(frames) :]
        chunks = [read + chunk.tokens for chunk in reading.chunks]
        return [frame + memory for frame, memory in zip([*chunks, *answers], memories, strict=True)]

    def _frame(self, name: str, turn: int) -> str:
        """A prompt without memory and chunk."""
        return self._fill(name, turn, memory="", chunk="", recalled="", notice="")

    def _task_id(self) -> str:
        return self._reading.task.id

    @property
    def answering(self) -> bool:
        """Whether every chunk has been read, so that the next reply is an answer."""
        return self.episode.turn >= len(self._reading.chunks)


def by_mode(mode: MemoryMode) -> dict[str, Template]:
    """The templates of a memory mode other than `"rewrite"`."""
    recalled = ("recalled",) if mode.recalls else ()
    return {
        name: Template(
            text,
            required=("question", "memory", *recalled, *extra),
            optional=tuple(place for place in _OPTIONAL if place not in recalled),
            name=name,
        )
        for name, text, extra in (("read", READ_BY_MODE, ("chunk",)), ("answer", ANSWER_BY_MODE, ()))
    }


class Reading(NamedTuple):
    """A task as it is read in one episode.

    Attributes:
        task: the task.
        context: the text of its documents.
        chunks: slices of it, one a reading turn.
        evidence: positions of the evidence documents in reading order, from 0.
    """

    task: Task
    context: Context
    chunks: list[Chunk]
    evidence: list[int]

    def section(self, turn: int) -> str:
        """The text shown at reading turn `turn`, from 0."""
        chunk = self.chunks[turn]
        return self.context.text[chunk.start : chunk.end]

    def evidence_in(self, turn: int) -> list[str]:
        """The parts of evidence documents shown at turn `turn`; none past the reading turns."""
        if turn >= len(self.chunks):
            return []
        parts = (self.context.inside(self.chunks[turn], position) for position in self.evidence)
        return [part for part in parts if part]

    def whole_evidence(self) -> list[str]:
        """The evidence documents."""
        spans = self.context.spans
        return [self.context.text[slice(*spans[position])] for position in self.evidence]


def unseen(questions: int) -> str:
    """What stands in the question's place while the text is read, where it is asked later."""
    return UNSEEN.format(count="one question" if questions == 1 else f"{questions} questions")


def draw_documents(task: Task, count: int | None, rng: np.random.Generator) -> tuple[int, ...]:
    """`count` of the task's documents in their order, its evidence among them; all if None or too few.

    Places are drawn, not document numbers: a haystack may show one document many times, and the evidence is
    where it first stands.
    """
    if count is None or count >= len(task.documents):
        return task.documents
    needed = [task.documents.index(document) for document in task.evidence]
    others = np.delete(np.arange(len(task.documents)), needed)
    drawn = rng.choice(others, count - len(needed), replace=False)
    return tuple(task.documents[place] for place in sorted([*needed, *drawn.tolist()]))
