"""The command that shows one episode: `python -m memenvs play MemChunkQA-v0 --policy lexical`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, get_args

import gymnasium as gym
import numpy as np

import memenvs  # noqa: F401  # registers the environments
from memenvs.cli import NAMED, Parser, make_env, show
from memenvs.core.env import Info
from memenvs.core.spaces import UnicodeText
from memenvs.core.vector import TextVectorEnv
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.evaluation.policies import ModelOptions, choose_policy
from memenvs.models.loading import Dtype
from memenvs.rollout.engine import Request
from memenvs.rollout.records import Episode, RecordEpisodes
from memenvs.rollout.scripted import make_policy, play_episode
from memenvs.rollout.session import Session


def main(argv: Sequence[str] | None = None) -> int:
    """Play one episode on the terminal; 2 and one line on standard error where it cannot be played."""
    parser = Parser(prog="python -m memenvs play", description="Show one episode.")
    parser.add_argument("env", help="an environment's id, such as MemChunkQA-v0")
    parser.add_argument(
        "--env-args",
        **NAMED,
        help="its arguments, as chunk_size=1000, or one JSON object; `python -m memenvs list ID` shows them",
    )
    parser.add_argument(
        "--policy",
        help="gold, silent, random_text, lexical, hf:MODEL (a folder or name, as hf:smollm2) or openai:URL; "
        "of MemSokobanGrid-v0 gold or random (default: lexical for chunked reading, gold elsewhere)",
    )
    parser.add_argument("--task", type=int, help="number of the task (default: drawn by the seed)")
    parser.add_argument("--seed", type=int, default=0, help="of the episode (default 0)")
    parser.add_argument("--save", metavar="FILE", help="append the episode to a file, for memenvs.view")
    add = parser.add_argument_group("models").add_argument
    add("--temperature", type=float, default=1.0, help="of sampling, 0 for the likeliest (default 1.0)")
    add("--max-new-tokens", type=int, default=1024, help="of a reply (default 1024)")
    add("--dtype", choices=get_args(Dtype), default="auto", help="hf: what it is computed in (default auto)")
    return parser.run(play, argv)


def play(args: argparse.Namespace) -> None:
    """Play the episode that the options describe, and show it turn by turn."""
    made = make_env(args.env, args.env_args, render_mode="ansi")
    if args.save:
        made = RecordEpisodes(made, args.save)
    env = gym.wrappers.RecordEpisodeStatistics(made)  # its info["episode"]["r"] is the return
    reading = isinstance(env.unwrapped, ChunkQAEnv)
    name = args.policy or ("lexical" if reading else "gold")
    options = ModelOptions(args.temperature, max_new_tokens=args.max_new_tokens, dtype=args.dtype)
    if name.startswith(("hf:", "openai:")):
        info = play_model(env, name, options, task=args.task, seed=args.seed)
    else:
        choose_policy(name, options)  # refuses options of models
        policy = make_policy(name, env, args.seed)
        info = play_episode(env, policy, task=args.task, seed=args.seed, on_turn=lambda: show_turn(env))
    metrics = info["metrics"] if "metrics" in info else {k: v for k, v in info.items() if k != "episode"}
    shown = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    show(f"return {info['episode']['r']:g}; {shown}\n")


def play_model(
    env: gym.Env[Any, Any], policy: str, options: ModelOptions, *, task: int | None, seed: int
) -> Info:
    """Play one episode by a model, show it turn by turn, and return its last info.

    Args:
        env: an environment, wrapped or not.
        policy: `"hf:MODEL"` or `"openai:URL"`.
        options: of the model.
        task: number of the task; None: drawn by the seed.
        seed: of the reset and of sampling.

    Raises:
        ValueError: the environment is none of texts, or the model or an option cannot be used.
        ConnectionError: the endpoint gave no reply.
    """
    if not isinstance(env.observation_space, UnicodeText):
        raise ValueError(f"{policy} plays environments of texts, not {type(env.unwrapped).__name__}")
    venv = TextVectorEnv([lambda: env], autoreset_mode="Disabled")
    sampler, encoder = choose_policy(policy, options).make(venv)
    session = Session(encoder, Episode(seed=seed), np.random.default_rng(seed))
    session.begin(*env.reset(seed=seed, options=None if task is None else {"task": task}))
    show_turn(env)
    while not session.over:
        sampler.ask(Request(0, session))
        (answer,) = sampler.answered()
        if answer.error:
            raise ConnectionError(answer.error)
        session.step(env, answer.reply)
        show_turn(env)
    return session.info


def show_turn(env: gym.Env[Any, Any]) -> None:
    """Show what an environment renders."""
    show(f"{env.render()}\n\n")


if __name__ == "__main__":
    raise SystemExit(main())
