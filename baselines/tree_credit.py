"""Trees of rollouts come in; what each reply is to learn, and the episodes through them, go out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memenvs.baselines.episode import Episode, Floats, Sample
from memenvs.baselines.rollout import NO_REPLY
from memenvs.baselines.tree import Node
from memenvs.credit import grpo


def tree_advantages(roots: Sequence[Node], *, alpha: float = 1.0) -> list[tuple[Sample, int, Floats]]:
    """What each reply of the trees is to learn: its training sequence, its tree's number, advantages (N,).

        A = A^T + alpha A^O    before the last turn                           MT-GRPO eq. 12
        A = A^O                the last turn

    Both compare the replies to one state: A^T their turn rewards, of those that did not end the episode;
    A^O the mean results of the episodes that went on from them. A reply without siblings, behind the last
    branching, has the advantage A^O of the reply that it stands on. A reply on which the environment broke
    is compared with none, and teaches nothing.
    """
    found = []
    for number, root in enumerate(roots):
        advantage: dict[int, float] = {id(root): 0.0}
        for parent in (root, *root.nodes()):
            if not parent.children:
                continue
            lone = len(parent.children) == 1
            outcomes = grpo([child.value() for child in parent.children])
            earned = [np.nan if child.state is None else child.turn_reward for child in parent.children]
            turn_part = grpo(earned)
            for child, result, own in zip(parent.children, outcomes, turn_part, strict=True):
                result = advantage[id(parent)] if lone else float(result)
                advantage[id(child)] = result
                mixed = result if child.state is None else float(own) + alpha * result
                sample = _written(child)
                if sample is not None and child.end != "failed":
                    found.append((sample, number, np.full(len(child.reply.ids), mixed)))
    return found


def episodes_of(root: Node, group: int) -> list[Episode]:
    """The episodes from the root to each end, for statistics; their samples are left out.

    A reply that several episodes share is counted as cut or unread in the first of them alone.
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
                group,
                str(leaf.info.get("task", "")),
                replies=[node.reply for node in path],
                turn_rewards=rewards,
                outcome=float(metrics.get("outcome", leaf.outcome)),
                outcomes=[0.0] * (len(path) - 1) + [leaf.outcome],
                metrics=metrics,
                end=leaf.end,
                error=leaf.error,
                cut_replies=sum(node.reply is not NO_REPLY and not node.reply.finished for node in fresh),
                unread=sum(node.reply is NO_REPLY for node in fresh),
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
