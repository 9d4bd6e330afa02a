"""The command line: `memenvs COMMAND …`, and the same as `python -m memenvs COMMAND …`."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memenvs.core.arguments import closest_first, run_command
from memenvs.core.optional import require
from memenvs.core.terminal import reader_may_stop, report_error, row, wrapped_help


class Command(NamedTuple):
    """A command of the table.

    Attributes:
        text: what it does.
        place: `module:function`. A `main` parses the words after the command itself; for another function the
            signature gives the options (`memenvs.core.arguments.run_command`).
        extra: the extra that installs what its module imports.
    """

    text: str
    place: str
    extra: str = ""


class CommandGroup(NamedTuple):
    """Commands that share their first word.

    Attributes:
        text: what they do.
        commands: by their second word; `--resume` is the command of words that begin with an option.
        example: a command to begin with.
    """

    text: str
    commands: Mapping[str, Command]
    example: str


COMMANDS: Mapping[str, Command | CommandGroup] = {
    "list": Command(
        "list environments, task sets, rewards, policies and models",
        "memenvs.commands.list:show",
    ),
    "new": Command(
        "write an environment of your own to begin with, and its test", "memenvs.commands.new:new"
    ),
    "play": Command("play one episode with a policy or by hand, and show it", "memenvs.commands.play:play"),
    "view": Command(
        "show episodes in a browser or on the terminal, or training curves",
        "memenvs.commands.view:view",
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
                "memenvs.commands.evaluate:by",
            ),
            "signals": Command(
                "show what a reward method measured in runs, by step and by value",
                "memenvs.commands.evaluate:signals",
            ),
            "table": Command(
                "print evaluated runs as a paper's table, with a row for each method",
                "memenvs.commands.evaluate:table",
            ),
        },
        "memenvs evaluate run --env MemToolQA-v0 --policy lexical --episodes 20 --out runs/lexical",
    ),
    "build": Command("make a task set, Sokoban levels or a search index", "memenvs.commands.build:main"),
    "train": CommandGroup(
        "train a model: sft, distill, prm, mt_ppo, grpo",
        {
            "--resume": Command(
                "resume the run in --out, or repeat one by --recipe RUN/args.json, with its own flags",
                "memenvs.baselines.flags:main",
                "train",
            ),
            "sft": Command("train a model on a teacher's episodes", "memenvs.baselines.sft:main", "train"),
            "distill": Command(
                "train a model on the token distributions of a teacher that reads the evidence",
                "memenvs.baselines.distill:main",
                "train",
            ),
            "prm": Command(
                "train a process reward model on recorded episodes", "memenvs.baselines.prm:main", "train"
            ),
            "mt_ppo": Command(
                "train a model by PPO with a reward for every turn",
                "memenvs.baselines.mt_ppo:main",
                "train",
            ),
            "grpo": Command(
                "train a model by GRPO, MT-GRPO, TAMTRL, InfoMem or MemPO",
                "memenvs.baselines.grpo:main",
                "train",
            ),
        },
        "memenvs train grpo --model smollm2 --env MemChunkQA-v0 --reward tamtrl --out runs/first",
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
    """Run the command of this process, and end it; it can name modules of the working directory."""
    sys.path.insert(0, "")  # which `python -m memenvs` has, and the installed script lacks
    if sys.argv[1:2] == ["build"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half-written is removed
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status, or 2 and one line on standard error if it cannot be run."""
    with reader_may_stop():
        return _run("memenvs", COMMANDS, sys.argv[1:] if argv is None else argv)


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
    if name.startswith("-") and "--resume" in commands:
        name, rest = "--resume", words
    if (entry := commands.get(name)) is None:
        known = ", ".join(closest_first(name, commands))
        return report_error(prog, f"no command {name!r}; choose one of {known}")
    prog = f"{prog} {name}"
    if isinstance(entry, CommandGroup):
        return _run(prog, entry.commands, rest, entry)
    module, _, attribute = entry.place.partition(":")
    try:
        loaded = require(module, entry.extra) if entry.extra else importlib.import_module(module)
        function: Any = getattr(loaded, attribute)
    except ImportError as error:  # of an extra that the module needs
        return report_error(prog, error)
    status: int = function(rest) if function.__name__ == "main" else run_command(function, rest, prog)
    return status


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
    lines += [row(name, command.text) for name, command in commands.items()]
    example = group.example if group else "memenvs play --env MemSearchQA-v0 --seed 8"
    lines += [
        "",
        "begin with:",
        f"  {example}",
        "",
        f"`{prog} COMMAND --help` shows the options of a command.",
    ]
    return wrapped_help("\n".join([*lines, ""]))
