"""Pages written from the classes: one for each environment, and the reference of the public names.

The files of docs/envs and docs/api hold what a code host can show, a title, a picture and a sentence. What
follows it on the site is written here: an environment's contract from its docstring, arguments and spaces,
and the names of a module.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import textwrap
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from leaderboard import ranked  # beside this folder

import memenvs
from memenvs.cli import REQUIRED, described, env_parameters, find_spec
from memenvs.core.files import read_json
from memenvs.data import bundled
from memenvs.evaluation.suite import SUITES, suite_table
from memenvs.evaluation.summary import markdown_table
from memenvs.models.packaged import shipped_agents

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ORDER = ["Action", "Observation", "Reward", "End", "Info", "Metrics", "Privileged", "Args", "Version"]
_HEADING = re.compile(r"^([A-Z]\w*):$", re.MULTILINE)

MODULES: dict[str, list[str]] = {
    "memenvs": [f"memenvs.{name}" for name in memenvs.__all__],
    "memenvs.wrappers": [],
    "memenvs.wrappers.scorers": [],
    "memenvs.rollout": [
        *("memenvs.rollout.engine.collect", "memenvs.rollout.engine.TurnSampler"),
        *("memenvs.rollout.records.Episode", "memenvs.rollout.records.Sample"),
        *("memenvs.rollout.records.Turn", "memenvs.rollout.records.Credit"),
        *("memenvs.rollout.scripted.make_policy", "memenvs.rollout.scripted.play_episode"),
        *(
            "memenvs.rollout.demonstrations.Demonstration",
            "memenvs.rollout.demonstrations.write_demonstrations",
        ),
    ],
    "memenvs.credit": [],
    "memenvs.models": [],
    "memenvs.evaluation": [
        *("memenvs.evaluation.run.evaluate", "memenvs.evaluation.policies.ModelOptions"),
        *("memenvs.evaluation.summary.Summary", "memenvs.evaluation.summary.MetricSummary"),
        *("memenvs.evaluation.summary.Interval", "memenvs.evaluation.summary.summarise"),
        *("memenvs.evaluation.summary.bootstrap", "memenvs.evaluation.summary.wilson"),
        *("memenvs.evaluation.compare.compare", "memenvs.evaluation.compare.PairedComparison"),
        *("memenvs.evaluation.compare.MetricDifference", "memenvs.evaluation.log.EvaluatedRun"),
        "memenvs.evaluation.compare.paired_interval",
    ],
    "memenvs.baselines": [
        *(
            "memenvs.baselines.mt_ppo.MTPPOArgs",
            "memenvs.baselines.grpo.GRPOArgs",
            "memenvs.baselines.sft.SFTArgs",
            "memenvs.baselines.distill.DistillArgs",
            "memenvs.baselines.prm.PRMArgs",
        ),
        *("memenvs.baselines.flags.RunFlags", "memenvs.baselines.flags.ModelFlags"),
        *("memenvs.baselines.flags.PlayFlags", "memenvs.baselines.flags.StepFlags"),
        *("memenvs.baselines.flags.RewardFlags", "memenvs.baselines.mt_ppo.CriticFlags"),
        "memenvs.baselines.advantages.group_advantages",
        *("memenvs.baselines.losses.policy_loss", "memenvs.baselines.losses.value_loss"),
        *("memenvs.baselines.losses.kl_penalty", "memenvs.baselines.losses.divergence"),
        "memenvs.baselines.losses.aggregate",
        "memenvs.baselines.update.train_on",
        "memenvs.baselines.update.score",
    ],
}
"""What each page documents; nothing listed: the module's `__all__`."""


def environment_page(name: str) -> str:
    """Markdown of an environment: how it is made, its spaces, and its docstring's sections."""
    spec = find_spec(name)
    point = spec.entry_point
    made = load_env_creator(point) if isinstance(point, str) else point
    env = gym.make(name, disable_env_checker=True)
    summary, sections = _contract(made)
    rows = [
        ("Class", f"`{made.__module__}.{made.__qualname__}`"),
        ("Action space", f"`{env.action_space}`"),
        ("Observation space", f"`{env.observation_space}`"),
    ]
    inner: Any = env.unwrapped
    if isinstance(inner, memenvs.TextEnv):
        rows.append(("Context", f"`{inner.context}`"))
        rows.append(("Reward components", ", ".join(f"`{one}`" for one in inner.components)))
        rows.append(("Metrics", ", ".join(f"`{one}`" for one in inner.metric_names)))
    env.close()
    lines = [
        *("```py", "import gymnasium as gym", "import memenvs", "", f'env = gym.make("{name}")', "```", ""),
        *(summary, "", "| | |", "| --- | --- |"),
        *(f"| {title} | {value} |" for title, value in rows),
    ]
    for title, text in sections.items():
        if title not in ("Args", "Version"):
            lines += ["", f"## {title}", "", text]
    lines += ["", "## Arguments", "", "| name | default | type | |", "| --- | --- | --- | --- |"]
    told = _arguments_told(made)
    for parameter in env_parameters(name) or ():
        default = (
            "" if parameter.default is REQUIRED else f"`{json.dumps(parameter.default, ensure_ascii=False)}`"
        )
        meaning = told.get(parameter.name, "").replace("|", "\\|")
        row = (f"`{parameter.name}`", default.replace("|", "\\|"), described(parameter.annotation), meaning)
        lines.append(f"| {' | '.join(row)} |")
    if "Version" in sections:
        lines += ["", "## Version", "", sections["Version"]]
    return "\n".join(lines + _scores(name)) + "\n"


def _scores(name: str) -> list[str]:
    """Markdown of the scores in an environment: rows of the leaderboard, and what agents' cards record."""
    lines: list[str] = []
    parts = [part for part in SUITES["small"] if part.env == name]
    if played := ranked("small", parts):
        rule = "; ".join(f"{part.name}: {part.metric} of {part.tasks} tasks" for part in parts)
        lines += [
            f"The suite `small` of the [leaderboard](../leaderboard.md) ({rule}), with 95% intervals:",
            "",
        ]
        lines += suite_table(played)
    rows = []
    for agent in shipped_agents():
        card = read_json(bundled(agent) / "agent.json", "reinstall memenvs")
        for run, scores in card["scores"].items() if card["env"] == name else ():
            setting, _, stage = run.rpartition(", ")
            if stage != "warm-up":
                player = agent if stage == "learned" else f"{card['model']}, {stage}"
                rows.append([player, setting, "{:.2f} [{:.2f}, {:.2f}]".format(*scores["em"])])
    if rows:
        lines += ["", "The [shipped agents](../agents.md), in the form that they were trained for:", ""]
        lines += markdown_table(["policy", "tasks", "em"], rows)
    return ["", "## Scores", "", *lines] if lines else []


def module_page(name: str) -> str:
    """Markdown that documents a module's public names by autodoc."""
    module = importlib.import_module(name)
    listed = MODULES[name] or [f"{name}.{public}" for public in module.__all__]
    blocks = []
    for full in (
        sorted(listed, key=lambda full: full.rpartition(".")[2].lower()) if not MODULES[name] else listed
    ):
        place, _, public = full.rpartition(".")
        found = getattr(importlib.import_module(place), public)
        kind = "class" if inspect.isclass(found) else "function" if inspect.isroutine(found) else "data"
        if kind == "data":  # autodoc would print the docstring of its type
            blocks += [f".. py:data:: {full}", f"   :value: {_shown(found)}", ""]
            continue
        blocks += [f".. auto{kind}:: {full}"]
        if kind == "class":
            blocks += ["   :members:", *(["   :undoc-members:"] if _is_flags(found) else [])]
        blocks += [""]
    return "\n".join(["```{eval-rst}", *blocks, "```", ""])


def _is_flags(found: Any) -> bool:
    return found.__name__.endswith("Args")  # of a learner


def _shown(found: Any) -> str:
    return " ".join(repr(found).split()).replace("numpy.", "np.")


def _contract(made: Any) -> tuple[str, dict[str, str]]:
    """The summary of a class, and its docstring's sections; or else those of the class it extends."""
    summary, _ = _sections(inspect.getdoc(made) or "")
    found: dict[str, str] = {}
    for kind in inspect.getmro(made):
        if kind.__module__.startswith("memenvs.envs."):
            _, told = _sections(inspect.cleandoc(kind.__dict__.get("__doc__") or ""))
            found = {**told, **found}
    return summary, {
        title: found[title] for title in sorted(found, key=lambda title: (*_ORDER, title).index(title))
    }


def _sections(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first heading, and the text under each."""
    first, *rest = _HEADING.split(text)
    found = {
        title: textwrap.dedent(body.strip("\n")) for title, body in zip(rest[::2], rest[1::2], strict=True)
    }
    return first.strip(), found


def _arguments_told(made: Any) -> dict[str, str]:
    """What the docstrings of a class and of those it extends say of each argument."""
    told: dict[str, str] = {}
    for kind in reversed(inspect.getmro(made)):
        text = _sections(inspect.cleandoc(kind.__dict__.get("__doc__") or ""))[1].get("Args", "")
        for item in re.split(r"\n(?=\S)", text):
            name, colon, meaning = item.partition(":")
            if colon:
                told[name.strip("* ")] = " ".join(meaning.split())
    return told


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is parsed."""
    folder, _, name = docname.partition("/")
    if folder == "envs" and name != "index":
        source[0] += "\n" + environment_page(name)
    elif folder == "api" and name != "index":
        source[0] += "\n" + module_page(name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
