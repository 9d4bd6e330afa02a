"""Errors of servers, and errors in one line: those of other libraries may have many."""

from __future__ import annotations

import gymnasium as gym

MAX_ERROR_CHARS = 500
USER_ERRORS = (ValueError, OSError, TypeError, ImportError, FloatingPointError, gym.error.Error)
"""Errors of arguments and data, which a command reports in one line instead of a traceback."""


class ServerError(ConnectionError):
    """A server did not answer, or not in its protocol."""


class RequestRefused(ServerError, ValueError):
    """A server answered with an HTTP status that another try would not change.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def one_line(error: object) -> str:
    r"""What an error says, in one line.

    >>> one_line(ValueError("a\n  b\tc "))
    'a b c'
    """
    return " ".join(str(error).split())


def error_line(error: BaseException, max_chars: int = MAX_ERROR_CHARS) -> str:
    r"""Kind and message of an error in one line of at most `max_chars` characters, never empty.

    >>> error_line(ConnectionError("no server\nat http://node:8000"))
    'ConnectionError: no server at http://node:8000'
    """
    message = one_line(error)
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return line[:max_chars]
