"""What made the episodes of a file: the settings of an evaluation or of a training run beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from memenvs.core.arguments import env_parameters
from memenvs.core.files import ARGS, read_json
from memenvs.evaluation.log import COST, COSTS, SETTING, RunFacts
from memenvs.wrappers.names import METHODS
from memenvs.wrappers.registry import method_name

_FIX = "move it away to view the episodes without their settings"


def run_settings(file: Path) -> dict[str, str | float]:
    """What made the episodes of a file, by name: first what tells runs apart, then every other setting.

    The date is when the file was last written, in UTC; tokens are those of a whole evaluation.

    Args:
        file: a file of episodes, beside the `setting.json` of an evaluation or the `args.json` of a learner.

    Raises:
        ValueError: a file beside it holds something else.
    """
    setting_file, args_file, cost_file = (file.with_name(name) for name in (SETTING, ARGS, COST))
    facts: dict[str, Any] = {}
    source = next((source for source in (setting_file, args_file) if source.exists()), None)
    setting = read_json(source, _FIX, RunFacts) if source else {}
    who = [setting.pop(name, None) for name in ("policy", "learner", "model")]
    facts["policy"] = ", ".join(str(name) for name in who if name)
    env_args = setting.get("env_args")
    chosen = env_args.get("memory_mode") if isinstance(env_args, Mapping) else None
    facts["memory mode"] = chosen or _default_memory_mode(setting.get("env"))
    reward = method_name(str(setting.pop("reward", None) or ""))  # of a learner: a comparison or a method
    paid = [reward] if reward in METHODS else []
    paid += [method[0] if isinstance(method, list) else method for method in setting.get("methods") or ()]
    facts["methods"] = ", ".join(dict.fromkeys(map(str, paid)))
    facts["reward"] = "" if reward in METHODS else reward
    facts["scorer"] = _plain(setting.pop("scorer", None))
    if cost_file.exists():
        cost = read_json(cost_file, _FIX, COSTS)
        read, written = cost.get("prompt_tokens"), cost.get("reply_tokens")
        facts["tokens"] = None if read is None or written is None else read + written
        facts |= {"tokens read": read, "tokens written": written, "seconds": cost.get("seconds")}
        facts["price"] = cost.get("price")
    facts["date"] = time.strftime("%Y-%m-%d %H:%M", time.gmtime(file.stat().st_mtime))
    for name, value in setting.items():
        if isinstance(value, Mapping):
            facts |= {f"{name}.{key}": _plain(part) for key, part in value.items()}
        elif value or name != "methods":
            facts["settings of methods" if name == "methods" else name] = _plain(value)
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _plain(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _default_memory_mode(env: Any) -> str | None:
    """The default of a registered environment; None where it has none, or where `env` is not registered."""
    parameters = env_parameters(env) if isinstance(env, str) and env in gym.registry else None
    return next(
        (str(parameter.default) for parameter in parameters or () if parameter.name == "memory_mode"), None
    )
