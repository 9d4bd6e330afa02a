"""The log of a training run: JSON Lines, TensorBoard's files and lines on the error stream."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from memenvs.extras import require
from memenvs.files import naming, write_text


class Journal:
    """Writes `log.jsonl`, TensorBoard's files in `tensorboard/`, and lines to the error stream.

    Args:
        folder: of the run.
        step: steps that a checkpoint holds; later lines, of a run that died behind it, are dropped.
        quiet: write nothing at all (a process that is not the first).
    """

    def __init__(self, folder: Path, step: int = 0, quiet: bool = False) -> None:
        self._quiet, self._file = quiet, folder / "log.jsonl"
        if quiet:
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_text(self._file, "".join(_lines_until(self._file, step)))
        board = require("torch.utils.tensorboard", "train")
        self._board = board.SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Write the numbers of a step, by name, to the files."""
        if self._quiet:
            return
        line = {"step": step, "time": round(time.time(), 3), **{k: _rounded(v) for k, v in numbers.items()}}
        with naming(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)

    def show(self, line: str) -> None:
        """Write a line to the error stream."""
        if not self._quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Flush everything."""
        if not self._quiet:
            self._board.close()


def _lines_until(file: Path, step: int) -> list[str]:
    """The lines of steps up to `step`; a torn last line is dropped."""
    kept = []
    for line in file.read_text().splitlines(keepends=True) if file.exists() else ():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except ValueError:
            continue
    return kept


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
