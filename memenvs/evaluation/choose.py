"""The policy that a command line asks for, and what of the command line decides its replies."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memenvs.arguments import read_arguments
from memenvs.chat import ChatClient
from memenvs.evaluation.endpoint import EndpointPolicy
from memenvs.evaluation.model import load_hf
from memenvs.evaluation.protocol import BatchPolicy
from memenvs.evaluation.scripted import ScriptedPolicy
from memenvs.vector import TextVectorEnv

KEY = "OPENAI_API_KEY"
_PAUSE = 0.5  # seconds before the second try
_OF_MODELS: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": None,
    "top_k": None,
    "min_p": None,
    "max_new_tokens": 1024,
    "stop": [],
    "chat_args": [],
}
"""Options of sampling and their defaults; None leaves a number to the model's own settings."""

Setting = dict[str, Any]
Make = Callable[[TextVectorEnv], BatchPolicy]


def choose_policy(args: argparse.Namespace) -> tuple[Setting, Make]:
    """The setting of a policy, and how to make it for a vector environment.

    Raises:
        ValueError: an option that does not fit.
        EndpointError: the endpoint does not say which model it serves.
    """
    kind, _, rest = args.policy.partition(":")
    if kind in ("hf", "openai") and not rest:
        raise ValueError(f"--policy {args.policy} names nothing; give hf:MODEL or openai:http://host:port/v1")
    if kind == "openai":
        return _endpoint(args, rest)
    for option in ("model", "conversation", "body"):
        if getattr(args, option) not in (None, False, []):
            raise ValueError(f"--{option} is for --policy openai:URL, not {args.policy}")
    for option, unused in _OF_MODELS.items():
        if kind != "hf" and getattr(args, option) != unused:
            name = option.replace("_", "-")
            raise ValueError(f"--{name} is for models, not for --policy {args.policy}; leave it out")
    if kind != "hf":
        return {"policy": args.policy}, lambda venv: ScriptedPolicy(args.policy, venv.envs)
    chat_args = read_arguments(args.chat_args, "--chat-args")
    sampling = {name: getattr(args, name) for name in _OF_MODELS} | {"chat_args": chat_args}
    setting = {"policy": args.policy, **sampling, "files": _files(Path(rest))}
    return setting, lambda venv: load_hf(rest, **sampling)


def _files(folder: Path) -> list[list[Any]]:
    """Name, bytes and time of a model's files, so that a folder with new ones is another setting."""
    files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _endpoint(args: argparse.Namespace, url: str) -> tuple[Setting, Make]:
    parts = urlsplit(url)
    if parts.username or parts.password:  # it would stand in every file of the run
        raise ValueError(f"--policy openai:URL must hold no user and no password; set {KEY}")
    base = url if parts.path.strip("/") else url.rstrip("/") + "/v1"
    key = os.environ.get(KEY, "").strip() or None
    client = ChatClient(base, timeout=args.timeout, tries=args.tries, pause=_PAUSE, key=key)
    fields = {
        "model": args.model or _served(client),
        "temperature": args.temperature,
        "max_tokens": args.max_new_tokens,
        "top_p": args.top_p,
        "top_k": args.top_k,
        "min_p": args.min_p,
        "stop": args.stop or None,
        "chat_template_kwargs": read_arguments(args.chat_args, "--chat-args") or None,
        **read_arguments(args.body, "--body"),
    }
    setting = {"policy": f"openai:{client.url}", "model": fields["model"]}
    setting |= {"conversation": args.conversation, "body": fields}

    def make(venv: TextVectorEnv) -> BatchPolicy:
        context = getattr(venv.envs[0].unwrapped, "context", None)
        if args.conversation and context != "append":
            raise ValueError(
                f"--conversation is for episodes that grow; {args.env} gives a fresh prompt each turn: "
                "leave it out"
            )
        return EndpointPolicy(client, fields, concurrency=venv.num_envs, conversation=args.conversation)

    return setting, make


def _served(client: ChatClient) -> str:
    """The model of an endpoint that serves one."""
    models = client.models()
    if len(models) != 1:
        raise ValueError(
            f"{client.url} serves {', '.join(map(repr, models)) or 'nothing'}; choose by --model"
        )
    return models[0]
