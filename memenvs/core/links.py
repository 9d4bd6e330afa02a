"""The links of a checkout, which are checked before anything is imported. setup.py runs this file alone."""

from __future__ import annotations

from pathlib import Path


def check_links(package: Path) -> None:
    """Refuse a package whose links to the folders beside it git or an archiver has not made.

    Raises:
        ImportError: the message says how to fix it.
    """
    broken = [name for name in ("baselines", "data", "wrappers") if not (package / name).is_dir()]
    if broken:
        fix = f"delete what is there and copy {', '.join(broken)} from beside memenvs into memenvs"
        if (package.parent / ".git").exists():
            fix = "run `git config core.symlinks true` and `git checkout -- memenvs`"
        links = " and ".join(f"memenvs/{name}" for name in broken)
        raise ImportError(f"{links} must be a link to the folder beside memenvs, or a copy of it: {fix}")
