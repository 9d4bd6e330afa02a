"""A run comes in; its steps go out one by one, and what each has learned is written down and saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from memenvs.baselines import checkpoint
from memenvs.baselines.args import (
    PPOArgs,
    RunArgs,
    TrainingArgs,
    check_device,
    check_env,
    check_ranges,
    check_training,
    free_flags,
    read_json,
    warmup_steps,
)
from memenvs.baselines.distributed import World
from memenvs.baselines.measure import precision
from memenvs.baselines.rollout import Clock, collect
from memenvs.core.optional import require
from memenvs.core.vector import TextVectorEnv
from memenvs.models import policy as policies
from memenvs.models.policy import Policy
from memenvs.rollout.records import Episode, valid
from memenvs.wrappers import RewardWrapper, VectorRewardWrapper
from memenvs.wrappers.registry import make_methods
from memenvs.wrappers.scorers import HFScorer, Scorer, ScoreRequest, TokenScores

if TYPE_CHECKING:
    from memenvs.models.policy import HFPolicy, VLLMPolicy

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from memenvs.core.files import naming, write_json, write_text


def summary(episodes: Sequence[Episode]) -> dict[str, float]:
    """Means over valid episodes: return, tokens, every metric; and how many failed or were cut.

    A component of the reward is `rewards/NAME`, its mean sum over an episode; what a method measures is
    `signals/NAME`, its mean over an episode's turns (TAMTRL's p_t, InfoMem's gain). Both leave out episodes
    that have none.
    """
    played = valid(episodes)
    numbers: dict[str, float] = {
        "failed": sum(episode.end == "failed" for episode in episodes),
        "truncated_replies": sum(episode.truncated_replies for episode in episodes),
        "overlong_prompts": sum(episode.overlong_prompts for episode in episodes),
    }
    if not played:
        return numbers
    numbers["return"] = float(np.mean([sum(episode.turn_rewards) for episode in played]))
    numbers["outcome"] = float(np.mean([episode.outcome for episode in played]))
    if any(episode.length_penalty for episode in played):
        numbers["length_penalty"] = float(np.mean([episode.length_penalty for episode in played]))
    numbers["reply_tokens"] = float(np.mean([episode.tokens for episode in played]))
    for name in played[0].metrics:
        numbers.setdefault(name, float(np.mean([episode.metrics[name] for episode in played])))
    for kind, field_name in (("rewards", "rewards"), ("signals", "signal_means")):
        named: dict[str, list[float]] = {}
        for episode in played:
            for name, value in getattr(episode, field_name).items():
                if not math.isnan(value):
                    named.setdefault(f"{kind}/{name}", []).append(value)
        numbers |= {name: float(np.mean(values)) for name, values in named.items()}
    return numbers


def overlong_warning(count: float, window: int | None) -> str:
    """What to tell who trains on prompts that leave no room for a reply.

    Args:
        count: of them.
        window: of the model, tokens.
    """
    room = "the model's window" if window is None else f"the model's window of {window:,} tokens"
    return (
        f"{count:g} prompts left no room for a reply in {room} and were answered by an empty one: shorten "
        "them by --env-args (such as chunk_size, max_memory, k, max_turns), or take a model with a longer one"
    )


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(7.6), duration(250), duration(8000)
    ('8 s', '4 min 10 s', '2 h 13 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def timings(clock: Clock, seconds: float, tokens: int) -> dict[str, float]:
    """Seconds of a step by their kind, and tokens a second of those that were sampled in it."""
    parts = dict(clock.seconds)
    parts["environment"] = parts.get("environment", 0.0) - parts.get("scoring", 0.0)
    told = {f"seconds_{name}": value for name, value in parts.items()}
    return {**told, "seconds": seconds, "tokens_per_second": tokens / seconds}


class Timed:
    """A scorer that knows how many seconds it took.

    Args:
        scorer: does the work.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer, self.clock = scorer, Clock()

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """See `Scorer.logprobs`."""
        scores: list[TokenScores] = self.clock.run("scoring", self._scorer.logprobs, requests)
        return scores


class Run:
    """A policy in training, its optimizer, its checkpoints and its evaluations.

    Attributes:
        step: steps done.
        best: the best evaluation so far.
        critic: the policy itself where the critic is a part of it; None without one.

    Args:
        args: of the run.
        world: the processes.

    Raises:
        ValueError: arguments that do not fit each other, or a folder that holds a run already.
        FileNotFoundError: there is no such model.
    """

    def __init__(self, args: RunArgs, world: World) -> None:
        check_ranges(args)
        if not args.model:
            raise ValueError("no model is given; add --model with a folder or a name on the hub")
        if args.best_metric and not args.eval_every:
            raise ValueError(f"best_metric {args.best_metric!r} is of evaluations; give --eval-every too")
        check_device(args.device)
        check_env(args)
        found = checkpoint.find(args.out)
        if found and not args.resume:
            raise ValueError(f"{args.out} holds a run; add --resume, or give another --out")
        if found and (other := checkpoint.differences(found, asdict(args), free_flags(args))):
            raise ValueError(f"{args.out} was begun with {other[0]}; resume with the same, or begin anew")
        self.args, self.world, self.step = args, world, 0
        self.best: checkpoint.Best | None = None
        self._eval_venv = self._make_eval_venv() if args.eval_every else None
        critic = args.critic if isinstance(args, PPOArgs) else ""
        self.policy = self._load(args.model, value_head=critic == "shared")
        self.critic = self.policy if critic == "shared" else None
        self._models = {"policy": self.policy}
        if critic == "separate":
            self.critic = self._models["critic"] = self._load(args.model, value_head=True)
        if args.gradient_checkpointing:
            for model in self._models.values():
                _checkpoint_gradients(model.model)
        self.optimizer = self._make_optimizer()
        self._engine = self._start_engine()
        self.sampler: Policy = self._engine or self.policy
        self.restore()

    def restore(self) -> None:
        """Go on from the checkpoint, if there is one."""
        found = checkpoint.find(self.args.out)
        if found:
            self.step, self.best = checkpoint.restore(found, self._models, self.optimizer)
            if self.best and self.best.measured != self._measured:
                self.best = None
            self.refresh_sampler()

    def begin_again(self) -> None:
        """Take back the weights that the run began with."""
        if checkpoint.find(self.args.out):
            self.policy.take_weights(self._load(self.args.model))
            self.refresh_sampler()

    def make_venv(self, different: dict[str, Any] | None = None) -> TextVectorEnv:
        """The run's environments, with some arguments different."""
        options = {**self.args.env_args, **(different or {})}
        return TextVectorEnv(
            self.args.env, self.args.num_envs, autoreset_mode="Disabled", errors="truncate", **options
        )

    def play(self, venv: Any, seeds: Sequence[int], group_size: int, clock: Clock) -> list[Episode]:
        """The episodes of groups, dealt to all processes, in the groups' order."""
        limit = self.args.max_new_tokens
        with precision(self.policy, self.args):
            mine = collect(
                venv, self.sampler, self.world.share(seeds), group_size, max_new_tokens=limit, clock=clock
            )
        order = {seed: number for number, seed in enumerate(seeds)}
        return sorted(self.world.gather(mine), key=lambda episode: order[episode.group])

    def refresh_sampler(self) -> None:
        """Let the engine that samples, if there is one, take over the weights of the policy."""
        if self._engine is not None:
            self._engine.load_weights(self.policy)

    def set_rate(self, step: int, last: int) -> None:
        """Set the learning rates of a step of a run with so many steps."""
        for group in self.optimizer.param_groups:
            rise = warmup_steps(self.args, f"{group['flag']}_warmup", last)
            group["lr"] = group["full_lr"] * min(1.0, step / max(rise, 1))

    def evaluate(self, step: int) -> dict[str, float]:
        """The metrics of fixed tasks, where this step is one to evaluate at."""
        if self._eval_venv is None or step % self.args.eval_every:
            return {}
        seeds = group_seeds(self.args.seed, 0, 1, self.args.eval_episodes)
        episodes = self.play(self._eval_venv, seeds, 1, Clock())
        return {f"eval_{name}": value for name, value in summary(episodes).items()}

    def is_best(self, step: int, evaluation: dict[str, float]) -> bool:
        """Whether a step's evaluation is better than all before it; then it is the best from now on.

        An evaluation of which nothing was played to its end is never the best.
        """
        value = evaluation.get(f"eval_{self._best_metric}", math.nan)
        if math.isnan(value) or (self.best is not None and value <= self.best.value):
            return False
        self.best = checkpoint.Best(step, value, self._measured)
        return True

    def save(self, step: int) -> None:
        """Write a checkpoint, by the first process."""
        self.step = step
        if self.world.first:
            args = asdict(self.args)
            checkpoint.save(
                self.args.out, self._models, self.optimizer, step, args, best=self.best, keep=self.args.keep
            )

    @property
    def _best_metric(self) -> str:
        return (self.args.best_metric or "success").removeprefix("eval_")

    @property
    def _measured(self) -> list[Any]:
        """What an evaluation's number is of."""
        args = self.args
        return [self._best_metric, args.eval_episodes, args.eval_env_args]

    def _make_eval_venv(self) -> TextVectorEnv:
        """The environments of evaluations.

        Raises:
            ValueError: they have no such metric as is to choose the best checkpoint.
        """
        venv = self.make_venv(self.args.eval_env_args)
        _, info = venv.envs[0].reset(seed=0)
        known = sorted({*info["metrics"], "outcome", "return"})
        if self._best_metric not in known:
            raise ValueError(
                f"best_metric must be one of {', '.join(known)} with {self.args.env}, "
                f"got {self.args.best_metric!r}"
            )
        return venv

    def _make_optimizer(self) -> Any:
        """AdamW over the policy and, with a learning rate of its own, the critic."""
        args = self.args
        groups = [{"params": self.policy.model_parameters(), "full_lr": args.lr, "flag": "lr"}]
        if isinstance(args, PPOArgs) and self.critic is not None:
            own = self.critic.critic_parameters(shared=self.critic is self.policy)
            rate = 10 * args.lr if args.critic_lr is None else args.critic_lr
            groups.append({"params": own, "full_lr": rate, "flag": "critic_lr"})
        adamw = require("torch", "train").optim.AdamW
        return adamw(groups, lr=args.lr, betas=args.betas, weight_decay=args.weight_decay)

    def _start_engine(self) -> VLLMPolicy | None:
        args = self.args
        engine = {"dtype": "bfloat16" if args.bf16 else "float32"} | args.sampler_args
        if args.sampler == "hf":
            return None
        if self.world.size > 1:
            raise ValueError("sampler vllm works in one process; use --sampler hf with several")
        return policies.VLLMPolicy(
            args.model,
            temperature=args.temperature,
            stop=args.stop,
            chat=args.chat,
            chat_args=args.chat_args,
            engine=engine,
        )

    def _load(self, model: str, *, value_head: bool = False) -> HFPolicy:
        args = self.args
        return policies.HFPolicy(
            model,
            temperature=args.temperature,
            stop=args.stop,
            chat=args.chat,
            chat_args=args.chat_args,
            value_head=value_head,
            device=self.world.device,
            dtype="float32",
            seed=args.seed,
        )


def _checkpoint_gradients(model: Any) -> None:
    """Keep no activations. Only layers that look for training mode to do so are in it: dropout stays off."""
    enable = getattr(model, "activation_checkpointing_enable", None)  # transformers 5.23; before, the other
    (enable or model.gradient_checkpointing_enable)()
    for module in model.modules():
        module.training = bool(getattr(module, "gradient_checkpointing", False))


def group_seeds(seed: int, step: int, part: int, count: int) -> list[int]:
    """Seeds of `count` groups of a step's part."""
    drawn = np.random.SeedSequence([seed, step, part]).generate_state(count, np.uint64)
    return [int(value >> np.uint64(1)) for value in drawn]


SHOWN = ("return", "success", "kl_old", "kl_ref", "entropy", "eval_success", "tokens_per_second")


class Training(Run):
    """A run that learns from its own rollouts.

    Args:
        args: of the run.
        world: the processes.
        methods: reward methods that the learner itself needs, beside those of the arguments.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    args: TrainingArgs

    def __init__(self, args: TrainingArgs, world: World, methods: Sequence[Any] = ()) -> None:
        check_ranges(args)
        check_training(args)
        named = read_json("methods", args.methods, list)
        if named:
            make_methods(named)  # so that no model is loaded for a wrong one
        super().__init__(args, world)
        self.reference = self._load(args.reference or args.model) if args.kl_coef else None
        self._scorer: Timed | None = None
        self._tree_env: gym.Env[Any, Any] | None = None
        self.venv = self._with_methods([*named, *methods])

    def rollouts(self, step: int, clock: Clock, part: int = 0) -> list[Episode]:
        """The episodes of a step, of all processes, in the order of their groups.

        Args:
            step: number of it.
            clock: counts the seconds.
            part: number of the batch of tasks within the step.
        """
        if self._scorer:
            self._scorer.clock = clock
        # Part 1 of step 0 is what evaluations play.
        seeds = group_seeds(self.args.seed, step, part, self.args.groups)
        return self.play(self.venv, seeds, self.args.group_size, clock)

    def tree_env(self) -> gym.Env[Any, Any]:
        """One environment with the run's methods, for trees; made once."""
        if self._tree_env is None:
            env: gym.Env[Any, Any] = gym.make(self.args.env, disable_env_checker=True, **self.args.env_args)
            methods = read_json("methods", self.args.methods, list)
            scorer = None if self.args.scorer == "policy" else self.args.scorer
            self._tree_env = RewardWrapper(env, methods, scorer) if methods else env
        return self._tree_env

    def _with_methods(self, methods: list[Any]) -> Any:
        venv = self.make_venv()
        if not methods:
            return venv
        policy, own = self.policy, self.args.scorer == "policy"
        scorer: Any = HFScorer(policy.model, policy.tokenizer) if own else self.args.scorer
        template = policy.template if own else None
        host = VectorRewardWrapper(venv, methods, scorer, self.args.group_size, template)
        if host.scorer is not None:
            host.scorer = self._scorer = Timed(host.scorer)
        host.reset(seed=0)  # a method that this environment cannot serve says so here, not in a run
        return host


class Journal:
    """Writes `log.jsonl`, TensorBoard's files in `tensorboard/`, and lines to the error stream.

    Args:
        folder: of the run.
        step: steps that a checkpoint holds; later lines, of a run that died behind it, are dropped.
        quiet: write nothing at all (a process that is not the first).
    """

    def __init__(self, folder: Path, step: int = 0, quiet: bool = False) -> None:
        self._quiet, self._file = quiet, folder / "log.jsonl"
        if quiet:
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_text(self._file, "".join(_lines_until(self._file, step)))
        board = require("torch.utils.tensorboard", "train")
        self._board = board.SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Write the numbers of a step, by name, to the files."""
        if self._quiet:
            return
        line = {"step": step, "time": round(time.time(), 3), **{k: _rounded(v) for k, v in numbers.items()}}
        with naming(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)

    def show(self, line: str) -> None:
        """Write a line to the error stream."""
        if not self._quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Flush everything."""
        if not self._quiet:
            self._board.close()


def _lines_until(file: Path, step: int) -> list[str]:
    """The lines of steps up to `step`; a torn last line is dropped."""
    kept = []
    for line in file.read_text().splitlines(keepends=True) if file.exists() else ():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except ValueError:
            continue
    return kept


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


TROUBLES = ("failed", "overlong_prompts", "eval_failed", "eval_overlong_prompts", "skipped", "nonfinite")
"""Counts that a line shows where they are not 0."""


class Steps:
    """The steps that a run has left; SIGTERM ends it after its step, saved.

    To be iterated inside its own `with`. Each step has its learning rate set when it begins, and is to be
    ended by `end`.

    Args:
        run: goes on from the steps that it has done.
        last: number of the last step, from 1.
        show: the names of the numbers to print; counts of what went wrong are printed where they are not 0.
    """

    def __init__(self, run: Run, last: int, show: tuple[str, ...]) -> None:
        self._run, self._last, self._show = run, last, show
        self._journal = Journal(run.args.out, run.step, quiet=not run.world.first)
        if run.world.first:  # every flag as it stands, and the recipe that it came from
            flags = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(run.args).items()}
            write_json(run.args.out / "args.json", flags)
        self._step, self._asked, self._stopping = run.step, False, False
        self._before: Any = None
        self._began, self._first, self._warned = time.perf_counter(), run.step, False

    def __enter__(self) -> Steps:
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __iter__(self) -> Iterator[int]:
        while self._step < self._last and not self._stopping:
            self._step += 1
            self._run.set_rate(self._step, self._last)
            yield self._step

    def end(self, numbers: dict[str, float]) -> None:
        """Evaluate and save where it is time to, and write the step's numbers down."""
        run, step = self._run, self._step
        self._stopping = run.world.any(self._asked)
        evaluation = {} if self._stopping else run.evaluate(step)
        self._report({**numbers, **evaluation})
        best = run.is_best(step, evaluation)
        if best or step % run.args.save_every == 0 or step == self._last or self._stopping:
            run.save(step)

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self._journal.close()
        if kind is None:  # the other processes are not waited for by one that has failed
            self._run.world.close()

    def _report(self, numbers: dict[str, float]) -> None:
        """Write a step's numbers down, show its line, and say once what is wrong with the prompts."""
        step, journal = self._step, self._journal
        journal.write(step, numbers)
        names = [name for name in self._show if name in numbers]
        names += [name for name in TROUBLES if numbers.get(name)]
        shown = "  ".join(f"{name} {numbers[name]:.4g}" for name in names)
        pace = (time.perf_counter() - self._began) / (step - self._first)
        left = duration(pace * (self._last - step))
        journal.show(f"step {step}/{self._last}  {shown}  {pace:.1f} s a step, {left} left")
        overlong = numbers.get("overlong_prompts", 0) + numbers.get("eval_overlong_prompts", 0)
        if overlong and not self._warned:
            self._warned = True
            journal.show(f"warning: {overlong_warning(overlong, self._run.policy.window)}")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
