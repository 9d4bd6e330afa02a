"""Tasks come in; trees of rollouts that branch at every turn go out, each reply with its own advantage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from memenvs.baselines.rollout import NO_REPLY, Clock, sample_within
from memenvs.core.env import Info
from memenvs.core.state import get_state, set_state
from memenvs.core.vector import error_line
from memenvs.models import Policy, Reply
from memenvs.rollout.records import Sample
from memenvs.wrappers import RewardWrapper


@dataclass
class Node:
    """A state of the environment, and the reply that led to it.

    Attributes:
        observation: what the policy reads here.
        info: what came with it.
        state: of the environment; None where the episode is over.
        sample: what has been read so far, nothing in it marked as written; None: the observation alone.
        parent: the state before; None at the root.
        reply: to the parent's observation.
        turn_reward: R^T, what the turn earned beside the outcome.
        outcome: R^O, where the episode is over; NaN if the environment broke there.
        end: how the episode ended here; empty if it goes on.
        error: what broke.
        children: what came of the replies to this observation.
    """

    observation: str
    info: Info
    state: Any = None
    sample: Sample | None = None
    parent: Node | None = None
    reply: Reply = NO_REPLY
    turn_reward: float = 0.0
    outcome: float = 0.0
    end: Literal["", "terminated", "truncated", "failed"] = ""
    error: str = ""
    children: list[Node] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """Every node below this one, parents first."""
        for child in self.children:
            yield child
            yield from child.nodes()

    def value(self) -> float:
        """The mean result of the episodes that go through this node, each reply as likely as the next.

        The result is the outcome and whatever else the last turn earned. NaN where every way on broke.
        """
        if not self.children:
            return self.outcome + self.turn_reward
        known = [value for child in self.children if not np.isnan(value := child.value())]
        return float(np.mean(known)) if known else np.nan


def tree_cost(branches: int, turns: int) -> int:
    """Replies that a tree samples at most: G + G^2 + … + G^K, the last turn's from G^(K-1) states."""
    return sum(branches**turn for turn in range(1, turns + 1))


def check_cost(trees: int, branches: int, turns: int, budget: int) -> None:
    """Refuse trees that would sample more replies than the budget.

    Raises:
        ValueError: with the numbers.
    """
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
    max_new_tokens: int = 512,
    budget: int = 10_000,
    clock: Clock | None = None,
) -> list[Node]:
    """A tree for each seed: at each of the first `turns` turns, `branches` replies to every state.

    Later turns get one reply a state. Reply j to state i of a turn is drawn from `SeedSequence` of the seed,
    the turn and both numbers. All trees grow together, a turn at a time, in one environment whose state is
    saved and restored.

    Args:
        env: a text environment; methods around it must pay at once.
        policy: samples the replies.
        seeds: of the tasks.
        branches: G.
        turns: K.
        max_new_tokens: tokens of a reply.
        budget: replies that may be sampled in all.
        clock: counts the seconds of `"sampling"` and `"environment"`.

    Returns:
        The roots.

    Raises:
        ValueError: the trees would cost more than the budget, or a method pays in hindsight.
    """
    check_cost(len(seeds), branches, turns, budget)
    _check_methods(env)
    clock = clock or Clock()
    roots = [_root(env, seed) for seed in seeds]
    frontier = [(seed, root) for seed, root in zip(seeds, roots, strict=True) if root.state is not None]
    turn = 0
    while frontier:
        width = branches if turn < turns else 1
        asked = [(seed, node, j) for seed, node in frontier for j in range(width)]
        numbers = {id(node): i for i, (_, node) in enumerate(frontier)}
        draws = [np.random.default_rng([seed, turn, numbers[id(node)], j]) for seed, node, j in asked]
        prompts = [_prompt(policy, node) for _, node, _ in asked]
        replies = clock.run("sampling", sample_within, policy, prompts, draws, max_new_tokens)
        for (_, node, _), reply in zip(asked, replies, strict=True):
            node.children.append(clock.run("environment", _play, env, policy, node, reply))
        frontier = [(s, child) for s, node in frontier for child in node.children if child.state is not None]
        turn += 1
    return roots


def _root(env: gym.Env[Any, Any], seed: int) -> Node:
    """A task's beginning; over at once where the environment breaks."""
    try:
        observation, info = env.reset(seed=seed)
    except Exception as error:
        return Node("", {}, outcome=np.nan, end="failed", error=error_line(error))
    return Node(observation, info, get_state(env))


def _play(env: gym.Env[Any, Any], policy: Policy, node: Node, reply: Reply) -> Node:
    """The state that a reply leads to; where the environment breaks, an end without a result."""
    set_state(env, node.state)
    try:
        observation, reward, terminated, truncated, info = env.step(reply.text)
    except Exception as error:
        told = error_line(error)
        return Node("", node.info, parent=node, reply=reply, outcome=np.nan, end="failed", error=told)
    over = terminated or truncated
    spent = isinstance(env, RewardWrapper) and env.replaces_outcome
    outcome = (float(reward) if over else 0.0) if spent else float(info["rewards"].get("outcome", 0.0))
    child = Node(observation, info, None if over else get_state(env), parent=node, reply=reply)
    child.turn_reward, child.outcome = float(reward) - outcome, outcome
    child.end = "terminated" if terminated else "truncated" if truncated else ""
    if not over and info["context"] == "append":
        ids = policy.encode_feedback(info["feedback"], reply.ids)
        child.sample = Sample.prompt(np.concatenate([_prompt(policy, node), reply.ids, ids]))
    return child


def _prompt(policy: Policy, node: Node) -> Any:
    """(T,) ids that a reply to a node's observation follows."""
    if node.sample is None:
        node.sample = Sample.prompt(policy.encode(node.observation))
    return node.sample.ids


def _check_methods(env: gym.Env[Any, Any]) -> None:
    for method in env.methods if isinstance(env, RewardWrapper) else ():
        if method.group or not method.immediate:
            raise ValueError(
                f"{method.name} pays in hindsight, which a tree cannot branch on; use methods that pay at "
                "once (SearchRewards, ToolRewards), or flat rollouts"
            )
