"""Shortest solutions, found within a budget of nodes or seconds, and boards that are certainly lost.

The search for the fewest moves, pushes included, is A* over waves of player squares. A node is a set of
boxes with all the squares, in one mask, that the player can first reach after g moves. The bound depends on
the boxes alone, so a wave has one f = g + bound, and it spreads in one shift, whatever its size. Walking
raises f by 1; a push by 0 or more.

A level is solved when every box is on a target. `is_deadlocked` looks for boxes on dead squares and for
frozen ones. A board with such a box is lost; others may be lost too.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from memenvs.sokoban.board import BOX, FAR, TARGET, WALL, BoardLayout, Grid, read_masks, squares

_MANY = 20  # boxes; with 100 of them one assignment takes 0.3 s

Status = Literal["solved", "unsolvable", "longer", "limit"]


class Solution(NamedTuple):
    """The result of a search.

    `status` is "longer" if every solution takes more moves than were asked for, or there is none, and "limit"
    if the budget ran out before the search ended.
    """

    status: Status
    moves: tuple[int, ...]  # actions: 0 up, 1 down, 2 left, 3 right; empty unless solved
    expanded: int  # search nodes


def solve(
    board: Grid,
    nodes: int | None = None,
    seconds: float | None = None,
    max_moves: int | None = None,
    budget: Budget | None = None,
) -> Solution:
    """A solution of a bordered board (H, W) with the fewest moves, within a budget; None is no limit.

    `nodes` are search nodes to expand, `seconds` those of the wall clock. A limit in nodes gives the same
    result on every machine. `budget`, which several searches may share, takes the place of `nodes` and
    `seconds`. The search ends once a solution must take more than `max_moves`.
    """
    layout, boxes, player = read_masks(board)
    return solve_masks(layout, boxes, player, budget or Budget(nodes, seconds), max_moves)


def solve_masks(
    layout: BoardLayout, boxes: int, player: int, budget: Budget, max_moves: int | None = None
) -> Solution:
    """`solve`, for a layout and masks."""
    try:
        actions = MoveSearch(layout, budget).run(boxes, player, FAR if max_moves is None else max_moves)
    except BudgetSpent:
        return Solution("limit", (), budget.expanded)
    except TooLong:
        return Solution("longer", (), budget.expanded)
    if actions is None:
        return Solution("unsolvable", (), budget.expanded)
    return Solution("solved", tuple(actions), budget.expanded)


def frozen_boxes(layout: BoardLayout, boxes: int) -> int:
    """Mask of the boxes that no push can free.

    A box is stopped along an axis by a wall or a frozen box on either side, or by dead squares on both; it is
    frozen when it is stopped along both axes. Start from all boxes, and drop those that can move until none
    can.
    """
    width = layout.width
    across, along = layout.stuck
    frozen = boxes
    while frozen:
        kept = frozen & (across | frozen << 1 | frozen >> 1) & (along | frozen << width | frozen >> width)
        if kept == frozen:
            break
        frozen = kept
    return frozen


def lost(layout: BoardLayout, boxes: int) -> bool:
    """Whether a box is on a dead square, or frozen and not on a target, so that there is no solution."""
    return bool(boxes & ~layout.live or frozen_boxes(layout, boxes) & ~layout.targets)


def is_deadlocked(board: Grid) -> bool:
    """Whether a board (H, W) is certainly lost; the analysis of its walls and targets is cached."""
    layout, boxes, _ = read_masks(board)
    return lost(layout, boxes)


def are_deadlocked(boards: Grid, dead: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """`is_deadlocked` of boards (N, H, W), with their dead squares (N, H, W) as `LevelSet.dead` has them."""
    shape, width = boards.shape, boards.shape[2]
    boards, dead = boards.ravel(), dead.ravel()
    wall, boxes = boards & WALL != 0, boards & BOX != 0
    lost = boxes & dead
    # A box that touches no other one is frozen only on a dead square.
    if (boxes[1:] & boxes[:-1]).any() or (boxes[width:] & boxes[:-width]).any():
        axes = [(by, dead[: -2 * by] & dead[2 * by :]) for by in (1, width)]
        kept, frozen = boxes, ~boxes
        while (kept != frozen).any():  # as in `frozen_boxes`
            kept, frozen = kept.copy(), kept
            stop = wall | frozen
            for by, dead_on_both in axes:
                kept[by:-by] &= stop[: -2 * by] | stop[2 * by :] | dead_on_both
        lost |= frozen & (boards & TARGET == 0)
    return lost.reshape(shape).any((1, 2))


class BudgetSpent(Exception):
    """A search reached its limit."""


class TooLong(Exception):
    """Every solution takes more moves than were asked for."""


class Budget:
    """Counts the nodes of a search, and stops it at a limit; None is no limit.

    Attributes:
        expanded: nodes expanded so far.
    """

    def __init__(self, nodes: int | None = None, seconds: float | None = None) -> None:
        self.expanded = 0
        self._nodes = nodes if nodes is not None else float("inf")
        self._end = time.monotonic() + seconds if seconds is not None else None

    def spend(self) -> None:
        """Count one node; raises BudgetSpent if none is left."""
        if self.expanded >= self._nodes or (self._end is not None and time.monotonic() > self._end):
            raise BudgetSpent
        self.expanded += 1


class PushBound:
    """The fewest pushes that bring each box, alone on the board, to a target of its own; FAR if lost.

    With more than `_MANY` boxes two boxes may go to the same target, as their assignment takes too long.

    It never overestimates, and one push lowers it by at most one, so A* with it is exact. `known` caches the
    bound of each mask of boxes.
    """

    def __init__(self, layout: BoardLayout) -> None:
        self.known: dict[int, int] = {}
        self._layout = layout
        self._costs = list(zip(*layout.pushes, strict=True))  # a row per square, a column per target

    def __call__(self, boxes: int) -> int:
        """The bound in pushes for a mask of boxes."""
        bound = self.known.get(boxes)
        if bound is None:
            bound = self.known[boxes] = self._compute(boxes)
        return bound

    def _compute(self, boxes: int) -> int:
        layout = self._layout
        if boxes & (boxes - 1) == 0:
            return layout.nearest[boxes.bit_length() - 1] if boxes else 0
        if boxes.bit_count() > layout.targets.bit_count() or lost(layout, boxes):
            return FAR
        if boxes.bit_count() > _MANY:
            return sum(layout.nearest[square] for square in squares(boxes))
        return min(FAR, assignment([self._costs[square] for square in squares(boxes)]))


def assignment(costs: Sequence[Sequence[int]]) -> int:
    """The least total cost when each row takes a different column: R rows, C columns, R <= C.

    Rows enter one by one. Each finds the cheapest chain of rows that give up their column for another
    (Dijkstra over columns, on costs less the prices that the chains before have set).
    """
    columns = range(len(costs[0]))
    holder = [-1] * len(columns)
    column_price, row_price = [0] * len(columns), [0] * len(costs)
    for entering in range(len(costs)):
        reached, came_from, settled = [4 * FAR] * len(columns), [-1] * len(columns), [False] * len(columns)
        row, column, distance = entering, -1, 0
        while row >= 0:
            offset, row_costs = distance - row_price[row], costs[row]
            nearest, distance = -1, 4 * FAR
            for c in columns:
                if settled[c]:
                    continue
                through = row_costs[c] + offset - column_price[c]
                if through < reached[c]:
                    reached[c], came_from[c] = through, column
                if reached[c] < distance:
                    nearest, distance = c, reached[c]
            settled[nearest] = True
            column, row = nearest, holder[nearest]
        for c in columns:
            if settled[c] and holder[c] >= 0:
                row_price[holder[c]] += distance - reached[c]
                column_price[c] -= distance - reached[c]
        row_price[entering] += distance
        while column >= 0:
            previous = came_from[column]
            holder[column] = holder[previous] if previous >= 0 else entering
            column = previous
    return sum(costs[row][c] for c, row in enumerate(holder) if row >= 0)


class MoveSearch:
    """One search for a solution with the fewest moves."""

    def __init__(self, layout: BoardLayout, budget: Budget) -> None:
        self._layout, self._budget, self._bound = layout, budget, PushBound(layout)
        self._open: defaultdict[int, dict[int, int]] = defaultdict(dict)  # f to boxes to player squares
        self._seen: dict[int, int] = {}  # boxes to the player squares of all waves so far
        self._waves: dict[int, dict[int, int]] = {}  # boxes to g to the player squares first reached then

    def run(self, boxes: int, player: int, max_moves: int) -> list[int] | None:
        """A solution from boxes and player, both masks; None if there is none.

        Raises:
            BudgetSpent, TooLong: the search ended before.
        """
        f = self._bound(boxes)
        if f >= FAR:
            return None
        self._open[f][boxes] = player
        while self._open:
            f = min(self._open)
            if f > max_moves:
                raise TooLong
            now = self._open[f]
            while now:
                boxes, arrived = now.popitem()
                new = arrived & ~self._seen.get(boxes, 0)
                if not new:
                    continue
                self._budget.spend()
                moves = f - self._bound(boxes)
                self._seen[boxes] = self._seen.get(boxes, 0) | new
                waves = self._waves.setdefault(boxes, {})
                waves[moves] = waves.get(moves, 0) | new
                if not boxes & ~self._layout.targets:
                    return self._trace(boxes, new & -new, moves)
                self._spread(boxes, new, f)
            del self._open[f]
        return None

    def _spread(self, boxes: int, wave: int, f: int) -> None:
        """Open what one more move leads to: squares walked to, and boxes pushed."""
        layout, bounds = self._layout, self._bound.known
        width, room, moves = layout.width, layout.live & ~boxes, f - bounds[boxes] + 1
        walked = wave << 1 | wave >> 1 | wave << width | wave >> width
        walked &= layout.floor & ~boxes & ~self._seen[boxes]
        if walked:
            later = self._open[f + 1]
            later[boxes] = later.get(boxes, 0) | walked
        for delta in (-width, width, -1, 1):
            landing = _shift(_shift(wave, delta) & boxes, delta) & room
            while landing:
                to = landing & -landing
                landing ^= to
                left = _shift(to, -delta)  # the box left this square, and the player is there now
                pushed = boxes ^ left ^ to
                bound = bounds.get(pushed)
                if bound is None:
                    bound = self._bound(pushed)
                if bound < FAR:
                    later = self._open[moves + bound]
                    later[pushed] = later.get(pushed, 0) | left

    def _trace(self, boxes: int, player: int, moves: int) -> list[int]:
        """Walk back over the waves from a solved board, one move at a time."""
        width = self._layout.width
        directions, actions = (-width, width, -1, 1), []
        while moves:
            moves -= 1
            for delta in directions:
                before, ahead = _shift(player, -delta), _shift(player, delta)
                if before & self._waves[boxes].get(moves, 0):
                    break
                earlier = boxes ^ ahead ^ player
                if boxes & ahead and before & self._waves.get(earlier, {}).get(moves, 0):
                    boxes = earlier
                    break
            actions.append(directions.index(delta))
            player = before
        return actions[::-1]


def _shift(mask: int, delta: int) -> int:
    return mask << delta if delta > 0 else mask >> -delta
