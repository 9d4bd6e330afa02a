"""Losses of a policy and a critic, token by token, and their weighted sum over a batch.

Tensors are flat: (N,) holds the sampled tokens of any number of sequences, without padding and prompts, and
`rows` (N,) the sequence of each. A batch too large for one pass is cut anywhere: `token_weights` gives each
token its share in the loss of the whole batch, so that the gradients of micro-batches add up to it.
"""

from __future__ import annotations

import math

import torch

from memenvs.baselines.args import Divergence, KLEstimator, LossAggMode

MAX_LOG_RATIO = 20.0  # nats; as in verl: exp of more than 88 is infinite in float32
MAX_KL = 10.0  # nats; as in verl


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    sequences: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's clipped loss of tokens; with `sequences`, that of GSPO.

        rho = exp(log pi - log pi_old)
        L = max(-A rho, -A clamp(rho, 1 - clip, 1 + clip_high))        PPO eq. 7; clip-higher: DAPO eq. 8
        L = min(L, -A dual_clip)    where A < 0                        dual clip (Ye et al., 2020)

    GSPO (arXiv 2507.18071) has one ratio a sequence of T tokens, whose gradient each token shares by its own
    probability, so that tokens may differ in A (GSPO-token, eq. 13 and 14; sg stops gradients). Where A is
    the same and the loss a mean over sequences, this is its eq. 5.

        rho = sg[exp(1/T sum_t (log pi - log pi_old))] pi / sg[pi]

    Args:
        logprobs: log pi (N,), nats, differentiable.
        old_logprobs: log pi_old (N,), of the policy that sampled the tokens.
        advantages: A (N,).
        clip: how far below 1 the ratio may help. GSPO's paper has 3e-4.
        clip_high: how far above 1; None: as `clip`. DAPO has 0.28 beside 0.2, GSPO 4e-4.
        dual_clip: the most that a ratio counts where A < 0, above 1; verl has 3. None: no bound.
        sequences: (N,) whole numbers, the sequence of each token, each sequence whole; None for PPO.

    Returns:
        The losses (N,), differentiable, and whether each was clipped (N,); the mean is the clip fraction.
    """
    high = clip if clip_high is None else clip_high
    log_ratio = logprobs - old_logprobs
    if sequences is not None:
        means = _sums(log_ratio.detach(), sequences) / torch.bincount(sequences)[sequences]
        log_ratio = means + logprobs - logprobs.detach()
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    free, cut = -advantages * ratio, -advantages * ratio.clamp(1.0 - clip, 1.0 + high)
    losses = torch.maximum(free, cut)
    if dual_clip is not None:
        losses = torch.where(advantages < 0, torch.minimum(losses, -advantages * dual_clip), losses)
    return losses, cut > free


def cispo_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """CISPO's loss of tokens: every token keeps its gradient, and its weight is clipped.

        L = -sg[clamp(rho, 1 - clip, 1 + clip_high)] A log pi        MiniMax-M1 (arXiv 2506.13585) eq. 4 and 5

    Arguments and returns are those of `policy_loss`. The paper has no lower bound, which is `clip` 1.
    """
    high = clip if clip_high is None else clip_high
    ratio = (logprobs.detach() - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    weights = ratio.clamp(1.0 - clip, 1.0 + high)
    return -weights * advantages * logprobs, weights != ratio


def importance_weights(
    logprobs: torch.Tensor,
    sampler_logprobs: torch.Tensor,
    cap: float,
    *,
    floor: float | None = None,
    sequences: torch.Tensor | None = None,
) -> torch.Tensor:
    """Weights (N,) of the losses of tokens that another sampler drew: truncated importance sampling.

        w = exp(log pi_old - log mu), with `sequences` the product over the sequence's tokens
        w = min(w, cap); with `floor`: w where floor <= w <= cap, otherwise 0

    Sources: Ionides (2008); Yao et al. (2025), "Your Efficient RL Framework Secretly Brings You Off-Policy RL
    Training"; by sequence: Liu et al. (2025), "When Speed Kills Stability"; masked: IcePop, arXiv 2510.18855.

    Args:
        logprobs: log pi_old (N,), of the policy in training before the update.
        sampler_logprobs: log mu (N,), of the sampler, which has the same weights and rounds differently.
        cap: the most that a token counts; verl has 2, TRL 3.
        floor: the least, where what is outside the bounds counts nothing; IcePop has 0.5 and a cap of 5.
        sequences: (N,) whole numbers, the sequence of each token, each sequence whole; None: by token.
    """
    apart = logprobs - sampler_logprobs
    if sequences is not None:
        apart = _sums(apart, sequences)
    weights = apart.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if floor is None:
        return weights.clamp(max=cap)
    return torch.where((weights >= floor) & (weights <= cap), weights, 0.0)


def _sums(values: torch.Tensor, sequences: torch.Tensor) -> torch.Tensor:
    """The sum (N,) of values (N,) over the sequence of each token."""
    sums = values.new_zeros(int(sequences.max()) + 1 if len(sequences) else 0)
    return sums.index_add(0, sequences, values)[sequences]


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, *, clip: float | None = 0.2
) -> torch.Tensor:
    """PPO's losses (N,) of a critic.

        L = 1/2 max((V - R)^2, (V_clip - R)^2),   V_clip = V clamped to V_old -+ clip

    Args:
        values: V (N,), differentiable.
        old_values: V_old (N,), of the critic when the tokens were sampled.
        returns: R (N,), as `gae` + V_old.
        clip: how far from V_old a change of V can lower the loss; None sets no limit.
    """
    free = (values - returns).square()
    if clip is None:
        return 0.5 * free
    near = torch.maximum(torch.minimum(values, old_values + clip), old_values - clip)
    return 0.5 * torch.maximum(free, (near - returns).square())


def kl_penalty(
    logprobs: torch.Tensor, ref_logprobs: torch.Tensor, estimator: KLEstimator = "k3"
) -> torch.Tensor:
    """Estimates (N,) of KL(pi || pi_ref) from tokens that pi sampled, nats (Schulman, 2020).

        k3 = exp(-d) - 1 + d,   d = log pi - log pi_ref        verl's low_var_kl
        k2 = d^2 / 2                                           verl's mse

    Neither is negative. The mean of k3 is the divergence, but its mean gradient is that of KL(pi_ref || pi),
    and it is cut at 10 nats, where its gradient is 0. The mean gradient of k2 is that of KL(pi || pi_ref),
    though its mean is the divergence only where the two are near. The mean of d itself (k1) is the divergence
    too, but its mean gradient is 0: `mt_ppo` takes it off the rewards.

    Args:
        logprobs: log pi (N,), nats.
        ref_logprobs: log pi_ref (N,).
        estimator: `"k3"` or `"k2"`.
    """
    apart = logprobs - ref_logprobs
    if estimator == "k2":
        return 0.5 * apart.square()
    apart = apart.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (torch.expm1(-apart) + apart).clamp(max=MAX_KL)


def divergence(
    logprobs: torch.Tensor, teacher_logprobs: torch.Tensor, kind: Divergence = "forward"
) -> torch.Tensor:
    """Divergences (N,) of a student's distributions q from a teacher's p over a vocabulary, nats.

        forward  KL(p || q) = sum of p (log p - log q)              as Muralidharan et al., 2024
        reverse  KL(q || p) = sum of q (log q - log p)              as MiniLLM (Gu et al., 2024)
        jsd      (KL(p || m) + KL(q || m)) / 2,  m = (p + q) / 2    as GKD (Agarwal et al., 2024), beta 1/2

    Args:
        logprobs: log q (N, V), differentiable.
        teacher_logprobs: log p (N, V). A token that neither ever writes, log p = log q = -inf, adds nothing.
        kind: `"forward"`, `"reverse"` or `"jsd"`.
    """
    least = torch.finfo(logprobs.dtype).min
    q, p = logprobs.clamp(min=least), teacher_logprobs.clamp(min=least)
    if kind == "forward":
        return _kl(p, q)
    if kind == "reverse":
        return _kl(q, p)
    middle = torch.logaddexp(p, q) - math.log(2)
    return 0.5 * (_kl(p, middle) + _kl(q, middle))


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p || q) (N,) of log-probabilities (N, V)."""
    return torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)


def token_weights(
    rows: torch.Tensor, lengths: torch.Tensor, mode: LossAggMode = "token-mean", *, horizon: int = 1
) -> torch.Tensor:
    """The share (N,), float64, of each token in the loss of the whole batch: loss = sum of weights * losses.

        token-mean               1 / tokens of the batch                 DAPO eq. 8
        seq-mean-token-mean      1 / (sequences * tokens of its own)     GRPO eq. 3
        seq-mean-token-sum       1 / sequences
        seq-mean-token-sum-norm  1 / (sequences * horizon)               Dr. GRPO, as in verl 0.9.1

    Sequences without a sampled token do not count. What a sequence is (a turn's, an episode's) is what the
    caller numbers. With several processes give the lengths of all, and sum the gradients over them.

    Args:
        rows: (N,) whole numbers, the sequence of each token.
        lengths: (R,) sampled tokens of each sequence of the whole batch. The N tokens may be a part of them.
        mode: as above; the names are verl's.
        horizon: tokens, the constant of `"seq-mean-token-sum-norm"`.
    """
    lengths = lengths.double()
    if mode == "token-mean":
        share = 1.0 / lengths.sum().clamp(min=1)
        return share.expand(rows.shape)
    share = 1.0 / (lengths > 0).double().sum().clamp(min=1)
    if mode == "seq-mean-token-mean":
        return share / lengths[rows]
    if mode == "seq-mean-token-sum-norm":
        share = share / horizon
    return share.expand(rows.shape)


def aggregate(
    losses: torch.Tensor, rows: torch.Tensor, mode: LossAggMode = "token-mean", *, horizon: int = 1
) -> torch.Tensor:
    """The loss () of a batch that is here whole: its `token_weights` times its losses (N,), summed."""
    lengths = torch.bincount(rows)
    return (token_weights(rows, lengths, mode, horizon=horizon) * losses).sum()
