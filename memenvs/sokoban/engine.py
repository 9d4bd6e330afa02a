"""Moves of many boards at once.

`_effect` has the rules. A table made from it (`KIND`) drives both `Board`, one board in plain Python, and
`BoardBatch`, which moves N boards in a dozen array operations.

Dynamics and rewards are those of gym-sokoban on bordered boards. An action is an integer: 0 up, 1 down, 2
left, 3 right. A player who cannot move stays; that still counts as a step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memenvs.sokoban.board import (
    BOX,
    CELLS,
    LETTERS,
    LINE_END,
    PLAYER,
    TARGET,
    WALL,
    Grid,
    cells_to_text,
    lines,
)

Words = npt.NDArray[np.int64]
STAY, MOVE, PUSH, PUSH_ON, PUSH_OFF = range(5)


def _effect(ahead: int, beyond: int) -> int:
    """What a step does, from the cell ahead of the player and the one beyond it (both cell codes)."""
    if ahead & WALL:
        return STAY
    if not ahead & BOX:
        return MOVE
    if beyond & (WALL | BOX):
        return STAY
    return PUSH + (ahead & TARGET != beyond & TARGET) * (1 if beyond & TARGET else 2)


KIND = bytes(_effect(ahead, beyond) for ahead in range(16) for beyond in range(16))
"""The step's kind at index `ahead * 16 + beyond`."""

# What each kind adds to the boxes on targets, and which bits it flips ahead of the player and beyond.
GAIN = (0, 0, 0, 1, -1)
FLIP_AHEAD = (0, PLAYER, PLAYER | BOX, PLAYER | BOX, PLAYER | BOX)
FLIP_BEYOND = (0, 0, BOX, BOX, BOX)

# A square as a word of eight bytes: its one-hot planes in the order of CELLS, then its cell code.
_BYTES = np.zeros((16, 8), np.uint8)
_BYTES[CELLS, range(7)] = 1
_BYTES[:, 7] = range(16)
_WORDS: Words = _BYTES.view("<i8").ravel()

_KIND, _GAIN = np.frombuffer(KIND, np.uint8), np.array(GAIN, np.int16)
_AHEAD = _WORDS[[pair >> 4 ^ FLIP_AHEAD[kind] for pair, kind in enumerate(KIND)]]
_BEYOND = _WORDS[[pair & 15 ^ FLIP_BEYOND[kind] for pair, kind in enumerate(KIND)]]


class Step(NamedTuple):
    """What one step did to a board (bools), or to N boards (arrays (N,) of bools)."""

    moved_player: Any
    moved_box: Any
    pushed_on: Any  # a box came from outside the targets onto one
    pushed_off: Any  # a box left the targets; from target to target is neither
    solved: Any  # no target is empty after the step


_STEPS = tuple(
    tuple(Step(kind >= MOVE, kind >= PUSH, kind == PUSH_ON, kind == PUSH_OFF, solved) for kind in range(5))
    for solved in (False, True)
)


def _deltas(width: int) -> tuple[int, int, int, int]:
    """Offsets of up, down, left and right in a board laid out row by row."""
    return -width, width, -1, 1


class Board:
    """One board, stepped in plain Python.

    Attributes:
        cells: the codes row by row, each row ended by `LINE_END`, and one more row of line ends.
        shape: height and width in squares.
        player: the player's index in `cells`.
        placed: boxes on targets.
        targets: targets on the board, empty or not.

    The `board` (H, W) uint8 that it is made from has a border and one player, and is copied.
    """

    __slots__ = ("_delta", "cells", "placed", "player", "shape", "targets")

    def __init__(self, board: Grid) -> None:
        self.shape: tuple[int, int] = (board.shape[0], board.shape[1])
        # The cell beyond a wall of the last row is looked up too, so it must exist. A line end is only ever
        # beyond a wall, whose index in KIND it does not change.
        self.cells = bytearray(lines(board) + LINE_END * (self.shape[1] + 1))
        self.player = max(map(self.cells.find, (PLAYER, PLAYER | TARGET)))
        self.placed = self.cells.count(BOX | TARGET)
        self.targets = self.placed + sum(map(self.cells.count, (TARGET, PLAYER | TARGET)))
        # A dict, so that -1 is an error and not "right".
        self._delta = dict(enumerate(_deltas(self.shape[1] + 1)))

    @property
    def grid(self) -> Grid:
        """The board now, (H, W) uint8, a copy."""
        height, width = self.shape
        rows = np.frombuffer(bytes(self.cells), np.uint8).reshape(height + 1, width + 1)
        return rows[:height, :width]

    @property
    def solved(self) -> bool:
        """Whether no target is empty."""
        return self.placed == self.targets

    def text(self) -> str:
        """The board now as text in `LETTERS`, one row per line."""
        return cells_to_text(self.cells[: -self.shape[1] - 2], LETTERS)

    def action_masks(self) -> list[bool]:
        """Which of the four actions move the player: up, down, left, right."""
        cells, player = self.cells, self.player
        return [
            KIND[cells[player + delta] << 4 | cells[player + 2 * delta]] != STAY
            for delta in self._delta.values()
        ]

    def step(self, action: int) -> Step:
        """Move the player; raises KeyError for an action that is not 0 to 3."""
        cells, player, delta = self.cells, self.player, self._delta[action]
        ahead = player + delta
        beyond = ahead + delta
        kind = KIND[cells[ahead] << 4 | cells[beyond]]
        if kind:
            cells[player] ^= PLAYER
            cells[ahead] ^= FLIP_AHEAD[kind]
            self.player = ahead
            if kind >= PUSH:
                cells[beyond] ^= BOX
                self.placed += GAIN[kind]
        return _STEPS[self.placed == self.targets][kind]


class BoardBatch:
    """N boards of one shape, stepped together.

    Attributes:
        cells: the boards now, (N, H, W) uint8: a view, which `step` and `replace` change in place.
        empty: targets without a box, (N,).

    The `boards` (N, H, W) uint8 that it is made from have a border and one player, and are copied.
    """

    def __init__(self, boards: Grid) -> None:
        count, height, width = boards.shape
        # A pad of one row, as in Board. At any other border the cell beyond lies in a neighbour's wall.
        self._flat = np.full(count * height * width + width, _WORDS[WALL], _WORDS.dtype)
        self._words = self._flat[:-width].reshape(boards.shape)
        self.cells: Grid = self._words.view(np.uint8).reshape(*boards.shape, 8)[..., 7]
        self._start = np.arange(count, dtype=np.intp) * (height * width)
        self._player = np.empty(count, np.intp)
        self.empty = np.empty(count, np.int16)
        self._delta = np.array(_deltas(width), np.intp)
        self.replace(np.arange(count), boards)

    def replace(self, rows: npt.NDArray[np.intp], boards: Grid) -> None:
        """Put new boards (R, H, W), bordered and with one player, in the places `rows` (R,)."""
        self._words[rows] = _WORDS.take(boards)
        flat = boards.reshape(len(boards), -1)
        self._player[rows] = self._start[rows] + (flat & PLAYER).argmax(1)
        self.empty[rows] = (flat & (TARGET | BOX) == TARGET).sum(1)

    def planes(self, channels_first: bool = False) -> Grid:
        """`planes` of the boards now, in an array of their own."""
        return _planes(self._words.copy(), channels_first)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which of the four actions move each player, (N, 4): up, down, left, right."""
        ahead = self._player[:, None] + self._delta
        pair = self._flat.take(ahead) >> 52 | self._flat.take(ahead + self._delta) >> 56
        return _KIND.take(pair) != STAY

    def step(self, actions: npt.NDArray[np.integer]) -> Step:
        """Move the player of each board; `actions` (N,) are 0 to 3."""
        flat, player = self._flat, self._player
        delta = self._delta.take(actions)
        ahead = player + delta
        beyond = ahead + delta
        pair = flat.take(ahead) >> 52 | flat.take(beyond) >> 56  # the codes, as in KIND
        kind = _KIND.take(pair)
        moved = kind != STAY
        flat[player] = _WORDS.take(flat.take(player) >> 56 ^ moved * PLAYER)
        flat[ahead] = _AHEAD.take(pair)
        flat[beyond] = _BEYOND.take(pair)
        delta *= moved
        player += delta
        self.empty -= _GAIN.take(kind)
        return Step(moved, kind >= PUSH, kind == PUSH_ON, kind == PUSH_OFF, self.empty == 0)


def planes(cells: Grid, channels_first: bool = False) -> Grid:
    """One-hot planes of boards (…, H, W): (…, H, W, 7) or (…, 7, H, W) uint8, not contiguous.

    Planes: wall, floor, target, box on target, box, player, player on target.
    """
    return _planes(_WORDS.take(cells), channels_first)


def _planes(words: Words, channels_first: bool) -> Grid:
    planes = words.view(np.uint8).reshape(*words.shape, 8)[..., :7]  # without the cell codes
    return np.moveaxis(planes, -1, -3) if channels_first else planes
