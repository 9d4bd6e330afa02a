"""Show boards: codes in, an RGB picture or text out."""

import numpy as np
import numpy.typing as npt

from memenvs.sokoban.board import LETTERS, Grid, Vocabulary, to_text
from memenvs.sokoban.tiles import tiles


def rgb(board: Grid, tile: int = 16) -> npt.NDArray[np.uint8]:
    """The picture of a board (H, W), (H * tile, W * tile, 3) uint8; `tile` is 4 to 256 pixels a square."""
    height, width = board.shape
    pictures = tiles(tile)[board]  # (H, W, tile, tile, 3)
    return pictures.transpose(0, 2, 1, 3, 4).reshape(height * tile, width * tile, 3)


def ansi(board: Grid, vocabulary: Vocabulary = LETTERS) -> str:
    """The text of a board (H, W), a row a line, in the symbols of a vocabulary."""
    return to_text(board, vocabulary)
