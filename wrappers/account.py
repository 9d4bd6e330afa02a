"""Reward state of one environment: the episode that is being played, and what has been paid for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from memenvs.state import State
from memenvs.text_env import End, Info
from memenvs.wrappers.method import Credit, Episode, Turn

_TOLD = {"task": str, "turn": int, "rewards": dict, "turn_rewards": list, "metrics": dict}
"""What every info tells that an account is kept by."""


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


@dataclass
class AccountState:
    """An account in a state: each observation and info once, and of the info given out what is its own.

    Attributes:
        observations: (K + 1) what was shown, from the first on.
        infos: (K + 1) the environment's infos that came with them.
        actions: (K) the replies between them.
        end: how the episode ended.
        error: see `Episode`, as `outcomes`, `signals`, `credits` and `turn_rewards`.
        base: see `Account`, as `paid`.
        rewards: of the info given out last.
        metrics: of it.
    """

    observations: list[Any]
    infos: list[dict[str, Any]]
    actions: list[str]
    end: End
    error: str
    outcomes: list[float]
    signals: dict[str, list[float]]
    credits: dict[str, list[Credit]]
    turn_rewards: list[float]
    base: list[float]
    paid: dict[str, list[float]]
    rewards: dict[str, float]
    metrics: dict[str, float]

    @classmethod
    def of(cls, account: Account) -> AccountState:
        """The state of an account."""
        episode = account.episode
        turns = episode.turns
        return cls(
            observations=[*(turn.observation for turn in turns), account.observation],
            infos=[*(turn.before for turn in turns), account.info],
            actions=[turn.action for turn in turns],
            end=turns[-1].end if turns else "",
            error=episode.error,
            outcomes=episode.outcomes,
            signals=episode.signals,
            credits=episode.credits,
            turn_rewards=episode.turn_rewards,
            base=account.base,
            paid=account.paid,
            rewards=account.given["rewards"],
            metrics=account.given["metrics"],
        )

    def check(self, names: list[str], inner: State | None) -> None:
        """Raise a one-line `ValueError` for what no account of these methods can be.

        Args:
            names: of the methods.
            inner: the state of the environment; None where its last reset failed.
        """
        turns = len(self.actions)
        per_turn = [self.outcomes, self.turn_rewards, self.base, *self.signals.values(), *self.paid.values()]
        credits = [credit for some in self.credits.values() for credit in some]
        shown = len(self.observations), len(self.infos)
        played = _turns_played(inner)
        wrong = {
            f"{turns} replies to {shown[0]} observations and {shown[1]} infos": shown != (turns + 1,) * 2,
            f"an info without its {', '.join(_TOLD)}": any(
                not isinstance(info.get(name), kind) for info in self.infos for name, kind in _TOLD.items()
            ),
            f"{turns} turns, and lists of another length": any(len(some) != turns for some in per_turn),
            "other methods": any(set(of) != set(names) for of in (self.signals, self.credits, self.paid)),
            f"a credit of none of its {turns} turns": not all(0 <= c.turn < turns for c in credits),
            "an end before the first turn": bool(self.end) and not turns,
            f"another turn than its environment's {played}": bool(self.infos)
            and not self.error
            and played not in (None, self.infos[-1].get("turn")),
        }
        for what, cannot_be in wrong.items():
            if cannot_be:
                raise ValueError(f"the state's account cannot be: it has {what}")

    def account(self) -> Account:
        """The account that goes on from here, without the info given out last."""
        shown = list(zip(self.observations, self.infos, strict=True))
        turns = [
            Turn(observation, action, before, next_observation, info)
            for ((observation, before), (next_observation, info)), action in zip(
                pairwise(shown), self.actions, strict=True
            )
        ]
        if turns:
            turns[-1] = turns[-1]._replace(end=self.end)
        episode = Episode(turns, self.outcomes, self.signals, self.credits, self.turn_rewards, self.error)
        return Account(*shown[-1], episode, self.base, self.paid)


def _turns_played(state: Any) -> Any:
    """Turns of the text environment that a state is of, inside any wrappers; None where it does not say."""
    while isinstance(state, dict) and "inner" in state:
        state = state["inner"]
    episode = state.get("episode") if isinstance(state, dict) else None
    return episode.get("turn") if isinstance(episode, dict) else None
