"""Question answering with tool calls.

`gym.make("MemToolQA-v0")`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from memenvs.core.data import Count, checked
from memenvs.core.spaces import replace_surrogates
from memenvs.core.text import Template, Texts, escape_tags, first_pair, in_order
from memenvs.envs.search_forms import Move, SearchForm
from memenvs.envs.search_qa import SearchQAEnv

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
    optional=("several", "tool_descriptions"),
)


class ToolForm(SearchForm):
    """MT-GRPO's form: a JSON call of `wiki_search` in `<tool>`, thoughts in `<reasoning>`.

    An answer wins over a call.
    """

    ask = PROMPT
    hint = NO_TOOL
    results = "result"
    thoughts = "reasoning"
    calls = "tool"
    tool = TOOL

    def read(self, reply: str, *, thought: bool = False) -> Move:
        if answer := first_pair(reply, "answer"):
            return Move("answer", answer.text.strip())
        if command := first_pair(reply, "tool"):
            query, fault = read_call(command.text.strip())
            return Move("search", query, queries=() if fault else (query,), fault=fault)
        return Move()

    def call(self, query: str) -> str:
        return f"<tool>\n{json.dumps({'name': TOOL, 'args': {'query': query}})}\n</tool>"

    def show(self, passages: str) -> str:
        """The feedback of a call, without the blank line before it."""
        return f"<result>\n{passages}\n</result>\n\n"


class ToolQAEnv(SearchQAEnv):
    """Answer a question with one search call (MT-GRPO's two-turn tool use).

    In the first turn the agent calls a search tool with a JSON object, in the second it answers from what the
    tool returned. It is the shortest task in which one turn depends on another: a bad call leaves nothing to
    answer from. Arguments that are not described below are those of `SearchQAEnv`.

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
        - `answers`: the accepted answers of each objective.
        - `evidence`: the documents that the answer needs, if the task set knows them.
        - `sentences`: their sentences that the task set marks.
        - `passages`: the passages that the last turn returned.
        - `teacher_prompt`, `teacher_prompt_global`: the observation, and the evidence as a result after it.
        - The other scoring fields (see `TextEnv`).

    Args:
        k: passages per result.
        max_result: tokens per result.
        template: another prompt: a file, its text, or `{"ask": …}` with either (docs/prompts.md). The
            placeholders are `{question}` and optionally `{several}` (how to give several answers) and
            `{tool_descriptions}`. Other parts are `tools` (for agents that call tools) and `hint` (after a
            reply without a call). By default the environment's own wording.

    Version:
        v0: first.
    """

    event_names = ("called", "ran", "retrieved")
    metric_names = (
        *("success", "em", "f1", "format", "answer_present", "xml_format", "xml_tags"),
        *("called", "retrieved", "turns"),
    )
    forms: ClassVar[Mapping[str, SearchForm]] = {"search_r1": ToolForm()}

    @checked
    def __init__(
        self,
        tasks: str = "world-train",
        retriever: str | None = None,
        k: Count = 3,
        max_result: Count = 500,
        tokenizer: str | None = None,
        template: Texts | None = None,
        metric: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            tasks,
            retriever,
            k,
            max_turns=1,
            max_information=max_result,
            template=template,
            tokenizer=tokenizer,
            metric=metric,
            render_mode=render_mode,
        )

    def own_templates(self) -> dict[str, Template]:
        """The environment's templates; the second turn is not announced."""
        templates = super().own_templates()
        return {name: template for name, template in templates.items() if name != "last"}

    @property
    def asked(self) -> dict[str, object]:
        tool = self.search_tool
        described = f"{tool.name}: {tool.description}\n\nArguments:\n  - {tool.argument}: {tool.meaning}"
        return {**super().asked, "tool_descriptions": described}

    def _events(self, move: Move, searched: bool, retrieved: bool, new: bool) -> dict[str, float]:
        called = move.kind == "search" and not self.state.history
        return {"called": called, "ran": bool(self.state.passages), "retrieved": retrieved}

    def _respond(self, move: Move, passages: str) -> str:
        if self.state.history or move.kind == "answer":
            return ""
        if passages or move.fault:
            return "\n\n" + self.form.show(passages or escape_tags(move.fault))
        return f"\n\n{EMPTY if move.kind else self.conversation.templates['hint'].fill()}\n\n"

    def _metrics(self) -> dict[str, float]:
        state, scores = self.state, self._grade()
        replies = [reply for reply, _ in state.history]
        *calls, last = replies
        forms = [form_score(reply) for reply in replies]
        tags = [tag_score(reply) for reply in replies]
        answer = last_answer(replies)
        accepted = accepted_texts(self._task.answers)
        answered = in_order(last, "reasoning", "answer") is not None
        called = all(in_order(reply, "reasoning", "tool") is not None for reply in calls)
        return {
            "success": float(scores.outcome == 1.0),
            "em": scores.em,
            "f1": scores.f1,
            "format": float(answered and called),
            "answer_present": float(answer is not None and any(text in answer for text in accepted)),
            "xml_format": sum(forms) / len(forms),
            "xml_tags": max(0.0, sum(tags) / len(tags)),
            "called": state.events[0]["ran"],
            "retrieved": state.events[0]["retrieved"],
            "turns": len(replies),
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
    """How far each tag that a reply uses is opened and closed once; at most 1.0, may be negative."""
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


def read_call(command: str) -> tuple[str, str]:
    """The query of a JSON call inside `<tool>`, and what is wrong with the call; one of the two is empty."""
    try:
        call = json.loads(command)
    except (ValueError, RecursionError):
        return "", "Error: Invalid JSON format"
    if not isinstance(call, dict):
        return "", "Error: Tool command must be a JSON object"
    name = call.get("name")
    args = call.get("args", {})
    # MT-GRPO looks the tool up in a dict, calls it with ** and shows what Python raises. Those texts
    # are written out here, so that an agent reads the same ones under every version of Python.
    if not name:
        fault = "Tool command must specify 'name'"
    elif isinstance(name, (list, dict)):
        fault = f"unhashable type: '{type(name).__name__}'"
    elif name != TOOL:
        fault = f"Unknown tool '{name}'"
    elif not isinstance(args, dict):
        fault = f"__main__.{TOOL}() argument after ** must be a mapping, not {type(args).__name__}"
    elif unexpected := next((key for key in args if key != "query"), None):
        fault = f"{TOOL}() got an unexpected keyword argument '{unexpected}'"
    elif "query" not in args:
        fault = f"{TOOL}() missing 1 required positional argument: 'query'"
    elif not isinstance(args["query"], str):
        fault = f'can only concatenate str (not "{type(args["query"]).__name__}") to str'
    else:
        return replace_surrogates(args["query"]), ""
    return "", replace_surrogates(f"Error: {fault}")
