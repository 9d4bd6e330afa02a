"""Advantages of sampled tokens, by comparing the episodes of a group or the replies of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memenvs.core.arguments import check_arguments, parameters_of
from memenvs.core.data import checked, fits
from memenvs.core.episode import Episode, Floats, Sample, TokenSpans, valid
from memenvs.core.errors import unknown_name
from memenvs.core.optional import import_object
from memenvs.credit import Ended, Scale, all_equal, masked_mean, mt_grpo, overlong_penalty, without_rounding
from memenvs.rollout.tree import Node
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.comparison import COMPARISONS, Comparison, ComparisonSettings
from memenvs.wrappers.names import METHODS
from memenvs.wrappers.registry import make_methods


def group_advantages(
    episodes: Sequence[Episode],
    policy: TokenSpans,
    reward: Comparison | str = "outcome",
    how: ComparisonSettings | None = None,
) -> list[Floats]:
    """Advantages (N,) of each episode's sampled tokens, by comparison inside its group.

    | reward | advantage of a token of turn k |
    | --- | --- |
    | `"outcome"` | the outcome reward, normalised in the group (GRPO-OR) |
    | `"merged"` | the sum of all turn rewards, normalised in the group (GRPO-MR) |
    | `"turn"` | those of its turn, of the turns after it and of the result (MT-GRPO: MT-PPO eq. 12) |
    | `"turn-pool"` | the reward of its turn, normalised over all turns of its group (TAMTRL eq. 7) |
    | a `RewardMethod` | the method's own `advantages`; by default as `"merged"` |

    Credits that are marked as advantages (`Credit.advantage`) are in no comparison: they are added as they
    are, except where the comparison leaves all other credits out (`Comparison.adds_advantages`). An episode
    that failed, or was paid NaN or infinity, is compared with none, and its advantages are 0.

    With `"turn-pool"` and TAMTRL a group whose outcomes are all equal has advantages of 0 (TAMTRL eq. 3;
    `Comparison.needs_both_answers`). An advantage that is 0 except for rounding is 0.

    Args:
        episodes: episodes of any number of groups, each complete.
        policy: says which characters its tokens are, for advantages of spans.
        reward: see above.
        how: settings of the comparison; None: the defaults.

    Raises:
        ValueError: no such comparison.
    """
    failed = [episode.check_rewards() for episode in episodes]
    if any(failed):
        usable = [episode for episode in episodes if episode.end != "failed"]
        compared = iter(group_advantages(usable, policy, reward, how))
        return [np.zeros(e.tokens) if e.end == "failed" else next(compared) for e in episodes]
    comparison = read_comparison(reward, ())[0] if isinstance(reward, str) else reward
    turns = comparison.advantages(episodes, how or ComparisonSettings())
    tokens = [episode.by_token(values) for episode, values in zip(episodes, turns, strict=True)]
    if comparison.adds_advantages:
        credits = [episode.advantage_credits(policy) for episode in episodes]
        tokens = [values + marked for values, marked in zip(tokens, credits, strict=True)]
    if comparison.needs_both_answers:
        mixed = groups_with_both_answers(episodes)
        for episode, values in zip(episodes, tokens, strict=True):
            values[:] = values if episode.group in mixed else 0.0
    return [without_rounding(values) for values in tokens]


def groups_with_both_answers(episodes: Sequence[Episode]) -> set[int]:
    """The groups with right and wrong answers, by what the environment paid (DAPO eq. 11, TAMTRL eq. 3)."""
    outcomes: dict[int, list[float]] = {}
    for episode in episodes:
        outcomes.setdefault(episode.group, []).append(episode.outcome)
    return {group for group, of_group in outcomes.items() if not all_equal(of_group)}


def add_length_penalties(episodes: Sequence[Episode], overlong: tuple[int, int] | None) -> None:
    """Give episodes DAPO's penalty on long ones, as their `length_penalty`.

    Args:
        episodes: the episodes, which have ended.
        overlong: (limit, width): the penalty falls from 0 at `limit - width` tokens to -1 at `limit`, and
            further beyond; None adds none.
    """
    if overlong is not None:
        penalties = overlong_penalty([episode.tokens for episode in episodes], *overlong)
        for episode, penalty in zip(episodes, penalties, strict=True):
            episode.length_penalty = float(penalty)


@checked
def read_comparison(
    reward: str = "outcome", methods: Sequence[RewardMethod] | None = None, **settings: Any
) -> tuple[Comparison, ComparisonSettings]:
    """What `group_advantages` compares by: a plain comparison or a reward method, and its settings.

    Args:
        reward: name of a comparison, or of a reward method in any case.
        methods: the reward methods of the rollouts, one of which may compare. None makes the method.
        **settings: those of `ComparisonSettings` that the comparison uses, and those of a method that is
            made. A name of both is set where its value fits: GiGPO's `scale="none"` in both, InfoMem's
            `normalize=False` in the method.

    Raises:
        ValueError: there is no such reward or setting, or a setting is out of range.
    """
    reward = reward.lower()
    known: dict[str, Any] = dict(COMPARISONS)
    if methods is None:
        known |= {name.lower(): import_object(place) for name, place in METHODS.items()}
    else:
        known |= {type(method).__name__.lower(): method for method in methods}
        known |= {method.name: method for method in methods}
    if reward not in known:
        raise ValueError(unknown_name("no reward", reward, known))
    comparison, used = known[reward], known[reward].uses
    shared = {p.name: p for p in parameters_of(ComparisonSettings) or () if p.name in used}
    if isinstance(comparison, type):
        own = {p.name: p.annotation for p in parameters_of(comparison) or ()}
        of_method = {
            name: value
            for name, value in settings.items()
            if name not in shared or (name in own and fits(value, own[name]))
        }
        (comparison,) = make_methods([[comparison.__name__, of_method]])
        settings = {
            name: value
            for name, value in settings.items()
            if name not in of_method or (name in shared and fits(value, shared[name].annotation))
        }
    check_arguments(f"reward {reward}", settings, [*shared.values()])
    how = ComparisonSettings(**settings)
    how.check()
    return comparison, how


def record_advantages(
    group: Sequence[Episode],
    policy: TokenSpans,
    comparison: Mapping[str, Any] | None,
    methods: Sequence[RewardMethod],
    overlong: tuple[int, int] | None = None,
) -> None:
    """Write into the valid episodes of a group their advantages, for trainers that read the record.

    Args:
        group: the episodes, which have ended.
        policy: as for `group_advantages`.
        comparison: arguments of `read_comparison`; None: the trainer has an estimator of its own.
        methods: the reward methods of the rollouts.
        overlong: as for `add_length_penalties`.
    """
    usable = valid(group)
    if comparison is None or not usable:
        return
    add_length_penalties(usable, overlong)
    compared = read_comparison(methods=methods, **comparison)
    for episode, values in zip(usable, group_advantages(usable, policy, *compared), strict=True):
        episode.advantages = values


def tree_advantages(
    roots: Sequence[Node], *, alpha: float = 1.0, ended: Ended = "zero", scale: Scale = "std"
) -> list[tuple[Sample, int, Floats]]:
    """Advantages of each reply of the trees: its training sequence, its tree's number, advantages (N,).

    MT-PPO eq. 10 to 12, as `mt_grpo` has them, with the G replies to one state for a group. A reply's R^I_l
    at a later turn l and its R^O are the means over the episodes that continued from it, each reply equally
    likely; K_i is the last turn of the longest of them. A reply without siblings, after the last
    branching, has the advantage that its turn has in the comparison of the branches: with one turn of
    branching, a tree is a flat group. A reply whose every continuation failed is compared with none, and its
    advantages are 0.

    Args:
        roots: of trees whose episodes are over.
        alpha: discount of later turns and of the outcome.
        ended: what an ended episode counts as at the turns that others still play.
        scale: whether advantages are divided by the standard deviation.
    """
    replies = []
    for number, root in enumerate(roots):
        credit: dict[int, Floats] = {}  # of a reply: the advantages of its turn and the later ones
        for parent in (root, *root.nodes()):
            if len(parent.children) == 1 and id(parent) in credit:
                credit[id(parent.children[0])] = credit[id(parent)][1:]
            else:
                scored = [child for child in parent.children if not np.isnan(child.value())]
                rewards = [_turn_rewards(child, ended) for child in scored]
                outcomes = [child.value() for child in scored]
                compared = mt_grpo(rewards, outcomes, alpha=alpha, ended=ended, scale=scale)
                credit |= {
                    id(child): without_rounding(turns) for child, turns in zip(scored, compared, strict=True)
                }
            for child in parent.children:
                sample = child.sample()
                if sample is not None and child.episode.end != "failed":
                    advantage = credit[id(child)][0] if id(child) in credit else 0.0
                    replies.append((sample, number, np.full(len(child.reply.ids), advantage)))
    return replies


def _turn_rewards(node: Node, ended: str) -> Floats:
    """(K,) R^I of a reply's turn and of those that follow, means over the episodes that continued from it.

    K is the last turn of the longest, whose own entry is not read by `mt_grpo`.
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
