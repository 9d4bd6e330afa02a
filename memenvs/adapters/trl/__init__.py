"""TRL's GRPOTrainer: tools that are moves, rollouts of any environment, and advantages by turn."""

from memenvs.adapters.trl.rollout import EpisodeRollout, episode_return
from memenvs.adapters.trl.rows import seed_rows
from memenvs.adapters.trl.tokenizer import tool_tokenizer
from memenvs.adapters.trl.tools import SearchTools, SokobanTools
from memenvs.adapters.trl.turns import TurnAdvantages

__all__ = [
    "EpisodeRollout",
    "SearchTools",
    "SokobanTools",
    "TurnAdvantages",
    "episode_return",
    "seed_rows",
    "tool_tokenizer",
]
