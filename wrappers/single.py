"""Wrappers of one reward method each: `TAMTRL(env, scorer)` is `RewardWrapper(env, ["TAMTRL"], scorer)`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from memenvs.wrappers.registry import METHODS, ScorerSpec, make_methods, plain_method, plain_scorer
from memenvs.wrappers.reward_wrapper import RewardWrapper


class OneMethod(RewardWrapper):
    """A `RewardWrapper` of the method that has the class's name, with the method's settings as keywords."""

    def __init__(
        self,
        env: gym.Env[Any, Any],
        scorer: ScorerSpec = None,
        template: str | None = None,
        **settings: Any,
    ) -> None:
        name = next(kind.__name__ for kind in type(self).__mro__ if kind.__name__ in METHODS)
        made = make_methods([[name, settings]])
        _, own = plain_method(made[0])
        RecordConstructorArgs.__init__(self, scorer=plain_scorer(scorer), template=template, **own)
        super().__init__(env, made, scorer, template)


class TAMTRL(OneMethod):
    """Give each turn the outcome times a teacher's score of its memory; settings of `TAMTRLMethod`."""


class InfoMem(OneMethod):
    """Reward the final memory's information about the answer; settings of `InfoMemMethod`."""


class MemPO(OneMethod):
    """Give the tokens of each memory an advantage of their own; settings of `MemPOMethod`."""


class SearchRewards(OneMethod):
    """Reward what each turn of a search did; settings of `SearchRewardsMethod`."""


class SearchR1(OneMethod):
    """Pay Search-R1's merged reward at the end of a search; settings of `SearchR1Method`."""


class ToolRewards(OneMethod):
    """Reward a tool call and the answer; settings of `ToolRewardsMethod`."""


class GiGPO(OneMethod):
    """Compare actions that were taken in equal states; settings of `GiGPOMethod`."""


class IGPO(OneMethod):
    """Reward each turn's gain of information about the answer; settings of `IGPOMethod`."""


class ReMemR1(OneMethod):
    """Reward what each memory adds to the recall of the answer's words; settings of `ReMemR1Method`."""


class StepSearch(OneMethod):
    """Reward what each search adds to the evidence found; settings of `StepSearchMethod`."""


class OTC(OneMethod):
    """Multiply the outcome by how few calls of a tool it took; settings of `OTCMethod`."""


class QuestionCredit(OneMethod):
    """Credit each answer for its own question; settings of `QuestionCreditMethod`."""


class Judge(OneMethod):
    """Reward by a judge model's scores; settings of `JudgeMethod`."""


class PRM(OneMethod):
    """Reward by a process reward model's probabilities; settings of `PRMMethod`."""


class FormatGate(OneMethod):
    """Pay the outcome if the episode has the right format; settings of `FormatGateMethod`."""


class MovieRecall(OneMethod):
    """Pay the recall of recommended movies (MemoryAgentBench's ReDial); settings of `MovieRecallMethod`."""
