"""What every retriever speaks: queries in, passage ids and scores out, passages by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from memenvs.spaces import replace_surrogates as clean

MAX_QUERY_CHARS = 2_000  # E5 reads 256 tokens; a policy may write 100 kB of noise


class Passage(NamedTuple):
    """One passage of a corpus.

    Attributes:
        id: unique in its corpus.
        contents: the title in double quotes, a newline, the text; what encoders read.
    """

    id: str
    contents: str

    @classmethod
    def of(cls, id: str, title: str, text: str) -> Passage:
        """A passage from its parts."""
        return cls(id, f'"{title}"\n{text}')

    @property
    def title(self) -> str:
        """The first line without its quotes; empty where there is only one line."""
        first, newline, _ = self.contents.partition("\n")
        quoted = len(first) >= 2 and first[0] == first[-1] == '"'
        return (first[1:-1] if quoted else first) if newline else ""

    @property
    def text(self) -> str:
        """All that follows the first line; everything where there is only one line."""
        first, newline, rest = self.contents.partition("\n")
        return rest if newline else first


class Hits(NamedTuple):
    """The answer to B queries, best first; a row may be shorter than k, or empty.

    Attributes:
        ids: B lists of passage ids.
        scores: B lists of scores, in step with `ids`; larger is better.
    """

    ids: list[list[str]]
    scores: list[list[float]]


class Retriever(Protocol):
    """Finds passages. Equal scores are ordered by id (as strings), also where k cuts."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages (k >= 1) of each query; any string is a query."""
        ...

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids, in this order.

        Raises:
            KeyError: an id is not in the corpus.
        """
        ...


def check_search(queries: Sequence[str], k: int) -> list[str]:
    """The queries as they are searched: clean, and cut at MAX_QUERY_CHARS characters.

    Raises:
        TypeError: `queries` is one string, or holds something else than strings.
        ValueError: k is not a positive integer.
    """
    if isinstance(queries, str):
        raise TypeError(
            f"queries must be a list of strings, not the string {queries[:80]!r}; wrap it in a list"
        )
    for query in queries:
        if not isinstance(query, str):
            raise TypeError(f"a query must be a string, not {query!r}")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a positive integer, not {k!r}")
    return [clean(query[:MAX_QUERY_CHARS]) for query in queries]
