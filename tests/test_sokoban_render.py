import io
from itertools import combinations

import numpy as np
import pytest

from memenvs.sokoban import LETTERS, Board, parse, rgb, to_text
from memenvs.sokoban.board import CELLS
from memenvs.sokoban.render import png, tiles

BOARD = parse("######\n#S_X_#\n#_P√O#\n######", LETTERS)


@pytest.mark.parametrize("tile", [4, 5, 16, 33, 64])
def test_a_picture_has_tile_pixels_a_square(tile):
    picture = rgb(BOARD, tile)
    assert picture.shape == (4 * tile, 6 * tile, 3)
    assert picture.dtype == np.uint8


def test_every_square_shows_the_tile_of_its_cell():
    picture = rgb(BOARD, 8)
    for (row, column), cell in np.ndenumerate(BOARD):
        square = picture[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
        np.testing.assert_array_equal(square, tiles(8)[cell])


@pytest.mark.parametrize("tile", [4, 8, 16, 32, 64])
def test_the_seven_tiles_can_be_told_apart_at_every_size(tile):
    pictures = tiles(tile).astype(float)
    for one, other in combinations(CELLS, 2):
        assert np.abs(pictures[one] - pictures[other]).mean() > 8  # of 255, a pixel and channel


@pytest.mark.parametrize("tile", [16, 64])
def test_tiles_are_painted_sharp_and_not_scaled(tile):
    # A picture of half the size, enlarged, has every pixel equal to one beside it; a sharp one has not.
    crate = tiles(tile)[2]
    assert (crate[::2] != crate[1::2]).any()
    assert (crate[:, ::2] != crate[:, 1::2]).any()


def test_tiles_are_painted_once_a_size():
    assert tiles(16) is tiles(16)


def test_a_picture_is_not_tied_to_the_tiles():
    rgb(BOARD, 16)[:] = 0
    assert rgb(BOARD, 16).any()


def test_a_png_file_holds_the_pixels():
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    read = image.imread(io.BytesIO(png(rgb(BOARD, 5))), format="png")
    assert np.array_equal((read[..., :3] * 255).round(), rgb(BOARD, 5))


def test_text_shows_the_letters_by_default():
    assert to_text(BOARD) == "######\n#S_X_#\n#_P√O#\n######"


def test_a_stepped_board_writes_itself_as_its_grid_is_written():
    board = Board(parse("######\n#S_X_#\n######", LETTERS))
    board.step(3)
    assert board.text() == to_text(board.grid) == "######\n#OPX_#\n######"


def test_text_takes_symbols_of_more_than_a_character():
    words = ["W ", ". ", "T ", "D ", "B ", "P ", "Q "]
    assert to_text(parse("####\n#S_#\n####", LETTERS), words) == "W W W W \nW Q . W \nW W W W "
