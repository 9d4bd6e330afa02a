"""Credit: GAE against a loop over time, and the cost of the whole credit stage relative to a training step.

python -m benchmarks.credit
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.harness import in_turns, timed
from memenvs.baselines.losses import aggregate, policy_loss
from memenvs.credit import gae, mt_grpo, place_rewards, whiten

ROWS, STEPS, TURNS, GROUP, ROUNDS = 512, 4096, 8, 8, 7
PASS = (4, 1024)  # sequences and tokens in the pass of the model that is timed

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, ROWS, STEPS))
    title = f"gae, {ROWS} x {STEPS}, ms"
    print(f"{title:44}{'NumPy loop':>12}{'torch loop':>12}{'gae':>8}{'ratios':>14}{'differs':>10}")
    for label, mask in (
        ("turns of 200 tokens between passages", turns(rng)[0]),
        ("half of the tokens, at random", rng.random((ROWS, STEPS)) < 0.5),
        ("all tokens", np.ones((ROWS, STEPS), np.bool_)),
    ):
        for gamma, lam in ((1.0, 1.0), (0.99, 0.95)):
            compare(f"{label}, {gamma} {lam}", rewards, values, mask, gamma, lam)
    stage(rng, values)


def turns(rng: np.random.Generator) -> tuple[Mask, NDArray[np.int64]]:
    """A mask (B, T) of turns with the environment's text between them, and their ends (B, K)."""
    starts = np.arange(TURNS) * (STEPS // TURNS) + rng.integers(0, 200, (ROWS, TURNS))
    ends = starts + rng.integers(100, 300, (ROWS, TURNS))
    steps = np.arange(STEPS)[:, None]
    rows = zip(starts, ends, strict=True)
    return np.array([((steps >= start) & (steps <= end)).any(1) for start, end in rows]), ends


def numpy_loop(rewards: Array, values: Array, mask: Mask, gamma: float, lam: float) -> Array:
    """All rows at once, one time step after the other."""
    advantages = np.zeros(rewards.shape)
    following, last = np.zeros(len(rewards)), np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        written = mask[:, t]
        now = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * last
        following, last = np.where(written, values[:, t], following), np.where(written, now, last)
        advantages[:, t] = np.where(written, now, 0.0)
    return advantages


def torch_loop(rewards: Array, values: Array, mask: Mask, gamma: float, lam: float) -> Array:
    """The same with tensors, collecting and stacking columns, as trainers do."""
    earned, expected, written = (torch.from_numpy(part) for part in (rewards, values, mask))
    following, last = torch.zeros(2, len(rewards), dtype=torch.float64)
    columns = []
    for t in reversed(range(rewards.shape[1])):
        now = earned[:, t] + gamma * following - expected[:, t] + gamma * lam * last
        following = torch.where(written[:, t], expected[:, t], following)
        last = torch.where(written[:, t], now, last)
        columns.append(last)
    return (torch.stack(columns[::-1], dim=1) * written).numpy()


def compare(label: str, rewards: Array, values: Array, mask: Mask, gamma: float, lam: float) -> None:
    """All three ways in turn, the fastest run of each, and their largest difference."""
    ways = {way: partial(way, rewards, values, mask, gamma, lam) for way in (numpy_loop, torch_loop, gae)}
    columns, tensors, ours = (
        1e3 * min(times) for times in in_turns(ways, ROUNDS, time.perf_counter).values()
    )
    apart = np.abs(
        gae(rewards, values, mask, gamma, lam) - numpy_loop(rewards, values, mask, gamma, lam)
    ).max()
    ratios = f"{columns / ours:.1f} {tensors / ours:.1f}"
    print(f"{label:44}{columns:12.0f}{tensors:12.0f}{ours:8.1f}{ratios:>14}{apart:10.0e}", flush=True)


def stage(rng: np.random.Generator, values: Array) -> None:
    """Everything between rollouts and the update, relative to a small model's pass over as many tokens."""
    mask, ends = turns(rng)
    turn_rewards, outcomes = list(rng.random((ROWS, TURNS))), rng.random(ROWS).round()
    groups = (np.arange(ROWS) // GROUP).tolist()

    def mt_ppo() -> object:
        pairs = zip(turn_rewards, ends, outcomes.tolist(), strict=True)
        rewards = np.stack([place_rewards(r, end, STEPS, outcome=o) for r, end, o in pairs])
        return whiten(gae(rewards, values, mask, 1.0, 0.95), mask)

    def grouped() -> object:
        advantages = mt_grpo(turn_rewards, outcomes, groups=groups)
        pairs = zip(advantages, ends, strict=True)
        return np.concatenate([np.repeat(turns, np.diff(end, prepend=-1)) for turns, end in pairs])

    second = update()
    step = second * ROWS * STEPS / np.prod(PASS)
    print(f"\n{'credit stage of the batch':44}{'ms':>12}{'of an update':>16}")
    for label, work in (("MT-PPO: place, gae, whiten", mt_ppo), ("MT-GRPO: mt_grpo, spread", grouped)):
        taken = min(timed(work) for _ in range(ROUNDS))
        print(f"{label:44}{1e3 * taken:12.1f}{taken / step:16.3%}")
    print(f"{'update, 1.0 M parameters':44}{1e3 * step:12.0f}  ({PASS[0]} x {PASS[1]} tokens {second:.2f} s)")


def update() -> float:
    """Seconds of a forward and a backward pass of a small GPT; sampling is not included."""
    torch.manual_seed(0)
    shape = {"vocab_size": 512, "n_positions": PASS[1], "n_embd": 128, "n_layer": 4, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None)).eval()  # no dropout
    ids = torch.randint(0, 512, PASS)
    rows = torch.arange(PASS[0]).repeat_interleave(PASS[1] - 1)

    def learn() -> None:
        logprobs = model(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).flatten()
        aggregate(policy_loss(logprobs, logprobs.detach(), torch.ones_like(logprobs))[0], rows).backward()

    return min(timed(learn) for _ in range(3))


if __name__ == "__main__":
    main()
