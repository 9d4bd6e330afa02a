"""Multi-turn question answering with a search engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from memenvs.core.data import Count, checked
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.text import Tagged, Template, Thoughts, first_pair, replace_templates, thought_end
from memenvs.envs.memory import (
    MAX_NOTICE,
    MODES,
    RECALLED,
    Memory,
    MemoryMode,
    ModeName,
    Written,
    thought_inside,
)
from memenvs.envs.search_forms import FORMS
from memenvs.envs.searching import (
    Move,
    SearchForm,
    SearchingEnv,
    SearchingEpisode,
    holds_answer,
    holds_known_tag,
    joined,
    several,
)
from memenvs.tasks.metrics import Objectives, multi_objective, wrap_answer
from memenvs.tasks.taskset import Task, open_questions, tokenizer_of

ASK_WITH_MEMORY = Template(
    """\
Answer the question with the help of a search engine. Of the earlier turns you see {shown}. {rule} Then \
either search with <search>query</search>, or, when you know the answer, give it as short as possible inside \
<answer>…</answer>{several}. You have {turns} turns left.

Question: {question}

<mem>
{memory}
</mem>
{recalled}{notice}{recent}""",
    required=("question", "memory", "recent"),
    optional=("turns", "several", "shown", "rule", "recalled", "notice", "max_memory"),
    name="ask",
)

IN_MEM = "Open every reply with <mem>…</mem>. {rule} Then think inside <think>…</think>."
"""How a prompt asks for a memory that is not a thought."""

SHOWN: dict[Literal[1, 3, "all"], str] = {
    1: "your own memory and your last turn, nothing else",
    3: "your own memory and your last 3 turns, nothing else",
    "all": "your own memory and every turn",
}
"""What a prompt with a memory says that it repeats, by `keep_turns`."""

LAST = "No searches are left: answer now.\n\n"


@dataclass
class SearchEpisode(SearchingEpisode):
    """An episode of searching.

    Attributes:
        memory: the memory now.
        shown: the memory as the prompt shows it.
        memory_span: where the last reply wrote to it, [start, end) in characters; None if it wrote nothing.
        written: the text at `memory_span`.
        behind_memory: the last reply without its `<mem>…</mem>`.
        overflows: memories that were cut at `max_memory`.
        prompts: each observation so far; with `"react"` only the first, which the others begin with.
        searches: searches run.
        found: contents of the passages in which an accepted answer has been shown.
        well_formed: replies that were.
    """

    memory: Memory = field(default_factory=Memory)
    shown: str = ""
    memory_span: tuple[int, int] | None = None
    written: str = ""
    behind_memory: str = ""
    overflows: int = 0
    prompts: list[str] = field(default_factory=list)
    searches: int = 0
    found: list[str] = field(default_factory=list)
    well_formed: int = 0


class WholeMemory(MemoryMode):
    """MemPO: the memory is the inside of `<mem>`; a reply without one empties it.

    Space around the memory is credited with it, except what follows one that is cut.
    """

    rule = "Write in it all you have learned so far and what you still need to find, in up to {limit} tokens."

    def missing(self, memory: Memory) -> None:
        """Forget everything."""
        memory.text = ""

    def write_block(self, memory: Memory, text: str) -> Written:
        """See `MemoryMode.write_block`."""
        span, cut = super().write_block(memory, text)
        return Written((0, span[1] if span and cut else len(text)), cut)


SEARCH_MODES: dict[str, type[MemoryMode]] = {**MODES, "rewrite": WholeMemory}


class SearchQAEnv(SearchingEnv[SearchEpisode]):
    """Answer a question by searching over many turns (Search-R1; MT-PPO section 5; MemPO).

    Action:
        `<think>…</think><search>query</search>` or `<think>…</think><answer>text</answer>`. A reply ends at
        its first `</search>`, otherwise at its first `</answer>`; the first complete pair decides. With
        `memory_mode="rewrite"` every reply opens with `<mem>…</mem>`; the thought of a thinking model may
        come before it, and nothing inside that counts: neither a memory nor a query nor an answer. In the
        other modes with a memory the content of `<mem>` changes it by their rules; a reply without one, or
        that breaks them, leaves the memory as it was, and the next prompt says why.

    Observation:
        `memory_mode="react"`: the question, then every reply and what came back: passages as
        `<information>Doc 1(Title: …) …</information>`, at most `max_information` tokens of them.
        `memory_mode="rewrite"`: the question, the memory the agent wrote, and its last `keep_turns` turns:
        whole replies (the memory of the last one is above it) and what came back; a fresh prompt each time
        (`info["context"]` is `"rewrite"`).

    Reward:
        `outcome`: the metric of the answer, at the turn that gives it.

    End:
        `terminated` by an answer; `truncated` after `max_turns` turns, and with `final_answer_turn` after one
        more, in which a search is not run.

    Info:
        `events` of this turn: `searched`, `retrieved` (the passages contain an accepted answer),
        `retrieved_new` (in one that no earlier search of the episode has shown), `well_formed`, and
        `searches` so far, all floats.

    Metrics:
        `success` (outcome 1.0), `em`, `f1`, `sub_em` (means over objectives), `em_sum`, `f1_sum` (sums, by
        MEM1's rules), `format` (1.0 if every reply was well formed and the last one an answer, MT-PPO D.1.2;
        with another `form` by its own rule), `format_share` (share of well-formed replies),
        `memory_overflow` (memories cut), `searches`, `retrieved`, `turns`, `prompt_tokens`,
        `prompt_tokens_peak`.

    Privileged:
        `answers`; `evidence`: the documents the answer needs, where the task set knows them; `sentences`:
        those of them that it marks; `passages`: the passages of the last turn that are shown at least in
        part, each in full; and the scoring fields (see `TextEnv`). A teacher reads the evidence as passages
        that a search has just brought. With
        `memory_mode="rewrite"` `prompt_with_memory` and `prompt_without_memory` hold no passages, and
        `prompt_with_history` an empty memory and every turn so far in full; so it is in the other modes with
        a memory, where `written` is what the last reply wrote of it and `recalled` what was called back.

    Args:
        tasks: a bundled set's name, a task-set folder, or JSON Lines of `question` and `answers`.
        retriever: `"lexical:FILE"`, `"dense:INDEX_DIR"` or `"http://host:port"`; None searches the task set's
            own documents by BM25.
        k: passages a search.
        max_turns: turns in which a search is run; by default 4, and 16 with a memory.
        final_answer_turn: allow one more turn, for an answer only (the papers' code does).
        max_information: tokens of passages a search.
        memory_mode: `"react"` (ReAct): no memory, the prompt grows. `"rewrite"` (MemPO): every reply rewrites
            the memory, and each turn has a fresh prompt, as with `"callback"`, `"mem1"` (the thought that
            opens a reply is the memory; there is no `<mem>`), `"structured"` and `"a_mem"`; see `ChunkQAEnv`.
        keep_turns: 1, 3 or `"all"`: turns that a prompt with a memory repeats; no matter otherwise.
        max_memory: tokens of memory kept; of a longer one the beginning.
        thoughts: which thought may come before `<mem>`: `"strip"`, `"opened"` or `"keep"` (none may), as for
            `ChunkQAEnv`; no matter without a memory, where Search-R1 reads tags inside thoughts too.
        form: of calls and answers: `"search_r1"`, or, without a memory, `"research"` (ReSearch: what is found
            is in `<result>`, the answer in a box inside `<answer>`) or `"deep_researcher"`
            (DeepResearcher: a JSON call with a list of queries inside `<tool_call>`); see
            `memenvs.envs.search_forms`.
        template: `{"ask": …}` with the places `{question}` and, with a memory `{memory}` and `{recent}`;
            `{several}` (how to give several answers) may be used; without a memory `{searches}` too, with
            one `{turns}` (turns left), `{shown}` (what is repeated), `{max_memory}`. Own wording by default.
        tokenizer: counts tokens: `"general"`, `"world"`, a file, a folder or a Hugging Face id; None: the one
            that the task set was built with.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's own, `em` for JSON Lines.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    episode_class = SearchEpisode
    event_names = ("searched", "retrieved", "retrieved_new", "well_formed", "searches")
    metric_names = (
        *("success", "em", "f1", "sub_em", "em_sum", "f1_sum", "format", "format_share"),
        *("memory_overflow", "searches", "retrieved", "turns", "prompt_tokens", "prompt_tokens_peak"),
    )

    @checked
    def __init__(
        self,
        tasks: str = "world-train",
        retriever: str | None = None,
        k: Count = 3,
        max_turns: Count | None = None,
        final_answer_turn: bool = True,
        max_information: Count = 500,
        memory_mode: ModeName = "react",
        keep_turns: Literal[1, 3, "all"] = 1,
        max_memory: Count = 1024,
        thoughts: Thoughts = "strip",
        form: Literal["search_r1", "research", "deep_researcher"] = "search_r1",
        template: dict[str, str] | None = None,
        tokenizer: str | None = None,
        metric: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        appends = SEARCH_MODES[memory_mode].appends
        max_turns = max_turns or (4 if appends else 16)
        if not appends and form != "search_r1":
            raise ValueError(f"form {form!r} has no place for a memory; use memory_mode='react'")
        self.form: SearchForm = FORMS[form]
        self.max_turns, self.last_turn = max_turns, max_turns + bool(final_answer_turn)
        self.max_information, self.max_memory = max_information, max_memory
        self.keep_turns, self.thoughts = keep_turns, thoughts
        self.context = "append" if appends else "rewrite"
        self.memory_mode = memory_mode
        counter = tokenizer_of(open_questions(tasks), tokenizer)
        self.mode = SEARCH_MODES[memory_mode](counter, max_memory, thoughts)
        rule = self.mode.rule.format(text="Its content", limit=max_memory)
        self._fixed = {
            "searches": str(max_turns),
            "shown": SHOWN[keep_turns],
            "max_memory": str(max_memory),
            "rule": rule if self.mode.in_thought else IN_MEM.format(rule=rule),
        }
        in_mem = not appends and not self.mode.in_thought
        self.opening = "<mem></mem><think></think>" if in_mem else "<think></think>"
        own = {"ask": self.form.ask if appends else ASK_WITH_MEMORY}
        self._ask = replace_templates(own, template)["ask"]
        super().__init__(tasks, retriever, k, tokenizer, metric, render_mode)

    def queries_of(self, reply: str) -> Sequence[str]:
        """The queries that `step(reply)` will run now."""
        return self._read_move(reply).queries if self._may_search else ()

    def call(self, query: str) -> str:
        """The part of a reply that searches for a query."""
        return self.form.call(query)

    def choices(self, answers: Sequence[str]) -> list[str]:
        """Replies that give each answer, and that search for the question alone and with each answer."""
        question = self._task.question
        queries = [question, *(f"{question} {answer}" for answer in answers)]
        replies = [*map(self.form.answer, answers), *map(self.form.call, queries)]
        return [self.opening + reply for reply in replies]

    def answer(self, text: str) -> str:
        """The part of a reply that answers."""
        return self.form.answer(text)

    def _begin(self, task: int) -> SearchEpisode:
        self._set_task(task)
        episode = SearchEpisode(task)
        episode.prompts.append(self._prompt(episode))
        return episode

    # The prompts.

    def _observe(self) -> str:
        episode = self.episode
        if self.mode.appends:
            return episode.prompts[0] + joined(episode.history)
        return "" if episode.end else episode.prompts[-1]

    def _prompt(self, episode: SearchEpisode) -> str:
        """What the agent reads next, where the context is rewritten or at the first turn."""
        recent, left = self._recent(episode), self.last_turn - len(episode.history)
        return self._fill(self._task, **self._places(episode), recent=recent, turns=left)

    def _recent(self, episode: SearchEpisode) -> str:
        """The turns that a prompt with a memory repeats; the memory of the last reply is above them."""
        recent = episode.history if self.keep_turns == "all" else episode.history[-int(self.keep_turns) :]
        return joined(recent[:-1]) + (episode.behind_memory + recent[-1][1] if recent else "")

    def _places(self, episode: SearchEpisode) -> dict[str, str]:
        """What a prompt shows of the memory."""
        recalled, notice = episode.memory.recalled, episode.memory.notice
        return {
            "memory": episode.shown,
            "recalled": RECALLED.format(recalled) if recalled else "",
            "notice": f"\n{notice}\n" if notice else "",
        }

    def _fill(self, task: Task, **values: object) -> str:
        return self._ask.fill(
            question=task.question, several=several(len(task.answers)), **self._fixed, **values
        )

    def _longest(self, question: int, objectives: int) -> int:
        turn = 2 * MAX_REPLY_CHARS + 64 * self.max_information  # a reply and its feedback
        history = (self.last_turn + 1) * turn
        frame = self._ask.longest(
            question=question,
            several=len(several(objectives)),
            turns=len(str(self.last_turn)),
            **{place: len(text) for place, text in self._fixed.items()},
            memory=turn,
            recalled=turn,
            notice=MAX_NOTICE + 2,
            recent=history,
        )
        return frame + (history if self.mode.appends else 0)

    def _scoring_prompts(self) -> dict[str, Any]:
        episode, task = self.episode, self._task
        turns = self.last_turn  # one number of turns, so that prompts share a prefix
        passages = self.form.show(self._passages) if self._passages else ""
        if self.mode.appends:
            return self._appended_fields(episode.prompts[0], self._observe(), passages)
        places, recent = self._places(episode), self._recent(episode)
        history, left = tuple(episode.history), turns - len(episode.history)
        blank = {"memory": "", "recalled": "", "notice": "", "recent": ""}
        fields = self._rewritten_fields(
            episode.shown,
            lambda: self._fill(task, **places, recent="", turns=turns),
            lambda: self._fill(task, **blank, turns=turns),
            lambda: self._fill(task, **places, recent=recent + passages, turns=left),
        )
        fields |= {
            "memory_span": episode.memory_span and list(episode.memory_span),
            "prompt_with_history": lambda: self._fill(
                task, **{**blank, "recent": joined(history)}, turns=turns
            ),
        }
        if self.memory_mode != "rewrite":
            fields |= {"written": episode.written, "recalled": episode.memory.recalled}
        return fields

    # The rules.

    def _play(self, reply: str) -> dict[str, float]:
        episode, move = self.episode, self._read_move(reply)
        played = len(episode.history) + 1
        # The one thing that can fail comes first: an unreachable retriever leaves the episode as it was.
        searched = bool(move.queries) and self._may_search
        passages = self.find(*move.queries) if searched else []
        shown, parts = self._show_passages(passages, self.max_information)
        retrieved, each = holds_answer(parts, self._task.answers)
        new = [
            text for text, holds in zip(passages, each, strict=True) if holds and text not in episode.found
        ]
        episode.found += new
        episode.searches += searched
        episode.retrieved |= retrieved
        episode.well_formed += move.well_formed
        events = (searched, retrieved, bool(new), move.well_formed, episode.searches)
        episode.events = dict(zip(self.event_names, map(float, events), strict=True))
        if not self.mode.appends:
            self._change_memory(reply, move)
        if move.kind == "answer":
            self._give_answer(move.content)
        elif played >= self.last_turn:
            episode.end = "truncated"
        feedback = self.form.show(shown) if move.kind else f"\n{self.form.hint}\n"
        if move.kind == "answer":
            feedback = ""
        if not episode.end and played >= self.max_turns:
            feedback += LAST
        episode.history.append((reply, feedback))
        if not self.mode.appends and not episode.end:
            episode.prompts.append(self._prompt(episode))
        return {"outcome": self._grade().outcome} if episode.end == "terminated" else {}

    def _read_move(self, reply: str) -> Move:
        if self.mode.appends:
            return self.form.read(reply)
        return read_reply(reply, memory=True, thoughts=self.thoughts, in_thought=self.mode.in_thought)

    @property
    def _may_search(self) -> bool:
        return len(self.episode.history) < self.max_turns

    def _change_memory(self, reply: str, move: Move) -> None:
        """Change the memory by what a reply writes to it."""
        episode, mode, block = self.episode, self.mode, move.memory
        memory = episode.memory
        memory.recalled = memory.notice = episode.written = ""
        episode.memory_span, episode.behind_memory = None, reply
        if block is None:
            mode.missing(memory)
        else:
            episode.behind_memory = reply[: block.start] + reply[block.end :]
            closing = "</think>" if mode.in_thought else "</mem>"
            start = block.end - len(closing) - len(block.text)
            done = mode.write_block(memory, block.text).shift(start)
            episode.memory_span, episode.overflows = done.span, episode.overflows + done.cut
            episode.written = reply[slice(*done.span)] if done.span else ""
        asked = move.content if move.kind == "search" else ""
        episode.shown = mode.show(memory, f"{self._task.question} {asked}")

    def _metrics(self) -> dict[str, float]:
        episode, scores, tokens = self.episode, self._grade(), self._prompt_tokens()
        turns = len(episode.history)
        sums = Objectives(0.0, 0.0, True)
        if episode.answer is not None:
            given = wrap_answer(episode.answer, "tag")
            sums = multi_objective(given, [list(accepted) for accepted in self._task.answers])
        return {
            "success": float(scores.outcome == 1.0),
            **{name: getattr(scores, name) for name in ("em", "f1", "sub_em")},
            "em_sum": sums.em,
            "f1_sum": sums.f1,
            "format": float(episode.answer is not None and self._proper()),
            "format_share": episode.well_formed / turns,
            "memory_overflow": episode.overflows,
            "searches": episode.searches,
            "retrieved": episode.retrieved,
            "turns": turns,
            "prompt_tokens": sum(tokens),
            "prompt_tokens_peak": max(tokens),
        }

    def _proper(self) -> bool:
        """Whether an episode that was answered is in form."""
        history = self.episode.history
        return self.form.proper([self._read_move(reply) for reply, _ in history], joined(history))

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts, all at once at the end."""
        episode = self.episode
        if not self.mode.appends:
            return self.tokenizer.counts(episode.prompts)
        turns = [reply + feedback for reply, feedback in episode.history]
        first, *more = self.tokenizer.counts([episode.prompts[0], *turns])
        return list(accumulate(more[:-1], initial=first))


def read_reply(
    reply: str, *, memory: bool = False, thoughts: Thoughts = "strip", in_thought: bool = False
) -> Move:
    """Read one reply of a searching agent, as Search-R1 does.

    It ends at its first `</search>`, otherwise at its first `</answer>`; the first complete pair of tags in
    what is left decides, also one inside `<think>`.

    Args:
        reply: the reply.
        memory: it opens with `<mem>…</mem>`, whose tags mean nothing; without it it is not well formed. Nor
            do the tags of a thought before it mean anything.
        thoughts: what is such a thought: see `memenvs.core.text.thought_end`.
        in_thought: that thought itself is the memory, in place of `<mem>…</mem>`.
    """
    if not memory:
        return FORMS["search_r1"].read(reply)
    start = thought_end(reply, thoughts)
    if in_thought:
        inside, move = thought_inside(reply, start), FORMS["search_r1"].read(reply[start:], thought=True)
        if inside is None:
            return move._replace(well_formed=False)
        text, opens = reply[slice(*inside)], max(0, inside[0] - len("<think>"))
        state = Tagged(text, opens, inside[1] + len("</think>"))
        return move._replace(memory=state, well_formed=move.well_formed and not holds_known_tag(text))
    written = first_pair(reply, "mem", start)
    if written is None or reply[start : written.start].strip():
        return FORMS["search_r1"].read(reply[start:])._replace(well_formed=False)
    return FORMS["search_r1"].read(reply[written.end :], thought=start > 0)._replace(memory=written)
