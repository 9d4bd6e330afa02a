"""Boards as pictures.

Tiles are painted at the requested size, not scaled. Each shape is a signed distance (in tiles, negative
inside) at the centre of every pixel; a pixel that an outline crosses is blended.
"""

from __future__ import annotations

import base64
import struct
import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from memenvs.sokoban.board import BOX, CELLS, PLAYER, TARGET, WALL, Grid

SAND, SEAM, MORTAR, BRICK = (238, 230, 214), (226, 216, 197), (54, 61, 79), (80, 91, 115)
RED, PINK, WHITE = (214, 72, 74), (246, 184, 174), (255, 255, 255)
WOOD, PLANK, LEAF, LIME = (138, 86, 34), (216, 157, 83), (40, 108, 60), (113, 188, 115)
INK, BLUE, SKIN = (30, 64, 130), (52, 106, 196), (250, 214, 176)


def rgb(board: Grid, tile: int = 16) -> npt.NDArray[np.uint8]:
    """The picture of a board (H, W): (H * tile, W * tile, 3) uint8, `tile` pixels (4 or more) a square."""
    height, width = board.shape
    pictures = tiles(tile)[board]  # (H, W, tile, tile, 3)
    return pictures.transpose(0, 2, 1, 3, 4).reshape(height * tile, width * tile, 3)


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A picture (H, W, 3) as the bytes of a PNG file."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = [
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    blocks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(blocks)


@lru_cache
def tiles(pixels: int) -> npt.NDArray[np.uint8]:
    """The tile of each cell code, (16, t, t, 3), painted once a size; codes that no board has are black."""
    pictures = np.zeros((16, pixels, pixels, 3), np.uint8)
    for cell in CELLS:
        pictures[cell] = paint(cell, pixels)
    return pictures


def paint(cell: int, pixels: int) -> npt.NDArray[np.uint8]:
    """The tile of one cell code, (t, t, 3)."""
    y, x = (np.mgrid[:pixels, :pixels] + 0.5) / pixels - 0.5  # y points down
    square, disc, diagonal = np.maximum(abs(x), abs(y)), np.hypot(x, y), abs(abs(x) - abs(y)) * 0.71
    row = np.floor(y * 3 + 1.5)
    along, across = abs((x + 0.25 * (row % 2)) % 0.5 - 0.25), abs(y * 3 + 1 - row) / 3
    head, body, hands = np.hypot(x, y + 0.14), np.hypot(x * 0.75, y - 0.24), np.hypot(abs(x) - 0.25, y - 0.24)

    home = cell & TARGET
    shapes = [(0.485 - square, SEAM)]
    if cell & WALL:
        shapes = [(square - 1, MORTAR), (np.maximum(along - 0.225, across - 0.142), BRICK)]
    if home:
        shapes += [(disc - 0.4, RED), (disc - 0.3, PINK), (disc - 0.14, RED)]
    if cell & BOX:
        frame, face = (LEAF, LIME) if home else (WOOD, PLANK)
        shapes += [(square - 0.42, frame), (square - 0.36, face), (square - 0.27, frame)]
        shapes += [(np.maximum(diagonal - 0.07, square - 0.27), WHITE if home else face)]
    if cell & PLAYER:
        shapes += [(body - 0.21, INK), (body - 0.175, BLUE), (hands - 0.07, SKIN)]
        shapes += [(head - 0.25, INK), (np.maximum(head - 0.215, -0.22 - y), SKIN)]
        shapes += [(np.hypot(abs(x) - 0.08, y + 0.1) - 0.035, INK)]

    picture = np.full((pixels, pixels, 3), SAND, np.float64)
    for distance, colour in shapes:
        share = np.clip(0.5 - distance * pixels, 0, 1)[:, :, None]
        picture += share * (np.array(colour) - picture)
    return np.rint(picture).astype(np.uint8)


def png_url(pixels: npt.NDArray[np.uint8]) -> str:
    """A picture (H, W, 3) as a `data:` address, as models take it."""
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"
