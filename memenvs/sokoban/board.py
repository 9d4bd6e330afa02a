"""Cell codes of a Sokoban board, and its text: rows of symbols in, (H, W) uint8 codes out, and back.

A board is a (H, W) uint8 array. Each cell is a sum of bits: WALL 1, BOX 2, TARGET 4, PLAYER 8; floor is 0.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FLOOR, WALL, BOX, TARGET, PLAYER = 0, 1, 2, 4, 8
UP, DOWN, LEFT, RIGHT = range(4)
ACTIONS = ("up", "down", "left", "right")
MAX_SIDE = 64  # squares

CELLS = (WALL, FLOOR, TARGET, BOX | TARGET, BOX, PLAYER, PLAYER | TARGET)
"""The seven cells a board is made of, in the order that a vocabulary names them."""

_IS_CELL = np.isin(np.arange(256), CELLS)

Vocabulary = Sequence[str]
"""Seven symbols: wall, floor, target, box on target, box, player, player on target."""

XSB: Vocabulary = "# .*$@+"
LETTERS: Vocabulary = "#_O√XPS"

Grid = npt.NDArray[np.uint8]


class LevelError(ValueError):
    """A level or a level file that cannot be played: the message says what, the value and the mend."""


def check_vocabulary(vocabulary: Vocabulary) -> None:
    """Raise ValueError unless `vocabulary` has seven different, non-empty symbols."""
    if len(vocabulary) != len(CELLS) or len(set(vocabulary)) != len(CELLS) or not all(vocabulary):
        raise ValueError(
            f"a vocabulary is seven different symbols, got {vocabulary!r}; name wall, floor, target, "
            "box on target, box, player, player on target"
        )


def parse(text: str, vocabulary: Vocabulary = XSB, fill: bool = False) -> Grid:
    """Read one board, a row a line, in one-character symbols; no rule of play is checked.

    `fill` completes short rows with walls.

    Raises:
        LevelError: an unknown symbol, ragged rows, or a board over 64 squares a side.
    """
    codes = dict(zip(vocabulary, CELLS, strict=True))
    rows = text.strip("\n").split("\n")
    if fill:
        longest = max(map(len, rows))
        rows = [row.ljust(longest, vocabulary[0]) for row in rows]
    for number, row in enumerate(rows, 1):
        unknown = next((symbol for symbol in row if symbol not in codes), None)
        if unknown is not None:
            raise LevelError(
                f"row {number} has {unknown!r}; write rows in the symbols {''.join(vocabulary)!r}"
            )
        if len(row) != len(rows[0]):
            raise LevelError(
                f"ragged rows: row {number} has {len(row)} squares, row 1 has {len(rows[0])}; "
                "complete the short rows with walls, or pass fill=True"
            )
    if not rows[0] or max(len(rows), len(rows[0])) > MAX_SIDE:
        raise LevelError(
            f"a board has 1 to {MAX_SIDE} squares a side, got {len(rows)} x {len(rows[0])}; cut it"
        )
    return np.array([[codes[symbol] for symbol in row] for row in rows], np.uint8)


def to_text(board: Grid, vocabulary: Vocabulary = LETTERS) -> str:
    """Write a board in any symbols, also longer than a character: no line end after the last row."""
    return rows_to_text(board.tobytes(), board.shape[1], vocabulary)


def rows_to_text(cells: bytes | bytearray, width: int, vocabulary: Vocabulary) -> str:
    """`to_text` for codes that stand row by row."""
    symbol = _symbols(vocabulary if isinstance(vocabulary, str) else tuple(vocabulary)).__getitem__
    return "\n".join(["".join(map(symbol, cells[i : i + width])) for i in range(0, len(cells), width)])


@lru_cache
def _symbols(vocabulary: Vocabulary) -> list[str]:
    """The symbol of each cell code."""
    check_vocabulary(vocabulary)
    symbols = [""] * 16
    for cell, symbol in zip(CELLS, vocabulary, strict=True):
        symbols[cell] = symbol
    return symbols


def check_playable(boards: Grid) -> None:
    """Raise LevelError unless each board of (N, H, W) has one player and walls all round."""
    edge = (boards & WALL) == 0
    edge[:, 1:-1, 1:-1] = False
    if edge.any():
        _, row, column = np.argwhere(edge)[0]
        raise LevelError(
            f"the edge is open at row {row + 1}, column {column + 1}; put walls all round the board"
        )
    players = np.count_nonzero(boards & PLAYER, axis=(1, 2))
    if (players != 1).any():
        raise LevelError(
            f"a board has one player, this one has {players[players != 1][0]}; put one on the board"
        )


def check_levels(boards: Grid) -> None:
    """Raise LevelError unless each board of (N, H, W) is playable, with a target a box."""
    check_playable(boards)
    strange = boards[~_IS_CELL.take(boards)]
    if len(strange):
        raise LevelError(f"cell codes are {sorted(CELLS)}, got {strange[0]}; write boards in these codes")
    boxes, targets = (np.count_nonzero(boards & bit, axis=(1, 2)) for bit in (BOX, TARGET))
    uneven = np.flatnonzero((boxes != targets) | (boxes == 0))
    if len(uneven):
        raise LevelError(
            f"{boxes[uneven[0]]} boxes on {targets[uneven[0]]} targets; "
            "give every box a target, and the board at least one box"
        )
