"""Multi-turn question answering with a search engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from memenvs.core.checks import check_choice, check_whole
from memenvs.core.env import MAX_REPLY_CHARS, EpisodeState, Info, TextEnv
from memenvs.core.text import THOUGHTS, Tagged, replace_templates
from memenvs.envs.render import conversation_turn
from memenvs.envs.searching import (
    ASK,
    ASK_WITH_MEMORY,
    LAST,
    SHOWN,
    UNREADABLE,
    Move,
    Searching,
    check_turns,
    cut_passages,
    evidence_of,
    extents,
    harmless,
    holds_answer_by_part,
    information,
    open_retriever,
    passages_shown,
    read_reply,
    several,
    show_passages,
)
from memenvs.tasks.grading import Grade, gold_answer, grade_answer
from memenvs.tasks.metrics import Objectives, get_metric, multi_objective, wrap_answer
from memenvs.tasks.taskset import Task, identity_of, open_questions, own_metric
from memenvs.tasks.tokens import TextTokenizer, load_tokenizer

NOTHING = {"searched": 0.0, "retrieved": 0.0, "retrieved_new": 0.0, "well_formed": 0.0}


@dataclass
class SearchEpisode(EpisodeState):
    """An episode of searching.

    Attributes:
        memory: what was kept of the last `<mem>`.
        memory_span: where the last reply wrote it, [start, end) in characters; None if it wrote none.
        behind_memory: the last reply without its `<mem>…</mem>`.
        overflows: memories that were cut at `max_memory`.
        history: each turn's reply and what came back.
        prompts: each observation so far; with `"append"` the first alone, which the others begin with.
        answer: the answer given; None without one.
        searches: searches run.
        retrieved: whether any search found an accepted answer in its passages.
        found: contents of the passages in which one has been shown.
        well_formed: replies that were.
        events: of the last turn, 1.0 or 0.0: `searched`, `retrieved`, `retrieved_new`, `well_formed`.
    """

    memory: str = ""
    memory_span: tuple[int, int] | None = None
    behind_memory: str = ""
    overflows: int = 0
    history: list[tuple[str, str]] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    answer: str | None = None
    searches: int = 0
    retrieved: bool = False
    found: list[str] = field(default_factory=list)
    well_formed: int = 0
    events: dict[str, float] = field(default_factory=dict)

    def record(self, move: Move, passages: Sequence[str] | None, shown: str, task: Task) -> None:
        """Keep what a reply did.

        Args:
            move: the reply.
            passages: contents that a search brought; None where none was run.
            shown: what the agent reads of them.
            task: that is played.
        """
        searched, brought = passages is not None, passages or []
        retrieved, each = holds_answer_by_part(passages_shown(brought, shown), task.answers)
        new = [
            contents
            for contents, holds in zip(brought, each, strict=True)
            if holds and contents not in self.found
        ]
        self.found += new
        self.searches += searched
        self.retrieved |= retrieved
        self.well_formed += move.well_formed
        self.events = {
            "searched": float(searched),
            "retrieved": float(retrieved),
            "retrieved_new": float(bool(new)),
            "well_formed": float(move.well_formed),
        }

    def remember(self, reply: str, written: Tagged | None, tokenizer: TextTokenizer, max_memory: int) -> None:
        """Keep at most `max_memory` tokens of what the `<mem>` of a reply says; nothing without one."""
        if written is None:
            self.memory, self.memory_span, self.behind_memory = "", None, reply
            return
        self.behind_memory = reply[: written.start] + reply[written.end :]
        self.memory, cut = tokenizer.head(written.text.strip(), max_memory)
        self.overflows += cut
        start = written.start + len("<mem>")
        kept = len(written.text) - len(written.text.lstrip()) + len(self.memory)
        self.memory_span = (start, start + (kept if cut else len(written.text)))

    def metrics(self, task: Task, grade: Grade, prompt_tokens: list[int]) -> dict[str, float]:
        """The metrics of the ended episode; see `SearchQAEnv`.

        Args:
            task: that was played.
            grade: of the answer.
            prompt_tokens: tokens of each observation.
        """
        sums = Objectives(0.0, 0.0, True)
        if self.answer is not None:
            given = wrap_answer(self.answer, "tag")
            sums = multi_objective(given, [list(accepted) for accepted in task.answers])
        return {
            "success": float(grade.outcome == 1.0),
            **{name: getattr(grade, name) for name in ("em", "f1", "sub_em")},
            "em_sum": sums.em,
            "f1_sum": sums.f1,
            "format": float(self.answer is not None and self.well_formed == len(self.history)),
            "format_share": self.well_formed / len(self.history),
            "memory_overflow": self.overflows,
            "searches": self.searches,
            "retrieved": self.retrieved,
            "turns": len(self.history),
            "prompt_tokens": sum(prompt_tokens),
            "prompt_tokens_peak": max(prompt_tokens),
        }


class SearchPrompts:
    """The prompts of a searching agent.

    Args:
        template: `{"ask": …}` instead of our own, or None.
        max_turns: turns in which a search is run, which the prompt tells.
        last_turn: turns in all.
        keep_turns: what a prompt with a memory repeats; None for an agent without one, whose prompt grows.
        max_memory: tokens of a memory, which the prompt tells.
    """

    def __init__(
        self,
        template: dict[str, str] | None,
        max_turns: int,
        last_turn: int,
        keep_turns: int | Literal["all"] | None,
        max_memory: int,
    ) -> None:
        own = ASK if keep_turns is None else ASK_WITH_MEMORY
        self._ask = replace_templates({"ask": own}, template)["ask"]
        self._last_turn, self._keep_turns = last_turn, keep_turns
        self._fixed = {
            "searches": str(max_turns),
            "shown": SHOWN[keep_turns or 1],
            "max_memory": str(max_memory),
        }

    def prompt(self, task: Task, episode: SearchEpisode, evidence: str = "") -> str:
        """What the agent reads next; with a memory nothing once the episode has ended.

        `evidence` is what a teacher reads behind the turns.
        """
        if self._keep_turns is None:
            return self._fill(task) + "".join(reply + came for reply, came in episode.history) + evidence
        if episode.end:
            return ""
        recent = episode.history if self._keep_turns == "all" else episode.history[-int(self._keep_turns) :]
        shown = "".join(reply + came for reply, came in recent[:-1])
        if recent:  # the memory of the last reply stands above already
            shown += episode.behind_memory + recent[-1][1]
        left = self._last_turn - len(episode.history)
        return self._fill(task, memory=episode.memory, recent=shown + evidence, turns=left)

    def longest(self, turn: int, question: int, objectives: int) -> int:
        """Characters of the longest prompt.

        Args:
            turn: most characters of a turn, reply and what came back.
            question: most characters of a question.
            objectives: most objectives of a task.
        """
        history = (self._last_turn + 1) * turn
        frame = self._ask.longest(
            question=question,
            several=len(several(objectives)),
            turns=len(str(self._last_turn)),
            **{place: len(text) for place, text in self._fixed.items()},
            memory=turn,
            recent=history,
        )
        return frame + (history if self._keep_turns is None else 0)

    def scoring_fields(self, task: Task, episode: SearchEpisode, reply: str, evidence: str) -> dict[str, Any]:
        """The scoring fields of an agent with a memory but question and targets; see `SearchQAEnv`.

        Args:
            task: that is played.
            episode: as it stands.
            reply: the last one.
            evidence: what a teacher reads behind the turns.
        """
        turns = self._last_turn  # one number of turns, so that prompts share a prefix
        past = "".join(reply + came for reply, came in episode.history)
        teacher = self.prompt(task, episode, evidence)
        return {
            "memory": episode.memory,
            "memory_span": episode.memory_span and list(episode.memory_span),
            "prompt_with_memory": self._fill(task, memory=episode.memory, recent="", turns=turns),
            "prompt_without_memory": self._fill(task, memory="", recent="", turns=turns),
            "prompt_with_history": self._fill(task, memory="", recent=past, turns=turns),
            "reply": reply if episode.end else "",
            "teacher_prompt": teacher,
            "teacher_prompt_global": teacher,
        }

    def _fill(self, task: Task, **values: object) -> str:
        return self._ask.fill(
            question=task.question,
            several=several(len(task.answers)),
            **self._fixed,
            **values,
        )


KEEP = (1, 3, "all")


class SearchQAEnv(Searching, TextEnv[str, SearchEpisode]):
    """Answer a question by searching over many turns (Search-R1; MT-PPO section 5; MemPO).

    Action:
        `<think>…</think><search>query</search>` or `<think>…</think><answer>text</answer>`. A reply ends at
        its first `</search>`, else at its first `</answer>`; the first complete pair decides. With
        `memory_mode="memory"` every reply opens with `<mem>…</mem>`; the thought of a thinking model may
        stand before it, and nothing inside that counts: neither a memory nor a query nor an answer.

    Observation:
        `memory_mode="append"`: the question, then every reply and what came back: passages as
        `<information>Doc 1(Title: …) …</information>`, at most `max_information` tokens of them.
        `memory_mode="memory"`: the question, the memory the agent wrote, and its last `keep_turns` turns: the
        whole reply (the memory of the last one stands above it) and what came back; a fresh prompt each time
        (`info["context"]` is `"rewrite"`).

    Reward:
        `outcome`: the metric of the answer, at the turn that gives it.

    End:
        `terminated` by an answer; `truncated` after `max_turns` turns, and with `final_answer_turn` after one
        more, in which a search is not run.

    Info:
        `events` of this turn: `searched`, `retrieved` (an accepted answer stands in the passages),
        `retrieved_new` (in one that no earlier search of the episode has shown), `well_formed`, and
        `searches` so far, all floats.

    Metrics:
        `success` (outcome 1.0), `em`, `f1`, `sub_em` (means over objectives), `em_sum`, `f1_sum` (sums, by
        MEM1's rules), `format` (1.0 if every reply was well formed and the last one an answer, MT-PPO D.1.2),
        `format_share` (share of well-formed replies), `memory_overflow` (memories cut), `searches`,
        `retrieved`, `turns`, `prompt_tokens`, `prompt_tokens_peak`.

    Privileged:
        `answers`; `evidence`: the documents the answer needs, where the task set knows them; and the scoring
        fields (see `TextEnv`). A teacher reads the evidence as passages that a search has just brought. With
        `memory_mode="memory"` `prompt_with_memory` and `prompt_without_memory` hold no passages, and
        `prompt_with_history` an empty memory and every turn so far in full.

    Args:
        tasks: a bundled set's name, a task-set folder, or JSON Lines of `question` and `answers`.
        retriever: `"lexical:FILE"`, `"dense:INDEX_DIR"` or `"http://host:port"`; None searches the task set's
            own documents by BM25.
        k: passages a search.
        max_turns: turns in which a search is run; by default 4, and 16 with `memory_mode="memory"`.
        final_answer_turn: allow one more turn, for an answer only (the papers' code does).
        max_information: tokens of passages a search.
        max_answer: tokens of the answer that count, for each of the task's questions: a list of all that it
            might be is cut.
        memory_mode: `"append"`: no memory, the prompt grows; `"memory"`: a memory and a fresh prompt a turn.
        keep_turns: 1, 3 or `"all"`: turns that a `"memory"` prompt repeats; no matter otherwise.
        max_memory: tokens of `<mem>` kept; of a longer one the beginning.
        thoughts: which thought may stand before `<mem>`: `"strip"`, `"opened"` or `"keep"` (none may), as for
            `ChunkQAEnv`; no matter without a memory, where Search-R1 reads tags inside thoughts too.
        template: `{"ask": …}` with the places `{question}` and, for `"memory"`, `{memory}` and `{recent}`;
            `{several}` (how to give several answers) may be used; without a memory `{searches}` too, with
            one `{turns}` (turns left), `{shown}` (what is repeated), `{max_memory}`. Own wording by default.
        tokenizer: `"world"`, a file, a folder or a Hugging Face id.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's own, `em` for JSON Lines.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    episode_class = SearchEpisode
    unhashed = ("render_mode", "tasks")
    metric_names = (
        *("success", "em", "f1", "sub_em", "em_sum", "f1_sum", "format", "format_share"),
        *("memory_overflow", "searches", "retrieved", "turns", "prompt_tokens", "prompt_tokens_peak"),
    )

    def __init__(
        self,
        tasks: str = "world-train",
        retriever: str | None = None,
        k: int = 3,
        max_turns: int | None = None,
        final_answer_turn: bool = True,
        max_information: int = 500,
        max_answer: int = 64,
        memory_mode: str = "append",
        keep_turns: int | Literal["all"] = 1,
        max_memory: int = 1024,
        thoughts: str = "strip",
        template: dict[str, str] | None = None,
        tokenizer: str = "world",
        metric: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        max_turns = (16 if memory_mode == "memory" else 4) if max_turns is None else max_turns
        check_whole(k=k, max_turns=max_turns, max_information=max_information)
        check_whole(max_answer=max_answer, max_memory=max_memory)
        check_choice("memory_mode", memory_mode, ("append", "memory"))
        if keep_turns not in KEEP or isinstance(keep_turns, (bool, float)):
            raise ValueError(f"keep_turns must be 1, 3 or 'all', got {keep_turns!r}")
        check_choice("thoughts", thoughts, THOUGHTS)
        self.questions = open_questions(tasks)
        self.metric = own_metric(self.questions) if metric is None else metric
        get_metric(self.metric)
        self.retriever = open_retriever(retriever, self.questions, tasks)
        self.tokenizer = load_tokenizer(tokenizer)
        self.k, self.max_information, self.max_answer = k, max_information, max_answer
        self.max_turns, self.last_turn = max_turns, max_turns + bool(final_answer_turn)
        self.remembers, self.keep_turns = memory_mode == "memory", keep_turns
        self.context = "rewrite" if self.remembers else "append"
        self.max_memory, self.thoughts = max_memory, thoughts
        self._prompts = SearchPrompts(
            template, max_turns, self.last_turn, keep_turns if self.remembers else None, max_memory
        )
        turn_chars = 2 * MAX_REPLY_CHARS + 64 * max_information
        longest = self._prompts.longest(turn_chars, *extents(self.questions))
        super().__init__(len(self.questions), longest, render_mode)

    def query_of(self, reply: str) -> str | None:
        """See `Searching`."""
        move = self._read(reply)
        return move.content if move.kind == "search" and self._searching else None

    def gold_reply(self) -> str:
        """The answer at once, in the form asked for."""
        answer = wrap_answer(gold_answer(self._task.answers, self.metric), "tag")
        return ("<mem></mem>" if self.remembers else "") + f"<think></think>{answer}"

    def render(self) -> Any:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        episode = self.episode
        return conversation_turn(
            title=f"task {self._task.id}, {episode.turn} of {self.last_turn} turns played",
            question=self._task.question,
            reply=self._last.reply,
            rewards=self._last.rewards,
            came=episode.history[-1][1] if episode.history else "",
            end=episode.end,
        )

    def _begin(self, task: int) -> SearchEpisode:
        self._open(task)
        episode = SearchEpisode(task)
        episode.prompts.append(self._prompts.prompt(self._task, episode))
        return episode

    def task_set(self) -> tuple[str, str]:
        """The questions' name and hash."""
        return identity_of(self.questions)

    def _restored(self) -> None:
        episode = self.episode
        check_turns(episode, episode.history, self.last_turn)
        prompts = episode.turn + (not episode.end) if self.remembers else 1
        if len(episode.prompts) != prompts:
            raise ValueError(f"the state's episode cannot be: it has {len(episode.prompts)} prompts")
        self._open(episode.task)

    def _open(self, task: int) -> None:
        self._task = self.questions[task]
        self._evidence = evidence_of(self.questions, self._task)

    def _observe(self) -> str:
        episode = self.episode
        known = self.remembers and not episode.end
        return episode.prompts[-1] if known else self._prompts.prompt(self._task, episode)

    def _feedback(self) -> str:
        return self.episode.history[-1][1]

    def _play(self, reply: str) -> dict[str, float]:
        episode, move = self.episode, self._read(reply)
        played = len(episode.history) + 1
        # The one thing that can fail comes first: a retriever that is away leaves the episode as it was.
        passages = self.find(move.content) if move.kind == "search" and self._searching else None
        shown = cut_passages(passages or [], self.tokenizer, self.max_information)
        episode.record(move, passages, shown, self._task)
        if self.remembers:
            episode.remember(reply, move.memory, self.tokenizer, self.max_memory)
        if move.kind == "answer":
            limit = self.max_answer * len(self._task.answers)
            episode.answer, _ = self.tokenizer.head(harmless(move.content), limit)
            episode.end = "terminated"
        elif played >= self.last_turn:
            episode.end = "truncated"
        came = "" if move.kind == "answer" else information(shown) if move.kind else UNREADABLE
        if not episode.end and played >= self.max_turns:
            came += LAST
        episode.history.append((reply, came))
        if self.remembers and not episode.end:
            episode.prompts.append(self._prompts.prompt(self._task, episode))
        return {"outcome": self._grade().outcome} if episode.end == "terminated" else {}

    def _read(self, reply: str) -> Move:
        return read_reply(reply, memory=self.remembers, thoughts=self.thoughts)

    @property
    def _searching(self) -> bool:
        return len(self.episode.history) < self.max_turns

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts, all at once at the end."""
        episode = self.episode
        if self.remembers:
            return self.tokenizer.counts(episode.prompts)
        first, *turns = self.tokenizer.counts(
            [episode.prompts[0], *(reply + came for reply, came in episode.history)]
        )
        return list(accumulate(turns[:-1], initial=first))

    def _grade(self) -> Grade:
        return grade_answer(self.episode.answer, self._task.answers, metric=self.metric)

    def _metrics(self) -> dict[str, float]:
        return self.episode.metrics(self._task, self._grade(), self._prompt_tokens())

    def _privileged(self) -> dict[str, Any]:
        answers = [list(accepted) for accepted in self._task.answers]
        target = gold_answer(self._task.answers, self.metric)
        found = information(show_passages(self._evidence).strip()) if self._evidence else ""
        if self.remembers:
            fields = self._prompts.scoring_fields(self._task, self.episode, self._last.reply or "", found)
        else:
            fields = self._appended_fields(self.episode.prompts[0], self._observe(), found)
        return {
            "answers": answers,
            "evidence": list(self._evidence),
            "question": self._task.question,
            "target": target,
            "target_wrapped": wrap_answer(target, "tag"),
            **fields,
        }

    def _task_id(self) -> str:
        return self._task.id

    def _info(self, rewards: dict[str, float]) -> Info:
        happened = {**NOTHING, **self.episode.events}
        return {**super()._info(rewards), "events": {**happened, "searches": float(self.episode.searches)}}
