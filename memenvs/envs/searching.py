"""What environments with a search tool share: the questions, the search, the passages shown, the answer."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from memenvs.core.env import MAX_REPLY_CHARS, EpisodeState, Info, TextEnv
from memenvs.core.spaces import clean_text
from memenvs.core.text import Tagged, Template, escape_tags, first_pair, holds_known_tag, in_order
from memenvs.core.tools import Tool, ToolUse
from memenvs.envs.render import block, reward_line, show_turn
from memenvs.retrieval import Retriever, load_retriever
from memenvs.tasks.mentions import joined_spelling, spelling
from memenvs.tasks.metrics import Grade, get_metric, gold_answer, grade_answer, wrap_answer
from memenvs.tasks.taskset import Task, TaskSet, open_questions, tokenizer_of
from memenvs.tasks.tokens import TextTokenizer, text_gaps

ASK = Template(
    """\
Answer the question. Think inside <think>…</think> whenever you learn something. If you lack knowledge, \
search with <search>query</search>; the results are returned inside <information>…</information>. You may \
search up to {searches} times. When you know the answer, give it without explanation, as short as possible, \
inside <answer>…</answer>{several}.

Question: {question}
""",
    required=("question",),
    optional=("searches", "several"),
    name="ask",
)

ASK_BY_TOOLS = """\
Answer the question. Look up what you do not know with the tool `{tool}`, at most {searches}. Then give the \
answer, as short as possible, with the tool `answer`{several}.

Question: {question}
"""

_KINDS: tuple[Literal["search", "answer"], ...] = ("search", "answer")


@dataclass
class SearchingEpisode(EpisodeState):
    """An episode with a search tool.

    Attributes:
        history: each turn's reply and feedback.
        answer: the answer given; None without one.
        retrieved: whether any search found an accepted answer in its passages.
        events: of the last turn, 1.0 or 0.0, under `SearchingEnv.event_names`.
        passages: contents of the passages that the last turn showed, in whole or in part.
    """

    history: list[tuple[str, str]] = field(default_factory=list)
    answer: str | None = None
    retrieved: bool = False
    events: dict[str, float] = field(default_factory=dict)
    passages: list[str] = field(default_factory=list)


E = TypeVar("E", bound=SearchingEpisode)


class SearchingEnv(TextEnv[str, E]):
    """A question, turns in which passages are searched, an answer.

    A subclass sets its own attributes first, then calls this `__init__`, which asks it for `_longest`.

    Attributes:
        questions: the tasks.
        retriever: what is searched.
        k: passages per search.
        last_turn: turns in all.
        max_answer: tokens of the answer that count, for each of the task's questions.
        opening: what a reply begins with that has nothing to say.
        event_names: of `info["events"]`, all 0.0 at reset.

    Args: see `SearchQAEnv`.
    """

    unhashed = ("render_mode", "tasks")
    event_names: ClassVar[tuple[str, ...]]
    max_answer: int = 64
    opening: str
    last_turn: int
    _task: Task
    _evidence: list[str]  # contents of the documents that the answer needs, where they are known
    _passages: str  # the same as passages
    _target: str
    _found: Mapping[str, list[str]] = {}  # what `prepare` found for the queries of the next step

    def __init__(
        self,
        tasks: str,
        retriever: str | None,
        k: int,
        tokenizer: str | None,
        metric: str | None,
        render_mode: str | None,
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
        self.tokenizer = tokenizer_of(self.questions, tokenizer)
        self.k = k
        question = max(len(task.question) for task in self.questions)
        objectives = max(len(task.answers) for task in self.questions)
        super().__init__(len(self.questions), self._longest(question, objectives), render_mode)

    # What an environment writes.

    @abstractmethod
    def queries_of(self, reply: str) -> Sequence[str]:
        """The queries that `step(reply)` will run now."""

    @abstractmethod
    def call(self, query: str) -> str:
        """The part of a reply that searches for a query."""

    def answer(self, text: str) -> str:
        """The part of a reply that answers."""
        return wrap_answer(text, "tag")

    def _tool_use(self, name: str, searches: int, hint: str) -> ToolUse:
        """The two tools: one that searches, by its name, and one that answers."""

        def ask() -> str:
            often = "once" if searches == 1 else f"{searches} times"
            places = {"question": self._task.question, "several": several(len(self._task.answers))}
            return ASK_BY_TOOLS.format(tool=name, searches=often, **places)

        search = Tool(name, "Look something up.", "query", "What to look up.", self.call)
        meaning = "The answer, as short as possible."
        answer = Tool(
            "answer", "Give the final answer, which ends the episode.", "answer", meaning, self.answer
        )
        return ToolUse((search, answer), ask, hint)

    @abstractmethod
    def _longest(self, question: int, objectives: int) -> int:
        """Characters of the longest observation, from those of a question and the objectives of a task."""

    @abstractmethod
    def _scoring_prompts(self) -> dict[str, Any]:
        """The scoring fields but `question` and the targets; the teacher reads `_passages`."""

    # The search.

    @staticmethod
    def prepare(plays: Iterable[tuple[Any, str]], *, may_fail: bool = False) -> None:
        """Search for the queries of several environments by one call for each retriever and k.

        Args:
            plays: unwrapped environments, which need not search, and the reply that each plays next.
            may_fail: a call that raises finds nothing, so that each environment searches by itself.
        """
        calls: dict[tuple[int, int], list[tuple[SearchingEnv[Any], str]]] = {}
        for env, reply in plays:
            for query in env.queries_of(clean_text(reply, MAX_REPLY_CHARS)):
                calls.setdefault((id(env.retriever), env.k), []).append((env, query))
        for (_, k), group in calls.items():
            try:
                results = _search_contents(group[0][0].retriever, [query for _, query in group], k)
            except Exception:
                if not may_fail:
                    raise
                continue
            for (env, query), passages in zip(group, results, strict=True):
                env._found = {**env._found, query: passages}

    def find(self, *queries: str) -> list[str]:
        """Contents of the best `k` passages of each query."""
        found, self._found = dict(self._found), {}
        if missing := [query for query in dict.fromkeys(queries) if query not in found]:
            found |= dict(zip(missing, _search_contents(self.retriever, missing, self.k), strict=True))
        return [passage for query in queries for passage in found[query]]

    def _show_passages(self, passages: Sequence[str], max_tokens: int) -> tuple[str, list[str]]:
        """Passages as at most `max_tokens` tokens of text, and the part of it that shows each."""
        parts = cut_passages(passages, self.tokenizer, max_tokens)
        self.episode.passages = [text for text, part in zip(passages, parts, strict=True) if part.strip()]
        return "".join(parts).strip(), parts

    # The episode.

    def _set_task(self, number: int) -> None:
        """Make the numbered task the one that is played."""
        self._task, questions = self.questions[number], self.questions
        self._evidence = _evidence(questions, number) if isinstance(questions, TaskSet) else []
        self._target = gold_answer(self._task.answers, self.metric)
        self._passages = show_passages(self._evidence).strip()

    def task_set(self) -> tuple[str, str]:
        """The questions' name and hash."""
        return self.questions.name, self.questions.hash

    def render(self) -> Any:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        episode, reply = self.episode, self._last.reply
        title = f"task {self._task.id}, {episode.turn} of {self.last_turn} turns played"
        read = block("question", self._task.question, limit=600)
        if episode.history:
            read = block("came back", episode.history[-1][1], limit=800)
        earned = self.reward_lines(reward_line(self._last.rewards))
        return show_turn(title, reply, earned, [read], episode.end)

    def _feedback(self) -> str:
        return self.episode.history[-1][1]

    def _give_answer(self, text: str) -> None:
        """End the episode by an answer, with tags escaped, cut at `max_answer` tokens a question."""
        limit = self.max_answer * len(self._task.answers)
        self.episode.answer, _ = self.tokenizer.truncate(escape_tags(text), limit)
        self.episode.end = "terminated"

    def n_choices(self, n_answers: int) -> int:
        """The length of `choices`."""
        return 2 * n_answers + 1

    def choices(self, answers: Sequence[str]) -> list[str]:
        """Replies that give each answer, and that search for the question alone and with each answer."""
        question = self._task.question
        queries = [question, *(f"{question} {answer}" for answer in answers)]
        return [self.opening + one for one in (*map(self.answer, answers), *map(self.call, queries))]

    def _grade(self) -> Grade:
        return grade_answer(self.episode.answer, self._task.answers, metric=self.metric)

    def gold_reply(self) -> str:
        """The answer at once."""
        return self.opening + self.answer(self._target)

    def _privileged(self) -> dict[str, Any]:
        task, tasks = self._task, self.questions
        marked: Any = functools.partial(tasks.marked_sentences, task) if isinstance(tasks, TaskSet) else []
        return {
            "answers": [list(accepted) for accepted in task.answers],
            "evidence": list(self._evidence),
            "sentences": marked,
            "passages": list(self.episode.passages),
            "question": task.question,
            "target": self._target,
            "target_wrapped": self.answer(self._target),
            **self._scoring_prompts(),
        }

    def _task_id(self) -> str:
        return self._task.id

    def _info(self, rewards: dict[str, float]) -> Info:
        return {
            **super()._info(rewards),
            "events": {**dict.fromkeys(self.event_names, 0.0), **self.episode.events},
        }


def several(objectives: int) -> str:
    """How a prompt says that several questions are answered; nothing for one."""
    if objectives == 1:
        return ""
    return f": the {objectives} answers in the order of the questions, separated by ;"


def joined(history: Iterable[tuple[str, str]]) -> str:
    """Turns as one text: each reply and the feedback on it."""
    return "".join(reply + feedback for reply, feedback in history)


def show_passages(passages: Sequence[str]) -> str:
    """Passages as Search-R1 shows them: `Doc 1(Title: …) text`, a line each, with tags escaped.

    Args:
        passages: contents: a title line, then the text.
    """
    return "".join(_block(number, contents) for number, contents in enumerate(passages, 1))


def cut_passages(passages: Sequence[str], tokenizer: TextTokenizer, max_tokens: int) -> list[str]:
    """The part of each passage that is shown, as Search-R1 shows it, at most `max_tokens` tokens in all.

    Each passage is written and tokenised once and remembered: searches of one task bring the same ones again
    and again.
    """
    parts, left = list[str](), max_tokens
    for number, contents in enumerate(passages, 1):
        block = _block(number, contents)
        gaps = text_gaps(tokenizer, block)
        parts.append(block if len(gaps) <= left else block[: int(gaps[:left].sum())])
        left = max(left - len(gaps), 0)
    return parts


def holds_answer(parts: Sequence[str], answers: Sequence[Sequence[str]]) -> tuple[bool, list[bool]]:
    """Whether a text, and each part of it, contains an accepted answer of any objective as whole words.

    Case, accents, punctuation and leading articles do not matter (`memenvs.tasks.mentions.Spelling`).

    Args:
        parts: of the text; all but the last end in white space, so that each word is of one part.
        answers: accepted ones of each objective.
    """
    accepted = [answer for objective in answers for answer in objective]
    spelled = [spelling(part) for part in parts]
    each = [any(map(part.holds, accepted)) for part in spelled]
    return any(each) or (len(parts) > 1 and any(map(joined_spelling(spelled).holds, accepted))), each


@functools.lru_cache(maxsize=4096)
def _evidence(tasks: TaskSet, number: int) -> list[str]:
    """Contents of the evidence documents of a task; a group plays the same task many times."""
    return tasks.shown(tasks[number].evidence)


@functools.lru_cache(maxsize=20_000)
def _block(number: int, contents: str) -> str:
    title, _, text = contents.partition("\n")
    return escape_tags(f"Doc {number}(Title: {title}) {text}\n")


def _search_contents(retriever: Retriever, queries: list[str], k: int) -> list[list[str]]:
    """Contents of the best `k` passages of each query, by one call of the retriever."""
    hits = retriever.search(queries, k).ids
    passages = retriever.passages(list(dict.fromkeys(id for ids in hits for id in ids)))
    contents = {passage.id: passage.contents for passage in passages}
    return [[contents[id] for id in ids] for ids in hits]


class Move(NamedTuple):
    """What a reply does.

    Attributes:
        kind: `"search"`, `"answer"`, `"summary"` (`memory_mode="compact"`), or `""` where there is none.
        content: the query or the answer, stripped.
        well_formed: the reply is a thought and one of them, and nothing else; no tag that agents or
            environments use is inside (MT-PPO 5.2: each once). Where a memory is asked for it opens the
            reply, and the thought may come before or after it.
        queries: all queries of a search, `content` the first of them.
        memory: the `<mem>…</mem>` that opens the reply; None where none does.
    """

    kind: Literal["search", "answer", "summary", ""] = ""
    content: str = ""
    well_formed: bool = False
    queries: tuple[str, ...] = ()
    memory: Tagged | None = None


class SearchForm:
    """Search-R1's form: `<search>query</search>`, `<information>…</information>`, `<answer>text</answer>`.

    Attributes:
        ask: the prompt.
        hint: feedback on a reply that neither searches nor answers.
    """

    ask: ClassVar[Template] = ASK
    hint: ClassVar[str] = (
        "Your reply contained neither <search>query</search> nor <answer>text</answer>. Use one of them."
    )

    def read(self, reply: str, *, thought: bool = False) -> Move:
        """What a reply does; `thought` says that a thought came before it, so it needs none.

        It ends at its first `</search>`, otherwise at its first `</answer>`; the first complete pair in what
        is left decides, also one inside `<think>`.
        """
        kept = reply
        for closing in ("</search>", "</answer>"):
            if closing in reply:
                kept = reply[: reply.index(closing) + len(closing)]
                break
        pairs = [(pair.start, tag, pair) for tag in _KINDS if (pair := first_pair(kept, tag))]
        if not pairs:
            return Move()
        _, kind, pair = min(pairs)
        content = pair.text.strip()
        queries = (content,) if kind == "search" else ()
        return Move(kind, content, in_form(reply, kind, thought), queries)

    def call(self, query: str) -> str:
        """A call that searches for a query."""
        return f"<search>{query}</search>"

    def answer(self, text: str) -> str:
        """An answer."""
        return wrap_answer(text, "tag")

    def show(self, shown: str) -> str:
        """The feedback of a search; its tag is always closed."""
        return f"\n\n<information>{shown}</information>\n\n"

    def proper(self, moves: list[Move], text: str) -> bool:
        """Whether an episode that ended by an answer is in form.

        Args:
            moves: of its replies.
            text: its replies and what came back.
        """
        return all(move.well_formed for move in moves)


def in_form(reply: str, tag: str, thought: bool) -> bool:
    """Whether a reply is a thought, one pair of the tag and nothing else, with no known tag inside."""
    parts = in_order(reply, "think", tag) or (in_order(reply, tag) if thought else None)
    return parts is not None and not any(holds_known_tag(part.text) for part in parts)
