"""A run's arguments come in; its policy, optimizer, checkpoints and evaluations go out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from memenvs.baselines import checkpoint
from memenvs.baselines import policy as policies
from memenvs.baselines.episode import Episode
from memenvs.baselines.measure import precision
from memenvs.baselines.options import (
    PPOArgs,
    RunArgs,
    check_device,
    check_env,
    check_ranges,
    free_flags,
    warmup_steps,
)
from memenvs.baselines.policy import Policy
from memenvs.baselines.report import summary
from memenvs.baselines.rollout import Clock, collect
from memenvs.baselines.world import World
from memenvs.extras import require
from memenvs.vector import TextVectorEnv

if TYPE_CHECKING:
    from memenvs.baselines.policy import HFPolicy, VLLMPolicy


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
