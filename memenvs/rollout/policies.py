"""Policies by name: without a model, a model in this process, an endpoint, a run that is played again.

policy, model = choose_policy("hf:smollm2").make(env)
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import msgspec

from memenvs import models
from memenvs.core.data import decode, shown
from memenvs.core.env import TextEnv, check_text_observations
from memenvs.core.episode import Reply
from memenvs.core.episode_file import EPISODES, read_lines
from memenvs.core.errors import near_names
from memenvs.core.inputs import read_text
from memenvs.core.servers import OpenAIClient, key_in
from memenvs.core.text import read_system_prompt
from memenvs.data import bundled
from memenvs.envs.search_qa import Rewritten, SearchQAEnv, read_reply, without
from memenvs.models.endpoint import (
    Completion,
    Message,
    Prompts,
    TextConversation,
    TokenEndpoint,
    ToolConversation,
    Watch,
    complete,
    served_models,
    served_window,
)
from memenvs.models.hub import check_found
from memenvs.models.packaged import MODELS, base_of, is_adapter, shipped_agents
from memenvs.models.policy import TokenPolicy
from memenvs.models.settings import ChatSettings, ModelOptions
from memenvs.rollout.policy import (
    Policy,
    Request,
    ThreadPolicy,
    TurnPolicy,
    as_policy,
    made_policy,
    prompt_of,
)
from memenvs.rollout.scripted import make_policy

KINDS = ("hf:", "openai:", "replay:")
"""What the names of policies that are not functions begin with."""
KEY = "OPENAI_API_KEY"
"""Environment variable of an endpoint's key."""

_log = logging.getLogger(__name__)

_OF_ENDPOINTS = ("model", "conversation", "tools", "tokens", "body", "timeout", "tries")
_OF_PROCESS = ("dtype",)
_OF_TOKENS = {
    "prompt": "leave it out",
    "messages": "leave it out",
    "max_tokens": "give --max-new-tokens",
    "stop": "give --stop",
    "chat_template_kwargs": "give --chat-args",
}
"""Fields of a request that `--tokens` sets itself, and what a user does instead."""
_NEUTRAL = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Fields of a request with which a server samples from the model's own distribution, as `hf:` does."""


class PolicySpec(NamedTuple):
    """A policy that can be played.

    Attributes:
        setting: what decides its replies, plain data.
        make: gives what replies in environments like this one, and the model over token ids that samples the
            replies; None for a policy that reads texts.
    """

    setting: dict[str, Any]
    make: Callable[[gym.Env[Any, Any]], tuple[Policy, TokenPolicy | None]]


def choose_policy(policy: Any, options: ModelOptions | None = None) -> PolicySpec:
    """The policy with a name, or one that is already an object: for every command, learner and adapter.

    Args:
        policy: `"lexical"` or another name that `make_policy` knows, `"hf:MODEL"`, `"openai:URL"` or
            `"openai:MODEL@URL"`, `"replay:RUN"`; a function from an observation and its `public_info` to a
            reply; a policy over token ids, as `memenvs.models.HFPolicy`; or a
            `memenvs.rollout.policy.Policy`.
        options: settings of `hf:` and `openai:`; a policy over token ids takes only `max_new_tokens`.

    Raises:
        TypeError: `policy` is something else.
        ValueError: no such policy, or an option that it does not have.
        ServerError: the endpoint does not say which model it serves.
    """
    options = options or ModelOptions()
    if not isinstance(policy, str):
        return _object_policy(policy, options)
    kind, colon, place = policy.partition(":")
    default = asdict(ModelOptions())
    for option in {"hf": _OF_ENDPOINTS, "openai": _OF_PROCESS}.get(kind, default):
        if getattr(options, option) != default[option]:
            raise ValueError(f"policy {shown(policy)} has no option {option}; leave it out")
    if f"{kind}:" in KINDS:
        if not place:
            raise ValueError(
                f"policy {policy} has no name; give hf:MODEL, openai:http://host:port/v1 or replay:RUN"
            )
        if kind == "replay":
            return _replay(Path(place))
        return _hf(place, options) if kind == "hf" else _endpoint(place, options)
    if colon and (near := near_names(f"{kind}:", KINDS)) and importlib.util.find_spec(kind) is None:
        raise ValueError(f"no policy {shown(policy)}; did you mean {near[0]}{place}?")
    make = functools.partial(make_policy, policy)

    def named(env: gym.Env[Any, Any]) -> tuple[Policy, None]:
        make(env, 0)  # raises here, not in the first episode
        return made_policy(make), None

    return PolicySpec({"policy": policy}, named)


def policy_by_name(name: str, make_env: Callable[[], gym.Env[Any, Any]], **options: Any) -> Policy:
    """Who replies by a name, as `choose_policy` takes it, in the environments that a function makes.

    Args:
        name: the policy's name.
        make_env: makes an environment.
        **options: `ModelOptions` of a model; other policies have none.

    Raises:
        ValueError: as `choose_policy`, or the policy does not play these environments.
    """
    sampling = ModelOptions(**options) if name.startswith(("hf:", "openai:")) else None
    with contextlib.closing(make_env()) as example:
        replies, _ = choose_policy(name, sampling).make(example)
    return replies


class EndpointPolicy(ThreadPolicy):
    """A model behind an OpenAI-compatible server.

    Every request has its own seed, drawn from its episode's generator. A failed request fails only its own
    episode.

    A stop string that ended a reply is put back, because environments read it and endpoints remove it. Many
    servers do not say which string it was, or whether there was one. From the first reply of such a server
    on, this one included, requests go out without stop strings, and a reply is cut after its first stop
    string: the text is the same, although the model generates more than is used.

    Args:
        client: client of the server.
        fields: fields of every request, such as the model and the temperature; None leaves a field out.
        prompts: how episodes become messages.
        opening: messages before those of the episode.
    """

    def __init__(
        self,
        client: OpenAIClient,
        fields: dict[str, Any],
        prompts: type[Prompts] = Prompts,
        opening: Sequence[Message] = (),
    ) -> None:
        watch = Watch(client.url)
        super().__init__(self._reply_to, watch)
        self.client, self.fields, self.opening = client, fields, opening
        self.prompts = prompts
        self._cuts_here = False
        self._see = watch.see
        self._prompts: dict[int, Prompts] = {}  # by the id of the environment

    def _reply_to(self, request: Request) -> Reply:
        if request.first:
            if request.episode.turns and self.prompts is not Prompts:
                raise ValueError(
                    "a conversation cannot be played on from a state, as Continuations does; leave out "
                    "--conversation and --tools"
                )
            self._prompts[id(request.env)] = self.prompts(request.env)
        prompts = self._prompts[id(request.env)]
        prompts.observe(request.observation, request.public_info)
        fields = {"seed": int(request.rng.integers(2**31)), **prompts.fields, **self.fields}
        body = {name: value for name, value in fields.items() if value is not None}
        body["messages"] = [*self.opening, *prompts.messages]
        completion, whole = self._complete(body)
        self._see(body, completion)
        return Reply(
            prompts.read(completion),
            finished=completion.finish != "length",
            prompt_tokens=completion.prompt_tokens,
            tokens=completion.reply_tokens if whole else None,  # the server counted the whole reply
        )

    def _complete(self, fields: dict[str, Any]) -> tuple[Completion, bool]:
        """The reply, with the stop string that ended it, and whether it is all that was generated."""
        stop = fields.get("stop") or ()
        stops = [stop] if isinstance(stop, str) else stop
        if not (stops and self._cuts_here):
            reply = complete(self.client, fields)
            if not stops or reply.tells_stop:
                text = reply.text if reply.text.endswith(reply.stop) else reply.text + reply.stop
                return reply._replace(text=text), True
            if not self._cuts_here:
                self._cuts_here = True
                _log.warning(
                    "%s does not say which stop string ended a reply: replies are generated to their end and "
                    "then cut here",
                    self.client.url,
                )
        fields = {name: value for name, value in fields.items() if name != "stop"}
        reply = complete(self.client, fields)
        ends = [reply.text.index(stop) + len(stop) for stop in stops if stop in reply.text]
        return (reply._replace(text=reply.text[: min(ends)], finish="stop") if ends else reply), False


def _object_policy(policy: Any, options: ModelOptions) -> PolicySpec:
    place = policy if hasattr(policy, "__qualname__") else type(policy)
    setting: dict[str, Any] = {"policy": f"{place.__module__}:{place.__qualname__}"}
    replies = as_policy(policy, options.max_new_tokens)
    if replies is policy or not hasattr(policy, "sample"):
        return PolicySpec(setting, lambda env: (replies, None))
    setting["max_new_tokens"] = options.max_new_tokens

    def make(env: gym.Env[Any, Any]) -> tuple[Policy, TokenPolicy]:
        check_text_observations(env)
        return replies, policy

    return PolicySpec(setting, make)


def _replay(run: Path) -> PolicySpec:
    """The replies of the finished episodes of a run, by task and sample.

    Where the environment keeps no memory, a reply is played without the `<mem>…</mem>` that opens it, so that
    the traces of an agent with a memory become those of one without (MemPO 5.3). An episode that the run
    lacks, that asks another task, or that outlives its replies, fails.
    """
    file = run / EPISODES if run.is_dir() else run
    replies: dict[tuple[int | None, int], tuple[str, list[str]]] = {}  # by task and sample
    digest = hashlib.sha256()
    for line, episode in read_lines(file):
        digest.update(line.encode())
        if not episode.error:
            texts = [turn.action for turn in episode.turns]
            replies[episode.number, episode.member] = episode.task, texts
    if not replies:
        raise ValueError(
            f"{file} has no finished episode to replay; give the --out folder of `evaluate run`, or its "
            f"{EPISODES}"
        )

    def reply(request: Request) -> Reply:
        episode, inner = request.episode, request.env.unwrapped
        where = f"{file}: task {episode.number}, sample {episode.member}"
        task, texts = replies.get((episode.number, episode.member), ("", []))
        if not texts:
            raise ValueError(f"{where} has no finished episode; play fewer tasks or samples")
        if task != episode.task:
            raise ValueError(f"{where} is {task!r}, and here {episode.task!r}; give the same task set")
        if len(texts) == len(episode.turns):
            raise ValueError(
                f"{where} ends after {len(texts)} replies, and this environment asks for more; give the "
                "env_args that the run was played with"
            )
        text = texts[len(episode.turns)]
        remembers = not isinstance(inner, SearchQAEnv) or isinstance(inner.conversation, Rewritten)
        if not remembers and (memory := read_reply(text).memory):
            text = without(text, memory).lstrip()
        return Reply(text)

    setting = {"policy": "replay", "file": digest.hexdigest()}
    return PolicySpec(setting, lambda env: (TurnPolicy(reply), None))


def _hf(model: str, options: ModelOptions) -> PolicySpec:
    """A model of transformers, by its folder, its hub name or a packaged model's name.

    A folder that `HFPolicy.save` wrote has settings of its own; only the temperature and the options that are
    given replace them.
    """
    if model not in MODELS and model not in shipped_agents():
        check_found(model)  # before torch is imported, which takes seconds
    others = (*_OF_ENDPOINTS, "system_prompt", "examples")
    sampling = {name: value for name, value in asdict(options).items() if name not in others}
    opening = _opening(options)
    setting = {"policy": f"hf:{model}", **sampling, "files": _files(model), **opening}
    max_new_tokens = sampling.pop("max_new_tokens")
    chosen = {
        name: value
        for name, value in sampling.items()
        if value not in (None, (), [], {}) and value is not False
    }

    def make(env: gym.Env[Any, Any]) -> tuple[Policy, TokenPolicy]:
        check_text_observations(env)
        policy = models.HFPolicy.load(model, **chosen)
        policy.check_can_sample()  # raises here, not in the first episode
        if opening:
            if not policy.chat:
                raise ValueError(f"hf:{model} has no chat template; leave out --system-prompt and --examples")
            policy.opening = [(message["role"], message["content"]) for message in opening["opening"]]
        return as_policy(policy, max_new_tokens), policy

    return PolicySpec(setting, make)


def _files(model: str) -> list[list[Any]]:
    """Name, bytes and time of a model's files, so that new files in the folder are another setting.

    A packaged model, whose folder may be written again, has the name and SHA-256 of its source. The files of
    an adapter's base model follow its own.
    """
    if model in MODELS:
        return [[MODELS[model].file, MODELS[model].sha256]]
    folder = bundled(model) if model in shipped_agents() else Path(model)
    files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    facts = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    return facts + (_files(base_of(folder)) if is_adapter(folder) else [])


def _endpoint(place: str, options: ModelOptions) -> PolicySpec:
    by_model = re.fullmatch(r"(.+)@(https?://.*)", place)  # an address may have an @ of its own
    url = by_model[2] if by_model else place
    model = options.model or (by_model and by_model[1])
    client = OpenAIClient(url, timeout=options.timeout, tries=options.tries, key=key_in(KEY))
    names = [model] if model else served_models(client)
    if len(names) != 1:
        raise ValueError(f"{client.url} serves {shown(names)}; choose one: openai:MODEL@{client.url}")
    body = {
        "model": names[0],
        "temperature": options.temperature,
        "max_tokens": options.max_new_tokens,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "min_p": options.min_p,
        "stop": list(options.stop) or None,
        "chat_template_kwargs": dict(options.chat_args) or None,
        **options.body,
    }
    opening = _opening(options)
    if options.tokens is not None:
        return _token_endpoint(client, body, options, opening)
    for flag in ("split_special_tokens", "drop_thoughts"):
        if getattr(options, flag):
            raise ValueError(f"{flag} is for prompts that become tokens here; add --tokens MODEL")
    # not the address, so that a server restarted on another port resumes the run
    how = {"conversation": options.conversation, "tools": options.tools}
    setting = {"policy": "openai", "model": body["model"], **how, "body": body, **opening}

    kind = ToolConversation if options.tools else TextConversation if options.conversation else Prompts

    def make(env: gym.Env[Any, Any]) -> tuple[Policy, None]:
        if not isinstance(env.unwrapped, TextEnv):  # whose observations may have pictures
            check_text_observations(env)
        # these raise here, not in the first episode, where nothing answers or there are no tools to call
        served_window(client, body["model"])
        kind(env)
        return EndpointPolicy(client, body, kind, **opening), None

    return PolicySpec(setting, make)


def _token_endpoint(
    client: OpenAIClient, body: dict[str, Any], options: ModelOptions, opening: dict[str, list[Message]]
) -> PolicySpec:
    """A model at an endpoint that takes prompts as token ids."""
    if options.conversation or options.tools:
        raise ValueError("--tokens sends prompts as token ids; leave --conversation and --tools out")
    for refused in options.body.keys() & _OF_TOKENS:
        raise ValueError(f"--tokens takes no {refused} in --body; {_OF_TOKENS[refused]}")
    from memenvs.models.hf import load_chat_tokens, saved_settings  # needs torch, as most endpoints do not

    name = str(options.tokens)
    chosen = ChatSettings(options.chat_args, options.split_special_tokens, "", options.drop_thoughts)
    tokens = load_chat_tokens(name, chosen)
    saved = saved_settings(name)
    stop = list(options.stop or saved.get("stop", ()))
    fields = {name: value for name, value in body.items() if name not in _OF_TOKENS}
    # If a field is left out, vLLM and SGLang use the value in the model's generation config.
    for field, neutral in _NEUTRAL.items():
        if fields.get(field) is None and field not in options.body:
            value = saved.get(field)
            fields[field] = neutral if value is None else value
    endpoint = TokenEndpoint(client, tokens, fields, stop)
    endpoint.opening = [(message["role"], message["content"]) for message in opening.get("opening", ())]

    def reply(request: Request) -> Reply:
        prompt = prompt_of(endpoint, request, options.max_new_tokens)
        if prompt.room <= 0:
            return prompt.reply(None)
        return prompt.reply(endpoint.sample([prompt.ids], [request.rng], prompt.room)[0])

    setting = {
        "policy": "openai",
        "tokens": _files(name),
        "body": fields,
        "stop": stop,
        **asdict(tokens.settings),
    }
    setting |= {"max_new_tokens": options.max_new_tokens, **opening}

    def make(env: gym.Env[Any, Any]) -> tuple[Policy, TokenPolicy]:
        endpoint.window = served_window(client, body["model"])  # raises here, where nothing answers
        return ThreadPolicy(reply, endpoint.watch), endpoint

    return PolicySpec(setting, make)


class _ExampleTurn(msgspec.Struct):
    user: str
    assistant: str


def _opening(options: ModelOptions) -> dict[str, list[Message]]:
    """The messages of the system prompt and the examples as `opening`; empty where there are none."""
    messages: list[Message] = []
    if options.system_prompt:
        messages.append({"role": "system", "content": read_system_prompt(options.system_prompt)})
    if options.examples is not None:
        # not splitlines(), which also breaks a JSON text at U+2028
        lines = read_text(Path(options.examples)).removesuffix("\n").split("\n")
        for number, line in enumerate(lines, start=1):
            turn = decode(line, _ExampleTurn, f"{options.examples}, line {number}: the example")
            messages += [
                {"role": role, "content": text} for role, text in msgspec.structs.asdict(turn).items()
            ]
    return {"opening": messages} if messages else {}
