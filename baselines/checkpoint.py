"""What a run writes: checkpoints to resume from, and the log of its steps."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from safetensors.torch import load_file, save_file
from torch.optim import Optimizer

from memenvs.baselines.optimizer import MASTER, optimizer_masters
from memenvs.core.data import Step, Whole, decode
from memenvs.core.episode_file import EPISODES
from memenvs.core.errors import error_line
from memenvs.core.files import (
    LOG,
    damage_in_one_line,
    path_in_errors,
    read_json,
    whole_folder,
    whole_lines,
    write_json,
    write_text,
)
from memenvs.core.terminal import say, show
from memenvs.core.trackers import TrackerName, Trackers
from memenvs.models.hf import HFPolicy

_FIX = "delete the folder to resume from the checkpoint before it"


class Checkpoints:
    """Checkpoints of a run: folders `checkpoints/step-N`, with links `last` and `best` to two of them.

    Args:
        folder: the run's folder.
        keep: number of recent ones to keep besides the best, at least 1.
    """

    def __init__(self, folder: Path, keep: int = 1) -> None:
        self._folder, self._keep = folder, keep

    @property
    def newest(self) -> Path | None:
        """The checkpoint with the most steps; None if there is none."""
        steps = self._steps()
        return self._at(steps[-1]) if steps else None

    def save(
        self,
        models: Mapping[str, HFPolicy],
        optimizer: Optimizer,
        step: int,
        args: dict[str, Any],
        best: dict[str, Any] | None = None,
        drawn: int = 0,
    ) -> None:
        """Write `checkpoints/step-N`, set the links `last` and `best`, and remove what is not kept.

        A write that fails, or is killed, leaves the checkpoints and the links as they were.

        Args:
            models: in training, by the names of their folders.
            optimizer: optimizer of the models.
            step: N, steps done.
            args: the run's arguments, compared when it is resumed.
            best: `step` and `value` of the best evaluation; its checkpoint is this one or in the folder.
            drawn: tasks drawn so far.
        """
        stepped = optimizer.state_dict()
        tensors = {name: master.detach() for name, master in optimizer_masters(optimizer).items()}
        tensors |= {
            f"{number}.{part}": tensor.contiguous()
            for number, parts in stepped["state"].items()
            for part, tensor in parts.items()
        }
        state = {
            "step": step,
            "args": args,
            "optimizer": {"param_groups": stepped["param_groups"]},
            "best": best,
            "drawn": drawn,
        }
        with whole_folder(self._at(step)) as fresh:
            for name, model in models.items():
                model.save(fresh / name, args)
            save_file(tensors, fresh / "optimizer.safetensors")
            write_json(fresh / "state.json", state)
        self.finish(step, best)

    def finish(self, step: int, best: dict[str, Any] | None) -> None:
        """Set the links to what `save` has written and remove what is not kept; a restart may have to."""
        self._link("last", step)
        if best:
            self._link("best", best["step"])
        kept = {*self._steps()[-self._keep :], best["step"] if best else step}
        for old in set(self._steps()) - kept:
            shutil.rmtree(self._at(old))

    @property
    def newest_args(self) -> dict[str, Any] | None:
        """The run's arguments as the newest checkpoint holds them; None if there is none."""
        return _read_state(self.newest)["args"] if self.newest else None

    def restore(self, models: Mapping[str, HFPolicy], optimizer: Optimizer) -> dict[str, Any] | None:
        """Load the newest checkpoint, if there is one, into models of the same form and their optimizer.

        Returns:
            `step`, `best` and `drawn`, as `save` was given them.

        Raises:
            ValueError: the checkpoint was made in another precision.
        """
        if (newest := self.newest) is None:
            return None
        for name, model in models.items():
            model.load_weights(newest / name)
        state = _read_state(newest)
        with damage_in_one_line(newest):
            tensors = load_file(newest / "optimizer.safetensors")
        masters = optimizer_masters(optimizer)
        if masters.keys() != {name for name in tensors if name.endswith(MASTER)}:
            now, before = ("bfloat16", "float32") if masters else ("float32", "bfloat16")
            raise ValueError(f"{newest} was computed in {before}, now {now}; resume with --dtype {before}")
        for name, master in masters.items():
            master.data.copy_(tensors.pop(name))
        loaded = {**state["optimizer"], "state": {}}
        for name, tensor in tensors.items():
            number, _, part = name.partition(".")
            loaded["state"].setdefault(int(number), {})[part] = tensor
        try:
            optimizer.load_state_dict(loaded)
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{newest}/state.json is damaged ({error_line(error)}); {_FIX}") from error
        return state

    def _at(self, step: int) -> Path:
        return self._folder / "checkpoints" / f"step-{step}"

    def _steps(self) -> list[int]:
        """The steps of the checkpoints, in order."""
        names = (path.name[5:] for path in (self._folder / "checkpoints").glob("step-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def _link(self, name: str, step: int) -> None:
        """Replace a link to a step's checkpoint in one move."""
        new = self._folder / f".{name}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(Path("checkpoints") / f"step-{step}", target_is_directory=True)
        os.replace(new, self._folder / name)


class TrainingLog:
    """Writes `log.jsonl`, sends the same numbers to trackers, and writes lines to the error stream.

    Args:
        folder: the run's folder.
        step: steps of the checkpoint that the run resumes from; lines of later steps are dropped.
        quiet: write nothing at all (a process that is not the first).
        track: names of trackers.
        config: the run's arguments, for the trackers.

    Raises:
        TrackerError: a tracker cannot begin.
    """

    def __init__(
        self,
        folder: Path,
        step: int = 0,
        quiet: bool = False,
        track: Sequence[TrackerName] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._quiet, self._file = quiet, folder / LOG
        if quiet:
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_text(self._file, "".join(lines_until(self._file, step)))
        if (folder / EPISODES).exists():
            write_text(folder / EPISODES, "".join(lines_until(folder / EPISODES, step)))
        self._trackers = Trackers(track, folder, config or {}, step, self.show)

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Write the metrics of a step, by name and with six digits, to the file and to the trackers."""
        if self._quiet:
            return
        rounded = {name: float(f"{value:.6g}") for name, value in metrics.items()}
        line = {"step": step, "time": round(time.time(), 3), **rounded}
        with path_in_errors(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._trackers.log(step, rounded)

    def show(self, line: str, is_warning: bool = False) -> None:
        """Write a line to the error stream; `--quiet` leaves the warnings."""
        if not self._quiet:
            show(f"{line}\n", sys.stderr) if is_warning else say(line)

    def close(self, failed: bool = False) -> None:
        """End the trackers' runs; `failed` where an error ended the training."""
        if not self._quiet:
            self._trackers.close(failed)


def lines_until(file: Path, step: float = math.inf) -> list[str]:
    """The lines of a log up to a step; an unfinished last line is dropped."""
    lines = whole_lines(file) if file.exists() else ()
    return [line.decode() for place, line in lines if decode(line, _Row, place).step <= step]


class _Row(msgspec.Struct):
    step: Step


class _State(msgspec.Struct):
    step: Whole
    args: dict[str, Any]
    optimizer: dict[str, Any]
    best: dict[str, float] | None
    drawn: Whole


def _read_state(checkpoint: Path) -> dict[str, Any]:
    return read_json(checkpoint / "state.json", _FIX, _State)
