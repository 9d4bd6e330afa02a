"""`memenvs credit FILE…`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from memenvs.core.address import without_secrets
from memenvs.core.data import Count
from memenvs.core.errors import counted
from memenvs.core.terminal import RED, RESET, CommandResult, show
from memenvs.logs.credit import Ranking, check, contents, credited, runnable
from memenvs.logs.files import LogFiles
from memenvs.logs.write import written
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import make_methods, plain_method, read_methods


@dataclass(frozen=True)
class LogOptions:
    """What the log says, and what it does not."""

    answers: str | None = None
    """file of questions and answers (JSON Lines, JSON, CSV, TSV or Parquet), for logs without answers."""
    fields: dict[str, Any] = field(default_factory=dict)
    """which field of a record holds answer, reward, group, question or evidence, as answer=meta.target."""
    strict: bool = False
    """stop at the first record that cannot be read, instead of skipping it."""


def credit(
    files: Sequence[str],
    /,
    *,
    log: LogOptions,
    methods: Sequence[str] = (),
    scorer: str = "lexical",
    compare: Literal["outcome", "merged", "turn", "turn-pool"] | None = None,
    out: Path | None = None,
    weight: float | None = None,
    top: Count = 3,
    show_text: bool = False,
) -> CommandResult:
    """Give credit to every turn of conversations that another agent had, and show which turns mattered.

    FILES are logs, globs or folders: OpenAI chat messages as JSON Lines, ATIF, sessions of Claude Code and
    Codex, traces of verifiers and prime-rl, logs of Inspect, and others (docs/logs.md). Nothing is played, no
    network is opened, no file is changed, and no text is printed without --show-text. Without --methods,
    every method that can run on the log does.

    Examples:
      memenvs credit runs.jsonl
      memenvs credit ~/.claude/projects/*/*.jsonl --methods StepSearch gains=new RepeatedCalls
      memenvs credit runs.jsonl --answers questions.jsonl --methods IGPO --scorer hf:MODEL
      memenvs credit traces.jsonl --methods IGPO --compare turn --out runs/credit

    Args:
        files: logs of conversations, told apart by their content.
        methods: reward methods, as for `memenvs evaluate run`: IGPO, InfoMem beta=0.1, ….
        scorer: computes log-probabilities for the methods: lexical (shared words, no model), hf:MODEL,
            vllm:MODEL, or JSON with settings.
        compare: also compare the conversations about each question, as learners do: outcome is GRPO's
            advantage, turn MT-GRPO's.
        out: folder for the run, which `view`, `evaluate compare` and `train sft --teacher` read, a table of
            turns (turns.parquet), and the log with the credit of each turn where its form may have it.
        weight: in chat messages, the turns that earned more than this get weight 1 for fine-tuning, others 0.
        top: number of turns to list at either end.
        show_text: also print what the agent wrote in these turns.
    """
    if not files:
        raise ValueError("no FILE is given; name a log of conversations")
    if out and not methods:
        raise ValueError("--out adds up what methods give; name them by --methods")
    if weight is not None and not out:
        raise ValueError("--weight is for the log that --out writes; give --out FOLDER")
    source = LogFiles(files, log.answers, log.fields, log.strict)
    log_contents = contents(source)
    page = str(log_contents)
    chosen = make_methods(read_methods(methods)) if methods else []
    check(log_contents, chosen)
    if not methods:
        chosen, others = runnable(log_contents)
        page += f"\nRun: {', '.join(map(_spelled, chosen))}.\n\nNot run:\n\n" + "".join(
            f"- {name} {why}\n" for name, why in others.items()
        )
    ranking = Ranking(chosen, str(without_secrets(scorer)), top, texts=show_text)
    pairs = credited(source, log_contents, chosen, scorer, compare)
    if out:
        pairs = written(pairs, out, source, log_contents, chosen, scorer, weight)
    for conversation, episode in pairs:
        ranking.add(conversation, episode)
    if ranking.failed:
        failed = f"{RED}{counted(len(ranking.failed), 'conversation')} failed{RESET}"
        show(f"memenvs credit: {failed}, such as {ranking.failed[0]}\n", sys.stderr)
    return CommandResult(f"{page}\n{ranking}", ranking.to_json, len(ranking.failed))


def _spelled(method: RewardMethod) -> str:
    """A method as a command line names it, with the settings that are not its defaults."""
    name, settings = plain_method(method)
    this: Any = method
    defaults = {item.name: item.default for item in dataclasses.fields(this)}
    return " ".join([name, *(f"{key}={value}" for key, value in settings.items() if value != defaults[key])])
