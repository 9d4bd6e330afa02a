"""The suite's behaviour as hashes: episodes, credits, built task sets and short training runs.

`python tests/support/recording.py` writes `recorded.json`; `test_recorded.py` compares. Record again only if
a change is intended, and name it in the commit.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import easy_sokoban
import gymnasium as gym
import numpy as np
import pyarrow as pa

import memenvs
from memenvs.commands.build import main as build
from memenvs.core.episode import Episode, Reply
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.policy import Request, TurnPolicy
from memenvs.rollout.scripted import make_policy
from memenvs.sokoban import LevelSet

RECORDED = Path(__file__).parents[1] / "recorded.json"
POLICIES = ("gold", "silent", "random_text")
SEEDS = 20
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{env_id: (env_id, {}) for env_id in memenvs.ENV_IDS},
    "search with a memory": ("MemSearchQA-v0", {"memory_mode": "rewrite", "keep_turns": 3}),
    "whole documents": ("MemChunkQA-v0", {"cut_at": "document", "chunk_size": 700, "answer_format": "tag"}),
}
STACKS: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "TAMTRL": ("MemChunkQA-v0", {}, ["TAMTRL"]),
    "InfoMem": ("MemChunkQA-v0", {"tasks": "world-test"}, [["InfoMem", {"side": "both"}]]),
    "MemPO": ("MemSearchQA-v0", {"memory_mode": "rewrite"}, ["MemPO"]),
    "SearchRewards": ("MemSearchQA-v0", {}, ["SearchRewards"]),
    "ToolRewards": ("MemToolQA-v0", {}, ["ToolRewards"]),
    "GiGPO": ("MemSokoban-v0", {}, ["GiGPO"]),
    "IGPO": ("MemToolQA-v0", {}, ["IGPO"]),
    "ReMemR1": ("MemChunkQA-v0", {}, ["ReMemR1"]),
    "StepSearch, OTC": ("MemSearchQA-v0", {}, ["StepSearch", "OTC"]),
}
SOURCES: dict[str, list[str]] = {
    "world": ["world", "--entities", "80", "--num-tasks", "10", "--documents", "12"],
    "multi": ["multi", "--source", "world-test", "--objectives", "3", "--num-tasks", "8"],
    "niah": ["niah", "--variant", "multikey_1", "--tokens", "3000", "--num-tasks", "4"],
    "needles": ["niah", "--variant", "multikey_3", "--tokens", "3000", "--num-tasks", "4"],
    "vt": ["ruler", "--kind", "vt", "--chains", "2", "--tokens", "1500", "--num-tasks", "4"],
    "cwe": ["ruler", "--kind", "cwe", "--tokens", "4096", "--num-tasks", "4"],
    "fwe": ["ruler", "--kind", "fwe", "--tokens", "1500", "--num-tasks", "4"],
    "aggregate": ["aggregate", "--tokens", "9000", "--num-tasks", "8"],
    "mrcr_world": ["mrcr_world", "--needles", "3", "--tokens", "1500", "--num-tasks", "4"],
    "mix": ["mix", "--source", "world-test", "world-train", "--weights", "3", "1", "--num-tasks", "12"],
    "sokoban": ["sokoban", "--size", "6", "--boxes", "2", "--levels", "12"],
    "hotpotqa": ["hotpotqa", "--source", "hotpot.json", "--documents", "15"],
    "musique": ["musique", "--source", "musique.jsonl", "--documents", "10"],
}
LEARNERS: dict[str, dict[str, Any]] = {
    "sft": {"teacher": "easy_sokoban:any_move", "learn_from": "all", "episodes": 256, "epochs": 6},
    "mt_ppo": {"reward": "turn", "groups": 16, "steps": 2},
    "grpo": {"reward": "outcome", "groups": 4, "group_size": 4, "steps": 2},
}


def record() -> dict[str, Any]:
    """Everything, by kind and name."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "episodes": {
                f"{name}, {policy}": episodes(name, policy) for name in VARIANTS for policy in POLICIES
            },
            "credits": {name: credits_of(name) for name in STACKS},
            "builds": {name: built(name, Path(folder)) for name in SOURCES},
            "runs": {name: trained(name, Path(folder)) for name in LEARNERS},
        }


def episodes(name: str, policy: str) -> dict[str, str]:
    """A hash of each channel (observations, rewards, every entry of info) over episodes of all seeds."""
    env_id, arguments = VARIANTS[name]
    env = gym.make(env_id, **arguments)
    channels: dict[str, list[Any]] = {}
    for seed in range(SEEDS):
        play = make_policy(policy, env, seed)
        observation, info = env.reset(seed=seed)
        reward, over = 0.0, False
        while True:
            step = {"observation": observation, "reward": reward, "over": over}
            for key, value in {**step, **{f"info/{key}": value for key, value in info.items()}}.items():
                channels.setdefault(key, []).append(value)
            if over:
                break
            observation, reward, terminated, truncated, info = env.step(play(observation, info))
            over = terminated or truncated
    env.close()
    return {key: digest(values) for key, values in sorted(channels.items())}


def credits_of(name: str) -> list[Any]:
    """Signals, credits and turn rewards of groups of four that reply differently, to six decimals."""
    env_id, arguments, methods = STACKS[name]
    playing: dict[int, Any] = {}

    def reply(request: Request) -> Reply:
        episode = request.episode
        if not episode.turns:
            kind = ("gold", "random_text", "random_text", "silent")[episode.member]
            number = 4 * episode.group + episode.member
            playing[id(request.env)] = make_policy(kind, request.env, number)
        return Reply(playing[id(request.env)](request.observation, request.info))

    plan = [[Episode(seed=3 + group, group=group, member=j) for j in range(4)] for group in range(2)]
    loop = Loop(maker(env_id, arguments), TurnPolicy(reply), methods, "lexical")
    return [
        {
            "signals": rounded(episode.signals),
            "credits": {
                key: rounded([[credit.turn, credit.value, credit.span] for credit in value])
                for key, value in episode.credits.items()
            },
            "turn_rewards": rounded(episode.turn_rewards),
        }
        for group in loop.play(plan)
        for episode in group
    ]


def built(name: str, folder: Path) -> dict[str, str]:
    """A hash of everything that a build writes, by file; of Arrow files the values, not the bytes."""
    out = folder / name
    arguments = [
        str(folder / part) if part.startswith(("hotpot.", "musique.")) else part for part in SOURCES[name]
    ]
    write_sources(folder)
    if name == "sokoban":
        out = out.with_suffix(".npz")
        assert build([*arguments, "--out", str(out)]) == 0
        levels = LevelSet.load(out)
        return {"levels": digest([(level.board, level.moves) for level in levels])}
    exports = ["--export", "memagent", "verl", "ruler", "jsonl"] if name == "world" else []
    assert build([*arguments, *exports, "--out", str(out)]) == 0
    found = {}
    for file in sorted(out.iterdir()):
        if file.suffix == ".arrow":
            found[file.name] = digest(pa.ipc.open_file(str(file)).read_all().to_pylist())
        elif file.suffix == ".jsonl":
            found[file.name] = digest(file.read_text(encoding="utf-8"))
    return found


def trained(name: str, folder: Path) -> dict[str, float]:
    """The norms of the weights that a short run leaves; `sft` goes first, the others begin where it ended."""
    from safetensors.torch import load_file

    learner = importlib.import_module(f"memenvs.baselines.{name}")
    env_args = easy_sokoban.save_levels(folder)
    model = folder / "sft" / "last" / "policy"
    if name == "sft":
        model = easy_sokoban.save_model(folder / "model", env_args)
    shared = {"model": str(model), "env_args": env_args, "lr": 3e-3, "max_new_tokens": 5, "num_envs": 16}
    args = get_type_hints(learner.train)["args"](**{**shared, "out": folder / name, **LEARNERS[name]})
    learner.train(learner.prepare(args), args)
    weights = load_file(folder / name / "last" / "policy" / "model.safetensors")
    return {key: float(weight.double().norm()) for key, weight in sorted(weights.items())}


def write_sources(folder: Path) -> None:
    """Small files in the official form of HotpotQA and MuSiQue."""

    def asked(i: int) -> dict[str, Any]:
        return {"question": f"What is the code of the thing beside thing {i}?", "answer": str((i + 1) * 7)}

    def context(i: int) -> list[Any]:
        return [
            [f"Thing {n}", [f"Thing {n} has code {n * 7}.", f" It stands beside thing {n + 1}."]]
            for n in (i, i + 1, i + 20, i + 40)
        ]

    hotpot, musique = [], []
    for i in range(12):
        facts = [[f"Thing {i}", 1], [f"Thing {i + 1}", 0]]
        known = {"supporting_facts": facts, "context": context(i), "type": "bridge", "level": "easy"}
        hotpot.append({"_id": f"h{i}", **asked(i), **known})
    for i in range(10):
        paragraphs = [
            {"idx": k, "title": title, "paragraph_text": "".join(lines), "is_supporting": k < 2}
            for k, (title, lines) in enumerate(context(i))
        ]
        first = {"question": f"thing {i} >> beside", "answer": f"thing {i + 1}"}
        second = {"question": "#1 >> code", "answer": asked(i)["answer"]}
        steps = [{"id": k + 1, **hop, "paragraph_support_idx": k} for k, hop in enumerate((first, second))]
        known = {"question_decomposition": steps, "answer_aliases": [], "answerable": True}
        musique.append({"id": f"2hop__{i}", "paragraphs": paragraphs, **asked(i), **known})
    (folder / "hotpot.json").write_text(json.dumps(hotpot))
    (folder / "musique.jsonl").write_text("".join(json.dumps(row) + "\n" for row in musique))


def digest(value: Any) -> str:
    """Twelve hexadecimal digits of the SHA-256 of plain data."""
    made = hashlib.sha256()
    for part in _parts(value):
        made.update(part)
    return made.hexdigest()[:12]


def rounded(value: Any) -> Any:
    """Plain data with its floats to six decimals."""
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(inner) for inner in value]
    return ("nan" if np.isnan(value) else round(float(value), 6)) if isinstance(value, float) else value


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode() + value.tobytes()
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield f"{key}=".encode()
            yield from _parts(value[key])
    elif isinstance(value, (list, tuple)):
        yield f"[{len(value)}".encode()
        for inner in value:
            yield from _parts(inner)
    elif isinstance(value, float):
        yield f"{value:.9g}".encode()
    else:
        yield json.dumps(value, default=str).encode() + b";"


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(), indent=1) + "\n")
    sys.stdout.write(f"{RECORDED.name}: {RECORDED.stat().st_size:,} bytes\n")
