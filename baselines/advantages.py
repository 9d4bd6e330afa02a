"""Advantages of sampled tokens by comparing the episodes of a group: GRPO, RLOO and reward methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from memenvs.core.checks import check_choice
from memenvs.credit import (
    combine_turns,
    gdpo,
    grpo,
    igpo,
    masked_mean,
    mt_grpo,
    mt_rloo,
    normalize_turns,
    rememr1,
    rloo,
    tamtrl,
)
from memenvs.models import Policy
from memenvs.rollout.records import Episode, Floats, Sample
from memenvs.rollout.tree import Node
from memenvs.wrappers import IGPOMethod, ReMemR1Method, RewardMethod, TAMTRLMethod

Estimator = Literal["grpo", "rloo", "reinforce"]
Reward = Literal[
    "outcome", "merged", "turn", "turn-pool", "tamtrl", "infomem", "mempo", "igpo", "rememr1", "gigpo"
]
OWN_ADVANTAGE = ("tamtrl", "igpo", "rememr1")
"""Rewards of a method that has an advantage of its own."""
OWN_ESTIMATOR = ("turn-pool", *OWN_ADVANTAGE)
"""Rewards to which no estimator applies, and `scale` only for ReMemR1."""
MERGED = ("merged", "infomem", "gigpo")
"""Rewards that compare the sum of all turns."""
Normalize = Literal["sum", "components"]


def group_advantages(
    episodes: Sequence[Episode],
    policy: Policy,
    *,
    reward: Reward = "outcome",
    estimator: Estimator = "grpo",
    alpha: float = 1.0,
    ended: str = "zero",
    scale: str = "std",
    method: RewardMethod | None = None,
    normalize: Normalize = "sum",
    weights: Mapping[str, float] | None = None,
) -> list[Floats]:
    """Advantages (N,) of each episode's sampled tokens, by comparison inside its group.

    | reward | advantage of a token of turn k |
    | --- | --- |
    | `"outcome"` | the outcome reward, normalised in the group (GRPO-OR) |
    | `"merged"` | the sum of all turn rewards, normalised in the group (GRPO-MR) |
    | `"turn"` | those of its turn, of the turns after it and of the result (MT-GRPO: MT-PPO eq. 12) |
    | `"turn-pool"` | the reward of its turn, normalised over all turns of its group (TAMTRL eq. 7) |
    | `"tamtrl"` | eq. 5 to 7, min-max over all episodes given |
    | `"infomem"` | as merged: the method has added its bonus to the last turn (InfoMem eq. 10) |
    | `"mempo"` | as outcome, and inside the memory also that of the memory (MemPO eq. 9) |
    | `"gigpo"` | as merged, and that of its turn among the turns in equal states (GiGPO eq. 8) |
    | `"igpo"` | gains and the outcome, normalised in the group and summed from its turn on (IGPO) |
    | `"rememr1"` | 0.8 of the outcome's, 0.2 of its state reward's at that turn (ReMemR1) |

    In `"turn"` the result is the outcome reward and whatever else the last turn earned, so that nothing is
    lost; a turn reward that could not be measured (NaN) is compared with none. In sums it counts 0.
    In `"turn-pool"` a turn's reward is all that it earned, the outcome at the last one, and DAPO's length
    penalty is added to each turn, as to TAMTRL's R_t; so a method that pays every turn a share of the outcome
    (`JudgeMethod(outcome="multiply")`) is compared as TAMTRL's LLM-judge and PRM are. Credits
    that are marked as advantages (`Credit.advantage`) are in no comparison: they are added as they are, but
    in `"outcome"` and those with an advantage of their own (`OWN_ADVANTAGE`), which leave all other credits
    out.

    Args:
        episodes: of any number of groups, each complete.
        policy: says which characters its tokens stand for, for advantages of spans.
        reward: see above.
        estimator: of `"outcome"`, `"merged"` and `"turn"` and of the trajectory in the memory methods:
            `"grpo"`; `"rloo"`, which compares with the mean of the others; or `"reinforce"`, which compares
            with nothing: what is normalised above is taken as it was earned (A = R, MT-GRPO eq. 6).
        alpha: discount a turn in `"turn"`, see `mt_grpo`.
        ended: what an episode that is over counts as in `"turn"`, see `mt_grpo`.
        scale: `"std"`, or `"none"` to leave the standard deviation out; of `grpo`, `mt_grpo` and `rememr1`.
        method: whose settings `"tamtrl"`, `"igpo"` and `"rememr1"` use; None: its default settings.
        normalize: `"sum"`, or for rewards that compare the sum of all turns (`MERGED`) `"components"`: each
            component of the reward is normalised by itself (GDPO, see `memenvs.credit.gdpo`).
        weights: of components, where they are normalised by themselves; 1 by default.

    Raises:
        ValueError: the episodes lack the signals of the method that `reward` names, or `normalize` does not
            fit the others.
    """
    groups = [episode.group for episode in episodes]
    outcomes = [sum(episode.outcome_rewards) + episode.length_penalty for episode in episodes]
    check_normalize(normalize, reward, estimator, scale)
    if reward in OWN_ADVANTAGE:
        return _own_advantages(episodes, reward, method, outcomes, scale)
    if reward == "turn-pool":
        earned = [_measured(one, one.turn_rewards) + one.length_penalty for one in episodes]
        credit = normalize_turns(earned, tasks=groups)
        spread = [episode.by_token(values) for episode, values in zip(episodes, credit, strict=True)]
    elif reward == "turn":
        turns = [_measured(one, np.subtract(one.turn_rewards, one.outcome_rewards)) for one in episodes]
        results = [outcome + np.nan_to_num(own[-1]) for outcome, own in zip(outcomes, turns, strict=True)]
        if estimator == "reinforce":
            credit = [combine_turns(*rewards, alpha) for rewards in zip(turns, results, strict=True)]
        elif estimator == "rloo":
            credit = mt_rloo(turns, results, alpha=alpha, groups=groups, ended=ended)
        else:
            credit = mt_grpo(turns, results, alpha=alpha, groups=groups, ended=ended, scale=scale)
        spread = [episode.by_token(values) for episode, values in zip(episodes, credit, strict=True)]
    else:
        values = outcomes
        if reward in MERGED:
            values = [
                sum(episode.turn_rewards) - sum(episode.turn_advantages) + episode.length_penalty
                for episode in episodes
            ]
        if normalize == "components":
            whole = gdpo(components_of(episodes), groups, weights=weights)
        elif estimator == "reinforce":
            whole = np.asarray(values, np.float64)
        else:
            whole = rloo(values, groups) if estimator == "rloo" else grpo(values, groups, scale=scale)
        spread = [np.full(episode.tokens, value) for episode, value in zip(episodes, whole, strict=True)]
    if reward == "outcome":
        return spread
    return [
        tokens + episode.marked_advantages(policy) for episode, tokens in zip(episodes, spread, strict=True)
    ]


def tree_advantages(
    roots: Sequence[Node], *, alpha: float = 1.0, ended: str = "zero", scale: str = "std"
) -> list[tuple[Sample, int, Floats]]:
    """Advantages of each reply of the trees: its training sequence, its tree's number, advantages (N,).

    MT-PPO eq. 10 to 12, as `mt_grpo` has them, with the G replies to one state for a group. A reply's R^I_l
    at a later turn l and its R^O are the means over the episodes that went on from it, each reply as likely
    as the next; K_i is the last turn of the longest of them. A reply without siblings, behind the last
    branching, has the advantage that its turn has in the comparison of the branches: with one turn of
    branching, a tree is a flat group. A reply whose every continuation failed is compared with none, and its
    advantages are 0.

    Args:
        roots: of trees whose episodes are over.
        alpha: see `mt_grpo`.
        ended: see `mt_grpo`.
        scale: see `mt_grpo`.
    """
    replies = []
    for number, root in enumerate(roots):
        credit: dict[int, Floats] = {}  # of a reply: the advantages of its turn and of those behind it
        for parent in (root, *root.nodes()):
            if len(parent.children) == 1 and id(parent) in credit:
                credit[id(parent.children[0])] = credit[id(parent)][1:]
            else:
                scored = [child for child in parent.children if not np.isnan(child.value())]
                rewards = [_turn_rewards(child, ended) for child in scored]
                outcomes = [child.value() for child in scored]
                compared = mt_grpo(rewards, outcomes, alpha=alpha, ended=ended, scale=scale)
                credit |= {id(child): turns for child, turns in zip(scored, compared, strict=True)}
            for child in parent.children:
                sample = child.sample()
                if sample is not None and child.session.episode.end != "failed":
                    advantage = credit[id(child)][0] if id(child) in credit else 0.0
                    replies.append((sample, number, np.full(len(child.reply.ids), advantage)))
    return replies


def check_normalize(normalize: str, reward: str, estimator: str = "grpo", scale: str = "std") -> None:
    """Raise a ValueError unless `group_advantages` can normalise so."""
    check_choice("normalize", normalize, get_args(Normalize))
    if normalize == "components" and reward not in MERGED:
        raise ValueError(
            f"normalize components is for the rewards {', '.join(MERGED)}, which add up all components, "
            f"got {reward!r}"
        )
    if normalize == "components" and (estimator, scale) != ("grpo", "std"):
        raise ValueError(
            "normalize components takes each component's mean and std: leave estimator grpo and scale std, "
            f"got {estimator} and {scale}"
        )


def components_of(episodes: Sequence[Episode]) -> dict[str, Floats]:
    """(G,) of each component of the reward by name: its sum over an episode's turns, NaN where there is none.

    Credits that are marked as advantages are left out; a length penalty is a component of its own.
    """
    names = list(dict.fromkeys(name for episode in episodes for name in episode.rewards))
    found = {name: np.array([episode.rewards.get(name, math.nan) for episode in episodes]) for name in names}
    for number, episode in enumerate(episodes):
        for name, credits in episode.credits.items():
            marked = [one.value for one in credits if one.advantage and not math.isnan(one.value)]
            if marked and name in found:
                found[name][number] -= math.fsum(marked)
    found["length_penalty"] = np.array([episode.length_penalty for episode in episodes])
    return found


def _measured(episode: Episode, rewards: Sequence[float] | Floats) -> Floats:
    """(K,) rewards of turns without credits that are advantages; NaN where a method could not measure one."""
    turns = np.subtract(rewards, episode.turn_advantages)
    for signals in episode.signals.values():
        turns[np.isnan(signals)] = np.nan
    for credits in episode.credits.values():
        unknown = [credit.turn for credit in credits if not credit.advantage and np.isnan(credit.value)]
        turns[unknown] = np.nan
    return turns


def _own_advantages(
    episodes: Sequence[Episode],
    reward: Reward,
    method: RewardMethod | None,
    outcomes: Sequence[float],
    scale: str,
) -> list[Floats]:
    """The advantages of a method that has its own, from its signals."""
    groups = [episode.group for episode in episodes]
    if missing := [episode for episode in episodes if reward not in episode.signals]:
        raise ValueError(
            f"reward {reward!r} wants the signals of its method, and task {missing[0].task!r} has those of "
            f"{', '.join(missing[0].signals) or 'none'}; put a VectorRewardWrapper around the environments"
        )
    signals = [episode.signals[reward] for episode in episodes]
    if reward == "igpo":
        gains = method if isinstance(method, IGPOMethod) else IGPOMethod()
        credit = igpo(signals, outcomes, gamma=gains.gamma, groups=groups, normalize=gains.normalize)
    elif reward == "rememr1":
        states = method if isinstance(method, ReMemR1Method) else ReMemR1Method()
        credit = rememr1(signals, outcomes, alpha=states.alpha, groups=groups, scale=scale)
    else:
        teacher = method if isinstance(method, TAMTRLMethod) else TAMTRLMethod()
        credit = tamtrl(
            signals,
            [episode.outcome for episode in episodes],
            tasks=groups,
            unscored=[teacher.unscored(episode) for episode in episodes],
            paid=[teacher.paid(episode) for episode in episodes],
            minmax=teacher.minmax,
            combine=teacher.combine,
            # Eq. 6 gives a failed rollout 0 at every turn, and DAPO adds its length penalty to that.
            penalties=[episode.length_penalty for episode in episodes],
        )
    return [episode.by_token(values) for episode, values in zip(episodes, credit, strict=True)]


def _turn_rewards(node: Node, ended: str) -> Floats:
    """(K,) R^I of a reply's turn and of those that follow, means over the episodes that went on from it.

    K is the last turn of the longest, whose own entry stands for nothing (`mt_grpo` does not read it).
    """
    over = 0.0 if ended == "zero" else np.nan
    if not node.children:
        return np.array([over])
    rows = [_turn_rewards(child, ended) for child in node.children if not np.isnan(child.value())]
    later = np.full((len(rows), max(map(len, rows))), over)
    for row, rewards in zip(later, rows, strict=True):
        row[: len(rewards)] = rewards
    played = ~np.isnan(later)
    means = np.where(played.any(0), masked_mean(later, played, axis=0), np.nan)
    return np.append(node.turn_reward, means)
