"""Task sets before they are written, and the random generators of their tasks."""

from __future__ import annotations

import array
import functools
import hashlib
import itertools
import json
import pickle
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from memenvs.build.holdout import choose
from memenvs.core.processes import Workers, map_jobs
from memenvs.core.progress import progress
from memenvs.tasks.taskset import Layout, Task, document_text
from memenvs.tasks.tokens import Gaps, TextTokenizer

T = TypeVar("T")
Ints = NDArray[np.int64]
Words = tuple[str, ...]

TEXTS = Path(__file__).parent / "texts"
_STRIDE = 256  # items a worker makes at once
_WIDEST = np.iinfo(np.uint16).max  # characters of a token
_END = 24  # characters at either end of a text on which its tokens there depend


def read_lists(folder: Path, name: str, spaced: bool = False) -> dict[str, Words]:
    """The lists of the file `name`.txt of a folder of texts, in its order.

    A list begins with `[name]`, or `[name, name]`, on a line; each further line is an entry, or with `spaced`
    several between spaces. A `#` opens a line of comment.
    """
    lists: dict[str, list[str]] = {}
    for line in map(str.strip, (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            entries: list[str] = []
            lists |= dict.fromkeys(map(str.strip, line.strip("[]").split(",")), entries)
        elif line and not line.startswith("#"):
            entries += line.split() if spaced else [line]
    return {name: tuple(entries) for name, entries in lists.items()}


class DiskList(Sequence[T]):
    """A list whose items are in a temporary file; each is read when it is asked for."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._file = tempfile.TemporaryFile()  # it is closed when the list is gone
        weakref.finalize(self, self._file.close)
        self._places = array.array("q")
        self._end = 0
        self.extend(items)

    def append(self, item: T) -> None:
        """Add an item, which can be pickled."""
        content = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        self._file.seek(self._end)
        self._file.write(content)
        self._places.append(self._end)
        self._end += len(content)

    def extend(self, items: Iterable[T]) -> None:
        """Add items."""
        for item in items:
            self.append(item)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        self._file.seek(self._places[index])
        item: T = pickle.load(self._file)
        return item


@dataclass(frozen=True)
class Documents:
    """Documents with their tokens counted once.

    Attributes:
        titles: one a document; empty for text without a title.
        texts: one a document.
        gaps: of each document as it is shown.
    """

    titles: Sequence[str]
    texts: Sequence[str]
    gaps: Sequence[Gaps]

    @classmethod
    def tokenized(cls, documents: Sequence[tuple[str, str]], tokenizer: TextTokenizer) -> Documents:
        """Documents from (title, text) pairs."""
        titles, texts = [title for title, _ in documents], [text for _, text in documents]
        every = tokenizer.gaps([document_text(*document) for document in documents])
        gaps = []
        for number, widths in enumerate(progress(every, len(documents), "documents")):
            if widths.max(initial=0) > _WIDEST:
                raise ValueError(
                    f"document {number} ({titles[number]!r}) has a token of {widths.max()} characters, "
                    f"more than {_WIDEST}: it is not prose; leave it out, or choose another tokenizer"
                )
            gaps.append(widths.astype(np.uint16))
        return cls(titles, texts, gaps)

    @functools.cached_property  # as texts and gaps may be on disk
    def tokens(self) -> Ints:
        """(D,) tokens of each document as it is shown, headers and separators not counted."""
        return np.fromiter(map(len, self.gaps), np.int64, len(self.gaps))

    @functools.cached_property
    def chars(self) -> Ints:
        """(D,) characters of each document as it is shown."""
        texts = map(document_text, self.titles, self.texts)
        return np.fromiter(map(len, texts), np.int64, len(self.texts))


@dataclass(frozen=True)
class Draft:
    """A task set that is not written yet.

    Attributes:
        documents: the pool; those that no task reads are dropped by the writer.
        tasks: their document numbers are of that pool.
        layout: how documents are shown.
        environment: the id of the environment that the tasks are made for.
        metric: the name of the metric that scores them.
        left_out: questions of the source that cannot be scored.
        inputs: the files that were read.
    """

    documents: Documents
    tasks: Sequence[Task]
    layout: Layout
    environment: str = "MemChunkQA-v0"
    metric: str = "em"
    left_out: int = 0
    inputs: Sequence[Path] = ()

    def draw(self, options: Any, tokenizer: TextTokenizer, count: int | None, split: str) -> Draft:
        """This draft, as its tasks are drawn already; see `Material.draw`."""
        return self

    def divide(self, count: int, rng: np.random.Generator) -> tuple[Draft, Draft]:
        """See `Material.divide`. Equal questions about the same documents stay together."""
        # hashes, as the tasks may be on disk for want of memory
        same = [[hash((t.question, t.answers, t.evidence or tuple(sorted(t.documents))))] for t in self.tasks]
        chosen = choose([same], count, rng)
        rest, holdout = DiskList[Task](), DiskList[Task]()
        for number, task in enumerate(self.tasks):
            (holdout if number in chosen else rest).append(task)
        return replace(self, tasks=rest), replace(self, tasks=holdout)


class Material(Protocol):
    """What a source has made: tasks (`Draft`), or questions that tasks are drawn from."""

    @property
    def inputs(self) -> Sequence[Path]:
        """Files that were read beside the source."""

    def draw(self, options: Any, tokenizer: TextTokenizer, count: int | None, split: str) -> Draft:
        """`count` tasks, or each question once; the source's options and the split decide the chance."""

    def divide(self, count: int, rng: np.random.Generator) -> tuple[Material, Material]:
        """What is left of the questions, and `count` questions that are set aside.

        A question that comes again, in any case of letters, is on one side. Questions about one text, or with
        the same evidence, stay together too, as far as whole groups of them fit into `count`. The distractors
        of the rest are never paragraphs of a question that was set aside; those of the questions that were
        set aside come from the whole pool.

        Raises:
            ValueError: fewer than `count` questions differ from the others.
        """


def item_rng(seed: int, split: str, item: int) -> np.random.Generator:
    """The generator of item `item` of split `split`: no two items, splits or seeds share one.

    Its entropy is the SHA-256 of all three, always eight words: SeedSequence would read a number of several
    words as several numbers, and short hashes of two splits' names could collide.
    """
    digest = hashlib.sha256(json.dumps([int(seed), split, int(item)]).encode()).digest()
    return np.random.default_rng(np.random.SeedSequence(np.frombuffer(digest, "<u4").tolist()))


def make_items(
    make: Callable[[int], T], count: int, *, workers: Workers = 1, label: str = "tasks"
) -> DiskList[T]:
    """`[make(0), …, make(count - 1)]`, by `workers` processes; the result does not depend on their number.

    Args:
        make: a picklable callable of the item's number, which draws from `item_rng` alone.
        count: items.
        workers: processes, or "ray"; 1 means this process.
        label: what is counted, in the plural.

    Raises:
        ValueError: a process was killed.
    """
    jobs = [range(start, min(start + _STRIDE, count)) for start in range(0, count, _STRIDE)]
    if workers == 1 or len(jobs) == 1:
        return DiskList(progress(map(make, range(count)), count, label))
    parts = map_jobs(functools.partial(_make_all, make), jobs, workers)
    return DiskList(progress(itertools.chain.from_iterable(parts), count, label))


def _make_all(make: Callable[[int], T], job: Iterable[int]) -> list[T]:
    return [make(item) for item in job]


def renumbered(task: Task, numbers: Ints) -> Task:
    """The task with document `numbers[i]` in place of document i."""
    meta = dict(task.meta)
    if "spans" in meta:
        meta["spans"] = [[int(numbers[document]), start, end] for document, start, end in meta["spans"]]
    return replace(
        task,
        documents=tuple(numbers[list(task.documents)].tolist()),
        evidence=tuple(numbers[list(task.evidence)].tolist()),
        meta=meta,
    )


def seam_tokens(tokenizer: TextTokenizer, texts: Sequence[str], before: str, after: str) -> Ints:
    """(D,) tokens that each text has between `before` and `after`, those two included, beyond its own.

    Byte-level BPE joins a newline to the word after it or to another newline, SentencePiece puts a blank
    at the beginning of a text. With these numbers the tokens of a long text are counted from its parts. The
    count is exact where the tokenizer first splits texts at words, as all tokenizers in use do.
    """
    ends = [text if len(text) <= 2 * _END else text[:_END] + text[-_END:] for text in texts]
    between = tokenizer.counts([before + end + after for end in ends])
    return np.array(between, np.int64) - np.array(tokenizer.counts(ends), np.int64)


def frame_tokens(tokenizer: TextTokenizer, layout: Layout, most: int) -> Ints:
    """(most,) tokens of the headers and separators of a text of the first 1, 2, … `most` documents.

    Counted by their gaps, as a context counts: a blank line has a gap even where it has no token.
    """
    numbers = range(1, most + 1) if "{i}" in layout.header else [1]
    headers = [len(gaps) for gaps in tokenizer.gaps([layout.header.replace("{i}", str(i)) for i in numbers])]
    if len(headers) < most:
        headers = headers * most
    (separator,) = tokenizer.gaps([layout.separator])
    return np.cumsum(headers) + len(separator) * np.arange(most)


def sizes_with_headers(
    documents: Documents, layout: Layout, tokenizer: TextTokenizer, most: int
) -> tuple[Ints, Ints]:
    """(D,) tokens of each document between two headers, and (most,) what 1, 2, … headers add to that.

    A header is counted after the last document, where there is none, in place of the one before the first.
    """
    bodies = [document_text(*document) for document in zip(documents.titles, documents.texts, strict=True)]
    headers = [layout.header.replace("{i}", str(i)) for i in range(1, most + 1)]
    seams = seam_tokens(tokenizer, bodies, before=headers[0], after=layout.separator + headers[0])
    numbering = np.array(tokenizer.counts(headers), np.int64)
    added = numbering[0] + np.cumsum(numbering - numbering[0])
    return documents.tokens + seams - numbering[0], added
