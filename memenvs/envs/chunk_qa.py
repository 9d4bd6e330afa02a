"""Question answering over a long document that is read chunk by chunk with a written memory.

`gym.make("MemChunkQA-v0", chunk_size=5000)`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from memenvs.core.data import Count, checked
from memenvs.core.env import EpisodeState, TextEnv
from memenvs.core.terminal import GREEN
from memenvs.core.text import Template, Texts, Thoughts, replace_templates, thought_end, warn_of_tags
from memenvs.envs.memory import MODES, Memory, ModeName, Shown, recalled_block
from memenvs.envs.render import block, reward_line, show_turn
from memenvs.tasks.context import Chunk, Context, Reader, open_reader
from memenvs.tasks.metrics import Answers, Grade, answer_form, check_scoring, gold_answer, grade, wrap_answer
from memenvs.tasks.taskset import Task, open_tasks, tokenizer_of

READ = """\
You are reading a long text section by section, to answer a question once you have read all of it. Only your \
memory is carried over from one section to the next.

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

ANSWER = """\
You have read the whole text and kept this memory of it. Answer the question from the memory.

<question>
{question}
</question>

<memory>
{memory}
</memory>
{recalled}
Give the answer as short as possible, in the form {format}.
"""

REACT_READ = """\
You are reading a long text section by section, to answer a question once you have read all of it. Every \
section, and what you write about it, stays in your context.

<question>
{question}
</question>
"""

REACT_NEXT = """
<section>
{chunk}
</section>

This was section {turn} of {turns}. Note anything relevant to the question.
"""

REACT_ANSWER = """
You have read the whole text. Answer the question: {question}

Give the answer as short as possible, in the form {format}.
"""

_PLACES = ("turn", "turns", "max_memory", "format", "rule", "notice", "recalled", "recalled_memory")

TEMPLATES = {
    "read": Template(READ, required=("question", "memory", "chunk"), optional=_PLACES),
    "answer": Template(ANSWER, required=("question", "memory"), optional=_PLACES),
    "no_memory": Template(""),
    "no_recall": Template(""),
}
"""The prompts of a section and for the answer, and what they show before anything is written or recalled."""

REACT = {
    "read": Template(REACT_READ + REACT_NEXT, required=("question", "chunk"), optional=_PLACES),
    "next": Template(REACT_NEXT, required=("chunk",), optional=(*_PLACES, "question")),
    "answer": Template(REACT_ANSWER, required=("question",), optional=_PLACES),
}
"""With `memory_mode="react"`: the first section, each of the others, and the prompt for the answer."""

WORDINGS = {
    "short": {
        "read": "Text:\n{chunk}\n\nNotes:\n{memory}\n\nQuestion: {question}\n"
        "Write the notes again and add what the text says for the question.",
        "answer": "Notes:\n{memory}\n\nQuestion: {question}\nAnswer from the notes: {format}",
    }
}
"""Other wordings by name. `short` asks for no more than a small model needs. The chunk comes first, so
that the episodes of a group, and several questions about one text, share what is read of it."""

READING_TAGS = frozenset({"answer", "mem", "recall", "thinking", "update"})
"""Tags that prompts of reading agents ask for."""

UNSEEN = Template("{subject} will be shown later, when you have read the whole text.", required=["subject"])
"""In the question's place while the text is read, with `ask="later"`."""


@dataclass
class ReadingState(EpisodeState):
    """An episode of reading."""

    documents: tuple[int, ...] = ()  # document numbers in reading order
    memory: Memory = field(default_factory=Memory)
    shown: list[str] = field(default_factory=lambda: [""])  # what each prompt so far showed of the memory
    # The part that counts of the reply to each question answered so far.
    replies: list[str] = field(default_factory=list)


class ChunkQAEnv(TextEnv[str, ReadingState]):
    r"""Read a long context chunk by chunk with a written memory, then answer (the MemAgent workflow).

    The text comes in chunks of `chunk_size` tokens. At each turn the agent sees the question, its memory and
    the next chunk, and writes a new memory. At the last turn it sees the question and the memory only, so a
    fact that it did not note, or that a later turn dropped, is lost.

    Action:
        At each of the K reading turns the whole reply becomes the memory, truncated at `max_memory` tokens.
        In another `memory_mode` the reply changes the memory by rules, which the prompt states; a reply that
        breaks them leaves the memory unchanged, and the next prompt says why. At the answer turn the reply
        holds the answer as `\boxed{…}` or `<answer>…</answer>`. Several questions are answered together,
        separated by ";", or with `ask="each"` and `"later"` in one turn each, all from the memory that the
        reading left. A thought at the start of a reply is dropped first: it is neither memory nor answer. A
        reply that is only a thought, for example one truncated before `</think>`, leaves an empty memory.

    Observation:
        Question, memory and chunk; at the end question and memory. `info["context"]` is `"rewrite"`; with
        `memory_mode="react"` it is `"append"`, and the text so far stays in the prompt.

    Reward:
        `outcome`: the metric of the answer, at the last turn. If n questions are asked one by one, each pays
        its metric / n at its own turn, so the return is the same as when they are asked together.

    End:
        `terminated` after K + 1 turns; after K + n if n questions are asked one by one.

    Metrics:
        `success` (outcome 1.0), `em`, `f1`, `sub_em`, `format`, `memory_overflow` (truncated memories),
        `turns`, `prompt_tokens` and `prompt_tokens_peak` (tokens of all observations, and of the longest).

    Privileged:
        - `answers`: the accepted answers of each objective.
        - `evidence`: the evidence documents; `depths`: where each begins in the text, 0 to 1.
        - `sentences`: the sentences of the evidence that the task marks as needed.
        - `evidence_in_chunk`: the parts of the evidence documents inside the chunk that is shown.
        - `chunk_span`: the characters of the observation that are this chunk, [start, end); None without one.
        - `prompt_with_memory`, `prompt_without_memory`: the answer prompt with and without the memory.
        - `prompt_with_history`: the same as `prompt_with_memory`, since earlier turns reach the agent only
          through its memory.
        - `teacher_prompt`, `teacher_prompt_global`: this turn's prompt with the evidence inside the chunk, or
          with all evidence, instead of the chunk; at the answer turn both have all evidence after the memory.
        - `answered`: whether the last reply was an answer, if questions are asked one by one. `question`,
          `answers`, the targets and the prompts are then those of the current question; during the reading,
          and after the end, those of all questions together.
        - `written`, `recalled`: in memory modes other than `"rewrite"`, what the last reply wrote at
          `memory_span` (operations, notes) and what was recalled; `memory` is what the prompt shows.
        - The other scoring fields (see `TextEnv`), with `"react"` as in an environment that appends.

    Args:
        tasks: a bundled task set's name or a folder made by `memenvs build`.
        chunk_size: tokens per chunk.
        max_memory: tokens of memory kept; a longer one is truncated. A token has at most 16 characters.
        max_answer: tokens of the final reply that count.
        tokenizer: counts tokens: `"general"`, `"world"`, a file, a folder or a Hugging Face id; None: the one
            that the task set was built with.
        cut_at: `"token"`, or `"document"`: a document that fits in a chunk with its header stays whole.
        n_documents: how many of the task's documents to read, drawn at reset, always with its evidence.
        template: other prompts: a file with the headings `=== read ===` and `=== answer ===`, or
            `{"read": …, "answer": …}` with texts or files (docs/prompts.md). Placeholders are `{question}`,
            `{memory}` and (read) `{chunk}`, and optionally `{turn}`, `{turns}`, `{max_memory}`, `{format}`
            (how to answer, and how many answers), `{rule}`, `{notice}`, `{recalled}` and `{recalled_memory}`
            (of the memory mode; the last is the bare text). `no_memory` and `no_recall` are what `{memory}`
            shows in the first prompt, and `{recalled_memory}` where nothing was recalled; nothing by default.
            With `"react"` the parts are `read`, `next` (a later section) and `answer`. Or `"short"`, a
            wording for small models. By default the environment's own wording.
        answer_format: `"boxed"` or `"tag"`.
        thoughts: `"strip"` drops a leading `<think>…</think>`, and what comes before a lone `</think>`;
            `"opened"` also treats a reply without `</think>` as a truncated thought, for chat templates that
            write `<think>` themselves; `"keep"` drops nothing.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's
            own. `boxed_em` and `math_em` need `"boxed"`.
        ask: how to ask several questions of a task (`memenvs build multi`): `"together"` in one answer turn;
            `"each"` in its own turn, with all of them shown while the text is read; or `"later"`, in its own
            turn and shown only then, so that the memory must serve any question.
        memory_mode: `"rewrite"` (MemAgent): the reply is the new memory. `"callback"` (ReMemR1): the same,
            and `<recall>query</recall>` in it shows an earlier memory with the next chunk. `"mem1"`: the
            thought at the start of the reply is the memory. `"structured"` (Memory-R1, Mem-alpha):
            lines `ADD: text`, `UPDATE n: text`, `DELETE n` and `NOOP` change numbered entries. `"a_mem"`
            (A-MEM): lines are notes in a store; the prompt shows those that fit the question.
            `"react"`: no memory, everything stays in the prompt. See `memenvs.envs.memory`.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    context: Literal["append", "rewrite"] = "rewrite"
    unhashed = ("render_mode", "tasks")
    metric_names = (
        *("success", "em", "f1", "sub_em", "format"),
        *("memory_overflow", "turns", "prompt_tokens", "prompt_tokens_peak"),
    )

    @checked
    def __init__(
        self,
        tasks: str = "world-train",
        chunk_size: Count = 5000,
        max_memory: Count = 1024,
        max_answer: Count = 1024,
        tokenizer: str | None = None,
        cut_at: Literal["token", "document"] = "token",
        n_documents: Count | None = None,
        template: Texts | None = None,
        answer_format: Literal["boxed", "tag"] = "boxed",
        thoughts: Thoughts = "strip",
        metric: str | None = None,
        ask: Literal["together", "each", "later"] = "together",
        memory_mode: ModeName = "rewrite",
        render_mode: str | None = None,
    ) -> None:
        self.tasks = open_tasks(tasks)
        if not self.tasks.n_documents:
            raise ValueError(f"{tasks} has nothing to read; play its questions in MemSearchQA-v0")
        self.tokenizer = tokenizer_of(self.tasks, tokenizer)
        self.chunk_size, self.max_memory, self.max_answer = chunk_size, max_memory, max_answer
        self.thoughts = thoughts
        self.cut_at, self.answer_format = cut_at, answer_format
        self.metric = self.tasks.metric if metric is None else metric
        check_scoring(self.metric, answer_format)
        if n_documents is not None and n_documents < (most := self.tasks.card.counts["max_evidence"]):
            raise ValueError(
                f"n_documents must be at least {most}, the evidence documents of a task, got {n_documents}"
            )
        self.n_documents = n_documents
        self.ask = ask
        if ask != "together" and (joined := self.tasks.inseparable):
            raise ValueError(
                f"ask={ask!r}: task {joined} of {tasks} has several answers to one question; "
                "use ask='together', or join single questions with `memenvs build multi`"
            )
        self.memory_mode = memory_mode
        self.mode = MODES[memory_mode](self.tokenizer, max_memory, thoughts)
        self.context = "append" if self.mode.appends else "rewrite"
        self._rule = self.mode.asks("Your whole reply")
        if isinstance(template, str):
            template = WORDINGS.get(template, template)
        defaults = REACT if self.mode.appends else TEMPLATES
        main = [name for name in defaults if not name.startswith("no_")]
        self._templates, texts = replace_templates(defaults, template, main)
        self.template_texts = texts
        self._no_memory, self._no_recall = (texts.get(name, "") for name in ("no_memory", "no_recall"))
        read = {"recall"} if memory_mode == "callback" else set()
        for name, text in texts.items():  # of the user's, which may ask for what is not read here
            tagged, boxed = answer_format == "tag", "\\boxed" in text
            warn_of_tags(name, text, read | ({"answer"} if tagged or boxed else set()), READING_TAGS)
            if tagged and boxed and "<answer>" not in text:
                warnings.warn(
                    f"the {name!r} template asks for \\boxed; give answer_format='boxed'", stacklevel=3
                )
        self._reader = open_reader(self.tasks, self.tokenizer)
        super().__init__(len(self.tasks), render_mode)

    def task_set(self) -> tuple[str, str]:
        return self.tasks.name, self.tasks.hash

    def gold_reply(self) -> str:
        """The answer, at a reading turn as the memory."""
        turn = self.state.turn
        _, answers = self._reading.asked(turn)
        answer = gold_answer(answers, self.metric)
        return wrap_answer(answer, self.answer_format) if self.answering else self.noting([answer])

    def n_choices(self, n_answers: int) -> int:
        """The length of `choices`."""
        return n_answers + 1

    def choices(self, answers: Sequence[str]) -> list[str]:
        """Replies that give each answer (to a memory of notes as one), and one that changes nothing."""
        wrapped = [wrap_answer(answer, self.answer_format) for answer in answers]
        if self.memory_mode == "rewrite" or self.answering:
            return [*wrapped, self.memory_shown]
        return [*(self.noting([answer]) for answer in wrapped), self.noting(self.notes())]

    def notes(self) -> list[str]:
        """The lines that the memory holds."""
        return self.mode.notes(self.state.memory)

    def noting(self, notes: Sequence[str]) -> str:
        """A reply to a section after which the memory holds these lines, as far as its mode lets it."""
        text = self.mode.text_of(self.state.memory, notes)
        return f"<think>{text}</think>" if self.mode.in_thought else text

    @property
    def evidence_shown(self) -> bool:
        """Whether all evidence has been shown, this turn's chunk included; true where none is marked."""
        reading = self._reading
        read = reading.chunks[min(self.state.turn, len(reading.chunks) - 1)].end
        return all(reading.context.spans[position][1] <= read for position in reading.evidence)

    @property
    def question(self) -> str:
        """The question of this turn, as its prompt shows it; empty where it is asked only later."""
        return "" if self.ask == "later" and not self.answering else self._reading.asked(self.state.turn)[0]

    @property
    def memory_shown(self) -> str:
        """The memory as the prompt shows it; empty before anything is written."""
        return self._show(self.state.turn).memory if self.state.turn else ""

    def render(self) -> str | None:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        state, reading = self.state, self._reading
        turn, blocks = state.turn, list[list[str]]()
        title = f"task {reading.task.id}, {turn} of {reading.turns} turns played"
        if not state.end:
            question = reading.asked(turn)[0]
            if not turn or question != reading.asked(turn - 1)[0]:
                blocks.append(block("question", question, limit=600))
            blocks.append(block("memory", self.memory_shown, limit=800))
            if not self.answering:
                chunk = reading.section(turn)
                blocks.append(block(f"chunk ({len(chunk):,} characters)", chunk, limit=500))
            for part in reading.evidence_in(turn):
                blocks.append(block("evidence inside it", part, limit=500, colour=GREEN))
        earned = self.reward_lines(reward_line(self._last.rewards))
        return show_turn(title, self._last.reply, earned, blocks, state.end)

    def _begin(self, task: int) -> ReadingState:
        item = self.tasks[task]
        documents = draw_documents(item, self.n_documents, self.np_random)
        # None, so that one reading serves all whole ones
        drawn = None if documents is item.documents else documents
        self._reading = open_reading(
            self._reader, task, drawn, self.chunk_size, self.cut_at, self.ask == "together"
        )
        return ReadingState(task, documents=documents, shown=[self._no_memory])

    # The prompts.

    def _observe(self) -> str:
        return self._before(self._reading, self.state.memory.replies) + self._feedback()

    def _feedback(self) -> str:
        """The prompt of this turn; where the context is rewritten, it is all there is to read."""
        state = self.state
        return "" if state.end else self._prompt(self._reading, state.turn, self._show(state.turn))

    def _before(self, reading: Reading, replies: Sequence[str]) -> str:
        """The turns that stay in the prompt."""
        prompts = (self._prompt(reading, turn) for turn in range(len(replies)))
        return "".join(prompt + reply for prompt, reply in zip(prompts, replies, strict=True))

    def _show(self, turn: int) -> Shown:
        """What the prompt of a turn shows of the memory."""
        reading, memory = self._reading, self.state.memory
        unread = self.ask == "later" and turn < len(reading.chunks)
        query = reading.section(turn) if unread else reading.asked(turn)[0]
        shown = self.mode.show(memory, query) if turn else self._no_memory
        return Shown(shown, memory.recalled, memory.notice, memory.recalled or self._no_recall)

    def _prompt(
        self,
        reading: Reading,
        turn: int,
        shown: Shown = Shown(),  # noqa: B008  # immutable
        section: str | None = None,
        until: str = "",
    ) -> str:
        """The prompt of turn `turn`, from 0; past the chunks the one that asks for the answer.

        `section` replaces the turn's own section; the prompt stops before the placeholder `until`.
        """
        question, answers = reading.asked(turn)
        name, chunk = "answer", ""
        if turn < len(reading.chunks):
            name = "next" if turn and "next" in self._templates else "read"
            chunk = reading.section(turn) if section is None else section
            if self.ask == "later":
                subject = "The question" if len(answers) == 1 else f"{len(answers)} questions"
                question = UNSEEN.fill(subject=subject)
        return self._templates[name].fill(
            until,
            question=question,
            turn=turn + 1,
            turns=len(reading.chunks),
            max_memory=self.max_memory,
            format=answer_form(self.answer_format, len(answers)),
            rule=self._rule,
            memory=shown.memory,
            recalled=recalled_block(shown.recalled),
            recalled_memory=shown.recalled_memory,
            notice=shown.notice and f"{shown.notice} ",
            chunk=chunk,
        )

    def _privileged(self) -> dict[str, Any]:
        state, reading = self.state, self._reading
        turn, last = state.turn, len(reading.chunks)
        text, spans = reading.context.text, reading.context.spans
        evidence = [text[slice(*spans[position])] for position in reading.evidence]
        here = reading.evidence_in(turn)
        question, answers = reading.asked(turn)
        target = gold_answer(answers, self.metric)
        shown = self._show(turn)
        before = functools.partial(self._before, reading, tuple(state.memory.replies))

        def chunk_span() -> list[int] | None:
            if turn >= last:
                return None
            start = len(before()) + len(self._prompt(reading, turn, shown, until="chunk"))
            return [start, start + len(reading.section(turn))]

        fields = {
            "answers": [list(accepted) for accepted in answers],
            "evidence": evidence,
            "sentences": functools.partial(self.tasks.marked_sentences, reading.task),
            "depths": [reading.context.depth(position) for position in reading.evidence],
            "evidence_in_chunk": here,
            "chunk_span": chunk_span,
            "question": question,
            "target": target,
            "target_wrapped": wrap_answer(target, self.answer_format),
        }
        if self.ask != "together":
            fields["answered"] = turn > last
        if self.mode.appends:
            return fields | self._appended(before, here, evidence)
        return fields | self._rewritten(shown, here, evidence)

    def _rewritten(self, now: Shown, here: list[str], evidence: list[str]) -> dict[str, Any]:
        """The scoring fields about the memory; `now` is what the prompt of this turn shows of it."""
        state, reading = self.state, self._reading
        turn, last = state.turn, len(reading.chunks)
        asking = turn  # the turn that asks for the answer
        if not last <= turn < reading.turns:
            asking = last if len(reading.questions) == 1 else reading.turns
        shown = self._show(asking)
        prompt = functools.partial(self._prompt, reading)

        def teacher(section: list[str]) -> Callable[[], str]:
            if turn < last:
                return lambda: prompt(turn, now, section="\n\n".join(section))
            return lambda: prompt(turn, shown._replace(memory="\n\n".join([shown.memory, *evidence])))

        fields = self._rewritten_fields(
            shown.memory,
            lambda: prompt(asking, shown),
            lambda: prompt(asking),
            teacher(here),
            teacher(evidence),
        )
        memory = state.memory
        fields |= {"memory_span": memory.span and list(memory.span), "reply": (state.replies or [""])[-1]}
        if self.memory_mode != "rewrite":
            fields |= {"written": memory.written, "recalled": memory.recalled}
        return fields

    def _appended(self, before: Callable[[], str], here: list[str], evidence: list[str]) -> dict[str, Any]:
        """The same with `"react"`, where the last reply is the memory."""
        state, reading, feedback = self.state, self._reading, self._feedback()

        def now() -> str:
            return before() + feedback

        parts = "\n\n".join(here or evidence)
        fields = self._appended_fields(lambda: self._prompt(reading, 0), now, f"\n{parts}\n")
        if not state.end:
            fields["teacher_prompt_global"] = lambda: now() + "\n" + "\n\n".join(evidence) + "\n"
        if state.turn > len(reading.chunks):
            fields |= {"memory": "", "memory_span": None, "reply": state.replies[-1]}
        return fields

    # The rules.

    def _play(self, reply: str) -> dict[str, float]:
        state, reading = self.state, self._reading
        start = thought_end(reply, self.thoughts)
        if self.answering:
            self.mode.answered(state.memory, reply)
            state.memory.wrote()
            state.replies.append(self.tokenizer.truncate(reply[start:], self.max_answer)[0])
            state.end = "terminated" if state.turn + 1 == reading.turns else ""
            _, answers = reading.asked(state.turn)
            outcome = {"outcome": self._grade(state.replies[-1], answers).outcome / len(reading.questions)}
        else:
            outcome = {}
            state.memory.wrote(reply, self.mode.read(state.memory, reply, start))
        following = Shown() if state.end else self._show(state.turn + 1)
        texts = following.memory, following.recalled_memory, following.notice
        state.shown.append("\n".join(filter(None, texts)))
        return outcome

    def _metrics(self) -> dict[str, float]:
        """Scores are means over the questions; `format` is the least of them."""
        pairs = zip(self.state.replies, self._reading.questions, strict=True)
        grades = [self._grade(reply, answers) for reply, (_, answers) in pairs]
        means = Grade(*(sum(scores) / len(grades) for scores in zip(*grades, strict=True)))
        tokens = self._prompt_tokens()
        return {
            "success": float(means.outcome == 1.0),
            **{name: getattr(means, name) for name in ("em", "f1", "sub_em")},
            "format": min(score.format for score in grades),
            "memory_overflow": self.state.memory.overflows,
            "turns": len(tokens),
            "prompt_tokens": sum(tokens),
            "prompt_tokens_peak": max(tokens),
        }

    def _grade(self, reply: str, answers: Answers) -> Grade:
        return grade(reply, answers, metric=self.metric, answer_format=self.answer_format)

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts."""
        reading, state = self._reading, self.state
        turns, last = reading.turns, len(reading.chunks)
        if self.mode.appends:
            prompts = [self._prompt(reading, turn) for turn in range(turns)]
            counts = self.tokenizer.counts([*prompts, *state.memory.replies[:-1]])
            added = map(sum, zip(counts, [0, *counts[turns:]], strict=False))
            return list(accumulate(added))
        frames = [self._prompt(reading, turn, section="") for turn in range(last - 1, turns)]
        read, *counts = self.tokenizer.counts([*frames, *state.shown[:turns]])
        answers, memories = counts[: turns - last], counts[turns - last :]
        chunks = [read + chunk.tokens for chunk in reading.chunks]
        return [frame + memory for frame, memory in zip([*chunks, *answers], memories, strict=True)]

    def _task_id(self) -> str:
        return self._reading.task.id

    @property
    def answering(self) -> bool:
        """Whether every chunk has been read, so that the next reply is an answer."""
        return self.state.turn >= len(self._reading.chunks)


class NIAHEnv(ChunkQAEnv):
    r"""Read a haystack chunk by chunk with a written memory, then name its needles (RULER's NIAH).

    The haystack is a long text, read as in `MemChunkQA-v0`, in which a few sentences give values of keys. At
    the end the agent names the values that the question asks for. The rest of the text does not help, so
    what is tested is whether the memory keeps every needle from the turn that showed it to the end.

    Action:
        At each reading turn the whole reply becomes the memory, truncated at `max_memory` tokens. At the last
        turn the reply names the values in `\boxed{…}` or `<answer>…</answer>`. A thought at the start of a
        reply is dropped. The other memory modes are those of `MemChunkQA-v0`.

    Observation:
        Question, memory and chunk; at the end question and memory. The text is prose, noise or other needles,
        in which a few sentences give values of keys: "A special magic number for neat-signal is 2497959." The
        question asks for every value of one key or of several. The bundled tasks hide four keys in 16,384
        tokens of prose and ask for all four (`multiquery`); `memenvs build niah` makes every variant.

    Reward:
        `outcome`: the metric of the answer, at the last turn. For the bundled tasks it is `needle_exact`:
        (needles found - wrong words) / needles, at least 0. Half of the needles earn 0.5. A wrong word looks
        like a needle but is not one, so a list of guesses earns nothing.

    Privileged:
        - `answers`: one list, the values of the keys in the question.
        - `evidence`: the needles, whole sentences; `depths`: where each begins in the text, 0 to 1.
        - `evidence_in_chunk`: the needles, or parts of them, inside the chunk that is shown.
        - `chunk_span`: the characters of the observation that are this chunk, [start, end); None without one.
        - The scoring fields and those of memory modes, as in `MemChunkQA-v0`.

    Args:
        tasks: `"niah"`, or a folder made by `memenvs build niah`.
        **kwargs: those of `ChunkQAEnv`.

    Version:
        v0: first.
    """


class Reading(NamedTuple):
    """A task as it is read in one episode."""

    task: Task
    questions: list[tuple[str, Answers]]  # what is asked, one question per turn, with its accepted answers
    context: Context  # the text of its documents
    chunks: list[Chunk]  # slices of the context, one per reading turn
    evidence: list[int]  # positions of the evidence documents in reading order, from 0

    @property
    def turns(self) -> int:
        """Turns of reading and answering."""
        return len(self.chunks) + len(self.questions)

    def asked(self, turn: int) -> tuple[str, Answers]:
        """The question of turn `turn` and its accepted answers; of a turn that asks none, all together."""
        number = turn - len(self.chunks)
        if 0 <= number < len(self.questions):
            return self.questions[number]
        return self.task.question, self.task.answers

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


# A task's text may be long: the rollouts of its group share it.
@functools.lru_cache(maxsize=8)
def open_reading(
    reader: Reader,
    number: int,
    drawn: tuple[int, ...] | None,
    chunk_size: int,
    cut_at: str,
    together: bool,
) -> Reading:
    """A task as it is read, shared inside a process; `drawn` are its documents (None: all of the task's)."""
    task = reader.tasks[number]
    documents = task.documents if drawn is None else drawn
    context = reader.context(documents)
    questions: list[tuple[str, Answers]] = [(task.question, task.answers)]
    if not together:
        pairs = zip(task.questions, task.answers, strict=True)
        questions = [(question, [accepted]) for question, accepted in pairs]
    evidence = [documents.index(document) for document in task.evidence]
    return Reading(task, questions, context, context.chunks(chunk_size, cut_at), evidence)


def draw_documents(task: Task, count: int | None, rng: np.random.Generator) -> tuple[int, ...]:
    """`count` of the task's documents in their order, its evidence among them; all if None or too few.

    Places are drawn, not document numbers: a haystack may show one document many times, and the evidence is
    where it first is.
    """
    if count is None or count >= len(task.documents):
        return task.documents
    needed = [task.documents.index(document) for document in task.evidence]
    others = np.delete(np.arange(len(task.documents)), needed)
    drawn = rng.choice(others, count - len(needed), replace=False)
    return tuple(task.documents[place] for place in sorted([*needed, *drawn.tolist()]))
