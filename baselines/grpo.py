"""The GRPO family with a credit for every turn, and reward methods with an advantage of their own.

`memenvs train grpo --model MODEL --env MemChunkQA-v0 --reward tamtrl --out RUN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from memenvs.baselines.advantages import (
    add_length_penalties,
    group_advantages,
    groups_with_both_answers,
    read_comparison,
    tree_advantages,
)
from memenvs.baselines.args import GRPOArgs, RewardArgs
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.rollout import PlayRun
from memenvs.baselines.scoring import evaluate_in, old_logprobs_from, score
from memenvs.baselines.update import Loss, Objective, give_advantages, policy_loss, sampled_entropy, train_on
from memenvs.core.episode import Episode, Floats, Sample, valid
from memenvs.models.hf import HFPolicy
from memenvs.rollout.order import group_seeds
from memenvs.rollout.tree import collect_trees


class GRPORun(PlayRun):
    """A run that compares episodes.

    Attributes:
        comparison: what `reward` names.
        how: its settings.
    """

    args: GRPOArgs

    def __init__(self, args: GRPOArgs, processes: ProcessGroup | None = None) -> None:
        self.comparison, self.how = read_comparison(args.reward, **args.reward_args)
        super().__init__(args, processes, self.comparison)


prepare = GRPORun


def train(run: GRPORun, args: GRPOArgs) -> None:
    """Train to the last step, or until SIGTERM."""
    for step in run.steps(args.steps):
        # Sample and credit
        roll_out = sample_trees if args.tree_turns else sample_groups
        samples, episodes, tokens = roll_out(run, args, step)
        informative = {sample.group for sample in samples if sample.advantages.any()}
        if args.drop_flat_groups:
            samples = [sample for sample in samples if sample.group in informative]

        # Score: the reference model's log-probabilities
        with run.timer("log_probs"):
            metrics = score(run.policy, samples, args, processes=run.processes, ref_model=run.ref_model)

        # Loss and step
        with run.timer("update"):
            seed = (args.seed, step)
            metrics |= update(run.policy, run.optimizer, samples, args, processes=run.processes, seed=seed)
        # The groups that are left out may be those that have collapsed.
        if args.dynamic_sampling or args.drop_flat_groups:
            metrics |= sampled_entropy(sample for episode in valid(episodes) for sample in episode.samples)
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

    unmoved = {"policy_loss": 0.0, "clip_fraction": 0.0, "approx_kl": 0.0}
    objective = Objective(policy, args, losses_of, unmoved=unmoved)
    if not (args.entropy_coef or args.kl_coef):
        objective.teaches = lambda sample: bool(sample.advantages.any())
    trained = train_on(objective, optimizer, samples, processes=processes, seed=seed)
    return sampled_entropy(samples) | trained


def sample_groups(run: GRPORun, args: GRPOArgs, step: int) -> tuple[list[Sample], list[Episode], int]:
    """Roll out the groups of a step and compare the episodes of each.

    With dynamic sampling a group without right and wrong answers is left out, and others are sampled.

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
        mixed = groups_with_both_answers(usable)
        for episode, values in zip(usable, advantages, strict=True):
            if not args.dynamic_sampling or episode.group in mixed:
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
