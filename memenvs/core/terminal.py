"""The terminal: text in colours, tables in columns, errors of one line."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
import re
import shutil
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from traceback import format_exception
from typing import Any, NamedTuple, TextIO

import msgspec

from memenvs.core.address import without_secrets
from memenvs.core.errors import one_line, printable
from memenvs.core.progress import QUIET

BOLD, DIM, RED, GREEN, YELLOW, RESET = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 33, 0))
_WORDS = re.compile(r"""(?:--\S+ (?!-))?(?:'[^']*'|"[^"]*"|\S)+""")  # an option with its first value is one
_COLOUR = re.compile(r"(\x1b\[(?:[0-2]|3[1-3])m)")  # ours


class CommandResult(NamedTuple):
    """What a command found.

    Attributes:
        text: Markdown or LaTeX.
        to_json: makes the same as plain data.
        failed: number of episodes that failed.
    """

    text: str
    to_json: Callable[[], Any]
    failed: int = 0

    def __str__(self) -> str:
        return self.text


def clean_streams() -> None:
    """Let the standard streams of this process fit any terminal.

    A `?` is written for what the encoding lacks, and warnings and tracebacks, which may quote others, are
    `printable`.
    """

    def spell(error: Any) -> tuple[str, int]:
        return "-" if error.object[error.start] == "─" else "?", error.start + 1

    codecs.register_error("memenvs", spell)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="memenvs")
    format_warning = warnings.formatwarning
    warnings.formatwarning = lambda *args, **options: printable(format_warning(*args, **options))
    sys.excepthook = lambda *failure: sys.stderr.write(printable("".join(format_exception(*failure))))
    threading.excepthook = lambda failure: sys.excepthook(*failure[:3])  # type: ignore[arg-type]


@contextlib.contextmanager
def reader_may_stop() -> Iterator[None]:
    """End the process quietly, inside a `with`, if whatever reads standard output stops, such as `head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more
        raise SystemExit(0) from None


def report_error(prog: str, error: object) -> int:
    """Write an error of a command to standard error, in one line without secrets; the exit status 2."""
    if isinstance(error, BrokenPipeError):  # for `reader_may_stop`
        raise error
    if isinstance(error, (FileExistsError, NotADirectoryError)) and error.filename:
        error = f"{error.filename} or what is above it is a file, not a folder; give another path"
    line = without_secrets(one_line(error))
    show(f"{prog}: {RED}error{RESET}: {line}\n", sys.stderr, wrap=False)
    return 2


def show(text: str, file: TextIO | None = None, *, wrap: bool = True) -> None:
    """Write text with our colours, which are left out if `file` is not a terminal or NO_COLOR is set.

    Args:
        text: ends with a line end.
        file: standard output by default.
        wrap: wrap lines at words to the width of a terminal; commands to be copied are not wrapped.
    """
    file = file or sys.stdout
    parts = _COLOUR.split(text)  # a text and a colour in turn
    parts[::2] = map(printable, parts[::2])
    text = "".join(parts if file.isatty() and "NO_COLOR" not in os.environ else parts[::2])
    if wrap and file.isatty():
        width = terminal_width()
        text = "\n".join(line for long in text.split("\n") for line in _wrapped(long, width))
    file.write(text)
    file.flush()


def say(line: str) -> None:
    """Write a line about how work goes to standard error, unless `--quiet` hides progress."""
    if not os.environ.get(QUIET):
        show(f"{line}\n", sys.stderr)


def show_page(page: str) -> None:
    """Write Markdown to standard output; on a terminal its tables are columns, and its lines are wrapped."""
    page = printable(page)
    show(in_columns(page, terminal_width()) if sys.stdout.isatty() else page, wrap=False)


def show_json(value: Any) -> None:
    """Write plain data to standard output as indented JSON; what JSON cannot hold becomes a text."""
    show(f"{msgspec.json.format(msgspec.json.encode(value, enc_hook=str)).decode()}\n", wrap=False)


def terminal_width(otherwise: int = 88) -> int:
    """Columns of the terminal, at least 20; COLUMNS decides where it is set."""
    return max(20, shutil.get_terminal_size((otherwise, 24)).columns)


def row(name: str, text: str) -> str:
    """A line of help: a name, and its meaning in a second column."""
    return f"  {name:18}{text}"


def wrapped_help(text: str, hanging: int = 0) -> str:
    """Help in the width of the terminal, broken at words.

    A paragraph is unindented lines, a row continues below its text, and a command behind a backslash, so that
    it can still be copied; backslashes of the text itself are for another width.

    Args:
        text: paragraphs, rows, and commands that are indented.
        hanging: indent of the later lines of a paragraph.
    """
    width, lines = terminal_width(80), list[str]()
    text = re.sub(r" *\\\n *", " ", text)
    for is_paragraph, group in itertools.groupby(text.split("\n"), lambda line: line[:1] not in ("", " ")):
        if is_paragraph:
            lines += _broken(" ".join(group), width, " " * hanging)
        else:
            lines += itertools.chain.from_iterable(_broken_line(line, width) for line in group)
    return "\n".join(lines)


def _broken_line(line: str, width: int) -> list[str]:
    """A command or a row in lines of at most `width` characters, if its words allow it."""
    if len(line) <= width:
        return [line]
    indent, _, command = line.partition("memenvs ")
    if indent.isspace():
        words = [word.replace(" ", "\0") for word in _WORDS.findall(command)]
        parts = _broken(f"{indent}memenvs {' '.join(words)}", width - 2, f"{indent}    ")
        return " \\\n".join(parts).replace("\0", " ").split("\n")
    columns = re.match(r"  \S+(?: \S+)*?  +", line)
    return _broken(line, width, " " * (columns.end() if columns else 2))


def _broken(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _wrapped(line: str, width: int) -> list[str]:
    """A line in parts of at most `width` characters, the later ones indented as the first."""
    if len(_COLOUR.sub("", line)) <= width:
        return [line]
    indent = " " * min(len(line) - len(line.lstrip(" ")), width // 2)
    return _broken(indent + line.strip(), width, indent)


def in_columns(page: str, width: int | None = None) -> str:
    r"""A page of Markdown with its tables as aligned columns, numbers to the right.

    Args:
        page: the Markdown.
        width: wrap its other lines at words to this many characters.

    >>> print(in_columns("| metric | mean |\n| --- | --- |\n| em | 1.000 |\n| reward | -0.5 |"))
    metric   mean
    em      1.000
    reward   -0.5
    """
    lines: list[str] = []
    for is_table, group in itertools.groupby(page.split("\n"), lambda line: line.startswith("| ")):
        if not is_table:
            lines += [part for line in group for part in (_wrapped(line, width) if width else [line])]
            continue
        cells = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in group]
        columns: list[list[str]] = []
        for head, _, *texts in zip(*cells, strict=True):
            column = [text.replace("\\|", "|") for text in (head, *texts)]
            is_number = all(re.match(r"\[?[-+]?\d|$", text) for text in column[1:]) and columns
            size = max(map(len, column))
            columns.append([text.rjust(size) if is_number else text.ljust(size) for text in column])
        lines += ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    return "\n".join(lines)
