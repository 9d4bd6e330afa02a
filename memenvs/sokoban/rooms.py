"""Rooms to make levels in: a random generator in, a layout and the positions pulled out of it out."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from memenvs.sokoban.layout import Layout, squares

_WALLS = (0.15, 0.45)  # least and most share of inner squares that are walls, before the room is cut down
_POSITIONS = 256  # positions to pull on from in a room; one box on 6x6 has 30 or so


@lru_cache
def _inner(height: int, width: int) -> int:
    """Mask of the squares that are not on the edge."""
    row = (1 << width - 2) - 1
    return sum(row << number * width + 1 for number in range(1, height - 1))


def draw_room(rng: np.random.Generator, height: int, width: int, boxes: int) -> Layout | None:
    """A connected room with a target for each box; None if the walls leave too little room."""
    least, most = _WALLS
    open_squares = rng.random(height * width) >= least + (most - least) * rng.random()
    bits = np.packbits(open_squares, bitorder="little").tobytes()
    floor = int.from_bytes(bits, "little") & _inner(height, width)
    free = list(squares(floor))
    if not free:
        return None
    start = 1 << free[int(rng.integers(len(free)))]
    floor = Layout(width, height * width, floor, 0).reach(start, 0)
    free = list(squares(floor))
    if len(free) < 2 * boxes + 1:
        return None
    targets = sum(1 << free[spot] for spot in rng.permutation(len(free))[:boxes].tolist())
    return Layout(width, height * width, floor, targets)


def pull_about(rng: np.random.Generator, layout: Layout) -> list[tuple[int, int]]:
    """Positions from which the boxes can be pushed home: all boxes off the targets.

    Each is two masks: the boxes, and the region the player may stand in.

    Reverse play from the solved boards: mostly on from the newest position, now and then from an older one,
    so that boxes get far.
    """
    frontier = [(layout.targets, region) for region in _regions(layout, layout.targets)]
    seen = set(frontier)
    for chance in rng.random(_POSITIONS).tolist():
        if not frontier:
            break
        # 0 to 0.75 takes the newest; above, one of all, picked with what is left of the chance
        pick = -1 if chance < 0.75 else int((chance - 0.75) * 4 * len(frontier))
        boxes, region = frontier.pop(pick)
        for pulled, player in _pulls(layout, boxes, region):
            position = (pulled, layout.reach(player, pulled))
            if position not in seen:
                seen.add(position)
                frontier.append(position)
    return sorted(position for position in seen if not position[0] & layout.targets)


def _regions(layout: Layout, boxes: int) -> Iterator[int]:
    free = layout.floor & ~boxes
    while free:
        region = layout.reach(free & -free, boxes)
        yield region
        free &= ~region


def _pulls(layout: Layout, boxes: int, region: int) -> Iterator[tuple[int, int]]:
    """Boxes and player, as masks, after each pull a player in `region` can make."""
    for delta in (layout.width, 1):
        for box in squares(boxes & region >> delta & region >> 2 * delta):
            yield boxes ^ (1 << box) ^ (1 << box + delta), 1 << box + 2 * delta
        for box in squares(boxes & region << delta & region << 2 * delta):
            yield boxes ^ (1 << box) ^ (1 << box - delta), 1 << box - 2 * delta
