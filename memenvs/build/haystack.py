"""Sentences of a long text, and what is hidden among them within a budget of tokens.

Every document carries its own blank (prose a space before, lines a newline after) and the layout adds
nothing: byte-level BPE joins those blanks to the token beside, so parts count as the joined text. For
tokenizers that do not, a sentence is counted between two others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memenvs.build.draft import TEXTS, DiskList, Documents, Ints, seam_tokens
from memenvs.core.inputs import read_text
from memenvs.core.text import split_sentences
from memenvs.tasks.taskset import Layout, open_tasks
from memenvs.tasks.tokens import TextTokenizer

JOINED = Layout("", "")
NOISE = [f"{line}\n" for line in (TEXTS / "noise.txt").read_text(encoding="utf-8").splitlines()]
Shares = NDArray[np.float64]
_TASKS = 256  # whose texts are tokenised at once


def too_small(what: str, tokens: int, why: str) -> ValueError:
    """The error of a budget of tokens that does not hold what a task needs."""
    return ValueError(f"a budget of {tokens} tokens is too small for {what}: {why}; raise it")


class TaskDocuments:
    """Documents that every task reads alone, behind those that all may read.

    Args:
        texts: of the documents of each task, equally many.
        shared: the documents before them, the haystack, which begin and end as the others do.
        tokenizer: counts the tokens.

    Attributes:
        documents: the shared ones, then those of each task; these are on disk.
        shared_sizes: (S,) tokens of the shared ones, each between two others.
        sizes: (tasks, each) tokens of the documents of each task between two shared ones.
        opening: tokens that the tokenizer adds at the beginning of a text.
    """

    def __init__(self, texts: Iterable[Sequence[str]], shared: Documents, tokenizer: TextTokenizer) -> None:
        # only the part of a neighbour next to a text decides on its tokens
        before, after = shared.texts[0][-16:], shared.texts[0][:16]
        frame = tokenizer.count(before + after)
        # All begin and end the same way: if the first few have no extra tokens there, none has.
        joins = (seam_tokens(tokenizer, shared.texts[:256], before, after) != frame).any()

        def between(documents: Documents) -> Ints:
            if not joins:
                return documents.tokens
            return documents.tokens + seam_tokens(tokenizer, documents.texts, before, after) - frame

        self.shared_sizes = between(shared)
        self.opening = max(0, tokenizer.count(shared.texts[0]) - int(self.shared_sizes[0]))
        every = DiskList(shared.texts)
        gaps = DiskList(shared.gaps)
        sizes = list[Ints]()
        left = iter(texts)
        while some := list(itertools.islice(left, _TASKS)):
            part = Documents.tokenized([("", text) for of_task in some for text in of_task], tokenizer)
            every.extend(part.texts)
            gaps.extend(part.gaps)
            sizes.append(between(part).reshape(len(some), -1))
        self.documents = Documents([""] * len(every), every, gaps)
        self.sizes = np.concatenate(sizes)


class Haystack(TaskDocuments):
    """The sentences of a text, with pieces of tasks to hide among them.

    Args:
        texts: the sentences in their order; repeated where a text is longer.
        pieces: what is hidden, of each task equally many.
        tokens: budget of a task's text, tokenised whole.
        tokenizer: counts the tokens.
        shuffled: whether each task has the sentences in its own order, none twice.

    Attributes:
        used: (tasks,) tokens of a task's pieces between sentences.
        room: (tasks,) tokens that they leave for sentences.
    """

    def __init__(
        self,
        texts: Sequence[str],
        pieces: Iterable[Sequence[str]],
        tokens: int,
        tokenizer: TextTokenizer,
        shuffled: bool = False,
    ) -> None:
        super().__init__(pieces, Documents.tokenized([("", text) for text in texts], tokenizer), tokenizer)
        self._shuffled = shuffled
        self._ends = np.cumsum(np.concatenate([[0], self.shared_sizes, self.shared_sizes]))  # of two rounds
        self._budget = tokens - self.opening
        self.used = self.sizes.sum(axis=1)
        self.room = self._budget - self.used

    def check_room(self, what: str) -> None:
        """Raise a one-line `ValueError` where the pieces of a task are over the budget."""
        if (self.room < 0).any():
            raise too_small(what, self._budget, f"they alone take up to {self.used.max()}")

    def take(self, item: int, pick: int) -> Ints:
        """The sentences that `pick` chooses for a task, in reading order, as many as fit."""
        n, room = len(self.shared_sizes), max(0, int(self.room[item]))
        if self._shuffled:
            order = np.random.default_rng(pick).permutation(n)
            return order[: np.searchsorted(np.cumsum(self.shared_sizes[order]), room, side="right")]
        rounds, rest = divmod(room, int(self._ends[n]))
        start = pick % n
        end = int(np.searchsorted(self._ends, self._ends[start] + rest, side="right")) - 1
        return np.arange(start, rounds * n + end) % n

    def places_at(self, order: Ints, shares: Shares) -> Ints:
        """The first ends of sentences at these shares of their characters, or after them."""
        ends = np.cumsum(np.concatenate([[0], self.documents.chars[order]]))
        return np.searchsorted(ends, shares * ends[-1])

    def hide(
        self, item: int, order: Ints, places: Ints, pieces: Ints
    ) -> tuple[tuple[int, ...], tuple[int, ...], Shares]:
        """The documents of a task, and of each of its pieces the document and where it begins.

        Args:
            item: number of the task.
            order: (N,) its sentences, of `take`.
            places: (P,) rising, 0 to N: how many sentences come before each.
            pieces: (P,) which of the task's pieces is at each place.

        Returns:
            documents; (P,) numbers of the pieces; (P,) shares of the characters.
        """
        each = self.sizes.shape[1]
        numbers = len(self.shared_sizes) + item * each + np.arange(each)
        documents, begins = interleave(order, numbers[pieces], places, self.documents.chars)
        depths = np.empty(each)
        depths[pieces] = begins
        return tuple(documents.tolist()), tuple(numbers.tolist()), depths


def interleave(order: Ints, lines: Ints, places: Ints, chars: Ints) -> tuple[Ints, Shares]:
    """Documents with `lines` among them, and where each line begins, as a share of the characters.

    Args:
        order: (N,) documents.
        lines: (L,) documents to put there.
        places: (L,) rising, 0 to N: how many of `order` come before each.
        chars: (D,) of each document.
    """
    documents = np.insert(order, places, lines)
    ends = np.cumsum(chars[documents])
    begins = (ends - chars[documents])[places + np.arange(len(places))]
    return documents, begins / ends[-1]


def prose_sentences(prose: Sequence[str]) -> list[str]:
    """The sentences of texts, each with a space before it."""
    spaced = [f" {' '.join(sentence.split())}" for text in prose for sentence in split_sentences(text)]
    if not spaced:
        raise ValueError("the prose is empty; give a folder of essays")
    return spaced


def prose_files(folder: Path) -> list[Path]:
    """Every `*.txt` of a folder, sorted by name.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(path for path in folder.glob("*.txt") if path.is_file())
    if not files:
        raise FileNotFoundError(f"no *.txt in {folder}; give a folder of essays as plain text")
    return files


def read_prose(folder: Path | None) -> list[str]:
    """The texts of every `*.txt` of a folder, sorted by name; None: the bundled world's.

    Raises:
        FileNotFoundError: the folder has none.
        RefusedFile: one of them is not UTF-8.
    """
    if folder is None:
        bundle = open_tasks("world-train")
        return bundle.texts(range(bundle.n_documents))
    return [read_text(path) for path in prose_files(folder)]
