"""The GRPO family with a credit for every turn, and reward methods with an advantage of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from memenvs.baselines.advantages import (
    add_length_penalties,
    group_advantages,
    read_comparison,
    tree_advantages,
)
from memenvs.baselines.flags import EngineArgs, RewardArgs, run_learner
from memenvs.baselines.rollout import PlayRun, group_seeds
from memenvs.baselines.update import (
    Loss,
    ProcessGroup,
    evaluate_in,
    give_advantages,
    old_logprobs_from,
    policy_loss,
    sampled_entropy,
    score,
    train_on,
)
from memenvs.core.data import Count, Whole
from memenvs.core.episode import Episode, Floats, Sample, valid
from memenvs.models.hf import HFPolicy
from memenvs.rollout.tree import check_cost, collect_trees
from memenvs.wrappers import RewardMethod


@dataclass
class GRPOArgs(EngineArgs, RewardArgs):
    """GRPO, RLOO and REINFORCE by outcome, return or turn; DAPO's parts; reward methods with their credit.

    Examples:
        memenvs train grpo --model FOLDER --env MemChunkQA-v0 --reward tamtrl
        memenvs train grpo --model FOLDER --recipe infomem_reading --env-args tasks=FOLDER
        memenvs train grpo --model FOLDER --env MemToolQA-v0 --reward turn --reward-args estimator=rloo
    """

    FIRST = ("model", "env", "env_args", "reward", "out")

    reward: str = "outcome"
    """What a group compares: the outcome (GRPO-OR), the sum of all turns ("merged", GRPO-MR), each turn with
    the turns of the same number ("turn", MT-GRPO) or with all turns ("turn-pool", TAMTRL eq. 7 for any
    rewards). Or a reward method, such as tamtrl, which compares as its paper does."""
    reward_args: dict[str, Any] = field(default_factory=dict)
    """Settings of the reward method, such as minmax=false, and of the comparison. estimator=rloo compares
    with the mean of the others, reinforce with nothing, so that a group can be one episode. scale=none does
    not divide by the group's standard deviation. For turns: alpha=0.9 discounts later turns and the outcome,
    and ended=skip does not count an ended episode as 0 at the turns that others still play. For sums:
    normalize=components and component_weights={"format":0.5} (GDPO)."""
    tree_turns: Whole = 0
    """Branch every reply of this many first turns (MT-GRPO on a tree): G + G^2 + … replies per task; 0 plays
    G episodes per task."""
    dynamic_sampling: Whole = 0
    """DAPO: sample up to this many more batches of tasks until enough groups differ, so that they have
    advantages. With turn-pool and tamtrl these are the groups with right and wrong answers (TAMTRL eq. 3)."""
    overlong: tuple[Count, Count] | None = None
    """DAPO's penalty on long episodes, such as 4096 512: it is 1 at this many tokens of replies, and rises
    from 0 over this many tokens before. By default there is none."""

    def check(self) -> None:
        """Check what a group compares too."""
        super().check()
        comparison, how = read_comparison(self.reward, self.reward_args)
        alone = how.estimator == "reinforce" and not isinstance(comparison, RewardMethod)
        if self.group_size < 2 and not alone:
            raise ValueError(
                f"group_size must be at least 2, since the episodes of a group are compared, got "
                f"{self.group_size}; only estimator=reinforce takes 1, and only without a reward method"
            )
        if self.overlong and self.overlong[1] > self.overlong[0]:
            raise ValueError(
                f"the second number of overlong must be at most the first, got {self.overlong[0]} and "
                f"{self.overlong[1]}"
            )
        if self.tree_turns:
            if (self.reward, how.estimator) != ("turn", "grpo"):
                raise ValueError(
                    f"trees are for --reward turn and estimator grpo, got {self.reward} and "
                    f"{how.estimator}; leave tree_turns out"
                )
            for flag in ("dynamic_sampling", "overlong"):
                if getattr(self, flag):
                    raise ValueError(
                        f"{flag} is for groups, not for trees, got {getattr(self, flag)!r}; leave it out, or "
                        "leave tree_turns out"
                    )
            check_cost(self.groups, self.group_size, self.tree_turns)


class GRPORun(PlayRun):
    """A run that compares episodes.

    Attributes:
        comparison: what `reward` names.
        how: its settings.
    """

    args: GRPOArgs

    def __init__(self, args: GRPOArgs, processes: ProcessGroup | None = None) -> None:
        self.comparison, self.how = read_comparison(args.reward, args.reward_args)
        super().__init__(args, processes, self.comparison)


prepare = GRPORun


def train(run: GRPORun, args: GRPOArgs) -> None:
    """Train to the last step, or until SIGTERM."""
    for step in run.steps(args.steps):
        # Sample and credit (dynamic sampling needs the credit of a group to know whether to sample more)
        roll_out = sample_trees if args.tree_turns else sample_groups
        samples, episodes, tokens = roll_out(run, args, step)

        # Score: the reference model's log-probabilities
        with run.timer("log_probs"):
            metrics = score(run.policy, samples, args, processes=run.processes, ref_model=run.ref_model)

        # Loss and step
        with run.timer("update"):
            seed = (args.seed, step)
            metrics |= update(run.policy, run.optimizer, samples, args, processes=run.processes, seed=seed)
        if args.dynamic_sampling:  # the groups that are left out may be those that have collapsed
            metrics |= sampled_entropy(sample for episode in valid(episodes) for sample in episode.samples)
        informative = {sample.group for sample in samples if sample.advantages.any()}
        metrics["informative"] = len(informative) / len({episode.group for episode in episodes})
        run.end(metrics, tokens, episodes)


def update(
    policy: HFPolicy,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    args: RewardArgs,
    *,
    processes: ProcessGroup,
    seed: Sequence[int],
) -> dict[str, float]:
    """Train on samples by their advantages, as `train_on` does.

    If the loss is of advantages alone, sequences without any have no gradient: they are at most read. They
    keep their weight in the loss of the others, and their part in the metrics.
    """
    first = old_logprobs_from(policy, args) == "update"

    def losses_of(part: list[Sample], weights: torch.Tensor) -> Iterator[Loss]:
        now = evaluate_in(policy, part, entropy=bool(args.entropy_coef))
        yield policy_loss(now, part, weights, args, first)

    counts = bool if args.entropy_coef or args.kl_coef else lambda sample: bool(sample.advantages.any())
    return sampled_entropy(samples) | train_on(
        policy,
        optimizer,
        samples,
        args,
        losses_of,
        processes=processes,
        seed=seed,
        counts=counts,
        unmoved={"policy_loss": 0.0, "clip_fraction": 0.0, "approx_kl": 0.0},
    )


def sample_groups(run: GRPORun, args: GRPOArgs, step: int) -> tuple[list[Sample], list[Episode], int]:
    """Roll out the groups of a step and compare the episodes of each.

    With dynamic sampling a group without an advantage is left out, and others are sampled.

    Returns:
        The samples of the groups that are kept with their advantages, all episodes, and the number of tokens
        sampled.
    """
    kept: dict[int, list[tuple[Episode, Floats]]] = {}
    sampled: list[Episode] = []
    for part in range(1 + args.dynamic_sampling):
        episodes = run.rollouts(step, part)
        sampled += episodes
        add_length_penalties(episodes, args.overlong)
        usable = valid(episodes)
        # Before groups are left out: TAMTRL's min and max are over everything sampled (its algorithm 1).
        with run.timer("credit"):
            advantages = group_advantages(usable, run.policy, run.comparison, run.how)
        groups = {episode.group for episode in usable}
        if args.dynamic_sampling:
            groups = {e.group for e, values in zip(usable, advantages, strict=True) if values.any()}
        for episode, values in zip(usable, advantages, strict=True):
            if episode.group in groups:
                kept.setdefault(episode.group, []).append((episode, values))
        if len(kept) >= args.groups:
            break
    chosen = [member for members in list(kept.values())[: args.groups] for member in members]
    samples = give_advantages([episode for episode, _ in chosen], [values for _, values in chosen])
    return samples, sampled, sum(episode.tokens for episode in sampled)


def sample_trees(run: GRPORun, args: GRPOArgs, step: int) -> tuple[list[Sample], list[Episode], int]:
    """Roll out the trees of a step and compare the replies to each state.

    Returns:
        The replies with their advantages, the episodes through the trees, and the number of tokens sampled.
    """
    seeds, tasks = group_seeds(args.seed, step, 0, args.groups), run.next_tasks(args.groups)
    plan = [
        Episode(seed=seed, group=seed, number=task)
        for seed, task in run.processes.shard([*zip(seeds, tasks, strict=True)])
    ]
    roots = collect_trees(
        run.make_env,
        run.loop.policy,
        plan,
        run.methods,
        run.scorer,
        branches=args.group_size,
        turns=args.tree_turns,
        timer=run.timer,
    )
    how = run.how
    with run.timer("credit"):
        credited = tree_advantages(roots, alpha=how.alpha, ended=how.ended, scale=how.scale)
    samples = [
        replace(sample, group=plan[number].group, advantages=values) for sample, number, values in credited
    ]
    episodes = run.without_texts([episode for root in roots for episode in root.episodes()])
    tokens = sum(len(node.reply.ids) for root in roots for node in root.nodes())
    processes = run.processes
    return processes.gather(samples), processes.gather(episodes), int(processes.sum(tokens)[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run_learner(GRPOArgs, prepare, train, argv, "grpo")
