"""A policy over token ids that a trainer's own inference servers sample, asked on its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import numpy as np

from memenvs.models import Ids, Reply
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.rollout.policy import Policy, Request, loop_policy, prompt_of


class Sampled(NamedTuple):
    """A server's answer: token ids, and the log-probabilities of each where it gives them."""

    ids: Sequence[int]
    logprobs: Sequence[float] | None


def server_policy(
    generate: Callable[[int, Ids, int], Awaitable[Sampled]],
    loop: asyncio.AbstractEventLoop,
    tokens: ChatTokens,
    prompt_length: int,
    response_length: int,
) -> Policy:
    """A policy for episodes that are played in a thread beside an event loop.

    A prompt that leaves no room gets an empty reply.

    Args:
        generate: asks a server on the loop, with the number of the rollout in its group, a prompt (T,) and
            the most tokens of a reply.
        loop: the event loop.
        tokens: encode the prompts and decode the replies.
        prompt_length: most tokens of a fresh prompt.
        response_length: most tokens of all that follows it in its sequence.
    """
    encoder = ChatPolicy(tokens)

    async def reply(request: Request) -> Reply:
        prompt = prompt_of(encoder, request, response_length)
        begun = request.turns_read and not prompt.forks
        start = len(request.turns_read[0].reply.read if begun else prompt.ids)
        room = response_length - (len(prompt.ids) - start)
        if room <= 0 or start > prompt_length:
            return prompt.reply(None)
        sampled = await generate(request.episode.member, prompt.ids, room)
        ids = np.array(sampled.ids[:room], dtype=np.int64)
        if not len(ids):
            return prompt.reply(None)
        logprobs = np.array((sampled.logprobs or [0.0] * room)[: len(ids)], dtype=np.float64)
        return prompt.reply(Reply(tokens.reply_text(ids), ids, logprobs, int(ids[-1]) in tokens.ends))

    return loop_policy(reply, loop)
