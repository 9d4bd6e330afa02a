"""`memenvs completion SHELL`: a script that completes commands and options."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union

from memenvs.baselines.args import LEARNERS
from memenvs.commands import COMMANDS, Command, CommandGroup
from memenvs.commands.build import sources_options
from memenvs.core.arguments import deferred, parse

_IMPROVEMENTS = (
    # Where no word fits, tyro offers nothing, and bash deletes what was typed; files are better.
    ("for completion in completions:", "for completion in completions or ['__TYRO_COMPLETE_FILES__']:"),
    # In bash, "$cur" begins with the words before it.
    (
        'COMPREPLY=($(compgen -f -- "$cur"))',
        "local IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$2\")); compopt -o filenames 2> /dev/null",
    ),
    # The code is longer than an argument may be on Linux, 128 KiB; and fish tells it no unfinished word.
    (
        '$python_cmd -c "$pycode" $words',
        "printf '%s\\n' \"$pycode\" | $python_cmd - $words (commandline -ct)",
    ),
)
"""What is replaced in tyro's scripts, and by what."""


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands and options; docs/quickstart.md says where each shell reads it.

    Examples:
      memenvs completion bash

    Args:
        shell: bash, zsh or fish.
    """
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        parse(_union(_kinds(COMMANDS)), ["--tyro-write-completion", shell, "-"], "memenvs")
    text = script.getvalue()
    for original, improved in _IMPROVEMENTS:
        text = text.replace(original, improved)
    sys.stdout.write(text)


def _kinds(commands: Mapping[str, Command | CommandGroup]) -> dict[str, Any]:
    """What tyro reads after each word: a function, a dataclass of options, or a union of subcommands."""
    kinds = dict[str, Any]()
    for name, entry in commands.items():
        if isinstance(entry, CommandGroup):
            kinds[name] = _union(_kinds(entry.commands))
        elif name == "build":
            kinds[name] = _union(sources_options())
        elif name in LEARNERS:
            kinds[name] = LEARNERS[name]
        else:
            with contextlib.suppress(ImportError):  # of an extra that is missing
                kinds[name] = deferred(entry.load())
    return kinds


def _union(kinds: Mapping[str, Any]) -> Any:
    from tyro.conf import subcommand

    return Union[tuple(Annotated[Any, subcommand(name, constructor=kind)] for name, kind in kinds.items())]  # noqa: UP007
