"""The corpus of a search: passages in a memory-mapped Arrow file."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from memenvs.core.data import convert, shown
from memenvs.core.files import check_file, check_written, describe, read_sealed, whole_file, write_sealed
from memenvs.core.inputs import RefusedFile
from memenvs.core.spaces import replace_surrogates
from memenvs.retrieval.protocol import DistinctSearch, Hits, Passage, Ranked
from memenvs.tasks.records import Fields, read_rows
from memenvs.tasks.taskset import read_arrow

PASSAGES, ORDER, RANK, CARD = "passages.arrow", "order.npy", "rank.npy", "corpus.json"
BATCH = 8_192  # rows an Arrow batch: a row's batch is found by a division
REMEMBERED = 100_000  # ids whose rows need no binary search; of a server, passages
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
        return cls(table, order, rank, str(card.get("sha256")))

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
        import pyarrow.compute as pc  # slow, and most corpora are not indexed here

        return np.concatenate([pc.binary_length(chunk).to_numpy() for chunk in self._contents])


class CorpusRetriever(DistinctSearch):
    """A `Retriever` that ranks the rows of a corpus; a subclass has `_rank`.

    Attributes:
        corpus: what is searched.
    """

    corpus: Corpus

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
    """A passage as corpora and servers have it: `contents`, or `text`, with or without a `title`.

    BEIR calls the id `_id`, BrowseComp-Plus `docid`.
    """

    id: str | int | None = None
    _id: str | int | None = None
    docid: str | int | None = None
    contents: str | None = None
    title: str | None = None
    text: str | None = None

    def passage(self, where: str = "a passage") -> Passage:
        """The passage, its surrogates replaced; without an id it gets one made from its contents.

        Raises:
            ValueError: it has neither contents nor text; the line begins with `where`.
        """
        contents = self.text if self.contents is None else self.contents
        if contents is None:
            raise ValueError(f"{where} has no 'contents' and no 'text'; {_FORM}")
        first, newline, _ = contents.partition("\n")
        if self.title and (self.contents is None or first.strip('" ') != self.title.strip()):
            contents = Passage.of("", self.title, contents).contents
        elif newline and self.contents is None:
            contents = f"\n{contents}"  # so that its first line is not taken for a title
        contents = replace_surrogates(contents)
        given_id = next((id for id in (self.id, self._id, self.docid) if id is not None), None)
        id = hashlib.sha256(contents.encode()).hexdigest()[:16] if given_id is None else str(given_id)
        return Passage(replace_surrogates(id), contents)


_FORM = 'give {"id": "0", "contents": "…"} or {"id": "0", "title": "…", "text": "…"}'
_NAMES = {
    "id": ("id", "_id", "pid", "passage_id", "docid", "doc_id", "document_id", "docno"),
    "contents": ("contents",),
    "title": ("title", "heading", "headings"),
    "text": ("text", "passage", "body", "segment", "content", "document", "passage_text"),
}
"""The names under which corpora have a part of a passage; the first that has a value counts."""
_FIELDS = dict.fromkeys(itertools.chain(*_NAMES.values()))


def read_corpus(path: Path | str) -> Iterator[Passage]:
    """The passages of a source of `read_rows`, under any of the usual names for their parts.

    Passages without ids are numbered from 0. The columns of a table without a header are told apart by what
    is in them.

    Raises:
        ValueError: a record is something else, or columns cannot be told apart; the message says where.
    """
    fields, numbered = Fields(str(path), _FIELDS), False
    for number, (where, row) in enumerate(read_rows(str(path), "a corpus", "", _columns)):
        if isinstance(row, Mapping):
            row = {str(name).strip().lower(): value for name, value in row.items() if value is not None}
            fields.check(row, where)
            row = {part: row[name] for part, names in _NAMES.items() for name in names[::-1] if name in row}
        document = convert(row, Document, where, _FORM)
        fields.report()
        without_id = document.id in (None, "")
        numbered = numbered or (without_id and number == 0)
        if without_id != numbered:
            raise ValueError(f"{where} has {'no' if without_id else 'an'} id, unlike those before; {_FORM}")
        document.id = number if numbered else document.id
        yield document.passage(where)


def _columns(path: Path, rows: Sequence[Sequence[str]]) -> list[str]:
    """Names for the columns of a table by its first rows; none if the first row names them.

    MS MARCO's documents are id, address, title and text, its passages id and text, DPR's id, text and title:
    ids are different words with a digit, and a text is at least twice as long as a title.
    """
    top = [cell.strip().lower() for cell in rows[0]]
    header = all(re.fullmatch(r"([^\W\d][\w.-]*)?", cell) for cell in top)
    if header and not {*_NAMES["contents"], *_NAMES["text"]}.isdisjoint(top):
        return []
    columns = list(zip(*rows, strict=False))
    forms = {"url": r"(\w+://|www\.)\S*", "number": r"[!-~]*[0-9][!-~]*"}
    names = [
        next((name for name, form in forms.items() if all(re.fullmatch(form, c) for c in column if c)), "")
        for column in columns
    ]
    if len(top) > 1 and names[0] == "number" and len({*columns[0]}) == len(rows):
        names[0] = "id"
    lengths = {place: len("".join(columns[place])) for place, name in enumerate(names) if not name}
    longest = sorted(lengths, key=lambda place: -lengths[place])
    for place, name in zip(longest, ("text", "title"), strict=False):
        names[place] = name
    if (
        "number" in names
        or len(longest) not in (1, 2)
        or (len(longest) == 2 and lengths[longest[0]] < 2 * lengths[longest[1]])
        or any(cell.startswith(" ") for row in rows for cell in row)  # a comma of the text
        # an id without a digit, or a title of one word
        or (len(top) > 1 and names[0] != "id" and not any(" " in cell for cell in columns[0]))
        # a header of unknown names
        or (header and not _FIELDS.keys().isdisjoint(top))
        or (header and any(" " in cell for row in rows[1:] for cell in row))
    ):
        raise RefusedFile(
            f"{path}: cannot tell which column is the passage in {shown(list(rows[0]))}; name the columns in "
            "a first row, such as id, title, text"
        )
    return names


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
    import pyarrow.compute as pc

    order = pc.sort_indices(ids).to_numpy().astype(np.uint32)
    in_order = ids.combine_chunks().take(pa.array(order))
    twice = np.flatnonzero(pc.equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False))
    if len(twice):
        raise ValueError(f"id {in_order[int(twice[0])].as_py()!r} comes more than once in the corpus")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    return order, rank
