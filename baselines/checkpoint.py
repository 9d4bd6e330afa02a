"""A policy and its optimizer go to a folder, whole or not at all, and come back bit for bit."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memenvs.extras import require
from memenvs.whole_folder import whole_folder

if TYPE_CHECKING:
    from memenvs.baselines.hf_policy import HFPolicy

LAST = "last"


def save(folder: Path, policy: HFPolicy, optimizer: Any, step: int, args: dict[str, Any]) -> None:
    """Write a checkpoint to `folder/last`, in place of the one before, which stays if writing fails."""
    tensors, numbers = _flat(optimizer.state_dict())
    state = {"step": step, "args": args, "optimizer": numbers}
    with whole_folder(folder / LAST) as fresh:
        policy.save(fresh / "policy")
        require("safetensors.torch", "train").save_file(tensors, fresh / "optimizer.safetensors")
        (fresh / "state.json").write_text(json.dumps(state, indent=1, default=str) + "\n")


def find(folder: Path) -> Path | None:
    """The checkpoint to go on from; None if there is none."""
    return folder / LAST if (folder / LAST / "state.json").exists() else None


def differences(checkpoint: Path, args: dict[str, Any], free: Collection[str]) -> list[str]:
    """Which arguments, beside the free ones, are not those that the checkpoint was made with."""
    before = json.loads((checkpoint / "state.json").read_text())["args"]
    now = json.loads(json.dumps(args, default=str))
    return [
        f"{name} {before.get(name)!r}, now {now[name]!r}"
        for name in now
        if name not in free and before.get(name) != now[name]
    ]


def restore(checkpoint: Path, policy: HFPolicy, optimizer: Any) -> int:
    """Load a checkpoint into a policy of the same form and its optimizer; the steps done."""
    policy.load_weights(checkpoint / "policy")
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
    tensors = require("safetensors.torch", "train").load_file(checkpoint / "optimizer.safetensors")
    loaded = state["optimizer"]
    loaded["state"] = {}
    for name, tensor in tensors.items():
        number, _, part = name.partition(".")
        loaded["state"].setdefault(int(number), {})[part] = tensor
    optimizer.load_state_dict(loaded)
    return int(state["step"])


def _flat(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An optimizer's state as named tensors, and the rest of it as plain data."""
    tensors = {
        f"{number}.{part}": tensor.contiguous()
        for number, parts in state["state"].items()
        for part, tensor in parts.items()
    }
    return tensors, {"param_groups": state["param_groups"]}
