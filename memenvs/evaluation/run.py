"""Evaluation of a policy: `memenvs.evaluate`, and the command `memenvs evaluate run`."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import memenvs
from memenvs.cli import make_env
from memenvs.core.data import Count, NonNegative, Seed, checked
from memenvs.core.env import text_env_of
from memenvs.core.files import path_in_errors, write_json, write_text
from memenvs.core.progress import Progress
from memenvs.core.spaces import UnicodeText
from memenvs.core.trackers import TrackerName, Trackers, check_clients
from memenvs.core.vector import TextVectorEnv
from memenvs.evaluation.log import COST, RESULTS, TABLE, Pair, RunLog, read_tasks, show_tasks
from memenvs.evaluation.options import check_methods, choose_scorer
from memenvs.evaluation.policies import ModelOptions, PolicySpec, choose_policy
from memenvs.evaluation.summary import Summary, summarise, total_cost
from memenvs.retrieval.load import fingerprint
from memenvs.rollout.engine import Engine
from memenvs.rollout.records import Episode, lacks_score
from memenvs.rollout.scripted import policy_label
from memenvs.rollout.session import Session, Usage
from memenvs.wrappers import VectorRewardWrapper
from memenvs.wrappers.registry import (
    MethodSpec,
    ScorerSpec,
    make_methods,
    plain_method,
    plain_scorer,
)

_BLIND = ("gold", "silent", "random_text")  # policies that play pictures too


@checked
def evaluate(
    env: str | Callable[[], gym.Env[Any, Any]],
    policy: Any,
    *,
    env_args: Mapping[str, Any] | None = None,
    tasks: str | Iterable[int] = ":",
    samples: Count = 1,
    seed: Seed = 0,
    concurrency: Count = 16,
    out: str | Path | None = None,
    texts: bool = True,
    options: ModelOptions | None = None,
    methods: Sequence[MethodSpec] = (),
    scorer: ScorerSpec = None,
    price: tuple[NonNegative, NonNegative] | None = None,
    track: Sequence[TrackerName] = (),
) -> Summary:
    """Play every task n times with one policy and average every metric, with 95% intervals.

    An episode depends only on `seed`, its task and its sample, not on how many are played at once. An error
    of its environment or endpoint makes it a failed episode, which is counted but left out of every mean.

    Args:
        env: a text environment's id, or a function that makes one, wrapped or not.
        policy: a name (`"lexical"`, `"hf:MODEL"`, `"openai:URL"`), a function from an observation and its
            info without what only a trainer may see (`memenvs.core.env.public_info`) to a reply, or a model;
            see `memenvs.evaluation.policies.choose_policy`.
        env_args: arguments of an environment given by its id.
        tasks: their numbers, or numbers and ranges as text: `"0:100"`, `"7"`, `"3,5,90:"`; `":"` are all.
        samples: n, episodes of each task.
        seed: decides every random choice, 0 to 2**32 - 1.
        concurrency: episodes played at once.
        out: folder for the episodes, each written as it ends, and the results. The same call again plays
            only what is missing.
        texts: also keep what was read, for `memenvs.view`; without it an episode takes a few kilobytes.
        options: sampling of a model, and requests to an endpoint.
        methods: reward methods around the environment, as for `RewardWrapper`; each episode is kept with
            their signals and credits, and `return` includes what they pay. A method that compares the
            rollouts of a task compares with statistics of the episodes that ended before.
        scorer: gives methods log-probabilities; `"policy"` is the model that plays, the default if that
            model runs in this process.
        price: price of a million tokens that a model reads, and of a million that it writes, for the cost.
        track: experiment trackers that get the means and the cost, with the number of episodes as the step;
            they need `out`.

    Raises:
        TypeError: the environment or policy is of another kind.
        ValueError: an argument that does not fit, or a folder of another evaluation.
        ServerError: the endpoint does not say which model it serves.
        ImportError: a tracker is not installed.
    """
    if track and not out:
        raise ValueError(
            f"--track {track[0]} keeps its run in the folder of the evaluation; give --out FOLDER"
        )
    check_clients(track)
    make = functools.partial(make_env, env, dict(env_args or {})) if isinstance(env, str) else env
    first = make()
    name = first.spec.id if first.spec else type(first.unwrapped).__name__
    inner = text_env_of(first)
    sees = callable(policy) or policy in _BLIND or str(policy).startswith("openai:")
    if not (sees or isinstance(first.observation_space, UnicodeText)):
        can = ", ".join([*_BLIND, "openai:URL"])
        raise ValueError(f"{name} shows pictures, which only {can} and functions can play")
    check_methods(first, policy, methods, scorer)
    chosen = choose_policy(policy, options or ModelOptions())
    text = tasks if isinstance(tasks, str) else ",".join(map(str, tasks))
    numbers = read_tasks(text, inner.n_tasks)
    pairs = [Pair(task, sample) for task in numbers for sample in range(samples)]
    setting = {
        "env": env if isinstance(env, str) else str(first),
        "env_args": dict(env_args or {}),
        "n_tasks": inner.n_tasks,
        "data": data_hashes(inner),
        **chosen.setting,
        "methods": [plain_method(method) for method in (make_methods(methods) if methods else ())],
        "scorer": plain_scorer(scorer),
        "seed": seed,
        "memenvs": memenvs.__version__,
    }
    folder = Path(out) if out else None
    with (
        path_in_errors(out),
        contextlib.closing(RunLog(folder, setting, texts=texts)) as log,
        contextlib.ExitStack() as stack,
    ):
        trackers = Trackers(track, folder or Path(), setting, len(log.episodes), _say)
        stack.push(lambda kind, *_: trackers.close(failed=kind is not None))
        missing = [pair for pair in pairs if pair not in log.episodes]
        if missing:
            started = time.monotonic()
            copies = [lambda: first, *[make] * (min(concurrency, len(missing)) - 1)]
            _play_missing(copies, chosen, seed, missing, log, len(pairs), methods, scorer)
            log.seconds += time.monotonic() - started
        else:
            _say(f"{len(pairs)} episodes: {len(pairs)} kept, 0 to play")
        model = f" ({setting['model']})" if setting.get("model") else ""
        title = f"{name}, {policy_label(policy if isinstance(policy, str) else setting['policy'])}{model}"
        episodes = [log.episodes[pair] for pair in pairs]
        cost = total_cost([one.metrics for one in episodes if not one.error], log.seconds, price)
        summary = replace(summarise(episodes, samples, title=title), cost=cost)
        if folder:
            played = {"setting": setting, "task": show_tasks(numbers)}
            write_json(folder / RESULTS, {**played, **summary.to_json()})
            write_text(folder / TABLE, str(summary))
            write_json(folder / COST, cost)
        counted = {f"cost/{name}": value for name, value in cost.items() if value is not None}
        means = {name: row.interval.mean for name, row in summary.metrics.items()}
        trackers.log(len(episodes), {**means, "failed": summary.failed, **counted})
    return summary


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _play_missing(
    copies: Sequence[Callable[[], gym.Env[Any, Any]]],
    policy: PolicySpec,
    seed: int,
    pairs: Sequence[Pair],
    log: RunLog,
    total: int,
    methods: Sequence[MethodSpec],
    scorer: ScorerSpec,
) -> None:
    """Play pairs in copies of an environment, and keep each episode as it ends."""
    with contextlib.closing(TextVectorEnv(copies, autoreset_mode="Disabled", errors="truncate")) as venv:
        sampler, encoder = policy.make(venv)
        played: Any = venv
        if methods:
            made, template = choose_scorer(scorer, encoder)
            played = VectorRewardWrapper(venv, methods, made, template=template)
        sessions = ([Session(encoder, *begin(seed, pair))] for pair in pairs)
        failed = 0
        _say(f"{total} episodes: {total - len(pairs)} kept, {len(pairs)} to play")
        with Progress(total, "episodes", done=total - len(pairs), leave=True) as progress:
            for (session,) in Engine(played, sampler).play(sessions):
                log.keep(completed(session), encoder)
                failed += bool(session.episode.error)
                progress.add(failed=failed)


def begin(seed: int, pair: Pair) -> tuple[Episode, np.random.Generator]:
    """The record of an episode to play, and the generator of its policy.

    Args:
        seed: of the run.
        pair: of task and sample.
    """
    reset, policy = np.random.SeedSequence([seed, *pair]).spawn(2)
    episode = Episode(number=pair.task, member=pair.sample, seed=int(reset.generate_state(1)[0]))
    return episode, np.random.default_rng(policy)


def completed(session: Session) -> Episode:
    """The record of a played episode, with its return and token counts among its metrics.

    An episode in which a judge or another model gave no score has no return.
    """
    episode = session.episode
    if not episode.error:
        metrics = {"return": sum(episode.turn_rewards), **episode.metrics, **usage_metrics(session.usage)}
        if lacks_score(episode.credits or session.info.get("credits", {})):
            del metrics["return"]
        episode.metrics = {name: float(value) for name, value in metrics.items()}
    return episode


def usage_metrics(usage: Sequence[Usage]) -> dict[str, float]:
    """Sums over an episode's K turns of what was counted at every turn.

    Returns:
        `model_prompt_tokens` and `reply_tokens`; `model_tokens`, both together; `model_tokens_peak`, the most
        tokens of a prompt and its reply; `truncated_replies`, replies that ended at their limit.
    """
    columns: list[list[Any]] = [[one[i] for one in usage] for i in range(3)]
    prompts, replies, truncated = columns
    metrics: dict[str, float] = {}
    if None not in prompts:
        metrics["model_prompt_tokens"] = sum(prompts)
    if None not in replies:
        metrics["reply_tokens"] = sum(replies)
    if None not in (*prompts, *replies):
        turns = list(map(sum, zip(prompts, replies, strict=True)))
        metrics["model_tokens"], metrics["model_tokens_peak"] = sum(turns), max(turns)
    if None not in truncated:
        metrics["truncated_replies"] = sum(truncated)
    return metrics


def data_hashes(env: Any) -> dict[str, str]:
    """Hashes of the data that an environment's episodes are made of.

    Args:
        env: a `TextEnv` without its wrappers.

    Returns:
        `tasks`: of `TextEnv.task_set`; `retriever`: of the corpus and index of the environment's `retriever`.
        What is unknown, such as the corpus of another kind of retrieval server, is left out.

    Raises:
        ConnectionError: a retrieval server is unreachable.
    """
    hashes = {"tasks": env.task_set()[1]}
    if (retriever := getattr(env, "retriever", None)) is not None:
        hashes["retriever"] = fingerprint(retriever)
    return {name: digest for name, digest in hashes.items() if digest}
