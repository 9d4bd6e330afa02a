"""A run of a learner: its models and environments, rollouts, evaluations and the loop of its steps."""

from __future__ import annotations

import contextlib
import copy
import datetime
import functools
import itertools
import math
import re
import shlex
import signal
import sys
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import numpy as np

from memenvs import models
from memenvs.baselines.checkpoint import EPISODES, Checkpoints, TrainingLog
from memenvs.baselines.flags import ARGS, PlayArgs, RewardArgs, StepArgs, TrainArgs
from memenvs.baselines.update import ProcessGroup, apply_gradients, make_optimizer
from memenvs.core.arguments import (
    REQUIRED,
    Parameter,
    check_arguments,
    check_env_arguments,
    env_parameters,
    parameters_of,
    shell_form,
)
from memenvs.core.env import check_text_observations, text_env_of
from memenvs.core.episode import Episode, valid
from memenvs.core.episode_file import EpisodeWriter
from memenvs.core.files import hold_folder, write_json
from memenvs.core.optional import require
from memenvs.core.terminal import RED, RESET, YELLOW, show
from memenvs.core.trackers import check_clients
from memenvs.data import bundled_names
from memenvs.rollout.collect import Loop, MakeEnv, Timer, maker
from memenvs.rollout.order import draw_tasks
from memenvs.rollout.policy import as_policy
from memenvs.tasks.taskset import CARD, HOLDOUT
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.credit import check_methods
from memenvs.wrappers.registry import make_methods, make_scorer, read_methods
from memenvs.wrappers.scorers import HFScorer, Scorer, ScoreRequest, TokenScores

if TYPE_CHECKING:
    from memenvs.models import HFPolicy

T = TypeVar("T")

SHOWN = (
    *("loss", "divergence", "return", "success", "informative", "evidence_kept"),
    *("approx_kl", "kl_ref", "entropy"),
    *("eval_return", "eval_success", "eval_loss", "eval_accuracy", "tokens_per_second"),
)
"""Metrics on the line of a step, if they exist."""
PROBLEMS = (
    *("failed", "overlong_prompts", "teacher_overlong_prompts", "eval_failed", "eval_overlong_prompts"),
    *("skipped", "nonfinite"),
)
"""Counts on this line, if they are not 0."""
WORK = {
    "sampling": "sampling {episodes}",
    "scoring": "scoring replies for the reward methods",
    "log_probs": "computing log-probabilities",
    "update": "updating the weights",
}
"""What the first step of a run prints about its parts."""
PATIENCE = 3
"""Steps of which none taught anything, after which a run says so."""
WORD = re.compile(r"[^\W_]+")


class StepTimer(Timer):
    """Seconds of the parts of a step; calls `say`, if it is set, with the name of each part as it begins."""

    say: Callable[[str], None] | None = None

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """See `Timer`."""
        if self.say and name in WORK and name not in self.seconds:
            self.say(name)
        with super().__call__(name):
            yield


@dataclass
class TimedScorer:
    """A scorer whose seconds are counted, as `"scoring"`."""

    scorer: Scorer
    timer: Timer

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """See `Scorer.logprobs`."""
        with self.timer("scoring"):
            return self.scorer.logprobs(requests)


class ModelRun:
    """A model in training, its optimizer and its checkpoints.

    Attributes:
        step: steps done.
        best: `step` and `value`, the success, of the best evaluation so far; None before the first.
        timer: of the parts of the step.
        model_settings: of all models of the run.
        policy: in training.
        drawn: tasks drawn so far.
        release: lets another run have the folder.

    Args:
        args: of the run.
        processes: that train together; None: those that were launched.

    Raises:
        ValueError: arguments that do not fit each other, or a folder that holds a run already or that another
            run is writing to.
        FileNotFoundError: there is no such model.
    """

    def __init__(self, args: TrainArgs, processes: ProcessGroup | None = None) -> None:
        if not args.model:
            raise ValueError("no model is given; add --model with a folder or a name on the hub")
        self.args, self.processes = args, processes or ProcessGroup()
        self.step, self.timer = 0, StepTimer()
        self.model_settings: dict[str, Any] = {"chat_args": args.chat_args}
        self.best: dict[str, Any] | None = None
        self.drawn = 0
        adamw = require("torch", "train").optim.AdamW
        taken = [one for one in parameters_of(adamw) or () if one.name not in ("params", "lr")]
        check_arguments("--adamw", args.adamw, taken)
        self.open_data()
        self._checkpoints = Checkpoints(args.out, args.keep)
        if self._checkpoints.newest and not args.resume:
            raise ValueError(f"{args.out} holds a run; add --resume, or give another --out")
        if changed := self._checkpoints.differences(args.plain(), args.resumable):
            raise ValueError(
                f"{args.out} was begun with {changed[0]}; resume with the same value, or give another --out"
            )
        self.release: Callable[[], object] = lambda: None
        if self.processes.is_main:
            check_clients(args.track)
            # A run that is dropped before its first step releases the folder too.
            self.release = weakref.finalize(self, hold_folder(args.out).close)
        self._models = self.load_models()
        self.policy: HFPolicy = self._models["policy"]
        if args.gradient_checkpointing:
            for model in self._models.values():
                checkpoint_gradients(model.model)
        self.optimizer = make_optimizer(
            self.parameter_groups(), lr=args.lr, **{"weight_decay": 0.0, **args.adamw}
        )
        self.restore()

    def open_data(self) -> None:
        """Open what the run learns from, so that an error comes before a model is loaded."""

    def load_models(self) -> dict[str, HFPolicy]:
        """The models in training by the names of their folders; one is `"policy"`."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups, each with its full learning rate and its warm-up (`lr_warmup`)."""
        return [{"params": self.policy.parameters(), "full_lr": self.args.lr, "warmup": self.args.lr_warmup}]

    def restore(self) -> None:
        """Load the newest checkpoint, if there is one."""
        if state := self._checkpoints.restore(self._models, self.optimizer):
            self.step, self.best, self.drawn = state["step"], state["best"], state["drawn"]
            if self.processes.is_main:
                self._checkpoints.finish(self.step, self.best)
            self.refresh_sampler()

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics `eval_NAME`; empty unless an evaluation is due at this step."""
        return {}

    def refresh_sampler(self) -> None:
        """Give the engine that samples the weights in training, if it has a copy of them."""

    def save_episodes(self, step: int, phase: Literal["train", "eval"], episodes: Sequence[Episode]) -> None:
        """Append the first episodes to OUT/episodes.jsonl, as many as `--save-episodes` says."""

    def descend(
        self, items: Sequence[T], ids: Sequence[models.Ids], loss_of: Callable[[list[T]], Any], count: int
    ) -> dict[str, float]:
        """One optimizer step by a mean over the parts of training sequences, which all processes share.

        Args:
            items: the sequences.
            ids: their tokens.
            loss_of: the sum () of the loss over some of them.
            count: of what the loss is the mean over, in all of them.

        Returns:
            `loss`; `nonfinite` is 1 if no step was taken, since the loss or its gradient was not finite.
        """
        mine, total = self.processes.shard(range(len(items))), 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for part in self.policy.micro_batches([ids[i] for i in mine], self.args.micro_batch_tokens):
            loss = loss_of([items[mine[i]] for i in part]) / count
            loss.backward()
            total += float(loss.detach())
        weights, finite = [self.policy.parameters()], math.isfinite(total)
        limit = self.args.max_grad_norm
        norms = apply_gradients(self.optimizer, weights, self.processes, max_norm=limit, finite=finite)
        metrics = {"loss": self.processes.sum(total)[0]} if norms else {}
        return {**metrics, "nonfinite": float(norms is None)}

    def set_rate(self, step: int, last: int) -> None:
        """Set the learning rates of a step, in a run of `last` steps."""
        for group in self.optimizer.param_groups:
            rise = int(group["warmup"] * last if group["warmup"] < 1 else group["warmup"])
            fallen = max(0.0, (step - rise) / max(last - rise, 1))
            share = min(1.0, step / max(rise, 1)) * (1 - (1 - self.args.lr_end) * fallen)
            group["lr"] = group["full_lr"] * share

    def save(self, step: int) -> None:
        """Write a checkpoint, in the first process."""
        self.step = step
        if self.processes.is_main:
            self._checkpoints.save(
                self._models, self.optimizer, step, self.args.plain(), self.best, self.drawn
            )

    def load(self, model: str, *, value_head: bool = False, adapt: bool = False) -> HFPolicy:
        """Load a model as the run's arguments say.

        Args:
            model: folder or name.
            value_head: give it a value head.
            adapt: put a new adapter on it, if `lora_rank` asks for one.
        """
        args, lora = self.args, None
        if adapt and args.lora_rank:
            lora = models.LoRA(args.lora_rank, seed=args.seed)
        options = {**self.model_settings, "device": self.processes.device, "dtype": args.dtype}
        policy = models.HFPolicy(model, lora=lora, **options)
        if str(policy.model.dtype) == "torch.float16":
            raise ValueError(
                f"{model} is in float16, in which gradients vanish; give --dtype bfloat16 or float32"
            )
        return policy.add_value_head(args.seed) if value_head else policy


class Run(ModelRun):
    """A policy in training, its environments and its evaluations.

    Attributes:
        sampler: the policy that samples: the one in training, or a vLLM engine with its weights.
        n_tasks: number of tasks of the environment.
    """

    args: PlayArgs
    _eval_loop: Loop | None = None

    def open_data(self) -> None:
        """Check the environments of training and of evaluation, and make the latter."""
        args = self.args
        sampling = models.SamplingParams(args.temperature, stop=args.stop)
        self.model_settings["sampling_params"] = sampling
        self.n_tasks, self._eval_tasks = (
            self._checked({**args.env_args, **different}) for different in ({}, args.eval_env_args)
        )

    def _checked(self, env_args: dict[str, Any]) -> int:
        """The number of tasks of an environment that a language model can play."""
        check_env_arguments(self.args.env, env_args)
        made = maker(self.args.env, env_args)()
        inner = text_env_of(made)
        check_text_observations(made)
        made.close()
        return inner.n_tasks

    def load_models(self) -> dict[str, HFPolicy]:
        """The policy; the engine that samples is started too."""
        args = self.args
        self.policy = self.load(args.model, adapt=True)
        self.sampler: Any = self.policy
        if args.vllm is not None:
            if self.processes.size > 1:
                raise ValueError("--vllm works in one process; leave it out with several")
            engine = {"dtype": str(self.policy.model.dtype).removeprefix("torch.")} | args.vllm
            base = self.policy.adapter_of or args.model
            self.sampler = models.VLLMPolicy(base, engine=engine, **self.model_settings)
            if self._begun_from_adapter:
                self.refresh_sampler()  # the engine has the weights without it
        return {"policy": self.policy}

    def make_loop(
        self,
        make_env: MakeEnv,
        player: Any = None,
        methods: Sequence[RewardMethod] = (),
        scorer: Scorer | None = None,
    ) -> Loop:
        """A loop that plays in environments of its own.

        Args:
            make_env: makes an environment.
            player: the policy that samples; None: `sampler`.
            methods: reward methods.
            scorer: gives them log-probabilities.
        """
        policy = as_policy(player or self.sampler, self.args.max_new_tokens)
        concurrency = self.args.num_envs
        return Loop(make_env, policy, methods, scorer, concurrency=concurrency, timer=self.timer)

    def play(
        self,
        loop: Loop,
        seeds: Sequence[int],
        tasks: Sequence[int],
        group_size: int,
        read: Callable[[Episode], None] | None = None,
    ) -> list[Episode]:
        """Roll out a group of episodes for each seed, shared among all processes; in order of the seeds.

        Args:
            loop: plays them.
            seeds: seeds of the groups, which also name them.
            tasks: the number of each group's task.
            group_size: episodes of a group.
            read: is given each episode that this process played to its end, while it has its texts.
        """
        plan = [
            [Episode(seed=seed, group=seed, member=j, number=task) for j in range(group_size)]
            for seed, task in self.processes.shard([*zip(seeds, tasks, strict=True)])
        ]
        for _ in loop.play(plan):
            pass  # the records are filled in place
        mine = [episode for group in plan for episode in group]
        for episode in mine:
            if episode.end != "failed":
                episode.metrics = {**episode.metrics, **evidence_in_memory(episode)}
                if read is not None:
                    read(episode)
        if not loop.methods:  # only reward methods read texts, which are much to gather
            kept = self.args.save_episodes
            mine = [*mine[:kept], *(episode.without_texts() for episode in mine[kept:])]
        order = {seed: number for number, seed in enumerate(seeds)}
        return sorted(self.processes.gather(mine), key=lambda episode: order[episode.group])

    def refresh_sampler(self) -> None:
        """See `ModelRun.refresh_sampler`."""
        if self.sampler is not self.policy:
            self.sampler.load_weights(self.policy)

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics `eval_NAME` on fixed tasks, each once; empty unless an evaluation is due at this step."""
        args, n_tasks = self.args, self._eval_tasks
        if not args.eval_every or step % args.eval_every:
            return {}
        tasks = draw_tasks(n_tasks, [args.seed, 1], 0, min(n_tasks, args.eval_episodes))
        seeds = group_seeds(args.seed, 0, 1, len(tasks))
        self._eval_loop = self._eval_loop or self.make_eval_loop()
        episodes = self.play(self._eval_loop, seeds, tasks, 1)
        self.save_episodes(step, "eval", episodes)
        return {f"eval_{name}": value for name, value in summary(episodes).items()}

    def make_eval_loop(self) -> Loop:
        """The loop of evaluations."""
        return self.make_loop(maker(self.args.env, {**self.args.env_args, **self.args.eval_env_args}))

    def save_episodes(self, step: int, phase: Literal["train", "eval"], episodes: Sequence[Episode]) -> None:
        """See `ModelRun.save_episodes`."""
        if not self.args.save_episodes or not self.processes.is_main:
            return
        whole = episodes[: self.args.save_episodes]
        with EpisodeWriter(self.args.out / EPISODES) as writer:
            for episode in whole:
                writer.write(msgspec.structs.replace(episode, step=step, phase=phase), self.policy)

    @property
    def _begun_from_adapter(self) -> bool:
        return self.policy.adapter_of is not None and not self.args.lora_rank


class RolloutRun(Run):
    """A run that learns from fresh rollouts at every step; see `ModelRun`."""

    args: StepArgs

    @functools.cached_property
    def make_env(self) -> MakeEnv:
        """Makes an environment of the run."""
        return maker(self.args.env, self.args.env_args)

    @functools.cached_property
    def loop(self) -> Loop:
        """The loop of the rollouts that are learned from."""
        return self.make_loop(self.make_env)

    def next_tasks(self, count: int) -> list[int]:
        """The numbers of the next tasks to learn from: each once a pass through the set."""
        start, self.drawn = self.drawn, self.drawn + count
        return draw_tasks(self.n_tasks, [self.args.seed, 0], start, count)

    def rollouts(self, step: int, part: int = 0) -> list[Episode]:
        """Roll out the groups of a step, by all processes; episodes in order of their groups.

        Args:
            step: number of it.
            part: number of the batch of tasks within the step.
        """
        # Part 1 of step 0 is what evaluations play.
        args = self.args
        seeds = group_seeds(args.seed, step, part, args.groups)
        return self.play(self.loop, seeds, self.next_tasks(args.groups), args.group_size, self.read)

    def read(self, episode: Episode) -> None:
        """Keep what is learned from an episode's texts, which are dropped when it has ended."""

    def load_fixed(self, name: str = "") -> HFPolicy:
        """A model that is not trained.

        Args:
            name: of the model; "" is the initial model, which shares its weights with an adapter in training.
        """
        if name or self.policy.adapter_of is None:
            return self.load(name or self.args.model)
        return self.policy.frozen(self.args.model if self._begun_from_adapter else None)


class RewardRun(RolloutRun):
    """A run that learns from the rewards of its own rollouts.

    Attributes:
        ref_model: the model that `kl_coef` pulls to; None without.
        methods: the run's reward methods, with the comparison where it is one.
        scorer: gives them log-probabilities.

    Args:
        args: of the run.
        comparison: what the learner compares by; if it is a reward method, it is put on the environments
            beside those of the arguments.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    args: RewardArgs

    def __init__(self, args: RewardArgs, comparison: object = None) -> None:
        super().__init__(args)
        self.ref_model = self.load_fixed() if args.kl_coef else None
        own_method = [comparison] if isinstance(comparison, RewardMethod) else []
        named = [*read_methods(args.methods), *own_method]
        self.methods: list[RewardMethod] = make_methods(named) if named else []
        self.scorer: Scorer | None = None
        if self.methods:
            if args.scorer == "policy":
                made = make_scorer(HFScorer(self.policy.model, self.policy.tokenizer), self.policy.template)
            else:
                made = make_scorer(args.scorer)
            self.scorer = made and TimedScorer(made, self.timer)
            env = self.make_env()
            check_methods(self.methods, self.scorer, env.reset(seed=0)[1])  # raises here, before the run
            env.close()

    @functools.cached_property
    def loop(self) -> Loop:
        """See `RolloutRun.loop`; with the reward methods."""
        return self.make_loop(self.make_env, None, self.methods, self.scorer)

    def make_eval_loop(self) -> Loop:
        """See `Run.make_eval_loop`; with the methods that compare no rollouts, as a task is played once."""
        loop, alone = super().make_eval_loop(), [method for method in self.methods if not method.group]
        return self.make_loop(loop.make_env, None, alone, self.scorer) if alone else loop


class StepLoop:
    """The remaining steps of a run, as an iterator inside its own `with`.

        with StepLoop(run, args.steps) as loop:
            for step in loop:
                …
                loop.end({"loss": 0.5}, tokens=1234)

    A step begins by setting the learning rates and ends with `end`. SIGTERM ends the loop after the current
    step, which is saved.

    Args:
        run: continues after the steps that it has done.
        last: number of the last step, from 1.
    """

    def __init__(self, run: ModelRun, last: int) -> None:
        self._run, self._last, self._first = run, last, run.step
        config = {"learner": type(run.args).__module__.rpartition(".")[2], **run.args.plain()}
        quiet = not run.processes.is_main
        self._log = TrainingLog(run.args.out, run.step, quiet, run.args.track, config)
        if not quiet:
            write_json(run.args.out / ARGS, config)
        if run.step:
            self._log.show(f"resuming after step {run.step}")
        self._started = self._step_started = time.perf_counter()
        self._sigterm, self._stopping = False, False
        self._warned: set[str] = set()
        self._flat_steps, self._turns_paid = 0, False

    def __enter__(self) -> StepLoop:
        self._handler = signal.signal(signal.SIGTERM, self._on_sigterm)
        return self

    def __iter__(self) -> Iterator[int]:
        timer = self._run.timer
        for step in range(self._first + 1, self._last + 1):
            if self._stopping:
                return
            self._step, self._step_started = step, time.perf_counter()
            self._run.set_rate(step, self._last)
            timer.seconds.clear()
            timer.say = self._say_work if step == self._first + 1 else None
            yield step

    def end(self, metrics: dict[str, float], tokens: int, episodes: Sequence[Episode] = ()) -> None:
        """Refresh the sampler, log the step, and evaluate and save when they are due.

        Args:
            metrics: of the step, by name; the seconds of its parts are added.
            tokens: sampled in the step, or learned from, for `tokens_per_second`.
            episodes: played in the step; their `summary` is added, and the first failure is reported once.
        """
        run, step = self._run, self._step
        with run.timer("refresh"):
            run.refresh_sampler()
        run.save_episodes(step, "train", episodes)
        metrics = (summary(episodes) if episodes else {}) | metrics | self._timings(tokens)
        if failed := [one for one in episodes if one.end == "failed"]:
            said = f"{len(failed)} of {len(episodes)} episodes failed and are left out, the first: "
            self._warn_once("failed", said + failed[0].error)
        self._warn_of_nothing_to_learn(metrics, valid(episodes))
        self._stopping = run.processes.any(self._sigterm)
        if self._stopping:
            run.save(step)  # first: an evaluation may take longer than there is time
        evaluation = run.evaluate(step)
        success = evaluation.get("eval_success", math.nan)
        best = success > (run.best["value"] if run.best else -math.inf)  # False where all episodes failed
        if best:
            run.best = {"step": step, "value": success}
        self._report(metrics | evaluation)
        if best or step % run.args.save_every == 0 or step == self._last:
            run.save(step)

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        signal.signal(signal.SIGTERM, self._handler)
        if kind is None and self._run.processes.is_main:
            show(next_commands(self._run.args), sys.stderr, wrap=False)
        self._log.close(failed=kind is not None)
        self._run.release()
        if kind is None:  # a failed process does not wait for the others
            self._run.processes.close()

    def _say_work(self, name: str) -> None:
        """Say what the first step does now, which may take minutes."""
        args = self._run.args
        episodes = f"{args.groups * args.group_size} episodes" if isinstance(args, StepArgs) else "replies"
        self._log.show(f"step {self._step}: {WORK[name].format(episodes=episodes)} …")

    def _timings(self, tokens: int) -> dict[str, float]:
        """Seconds of the step by their kind, and tokens a second."""
        seconds, parts = time.perf_counter() - self._step_started, dict(self._run.timer.seconds)
        if "environment" in parts:
            parts["environment"] -= parts.get("scoring", 0.0)
        named = {f"seconds_{name}": value for name, value in parts.items()}
        return {**named, "seconds": seconds, "tokens_per_second": tokens / seconds}

    def _report(self, metrics: dict[str, float]) -> None:
        """Write a step's metrics, show its line, and warn once about prompts that do not fit the window."""
        step = self._step
        self._log.write(step, metrics)
        shown = [f"{name} {metrics[name]:.4g}" for name in SHOWN if name in metrics]
        shown += [f"{RED}{name} {metrics[name]:.4g}{RESET}" for name in PROBLEMS if metrics.get(name)]
        gone = time.perf_counter() - self._started
        pace = gone / (step - self._first)  # of this process's steps, as the run may be resumed
        elapsed, left = (
            datetime.timedelta(seconds=round(seconds)) for seconds in (gone, pace * (self._last - step))
        )
        took = f"{pace:.1f} s a step, {elapsed} elapsed, {left} left"
        self._log.show("  ".join([f"step {step}/{self._last}", *shown, took]))
        if overlong := metrics.get("overlong_prompts", 0) + metrics.get("eval_overlong_prompts", 0):
            self._warn_once(
                "overlong",
                f"{overlong:g} prompts left no room for a reply in the model's window of "
                f"{self._run.policy.window} tokens and were answered by an empty one: shorten them by "
                "--env-args (such as chunk_size, max_memory, k), or take a model with a longer window",
            )

    def _warn_of_nothing_to_learn(self, metrics: Mapping[str, float], played: Sequence[Episode]) -> None:
        """Warn once where groups never differ, and where no turn is paid in a run that learns by turn."""
        self._flat_steps = 0 if metrics.get("informative", 1.0) else self._flat_steps + 1
        if self._flat_steps == PATIENCE:
            known = {
                0.0: "no episode solved its task: warm up with sft, take easier tasks, or raise "
                "--max-new-tokens if replies are truncated",
                1.0: "every episode solved its task: take harder tasks",
            }
            other = "the episodes of a task earned the same: raise --group-size or --temperature"
            why = known.get(metrics.get("success", math.nan), other)
            self._warn_once(
                "flat", f"no group differed up to step {self._step}, so nothing is learned: {why}"
            )
        several = [episode for episode in played if len(episode.turn_rewards) > 1]
        self._turns_paid |= any(any(episode.turn_rewards[:-1]) for episode in several)
        outcome_alone = all(set(episode.rewards) == {"outcome"} for episode in several)
        by_turn = getattr(self._run.args, "reward", "") == "turn"
        waited = self._step - self._first >= PATIENCE
        if by_turn and several and not self._turns_paid and (outcome_alone or waited):
            self._warn_once(
                "unpaid",
                "--reward turn, but no turn before the last has earned anything, so the outcome teaches "
                "alone: add a method that pays turns, as --methods '[\"SearchRewards\"]' (`memenvs list` has "
                "them all), or train with --reward outcome",
            )

    def _warn_once(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._log.show(f"{YELLOW}warning{RESET}: {text}")

    def _on_sigterm(self, *signal: object) -> None:
        self._sigterm = True


def next_commands(args: TrainArgs) -> str:
    """The commands that evaluate the policy of a finished run, on other tasks, and show its numbers."""
    out = shlex.quote(str(args.out))
    lines = [f"the trained model is in {args.out}/last/policy; next:"]
    if isinstance(args, PlayArgs):
        options = [f"--env {args.env}", f"--policy {shlex.quote(f'hf:{args.out}/last/policy')}"]
        env_args = evaluation_args(args.env, args.env_args, args.eval_env_args)
        if REQUIRED in env_args.values():
            lines = [lines[0].replace("next:", "next, with tasks that it has not trained on in place of …:")]
        if env_args:
            given = (shell_form(Parameter(name, Any, value)) for name, value in env_args.items())
            options.append(f"--env-args {' '.join(given)}")
        if args.stop:
            options.append(f"--stop {shlex.join(args.stop)}")
        options.append(f"--max-new-tokens {args.max_new_tokens}")
        options.append(f"--out {shlex.quote(f'{args.out}/evaluation')}")
        lines.append("  memenvs evaluate run " + " \\\n      ".join(options))
        if args.save_episodes:
            lines.append(f"  memenvs view {out}")
    return "\n".join([*lines, f"  memenvs view {out} --curves", ""])


def evaluation_args(env: str, trained: Mapping[str, Any], evaluated: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an environment with tasks that a run has not trained on.

    Args:
        env: its id.
        trained: its arguments in training.
        evaluated: those that differ in the run's evaluations; without any, the tasks that were set aside
            (`memenvs build --holdout`), or the other split of what ships.

    Returns:
        The arguments; `tasks` or `levels` is `REQUIRED` where other tasks are not known here.
    """
    known = {parameter.name: parameter.default for parameter in env_parameters(env) or ()} | {**trained}
    if not evaluated and "tasks" in known:
        learned = str(known["tasks"]).rstrip("/")
        others = [
            name for name in (f"{learned}{HOLDOUT}", re.sub("-train$", "-test", learned)) if name != learned
        ]
        is_set = [name in bundled_names() or (Path(name) / CARD).is_file() for name in others]
        evaluated = {"tasks": next(itertools.compress(others, is_set), REQUIRED)}
    elif not evaluated and known.get("level_split") == "train":
        evaluated = {"levels": REQUIRED} if "levels" in trained else {"level_split": "test"}
    return {**trained, **evaluated}


def group_seeds(seed: int, step: int, part: int, count: int) -> list[int]:
    """Seeds of `count` groups of a step's part."""
    words = np.random.SeedSequence([seed, step, part]).generate_state(count, np.uint64)
    return [int(value >> np.uint64(1)) for value in words]


def shuffled_batches(
    items: Sequence[T], batch_size: int, epochs: int, seed: int, *, shuffle: bool = True
) -> list[list[T]]:
    """The items in batches, `epochs` times, in another order each time if they are shuffled."""
    batches = []
    for number in range(epochs):
        rng = np.random.default_rng([seed, 0, 3, number])
        order = rng.permutation(len(items)).tolist() if shuffle else list(range(len(items)))
        batches += [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    return [[items[i] for i in batch] for batch in batches]


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over valid episodes: return, tokens, every metric; and counts of what failed or was truncated.

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
    has_penalty = any(episode.length_penalty for episode in played)
    values = defaultdict[str, list[float]](list)
    for episode in played:
        row = {
            **episode.metrics,
            **{f"rewards/{name}": value for name, value in episode.rewards.items()},
            **{f"signals/{name}": float(np.mean(some)) for name, some in episode.measured.items()},
            "return": math.nan if episode.lacks_score else sum(episode.turn_rewards),
            "outcome": episode.outcome,
            "reply_tokens": episode.tokens,
            **({"length_penalty": episode.length_penalty} if has_penalty else {}),
        }
        for name, value in row.items():
            if not math.isnan(value):
                values[name].append(value)
    metrics |= {name: float(np.mean(some)) for name, some in values.items()}
    for name in dict.fromkeys(name for episode in played for name in episode.measured):
        of_turns = [value for episode in played for value in episode.measured.get(name, ())]
        metrics[f"signals/{name}_std"] = float(np.std(of_turns))
    return metrics


def evidence_in_memory(episode: Episode) -> dict[str, float]:
    """How much of the evidence a memory took and kept, as shares of words; empty without a memory.

    The words are those of the evidence and not of the question, with more than three letters or a digit.

    Returns:
        `evidence_taken`: the share of the words shown at a turn that are in the memory written at that turn,
        over all turns that showed any; missing if none did. `evidence_kept`: the share of all words that are
        in the last memory.
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


def checkpoint_gradients(model: Any) -> None:
    """Recompute activations; dropout stays off.

    Only the layers that are recomputed are in training mode, which transformers asks of them. Those that drop
    activations themselves, by a share of their own or of their config, get shares of 0; the model's config
    keeps what it says.
    """
    enable = getattr(model, "activation_checkpointing_enable", None)  # transformers 5.23; before, the other
    (enable or model.gradient_checkpointing_enable)()
    kind = require("transformers.modeling_layers", "train").GradientCheckpointingLayer
    for module in model.modules():
        module.training = isinstance(module, kind)
        if module.training:
            if hasattr(module, "config"):
                module.config = copy.copy(module.config)
                drop_nothing(module.config)
            drop_nothing(module)


def drop_nothing(holder: Any) -> None:
    """Set the shares that a layer or a config drops to 0, such as `activation_dropout` and `resid_pdrop`."""
    for name, value in vars(holder).items():
        if "drop" in name and isinstance(value, float):
            setattr(holder, name, 0.0)
