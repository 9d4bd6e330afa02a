"""The host of one environment: any list of methods in, their components beside the environment's own out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

import memenvs
from memenvs.state import State, check_keys, from_plain, to_plain
from memenvs.text_env import End, Info
from memenvs.wrappers.account import Account, AccountState
from memenvs.wrappers.asking import ask_all, score_all
from memenvs.wrappers.bookkeeper import Bookkeeper
from memenvs.wrappers.method import Episode
from memenvs.wrappers.registry import (
    MethodSpec,
    ScorerSpec,
    make_methods,
    make_scorer,
    plain_method,
    plain_scorer,
)
from memenvs.wrappers.rendering import prompt_renderer
from memenvs.wrappers.vector_host import VectorRewardWrapper

__all__ = ["RewardWrapper", "VectorRewardWrapper"]


class RewardWrapper(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Add the components of reward methods to a text environment.

    Reward:
        The environment's, and of each method a component of its name. What a method knows at its turn is paid
        there; what it knows only in hindsight is paid at the last turn. At the last turn
        `info["turn_rewards"]` says what each turn was worth; the two sums are equal. A method that spends the
        outcome sets that component to 0; `info["metrics"]["outcome"]` keeps it. A component whose method
        could not score is NaN; the reward leaves it out.

    Info:
        As the environment's, with `signals` (each method's raw number at this turn), `credits` (each method's
        `Credit`s; empty until the end) and, in `metrics`, `outcome` and for each method `NAME_unscored` (its
        credits without a number).

    Alone, a method that compares the rollouts of a task falls back to statistics of earlier episodes (its
    docstring says which); they are part of the state. `VectorRewardWrapper` compares real groups.

    Args:
        env: a text environment, wrapped or not.
        methods: see `memenvs.wrappers.registry.make_methods`; any order.
        scorer: see `memenvs.wrappers.registry.make_scorer`; a spec can be rebuilt only with a name.
        template: what the scorer's model is shown, `{prompt}` its place: its chat template, written out. The
            prompt as it is by default.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        template: str | None = None,
    ) -> None:
        made = make_methods(methods)
        RecordConstructorArgs.__init__(
            self,
            methods=[plain_method(method) for method in made],
            scorer=plain_scorer(scorer),
            template=template,
        )
        gym.Wrapper.__init__(self, env)
        self.scorer = make_scorer(scorer)
        self._book = Bookkeeper(made)
        self._render = prompt_renderer(template)
        self._scorer, self._template = scorer, template
        self._account: Account | None = None

    @property
    def methods(self) -> list[Any]:
        """The methods."""
        return self._book.methods

    @property
    def spends_outcome(self) -> bool:
        """Whether a method spends the outcome over the turns; R^O is then the last turn's reward."""
        return self._book.spends_outcome

    @property
    def record(self) -> Episode:
        """The record of the episode that is being played or has just ended."""
        return self._opened.episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; what methods remember of earlier ones is kept."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._account = self._book.open(observation, info)
        return observation, self._account.given

    def step(self, action: str) -> tuple[Any, float, bool, bool, Info]:
        """Play a reply and account for it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        account, book = self._opened, self._book
        end: End = "terminated" if terminated else "truncated" if truncated else ""
        turn = book.play(account, action, observation, info, end)
        (scores,) = score_all(self.scorer, ask_all(book.methods, [turn]), self._render)
        reward = book.pay(account, float(reward), scores)
        if end:
            for method in book.methods:
                (credits,) = book.compose(method, [account.episode])
                reward += book.settle(account, method.name, credits)
        return observation, reward, terminated, truncated, account.given

    def get_state(self) -> State:
        """The state of the environment, of this episode's account, and the methods with what they remember.

        Plain data that JSON gives back equal.

        Raises:
            TypeError: an observation, an info or a method holds something else; see `memenvs.state.to_plain`.
        """
        return {
            "inner": memenvs.get_state(self.env),
            "account": to_plain(AccountState.of(self._opened)),
            **self._book.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Go on from a state of a wrapper with the same methods and settings.

        Raises:
            ValueError: it is of another environment or of other methods, or nothing can come to it; nothing
                has changed then.
        """
        check_keys(state, "inner", "account")
        with self._book.restored(state):
            held = from_plain(state["account"], AccountState, "account")
            account = self._book.reopen(held, state["inner"])
            memenvs.set_state(self.env, state["inner"])
        self._account = account

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: a scorer that has a name is shared in a process and travels by it."""
        return {**self.__dict__, "scorer": None, "_render": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.scorer, self._render = make_scorer(self._scorer), prompt_renderer(self._template)

    @property
    def _opened(self) -> Account:
        if self._account is None:
            raise gym.error.ResetNeeded("no episode yet; call reset() first")
        return self._account
