"""Write docs/envs/ID.md: an environment's contract from its docstring, its arguments, spaces and scores.

`python docs/environment_pages.py` writes the pages of all environments again.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from leaderboard import by_kind, ranked, reasons  # beside this file

import memenvs
from memenvs.commands.contract import argument_texts, contract
from memenvs.core.arguments import REQUIRED, described, env_parameters, find_spec
from memenvs.core.files import read_json, write_text
from memenvs.data import bundled
from memenvs.evaluation.suite import SUITES, suite_table
from memenvs.evaluation.summary import Interval, markdown_table, wilson
from memenvs.models.packaged import shipped_agents
from memenvs.rollout.names import policy_label
from memenvs.rollout.scripted import make_policy

DOCS = Path(__file__).parent
PLAYED = {"MemSokobanGrid-v0": ("gold", "random"), "MemSokobanImage-v0": ("gold", "random_text", "silent")}
"""Environments that are in no suite, and the scripted policies that play them while the page is written."""
TASKS = 100
"""Tasks that each of these policies plays."""


def page(name: str) -> str:
    """The whole page of an environment."""
    spec = find_spec(name)
    point = spec.entry_point
    creator = load_env_creator(point) if isinstance(point, str) else point
    env = gym.make(name, disable_env_checker=True)
    summary, sections = contract(creator)
    rows = [
        ("Class", f"`{creator.__module__}.{creator.__qualname__}`"),
        ("Action space", f"`{env.action_space}`"),
        ("Observation space", f"`{env.observation_space}`"),
    ]
    inner: Any = env.unwrapped
    if is_text := isinstance(inner, memenvs.TextEnv):
        rows.append(("Context", f"`{inner.context}`"))
        rows.append(("Reward components", ", ".join(f"`{item}`" for item in inner.components)))
        rows.append(("Metrics", ", ".join(f"`{item}`" for item in inner.metric_names)))
    env.close()
    lines = [
        *(f"# {name}", "", summary, "", f"![an episode of {name}](../images/{name}.svg)", ""),
        *([f"`memenvs play --env {name}` shows an episode in a terminal."] * is_text),
        *(*_scores(name), *([""] * is_text), "## Make one", ""),
        *("```py", "import gymnasium as gym", "import memenvs", "", f'env = gym.make("{name}")', "```", ""),
        *("| | |", "| --- | --- |"),
        *(f"| {title} | {value} |" for title, value in rows),
    ]
    for title, text in sections.items():
        if title not in ("Args", "Version"):
            lines += ["", f"## {title}", "", text]
    lines += ["", "## Arguments", "", "| name | default | type | |", "| --- | --- | --- | --- |"]
    meanings = argument_texts(creator)
    for parameter in env_parameters(name) or ():
        default = (
            "" if parameter.default is REQUIRED else f"`{json.dumps(parameter.default, ensure_ascii=False)}`"
        )
        meaning = meanings.get(parameter.name, "").replace("|", "\\|")
        row = (f"`{parameter.name}`", default.replace("|", "\\|"), described(parameter.annotation), meaning)
        lines.append(f"| {' | '.join(row)} |")
    if "Version" in sections:
        lines += ["", "## Version", "", sections["Version"]]
    lines += ["", "<!-- Written by docs/environment_pages.py from the class's docstring. -->"]
    return "\n".join(lines) + "\n"


def _scores(name: str) -> list[str]:
    """Markdown of the scores in an environment: rows of the leaderboard, and what agents' cards record."""
    lines: list[str] = []
    parts = [part for part in SUITES["small"] if part.env == name]
    if parts:
        rule = "; ".join(f"{part.name}: {part.metric} of {part.tasks} tasks" for part in parts)
        lines += [
            f"The suite `small` of the [leaderboard](../leaderboard.md) ({rule}), with 95% intervals:",
            "",
        ]
        results = ranked("small", parts)
        lines += html.escape(suite_table(results), quote=False).splitlines()
        if reasons(*by_kind(results)):
            lines += [
                "",
                "The leaderboard says [why](../leaderboard.md#small) a policy without a model leads.",
            ]
    if name in PLAYED:
        rows = [
            [policy_label(policy), wilson(_successes(name, policy)).text(digits=2)] for policy in PLAYED[name]
        ]
        lines += [f"Success in {TASKS} tasks of the split `test`, with 95% intervals:", ""]
        lines += markdown_table(["policy", "success"], rows)
    rows = []
    for agent in shipped_agents():
        card = read_json(bundled(agent) / "agent.json", "reinstall memenvs")
        for run, scores in card["scores"].items() if card["env"] == name else ():
            setting, _, stage = run.rpartition(", ")
            if stage != "warm-up":
                player = agent if stage == "learned" else f"{card['model']}, {stage}"
                rows.append([player, setting, Interval(*scores["em"]).text(digits=2)])
    if rows:
        lines += ["", "The [shipped agents](../agents.md), in the form that they were trained for:", ""]
        lines += markdown_table(["policy", "tasks", "em"], rows)
    return ["", "## Scores", "", *lines] if lines else []


def _successes(name: str, policy: str) -> list[float]:
    """What a scripted policy reaches in each of the first tasks of a Sokoban environment's test split."""
    env = gym.make(name, level_split="test", disable_env_checker=True)
    agent, successes = make_policy(policy, env), []
    for task in range(TASKS):
        observation, info = env.reset(seed=task, options={"task": task})
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(agent(observation, info))
            over = terminated or truncated
        successes.append(info.get("metrics", info)["success"])
    env.close()
    return successes


if __name__ == "__main__":
    for env_id in gym.registry:
        if env_id.startswith("Mem"):
            write_text(DOCS / "envs" / f"{env_id}.md", page(env_id))
