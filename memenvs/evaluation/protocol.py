"""What flows between the episodes of an evaluation and the policy that plays them all."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from memenvs.text_env import Info


class Ask(NamedTuple):
    """A turn that waits for a reply.

    Attributes:
        seat: number of the environment that the episode is played in.
        observation: to be read.
        info: that came with it.
        rng: the episode's own; whatever its policy draws comes from it.
    """

    seat: int
    observation: str
    info: Info
    rng: np.random.Generator

    @property
    def first(self) -> bool:
        """Whether an episode begins."""
        return self.info["turn"] == 0


class Answer(NamedTuple):
    """A reply.

    Attributes:
        seat: of the turn that it answers.
        text: of the reply.
        prompt_tokens: that the model read; None where nobody counts.
        reply_tokens: that it wrote; likewise.
        cut: whether the reply ended at the limit of its tokens; None where nobody knows.
        error: why there is no reply; its episode has failed.
    """

    seat: int
    text: str = ""
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    cut: bool | None = None
    error: str = ""


class BatchPolicy(Protocol):
    """Plays many episodes at once; a seat waits for at most one reply at a time."""

    def ask(self, asked: Ask) -> None:
        """Take a turn; its reply may be sought at once or with those asked for after it."""
        ...

    def answered(self) -> list[Answer]:
        """Replies that are ready, at least one where any turn waits."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...
