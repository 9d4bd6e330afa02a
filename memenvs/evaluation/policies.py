"""The policies that an evaluation plays: scripted ones, a model in this process, an endpoint."""

from __future__ import annotations

import functools
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import gymnasium as gym
import numpy as np

from memenvs.core.checks import Range, check_numbers, check_whole
from memenvs.core.env import Info
from memenvs.core.http import JSONClient, ServerError
from memenvs.core.vector import TextVectorEnv
from memenvs.models import SamplingParams
from memenvs.models.endpoint import complete, served_models
from memenvs.rollout.scripted import Policy, make_policy

KEY = "OPENAI_API_KEY"
"""Environment variable of an endpoint's key."""

_log = logging.getLogger(__name__)

_PAUSE = 0.5  # seconds before the second try
_SAVED = "policy.json"  # what a folder of `HFPolicy.save` holds
_OF_ENDPOINTS = ("model", "conversation", "body", "timeout", "tries")


@dataclass(frozen=True)
class ModelOptions:
    """How a model is sampled, and how an endpoint is asked; None leaves a number to the model's own settings.

    Attributes:
        temperature: of sampling; 0 takes the likeliest token.
        top_p: only the likeliest tokens that together have this share are drawn.
        top_k: only so many of the likeliest tokens are drawn.
        min_p: only tokens at least this share as likely as the likeliest one are drawn.
        max_new_tokens: tokens of a reply.
        stop: strings that end a reply.
        chat_args: arguments of the chat template.
        model: name of the model at the endpoint; None where it serves one.
        conversation: send an endpoint the episodes of context `"append"` as messages.
        body: more fields of a request to the endpoint; None leaves one out.
        timeout: seconds a wait for the endpoint's answer.
        tries: of a request, before its episode fails.

    Raises:
        ValueError: a number is out of its range.
    """

    temperature: float = 1.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_new_tokens: int = 1024
    stop: Sequence[str] = ()
    chat_args: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    conversation: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 600.0
    tries: int = 6

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("temperature", "top_p", "top_k", "min_p", "stop")}
        SamplingParams(**{name: value for name, value in given.items() if value is not None})
        check_whole(max_new_tokens=self.max_new_tokens, tries=self.tries)
        check_numbers(Range(above=0), timeout=self.timeout)


class PlayedPolicy(NamedTuple):
    """A policy that an evaluation can play.

    Attributes:
        setting: what decides its replies, plain data.
        make: the policy for the environments that it will play.
    """

    setting: dict[str, Any]
    make: Callable[[TextVectorEnv], BatchPolicy]


def choose_policy(policy: Any, options: ModelOptions) -> PlayedPolicy:
    """The policy of a name, or one that is made already.

    Args:
        policy: `"lexical"` or another name of `memenvs.rollout.scripted`, `"hf:MODEL"`, `"openai:URL"`; a
            function from an observation and its info to a reply; a policy over token ids, as
            `memenvs.models.policy.HFPolicy`; or a `BatchPolicy`.
        options: of `hf:` and `openai:`; `max_new_tokens` also of a policy over token ids.

    Raises:
        ValueError: no such policy, or an option that it does not have.
        ServerError: the endpoint does not say which model it serves.
    """
    if not isinstance(policy, str):
        return _made_policy(policy, options)
    kind, _, place = policy.partition(":")
    if kind in ("hf", "openai") and not place:
        raise ValueError(f"policy {policy} names nothing; give hf:MODEL or openai:http://host:port/v1")
    if kind == "openai":
        return _endpoint(place, options)
    default = ModelOptions()
    for option in _OF_ENDPOINTS if kind == "hf" else asdict(default):
        if getattr(options, option) != getattr(default, option):
            owner = "openai:URL" if option in _OF_ENDPOINTS else "models"
            raise ValueError(f"{option} is for {owner}, not for policy {policy}; leave it out")
    if kind == "hf":
        sampling = {name: value for name, value in asdict(options).items() if name not in _OF_ENDPOINTS}
        setting = {"policy": policy, **sampling, "files": _files(Path(place))}
        return PlayedPolicy(setting, lambda venv: load_hf(place, **sampling))
    return PlayedPolicy(
        {"policy": policy}, lambda venv: FunctionPolicy(functools.partial(make_policy, policy), venv.envs)
    )


class Ask(NamedTuple):
    """A turn that waits for a reply.

    Attributes:
        seat: number of the environment that the episode is played in.
        observation: to be read.
        info: that came with it.
        rng: the episode's own; whatever its policy draws comes from it.
    """

    seat: int
    observation: str
    info: Info
    rng: np.random.Generator

    @property
    def first(self) -> bool:
        """Whether an episode begins."""
        return self.info["turn"] == 0


class Answer(NamedTuple):
    """A reply.

    Attributes:
        seat: of the turn that it answers.
        text: of the reply.
        prompt_tokens: that the model read; None where nobody counts.
        reply_tokens: that it wrote; likewise.
        cut: whether the reply ended at the limit of its tokens; None where nobody knows.
        error: why there is no reply; its episode has failed.
    """

    seat: int
    text: str = ""
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    cut: bool | None = None
    error: str = ""


class BatchPolicy(Protocol):
    """Plays many episodes at once; a seat waits for at most one reply at a time."""

    def ask(self, asked: Ask) -> None:
        """Take a turn; its reply may be sought at once or with those asked for after it."""
        ...

    def answered(self) -> list[Answer]:
        """Replies that are ready, at least one where any turn waits."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class FunctionPolicy:
    """Functions of observation and info, one made for each episode; a `BatchPolicy`.

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
        self._waiting: list[Ask] = []

    def ask(self, asked: Ask) -> None:
        """See `BatchPolicy`."""
        if asked.first:
            seed = int(asked.rng.integers(2**32))
            self._policies[asked.seat] = self.make(self.envs[asked.seat], seed)
        self._waiting.append(asked)

    def answered(self) -> list[Answer]:
        """See `BatchPolicy`."""
        waiting, self._waiting = self._waiting, []
        return [Answer(ask.seat, self._policies[ask.seat](ask.observation, ask.info)) for ask in waiting]

    def close(self) -> None:
        """See `BatchPolicy`."""


class _Turn(NamedTuple):
    """The last turn of a seat: the ids that were read, and those that were replied."""

    prompt: Any
    reply: Any


class ModelPolicy:
    """A policy over token ids in this process, as `HFPolicy`; a `BatchPolicy`.

    An episode of context `"append"` is one growing sequence of ids: the model reads its own replies as it
    wrote them, never tokenised anew.

    Args:
        policy: has `encode`, `encode_feedback` and `sample`, as `HFPolicy` does.
        max_new_tokens: of a reply.
    """

    def __init__(self, policy: Any, max_new_tokens: int) -> None:
        self.policy, self.max_new_tokens = policy, max_new_tokens
        self._waiting: list[tuple[Ask, Any]] = []
        self._past: dict[int, _Turn] = {}

    def ask(self, asked: Ask) -> None:
        """See `BatchPolicy`."""
        past = self._past.get(asked.seat)
        if past is None or asked.first or asked.info["context"] == "rewrite":
            prompt = self.policy.encode(asked.observation)
        else:
            behind = self.policy.encode_feedback(asked.info["feedback"], past.reply)
            prompt = np.concatenate([past.prompt, past.reply, behind])
        self._waiting.append((asked, prompt))

    def answered(self) -> list[Answer]:
        """See `BatchPolicy`."""
        waiting, self._waiting = self._waiting, []
        prompts, draws = [prompt for _, prompt in waiting], [asked.rng for asked, _ in waiting]
        replies = self.policy.sample(prompts, draws, self.max_new_tokens)
        answers = []
        for (asked, prompt), reply in zip(waiting, replies, strict=True):
            self._past[asked.seat] = _Turn(prompt, reply.ids)
            size = len(reply.ids)
            answers.append(Answer(asked.seat, reply.text, len(prompt), size, not reply.finished))
        return answers

    def close(self) -> None:
        """See `BatchPolicy`."""


class _Chat(NamedTuple):
    """The last turn of a seat: what was sent, and what was replied."""

    messages: list[dict[str, str]]
    text: str = ""


class EndpointPolicy:
    """A model behind an OpenAI-compatible server; a `BatchPolicy`.

    Every request has a seed of its own, drawn from its episode's generator. An episode whose request fails
    has failed; the others go on.

    A stop string that ended a reply is put back: environments read it, endpoints take it off. Many servers
    do not tell which one it was, or whether it was one at all. From the first reply of such a server on, that
    one included, requests go out without stop strings, and a reply is cut behind the first one that it
    holds: it is what the stop string would have left, though the model writes on unseen.

    Args:
        client: of the server.
        fields: of every request: model, temperature and the like; None leaves one out.
        concurrency: requests under way at once.
        conversation: send an episode of context `"append"` as messages, the replies as the assistant's;
            otherwise an observation is one message of the user.
    """

    def __init__(
        self, client: JSONClient, fields: dict[str, Any], *, concurrency: int, conversation: bool = False
    ) -> None:
        self.client, self.fields, self.conversation = client, fields, conversation
        self._past: dict[int, _Chat] = {}
        self._cuts = False  # replies are cut here
        self._asked: queue.SimpleQueue[tuple[int, dict[str, Any]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        # Daemons, so that an interrupted run need not wait for replies that may take minutes.
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(concurrency)]
        for worker in self._workers:
            worker.start()

    def ask(self, asked: Ask) -> None:
        """See `BatchPolicy`."""
        messages = self._messages(asked)
        self._past[asked.seat] = _Chat(messages)
        seed = int(asked.rng.integers(2**31))
        fields = {"seed": seed, **self.fields, "messages": messages}
        self._asked.put((asked.seat, {name: value for name, value in fields.items() if value is not None}))

    def answered(self) -> list[Answer]:
        """See `BatchPolicy`."""
        ready = [self._answers.get()]
        while not self._answers.empty():
            ready.append(self._answers.get())
        for answer in ready:
            self._past[answer.seat] = self._past[answer.seat]._replace(text=answer.text)
        return ready

    def close(self) -> None:
        """See `BatchPolicy`."""
        for _ in self._workers:
            self._asked.put(None)

    def _messages(self, asked: Ask) -> list[dict[str, str]]:
        past = self._past.get(asked.seat)
        if past is None or asked.first or not self.conversation:
            return [{"role": "user", "content": asked.observation}]
        said = {"role": "assistant", "content": past.text}
        return [*past.messages, said, {"role": "user", "content": asked.info["feedback"]}]

    def _work(self) -> None:
        while (job := self._asked.get()) is not None:
            seat, fields = job
            try:
                answer = self._complete(seat, fields)
            except ServerError as error:
                answer = Answer(seat, error=str(error))
            except Exception as error:  # a worker that died in silence would be waited for for ever
                answer = Answer(seat, error=repr(error))
            self._answers.put(answer)

    def _complete(self, seat: int, fields: dict[str, Any]) -> Answer:
        """The reply with the stop string that ended it."""
        given = fields.get("stop") or ()
        stops = [given] if isinstance(given, str) else given
        if not (stops and self._cuts):
            reply = complete(self.client, fields)
            if not stops or reply.tells_stop:
                text = reply.text if reply.text.endswith(reply.stop) else reply.text + reply.stop
                return Answer(seat, text, reply.prompt_tokens, reply.reply_tokens, reply.finish == "length")
            if not self._cuts:
                self._cuts = True
                _log.warning(
                    "%s does not tell which stop string ended a reply: replies are written to their end, and "
                    "cut here",
                    self.client.url,
                )
        reply = complete(self.client, {name: value for name, value in fields.items() if name != "stop"})
        found = cut_behind(reply.text, stops)
        is_cut = found is None and reply.finish == "length"
        # What was counted is what the model wrote, not what is left of it.
        return Answer(seat, reply.text if found is None else found, reply.prompt_tokens, None, is_cut)


def cut_behind(text: str, stops: Sequence[str]) -> str | None:
    """A text up to the end of the stop string that is complete first; None where it holds none.

    >>> cut_behind("<a>x</a> <b>y</b>", ["</b>", "</a>"])
    '<a>x</a>'
    """
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else None


def load_hf(model: str, *, max_new_tokens: int, **sampling: Any) -> ModelPolicy:
    """A Hugging Face model by its folder or hub name.

    Args:
        model: a folder or a name. One that `HFPolicy.save` wrote keeps its own settings, as it was trained
            with, but for the temperature and for what is given.
        max_new_tokens: of a reply.
        **sampling: `temperature`, `top_p`, `top_k`, `min_p`, `stop` and `chat_args` of `HFPolicy`; what is
            None or empty is not given.
    """
    from memenvs.models import HFPolicy

    given = {name: value for name, value in sampling.items() if value not in (None, (), [], {})}
    saved = (Path(model) / _SAVED).is_file()
    return ModelPolicy((HFPolicy.load if saved else HFPolicy)(model, **given), max_new_tokens)


def _made_policy(policy: Any, options: ModelOptions) -> PlayedPolicy:
    """A policy that is an object already."""
    place = policy if hasattr(policy, "__qualname__") else type(policy)
    setting: dict[str, Any] = {"policy": f"{place.__module__}:{place.__qualname__}"}
    if hasattr(policy, "answered"):
        return PlayedPolicy(setting, lambda venv: policy)
    if hasattr(policy, "sample"):
        setting["max_new_tokens"] = options.max_new_tokens
        return PlayedPolicy(setting, lambda venv: ModelPolicy(policy, options.max_new_tokens))
    if not callable(policy):
        raise TypeError(f"policy must be a name, a function or a policy over token ids, got {policy!r}")
    return PlayedPolicy(setting, lambda venv: FunctionPolicy(lambda env, seed: policy, venv.envs))


def _files(folder: Path) -> list[list[Any]]:
    """Name, bytes and time of a model's files, so that a folder with new ones is another setting."""
    files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _endpoint(url: str, options: ModelOptions) -> PlayedPolicy:
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
    setting = {"policy": f"openai:{client.url}", "model": body["model"]}
    setting |= {"conversation": options.conversation, "body": body}

    def make(venv: TextVectorEnv) -> BatchPolicy:
        context = getattr(venv.envs[0].unwrapped, "context", None)
        if options.conversation and context != "append":
            raise ValueError(
                "conversation is for episodes that grow, and this environment gives a fresh prompt each "
                "turn: leave it out"
            )
        return EndpointPolicy(client, body, concurrency=venv.num_envs, conversation=options.conversation)

    return PlayedPolicy(setting, make)


def _served(client: JSONClient) -> str:
    """The model of an endpoint that serves one."""
    models = served_models(client)
    if len(models) != 1:
        served = ", ".join(map(repr, models)) or "nothing"
        raise ValueError(f"{client.url} serves {served}; choose by --model")
    return models[0]
