"""Boards: cells, moves, and the walls around a room.

A mask is an integer with bit `row * width + column` set for a square. A shift moves all squares of a mask at
once: `<< 1` right, `>> 1` left, `<< width` down, `>> width` up. The wall around a board keeps squares that a
shift carries over an edge out of the floor.

A board is a (H, W) uint8 array. Each cell is a sum of bits: WALL 1, BOX 2, TARGET 4, PLAYER 8; floor is 0.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

FLOOR, WALL, BOX, TARGET, PLAYER = 0, 1, 2, 4, 8
LINE_END = b"\x10"  # ends each row of a board that is kept as it is printed
MAX_SIDE = 256  # squares; the widest published boards have about 150

CELLS = (WALL, FLOOR, TARGET, BOX | TARGET, BOX, PLAYER, PLAYER | TARGET)
"""The seven cells a board is made of, in the order that a vocabulary names them."""

FAR = 1 << 30  # pushes: more than any board takes

_IS_WALL, _IS_BOX, _IS_TARGET, _IS_PLAYER = (
    bytes(ord("1") if cell & bit else ord("0") for cell in range(256)) for bit in (WALL, BOX, TARGET, PLAYER)
)
_WALL_OR_FLOOR = bytes.maketrans(b"01", bytes((WALL, FLOOR)))

Vocabulary = str
"""Seven characters: wall, floor, target, box on target, box, player, player on target."""

XSB: Vocabulary = "# .*$@+"
LETTERS: Vocabulary = "#_O√XPS"

Grid = npt.NDArray[np.uint8]


class LevelError(ValueError):
    """A level or a level file that cannot be played; the message says why, and what to do."""


def parse(text: str, vocabulary: Vocabulary = XSB) -> Grid:
    """Read one board, one row per line, in one-character symbols; short rows end in walls.

    Raises:
        LevelError: an unknown symbol, or a side of more than 256 squares. `check_levels` checks the rest.
    """
    codes = dict(zip(vocabulary, CELLS, strict=True))
    rows = text.strip("\n").split("\n")
    width = max(map(len, rows))
    if not width or max(len(rows), width) > MAX_SIDE:
        raise LevelError(
            f"a board has 1 to {MAX_SIDE} squares per side, got {len(rows)} x {width}; shrink it"
        )
    for number, row in enumerate(rows, 1):
        if unknown := [symbol for symbol in row if symbol not in codes]:
            raise LevelError(
                f"row {number} has {unknown[0]!r}; write rows in the symbols {''.join(vocabulary)!r}"
            )
    return np.array([[codes[symbol] for symbol in row.ljust(width, vocabulary[0])] for row in rows], np.uint8)


def to_text(board: Grid, vocabulary: Vocabulary = LETTERS) -> str:
    """Write a board, one row per line, without a line end after the last row."""
    return cells_to_text(lines(board)[:-1], vocabulary)


def lines(board: Grid) -> bytes:
    """Cell codes row by row, each row with `LINE_END` behind it."""
    cells, width = board.tobytes(), board.shape[1]
    return b"".join([cells[i : i + width] + LINE_END for i in range(0, len(cells), width)])


def cells_to_text(cells: bytes | bytearray, vocabulary: Vocabulary) -> str:
    """The symbols of cell codes and line ends."""
    return codecs.charmap_decode(cells, "strict", _symbols(vocabulary))[0]


@lru_cache
def _symbols(vocabulary: Vocabulary) -> str:
    """The symbol of each cell code, and of the line end."""
    symbols = dict(zip(CELLS, vocabulary, strict=True))
    return "".join(symbols.get(cell, " ") for cell in range(16)) + "\n"


def check_levels(boards: Grid) -> None:
    """Raise LevelError unless each board (N, H, W) has an edge of walls, one player, and a target per box."""
    edge = (boards & WALL) == 0
    edge[:, 1:-1, 1:-1] = False
    if edge.any():
        _, row, column = np.argwhere(edge)[0]
        raise LevelError(
            f"the edge is open at row {row + 1}, column {column + 1}; put walls around the board"
        )
    players, boxes, targets = (np.count_nonzero(boards & bit, axis=(1, 2)) for bit in (PLAYER, BOX, TARGET))
    if (players != 1).any():
        raise LevelError(f"a board has one player, this one has {players[players != 1][0]}; put one on it")
    uneven = np.flatnonzero((boxes != targets) | (boxes == 0))
    if len(uneven):
        raise LevelError(
            f"{boxes[uneven[0]]} boxes on {targets[uneven[0]]} targets; "
            "give every box a target, and the board at least one box"
        )


def squares(mask: int) -> Iterator[int]:
    """The indices of a mask's squares, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class BoardLayout:
    """Walls and targets of a bordered board, and everything that depends only on them.

    Attributes:
        width: squares in a row.
        size: squares on the board.
        floor: mask of the squares that are not walls.
        targets: mask of the targets.
    """

    def __init__(self, width: int, size: int, floor: int, targets: int) -> None:
        self.width, self.size, self.floor, self.targets = width, size, floor, targets

    @cached_property
    def cells(self) -> bytearray:
        """The cell codes of walls, floor and targets, row by row."""
        digits = f"{self.floor:0{self.size}b}".encode()[::-1]  # the last digit is bit 0
        cells = bytearray(digits.translate(_WALL_OR_FLOOR))
        for square in squares(self.targets):
            cells[square] = TARGET
        return cells

    @cached_property
    def pushes(self) -> list[list[int]]:
        """For each target, lowest first: the fewest pushes from each square without other boxes, or FAR."""
        return [self._pushes_to(target) for target in squares(self.targets)]

    @cached_property
    def nearest(self) -> list[int]:
        """The fewest pushes from each square to any target without other boxes, or FAR."""
        return [min(column) for column in zip(*self.pushes, strict=True)] or [FAR] * self.size

    @cached_property
    def live(self) -> int:
        """Mask of the squares from which a box, alone on the board, can be pushed to some target."""
        live = frontier = self.targets
        while frontier:
            frontier = self._pulled(frontier) & ~live
            live |= frontier
        return live

    @cached_property
    def stuck(self) -> tuple[int, int]:
        """Masks of the squares where a box can never move left or right, and never up or down.

        A wall on one side is enough, since a push needs both sides free; dead squares must be on both.
        """
        width, wall, dead = self.width, ~self.floor, self.floor & ~self.live
        across = wall << 1 | wall >> 1 | (dead << 1 & dead >> 1)
        along = wall << width | wall >> width | (dead << width & dead >> width)
        return across & self.floor, along & self.floor

    def reach(self, player: int, boxes: int) -> int:
        """Mask of the squares a player, given as a mask, can walk to around the boxes."""
        width, free = self.width, self.floor & ~boxes
        region = frontier = player
        while frontier:
            frontier = (
                (frontier << 1 | frontier >> 1 | frontier << width | frontier >> width) & free & ~region
            )
            region |= frontier
        return region

    def _pulled(self, boxes: int) -> int:
        """Squares that one pull takes a lone box to from any square of `boxes`."""
        width, floor = self.width, self.floor
        return (
            (boxes << 1 & floor & floor >> 1)
            | (boxes >> 1 & floor & floor << 1)
            | (boxes << width & floor & floor >> width)
            | (boxes >> width & floor & floor << width)
        )

    def _pushes_to(self, target: int) -> list[int]:
        distance = [FAR] * self.size
        frontier, seen, pushes = 1 << target, 0, 0
        while frontier:
            for square in squares(frontier):
                distance[square] = pushes
            seen |= frontier
            frontier = self._pulled(frontier) & ~seen
            pushes += 1
        return distance


_layout = lru_cache(maxsize=4096)(BoardLayout)


def read_masks(board: Grid) -> tuple[BoardLayout, int, int]:
    """A board as (layout, boxes, player): the layout is cached, boxes and player are masks."""
    cells = board.tobytes()[::-1]  # the last digit is bit 0
    walls, boxes, targets, player = (
        int(cells.translate(t), 2) for t in (_IS_WALL, _IS_BOX, _IS_TARGET, _IS_PLAYER)
    )
    floor = ~walls & ((1 << len(cells)) - 1)
    return _layout(board.shape[1], len(cells), floor, targets), boxes, player


def to_board(layout: BoardLayout, boxes: int, player: int) -> Grid:
    """The board (H, W) uint8 of a layout with boxes and player, both masks."""
    cells = layout.cells.copy()
    cells[player.bit_length() - 1] |= PLAYER
    for square in squares(boxes):
        cells[square] |= BOX
    return np.frombuffer(cells, np.uint8).reshape(-1, layout.width)
