"""The GRPO family with a credit for every turn, and reward methods with an advantage of their own.

Some commands:

    memenvs train grpo --model FOLDER --env MemChunkQA-v0 --reward tamtrl
    memenvs train grpo --model FOLDER --recipe infomem_reading --env-args tasks=FOLDER
    memenvs train grpo --model FOLDER --reward turn --estimator rloo --out runs/rloo
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from memenvs.baselines.advantages import group_advantages, tree_advantages
from memenvs.baselines.flags import Flags, NonNegative, RewardArgs, run_command
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
from memenvs.core.data import Count, Whole
from memenvs.credit import overlong_penalty
from memenvs.rollout.engine import Timer
from memenvs.rollout.records import Episode, Floats, valid
from memenvs.rollout.tree import check_cost, collect_trees
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.comparison import COMPARISONS, Comparison, ComparisonSettings
from memenvs.wrappers.registry import METHODS, make_methods

if TYPE_CHECKING:
    from memenvs.models import HFPolicy


@dataclass
class ComparisonFlags(Flags):
    """What is compared inside a group, and how."""

    reward: str = "outcome"
    """What is compared inside a group: the outcome (GRPO-OR), the sum of all turns (GRPO-MR: "merged"), each
    turn with those of its number (MT-GRPO: "turn") or with all turns (TAMTRL eq. 7, of any rewards:
    "turn-pool"); or a reward method, such as tamtrl, which compares as its paper does."""
    reward_args: dict[str, Any] = field(default_factory=dict)
    """Settings of the reward method: minmax=false."""
    estimator: Literal["grpo", "rloo", "reinforce"] = "grpo"
    """Compare with the group's mean and standard deviation, with the mean of the others (RLOO), or with
    nothing (REINFORCE: the reward as it is, for which a group may be one episode)."""
    alpha: NonNegative = 1.0
    """Discount a turn of what later turns and the outcome earn (MT-GRPO)."""
    ended: Literal["zero", "skip"] = "zero"
    """What an episode that is over counts as at the turns that others of its group still play (MT-GRPO): 0,
    so that going on is compared with stopping, or nothing."""
    scale: Literal["std", "none"] = "std"
    """Divide by the group's standard deviation, or do not."""
    normalize: Literal["sum", "components"] = "sum"
    """Compare the sum of all rewards, or each component by itself and then their sum over the batch (GDPO:
    "components", for --reward merged and the methods that compare sums)."""
    component_weights: dict[str, Any] = field(default_factory=dict)
    """Weights of components where each is normalised by itself, 1 by default: format=0.5."""
    tree_turns: Whole = 0
    """Branch every reply of this many first turns (MT-GRPO on a tree): G + G^2 + … replies a task; 0 plays
    G episodes a task."""
    dynamic_sampling: Whole = 0
    """DAPO: sample up to this many more batches of tasks until enough groups differ in their rewards; with
    turn-pool and methods that score memories, until enough groups have both right and wrong answers (TAMTRL
    eq. 3)."""
    overlong: tuple[Count, Count] | None = None
    """DAPO's penalty on long episodes: the tokens of all replies at which it is 1, and the number of tokens
    before that over which it rises from 0, such as 4096 512; by default there is none."""


@dataclass
class GRPOArgs(ComparisonFlags, RewardArgs):
    """GRPO, RLOO and REINFORCE by outcome, return or turn; DAPO's parts; reward methods with their credit."""

    def check(self) -> None:
        """See `Flags.check`."""
        super().check()
        comparison = self.comparison()
        alone = self.estimator == "reinforce" and not isinstance(comparison, RewardMethod)
        if self.group_size < 2 and not alone:
            raise ValueError(f"a group compares at least 2 episodes, got group_size {self.group_size}")
        if self.overlong and self.overlong[1] > self.overlong[0]:
            raise ValueError(
                f"the second number of overlong must be at most the first, got {self.overlong[0]} and "
                f"{self.overlong[1]}"
            )
        self.comparison_settings.check(comparison, self.reward)
        if self.reward_args and not isinstance(comparison, RewardMethod):
            raise ValueError(f"reward_args are for reward methods, and --reward is {self.reward}")
        if self.tree_turns:
            if (self.reward, self.estimator) != ("turn", "grpo"):
                raise ValueError(
                    f"trees are for --reward turn and --estimator grpo, got {self.reward} and "
                    f"{self.estimator}; leave tree_turns out"
                )
            for flag in ("curriculum", "dynamic_sampling", "overlong"):
                if getattr(self, flag):
                    raise ValueError(f"{flag} is for groups, not for trees; leave tree_turns out")
            check_cost(self.groups, self.group_size, self.tree_turns)

    @property
    def comparison_settings(self) -> ComparisonSettings:
        """The flags that a comparison reads."""
        return ComparisonSettings(**{one.name: getattr(self, one.name) for one in fields(ComparisonSettings)})

    def comparison(self) -> Comparison:
        """What `reward` names: a plain comparison, or a reward method with `reward_args`."""
        methods, reward = {name.lower(): name for name in METHODS}, self.reward.lower()
        if reward in COMPARISONS:
            return COMPARISONS[reward]
        if reward not in methods:
            names = ", ".join([*COMPARISONS, *methods])
            raise ValueError(f"reward must be one of {names}, got {self.reward!r}")
        return make_methods([[methods[reward], self.reward_args]])[0]


def prepare(args: GRPOArgs) -> RewardRun:
    """Load models and environments."""
    comparison = args.comparison()
    return RewardRun(args, [comparison] if isinstance(comparison, RewardMethod) else [])


def train(run: RewardRun, args: GRPOArgs) -> None:
    """Train to the last step, or until SIGTERM."""
    with StepLoop(run, args.steps) as loop:
        for step, timer in loop:
            # Sample and credit (dynamic sampling needs the credit of a group to know whether to sample more)
            if args.tree_turns:
                experiences, episodes, tokens = sample_trees(run, args, step, timer)
            else:
                experiences, episodes = sample_groups(run, args, step, timer)
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
    counts = bool if args.entropy_coef or args.kl_coef else lambda one: bool(one.advantages.any())
    updates = Updates(policy, optimizer, experiences, args, processes=processes, seed=seed, counts=counts)
    for part, weights in updates:
        now = evaluate_in(policy, [one.sample for one in part], entropy=bool(args.entropy_coef))
        updates.backward(*policy_loss(now, part, weights, args, own))
    return updates.metrics()


def sample_groups(
    run: RewardRun, args: GRPOArgs, step: int, timer: Timer
) -> tuple[list[Experience], list[Episode]]:
    """Roll out the groups of a step and compare the episodes of each.

    With dynamic sampling a group without an advantage is left out, and others are sampled.

    Returns:
        The samples of the groups that are kept with their advantages, and all episodes sampled.
    """
    comparison = args.comparison()
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
        # Before groups are left out: TAMTRL's min and max are over everything sampled (its algorithm 1).
        with timer("credit"):
            advantages = group_advantages(usable, run.policy, comparison, args.comparison_settings)
        groups = {episode.group for episode in usable}
        if args.dynamic_sampling and comparison.needs_both_answers:
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
    return run_command(GRPOArgs, prepare, train, argv, "grpo")
