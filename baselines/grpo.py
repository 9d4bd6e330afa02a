"""The GRPO family with a credit for every turn: an environment and a model come in, a trained model goes out.

python -m memenvs.baselines.grpo --model FOLDER --env MemChunkQA-v0 --reward tamtrl
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from memenvs.baselines.advantages import Estimator, Reward, group_advantages
from memenvs.baselines.args import Count, NonNegative, TrainingArgs, Whole, check_ranges, read_args, run
from memenvs.baselines.distributed import World
from memenvs.baselines.measure import measure, precision
from memenvs.baselines.rollout import Clock
from memenvs.baselines.run import SHOWN, Steps, Training, group_seeds, summary, timings
from memenvs.baselines.tree import check_cost, collect_trees
from memenvs.baselines.tree_credit import episodes_of, tree_advantages
from memenvs.baselines.update import Item, items_of, update
from memenvs.credit import overlong_penalty
from memenvs.rollout.records import Episode, Floats, valid
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.registry import make_methods

MEMORY_METHODS = {"tamtrl": "TAMTRL", "infomem": "InfoMem", "mempo": "MemPO"}


@dataclass
class Args(TrainingArgs):
    """GRPO, RLOO and REINFORCE by outcome, return or turn; DAPO's parts; TAMTRL, InfoMem and MemPO."""

    reward: Reward = "outcome"
    """What is compared inside a group: the outcome (GRPO-OR), the sum of all turns (GRPO-MR: "merged"), each
    turn for itself (MT-GRPO: "turn"), or what a memory method makes of it."""
    reward_args: dict[str, Any] = field(default_factory=dict)
    """Settings of the memory method: minmax=false."""
    estimator: Estimator = "grpo"
    """Compare with the group's mean and standard deviation, with the mean of the others (RLOO), or with
    nothing (REINFORCE: the reward as it is, for which a group may be one episode)."""
    alpha: NonNegative = 1.0
    """Discount a turn of what later turns and the outcome earn (MT-GRPO)."""
    ended: Literal["zero", "skip"] = "zero"
    """What an episode that is over counts as at the turns that others of its group still play (MT-GRPO): 0,
    so that going on is compared with stopping, or nothing."""
    scale: Literal["std", "none"] = "std"
    """Divide by the group's standard deviation, or do not."""
    tree_turns: Whole = 0
    """Branch every reply of the first so many turns (MT-GRPO on a tree): G + G^2 + … replies a task; 0 plays
    G episodes a task."""
    tree_budget: Count = 10_000
    """Replies a step that trees may sample; a run that would need more is refused."""
    dynamic_sampling: Whole = 0
    """DAPO: draw up to so many more batches of tasks until enough groups differ in what they earned; with a
    memory method, until enough groups have both right and wrong answers (TAMTRL eq. 3)."""
    overlong_buffer: Whole = 0
    """DAPO: charge an episode's last so many tokens before overlong_max; 0 charges nothing."""
    overlong_max: Count = 4096
    """Tokens of all replies of an episode at which the charge is 1."""


def prepare(args: Args) -> Training:
    """Everything that a run needs."""
    check(args)
    method = memory_method(args)
    return Training(args, World(args.device), methods=[method] if method else [])


def check(args: Args) -> None:
    """Refuse flags that contradict each other, or that would do nothing.

    Raises:
        ValueError: with the flags.
    """
    check_ranges(args)
    alone = args.estimator == "reinforce" and args.reward not in MEMORY_METHODS
    if args.group_size < 2 and not alone:
        raise ValueError(f"a group compares at least 2 episodes, got group_size {args.group_size}")
    if args.overlong_buffer > args.overlong_max:
        raise ValueError(
            f"overlong_buffer must be at most overlong_max {args.overlong_max}, got {args.overlong_buffer}"
        )
    plain = args.estimator == "grpo" and args.scale == "std"
    if not plain and (args.reward == "tamtrl" or args.tree_turns):
        raise ValueError("estimator and scale are not for --reward tamtrl and trees, which have their own")
    if args.estimator != "grpo" and args.scale == "none":
        raise ValueError(f"scale none is for the estimator grpo: {args.estimator} divides by nothing")
    if args.reward_args and args.reward not in MEMORY_METHODS:
        raise ValueError(f"reward_args are of a memory method, and --reward is {args.reward}")
    if args.reward != "turn" and (args.tree_turns or (args.alpha, args.ended) != (1.0, "zero")):
        raise ValueError(f"alpha, ended and tree_turns are for --reward turn, got {args.reward!r}")
    if args.tree_turns:
        if args.dynamic_sampling or args.overlong_buffer:
            raise ValueError("dynamic_sampling and overlong_buffer are for groups, not for trees")
        check_cost(args.groups, args.group_size, args.tree_turns, args.tree_budget)


def train(training: Training, args: Args) -> None:
    """Train to the last step, or until SIGTERM."""
    policy, world, method = training.policy, training.world, memory_method(args)
    with Steps(training, args.steps, SHOWN) as steps:
        for step in steps:
            start, clock = time.perf_counter(), Clock()
            if args.tree_turns:
                items, drawn, tokens = grow_trees(training, args, step, clock)
            else:
                items, drawn = play_groups(training, args, step, clock, method)
                tokens = sum(episode.tokens for episode in drawn)
            samples = [item.sample for item in items]
            known = clock.run(
                "measuring", measure, policy, samples, args, world=world, reference=training.reference
            )
            seed = (args.seed, step)
            optimizer = training.optimizer
            learned = clock.run("update", update, policy, optimizer, items, args, world=world, seed=seed)
            clock.run("refreshing", training.refresh_sampler)

            seconds = time.perf_counter() - start
            numbers = {**summary(drawn), **known, **learned, **timings(clock, seconds, tokens)}
            learning = {item.group for item in items if item.advantages.any()}
            numbers["informative"] = len(learning) / len({episode.group for episode in drawn})
            steps.end(numbers)


def memory_method(args: Args) -> RewardMethod | None:
    """The method that `reward` names, if it names one."""
    if args.reward not in MEMORY_METHODS:
        return None
    return make_methods([[MEMORY_METHODS[args.reward], args.reward_args]])[0]


def play_groups(
    training: Training, args: Args, step: int, clock: Clock, method: RewardMethod | None
) -> tuple[list[Item], list[Episode]]:
    """What the episodes of a step are to learn, and all that were played for them.

    With dynamic sampling a group that teaches nothing is left out, and others are drawn.
    """
    settings: dict[str, Any] = {"reward": args.reward, "estimator": args.estimator}
    settings |= {"alpha": args.alpha, "ended": args.ended, "scale": args.scale, "method": method}
    credit = functools.partial(group_advantages, policy=training.policy, **settings)
    kept: dict[int, list[tuple[Episode, Floats]]] = {}
    drawn: list[Episode] = []
    for part in range(1 + args.dynamic_sampling):
        fresh = training.rollouts(step, clock, part)
        drawn += fresh
        add_length_penalty(fresh, args.overlong_buffer, args.overlong_max)
        usable = valid(fresh)
        # Before groups are left out: TAMTRL's min and max are of all that was sampled (its algorithm 1).
        advantages = clock.run("credit", credit, usable)
        groups = {episode.group for episode in usable}
        if args.dynamic_sampling and method:
            groups = half_right(usable)
        elif args.dynamic_sampling:
            groups = {e.group for e, values in zip(usable, advantages, strict=True) if values.any()}
        for episode, values in zip(usable, advantages, strict=True):
            if episode.group in groups:
                kept.setdefault(episode.group, []).append((episode, values))
        if len(kept) >= args.groups:
            break
    chosen = [member for members in list(kept.values())[: args.groups] for member in members]
    return items_of([episode for episode, _ in chosen], [values for _, values in chosen]), drawn


def half_right(episodes: Sequence[Episode]) -> set[int]:
    """The groups with 0 < correct < G, DAPO's constraint (TAMTRL eq. 3).

    A group that is all right differs too in what its memories earn; the constraint counts answers alone.
    """
    found: dict[int, set[bool]] = {}
    for episode in episodes:
        found.setdefault(episode.group, set()).add(episode.metrics["success"] == 1.0)
    return {group for group, answers in found.items() if len(answers) == 2}


def grow_trees(
    training: Training, args: Args, step: int, clock: Clock
) -> tuple[list[Item], list[Episode], int]:
    """What the replies of a step's trees are to learn, the episodes through them, and tokens sampled."""
    seeds, world = group_seeds(args.seed, step, 0, args.groups), training.world
    mine = world.share(seeds)
    with precision(training.policy, args):
        roots = collect_trees(
            training.tree_env(),
            training.sampler,
            mine,
            branches=args.group_size,
            turns=args.tree_turns,
            max_new_tokens=args.max_new_tokens,
            budget=args.tree_budget,
            clock=clock,
        )
    learned = clock.run("credit", tree_advantages, roots, alpha=args.alpha, ended=args.ended)
    items = [Item(sample, mine[number], values) for sample, number, values in learned]
    played = [e for seed, root in zip(mine, roots, strict=True) for e in episodes_of(root, seed)]
    tokens = sum(len(node.reply.ids) for root in roots for node in root.nodes())
    return world.gather(items), world.gather(played), int(world.add(tokens)[0])


def add_length_penalty(episodes: Sequence[Episode], buffer: int, most: int) -> None:
    """Give each episode DAPO's overlong penalty."""
    if not buffer:
        return
    penalties = overlong_penalty([episode.tokens for episode in episodes], most, buffer)
    for episode, penalty in zip(episodes, penalties.tolist(), strict=True):
        episode.length_penalty = penalty


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run(prepare, train, read_args(Args, argv, "memenvs.baselines.grpo"))


if __name__ == "__main__":
    sys.exit(main())
