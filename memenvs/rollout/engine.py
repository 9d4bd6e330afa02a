"""Play many episodes in a vector environment, each at its own pace."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from memenvs.core.env import check_text_observations, end_of
from memenvs.models import Ids, Policy, Reply
from memenvs.rollout.records import Credit, Episode
from memenvs.rollout.session import NO_REPLY, Session, Usage, room_for, sample_within


class Timer:
    """Seconds spent on named kinds of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time inside a `with`, also where it raises."""
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
    tasks: Sequence[int | None] | None = None,
    max_new_tokens: int = 512,
    timer: Timer | None = None,
) -> list[Episode]:
    """Play `group_size` episodes of one task for each group, in order of the groups.

    A group takes any G neighbouring environments that are free, so a long episode delays only its own group.
    Member j of the group with seed s draws its tokens from `SeedSequence([s, j])`: what is sampled depends
    neither on the number of environments nor on the other episodes.

    A policy that samples one batch at a time gets the turns of all environments together. A
    `StreamingPolicy` gets each turn as soon as its environment is ready, and no episode waits for the reply
    of another.

    A reply ends at its own limit or at the policy's window. A prompt that leaves no room gets an empty reply,
    so that the episode still ends; the episode counts both. With `errors="truncate"` in the vector
    environment an error ends only its own episode, as `"failed"`.

    Args:
        venv: a `TextVectorEnv`, or a `VectorRewardWrapper` with the same `group_size`; autoreset mode
            `"Disabled"`.
        policy: samples the replies.
        groups: the seed of each group, which also names it; all different.
        group_size: G, a divisor of the number of environments.
        tasks: the number of each group's task, as of `draw_tasks`; where it is None the seed draws it.
        max_new_tokens: tokens of a reply.
        timer: counts the seconds of `"sampling"` and `"environment"` (scoring included).

    Raises:
        ValueError: the environments cannot be used this way; the message says why.
    """
    check_text_observations(cast(Any, venv.unwrapped).envs[0])
    numbers = [None] * len(groups) if tasks is None else tasks
    sessions = [
        [Session(policy, Episode(group=int(s), seed=int(s), member=j, number=i)) for j in range(group_size)]
        for s, i in zip(groups, numbers, strict=True)
    ]
    order = {seed: place for place, seed in enumerate(groups)}
    engine = Engine(venv, turn_sampler(policy, max_new_tokens), group_size=group_size, timer=timer)
    ended = sorted(engine.play(sessions), key=lambda group: order[group[0].episode.group])
    return [session.episode for group in ended for session in group]


class Request(NamedTuple):
    """A turn that waits for a reply.

    Attributes:
        env_index: number of the environment that plays the episode.
        session: the episode, with the observation and the prompt to reply to.
    """

    env_index: int
    session: Session

    def answer(self, reply: Reply) -> Answer:
        """The answer of a policy over token ids, with its tokens counted."""
        usage = Usage(len(self.session.prompt), len(reply.ids), not reply.finished)
        return Answer(self.env_index, reply, usage)


class Answer(NamedTuple):
    """The reply to a request.

    Attributes:
        env_index: as in the request.
        reply: to be played.
        usage: what it took.
        error: why there is no reply; its episode has then failed, and methods do not compare its group.
    """

    env_index: int
    reply: Reply = NO_REPLY
    usage: Usage = Usage()
    error: str = ""


class TurnSampler(Protocol):
    """Replies to the turns of many episodes; an environment waits for at most one reply at a time."""

    def ask(self, request: Request) -> None:
        """Take a turn; its reply may be sampled now, or together with those of later turns."""

    def answered(self) -> list[Answer]:
        """Replies that are ready; waits for at least one if any turn has none."""


class StreamingPolicy(Policy, Protocol):
    """A policy that samples several replies at once and gives each as soon as it ends."""

    def submit(self, key: int, prompt: Ids, rng: np.random.Generator, max_new_tokens: int) -> None:
        """Begin a reply; a key has at most one at a time."""

    def completed(self) -> list[tuple[int, Reply]]:
        """Replies that have ended, by their keys; waits for at least one if any was begun."""

    def cancel(self) -> None:
        """Drop the replies that have not ended."""


class BatchSampler:
    """A `TurnSampler` that samples replies to all waiting turns in one call of a policy."""

    def __init__(self, policy: Policy, max_new_tokens: int) -> None:
        self.policy, self.max_new_tokens = policy, max_new_tokens
        self._waiting: list[Request] = []

    def ask(self, request: Request) -> None:
        """See `TurnSampler`."""
        self._waiting.append(request)

    def answered(self) -> list[Answer]:
        """See `TurnSampler`."""
        waiting, self._waiting = self._waiting, []
        prompts, rngs = [one.session.prompt for one in waiting], [one.session.rng for one in waiting]
        replies = sample_within(self.policy, prompts, rngs, self.max_new_tokens)
        return [request.answer(reply) for request, reply in zip(waiting, replies, strict=True)]


class StreamSampler:
    """A `TurnSampler` that gives each turn to a `StreamingPolicy` at once."""

    def __init__(self, policy: StreamingPolicy, max_new_tokens: int) -> None:
        self.policy, self.max_new_tokens = policy, max_new_tokens
        self._waiting: dict[int, Request] = {}
        self._overlong: list[Request] = []
        policy.cancel()  # replies that an interrupted rollout left

    def ask(self, request: Request) -> None:
        """See `TurnSampler`."""
        prompt, rng = request.session.prompt, request.session.rng
        room = room_for(self.policy, prompt, self.max_new_tokens)
        if room > 0:
            self._waiting[request.env_index] = request
            self.policy.submit(request.env_index, prompt, rng, room)
        else:
            self._overlong.append(request)

    def answered(self) -> list[Answer]:
        """See `TurnSampler`."""
        if self._overlong:
            overlong, self._overlong = self._overlong, []
            return [request.answer(NO_REPLY) for request in overlong]
        return [self._waiting.pop(index).answer(reply) for index, reply in self.policy.completed()]


def turn_sampler(policy: Policy, max_new_tokens: int) -> TurnSampler:
    """A policy over token ids as a `TurnSampler`: streamed where possible, otherwise in batches."""
    if hasattr(policy, "submit"):
        return StreamSampler(cast(StreamingPolicy, policy), max_new_tokens)
    return BatchSampler(policy, max_new_tokens)


class Engine:
    """Plays groups of episodes in a vector environment.

    A group takes the first free block of G neighbouring environments. Every step plays the replies that are
    ready, only in their environments.

    Args:
        venv: as in `collect`.
        sampler: gives the replies.
        group_size: as in `collect`.
        timer: as in `collect`.

    Raises:
        ValueError: the environments cannot be used this way; the message says why.
    """

    def __init__(
        self,
        venv: VectorEnv[Any, Any, Any],
        sampler: TurnSampler,
        *,
        group_size: int = 1,
        timer: Timer | None = None,
    ) -> None:
        inner: Any = venv.unwrapped
        if inner.autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError(f"collect needs autoreset_mode='Disabled', got {inner.autoreset_mode.value!r}")
        if group_size < 1 or inner.num_envs % group_size:
            raise ValueError(f"group_size must divide the {inner.num_envs} environments, got {group_size!r}")
        if (own := getattr(venv, "group_size", group_size)) != group_size:
            raise ValueError(f"the reward wrapper has group_size {own}, collect got {group_size}")
        self.venv: Any = venv
        paying: Any = venv  # the outermost layer whose infos hold all rewards
        while not hasattr(paying, "infos_list"):
            paying = paying.env
        self._paying = paying
        self.sampler, self.timer = sampler, timer or Timer()
        self._blocks = [range(i, i + group_size) for i in range(0, venv.num_envs, group_size)]
        self._free = deque(self._blocks)
        self._playing: dict[int, Session] = {}

    def play(self, groups: Iterable[Sequence[Session]]) -> Iterator[list[Session]]:
        """Play groups of G sessions each; yields each group when its last episode has ended.

        A session's episode says what is played: the `seed` of the reset, and the `number` of the task where
        it has one (otherwise the seed draws the task).
        """
        waiting = iter(groups)
        while self._begin(waiting):
            if not all(session.over for session in self._playing.values()):
                with self.timer("sampling"):
                    answers = self.sampler.answered()
                self._step(answers)
            for block in self._blocks:
                if block[0] in self._playing and all(self._playing[index].over for index in block):
                    group = [self._playing.pop(index) for index in block]
                    for index, session in zip(block, group, strict=True):
                        self._finish(index, session)
                    self._free.append(block)
                    yield group

    def _begin(self, waiting: Iterator[Sequence[Session]]) -> bool:
        """Begin a group in every free block while groups are waiting; whether any group is being played."""
        begun: dict[int, Session] = {}
        while self._free and (group := next(waiting, None)) is not None:
            begun |= zip(self._free.popleft(), group, strict=True)
        if not begun:
            return bool(self._playing)
        seeds = [0] * self.venv.num_envs
        tasks: list[int | None] = [None] * self.venv.num_envs
        for index, session in begun.items():
            seeds[index], tasks[index] = session.episode.seed, session.episode.number
        options = {"reset_mask": self._mask(begun), "task": tasks}
        with self.timer("environment"):
            observations, _ = self.venv.reset(seed=seeds, options=options)
        infos = self._paying.infos_list
        for index, session in begun.items():
            self._playing[index] = session
            session.begin(observations[index], infos[index])
            self._ask(index)
        return True

    def _step(self, answers: Sequence[Answer]) -> None:
        """Play replies, and ask for the next ones."""
        replies: dict[int, Reply] = {}
        for answer in answers:
            session = self._playing[answer.env_index]
            session.usage.append(answer.usage)
            if answer.error:
                session.fail(answer.error)
            else:
                replies[answer.env_index] = answer.reply
        if not replies:
            return
        texts = [replies[index].text if index in replies else "" for index in range(self.venv.num_envs)]
        with self.timer("environment"):
            observations, _, terminated, truncated, _ = self.venv.step(texts, self._mask(replies))
        infos = self._paying.infos_list
        for index, reply in replies.items():
            end = end_of(terminated[index], truncated[index])
            self._playing[index].play(reply, observations[index], infos[index], end)
            self._ask(index)

    def _ask(self, index: int) -> None:
        session = self._playing[index]
        if not session.over:
            self.sampler.ask(Request(index, session))

    def _finish(self, index: int, session: Session) -> None:
        """Complete an episode's record: the final rewards, and what reward methods measured."""
        session.finish(self._paying.infos_list[index])
        episode, spec = session.episode, self.venv.unwrapped.spec
        episode.env = spec.id if spec else type(self.venv.unwrapped.envs[index].unwrapped).__name__
        if not episode.replies:
            return
        if not hasattr(self._paying, "record"):
            inner = self.venv.unwrapped.envs[index]
            methods = inner.get_wrapper_attr("methods") if inner.has_wrapper_attr("methods") else ()
            credits = self._paying.infos_list[index].get("credits", {})
        else:
            methods, record = self._paying.methods, self._paying.record(index)
            credits = record.credits
            episode.turns, episode.outcomes = record.turns, record.outcomes
            episode.signals, episode.credits = record.signals, record.credits
            episode.replaces_outcome = record.replaces_outcome
            for method in methods:
                signals = zip(record.turns, record.signals[method.name], strict=True)
                values = [float(v) for turn, v in signals if method.measures(turn) and not np.isnan(v)]
                if values:
                    episode.measured[method.name] = values
        if not episode.error and (error := _no_outcome(methods, credits, len(episode.replies) - 1)):
            session.fail(error)

    def _mask(self, indices: Iterable[int]) -> NDArray[np.bool_]:
        mask = np.zeros(self.venv.num_envs, np.bool_)
        mask[list(indices)] = True
        return mask


def _no_outcome(methods: Sequence[Any], credits: Mapping[str, Sequence[Credit]], last: int) -> str:
    """Why a method that replaces the outcome has none at the last turn, in a line; otherwise empty."""
    for method in methods:
        for credit in credits[method.name] if method.replaces_outcome else ():
            if credit.turn == last and not credit.from_signal and np.isnan(credit.value):
                return f"no outcome: {method.name}: {credit.reason}"
    return ""
