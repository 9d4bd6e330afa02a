"""What the searching environments share: one search, or passages that were found for them beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memenvs.retrieval import Retriever
from memenvs.spaces import clean_text
from memenvs.text_env import MAX_REPLY_CHARS


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


def find_all(retriever: Retriever, queries: list[str], k: int) -> list[list[str]]:
    """Contents of the best `k` passages of each query, by one call of the retriever."""
    found = retriever.search(queries, k).ids
    passages = retriever.passages(list(dict.fromkeys(id for ids in found for id in ids)))
    contents = {passage.id: passage.contents for passage in passages}
    return [[contents[id] for id in ids] for ids in found]


def search_together(plays: Iterable[tuple[Any, str]], *, may_fail: bool = False) -> None:
    """Hand each environment what is found for its query, by one call for each retriever and k.

    Args:
        plays: unwrapped environments, which need not search, and the reply that each plays next.
        may_fail: a call that raises hands over nothing, so that each searches by itself.
    """
    calls: dict[tuple[int, int], list[tuple[Searching, str]]] = {}
    for env, reply in plays:
        if isinstance(env, Searching):
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
