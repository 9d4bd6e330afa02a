"""Import a library that only some users need, or say which extra brings it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any


class Lazy:
    """A library that is imported, by `require`, when something of it is first used.

    Args:
        module: its name.
        extra: what brings it.
    """

    def __init__(self, module: str, extra: str) -> None:
        self._module, self._extra = module, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(require(self._module, self._extra), name)


def require(module: str, extra: str) -> Any:
    """Import a module where it is used.

    Going through `importlib` also keeps heavy libraries out of the static import graph.

    Raises:
        ImportError: it is not installed; the message names the extra to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}; install it with `{install_line(extra)}`") from error


def install_line(extra: str) -> str:
    """The command that adds an extra, from where memenvs itself came: a clone, an address or an index."""
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").is_file():
        return f'pip install -e "{"." if Path.cwd() == root else root}[{extra}]"'
    from importlib import metadata  # it loads email and csv, which only this line needs

    try:
        recorded = metadata.distribution("memenvs").read_text("direct_url.json")  # PEP 610
    except metadata.PackageNotFoundError:
        recorded = None
    url = _url(json.loads(recorded)) if recorded else ""
    return f'pip install "memenvs[{extra}]{url}"'


def _url(recorded: dict[str, Any]) -> str:
    """What stands behind a requirement that came from an address."""
    version = recorded.get("vcs_info")
    if version is None:
        return f" @ {recorded['url']}"
    return f" @ {version['vcs']}+{recorded['url']}@{version['commit_id']}"
