"""`memenvs new`: an environment of your own to begin with, and its test."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path

import gymnasium as gym

import memenvs  # noqa: F401  # registers the environments
from memenvs.core.files import write_text
from memenvs.core.terminal import show

SCAFFOLD = Path(__file__).with_name("scaffold")


def new(name: str, /) -> None:
    """Write a small environment and its test into the working directory.

    NAME.py holds a complete environment, a game of guessing whose rules you replace; test_NAME.py runs the
    tests that every bundled environment passes. docs/tutorials/write_an_environment.md explains both.

    Examples:
      memenvs new hilo

    Args:
        name: the module's name, such as hilo or my_game, which becomes the id Hilo-v0 or MyGame-v0.

    Raises:
        ValueError: the name is not one of a module, or is taken by a package or an environment.
        FileExistsError: one of the files exists.
    """
    title = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    if not (name.isidentifier() and name.isascii() and title.isidentifier()) or keyword.iskeyword(name):
        raise ValueError(
            f"{name!r} cannot name a module and a class; use ASCII letters, digits and _, as in my_game"
        )
    texts = {
        Path(file.name.replace("hilo", name)): re.sub(
            "hilo|Hilo", lambda match: title if match[0] == "Hilo" else name, file.read_text("utf-8")
        )
        for file in sorted(SCAFFOLD.glob("*.py"))
    }
    for file in texts:
        if file.exists():
            raise FileExistsError(f"{file} exists and is not overwritten; move it, or choose another name")
        if file.stem in sys.modules or importlib.util.find_spec(file.stem):
            raise ValueError(f"there is a module {file.stem} already; choose another name")
    if any(spec.name == title for spec in gym.registry.values()):
        raise ValueError(f"there is an environment {title} already; choose another name")
    for file, text in texts.items():
        write_text(file, text)
    show(
        f"wrote {' and '.join(map(str, texts))}. Next:\n"
        f"  memenvs play --env {name}:{title}-v0 --policy me\n"
        f'  python -m pytest test_{name}.py    # needs the extra: pip install "memenvs[testing]"\n'
        f"  memenvs evaluate run --env {name}:{title}-v0 --policy gold --task 0:20\n"
        f"  memenvs evaluate run --env {name}:{title}-v0 --policy random_text --task 0:20\n"
        f"  memenvs train grpo --model smollm2 --env {name}:{title}-v0 --steps 1 --groups 2 "
        '--max-new-tokens 8    # needs the extra: pip install "memenvs[lm]"\n',
        wrap=False,
    )
