"""How searching agents call, answer and are answered: Search-R1's form, and those of other agents."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal, NamedTuple

from memenvs.core.text import Tagged, Template, first_pair, holds_known_tag, in_order
from memenvs.tasks.metrics import last_boxed, wrap_answer

MAX_QUERIES = 5
"""Queries of one call that are run."""

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
)

ASK_RESEARCH = Template(
    """\
Answer the question step by step. Open every reply by thinking inside <think>…</think>. If a fact is \
missing, continue with <search>query</search>; the results are returned inside <result>…</result>. You may \
search up to {searches} times. At the end, reply with <answer>…</answer> that holds the answer, as short as \
possible, in \\boxed{…}{several}. For example: <think>…</think><answer>It is \\boxed{…}</answer>

Question: {question}
""",
    required=("question",),
    optional=("searches", "several"),
)

ASK_DEEP_RESEARCHER = Template(
    """\
Answer the question by research: plan it, search, and check what you find. You have one tool, web_search. \
Every reply is either a thought and a call of the tool,

<think>…</think>
<tool_call>{"name": "web_search", "arguments": {"query": ["…", "…"]}}</tool_call>

whose results are returned inside <tool_response>…</tool_response>, or, once you know enough, a thought and \
the answer,

<think>…</think>
<answer>…</answer>

which is nothing but the answer, as short as possible{several}. You may call the tool up to {searches} times.

Question: {question}
""",
    required=("question",),
    optional=("searches", "several"),
)


ASK_BY_TOOLS = Template(
    """\
Answer the question. Look up what you do not know with the tool `{tool}`, at most {searches}. Then give the \
answer, as short as possible, with the tool `answer`{several}.

Question: {question}
""",
    required=("question",),
    optional=("tool", "searches", "several"),
)
"""The prompt of an agent that calls tools, in every form."""


class Move(NamedTuple):
    """What a reply does."""

    # `"search"`, `"answer"`, `"summary"` (`memory_mode="compact"`), or `""` where there is none.
    kind: Literal["search", "answer", "summary", ""] = ""
    content: str = ""  # the query or the answer, stripped
    # The reply is a thought and one of them, and nothing else; no tag that agents or environments use is
    # inside (MT-PPO 5.2: each once). Where a memory is asked for it opens the reply, and the thought may come
    # before or after it.
    well_formed: bool = False
    # All queries of a search, `content` the first of them; none where the call is wrong.
    queries: tuple[str, ...] = ()
    memory: Tagged | None = None  # the `<mem>…</mem>` that opens the reply; None where none does
    fault: str = ""  # what is wrong with the call of a search


class SearchForm:
    """Search-R1's form: `<search>query</search>`, `<information>…</information>`, `<answer>text</answer>`."""

    ask: ClassVar[Template] = ASK  # the prompt
    hint: ClassVar[str] = (  # feedback on a reply that neither searches nor answers
        "Your reply contained neither <search>query</search> nor <answer>text</answer>. Use one of them."
    )
    results: ClassVar[str] = "information"  # the tag around what a search returns
    thoughts: ClassVar[str] = "think"  # the tag around a thought
    calls: ClassVar[str] = "search"  # the tag around a call
    tool: ClassVar[str] = "search"  # the name of the tool that searches

    @property
    def tags(self) -> set[str]:
        """The tags that it reads and writes."""
        return {self.calls, self.results, self.thoughts, "answer"}

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
        search, answer = first_pair(kept, "search"), first_pair(kept, "answer")
        if search and not (answer and answer.start < search.start):
            query = search.text.strip()
            return Move("search", query, in_form(reply, "search", thought), (query,))
        if answer:
            return Move("answer", answer.text.strip(), in_form(reply, "answer", thought))
        return Move()

    def call(self, query: str) -> str:
        """The part of a reply that searches for a query."""
        return f"<search>{query}</search>"

    def answer(self, text: str) -> str:
        """The part of a reply that answers."""
        return wrap_answer(text, "tag")

    def show(self, passages: str) -> str:
        """The feedback of a search; its tag is always closed."""
        return f"\n\n<{self.results}>{passages}</{self.results}>\n\n"

    def proper(self, moves: list[Move], text: str) -> bool:
        """Whether an episode that ended by an answer is in form.

        Args:
            moves: what its replies do.
            text: its replies and what came back.
        """
        return all(move.well_formed for move in moves)


class ReSearchForm(SearchForm):
    r"""ReSearch's form (Chen et al. 2025): `<search>`, `<result>`, `<answer>… \boxed{…}</answer>`.

    A reply with a `<search>…</search>` searches, also one that answers before it. Only what is in the box is
    the answer. In form is what its reward takes (`validate_format` of its code) of the whole text.
    """

    ask = ASK_RESEARCH
    hint = SearchForm.hint.replace("text", "\\boxed{text}")
    results = "result"

    def read(self, reply: str, *, thought: bool = False) -> Move:
        if search := first_pair(reply, "search"):
            query = search.text.strip()
            return Move("search", query, in_form(reply, "search", thought), (query,))
        if answer := first_pair(reply, "answer"):
            content = _boxed(answer.text)
            formed = content is not None and in_form(reply, "answer", thought)
            return Move("answer", (content or "").strip(), formed)
        return Move()

    def answer(self, text: str) -> str:
        return wrap_answer(wrap_answer(text, "boxed"), "tag")

    def proper(self, moves: list[Move], text: str) -> bool:
        return all(move.kind for move in moves) and research_format(text)


class DeepResearcherForm(SearchForm):
    """DeepResearcher's form (Zheng et al. 2025): a JSON call of `web_search` with a list of queries.

    The call is in `<tool_call>…</tool_call>`, what it finds in `<tool_response>…</tool_response>`, the
    answer in `<answer>…</answer>`, which wins over a call. Only the first `MAX_QUERIES` queries of a call
    are run. There is no `browse_webpage` here. In form is what its reward takes of the whole text.
    """

    ask = ASK_DEEP_RESEARCHER
    hint = (
        'Your reply contained neither a valid <tool_call>{"name": "web_search", "arguments": {"query": '
        '["…"]}}</tool_call> nor <answer>text</answer>. Use one of them.'
    )
    results = "tool_response"
    calls = "tool_call"

    def read(self, reply: str, *, thought: bool = False) -> Move:
        if answer := first_pair(reply, "answer"):
            return Move("answer", answer.text.strip(), in_form(reply, "answer", thought))
        if call := first_pair(reply, "tool_call"):
            queries = _queries(call.text)
            if queries:
                return Move("search", queries[0], in_form(reply, "tool_call", thought), queries)
        return Move()

    def call(self, query: str) -> str:
        call = {"name": "web_search", "arguments": {"query": [query]}}
        return f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>"

    def proper(self, moves: list[Move], text: str) -> bool:
        return all(move.kind for move in moves) and deep_researcher_format(text)


FORMS: dict[str, SearchForm] = {
    "search_r1": SearchForm(),
    "research": ReSearchForm(),
    "deep_researcher": DeepResearcherForm(),
}
"""By name: Search-R1 (MT-PPO, MemPO), and two baselines of MemPO, ReSearch and DeepResearcher."""


def in_form(reply: str, tag: str, thought: bool) -> bool:
    """Whether a reply is a thought, one pair of the tag and nothing else, with no known tag inside."""
    parts = in_order(reply, "think", tag) or (in_order(reply, tag) if thought else None)
    return parts is not None and not any(holds_known_tag(part.text) for part in parts)


def several(objectives: int) -> str:
    """How a prompt says that several questions are answered; nothing for one."""
    if objectives == 1:
        return ""
    return f": the {objectives} answers in the order of the questions, separated by ;"


def research_format(text: str) -> bool:
    r"""Whether a whole response is in ReSearch's form (`validate_format` of its reward).

    Thoughts that are all closed, at least one; exactly one `<answer>…</answer>` with a `\boxed{…}` in it; and
    behind each `<search>…</search>` a `<result>…</result>`.
    """
    if not text.count("<think>") == text.count("</think>") > 0:
        return False
    if not text.count("<answer>") == text.count("</answer>") == 1:
        return False
    at = 0
    while (search := text.find("<search>", at)) >= 0:
        result = text.find("<result>", search)
        closed = text.find("</search>", search)
        at = text.find("</result>", result)
        if -1 in (result, closed, at) or not search < closed < result < at:
            return False
    inside = first_pair(text, "answer")
    return inside is not None and _boxed(inside.text) is not None


def deep_researcher_format(text: str) -> bool:
    """Whether a whole response is in DeepResearcher's form (its reward's check), in any case.

    As many openings as closings of `<tool_call>`, `<think>` and `<answer>`, each opening with a closing
    behind it, and an answer.
    """
    text = text.lower()
    for tag in ("tool_call", "think", "answer"):
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != text.count(closing):
            return False
        at = 0
        while (start := text.find(opening, at)) >= 0:
            at = text.find(closing, start)
            if at < 0:
                return False
    return first_pair(text, "answer") is not None


def _boxed(text: str) -> str | None:
    return last_boxed(text) if "\\boxed{" in text else None


def _queries(call: str) -> tuple[str, ...]:
    """The queries of a call, stripped, without empty ones; none where it is not one of `web_search`."""
    try:
        command: Any = json.loads(call)
        if command["name"] != "web_search" or not isinstance(command["arguments"]["query"], list):
            return ()
        queries = [query.strip() for query in command["arguments"]["query"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()
    return tuple(filter(None, queries))[:MAX_QUERIES]
