"""Boards that cannot be solved any more: boxes where no push helps, found without a search.

A board that passes may still be lost. What is found here is lost for certain.
"""

from memenvs.sokoban.board import Grid
from memenvs.sokoban.layout import Layout, read_masks


def dead_boxes(layout: Layout, boxes: int) -> int:
    """Mask of the boxes on dead squares: no target can be reached from there, even alone on the board."""
    return boxes & ~layout.live


def frozen_boxes(layout: Layout, boxes: int) -> int:
    """Mask of the boxes that no push can free.

    A box is stopped along an axis by a wall or a frozen box on either side, or by dead squares on both; it is
    frozen when it is stopped along both. Start from all boxes, and drop those that can move until none can.
    """
    width = layout.width
    across, along = layout.stuck
    frozen = boxes
    while True:
        kept = frozen & (across | frozen << 1 | frozen >> 1) & (along | frozen << width | frozen >> width)
        if kept == frozen:
            return frozen
        frozen = kept


def lost(layout: Layout, boxes: int) -> bool:
    """Whether the boxes rule a solution out: one stands on a dead square, or frozen off the targets."""
    return bool(dead_boxes(layout, boxes) or frozen_boxes(layout, boxes) & ~layout.targets)


def is_deadlocked(board: Grid) -> bool:
    """Whether a board (H, W) is lost for certain; walls and targets are looked up after the first time."""
    layout, boxes, _ = read_masks(board)
    return lost(layout, boxes)
