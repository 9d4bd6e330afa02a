"""Wrappers of one reward method each: `TAMTRL(env, scorer)` is `RewardWrapper(env, ["TAMTRL"], scorer)`."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from memenvs.wrappers.registry import ScorerSpec, make_methods, plain_method, plain_scorer
from memenvs.wrappers.reward_wrapper import RewardWrapper


class OneMethod(RewardWrapper):
    """A `RewardWrapper` of one method, with the method's settings as keywords."""

    method: ClassVar[str]

    def __init__(
        self,
        env: gym.Env[Any, Any],
        scorer: ScorerSpec = None,
        template: str | None = None,
        **settings: Any,
    ) -> None:
        made = make_methods([[self.method, settings]])
        own = plain_method(made[0])[1]
        RecordConstructorArgs.__init__(self, scorer=plain_scorer(scorer), template=template, **own)
        super().__init__(env, made, scorer, template)


class TAMTRL(OneMethod):
    """Give each turn the outcome times a teacher's score of its memory; settings of `TAMTRLMethod`."""

    method = "TAMTRL"


class InfoMem(OneMethod):
    """Reward the final memory's information about the answer; settings of `InfoMemMethod`."""

    method = "InfoMem"


class MemPO(OneMethod):
    """Give the tokens of each memory an advantage of their own; settings of `MemPOMethod`."""

    method = "MemPO"


class SearchRewards(OneMethod):
    """Reward what each turn of a search did; settings of `SearchRewardsMethod`."""

    method = "SearchRewards"


class SearchR1(OneMethod):
    """Pay Search-R1's merged reward at the end of a search; settings of `SearchR1Method`."""

    method = "SearchR1"


class ToolRewards(OneMethod):
    """Reward a tool call and the answer; settings of `ToolRewardsMethod`."""

    method = "ToolRewards"


class GiGPO(OneMethod):
    """Compare actions that were taken in equal states; settings of `GiGPOMethod`."""

    method = "GiGPO"


class IGPO(OneMethod):
    """Reward each turn's gain of information about the answer; settings of `IGPOMethod`."""

    method = "IGPO"


class ReMemR1(OneMethod):
    """Reward what each memory adds to the recall of the answer's words; settings of `ReMemR1Method`."""

    method = "ReMemR1"


class StepSearch(OneMethod):
    """Reward what each search adds to the evidence found; settings of `StepSearchMethod`."""

    method = "StepSearch"


class OTC(OneMethod):
    """Multiply the outcome by how few calls of a tool it took; settings of `OTCMethod`."""

    method = "OTC"


class QuestionCredit(OneMethod):
    """Credit each answer for its own question; settings of `QuestionCreditMethod`."""

    method = "QuestionCredit"


class Judge(OneMethod):
    """Reward by a judge model's scores; settings of `JudgeMethod`."""

    method = "Judge"


class PRM(OneMethod):
    """Reward by a process reward model's probabilities; settings of `PRMMethod`."""

    method = "PRM"


class FormatGate(OneMethod):
    """Pay the outcome where an episode is in form; settings of `FormatGateMethod`."""

    method = "FormatGate"


class MovieRecall(OneMethod):
    """Pay the recall of recommended movies (MemoryAgentBench's ReDial); settings of `MovieRecallMethod`."""

    method = "MovieRecall"
