"""The rollouts of a task as one group, for trainers that ask their inference servers on an event loop."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import cache
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast

import gymnasium as gym
import numpy as np

from memenvs.adapters.common import open_env, read_credit
from memenvs.baselines.advantages import group_advantages
from memenvs.core.errors import error_line
from memenvs.core.vector import TextVectorEnv
from memenvs.credit import place_rewards
from memenvs.models import Ids, Reply
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.rollout.engine import Answer, Engine, Request
from memenvs.rollout.records import Episode, Floats, text_reply, valid
from memenvs.rollout.session import NO_REPLY, Session
from memenvs.wrappers import VectorRewardWrapper
from memenvs.wrappers.registry import MethodSpec

T = TypeVar("T")


class RolloutGroup(NamedTuple):
    """What a group plays, and what its credit is.

    Attributes:
        env: the environment's id.
        settings: its arguments.
        methods: reward methods, see `memenvs.wrappers.registry.make_methods`.
        credit: see `memenvs.adapters.common.read_credit`; None: what each turn earned, at its last token.
    """

    env: str
    settings: Mapping[str, Any] | None = None
    methods: Sequence[MethodSpec] = ()
    credit: Mapping[str, Any] | None = None

    def play(
        self,
        sampler: LoopSampler,
        episodes: Sequence[Episode],
        scorer: Any = None,
        template: str | None = None,
    ) -> None:
        """Play episodes of one task side by side, in a thread beside the event loop.

        With `credit` those that can be trained on get their `advantages`. An episode fails if its
        environment, a scorer or the inference server raises; the others are compared without it.

        Args:
            sampler: asks the servers.
            episodes: the records to fill, with one seed.
            scorer: for the methods, see `memenvs.wrappers.registry.make_scorer`.
            template: a chat around what is scored, where the scorer does not know it.
        """
        policy: Any = ChatPolicy(sampler.tokens)
        makers = [lambda: RaiseFailures(open_env(self.env, self.settings))] * len(episodes)
        venv: Any = TextVectorEnv(makers, autoreset_mode="Disabled", errors="truncate")
        if self.methods:
            venv = VectorRewardWrapper(venv, self.methods, scorer, len(episodes), template)
        members = [Session(policy, episode) for episode in episodes]
        (_,) = Engine(venv, sampler, group_size=len(episodes)).play([members])
        usable = valid(episodes)
        if self.credit is not None and usable:
            credit = read_credit(self.credit, getattr(venv, "methods", ()))
            for episode, values in zip(usable, group_advantages(usable, policy, *credit), strict=True):
                episode.advantages = values
        for episode in episodes:
            if episode.error:
                warnings.warn(f"a rollout of seed {episode.seed} failed: {episode.error}", stacklevel=1)


def token_values(episode: Episode) -> Floats | None:
    """What the sampled tokens (N,) of an episode are worth to a trainer.

    Its advantages if it has them, otherwise what each turn earned, at its last token; None for an episode
    that failed or sampled nothing.
    """
    if not valid([episode]):
        return None
    if episode.advantages is not None:
        return episode.advantages
    return place_rewards(episode.turn_rewards, episode.turn_ends, episode.tokens)


class Meetings:
    """Where the rollouts of a task meet, which a trainer starts one by one on its event loop."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Meeting] = {}

    async def play(
        self,
        key: Hashable,
        member: Any,
        play: Callable[[list[Any]], Awaitable[Sequence[T]]],
        size: int | None = None,
    ) -> T:
        """Wait for the other rollouts of a key, then for what this one gets.

        Args:
            key: the same for the rollouts that meet.
            member: this rollout.
            play: is called once, with all members in the order in which they came.
            size: number of rollouts; None: those that the trainer starts without waiting in between.
        """
        meeting = self._open.setdefault(key, _Meeting())
        place = len(meeting.members)
        meeting.members.append(member)
        if size is None:
            await asyncio.sleep(0)  # all others come in now
        if meeting.played is None and size in (None, len(meeting.members)):
            del self._open[key]
            meeting.played = asyncio.ensure_future(play(meeting.members))
            meeting.full.set()
        await meeting.full.wait()
        return (await cast("Awaitable[Sequence[T]]", meeting.played))[place]


class _Meeting:
    """The rollouts that have come and, once all have, what each of them gets."""

    def __init__(self) -> None:
        self.members: list[Any] = []
        self.full = asyncio.Event()
        self.played: asyncio.Future[Any] | None = None


@cache
def chat_tokens(tokenizer: Any, chat_args: str) -> ChatTokens:
    """Made once a process, although trainers ask for it at every rollout; `chat_args` as JSON."""
    return ChatTokens(tokenizer, chat_args=json.loads(chat_args))


class Sampled(NamedTuple):
    """A server's answer: token ids, and the log-probabilities of each where it gives them."""

    ids: Sequence[int]
    logprobs: Sequence[float] | None


class FailedReply(str):
    """Why there is no reply to a turn."""


class RaiseFailures(gym.Wrapper[str, str, str, str]):
    """Raises where it should play a `FailedReply`, so that the vector environment ends that episode alone."""

    def step(self, action: str) -> Any:
        """See `gymnasium.Env.step`."""
        if isinstance(action, FailedReply):
            raise ConnectionError(action)
        return self.env.step(action)


class LoopSampler:
    """A `TurnSampler` over inference servers that are asked on an event loop, for a thread beside it.

    Args:
        generate: asks a server on the loop: from the number of the environment, a prompt (T,) and the most
            tokens of a reply to the reply.
        loop: the event loop.
        tokens: decode the replies.
        prompt_length: most tokens of a fresh prompt.
        response_length: most tokens of all that follows it in its sequence.
        size: number of environments.
    """

    def __init__(
        self,
        generate: Callable[[int, Ids, int], Awaitable[Sampled]],
        loop: asyncio.AbstractEventLoop,
        tokens: ChatTokens,
        prompt_length: int,
        response_length: int,
        size: int,
    ) -> None:
        self.tokens = tokens
        self._generate, self._loop = generate, loop
        self._prompt_length, self._response_length = prompt_length, response_length
        self._starts = [0] * size
        self._answers: SimpleQueue[Answer] = SimpleQueue()

    def ask(self, request: Request) -> None:
        """See `TurnSampler`; a prompt that leaves no room gets the empty reply."""
        index, session = request.env_index, request.session
        if session.fresh:
            self._starts[index] = len(session.prompt)
        start = self._starts[index]
        room = self._response_length - (len(session.prompt) - start)
        if room > 0 and start <= self._prompt_length:
            asyncio.run_coroutine_threadsafe(self._sample(request, room), self._loop)
        else:
            self._answers.put(request.answer(NO_REPLY))

    def answered(self) -> list[Answer]:
        """See `TurnSampler`."""
        answers = [self._answers.get()]
        while not self._answers.empty():
            answers.append(self._answers.get())
        return answers

    async def _sample(self, request: Request, room: int) -> None:
        index = request.env_index
        try:
            sampled = await self._generate(index, request.session.prompt, room)
            self._answers.put(request.answer(self._reply(sampled, room)))
        except BaseException as error:  # also where it is cancelled, or the thread would wait forever
            self._answers.put(Answer(index, text_reply(FailedReply(error_line(error)))))
            if not isinstance(error, Exception):
                raise

    def _reply(self, sampled: Sampled, room: int) -> Reply:
        ids = np.array(sampled.ids[:room], dtype=np.int64)
        if not len(ids):
            return NO_REPLY
        logprobs = np.array((sampled.logprobs or [0.0] * room)[: len(ids)], dtype=np.float64)
        return Reply(self.tokens.reply_text(ids), ids, logprobs, int(ids[-1]) in self.tokens.ends)
