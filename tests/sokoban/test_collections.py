"""Collections of levels in the forms in which people publish them."""

import bz2
import zipfile

import pytest

from memenvs.sokoban import XSB, LevelError, LevelSet, to_text

ONE = "######\n#@$. #\n######\n"
TWO = "#######\n#  @$.#\n#######\n"
BOTH = [ONE.strip(), TWO.strip()]


def spaced(between):
    """Both boards with a text between the symbols of each row."""
    return "\n\n".join("\n".join(between.join(row) for row in board.splitlines()) for board in BOTH)


@pytest.fixture
def load(tmp_path):
    def load(data: str | bytes) -> LevelSet:
        path = tmp_path / "levels"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return LevelSet.load(path)

    return load


def texts(levels: LevelSet) -> list[str]:
    return [to_text(level.board, XSB) for level in levels]


FORMS = {
    "numbers after semicolons": f"; 0\n{ONE}\n; 1\n{TWO}",
    "numbers alone": f"1\n{ONE}\n2\n{TWO}",
    "numbers with full stops": f"1.\n\n{ONE}\n2.\n\n{TWO}",
    "headings": f"Level 1\n{ONE}\nLevel 2\n{TWO}",
    "numbers after hashes": f"# 1\n{ONE}\n#2\n{TWO}",
    "plain titles after the level": f"{ONE}Lonely\n\n{TWO}Snug room\n",
    "titles before the level": f"Oops\n\n{ONE}\nSOS, X and O\n\n{TWO}",
    "quoted titles": f"{ONE}'Duh'\n\n{TWO}\"PO BOX\"\n",
    "titles with colons": f"{ONE}Title: Lonely\nAuthor: A\n\n{TWO}Title: Snug\nAuthor: B\n",
    "a header in prose": f"A set of POXS by O.\nCopyright 1999, see # 3 below\n\n{ONE}\n{TWO}",
    "a comment block": f"{ONE}Comment:\nPush - it; or * not.\n#hash\nComment-End:\n\n{TWO}",
    "comments with two colons": f":: Level pack\n::\n{ONE}:: note\n{TWO}",
    "a collection with saved solutions": (
        f"::::::\n:: Set ::\n\n1\n\n{ONE}Solution/Moves: 1\nR\n\n{TWO}"
        "Solution\nlrRuulLdd\n3r2(lL)\nDateSaved: 2001\n"
    ),
    "dashes between levels": f"{ONE}----------\n{TWO}",
    "stars between levels": f"{ONE}**********\n{TWO}",
    "equals signs between levels": f"{ONE}==========\n{TWO}",
    "dots between levels": f"{ONE}..........\n{TWO}",
    "a box around the header": f"##########\n# my set #\n##########\n\n{ONE}\n{TWO}",
    "blank lines of spaces": f"   \n{ONE}   \n\t\n{TWO}  ",
    "nothing between levels": f"{ONE}{TWO}",
    "many blank lines": f"\n\n\n{ONE}\n\n\n\n{TWO}\n\n",
    "a byte order mark": b"\xef\xbb\xbf" + f"{ONE}\n{TWO}".encode(),
    "UTF-16": f"Title: Café\n{ONE}\n{TWO}".encode("utf-16"),
    "Latin-1": f"; Größe\n{ONE}Title: Déjà\n\n{TWO}".encode("latin-1"),
    "Windows-1252": f"{ONE}Title: The \u201cend\u201d\u2026\n\n{TWO}".encode("cp1252"),
    "lines of DOS": f"{ONE}\n{TWO}".replace("\n", "\r\n").encode() + b"\x1a",
    "lines of DOS converted twice": f"{ONE}\n{TWO}".replace("\n", "\r\r\n"),
    "lines of the old Mac": f"{ONE}\n{TWO}".replace("\n", "\r"),
    "underscores for floor": f"{ONE}\n{TWO}".replace(" ", "_"),
    "dashes for floor": f"{ONE}\n{TWO}".replace(" ", "-"),
    "spaces at the ends": f"{ONE}\n{TWO}".replace("\n", "   \n"),
    "spaces at the start": f"    {ONE}\n    {TWO}".replace("\n#", "\n    #"),
    "tabs at the start": f"\t{ONE}\n\t{TWO}".replace("\n#", "\n\t#"),
    "spaces that do not break": f"{ONE}\n{TWO}".replace(" ", "\u00a0"),
    "code in Markdown": f"# Set\n\n```\n{ONE}```\n\n```\n{TWO}```\n",
    "a page": f"<html><pre>\n{ONE}\n{TWO}</pre></html>",
    "runs, a row a line": "6#\n#@$.-#\n6#\n\n7#\n#2-@$.#\n7#\n",
    "runs, a level a line": "6#|#@$.-#|6#\n7#|#2-@$.#|7#\n",
    "runs of groups": "3(2#)|#@$.-#|2(3#)\n\n7#|#2(-)@$.#|7#|\n",
    "rows divided by bars": "######|#@$._#|######\n\n#######|#__@$.#|#######",
    "small letters": f"; o b p\n{ONE}\n{TWO}".translate(str.maketrans("@$.", "pbo")),
    "letters of text environments": f"{ONE}\n{TWO}".translate(str.maketrans(" @$.", "_PXO")),
    "the original game's files": (
        f"*****\nMaze: 1\nSize X: 6\nEnd: 14BC\n\n{ONE}\n*****\nMaze: 2\n\n{TWO}".translate(
            str.maketrans("#$", "X*")
        )
    ),
    "blanks between symbols": spaced(" "),
    "tabs between symbols": spaced("\t"),
    "RAGEN's print": "\n\n".join(
        "\n".join("".join(f" {symbol} \t" for symbol in row) for row in board.splitlines()) for board in BOTH
    ).translate(str.maketrans("@$.", "PXO")),
    "Reasoning Gym's print": spaced(" ").translate(str.maketrans("#@$.", "+*@X")).replace("   ", " - "),
    "spaced boards with nothing between them": spaced(" ").replace("\n\n", "\n"),
    "runs with blanks, a row a line": "6#\n#@$. #\n6#\n\n7#\n#2 @$.#\n7#\n",
    "runs with blanks, a level a line": "6#|#@$. #|6#\n7#|#2 @$.#|7#\n",
    "runs with blanks around bars": "6# | #@$.-# | 6#\n7# | #2-@$.# | 7#\n",
    "runs that are indented": "   6#\n   #@$. #\n   6#\n\n 7#\n #2-@$.#\n 7#\n",
    "a note of the variant": f"Variant: Sokoban\n\n{ONE}\n{TWO}",
    "slc": (
        '<?xml version="1.0" encoding="ISO-8859-1"?>\n<SokobanLevels><Title>Größe &amp; O</Title>'
        "<LevelCollection>"
        '<Level Id="1"><L>######</L><L>#@$. #</L><L>######</L></Level>'
        '<Level Id="2"><L>#######</L><L>#  @$.#</L><L>#######</L></Level>'
        "</LevelCollection></SokobanLevels>"
    ).encode("latin-1"),
}


@pytest.mark.parametrize("form", FORMS)
def test_both_levels_load_from_every_form(load, form):
    assert texts(load(FORMS[form])) == BOTH


@pytest.mark.parametrize(
    ("text", "board"),
    [
        # floor outside the room
        ("  ####\n###  ##\n#@$  .#\n#######", "#######\n###  ##\n#@$  .#\n#######"),
        (" ####\n #  #\n##  ###\n @$ . #\n########", "########\n##  ####\n##  ####\n#@$ . ##\n########"),
        # no wall at the sides
        ("####\n@$.\n####", "######\n######\n#@$.##\n######\n######"),
        # a box outside, at home
        ("*######\n #@$. #\n ######", "#########\n#*#######\n###@$. ##\n#########\n#########"),
        # capital letters for what is on a target
        ("######\n#PbB #\n######", "######\n#+$* #\n######"),
        # and a capital P for the player
        ("######\n#Pbo #\n######", "######\n#@$. #\n######"),
        ("#" * 150 + "\n#@$." + " " * 145 + "#\n" + "#" * 150, None),
    ],
)
def test_a_board_is_closed_and_read_in_the_alphabet_of_its_file(load, text, board):
    (level,) = texts(load(text))
    assert level == (board or text)


BAD = {
    "a box without a target": "######\n#@$  #\n######\n",
    "more targets than boxes": "#######\n#@$. .#\n#######\n",
    "two players": "#######\n#@@$. #\n#######\n",
    "no player": "######\n# $. #\n######\n",
    "a single row": "#@$. #\n",
    "an empty room": "######\n#    #\n######\n",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_level_is_named_and_the_others_load(load, bad):
    with pytest.warns(UserWarning, match="1 of 3 boards .* line 5: "):
        levels = load(f"{ONE}\n{BAD[bad]}\n{TWO}")
    assert texts(levels) == BOTH
    (fault,) = levels.card["left_out"]
    assert fault.startswith("line 5: ")


def test_a_bad_level_of_an_slc_file_is_named_by_its_id(load):
    text = FORMS["slc"].decode("latin-1").replace("#  @$.#", "#  @$ #").replace('"2"', '"Snug"')
    with pytest.warns(UserWarning, match="Snug"):
        levels = load(text.encode("latin-1"))
    assert texts(levels) == BOTH[:1]


def test_broken_xml_is_refused(load):
    with pytest.raises(LevelError):
        load("<SokobanLevels><Level><L>####</L>")


HEX = "  # # # #\n # . $ @ #\n  # # # #\n"
OTHER_GAMES = {
    "a note": f"Title: One\nVariant: Hexoban\n\n{HEX}",
    "a note of another game over a board of squares": f"; variant: Trioban\n{ONE}",
    "a note below the board": f"{ONE}Variant : Octoban\n",
    "slc": '<SokobanLevels><LevelCollection><Level Id="1" Variant="Hexoban"><L>####</L></Level>'
    "</LevelCollection></SokobanLevels>",
    "shifted rows": HEX,
    "shifted rows with dashes": "  # # # #\n #   .   #\n# @ $ * - #\n #       #\n  # # # #\n",
    "blanks between symbols that vary": "# # # #\n#  @ $ . #\n# # # #\n",
}


@pytest.mark.parametrize("form", OTHER_GAMES)
def test_levels_of_another_game_are_refused_in_one_line(load, form):
    with pytest.raises(LevelError, match=r"levels: ") as refusal:
        load(OTHER_GAMES[form])
    assert "\n" not in str(refusal.value)


def test_a_hexoban_level_among_others_is_named(load):
    with pytest.warns(UserWarning, match="line 5: .*Hexoban"):
        assert texts(load(f"{ONE}\n{HEX}\n{TWO}")) == BOTH


@pytest.mark.parametrize(("name", "game"), [("a.hsb", "Hexoban"), ("A.TSB.GZ", "Trioban")])
def test_the_ending_of_another_game_is_refused(tmp_path, name, game):
    (tmp_path / name).write_text(ONE)
    with pytest.raises(LevelError, match=game):
        LevelSet.load(tmp_path / name)


def test_a_compressed_collection_loads_and_an_archive_is_called_so(tmp_path):
    (tmp_path / "a.xsb.bz2").write_bytes(bz2.compress(f"{ONE}\n{TWO}".encode()))
    assert texts(LevelSet.load(tmp_path / "a.xsb.bz2")) == BOTH
    with zipfile.ZipFile(tmp_path / "a.xsb", "w") as file:
        file.writestr("a.xsb", ONE)
    with pytest.raises(LevelError, match="ZIP archive"):
        LevelSet.load(tmp_path / "a.xsb")
