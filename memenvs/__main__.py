"""The commands of memenvs: `python -m memenvs COMMAND …`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from memenvs.cli import closest_first, reader_may_stop, report_error

COMMANDS = {
    "list": ("show environments, task sets, metrics, reward methods, scorers and policies", "MemChunkQA-v0"),
    "play": ("play an episode, by a policy or a person, and show it", "MemSokoban-v0 --seed 3"),
    "view": ("show episodes as an HTML report or on the terminal", "runs/lexical --out report.html"),
    "evaluate run": (
        "average every metric of a policy over tasks, with intervals",
        "--env MemChunkQA-v0 --policy lexical --task 0:8",
    ),
    "evaluate compare": (
        "compare policies task by task: differences with intervals, a table, a forest plot",
        "runs/base runs/trained --out runs/comparison",
    ),
    "evaluate table": (
        "print evaluated runs as a table of a paper, with a row for each method",
        "memagent runs/base runs/tamtrl",
    ),
    "build": (
        "make a task set, Sokoban levels or a search index",
        "world --entities 500 --num-tasks 100 --documents 50 --out my-world",
    ),
    "retrieval.server": ("serve a search index over HTTP", "--index my-index --port 8000"),
    "adapters.openenv": ("serve an environment to OpenEnv", "--env MemSokoban-v0 --env-args max_turns=2"),
    "baselines.sft": (
        "train a model on the episodes of a teacher",
        "--model Qwen/Qwen3-0.6B --teacher gold --out runs/warm",
    ),
    "baselines.distill": (
        "train a model on the distributions of a teacher that reads the evidence",
        "--model Qwen/Qwen3-0.6B --env MemChunkQA-v0 --teacher-model Qwen/Qwen3-8B --out runs/distilled",
    ),
    "baselines.prm": (
        "train a process reward model on recorded episodes",
        "--model smollm2 --episodes runs/lexical/episodes.jsonl --out runs/prm",
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
"""What each command does, and arguments that show it."""

MODULES = {
    "build": "build.__main__",
    "view": "view.__main__",
    "adapters.openenv": "adapters.openenv_command",
}
"""Commands whose module has another name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status, or 2 and one line on standard error where it cannot be run."""
    given = list(sys.argv[1:] if argv is None else argv)
    words = 2 if given[:1] == ["evaluate"] else 1
    name, arguments = " ".join(given[:words]), given[words:]
    if name not in COMMANDS:
        if not given or not {"-h", "--help", "help"}.isdisjoint(given):
            with reader_may_stop():
                sys.stdout.write(overview())
            return 0
        if name.split()[0] == "evaluate":
            known = ", ".join(one for one in COMMANDS if one.startswith("evaluate "))
            return report_error("memenvs", f"no command {name!r}; give one of {known}")
        known = ", ".join(closest_first(name, COMMANDS))
        return report_error("memenvs", f"no command {name!r}; its commands: {known}")
    module = MODULES.get(name, name.replace("evaluate ", "evaluation."))
    try:
        status: int = importlib.import_module(f"memenvs.{module}").main(arguments)
    except ImportError as error:  # of a module that needs an extra before it can read its options
        return report_error(f"memenvs {name}", error)
    return status


def overview() -> str:
    """The commands, with an example each."""
    commands = "\n".join(
        f"  {name:23}{text}\n{'':25}python -m memenvs {name} {example}"
        for name, (text, example) in COMMANDS.items()
    )
    return f"""\
usage: python -m memenvs COMMAND …

Text environments for language agents with memory, reward methods and learners.

{commands}

`python -m memenvs COMMAND --help` shows the options of a command. Arguments of an environment
are NAME=VALUE … or one JSON object behind --env-args; `python -m memenvs list ID` shows them.
"""


if __name__ == "__main__":
    raise SystemExit(main())
