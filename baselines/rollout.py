"""Groups of tasks and a policy come in; the episodes it played go out, with the very tokens it wrote."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from memenvs.core.env import End, Info
from memenvs.core.vector import TextVectorEnv
from memenvs.models import Ids, Policy, Reply
from memenvs.rollout.records import Episode, Sample, Turn, component_sums
from memenvs.wrappers import RewardMethod, VectorRewardWrapper

NO_REPLY = Reply("", np.zeros(0, np.int64), np.zeros(0), finished=False)


class Clock:
    """Seconds spent on named kinds of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, name: str, work: Any, *args: Any, **kwargs: Any) -> Any:
        """Do some work and count its time."""
        start = time.perf_counter()
        try:
            return work(*args, **kwargs)
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time inside a `with`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def collect(
    venv: VectorEnv[Any, Any, Any],
    policy: Policy,
    groups: Sequence[int],
    group_size: int = 1,
    *,
    max_new_tokens: int = 512,
    clock: Clock | None = None,
) -> list[Episode]:
    """Play `group_size` episodes of one task for each group, in order of the groups.

    A group takes any G neighbouring environments that are free, so a long episode holds up its own group
    alone. Member j of the group with seed s draws its tokens from `SeedSequence([s, j])`: what is sampled
    depends neither on the number of environments nor on what is played beside it.

    A reply ends at its own limit or at the policy's window. A prompt that leaves no room for a reply is
    answered by silence, so that the episode still comes to its end; both are counted. With
    `errors="truncate"` in the vector environment what breaks ends its own episode alone, as `"failed"`.

    Args:
        venv: a `TextVectorEnv`, or a `VectorRewardWrapper` with the same `group_size`; autoreset mode
            `"Disabled"`.
        policy: samples the replies.
        groups: the seed of each group's task, which also names the group; all different.
        group_size: G, a divisor of the number of environments.
        max_new_tokens: tokens of a reply.
        clock: counts the seconds of `"sampling"` and `"environment"` (scoring included).

    Raises:
        ValueError: the environments cannot be used so; the message says why.
    """
    _check(venv, group_size)
    clock = clock or Clock()
    blocks = [range(first, first + group_size) for first in range(0, venv.num_envs, group_size)]
    waiting, seats, done = deque(groups), dict[int, Seat](), list[Episode]()
    free = deque(blocks)
    inner: Any = venv  # its `infos_list` is that of a reward wrapper where there is one
    while waiting or seats:
        starting = [(free.popleft(), waiting.popleft()) for _ in range(min(len(free), len(waiting)))]
        if starting:
            observations = clock.run("environment", _reset, venv, starting)
            for block, seed in starting:
                for j, i in enumerate(block):
                    seats[i] = Seat(policy, int(seed), np.random.default_rng([seed, j]))
                    seats[i].episode.member = j
                    seats[i].begin(observations[i], inner.infos_list[i])
        playing = [i for i, seat in seats.items() if not seat.over]
        prompts, draws = [seats[i].prompt for i in playing], [seats[i].draws for i in playing]
        replies = clock.run("sampling", sample_within, policy, prompts, draws, max_new_tokens)
        actions, plays = [""] * venv.num_envs, np.zeros(venv.num_envs, np.bool_)
        for i, reply in zip(playing, replies, strict=True):
            actions[i], plays[i] = reply.text, True
        if playing:
            observations, _, terminated, truncated, _ = clock.run("environment", venv.step, actions, plays)
        for i, reply in zip(playing, replies, strict=True):
            end: End = "terminated" if terminated[i] else "truncated" if truncated[i] else ""
            seats[i].play(reply, observations[i], inner.infos_list[i], end)
        for block in blocks:
            if block[0] in seats and all(seats[i].over for i in block):
                done += [seats.pop(i).end(venv, i) for i in block]
                free.append(block)
    order = {seed: number for number, seed in enumerate(groups)}
    return sorted(done, key=lambda episode: order[episode.group])


class Seat:
    """One environment's episode in the making.

    Args:
        policy: reads what comes back.
        group: number of its group.
        draws: what its tokens are drawn from.
    """

    def __init__(self, policy: Policy, group: int, draws: np.random.Generator) -> None:
        self.policy, self.draws = policy, draws
        self.episode = Episode(group=group, seed=group)
        self.over = False
        self._sample: Sample | None = None
        self._rewards: list[dict[str, float]] = []

    @property
    def prompt(self) -> Ids:
        """(T,) ids that the next reply follows."""
        if self._sample is None:
            self._sample = Sample.prompt(self.policy.encode(self._observation))
        return self._sample.ids

    @property
    def fresh(self) -> bool:
        """Whether the next reply begins a training sequence."""
        return self._sample is None

    def begin(self, observation: str, info: Info) -> None:
        """An episode begins, or fails to."""
        self.episode.task = str(info.get("task", ""))
        self._observation, self._info = observation, info
        self.over = bool(info.get("error"))

    def play(self, reply: Reply, observation: str, info: Info, end: End) -> None:
        """A reply was played."""
        episode, turn = self.episode, len(self.episode.replies)
        episode.turns.append(Turn(self._observation, reply.text, self._info, observation, info, end))
        episode.replies.append(reply)
        self._rewards.append(info["rewards"])
        episode.outcomes.append(float(info["rewards"].get("outcome", 0.0)))
        if reply is NO_REPLY:
            episode.overlong_prompts += 1
        else:
            episode.truncated_replies += not reply.finished
            self._sample = self._written.then(reply.ids, reply.logprobs, turn)
        if end or info["context"] == "rewrite":
            self._close()
        else:
            self._sample = self._written.then(self.policy.encode_feedback(info["feedback"], reply.ids))
        self._observation, self._info, self.over = observation, info, end != ""

    def end(self, venv: Any, i: int) -> Episode:
        """The episode, when its whole group has ended and every reward is known."""
        episode, info = self.episode, venv.infos_list[i]
        episode.error = str(info.get("error", ""))
        episode.metrics = dict(info.get("metrics", {}))
        episode.turn_rewards = list(info.get("turn_rewards", []))
        if self._rewards and not episode.error:
            self._rewards[-1] = info["rewards"]  # with what methods paid when the group was complete
        episode.rewards = component_sums(self._rewards)
        if isinstance(venv, VectorRewardWrapper) and episode.replies:
            record = venv.record(i)
            episode.turns, episode.outcomes = record.turns, record.outcomes
            episode.signals, episode.credits = record.signals, record.credits
            episode.signal_means = _signal_means(venv.methods, record)
            episode.replaces_outcome = venv.replaces_outcome
        ended = bool(episode.metrics) and venv.unwrapped.envs[i].unwrapped.episode.end
        episode.error = episode.error or _no_outcome(venv, episode)
        episode.end = "failed" if episode.error else ended or "truncated"
        self._close()
        return episode

    @property
    def _written(self) -> Sample:
        return self._sample or Sample.prompt(self.policy.encode(self._observation))

    def _close(self) -> None:
        """End the training sequence; one that holds nothing written is dropped."""
        if self._sample is not None and self._sample.response_mask.any():
            self.episode.samples.append(self._sample.trimmed())
        self._sample = None


def _no_outcome(venv: Any, episode: Episode) -> str:
    """Why the method that replaces the outcome could not tell it, in a line; empty where it could."""
    replaced = [method.name for method in getattr(venv, "methods", ()) if method.replaces_outcome]
    for name in replaced:
        for credit in episode.credits.get(name, []):
            if credit.turn == len(episode.turns) - 1 and not credit.of_signal and np.isnan(credit.value):
                return f"no outcome: {name}: {credit.reason}"
    return ""


def _signal_means(methods: Sequence[RewardMethod], record: Episode) -> dict[str, float]:
    """See `Episode.signal_means`."""
    found = {}
    for method in methods:
        signals = np.array(record.signals[method.name])
        if type(method).requests is not RewardMethod.requests:
            signals = signals[[bool(method.requests(turn)) for turn in record.turns]]
        signals = signals[~np.isnan(signals)]
        if len(signals):
            found[method.name] = float(signals.mean())
    return found


def sample_within(
    policy: Policy, prompts: Sequence[Ids], draws: Sequence[np.random.Generator], max_new_tokens: int
) -> list[Reply]:
    """A reply to each prompt; `NO_REPLY` where the prompt fills the window."""
    window = policy.window
    room = [max_new_tokens if window is None else min(max_new_tokens, window - len(p)) for p in prompts]
    fits = [number for number, tokens in enumerate(room) if tokens > 0]
    drawn = policy.sample([prompts[n] for n in fits], [draws[n] for n in fits], [room[n] for n in fits])
    replies = dict(zip(fits, drawn, strict=True))
    return [replies.get(number, NO_REPLY) for number in range(len(prompts))]


def _reset(venv: Any, starting: Sequence[tuple[range, int]]) -> Any:
    """Begin the groups in their environments; the observations of all."""
    mask, seeds = np.zeros(venv.num_envs, np.bool_), [0] * venv.num_envs
    for block, seed in starting:
        for i in block:
            mask[i], seeds[i] = True, int(seed)
    return venv.reset(seed=seeds, options={"reset_mask": mask})[0]


def _check(venv: VectorEnv[Any, Any, Any], group_size: int) -> None:
    inner = venv.unwrapped
    if not isinstance(inner, TextVectorEnv):
        raise ValueError(f"venv must be a memenvs.core.vector.TextVectorEnv, got {type(inner).__name__}")
    if inner.autoreset_mode is not AutoresetMode.DISABLED:
        raise ValueError(f"collect needs autoreset_mode='Disabled', got {inner.autoreset_mode.value!r}")
    if group_size < 1 or inner.num_envs % group_size:
        raise ValueError(f"group_size must divide the {inner.num_envs} environments, got {group_size!r}")
    if isinstance(venv, VectorRewardWrapper) and venv.group_size != group_size:
        raise ValueError(f"the reward wrapper has group_size {venv.group_size}, collect got {group_size}")
