"""Level sets: boards with shortest solutions, from a file.

A file of levels is text (see `memenvs.sokoban.collections`) or a compact .npz without pickles: the boards,
the moves of an optimal solution of each, the sizes of the splits, a card and a version.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from memenvs.core.data import decode
from memenvs.core.errors import unknown_name
from memenvs.core.files import whole_file
from memenvs.core.inputs import NPZ, PAGE, UTF16, RefusedFile, ending, open_input
from memenvs.data import bundled_names
from memenvs.sokoban.board import BOX, TARGET, WALL, XSB, Grid, LevelError, check_levels, to_text
from memenvs.sokoban.collections import read_collection
from memenvs.sokoban.solver import is_deadlocked

FORMAT, VERSION = "memenvs sokoban levels", 1
_NAMED = 3  # faults named in a warning


class Level(NamedTuple):
    """A board (H, W) and the moves of a shortest solution; None where none is known."""

    board: Grid
    moves: tuple[int, ...] | None


class LevelSet:
    """L levels, each of its own size.

    Attributes:
        boards: (L, H, W) uint8, read-only; smaller boards are padded with walls at the right and the bottom.
        shapes: height and width of each board.
        lengths: (L,) int32, moves of an optimal solution; -1 where none is known.
        splits: split names to the number of their levels, in the order of the levels.
        card: where the levels come from; plain data.

    Args:
        boards: (L, H, W) uint8, or a board (H, W) for each level.
        moves: an optimal solution of each level, or None.
        splits: see the attribute; by default all levels are "train".
        card: see the attribute.

    Raises:
        LevelError: a board that is not a level (see `board.check_levels`).
    """

    def __init__(
        self,
        boards: Grid | Sequence[Grid],
        moves: Sequence[Sequence[int] | None] | None = None,
        splits: Mapping[str, int] | None = None,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        moves = [None] * len(boards) if moves is None else moves
        self.shapes: list[tuple[int, int]] = [(len(board), len(board[0])) for board in boards]
        height, width = np.max(self.shapes, axis=0)
        self.boards = np.full((len(boards), height, width), WALL, np.uint8)
        for padded, board, shape in zip(self.boards, boards, self.shapes, strict=True):
            if shape != (height, width):
                check_levels(board[None])
            padded[: shape[0], : shape[1]] = board
        check_levels(self.boards)
        self.boards.flags.writeable = False
        self.lengths = np.array([-1 if m is None else len(m) for m in moves], np.int32)
        self.splits = dict(splits) if splits is not None else {"train": len(boards)}
        self.card = dict(card or {})
        self._moves = [None if m is None else tuple(m) for m in moves]

    def __len__(self) -> int:
        return len(self.boards)

    def __getitem__(self, index: int) -> Level:
        height, width = self.shapes[index]
        return Level(self.boards[index, :height, :width], self._moves[index])

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
            raise LevelError(unknown_name("these levels have no split", name, self.splits))
        start = sum(list(self.splits.values())[: list(self.splits).index(name)])
        boards, moves = zip(*[self[start + i] for i in range(self.splits[name])], strict=True)
        return LevelSet(boards, moves, {name: self.splits[name]}, self.card)

    @classmethod
    def load(cls, path: str | Path, split: str | None = None) -> LevelSet:
        """Read a level file, .npz or text, under any name; `split` picks one of its splits.

        Boards of a text that are not levels are left out, with a warning that counts and names them; the
        card lists all of them under `left_out`. The levels of a text are one split, "train".

        Raises:
            FileNotFoundError: no such file.
            LevelError: not a level file, or no level in it.
        """
        path = Path(path)
        if not path.is_file():
            sets = [name.removesuffix(".npz") for name in bundled_names() if name.endswith(".npz")]
            more = f", or build a file with `memenvs build sokoban --out {path}`"
            raise FileNotFoundError(unknown_name("no level set", str(path), sets, more))
        try:
            if game := {".hsb": "Hexoban", ".tsb": "Trioban"}.get(ending(path)):
                raise LevelError(f"the ending says that its levels are of {game}; give levels of Sokoban")
            with open_input(path, NPZ, PAGE, UTF16) as (file, _):
                data = file.read()
            levels = _unpack(data) if data[:2] == b"PK" else cls._read(data, path)
        except RefusedFile as error:
            raise LevelError(str(error)) from error
        except LevelError as error:
            raise LevelError(f"{path}: {error}") from error
        return levels if split is None else levels.split(split)

    @classmethod
    def _read(cls, data: bytes, path: Path) -> LevelSet:
        boards, faults = read_collection(data)
        if not boards:
            raise LevelError(f"no level in it: {in_short(faults)}")
        if faults:
            warning = (
                f"{path}: {len(faults)} of {len(boards) + len(faults)} boards are no levels and left out"
            )
            warnings.warn(f"{warning}: {in_short(faults)}", stacklevel=3)
        return cls(boards, card={"source": path.name, "left_out": faults})

    def save(self, path: str | Path) -> None:
        """Write the whole set to a .npz; to any other name only the boards, as text in Boxoban's layout.

        There a line "; n" with the level's number, from 0, comes before its rows in XSB.
        """
        path = Path(path)
        texts = (f"; {number}\n{to_text(level.board, XSB)}\n" for number, level in enumerate(self))
        data = _pack(self) if path.suffix == ".npz" else "\n".join(texts).encode()
        with whole_file(path) as work:
            work.write_bytes(data)


def why_unplayable(board: Grid) -> str:
    """Why nobody needs to, or can, play a board (H, W); empty where neither is known without a search."""
    if not ((board & (BOX | TARGET)) == BOX).any():
        return "solved at the start"
    return "lost at the start" if is_deadlocked(board) else ""


def in_short(faults: Sequence[str]) -> str:
    """The first of some faults, and how many more there are."""
    more = [f"and {len(faults) - _NAMED:,} more"] if len(faults) > _NAMED else []
    return "; ".join([*faults[:_NAMED], *more])


def _pack(levels: LevelSet) -> bytes:
    joined = [move for level in levels for move in level.moves or ()]
    card = {"splits": levels.splits, "card": levels.card}
    arrays: dict[str, Any] = {
        "format": np.array(f"{FORMAT} {VERSION}"),
        "boards": levels.boards,
        "lengths": levels.lengths,
        "moves": np.array(joined, np.uint8),
        "card": np.frombuffer(json.dumps(card).encode(), np.uint8),
    }
    if len(set(levels.shapes)) > 1:
        arrays["shapes"] = np.array(levels.shapes, np.int32)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


class _About(msgspec.Struct):
    splits: dict[str, int]
    card: dict[str, Any]


def _unpack(data: bytes) -> LevelSet:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            written = str(file["format"])
            if written != f"{FORMAT} {VERSION}":
                raise LevelError(f"the format is {written!r}, not '{FORMAT} {VERSION}'; build the file again")
            boards, lengths, joined = file["boards"], file["lengths"], file["moves"].tolist()
            about = decode(file["card"].tobytes(), _About, "its card")
            if "shapes" in file:  # of boards of different sizes
                shapes = file["shapes"].tolist()
                boards = [b[:height, :width] for b, (height, width) in zip(boards, shapes, strict=True)]
    except LevelError:
        raise
    except (KeyError, ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise LevelError(f"not a level file ({error}); build one with `memenvs build sokoban`") from error
    ends = np.cumsum(np.maximum(lengths, 0)).tolist()
    moves = [
        None if length < 0 else joined[end - length : end]
        for length, end in zip(lengths.tolist(), ends, strict=True)
    ]
    return LevelSet(boards, moves, about.splits, about.card)
