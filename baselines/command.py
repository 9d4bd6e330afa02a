"""The learners' command line: flags come in as a dataclass, an exit status goes out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gymnasium as gym

from memenvs.extras import require

A = TypeVar("A")


def read_args(kind: type[A], argv: Sequence[str] | None, name: str) -> A:
    """Flags as the fields of a dataclass; `--help` shows the line under each field."""
    args: A = require("tyro", "train").cli(
        kind, args=None if argv is None else list(argv), prog=f"python -m {name}"
    )
    return args


def run(prepare: Callable[[Any], Any], train: Callable[[Any, Any], None], args: Any) -> int:
    """Prepare and train; what cannot be prepared is one line and the status 2."""
    try:
        prepared = prepare(args)
    except (FileNotFoundError, ImportError, TypeError, ValueError, gym.error.Error) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    train(prepared, args)
    return 0
