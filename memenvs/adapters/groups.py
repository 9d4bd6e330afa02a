"""The rollouts of a task as one group, for trainers that ask their inference servers on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from memenvs.adapters.common import open_env, read_credit
from memenvs.baselines.advantages import group_advantages
from memenvs.core.episode import Episode, Floats, valid
from memenvs.credit import place_rewards
from memenvs.models import Ids, Reply
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.rollout.collect import Loop
from memenvs.rollout.policy import Policy, Request, loop_policy, prompt_of
from memenvs.wrappers.registry import MethodSpec, make_scorer

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
        loop = Loop(
            lambda: open_env(self.env, self.settings),
            sampler.policy,
            self.methods,
            make_scorer(scorer, template),
            concurrency=len(episodes),
        )
        with contextlib.closing(loop):
            for _ in loop.play([episodes]):
                pass  # the records are filled in place
        usable = valid(episodes)
        if self.credit is not None and usable:
            credit = read_credit(self.credit, loop.methods)
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
    if len(episode.advantages):
        return episode.advantages
    return place_rewards(episode.turn_rewards, episode.turn_ends, episode.tokens)


class Meetings:
    """Where the rollouts of a task meet, which a trainer starts one by one on its event loop."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Meeting] = {}

    async def play(
        self, key: Hashable, member: Any, play: Callable[[list[Any]], Awaitable[Sequence[T]]]
    ) -> T:
        """Wait for the other rollouts of a key, which the trainer starts without waiting in between.

        Args:
            key: the same for the rollouts that meet.
            member: this rollout.
            play: is called once, with all members in the order in which they came.

        Returns:
            What `play` gives this member.
        """
        meeting = self._open.setdefault(key, _Meeting())
        place = len(meeting.members)
        meeting.members.append(member)
        await asyncio.sleep(0)  # all others come in now
        if meeting.played is None:
            del self._open[key]
            meeting.played = asyncio.ensure_future(play(meeting.members))
        return (await cast("Awaitable[Sequence[T]]", meeting.played))[place]


class _Meeting:
    """The rollouts that have come and, once all have, what each of them gets."""

    def __init__(self) -> None:
        self.members: list[Any] = []
        self.played: asyncio.Future[Any] | None = None


@cache
def chat_tokens(tokenizer: Any, chat_args: str) -> ChatTokens:
    """Made once a process, although trainers ask for it at every rollout; `chat_args` as JSON."""
    return ChatTokens(tokenizer, chat_args=json.loads(chat_args))


class Sampled(NamedTuple):
    """A server's answer: token ids, and the log-probabilities of each where it gives them."""

    ids: Sequence[int]
    logprobs: Sequence[float] | None


class LoopSampler:
    """Asks inference servers on an event loop, for episodes that are played in a thread beside it.

    Args:
        generate: asks a server on the loop: from the number of the rollout in its group, a prompt (T,) and
            the most tokens of a reply to the reply.
        loop: the event loop.
        tokens: encode the prompts and decode the replies.
        prompt_length: most tokens of a fresh prompt.
        response_length: most tokens of all that follows it in its sequence.

    Attributes:
        policy: gives the replies; a prompt that leaves no room gets an empty one.
    """

    def __init__(
        self,
        generate: Callable[[int, Ids, int], Awaitable[Sampled]],
        loop: asyncio.AbstractEventLoop,
        tokens: ChatTokens,
        prompt_length: int,
        response_length: int,
    ) -> None:
        self.tokens = tokens
        self.policy: Policy = loop_policy(self._reply_to, loop)
        self._generate = generate
        self._prompt_length, self._response_length = prompt_length, response_length

    async def _reply_to(self, request: Request) -> Reply:
        encoder: Any = ChatPolicy(self.tokens)
        prompt = prompt_of(encoder, request, self._response_length)
        start = len(request.turns_read[0].reply.read if request.turns_read else prompt.ids)
        room = self._response_length - (len(prompt.ids) - start)
        if room <= 0 or start > self._prompt_length:
            return prompt.reply(None)
        sampled = await self._generate(request.episode.member, prompt.ids, room)
        ids = np.array(sampled.ids[:room], dtype=np.int64)
        if not len(ids):
            return prompt.reply(None)
        logprobs = np.array((sampled.logprobs or [0.0] * room)[: len(ids)], dtype=np.float64)
        finished = int(ids[-1]) in self.tokens.ends
        return prompt.reply(Reply(self.tokens.reply_text(ids), ids, logprobs, finished))
