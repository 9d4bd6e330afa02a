"""Evaluation of a policy: `memenvs.evaluate`, and the command `memenvs evaluate run`.

`evaluate("MemChunkQA-v0", "lexical", tasks="0:100", out="runs/lexical")`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import memenvs
from memenvs.core.address import without_secrets
from memenvs.core.data import Count, NonNegative, Seed, checked
from memenvs.core.env import env_name, text_env_of
from memenvs.core.episode import Episode
from memenvs.core.episode_file import with_spans
from memenvs.core.errors import counted
from memenvs.core.files import json_sha256, path_in_errors
from memenvs.core.processes import Workers, map_jobs
from memenvs.core.progress import Progress
from memenvs.core.terminal import say
from memenvs.core.trackers import TrackerName, Trackers, check_clients
from memenvs.evaluation.log import Pair, RunLog, pair_of, read_tasks, show_tasks
from memenvs.evaluation.summary import Summary, summarise
from memenvs.models.settings import ModelOptions
from memenvs.retrieval.load import fingerprint
from memenvs.rollout.collect import Loop, MakeEnv, maker
from memenvs.rollout.names import policy_label
from memenvs.rollout.policies import PolicySpec, choose_policy
from memenvs.wrappers.credit import check_methods
from memenvs.wrappers.registry import (
    MethodSpec,
    ScorerSpec,
    choose_scorer,
    make_methods,
    make_scorer,
    plain_method,
    plain_scorer,
)


@checked
@dataclass(frozen=True)
class EvaluationSettings:
    """How tasks are played, and what is kept of them.

    Raises:
        ValueError: a value is out of its range.
    """

    samples: Count = 1
    """n, episodes of each task."""
    seed: Seed = 0
    """Decides every random choice, 0 to 2**32 - 1."""
    concurrency: Count = 16
    """Episodes played at once, by each worker."""
    workers: Workers = 1
    """Number of processes that play, or "ray" for the workers of a Ray cluster; 1 is this process. Others
    take the environment, the policy, the methods and the scorer by name. Only this process writes to `out`; a
    method that compares with earlier episodes sees those of its own worker."""
    out: str | Path | None = None
    """Folder for the episodes, each written as it ends, and the results. The same call again plays only what
    is missing."""
    texts: bool = True
    """Also keep what was read, for `memenvs view`; without it an episode takes a few kilobytes."""
    price: tuple[NonNegative, NonNegative] | None = None
    """Price of a million tokens that a model reads, and of a million that it writes, for the cost."""
    track: Sequence[TrackerName] = ()
    """Experiment trackers that get the means and the cost, with the number of episodes as the step:
    tensorboard, wandb, mlflow, trackio. They need `out`."""

    def __post_init__(self) -> None:
        if self.track and not self.out:
            raise ValueError(
                f"--track {self.track[0]} keeps its run in the folder of the evaluation; give --out FOLDER"
            )


@checked
def evaluate(
    env: str | gym.Env[Any, str] | MakeEnv,
    policy: Any,
    *,
    env_args: Mapping[str, Any] | None = None,
    tasks: str | Iterable[int] = ":",
    options: ModelOptions | None = None,
    methods: Sequence[MethodSpec] = (),
    scorer: ScorerSpec = None,
    **settings: Any,
) -> Summary:
    """Play every task n times with one policy and average every metric, with 95% intervals.

        memenvs.evaluate("MemToolQA-v0", "lexical", tasks="0:20", samples=4, out="runs/lexical")

    An episode depends only on `seed`, its task and its sample, not on how many are played at once. An error
    of its environment or endpoint makes it a failed episode, which is counted but left out of every mean.

    Args:
        env: a text environment's id; an environment, wrapped or not, which is copied; or a function that
            makes one.
        policy: a name (`"lexical"`, `"hf:MODEL"`, `"openai:URL"`), a function from an observation and its
            info without what only a trainer may see (`memenvs.core.env.public_info`) to a reply, or a model,
            as for `memenvs.rollout.policies.choose_policy`.
        env_args: arguments of an environment given by its id.
        tasks: their numbers, or numbers and ranges as text: `"0:100"`, `"7"`, `"3,5,90:"`; `":"` are all.
        options: sampling of a model, and requests to an endpoint.
        methods: reward methods around the environment, as for `RewardWrapper`; each episode is kept with
            their signals and credits, and `return` includes what they pay. A method that compares the
            rollouts of a task compares with statistics of the episodes that ended before.
        scorer: gives methods log-probabilities; `"policy"` is the model that plays, the default if that
            model runs in this process.
        **settings: fields of `EvaluationSettings`, such as `samples`, `seed`, `concurrency` and `out`.

    Raises:
        TypeError: the environment or policy is of another kind, or there is no such setting.
        ValueError: an argument that does not fit, or a folder of another evaluation.
        ServerError: the endpoint does not say which model it serves.
        ImportError: a tracker is not installed.
    """
    how = EvaluationSettings(**settings)
    check_clients(how.track)
    make = maker(env, env_args)
    first = make()
    inner = text_env_of(first)
    check_methods_fit(first, methods, scorer)
    chosen = choose_policy(policy, options)
    numbers = read_tasks(tasks if isinstance(tasks, str) else ",".join(map(str, tasks)), inner.n_tasks)
    pairs = [Pair(task, sample) for task in numbers for sample in range(how.samples)]
    setting = {  # what decides an episode, plain data
        "env": env if isinstance(env, str) else str(first),
        "env_args": dict(env_args or {}),
        "n_tasks": inner.n_tasks,
        "data": data_hashes(inner),
        **chosen.setting,
        "methods": [plain_method(method) for method in (make_methods(methods) if methods else ())],
        "scorer": plain_scorer(scorer),
        "seed": how.seed,
        "memenvs": memenvs.__version__,
    }

    def play(missing: Sequence[Pair], progress: Progress) -> Generator[Episode, None, None]:
        if how.workers == 1:
            player = Player(make, first, chosen, methods, scorer, how.seed, how.concurrency)
            return player.play_all(missing, progress)
        if not (isinstance(env, str) and isinstance(policy, str)):
            raise ValueError(
                f"workers={how.workers} needs the names of an environment and a policy; give them"
            )
        # With its secrets, such as the key in an address, since the workers ask the same servers.
        return _play_in_workers({**setting, "policy": policy}, missing, options, how, progress)

    folder = Path(how.out) if how.out else None
    public = without_secrets(setting)  # which is written and shown
    name = without_secrets(policy) if isinstance(policy, str) else public["policy"]
    with (
        path_in_errors(how.out),
        contextlib.closing(RunLog(folder, public, texts=how.texts)) as log,
        Trackers(how.track, folder or Path(), public, len(log.episodes), say) as trackers,
    ):
        _play_missing(log, pairs, play)
        kept = [log.episodes[pair] for pair in pairs]
        title = f"{env_name(first)}, {policy_label(name)}"
        if public.get("model"):
            title += f" ({public['model']})"
        summary = summarise(kept, how.samples, title=title, seconds=log.seconds, price=how.price)
        log.write_results(show_tasks(numbers), summary)
        trackers.log(len(kept), summary.numbers())
    return summary


def _play_missing(
    log: RunLog,
    pairs: Sequence[Pair],
    play: Callable[[Sequence[Pair], Progress], Generator[Episode, None, None]],
) -> None:
    """Play the pairs that a log lacks, and keep each episode as it ends."""
    missing = [pair for pair in pairs if pair not in log.episodes]
    done, failed = len(pairs) - len(missing), 0
    started = time.monotonic()
    progress = Progress(len(pairs), "episodes", done=done, leave=True)
    # Loads the model, whose errors come before the line below.
    episodes = play(missing, progress) if missing else None
    say(f"{counted(len(pairs), 'episode')}: {done} already done, {len(missing)} to play")
    if episodes is None:
        return
    try:
        with contextlib.closing(episodes), progress:
            for episode in episodes:
                log.keep(episode)
                done, failed = done + 1, failed + bool(episode.error)
                progress.add(0, failed=failed)
    except KeyboardInterrupt:
        resume = "the same command resumes" if log.folder else "with --out the same command would resume"
        raise KeyboardInterrupt(f"{done:,} of {len(pairs):,} episodes are done; {resume}") from None
    log.seconds += time.monotonic() - started


class Player:
    """Plays pairs of task and sample in one process; `first` is an environment that `make` made."""

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        first: gym.Env[Any, Any],
        policy: PolicySpec,
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec,
        seed: int,
        concurrency: int,
    ) -> None:
        replies, model = policy.make(first)
        self._model: Any = model
        self._seed = seed
        self._loop = Loop(
            make,
            replies,
            methods,
            choose_scorer(scorer, model) if methods else None,
            concurrency=concurrency,
            rng=lambda episode: policy_rng(seed, pair_of(episode)),
        )

    def play(self, pairs: Iterable[Pair], progress: Progress | None = None) -> Generator[Episode, None, None]:
        """The episodes of pairs as they end; `progress` counts them, and replies."""
        for (episode,) in self._loop.play(([planned(self._seed, pair)] for pair in pairs), progress):
            completed(episode)
            yield with_spans(episode, self._model) if hasattr(self._model, "spans") else episode

    def play_all(self, pairs: Iterable[Pair], progress: Progress) -> Generator[Episode, None, None]:
        """The same, and then close the environments, and warn of what an endpoint's replies have shown."""
        with contextlib.closing(self._loop):
            yield from self.play(pairs, progress)


def _play_in_workers(
    setting: Mapping[str, Any],
    pairs: Sequence[Pair],
    options: ModelOptions | None,
    how: EvaluationSettings,
    progress: Progress,
) -> Generator[Episode, None, None]:
    """The episodes of pairs as the processes that play them give them back."""
    run = {**setting, "options": asdict(options or ModelOptions()), "concurrency": how.concurrency}
    jobs = [pairs[i : i + how.concurrency] for i in range(0, len(pairs), how.concurrency)]
    on_gpu = setting["policy"].startswith("hf:")
    play = functools.partial(_play_job, json.dumps(run))
    with contextlib.closing(map_jobs(play, jobs, how.workers, gpu=on_gpu)) as batches:
        for batch in batches:
            progress.add(len(batch))
            yield from batch


def _play_job(run: str, job: Sequence[Pair]) -> list[Episode]:
    """The episodes of some pairs, in a worker; `run` is JSON of what `evaluate` got by name."""
    return list(_player(run).play(job))


@functools.lru_cache(maxsize=1)
def _player(run: str) -> Player:
    """The player of a run, made once a process, because a model loads slowly."""
    setting = json.loads(run)
    make = maker(setting["env"], setting["env_args"])
    first = make()
    if (data := data_hashes(text_env_of(first))) != setting["data"]:
        raise ValueError(
            f"a worker has other data ({data}, not {setting['data']}); give all machines the same"
        )
    policy = choose_policy(setting["policy"], ModelOptions(**setting["options"]))
    methods, scorer = setting["methods"], setting["scorer"]
    return Player(make, first, policy, methods, scorer, setting["seed"], setting["concurrency"])


def planned(seed: int, pair: Pair) -> Episode:
    """The record of an episode to play, in a run of this seed."""
    reset, _ = np.random.SeedSequence([seed, *pair]).spawn(2)
    drawn = int(reset.generate_state(1)[0])
    return Episode(number=pair.task, member=pair.sample, seed=drawn, group=drawn)  # each is its own group


def policy_rng(seed: int, pair: Pair) -> np.random.Generator:
    """The generator of a policy's replies in an episode of a run of this seed."""
    _, policy = np.random.SeedSequence([seed, *pair]).spawn(2)
    return np.random.default_rng(policy)


def completed(episode: Episode) -> Episode:
    """The record of a played episode of K replies, with more metrics.

    They are `return`, without which an episode is whose judge or other model gave no score, and where every
    reply has been counted:

    - `model_prompt_tokens` and `reply_tokens`, summed over the turns; `model_tokens`, both together;
      `model_tokens_peak`, the most tokens of a prompt and its reply;
    - `truncated_replies`, the number of replies that ended at their limit.
    """
    if episode.error:
        return episode
    metrics: dict[str, float] = {} if episode.lacks_score else {"return": sum(episode.turn_rewards)}
    metrics |= episode.metrics
    replies = episode.replies
    read = [reply.prompt_tokens for reply in replies if reply.prompt_tokens is not None]
    written = [reply.tokens for reply in replies if reply.tokens is not None]
    if len(read) == len(replies):
        metrics["model_prompt_tokens"] = sum(read)
    if len(written) == len(replies):
        metrics["reply_tokens"] = sum(written)
    if len(read) == len(written) == len(replies):
        turns = [sum(both) for both in zip(read, written, strict=True)]
        metrics["model_tokens"] = sum(turns)
        metrics["model_tokens_peak"] = max(turns)
    if all(reply.finished is not None for reply in replies):
        metrics["truncated_replies"] = sum(not reply.finished for reply in replies)
    episode.metrics = {name: float(value) for name, value in metrics.items()}
    return episode


def data_hashes(env: Any) -> dict[str, str]:
    """Hashes of the data that the episodes of a `TextEnv` are made of.

    Returns:
        `tasks`, the hash of `TextEnv.task_set`, `retriever`, that of the environment's corpus and index, and
        for each argument that names texts, such as `template`, the hash of these. What is unknown, such as
        the corpus of another kind of retrieval server, is left out.

    Raises:
        ConnectionError: a retrieval server is unreachable.
    """
    hashes = {"tasks": env.task_set()[1]}
    if texts := getattr(env, "template_texts", {}):
        hashes["template"] = json_sha256(texts)
    if (retriever := getattr(env, "retriever", None)) is not None:
        hashes["retriever"] = fingerprint(retriever)
    return {name: digest for name, digest in hashes.items() if digest}


def check_methods_fit(env: gym.Env[Any, Any], methods: Sequence[MethodSpec], scorer: ScorerSpec) -> None:
    """Refuse reward methods that an environment, which is reset, does not fit, before a model loads.

    Raises:
        ValueError: the environment lacks what a method needs or has no texts, or a scorer has no methods to
            score for.
    """
    if scorer is not None and not methods:
        raise ValueError(
            f"scorer {without_secrets(scorer)} is for reward methods; give --methods, or leave it out"
        )
    if methods:
        text_env_of(env)
        # Their own scorer needs the policy.
        check_methods(make_methods(methods), make_scorer("lexical"), env.reset(seed=0)[1], plays_on=True)
