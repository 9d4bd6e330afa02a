"""A run of a learner: its models and environments, and how it is evaluated, saved, resumed and logged."""

from __future__ import annotations

import datetime
import functools
import json
import math
import os
import re
import shutil
import signal
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

from memenvs import models
from memenvs.baselines.args import (
    PPOArgs,
    RolloutArgs,
    RunArgs,
    StepArgs,
    TrainArgs,
    check_device,
    check_env,
)
from memenvs.baselines.update import ProcessGroup, make_optimizer, optimizer_masters
from memenvs.core.checks import error_line
from memenvs.core.files import (
    damage_in_one_line,
    hold_folder,
    path_in_errors,
    read_json,
    whole_folder,
    write_json,
    write_text,
)
from memenvs.core.optional import require
from memenvs.core.state import State
from memenvs.core.trackers import TrackedRun, TrackerName, Trackers, check_clients
from memenvs.core.vector import TextVectorEnv
from memenvs.models import Policy
from memenvs.rollout.engine import Timer, collect
from memenvs.rollout.records import Episode, EpisodeWriter, valid
from memenvs.wrappers import Curriculum, CurriculumWrapper, RewardWrapper, VectorRewardWrapper
from memenvs.wrappers.registry import make_scorer, read_methods
from memenvs.wrappers.scorers import HFScorer, Scorer, ScoreRequest, TokenScores

if TYPE_CHECKING:
    from memenvs.models import HFPolicy, VLLMPolicy

T = TypeVar("T")

SHOWN = (
    *("loss", "divergence", "return", "success", "informative", "evidence_kept"),
    *("approx_kl", "kl_ref", "entropy"),
    *("curriculum_level", "eval_return", "eval_success", "eval_loss", "eval_accuracy", "tokens_per_second"),
)
"""Metrics that the line of a step shows, where it has them."""
PROBLEMS = (
    *("failed", "overlong_prompts", "teacher_overlong_prompts", "eval_failed", "eval_overlong_prompts"),
    *("skipped", "nonfinite"),
)
"""Counts that it shows where they are not 0."""
LOG, EPISODES = "log.jsonl", "episodes.jsonl"
WORD = re.compile(r"[^\W_]+")
MASTER = ".master"  # behind a parameter's number: the name of its master weight in a checkpoint


class ModelRun:
    """A model in training, its optimizer and its checkpoints.

    Attributes:
        step: steps done.
        best: the best evaluation so far.
        policy: in training.
        release: lets another run have the folder.

    Args:
        args: of the run.
        processes: that train together.

    Raises:
        ValueError: arguments that do not fit each other, or a folder that holds a run already or that another
            run is writing to.
        FileNotFoundError: there is no such model.
    """

    def __init__(self, args: TrainArgs, processes: ProcessGroup) -> None:
        args.check()
        if not args.model:
            raise ValueError("no model is given; add --model with a folder or a name on the hub")
        check_device(args.device)
        self.args, self.processes, self.step = args, processes, 0
        self.open_data()
        if processes.is_main:
            check_clients(args.track)
        self._checkpoints = Checkpoints(args.out, args.keep)
        if self._checkpoints.newest and not args.resume:
            raise ValueError(f"{args.out} holds a run; add --resume, or give another --out")
        if changed := self._checkpoints.differences(args.plain(), args.resumable):
            raise ValueError(f"{args.out} was begun with {changed[0]}; resume with the same, or begin anew")
        self.best: BestEvaluation | None = None
        self.release: Callable[[], object] = lambda: None
        if processes.is_main:  # a run that is dropped before its first step lets go of the folder too
            self.release = weakref.finalize(self, hold_folder(args.out).close)
            for name in (LOG, EPISODES):  # raises here, before a model is loaded, for a damaged line
                _lines_until(args.out / name)
        self._models = self.load_models()
        self.policy = self._models["policy"]
        if args.gradient_checkpointing:
            for model in self._models.values():
                _checkpoint_gradients(model.model)
        self.optimizer = make_optimizer(
            self.parameter_groups(), lr=args.lr, betas=args.betas, weight_decay=args.weight_decay
        )
        self.restore()

    def open_data(self) -> None:
        """Open what the run learns from, before a model is loaded for something that is not there."""

    def load_models(self) -> dict[str, HFPolicy]:
        """The models in training by the names of their folders, `"policy"` among them."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimizer steps, each group with its full learning rate and the flag of it."""
        return [{"params": self.policy.parameters(), "full_lr": self.args.lr, "flag": "lr"}]

    def restore(self) -> None:
        """Load the newest checkpoint, if there is one."""
        if self._checkpoints.newest:
            self.step, self.best = self._checkpoints.restore(self._models, self.optimizer)

    @property
    def curriculum(self) -> Curriculum | None:
        """Of the tasks that a run learns from; None without."""
        return None

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics `eval_NAME`; none where this step is not one to evaluate at."""
        return {}

    def is_best(self, step: int, evaluation: dict[str, float]) -> bool:
        """Whether a step's evaluation is better than all before it; a run without a best one has none."""
        return False

    def set_rate(self, step: int, last: int) -> None:
        """Set the learning rates of a step of a run with so many steps."""
        for group in self.optimizer.param_groups:
            rise = self.args.warmup_steps(f"{group['flag']}_warmup", last)
            fallen = max(0.0, (step - rise) / max(last - rise, 1))
            share = min(1.0, step / max(rise, 1)) * (1 - (1 - self.args.lr_end) * fallen)
            group["lr"] = group["full_lr"] * share

    def save(self, step: int) -> None:
        """Write a checkpoint, by the first process."""
        self.step = step
        if self.processes.is_main:
            level = self.curriculum.get_state() if self.curriculum else None
            self._checkpoints.save(self._models, self.optimizer, step, self.args.plain(), self.best, level)

    def _load(self, model: str, *, value_head: bool = False, lora: models.LoRA | None = None) -> HFPolicy:
        options = {**self._settings, "device": self.processes.device, "dtype": self.args.dtype}
        policy = models.HFPolicy(model, lora=lora, **options)
        if str(policy.model.dtype) == "torch.float16":
            raise ValueError(
                f"{model} is in float16, in which gradients vanish; give --dtype bfloat16 or float32"
            )
        return policy.add_value_head(self.args.seed) if value_head else policy

    @property
    def _settings(self) -> dict[str, Any]:
        """Settings of every model."""
        return {"chat": self.args.chat, "chat_args": self.args.chat_args}

    @property
    def _lora(self) -> models.LoRA | None:
        args = self.args
        if not args.lora_rank:
            return None
        return models.LoRA(args.lora_rank, args.lora_alpha, args.lora_targets, args.seed)


class Run(ModelRun):
    """A policy in training, its optimizer, its checkpoints, its environments and its evaluations.

    Attributes:
        critic: the policy itself where the critic is a part of it; None without one.
        sampler: the policy that samples: the one in training, or a vLLM engine with its weights.
    """

    args: RunArgs

    def open_data(self) -> None:
        """Make the run's environments, training's and evaluation's."""
        args = self.args
        if args.best_metric and not args.eval_every:
            raise ValueError(f"best_metric {args.best_metric!r} is of evaluations; give --eval-every too")
        check_env(args)
        self._eval_venv = self._make_eval_venv() if args.eval_every else None

    def load_models(self) -> dict[str, HFPolicy]:
        """The policy, its critic if there is one, and the engine that samples."""
        args = self.args
        critic = args.critic if isinstance(args, PPOArgs) else ""
        self.policy = self._load(args.model, value_head=critic == "shared", lora=self._lora)
        self.critic = self.policy if critic == "shared" else None
        loaded = {"policy": self.policy}
        if critic == "separate":
            self.critic = loaded["critic"] = self._load_critic()
        self._engine = self._start_engine()
        self.sampler: Policy = self._engine or self.policy
        if self._begun_from_adapter:
            self.refresh_sampler()  # the engine has the weights without it
        return loaded

    def restore(self) -> None:
        """Load the newest checkpoint, if there is one."""
        super().restore()
        if self._checkpoints.newest:
            if self.best and self.best.measured != self._measured:
                self.best = None
            self.refresh_sampler()
            if self.curriculum:
                self.curriculum.set_state(self._checkpoints.curriculum)

    def make_venv(self, different: dict[str, Any] | None = None) -> TextVectorEnv:
        """The run's environments, with some arguments different."""
        options = {**self.args.env_args, **(different or {})}
        return TextVectorEnv(
            self.args.env, self.args.num_envs, autoreset_mode="Disabled", errors="truncate", **options
        )

    def play(
        self,
        venv: Any,
        seeds: Sequence[int],
        group_size: int,
        timer: Timer,
        player: Policy | None = None,
        read: Callable[[Episode], None] | None = None,
    ) -> list[Episode]:
        """Roll out a group of episodes for each seed, shared among all processes; in order of the seeds.

        Args:
            venv: the environments.
            seeds: a group is named by its own.
            group_size: episodes of a group.
            timer: counts the seconds.
            player: policy that samples; None: `sampler`.
            read: is given each episode that this process played to its end, while it has its turns.
        """
        mine = collect(
            venv,
            player or self.sampler,
            self.processes.shard(seeds),
            group_size,
            max_new_tokens=self.args.max_new_tokens,
            timer=timer,
        )
        for episode in mine:
            if episode.end != "failed":
                episode.metrics = {**episode.metrics, **evidence_in_memory(episode)}
                if read is not None:
                    read(episode)
        if not hasattr(venv, "methods"):  # only reward methods read turns, and texts are much to gather
            kept = self.args.save_episodes
            mine = [*mine[:kept], *(replace(episode, turns=[]) for episode in mine[kept:])]
        order = {seed: number for number, seed in enumerate(seeds)}
        return sorted(self.processes.gather(mine), key=lambda episode: order[episode.group])

    def refresh_sampler(self) -> None:
        """Load the policy's weights into the vLLM engine, if one samples."""
        if self._engine is not None:
            self._engine.load_weights(self.policy)

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics `eval_NAME` on fixed tasks; none where this step is not one to evaluate at."""
        if self._eval_venv is None or step % self.args.eval_every:
            return {}
        seeds = group_seeds(self.args.seed, 0, 1, self.args.eval_episodes)
        episodes = self.play(self._eval_venv, seeds, 1, Timer())
        self.save_episodes(step, "eval", episodes)
        return {f"eval_{name}": value for name, value in summary(episodes).items()}

    def save_episodes(self, step: int, phase: Literal["train", "eval"], episodes: Sequence[Episode]) -> None:
        """Append the first `args.save_episodes` episodes to OUT/episodes.jsonl, by the first process."""
        if not self.args.save_episodes or not self.processes.is_main:
            return
        whole = [episode for episode in episodes if episode.turns][: self.args.save_episodes]
        with EpisodeWriter(self.args.out / EPISODES) as writer:
            for episode in whole:
                writer.write(replace(episode, step=step, phase=phase), self.policy)

    def is_best(self, step: int, evaluation: dict[str, float]) -> bool:
        """Whether a step's evaluation is better than all before it; then it is the best from now on.

        An evaluation in which every episode failed is never the best.
        """
        value = evaluation.get(f"eval_{self._best_metric}", math.nan)
        if math.isnan(value) or (self.best is not None and value <= self.best.value):
            return False
        self.best = BestEvaluation(step, value, self._measured)
        return True

    @property
    def _best_metric(self) -> str:
        return (self.args.best_metric or "success").removeprefix("eval_")

    @property
    def _measured(self) -> list[Any]:
        """See `BestEvaluation.measured`."""
        args = self.args
        return [self._best_metric, args.eval_episodes, args.eval_env_args]

    def _make_eval_venv(self) -> TextVectorEnv:
        """The environments of evaluations.

        Raises:
            ValueError: they have no such metric as `best_metric`.
        """
        venv = self.make_venv(self.args.eval_env_args)
        _, info = venv.envs[0].reset(seed=0)
        metrics = sorted({*info["metrics"], "outcome", "return"})
        if self._best_metric not in metrics:
            raise ValueError(
                f"best_metric must be one of {', '.join(metrics)} with {self.args.env}, "
                f"got {self.args.best_metric!r}"
            )
        return venv

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The policy's parameters and, with a learning rate of its own, the critic's."""
        args = self.args
        groups = [{"params": self.policy.model_parameters(), "full_lr": args.lr, "flag": "lr"}]
        if isinstance(args, PPOArgs) and self.critic is not None:
            own = self.critic.critic_parameters(shared=self.critic is self.policy)
            rate = 10 * args.lr if args.critic_lr is None else args.critic_lr
            groups.append({"params": own, "full_lr": rate, "flag": "critic_lr"})
        return groups

    def _start_engine(self) -> VLLMPolicy | None:
        args = self.args
        engine = {"dtype": str(self.policy.model.dtype).removeprefix("torch.")} | args.sampler_args
        if args.sampler == "hf":
            return None
        if self.processes.size > 1:
            raise ValueError("sampler vllm works in one process; use --sampler hf with several")
        return models.VLLMPolicy(self.policy.adapter_of or args.model, engine=engine, **self._settings)

    def _load_critic(self) -> HFPolicy:
        """The model of a separate critic, begun as the policy; beside an adapter one on the same weights."""
        if self.policy.adapter_of is None:
            return self._load(self.args.model, value_head=True)
        return self.policy.twin().add_value_head(self.args.seed)

    @property
    def _begun_from_adapter(self) -> bool:
        return self.policy.adapter_of is not None and not self.args.lora_rank

    @property
    def _settings(self) -> dict[str, Any]:
        """Settings of every policy, however it samples."""
        params = models.SamplingParams(self.args.temperature, stop=self.args.stop)
        return {**super()._settings, "sampling_params": params}


class RolloutRun(Run):
    """A run that learns from fresh rollouts at every step.

    Attributes:
        venv: the environments, drawn from by the curriculum where there is one.

    Args:
        args: of the run.
        processes: that train together.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    args: StepArgs

    def __init__(self, args: StepArgs, processes: ProcessGroup) -> None:
        super().__init__(args, processes)
        self.venv: Any = self.make_venv()
        if self.curriculum:
            self.venv = CurriculumWrapper(self.venv, self.curriculum, update=False)

    def rollouts(self, step: int, timer: Timer, part: int = 0) -> list[Episode]:
        """Roll out the groups of a step, by all processes; episodes in order of their groups.

        Args:
            step: number of it.
            timer: counts the seconds.
            part: number of the batch of tasks within the step.
        """
        # Part 1 of step 0 is what evaluations play.
        seeds = group_seeds(self.args.seed, step, part, self.args.groups)
        episodes = self.play(self.venv, seeds, self.args.group_size, timer, self.player, self.read)
        if self.curriculum:  # by the episodes of all processes, so that all are at one level
            metric = self.curriculum.metric
            self.curriculum.update([(one.task, one.metrics[metric]) for one in valid(episodes)])
        return episodes

    @property
    def player(self) -> Policy:
        """The policy whose rollouts are learned from."""
        return self.sampler

    def read(self, episode: Episode) -> None:
        """Take what is learned from an episode's turns, which it loses where no reward method reads them."""

    @functools.cached_property
    def curriculum(self) -> Curriculum | None:
        """Of the tasks that the run learns from; None without.

        Raises:
            ValueError: the environment has no task set, or the tasks no such levels.
        """
        if not self.args.curriculum:
            return None
        env: Any = gym.make(self.args.env, disable_env_checker=True, **self.args.env_args).unwrapped
        if not hasattr(env, "tasks"):
            raise ValueError(f"curriculum is for environments over task sets, and env is {self.args.env}")
        return Curriculum(env.tasks, **self.args.curriculum)

    def load_fixed(self, name: str = "") -> HFPolicy:
        """A model that stays as it is.

        Args:
            name: of it; "" is the model that the run began with, and beside an adapter that has the same
                weights, and the adapter as it began.
        """
        if name or self.policy.adapter_of is None:
            return self._load(name or self.args.model)
        return self.policy.frozen(self.args.model if self._begun_from_adapter else None)


class RewardRun(RolloutRun):
    """A run that learns from the rewards of its own rollouts.

    Attributes:
        ref_model: the model that `kl_coef` pulls to; None without.
        venv: inside a `VectorRewardWrapper` where there are reward methods.

    Args:
        args: of the run.
        processes: that train together.
        methods: reward methods that the learner itself needs, beside those of the arguments.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    args: RolloutArgs

    def __init__(self, args: RolloutArgs, processes: ProcessGroup, methods: Sequence[Any] = ()) -> None:
        super().__init__(args, processes)
        self._methods = read_methods([args.methods])
        self.ref_model = self.load_fixed(args.ref_model) if args.kl_coef else None
        self._scorer: TimedScorer | None = None
        if methods := [*self._methods, *methods]:
            self.venv = self._with_methods(methods)

    def rollouts(self, step: int, timer: Timer, part: int = 0) -> list[Episode]:
        """See `RolloutRun.rollouts`."""
        if self._scorer:
            self._scorer.timer = timer
        return super().rollouts(step, timer, part)

    def component_names(self) -> list[str]:
        """The components of the reward of its environments, those of reward methods and a length penalty."""
        _, info = self.make_venv().envs[0].reset(seed=0)
        methods = [method.name for method in getattr(self.venv, "methods", [])]
        return [*info["rewards"], *methods, "length_penalty"]

    @functools.cached_property
    def tree_env(self) -> gym.Env[Any, Any]:
        """One environment with the run's methods, for trees."""
        env: gym.Env[Any, Any] = gym.make(self.args.env, disable_env_checker=True, **self.args.env_args)
        scorer = None if self.args.scorer == "policy" else self.args.scorer
        return RewardWrapper(env, self._methods, scorer) if self._methods else env

    def _with_methods(self, methods: Sequence[Any]) -> Any:
        policy, own = self.policy, self.args.scorer == "policy"
        scorer: Any = HFScorer(policy.model, policy.tokenizer) if own else self.args.scorer
        template = policy.template if own else None
        if (made := make_scorer(scorer)) is not None:
            made = self._scorer = TimedScorer(made)
        host = VectorRewardWrapper(self.venv, methods, made, self.args.group_size, template)
        host.reset(seed=0)  # raises here, before the run, if a method does not fit this environment
        return host


class StepLoop:
    """The steps that a run has left, as an iterator inside its own `with`.

        with StepLoop(run, args.steps) as loop:
            for step, timer in loop:
                …
                loop.end({"loss": 0.5}, tokens=1234)

    A step begins by setting the learning rates and ends by `end`. SIGTERM ends the loop after the current
    step, which is saved; an evaluation that was due then is made when the run goes on.

    Args:
        run: goes on from the steps that it has done.
        last: number of the last step, from 1.
    """

    def __init__(self, run: ModelRun, last: int) -> None:
        self._run, self._last = run, last
        config = {"learner": run.args.learner, **run.args.plain()}
        quiet = not run.processes.is_main
        self._log = TrainingLog(run.args.out, run.step, quiet, run.args.track, config)
        if not quiet:
            write_json(run.args.out / "args.json", config)
        self._step, self._first, self._started = run.step, run.step, time.perf_counter()
        self._step_started, self._timer = self._started, Timer()
        self._sigterm, self._stopping, self._warned, self._failed = False, False, False, False
        self._handler: Any = None

    def __enter__(self) -> StepLoop:
        self._handler = signal.signal(signal.SIGTERM, self._on_sigterm)
        return self

    def __iter__(self) -> Iterator[tuple[int, Timer]]:
        self._make_up()
        while self._step < self._last and not self._stopping:
            self._step += 1
            self._run.set_rate(self._step, self._last)
            self._step_started, self._timer = time.perf_counter(), Timer()
            yield self._step, self._timer

    def end(self, metrics: dict[str, float], tokens: int, episodes: Sequence[Episode] = ()) -> None:
        """Log the step; evaluate and save where it is time to.

        Args:
            metrics: of the step, by name; the seconds of its parts are added.
            tokens: that were sampled in it, or learned from, for `tokens_per_second`.
            episodes: that were played in it, whose `summary` is added; why one failed is said once.
        """
        run, step, seconds = self._run, self._step, time.perf_counter() - self._step_started
        metrics = (summary(episodes) if episodes else {}) | metrics | timings(self._timer, seconds, tokens)
        if not self._failed and (failed := [one for one in episodes if one.end == "failed"]):
            self._failed = True
            said = f"warning: {len(failed)} of {len(episodes)} episodes failed and are left out, the first: "
            self._log.show(said + failed[0].error)
        self._stopping = run.processes.any(self._sigterm)
        if run.curriculum:
            metrics |= {
                "curriculum_level": run.curriculum.progress.level,
                "curriculum_mean": run.curriculum.mean,
            }
        evaluation = {} if self._stopping else run.evaluate(step)
        self._report(metrics | evaluation)
        best = run.is_best(step, evaluation)
        if best or step % run.args.save_every == 0 or step == self._last or self._stopping:
            run.save(step)

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        signal.signal(signal.SIGTERM, self._handler)
        self._log.close(failed=kind is not None)
        self._run.release()
        if kind is None:  # the other processes are not waited for by one that has failed
            self._run.processes.close()

    def _make_up(self) -> None:
        """Evaluate the policy that the run goes on from, if that was due and SIGTERM came before."""
        run, step = self._run, self._step
        if not step or run.processes.any(any(name.startswith("eval_") for name in self._log.newest)):
            return
        if evaluation := run.evaluate(step):
            self._log.amend(step, evaluation)
            if run.is_best(step, evaluation):
                run.save(step)

    def _report(self, metrics: dict[str, float]) -> None:
        """Write a step's metrics, show its line, and warn once of prompts that do not fit the window."""
        step, log = self._step, self._log
        log.write(step, metrics)
        names = [name for name in SHOWN if name in metrics]
        names += [name for name in PROBLEMS if metrics.get(name)]
        shown = "  ".join(f"{name} {metrics[name]:.4g}" for name in names)
        gone = time.perf_counter() - self._started
        pace = gone / (step - self._first)  # of the steps of this process, where the run was resumed
        elapsed, left = (_clock(seconds) for seconds in (gone, pace * (self._last - step)))
        log.show(f"step {step}/{self._last}  {shown}  {pace:.1f} s a step, {elapsed} elapsed, {left} left")
        overlong = metrics.get("overlong_prompts", 0) + metrics.get("eval_overlong_prompts", 0)
        if overlong and not self._warned:
            self._warned = True
            log.show(
                f"warning: {overlong:g} prompts left no room for a reply in the model's window of "
                f"{self._run.policy.window} tokens and were answered by an empty one: shorten them by "
                "--env-args (such as chunk_size, max_memory, k), or take a model with a longer window"
            )

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._sigterm = True


class TrainingLog:
    """Writes `log.jsonl`, sends the same numbers to trackers, and writes lines to the error stream.

    Args:
        folder: of the run.
        step: steps that a checkpoint holds; later lines, of a run that died behind it, are dropped.
        quiet: write nothing at all (a process that is not the first).
        track: names of trackers, see `memenvs.core.trackers`.
        config: the run's arguments, for them.

    Raises:
        ImportError: a tracker's client is not installed.
        TrackerError: a tracker cannot begin.
    """

    def __init__(
        self,
        folder: Path,
        step: int = 0,
        quiet: bool = False,
        track: Sequence[TrackerName] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._quiet, self._file = quiet, folder / LOG
        if quiet:
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_text(self._file, "".join(_lines_until(self._file, step)))
        if (folder / EPISODES).exists():
            write_text(folder / EPISODES, "".join(_lines_until(folder / EPISODES, step)))
        self._trackers = Trackers(track, TrackedRun(folder, config or {}, step), self.show)

    @property
    def newest(self) -> dict[str, float]:
        """The last line of the file; nothing in a process that is not the first."""
        lines = [] if self._quiet else _lines_until(self._file)
        return dict(json.loads(lines[-1])) if lines else {}

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Write the metrics of a step, by name, to the file and to the trackers."""
        if self._quiet:
            return
        rounded = _rounded(metrics)
        line = {"step": step, "time": round(time.time(), 3), **rounded}
        with path_in_errors(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._trackers.log(step, rounded)

    def amend(self, step: int, metrics: dict[str, float]) -> None:
        """Add metrics to the line of the last step."""
        if self._quiet:
            return
        line, rounded = self.newest, _rounded(metrics)
        lines = [*_lines_until(self._file, step - 1), json.dumps({**line, **rounded}) + "\n"]
        write_text(self._file, "".join(lines))
        self._trackers.log(step, rounded)

    def show(self, line: str) -> None:
        """Write a line to the error stream."""
        if not self._quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def close(self, failed: bool = False) -> None:
        """End the trackers' runs; `failed` where an error ended the training."""
        if not self._quiet:
            self._trackers.close(failed)


class BestEvaluation(NamedTuple):
    """The best evaluation of a run so far.

    Attributes:
        step: at which it was; the earliest of equal ones (InfoMem appendix C.5).
        value: of the metric.
        measured: metric, episodes and environment of the evaluation; one of others is not compared with it.
    """

    step: int
    value: float
    measured: list[Any]


class Checkpoints:
    """Checkpoints of a run: whole folders `checkpoints/step-N`, with links `last` and `best` to two of them.

    Args:
        folder: of the run.
        keep: how many of the last ones stay beside the best, at least 1.

    Raises:
        ValueError: `last` or `best` is no link, so that no checkpoint could be saved.
    """

    def __init__(self, folder: Path, keep: int = 1) -> None:
        self._folder, self._keep = folder, keep
        for name in ("last", "best"):
            if (folder / name).exists() and not (folder / name).is_symlink():
                raise ValueError(
                    f"{folder / name} is not a link to a checkpoint; move it away, or give another --out"
                )

    @property
    def newest(self) -> Path | None:
        """The checkpoint of the most steps; None if there is none."""
        steps = self._steps()
        return self._at(steps[-1]) if steps else None

    @property
    def curriculum(self) -> State:
        """The state of the curriculum in the newest checkpoint."""
        state: State = self._state(self.newest)["curriculum"] if self.newest else {}
        return state

    def save(
        self,
        models: Mapping[str, HFPolicy],
        optimizer: Any,
        step: int,
        args: dict[str, Any],
        best: BestEvaluation | None = None,
        curriculum: State | None = None,
    ) -> None:
        """Write `checkpoints/step-N`, then point `last` and `best` to theirs and remove what is not kept.

        A write that fails, or is killed, leaves the checkpoints and the links as they were.

        Args:
            models: in training, by the names of their folders.
            optimizer: of them.
            step: N, steps done.
            args: of the run, compared when it is resumed.
            best: the best evaluation, its checkpoint among those in the folder, or this one.
            curriculum: its state.
        """
        tensors, numbers = _flat(optimizer)
        state = {"step": step, "args": args, "optimizer": numbers, "best": best and best._asdict()}
        if curriculum is not None:
            state["curriculum"] = curriculum
        with whole_folder(self._at(step)) as fresh:
            for name, model in models.items():
                model.save(fresh / name)
            require("safetensors.torch", "train").save_file(tensors, fresh / "optimizer.safetensors")
            write_json(fresh / "state.json", state)
        self._link("last", step)
        self._link("best", best.step if best else None)
        kept = {*self._steps()[-self._keep :], best.step if best else step}
        for old in set(self._steps()) - kept:
            shutil.rmtree(self._at(old))

    def differences(self, args: dict[str, Any], free: Collection[str]) -> list[str]:
        """Which arguments, beside the free ones, are not those that the newest checkpoint was made with."""
        if self.newest is None:
            return []
        before = self._state(self.newest)["args"]
        return [
            f"{name} {before.get(name)!r}, now {value!r}"
            for name, value in args.items()
            if name not in free and before.get(name) != value
        ]

    def restore(self, models: Mapping[str, HFPolicy], optimizer: Any) -> tuple[int, BestEvaluation | None]:
        """Load the newest checkpoint into models of the same form and their optimizer.

        Returns:
            Steps done, and the best evaluation so far.

        Raises:
            ValueError: the checkpoint is of a run in another precision.
        """
        if self.newest is None:
            raise FileNotFoundError(f"{self._folder} holds no checkpoint")
        for name, model in models.items():
            model.load_weights(self.newest / name)
        state = self._state(self.newest)
        with damage_in_one_line(self.newest):
            tensors = require("safetensors.torch", "train").load_file(self.newest / "optimizer.safetensors")
        masters = _masters(optimizer)
        if masters.keys() != {name for name in tensors if name.endswith(MASTER)}:
            this, other = ("bfloat16", "float32") if masters else ("float32", "bfloat16")
            raise ValueError(
                f"{self.newest} was computed in {other}, now {this}; resume with --dtype {other}"
            )
        for name, master in masters.items():
            master.data.copy_(tensors.pop(name))
        loaded = state["optimizer"]
        loaded["state"] = {}
        for name, tensor in tensors.items():
            number, _, part = name.partition(".")
            loaded["state"].setdefault(int(number), {})[part] = tensor
        optimizer.load_state_dict(loaded)
        return int(state["step"]), BestEvaluation(**state["best"]) if state["best"] else None

    def _state(self, checkpoint: Path) -> dict[str, Any]:
        mend = f"delete {checkpoint} to go on from the checkpoint before it, or give another --out"
        return read_json(checkpoint / "state.json", mend)

    def _at(self, step: int) -> Path:
        return self._folder / "checkpoints" / f"step-{step}"

    def _steps(self) -> list[int]:
        """The steps of the checkpoints, in order."""
        names = (path.name for path in (self._folder / "checkpoints").glob("step-*"))
        return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))

    def _link(self, name: str, step: int | None) -> None:
        """Make a link to a step's checkpoint, in one move; without a step there is none."""
        link = self._folder / name
        if step is None:
            link.unlink(missing_ok=True)
            return
        new = link.with_name(f".{name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(Path("checkpoints") / f"step-{step}", target_is_directory=True)
        os.replace(new, link)


class TimedScorer:
    """A scorer whose seconds are counted, as `"scoring"`.

    Args:
        scorer: does the work.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer, self.timer = scorer, Timer()

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """See `Scorer.logprobs`."""
        with self.timer("scoring"):
            return self._scorer.logprobs(requests)


def group_seeds(seed: int, step: int, part: int, count: int) -> list[int]:
    """Seeds of `count` groups of a step's part."""
    words = np.random.SeedSequence([seed, step, part]).generate_state(count, np.uint64)
    return [int(value >> np.uint64(1)) for value in words]


def shuffled_batches(
    items: Sequence[T], batch_size: int, epochs: int, seed: int, *, shuffle: bool = True
) -> Iterator[list[T]]:
    """The items in batches, `epochs` times, in another order each time if they are shuffled."""
    for number in range(epochs):
        rng = np.random.default_rng([seed, 0, 3, number])
        order = rng.permutation(len(items)) if shuffle else np.arange(len(items))
        for start in range(0, len(order), batch_size):
            yield [items[i] for i in order[start : start + batch_size].tolist()]


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over valid episodes: return, tokens, every metric; and how many failed or were cut.

    A component of the reward is `rewards/NAME`, its mean sum over an episode; what a method measures is
    `signals/NAME`, its mean over an episode's turns (TAMTRL's p_t, InfoMem's gain), and `signals/NAME_std`
    the standard deviation over the turns of all episodes. Each leaves out episodes that have none.
    """
    played = valid(episodes)
    metrics: dict[str, float] = {
        "failed": sum(episode.end == "failed" for episode in episodes),
        "truncated_replies": sum(episode.truncated_replies for episode in episodes),
        "overlong_prompts": sum(episode.overlong_prompts for episode in episodes),
    }
    if not played:
        return metrics
    metrics["return"] = float(np.mean([sum(episode.turn_rewards) for episode in played]))
    metrics["outcome"] = float(np.mean([episode.outcome for episode in played]))
    if any(episode.length_penalty for episode in played):
        metrics["length_penalty"] = float(np.mean([episode.length_penalty for episode in played]))
    metrics["reply_tokens"] = float(np.mean([episode.tokens for episode in played]))
    values: dict[str, list[float]] = {}
    turns: dict[str, list[float]] = {}
    for episode in played:
        means = {f"signals/{name}": float(np.mean(some)) for name, some in episode.measured.items()}
        parts = {f"rewards/{name}": value for name, value in episode.rewards.items()}
        for name, value in {**episode.metrics, **parts, **means}.items():
            if not math.isnan(value):
                values.setdefault(name, []).append(value)
        for name, some in episode.measured.items():
            turns.setdefault(f"signals/{name}_std", []).extend(some)
    for name, some in values.items():
        metrics.setdefault(name, float(np.mean(some)))
    return metrics | {name: float(np.std(some)) for name, some in turns.items()}


def evidence_in_memory(episode: Episode) -> dict[str, float]:
    """How much of the evidence an agent's memory took and kept, as shares of words; empty without a memory.

    The words are those of the evidence that the question has not, of more than three letters or with a digit.

    Returns:
        `evidence_taken`: of the words that a turn showed, how many the memory written at it holds, over all
        turns that showed any; without an entry where none did. `evidence_kept`: of all words, how many the
        last memory holds.
    """
    first = episode.turns[0].before.get("privileged", {}) if episode.turns else {}
    evidence = [str(text) for text in first.get("evidence", ())]
    wanted = _content(" ".join(evidence)) - _content(str(first.get("question", "")))
    if not wanted or episode.turns[0].before.get("context") != "rewrite":
        return {}
    shown, taken, before, held = 0, 0, "", set[str]()
    for turn in episode.turns:
        now, memory = str(turn.observation), turn.info.get("privileged", {}).get("memory")
        if not isinstance(memory, str):
            return {}
        held = _content(memory) & wanted
        parts = turn.before["privileged"].get("evidence_in_chunk")
        if parts is None:  # a search brings whole documents, below their titles
            bodies = [text.partition("\n")[2] or text for text in evidence]
            parts = [body for body in bodies if body in now and body not in before]
        read, before = _content(" ".join(parts)) & wanted, now
        shown, taken = shown + len(read), taken + len(read & held)
    found = {"evidence_taken": taken / shown} if shown else {}
    return {**found, "evidence_kept": len(held) / len(wanted)}


def _content(text: str) -> set[str]:
    """The words that say what a text is about, as the report of episodes counts them."""
    return {word for word in WORD.findall(text.lower()) if len(word) > 3 or any(map(str.isdigit, word))}


def timings(timer: Timer, seconds: float, tokens: int) -> dict[str, float]:
    """Seconds of a step by their kind, and tokens a second."""
    parts = dict(timer.seconds)
    if "environment" in parts:
        parts["environment"] -= parts.get("scoring", 0.0)
    named = {f"seconds_{name}": value for name, value in parts.items()}
    return {**named, "seconds": seconds, "tokens_per_second": tokens / seconds}


def _clock(seconds: float) -> datetime.timedelta:
    """A duration as it is shown, in whole seconds."""
    return datetime.timedelta(seconds=round(seconds))


def _checkpoint_gradients(model: Any) -> None:
    """Keep no activations. Only layers that look for training mode to do so are in it: dropout stays off."""
    enable = getattr(model, "activation_checkpointing_enable", None)  # transformers 5.23; before, the other
    (enable or model.gradient_checkpointing_enable)()
    for module in model.modules():
        module.training = bool(getattr(module, "gradient_checkpointing", False))


def _rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as they are logged, six digits each."""
    return {name: float(f"{value:.6g}") for name, value in metrics.items()}


def _lines_until(file: Path, step: float = math.inf) -> list[str]:
    """The lines of steps up to `step`; a last line without an end is dropped.

    Raises:
        ValueError: a line is not one of a run's.
    """
    kept = []
    raw = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    for number, line in enumerate(raw, 1):
        try:
            text = line.decode("utf-8")
            if json.loads(text)["step"] <= step:
                kept.append(f"{text}\n")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(
                f"{file}:{number} is not a line of a run ({error_line(error)}); remove the line"
            ) from error
    return kept


def _masters(optimizer: Any) -> dict[str, Any]:
    """The optimizer's master weights, by their names in a checkpoint; see `make_optimizer`."""
    return {f"{i}{MASTER}": weight for i, weight in optimizer_masters(optimizer).items()}


def _flat(optimizer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """An optimizer's state and master weights as named tensors, and the rest of it as plain data."""
    state = optimizer.state_dict()
    tensors = {name: master.detach() for name, master in _masters(optimizer).items()}
    tensors |= {
        f"{number}.{part}": tensor.contiguous()
        for number, parts in state["state"].items()
        for part, tensor in parts.items()
    }
    return tensors, {"param_groups": state["param_groups"]}
