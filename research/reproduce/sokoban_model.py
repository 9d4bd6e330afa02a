"""A small GPT for Sokoban: one token for each cell, each move and each fixed text around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memenvs.core.episode import Reply
from memenvs.models.small_gpt import save_small_gpt
from memenvs.rollout.collect import collect
from memenvs.rollout.policy import Request, TurnPolicy
from memenvs.sokoban import LETTERS

OPEN, BARE, CLOSE, BETWEEN = "<think></think><answer>", "<answer>", "</answer>", " || "
_BAD = (
    f"{OPEN}Up{BETWEEN}Down{CLOSE}",
    f"{OPEN}{CLOSE}",
    "",
    f"{OPEN}Up{CLOSE}.",
    f"{BARE}Up{CLOSE}",
    f"{OPEN}{'Up || ' * 4}{CLOSE}",
)


def save_sokoban_gpt(folder: Path, seed: int, **env_args: Any) -> Path:
    """Save a model for `MemSokoban-v0` with these arguments and boards of 6 by 6."""
    walls = ["######\n#", "#\n#", "#\n######"]  # the border is fixed text, so that each other cell is a token
    moves = [move for name in ("Up", "Down", "Left", "Right") for move in (name, BETWEEN + name)]
    phrases = [OPEN, BARE, CLOSE, *moves, *walls, *_fixed_texts(**env_args)]
    return save_small_gpt(folder, phrases, width=96, layers=3, window=256, spread=0.1, seed=seed)


def _fixed_texts(**env_args: Any) -> Iterator[str]:
    """The text around boards and replies, in won and lost games."""
    cells = "[" + re.escape("".join(LETTERS)) + "]"
    board = re.compile(rf"(?:^|(?<=\n)){cells}+(?:\n{cells}+)+", re.MULTILINE)

    def reply(request: Request) -> Reply:
        inner: Any = request.env.unwrapped
        seed = request.episode.seed
        return Reply(inner.gold_reply() if seed % 2 else _BAD[seed // 2 % len(_BAD)])

    for episode in collect("MemSokoban-v0", TurnPolicy(reply), range(20), env_args=env_args):
        for text in (episode.turns[0].text, *(turn.info["feedback"] for turn in episode.turns)):
            yield from board.split(text)
