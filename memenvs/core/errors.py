"""Errors of servers, and texts of others as a terminal can show them: errors in one line, no controls."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

import gymnasium as gym

MAX_ERROR_CHARS = 500
USER_ERRORS = (ValueError, OSError, TypeError, ImportError, FloatingPointError, gym.error.Error)
"""Errors of arguments and data, which a command reports in one line instead of a traceback."""

# C0 and C1, bidirectional controls, line separators, invisible characters, tags, surrogates. Joiners stay
# behind what is not ASCII, because the spelling of some scripts and some pictures depend on them.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]|(?<![^\x00-\x7f\u200b-\u200f])[\u200c\u200d]"
)


class ServerError(ConnectionError):
    """A server did not answer, or not in its protocol."""


class Unreachable(ServerError):
    """Nothing answers at an address, or not in time."""


class RequestRefused(ServerError, ValueError):
    """A server answered with an HTTP status that another try would not change.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def printable(text: str) -> str:
    r"""A text of others for a terminal: U+FFFD for each control or invisible character but `\n` and `\t`.

    Terminals obey such characters: they can move the cursor, hide text, or show it in another order.

    >>> printable("a\x1b[2Jb").encode("ascii", "backslashreplace")
    b'a\\ufffd[2Jb'
    """
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def counted(number: int, noun: str) -> str:
    """A number of things, each of which a regular noun names.

    >>> counted(1, "task"), counted(2000, "task")
    ('1 task', '2,000 tasks')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def one_line(error: object) -> str:
    r"""What an error says, in one line that a terminal can show (`printable`).

    >>> one_line(ValueError("a\n  b\tc "))
    'a b c'
    """
    return printable(" ".join(str(error).split()))


def error_line(error: BaseException, max_chars: int = MAX_ERROR_CHARS) -> str:
    r"""Kind and message of an error in one line of at most `max_chars` characters, never empty.

    >>> error_line(ConnectionError("no server\nat http://node:8000"))
    'ConnectionError: no server at http://node:8000'
    """
    message = one_line(error)
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return line[:max_chars]


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Those of some names that are spelled like `name`, in any case, or contain it; the likeliest first.

    >>> near_names("memchunkQA", ["MemNIAH-v0", "MemChunkQA-v0", "MemToolQA-v0"])
    ['MemChunkQA-v0']
    >>> near_names("niah", ["MemNIAH-v0", "MemChunkQA-v0"]), near_names("x", ["MemNIAH-v0"])
    (['MemNIAH-v0'], [])
    """
    spelled = _plain(name)
    likeness = dict[str, float]()
    for other in names:
        likeness[other] = difflib.SequenceMatcher(None, spelled, _plain(other)).ratio()
        if len(spelled) > 2 and spelled in _plain(other):
            likeness[other] = max(likeness[other], 0.8)
    least = max(0.6, max(likeness.values(), default=0.0) - 0.1)
    near = [other for other, value in likeness.items() if value >= least]
    return sorted(near, key=lambda other: -likeness[other])[:3]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def unknown_name(what: str, name: str, names: Iterable[str], more: str = "") -> str:
    """The error of a name that there is not, in one line: the near ones first, then the others.

    Args:
        what: what there is not, such as "no environment".
        name: what a user wrote.
        names: those that there are.
        more: what could be given instead, behind the names.

    >>> unknown_name("no reward", "outcom", ["outcome", "merged"])
    "no reward 'outcom'; did you mean outcome? Others: merged"
    """
    choices = dict.fromkeys(names)
    near = near_names(name, choices)
    others = ", ".join(other for other in choices if other not in near)
    if near:
        choice = f"did you mean {' or '.join(near)}?"
        if others:
            choice += f" Others: {others}"
    else:
        choice = f"choose one of {others or 'none'}"
    return f"{what} {name!r}; {choice}{more}"
