"""The GRPO family with a credit for every turn, and reward methods with an advantage of their own.

Some commands:

    python -m memenvs.baselines.grpo --model FOLDER --env MemChunkQA-v0 --reward tamtrl
    python -m memenvs.baselines.grpo --model FOLDER --recipe infomem_reading --env-args tasks=FOLDER
    python -m memenvs.baselines.grpo --model FOLDER --reward turn --estimator rloo --out runs/rloo
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from memenvs.baselines.advantages import (
    OWN_ESTIMATOR,
    Estimator,
    Normalize,
    Reward,
    check_normalize,
    group_advantages,
    tree_advantages,
)
from memenvs.baselines.flags import Count, Flags, NonNegative, RewardArgs, Whole, run_command
from memenvs.baselines.rollout import RewardRun, StepLoop, group_seeds
from memenvs.baselines.update import (
    Experience,
    ProcessGroup,
    Updates,
    evaluate_in,
    old_logprobs_from,
    policy_loss,
    score,
    to_experiences,
)
from memenvs.core.checks import check_numbers
from memenvs.credit import overlong_penalty
from memenvs.rollout.engine import Timer
from memenvs.rollout.records import Episode, Floats, valid
from memenvs.rollout.tree import check_cost, collect_trees
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.registry import make_methods

if TYPE_CHECKING:
    from memenvs.models import HFPolicy

MEMORY_METHODS = {"tamtrl": "TAMTRL", "infomem": "InfoMem", "mempo": "MemPO"}
METHODS = {**MEMORY_METHODS, "igpo": "IGPO", "rememr1": "ReMemR1", "gigpo": "GiGPO"}
"""The reward methods that `--reward` names."""
MIXED = ("turn-pool", *MEMORY_METHODS)
"""Rewards whose dynamic sampling keeps the groups with both right and wrong answers."""


@dataclass
class ComparisonFlags(Flags):
    """What is compared inside a group, and how."""

    reward: Reward = "outcome"
    """What is compared inside a group: the outcome (GRPO-OR), the sum of all turns (GRPO-MR: "merged"), each
    turn with those of its number (MT-GRPO: "turn") or with all turns (TAMTRL eq. 7, of any rewards:
    "turn-pool"), or what a reward method makes of it."""
    reward_args: dict[str, Any] = field(default_factory=dict)
    """Settings of the reward method: minmax=false."""
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
    normalize: Normalize = "sum"
    """Compare the sum of all rewards, or each component by itself and then their sum over the batch (GDPO:
    "components", for --reward merged, infomem and gigpo)."""
    component_weights: dict[str, Any] = field(default_factory=dict)
    """Weights of components where each is normalised by itself, 1 by default: format=0.5."""
    tree_turns: Whole = 0
    """Branch every reply of this many first turns (MT-GRPO on a tree): G + G^2 + … replies a task; 0 plays
    G episodes a task."""
    dynamic_sampling: Whole = 0
    """DAPO: sample up to this many more batches of tasks until enough groups differ in their rewards; with
    turn-pool and the memory methods (tamtrl, infomem, mempo), until enough groups have both right and wrong
    answers (TAMTRL eq. 3)."""
    overlong: tuple[Count, Count] | None = None
    """DAPO's penalty on long episodes: the tokens of all replies at which it is 1, and the number of tokens
    before that over which it rises from 0, such as 4096 512; by default there is none."""


@dataclass
class GRPOArgs(ComparisonFlags, RewardArgs):
    """GRPO, RLOO and REINFORCE by outcome, return or turn; DAPO's parts; reward methods with their credit."""

    def check(self) -> None:
        """See `Flags.check`."""
        super().check()
        alone = self.estimator == "reinforce" and self.reward not in METHODS
        if self.group_size < 2 and not alone:
            raise ValueError(f"a group compares at least 2 episodes, got group_size {self.group_size}")
        if self.overlong and self.overlong[1] > self.overlong[0]:
            raise ValueError(
                f"the second number of overlong must be at most the first, got {self.overlong[0]} and "
                f"{self.overlong[1]}"
            )
        if self.reward in OWN_ESTIMATOR and self.estimator != "grpo":
            raise ValueError(f"--reward {self.reward} has its own estimator; leave out {self.estimator}")
        if self.reward in OWN_ESTIMATOR and self.reward != "rememr1" and self.scale == "none":
            raise ValueError(f"--reward {self.reward} always divides by std; leave out scale none")
        if self.tree_turns and self.estimator != "grpo":
            raise ValueError(f"trees are compared by the estimator grpo, got {self.estimator}; leave it out")
        if self.estimator != "grpo" and self.scale == "none":
            raise ValueError(f"scale none is for the estimator grpo: {self.estimator} divides by nothing")
        self._check_components()
        if self.reward_args and self.reward not in METHODS:
            raise ValueError(f"reward_args are of a reward method, and --reward is {self.reward}")
        if self.reward != "turn" and (self.tree_turns or (self.alpha, self.ended) != (1.0, "zero")):
            raise ValueError(f"alpha, ended and tree_turns are for --reward turn, got {self.reward!r}")
        if self.tree_turns:
            if self.curriculum:
                raise ValueError("curriculum is for groups, not for trees; leave tree_turns out")
            if self.dynamic_sampling or self.overlong:
                raise ValueError("dynamic_sampling and overlong are for groups, not for trees")
            check_cost(self.groups, self.group_size, self.tree_turns)

    def _check_components(self) -> None:
        """ValueError where components cannot be normalised by themselves, or weights are of nothing."""
        check_normalize(self.normalize, self.reward, self.estimator, self.scale)
        if self.component_weights and self.normalize != "components":
            raise ValueError("component_weights are for --normalize components")
        check_numbers(
            **{f"component_weights: {name}": weight for name, weight in self.component_weights.items()}
        )


def prepare(args: GRPOArgs) -> RewardRun:
    """Load models and environments.

    Raises:
        ValueError: arguments that do not fit each other, or a weight of a component that there is not.
    """
    method = own_method(args)
    run = RewardRun(args, ProcessGroup(args.device), methods=[method] if method else [])
    known = run.component_names() if args.component_weights else []
    if unknown := [name for name in args.component_weights if name not in known]:
        raise ValueError(
            f"component_weights has {unknown[0]!r}; the components of {args.env} here are {', '.join(known)}"
        )
    return run


def train(run: RewardRun, args: GRPOArgs) -> None:
    """Train to the last step, or until SIGTERM."""
    method = own_method(args)
    with StepLoop(run, args.steps) as loop:
        for step, timer in loop:
            # Sample and credit (dynamic sampling needs the credit of a group to know whether to sample more)
            if args.tree_turns:
                experiences, episodes, tokens = sample_trees(run, args, step, timer)
            else:
                experiences, episodes = sample_groups(run, args, step, timer, method)
                tokens = sum(episode.tokens for episode in episodes)

            # Score: the reference model's log-probabilities
            samples = [one.sample for one in experiences]
            with timer("log_probs"):
                metrics = score(run.policy, samples, args, processes=run.processes, ref_model=run.ref_model)

            # Loss and step
            seed = (args.seed, step)
            with timer("update"):
                metrics |= update(
                    run.policy, run.optimizer, experiences, args, processes=run.processes, seed=seed
                )
            with timer("refresh"):
                run.refresh_sampler()
            run.save_episodes(step, "train", episodes)
            informative = {one.group for one in experiences if one.advantages.any()}
            metrics["informative"] = len(informative) / len({episode.group for episode in episodes})
            loop.end(metrics, tokens, episodes)


def update(
    policy: HFPolicy,
    optimizer: Any,
    experiences: Sequence[Experience],
    args: RewardArgs,
    *,
    processes: ProcessGroup,
    seed: Sequence[int],
) -> dict[str, float]:
    """Train on experiences by their advantages; see `Updates`.

    If the loss is of advantages alone, sequences without any are not computed, since their gradient is 0.
    They keep their weight in the loss of the others, and are in no metric but `computed`.
    """
    own = old_logprobs_from(policy, args) == "update"
    counts = None if args.entropy_coef or args.kl_coef else lambda one: bool(one.advantages.any())
    updates = Updates(policy, optimizer, experiences, args, processes=processes, seed=seed, counts=counts)
    for part, weights in updates:
        now = evaluate_in(policy, [one.sample for one in part], entropy=bool(args.entropy_coef))
        updates.backward(*policy_loss(now, part, weights, args, own))
    return updates.metrics()


def own_method(args: GRPOArgs) -> RewardMethod | None:
    """The method that `reward` names, if it names one."""
    if args.reward not in METHODS:
        return None
    return make_methods([[METHODS[args.reward], args.reward_args]])[0]


def sample_groups(
    run: RewardRun, args: GRPOArgs, step: int, timer: Timer, method: RewardMethod | None
) -> tuple[list[Experience], list[Episode]]:
    """Roll out the groups of a step and compare the episodes of each.

    With dynamic sampling a group without an advantage is left out, and others are sampled.

    Returns:
        The samples of the groups that are kept with their advantages, and all episodes sampled.
    """
    kept: dict[int, list[tuple[Episode, Floats]]] = {}
    sampled: list[Episode] = []
    for part in range(1 + args.dynamic_sampling):
        episodes = run.rollouts(step, timer, part)
        sampled += episodes
        if args.overlong:
            lengths = [episode.tokens for episode in episodes]
            for episode, penalty in zip(episodes, overlong_penalty(lengths, *args.overlong), strict=True):
                episode.length_penalty = float(penalty)
        usable = valid(episodes)
        # Before groups are left out: TAMTRL's min and max are of all that was sampled (its algorithm 1).
        with timer("credit"):
            advantages = group_advantages(
                usable,
                run.policy,
                reward=args.reward,
                estimator=args.estimator,
                alpha=args.alpha,
                ended=args.ended,
                scale=args.scale,
                method=method,
                normalize=args.normalize,
                weights=args.component_weights,
            )
        groups = {episode.group for episode in usable}
        if args.dynamic_sampling and args.reward in MIXED:
            groups = mixed_groups(usable)
        elif args.dynamic_sampling:
            groups = {e.group for e, values in zip(usable, advantages, strict=True) if values.any()}
        for episode, values in zip(usable, advantages, strict=True):
            if episode.group in groups:
                kept.setdefault(episode.group, []).append((episode, values))
        if len(kept) >= args.groups:
            break
    chosen = [member for members in list(kept.values())[: args.groups] for member in members]
    return to_experiences([episode for episode, _ in chosen], [values for _, values in chosen]), sampled


def mixed_groups(episodes: Sequence[Episode]) -> set[int]:
    """The groups with 0 < correct < G, DAPO's constraint (TAMTRL eq. 3).

    A group that is all right differs too in what its memories earn; the constraint counts answers alone.
    """
    answers: dict[int, set[bool]] = {}
    for episode in episodes:
        answers.setdefault(episode.group, set()).add(episode.success)
    return {group for group, kinds in answers.items() if len(kinds) == 2}


def sample_trees(
    run: RewardRun, args: GRPOArgs, step: int, timer: Timer
) -> tuple[list[Experience], list[Episode], int]:
    """Roll out the trees of a step and compare the replies to each state.

    Returns:
        The replies with their advantages, the episodes through the trees, and the number of tokens sampled.
    """
    seeds = run.processes.shard(group_seeds(args.seed, step, 0, args.groups))
    roots = collect_trees(
        run.tree_env,
        run.sampler,
        seeds,
        branches=args.group_size,
        turns=args.tree_turns,
        max_new_tokens=args.max_new_tokens,
        timer=timer,
    )
    with timer("credit"):
        credited = tree_advantages(roots, alpha=args.alpha, ended=args.ended, scale=args.scale)
    experiences = [Experience(sample, seeds[number], values) for sample, number, values in credited]
    episodes = [episode for root in roots for episode in root.episodes()]
    tokens = sum(len(node.reply.ids) for root in roots for node in root.nodes())
    processes = run.processes
    return processes.gather(experiences), processes.gather(episodes), int(processes.sum(tokens)[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run_command(GRPOArgs, prepare, train, argv, "memenvs.baselines.grpo")


if __name__ == "__main__":
    sys.exit(main())
