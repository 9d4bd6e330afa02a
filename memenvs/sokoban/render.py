"""Boards as pictures.

Nothing is scaled. Each shape is a signed distance (in tiles, negative inside) measured at the centre of every
pixel of the size asked for; a pixel that the outline crosses takes its share of the colour.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from memenvs.sokoban.board import BOX, LETTERS, PLAYER, TARGET, WALL, Grid, Vocabulary, to_text

Floats = npt.NDArray[np.float64]
Colour = tuple[int, int, int]

SMALLEST, LARGEST = 4, 256  # pixels

FLOOR_COLOUR: Colour = (238, 230, 214)
SEAM: Colour = (226, 216, 197)
WALL_COLOUR, WALL_TOP, WALL_DARK = (72, 82, 104), (94, 106, 132), (54, 61, 79)
TARGET_COLOUR, TARGET_LIGHT = (214, 72, 74), (246, 184, 174)
WOOD, WOOD_LIGHT, WOOD_DARK = (205, 142, 68), (226, 172, 98), (138, 86, 34)
HOME, HOME_LIGHT, HOME_DARK = (92, 172, 98), (134, 204, 132), (40, 108, 60)
SUIT, SUIT_DARK, SKIN = (52, 106, 196), (30, 64, 130), (250, 214, 176)


class Canvas:
    """A square picture of one tile, painted shape over shape.

    Attributes:
        x, y: centres of the pixels, (t, t), from -0.5 to 0.5 of a tile; y points down.
    """

    def __init__(self, pixels: int, ground: Colour) -> None:
        centres = (np.arange(pixels) + 0.5) / pixels - 0.5
        self.x, self.y = np.meshgrid(centres, centres)
        self._pixels = pixels
        self._picture = np.full((pixels, pixels, 3), ground, np.float64)

    def fill(self, distance: Floats, colour: Colour, strength: float = 1.0) -> None:
        """Paint where `distance`, in tiles, is negative; `strength` 0 to 1 lets the ground through."""
        share = np.clip(0.5 - distance * self._pixels, 0, 1)[:, :, None] * strength
        self._picture += share * (np.array(colour) - self._picture)

    def picture(self) -> npt.NDArray[np.uint8]:
        """What has been painted, (t, t, 3)."""
        return np.rint(self._picture).astype(np.uint8)

    def disc(self, x: float, y: float, radius: float) -> Floats:
        """Distance to a disc."""
        return np.hypot(self.x - x, self.y - y) - radius

    def block(self, x: float, y: float, half_width: float, half_height: float, round_: float = 0.0) -> Floats:
        """Distance to an upright rectangle with rounded corners."""
        across, along = np.abs(self.x - x) - half_width + round_, np.abs(self.y - y) - half_height + round_
        outside = np.hypot(np.maximum(across, 0), np.maximum(along, 0))
        return outside + np.minimum(np.maximum(across, along), 0) - round_

    def line(self, start: tuple[float, float], end: tuple[float, float], half_width: float) -> Floats:
        """Distance to a line with round ends."""
        (x0, y0), (x1, y1) = start, end
        dx, dy = x1 - x0, y1 - y0
        along = np.clip(((self.x - x0) * dx + (self.y - y0) * dy) / (dx * dx + dy * dy), 0, 1)
        return np.hypot(self.x - x0 - along * dx, self.y - y0 - along * dy) - half_width


def _floor(canvas: Canvas) -> None:
    canvas.fill(-canvas.block(0, 0, 0.485, 0.485), SEAM)


def _wall(canvas: Canvas) -> None:
    canvas.fill(canvas.block(0, 0, 0.6, 0.6), WALL_DARK)
    third = 1 / 3
    for y, middles in ((-third, (-0.25, 0.25)), (0.0, (-0.5, 0.0, 0.5)), (third, (-0.25, 0.25))):
        for x in middles:  # the middle row runs on into the tiles beside
            canvas.fill(canvas.block(x, y, 0.225, 0.142, 0.03), WALL_COLOUR)
            canvas.fill(canvas.block(x, y - 0.095, 0.19, 0.025, 0.02), WALL_TOP)


def _target(canvas: Canvas) -> None:
    _floor(canvas)
    canvas.fill(canvas.disc(0, 0, 0.33), TARGET_COLOUR)
    canvas.fill(canvas.disc(0, 0, 0.23), TARGET_LIGHT)
    canvas.fill(canvas.disc(0, 0, 0.12), TARGET_COLOUR)


def _crate(canvas: Canvas, face: Colour, light: Colour, dark: Colour) -> None:
    _floor(canvas)
    canvas.fill(canvas.block(0.02, 0.05, 0.42, 0.42, 0.07), SEAM, 0.9)
    canvas.fill(canvas.block(0, 0, 0.42, 0.42, 0.07), dark)
    canvas.fill(canvas.block(0, 0, 0.375, 0.375, 0.04), light)
    canvas.fill(canvas.block(0, 0, 0.27, 0.27, 0.02), dark)
    canvas.fill(canvas.block(0, 0, 0.24, 0.24, 0.01), face)


def _box(canvas: Canvas) -> None:
    _crate(canvas, WOOD, WOOD_LIGHT, WOOD_DARK)
    inside = canvas.block(0, 0, 0.24, 0.24)
    for end in (0.3, -0.3):
        canvas.fill(np.maximum(canvas.line((-0.3, -end), (0.3, end), 0.075), inside), WOOD_DARK)
        canvas.fill(np.maximum(canvas.line((-0.3, -end), (0.3, end), 0.045), inside), WOOD_LIGHT)


def _box_home(canvas: Canvas) -> None:
    _crate(canvas, HOME, HOME_LIGHT, HOME_DARK)
    for start, end in (((-0.15, 0.02), (-0.04, 0.13)), ((-0.04, 0.13), (0.16, -0.12))):
        canvas.fill(canvas.line(start, end, 0.05), (255, 255, 255))


def _man(canvas: Canvas) -> None:
    canvas.fill(canvas.block(0, 0.22, 0.27, 0.2, 0.16), SUIT_DARK)
    canvas.fill(canvas.block(0, 0.22, 0.235, 0.165, 0.13), SUIT)
    for x in (-0.25, 0.25):
        canvas.fill(canvas.disc(x, 0.24, 0.085), SUIT_DARK)
        canvas.fill(canvas.disc(x, 0.24, 0.055), SKIN)
    canvas.fill(canvas.disc(0, -0.14, 0.25), SUIT_DARK)
    canvas.fill(canvas.disc(0, -0.14, 0.215), SKIN)
    canvas.fill(np.maximum(canvas.disc(0, -0.14, 0.25), canvas.y + 0.2), SUIT_DARK)
    canvas.fill(np.maximum(canvas.disc(0, -0.14, 0.215), canvas.y + 0.235), SUIT)
    for x in (-0.08, 0.08):
        canvas.fill(canvas.disc(x, -0.1, 0.035), (50, 50, 60))


def _player(canvas: Canvas) -> None:
    _floor(canvas)
    _man(canvas)


def _player_home(canvas: Canvas) -> None:
    _floor(canvas)
    canvas.fill(canvas.disc(0, 0, 0.46), TARGET_COLOUR)
    canvas.fill(canvas.disc(0, 0, 0.36), TARGET_LIGHT)
    _man(canvas)


PAINTERS: dict[int, Callable[[Canvas], None]] = {
    0: _floor,
    WALL: _wall,
    TARGET: _target,
    BOX: _box,
    BOX | TARGET: _box_home,
    PLAYER: _player,
    PLAYER | TARGET: _player_home,
}


@lru_cache
def tiles(pixels: int) -> npt.NDArray[np.uint8]:
    """The tile of each cell code, (16, t, t, 3), painted once a size; codes that no board has are black."""
    if not SMALLEST <= pixels <= LARGEST:
        raise ValueError(f"tile is {SMALLEST} to {LARGEST} pixels, got {pixels}")
    pictures = np.zeros((16, pixels, pixels, 3), np.uint8)
    for cell, paint in PAINTERS.items():
        canvas = Canvas(pixels, FLOOR_COLOUR)
        paint(canvas)
        pictures[cell] = canvas.picture()
    return pictures


def rgb(board: Grid, tile: int = 16) -> npt.NDArray[np.uint8]:
    """The picture of a board (H, W), (H * tile, W * tile, 3) uint8; `tile` is 4 to 256 pixels a square."""
    height, width = board.shape
    pictures = tiles(tile)[board]  # (H, W, tile, tile, 3)
    return pictures.transpose(0, 2, 1, 3, 4).reshape(height * tile, width * tile, 3)


def ansi(board: Grid, vocabulary: Vocabulary = LETTERS) -> str:
    """The text of a board (H, W), a row a line, in the symbols of a vocabulary."""
    return to_text(board, vocabulary)
