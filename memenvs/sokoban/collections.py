"""Collections of levels as people publish them: XSB text and its relatives, run-length encoded, and `.slc`.

A row is a line of board symbols alone, a wall among them. Every other line is a note: titles, numbers,
comments, separators, saved solutions. Rows that follow each other are a board. In run-length encoding `3#2-`
is `###--`, `2(#-)` is `#-#-`, and `|` ends a row. There may be blanks or tabs between all symbols. Boards of
other games, such as Hexoban, are refused.

The symbols of a file are those of the alphabet in which most of its boards are levels, so that a note with an
O or an X changes nothing.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from xml.etree import ElementTree

import numpy as np

from memenvs.sokoban.board import FLOOR, LETTERS, WALL, XSB, Grid, LevelError, check_levels, parse

_ALPHABETS = tuple(
    str.maketrans(f"{symbols}-_", f"{XSB}{meaning}  ")
    for symbols, meaning in (
        (XSB, ""),
        (f"{XSB}oBbpP", ".*$@+"),  # XSB's own letters
        (f"{XSB}oBbpP", ".*$@@"),  # P is the player
        (LETTERS.replace("_", " "), ""),
        ("X .&*@+", ""),  # the original game's levels, as they were extracted from its files
        ("+ X$@*%", ""),  # Reasoning Gym's
    )
)
"""For each alphabet, XSB by symbol; "-" and "_" are floor in all of them."""

_NOT_TEXT = str.maketrans({"\xa0": " ", **dict.fromkeys("\0\v\f\x1a\u200b\ufeff")})  # \x1a ended files of DOS
_RUN, _GROUP = re.compile(r"(\d{1,3})([^\d|()])"), re.compile(r"(\d{1,3})\(([^()]*)\)")
_VARIANT = re.compile(r"(?im)^(?:\W*|.*<.*\W)(?:variant|tessellation)\s*[:=>]\s*[\"']?([^\n<>\"']+)")


def read_collection(data: bytes) -> tuple[list[Grid], list[str]]:
    """The levels of a file, and what is wrong with each of the others.

    A board gets walls outside its room, and around it where it has none.

    Returns:
        Boards (H, W), each of its own size, and a line for each board that is not a level: where it is, and
        why.

    Raises:
        LevelError: nothing in the file looks like a board, its XML is broken, or it is of another game.
    """
    text = _decode(data)
    for variant in map(str.strip, _VARIANT.findall(text)):
        if variant.lower() not in ("", "sokoban"):
            raise LevelError(f"it has levels of the variant {variant!r}; give levels of Sokoban alone")
    lines = re.split(r"\r*\n|\r", text)
    xml = _xml_levels(data) if "<SokobanLevels" in text else None
    used, results = set(text), list[tuple[list[Grid], list[str]]]()
    for alphabet in _ALPHABETS:
        if results and not any(chr(code) in used for code in alphabet.keys() - _ALPHABETS[0].keys()):
            continue
        boards, faults = list[Grid](), list[str]()
        for place, rows in _boards(lines, alphabet) if xml is None else xml:
            try:
                boards.append(_level(tuple(row.translate(alphabet) for row in _together(rows))))
            except LevelError as error:
                faults.append(f"{place}: {error}")
        results.append((boards, faults))
    boards, faults = max(results, key=lambda result: (len(result[0]), bool(result[1])))
    if not boards and not faults:
        raise LevelError(
            "not a level file: it has no board; write rows of '#' for walls, '@' for the player, and so on"
        )
    return boards, faults


def _decode(data: bytes) -> str:
    codec = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = data.decode(codec)
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # boards are ASCII; only notes can come out wrong
    return text.translate(_NOT_TEXT)


def _xml_levels(data: bytes) -> list[tuple[str, list[str]]]:
    """The boards of an `.slc` file: `<Level>` elements with a `<L>` for each row."""
    try:
        levels = ElementTree.fromstring(data).findall(".//{*}Level")
    except ElementTree.ParseError as error:
        raise LevelError(f"not a level file: its XML is broken ({error})") from error
    return [
        (f"level {level.get('Id') or number!r}", [row.text or "" for row in level.findall("{*}L")])
        for number, level in enumerate(levels, 1)
    ]


def _boards(lines: Sequence[str], alphabet: dict[int, int]) -> Iterator[tuple[str, list[str]]]:
    """The boards of a text, each with the place of its first row."""
    wall, symbols = chr(next(iter(alphabet))), frozenset(map(chr, alphabet))
    written = [_expanded(line.expandtabs()) for line in lines]
    drawn = [set(line) <= {*symbols, "|"} and not line.isspace() for line in written]
    walled = [is_drawn and wall in line for is_drawn, line in zip(drawn, written, strict=True)]
    rows: list[str] = []
    for number, line in enumerate([*written, ""]):
        # A board that is open at both sides has rows without walls; a separator is one symbol repeated.
        between = any(walled[number - 1 : number]) and any(walled[number + 1 : number + 2])
        pieces = set(line) - set(" -_|")
        is_row = number < len(lines) and drawn[number] and (walled[number] or (between and len(pieces) > 1))
        whole = is_row and "|" in line.strip("|")
        if rows and (whole or not is_row):
            yield from _block(number - len(rows), rows, alphabet)
            rows = []
        if whole:
            yield from _block(number, [row for row in line.split("|") if row], alphabet)
        elif is_row:
            rows.append(line.strip("|"))


def _block(start: int, rows: list[str], alphabet: dict[int, int]) -> Iterator[tuple[str, list[str]]]:
    """The boards of rows that follow each other; nothing where they are only a line drawn with walls.

    Boards without a line between them are divided between two rows of walls, so that each has a player.
    """
    wall = chr(next(iter(alphabet)))
    has_player = [any(alphabet[ord(c)] in map(ord, "@+") for c in row) for row in rows]
    first = 0
    for i in range(1, len(rows)):
        walls = {*rows[i - 1], *rows[i]} - {" "} == {wall}
        if walls and any(has_player[first:i]) and any(has_player[i:]):
            yield f"line {start + first + 1}", rows[first:i]
            first = i
    if len(rows) - first > 2 or set("".join(rows[first:])) - {wall, *" -_"}:
        yield f"line {start + first + 1}", rows[first:]


def _together(rows: Sequence[str]) -> list[str]:
    """The rows without the blanks that stand between all symbols of a board; tabs have become blanks."""
    places = [[place for place, symbol in enumerate(row) if symbol != " "] for row in rows]
    if min((b - a for row in places for a, b in itertools.pairwise(row)), default=1) == 1:
        return list(rows)
    first = min(place for row in places for place in row)
    width = math.gcd(*(place - first for row in places for place in row))
    if width == 1:
        raise LevelError(
            "its symbols stand apart but not in columns, as in Hexoban; give Sokoban, one symbol a square"
        )
    return [row[first::width] for row in rows]


def _expanded(line: str) -> str:
    """A line with its runs written out; a blank in it is floor, or with others around every bar nothing."""
    if not any(c in "0123456789|" for c in line):
        return line
    word = line.strip().replace(" | ", "|") if 0 < line.count("|") == line.count(" | ") else line.rstrip()
    word = _GROUP.sub(lambda group: int(group[1]) * group[2], word)
    return _RUN.sub(lambda run: int(run[1]) * run[2], word)


@lru_cache(maxsize=4096)  # most boards are read once for each alphabet
def _level(rows: tuple[str, ...]) -> Grid:
    """The board of rows in XSB."""
    if len(rows) == 1:
        raise LevelError("a single row is not a board; write the walls above and below it")
    left = min((len(row) - len(row.lstrip()) for row in rows if row.strip()), default=0)
    board = _closed(parse("\n".join(row[left:].rstrip() for row in rows)))
    edge = np.ones(board.shape, bool)
    edge[1:-1, 1:-1] = False
    if (board[edge] != WALL).any():
        board = np.pad(board, 1, constant_values=WALL)
    check_levels(board[None])
    return board


def _closed(board: Grid) -> Grid:
    """The board with walls in place of the floor outside the room."""
    outside = np.pad(np.zeros(board.shape, bool), 1, constant_values=True)
    open_floor = np.pad(board == FLOOR, 1)
    while True:
        near = np.zeros_like(outside)
        near[1:-1, 1:-1] = outside[:-2, 1:-1] | outside[2:, 1:-1] | outside[1:-1, :-2] | outside[1:-1, 2:]
        grown = outside | (near & open_floor)
        if (grown == outside).all():
            return np.where(outside[1:-1, 1:-1], np.uint8(WALL), board)
        outside = grown
