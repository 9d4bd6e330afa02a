"""Solve levels: a board in, the moves of a solution out, with what was proved about it.

"Fewest" is exact in two ways. `objective="moves"` finds a solution with the fewest moves, pushes included.
`objective="pushes"` finds one with the fewest pushes, and walks the shortest way between them (of all
solutions with as few pushes, not always the one with the fewest moves). `objective="any"` takes the first
that a greedy search comes to. A level is solved when every box stands on a target.
"""

from typing import Literal, NamedTuple

from memenvs.sokoban.board import BOX, Grid
from memenvs.sokoban.budget import Budget, BudgetSpent
from memenvs.sokoban.engine import Board
from memenvs.sokoban.layout import Layout, read_masks
from memenvs.sokoban.move_search import MoveSearch
from memenvs.sokoban.push_search import search_pushes

Objective = Literal["moves", "pushes", "any"]
Status = Literal["solved", "unsolvable", "limit"]
_WEIGHT = {"pushes": 1, "any": 3}


class Solution(NamedTuple):
    """What a search came to: `status` is "unsolvable" if it saw everything, "limit" if it was cut."""

    status: Status
    moves: tuple[int, ...]  # actions: 0 up, 1 down, 2 left, 3 right; empty unless solved
    expanded: int  # search nodes


def solve(
    board: Grid, objective: Objective = "moves", nodes: int | None = None, seconds: float | None = None
) -> Solution:
    """Solve a bordered board (H, W) within `nodes` expanded or `seconds`; None is no limit.

    A limit in nodes gives the same result on every machine.
    """
    if objective not in ("moves", "pushes", "any"):
        raise ValueError(f"objective is 'moves', 'pushes' or 'any', got {objective!r}")
    layout, boxes, player = read_masks(board)
    return solve_masks(layout, boxes, player, objective, Budget(nodes, seconds))


def solve_masks(layout: Layout, boxes: int, player: int, objective: Objective, budget: Budget) -> Solution:
    """`solve` for what is a layout and masks already."""
    try:
        if objective == "moves":
            actions = MoveSearch(layout, budget).run(boxes, player)
        else:
            actions = search_pushes(layout, boxes, player, _WEIGHT[objective], budget)
    except BudgetSpent:
        return Solution("limit", (), budget.expanded)
    if actions is None:
        return Solution("unsolvable", (), budget.expanded)
    return Solution("solved", tuple(actions), budget.expanded)


def replay(board: Grid, moves: tuple[int, ...]) -> tuple[int, bool]:
    """Play moves with the engine: how many were pushes, and whether all boxes end on targets."""
    state = Board(board)
    pushes = sum(state.step(move).moved_box for move in moves)
    return pushes, BOX not in state.cells
