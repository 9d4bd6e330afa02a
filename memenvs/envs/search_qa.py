"""Multi-turn question answering with a search engine."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from memenvs.core.arguments import check_arguments, parameters_of
from memenvs.core.data import Count, checked
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.text import (
    Tagged,
    Template,
    Thoughts,
    first_pair,
    holds_known_tag,
    open_thought,
    replace_templates,
    thought_end,
)
from memenvs.core.tools import ToolUse, as_thought
from memenvs.envs.memory import (
    MAX_OWN_TEXT,
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
    joined,
    several,
)
from memenvs.tasks.metrics import Objectives, multi_objective, wrap_answer
from memenvs.tasks.taskset import Task, open_questions, tokenizer_of
from memenvs.tasks.tokens import TextTokenizer

SearchModeName = Literal[ModeName, "compact"]

_WITH_MEMORY = """\
Answer the question with the help of a search engine. Of the earlier turns you see {shown}. {rule} Then \
either search with %s, or, when you know the answer, give it as short as possible %s{several}. You have \
{turns} turns left.

Question: {question}

<mem>
{memory}
</mem>
{recalled}{notice}{recent}"""

ASK_WITH_MEMORY = Template(
    _WITH_MEMORY % ("<search>query</search>", "inside <answer>…</answer>"),
    required=("question", "memory", "recent"),
    optional=("turns", "several", "shown", "rule", "recalled", "notice", "max_memory"),
    name="ask",
)

ASK_WITH_MEMORY_BY_TOOLS = Template(
    _WITH_MEMORY % ("the tool `search`", "with the tool `answer`"),
    required=ASK_WITH_MEMORY.required,
    optional=ASK_WITH_MEMORY.optional,
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

SUMMARIZE = (
    "\n\nThis conversation is too long to continue. Write a summary of what you have learned so far and what "
    "you still need to find, in up to {limit} tokens. You will continue from the question and your summary, "
    "and see nothing else of this conversation.\n"
)
"""What `memory_mode="compact"` puts behind the turn that fills the context."""

SUMMARY = """
Your summary of the conversation so far:

<summary>
{summary}
</summary>

You have {turns} turns left.
"""
"""What follows the question in a prompt that continues from a summary."""


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
        prompts: each fresh prompt so far, with the number of turns before it; later turns follow it.
        summaries: numbers of the turns that wrote a summary, from 0.
        tokens: of the observation, where it is limited; 0 behind a fresh prompt.
        full: whether the next reply is a summary.
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
    prompts: list[tuple[int, str]] = field(default_factory=list)
    summaries: list[int] = field(default_factory=list)
    tokens: int = 0
    full: bool = False
    searches: int = 0
    found: list[str] = field(default_factory=list)
    well_formed: int = 0

    @property
    def played(self) -> int:
        """Turns played that were not summaries."""
        return len(self.history) - len(self.summaries)

    @property
    def searching(self) -> list[tuple[str, str]]:
        """The turns that were not summaries."""
        return [turn for number, turn in enumerate(self.history) if number not in self.summaries]

    @property
    def since_prompt(self) -> list[tuple[str, str]]:
        """The turns that follow the last fresh prompt."""
        return self.history[self.prompts[-1][0] :]

    def wrote(self, done: Written) -> None:
        """Record what the last reply wrote to the memory."""
        self.memory_span, self.overflows = done.span, self.overflows + done.cut
        self.written = self.history[-1][0][slice(*done.span)] if done.span else ""


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


class Conversation:
    """ReAct: no memory, every turn stays in the prompt.

    Attributes:
        context: how most observations follow the one before; see `TextEnv`.
        max_turns: turns in which a search is run, by default.
        opening: what a reply that has nothing to say begins with.
    """

    context: ClassVar[Literal["append", "rewrite"]] = "append"
    max_turns: ClassVar[int] = 4
    opening = "<think></think>"

    def bind(self, env: SearchQAEnv, mode: type[MemoryMode], counter: TextTokenizer) -> Template:
        """Belong to an environment; returns the template of its prompts."""
        self.env = env
        return env.form.ask

    def read(self, reply: str) -> Move:
        """What a reply does."""
        return self.env.form.read(open_thought(reply))

    def prompt(self) -> str:
        """A fresh prompt."""
        return self.env.fill(self.env._task)

    def tool_use(self) -> ToolUse:
        """See `TextEnv.tool_use`."""
        return self.env._tool_use("search", self.env.max_turns, self.env.form.hint)

    def end_turn(self, reply: str, move: Move) -> None:
        """Change the memory by the last reply of the history, and add a fresh prompt if the mode has one."""

    def scoring_prompts(self, passages: str) -> dict[str, Any]:
        """See `SearchingEnv._scoring_prompts`; a teacher reads `passages`."""
        return self.env._appended_fields(self.env.episode.prompts[0][1], self.env._observe(), passages)


@checked
@dataclass
class Summaries(Conversation):
    """Compaction: the prompt grows up to a number of tokens; then a summary takes the place of all turns.

    The turn after the one that fills the context asks for the summary. It runs no search, takes no answer,
    and does not count towards the limit of turns. The whole reply behind its thought is the summary. The
    settings are described under `memory_mode` of `SearchQAEnv`.
    """

    at: Count = 4096
    max_memory: Count = 1024
    thoughts: Thoughts = "strip"

    context = "rewrite"
    max_turns = 16

    def bind(self, env: SearchQAEnv, mode: type[MemoryMode], counter: TextTokenizer) -> Template:
        """See `Conversation.bind`."""
        self.mode = mode(counter, self.max_memory, self.thoughts)
        self.request = SUMMARIZE.format(limit=self.max_memory)
        return super().bind(env, mode, counter)

    def read(self, reply: str) -> Move:
        """A summary where one was asked for; it is well formed if it says something."""
        if not self.env.episode.full:
            return super().read(reply)
        return Move("summary", well_formed=bool(reply[thought_end(reply, self.thoughts) :].strip()))

    def tool_use(self) -> ToolUse:
        """See `Conversation.tool_use`; a summary follows the prompt."""
        use = super().tool_use()

        def ask() -> str:
            prompts = self.env.episode.prompts
            return use.prompt() + prompts[-1][1].removeprefix(prompts[0][1])

        return replace(use, prompt=ask)

    def end_turn(self, reply: str, move: Move) -> None:
        """See `Conversation.end_turn`."""
        env, episode = self.env, self.env.episode
        episode.wrote(Written(None))
        if move.kind == "summary":
            episode.wrote(self.mode.read(episode.memory, reply, thought_end(reply, self.thoughts)))
            episode.full, episode.tokens = False, 0
            episode.summaries.append(len(episode.history) - 1)
            left = env.last_turn - episode.played
            prompt = episode.prompts[0][1] + SUMMARY.format(summary=episode.memory.text, turns=left)
            last = LAST if episode.played >= env.max_turns else ""
            episode.prompts.append((len(episode.history), prompt + last))
        elif not episode.end:
            feedback = episode.history[-1][1]
            prompt = "" if episode.tokens else episode.prompts[-1][1]
            episode.tokens += sum(env.tokenizer.counts([prompt, reply + feedback]))
            episode.full = episode.tokens >= self.at
            if episode.full:
                episode.history[-1] = (reply, feedback + self.request)

    def scoring_prompts(self, passages: str) -> dict[str, Any]:
        """See `Conversation.scoring_prompts`; the prompts for the answer hold the summary and no turns."""
        env, episode = self.env, self.env.episode
        start, now, summary = episode.prompts[0][1], env._observe(), episode.memory.text
        turns, request = episode.searching, self.request if episode.full else ""

        def with_summary(text: str) -> str:
            return start + SUMMARY.format(summary=text, turns=env.last_turn)

        return env._rewritten_fields(
            summary,
            lambda: with_summary(summary),
            lambda: with_summary(""),
            lambda: now.removesuffix(request) + passages + request,
        ) | {
            "memory_span": episode.memory_span and list(episode.memory_span),
            "written": episode.written,
            "prompt_with_history": lambda: start + joined(turns).replace(self.request, ""),
        }


@checked
@dataclass
class Rewritten(Conversation):
    """A fresh prompt at every turn: the memory that the agent wrote, and its last turns.

    The settings are described under `memory_mode` of `SearchQAEnv`.
    """

    keep_turns: Literal[1, 3, "all"] = 1
    max_memory: Count = 1024
    thoughts: Thoughts = "strip"

    context = "rewrite"
    max_turns = 16

    def bind(self, env: SearchQAEnv, mode: type[MemoryMode], counter: TextTokenizer) -> Template:
        """See `Conversation.bind`."""
        self.env, self.mode = env, mode(counter, self.max_memory, self.thoughts)
        rule = mode.rule.format(text="Its content", limit=self.max_memory)
        self.opening = "<think></think>" if mode.in_thought else "<mem></mem><think></think>"
        self._fixed = {
            "shown": SHOWN[self.keep_turns],
            "max_memory": str(self.max_memory),
            "rule": rule if mode.in_thought else IN_MEM.format(rule=rule),
        }
        return ASK_WITH_MEMORY

    def read(self, reply: str) -> Move:
        """See `Conversation.read`."""
        return read_reply(reply, self.thoughts, self.mode.in_thought)

    def prompt(self) -> str:
        """See `Conversation.prompt`."""
        return self._prompt(self.env.template)

    def tool_use(self) -> ToolUse:
        """See `Conversation.tool_use`; the text of a message that calls a tool opens with the memory."""
        use = super().tool_use()
        compose = as_thought if self.mode.in_thought else _memory_first
        return replace(use, prompt=lambda: self._prompt(ASK_WITH_MEMORY_BY_TOOLS), compose=compose)

    def _prompt(self, template: Template) -> str:
        places = {**self._fixed, **self._places(), "recent": self._recent(), "turns": self._left()}
        return self.env.fill(self.env._task, template, **places)

    def end_turn(self, reply: str, move: Move) -> None:
        """See `Conversation.end_turn`."""
        episode, memory, block = self.env.episode, self.env.episode.memory, move.memory
        memory.recalled = memory.notice = ""
        episode.behind_memory = reply
        if block is None:
            self.mode.missing(memory)
            episode.wrote(Written(None))
        else:
            episode.behind_memory = reply[: block.start] + reply[block.end :]
            closing = "</think>" if self.mode.in_thought else "</mem>"
            start = block.end - len(closing) - len(block.text)
            episode.wrote(self.mode.write_block(memory, block.text).shift(start))
        asked = move.content if move.kind == "search" else ""
        episode.shown = self.mode.show(memory, f"{self.env._task.question} {asked}")
        episode.prompts.append((len(episode.history), "" if episode.end else self.prompt()))

    def scoring_prompts(self, passages: str) -> dict[str, Any]:
        """See `Conversation.scoring_prompts`."""
        episode, turns = self.env.episode, self.env.last_turn  # one number, so that prompts share a prefix
        places, recent, left = self._places(), self._recent(), self._left()
        history = joined(episode.history)
        fill = functools.partial(self.env.fill, self.env._task, **self._fixed)
        blank = {"memory": "", "recalled": "", "notice": "", "recent": "", "turns": turns}
        fields = self.env._rewritten_fields(
            episode.shown,
            lambda: fill(**places, recent="", turns=turns),
            lambda: fill(**blank),
            lambda: fill(**places, recent=recent + passages, turns=left),
        ) | {
            "memory_span": episode.memory_span and list(episode.memory_span),
            "prompt_with_history": lambda: fill(**{**blank, "recent": history}),
        }
        if not isinstance(self.mode, WholeMemory):
            fields |= {"written": episode.written, "recalled": episode.memory.recalled}
        return fields

    def _left(self) -> int:
        return self.env.last_turn - len(self.env.episode.history)

    def _recent(self) -> str:
        """The turns that a prompt repeats; the memory of the last reply is above them."""
        episode = self.env.episode
        recent = episode.history if self.keep_turns == "all" else episode.history[-self.keep_turns :]
        return joined(recent[:-1]) + (episode.behind_memory + recent[-1][1] if recent else "")

    def _places(self) -> dict[str, str]:
        """What a prompt shows of the memory."""
        memory = self.env.episode.memory
        return {
            "memory": self.env.episode.shown,
            "recalled": RECALLED.format(memory.recalled) if memory.recalled else "",
            "notice": f"\n{memory.notice}\n" if memory.notice else "",
        }


SEARCH_MODES: dict[str, tuple[type[Conversation], type[MemoryMode]]] = {
    **{name: (Rewritten, mode) for name, mode in MODES.items()},
    "rewrite": (Rewritten, WholeMemory),
    "react": (Conversation, MODES["react"]),
    "compact": (Summaries, MemoryMode),
}
"""What `memory_mode` names: what prompts hold, and how a memory is written."""


class SearchQAEnv(SearchingEnv[SearchEpisode]):
    """Answer a question by searching over many turns (Search-R1; MT-PPO section 5; MemPO).

    Action:
        `<think>…</think><search>query</search>` or `<think>…</think><answer>text</answer>`. A reply ends at
        its first `</search>`, otherwise at its first `</answer>`; the first complete pair decides. With
        `memory_mode="rewrite"` every reply starts with `<mem>…</mem>`. A thinking model's thought may come
        before it; nothing inside that thought counts as a memory, a query or an answer. In other modes with a
        memory, the content of `<mem>` changes the memory by the mode's rules. A reply without `<mem>`, or one
        that breaks the rules, leaves the memory unchanged, and the next prompt says why. With
        `memory_mode="compact"` the reply to a request for a summary is the summary.

    Observation:
        `memory_mode="react"`: the question, then every reply and its results: passages as
        `<information>Doc 1(Title: …) …</information>`, at most `max_information` tokens of them.
        `memory_mode="rewrite"`: a fresh prompt each time (`info["context"]` is `"rewrite"`) with the
        question, the memory that the agent wrote, and its last `keep_turns` turns, which are whole replies
        (the memory of the last one is shown above) and their results. `memory_mode="compact"`: as `"react"`,
        until the observation has `at` tokens and ends with a request for a summary. The next observation is a
        fresh prompt with the question and the summary, and grows again.

    Reward:
        `outcome`: the metric of the answer, at the turn that gives it.

    End:
        `terminated` by an answer; `truncated` after `max_turns` turns, or with `final_answer_turn` after one
        more turn, in which no search is run. Summaries do not count as turns.

    Info:
        `events` of this turn: `searched`, `retrieved` (the passages contain an accepted answer),
        `retrieved_new` (a passage that no earlier search showed contains one), `well_formed`, and
        `searches` so far. All are floats.

    Metrics:
        `success` (outcome 1.0), `em`, `f1`, `sub_em` (means over objectives), `em_sum`, `f1_sum` (sums, by
        MEM1's rules), `format` (1.0 if every reply was well formed and the last one an answer, MT-PPO D.1.2;
        with another `form` by its own rule), `format_share` (share of well-formed replies),
        `memory_overflow` (truncated memories), `searches`, `retrieved`, `turns`, `prompt_tokens`,
        `prompt_tokens_peak`.

    Privileged:
        `answers`; `evidence`: the documents that the answer needs, if the task set knows them; `sentences`:
        their sentences that the task set marks; `passages`: the passages of the last turn that are shown at
        least in part, each in full; and the scoring fields (see `TextEnv`). A teacher reads the evidence as
        if a search had just returned it. In modes with a memory, `prompt_with_memory` and
        `prompt_without_memory` have no passages, and `prompt_with_history` has an empty memory and all turns
        so far in full. In modes other than `"rewrite"`, `written` is what the last reply wrote, and
        `recalled` what was recalled. With `"compact"` the memory is the summary. If the last reply was a
        summary, `memory_span` and `written` say where and what it wrote. A teacher that writes a summary
        reads the evidence before the request.

    Args:
        tasks: a bundled set's name, a task-set folder, or JSON Lines of `question` and `answers`.
        retriever: `"lexical:FILE"`, `"dense:INDEX_DIR"` or `"http://host:port"`; None searches the task set's
            own documents by BM25.
        k: passages per search.
        max_turns: turns in which a search is run; by default 4, or 16 with a memory.
        final_answer_turn: allow one more turn, only for an answer (as the papers' code does).
        max_information: tokens of passages per search.
        memory_mode: `"react"` (ReAct): no memory, the prompt grows. `"rewrite"` (MemPO): every reply rewrites
            the memory, and each turn has a fresh prompt, as with `"callback"`, `"mem1"` (the thought at the
            start of a reply is the memory, without `<mem>`), `"structured"` and `"a_mem"`; see `ChunkQAEnv`.
            `"compact"`: the prompt grows until a summary replaces it. Or `[name, settings]`:
            `max_memory` (1024), tokens of memory kept, a longer one is truncated; `thoughts`, which thought
            may come before the memory: `"strip"`, `"opened"` or `"keep"` (none may), as for `ChunkQAEnv`;
            `keep_turns` (1, 3 or `"all"`), turns that a fresh prompt repeats; and for
            `"compact"` `at` (4096): a summary is requested once an observation has this many tokens.
        form: format of calls and answers: `"search_r1"`, or, if the prompt grows, `"research"` (ReSearch: the
            results are in `<result>`, the answer in a box inside `<answer>`) or `"deep_researcher"`
            (DeepResearcher: a JSON call with a list of queries inside `<tool_call>`); see
            `memenvs.envs.search_forms`.
        template: `{"ask": …}` with the placeholder `{question}` and, with a memory, `{memory}` and
            `{recent}`. Optional are `{several}` (how to give several answers), `{searches}` if the prompt
            grows, and with a memory `{turns}` (turns left), `{shown}` (what is repeated) and `{max_memory}`.
            By default the environment's own wording.
        tokenizer: counts tokens: `"general"`, `"world"`, a file, a folder or a Hugging Face id; None: the one
            that the task set was built with.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's own, `em` for JSON Lines.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

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
        memory_mode: SearchModeName | tuple[SearchModeName, dict[str, Any]] = "react",
        form: Literal["search_r1", "research", "deep_researcher"] = "search_r1",
        template: dict[str, str] | None = None,
        tokenizer: str | None = None,
        metric: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        name, settings = (memory_mode, {}) if isinstance(memory_mode, str) else memory_mode
        kind, mode = SEARCH_MODES[name]
        check_arguments(f"memory_mode {name!r}", settings, parameters_of(kind))
        if kind is Rewritten and form != "search_r1":
            raise ValueError(f"form {form!r} has no place for a memory; use memory_mode='react' or 'compact'")
        self.form: SearchForm = FORMS[form]
        self.memory = kind(**settings)
        self.context = self.memory.context
        self.max_turns = max_turns or self.memory.max_turns
        self.last_turn = self.max_turns + final_answer_turn
        self.max_information = max_information
        own = self.memory.bind(self, mode, tokenizer_of(open_questions(tasks), tokenizer))
        self.opening = self.memory.opening
        self.template = replace_templates({"ask": own}, template)["ask"]
        super().__init__(tasks, retriever, k, tokenizer, metric, render_mode)

    def __deepcopy__(self, memo: dict[int, Any]) -> SearchQAEnv:
        env = super().__deepcopy__(memo)
        env.memory = copy.copy(self.memory)
        env.memory.env = env
        return env

    def queries_of(self, reply: str) -> Sequence[str]:
        """The queries that `step(reply)` will run now."""
        return self.memory.read(reply).queries if self.episode.played < self.max_turns else ()

    def call(self, query: str) -> str:
        """The part of a reply that searches for a query."""
        return self.form.call(query)

    def answer(self, text: str) -> str:
        """The part of a reply that answers."""
        return self.form.answer(text)

    def tool_use(self) -> ToolUse:
        """See `TextEnv.tool_use`."""
        return self.memory.tool_use()

    def fill(self, task: Task, template: Template | None = None, /, **values: object) -> str:
        """The prompt about a task, by the environment's template or another one."""
        asked = {"question": task.question, "several": several(len(task.answers))}
        return (template or self.template).fill(**asked, searches=self.max_turns, **values)

    def _begin(self, task: int) -> SearchEpisode:
        self._set_task(task)
        self._episode = episode = SearchEpisode(task)
        episode.prompts.append((0, self.memory.prompt()))
        return episode

    def _observe(self) -> str:
        return self.episode.prompts[-1][1] + joined(self.episode.since_prompt)

    def _context(self) -> Literal["append", "rewrite"]:
        return "append" if self.context == "append" or self.episode.since_prompt else "rewrite"

    def _longest(self, question: int, objectives: int) -> int:
        turn = 2 * MAX_REPLY_CHARS + 64 * self.max_information + MAX_OWN_TEXT  # a reply and its feedback
        history, digits = (self.last_turn + 1) * turn, len(str(self.last_turn))
        own = dict.fromkeys(("shown", "rule", "notice", "max_memory"), MAX_OWN_TEXT)
        counts = {"question": question, "several": len(several(objectives)), "turns": digits}
        parts = {"searches": digits, "memory": turn, "recalled": turn, "recent": history}
        return self.template.longest(**counts, **own, **parts) + history + turn

    def _scoring_prompts(self) -> dict[str, Any]:
        return self.memory.scoring_prompts(self.form.show(self._passages) if self._passages else "")

    def _play(self, reply: str) -> dict[str, float]:
        episode, move = self.episode, self.memory.read(reply)
        # The one thing that can fail comes first: an unreachable retriever leaves the episode as it was.
        searched = bool(move.queries) and episode.played < self.max_turns
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
        feedback = {"search": self.form.show(shown), "": f"\n{self.form.hint}\n"}.get(move.kind, "")
        played = episode.played + (move.kind != "summary")
        if move.kind == "answer":
            self._give_answer(move.content)
        elif played >= self.last_turn:
            episode.end = "truncated"
        elif move.kind != "summary" and played >= self.max_turns:
            feedback += LAST
        episode.history.append((reply, feedback))
        self.memory.end_turn(reply, move)
        return {"outcome": self._grade().outcome} if episode.end == "terminated" else {}

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
        """Whether an episode that was answered is in form, its summaries aside."""
        turns = self.episode.searching
        text = joined((open_thought(reply), feedback) for reply, feedback in turns)
        return self.form.proper([self.memory.read(reply) for reply, _ in turns], text)

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts, all at once at the end."""
        episode, fresh = self.episode, dict(self.episode.prompts)
        turns = range(len(episode.history))
        parts = [fresh[turn] if turn in fresh else joined(episode.history[turn - 1 : turn]) for turn in turns]
        tokens: list[int] = []
        for turn, count in enumerate(self.tokenizer.counts(parts)):
            tokens.append(count if turn in fresh else tokens[-1] + count)
        return tokens


def _memory_first(thought: str, content: str, act: str) -> str:
    """A reply that opens with the `<mem>…</mem>` of a message; the rest of the message is the thought."""
    if (block := first_pair(content, "mem")) is None:
        return as_thought(thought, content, act)
    rest = content[: block.start] + content[block.end :]
    return content[block.start : block.end] + as_thought(thought, rest, act)


def read_reply(reply: str, thoughts: Thoughts = "strip", in_thought: bool = False) -> Move:
    """Read one reply of a searching agent that keeps a memory.

    It opens with `<mem>…</mem>`, or it is not well formed. Tags inside the memory and inside a thought before
    it mean nothing; the rest is read as Search-R1 reads it.

    Args:
        reply: the reply.
        thoughts: what is such a thought; see `memenvs.core.text.thought_end`.
        in_thought: the thought itself is the memory, in place of `<mem>…</mem>`.
    """
    form, start = FORMS["search_r1"], thought_end(reply, thoughts)
    if in_thought:
        inside, move = thought_inside(reply, start), form.read(reply[start:], thought=True)
        if inside is None:
            return move._replace(well_formed=False)
        text, opens = reply[slice(*inside)], max(0, inside[0] - len("<think>"))
        state = Tagged(text, opens, inside[1] + len("</think>"))
        return move._replace(memory=state, well_formed=move.well_formed and not holds_known_tag(text))
    written = first_pair(reply, "mem", start)
    if written is None or reply[start : written.start].strip():
        return form.read(reply[start:])._replace(well_formed=False)
    return form.read(reply[written.end :], thought=start > 0)._replace(memory=written)
