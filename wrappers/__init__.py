"""Reward methods, the wrapper that pays them step by step, and scorers.

A method is a class with its settings: `RewardWrapper(env, [TAMTRL(minmax=False)])`. `assign_credit` gives the
same credit to whole groups of episodes.
"""

from typing import TYPE_CHECKING

from memenvs.core.optional import lazy_names
from memenvs.wrappers.names import METHODS

if TYPE_CHECKING:
    from memenvs.core.episode import Credit, Episode, Turn
    from memenvs.wrappers.compact import CompactContext
    from memenvs.wrappers.continuations import Continuations
    from memenvs.wrappers.credit import assign_credit
    from memenvs.wrappers.fixed_size import ChooseReply, HashText
    from memenvs.wrappers.format_gate import FormatGate
    from memenvs.wrappers.gigpo import GiGPO
    from memenvs.wrappers.igpo import IGPO
    from memenvs.wrappers.infomem import InfoMem
    from memenvs.wrappers.judge import Judge
    from memenvs.wrappers.mempo import MemPO
    from memenvs.wrappers.method import RewardMethod
    from memenvs.wrappers.otc import OTC
    from memenvs.wrappers.prm import PRM
    from memenvs.wrappers.question_credit import QuestionCredit
    from memenvs.wrappers.rememr1 import ReMemR1
    from memenvs.wrappers.repeated_calls import RepeatedCalls
    from memenvs.wrappers.search_r1 import SearchR1
    from memenvs.wrappers.search_rewards import SearchRewards
    from memenvs.wrappers.select_records import SelectRecords
    from memenvs.wrappers.stepsearch import StepSearch
    from memenvs.wrappers.tamtrl import TAMTRL
    from memenvs.wrappers.tool_rewards import ToolRewards
    from memenvs.wrappers.trace import TRACE
    from memenvs.wrappers.wrapper import RewardWrapper

__all__ = [
    "IGPO",
    "OTC",
    "PRM",
    "TAMTRL",
    "TRACE",
    "ChooseReply",
    "CompactContext",
    "Continuations",
    "Credit",
    "Episode",
    "FormatGate",
    "GiGPO",
    "HashText",
    "InfoMem",
    "Judge",
    "MemPO",
    "QuestionCredit",
    "ReMemR1",
    "RepeatedCalls",
    "RewardMethod",
    "RewardWrapper",
    "SearchR1",
    "SearchRewards",
    "SelectRecords",
    "StepSearch",
    "ToolRewards",
    "Turn",
    "assign_credit",
]

# A name's module loads when the name is first read, so that lists of names and wrong options show at once.
_MODULES = {name: place.partition(":")[0] for name, place in METHODS.items()} | {
    **dict.fromkeys(("Credit", "Episode", "Turn"), "memenvs.core.episode"),
    "assign_credit": "memenvs.wrappers.credit",
    **dict.fromkeys(("ChooseReply", "HashText"), "memenvs.wrappers.fixed_size"),
    "CompactContext": "memenvs.wrappers.compact",
    "RewardMethod": "memenvs.wrappers.method",
    "RewardWrapper": "memenvs.wrappers.wrapper",
    "SelectRecords": "memenvs.wrappers.select_records",
}
__getattr__ = lazy_names(__name__, **{name: (module, "") for name, module in _MODULES.items()})

if __name__ == "wrappers":
    raise ImportError("import memenvs.wrappers: the folder wrappers is that package, by a link in memenvs")
