"""The policies that an evaluation plays: by name, a model in this process, an endpoint, a function."""

from __future__ import annotations

import functools
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import gymnasium as gym

from memenvs import models
from memenvs.core.data import Count, Positive, checked
from memenvs.core.http import JSONClient, ServerError
from memenvs.core.vector import TextVectorEnv
from memenvs.data import bundled
from memenvs.models import SamplingParams
from memenvs.models.endpoint import complete, served_models
from memenvs.models.loading import Dtype
from memenvs.models.lora import base_of, is_adapter
from memenvs.models.packaged import MODELS, shipped_agents
from memenvs.rollout.engine import Answer, Request, TurnSampler, turn_sampler
from memenvs.rollout.records import text_reply
from memenvs.rollout.scripted import Policy, make_policy
from memenvs.rollout.session import PromptEncoder, Session, Usage

KEY = "OPENAI_API_KEY"
"""Environment variable of an endpoint's key."""

_log = logging.getLogger(__name__)

_PAUSE = 0.5  # seconds before the second try
_OF_ENDPOINTS = ("model", "conversation", "body", "timeout", "tries")
_OF_PROCESS = ("dtype",)


@checked
@dataclass(frozen=True)
class ModelOptions:
    """Sampling of a model, and requests to an endpoint; None leaves a number to the model's own settings.

    Attributes:
        temperature: of sampling; 0 takes the likeliest token.
        top_p: only the likeliest tokens that together have this share are drawn.
        top_k: only so many of the likeliest tokens are drawn.
        min_p: only tokens at least this share as likely as the likeliest one are drawn.
        max_new_tokens: tokens of a reply.
        stop: strings that end a reply.
        chat_args: arguments of the chat template.
        dtype: of a model in this process; see `memenvs.models.loading.load_model`.
        model: name of the model at the endpoint; None where it serves one.
        conversation: send an endpoint the episodes of context `"append"` as messages.
        body: more fields of a request to the endpoint; None leaves one out.
        timeout: seconds a wait for the endpoint's answer.
        tries: of a request, before its episode fails.

    Raises:
        ValueError: a number is out of its range, or the dtype is none.
    """

    temperature: float = 1.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_new_tokens: Count = 1024
    stop: Sequence[str] = ()
    chat_args: Mapping[str, Any] = field(default_factory=dict)
    dtype: Dtype = "auto"
    model: str | None = None
    conversation: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)
    timeout: Positive = 600.0
    tries: Count = 6

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("temperature", "top_p", "top_k", "min_p", "stop")}
        SamplingParams(**{name: value for name, value in given.items() if value is not None})


class PolicySpec(NamedTuple):
    """A policy that an evaluation can play.

    Attributes:
        setting: what decides its replies, plain data.
        make: gives what replies in these environments, and what makes the token ids of its prompts; None for
            a policy that reads texts.
    """

    setting: dict[str, Any]
    make: Callable[[TextVectorEnv], tuple[TurnSampler, PromptEncoder | None]]


def choose_policy(policy: Any, options: ModelOptions) -> PolicySpec:
    """The policy of a name, or one that is an object already.

    Args:
        policy: `"lexical"` or another name of `memenvs.rollout.scripted`, `"hf:MODEL"`, `"openai:URL"`; a
            function from an observation and its info to a reply; a policy over token ids, as
            `memenvs.models.HFPolicy`; or a `memenvs.rollout.engine.TurnSampler`.
        options: of `hf:` and `openai:`; `max_new_tokens` also of a policy over token ids.

    Raises:
        TypeError: `policy` is something else.
        ValueError: no such policy, or an option that it does not have.
        ServerError: the endpoint does not say which model it serves.
    """
    if not isinstance(policy, str):
        return _object_policy(policy, options)
    kind, _, place = policy.partition(":")
    if kind in ("hf", "openai") and not place:
        raise ValueError(f"policy {policy} names nothing; give hf:MODEL or openai:http://host:port/v1")
    default = ModelOptions()
    for option in {"hf": _OF_ENDPOINTS, "openai": _OF_PROCESS}.get(kind, asdict(default)):
        if getattr(options, option) != getattr(default, option):
            owner = {**dict.fromkeys(_OF_ENDPOINTS, "openai:URL"), **dict.fromkeys(_OF_PROCESS, "hf:MODEL")}
            raise ValueError(
                f"{option} is for {owner.get(option, 'models')}, not for policy {policy}; leave it out"
            )
    if kind == "openai":
        return _endpoint(place, options)
    if kind == "hf":
        return _hf(place, options)
    make = functools.partial(make_policy, policy)
    return PolicySpec({"policy": policy}, lambda venv: (FunctionSampler(make, venv.envs), None))


class FunctionSampler:
    """Functions of observation and info, one made for each episode; a `TurnSampler`.

    Args:
        make: gives the function for an environment and a seed, as `make_policy` does for a name.
        envs: the environment of each seat.

    Raises:
        ValueError: there is no such policy.
    """

    def __init__(
        self, make: Callable[[gym.Env[Any, Any], int], Policy], envs: Sequence[gym.Env[Any, Any]]
    ) -> None:
        make(envs[0], 0)
        self.make, self.envs = make, envs
        self._policies: dict[int, Policy] = {}
        self._waiting: list[Request] = []

    def ask(self, request: Request) -> None:
        """See `TurnSampler`."""
        if not request.session.episode.replies:
            seed = int(request.session.rng.integers(2**32))
            self._policies[request.seat] = self.make(self.envs[request.seat], seed)
        self._waiting.append(request)

    def answered(self) -> list[Answer]:
        """See `TurnSampler`."""
        waiting, self._waiting = self._waiting, []
        return [
            Answer(seat, text_reply(self._policies[seat](session.observation, session.info)))
            for seat, session in waiting
        ]


class EndpointSampler:
    """A model behind an OpenAI-compatible server; a `TurnSampler`.

    Every request has a seed of its own, drawn from its episode's generator. An episode whose request fails
    has failed; the others go on.

    A stop string that ended a reply is put back: environments read it, endpoints take it off. Many servers
    do not say which one it was, or whether it was one at all. From the first reply of such a server on, that
    one included, requests go out without stop strings, and a reply is cut behind the first one that it
    holds: the same text, though the model generates more than is used.

    Args:
        client: of the server.
        fields: of every request: model, temperature and the like; None leaves one out.
        conversation: send an episode of context `"append"` as messages, the replies as the assistant's;
            otherwise an observation is one message of the user.
    """

    def __init__(self, client: JSONClient, fields: dict[str, Any], *, conversation: bool = False) -> None:
        self.client, self.fields, self.conversation = client, fields, conversation
        self._cuts_here = False
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def ask(self, request: Request) -> None:
        """See `TurnSampler`."""
        seed = int(request.session.rng.integers(2**31))
        fields = {"seed": seed, **self.fields, "messages": self._messages(request.session)}
        given = {name: value for name, value in fields.items() if value is not None}
        # A daemon, so that an interrupted run need not wait for a reply that may take minutes.
        threading.Thread(target=self._send, args=(request.seat, given), daemon=True).start()

    def answered(self) -> list[Answer]:
        """See `TurnSampler`."""
        ready = [self._answers.get()]
        while not self._answers.empty():
            ready.append(self._answers.get())
        return ready

    def _messages(self, session: Session) -> list[dict[str, str]]:
        turns = session.episode.turns
        if not (self.conversation and turns):
            return [{"role": "user", "content": session.observation}]
        messages = [{"role": "user", "content": turns[0].observation}]
        for turn in turns:
            messages.append({"role": "assistant", "content": turn.action})
            messages.append({"role": "user", "content": turn.info["feedback"]})
        return messages

    def _send(self, seat: int, fields: dict[str, Any]) -> None:
        try:
            answer = self._complete(seat, fields)
        except Exception as error:  # without an answer the run would wait for ever
            answer = Answer(seat, error=str(error) if isinstance(error, ServerError) else repr(error))
        self._answers.put(answer)

    def _complete(self, seat: int, fields: dict[str, Any]) -> Answer:
        """The reply with the stop string that ended it."""
        given = fields.get("stop") or ()
        stops = [given] if isinstance(given, str) else given
        if not (stops and self._cuts_here):
            reply = complete(self.client, fields)
            if not stops or reply.tells_stop:
                text = reply.text if reply.text.endswith(reply.stop) else reply.text + reply.stop
                usage = Usage(reply.prompt_tokens, reply.reply_tokens, reply.finish == "length")
                return Answer(seat, text_reply(text), usage)
            if not self._cuts_here:
                self._cuts_here = True
                _log.warning(
                    "%s does not say which stop string ended a reply: replies are generated to their end, "
                    "and cut here",
                    self.client.url,
                )
        reply = complete(self.client, {name: value for name, value in fields.items() if name != "stop"})
        cut = cut_behind(reply.text, stops)
        # The server counted the tokens of the whole reply, not of what is left of it.
        usage = Usage(reply.prompt_tokens, None, cut is None and reply.finish == "length")
        return Answer(seat, text_reply(reply.text if cut is None else cut), usage)


def cut_behind(text: str, stops: Sequence[str]) -> str | None:
    """A text up to the end of the stop string that is complete first; None where it holds none.

    >>> cut_behind("<a>x</a> <b>y</b>", ["</b>", "</a>"])
    '<a>x</a>'
    """
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else None


def _object_policy(policy: Any, options: ModelOptions) -> PolicySpec:
    """See `choose_policy`."""
    place = policy if hasattr(policy, "__qualname__") else type(policy)
    setting: dict[str, Any] = {"policy": f"{place.__module__}:{place.__qualname__}"}
    if hasattr(policy, "answered"):
        return PolicySpec(setting, lambda venv: (policy, None))
    if hasattr(policy, "sample"):
        setting["max_new_tokens"] = options.max_new_tokens
        return PolicySpec(setting, lambda venv: (turn_sampler(policy, options.max_new_tokens), policy))
    if not callable(policy):
        raise TypeError(f"policy must be a name, a function or a policy over token ids, got {policy!r}")
    return PolicySpec(setting, lambda venv: (FunctionSampler(lambda env, seed: policy, venv.envs), None))


def _hf(model: str, options: ModelOptions) -> PolicySpec:
    """A model of transformers, by its folder, its hub name or a packaged model's name.

    One that `HFPolicy.save` wrote keeps its own settings, as it was trained with, but for the temperature and
    for what is given.
    """
    sampling = {name: value for name, value in asdict(options).items() if name not in _OF_ENDPOINTS}
    setting = {"policy": f"hf:{model}", **sampling, "files": _files(model)}
    max_new_tokens = sampling.pop("max_new_tokens")
    given = {name: value for name, value in sampling.items() if value not in (None, (), [], {})}

    def make(venv: TextVectorEnv) -> tuple[TurnSampler, PromptEncoder]:
        policy = models.HFPolicy.load(model, **given)
        return turn_sampler(policy, max_new_tokens), policy

    return PolicySpec(setting, make)


def _files(model: str) -> list[list[Any]]:
    """Name, bytes and time of a model's files, so that a folder with new ones is another setting.

    Of a packaged model, whose folder may be made anew, it is the file that it comes from, with its SHA-256.
    With an adapter's files stand those of the model that it belongs to.
    """
    if model in MODELS:
        return [[MODELS[model].file, MODELS[model].sha256]]
    folder = bundled(model) if model in shipped_agents() else Path(model)
    files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    own = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    return own + (_files(base_of(folder)) if is_adapter(folder) else [])


def _endpoint(url: str, options: ModelOptions) -> PolicySpec:
    parts = urlsplit(url)
    if parts.username or parts.password:  # it would stand in every file of the run
        raise ValueError(f"policy openai:URL must hold no user and no password; set {KEY}")
    base = url if parts.path.strip("/") else url.rstrip("/") + "/v1"
    key = os.environ.get(KEY, "").strip() or None
    client = JSONClient(base, timeout=options.timeout, tries=options.tries, pause=_PAUSE, key=key)
    body = {
        "model": options.model or _served(client),
        "temperature": options.temperature,
        "max_tokens": options.max_new_tokens,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "min_p": options.min_p,
        "stop": list(options.stop) or None,
        "chat_template_kwargs": dict(options.chat_args) or None,
        **options.body,
    }
    # not the address, so that a server restarted on another port resumes the run
    setting = {"policy": "openai", "model": body["model"], "conversation": options.conversation, "body": body}

    def make(venv: TextVectorEnv) -> tuple[TurnSampler, None]:
        if options.conversation and getattr(venv.envs[0].unwrapped, "context", None) != "append":
            raise ValueError(
                "conversation is for episodes that grow, and this environment gives a fresh prompt each "
                "turn: leave it out"
            )
        return EndpointSampler(client, body, conversation=options.conversation), None

    return PolicySpec(setting, make)


def _served(client: JSONClient) -> str:
    """The model of an endpoint that serves one."""
    models = served_models(client)
    if len(models) != 1:
        served = ", ".join(map(repr, models)) or "nothing"
        raise ValueError(f"{client.url} serves {served}; choose by --model")
    return models[0]
