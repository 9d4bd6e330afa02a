"""Parse a command of a page without running it."""

import importlib
import shlex
from typing import get_type_hints

import pytest

import memenvs.wrappers.prm
from memenvs.baselines.flags import read_args
from memenvs.commands import build, main
from memenvs.core import arguments


class Parsed(Exception):
    """Raised where a command would begin its work."""


def parse(command, monkeypatch):
    """The arguments of `memenvs …`, those of its environment checked."""
    _, *words = shlex.split(command, comments=True)
    monkeypatch.setattr(memenvs.wrappers.prm, "check_checkpoint", lambda folder: None)  # of a run of the page
    if words[0] == "train":
        learner = importlib.import_module(f"memenvs.baselines.{words[1]}")
        args = read_args(get_type_hints(learner.train)["args"], words[2:], " ".join(["memenvs", *words[:2]]))
        args.check()
    else:
        args = arguments_of(words, monkeypatch)
    env = getattr(args, "env", "")
    if env.startswith("Mem"):
        arguments.check_env_arguments(env, args.env_args)
    return args


def arguments_of(words, monkeypatch):
    """What a command's function would be called with; its environment if it has one."""

    def stop(*given, **settings):
        raise Parsed(getattr(read(*given, **settings), "keywords", {}))  # a source's options are an object

    read = arguments.parse
    with monkeypatch.context() as patch:
        patch.setattr(arguments, "parse", stop)
        patch.setattr(build, "parse", stop)
        with pytest.raises(Parsed) as parsed:
            main(words)
    (keywords,) = parsed.value.args
    return keywords.get("environment")
