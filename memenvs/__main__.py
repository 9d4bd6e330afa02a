"""The commands of memenvs: `python -m memenvs COMMAND …`."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from memenvs.cli import closest_first

COMMANDS = {
    "list": ("show environments, task sets, metrics, reward methods, scorers and policies", "MemChunkQA-v0"),
    "play": ("show an episode", "MemSokoban-v0 --seed 3"),
    "evaluate": (
        "average every metric of a policy over tasks, with intervals",
        "run --env MemChunkQA-v0 --policy lexical --task 0:8",
    ),
    "build": (
        "make a task set, Sokoban levels or a search index",
        "world --entities 500 --tasks 100 --documents 50 --out my-world",
    ),
    "retrieval.server": ("serve a search index over HTTP", "--index my-index --port 8000"),
    "adapters.openenv": ("serve an environment to OpenEnv", "--env MemSokoban-v0 --env-args max_turns=2"),
    "baselines.sft": (
        "train a model on the episodes of a teacher",
        "--model Qwen/Qwen3-0.6B --teacher gold --out runs/warm",
    ),
    "baselines.mt_ppo": (
        "train a model by PPO with a reward for every turn",
        "--model runs/warm/last/policy --reward turn --out runs/mt_ppo",
    ),
    "baselines.grpo": (
        "train a model by GRPO, MT-GRPO, TAMTRL, InfoMem or MemPO",
        "--model Qwen/Qwen3-4B --env MemChunkQA-v0 --reward tamtrl",
    ),
}
"""Modules with a command line: what they do, and arguments that show it."""


def overview() -> str:
    """The commands, with an example each."""
    shown = [
        f"  {name:18}{text}\n{'':20}python -m memenvs {name} {example}"
        for name, (text, example) in COMMANDS.items()
    ]
    return "\n".join(
        (
            "usage: python -m memenvs COMMAND …",
            "",
            "Text environments for language agents with memory, reward methods and learners.",
            "",
            *shown,
            "",
            "`python -m memenvs COMMAND --help` shows the options of a command. Arguments of an environment",
            "are NAME=VALUE … or one JSON object behind --env-args; `python -m memenvs list ID` shows them.",
            "",
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, which ends the process by itself; else 0 with the overview, or 2 with one line."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not given or given[0] in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return 0
    name, *rest = given
    if name not in COMMANDS:
        known = ", ".join(closest_first(name, COMMANDS))
        sys.stderr.write(f"memenvs: error: no command {name!r}; its commands: {known}\n")
        return 2
    sys.argv = [f"memenvs.{name}", *rest]
    module = "evaluation" if name == "evaluate" else name
    try:
        runpy.run_module(f"memenvs.{module}", run_name="__main__", alter_sys=True)
    except ImportError as error:  # of a module that needs an extra before it can read its options
        sys.stderr.write(f"memenvs {name}: error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
