"""Question answering with tool calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memenvs.core.checks import check_whole
from memenvs.core.env import MAX_REPLY_CHARS, EpisodeState, Info, TextEnv
from memenvs.core.spaces import replace_surrogates
from memenvs.core.text import Template, first_pair, in_order, replace_templates
from memenvs.envs.render import conversation_turn
from memenvs.envs.searching import (
    Searching,
    check_turns,
    cut_passages,
    evidence_of,
    extents,
    harmless,
    holds_answer,
    open_retriever,
    several,
    show_passages,
)
from memenvs.tasks.grading import Grade, gold_answer, grade_answer
from memenvs.tasks.metrics import get_metric, wrap_answer
from memenvs.tasks.taskset import identity_of, open_questions, own_metric
from memenvs.tasks.tokens import load_tokenizer

TOOL = "wiki_search"
NOTHING = {"called": 0.0, "ran": 0.0, "retrieved": 0.0}
NO_TOOL = "Error: Tool command not found or invalid XML format. Please ensure correct formatting."
EMPTY = "Error: Tool execution returned empty output."

PROMPT = Template(
    """\
Answer the question with one call of a search tool. First reason and call the tool:

<reasoning>…</reasoning>
<tool>
{"name": "wiki_search", "args": {"query": "what to look up"}}
</tool>

Its result comes back inside <result>…</result>. Then reason and answer, as short as it can be:

<reasoning>…</reasoning>
<answer>…</answer>{several}

Question: {question}
""",
    required=("question",),
    optional=("several",),
    name="ask",
)


def call_tool(command: str, search: Callable[[str], Any]) -> str:
    """The result of a JSON tool call, or the text of its error, worded as MT-GRPO's tool environment does.

    Args:
        command: what stands in `<tool>`.
        search: called with the query of `wiki_search`; what it raises becomes an error text, but for
            `OSError` and `LookupError`, which mean that there is nothing to search.
    """
    try:
        call = json.loads(command)
    except (ValueError, RecursionError):
        return "Error: Invalid JSON format"
    if not isinstance(call, dict):
        return "Error: Tool command must be a JSON object"
    name, args = call.get("name"), call.get("args", {})
    if not name:
        return "Error: Tool command must specify 'name'"
    if isinstance(name, (list, dict)):
        return f"Error: unhashable type: '{type(name).__name__}'"
    if name != TOOL:
        return f"Error: Unknown tool '{name}'"
    fault = _fault(args)
    if fault:
        return f"Error: {fault}"
    try:
        return str(search(args["query"]))
    except (OSError, LookupError):
        raise  # a retriever that is away is no lesson for an agent: the caller must know
    except Exception as error:  # what the tool itself refuses is text for the agent
        return f"Error: {error}"


def _fault(args: Any) -> str:
    """What is wrong with the arguments of the call, in Python's words; empty if nothing is."""
    if not isinstance(args, dict):
        return f"__main__.{TOOL}() argument after ** must be a mapping, not {type(args).__name__}"
    if unexpected := next((key for key in args if key != "query"), None):
        return f"{TOOL}() got an unexpected keyword argument '{unexpected}'"
    if "query" not in args:
        return f"{TOOL}() missing 1 required positional argument: 'query'"
    if not isinstance(args["query"], str):
        return f'can only concatenate str (not "{type(args["query"]).__name__}") to str'
    return ""


@dataclass
class ToolEpisode(EpisodeState):
    """An episode of one tool call.

    Attributes:
        history: each turn's reply and what came back.
        answer: the answer given; None without one.
        called: whether the tool ran without an error.
        retrieved: whether an accepted answer stands in its result.
        events: of the last turn, 1.0 or 0.0: `called`, `ran`, `retrieved`.
    """

    history: list[tuple[str, str]] = field(default_factory=list)
    answer: str | None = None
    called: bool = False
    retrieved: bool = False
    events: dict[str, float] = field(default_factory=dict)


class ToolQAEnv(Searching, TextEnv[str, ToolEpisode]):
    """Answer a question with one search call (MT-GRPO's two-turn tool use).

    Action:
        First `<reasoning>…</reasoning><tool>{"name": "wiki_search", "args": {"query": …}}</tool>`, then
        `<reasoning>…</reasoning><answer>…</answer>`. An answer in the first turn ends the episode.

    Observation:
        The question, then the reply and `<result>…</result>` or an error text; a search that finds nothing
        is an error too. `info["context"]` is `"append"`.

    Reward:
        `outcome`: the metric of the answer. The turn rewards of the paper are `memenvs.wrappers.ToolRewards`.

    End:
        `terminated` by an answer, `truncated` after the second turn without one.

    Info:
        `events` of this turn, floats: `called` (a tool call was answered, be it by an error), `ran` (without
        an error), `retrieved` (an accepted answer stands in the passages that it found).

    Metrics:
        `success`, `em`, `f1`, `format` (1.0 if every reply was a reasoning and a call, and the last one a
        reasoning and an answer, and nothing else), `called` (the tool ran without an error), `retrieved` (an
        accepted answer stands in the result), `turns`.

    Privileged:
        `answers`, and the scoring fields (see `TextEnv`); a teacher reads the task's evidence, where the task
        set knows it, as a result behind the observation.

    Args:
        tasks: a bundled set's name, a task-set folder, or JSON Lines of `question` and `answers`.
        retriever: as for `SearchQAEnv`.
        k: passages of a result.
        max_result: tokens of a result.
        max_answer: as for `SearchQAEnv`.
        tokenizer: counts them.
        template: `{"ask": …}` with the place `{question}`; `{several}` (how to give several answers) may be
            used. Own wording by default.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's own, `em` for JSON Lines.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    episode_class = ToolEpisode
    unhashed = ("render_mode", "tasks")
    metric_names = ("success", "em", "f1", "format", "called", "retrieved", "turns")
    context = "append"

    def __init__(
        self,
        tasks: str = "world-train",
        retriever: str | None = None,
        k: int = 3,
        max_result: int = 500,
        max_answer: int = 64,
        tokenizer: str = "world",
        template: dict[str, str] | None = None,
        metric: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_whole(k=k, max_result=max_result, max_answer=max_answer)
        self.questions = open_questions(tasks)
        self.metric = own_metric(self.questions) if metric is None else metric
        get_metric(self.metric)
        self.retriever = open_retriever(retriever, self.questions, tasks)
        self.tokenizer = load_tokenizer(tokenizer)
        self.k, self.max_result, self.max_answer = k, max_result, max_answer
        self._ask = replace_templates({"ask": PROMPT}, template)["ask"]
        question, objectives = extents(self.questions)
        longest = self._ask.longest(question=question, several=len(several(objectives)))
        turn_chars = 2 * MAX_REPLY_CHARS + 64 * max_result  # an error may repeat the reply
        super().__init__(len(self.questions), longest + 2 * turn_chars, render_mode)

    def query_of(self, reply: str) -> str | None:
        """See `Searching`."""
        command = first_pair(reply, "tool")
        if command is None or self.episode.history or first_pair(reply, "answer"):
            return None
        asked: list[str] = []
        call_tool(command.text.strip(), asked.append)
        return asked[0] if asked else None

    def gold_reply(self) -> str:
        """The answer at once."""
        return f"<reasoning></reasoning>{wrap_answer(gold_answer(self._task.answers, self.metric), 'tag')}"

    def render(self) -> Any:
        """The turn as a person reads it."""
        if self.render_mode is None:
            return None
        episode = self.episode
        return conversation_turn(
            title=f"task {self._task.id}, {episode.turn} of 2 turns played",
            question=self._task.question,
            reply=self._last.reply,
            rewards=self._last.rewards,
            came=episode.history[-1][1] if episode.history else "",
            end=episode.end,
        )

    def _begin(self, task: int) -> ToolEpisode:
        self._task = self.questions[task]
        return ToolEpisode(task)

    def task_set(self) -> tuple[str, str]:
        """The questions' name and hash."""
        return identity_of(self.questions)

    def _restored(self) -> None:
        check_turns(self.episode, self.episode.history, 2)
        self._task = self.questions[self.episode.task]

    def _observe(self) -> str:
        return self._start() + "".join(reply + feedback for reply, feedback in self.episode.history)

    def _start(self) -> str:
        return self._ask.fill(question=self._task.question, several=several(len(self._task.answers)))

    def _feedback(self) -> str:
        return self.episode.history[-1][1]

    def _play(self, reply: str) -> dict[str, float]:
        episode = self.episode
        episode.events = {}
        answer = first_pair(reply, "answer")
        if answer is not None:
            limit = self.max_answer * len(self._task.answers)
            episode.answer, _ = self.tokenizer.head(harmless(answer.text.strip()), limit)
            episode.history.append((reply, ""))
            episode.end = "terminated"
            return {"outcome": self._grade().outcome}
        if episode.history:
            episode.end = "truncated"
            episode.history.append((reply, ""))
        else:
            episode.history.append((reply, f"\n\n{self._respond(reply)}\n\n"))
        return {}

    def _respond(self, reply: str) -> str:
        """What comes back for the first turn."""
        command = first_pair(reply, "tool")
        if command is None:
            return NO_TOOL
        episode = self.episode
        result = replace_surrogates(call_tool(command.text.strip(), self._search))
        if not result.strip():
            episode.events = {"called": 1.0}
            return EMPTY
        episode.called = not result.startswith("Error:")
        episode.retrieved = episode.called and holds_answer(result, self._task.answers)
        episode.events = {
            "called": 1.0,
            "ran": float(episode.called),
            "retrieved": float(episode.retrieved),
        }
        return _result(harmless(result))

    def _well_formed(self) -> bool:
        *calls, (last, _) = self.episode.history
        answered = in_order(last, "reasoning", "answer") is not None
        return answered and all(in_order(reply, "reasoning", "tool") is not None for reply, _ in calls)

    def _search(self, query: str) -> str:
        return cut_passages(self.find(query), self.tokenizer, self.max_result)

    def _grade(self) -> Grade:
        return grade_answer(self.episode.answer, self._task.answers, metric=self.metric)

    def _metrics(self) -> dict[str, float]:
        episode, scores = self.episode, self._grade()
        return {
            "success": float(scores.outcome == 1.0),
            "em": scores.em,
            "f1": scores.f1,
            "format": float(self._well_formed()),
            "called": episode.called,
            "retrieved": episode.retrieved,
            "turns": len(episode.history),
        }

    def _privileged(self) -> dict[str, Any]:
        target = gold_answer(self._task.answers, self.metric)
        evidence = evidence_of(self.questions, self._task)
        result = f"{_result(show_passages(evidence).strip())}\n\n" if evidence else ""
        return {
            "answers": [list(accepted) for accepted in self._task.answers],
            "question": self._task.question,
            "target": target,
            "target_wrapped": wrap_answer(target, "tag"),
            **self._appended_fields(self._start(), self._observe(), result),
        }

    def _task_id(self) -> str:
        return self._task.id

    def _info(self, rewards: dict[str, float]) -> Info:
        return {**super()._info(rewards), "events": {**NOTHING, **self.episode.events}}


def _result(text: str) -> str:
    return f"<result>\n{text}\n</result>"
