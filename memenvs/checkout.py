"""Say what is wrong with a checkout whose symbolic links became files; imported before anything else."""

from __future__ import annotations

from pathlib import Path

LINKS = ("baselines", "data", "wrappers")


def check_links(package: Path) -> None:
    """Refuse a package in which a link to the folder beside it is a file, as git leaves it without links.

    Raises:
        ImportError: with the mend.
    """
    for name in LINKS:
        if (package / name).is_file():
            raise ImportError(
                f"memenvs/{name} is a file and should be a symbolic link to ../{name}: run `git config "
                "core.symlinks true` and `git checkout -- memenvs` in the clone (Windows: in developer mode)"
            )


check_links(Path(__file__).parent)
