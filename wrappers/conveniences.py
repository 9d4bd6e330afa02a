"""One method on one environment: `TAMTRL(env, scorer)` is `RewardWrapper(env, ["TAMTRL"], scorer)`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from memenvs.wrappers.registry import ScorerSpec, make_methods, plain_method, plain_scorer
from memenvs.wrappers.reward_wrapper import RewardWrapper


class _Scored(RewardWrapper):
    """A method that asks a scorer."""

    method: str

    def __init__(
        self, env: gym.Env[Any, Any], scorer: ScorerSpec, template: str | None = None, **settings: Any
    ) -> None:
        made = make_methods([[self.method, settings]])
        RecordConstructorArgs.__init__(
            self, scorer=plain_scorer(scorer), template=template, **plain_method(made[0])[1]
        )
        super().__init__(env, made, scorer, template)


class _Unscored(RewardWrapper):
    """A method that needs no scorer."""

    method: str

    def __init__(self, env: gym.Env[Any, Any], **settings: Any) -> None:
        made = make_methods([[self.method, settings]])
        RecordConstructorArgs.__init__(self, **plain_method(made[0])[1])
        super().__init__(env, made)


class TAMTRL(_Scored):
    """Spend the outcome over the turns by a teacher's view of each memory; settings of `TAMTRLMethod`."""

    method = "TAMTRL"


class InfoMem(_Scored):
    """Reward the final memory's information about the answer; settings of `InfoMemMethod`."""

    method = "InfoMem"


class MemPO(_Scored):
    """Give the tokens of each memory an advantage of their own; settings of `MemPOMethod`."""

    method = "MemPO"


class SearchRewards(_Unscored):
    """Reward what each turn of a search did; settings of `SearchRewardsMethod`."""

    method = "SearchRewards"


class ToolRewards(_Unscored):
    """Reward a tool call and the answer; settings of `ToolRewardsMethod`."""

    method = "ToolRewards"


class Judge(_Unscored):
    """Reward by a judge model's scores; settings of `JudgeMethod`."""

    method = "Judge"
