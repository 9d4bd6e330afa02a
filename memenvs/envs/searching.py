"""What the searching environments share: the calls in a reply, the search, and the passages shown."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from memenvs.core.env import MAX_REPLY_CHARS, EpisodeState
from memenvs.core.spaces import clean_text
from memenvs.core.text import Tagged, Template, first_pair, in_order, thought_end
from memenvs.retrieval import Retriever, load_retriever
from memenvs.tasks.metrics import normalize_answer
from memenvs.tasks.taskset import Task, TaskSet
from memenvs.tasks.tokens import Gaps, TextTokenizer

ASK = Template(
    """\
Answer the question. Think inside <think>…</think> whenever you learn something. If you lack knowledge, \
search by <search>query</search>; what is found comes back inside <information>…</information>. You may \
search up to {searches} times. When you know the answer, give it without explanation, as short as it can be, \
inside <answer>…</answer>{several}.

Question: {question}
""",
    required=("question",),
    optional=("searches", "several"),
    name="ask",
)

ASK_WITH_MEMORY = Template(
    """\
Answer the question with the help of a search engine. Of earlier turns you see {shown}. So open every reply \
with <mem>…</mem>: all you have learned so far and what is still to be found, in up to {max_memory} tokens. \
Then think inside <think>…</think>. Then either search by <search>query</search>, or, when you know the \
answer, give it as short as it can be inside <answer>…</answer>{several}. There are {turns} turns left.

Question: {question}

<mem>
{memory}
</mem>
{recent}""",
    required=("question", "memory", "recent"),
    optional=("turns", "several", "shown", "max_memory"),
    name="ask",
)

SHOWN = {
    1: "your own memory and your last turn, nothing else",
    3: "your own memory and your last 3 turns, nothing else",
    "all": "your own memory and every turn",
}
"""What a prompt with a memory says that it repeats, by the number of turns."""

UNREADABLE = """
There was neither <search>query</search> nor <answer>text</answer> in that. Use one of them.
"""

LAST = "No searches are left: answer now.\n\n"

_KINDS: tuple[Literal["search", "answer"], ...] = ("search", "answer")
_KNOWN_TAGS = re.compile(
    r"<(/?\s*(?:think|search|answer|information|mem|reasoning|tool|result)\s*)>", re.IGNORECASE
)


class Move(NamedTuple):
    """What a reply does.

    Attributes:
        kind: `"search"`, `"answer"` or, where there is neither, `""`.
        content: the query or the answer, stripped.
        well_formed: the reply is a thought and one of them, and nothing else; no tag that agents or
            environments use stands inside (MT-PPO 5.2: each once). Where a memory is asked for it opens the
            reply, and the thought may stand before it or behind.
        memory: the `<mem>…</mem>` that opens the reply; None where none does.
    """

    kind: Literal["search", "answer", ""]
    content: str
    well_formed: bool
    memory: Tagged | None = None


def read_reply(reply: str, *, memory: bool = False, thoughts: str = "strip") -> Move:
    """Read one reply of a searching agent, as Search-R1 does.

    It ends at its first `</search>`, else at its first `</answer>`; of what is left the first complete pair
    of tags decides, also one inside `<think>`.

    Args:
        reply: the reply.
        memory: it opens with `<mem>…</mem>`, whose tags mean nothing; without it it is not well formed. Nor
            do the tags of a thought before it mean anything.
        thoughts: what is such a thought: see `memenvs.core.text.thought_end`.
    """
    if not memory:
        return _read(reply)
    start = thought_end(reply, thoughts)
    written = first_pair(reply, "mem", start)
    if written is None or reply[start : written.start].strip():
        return _read(reply[start:])._replace(well_formed=False)
    return _read(reply[written.end :], thought=start > 0)._replace(memory=written)


def _read(reply: str, *, thought: bool = False) -> Move:
    """The move of a reply without its memory; `thought` says that one stood before that."""
    kept = reply[: _cut(reply)]
    pairs = [(pair.start, tag, pair) for tag in _KINDS if (pair := first_pair(kept, tag))]
    if not pairs:
        return Move("", "", False)
    _, kind, pair = min(pairs)
    parts = in_order(reply, "think", kind) or (in_order(reply, kind) if thought else None)
    once = parts is not None and not any(_KNOWN_TAGS.search(part.text) for part in parts)
    return Move(kind, pair.text.strip(), once)


def _cut(reply: str) -> int:
    for closing in ("</search>", "</answer>"):
        at = reply.find(closing)
        if at >= 0:
            return at + len(closing)
    return len(reply)


def show_passages(passages: Sequence[str]) -> str:
    """Passages as Search-R1 shows them: `Doc 1(Title: …) text`, a line each; tags in them made harmless.

    Args:
        passages: contents: a title line, then the text.
    """
    return "".join(_block(number, contents) for number, contents in enumerate(passages, 1))


@functools.lru_cache(maxsize=20_000)
def _block(number: int, contents: str) -> str:
    title, _, text = contents.partition("\n")
    return harmless(f"Doc {number}(Title: {title}) {text}\n")


def harmless(text: str) -> str:
    """`text` with the tags that agents and environments use written in ‹ ›, so that none is one."""
    return _KNOWN_TAGS.sub("‹\\1›", text)


def cut_passages(passages: Sequence[str], tokenizer: TextTokenizer, max_tokens: int) -> str:
    """Passages as they are shown, cut at `max_tokens` tokens.

    Each passage is written and tokenised once and remembered: searches of one task bring the same ones again
    and again.
    """
    gaps = [_gaps(tokenizer, _block(number, contents)) for number, contents in enumerate(passages, 1)]
    shown = show_passages(passages)
    if sum(map(len, gaps)) > max_tokens:
        shown = shown[: int(np.concatenate(gaps)[:max_tokens].sum())]
    return shown.strip()


def passages_shown(passages: Sequence[str], shown: str) -> list[str]:
    """What `cut_passages` left of each passage in the text that it made of them; empty where nothing."""
    ends = list(accumulate(len(_block(number, contents)) for number, contents in enumerate(passages, 1)))
    return [shown[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@functools.lru_cache(maxsize=20_000)
def _gaps(tokenizer: TextTokenizer, block: str) -> Gaps:
    (gaps,) = tokenizer.gaps([block])
    return gaps


def information(shown: str) -> str:
    """What comes back for a search; the tag is always closed."""
    return f"\n\n<information>{shown}</information>\n\n"


def holds_answer(text: str, answers: Sequence[Sequence[str]]) -> bool:
    """Whether an accepted answer of any objective stands in the text, as whole words."""
    return holds_answer_by_part([text], answers)[0]


def holds_answer_by_part(parts: Sequence[str], answers: Sequence[Sequence[str]]) -> tuple[bool, list[bool]]:
    """`holds_answer` of a text that is given in parts, and of each part by itself.

    Args:
        parts: all but the last end in white space, so that each word of the text is one of a part.
        answers: accepted ones of each objective.
    """
    accepted = [normalize_answer(answer) for objective in answers for answer in objective]
    sought = [f" {answer} " for answer in accepted if answer]
    words = [normalize_answer(part) for part in parts]

    def holds(found: str) -> bool:
        return any(answer in f" {found} " for answer in sought)

    each = list(map(holds, words))
    return any(each) or holds(" ".join(filter(None, words))), each


def several(objectives: int) -> str:
    """How several questions are answered; nothing for one."""
    if objectives == 1:
        return ""
    return f": the {objectives} answers in the order of the questions, with ; between them"


class Searching:
    """Searches at a step, unless a vector environment has searched for all its environments at once.

    Attributes:
        retriever: what is searched.
        k: passages a search.
    """

    retriever: Retriever
    k: int
    _given: tuple[str, list[str]] | None = None

    def query_of(self, reply: str) -> str | None:
        """The query that `step(reply)` will run now; None where it runs none."""
        raise NotImplementedError

    def give(self, query: str, passages: list[str]) -> None:
        """Hand over the contents found for the query of the next step, so that it need not search."""
        self._given = (query, passages)

    def find(self, query: str) -> list[str]:
        """Contents of the best `k` passages."""
        given, self._given = self._given, None
        if given is not None and given[0] == query:
            return given[1]
        return find_all(self.retriever, [query], self.k)[0]

    @staticmethod
    def prepare(plays: Iterable[tuple[Any, str]], *, may_fail: bool = False) -> None:
        """Hand each environment what is found for its query, by one call for each retriever and k.

        Args:
            plays: unwrapped environments, which need not search, and the reply that each plays next.
            may_fail: a call that raises hands over nothing, so that each searches by itself.
        """
        calls: dict[tuple[int, int], list[tuple[Searching, str]]] = {}
        for env, reply in plays:
            query = env.query_of(clean_text(reply, MAX_REPLY_CHARS))
            if query is not None:
                calls.setdefault((id(env.retriever), env.k), []).append((env, query))
        for (_, k), group in calls.items():
            try:
                found = find_all(group[0][0].retriever, [query for _, query in group], k)
            except Exception:
                if not may_fail:
                    raise
                continue
            for (searching, query), passages in zip(group, found, strict=True):
                searching.give(query, passages)


def find_all(retriever: Retriever, queries: list[str], k: int) -> list[list[str]]:
    """Contents of the best `k` passages of each query, by one call of the retriever."""
    found = retriever.search(queries, k).ids
    passages = retriever.passages(list(dict.fromkeys(id for ids in found for id in ids)))
    contents = {passage.id: passage.contents for passage in passages}
    return [[contents[id] for id in ids] for ids in found]


def open_retriever(retriever: str | None, questions: Sequence[Task], source: str) -> Retriever:
    """The retriever of a spec; None searches the task set's own documents by BM25.

    Raises:
        ValueError: None with questions that come without documents.
    """
    if retriever is not None:
        return load_retriever(retriever)
    if not isinstance(questions, TaskSet) or not questions.n_documents:
        raise ValueError(
            f"{source} has questions but no documents: pass retriever='lexical:CORPUS.jsonl.gz', "
            "'dense:INDEX_DIR' or 'http://host:port'"
        )
    return load_retriever(f"lexical:{questions.path}")


def evidence_of(questions: Sequence[Task], task: Task) -> list[str]:
    """Contents of the documents that the answer needs; none where the questions come without documents."""
    return questions.shown(task.evidence) if isinstance(questions, TaskSet) else []


def check_turns(episode: EpisodeState, history: Sequence[object], limit: int) -> None:
    """Raise a one-line `ValueError` where turns, their record and their limit do not fit together."""
    if episode.turn != len(history) or episode.turn > limit:
        raise ValueError(
            f"the state's episode cannot be: turn={episode.turn} of {limit} with {len(history)} on record"
        )


def extents(questions: Sequence[Task]) -> tuple[int, int]:
    """The most characters of a question, and the most objectives of a task."""
    sizes = [(len(task.question), len(task.answers)) for task in questions]
    return max(chars for chars, _ in sizes), max(objectives for _, objectives in sizes)
