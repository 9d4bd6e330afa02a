"""PPO with a reward for every turn (MT-PPO).

`memenvs train mt_ppo --model MODEL --env MemSokoban-v0 --reward turn --out RUN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from memenvs.baselines import losses
from memenvs.baselines.args import Level, MTPPOArgs
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.rollout import PlayRun
from memenvs.baselines.scoring import evaluate_in, old_logprobs_from, score, values_in
from memenvs.baselines.update import (
    Loss,
    Objective,
    flat_tensor,
    give_advantages,
    policy_loss,
    sampled_entropy,
    train_on,
)
from memenvs.core.episode import Episode, Floats, Sample, valid
from memenvs.credit import bi_level_gae, gae, place_rewards, turn_gae, whiten
from memenvs.credit.tokens import Placement
from memenvs.models.hf import HFPolicy
from memenvs.rollout.collect import Loop
from memenvs.rollout.policy import Request, prompt_of


class MTPPORun(PlayRun):
    """A run with a critic.

    Attributes:
        critic: the policy itself if the two share a model.
    """

    args: MTPPOArgs

    def load_models(self) -> dict[str, HFPolicy]:
        """The policy and its critic, which shares the weights of the model below an adapter."""
        loaded, args = super().load_models(), self.args
        if args.critic == "shared":
            self.critic = self.policy.add_value_head(args.seed)
            return loaded
        if self.policy.adapter_of is None:
            self.critic = self.load(args.model, value_head=True)
        else:
            self.critic = self.policy.twin().add_value_head(args.seed)
        return {**loaded, "critic": self.critic}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The policy's parameters and, with a learning rate of its own, the critic's."""
        args = self.args
        critic = self.critic.critic_parameters(shared=self.critic is self.policy)
        group, *others = super().parameter_groups()
        return [
            {**group, "params": self.policy.model_parameters()},
            {"params": critic, "full_lr": args.critic_rate, "warmup": args.critic_lr_warmup},
            *others,
        ]

    def make_loop(self, *args: Any, **settings: Any) -> Loop:
        """A loop whose truncated episodes keep what would have been read next, if asked for."""
        loop = super().make_loop(*args, **settings)
        if self.args.bootstrap_truncated:
            loop.on_truncated = self.keep_following
        return loop

    def keep_following(self, request: Request) -> None:
        """Note the state after a truncated episode, if it fits the window; otherwise its value stays 0."""
        prompt = prompt_of(self.policy, request, 1)
        if prompt.room > 0 and request.episode.samples:
            state = Sample.of((prompt.ids, None, -1), (prompt.ids[-1:], np.zeros(1), 0))
            request.episode.samples[-1].following = state


prepare = MTPPORun


def train(run: MTPPORun, args: MTPPOArgs) -> None:
    """Train to the last step, or until SIGTERM."""
    for step in run.steps(args.steps):
        # Sample
        episodes = run.rollouts(step)
        usable = valid(episodes)
        samples = [sample for episode in usable for sample in episode.samples]

        # Score: the critic's values, the reference model's log-probabilities
        with run.timer("log_probs"):
            scorers = {"critic": run.critic, "ref_model": run.ref_model}
            metrics = score(run.policy, samples, args, processes=run.processes, **scorers)
            states = [sample.following for sample in samples if sample.following is not None]
            score(run.policy, states, args, processes=run.processes, critic=run.critic)

        # Credit
        with run.timer("credit"):
            advantages, returns = token_advantages(
                usable,
                reward=args.reward,
                level=args.gae,
                gamma=args.gamma,
                turn_gamma=args.turn_gamma,
                lam=args.lam,
                penalties=None if args.kl_in_loss else kl_penalties(usable, args.kl_coef),
                marked=[episode.advantage_credits(run.policy) for episode in usable],
            )

        # Loss and step
        with run.timer("update"):
            metrics |= update(
                run.policy,
                run.critic,
                run.optimizer,
                give_advantages(usable, advantages, returns),
                args,
                processes=run.processes,
                seed=(args.seed, step),
                critic_only=step <= args.critic_warmup,
            )
        run.end(metrics, sum(episode.tokens for episode in episodes), episodes)


def update(
    policy: HFPolicy,
    critic: HFPolicy,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    args: MTPPOArgs,
    *,
    processes: ProcessGroup,
    seed: Sequence[int],
    critic_only: bool = False,
) -> dict[str, float]:
    """Train policy and critic on samples, as `train_on` does.

    A separate critic has a gradient of its own, clipped apart; a shared one, which is the policy itself, adds
    its loss to the policy's. With `critic_only` the policy stays as it is (critic warm-up).
    """
    first, shared = old_logprobs_from(policy, args, critic) == "update", critic is policy
    trained = {"critic_grad_norm": critic.critic_parameters(shared=shared)}
    if not critic_only:
        model = {"grad_norm": policy.parameters() if shared else policy.model_parameters()}
        trained = model if shared else model | trained

    def losses_of(part: list[Sample], weights: torch.Tensor) -> Iterator[Loss]:
        if shared or not critic_only:
            now = evaluate_in(policy, part, entropy=bool(args.entropy_coef))
            loss, metrics = policy_loss(now, part, weights, args, first)
        if shared and now.values is not None:  # one pass for both
            of_values, more = value_loss(now.values, part, weights, args)
            yield of_values if critic_only else loss + of_values, metrics | more
            return
        if not critic_only:
            yield loss, metrics
        yield value_loss(values_in(critic, part), part, weights, args)

    objective = Objective(policy, args, losses_of, trained)
    if critic_only:
        objective.fixed = policy.model_parameters()
    return sampled_entropy(samples) | train_on(objective, optimizer, samples, processes=processes, seed=seed)


def value_loss(
    values: torch.Tensor, samples: Sequence[Sample], weights: torch.Tensor, args: MTPPOArgs
) -> Loss:
    """The loss () of a critic's values (N,) of a micro-batch, and its metrics, as of `policy_loss`."""
    returns = flat_tensor([sample.returns for sample in samples], values)
    before = flat_tensor([sample.values for sample in samples], values)
    errors = losses.value_loss(values, before, returns, clip=args.value_clip)
    return args.value_coef * (weights * errors).sum(), {"value_loss": errors.mean()}


def token_advantages(
    episodes: Sequence[Episode],
    *,
    reward: Placement = "turn",
    level: Level = "token",
    gamma: float = 1.0,
    turn_gamma: float = 1.0,
    lam: float = 1.0,
    whitened: bool = True,
    penalties: Sequence[Floats] | None = None,
    marked: Sequence[Floats] | None = None,
) -> tuple[list[Floats], list[Floats]]:
    """Advantages and returns (N,) of each episode's sampled tokens by GAE over its critic's values.

    Rewards are placed as in MT-PPO eq. 9 (`"turn"`), or all at the last token: their sum (`"merged"`,
    PPO-MR) or the outcome alone (`"outcome"`, PPO-OR). Time runs over sampled tokens, through all samples,
    or over turns (`turn_gae`), or on two levels (`bi_level_gae`). The value after the last token is 0, also
    where the episode was truncated, as in verl's code. An episode that failed, or was paid NaN or infinity,
    has advantages of 0.

    Args:
        episodes: with `values` in every sample.
        reward: see above.
        level: the time step: `"token"`, `"turn"` or `"both"`.
        gamma: discount per time step; of `"both"`, per token.
        turn_gamma: discount per turn of `"both"`.
        lam: lambda of GAE.
        whitened: advantages get mean 0 and standard deviation 1 over all tokens given.
        penalties: (N,) of each episode's sampled tokens, taken off their rewards; None for none.
        marked: (N,) credits of each episode that are advantages already (`Episode.advantage_credits`). They
            are added to the advantages unchanged, except with `"outcome"`; None for none.
    """
    if not episodes:
        return [], []
    lengths = np.array([episode.tokens for episode in episodes])
    failed = np.array([episode.check_rewards() for episode in episodes])
    mask = (np.arange(lengths.max()) < lengths[:, None]) & ~failed[:, None]
    rewards, values = np.zeros(mask.shape), np.zeros(mask.shape)
    for row, episode in enumerate(episodes):
        # The turns' rewards hold the outcome already.
        outcome = sum(episode.outcome_rewards) if reward == "outcome" else None
        ends = episode.turn_ends
        earned = np.subtract(episode.turn_rewards, episode.turn_advantages)
        placed = place_rewards(earned, ends, episode.tokens, placement=reward, outcome=outcome)
        rewards[row, : episode.tokens] = placed - (0.0 if penalties is None else penalties[row])
        if episode.samples and (state := episode.samples[-1].following) is not None:
            # A reward of gamma V(s') at the last step is the same as V(s') after it.
            discount = turn_gamma if level == "both" else gamma
            rewards[row, episode.tokens - 1] += discount * float(np.asarray(state.values)[0])
        values[row, : episode.tokens] = np.concatenate([np.asarray(s.values) for s in episode.samples])
    if level == "token":
        advantages = gae(rewards, values, mask, gamma, lam)
    else:
        advantages = np.zeros(mask.shape)
        for row in np.flatnonzero(~failed).tolist():
            episode = episodes[row]
            sampled = slice(episode.tokens)
            turns = episode.by_token(range(len(episode.turns)))
            steps = rewards[row, sampled], values[row, sampled], turns, gamma, lam
            if level == "both":
                advantages[row, sampled] = bi_level_gae(*steps, turn_gamma)
            else:
                advantages[row, sampled] = turn_gae(*steps)
                values[row, sampled] = values[row, np.searchsorted(turns, turns)]  # before the first token
    returns = advantages + values
    if whitened:
        advantages = whiten(advantages, mask)
    for row, credits in enumerate(marked or () if reward != "outcome" else ()):
        advantages[row, : lengths[row]] += credits
    advantages[failed] = 0.0
    rows = range(len(episodes))
    return [advantages[i, : lengths[i]] for i in rows], [returns[i, : lengths[i]] for i in rows]


def kl_penalties(episodes: Sequence[Episode], coef: float) -> list[Floats]:
    """Penalties (N,) of each episode's sampled tokens: coef times the divergence in nats (k1).

    It is the divergence of the policy that sampled from the reference model, for rewards as in RLHF (Ouyang
    et al., 2022, eq. 2).

    Args:
        episodes: with `ref_logprobs` in every sample.
        coef: weight of a nat.
    """
    divergences = [
        [s.logprobs[s.response_mask] - np.asarray(s.ref_logprobs) for s in episode.samples]
        for episode in episodes
    ]
    return [coef * np.concatenate(of_samples) for of_samples in divergences]
