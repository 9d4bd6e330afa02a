"""Who looks at a vector environment before it is told, and what passes between the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from memenvs.text_env import End, Info


class Played(NamedTuple):
    """A step of one environment.

    Attributes:
        number: of the environment.
        action: the reply as it was given.
        observation: what came back.
        reward: of the step.
        end: how the episode ended; empty while it runs.
        info: what came back.
    """

    number: int
    action: str
    observation: Any
    reward: float
    end: End
    info: Info


class Told(NamedTuple):
    """What a watcher makes of a step.

    Attributes:
        reward: to give out.
        info: to give out.
        fails: the episode cannot go on; it ends as truncated, unless the step ended it anyway.
    """

    reward: float
    info: Info
    fails: bool = False


class Watcher(Protocol):
    """Sees what happens in a vector environment before it is told, and may tell it otherwise."""

    def seed(self, index: int) -> int | None:
        """The seed of an episode that begins by itself; None goes on with the environment's generator."""
        ...

    def began(self, index: int, observation: Any, info: Info) -> Info:
        """An episode began, or failed to (`info["error"]`); returns the info to give out."""
        ...

    def played(self, steps: Sequence[Played]) -> dict[int, Told]:
        """Environments played; returns what to give out, also of some that did not play."""
        ...
