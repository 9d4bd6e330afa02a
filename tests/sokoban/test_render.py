import io
from itertools import combinations

import numpy as np
import pytest

from memenvs.sokoban import LETTERS, Board, parse, rgb, to_text
from memenvs.sokoban.board import CELLS
from memenvs.sokoban.render import png, tiles

BOARD = parse("######\n#S_X_#\n#_P√O#\n######", LETTERS)


@pytest.mark.parametrize("tile", [4, 5, 33])
def test_a_picture_has_tile_pixels_a_square_and_shows_the_tile_of_each_cell(tile):
    picture = rgb(BOARD, tile)
    assert (picture.shape, picture.dtype) == ((4 * tile, 6 * tile, 3), np.uint8)
    for (row, column), cell in np.ndenumerate(BOARD):
        square = picture[row * tile : (row + 1) * tile, column * tile : (column + 1) * tile]
        np.testing.assert_array_equal(square, tiles(tile)[cell])


@pytest.mark.parametrize("tile", [4, 8, 16, 32, 64])
def test_the_seven_tiles_differ_at_every_size(tile):
    pictures = tiles(tile).astype(float)
    for one, other in combinations(CELLS, 2):
        assert np.abs(pictures[one] - pictures[other]).mean() > 8  # of 255, a pixel and channel


def test_a_picture_is_not_tied_to_the_tiles():
    rgb(BOARD, 16)[:] = 0
    assert rgb(BOARD, 16).any()


def test_a_stepped_board_writes_itself_as_its_grid_is_written():
    board = Board(parse("######\n#S_X_#\n######", LETTERS))
    board.step(3)
    assert board.text() == to_text(board.grid) == "######\n#OPX_#\n######"


def test_a_png_file_holds_the_pixels():
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    read = image.imread(io.BytesIO(png(rgb(BOARD, 5))), format="png")
    assert np.array_equal((read[..., :3] * 255).round(), rgb(BOARD, 5))
