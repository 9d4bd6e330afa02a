"""What a run writes: checkpoints to resume from, and the log of its steps."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memenvs.baselines.update import optimizer_masters
from memenvs.core.checks import error_line
from memenvs.core.files import (
    damage_in_one_line,
    path_in_errors,
    read_json,
    whole_folder,
    write_json,
    write_text,
)
from memenvs.core.optional import require
from memenvs.core.state import State
from memenvs.core.trackers import TrackedRun, TrackerName, Trackers

if TYPE_CHECKING:
    from memenvs.models import HFPolicy

LOG, EPISODES = "log.jsonl", "episodes.jsonl"
MASTER = ".master"  # behind a parameter's number: the name of its master weight in a checkpoint


class BestEvaluation(NamedTuple):
    """The best evaluation of a run so far.

    Attributes:
        step: at which it was; the earliest of equal ones (InfoMem appendix C.5).
        value: its success.
        measured: number of episodes and arguments of the environment; an evaluation with others is not
            compared with it.
    """

    step: int
    value: float
    measured: list[Any]


class Checkpoints:
    """Checkpoints of a run: folders `checkpoints/step-N`, with links `last` and `best` to two of them.

    Args:
        folder: of the run.
        keep: number of recent ones to keep besides the best, at least 1.

    Raises:
        ValueError: `last` or `best` is not a link, so that no checkpoint could be saved.
    """

    def __init__(self, folder: Path, keep: int = 1) -> None:
        self._folder, self._keep = folder, keep
        for name in ("last", "best"):
            if (folder / name).exists() and not (folder / name).is_symlink():
                raise ValueError(
                    f"{folder / name} is not a link to a checkpoint; move it away, or give another --out"
                )

    @property
    def newest(self) -> Path | None:
        """The checkpoint with the most steps; None if there is none."""
        steps = self._steps()
        return self._at(steps[-1]) if steps else None

    def save(
        self,
        models: Mapping[str, HFPolicy],
        optimizer: Any,
        step: int,
        args: dict[str, Any],
        best: BestEvaluation | None = None,
        curriculum: State | None = None,
    ) -> None:
        """Write `checkpoints/step-N`, set the links `last` and `best`, and remove what is not kept.

        A write that fails, or is killed, leaves the checkpoints and the links as they were.

        Args:
            models: in training, by the names of their folders.
            optimizer: of the models.
            step: N, steps done.
            args: of the run, compared when it is resumed.
            best: the best evaluation; its checkpoint is this one, or already in the folder.
            curriculum: its state.
        """
        stepped = optimizer.state_dict()
        tensors = {name: master.detach() for name, master in _masters(optimizer).items()}
        tensors |= {
            f"{number}.{part}": tensor.contiguous()
            for number, parts in stepped["state"].items()
            for part, tensor in parts.items()
        }
        state = {
            "step": step,
            "args": args,
            "optimizer": {"param_groups": stepped["param_groups"]},
            "best": best and best._asdict(),
            "curriculum": curriculum,
        }
        with whole_folder(self._at(step)) as fresh:
            for name, model in models.items():
                model.save(fresh / name)
            require("safetensors.torch", "train").save_file(tensors, fresh / "optimizer.safetensors")
            write_json(fresh / "state.json", state)
        self._link("last", step)
        self._link("best", best.step if best else None)
        kept = {*self._steps()[-self._keep :], best.step if best else step}
        for old in set(self._steps()) - kept:
            shutil.rmtree(self._at(old))

    def differences(self, args: dict[str, Any], free: Collection[str]) -> list[str]:
        """Which arguments differ from those of the newest checkpoint, apart from the free ones."""
        if self.newest is None:
            return []
        before = self._state(self.newest)["args"]
        return [
            f"{name} {before.get(name)!r}, now {value!r}"
            for name, value in args.items()
            if name not in free and before.get(name) != value
        ]

    def restore(self, models: Mapping[str, HFPolicy], optimizer: Any) -> dict[str, Any]:
        """Load the newest checkpoint into models of the same form and their optimizer.

        Returns:
            `step`, `best` and `curriculum`, as `save` was given them.

        Raises:
            ValueError: the checkpoint was made in another precision.
        """
        if self.newest is None:
            raise FileNotFoundError(f"{self._folder} holds no checkpoint")
        for name, model in models.items():
            model.load_weights(self.newest / name)
        state = self._state(self.newest)
        with damage_in_one_line(self.newest):
            tensors = require("safetensors.torch", "train").load_file(self.newest / "optimizer.safetensors")
        masters = _masters(optimizer)
        if masters.keys() != {name for name in tensors if name.endswith(MASTER)}:
            this, other = ("bfloat16", "float32") if masters else ("float32", "bfloat16")
            raise ValueError(
                f"{self.newest} was computed in {other}, now {this}; resume with --dtype {other}"
            )
        for name, master in masters.items():
            master.data.copy_(tensors.pop(name))
        loaded = {**state["optimizer"], "state": {}}
        for name, tensor in tensors.items():
            number, _, part = name.partition(".")
            loaded["state"].setdefault(int(number), {})[part] = tensor
        optimizer.load_state_dict(loaded)
        return {**state, "best": BestEvaluation(**state["best"]) if state["best"] else None}

    def _state(self, checkpoint: Path) -> dict[str, Any]:
        advice = f"delete {checkpoint} to resume from the checkpoint before it, or give another --out"
        return read_json(checkpoint / "state.json", advice)

    def _at(self, step: int) -> Path:
        return self._folder / "checkpoints" / f"step-{step}"

    def _steps(self) -> list[int]:
        """The steps of the checkpoints, in order."""
        names = (path.name for path in (self._folder / "checkpoints").glob("step-*"))
        return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))

    def _link(self, name: str, step: int | None) -> None:
        """Replace a link to a step's checkpoint in one move, or remove it."""
        link = self._folder / name
        if step is None:
            link.unlink(missing_ok=True)
            return
        new = link.with_name(f".{name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(Path("checkpoints") / f"step-{step}", target_is_directory=True)
        os.replace(new, link)


class TrainingLog:
    """Writes `log.jsonl`, sends the same numbers to trackers, and writes lines to the error stream.

    Args:
        folder: of the run.
        step: steps of the checkpoint that the run resumes from; lines of later steps are dropped.
        quiet: write nothing at all (a process that is not the first).
        track: names of trackers, see `memenvs.core.trackers`.
        config: the run's arguments, for the trackers.

    Raises:
        ImportError: a tracker's client is not installed.
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
        self._trackers = Trackers(track, TrackedRun(folder, config or {}, step), self.show)

    @property
    def newest(self) -> dict[str, float]:
        """The last line of the file; nothing in a process that is not the first."""
        lines = [] if self._quiet else lines_until(self._file)
        return dict(json.loads(lines[-1])) if lines else {}

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Write the metrics of a step, by name and with six digits, to the file and to the trackers."""
        if self._quiet:
            return
        line = {"step": step, "time": round(time.time(), 3), **_rounded(metrics)}
        with path_in_errors(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._trackers.log(step, _rounded(metrics))

    def amend(self, step: int, metrics: dict[str, float]) -> None:
        """Add metrics to the line of the last step."""
        if self._quiet:
            return
        last = json.dumps({**self.newest, **_rounded(metrics)})
        write_text(self._file, "".join([*lines_until(self._file, step - 1), f"{last}\n"]))
        self._trackers.log(step, _rounded(metrics))

    def show(self, line: str) -> None:
        """Write a line to the error stream."""
        if not self._quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def close(self, failed: bool = False) -> None:
        """End the trackers' runs; `failed` where an error ended the training."""
        if not self._quiet:
            self._trackers.close(failed)


def lines_until(file: Path, step: float = math.inf) -> list[str]:
    """The lines of a log up to a step; an unfinished last line is dropped.

    Raises:
        ValueError: a line is not a JSON object with a step.
    """
    kept = []
    raw = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    for number, line in enumerate(raw, 1):
        try:
            text = line.decode("utf-8")
            if json.loads(text)["step"] <= step:
                kept.append(f"{text}\n")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"{file}:{number} is not a line of a run ({error_line(error)}); remove the line"
            ) from error
    return kept


def _masters(optimizer: Any) -> dict[str, Any]:
    """The optimizer's master weights, by their names in a checkpoint; see `make_optimizer`."""
    return {f"{i}{MASTER}": weight for i, weight in optimizer_masters(optimizer).items()}


def _rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in metrics.items()}
