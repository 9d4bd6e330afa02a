"""`memenvs package openenv` and `memenvs package verifiers`: an environment as a folder for another hub."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from memenvs.adapters.common import open_env
from memenvs.commands.options import EnvOptions
from memenvs.core.data import checked
from memenvs.core.env import text_env_of
from memenvs.core.files import write_text
from memenvs.wrappers.registry import read_methods

ACTIONS = 100  # maximum that OpenEnv's runtime validation plays

OPENENV_YAML = """\
spec_version: 1
name: {name}
version: 0.1.0
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward:
    range: [{low}, {high}]
    floor_margin: 0.1
  capabilities:
    verifier:
      kind: reward_channel
    task_api: true
    declared_task_count: {{{split}: {n_tasks}}}
  resources:
    cpu: 1.0
    memory_mb: 1024
    disk_mb: 1024
    episode_timeout_s: 600.0
  execution:
    probe_path: validation/runtime.json
    dockerfile: Dockerfile
  types:
    tags: [memory]
"""

OPENENV_APP = '''\
"""{env}, served to OpenEnv."""

from memenvs.adapters.openenv import make_app

app = make_app({settings})


def main() -> None:
    """Serve it on port 8000."""
    import uvicorn

    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
'''

OPENENV_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "openenv-{project}"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["memenvs[openenv]"]

[project.scripts]
server = "server.app:main"

[tool.setuptools]
packages = ["server"]
"""

OPENENV_README = """\
---
title: {name}
sdk: docker
app_port: 8000
base_path: /web
tags: [openenv]
---

# {name}

`{env}` of memenvs, with {n_tasks} tasks.

    openenv push
"""

VERIFIERS_INIT = '''\
"""{env} of memenvs, with arguments of its own."""

from typing import Any

import verifiers.v1 as vf

from memenvs.adapters.verifiers import MemEnv, MemTask, MemTaskset, MemTasksetConfig, ReplyHarness

__all__ = ["MemEnv", "ReplyHarness", "Tasks"]


class Config(MemTasksetConfig):
    """Each can be set, as `--env.taskset.env-args`."""

    env: str = {env!r}
    env_args: dict[str, Any] = {env_args!r}
    methods: list[Any] = {methods!r}
    scorer: Any = {scorer!r}


class Tasks(MemTaskset, vf.Taskset[MemTask, Config]):
    """Its {n_tasks} tasks."""
'''

VERIFIERS_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{project}"
version = "0.1.0"
description = "{env} of memenvs"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["memenvs[verifiers]"]

[tool.hatch.build.targets.wheel]
packages = ["{name}"]
"""

VERIFIERS_README = """\
# {project}

`{env}` of memenvs, with {n_tasks} tasks.

    vf-eval {project} -n 8 --model MODEL --client.base-url http://127.0.0.1:8000/v1
"""

DOCKERFILE = """\
FROM python:3.12-slim
WORKDIR /app/env
COPY . .
RUN pip install --no-cache-dir .
EXPOSE 8000
CMD ["uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000"]
"""


@dataclass(frozen=True)
class PackageOptions:
    """The package.

    Attributes:
        out: new folder; its name, of a-z, 0-9 and _, is the package's.
        methods: reward methods around the environment: TAMTRL, InfoMem beta=0.1, or package.module:Class.
        scorer: gives the methods log-probabilities: lexical or hf:MODEL.
    """

    out: str
    methods: Sequence[str] = ()
    scorer: str | None = None


@checked
def openenv(
    *, environment: EnvOptions, package: PackageOptions, reward_range: tuple[float, float] = (0.0, 1.0)
) -> None:
    """Write an environment as a package that `openenv validate` and `openenv push` accept.

    Examples:
      memenvs package openenv --env MemSearchQA-v0 --env-args tasks=world-test --out memenvs_search
      memenvs package openenv --env MemSokoban-v0 --out memenvs_sokoban --reward-range -1 20

    Args:
        reward_range: the minimum and maximum reward of a turn.
    """
    env, parts = _open(environment, package)
    inner = text_env_of(env)
    rewards, over = list[float](), False
    env.reset(seed=0, options={"task": 0})
    while not over:
        _, reward, terminated, truncated, _ = env.step(inner.gold_reply())
        rewards.append(float(reward))
        over = terminated or truncated
    low, high = reward_range
    if not low <= min(rewards) <= max(rewards) <= high:
        raise ValueError(
            f"the right replies to task 0 earn {min(rewards):g} to {max(rewards):g} a turn, outside "
            f"reward_range {low:g} to {high:g}; give a wider one"
        )
    given = [f"{name}={parts[name]!r}" for name in ("env_args", "methods", "scorer") if parts[name]]
    parts |= {"settings": ", ".join([repr(environment.env), *given]), "low": low, "high": high}
    parts["split"] = json.dumps(inner.task_set()[0] or environment.env)
    reset = {"episode_id": "validation", "seed": 0, "options": {"index": 0}}
    actions = [{"reply": ""}] * min(len(rewards), ACTIONS)  # right replies would show a task's answer
    plan = {"plan_schema_version": "1", "reset": reset, "actions": actions}
    files = {
        "openenv.yaml": OPENENV_YAML.format(**parts),
        "pyproject.toml": OPENENV_PYPROJECT.format(**parts),
        "README.md": OPENENV_README.format(**parts),
        "Dockerfile": DOCKERFILE,
        "server/__init__.py": "",
        "server/app.py": OPENENV_APP.format(**parts),
        "validation/runtime.json": json.dumps(plan, indent=2),
    }
    _write(package.out, files, f"openenv validate {package.out} --level static --skip-build")


@checked
def verifiers(*, environment: EnvOptions, package: PackageOptions) -> None:
    """Write an environment as a package for the hub of verifiers and prime-rl, for `prime env push`.

    Examples:
      memenvs package verifiers --env MemSearchQA-v0 --methods SearchRewards --out mem_search_v1
    """
    _, parts = _open(environment, package)
    files = {
        "pyproject.toml": VERIFIERS_PYPROJECT.format(**parts),
        "README.md": VERIFIERS_README.format(**parts),
        f"{parts['name']}/__init__.py": VERIFIERS_INIT.format(**parts),
    }
    _write(package.out, files, f"pip install -e {package.out}")


def _open(environment: EnvOptions, package: PackageOptions) -> tuple[gym.Env[str, str], dict[str, Any]]:
    """The environment, and what the files of every package say about it."""
    methods, name = read_methods(package.methods), Path(package.out).name
    env = open_env(environment.env, environment.env_args, methods, package.scorer)
    return env, {
        "name": name,
        "project": name.replace("_", "-"),
        "env": environment.env,
        "env_args": environment.env_args,
        "methods": methods,
        "scorer": package.scorer,
        "n_tasks": text_env_of(env).n_tasks,
    }


def _write(out: str, files: Mapping[str, str], following: str) -> None:
    """Write the files of a package into a new folder, and print the next command."""
    if not re.fullmatch("[a-z][a-z0-9_]*", Path(out).name):
        raise ValueError(f"out must end with the package's name, of a-z, 0-9 and _, got {out!r}")
    Path(out).mkdir(parents=True)
    for name, text in files.items():
        (path := Path(out, name)).parent.mkdir(exist_ok=True)
        write_text(path, text)
    sys.stdout.write(f"{out}: {len(files)} files; next: {following}\n")
