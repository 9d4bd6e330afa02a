"""Reading in chunks: a turn shows one chunk and the agent's memory; the last one asks the question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memenvs.context import SPLITS, Chunk, Context, open_reader
from memenvs.envs.chunk_prompts import reading_templates
from memenvs.metrics import ANSWER_FORMATS, get_metric, wrap_answer
from memenvs.render import reading_turn
from memenvs.scoring import gold_answer, grade
from memenvs.tasks import Task, open_tasks
from memenvs.text_env import MAX_REPLY_CHARS, Episode, TextEnv
from memenvs.tokens import check_positive, load_tokenizer


@dataclass
class ReadingEpisode(Episode):
    """An episode of reading.

    Attributes:
        documents: document numbers in reading order.
        memories: what each reading turn left in the memory; the last one is the memory now.
        overflows: memories that were cut at `max_memory`.
        reply: the final reply.
    """

    documents: tuple[int, ...] = ()
    memories: list[str] = field(default_factory=lambda: [""])
    overflows: int = 0
    reply: str = ""


class Reading(NamedTuple):
    """What is derived from a task and its documents."""

    task: Task
    context: Context
    chunks: list[Chunk]
    evidence: list[int]  # positions in reading order


class ChunkQAEnv(TextEnv[str, ReadingEpisode]):
    r"""Read a long context chunk by chunk with a written memory, then answer (the MemAgent workflow).

    Action:
        At each of the K reading turns the whole reply becomes the memory, cut at `max_memory` tokens; at the
        answer turn the reply holds the answer as `\boxed{…}` or `<answer>…</answer>`.

    Observation:
        Question, memory and chunk; at the end question and memory. `info["context"]` is `"rewrite"`.

    Reward:
        `outcome`: the metric of the answer, at the last turn.

    End:
        `terminated` after K + 1 turns.

    Metrics:
        `success` (outcome 1.0), `em`, `f1`, `sub_em`, `format`, `memory_overflow` (memories cut), `turns`,
        `prompt_tokens` and `prompt_tokens_peak` (tokens of the observations, in all and of the longest).

    Privileged:
        `answers`; `evidence` (the evidence documents) and `depths` (where each begins, 0 to 1);
        `evidence_in_chunk` (their parts inside the chunk that is shown); and what reward methods ask a
        scorer about: `question`; `target`, the gold reply; `memory` as it stands;
        `prompt_with_memory` and `prompt_without_memory`, the answer prompt with that memory and an empty one;
        `prompt_with_history`, the same as the former: the turns before reach the agent in its memory only;
        `teacher_prompt`, this turn's prompt with the evidence inside the chunk in the chunk's place, and
        `teacher_prompt_global`, with all evidence there. At the answer turn both hold the answer prompt with
        all evidence behind the memory; after the end they are empty.

    Args:
        tasks: a bundled task set's name or a folder made by `python -m memenvs.build`.
        chunk_size: tokens of a chunk.
        max_memory: tokens of memory kept.
        max_answer: tokens of the final reply that count.
        tokenizer: `"world"`, a file, a folder or a Hugging Face id.
        split: `"token"`, or `"document"` to cut no document that fits a chunk.
        n_documents: read only so many documents of the task, its evidence among them, drawn at reset.
        template: `{"read": …, "answer": …}` with the places `{question}`, `{memory}` and (read) `{chunk}`;
            `{turn}`, `{turns}`, `{max_memory}` and `{format}` may be used. Own wording by default.
        answer_format: `"boxed"` or `"tag"`.
        metric: a name of `memenvs.metrics.METRICS`.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    context = "rewrite"
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
        tokenizer: str = "world",
        split: str = "token",
        n_documents: int | None = None,
        template: dict[str, str] | None = None,
        answer_format: str = "boxed",
        metric: str = "em",
        render_mode: str | None = None,
    ) -> None:
        for name, value in (
            ("chunk_size", chunk_size),
            ("max_memory", max_memory),
            ("max_answer", max_answer),
        ):
            check_positive(name, value, "tokens")
        _check_choice("split", split, SPLITS)
        _check_choice("answer_format", answer_format, ANSWER_FORMATS)
        get_metric(metric)
        self.tasks = open_tasks(tasks)
        self.tokenizer = load_tokenizer(tokenizer)
        self.chunk_size, self.max_memory, self.max_answer = chunk_size, max_memory, max_answer
        self.split, self.answer_format, self.metric = split, answer_format, metric
        self.n_documents = self._check_documents(n_documents)
        self._read, self._answer = reading_templates(template)
        self._reader = open_reader(self.tasks, self.tokenizer)
        counts = self.tasks.card.counts
        words = len(self._read.fill(question="", memory="", chunk="", **self._values(0, 0)))
        super().__init__(
            len(self.tasks),
            counts["max_chars"] + counts["max_question_chars"] + MAX_REPLY_CHARS + 2 * words,
            render_mode,
        )

    def gold_reply(self) -> str:
        """The answer, at a reading turn as the memory."""
        answer = gold_answer(self._reading.task.answers, self.metric)
        return wrap_answer(answer, self.answer_format) if self._answering else answer

    def render(self) -> str | None:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        episode, reading = self.episode, self._reading
        shown = episode.turn - (1 if episode.end else 0)
        chunk = reading.chunks[shown] if shown < len(reading.chunks) else None
        return reading_turn(
            title=f"task {reading.task.id}, turn {shown + 1} of {len(reading.chunks) + 1}",
            question=reading.task.question,
            memory=episode.memories[-1],
            chunk=reading.context.text[chunk.start : chunk.end] if chunk else None,
            evidence=[reading.context.inside(chunk, i) for i in reading.evidence] if chunk else [],
            reply=self._last_reply,
            rewards=self._last_rewards,
            end=episode.end,
        )

    def _begin(self, task: int) -> ReadingEpisode:
        chosen = self.tasks[task]
        episode = ReadingEpisode(task, documents=self._draw_documents(chosen))
        self._reading = self._read_task(chosen, episode.documents)
        return episode

    def _restored(self) -> None:
        self._reading = self._read_task(self.tasks[self.episode.task], self.episode.documents)

    def _observe(self) -> str:
        episode, reading = self.episode, self._reading
        if episode.end:
            return ""
        if self._answering:
            return self._answer_prompt(episode.memories[-1])
        chunk = reading.chunks[episode.turn]
        return self._read_prompt(reading.context.text[chunk.start : chunk.end])

    def _answer_prompt(self, memory: str) -> str:
        turns = len(self._reading.chunks)
        values = self._values(turns + 1, turns)
        return self._answer.fill(question=self._reading.task.question, memory=memory, **values)

    def _read_prompt(self, chunk: str) -> str:
        episode, reading = self.episode, self._reading
        values = self._values(episode.turn + 1, len(reading.chunks))
        return self._read.fill(
            question=reading.task.question, memory=episode.memories[-1], chunk=chunk, **values
        )

    def _play(self, reply: str) -> dict[str, float]:
        episode = self.episode
        if not self._answering:
            memory, cut = self.tokenizer.head(reply, self.max_memory)
            episode.memories.append(memory)
            episode.overflows += cut
            return {}
        episode.reply, _ = self.tokenizer.head(reply, self.max_answer)
        episode.end = "terminated"
        return {"outcome": self._grade().outcome}

    def _metrics(self) -> dict[str, float]:
        scores, tokens = self._grade(), self._prompt_tokens()
        return {
            "success": float(scores.outcome == 1.0),
            **{name: getattr(scores, name) for name in ("em", "f1", "sub_em", "format")},
            "memory_overflow": self.episode.overflows,
            "turns": len(tokens),
            "prompt_tokens": sum(tokens),
            "prompt_tokens_peak": max(tokens),
        }

    def _privileged(self) -> dict[str, Any]:
        reading, context = self._reading, self._reading.context
        inside: list[str] = []
        if not self._answering and not self.episode.end:
            chunk = reading.chunks[self.episode.turn]
            inside = [part for position in reading.evidence if (part := context.inside(chunk, position))]
        whole = Chunk(0, len(context.text), 0)
        evidence = [context.inside(whole, position) for position in reading.evidence]
        return {
            "answers": [list(accepted) for accepted in reading.task.answers],
            "evidence": evidence,
            "depths": [context.depth(position) for position in reading.evidence],
            "evidence_in_chunk": inside,
            **self._asked_of_scorers(evidence, inside),
        }

    def _asked_of_scorers(self, evidence: list[str], inside: list[str]) -> dict[str, str]:
        """What reward methods need; see the class, under Privileged."""
        task, memory = self._reading.task, self.episode.memories[-1]
        reminded = self._answer_prompt(memory)
        if self.episode.end:
            local = everything = ""
        elif self._answering:
            local = everything = self._answer_prompt("\n\n".join([memory, *evidence]))
        else:
            local, everything = (
                self._read_prompt("\n\n".join(inside)),
                self._read_prompt("\n\n".join(evidence)),
            )
        return {
            "question": task.question,
            "target": wrap_answer(gold_answer(task.answers, self.metric), self.answer_format),
            "memory": memory,
            "prompt_with_memory": reminded,
            "prompt_without_memory": self._answer_prompt(""),
            "prompt_with_history": reminded,
            "teacher_prompt": local,
            "teacher_prompt_global": everything,
        }

    def _task_id(self) -> str:
        return self._reading.task.id

    @property
    def _answering(self) -> bool:
        return self.episode.turn >= len(self._reading.chunks)

    def _grade(self) -> Any:
        return grade(
            self.episode.reply,
            self._reading.task.answers,
            metric=self.metric,
            answer_format=self.answer_format,
        )

    def _values(self, turn: int, turns: int) -> dict[str, object]:
        form = wrap_answer("…", self.answer_format)
        return {"turn": turn, "turns": turns, "max_memory": self.max_memory, "format": form}

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts."""
        reading, turns = self._reading, len(self._reading.chunks)
        values = self._values(turns, turns)
        frames = [
            self._read.fill(question=reading.task.question, memory="", chunk="", **values),
            self._answer.fill(question=reading.task.question, memory="", **values),
        ]
        read, answer, *memories = self.tokenizer.counts(frames + self.episode.memories)
        reads = [
            read + chunk.tokens + memory for chunk, memory in zip(reading.chunks, memories, strict=False)
        ]
        return [*reads, answer + memories[-1]]

    def _draw_documents(self, task: Task) -> tuple[int, ...]:
        if self.n_documents is None or self.n_documents >= len(task.documents):
            return task.documents
        needed = set(task.evidence)
        others = [document for document in task.documents if document not in needed]
        drawn = self.np_random.choice(len(others), self.n_documents - len(needed), replace=False)
        kept = needed | {others[i] for i in drawn}
        return tuple(document for document in task.documents if document in kept)

    def _read_task(self, task: Task, documents: tuple[int, ...]) -> Reading:
        context = self._reader.context(documents)
        positions = {document: position for position, document in enumerate(documents)}
        evidence = [positions[document] for document in task.evidence]
        return Reading(task, context, context.chunks(self.chunk_size, self.split), evidence)

    def _check_documents(self, n_documents: int | None) -> int | None:
        if n_documents is None:
            return None
        check_positive("n_documents", n_documents, "documents")
        if n_documents < (most := self.tasks.card.counts["max_evidence"]):
            raise ValueError(
                f"n_documents={n_documents} does not hold the {most} evidence documents of a task"
            )
        return n_documents


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
