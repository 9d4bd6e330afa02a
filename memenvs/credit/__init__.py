"""Rewards and advantages from what was measured in a group of rollouts. Pure NumPy, float64.

A group is G rollouts of one task. Rollout i has K_i turns, so what is per turn is a list of G arrays (K_i,).
Equal values give zeros, never NaN; numbers are equal if they differ by rounding alone (`all_equal`). A NaN
among the arguments is a value that could not be measured: it is left out of every mean, and gets 0. Settings
are checked; arrays must have the shapes that are stated.
"""

from memenvs.credit.groups import (
    ATOL,
    RTOL,
    Array,
    Scale,
    all_equal,
    gdpo,
    group_normalize,
    grpo,
    rloo,
    without_rounding,
)
from memenvs.credit.memory import (
    MemPOAdvantages,
    infomem_bonus,
    mempo,
    normalize_turns,
    tamtrl,
    tamtrl_rewards,
)
from memenvs.credit.searches import novelty, redundancy, search_gains, tool_efficiency
from memenvs.credit.tokens import (
    Mask,
    bi_level_gae,
    gae,
    masked_mean,
    masked_var,
    overlong_penalty,
    place_rewards,
    turn_gae,
    whiten,
)
from memenvs.credit.turns import (
    Ended,
    combine_turns,
    gigpo,
    igpo,
    mean_ahead,
    mt_grpo,
    mt_rloo,
    rememr1,
    trace,
)

__all__ = [
    "ATOL",
    "RTOL",
    "Array",
    "Ended",
    "Mask",
    "MemPOAdvantages",
    "Scale",
    "all_equal",
    "bi_level_gae",
    "combine_turns",
    "gae",
    "gdpo",
    "gigpo",
    "group_normalize",
    "grpo",
    "igpo",
    "infomem_bonus",
    "masked_mean",
    "masked_var",
    "mean_ahead",
    "mempo",
    "mt_grpo",
    "mt_rloo",
    "normalize_turns",
    "novelty",
    "overlong_penalty",
    "place_rewards",
    "redundancy",
    "rememr1",
    "rloo",
    "search_gains",
    "tamtrl",
    "tamtrl_rewards",
    "tool_efficiency",
    "trace",
    "turn_gae",
    "whiten",
    "without_rounding",
]
