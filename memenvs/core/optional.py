"""Optional dependencies: an import that fails names the extra to install."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memenvs.core.errors import unknown_name


class Lazy:
    """A library that `require` imports at its first use.

    Args:
        module: its name.
        extra: the extra that installs it.
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


def lazy_names(package: str, **places: tuple[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, which imports the modules of some names when these are first read.

    Args:
        package: its `__name__`.
        **places: by name, the module that defines it, and the extra that this module needs (empty: none).
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, extra = places[name]
        return getattr(require(module, extra) if extra else importlib.import_module(module), name)

    return find


def import_named(module: str) -> Any:
    """Import a module that a user names; the working directory is searched last, and not by `python -P`."""
    is_safe = getattr(sys.flags, "safe_path", os.environ.get("PYTHONSAFEPATH"))  # a flag since Python 3.11
    if not (is_safe or module.startswith("memenvs") or "" in sys.path):
        sys.path.append("")
    return importlib.import_module(module)


def import_object(place: str) -> Any:
    """What a user names by `module:Name`: a method, a scorer, a teacher.

    Raises:
        ValueError: it does not exist.
    """
    module, _, name = place.partition(":")
    try:
        return getattr(import_named(module), name)
    except ImportError as error:
        raise ValueError(
            f"there is no {place!r}: {error}; give module:Name of what can be imported"
        ) from error
    except AttributeError as error:
        functions = [other for other, value in vars(sys.modules[module]).items() if callable(value)]
        raise ValueError(unknown_name(f"{module} has no", name, functions)) from error


def install_line(extra: str) -> str:
    """The command that adds an extra."""
    is_clone, place = own_requirement(extra)
    if is_clone:
        return f'pip install -e "{place.replace(f"{Path.cwd()}[", ".[")}"'
    return f'pip install "{place}"'


def own_requirement(extras: str) -> tuple[bool, str]:
    """Whether this package is a clone, and the package with extras from there, an address or an index."""
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return True, f"{root}[{extras}]"
    from importlib import metadata  # slow: it loads email

    try:
        recorded = metadata.distribution("memenvs").read_text("direct_url.json")  # PEP 610
    except metadata.PackageNotFoundError:
        recorded = None
    address = ""
    if recorded:
        origin = json.loads(recorded)
        vcs = origin.get("vcs_info")
        url = f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else origin["url"]
        address = f" @ {url}"
    return False, f"memenvs[{extras}]{address}"


def check_version(package: str, low: str, below: str, extra: str) -> None:
    """Refuse a trainer older than `low`, and warn about one that is newer than those that were tested.

    A pre-release counts as its release: 1.17.0rc1 is 1.17.0.

    Args:
        package: the trainer's name on the package index.
        low: the first version that works.
        below: the first version above it that was not tested.
        extra: the extra of memenvs that installs a supported version.

    Raises:
        ImportError: the trainer is missing or older; the message names the extra.
    """
    from importlib import metadata  # slow: it loads email

    fix = f"install it with `{install_line(extra)}`"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{package} is not installed; {fix}") from None
    if _release(version) < _release(low):
        raise ImportError(f"{package} {version} is too old, memenvs needs {low} or later; {fix}")
    if _release(version) >= _release(below):
        warnings.warn(
            f"{package} {version} is newer than what memenvs was tested with; "
            f"if something fails, `pip install '{package}<{below}'`",
            stacklevel=3,
        )


def check_hooks(owner: object, names: Sequence[str], package: str) -> None:
    """Refuse a trainer that lacks methods which an adapter overrides, since it would never call them.

    Args:
        owner: the trainer's class, or `super()` of a mixin.
        names: of the methods.
        package: the trainer's name on the package index.

    Raises:
        ImportError: with the first missing name.
    """
    if missing := [name for name in names if not hasattr(owner, name)]:
        raise ImportError(
            f"this version of {package} has no method {missing[0]}, which memenvs overrides; "
            "docs/trainers.md names the versions that were tested"
        )


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version, without zeros at its end: (1, 16) of "1.16.0rc1"."""
    release = re.match(r"\d+(?:\.\d+)*", text)
    numbers = [int(part) for part in release.group().split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
