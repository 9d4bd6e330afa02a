"""Sentences of a long text, and what is hidden among them within a budget of tokens.

Every document carries its own blank (prose a space before, lines a newline after) and the layout adds
nothing: byte-level BPE joins those blanks to the token beside, so parts count as the joined text. For
tokenizers that do not, a sentence is counted between two others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memenvs.build.draft import TEXTS, Documents, Ints, seam_tokens
from memenvs.tasks.taskset import Layout, open_tasks
from memenvs.tasks.tokens import TextTokenizer

JOINED = Layout("", "")
NOISE = [f"{line}\n" for line in (TEXTS / "noise.txt").read_text(encoding="utf-8").splitlines()]
Shares = NDArray[np.float64]


def too_small(what: str, tokens: int, why: str) -> ValueError:
    """The error of a budget of tokens that does not hold what a task needs."""
    return ValueError(f"a budget of {tokens} tokens is too small for {what}: {why}; raise it")


class Haystack:
    """The sentences of a text, with pieces of tasks to hide among them.

    Args:
        texts: the sentences in their order; repeated where a text is longer.
        pieces: what is hidden, task by task, equally many for each task.
        tasks: the number of tasks.
        tokens: budget of a task's text, tokenised whole.
        tokenizer: counts the tokens.
        shuffled: whether each task has the sentences in its own order, none twice.

    Attributes:
        documents: the sentences, then the pieces.
        used: (tasks,) tokens of a task's pieces between sentences.
        room: (tasks,) tokens that they leave for sentences.
    """

    def __init__(
        self,
        texts: Sequence[str],
        pieces: Sequence[str],
        tasks: int,
        tokens: int,
        tokenizer: TextTokenizer,
        shuffled: bool = False,
    ) -> None:
        hay, hidden = (
            Documents.tokenized([("", text) for text in part], tokenizer) for part in (texts, pieces)
        )
        self.documents = hay + hidden
        self._chars = self.documents.chars
        self._sizes = sizes_between(hay, hay, tokenizer)
        self._shuffled = shuffled
        self._ends = np.cumsum(np.concatenate([[0], self._sizes, self._sizes]))  # of two rounds
        self._budget = tokens - opening_tokens(hay, self._sizes, tokenizer)
        self._each = len(pieces) // tasks
        self.used = sizes_between(hidden, hay, tokenizer).reshape(tasks, self._each).sum(axis=1)
        self.room = self._budget - self.used

    def check_room(self, what: str) -> None:
        """Raise a one-line `ValueError` where the pieces of a task are over the budget."""
        if (self.room < 0).any():
            raise too_small(what, self._budget, f"they alone take up to {self.used.max()}")

    def take(self, item: int, pick: int) -> Ints:
        """The sentences that `pick` chooses for a task, in reading order, as many as fit."""
        n, room = len(self._sizes), max(0, int(self.room[item]))
        if self._shuffled:
            order = np.random.default_rng(pick).permutation(n)
            return order[: np.searchsorted(np.cumsum(self._sizes[order]), room, side="right")]
        rounds, rest = divmod(room, int(self._ends[n]))
        start = pick % n
        end = int(np.searchsorted(self._ends, self._ends[start] + rest, side="right")) - 1
        return np.arange(start, rounds * n + end) % n

    def places_at(self, order: Ints, shares: Shares) -> Ints:
        """The first ends of sentences at these shares of their characters, or after them."""
        ends = np.cumsum(np.concatenate([[0], self._chars[order]]))
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
        numbers = len(self._sizes) + item * self._each + np.arange(self._each)
        documents, begins = interleave(order, numbers[pieces], places, self._chars)
        depths = np.empty(self._each)
        depths[pieces] = begins
        return self.documents.numbered(documents), self.documents.numbered(numbers), depths


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


def sizes_between(documents: Documents, hay: Documents, tokenizer: TextTokenizer) -> Ints:
    """(D,) tokens of each document between two sentences of the haystack.

    Sentences all begin and end the same way: if the first few have no extra tokens there, none has.
    """
    before, after = hay.texts[0][-16:], hay.texts[0][:16]  # only the part of a neighbour next to it matters

    def more(texts: Sequence[str]) -> Ints:
        return seam_tokens(tokenizer, texts, before, after) - tokenizer.count(before + after)

    if not more(documents.texts[:256]).any():
        return documents.tokens
    return documents.tokens + more(documents.texts)


def opening_tokens(documents: Documents, sizes: Ints, tokenizer: TextTokenizer) -> int:
    """Tokens that a tokenizer adds at the beginning of a text; `sizes` are those between other sentences."""
    return max(0, tokenizer.count(documents.texts[0]) - int(sizes[0]))


def prose_sentences(prose: Sequence[str]) -> list[str]:
    """The sentences of texts, each with a space before it."""
    spaced = [f" {sentence}" for text in prose for sentence in sentences(text)]
    if not spaced:
        raise ValueError("the prose is empty; give a folder of essays")
    return spaced


def read_prose(folder: Path | None) -> tuple[list[str], tuple[Path, ...]]:
    """The texts of every `*.txt` of a folder, and the files, sorted by name; None: the bundled world's.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: one of them is not UTF-8.
    """
    if folder is None:
        bundle = open_tasks("world-train")
        return bundle.texts(range(bundle.n_documents)), ()
    files = tuple(sorted(path for path in folder.glob("*.txt") if path.is_file()))
    if not files:
        raise FileNotFoundError(f"no *.txt in {folder}; give a folder of essays as plain text")
    texts = []
    for path in files:
        try:
            texts.append(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error
    return texts, files


_LONGEST = 100  # words of a sentence, where prose has no stops
_STOP = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]\W*$")
_FULLWIDTH_STOP = re.compile(r"[\u3002\uff01\uff1f]\W*")  # Chinese and Japanese: no space after
_ABBREVIATIONS = frozenset("dr. e.g. etc. i.e. mr. mrs. ms. no. prof. st. u.s. vs.".split())


def sentences(text: str) -> list[str]:
    """The sentences of a text, one space between two words; joined they are the text up to white space.

    A sentence ends at a stop, unless a small letter follows or the stop is an abbreviation's or an initial's;
    and after `_LONGEST` words.
    """
    words = _FULLWIDTH_STOP.sub(r"\g<0> ", text).split()
    ended: list[str] = []
    start = 0
    for end, (word, after) in enumerate(zip(words, [*words[1:], ""], strict=False), 1):
        if _stops(word, after) or end - start == _LONGEST or end == len(words):
            ended.append(" ".join(words[start:end]))
            start = end
    return ended


def _stops(word: str, after: str) -> bool:
    """Whether a sentence ends between two words."""
    if not _STOP.search(word) or after[:1].islower():
        return False
    bare = word.lstrip("([\"'").lower()
    return bare not in _ABBREVIATIONS and not (len(bare) == 2 and bare[0].isalpha() and bare[1] == ".")
