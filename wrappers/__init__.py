"""Reward methods, the two wrappers that apply them, and scorers.

`from memenvs.wrappers import TAMTRL` wraps one environment in one method; `RewardWrapper` takes any list of
methods, `VectorRewardWrapper` any list over many environments. `CurriculumWrapper` draws tasks by levels.
"""

from memenvs.rollout.records import Credit, Episode, Turn
from memenvs.wrappers.curriculum import Curriculum, CurriculumWrapper
from memenvs.wrappers.fixed_size import ChooseReply, HashText
from memenvs.wrappers.format_gate import FormatGateMethod
from memenvs.wrappers.gigpo import GiGPOMethod
from memenvs.wrappers.igpo import IGPOMethod
from memenvs.wrappers.infomem import InfoMemMethod
from memenvs.wrappers.judge import JudgeMethod
from memenvs.wrappers.mempo import MemPOMethod
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.movie_recall import MovieRecallMethod
from memenvs.wrappers.otc import OTCMethod
from memenvs.wrappers.prm import PRMMethod
from memenvs.wrappers.question_credit import QuestionCreditMethod
from memenvs.wrappers.rememr1 import ReMemR1Method
from memenvs.wrappers.reward_wrapper import RewardWrapper, VectorRewardWrapper
from memenvs.wrappers.search_r1 import SearchR1Method
from memenvs.wrappers.search_rewards import SearchRewardsMethod
from memenvs.wrappers.single import (
    IGPO,
    OTC,
    PRM,
    TAMTRL,
    FormatGate,
    GiGPO,
    InfoMem,
    Judge,
    MemPO,
    MovieRecall,
    QuestionCredit,
    ReMemR1,
    SearchR1,
    SearchRewards,
    StepSearch,
    ToolRewards,
)
from memenvs.wrappers.stepsearch import StepSearchMethod
from memenvs.wrappers.tamtrl import TAMTRLMethod
from memenvs.wrappers.tool_rewards import ToolRewardsMethod

__all__ = [
    "IGPO",
    "OTC",
    "PRM",
    "TAMTRL",
    "ChooseReply",
    "Credit",
    "Curriculum",
    "CurriculumWrapper",
    "Episode",
    "FormatGate",
    "FormatGateMethod",
    "GiGPO",
    "GiGPOMethod",
    "HashText",
    "IGPOMethod",
    "InfoMem",
    "InfoMemMethod",
    "Judge",
    "JudgeMethod",
    "MemPO",
    "MemPOMethod",
    "MovieRecall",
    "MovieRecallMethod",
    "OTCMethod",
    "PRMMethod",
    "QuestionCredit",
    "QuestionCreditMethod",
    "ReMemR1",
    "ReMemR1Method",
    "RewardMethod",
    "RewardWrapper",
    "SearchR1",
    "SearchR1Method",
    "SearchRewards",
    "SearchRewardsMethod",
    "StepSearch",
    "StepSearchMethod",
    "TAMTRLMethod",
    "ToolRewards",
    "ToolRewardsMethod",
    "Turn",
    "VectorRewardWrapper",
]

if __name__ == "wrappers":
    raise ImportError("import memenvs.wrappers: the folder wrappers is that package, by a link in memenvs")
