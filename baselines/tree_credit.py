"""Trees of rollouts come in; what each reply is to learn, and the episodes through them, go out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memenvs.baselines.rollout import NO_REPLY
from memenvs.baselines.tree import Node
from memenvs.credit import masked_mean, mt_grpo
from memenvs.rollout.records import Episode, Floats, Sample, component_sums


def tree_advantages(
    roots: Sequence[Node], *, alpha: float = 1.0, ended: str = "zero"
) -> list[tuple[Sample, int, Floats]]:
    """What each reply of the trees is to learn: its training sequence, its tree's number, advantages (N,).

    MT-PPO eq. 10 to 12, as `mt_grpo` has them, with the G replies to one state for a group. A reply's R^I_l
    at a later turn l and its R^O are the means over the episodes that went on from it, each reply as likely
    as the next; K_i is the last turn of the longest of them. A reply without siblings, behind the last
    branching, has the advantage that its turn has in the comparison of the branches: with one turn of
    branching, a tree is a flat group. A reply from which every way on broke is compared with none, and
    teaches nothing.

    Args:
        roots: of trees whose episodes are over.
        alpha: see `mt_grpo`.
        ended: see `mt_grpo`.
    """
    found = []
    for number, root in enumerate(roots):
        credit: dict[int, Floats] = {}  # of a reply: the advantages of its turn and of those behind it
        for parent in (root, *root.nodes()):
            if len(parent.children) == 1 and id(parent) in credit:
                credit[id(parent.children[0])] = credit[id(parent)][1:]
            else:
                known = [child for child in parent.children if not np.isnan(child.value())]
                earned = [_earned(child, ended) for child in known]
                compared = mt_grpo(earned, [child.value() for child in known], alpha=alpha, ended=ended)
                credit.update({id(child): turns for child, turns in zip(known, compared, strict=True)})
            for child in parent.children:
                sample = _written(child)
                if sample is not None and child.end != "failed":
                    advantage = credit[id(child)][0] if id(child) in credit else 0.0
                    found.append((sample, number, np.full(len(child.reply.ids), advantage)))
    return found


def _earned(node: Node, ended: str) -> Floats:
    """(K,) R^I of a reply's turn and of those that follow, means over the episodes that went on from it.

    K is the last turn of the longest, whose own entry stands for nothing (`mt_grpo` does not read it).
    """
    over = 0.0 if ended == "zero" else np.nan
    if not node.children:
        return np.array([over])
    rows = [_earned(child, ended) for child in node.children if not np.isnan(child.value())]
    later = np.full((len(rows), max(map(len, rows))), over)
    for row, earned in zip(later, rows, strict=True):
        row[: len(earned)] = earned
    played = ~np.isnan(later)
    means = np.where(played.any(0), masked_mean(later, played, axis=0), np.nan)
    return np.append(node.turn_reward, means)


def episodes_of(root: Node, group: int) -> list[Episode]:
    """The episodes from the root to each end, for statistics; their samples are left out.

    A reply that several episodes share is counted as truncated or overlong in the first of them alone.
    """
    found, counted = [], set[int]()
    for leaf in root.nodes() if root.children else [root]:
        if leaf.children:
            continue
        path = [leaf]
        while path[-1].parent is not None and path[-1].parent.parent is not None:
            path.append(path[-1].parent)
        path.reverse()
        rewards = [node.turn_reward for node in path]
        rewards[-1] += leaf.outcome
        fresh = [node for node in path if id(node) not in counted]
        counted |= {id(node) for node in fresh}
        metrics = dict(leaf.info.get("metrics", {}))
        found.append(
            Episode(
                group=group,
                task=str(leaf.info.get("task", "")),
                replies=[node.reply for node in path],
                turn_rewards=rewards,
                outcomes=[0.0] * (len(path) - 1) + [leaf.outcome],
                metrics=metrics,
                rewards=component_sums([node.info["rewards"] for node in path if "rewards" in node.info]),
                end=leaf.end,
                error=leaf.error,
                truncated_replies=sum(
                    node.reply is not NO_REPLY and not node.reply.finished for node in fresh
                ),
                overlong_prompts=sum(node.reply is NO_REPLY for node in fresh),
            )
        )
    return found


def _written(child: Node) -> Sample | None:
    """The training sequence of one reply: only its own tokens are marked."""
    parent = child.parent
    if parent is None or parent.sample is None or not len(child.reply.ids):
        return None
    turn = int(parent.info["turn"])
    return parent.sample.then(child.reply.ids, child.reply.logprobs, turn)
