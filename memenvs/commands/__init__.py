"""The command line: `memenvs COMMAND …`, and the same as `python -m memenvs COMMAND …`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memenvs import __version__
from memenvs.core.arguments import run_command
from memenvs.core.errors import unknown_name
from memenvs.core.progress import QUIET
from memenvs.core.terminal import clean_streams, reader_may_stop, report_error, row, wrapped_help


class Command(NamedTuple):
    """A command of the table.

    Attributes:
        text: what it does.
        place: `module:function`, whose signature gives the options (`memenvs.core.arguments.run_command`).
        reads_words: whether the function reads the words of the command line itself and returns the status;
            of a group's words the first is the command's.
    """

    text: str
    place: str
    reads_words: bool = False

    def load(self) -> Any:
        """The function; ImportError if an extra that it needs is missing."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)


class CommandGroup(NamedTuple):
    """Commands that share their first word.

    Attributes:
        text: what they do.
        commands: by their second word.
        example: a command to begin with.
        options: the first option of words that name no command, and what then runs.
    """

    text: str
    commands: Mapping[str, Command]
    example: str
    options: tuple[str, Command] | None = None


LEARN = "memenvs.baselines.flags:main"
COMMANDS: Mapping[str, Command | CommandGroup] = {
    "list": Command(
        "list environments, task sets, rewards, policies and models",
        "memenvs.commands.list:show",
    ),
    "completion": Command(
        "print a script that completes commands in bash, zsh or fish",
        "memenvs.commands.completion:completion",
    ),
    "new": Command(
        "write an environment of your own to begin with, and its test", "memenvs.commands.new:new"
    ),
    "play": Command("play one episode with a policy or by hand, and show it", "memenvs.commands.play:play"),
    "view": Command(
        "show episodes in a browser or on the terminal, or training curves",
        "memenvs.commands.view:view",
    ),
    "credit": Command(
        "say which turns of another agent's logs earned and lost most", "memenvs.commands.credit:credit"
    ),
    "evaluate": CommandGroup(
        "score a policy on many tasks, with intervals; compare runs",
        {
            "run": Command(
                "play tasks with a policy and average every metric, with intervals",
                "memenvs.commands.evaluate:run",
            ),
            "suite": Command(
                "play a fixed suite of tasks and print its scores as a row of a table",
                "memenvs.commands.evaluate:suite",
            ),
            "compare": Command(
                "compare policies task by task: differences with intervals, as a table and a forest plot",
                "memenvs.commands.evaluate:compare",
            ),
            "by": Command(
                "print the scores of a run by a field of its tasks: hops, type, tokens, depth",
                "memenvs.evaluation.by:scores_by",
            ),
            "signals": Command(
                "show what a reward method measured in runs, by step and by value",
                "memenvs.evaluation.signals:signal_figures",
            ),
            "table": Command(
                "print evaluated runs as a paper's table, with a row for each method",
                "memenvs.evaluation.table:main_table",
            ),
        },
        "memenvs evaluate run --env MemToolQA-v0 --policy lexical --task 0:20 --out runs/lexical",
    ),
    "build": Command(
        "make a task set, Sokoban levels or a search index", "memenvs.commands.build:main", reads_words=True
    ),
    "train": CommandGroup(
        "train a model: sft, distill, prm, mt_ppo, grpo",
        {
            name: Command(text, LEARN, reads_words=True)
            for name, text in {
                "sft": "train a model on a teacher's episodes",
                "distill": "train a model on the token distributions of a teacher that reads the evidence",
                "prm": "train a process reward model on recorded episodes",
                "mt_ppo": "train a model by PPO with a reward for every turn",
                "grpo": "train a model by GRPO, MT-GRPO, TAMTRL, InfoMem or MemPO",
            }.items()
        },
        "memenvs train grpo --model smollm2 --env MemChunkQA-v0 --reward tamtrl --out runs/first",
        (
            "--resume",
            Command("resume the run in --out, or repeat one by --recipe RUN/args.json", LEARN, True),
        ),
    ),
    "serve": CommandGroup(
        "serve a search index, an environment or memories",
        {
            "retriever": Command("serve a search index over HTTP", "memenvs.commands.serve:retriever"),
            "openenv": Command("serve an environment to OpenEnv", "memenvs.commands.serve:openenv"),
            "mcp": Command(
                "serve a retriever and a store of memories to MCP clients", "memenvs.commands.serve:mcp"
            ),
        },
        "memenvs serve openenv --env MemSokoban-v0",
    ),
}


def console() -> None:
    """Run the command of this process, and end it."""
    clean_streams()
    if sys.path[0] == os.getcwd():  # of `python -m`; no module in it takes the place of an installed one
        sys.path.append(sys.path.pop(0))
    if sys.argv[1:2] == ["build"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half-written is removed
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status, or 2 and one line on standard error if it cannot be run."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    if "--quiet" in words:
        words.remove("--quiet")
        os.environ[QUIET] = "1"  # workers inherit it
    with reader_may_stop():
        if words[:1] == ["--version"]:
            sys.stdout.write(f"memenvs {__version__}\n")
            return 0
        return _run("memenvs", COMMANDS, words)


def _run(
    prog: str,
    commands: Mapping[str, Command | CommandGroup],
    words: Sequence[str],
    group: CommandGroup | None = None,
) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(overview(prog, commands, group))
        return 0
    name, rest = words[0], words[1:]
    entry = commands.get(name)
    if group and group.options and name.startswith("-"):
        entry = group.options[1]
    if entry is None:
        return report_error(prog, unknown_name("no command", name, commands))
    prog = f"{prog} {name}"
    if isinstance(entry, CommandGroup):
        return _run(prog, entry.commands, rest, entry)
    try:
        function = entry.load()
    except ImportError as error:
        return report_error(prog, error)
    if entry.reads_words:
        status: int = function(words if group else rest)
        return status
    return run_command(function, rest, prog)


def overview(
    prog: str, commands: Mapping[str, Command | CommandGroup], group: CommandGroup | None = None
) -> str:
    """The commands of a group, or without one the first screen."""
    about = (
        group.text
        if group
        else "text environments for language agents with memory, reward methods and learners"
    )
    lines = [f"usage: {prog} COMMAND …", "", f"{about[0].upper()}{about[1:]}.", ""]
    rows = {name: command.text for name, command in commands.items()}
    if group and group.options:
        option, command = group.options
        rows = {option: command.text, **rows}
    lines += [row(name, text) for name, text in rows.items()]
    example = group.example if group else "memenvs play --env MemSearchQA-v0 --seed 8"
    lines += [
        "",
        "begin with:",
        f"  {example}",
        "",
        f"`{prog} COMMAND --help` shows the options of a command; --quiet hides its progress.",
    ]
    return wrapped_help("\n".join([*lines, ""]))
