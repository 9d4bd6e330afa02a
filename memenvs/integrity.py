"""SHA-256 of data files and of the cards that describe them, checked once a process and file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SWITCH = "MEMENVS_VERIFY"
_known: dict[tuple[Any, ...], str] = {}  # a file's identity, size and time of change to its SHA-256


def verifying() -> bool:
    """Whether files are checked when they are opened; the environment variable MEMENVS_VERIFY=0 skips it.

    Raises:
        ValueError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(SWITCH, "1")
    if value not in ("0", "1"):
        raise ValueError(
            f"{SWITCH} must be 1 (check files when they are opened) or 0 (do not), got {value!r}"
        )
    return value == "1"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal; computed once a process while the file does not change."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in _known:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            _known[key] = digest.hexdigest()
    return _known[key]


def describe(path: Path) -> dict[str, Any]:
    """What a card keeps of a file: `{"bytes", "sha256"}`."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def check_file(path: Path, promised: Mapping[str, Any]) -> None:
    """Refuse a file that is not the one described; its size is checked always, its SHA-256 if `verifying`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: size or SHA-256 differ; both are named.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; build it again")
    size = path.stat().st_size
    if size != promised.get("bytes"):
        raise ValueError(f"{path} has {size} bytes, its card says {promised.get('bytes')}; build it again")
    if verifying() and (found := sha256(path)) != promised.get("sha256"):
        raise ValueError(
            f"{path} has SHA-256 {found}, its card says {promised.get('sha256')}: the file was changed or "
            f"damaged after it was built; build it again, or set {SWITCH}=0 to read it all the same"
        )


def seal(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A card's fields, and under "seal" the SHA-256 of the others."""
    return {**fields, "seal": json_sha256(fields)}


def unseal(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a card without their seal, which is checked if `verifying`.

    Raises:
        ValueError: the seal is missing, or is not that of the fields.
    """
    others = {name: value for name, value in fields.items() if name != "seal"}
    if verifying() and fields.get("seal") != json_sha256(others):
        raise ValueError(
            f"{path} was changed after it was built: its seal does not fit the rest; build it again, or set "
            f"{SWITCH}=0 to read it all the same"
        )
    return others


def json_sha256(value: Any) -> str:
    """SHA-256 of a JSON value, in hexadecimal; the order of keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
