"""Multi-turn question answering with a search engine."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from memenvs.core.data import Count, checked
from memenvs.core.env import MAX_REPLY_CHARS, EpisodeState, Info, TextEnv
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
from memenvs.envs.memory import (
    MODES,
    Memory,
    MemoryMode,
    ModeName,
    Written,
    recalled_block,
    thought_inside,
)
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
class SearchEpisode(EpisodeState):
    """An episode of searching.

    Attributes:
        history: each turn's reply and feedback.
        events: the events of each turn, under `SearchQAEnv.event_names`.
        passages: contents of the passages that the last turn showed, in whole or in part.
        found: contents of the passages in which an accepted answer has been shown.
        answer: the answer given; None without one.
        memory: the memory now.
        shown: the memory as the prompt shows it.
        rest: the last reply without its memory.
        prompts: each fresh prompt so far, with the number of turns before it; later turns follow it.
        summaries: numbers of the turns that wrote a summary, from 0.
        tokens: tokens of the observation, where they are limited; 0 behind a fresh prompt.
        full: whether the next reply is a summary.
    """

    history: list[tuple[str, str]] = field(default_factory=list)
    events: list[dict[str, float]] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    answer: str | None = None
    memory: Memory = field(default_factory=Memory)
    shown: str = ""
    rest: str = ""
    prompts: list[tuple[int, str]] = field(default_factory=list)
    summaries: list[int] = field(default_factory=list)
    tokens: int = 0
    full: bool = False

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


class WholeMemory(MemoryMode):
    """MemPO: the memory is the inside of `<mem>`; a reply without one empties it.

    Space around the memory is credited with it, except after a memory that is cut.
    """

    rule = "Write in it all you have learned so far and what you still need to find, in up to {limit} tokens."

    def missing(self, memory: Memory) -> None:
        """Forget everything."""
        memory.text = ""

    def write_block(self, memory: Memory, text: str) -> Written:
        """Change the memory by a text with space around it."""
        span, cut = super().write_block(memory, text)
        return Written((0, span[1] if span and cut else len(text)), cut)


class Conversation:
    """What prompts hold of an episode, here every turn (ReAct), and what a reply writes for later turns.

    It has no state: the environment holds the settings and the memory mode, the episode the memory.

    Attributes:
        context: how most observations follow the one before; see `TextEnv`.
        max_turns: turns in which a search is run, by default.
    """

    context: ClassVar[Literal["append", "rewrite"]] = "append"
    max_turns: ClassVar[int] = 4

    def templates(self, env: SearchQAEnv) -> dict[str, Template]:
        """The templates by the names of their parts."""
        hint, last = Template(env.form.hint), Template(LAST)
        return {"ask": env.form.ask, "tools": ASK_BY_TOOLS, "hint": hint, "last": last}

    def opening(self, env: SearchQAEnv) -> str:
        """What a reply begins with that has nothing to say."""
        return f"<{env.form.thoughts}></{env.form.thoughts}>"

    def read(self, env: SearchQAEnv, reply: str) -> Move:
        """What a reply does."""
        return env.form.read(open_thought(reply))

    def prompt(self, env: SearchQAEnv) -> str:
        """A fresh prompt."""
        return env.fill("ask")

    def tool_prompt(self, env: SearchQAEnv) -> str:
        """A fresh prompt for an agent that calls tools."""
        often = "once" if env.max_turns == 1 else f"{env.max_turns} times"
        return env.fill("tools", tool=env.form.tool, searches=often)

    def compose(self, env: SearchQAEnv, thought: str, content: str, act: str) -> str:
        """The reply of an agent that calls tools."""
        return as_thought(thought, content, act, env.form.thoughts)

    def end_turn(self, env: SearchQAEnv, move: Move) -> None:
        """Change the memory by the last reply of the history, and add a fresh prompt if there is one."""

    def scoring_prompts(self, env: SearchQAEnv, passages: str) -> dict[str, Any]:
        """The scoring fields but `question` and the targets; a teacher reads `passages`."""
        return env._appended_fields(env.episode.prompts[0][1], env._observe(), passages)


class Summaries(Conversation):
    """Compaction: the prompt grows up to a number of tokens; then a summary replaces all turns.

    The turn after the one that fills the context asks for the summary. It runs no search, takes no answer,
    and does not count towards the limit of turns. The whole reply behind its thought is the summary.
    """

    context = "rewrite"
    max_turns = 16

    def templates(self, env: SearchQAEnv) -> dict[str, Template]:
        """The templates by the names of their parts."""
        return {**super().templates(env), "summarize": SUMMARIZE, "summary": SUMMARY}

    def read(self, env: SearchQAEnv, reply: str) -> Move:
        """A summary where one was asked for; it is well formed if it says something."""
        if not env.episode.full:
            return super().read(env, reply)
        return Move("summary", well_formed=bool(reply[thought_end(reply, env.thoughts) :].strip()))

    def tool_prompt(self, env: SearchQAEnv) -> str:
        """A fresh prompt for an agent that calls tools; the last summary follows it."""
        prompts = env.episode.prompts
        return super().tool_prompt(env) + prompts[-1][1].removeprefix(prompts[0][1])

    def end_turn(self, env: SearchQAEnv, move: Move) -> None:
        """Keep a summary, or ask for one if the context is full."""
        episode, memory = env.episode, env.episode.memory
        reply, feedback = episode.history[-1]
        memory.wrote()
        if move.kind == "summary":
            memory.wrote(reply, env.mode.read(memory, reply, thought_end(reply, env.thoughts)))
            episode.full, episode.tokens = False, 0
            episode.summaries.append(len(episode.history) - 1)
            summary = env.fill("summary", summary=memory.text, turns=env.last_turn - episode.played)
            last = env.fill("last") if episode.played >= env.max_turns else ""
            episode.prompts.append((len(episode.history), episode.prompts[0][1] + summary + last))
        elif not episode.end:
            prompt = "" if episode.tokens else episode.prompts[-1][1]
            episode.tokens += sum(env.tokenizer.counts([prompt, reply + feedback]))
            episode.full = episode.tokens >= env.compact_at
            if episode.full:
                episode.history[-1] = (reply, feedback + self._request(env))

    def scoring_prompts(self, env: SearchQAEnv, passages: str) -> dict[str, Any]:
        """The prompts for the answer hold the summary and no turns."""
        episode, memory = env.episode, env.episode.memory
        start, now, summary = episode.prompts[0][1], env._observe(), memory.text
        turns, request = episode.searching, self._request(env)
        asked = request if episode.full else ""

        def with_summary(text: str) -> str:
            return start + env.fill("summary", summary=text, turns=env.last_turn)

        return env._rewritten_fields(
            summary,
            lambda: with_summary(summary),
            lambda: with_summary(""),
            lambda: now.removesuffix(asked) + passages + asked,
        ) | {
            "memory_span": memory.span and list(memory.span),
            "written": memory.written,
            "prompt_with_history": lambda: start + joined(turns).replace(request, ""),
        }

    def _request(self, env: SearchQAEnv) -> str:
        return env.fill("summarize", limit=env.mode.limit)


class Rewritten(Conversation):
    """A fresh prompt at every turn: the memory that the agent wrote, and its last turns."""

    context = "rewrite"
    max_turns = 16

    def templates(self, env: SearchQAEnv) -> dict[str, Template]:
        """The templates by the names of their parts; the first prompt shows no memory, so it needs none."""
        optional = (*ASK_WITH_MEMORY.required, *ASK_WITH_MEMORY.optional)
        first = Template("{question}", required=("question",), optional=optional)
        rest = {"tools": ASK_WITH_MEMORY, "first": first}
        return {**super().templates(env), "ask": ASK_WITH_MEMORY, **rest}

    def opening(self, env: SearchQAEnv) -> str:
        """What a reply begins with that has nothing to say."""
        return "<think></think>" if env.mode.in_thought else "<mem></mem><think></think>"

    def read(self, env: SearchQAEnv, reply: str) -> Move:
        """What a reply does."""
        return read_reply(reply, env.thoughts, env.mode.in_thought)

    def prompt(self, env: SearchQAEnv) -> str:
        """A fresh prompt."""
        part = "ask" if env.episode.history or "first" not in env.texts else "first"
        return self._fill(env, part, **self._now(env))

    def tool_prompt(self, env: SearchQAEnv) -> str:
        """A fresh prompt for an agent that calls tools."""
        return self._fill(env, "tools", actions=ACTIONS_BY_TOOLS, **self._now(env))

    def compose(self, env: SearchQAEnv, thought: str, content: str, act: str) -> str:
        """The reply of an agent that calls tools; the text of its message opens with the memory."""
        memory, rest = "", content
        if not env.mode.in_thought and (written := first_pair(content, "mem")):
            memory = content[written.start : written.end]
            rest = without(content, written)
        return memory + as_thought(thought, rest, act)

    def end_turn(self, env: SearchQAEnv, move: Move) -> None:
        """Change the memory, and add a fresh prompt."""
        episode, memory, written = env.episode, env.episode.memory, move.memory
        memory.recalled = memory.notice = ""
        reply = episode.history[-1][0]
        episode.rest = without(reply, written)
        if written is None:
            env.mode.missing(memory)
            memory.wrote()
        else:
            closing = "</think>" if env.mode.in_thought else "</mem>"
            start = written.end - len(closing) - len(written.text)
            done = env.mode.write_block(memory, written.text).shift(start)
            memory.wrote(reply, done)
        query = move.content if move.kind == "search" else ""
        episode.shown = env.mode.show(memory, f"{env._task.question} {query}")
        episode.prompts.append((len(episode.history), "" if episode.end else self.prompt(env)))

    def scoring_prompts(self, env: SearchQAEnv, passages: str) -> dict[str, Any]:
        """The prompts for the answer hold the memory and no turns."""
        episode, memory, now = env.episode, env.episode.memory, {**env.asked, **self._now(env)}
        history = joined(episode.history)
        later = {**now, "turns": env.last_turn, "recent": ""}  # one number, so that prompts share a prefix
        blank = {**later, "memory": "", "recalled": "", "recalled_memory": "", "notice": ""}
        fill = functools.partial(self._fill, env, "ask")
        fields = env._rewritten_fields(
            episode.shown,
            lambda: fill(**later),
            lambda: fill(**blank),
            lambda: fill(**{**now, "recent": f"{now['recent']}{passages}"}),
        ) | {
            "memory_span": memory.span and list(memory.span),
            "prompt_with_history": lambda: fill(**{**blank, "recent": history}),
        }
        if not isinstance(env.mode, WholeMemory):
            fields |= {"written": memory.written, "recalled": memory.recalled}
        return fields

    def _fill(self, env: SearchQAEnv, part: str, **values: object) -> str:
        rule = env.mode.asks("Its content")
        return env.fill(
            part,
            **{
                "shown": SHOWN[env.keep_turns],
                "max_memory": env.mode.limit,
                "rule": rule if env.mode.in_thought else IN_MEM.fill(rule=rule),
                "actions": ACTIONS,
                **values,
            },
        )

    def _now(self, env: SearchQAEnv) -> dict[str, object]:
        """What a prompt shows now: the memory, the turns it repeats, the turns left."""
        episode, memory = env.episode, env.episode.memory
        turns = episode.history if env.keep_turns == "all" else episode.history[-env.keep_turns :]
        recent = joined(turns[:-1])
        if turns:  # the memory of the last reply is shown above it
            recent += episode.rest + turns[-1][1]
        return {
            "memory": episode.shown,
            "recalled": recalled_block(memory.recalled),
            "recalled_memory": memory.recalled,
            "notice": f"\n{memory.notice}\n" if memory.notice else "",
            "recent": recent,
            "turns": env.last_turn - len(episode.history),
        }


SearchModeName = Literal[ModeName, "compact"]

SEARCH_MODES: dict[str, tuple[type[Conversation], type[MemoryMode]]] = {
    **{name: (Rewritten, mode) for name, mode in MODES.items()},
    "rewrite": (Rewritten, WholeMemory),
    "react": (Conversation, MODES["react"]),
    "compact": (Summaries, MemoryMode),
}
"""What `memory_mode` names: what prompts hold, and how a memory is written."""


class SearchQAEnv(TextEnv[str, SearchEpisode]):
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
        metric: a name of `memenvs.tasks.metrics.METRICS`, or `movie_recall:FILE`; None: the task set's
            own, `em` for JSON Lines.
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
        conversation, mode = SEARCH_MODES[memory_mode]
        if conversation is Rewritten and form != "search_r1":
            raise ValueError(f"form {form!r} has no place for a memory; use memory_mode='react' or 'compact'")
        self.form = self.forms[form]
        self.mode = mode(self.tokenizer, max_memory, thoughts)
        self.thoughts, self.keep_turns, self.compact_at = thoughts, keep_turns, compact_at
        self.conversation = conversation()
        self.context = conversation.context
        self.opening = self.conversation.opening(self)
        self.max_turns = max_turns or conversation.max_turns
        self.last_turn = self.max_turns + final_answer_turn
        self.templates, self.texts = replace_templates(self.own_templates(), template)
        in_tag = conversation is Rewritten and not self.mode.in_thought
        for name, text in self.texts.items():
            warn_of_tags(name, text, self.form.tags | ({"mem"} if in_tag else set()))
        super().__init__(len(self.questions), render_mode)

    # The search.

    @staticmethod
    def prepare(plays: Iterable[tuple[Any, str]]) -> None:
        """Search for the queries of several environments by one call for each retriever and k.

        Where a call fails, each environment searches by itself.

        Args:
            plays: unwrapped environments, which need not search, and the reply that each plays next.
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
        move = self.conversation.read(self, reply)
        return move.queries if self.episode.played < self.max_turns else ()

    def find(self, *queries: str) -> list[str]:
        """Contents of the best `k` passages of each query."""
        passages, self._prepared = dict(self._prepared), {}
        if missing := [query for query in dict.fromkeys(queries) if query not in passages]:
            passages |= dict(zip(missing, _search_contents(self.retriever, missing, self.k), strict=True))
        return [passage for query in queries for passage in passages[query]]

    def tool_use(self) -> ToolUse:
        """A tool that searches and one that answers."""
        search = self.search_tool
        meaning, ends = "The answer, as short as possible.", "Give the final answer, which ends the episode."
        answer = Tool("answer", ends, "answer", meaning, self.form.answer)
        prompt = functools.partial(self.conversation.tool_prompt, self)
        compose = functools.partial(self.conversation.compose, self)
        return ToolUse((search, answer), prompt, self.templates["hint"].fill(), compose)

    @property
    def search_tool(self) -> Tool:
        """The tool that searches."""
        return Tool(self.form.tool, "Look something up.", "query", "What to look up.", self.form.call)

    # The episode.

    def task_set(self) -> tuple[str, str]:
        """The questions' name and hash."""
        return self.questions.name, self.questions.hash

    def _task_id(self) -> str:
        return self._task.id

    def _begin(self, task: int) -> SearchEpisode:
        questions = self.questions
        self._task = questions[task]
        self._evidence = _evidence(questions, task) if isinstance(questions, TaskSet) else []
        self._shown_evidence = show_passages(self._evidence).strip()
        self._target = gold_answer(self._task.answers, self.metric)
        self._episode = episode = SearchEpisode(task)
        episode.prompts.append((0, self.conversation.prompt(self)))
        return episode

    def _observe(self) -> str:
        return self.episode.prompts[-1][1] + joined(self.episode.since_prompt)

    def _feedback(self) -> str:
        return self.episode.history[-1][1]

    def _context(self) -> Literal["append", "rewrite"]:
        return "append" if self.context == "append" or self.episode.since_prompt else "rewrite"

    def own_templates(self) -> dict[str, Template]:
        """The environment's templates by the names of their parts, `ask` first."""
        return self.conversation.templates(self)

    def named_texts(self) -> dict[str, Any]:
        """The texts of the prompts that `template` gives."""
        return {"template": self.texts} if self.texts else {}

    def fill(self, part: str, **values: object) -> str:
        """A prompt about the task, by the name of its template."""
        return self.templates[part].fill(**{**self.asked, "searches": self.max_turns, **values})

    @property
    def asked(self) -> dict[str, object]:
        """What a prompt asks."""
        return {"question": self._task.question, "several": several(len(self._task.answers))}

    def _play(self, reply: str) -> dict[str, float]:
        episode, move = self.episode, self.conversation.read(self, reply)
        # The one thing that can fail comes first: an unreachable retriever leaves the episode as it was.
        searched = bool(move.queries) and episode.played < self.max_turns
        passages = self.find(*move.queries) if searched else []
        parts = cut_passages(passages, self.tokenizer, self.max_information)
        retrieved, each = holds_answer(parts, self._task.answers)
        new = [
            text for text, holds in zip(passages, each, strict=True) if holds and text not in episode.found
        ]
        episode.found += new
        episode.passages = [text for text, part in zip(passages, parts, strict=True) if part.strip()]
        events = self._events(move, searched, retrieved, bool(new))
        episode.events.append({name: float(value) for name, value in events.items()})
        if move.kind == "answer":
            limit = self.max_answer * len(self._task.answers)
            episode.answer, _ = self.tokenizer.truncate(escape_tags(move.content), limit)
            episode.end = "terminated"
        elif episode.played + (move.kind != "summary") >= self.last_turn:
            episode.end = "truncated"
        episode.history.append((reply, self._respond(move, "".join(parts).strip())))
        self.conversation.end_turn(self, move)
        return {"outcome": self._grade().outcome} if episode.end == "terminated" else {}

    def _events(self, move: Move, searched: bool, retrieved: bool, new: bool) -> dict[str, float]:
        """The events of the turn that makes a move, under `event_names`."""
        before = self.episode.events[-1]["searches"] if self.episode.events else 0.0
        return {
            "searched": searched,
            "retrieved": retrieved,
            "retrieved_new": new,
            "well_formed": move.well_formed,
            "searches": before + searched,
        }

    def _respond(self, move: Move, shown: str) -> str:
        """The feedback on a move, with the passages that are shown; the episode has ended if it does."""
        hint = self.templates["hint"].fill()
        feedback = {"search": self.form.show(shown), "": f"\n{hint}\n"}.get(move.kind, "")
        answer_now = move.kind in ("search", "") and self.episode.played + 1 >= self.max_turns
        return feedback + self.fill("last") if answer_now and not self.episode.end else feedback

    def _info(self, rewards: dict[str, float]) -> Info:
        events = self.episode.events[-1] if self.episode.events else dict.fromkeys(self.event_names, 0.0)
        return {**super()._info(rewards), "events": dict(events)}

    # The score.

    def _grade(self) -> Grade:
        return grade_answer(self.episode.answer, self._task.answers, metric=self.metric)

    def _metrics(self) -> dict[str, float]:
        episode, scores, tokens = self.episode, self._grade(), self._prompt_tokens()
        turns = len(episode.history)
        sums = Objectives(0.0, 0.0, True)
        if episode.answer is not None:
            answer = wrap_answer(episode.answer, "tag")
            sums = multi_objective(answer, [list(accepted) for accepted in self._task.answers])
        return {
            "success": float(scores.outcome == 1.0),
            **{name: getattr(scores, name) for name in ("em", "f1", "sub_em")},
            "em_sum": sums.em,
            "f1_sum": sums.f1,
            "format": float(episode.answer is not None and self._proper()),
            "format_share": sum(events["well_formed"] for events in episode.events) / turns,
            "memory_overflow": episode.memory.overflows,
            "searches": episode.events[-1]["searches"],
            "retrieved": max(events["retrieved"] for events in episode.events),
            "turns": turns,
            "prompt_tokens": sum(tokens),
            "prompt_tokens_peak": max(tokens),
        }

    def _proper(self) -> bool:
        """Whether an episode that was answered is in form, its summaries aside."""
        turns = self.episode.searching
        text = joined((open_thought(reply), feedback) for reply, feedback in turns)
        return self.form.proper([self.conversation.read(self, reply) for reply, _ in turns], text)

    def _prompt_tokens(self) -> list[int]:
        """Tokens of each observation, counted by its parts, all at once at the end."""
        episode, fresh = self.episode, dict(self.episode.prompts)
        turns = range(len(episode.history))
        parts = [fresh[turn] if turn in fresh else joined(episode.history[turn - 1 : turn]) for turn in turns]
        tokens: list[int] = []
        for turn, count in enumerate(self.tokenizer.counts(parts)):
            tokens.append(count if turn in fresh else tokens[-1] + count)
        return tokens

    def _privileged(self) -> dict[str, Any]:
        task, tasks = self._task, self.questions
        marked: Any = functools.partial(tasks.marked_sentences, task) if isinstance(tasks, TaskSet) else []
        shown = self._shown_evidence
        return {
            "answers": [list(accepted) for accepted in task.answers],
            "evidence": list(self._evidence),
            "sentences": marked,
            "passages": list(self.episode.passages),
            "question": task.question,
            "target": self._target,
            "target_wrapped": self.form.answer(self._target),
            **self.conversation.scoring_prompts(self, shown and self.form.show(shown)),
        }

    # For others.

    def render(self) -> Any:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        episode, reply = self.episode, self._last.reply
        title = f"task {self._task.id}, {episode.turn} of {self.last_turn} turns played"
        read = [block("question", self._task.question, limit=600)]
        if episode.history:
            feedback = episode.history[-1][1]
            read = [block("came back", feedback, limit=800)] if feedback else []
        earned = self.reward_lines(reward_line(self._last.rewards))
        return show_turn(title, reply, earned, read, episode.end)

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
    it mean nothing; the rest is read as Search-R1 reads it.

    Args:
        reply: the reply.
        thoughts: which thought counts as such (`memenvs.core.text.thought_end`).
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


@functools.lru_cache(maxsize=4096)
def _evidence(tasks: TaskSet, number: int) -> list[str]:
    """Contents of the evidence documents of a task; a group plays the same task many times."""
    return tasks.shown(tasks[number].evidence)


def _search_contents(retriever: Retriever, queries: list[str], k: int) -> list[list[str]]:
    """Contents of the best `k` passages of each query, by one call of the retriever."""
    hits = retriever.search(queries, k).ids
    passages = retriever.passages(list(dict.fromkeys(id for ids in hits for id in ids)))
    contents = {passage.id: passage.contents for passage in passages}
    return [[contents[id] for id in ids] for ids in hits]
