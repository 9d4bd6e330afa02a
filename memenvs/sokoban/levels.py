"""Level sets: the text format, and sets of boards in a file.

In text, boards are rows of symbols, one row per line, separated by blank lines or lines that start with ";".
Lines with a colon ("Title: …") are notes. The symbols are XSB's (`# .*$@+`; "-" is floor too) or letters
(`#_O√XPS`), whichever the text has. Walls fill the ends of short rows and everything outside the room.

A file of levels is such text or a compact .npz without pickles: the boards, the moves of an optimal solution
of each, the sizes of the splits, a card and a version.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memenvs.core.files import whole_file
from memenvs.sokoban.board import (
    FLOOR,
    LETTERS,
    TARGET,
    WALL,
    XSB,
    Grid,
    LevelError,
    check_levels,
    parse,
    to_text,
)

FORMAT, VERSION = "memenvs sokoban levels", 1


class Level(NamedTuple):
    """A board (H, W) and the moves of a shortest solution; None where none is known."""

    board: Grid
    moves: tuple[int, ...] | None


class LevelSet:
    """L levels of one shape.

    Attributes:
        boards: (L, H, W) uint8, read-only.
        lengths: (L,) int32, moves of an optimal solution; -1 where none is known.
        splits: split names to the number of their levels, in the order of the levels.
        card: where the levels come from; plain data.

    Raises:
        LevelError: a board that is not a level (see `board.check_levels`).
    """

    def __init__(
        self,
        boards: Grid,
        moves: Sequence[Sequence[int] | None] | None = None,
        splits: Mapping[str, int] | None = None,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        check_levels(boards)
        moves = [None] * len(boards) if moves is None else moves
        self.boards = boards.copy()
        self.boards.flags.writeable = False
        self.lengths = np.array([-1 if m is None else len(m) for m in moves], np.int32)
        self.splits = dict(splits) if splits is not None else {"all": len(boards)}
        self.card = dict(card or {})
        self._moves = [None if m is None else tuple(m) for m in moves]

    def __len__(self) -> int:
        return len(self.boards)

    def __getitem__(self, index: int) -> Level:
        return Level(self.boards[index], self._moves[index])

    def __iter__(self) -> Iterator[Level]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def dead(self) -> npt.NDArray[np.bool_]:
        """The squares from which a box, alone on its board, reaches no target: (L, H, W)."""
        floor, live = (self.boards & WALL == 0).ravel(), (self.boards & TARGET != 0).ravel()
        width = self.boards.shape[2]
        while True:
            # A pull needs floor for the box and for the player.
            pulled = [np.roll(live, by) & np.roll(floor, -by) for by in (1, -1, width, -width)]
            grown = live | floor & np.logical_or.reduce(pulled)
            if (grown == live).all():
                return (floor & ~live).reshape(self.boards.shape)
            live = grown

    def split(self, name: str) -> LevelSet:
        """The levels of one split."""
        if name not in self.splits:
            raise LevelError(f"no split {name!r} among these levels; choose one of {', '.join(self.splits)}")
        start = sum(list(self.splits.values())[: list(self.splits).index(name)])
        part = slice(start, start + self.splits[name])
        return LevelSet(self.boards[part], self._moves[part], {name: self.splits[name]}, self.card)

    @classmethod
    def load(cls, path: str | Path, split: str | None = None) -> LevelSet:
        """Read a level file, .npz or text, under any name; `split` picks one of its splits.

        Raises:
            FileNotFoundError: no such file.
            LevelError: not a level file, or a level that cannot be played.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"no level file at {path}; build one with `memenvs build sokoban --out {path}`"
            )
        data = path.read_bytes()
        try:
            levels = _unpack(data) if data[:2] == b"PK" else cls(read_boards(data.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise LevelError(f"{path}: not a level file; give a .npz of levels or UTF-8 text") from error
        except LevelError as error:
            raise LevelError(f"{path}: {error}") from error
        return levels if split is None else levels.split(split)

    def save(self, path: str | Path) -> None:
        """Write the whole set to a .npz; to any other name only the boards, as text in Boxoban's layout.

        There a line "; n" with the level's number, from 0, comes before its rows in XSB.
        """
        path = Path(path)
        texts = (f"; {number}\n{to_text(board, XSB)}\n" for number, board in enumerate(self.boards))
        data = _pack(self) if path.suffix == ".npz" else "\n".join(texts).encode()
        with whole_file(path) as work:
            work.write_bytes(data)


def read_boards(text: str) -> Grid:
    """All boards of a text, (L, H, W), checked; smaller ones are padded with walls to the largest shape.

    Raises:
        LevelError: no board, or one that is not a level; the message counts levels from 0, lines from 1.
    """
    blocks = list(_blocks(text))
    if not blocks:
        raise LevelError("no board in the text; write rows of '#' for walls, '@' for the player, and so on")
    letters = any(set("OX√PS") & set(block) for _, block in blocks)
    boards = []
    for number, (line, block) in enumerate(blocks):
        try:
            read = parse(block, LETTERS) if letters else parse(block.replace("-", " "))
            boards.append(_closed(read))
            check_levels(boards[-1][None])
        except LevelError as error:
            raise LevelError(f"level {number} at line {line}: {error}") from error
    height, width = (max(board.shape[axis] for board in boards) for axis in (0, 1))
    padding = [((0, height - board.shape[0]), (0, width - board.shape[1])) for board in boards]
    return np.stack([np.pad(b, p, constant_values=WALL) for b, p in zip(boards, padding, strict=True)])


def _pack(levels: LevelSet) -> bytes:
    joined = [move for level in levels for move in level.moves or ()]
    card = {"splits": levels.splits, "card": levels.card}
    file = io.BytesIO()
    np.savez_compressed(
        file,
        format=np.array(f"{FORMAT} {VERSION}"),
        boards=levels.boards,
        lengths=levels.lengths,
        moves=np.array(joined, np.uint8),
        card=np.frombuffer(json.dumps(card).encode(), np.uint8),
    )
    return file.getvalue()


def _unpack(data: bytes) -> LevelSet:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            written = str(file["format"])
            if written != f"{FORMAT} {VERSION}":
                raise LevelError(f"the format is {written!r}, not '{FORMAT} {VERSION}'; build the file again")
            boards, lengths, joined = file["boards"], file["lengths"], file["moves"].tolist()
            about = json.loads(file["card"].tobytes())
    except LevelError:
        raise
    except (KeyError, ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise LevelError(f"not a level file ({error}); build one with `memenvs build sokoban`") from error
    ends = np.cumsum(np.maximum(lengths, 0)).tolist()
    moves = [
        None if length < 0 else joined[end - length : end]
        for length, end in zip(lengths.tolist(), ends, strict=True)
    ]
    return LevelSet(boards, moves, about["splits"], about["card"])


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """The boards of a text, each with the number of its first line."""
    rows: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip() and not line.startswith(";") and ":" not in line:
            rows.append(line)
        elif rows:
            yield number - len(rows), "\n".join(rows)
            rows = []


def _closed(board: Grid) -> Grid:
    """The board with walls in place of the floor outside the room."""
    outside = np.pad(np.zeros(board.shape, bool), 1, constant_values=True)
    open_floor = np.pad(board == FLOOR, 1)
    while True:
        near = np.zeros_like(outside)
        near[1:-1, 1:-1] = outside[:-2, 1:-1] | outside[2:, 1:-1] | outside[1:-1, :-2] | outside[1:-1, 2:]
        grown = outside | (near & open_floor)
        if (grown == outside).all():
            return np.where(outside[1:-1, 1:-1], np.uint8(WALL), board)
        outside = grown
