"""The corpus of a search: passages in a memory-mapped Arrow file."""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from memenvs.core.data import convert
from memenvs.core.files import check_file, check_written, describe, read_sealed, whole_file, write_sealed
from memenvs.core.spaces import replace_surrogates
from memenvs.retrieval.protocol import Hits, Passage, Ranked, search_distinct
from memenvs.tasks.records import read_rows
from memenvs.tasks.taskset import read_arrow

PASSAGES, ORDER, RANK, CARD = "passages.arrow", "order.npy", "rank.npy", "corpus.json"
BATCH = 8_192  # rows an Arrow batch: a row's batch is found by a division
REMEMBERED = 100_000  # ids whose rows need no binary search over the sorted ids
BUILD = "build one with `memenvs build index --corpus FILE --index lexical --out DIR`"
SCHEMA = pa.schema([("id", pa.string()), ("contents", pa.large_string())])


class Corpus:
    """N passages, numbered by row from 0 in the order of their source.

    `Corpus.open(folder)` reads what `write_corpus` wrote and keeps nothing in memory;
    `from_passages` and `from_documents` hold a small corpus in memory.

    Attributes:
        sha256: of all ids and contents in order; two corpora with one hash are one corpus.
        rank: (N,) place of each row's id among the sorted ids, by which ties are broken.
    """

    def __init__(self, table: pa.Table, order: NDArray[np.uint32], rank: NDArray[np.uint32], sha256: str):
        self._ids: list[Any] = table["id"].chunks
        self._contents: list[Any] = table["contents"].chunks
        self._order = order.view(np.ndarray)  # over the same mapped pages: an np.memmap costs more to read
        self._rows: dict[str, int] = {}  # of ids found lately
        self.rank = rank
        self.sha256 = sha256

    @classmethod
    def open(cls, folder: Path | str) -> Corpus:
        """Map the corpus that `write_corpus` left in a folder.

        Raises:
            FileNotFoundError: there is none.
            ValueError: its files are not those that were written (`memenvs.core.files`; MEMENVS_VERIFY=0
                reads them unchecked).
        """
        folder = Path(folder)
        if not (folder / CARD).exists():
            raise FileNotFoundError(f"no corpus in {folder}: it has no {CARD}; {BUILD}")
        card = read_sealed(folder / CARD)
        for name in (PASSAGES, ORDER, RANK):
            check_file(folder / name, card.get("files", {}).get(name, {}))
        table = read_arrow(folder / PASSAGES)
        order, rank = (np.load(folder / name, mmap_mode="r") for name in (ORDER, RANK))
        return cls(table, order, rank, card["sha256"])

    @classmethod
    def from_passages(cls, passages: Iterable[Passage]) -> Corpus:
        """Hold passages in memory. Raises ValueError where an id comes twice or there are none."""
        sink = pa.BufferOutputStream()
        digest = _write_arrow(sink, passages)
        table = pa.ipc.open_file(sink.getvalue()).read_all()
        return cls(table, *_sort_ids(table["id"]), digest)

    @classmethod
    def from_documents(cls, documents: Iterable[tuple[str, str, str]]) -> Corpus:
        """Hold (id, title, text) documents in memory."""
        return cls.from_passages(Passage.of(*document) for document in documents)

    def __len__(self) -> int:
        return len(self._order)

    def passage(self, row: int) -> Passage:
        """The passage of a row, 0 <= row < N."""
        return Passage(self.id(row), self._contents[row // BATCH][row % BATCH].as_py())

    def id(self, row: int) -> str:
        """The id of a row, 0 <= row < N."""
        id: str = self._ids[row // BATCH][row % BATCH].as_py()
        return id

    def ids(self, rows: Iterable[int]) -> list[str]:
        """The ids of rows; asking for the passages of these ids next is fast."""
        rows_of_ids = {self.id(row): row for row in rows}
        if len(self._rows) > REMEMBERED:
            self._rows.clear()
        self._rows.update(rows_of_ids)
        return list(rows_of_ids)

    def row(self, id: str) -> int:
        """The row of an id; KeyError where there is none."""
        if (known := self._rows.get(id)) is not None:
            return known
        place = bisect.bisect_left(self._order, id, key=lambda row: self.id(int(row)))
        if place < len(self) and self.id(row := int(self._order[place])) == id:
            return row
        raise KeyError(f"no passage {id!r} in this corpus of {len(self):,}")

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids, in this order."""
        return [self.passage(self.row(id)) for id in ids]

    def lengths(self) -> NDArray[np.int64]:
        """(N,) bytes of UTF-8 of every passage's contents, without reading them."""
        return np.concatenate([pc.binary_length(chunk).to_numpy() for chunk in self._contents])


class CorpusRetriever:
    """A `Retriever` that ranks the rows of a corpus; a subclass has `_rank`.

    Attributes:
        corpus: what is searched.
    """

    corpus: Corpus

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages of each query; see `Retriever.search`."""
        return search_distinct(queries, k, self._search)

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids; KeyError for an id that is not in the corpus."""
        return self.corpus.passages(ids)

    def _rank(self, queries: list[str], k: int) -> Iterable[Ranked]:
        """Scores and rows, best first, of at most k passages for each query."""
        raise NotImplementedError

    def _search(self, queries: list[str], k: int) -> Hits:
        hits = Hits([], [])
        for scores, rows in self._rank(queries, k):
            hits.ids.append(self.corpus.ids(rows.tolist()))
            hits.scores.append(scores.tolist())
        return hits


class Document(msgspec.Struct, kw_only=True):
    """A passage as corpora and servers have it: `contents`, or `text` with or without a `title`.

    BEIR calls the id `_id`, BrowseComp-Plus `docid`.
    """

    id: str | int | None = None
    _id: str | int | None = None
    docid: str | int | None = None
    contents: str | None = None
    title: str | None = None
    text: str | None = None

    @property
    def named(self) -> str | int | None:
        """The id, under the first of its names that the record has."""
        return next((id for id in (self.id, self._id, self.docid) if id is not None), None)

    def passage(self, where: str = "a passage") -> Passage:
        """The passage, its surrogates replaced; without an id it gets one made from its contents.

        Raises:
            ValueError: it has neither contents nor text; the line begins with `where`.
        """
        contents = self.contents
        if contents is None:
            if self.text is None:
                raise ValueError(f"{where} has no 'contents' and no 'text'; {_FORM}")
            contents = self.text
            if self.title:
                contents = Passage.of("", self.title, self.text).contents
            elif "\n" in contents:
                contents = f"\n{contents}"  # so that its first line is not taken for a title
        contents = replace_surrogates(contents)
        id = hashlib.sha256(contents.encode()).hexdigest()[:16] if self.named is None else str(self.named)
        return Passage(replace_surrogates(id), contents)


_FORM = 'give {"id": "0", "contents": "…"} or {"id": "0", "title": "…", "text": "…"}'


def read_corpus(path: Path | str) -> Iterator[Passage]:
    """The passages of a file; see `Document`.

    Args:
        path: a file of `read_rows`; a table without a header has `id`, `text` and `title`.

    Raises:
        ValueError: a record is something else; the message names its line or its number.
    """
    for where, row in read_rows(str(path), "a corpus", columns=("id", "text", "title")):
        document = convert(row, Document, where, _FORM)
        if document.named is None:
            raise ValueError(f"{where} has no 'id'; {_FORM}")
        yield document.passage(where)


def write_corpus(passages: Iterable[Passage], folder: Path) -> Corpus:
    """Stream passages into a folder, and map it. The card comes last: without it there is no corpus.

    Raises:
        ValueError: an id comes twice, or there is no passage.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CARD).unlink(missing_ok=True)
    with whole_file(folder / PASSAGES) as partial, pa.OSFile(str(partial), "wb") as sink:
        digest = _write_arrow(sink, passages)
    ids = pa.ipc.open_file(pa.memory_map(str(folder / PASSAGES))).read_all()["id"]
    for name, numbers in zip((ORDER, RANK), _sort_ids(ids), strict=True):
        with whole_file(folder / name) as partial, partial.open("wb") as file:
            np.save(file, numbers)
    files = {name: describe(folder / name) for name in (PASSAGES, ORDER, RANK)}
    write_sealed(folder / CARD, {"count": len(ids), "sha256": digest, "files": files})
    with check_written():
        return Corpus.open(folder)


def _write_arrow(sink: Any, passages: Iterable[Passage]) -> str:
    """Write passages in batches; their SHA-256, in which lengths keep neighbours apart."""
    digest = hashlib.sha256()
    rows = iter(passages)
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        while batch := list(itertools.islice(rows, BATCH)):
            for id, contents in batch:
                digest.update(f"{len(id)},{len(contents)}:{id}{contents}".encode())
            ids, texts = zip(*batch, strict=True)
            writer.write_batch(pa.RecordBatch.from_pydict({"id": ids, "contents": texts}, schema=SCHEMA))
    return digest.hexdigest()


def _sort_ids(ids: pa.ChunkedArray) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Rows in the order of their ids (N,), and the place of every row in it (N,)."""
    if len(ids) == 0:
        raise ValueError(
            'the corpus has no passages; a line of it is {"id": "0", "contents": "\\"title\\"\\ntext"}'
        )
    order = pc.sort_indices(ids).to_numpy().astype(np.uint32)
    in_order = ids.combine_chunks().take(pa.array(order))
    twice = np.flatnonzero(pc.equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False))
    if len(twice):
        raise ValueError(f"id {in_order[int(twice[0])].as_py()!r} comes more than once in the corpus")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    return order, rank
