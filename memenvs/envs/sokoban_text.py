"""What a Sokoban agent reads and writes: boards into prompts, replies into moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memenvs.prompts import Template
from memenvs.tags import first_pair, in_order

PROMPT = Template(
    """\
You are at a Sokoban board. Push every box onto a target. A move takes you one square up, down, left or \
right; walking into a box pushes it, if the square behind it is free. Boxes cannot be pulled, and two cannot \
be pushed at once.

Symbols: {legend}

{board}

You have {turns} turns and may make up to {actions} moves in each. Think first, then write the moves of this \
turn:
<think>…</think><answer>{example}</answer>
""",
    required=("board",),
    optional=("legend", "turns", "actions", "example"),
)

FEEDBACK = Template(
    """\

{said}The board is now:

{board}

{left}
""",
    required=("said", "board", "left"),
)

_NAMES = ("wall", "floor", "target", "box on target", "box", "you", "you on target")


class Moves(NamedTuple):
    """What a reply asks for.

    Attributes:
        actions: 0 up, 1 down, 2 left, 3 right, at most as many as a turn allows.
        well_formed: the reply is a thought and a list of moves, nothing else, every word a move.
        said: what the agent is told about its list; empty if all is well.
    """

    actions: tuple[int, ...]
    well_formed: bool
    said: str


class MoveReader:
    """Reads `<think>…</think><answer>Up || Right</answer>`.

    Letter case and spaces are forgiven, empty places too. A word that is no move ends the list. A list
    without a thought, or with text around it, is played but is not well formed. Moves beyond `most` are not
    played and are no fault.

    Args:
        names: words for up, down, left and right.
        separator: between two moves.
        most: moves a turn.
    """

    def __init__(self, names: Sequence[str], separator: str, most: int) -> None:
        self._known = {name.strip().lower(): action for action, name in enumerate(names)}
        if len(self._known) != 4 or not all(self._known) or not separator.strip():
            raise ValueError(
                f"action_names must be four different words and separator some characters, got {names!r} and "
                f"{separator!r}"
            )
        self._separator, self._most = separator, most

    def read(self, reply: str) -> Moves:
        """The moves of a reply."""
        pairs = in_order(reply, "think", "answer")
        if pairs:
            return self._listed(pairs[1].text, "")
        thought = first_pair(reply, "think")
        answer = first_pair(reply, "answer", thought.end if thought else 0)
        if answer is None:
            return Moves((), False, "There was no <answer>…</answer> with moves in your reply. ")
        moves = self._listed(
            answer.text, "Write one thought and one list of moves, and nothing beside them. "
        )
        return moves._replace(well_formed=False)

    def _listed(self, text: str, said: str) -> Moves:
        known, most = self._known, self._most
        actions: list[int] = []
        for word in text.split(self._separator):
            action = known.get(word.strip().lower())
            if action is not None:
                actions.append(action)
            elif word.strip():
                ended = f"{said}{_short(word.strip())!r} is no move, so the list ended there. "
                return Moves(tuple(actions[:most]), False, ended)
        if not actions:
            return Moves((), False, said + "Your list of moves was empty. ")
        if len(actions) > most:
            said += f"Only the first {most} moves were made. "
        return Moves(tuple(actions[:most]), True, said)


def legend(vocabulary: Sequence[str]) -> str:
    """What each symbol of a board stands for."""
    return ", ".join(f"{symbol} {name}" for symbol, name in zip(vocabulary, _NAMES, strict=True))


def turns_left(turns: int, *, solved: bool) -> str:
    """What the agent is told of the turns to come."""
    if solved:
        return "Solved."
    if turns == 0:
        return "No turns are left."
    return f"{turns} turn{'s' if turns > 1 else ''} left."


def _short(word: str) -> str:
    return word if len(word) <= 20 else word[:20] + "…"
