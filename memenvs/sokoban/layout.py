"""Walls and targets as bit masks: a board in, what solver, deadlock test and generator share out.

A mask is an integer with bit `row * width + column` set for a square. A shift moves all squares of a mask at
once: `<< 1` right, `>> 1` left, `<< width` down, `>> width` up. The wall all round a board keeps what a shift
carries over an edge out of the floor.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np

from memenvs.sokoban.board import BOX, FLOOR, PLAYER, TARGET, WALL, Grid

FAR = 1 << 30  # pushes: more than any board takes

_IS_WALL, _IS_BOX, _IS_TARGET, _IS_PLAYER = (
    bytes(ord("1") if cell & bit else ord("0") for cell in range(256)) for bit in (WALL, BOX, TARGET, PLAYER)
)
_WALL_OR_FLOOR = bytes.maketrans(b"01", bytes((WALL, FLOOR)))


def squares(mask: int) -> Iterator[int]:
    """The indices of a mask's squares, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Layout:
    """Walls and targets of a bordered board, with what follows from them alone.

    Attributes:
        width: squares in a row.
        size: squares on the board.
        floor: mask of the squares that are no wall.
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
        """For each target, lowest first: the fewest pushes from each square, other boxes away, or FAR."""
        return [self._pushes_to(target) for target in squares(self.targets)]

    @cached_property
    def nearest(self) -> list[int]:
        """The fewest pushes from each square to any target, other boxes away, or FAR."""
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
        """Masks of the squares where a box is stopped for good: left and right, then up and down.

        A wall on one side is enough, for a push needs both; dead squares must be on both.
        """
        width, wall, dead = self.width, ~self.floor, self.floor & ~self.live
        across = wall << 1 | wall >> 1 | (dead << 1 & dead >> 1)
        along = wall << width | wall >> width | (dead << width & dead >> width)
        return across & self.floor, along & self.floor

    def reach(self, player: int, boxes: int) -> int:
        """Mask of the squares a player, given as a mask, can walk to round the boxes."""
        width, free = self.width, self.floor & ~boxes
        region = frontier = player
        while frontier:
            frontier = (
                (frontier << 1 | frontier >> 1 | frontier << width | frontier >> width) & free & ~region
            )
            region |= frontier
        return region

    def _pulled(self, boxes: int) -> int:
        """Where one pull takes a lone box from any square of `boxes`: the player needs room behind."""
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


@lru_cache(maxsize=4096)
def _layout(width: int, size: int, floor: int, targets: int) -> Layout:
    return Layout(width, size, floor, targets)


def read_masks(board: Grid) -> tuple[Layout, int, int]:
    """A board as (layout, boxes, player): the layout is cached, boxes and player are masks."""
    cells = board.tobytes()[::-1]  # the last digit is bit 0
    walls, boxes, targets, player = (
        int(cells.translate(t), 2) for t in (_IS_WALL, _IS_BOX, _IS_TARGET, _IS_PLAYER)
    )
    floor = ~walls & ((1 << len(cells)) - 1)
    return _layout(board.shape[1], len(cells), floor, targets), boxes, player


def to_board(layout: Layout, boxes: int, player: int) -> Grid:
    """The board (H, W) uint8 of a layout with boxes and player, both masks."""
    cells = layout.cells.copy()
    cells[player.bit_length() - 1] |= PLAYER
    for square in squares(boxes):
        cells[square] |= BOX
    return np.frombuffer(cells, np.uint8).reshape(-1, layout.width)
