import io
import zipfile

import numpy as np
import pytest

from memenvs.sokoban import (
    LETTERS,
    XSB,
    Generator,
    LevelError,
    LevelSet,
    is_deadlocked,
    parse,
    solve,
    to_text,
)
from memenvs.sokoban.engine import Board
from memenvs.sokoban.generator import SPLITS, canonical, split_of
from memenvs.sokoban.levels import FORMAT, VERSION

TWO = """; 0
######
#@$. #
######

; 1
######
# +$ #
######
"""


@pytest.fixture(scope="module")
def thousand() -> LevelSet:
    return Generator(min_solution=5, seed=3).levels({"train": 300})


@pytest.fixture
def write(tmp_path):
    def write(text: str):
        path = tmp_path / "levels.txt"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("vocabulary", [XSB, LETTERS, "0123456"])
def test_a_board_written_and_read_again_is_the_same(vocabulary):
    board = parse("#####\n#+$*#\n#@ .#\n#####")
    np.testing.assert_array_equal(parse(to_text(board, vocabulary), vocabulary), board)
    np.testing.assert_array_equal(board, parse("#####\n#SX√#\n#P_O#\n#####", LETTERS))


def test_a_boxoban_file_gives_its_levels_in_order_without_solutions(write, tmp_path):
    levels = LevelSet.load(write(TWO))
    assert [to_text(level.board, XSB).splitlines()[1] for level in levels] == ["#@$. #", "# +$ #"]
    assert (levels[0].moves, levels.lengths.tolist()) == (None, [-1, -1])
    levels.save(tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_text() == TWO
    assert len(LevelSet.load(write("Title: one: first\n\n" + TWO + "\nAuthor: me\n"))) == 2


def test_boards_of_different_sizes_keep_them_and_fill_one_array(write, tmp_path):
    levels = LevelSet.load(write("#####\n#@$.#\n#####\n\n######\n#@$. #\n#    #\n######\n"))
    levels.save(tmp_path / "x.npz")
    for each in (levels, LevelSet.load(tmp_path / "x.npz"), levels.split("train")):
        assert to_text(each[0].board, XSB) == "#####\n#@$.#\n#####"
        assert to_text(each[1].board, XSB) == "######\n#@$. #\n#    #\n######"
        assert to_text(each.boards[0], XSB) == "######\n#@$.##\n######\n######"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "#####\n# $.#\n#####",  # no player
        "######\n#@@$.#\n######",
        "#####\n#@$ #\n#####",
        "#####\n#@  #\n#####",
        "#" * 300 + "\n#@$.#\n#####",
    ],
)
def test_a_text_without_a_level_is_refused_in_one_line(write, text):
    with pytest.raises(LevelError) as caught:
        LevelSet.load(write(text))
    assert "\n" not in str(caught.value)


def test_the_levels_of_a_text_are_one_split(write):
    assert len(LevelSet.load(write(TWO), split="train")) == 2
    with pytest.raises(LevelError):
        LevelSet.load(write(TWO), split="test")


def other_npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, boards=np.zeros(3))
    return file.getvalue()


def pickled_npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, format=np.array([{"a": 1}], dtype=object))
    return file.getvalue()


def huge_npz():
    """A file whose boards are said to take 10**15 bytes."""
    file = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**9, 1000, 1000)}
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open("format.npy", "w") as part:
            np.save(part, np.array(f"{FORMAT} {VERSION}"))
        with archive.open("boards.npy", "w") as part:
            np.lib.format.write_array_header_1_0(part, header)
    return file.getvalue()


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00\x80", b"PK not a zip", other_npz(), pickled_npz(), huge_npz(), None]
)
def test_a_file_that_holds_no_levels_is_refused_in_one_line(tmp_path, thousand, data):
    thousand.save(tmp_path / "x.npz")
    whole = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(whole[: len(whole) // 2] if data is None else data)
    with pytest.raises(LevelError) as caught:
        LevelSet.load(tmp_path / "x.npz")
    assert "\n" not in str(caught.value)


def test_another_version_of_the_format_is_refused(tmp_path, thousand, monkeypatch):
    monkeypatch.setattr("memenvs.sokoban.levels.VERSION", 9)
    thousand.save(tmp_path / "x.npz")
    monkeypatch.undo()
    with pytest.raises(LevelError):
        LevelSet.load(tmp_path / "x.npz")


def test_a_saved_set_comes_back_whole(tmp_path, thousand):
    thousand.save(tmp_path / "x.npz")
    back = LevelSet.load(tmp_path / "x.npz")
    np.testing.assert_array_equal(back.boards, thousand.boards)
    assert [level.moves for level in back] == [level.moves for level in thousand]
    assert (back.splits, back.card["generator"]["seed"]) == (thousand.splits, 3)


def test_generated_levels_are_different_and_solved_by_moves_of_the_right_length(thousand):
    for level in thousand:
        game = Board(level.board)
        for move in level.moves:
            game.step(move)
        assert game.solved
    assert [len(solve(level.board).moves) for level in thousand] == thousand.lengths.tolist()
    assert thousand.lengths.min() == 5
    assert len({canonical(level.board) for level in thousand}) == 300  # also when turned or mirrored
    levels = Generator(min_solution=6, max_solution=8).levels({"train": 100})
    assert set(levels.lengths.tolist()) == {6, 7, 8}


def test_no_generated_level_starts_lost_or_with_a_box_at_home():
    levels = Generator((7, 8), boxes=3, min_solution=3).levels({"train": 12})
    assert not any(is_deadlocked(level.board) for level in levels)
    assert not any("*" in to_text(level.board, XSB) for level in levels)


def test_a_board_turned_or_mirrored_has_the_same_key_and_no_other():
    board = parse("#####\n#@$.#\n#  ##\n#####")
    pictures = [np.rot90(side, turns) for side in (board, board.T) for turns in range(4)]
    assert {canonical(picture) for picture in pictures} == {canonical(board)}
    assert canonical(parse("#####\n#$@.#\n#  ##\n#####")) != canonical(board)


def test_a_build_of_several_splits_keeps_them_apart(tmp_path):
    made = Generator(min_solution=5, max_solution=12).levels({"train": 20, "validation": 10, "test": 10})
    assert made.splits == {"train": 20, "validation": 10, "test": 10}
    made.save(tmp_path / "x.npz")
    for split in SPLITS:
        levels = LevelSet.load(tmp_path / "x.npz", split=split)
        assert {split_of(canonical(level.board)) for level in levels} == {split}


def test_an_item_depends_on_its_number_and_seed_alone():
    one, two = (Generator(min_solution=5, seed=seed) for seed in (1, 2))
    assert one.item("test", 4)[1].moves == one.item("test", 4)[1].moves
    keys = [{generator.item("train", index)[0] for index in range(20)} for generator in (one, two)]
    assert len(keys[0] & keys[1]) <= 2  # a small room can come up again by chance


def test_the_generator_gives_up_when_there_are_no_more_levels():
    with pytest.raises(LevelError):
        Generator((4, 4), max_solution=2).levels({"train": 5000})


@pytest.mark.parametrize(
    "arguments", [{"size": (3, 6)}, {"boxes": 6}, {"min_solution": 9, "max_solution": 8}]
)
def test_a_generator_that_cannot_be_is_refused(arguments):
    with pytest.raises(ValueError):
        Generator(**arguments)


def test_a_built_file_is_the_same_bytes_on_one_process_and_on_two(tmp_path):
    for workers in (1, 2):
        Generator(min_solution=5).levels({"train": 150}, workers).save(tmp_path / f"{workers}.npz")
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
