"""PPO with a reward for every turn (MT-PPO): an environment and a model come in, a trained model goes out.

python -m memenvs.baselines.mt_ppo --model FOLDER --env MemSokoban-v0 --reward turn
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.baselines.advantages import Placement, token_advantages
from memenvs.baselines.args import PPOArgs, Share, kl_in_loss, read_args, run
from memenvs.baselines.distributed import World
from memenvs.baselines.measure import kl_penalties, measure
from memenvs.baselines.rollout import Clock
from memenvs.baselines.run import SHOWN, Steps, Training, summary, timings
from memenvs.baselines.update import items_of, update
from memenvs.rollout.records import valid


@dataclass
class Args(PPOArgs):
    """MT-PPO, PPO-MR and PPO-OR: they differ in where rewards stand."""

    group_size: int = 1
    """Episodes of a task; PPO needs no groups."""
    reward: Placement = "turn"
    """Each turn's reward at its own last token (MT-PPO eq. 9), or all at the episode's last: their sum
    ("merged", PPO-MR) or the outcome alone ("outcome", PPO-OR)."""
    gamma: Share = 1.0
    """Discount a token."""
    lam: Share = 1.0
    """Lambda of generalised advantage estimation."""
    whiten: bool = True
    """Give advantages mean 0 and standard deviation 1 over the batch."""


def prepare(args: Args) -> Training:
    """Everything that a run needs."""
    return Training(args, World(args.device))


def train(training: Training, args: Args) -> None:
    """Train to the last step, or until SIGTERM."""
    policy, world = training.policy, training.world
    with Steps(training, args.steps, SHOWN) as steps:
        for step in steps:
            start, clock = time.perf_counter(), Clock()
            episodes = training.rollouts(step, clock)
            usable = valid(episodes)
            samples = [sample for episode in usable for sample in episode.samples]
            known = clock.run(
                "measuring",
                measure,
                policy,
                samples,
                args,
                world=world,
                critic=training.critic,
                reference=training.reference,
            )
            advantages, returns = clock.run(
                "credit",
                token_advantages,
                usable,
                reward=args.reward,
                gamma=args.gamma,
                lam=args.lam,
                whitened=args.whiten,
                penalties=None if kl_in_loss(args) else kl_penalties(usable, args),
            )
            learned = clock.run(
                "update",
                update,
                policy,
                training.optimizer,
                items_of(usable, advantages, returns),
                args,
                world=world,
                seed=(args.seed, step),
                critic=training.critic,
                critic_only=step <= args.critic_warmup,
            )
            clock.run("refreshing", training.refresh_sampler)

            seconds = time.perf_counter() - start
            tokens = sum(episode.tokens for episode in episodes)
            steps.end({**summary(episodes), **known, **learned, **timings(clock, seconds, tokens)})


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run(prepare, train, read_args(Args, argv, "memenvs.baselines.mt_ppo"))


if __name__ == "__main__":
    sys.exit(main())
