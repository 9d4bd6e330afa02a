"""Multi-turn question answering with a search engine.

`gym.make("MemSearchQA-v0", tasks="world-test", max_turns=8)`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from memenvs.core.data import Count, checked
from memenvs.core.env import MAX_REPLY_CHARS, EpisodeState, Info, TextEnv, appended_fields, scoring_fields
from memenvs.core.spaces import clean_text
from memenvs.core.text import (
    Tagged,
    Template,
    Texts,
    Thoughts,
    escape_tags,
    first_pair,
    holds_known_tag,
    open_thought,
    replace_templates,
    thought_end,
    warn_of_tags,
)
from memenvs.core.tools import Tool, ToolUse, as_thought
from memenvs.envs.memory import MODES, Memory, MemoryMode, ModeName, Written, recalled_block, thought_inside
from memenvs.envs.passages import cut_passages, holds_answer, show_passages
from memenvs.envs.render import block, reward_line, show_turn
from memenvs.envs.search_forms import ASK_BY_TOOLS, FORMS, Move, SearchForm, several
from memenvs.retrieval import Retriever, load_retriever
from memenvs.tasks.metrics import (
    Grade,
    Objectives,
    get_metric,
    gold_answer,
    grade_answer,
    multi_objective,
    wrap_answer,
)
from memenvs.tasks.taskset import Task, TaskSet, open_questions, tokenizer_of

ASK_WITH_MEMORY = Template(
    """\
Answer the question with the help of a search engine. Of the earlier turns you see {shown}. {rule} Then \
{actions}{several}. You have {turns} turns left.

Question: {question}

<mem>
{memory}
</mem>
{recalled}{notice}{recent}""",
    required=("question", "memory", "recent"),
    optional=(
        *("turns", "several", "shown", "rule", "actions"),
        *("recalled", "recalled_memory", "notice", "max_memory"),
    ),
)

ACTIONS = (
    "either search with <search>query</search>, or, when you know the answer, give it as short as possible "
    "inside <answer>…</answer>"
)
ACTIONS_BY_TOOLS = (
    "either search with the tool `search`, or, when you know the answer, give it as short as possible with "
    "the tool `answer`"
)

IN_MEM = Template(
    "Open every reply with <mem>…</mem>. {rule} Then think inside <think>…</think>.", required=["rule"]
)
"""How a prompt asks for a memory that is not a thought."""

SHOWN: dict[Literal[1, 3, "all"], str] = {
    1: "your own memory and your last turn, nothing else",
    3: "your own memory and your last 3 turns, nothing else",
    "all": "your own memory and every turn",
}
"""What a prompt with a memory says that it repeats, by `keep_turns`."""

LAST = "No searches are left: answer now.\n\n"
"""What follows the feedback, or a summary, before a turn that may only answer."""

SUMMARIZE = Template(
    "\n\nThis conversation is too long to continue. Write a summary of what you have learned so far and what "
    "you still need to find, in up to {limit} tokens. You will continue from the question and your summary, "
    "and see nothing else of this conversation.\n",
    optional=["limit"],
)
"""What `memory_mode="compact"` puts behind the turn that fills the context."""

SUMMARY = Template(
    """
Your summary of the conversation so far:

<summary>
{summary}
</summary>

You have {turns} turns left.
""",
    required=["summary"],
    optional=["turns"],
)
"""What follows the question in a prompt that continues from a summary."""


@dataclass
class SearchState(EpisodeState):
    """An episode of searching."""

    # What prompts say about the task, by placeholder.
    asked: Mapping[str, object] = field(default_factory=dict)
    history: list[tuple[str, str]] = field(default_factory=list)  # each turn's reply and feedback
    # The events of each turn, under `SearchQAEnv.event_names`.
    events: list[dict[str, float]] = field(default_factory=list)
    # Contents of the passages that the last turn showed, in whole or in part.
    passages: list[str] = field(default_factory=list)
    # Contents of the passages in which an accepted answer has been shown.
    found: list[str] = field(default_factory=list)
    answer: str | None = None  # the answer given; None without one
    memory: Memory = field(default_factory=Memory)
    shown: str = ""  # the memory as the prompt shows it
    rest: str = ""  # the last reply without its memory
    # Each fresh prompt so far, with the number of turns before it; later turns follow it.
    prompts: list[tuple[int, str]] = field(default_factory=list)
    summaries: list[int] = field(default_factory=list)  # numbers of the turns that wrote a summary, from 0
    tokens: int = 0  # tokens of the observation, where they are limited; 0 behind a fresh prompt
    full: bool = False  # whether the next reply is a summary

    @property
    def played(self) -> int:
        """Turns played that were not summaries."""
        return len(self.history) - len(self.summaries)

    @property
    def searching(self) -> list[tuple[str, str]]:
        """The turns that were not summaries."""
        return [turn for number, turn in enumerate(self.history) if number not in self.summaries]

    @property
    def last(self) -> tuple[str, str]:
        """The last turn's reply and feedback; two empty texts before the first."""
        return self.history[-1] if self.history else ("", "")

    @property
    def text(self) -> str:
        """The observation now."""
        return self.prompts[-1][1] + joined(self.since_prompt)

    @property
    def since_prompt(self) -> list[tuple[str, str]]:
        """The turns that follow the last fresh prompt."""
        return self.history[self.prompts[-1][0] :]


class WholeMemory(MemoryMode):
    """MemPO: the memory is the inside of `<mem>`; a reply without one empties it.

    Space around the memory is credited with it, except after a memory that is cut.
    """

    rule = "Write in it all you have learned so far and what you still need to find, in up to {limit} tokens."

    def missing(self, memory: Memory) -> None:
        memory.text = ""

    def write_block(self, memory: Memory, text: str) -> Written:
        span, cut = super().write_block(memory, text)
        return Written((0, span[1] if span and cut else len(text)), cut)


@dataclass
class Conversation:
    """What prompts hold of an episode, here every turn (ReAct), and what a reply writes for later turns.

    It knows the settings, and `templates`, the prompts by the names of their parts; what changes is in the
    episode's state.
    """

    context: ClassVar[Literal["append", "rewrite"]] = "append"  # how most observations follow the one before
    default_turns: ClassVar[int] = 4  # turns in which a search is run, by default

    form: SearchForm  # how the agent calls, answers and is answered
    mode: MemoryMode  # how a reply changes the memory
    max_turns: int  # turns in which a search is run
    last_turn: int  # turns of an episode at most
    keep_turns: Literal[1, 3, "all"]  # turns that a fresh prompt repeats
    compact_at: int  # tokens of an observation that asks for a summary
    texts: dict[str, str] = field(default_factory=dict)  # the templates that the user gave

    def __post_init__(self) -> None:
        hint, last = Template(self.form.hint), Template(LAST)
        self.templates = {"ask": self.form.ask, "tools": ASK_BY_TOOLS, "hint": hint, "last": last}

    @property
    def opening(self) -> str:
        """What a reply begins with that has nothing to say."""
        return f"<{self.form.thoughts}></{self.form.thoughts}>"

    @property
    def tags(self) -> set[str]:
        """The tags that are read and written."""
        return self.form.tags

    def fill(self, part: str, state: SearchState, **values: object) -> str:
        """A prompt about the episode's task, by the name of its template."""
        return self.templates[part].fill(**{**state.asked, "searches": self.max_turns, **values})

    def read(self, state: SearchState, reply: str) -> Move:
        """What a reply does."""
        return self.form.read(open_thought(reply))

    def prompt(self, state: SearchState) -> str:
        """A fresh prompt."""
        return self.fill("ask", state)

    def tool_prompt(self, state: SearchState) -> str:
        """A fresh prompt for an agent that calls tools."""
        often = "once" if self.max_turns == 1 else f"{self.max_turns} times"
        return self.fill("tools", state, tool=self.form.tool, searches=often)

    def compose(self, thought: str, content: str, act: str) -> str:
        """The reply of an agent that calls tools."""
        return as_thought(thought, content, act, self.form.thoughts)

    def end_turn(self, state: SearchState, move: Move) -> None:
        """Change the memory by the last reply of the history, and add a fresh prompt if there is one."""

    def scoring_prompts(self, state: SearchState, passages: str) -> dict[str, Any]:
        """The scoring fields but `question` and the targets; a teacher reads `passages`."""
        reply, feedback = state.last
        return appended_fields(reply, feedback, state.end, state.prompts[0][1], state.text, passages)


class Summaries(Conversation):
    """Compaction: the prompt grows up to a number of tokens; then a summary replaces all turns.

    The turn after the one that fills the context asks for the summary. It runs no search, takes no answer,
    and does not count towards the limit of turns. The whole reply behind its thought is the summary,
    which is well formed if it says something.
    """

    context = "rewrite"
    default_turns = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        self.templates |= {"summarize": SUMMARIZE, "summary": SUMMARY}

    def read(self, state: SearchState, reply: str) -> Move:
        if not state.full:
            return super().read(state, reply)
        return Move("summary", well_formed=bool(reply[thought_end(reply, self.mode.thoughts) :].strip()))

    def tool_prompt(self, state: SearchState) -> str:
        (_, first), (_, last) = state.prompts[0], state.prompts[-1]
        return super().tool_prompt(state) + last.removeprefix(first)

    def end_turn(self, state: SearchState, move: Move) -> None:
        memory, first_prompt = state.memory, state.prompts[0][1]
        reply, feedback = state.last
        memory.wrote()
        if move.kind == "summary":
            memory.wrote(reply, self.mode.read(memory, reply, thought_end(reply, self.mode.thoughts)))
            state.full = False
            state.tokens = 0
            state.summaries.append(len(state.history) - 1)
            prompt = first_prompt + self.fill(
                "summary", state, summary=memory.text, turns=self.last_turn - state.played
            )
            if state.played >= self.max_turns:
                prompt += self.fill("last", state)
            state.prompts.append((len(state.history), prompt))
        elif not state.end:
            # Only what is new is counted: whole observations would take time that grows with their square.
            prompt = "" if state.tokens else state.prompts[-1][1]
            state.tokens += sum(self.mode.tokenizer.counts([prompt, reply + feedback]))
            state.full = state.tokens >= self.compact_at
            if state.full:
                state.history[-1] = (reply, feedback + self._request(state))

    def scoring_prompts(self, state: SearchState, passages: str) -> dict[str, Any]:
        memory, turns, now, request = state.memory, state.searching, state.text, self._request(state)
        start, summary = state.prompts[0][1], memory.text
        ending = request if state.full else ""

        def with_summary(text: str) -> str:
            return start + self.fill("summary", state, summary=text, turns=self.last_turn)

        return scoring_fields(
            state.last[0],
            state.end != "",
            summary,
            lambda: with_summary(summary),
            lambda: with_summary(""),
            lambda: now.removesuffix(ending) + passages + ending,
        ) | {
            "memory_span": memory.span and list(memory.span),
            "written": memory.written,
            "prompt_with_history": lambda: start + joined(turns).replace(request, ""),
        }

    def _request(self, state: SearchState) -> str:
        return self.fill("summarize", state, limit=self.mode.limit)


class Rewritten(Conversation):
    """A fresh prompt at every turn: the memory that the agent wrote, and its last turns."""

    context = "rewrite"
    default_turns = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        # The first prompt shows no memory, so it needs no place for one.
        optional = (*ASK_WITH_MEMORY.required, *ASK_WITH_MEMORY.optional)
        first = Template("{question}", required=("question",), optional=optional)
        self.templates |= {"ask": ASK_WITH_MEMORY, "tools": ASK_WITH_MEMORY, "first": first}

    @property
    def opening(self) -> str:
        return "<think></think>" if self.mode.in_thought else "<mem></mem><think></think>"

    @property
    def tags(self) -> set[str]:
        return self.form.tags if self.mode.in_thought else self.form.tags | {"mem"}

    def read(self, state: SearchState, reply: str) -> Move:
        return read_reply(reply, self.mode.thoughts, self.mode.in_thought)

    def prompt(self, state: SearchState) -> str:
        part = "ask" if state.history or "first" not in self.texts else "first"
        return self._fill(part, state, **self._now(state))

    def tool_prompt(self, state: SearchState) -> str:
        return self._fill("tools", state, actions=ACTIONS_BY_TOOLS, **self._now(state))

    def compose(self, thought: str, content: str, act: str) -> str:
        written = None if self.mode.in_thought else first_pair(content, "mem")
        memory = content[written.start : written.end] if written else ""
        return memory + as_thought(thought, without(content, written), act)

    def end_turn(self, state: SearchState, move: Move) -> None:
        memory, written, (reply, _) = state.memory, move.memory, state.last
        memory.recalled = memory.notice = ""
        state.rest = without(reply, written)
        if written is None:
            self.mode.missing(memory)
            memory.wrote()
        else:
            closing = "</think>" if self.mode.in_thought else "</mem>"
            start = written.end - len(closing) - len(written.text)
            memory.wrote(reply, self.mode.write_block(memory, written.text).shift(start))
        query = move.content if move.kind == "search" else ""
        state.shown = self.mode.show(memory, f"{state.asked['question']} {query}")
        state.prompts.append((len(state.history), "" if state.end else self.prompt(state)))

    def scoring_prompts(self, state: SearchState, passages: str) -> dict[str, Any]:
        memory, now, history = state.memory, self._now(state), joined(state.history)
        # The number of turns left is the same in all of them, so that they share a prefix.
        later = {**now, "turns": self.last_turn, "recent": ""}
        blank = {**later, "memory": "", "recalled": "", "recalled_memory": "", "notice": ""}
        fill = functools.partial(self._fill, "ask", state)
        fields = scoring_fields(
            state.last[0],
            state.end != "",
            state.shown,
            lambda: fill(**later),
            lambda: fill(**blank),
            lambda: fill(**{**now, "recent": f"{now['recent']}{passages}"}),
        ) | {
            "memory_span": memory.span and list(memory.span),
            "prompt_with_history": lambda: fill(**{**blank, "recent": history}),
        }
        if not isinstance(self.mode, WholeMemory):
            fields |= {"written": memory.written, "recalled": memory.recalled}
        return fields

    def _fill(self, part: str, state: SearchState, **values: object) -> str:
        rule = self.mode.asks("Its content")
        settings = {
            "shown": SHOWN[self.keep_turns],
            "max_memory": self.mode.limit,
            "rule": rule if self.mode.in_thought else IN_MEM.fill(rule=rule),
            "actions": ACTIONS,
        }
        return self.fill(part, state, **{**settings, **values})

    def _now(self, state: SearchState) -> dict[str, object]:
        """What a prompt shows now: the memory, the turns it repeats, the turns left."""
        memory = state.memory
        turns = state.history if self.keep_turns == "all" else state.history[-self.keep_turns :]
        recent = joined(turns[:-1])
        if turns:  # the memory of the last reply is shown above it
            recent += state.rest + turns[-1][1]
        return {
            "memory": state.shown,
            "recalled": recalled_block(memory.recalled),
            "recalled_memory": memory.recalled,
            "notice": f"\n{memory.notice}\n" if memory.notice else "",
            "recent": recent,
            "turns": self.last_turn - len(state.history),
        }


SearchModeName = Literal[ModeName, "compact"]

SEARCH_MODES: dict[str, tuple[type[Conversation], type[MemoryMode]]] = {
    **{name: (Rewritten, mode) for name, mode in MODES.items()},
    "rewrite": (Rewritten, WholeMemory),
    "react": (Conversation, MODES["react"]),
    "compact": (Summaries, MemoryMode),
}
"""What `memory_mode` names: what prompts hold, and how a memory is written."""


class SearchQAEnv(TextEnv[str, SearchState]):
    """Answer a question by searching over many turns (Search-R1; MT-PPO section 5; MemPO).

    At each turn the agent either searches a corpus, and reads the passages that come back, or answers, which
    ends the episode. Many questions need several searches, each of which follows from what the one before
    found. With a memory mode the prompt shows what the agent wrote down instead of the earlier turns.

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
        until the observation has `compact_at` tokens and ends with a request for a summary. The next
        observation is a fresh prompt with the question and the summary, and grows again.

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
        - `answers`: the accepted answers of each objective.
        - `evidence`: the documents that the answer needs, if the task set knows them.
        - `sentences`: their sentences that the task set marks.
        - `passages`: the passages of the last turn that are shown at least in part, each in full.
        - `prompt_with_memory`, `prompt_without_memory`: in modes with a memory, the prompts without passages.
        - `prompt_with_history`: in these modes, with an empty memory and all turns so far in full.
        - `teacher_prompt`, `teacher_prompt_global`: this turn's prompt, as if a search had just returned the
          evidence; before a request for a summary, the evidence comes first.
        - `written`, `recalled`: in modes other than `"rewrite"`, what the last reply wrote and what was
          recalled. With `"compact"` the memory is the summary, and after a reply that was a summary
          `memory_span` and `written` say where and what it wrote.
        - The other scoring fields (see `TextEnv`).

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
            `"compact"`: the prompt grows until a summary replaces it.
        max_memory: tokens of memory kept, or of a summary; a longer one is truncated.
        thoughts: which thought may come before the memory: `"strip"`, `"opened"` or `"keep"` (none may); see
            `ChunkQAEnv`.
        keep_turns: turns that a fresh prompt repeats below the memory: 1, 3 or `"all"`.
        compact_at: with `"compact"`, a summary is requested once an observation has this many tokens.
        form: format of calls and answers: `"search_r1"`, or, if the prompt grows, `"research"` (ReSearch: the
            results are in `<result>`, the answer in a box inside `<answer>`) or `"deep_researcher"`
            (DeepResearcher: a JSON call with a list of queries inside `<tool_call>`); see
            `memenvs.envs.search_forms`.
        template: another prompt: a file, its text, or `{"ask": …}` with either (docs/prompts.md). The
            placeholders are `{question}` and, with a memory, `{memory}` and `{recent}`. Optional are
            `{several}` (how to give several answers), `{searches}` if the prompt grows, and with a memory
            `{turns}` (turns left), `{shown}` (what is repeated), `{rule}`, `{actions}`, `{notice}`,
            `{recalled}`, `{recalled_memory}` and `{max_memory}`. Other parts are `tools` (for agents that
            call tools), `hint` (after a reply that does nothing), `last` (before the turn that must answer),
            with a memory `first` (the first prompt), and with `"compact"` `summarize` (`{limit}`) and
            `summary` (`{summary}`, `{turns}`). By default the environment's own wording.
        tokenizer: counts tokens: `"general"`, `"world"`, a file, a folder or a Hugging Face id; None: the one
            that the task set was built with.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's own, `em` for JSON Lines.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    unhashed = ("render_mode", "tasks")
    event_names: ClassVar[tuple[str, ...]] = (
        *("searched", "retrieved", "retrieved_new"),
        *("well_formed", "searches"),
    )
    metric_names: ClassVar[tuple[str, ...]] = (
        *("success", "em", "f1", "sub_em", "em_sum", "f1_sum", "format", "format_share"),
        *("memory_overflow", "searches", "retrieved", "turns", "prompt_tokens", "prompt_tokens_peak"),
    )
    forms: ClassVar[Mapping[str, SearchForm]] = FORMS
    max_answer: int = 64  # tokens of the answer that count, for each of the task's questions
    _task: Task
    _evidence: list[str]  # contents of the documents that the answer needs, where they are known
    _shown_evidence: str
    _target: str
    _prepared: Mapping[str, list[str]] = {}  # what `prepare` found for the queries of the next step

    @checked
    def __init__(
        self,
        tasks: str = "world-train",
        retriever: str | None = None,
        k: Count = 3,
        max_turns: Count | None = None,
        final_answer_turn: bool = True,
        max_information: Count = 500,
        memory_mode: SearchModeName = "react",
        max_memory: Count = 1024,
        thoughts: Thoughts = "strip",
        keep_turns: Literal[1, 3, "all"] = 1,
        compact_at: Count = 4096,
        form: Literal["search_r1", "research", "deep_researcher"] = "search_r1",
        template: Texts | None = None,
        tokenizer: str | None = None,
        metric: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.questions = open_questions(tasks)
        self.metric = self.questions.metric if metric is None else metric
        get_metric(self.metric)
        if retriever is None:
            if not isinstance(self.questions, TaskSet) or not self.questions.n_documents:
                raise ValueError(
                    f"{tasks} has questions but no documents: pass retriever='lexical:CORPUS.jsonl.gz', "
                    "'dense:INDEX_DIR' or 'http://host:port'"
                )
            retriever = f"lexical:{self.questions.path}"
        self.retriever = load_retriever(retriever)
        self.k, self.max_information = k, max_information
        self.tokenizer = tokenizer_of(self.questions, tokenizer)
        kind, mode = SEARCH_MODES[memory_mode]
        if kind is Rewritten and form != "search_r1":
            raise ValueError(f"form {form!r} has no place for a memory; use memory_mode='react' or 'compact'")
        self.form = self.forms[form]
        self.max_turns = max_turns or kind.default_turns
        self.last_turn = self.max_turns + 1 if final_answer_turn else self.max_turns
        self.conversation = conversation = kind(
            self.form,
            mode(self.tokenizer, max_memory, thoughts),
            self.max_turns,
            self.last_turn,
            keep_turns,
            compact_at,
        )
        self.context = conversation.context
        self.opening = conversation.opening
        conversation.templates, conversation.texts = replace_templates(self.own_templates(), template)
        self.template_texts = conversation.texts
        for name, text in self.template_texts.items():
            warn_of_tags(name, text, conversation.tags)
        super().__init__(len(self.questions), render_mode)

    # The search.

    @staticmethod
    def prepare(plays: Iterable[tuple[Any, str]]) -> None:
        """Search for the queries of several environments by one call for each retriever and k.

        Where a call fails, each environment searches by itself.
        """
        calls: dict[tuple[int, int], list[tuple[SearchQAEnv, str]]] = {}
        for env, reply in plays:
            for query in env.queries_of(clean_text(reply, MAX_REPLY_CHARS)):
                calls.setdefault((id(env.retriever), env.k), []).append((env, query))
        for (_, k), group in calls.items():
            try:
                results = _search_contents(group[0][0].retriever, [query for _, query in group], k)
            except Exception:
                continue
            for (env, query), passages in zip(group, results, strict=True):
                env._prepared = {**env._prepared, query: passages}

    def queries_of(self, reply: str) -> Sequence[str]:
        """The queries that `step(reply)` will run now."""
        move = self.conversation.read(self.state, reply)
        return move.queries if self.state.played < self.max_turns else ()

    def find(self, *queries: str) -> list[str]:
        """Contents of the best `k` passages of each query."""
        passages = dict(self._prepared)
        self._prepared = {}
        if missing := [query for query in dict.fromkeys(queries) if query not in passages]:
            passages |= dict(zip(missing, _search_contents(self.retriever, missing, self.k), strict=True))
        return [passage for query in queries for passage in passages[query]]

    def tool_use(self) -> ToolUse:
        search = self.search_tool
        meaning, ends = "The answer, as short as possible.", "Give the final answer, which ends the episode."
        answer = Tool("answer", ends, "answer", meaning, self.form.answer)
        hint = self.conversation.templates["hint"].fill()
        return ToolUse(
            (search, answer),
            lambda: self.conversation.tool_prompt(self.state),
            hint,
            self.conversation.compose,
        )

    @property
    def search_tool(self) -> Tool:
        """The tool that searches."""
        return Tool(self.form.tool, "Look something up.", "query", "What to look up.", self.form.call)

    # The episode.

    def task_set(self) -> tuple[str, str]:
        return self.questions.name, self.questions.hash

    def _task_id(self) -> str:
        return self._task.id

    def _begin(self, task: int) -> SearchState:
        questions = self.questions
        self._task = questions[task]
        self._evidence = _evidence(questions, task) if isinstance(questions, TaskSet) else []
        self._shown_evidence = show_passages(self._evidence).strip()
        self._target = gold_answer(self._task.answers, self.metric)
        state = SearchState(task, asked=self.asked)
        state.prompts.append((0, self.conversation.prompt(state)))
        return state

    def _observe(self) -> str:
        return self.state.text

    def _feedback(self) -> str:
        return self.state.history[-1][1]

    def _context(self) -> Literal["append", "rewrite"]:
        return "append" if self.context == "append" or self.state.since_prompt else "rewrite"

    def own_templates(self) -> dict[str, Template]:
        """The environment's templates by the names of their parts, `ask` first."""
        return self.conversation.templates

    @property
    def asked(self) -> dict[str, object]:
        """What a prompt asks."""
        return {"question": self._task.question, "several": several(len(self._task.answers))}

    def _play(self, reply: str) -> dict[str, float]:
        state, move = self.state, self.conversation.read(self.state, reply)
        # The one thing that can fail comes first: an unreachable retriever leaves the episode as it was.
        searched = bool(move.queries) and state.played < self.max_turns
        passages = self.find(*move.queries) if searched else []
        parts = cut_passages(passages, self.tokenizer, self.max_information)
        retrieved, each = holds_answer(parts, self._task.answers)
        new = [text for text, holds in zip(passages, each, strict=True) if holds and text not in state.found]
        state.found += new
        state.passages = [text for text, part in zip(passages, parts, strict=True) if part.strip()]
        events = self._events(move, searched, retrieved, bool(new))
        state.events.append({name: float(value) for name, value in events.items()})
        if move.kind == "answer":
            limit = self.max_answer * len(self._task.answers)
            state.answer, _ = self.tokenizer.truncate(escape_tags(move.content), limit)
            state.end = "terminated"
        elif state.played + (move.kind != "summary") >= self.last_turn:
            state.end = "truncated"
        state.history.append((reply, self._respond(move, "".join(parts).strip())))
        self.conversation.end_turn(state, move)
        return {"outcome": self._grade().outcome} if state.end == "terminated" else {}

    def _events(self, move: Move, searched: bool, retrieved: bool, new: bool) -> dict[str, float]:
        """The events of the turn that makes a move, under `event_names`."""
        before = self.state.events[-1]["searches"] if self.state.events else 0.0
        return {
            "searched": searched,
            "retrieved": retrieved,
            "retrieved_new": new,
            "well_formed": move.well_formed,
            "searches": before + searched,
        }

    def _respond(self, move: Move, passages: str) -> str:
        """The feedback on a move, with the passages that are shown; the episode has ended if it does."""
        hint = self.conversation.templates["hint"].fill()
        feedback = {"search": self.form.show(passages), "": f"\n{hint}\n"}.get(move.kind, "")
        answer_now = move.kind in ("search", "") and self.state.played + 1 >= self.max_turns
        if answer_now and not self.state.end:
            feedback += self.conversation.fill("last", self.state)
        return feedback

    def _info(self, rewards: dict[str, float]) -> Info:
        events = self.state.events[-1] if self.state.events else dict.fromkeys(self.event_names, 0.0)
        return {**super()._info(rewards), "events": dict(events)}

    # The score.

    def _grade(self) -> Grade:
        return grade_answer(self.state.answer, self._task.answers, metric=self.metric)

    def _metrics(self) -> dict[str, float]:
        state, scores, tokens = self.state, self._grade(), self._prompt_tokens()
        turns = len(state.history)
        sums, proper = Objectives(0.0, 0.0, True), False
        if state.answer is not None:
            answer = wrap_answer(state.answer, "tag")
            sums = multi_objective(answer, [list(accepted) for accepted in self._task.answers])
            text = joined((open_thought(reply), feedback) for reply, feedback in state.searching)
            moves = [self.conversation.read(state, reply) for reply, _ in state.searching]
            proper = self.form.proper(moves, text)  # its summaries aside
        return {
            "success": float(scores.outcome == 1.0),
            **{name: getattr(scores, name) for name in ("em", "f1", "sub_em")},
            "em_sum": sums.em,
            "f1_sum": sums.f1,
            "format": float(proper),
            "format_share": sum(events["well_formed"] for events in state.events) / turns,
            "memory_overflow": state.memory.overflows,
            "searches": state.events[-1]["searches"],
            "retrieved": max(events["retrieved"] for events in state.events),
            "turns": turns,
            "prompt_tokens": sum(tokens),
            "prompt_tokens_peak": max(tokens),
        }

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts, all at once at the end."""
        state, fresh = self.state, dict(self.state.prompts)
        turns = range(len(state.history))
        parts = [fresh[turn] if turn in fresh else joined(state.history[turn - 1 : turn]) for turn in turns]
        tokens: list[int] = []
        for turn, count in enumerate(self.tokenizer.counts(parts)):
            tokens.append(count if turn in fresh else tokens[-1] + count)
        return tokens

    def _privileged(self) -> dict[str, Any]:
        task, tasks = self._task, self.questions
        marked: Any = functools.partial(tasks.marked_sentences, task) if isinstance(tasks, TaskSet) else []
        evidence = self._shown_evidence
        return {
            "answers": [list(accepted) for accepted in task.answers],
            "evidence": list(self._evidence),
            "sentences": marked,
            "passages": list(self.state.passages),
            "question": task.question,
            "target": self._target,
            "target_wrapped": self.form.answer(self._target),
            **self.conversation.scoring_prompts(self.state, evidence and self.form.show(evidence)),
        }

    # For others.

    def render(self) -> Any:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        state, reply = self.state, self._last.reply
        title = f"task {self._task.id}, {state.turn} of {self.last_turn} turns played"
        read = [block("question", self._task.question, limit=600)]
        if state.history:
            feedback = state.history[-1][1]
            read = [block("came back", feedback, limit=800)] if feedback else []
        earned = self.reward_lines(reward_line(self._last.rewards))
        return show_turn(title, reply, earned, read, state.end)

    def gold_reply(self) -> str:
        """The answer at once."""
        return self.opening + self.form.answer(self._target)

    def n_choices(self, n_answers: int) -> int:
        """The length of `choices`."""
        return 2 * n_answers + 1

    def choices(self, answers: Sequence[str]) -> list[str]:
        """Replies that give each answer, and that search for the question alone and with each answer."""
        question, form = self._task.question, self.form
        queries = [question, *(f"{question} {answer}" for answer in answers)]
        return [self.opening + act for act in (*map(form.answer, answers), *map(form.call, queries))]


def joined(history: Iterable[tuple[str, str]]) -> str:
    """Turns as one text: each reply and the feedback on it."""
    return "".join(reply + feedback for reply, feedback in history)


def without(reply: str, part: Tagged | None) -> str:
    """A reply without one of its parts."""
    return reply[: part.start] + reply[part.end :] if part else reply


def read_reply(reply: str, thoughts: Thoughts = "strip", in_thought: bool = False) -> Move:
    """Read one reply of a searching agent that keeps a memory.

    It opens with `<mem>…</mem>`, or it is not well formed. Tags inside the memory and inside a thought before
    it mean nothing; the rest is read as Search-R1 reads it. With `in_thought` the thought itself is the
    memory. `thoughts` says which thought counts (`memenvs.core.text.thought_end`).
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


@functools.lru_cache(maxsize=4096)
def _evidence(tasks: TaskSet, number: int) -> list[str]:
    """Contents of the evidence documents of a task; a group plays the same task many times."""
    return tasks.document_texts(tasks[number].evidence)


def _search_contents(retriever: Retriever, queries: list[str], k: int) -> list[list[str]]:
    """Contents of the best `k` passages of each query, by one call of the retriever."""
    hits = retriever.search(queries, k).ids
    passages = retriever.passages(list(dict.fromkeys(id for ids in hits for id in ids)))
    contents = {passage.id: passage.contents for passage in passages}
    return [[contents[id] for id in ids] for ids in hits]
