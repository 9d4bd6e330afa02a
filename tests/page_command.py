"""A command of a page, read by the parser that it is for, and not run."""

import argparse
import importlib
import shlex
from typing import get_type_hints

import pytest

from memenvs.__main__ import MODULES
from memenvs.baselines.flags import read_args
from memenvs.cli import Parser, check_env_arguments, read_arguments


class Parsed(Exception):
    """Raised where a command would begin its work."""


def stop(parser, arguments, namespace=None):
    raise Parsed(argparse.ArgumentParser.parse_args(parser, arguments, namespace))


def parse(command, monkeypatch):
    """The arguments of `python -m memenvs…`, those of its environment checked."""
    _, _, name, *arguments = shlex.split(command, comments=True)
    if name == "memenvs":
        name = f"memenvs.{arguments.pop(0)}"
        if name == "memenvs.evaluate":
            name = f"memenvs.evaluation.{arguments.pop(0)}"
    short = name.removeprefix("memenvs.")
    module = importlib.import_module(f"memenvs.{MODULES.get(short, short)}")
    if name.startswith("memenvs.baselines."):
        pytest.importorskip("tyro", reason="the learners' flags want the extra train")
        args = read_args(get_type_hints(module.train)["args"], arguments, name)
    else:
        monkeypatch.setattr(Parser, "parse_args", stop)
        with pytest.raises(Parsed) as parsed:
            module.main(arguments)
        args = parsed.value.args[0]
    env = getattr(args, "env", "")
    if env.startswith("Mem"):
        given = args.env_args
        check_env_arguments(env, given if isinstance(given, dict) else read_arguments(given))
    return args
