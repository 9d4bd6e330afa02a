"""Who replies: one contract, and what makes functions, models, engines, servers and trainers meet it.

`Policy.replies` takes the turns that need a reply and returns the replies that are ready. A model that
samples one batch at a time answers all of them; an engine, a server or a trainer takes them, and returns what
has ended meanwhile. None of them knows how episodes are played, and no episode waits for another's reply.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from msgspec.structs import replace

from memenvs.core.env import Agent, Info, public_info
from memenvs.core.episode import Episode, Ids, Reply, Turn
from memenvs.models.policy import PromptReader, StreamingPolicy, TokenPolicy, next_prompt

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from memenvs.models.endpoint import Watch


@dataclass
class Request:
    """A turn that needs a reply.

    Attributes:
        env: the environment that plays the episode.
        episode: the record, with the turns so far.
        turn: what is to be answered.
        rng: the episode's own generator, so that a reply depends on no other episode.
        first: whether the environment is new to the policy: an episode begins, or is played on from a state.
    """

    env: gym.Env[Any, str]
    episode: Episode
    turn: Turn
    rng: np.random.Generator
    first: bool = False

    @property
    def observation(self) -> Any:
        """What the policy reads."""
        return self.turn.observation

    @property
    def info(self) -> Info:
        """The info that came with it, `privileged` included, which only a teacher may read."""
        return self.turn.before

    @property
    def public_info(self) -> Info:
        """The info without what only a trainer may see."""
        return public_info(self.info)

    @property
    def turns_read(self) -> list[Turn]:
        """The turns that a model still reads: those since the last fresh prompt."""
        return [] if self.turn.fresh else self.episode.sequences()[-1]


AnsweredRequest = tuple[Request, Reply | Exception]
"""A request and its reply, or why there is none, which fails its episode."""


class Policy(Protocol):
    """Replies to turns."""

    def replies(self, requests: Sequence[Request]) -> Iterable[AnsweredRequest]:
        """Take new requests, and return the replies that are ready, in any order.

        Waits for at least one as long as any request has none.
        """


def replies_to(policy: Policy, requests: Sequence[Request]) -> list[Reply | Exception]:
    """The replies to some requests, in their order, when all are ready."""
    ready = {id(request): reply for request, reply in policy.replies(requests)}
    while len(ready) < len(requests):
        ready |= {id(request): reply for request, reply in policy.replies([])}
    return [ready[id(request)] for request in requests]


def as_policy(policy: Any, max_new_tokens: int = 512) -> Policy:
    """A `Policy`, a `TokenPolicy` or a function as a `Policy`; `choose_policy` also takes names.

    Args:
        policy: such an object; a function gets an observation and its public info.
        max_new_tokens: most tokens of a reply of a `TokenPolicy`.

    Raises:
        TypeError: it is another kind of object.
    """
    if hasattr(policy, "replies"):
        replies: Policy = policy
    elif hasattr(policy, "submit"):
        replies = StreamPolicy(policy, max_new_tokens)
    elif hasattr(policy, "sample"):
        replies = BatchPolicy(policy, max_new_tokens)
    elif callable(policy):
        replies = agent_policy(policy)
    else:
        raise TypeError(
            "a policy is a name, a function from an observation and its info to a reply, a model such as "
            f"HFPolicy, or an object with a method `replies`, got {policy!r}"
        )
    return replies


class TurnPolicy:
    """A function from a request to its reply, called turn by turn; an error fails only its own episode."""

    def __init__(self, reply: Callable[[Request], Reply]) -> None:
        self._reply = reply

    def replies(self, requests: Sequence[Request]) -> Iterable[AnsweredRequest]:
        """The reply to each request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> AnsweredRequest:
        try:
            return request, self._reply(request)
        except Exception as error:
            return request, error


class ThreadPolicy(TurnPolicy):
    """A function that waits, as for an endpoint: each call has a thread, and none holds up the others.

    Attributes:
        watch: warns of what an endpoint's replies have shown; None: nothing watches them.
    """

    def __init__(self, reply: Callable[[Request], Reply], watch: Watch | None = None) -> None:
        super().__init__(reply)
        self.watch = watch
        self._ready: SimpleQueue[AnsweredRequest] = SimpleQueue()

    def replies(self, requests: Sequence[Request]) -> Iterable[AnsweredRequest]:
        """The replies that have come, of these requests and earlier ones."""
        for request in requests:
            # A daemon, so that an interrupted run need not wait for a reply that may take minutes. It runs in
            # the caller's context, in which trainers keep what they trace.
            call = contextvars.copy_context().run
            threading.Thread(target=call, args=(self._call, request), daemon=True).start()
        ready = [self._ready.get()]
        while not self._ready.empty():
            ready.append(self._ready.get())
        return ready

    def _call(self, request: Request) -> None:
        try:
            answer = self._answer(request)
        except BaseException as error:  # the loop waits for every answer
            answer = request, RuntimeError(f"the policy's thread ended with {error!r}")
        self._ready.put(answer)


def agent_policy(agent: Agent) -> Policy:
    """A function from an observation and its public info to the text of a reply."""
    return TurnPolicy(lambda request: _text_reply(agent(request.observation, request.public_info)))


def made_policy(make: Callable[[gym.Env[Any, Any], int], Agent], *, teacher: bool = False) -> Policy:
    """Functions that are made for each episode, such as `memenvs.rollout.scripted.make_policy` makes.

    Args:
        make: makes the function that plays an episode, of its environment and a seed.
        teacher: whether the functions also see what only a trainer may see.
    """
    playing: dict[int, Agent] = {}  # by the id of the environment

    def reply(request: Request) -> Reply:
        if request.first:
            playing[id(request.env)] = make(request.env, int(request.rng.integers(2**32)))
        info = request.info if teacher else request.public_info
        return _text_reply(playing[id(request.env)](request.observation, info))

    return TurnPolicy(reply)


def _text_reply(text: Any) -> Reply:
    """What a function returned, as a reply; a `TypeError` if it is not a text."""
    if not isinstance(text, str):
        raise TypeError(f"a policy must reply with a str, got {type(text).__name__}")
    return Reply(text)


def loop_policy(reply: Callable[[Request], Coroutine[Any, Any, Reply]], loop: AbstractEventLoop) -> Policy:
    """A function that a trainer's event loop awaits; the episodes are played in a thread beside the loop."""
    from asyncio import run_coroutine_threadsafe  # as `import memenvs` needs none of it

    return ThreadPolicy(lambda request: run_coroutine_threadsafe(reply(request), loop).result())


class BatchPolicy:
    """A `TokenPolicy` that samples all replies in one call."""

    def __init__(self, model: TokenPolicy, max_new_tokens: int) -> None:
        self.model, self.max_new_tokens = model, max_new_tokens

    def replies(self, requests: Sequence[Request]) -> Iterable[AnsweredRequest]:
        """The reply to each request."""
        prompts = [prompt_of(self.model, request, self.max_new_tokens) for request in requests]
        fits = [i for i, prompt in enumerate(prompts) if prompt.room > 0]
        sampled = self.model.sample(
            [prompts[i].ids for i in fits], [requests[i].rng for i in fits], [prompts[i].room for i in fits]
        )
        of_request = dict(zip(fits, sampled, strict=True))
        return [(request, prompts[i].reply(of_request.get(i))) for i, request in enumerate(requests)]


class StreamPolicy:
    """A `StreamingPolicy`, which gets each turn as soon as its environment is ready."""

    def __init__(self, engine: StreamingPolicy, max_new_tokens: int) -> None:
        self.engine, self.max_new_tokens = engine, max_new_tokens
        self._waiting: dict[int, tuple[Request, Prompt]] = {}
        engine.cancel()  # replies that an interrupted rollout left

    def replies(self, requests: Sequence[Request]) -> Iterable[AnsweredRequest]:
        """The replies that have ended, of these requests and earlier ones."""
        ready: list[AnsweredRequest] = []
        for request in requests:
            prompt = prompt_of(self.engine, request, self.max_new_tokens)
            if prompt.room > 0:
                self._waiting[id(request)] = request, prompt
                self.engine.submit(id(request), prompt.ids, request.rng, prompt.room)
            else:
                ready.append((request, prompt.reply(None)))
        for key, sampled in () if ready else self.engine.completed():
            request, prompt = self._waiting.pop(key)
            ready.append((request, prompt.reply(sampled)))
        return ready


class Prompt(NamedTuple):
    """What a `TokenPolicy` reads before a reply.

    Attributes:
        ids: (T,) the whole prompt.
        read: the part of the prompt that is new since the last reply.
        room: tokens that the reply may have; 0 or fewer where the prompt fills the model's window.
        forks: whether it leaves out a part of what the turns before read or replied.
    """

    ids: Ids
    read: Ids
    room: int
    forks: bool

    def reply(self, sampled: Reply | None) -> Reply:
        """What a model sampled after this prompt; an empty reply where there was no room (None)."""
        sampled = Reply("", finished=False) if sampled is None else sampled
        counts = {"prompt_tokens": len(self.ids), "tokens": len(sampled.ids)}
        return replace(sampled, read=self.read, forks=self.forks, **counts)


def prompt_of(model: PromptReader, request: Request, max_new_tokens: int) -> Prompt:
    """A fresh prompt; or the one before with its reply, as it was sampled, and the feedback (`next_prompt`).

    Args:
        model: makes the token ids.
        request: the turn.
        max_new_tokens: most tokens of a reply.
    """
    ids, read, forks = next_prompt(model, request.turns_read, request.turn.text)
    room = max_new_tokens if model.window is None else min(max_new_tokens, model.window - len(ids))
    return Prompt(ids, read, room, forks)
