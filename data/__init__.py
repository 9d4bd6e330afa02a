"""What ships with memenvs: a generated world, its tokenizer and task sets, found by name."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def bundled(name: str) -> Path:
    """The path of a bundled file or folder.

    Raises:
        FileNotFoundError: nothing of that name ships.
    """
    path = _HERE / name
    if not path.exists():
        raise FileNotFoundError(f"memenvs ships no {name!r}; it ships {', '.join(bundled_names())}")
    return path


def bundled_names() -> list[str]:
    """Names of what ships, sorted."""
    return sorted(path.name for path in _HERE.iterdir() if path.name[0] not in "_." and path.suffix != ".md")


if __name__ == "data":
    raise ImportError("import memenvs.data: the folder data is that package, by a link in memenvs")
