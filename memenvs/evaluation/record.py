"""One played episode as a line of JSON, both ways."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from memenvs.spaces import clean_text
from memenvs.text_env import MAX_REPLY_CHARS, Info


class Pair(NamedTuple):
    """Which episode: the `sample`-th of a task, both from 0."""

    task: int
    sample: int


@dataclass
class Record:
    """An episode that has ended, or failed.

    Attributes:
        task: number of the task.
        sample: which of the task's episodes.
        id: of the task.
        seed: of the reset, so that the replies can be played again.
        end: `"terminated"` or `"truncated"`; empty if it failed.
        error: why it failed; empty if it ended.
        turn_rewards: of each turn.
        metrics: `return`, the environment's, and what the policy counted.
        replies: of each turn.
    """

    task: int
    sample: int
    id: str
    seed: int
    end: str = ""
    error: str = ""
    turn_rewards: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)

    @property
    def pair(self) -> Pair:
        """Which episode it is."""
        return Pair(self.task, self.sample)

    def say(self, reply: str) -> None:
        """Keep a reply as the environment reads it."""
        self.replies.append(clean_text(reply, MAX_REPLY_CHARS))

    def finish(self, end: str, info: Info, counted: dict[str, float]) -> None:
        """Keep how it ended, from the last info and what the policy counted."""
        self.end, self.turn_rewards = end, [float(reward) for reward in info["turn_rewards"]]
        measured = {"return": sum(self.turn_rewards), **info["metrics"], **counted}
        self.metrics = {name: float(value) for name, value in measured.items()}

    def to_json(self) -> str:
        """The record in one line."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Record:
        """The record of a line.

        Raises:
            ValueError: it is not one.
        """
        try:
            found = cls(**json.loads(line))
            known = isinstance(found.task, int) and isinstance(found.sample, int)
            if known and all(isinstance(value, (int, float)) for value in found.metrics.values()):
                return found
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(repr(error)) from error
        raise ValueError("a number is none")
