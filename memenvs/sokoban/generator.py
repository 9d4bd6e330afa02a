"""Random solvable levels.

A level is made backwards. The generator draws a room (random walls, reduced to one connected part) and its
targets, puts the boxes on the targets, and pulls them around. Then it draws one of the positions reached and
a square for the player. The solver finds the fewest moves, and the level is kept if they are between
`min_solution` and `max_solution`. A level that takes the solver more than `NODES` nodes is dropped, so many
boxes in a large room give levels of medium difficulty. No box starts on a target. A room gives at most one
level.

Two boards are the same level if turning or mirroring makes them equal. A hash of the board, which is the same
for all eight of these, decides its split for every seed: half of all boards are train, a quarter validation,
a quarter test. So no training level is a test level of another seed or size.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from memenvs.core.data import Count, checked
from memenvs.core.processes import Workers, map_jobs
from memenvs.core.progress import Progress
from memenvs.sokoban.board import FAR, BoardLayout, Grid, LevelError, squares, to_board
from memenvs.sokoban.levels import Level, LevelSet
from memenvs.sokoban.solver import Budget, solve_masks

Split = Literal["train", "validation", "test"]
SPLITS = get_args(Split)
Side = Annotated[int, Meta(ge=4, le=64)]
NODES = 20_000  # search nodes to prove one level; 4 boxes on 10x10 take about 10,000
_ROOMS = 200  # rooms to try for one item
_TRIES = 16  # levels to try in a room
_CHUNK = 128  # items a worker makes at once
_PATIENCE = 1000  # items in a row without a new level before we give up
_EMPTY = 50  # how many of these an item without any level counts for
_WALLS = (0.15, 0.45)  # least and most share of inner squares that are walls, before the room is cut down
_POSITIONS = 256  # positions of a room that boxes are pulled from; one box on 6x6 has about 30

_Item = tuple[bytes, Level] | None


@checked
@dataclass(frozen=True)
class Generator:
    """A seeded source of levels: item i of a split is always the same.

    Args:
        size: height and width of the board in squares, including walls; 4 to 64.
        boxes: boxes, and targets.
        min_solution: fewest moves, pushes included, that an optimal solution may take.
        max_solution: most moves that it may take; None for no limit.
        seed: item i of split number s draws from `SeedSequence([seed, s, i])`.
    """

    size: tuple[Side, Side] = (6, 6)
    boxes: Count = 1
    min_solution: Count = 1
    max_solution: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        height, width = self.size
        room = (height - 2) * (width - 2)
        if self.boxes > room // 3:
            raise ValueError(
                f"boxes is 1 to {room // 3} in a room of {room} squares, got {self.boxes}; enlarge size"
            )
        if self.max_solution is not None and self.max_solution < self.min_solution:
            raise ValueError(
                f"max_solution must be at least min_solution, got {self.max_solution} and {self.min_solution}"
            )

    def item(self, split: Split, index: int) -> _Item:
        """Item `index` of a split, with its canonical key; None in the rare case that no room gives one."""
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, SPLITS.index(split), index]))
        for _ in range(_ROOMS):
            layout = draw_room(rng, *self.size, self.boxes)
            item = self._level(rng, layout, split) if layout is not None else None
            if item is not None:
                return item
        return None

    @checked
    def levels(self, counts: Mapping[Split, Count], workers: Workers = 1) -> LevelSet:
        """The first different levels of each split; the same on any number of processes.

        Args:
            counts: levels of each split, 1 or more: `{"train": 4000, "test": 512}`.
            workers: processes, or "ray".

        Raises:
            LevelError: there are not that many different levels.
            ValueError: no such split, a count below 1, or a worker process was killed.
        """
        kept = [level for split, count in counts.items() for level in self._different(split, count, workers)]
        boards, moves = np.stack([level.board for level in kept]), [level.moves for level in kept]
        splits = {str(split): count for split, count in counts.items()}
        return LevelSet(boards, moves, splits, {"generator": asdict(self)})

    def _different(self, split: Split, count: int, workers: Workers) -> Collection[Level]:
        make, numbers = partial(_chunk, self, split), range(sys.maxsize)
        in_turn = (make(number) for number in numbers)
        levels_by_key: dict[bytes, Level] = {}
        barren = 0
        with (
            closing(map_jobs(make, numbers, workers) if workers != 1 else in_turn) as chunks,
            Progress(count, f"{split} levels") as progress,
        ):
            for item in chain.from_iterable(chunks):
                barren += 1 if item is not None else _EMPTY
                if item is not None and item[0] not in levels_by_key:
                    levels_by_key[item[0]] = item[1]
                    progress.add()
                    barren = 0
                if len(levels_by_key) == count:
                    break
                if barren >= _PATIENCE:
                    raise LevelError(
                        f"only {len(levels_by_key)} of {count} different levels found; "
                        "ask for fewer, enlarge size, or widen min_solution to max_solution"
                    )
        return levels_by_key.values()

    def _level(self, rng: np.random.Generator, layout: BoardLayout, split: Split) -> _Item:
        """A level of the room in the split with a solution of the right length; None if none is found."""
        positions = pull_about(rng, layout)
        for place, spot in rng.random((_TRIES if positions else 0, 2)).tolist():
            boxes, region = positions[int(place * len(positions))]
            spots = list(squares(region))
            player = 1 << spots[int(spot * len(spots))]
            board = to_board(layout, boxes, player)
            key = canonical(board)
            if split_of(key) != split:
                continue
            solution = solve_masks(layout, boxes, player, Budget(NODES))
            if solution.status == "limit":
                return None
            if self.min_solution <= len(solution.moves) <= (self.max_solution or FAR):
                return key, Level(board, solution.moves)
        return None


def _chunk(generator: Generator, split: Split, number: int) -> list[_Item]:
    return [generator.item(split, index) for index in range(number * _CHUNK, (number + 1) * _CHUNK)]


def canonical(board: Grid) -> bytes:
    """A key that is the same for a board (H, W), its turns and its mirror images, and for no other board."""
    height, width = board.shape
    sides = (board,) if height < width else (board.T,) if height > width else (board, board.T)
    pictures = [
        picture.tobytes() for side in sides for picture in (side, side[::-1], side[:, ::-1], side[::-1, ::-1])
    ]
    return bytes(sides[0].shape) + min(pictures)


def split_of(key: bytes) -> str:
    """The split that the boards of a canonical key belong to."""
    return ("train", "train", "validation", "test")[hashlib.blake2b(key, digest_size=1).digest()[0] % 4]


def draw_room(rng: np.random.Generator, height: int, width: int, boxes: int) -> BoardLayout | None:
    """A connected room with a target for each box; None if the walls leave too little space."""
    least, most = _WALLS
    open_squares = rng.random(height * width) >= least + (most - least) * rng.random()
    bits = np.packbits(open_squares, bitorder="little").tobytes()
    floor = int.from_bytes(bits, "little") & _inner(height, width)
    free = list(squares(floor))
    if not free:
        return None
    start = 1 << free[int(rng.integers(len(free)))]
    floor = BoardLayout(width, height * width, floor, 0).reach(start, 0)
    free = list(squares(floor))
    if len(free) < 2 * boxes + 1:
        return None
    targets = sum(1 << free[spot] for spot in rng.permutation(len(free))[:boxes].tolist())
    return BoardLayout(width, height * width, floor, targets)


@lru_cache
def _inner(height: int, width: int) -> int:
    """Mask of the squares that are not on the edge."""
    row = (1 << width - 2) - 1
    return sum(row << number * width + 1 for number in range(1, height - 1))


def pull_about(rng: np.random.Generator, layout: BoardLayout) -> list[tuple[int, int]]:
    """Positions from which the boxes can be pushed onto the targets; no box is on one.

    Each is two masks: the boxes, and the region the player may stand in.

    They are found by playing backwards from the solved boards, mostly from the newest position and sometimes
    from an older one, so that boxes get far.
    """
    frontier = [(layout.targets, region) for region in _regions(layout, layout.targets)]
    seen = set(frontier)
    for chance in rng.random(_POSITIONS).tolist():
        if not frontier:
            break
        # below 0.75 the newest; above, any of them, picked by the rest of the chance
        pick = -1 if chance < 0.75 else int((chance - 0.75) * 4 * len(frontier))
        boxes, region = frontier.pop(pick)
        for pulled, player in _pulls(layout, boxes, region):
            position = (pulled, layout.reach(player, pulled))
            if position not in seen:
                seen.add(position)
                frontier.append(position)
    return sorted(position for position in seen if not position[0] & layout.targets)


def _regions(layout: BoardLayout, boxes: int) -> Iterator[int]:
    free = layout.floor & ~boxes
    while free:
        region = layout.reach(free & -free, boxes)
        yield region
        free &= ~region


def _pulls(layout: BoardLayout, boxes: int, region: int) -> Iterator[tuple[int, int]]:
    """Boxes and player, as masks, after each pull that a player in `region` can make."""
    for delta in (layout.width, 1):
        for box in squares(boxes & region >> delta & region >> 2 * delta):
            yield boxes ^ (1 << box) ^ (1 << box + delta), 1 << box + 2 * delta
        for box in squares(boxes & region << delta & region << 2 * delta):
            yield boxes ^ (1 << box) ^ (1 << box - delta), 1 << box - 2 * delta
