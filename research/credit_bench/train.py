"""Training a policy in a world by a method, and how far the method's advantages are from the exact ones.

Policies are log-linear tables in torch, one for each run. Credit bounds the speed: records and comparisons
loop in Python over a step's 64 episodes for some milliseconds, while the policy's own step takes under one.
Training several seeds in one tensor would not speed that up and would hide a method's time.
"""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np
import torch

from memenvs.baselines.losses import aggregate, policy_loss, value_loss
from research.credit_bench.methods import METHODS, Batch, Learner, Method
from research.credit_bench.worlds import Array, TabularWorld, probabilities

STRIDE = 0.3  # length of a policy's step along its gradient; see LogLinearPolicy
CRITIC_RATE = 0.1  # of Adam
GOAL, HELD = 0.9, 5  # share of the best return, and for how many steps in a row
CHECKED = 100  # steps of credit to compare with the exact advantages
AT_REST = 1e-9  # length of a gradient that counts as 0; on the way to halfway they are 0.007 or more
PARTS = 10  # parts of these steps, to estimate the noise of the comparison


class LogLinearPolicy:
    """A log-linear policy, with a critic that has a value for each observation.

    A step moves a constant length along the batch's gradient (and not at all if it is 0), so that no method
    benefits from the scale of its advantages. Adam does not depend on that scale either, but after many steps
    without a gradient, as with the outcome alone, one success moves it for dozens of steps.
    """

    def __init__(self, world: TabularWorld, critic: bool) -> None:
        self.world, self.critic = world, critic
        self._features = torch.from_numpy(world.features)
        self._parameters = torch.from_numpy(world.initial.copy()).requires_grad_()
        self._values = torch.zeros(len(world.features), dtype=torch.float64, requires_grad=True)
        self._optimizer = torch.optim.Adam([self._values], lr=CRITIC_RATE)

    @property
    def probs(self) -> Array:
        """(O, A) probabilities of replies."""
        return probabilities(self.world.features, self._parameters.detach().numpy())

    @property
    def values(self) -> Array:
        """(O,) values of the critic."""
        return self._values.detach().numpy().copy()

    def learn(self, batch: Batch) -> None:
        """A step on the suite's losses; all replies have the same weight."""
        observed = torch.from_numpy(self.world.observed[batch.states])
        rows = torch.arange(len(observed))
        table = (self._features @ self._parameters).log_softmax(1)
        logprobs = table[observed, torch.from_numpy(batch.actions)]
        losses, _ = policy_loss(logprobs, logprobs.detach(), torch.from_numpy(batch.advantages))
        (slope,) = torch.autograd.grad(aggregate(losses, rows), [self._parameters])
        with torch.no_grad():
            self._parameters -= STRIDE * slope / slope.norm().clamp(min=1e-12)
        if batch.returns is not None:
            values = self._values[observed]
            targets = torch.from_numpy(batch.returns)
            self._optimizer.zero_grad()
            aggregate(value_loss(values, values.detach(), targets, clip=None), rows).backward()
            self._optimizer.step()


def train(world: TabularWorld, name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train until the exact return has been at 90% of the best one for five steps, or to the last step.

    All methods of one seed draw the same random numbers.

    Returns:
        `curve`, the share of the best return before each step and after the last; `reached`, the steps taken
        before the first of the five, or None; `seconds`, processor time up to there (or to the end), without
        computing the exact return; `replies`, sampled up to there.
    """
    method = METHODS[name]
    rng = np.random.default_rng([seed, world.turns, zlib.crc32(world.name.encode())])
    policy = LogLinearPolicy(world, method.critic)
    learner = Learner(world, policy.probs, policy.values, rng)
    best, spent, replies = world.best(), [0.0], [0]
    curve = [world.expected_return(learner.probs[world.observed]) / best]
    while len(curve) <= steps and not (len(curve) >= HELD and min(curve[-HELD:]) >= GOAL):
        before = time.process_time()
        batch = method.step(learner)
        policy.learn(batch)
        learner.probs, learner.values = policy.probs, policy.values
        spent.append(spent[-1] + time.process_time() - before)
        replies.append(replies[-1] + len(batch.states) + batch.others)
        curve.append(world.expected_return(learner.probs[world.observed]) / best)
    held = len(curve) >= HELD and min(curve[-HELD:]) >= GOAL
    reached = len(curve) - HELD if held else None
    end = len(curve) - 1 if reached is None else reached
    return {
        "curve": [round(share, 4) for share in curve],
        "reached": reached,
        "steps": len(curve) - 1,
        "seconds": spent[end],
        "replies": replies[end],
    }


def halfway(world: TabularWorld) -> Array | None:
    """The probabilities (O, A) of a policy halfway between the first and the best return.

    It follows the exact gradient, so that it is the same for every method. None if that gradient stops
    before.
    """
    parameters, best = world.initial.copy(), world.best()
    probs = probabilities(world.features, parameters)
    goal = (world.expected_return(probs[world.observed]) + best) / 2
    while world.expected_return(probs[world.observed]) < goal:
        advantages, seen = world.advantages(probs)
        slope = np.einsum("oa,oaf->f", seen[:, None] * probs * advantages, world.features)
        length = np.linalg.norm(slope)
        if length < AT_REST:
            return None
        parameters += 0.1 * slope / length
        probs = probabilities(world.features, parameters)
    return probs


def accuracy(world: TabularWorld, name: str, probs: Array, seed: int, steps: int = CHECKED) -> dict[str, Any]:
    """How a method's advantages relate to the exact ones of the return, A* = Q - V, under a fixed policy.

    Only an advantage's expected gradient counts. For observation o and reply a it is

        A(o, a) = E[sum over replies to o of (1[a] - pi(a given o)) A^] / (d(o) pi(a given o)),

    the method's advantage A^ less its mean over replies, which a baseline may change without changing the
    gradient; d is how often o occurs. The learning rate absorbs a scale c, so one is fitted for all turns.
    Lengths are means over d pi. Ten parts of the steps give ten estimates; a square is the mean of the
    products of two different ones, which is not biased by their noise. A critic has converged: its values are
    the mean returns of earlier steps.

    Returns:
        `cosine` between A and A*, which noise may push past 1, and its standard `error` (jackknife), both
        None where noise hides the length of A; `scale` c; and by turn `bias`, the length of A / c - A*,
        `noise`, the standard deviation of A^ / c around A, and `exact`, the length of A* at that turn, all as
        shares of the length of A* over all turns. Without a positive scale bias and noise are None:
        advantages point nowhere or away.
    """
    method = METHODS[name]
    rng = np.random.default_rng([seed, world.turns, zlib.crc32(world.name.encode()), 1])
    learner = Learner(world, probs, np.zeros(len(probs)), rng)
    if method.critic:
        learner.values = _converged(method, learner, steps)
    exact, seen = world.advantages(probs)
    turn_of = world.turn_of_observation()
    slopes, squares = np.zeros((PARTS, *probs.shape)), np.zeros(world.turns)
    for step in range(steps):
        batch, part = method.step(learner), step % PARTS
        observed, turns = world.observed[batch.states], world.turn[batch.states]
        pushed = -probs[observed] * batch.advantages[:, None]
        pushed[np.arange(len(pushed)), batch.actions] += batch.advantages
        np.add.at(slopes[part], observed, pushed / batch.full[turns, None])
        np.add.at(squares, turns, batch.advantages**2 / batch.full[turns])
    weight = seen[:, None] * probs
    taken = np.bincount(np.arange(steps) % PARTS, minlength=PARTS)[:, None, None]
    parts = np.where(weight > 0, slopes / taken / np.where(weight > 0, weight, 1.0), 0.0)
    places = [turn_of == turn for turn in range(world.turns)]

    def by_turn(products: Array) -> Array:
        return np.array([(weight * products)[place].sum() for place in places])

    def squares_of(estimates: Array) -> Array:
        """(K,) squared lengths, from the products of different estimates."""
        pairs = len(estimates) * (len(estimates) - 1)
        return by_turn(estimates.sum(0) ** 2 - (estimates**2).sum(0)) / pairs

    def cosine(estimates: Array) -> float:
        along, square = by_turn(estimates.mean(0) * exact).sum(), squares_of(estimates).sum()
        return float(along / np.sqrt(length * square)) if square > 0 else float("nan")

    length = by_turn(exact**2).sum()
    scale = float(by_turn(parts.mean(0) * exact).sum() / length)
    without_one = np.array([cosine(np.delete(parts, part, axis=0)) for part in range(PARTS)])
    error = float(np.sqrt((PARTS - 1) * without_one.var()))
    found: dict[str, Any] = {"cosine": None, "error": None, "scale": scale}
    if np.isfinite(error):
        found |= {"cosine": round(cosine(parts), 3), "error": round(error, 3)}
    found["exact"] = np.sqrt(by_turn(exact**2) / length).round(3).tolist()
    if scale <= 0:
        return {**found, "bias": None, "noise": None}
    bias = squares_of(parts / scale - exact)
    noise = (squares / steps - squares_of(parts)) / scale**2
    for key, square in (("bias", bias), ("noise", noise)):
        found[key] = np.sqrt(np.maximum(square, 0.0) / length).round(3).tolist()
    return found


def _converged(method: Method, learner: Learner, steps: int) -> Array:
    """(O,) the mean returns that the critic is trained on; a critic of zeros does not change them."""
    size = len(learner.values)
    total, count = np.zeros(size), np.zeros(size)
    for _ in range(steps):
        batch = method.step(learner)
        if batch.returns is None:
            raise ValueError("a method with a critic must give it targets")
        observed = learner.world.observed[batch.states]
        total += np.bincount(observed, batch.returns, size)
        count += np.bincount(observed, minlength=size)
    return total / np.maximum(count, 1)
