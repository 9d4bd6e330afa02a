"""A run of a learner: its model, optimizer, steps, checkpoints and log."""

from __future__ import annotations

import contextlib
import copy
import datetime
import math
import shlex
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from memenvs import models
from memenvs.baselines.args import LEARNERS, TrainArgs
from memenvs.baselines.checkpoint import Checkpoints, TrainingLog
from memenvs.baselines.metrics import summary
from memenvs.baselines.optimizer import apply_gradients, make_optimizer, set_rates
from memenvs.baselines.processes import ProcessGroup
from memenvs.core.arguments import check_arguments, parameters_of
from memenvs.core.episode import Episode, valid
from memenvs.core.files import ARGS, hold_folder, write_json
from memenvs.core.progress import progress
from memenvs.core.terminal import RED, RESET, YELLOW, show
from memenvs.core.trackers import check_clients
from memenvs.models.hf import HFPolicy
from memenvs.rollout.collect import Timer

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
    "sampling": "sampling episodes",
    "scoring": "scoring replies for the reward methods",
    "log_probs": "computing log-probabilities",
    "update": "updating the weights",
}
"""What the first step of a run prints about its parts."""
PATIENCE = 3
"""Steps in a row that teach nothing, after which a run says so."""


class StepTimer(Timer):
    """Seconds of the parts of a step; calls `say`, if it is set, with the name of each part as it begins."""

    say: Callable[[str], None] | None = None

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time inside a `with`."""
        if self.say and name in WORK and name not in self.seconds:
            self.say(name)
        with super().__call__(name):
            yield


class Run:
    """A model in training, its optimizer, and the steps of the training.

        for step in run.steps(args.steps):
            …
            run.end({"loss": 0.5}, tokens=1234)

    A learner that plays begins with `memenvs.baselines.rollout.PlayRun`, another one with this class.

    Attributes:
        step: steps done.
        best: `step` and `value`, the success, of the best evaluation so far; None before the first.
        timer: counts the seconds of the parts of a step.
        policy: the model in training.
        models: all models in training, by the names of their folders; one is `"policy"`.
        drawn: tasks drawn so far.
        release: lets another run have the folder.

    Args:
        args: the run's arguments.
        processes: processes that train together; None: those that were launched.

    Raises:
        ValueError: arguments do not fit each other, the folder already holds a run, or another run is writing
            to it.
        FileNotFoundError: there is no such model.
    """

    args: TrainArgs

    def __init__(self, args: TrainArgs, processes: ProcessGroup | None = None) -> None:
        args.check()
        self.args, self.processes = args, processes or ProcessGroup()
        self.step, self.timer, self.drawn = 0, StepTimer(), 0
        self.best: dict[str, Any] | None = None
        settings = [p for p in parameters_of(torch.optim.AdamW) or () if p.name not in ("params", "lr")]
        check_arguments("--adamw", args.adamw, settings)
        self.open_data()
        self._checkpoints = Checkpoints(args.out, args.keep)
        if (begun := self._checkpoints.newest_args) is not None:
            if not args.resume:
                raise ValueError(f"{args.out} holds a run; add --resume, or give another --out")
            args.check_begun(begun)
        self.release: Callable[[], object] = lambda: None
        if self.processes.is_main:
            check_clients(args.track)
            # A run that is dropped before its first step releases the folder too.
            self.release = weakref.finalize(self, hold_folder(args.out).close)
        self.models = self.load_models()
        self.policy = self.models["policy"]
        if args.gradient_checkpointing:
            for model in self.models.values():
                checkpoint_gradients(model.model)
        self.optimizer = make_optimizer(
            self.parameter_groups(), lr=args.lr, **{"weight_decay": 0.0, **args.adamw}
        )
        self.restore()

    # What a learner may have of its own.

    def open_data(self) -> None:
        """Open what the run learns from, so that an error comes before a model is loaded."""

    def load_models(self) -> dict[str, HFPolicy]:
        """Load the models in training, by the names of their folders; one is `"policy"`."""
        return {"policy": self.load(self.args.model, adapt=True)}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups, each with `full_lr` and `warmup` (`set_rates`)."""
        return [{"params": self.policy.parameters(), "full_lr": self.args.lr, "warmup": self.args.lr_warmup}]

    def restore(self) -> None:
        """Load the newest checkpoint, if there is one."""
        if state := self._checkpoints.restore(self.models, self.optimizer):
            self.step, self.best, self.drawn = state["step"], state["best"], state["drawn"]
            if self.processes.is_main:
                self._checkpoints.finish(self.step, self.best)
            self.refresh_sampler()

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics `eval_NAME`; empty unless an evaluation is due at this step."""
        return {}

    def refresh_sampler(self) -> None:
        """Give the engine that samples the weights in training, if it has a copy of them."""

    def next_commands(self) -> list[str]:
        """Lines of the screen at the end of the run: the model, and what can be done with it."""
        out = self.args.out
        curves = f"  memenvs view {shlex.quote(str(out))} --curves"
        return [f"the trained model is in {out}/last/policy; next:", curves]

    # The steps.

    def steps(self, last: int) -> Iterator[int]:
        """The numbers of the remaining steps.

        Before a step the learning rates are set; `end` ends it. SIGTERM ends the loop after the current step,
        which is saved.

        Args:
            last: number of the last step, from 1.
        """
        args, is_main = self.args, self.processes.is_main
        self._first, self._last = self.step, last
        # None: a learner of the user's own, which `memenvs train --resume` cannot name
        learner = next((name for name, kind in LEARNERS.items() if isinstance(args, kind)), None)
        config = {"learner": learner, **args.plain()}
        self._log = TrainingLog(args.out, self.step, not is_main, args.track, config)
        if is_main:
            write_json(args.out / ARGS, config)
        if self.step:
            self._log.show(f"resuming after step {self.step}")
        self._sigterm, self._stopping, failed = False, False, True
        self._warned: set[str] = set()
        self._flat_steps, self._turns_paid = 0, False
        self._started = time.perf_counter()
        handler = signal.signal(signal.SIGTERM, self._on_sigterm)
        try:
            for step in range(self._first + 1, last + 1):
                self._step, self._step_started = step, time.perf_counter()
                self.set_rate(step, last)
                self.timer.seconds.clear()
                self.timer.say = self._say_work if step == self._first + 1 else None
                yield step
                if self._stopping:
                    break
            failed = False
        finally:
            signal.signal(signal.SIGTERM, handler)
            if not failed and is_main:
                show("\n".join([*self.next_commands(), ""]), sys.stderr, wrap=False)
            self._log.close(failed)
            self.release()
            if not failed:  # a failed process does not wait for the others
                self.processes.close()

    def end(self, metrics: dict[str, float], tokens: int, episodes: Sequence[Episode] = ()) -> None:
        """Refresh the sampler, log the step, and evaluate and save when they are due.

        Args:
            metrics: metrics of the step; the seconds of its parts are added.
            tokens: sampled in the step, or learned from, for `tokens_per_second`.
            episodes: played in the step; their `summary` is added, and the first failure is reported once.
        """
        step = self._step
        with self.timer("refresh"):
            self.refresh_sampler()
        seconds, parts = time.perf_counter() - self._step_started, dict(self.timer.seconds)
        if "environment" in parts:
            parts["environment"] -= parts.get("scoring", 0.0)
        metrics = (summary(episodes) if episodes else {}) | metrics
        metrics |= {f"seconds_{name}": value for name, value in parts.items()}
        metrics |= {"seconds": seconds, "tokens_per_second": tokens / seconds}
        if failed := [episode for episode in episodes if episode.end == "failed"]:
            count = f"{len(failed)} of {len(episodes)} episodes failed and are left out, the first: "
            self._warn_once("failed", count + failed[0].error)
        self._warn_of_nothing_to_learn(metrics, valid(episodes))
        self._stopping = self.processes.any(self._sigterm)
        if self._stopping:
            self.save(step)  # first: an evaluation may take longer than there is time
        evaluation = self.evaluate(step)
        success = evaluation.get("eval_success", math.nan)
        best = success > (self.best["value"] if self.best else -math.inf)  # False where all episodes failed
        if best:
            self.best = {"step": step, "value": success}
        self._report(metrics | evaluation)
        if best or step % self.args.save_every == 0 or step == self._last:
            self.save(step)

    def set_rate(self, step: int, last: int) -> None:
        """Set the learning rates of a step, in a run of `last` steps."""
        set_rates(self.optimizer, step, last, end=self.args.lr_end)

    def descend(
        self,
        items: Sequence[T],
        ids: Sequence[models.Ids],
        loss_of: Callable[[list[T]], torch.Tensor],
        count: int,
    ) -> dict[str, float]:
        """One optimizer step by a mean over the parts of training sequences, which all processes share.

        Args:
            items: the sequences.
            ids: tokens of each sequence.
            loss_of: the sum () of the loss over some of them.
            count: number of parts that the loss is the mean over, in all sequences.

        Returns:
            `loss`; `nonfinite` is 1 if no step was taken, since the loss or its gradient was not finite.
        """
        mine, total = self.processes.shard(range(len(items))), 0.0
        self.optimizer.zero_grad(set_to_none=True)
        parts = self.policy.micro_batches([ids[i] for i in mine], self.args.micro_batch_tokens)
        for part in progress(parts, len(parts), "micro-batches"):
            loss = loss_of([items[mine[i]] for i in part]) / count
            loss.backward()
            total += float(loss.detach())
        weights, finite = [self.policy.parameters()], math.isfinite(total)
        limit = self.args.max_grad_norm
        norms = apply_gradients(self.optimizer, weights, self.processes, max_norm=limit, finite=finite)
        metrics = {"loss": self.processes.sum(total)[0]} if norms else {}
        return {**metrics, "nonfinite": float(norms is None)}

    def save(self, step: int) -> None:
        """Write a checkpoint, in the first process."""
        self.step = step
        if self.processes.is_main:
            args = self.args.plain()
            self._checkpoints.save(self.models, self.optimizer, step, args, self.best, self.drawn)

    def load(self, model: str, *, value_head: bool = False, adapt: bool = False, **settings: Any) -> HFPolicy:
        """Load a model as the run's arguments say.

        Args:
            model: folder or name.
            value_head: give it a value head.
            adapt: put a new adapter on it, if `lora_rank` asks for one.
            settings: more settings of the model.
        """
        args, lora = self.args, None
        if adapt and args.lora_rank:
            lora = models.LoRA(args.lora_rank, seed=args.seed)
        settings = {"chat_settings": args.chat_settings, "device": self.processes.device, **settings}
        policy = HFPolicy(model, lora=lora, dtype=args.dtype, **settings)
        if policy.model.dtype == torch.float16:
            raise ValueError(
                f"{model} is in float16, in which gradients vanish; give --dtype bfloat16 or float32"
            )
        return policy.add_value_head(args.seed) if value_head else policy

    def _say_work(self, name: str) -> None:
        """Say what the first step does now, which may take minutes."""
        self._log.show(f"step {self._step}: {WORK[name]} …")

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
                f"{self.policy.window} tokens and were answered by an empty one: shorten them by --env-args "
                "(such as chunk_size, max_memory, k), or take a model with a longer window",
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
        by_turn = getattr(self.args, "reward", "") == "turn"
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
            self._log.show(f"{YELLOW}warning{RESET}: {text}", is_warning=True)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._sigterm = True


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


def split_by_task(tasks: Sequence[str], held_out: float, seed: int) -> tuple[list[int], list[int]]:
    """Of episodes, by their tasks, the places of those to learn from and of those that are held out.

    The seed chooses the tasks that are held out, at least one and not all.

    Raises:
        ValueError: the episodes are of fewer than two tasks.
    """
    different = sorted({*tasks})
    if len(different) < 2:
        raise ValueError(
            f"--episodes needs episodes of 2 tasks or more that ended without an error, got {len(tasks)} "
            f"of {len(different)}; record some by --save-episodes"
        )
    count = min(max(1, round(held_out * len(different))), len(different) - 1)
    chosen = np.random.default_rng([seed, 0, 4]).permutation(len(different))[:count]
    held = {different[i] for i in chosen.tolist()}
    parts: tuple[list[int], list[int]] = [], []
    for place, task in enumerate(tasks):
        parts[task in held].append(place)
    return parts


def checkpoint_gradients(model: torch.nn.Module) -> None:
    """Recompute activations; dropout stays off.

    Only the layers that are recomputed are in training mode, which transformers asks of them. Those that drop
    activations themselves, by a share of their own or of their config, get shares of 0; the model's config
    keeps what it says.
    """
    enable = getattr(model, "activation_checkpointing_enable", None)  # transformers 5.23; before, the other
    (enable or getattr(model, "gradient_checkpointing_enable"))()  # noqa: B009
    for module in model.modules():
        module.training = isinstance(module, GradientCheckpointingLayer)
        if module.training:
            if hasattr(module, "config"):
                module.config = copy.copy(module.config)
                drop_nothing(module.config)
            drop_nothing(module)


def drop_nothing(holder: object) -> None:
    """Set the shares that a layer or a config drops to 0, such as `activation_dropout` and `resid_pdrop`."""
    for name, value in vars(holder).items():
        if "drop" in name and isinstance(value, float):
            setattr(holder, name, 0.0)
