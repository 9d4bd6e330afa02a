"""The folder of a log's credit: a run, a table of turns, and the log with the credit in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import memenvs
from memenvs.core.address import without_secrets
from memenvs.core.episode import Episode
from memenvs.core.files import json_sha256, whole_file
from memenvs.core.spaces import replace_surrogates
from memenvs.evaluation.log import RunLog
from memenvs.evaluation.run import completed
from memenvs.evaluation.summary import summarise
from memenvs.logs.conversation import LogConversation
from memenvs.logs.credit import ADVANTAGE, Contents, credits_of
from memenvs.logs.files import LogFiles
from memenvs.logs.forms import LogForm
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import ScorerSpec, plain_method, plain_scorer

LOG, TURNS = "log", "turns.parquet"
_ROWS = 4096  # rows of the table that are written at once
_TEXTS = dict.fromkeys(("conversation", "task", "key"), pa.string())


def written(
    pairs: Iterable[tuple[LogConversation, Episode]],
    folder: Path,
    source: LogFiles,
    contents: Contents,
    methods: Sequence[RewardMethod],
    scorer: ScorerSpec,
    weight: float | None = None,
) -> Iterator[tuple[LogConversation, Episode]]:
    """Pass on what `credited` gives, and write it: `episodes.jsonl` and its setting, and `turns.parquet`.

    After the last one it writes the results of the run, and in `log/` the log in the form that was read, with
    the credit of each turn where that form may have it, otherwise in a file `NAME.credit.jsonl` of turns.

    Args:
        pairs: conversations and their episodes.
        folder: does not exist yet, or is empty.
        source: the log.
        contents: its contents.
        methods: what gives the credit.
        scorer: what they asked.
        weight: in chat messages, turns that earned more than this get the weight 1 in training, others 0.

    Raises:
        ValueError: the folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; choose another --out")
    setting = {
        "env": "log",
        "env_args": {},
        "n_tasks": len(contents.tasks),
        "data": {"tasks": json_sha256(sorted(contents.tasks))},
        "policy": ", ".join(contents.models) or "unknown",
        "methods": [plain_method(method) for method in methods],
        "scorer": plain_scorer(scorer) if any(method.asks for method in methods) else None,
        "seed": 0,
        "memenvs": memenvs.__version__,
        "forms": dict(contents.forms),
    }
    numbers = [name for method in methods for name in (method.name, f"{method.name}_signal")]
    floats = dict.fromkeys(("reward", *numbers, ADVANTAGE), pa.float64())
    schema = pa.schema({**_TEXTS, "turn": pa.int32(), **floats})
    of_conversations: dict[str, list[dict[str, Any]]] = {}  # turns, by the place of a conversation
    rows: list[dict[str, Any]] = []
    with (
        contextlib.closing(RunLog(folder, without_secrets(setting))) as log,
        pq.ParquetWriter(folder / TURNS, schema) as table,
    ):
        for conversation, episode in pairs:
            log.keep(completed(episode))
            turns = of_conversations[conversation.place] = list(_turns(conversation, episode, weight))
            rows += [_row(conversation.place, episode.task, turn) for turn in turns]
            if len(rows) >= _ROWS:
                table.write_table(pa.Table.from_pylist(rows, schema))
                rows = []
            yield conversation, episode
        table.write_table(pa.Table.from_pylist(rows, schema))
        _write_log(folder / LOG, source, contents.of_file, of_conversations)
        summary = summarise(log.episodes.values(), max(contents.tasks.values()), title="a log")
        log.write_results(f"0:{len(contents.tasks)}", summary)


def _turns(conversation: LogConversation, episode: Episode, weight: float | None) -> Iterator[dict[str, Any]]:
    """What forms say of each turn."""
    turns = zip(conversation.keys, episode.turns, episode.turn_rewards, strict=True)
    for number, (key, turn, reward) in enumerate(turns):
        signals = {name: signal for name, signal in turn.signals.items() if not math.isnan(signal)}
        earned = {"turn": number, "key": key, "reward": reward}
        weighed = {} if weight is None else {"weight": int(reward > weight)}
        yield {**earned, "credits": credits_of(turn), "signals": signals, **weighed}


def _row(place: str, task: str, turn: dict[str, Any]) -> dict[str, Any]:
    """A turn as a row of the table."""
    texts = dict(zip(_TEXTS, (place, task, replace_surrogates(str(turn["key"]))), strict=True))
    signals = {n if n == ADVANTAGE else f"{n}_signal": signal for n, signal in turn["signals"].items()}
    return {"turn": turn["turn"], "reward": turn["reward"], **texts, **turn["credits"], **signals}


def _write_log(
    folder: Path, source: LogFiles, forms: Mapping[Path, LogForm], turns: Mapping[str, list[dict[str, Any]]]
) -> None:
    for path, entries in itertools.groupby(source.entries(), lambda entry: entry.path):
        name, form = Path(source.names[path]), forms[path]
        if form.credited is None:
            name = name.with_name(f"{name.name}.credit.jsonl")
        else:
            name = name.with_suffix(".json" if form.document else ".jsonl")
        with whole_file(folder / name) as work, work.open("wb") as file:
            for entry in entries:
                credit = [turns[conversation.place] for conversation in entry.conversations]
                records: Iterable[Any] = itertools.chain.from_iterable(credit)
                if form.credited:
                    records = [form.credited(entry.record, credit)]
                for record in records:
                    line = json.dumps(record, ensure_ascii=False, indent=1 if form.document else None)
                    file.write(f"{line}\n".encode(errors="backslashreplace"))  # JSON's escape
