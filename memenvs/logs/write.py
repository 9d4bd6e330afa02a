"""The folder of a log's credit: a run, a table of turns, and the log with the credit in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
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
from memenvs.logs.files import LogEntry, LogFiles
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import ScorerSpec, plain_method, plain_scorer

LOG, TURNS = "log", "turns.parquet"
_ROWS = 4096  # rows of the table that are written at once


class CreditFolder:
    """Writes what `credited` gives: `episodes.jsonl` and its setting, `turns.parquet`, and `log/`.

    Leaving the `with` block writes the results of the run, and the log in the form that was read, with the
    credit of each turn where that form may have it, otherwise in a file `NAME.credit.jsonl` of turns.

    Args:
        folder: does not exist yet, or is empty.
        source: the log.
        contents: its contents.
        methods: what gives the credit.
        scorer: what they asked.
        weight: in chat messages, turns that earned more than this get the weight 1 in training, others 0.

    Raises:
        ValueError: the folder is not empty.
    """

    def __init__(
        self,
        folder: Path,
        source: LogFiles,
        contents: Contents,
        methods: Sequence[RewardMethod],
        scorer: ScorerSpec,
        weight: float | None = None,
    ) -> None:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty; choose another --out")
        self._folder, self._source, self._found, self._weight = folder, source, contents, weight
        self._turns: dict[str, list[dict[str, Any]]] = {}  # by the place of a conversation
        self._open = contextlib.ExitStack()
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
        self._log = self._open.enter_context(contextlib.closing(RunLog(folder, without_secrets(setting))))
        numbers = [name for method in methods for name in (method.name, f"{method.name}_signal")]
        floats = dict.fromkeys(("reward", *numbers, ADVANTAGE), pa.float64())
        self._schema = pa.schema({**_TEXTS, "turn": pa.int32(), **floats})
        self._table = self._open.enter_context(pq.ParquetWriter(folder / TURNS, self._schema))
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> CreditFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open:
            if kind is None:
                self._write_rows()
                self._write_log()
                samples = max(self._found.tasks.values())
                summary = summarise(self._log.episodes.values(), samples, title="a log")
                self._log.write_results(f"0:{len(self._found.tasks)}", summary)

    def keep(self, conversation: LogConversation, episode: Episode) -> None:
        """Write a conversation's episode and turns."""
        self._log.keep(completed(episode))
        rewards = episode.turn_rewards
        turns = self._turns[conversation.place] = []
        for number, (key, turn) in enumerate(zip(conversation.keys, episode.turns, strict=True)):
            credits = credits_of(turn)
            signals = {name: signal for name, signal in turn.signals.items() if not math.isnan(signal)}
            earned = {"turn": number, "key": key, "reward": rewards[number]}
            weight = {} if self._weight is None else {"weight": int(rewards[number] > self._weight)}
            turns.append({**earned, "credits": credits, "signals": signals, **weight})
            texts = (conversation.place, episode.task, replace_surrogates(str(key)))
            place = dict(zip(_TEXTS, texts, strict=True))
            measured = {n if n == ADVANTAGE else f"{n}_signal": signal for n, signal in signals.items()}
            self._rows.append({**earned, **place, **credits, **measured})
        if len(self._rows) >= _ROWS:
            self._write_rows()

    def _write_rows(self) -> None:
        self._table.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows = []

    def _write_log(self) -> None:
        for path, entries in itertools.groupby(self._source.entries(), lambda entry: entry.path):
            name, form = Path(self._source.names[path]), self._found.of_file[path]
            if form.credited is None:
                name = name.with_name(f"{name.name}.credit.jsonl")
            else:
                name = name.with_suffix(".json" if form.document else ".jsonl")
            lines = (line.encode(errors="backslashreplace") for line in self._lines(entries))  # JSON's escape
            with whole_file(self._folder / LOG / name) as work, work.open("wb") as file:
                file.writelines(lines)

    def _lines(self, entries: Iterator[LogEntry]) -> Iterator[str]:
        for entry in entries:
            turns = [self._turns[conversation.place] for conversation in entry.conversations]
            if entry.form.credited is None:
                records: Any = itertools.chain.from_iterable(turns)
            else:
                records = [entry.form.credited(entry.record, turns)]
            indent = 1 if entry.form.document else None
            yield from (json.dumps(record, ensure_ascii=False, indent=indent) + "\n" for record in records)


_TEXTS = dict.fromkeys(("conversation", "task", "key"), pa.string())
