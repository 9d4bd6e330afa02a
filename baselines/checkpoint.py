"""Checkpoints of a run: whole folders `checkpoints/step-N`, with links to the last and the best of them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memenvs.core.files import whole_folder
from memenvs.core.optional import require

if TYPE_CHECKING:
    from memenvs.models.hf import HFPolicy

FOLDER, LAST, BEST = "checkpoints", "last", "best"


class Best(NamedTuple):
    """The best evaluation of a run so far.

    Attributes:
        step: at which it was; the earliest of equal ones (InfoMem appendix C.5).
        value: of the metric.
        measured: metric, episodes and environment of the evaluation; others begin anew.
    """

    step: int
    value: float
    measured: list[Any]


def save(
    folder: Path,
    models: Mapping[str, HFPolicy],
    optimizer: Any,
    step: int,
    args: dict[str, Any],
    *,
    best: Best | None = None,
    keep: int = 1,
) -> None:
    """Write `folder/checkpoints/step-N`, then point `folder/last` and `folder/best` to theirs.

    Of older checkpoints the last `keep` stay, this one counted, and the best. A write that fails, or is
    killed, leaves the checkpoints and the links as they were.

    Args:
        folder: of the run.
        models: in training, by the names of their folders.
        optimizer: of them.
        step: N, steps done.
        args: of the run, compared when it is resumed.
        best: the best evaluation, its checkpoint among those in the folder, or this one.
        keep: at least 1.
    """
    tensors, numbers = _flat(optimizer.state_dict())
    state = {"step": step, "args": args, "optimizer": numbers, "best": best and best._asdict()}
    with whole_folder(_at(folder, step)) as fresh:
        for name, model in models.items():
            model.save(fresh / name)
        require("safetensors.torch", "train").save_file(tensors, fresh / "optimizer.safetensors")
        (fresh / "state.json").write_text(json.dumps(state, indent=1, default=str) + "\n")
    _link(folder / LAST, step)
    _link(folder / BEST, best.step if best else None)
    kept = {*_steps(folder)[-keep:], best.step if best else step}
    for old in set(_steps(folder)) - kept:
        shutil.rmtree(_at(folder, old))


def find(folder: Path) -> Path | None:
    """The newest checkpoint of a run; None if there is none.

    Raises:
        ValueError: `folder/last` or `folder/best` is no link, so that no checkpoint could be saved.
    """
    for name in (LAST, BEST):
        if (folder / name).exists() and not (folder / name).is_symlink():
            raise ValueError(
                f"{folder / name} is not a link to a checkpoint; move it away, or give another --out"
            )
    steps = _steps(folder)
    return _at(folder, steps[-1]) if steps else None


def differences(checkpoint: Path, args: dict[str, Any], free: Collection[str]) -> list[str]:
    """Which arguments, beside the free ones, are not those that the checkpoint was made with."""
    before = json.loads((checkpoint / "state.json").read_text())["args"]
    now = json.loads(json.dumps(args, default=str))
    return [
        f"{name} {before.get(name)!r}, now {now[name]!r}"
        for name in now
        if name not in free and before.get(name) != now[name]
    ]


def restore(checkpoint: Path, models: Mapping[str, HFPolicy], optimizer: Any) -> tuple[int, Best | None]:
    """Load a checkpoint into models of the same form and their optimizer; steps done, best evaluation."""
    for name, model in models.items():
        model.load_weights(checkpoint / name)
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
    tensors = require("safetensors.torch", "train").load_file(checkpoint / "optimizer.safetensors")
    loaded = state["optimizer"]
    loaded["state"] = {}
    for name, tensor in tensors.items():
        number, _, part = name.partition(".")
        loaded["state"].setdefault(int(number), {})[part] = tensor
    optimizer.load_state_dict(loaded)
    return int(state["step"]), Best(**state["best"]) if state["best"] else None


def _at(folder: Path, step: int) -> Path:
    return folder / FOLDER / f"step-{step}"


def _steps(folder: Path) -> list[int]:
    """The steps of the checkpoints, in order."""
    found = (re.fullmatch(r"step-(\d+)", path.name) for path in (folder / FOLDER).glob("step-*"))
    return sorted(int(name[1]) for name in found if name)


def _link(link: Path, step: int | None) -> None:
    """Make a link to a step's checkpoint, in one move; without a step there is none."""
    if step is None:
        link.unlink(missing_ok=True)
        return
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(Path(FOLDER) / f"step-{step}", target_is_directory=True)
    os.replace(new, link)


def _flat(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An optimizer's state as named tensors, and the rest of it as plain data."""
    tensors = {
        f"{number}.{part}": tensor.contiguous()
        for number, parts in state["state"].items()
        for part, tensor in parts.items()
    }
    return tensors, {"param_groups": state["param_groups"]}
