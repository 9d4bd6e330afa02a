"""Trees of rollouts: several replies to every state of the first turns, as MT-GRPO compares them.

A state is a copy of the environment, and the record of the episode so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.episode import Episode, Reply, Sample
from memenvs.rollout.collect import MakeEnv, Timer, begin, failing, step
from memenvs.rollout.continuations import branch, copied
from memenvs.rollout.policy import Policy, Request, replies_to
from memenvs.wrappers.credit import assign_credit, check_methods, credit_so_far
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import Scorer

BUDGET = 10_000  # replies that trees may sample in all


@dataclass
class Node:
    """An episode up to a reply.

    Attributes:
        episode: the turns from the root to here.
        request: the next turn; None where the episode is over.
        parent: the episode before the reply; None at the root.
        children: what the replies to this observation led to.
    """

    episode: Episode
    request: Request | None = None
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """Every node below this one, parents first."""
        for child in self.children:
            yield child
            yield from child.nodes()

    @property
    def reply(self) -> Reply:
        """The last reply; an empty one at the root."""
        return self.episode.turns[-1].reply if self.episode.turns else Reply("")

    @property
    def outcome(self) -> float:
        """R^O of the last turn; NaN if the episode failed."""
        if self.episode.error:
            return np.nan
        if self.episode.replaces_outcome and not self.episode.over:
            return 0.0
        return self.episode.outcome_rewards[-1]

    @property
    def turn_reward(self) -> float:
        """R^I, what the last turn earned beside the outcome."""
        before = sum(self.parent.episode.turn_rewards) if self.parent else 0.0
        return sum(self.episode.turn_rewards) - before - float(np.nan_to_num(self.outcome))

    def value(self) -> float:
        """The mean result of the episodes through this node, where each reply has the same weight.

        The result is the outcome and whatever else the last turn earned. NaN if every episode failed.
        """
        if not self.children:
            return self.outcome + self.turn_reward
        values = [value for child in self.children if not np.isnan(value := child.value())]
        return float(np.mean(values)) if values else np.nan

    def sample(self) -> Sample | None:
        """The training sequence of the last reply, only its own tokens marked; None for an empty reply."""
        if self.parent is None or not len(self.reply.ids):
            return None
        turns, last = self.episode.sequences()[-1], len(self.episode.turns) - 1
        before = [(ids, None, -1) for turn in turns[:-1] for ids in (turn.reply.read, turn.reply.ids)]
        reply = self.reply
        sample = Sample.of(*before, (reply.read, None, -1), (reply.ids, reply.logprobs, last))
        if reply.cut_off:
            sample.cut_off = sample.response_mask
        return sample

    def episodes(self) -> list[Episode]:
        """The episodes through this node to each end."""
        return [node.episode for node in (self, *self.nodes()) if not node.children]


def tree_cost(branches: int, turns: int) -> int:
    """Replies that a tree samples at most: G + G^2 + … + G^K, the last turn's from G^(K-1) states."""
    return sum(branches**turn for turn in range(1, turns + 1))


def check_cost(trees: int, branches: int, turns: int) -> None:
    """Raise a `ValueError` if trees would sample more replies than the budget."""
    cost = trees * tree_cost(branches, turns)
    if cost > BUDGET:
        raise ValueError(
            f"{trees} trees of {branches} branches over {turns} turns sample {cost:,} replies "
            f"({branches}^{turns - 1} states at turn {turns} of each), the budget is {BUDGET:,}; branch less"
        )


def check_immediate(methods: Sequence[RewardMethod]) -> None:
    """Raise a `ValueError` if a method pays in hindsight."""
    for method in methods:
        if method.group or not method.immediate:
            raise ValueError(
                f"{method.name} pays in hindsight, which a tree cannot branch on; use methods that pay at "
                "their turn, or flat rollouts"
            )


def collect_trees(
    make_env: MakeEnv,
    policy: Policy,
    plan: Sequence[Episode],
    methods: Sequence[RewardMethod] = (),
    scorer: Scorer | None = None,
    *,
    branches: int,
    turns: int,
    timer: Timer | None = None,
) -> list[Node]:
    """A tree for each record: at each of the first `turns` turns, `branches` replies to every state.

    Later turns get one reply a state. Reply j to state i of a turn is drawn from `SeedSequence` of the group,
    the turn and both numbers. All trees grow together, a turn at a time.

    Args:
        make_env: makes an environment.
        policy: replies.
        plan: records of the trees to grow; each says what is played, as for `memenvs.rollout.collect.Loop`.
        methods: reward methods, which must pay at once.
        scorer: gives them log-probabilities.
        branches: G.
        turns: K.
        timer: counts the seconds of `"sampling"` and `"environment"`.

    Returns:
        The roots.

    Raises:
        ValueError: the trees would cost more than the budget, or a method pays in hindsight.
    """
    check_cost(len(plan), branches, turns)
    check_immediate(methods)
    timer = timer or Timer()
    with timer("environment"):
        roots = [_root(make_env(), episode, methods, scorer) for episode in plan]
    frontier, turn = [root for root in roots if root.request], 0
    while frontier:
        width = branches if turn < turns else 1
        parents = [(node, (turn, i, j)) for i, node in enumerate(frontier) for j in range(width)]
        with timer("environment"):
            # A record keeps the signals of earlier turns, so that no turn is scored once a branch.
            requests = [
                branch(state, copied(node.episode), np.random.default_rng([node.episode.group, *stream]))
                for node, stream in parents
                if (state := node.request)
            ]
        with timer("sampling"):
            replies = replies_to(policy, requests)
        with timer("environment"):
            for (parent, _), request, reply in zip(parents, requests, replies, strict=True):
                child = Node(request.episode, parent=parent)
                with failing(child.episode):
                    child.request = step(request, reply)
                parent.children.append(child)
            children = [child for node in frontier for child in node.children]
            credit_so_far([child.episode for child in children], methods, scorer)
            if methods:
                ended = [child.episode for child in children if child.episode.over]
                assign_credit(ended, methods, scorer)
        frontier = [child for child in children if child.request]
        turn += 1
    return roots


def _root(
    env: gym.Env[Any, str], episode: Episode, methods: Sequence[RewardMethod], scorer: Scorer | None
) -> Node:
    """A task's beginning; already over if the environment raises an error."""
    root = Node(episode)
    with failing(episode):
        root.request = begin(env, episode)
    if root.request:
        check_methods(methods, scorer, root.request.info)
        episode.replaces_outcome = any(method.replaces_outcome for method in methods)
    return root
