"""An episode that is being played, and what has been paid for it: the page of one environment in the book."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from memenvs.text_env import Info
from memenvs.wrappers.method import Episode


@dataclass
class Account:
    """An episode that is being played, and what has been paid for it.

    Attributes:
        observation: what the next reply answers.
        info: the environment's info that came with it.
        episode: the record so far.
        base: the environment's own reward of each turn, less the outcome where a method spends it.
        paid: for each method by name, what it paid at each turn.
        given: the info given out last.
    """

    observation: Any
    info: Info
    episode: Episode = field(default_factory=Episode)
    base: list[float] = field(default_factory=list)
    paid: dict[str, list[float]] = field(default_factory=dict)
    given: Info = field(default_factory=dict)

    def copy(self) -> Account:
        """A copy that can be played on; what is never changed (turns, infos) is shared."""
        episode = Episode(
            list(self.episode.turns),
            list(self.episode.outcomes),
            copy.deepcopy(self.episode.signals),
            copy.deepcopy(self.episode.credits),
            list(self.episode.turn_rewards),
            self.episode.error,
        )
        return Account(
            self.observation, self.info, episode, list(self.base), copy.deepcopy(self.paid), self.given
        )
