"""Reward methods on one Gymnasium environment: the credit of `assign_credit`, paid step by step.

`env = RewardWrapper(gym.make("MemChunkQA-v0"), [TAMTRL()], scorer="lexical")`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from memenvs.core.address import without_secrets
from memenvs.core.env import Info, TextEnv, check_text_actions, check_text_info
from memenvs.core.episode import OUTCOME, Credit, Episode, Reply, Turn
from memenvs.core.state import OVER
from memenvs.envs.render import earned_lines
from memenvs.wrappers.credit import ScoreCache, assign_credit, check_methods, credit_so_far
from memenvs.wrappers.registry import (
    MethodSpec,
    ScorerSpec,
    make_methods,
    make_scorer,
    plain_method,
    plain_scorer,
)


class RewardWrapper(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Add the components of reward methods to a text environment.

    Reward:
        The environment's, plus a component for each method, with the method's name. A reward that is known at
        its turn is paid there; a reward known only in hindsight is paid at the last turn. Then
        `info["turn_rewards"]` says what each turn was worth; both sum to the same return. A method that
        replaces the outcome sets that component to 0; `info["metrics"]["outcome"]` keeps it. If a method
        could not score, its component is NaN and the reward leaves it out.

    Info:
        As the environment's, with `signals` (each method's raw number of each turn, so far), `measured` (the
        turns, from 0, at which it measured one), `credits` (each method's `Credit`s), `error` (why a method
        that replaces the outcome gave none; otherwise empty) and, in `metrics`, `outcome` and for each method
        `NAME_unscored` (its credits without a number). Those of a method that pays at the end are empty until
        then.

    A group is one episode here: a method that compares the rollouts of a task uses statistics of earlier
    episodes (its docstring says which). `memenvs.collect` compares real groups.

    Args:
        env: a text environment, wrapped or not.
        methods: reward methods in any order, as `memenvs.wrappers.registry.make_methods` takes them.
        scorer: gives log-probabilities, as `memenvs.wrappers.registry.make_scorer` takes it; a spec can be
            rebuilt only with a name.
        template: chat template of the scorer's model, written out, with `{prompt}` where the prompt goes. By
            default the model reads the bare prompt.

    Attributes:
        episode: the record of the episode that is being played or has just ended.

    Raises:
        ValueError: no or unknown methods, no such scorer, a template without `{prompt}`, actions that are not
            texts; and at `reset`, methods that do not fit each other or the environment.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        template: str | None = None,
    ) -> None:
        self.methods = make_methods(methods)
        self.scorer = make_scorer(scorer, template)
        self._scorer_spec = scorer, template
        plain = [plain_method(method) for method in self.methods]
        RecordConstructorArgs.__init__(self, methods=plain, scorer=plain_scorer(scorer), template=template)
        gym.Wrapper.__init__(self, env)
        check_text_actions(env)
        self.replaces_outcome = any(method.replaces_outcome for method in self.methods)
        self.episode = Episode()
        self._turn = Turn("", {})  # which waits for its reply, or what the last step brought
        self._paid: dict[str, list[float]] = {}  # by each method; empty where no step may follow
        self._cache: ScoreCache = {}  # what the last turn was scored by

    def __deepcopy__(self, memo: dict[int, Any]) -> RewardWrapper:
        """A copy that shares the scorer, which may hold a model."""
        copied = object.__new__(type(self))
        memo |= {id(self): copied, id(self.scorer): self.scorer, id(self._scorer_spec): self._scorer_spec}
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: a named scorer is shared within a process, so only its name is kept."""
        return {**self.__dict__, "scorer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.scorer = make_scorer(*self._scorer_spec)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; what methods remember of earlier ones is kept."""
        self._paid = {}
        observation, info = self.env.reset(seed=seed, options=options)
        check_text_info(self, info)
        check_methods(self.methods, self.scorer, info)
        self.episode = Episode.of_reset(self.env, seed)
        self.episode.replaces_outcome = self.replaces_outcome
        self._turn = self.episode.begin(self.env, observation, info)
        self._paid = {method.name: [] for method in self.methods}
        self._cache = {}
        return observation, self.info

    def step(self, action: str) -> tuple[Any, float, bool, bool, Info]:
        """Play a reply; the reward is the environment's with what the methods pay at this turn."""
        episode, payments = self.episode, self._paid
        if not payments:
            raise gym.error.ResetNeeded("no episode, or an error interrupted its last step; call reset()")
        if episode.over:  # a limit inside may have ended what the environment would play on
            raise gym.error.ResetNeeded(OVER)
        self._paid = {}  # until this step has ended: what an error leaves half done is not continued
        result = self.env.step(action)
        observation, reward, terminated, truncated, info = result
        self._turn = episode.play(self._turn, Reply(action), result)
        # Only an ended episode can be compared; before its end there are the signals of this turn alone.
        give = assign_credit if episode.over else credit_so_far
        give([episode], self.methods, self.scorer, "raise", self._cache)
        for name, paid in payments.items():
            paid.append(self._pay(paid, episode.credits[name]))
        self._paid = payments
        replaced = info["rewards"].get(OUTCOME, 0.0) if self.replaces_outcome else 0.0
        pays = [paid[-1] for paid in payments.values() if not math.isnan(paid[-1])]
        return observation, math.fsum([float(reward) - replaced, *pays]), terminated, truncated, self.info

    def render(self) -> Any:
        """What the environment renders; a text shows this wrapper's reward, signals and credits.

        Shown are the signals of the last turn and its known credits; at the end, those of every turn.
        """
        inner = self.unwrapped
        if not self.episode.turns:
            return self.env.render()
        info = self.info
        lines = earned_lines(
            info["rewards"], info["signals"], info["credits"], info["turn_rewards"], bool(self.episode.end)
        )
        if not isinstance(inner, TextEnv):
            drawn = self.env.render()
            return "\n".join([drawn, *lines]) if isinstance(drawn, str) else drawn
        with inner.show_rewards(lines):
            return self.env.render()

    def get_memory(self) -> dict[str, Any]:
        """What the methods remember of earlier episodes, for `memenvs.get_state`."""
        return {
            "methods": without_secrets([plain_method(method) for method in self.methods]),
            "memories": [method.get_memory() for method in self.methods],
        }

    def check_memory(self, memory: Any) -> None:
        """Raise a one-line `ValueError` unless a memory is of methods with the same settings."""
        if not isinstance(memory, dict) or memory.get("methods") != self.get_memory()["methods"]:
            raise ValueError(
                f"this state is from other reward methods ({memory!s:.200}); make the wrapper with the "
                "methods of the state"
            )

    def set_memory(self, memory: dict[str, Any]) -> None:
        """Have the methods remember what a memory of `get_memory` holds."""
        for method, remembered in zip(self.methods, memory["memories"], strict=True):
            method.set_memory(remembered)

    def _pay(self, paid: Sequence[float], credits: Sequence[Credit]) -> float:
        """What a method pays at this turn: its credits as far as they are known, less what it has paid.

        NaN if it could not measure this turn, or at the end any turn.
        """
        last = len(self.episode.turns) - 1
        due = [credit for credit in credits if self.episode.over or credit.turn == last]
        if due and not any(credit.known for credit in due):
            return math.nan
        values = [credit.value for credit in credits if credit.known]
        return math.fsum([*values, *(-value for value in paid if not math.isnan(value))])

    @property
    def info(self) -> Info:
        """The environment's last info with the methods' parts; always the same keys."""
        episode, info = self.episode, self._turn.before
        nothing: dict[str, Any] = {method.name: [] for method in self.methods}
        replaced = {OUTCOME: 0.0} if self.replaces_outcome and OUTCOME in info["rewards"] else {}
        unscored = {f"{name}_unscored": 0.0 for name in nothing}
        pays = {name: (paid or [0.0])[-1] for name, paid in self._paid.items()}
        return {
            **info,
            "rewards": {**info["rewards"], **pays, **replaced},
            "turn_rewards": episode.turn_rewards,
            "error": episode.error,
            "metrics": {OUTCOME: 0.0, **info["metrics"], **unscored, **episode.metrics},
            "signals": {**info.get("signals", {}), **nothing, **episode.signals},
            "measured": {
                **info.get("measured", {}),
                **{name: list(episode.measured.get(name, ())) for name in nothing},
            },
            "credits": {**info.get("credits", {}), **nothing, **episode.credits},
        }
