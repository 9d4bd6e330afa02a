"""The sections and the tables of a Markdown page."""

import re


def sections(text, level):
    """The text below each heading of a level, by its heading."""
    found = re.split(rf"^{'#' * level} (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def tables(text):
    """Of each table the cells of its rows, its head among them."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)
    made = [[_cells(line) for line in block.splitlines()] for block in blocks]
    return [[head, *rows] for head, _, *rows in made]


def rows(text):
    """The cells of the first table's rows, without its head."""
    return tables(text)[0][1:]


def _cells(line):
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
