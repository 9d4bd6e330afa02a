"""Boards in text files: text in, (L, H, W) boards out, and back.

Boards are rows of symbols, one row a line, parted by blank lines or by lines that start with ";". Lines with
a colon ("Title: …") are notes. The symbols are XSB's (`# .*$@+`; "-" is floor too) or letters (`#_O√XPS`):
which of them, the text tells.
"""

from collections.abc import Iterator

import numpy as np

from memenvs.sokoban.board import FLOOR, LETTERS, WALL, XSB, Grid, LevelError, check_levels, parse, to_text


def read_boards(text: str, fill: bool = False) -> Grid:
    """All boards of a text, (L, H, W), checked; smaller ones are brought to the largest shape with walls.

    `fill` turns what lies outside the walls, and the ends of ragged rows, into walls.

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
            board = parse(block if letters else block.replace("-", " "), LETTERS if letters else XSB, fill)
            boards.append(_closed(board) if fill else board)
            check_levels(boards[-1][None])
        except LevelError as error:
            raise LevelError(f"level {number} at line {line}: {error}") from error
    height, width = (max(board.shape[axis] for board in boards) for axis in (0, 1))
    padding = [((0, height - board.shape[0]), (0, width - board.shape[1])) for board in boards]
    return np.stack([np.pad(b, p, constant_values=WALL) for b, p in zip(boards, padding, strict=True)])


def write_boards(boards: Grid) -> str:
    """Boards (L, H, W) as text in Boxoban's layout: a line "; n" with the number from 0, then XSB rows."""
    return "\n".join(f"; {number}\n{to_text(board, XSB)}\n" for number, board in enumerate(boards))


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
    """The board with walls wherever the outside gets in, round by round."""
    outside = np.pad(np.zeros(board.shape, bool), 1, constant_values=True)
    open_floor = np.pad(board == FLOOR, 1)
    while True:
        near = np.zeros_like(outside)
        near[1:-1, 1:-1] = outside[:-2, 1:-1] | outside[2:, 1:-1] | outside[1:-1, :-2] | outside[1:-1, 2:]
        grown = outside | (near & open_floor)
        if (grown == outside).all():
            return np.where(outside[1:-1, 1:-1], np.uint8(WALL), board)
        outside = grown
