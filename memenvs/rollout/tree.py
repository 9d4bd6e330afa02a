"""Trees of rollouts: several replies to every state of the first turns, as MT-GRPO compares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.env import task_options
from memenvs.core.errors import error_line
from memenvs.core.state import get_state, set_state
from memenvs.core.vector import failed_turn
from memenvs.models import Policy, Reply
from memenvs.rollout.engine import Timer
from memenvs.rollout.records import Episode, Sample
from memenvs.rollout.session import NO_REPLY, Session, sample_within


@dataclass
class Node:
    """A state of the environment, and the reply that led to it.

    Attributes:
        session: the episode from the root to here.
        state: of the environment; None where the episode is over.
        parent: the state before; None at the root.
        reply: to the parent's observation.
        turn_reward: R^T, what the turn earned beside the outcome.
        outcome: R^O, where the episode is over; NaN if the environment raised an error.
        children: the states that the replies to this observation led to.
    """

    session: Session
    state: Any = None
    parent: Node | None = None
    reply: Reply = NO_REPLY
    turn_reward: float = 0.0
    outcome: float = 0.0
    children: list[Node] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """Every node below this one, parents first."""
        for child in self.children:
            yield child
            yield from child.nodes()

    def value(self) -> float:
        """The mean result of the episodes through this node, where each reply has the same weight.

        The result is the outcome and whatever else the last turn earned. NaN if every episode failed.
        """
        if not self.children:
            return self.outcome + self.turn_reward
        values = [value for child in self.children if not np.isnan(value := child.value())]
        return float(np.mean(values)) if values else np.nan

    def sample(self) -> Sample | None:
        """The training sequence of the reply, with only its own tokens marked; None for an empty reply."""
        if self.parent is None or not len(self.reply.ids):
            return None
        before = self.parent.session
        return Sample.prompt(before.prompt).then(
            self.reply.ids, self.reply.logprobs, len(before.episode.replies)
        )

    def episodes(self) -> list[Episode]:
        """The episodes through this node to each end, for statistics; their samples and turns are left out.

        A reply that several episodes share counts as truncated or overlong only in the first of them.
        """
        leaves = [node for node in (self, *self.nodes()) if not node.children]
        return [replace(leaf.session.episode, samples=[], turns=[]) for leaf in leaves]


def tree_cost(branches: int, turns: int) -> int:
    """Replies that a tree samples at most: G + G^2 + … + G^K, the last turn's from G^(K-1) states."""
    return sum(branches**turn for turn in range(1, turns + 1))


def check_cost(trees: int, branches: int, turns: int, budget: int = 10_000) -> None:
    """Raise a `ValueError` if trees would sample more replies than the budget."""
    cost = trees * tree_cost(branches, turns)
    if cost > budget:
        raise ValueError(
            f"{trees} trees of {branches} branches over {turns} turns sample {cost:,} replies "
            f"({branches}^{turns - 1} states at turn {turns} of each), the budget is {budget:,}; branch less"
        )


def collect_trees(
    env: gym.Env[Any, Any],
    policy: Policy,
    seeds: Sequence[int],
    *,
    branches: int,
    turns: int,
    tasks: Sequence[int] | None = None,
    max_new_tokens: int = 512,
    budget: int = 10_000,
    timer: Timer | None = None,
) -> list[Node]:
    """A tree for each seed: at each of the first `turns` turns, `branches` replies to every state.

    Later turns get one reply a state. Reply j to state i of a turn is drawn from `SeedSequence` of the seed,
    the turn and both numbers. All trees grow together, a turn at a time (the number of a state is known when
    the turn before is played), in one environment whose state is saved and restored.

    Args:
        env: a text environment; methods around it must pay at once.
        policy: samples the replies.
        seeds: of the trees.
        branches: G.
        turns: K.
        tasks: the number of each tree's task; None: its seed draws it.
        max_new_tokens: tokens of a reply.
        budget: replies that may be sampled in all.
        timer: counts the seconds of `"sampling"` and `"environment"`.

    Returns:
        The roots.

    Raises:
        ValueError: the trees would cost more than the budget, or a method pays in hindsight.
    """
    check_cost(len(seeds), branches, turns, budget)
    _check_methods(env)
    timer = timer or Timer()
    numbers = [None] * len(seeds) if tasks is None else tasks
    roots = [_root(env, policy, seed, task) for seed, task in zip(seeds, numbers, strict=True)]
    frontier = [root for root in roots if not root.session.over]
    turn = 0
    while frontier:
        width = branches if turn < turns else 1
        rngs = [
            np.random.default_rng([node.session.episode.seed, turn, i, j])
            for i, node in enumerate(frontier)
            for j in range(width)
        ]
        parents = [node for node in frontier for _ in range(width)]
        prompts = [node.session.prompt for node in parents]
        with timer("sampling"):
            replies = sample_within(policy, prompts, rngs, max_new_tokens)
        with timer("environment"):
            for parent, reply in zip(parents, replies, strict=True):
                parent.children.append(_grow(env, parent, reply))
        frontier = [child for node in frontier for child in node.children if not child.session.over]
        turn += 1
    return roots


def _root(env: gym.Env[Any, Any], policy: Policy, seed: int, task: int | None) -> Node:
    """A task's beginning; already over if the environment raises an error."""
    session = Session(policy, Episode(group=seed, seed=seed, number=task))
    try:
        session.begin(*env.reset(seed=seed, options=task_options(task)))
    except Exception as error:
        session.fail(error_line(error))
        return Node(session, outcome=np.nan)
    return Node(session, get_state(env))


def _grow(env: Any, parent: Node, reply: Reply) -> Node:
    """The state that a reply leads to; an end without a result if the environment raises an error."""
    session = parent.session.fork()
    if parent.children:  # the first child's episode counts the turns before
        session.episode.truncated_replies = session.episode.overlong_prompts = 0
    set_state(env, parent.state)
    try:
        reward = session.step(env, reply)
    except Exception as error:
        info = {**failed_turn(session.info), "error": error_line(error)}
        session.play(reply, session.observation, info, "truncated")
        return Node(session, None, parent, reply, outcome=np.nan)
    if getattr(env, "replaces_outcome", False):
        outcome = reward if session.over else 0.0
    else:
        outcome = session.episode.outcomes[-1]
    if session.over:
        session.finish(session.info)
    state = None if session.over else get_state(env)
    return Node(session, state, parent, reply, reward - outcome, outcome)


def _check_methods(env: gym.Env[Any, Any]) -> None:
    for method in getattr(env, "methods", ()):
        if method.group or not method.immediate:
            raise ValueError(
                f"{method.name} pays in hindsight, which a tree cannot branch on; use methods that pay at "
                "their turn, or flat rollouts"
            )
