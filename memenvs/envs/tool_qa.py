"""Question answering with tool calls."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memenvs.core.data import Count, checked
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.spaces import replace_surrogates
from memenvs.core.text import Template, escape_tags, first_pair, in_order, replace_templates
from memenvs.core.tools import ToolUse, as_thought
from memenvs.envs.searching import (
    SearchingEnv,
    SearchingEpisode,
    holds_answer,
    joined,
    several,
)

TOOL = "wiki_search"
FIELDS = (("reasoning",), ("tool", "answer"))
"""Tags for the two places of a reply."""
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


@dataclass
class ToolEpisode(SearchingEpisode):
    """An episode of one tool call; `called` says whether the tool ran without an error."""

    called: bool = False


class ToolQAEnv(SearchingEnv[ToolEpisode]):
    """Answer a question with one search call (MT-GRPO's two-turn tool use).

    Action:
        First `<reasoning>…</reasoning><tool>{"name": "wiki_search", "args": {"query": …}}</tool>`, then
        `<reasoning>…</reasoning><answer>…</answer>`. An answer in the first turn ends the episode.

    Observation:
        The question, then the reply and `<result>…</result>` or an error message; a search that finds nothing
        is also an error. `info["context"]` is `"append"`.

    Reward:
        `outcome`: the metric of the answer. The turn rewards of the paper are `memenvs.wrappers.ToolRewards`.

    End:
        `terminated` by an answer, `truncated` after the second turn without one.

    Info:
        `events` of this turn, floats: `called` (a tool call was answered, even with an error), `ran` (without
        an error), `retrieved` (the passages that it found contain an accepted answer).

    Metrics:
        `success`, `em`, `f1`, `format` (1.0 if every reply is a reasoning and a call, the last one a
        reasoning and an answer, with nothing else), `answer_present` (the last answer contains an accepted
        one, in lower case), `xml_format` (mean of `form_score` over the replies, 0.2 to 1.0), `xml_tags`
        (mean of `tag_score` over the replies, at least 0), `called` (the tool ran without an error),
        `retrieved` (the result holds an accepted answer), `turns`.

    Privileged:
        `answers`; `evidence`: the documents that the answer needs, if the task set knows them; `sentences`:
        their sentences that the task set marks; `passages`: those that the last turn returned; and the
        scoring fields (see `TextEnv`). A teacher reads the evidence as a result after the observation.

    Args:
        tasks: a bundled set's name, a task-set folder, or JSON Lines of `question` and `answers`.
        retriever: as for `SearchQAEnv`.
        k: passages per result.
        max_result: tokens per result.
        tokenizer: as for `SearchQAEnv`.
        template: `{"ask": …}` with the placeholder `{question}` and optionally `{several}` (how to give
            several answers). By default the environment's own wording.
        metric: a name of `memenvs.tasks.metrics.METRICS`; None: the task set's own, `em` for JSON Lines.
        render_mode: `"ansi"` or None.

    Version:
        v0: first.
    """

    event_names = ("called", "ran", "retrieved")
    metric_names = (
        *("success", "em", "f1", "format", "answer_present", "xml_format", "xml_tags"),
        *("called", "retrieved", "turns"),
    )
    context = "append"
    last_turn = 2
    opening = "<reasoning></reasoning>"

    @checked
    def __init__(
        self,
        tasks: str = "world-train",
        retriever: str | None = None,
        k: Count = 3,
        max_result: Count = 500,
        tokenizer: str | None = None,
        template: dict[str, str] | None = None,
        metric: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.max_result = max_result
        self._ask = replace_templates({"ask": PROMPT}, template)["ask"]
        super().__init__(tasks, retriever, k, tokenizer, metric, render_mode)

    def queries_of(self, reply: str) -> list[str]:
        """The query that `step(reply)` will run now, if it runs one."""
        command = first_pair(reply, "tool")
        if command is None or self.episode.history or first_pair(reply, "answer"):
            return []
        queries: list[str] = []
        call_tool(command.text.strip(), queries.append)
        return queries

    def call(self, query: str) -> str:
        """The part of a reply that searches for a query."""
        return f"<tool>\n{json.dumps({'name': TOOL, 'args': {'query': query}})}\n</tool>"

    def tool_use(self) -> ToolUse:
        """See `TextEnv.tool_use`."""
        compose = functools.partial(as_thought, tag="reasoning")
        return replace(self._tool_use(TOOL, 1, NO_TOOL), compose=compose)

    def _begin(self, task: int) -> ToolEpisode:
        self._set_task(task)
        return ToolEpisode(task)

    def _set_task(self, number: int) -> None:
        super()._set_task(number)
        task = self._task
        self._start = self._ask.fill(question=task.question, several=several(len(task.answers)))

    def _observe(self) -> str:
        return self._start + joined(self.episode.history)

    def _longest(self, question: int, objectives: int) -> int:
        turn = 2 * MAX_REPLY_CHARS + 64 * self.max_result  # an error may repeat the reply
        return self._ask.longest(question=question, several=len(several(objectives))) + 2 * turn

    def _scoring_prompts(self) -> dict[str, Any]:
        result = f"{_result(self._passages)}\n\n" if self._passages else ""
        return self._appended_fields(self._start, self._observe(), result)

    def _play(self, reply: str) -> dict[str, float]:
        episode = self.episode
        episode.events, episode.passages = {}, []
        answer = first_pair(reply, "answer")
        feedback = ""
        if answer is not None:
            self._give_answer(answer.text.strip())
        elif episode.history:
            episode.end = "truncated"
        else:
            feedback = f"\n\n{self._respond(reply)}\n\n"
        episode.history.append((reply, feedback))
        return {} if answer is None else {"outcome": self._grade().outcome}

    def _respond(self, reply: str) -> str:
        """The feedback of the first turn."""
        command = first_pair(reply, "tool")
        if command is None:
            return NO_TOOL
        episode = self.episode
        result = replace_surrogates(call_tool(command.text.strip(), self._show_found))
        if not result.strip():
            episode.events = {"called": 1.0}
            return EMPTY
        episode.called = not result.startswith("Error:")
        episode.retrieved = episode.called and holds_answer([result], self._task.answers)[0]
        episode.events = {"called": 1.0, "ran": float(episode.called), "retrieved": float(episode.retrieved)}
        return _result(escape_tags(result))

    def _show_found(self, query: str) -> str:
        return self._show_passages(self.find(query), self.max_result)[0]

    def _metrics(self) -> dict[str, float]:
        episode, scores = self.episode, self._grade()
        *calls, (last, _) = episode.history
        replies = [reply for reply, _ in episode.history]
        forms, tags = list(map(form_score, replies)), list(map(tag_score, replies))
        said, accepted = last_answer(replies), accepted_texts(self._task.answers)
        answered = in_order(last, "reasoning", "answer") is not None
        called = all(in_order(reply, "reasoning", "tool") is not None for reply, _ in calls)
        return {
            "success": float(scores.outcome == 1.0),
            "em": scores.em,
            "f1": scores.f1,
            "format": float(answered and called),
            "answer_present": float(said is not None and any(text in said for text in accepted)),
            "xml_format": sum(forms) / len(forms),
            "xml_tags": max(0.0, sum(tags) / len(tags)),
            "called": episode.called,
            "retrieved": episode.retrieved,
            "turns": len(episode.history),
        }


def form_score(reply: str) -> float:
    """How far a reply keeps the form, 0.2 to 1.0 (MT-GRPO's XML format before its weight).

    0.4 times the share of the two places (a reasoning; a tool or an answer) that are filled, if any tag pair
    is complete; 0.2 always; 0.2 for opening with a reasoning; 0.2 for closing with a tool or an answer.
    """
    stripped = reply.strip()
    complete = any(first_pair(reply, tag) is not None for place in FIELDS for tag in place)
    filled = sum(any(f"<{tag}>" in reply or f"</{tag}>" in reply for tag in place) for place in FIELDS)
    score = 0.4 * (filled / len(FIELDS)) if complete else 0.0
    score += 0.2
    score += 0.2 * any(stripped.startswith(f"<{tag}>") for tag in FIELDS[0])
    return score + 0.2 * any(stripped.endswith(f"</{tag}>") for tag in FIELDS[-1])


def tag_score(reply: str) -> float:
    """Of the tags that a reply uses, how far each is opened and closed once; 1.0 at most, may be negative."""
    counts = [
        reply.count(form)
        for place in FIELDS
        for tag in place
        if f"<{tag}>" in reply or f"</{tag}>" in reply
        for form in (f"<{tag}>", f"</{tag}>")
    ]
    return sum(1 - abs(count - 1) for count in counts) / len(counts) if counts else 0.0


def last_answer(replies: Sequence[str]) -> str | None:
    """The last answer of an episode, stripped and in lower case; None without one."""
    pairs = (first_pair(reply, "answer") for reply in reversed(replies))
    return next((pair.text.strip().lower() for pair in pairs if pair is not None), None)


def accepted_texts(answers: Sequence[Sequence[str]]) -> list[str]:
    """Accepted answers in lower case; of several questions the first ones, joined."""
    if len(answers) == 1:
        return [answer.strip().lower() for answer in answers[0]]
    return ["; ".join(accepted[0] for accepted in answers).strip().lower()]


def call_tool(command: str, search: Callable[[str], Any]) -> str:
    """The result of a JSON tool call, or the text of its error, worded as MT-GRPO's tool environment does.

    Args:
        command: the content of `<tool>`.
        search: called with the query of `wiki_search`; what it raises becomes an error text, except
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
        raise  # an unreachable retriever is the caller's problem, not the agent's
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


def _result(text: str) -> str:
    return f"<result>\n{text}\n</result>"
