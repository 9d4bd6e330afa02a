"""Flags of the learners: dataclasses that a command line and a recipe fill in."""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

import gymnasium as gym

from memenvs.baselines import losses
from memenvs.cli import USER_ERRORS, check_env_arguments, read_arguments, reader_may_stop, report_error
from memenvs.core.checks import Range, check_choice, check_numbers
from memenvs.core.env import TextEnv
from memenvs.core.optional import require
from memenvs.core.trackers import TrackerError, TrackerName
from memenvs.wrappers import Curriculum
from memenvs.wrappers.registry import read_methods

A = TypeVar("A")

RECIPES = Path(__file__).parent / "recipes"
"""Folder of the recipes that ship, one file for each setting of a paper."""
RESUMABLE = frozenset(
    "recipe out resume save_every keep device dtype gradient_checkpointing micro_batch_tokens num_envs "
    "save_episodes track sampler_args eval_every eval_episodes eval_env_args best_metric".split()
)
"""Flags that a resumed run may have different, beside its length: they change how it computes or reports.

Of `dtype` the checkpoint itself refuses another precision than its own, which "auto" may be elsewhere."""

Count = Annotated[int, Range(1)]
Whole = Annotated[int, Range(0)]
NonNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(0, 1)]
Beta = Annotated[float, Range(0, below=1)]


@dataclass
class TrainArgs:
    """Flags of every training, whatever it learns from."""

    LENGTH: ClassVar[str]
    """The flag that says how long a run is."""

    recipe: str = ""
    """File of flags, or the name of one that ships (docs/papers.md); the command line wins over it."""
    model: str = ""
    """Folder of a causal model, or its name on the hub."""
    out: Path = Path("runs/last")
    """Folder for checkpoints and logs."""
    resume: bool = False
    """Go on from the checkpoint in the folder."""
    save_every: Count = 50
    """Steps between checkpoints, OUT/checkpoints/step-N; the last one is also OUT/last."""
    keep: Count = 3
    """The last so many checkpoints are kept, and the best."""
    seed: Whole = 0
    """Seed of all random numbers."""
    device: str | None = None
    """Device of torch; by default a GPU if there is one."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Precision of the models: the checkpoint's where the device computes fast in it, or this one. In
    bfloat16 the optimizer keeps float32 master weights."""
    lora_rank: Whole = 0
    """Train a LoRA adapter of this rank in the place of the weights; 0: none, or that of a model's folder."""
    lora_alpha: Positive | None = None
    """The adapter's change is scaled by alpha / rank; by default alpha is twice the rank."""
    lora_targets: tuple[str, ...] = ("all-linear",)
    """Layers that get an adapter, such as q_proj v_proj; by default all linear ones but the lm_head."""
    gradient_checkpointing: bool = False
    """Compute activations again instead of keeping them."""
    micro_batch_tokens: Count = 8192
    """Most tokens of a forward pass, padding included; bounds memory."""
    lr: NonNegative = 1e-6
    """Learning rate (AdamW)."""
    lr_warmup: NonNegative = 0
    """Steps over which the learning rate rises to it; below 1 a share of all steps."""
    lr_end: Share = 1.0
    """The share of the learning rates that the last step has; from the end of their rise they fall to it
    linearly."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Decay rates of the mean gradient and of its square (AdamW)."""
    weight_decay: NonNegative = 0.0
    """Weight decay (AdamW)."""
    max_grad_norm: Positive = 1.0
    """A gradient of a larger norm is scaled down to this."""
    chat: bool | None = None
    """Put prompts into the chat template; by default where the tokenizer has one."""
    chat_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the chat template: enable_thinking=false."""
    track: tuple[TrackerName, ...] = ("tensorboard",)
    """Trackers that get the numbers of log.jsonl too (docs/learners.md); `--track` alone is none."""

    def check(self) -> None:
        """Refuse flags that are out of range, contradict each other or would do nothing.

        It loads nothing.

        Raises:
            ValueError: with the flags and their values.
        """
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            given = getattr(self, name)
            values = given if isinstance(given, tuple) else (given,)
            for bounds in _ranges(hint):
                for value in values:
                    if isinstance(value, int | float):
                        check_numbers(bounds, **{name: value})
        if not self.lora_rank and (self.lora_alpha is not None or self.lora_targets != ("all-linear",)):
            raise ValueError("lora_alpha and lora_targets are of a new adapter; give --lora-rank too")

    def plain(self) -> dict[str, Any]:
        """Every flag by name, as a JSON file holds it."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return values

    @property
    def learner(self) -> str:
        """Name of the learner whose flags they are, that of its module."""
        module = sys.modules[type(self).__module__]  # its name is "__main__" where it is run by `python -m`
        return (module.__spec__.name if module.__spec__ else module.__name__).rpartition(".")[2]

    def warmup_steps(self, flag: str, steps: int) -> int:
        """Steps of a warm-up in a run of so many steps; a share of them is rounded down.

        Args:
            flag: `"lr_warmup"` or `"critic_lr_warmup"`.
            steps: of the run.

        Raises:
            ValueError: the flag is no whole number, or longer than the run.
        """
        value = float(getattr(self, flag))
        if value >= 1 and not value.is_integer():
            raise ValueError(f"{flag} must be a whole number of steps, or a share below 1, got {value!r}")
        if value > steps:
            raise ValueError(f"{flag} must be at most the {steps} steps of the run, got {value:g}")
        return int(value * steps) if value < 1 else int(value)

    @property
    def resumable(self) -> frozenset[str]:
        """The flags that a resumed run may have different.

        Where the learning rate's course depends on the length of the run, that is none of them.
        """
        shares = [getattr(self, name, 0.0) for name in ("lr_warmup", "critic_lr_warmup")]
        depends = self.lr_end < 1 or any(0 < share < 1 for share in shares)
        return RESUMABLE if depends else RESUMABLE | {self.LENGTH}


@dataclass
class RunArgs(TrainArgs):
    """Flags of every learner that trains a policy."""

    env: str = "MemSokoban-v0"
    """Id of the environment."""
    env_args: dict[str, Any] = field(default_factory=dict)
    """Its arguments: max_turns=2 level_split=test, or one JSON object (`python -m memenvs list ID`)."""
    num_envs: Count = 128
    """Environments played at once, a multiple of the group size."""
    max_new_tokens: Count = 512
    """Most tokens of a reply."""
    sampler: Literal["hf", "vllm"] = "hf"
    """Engine that samples: the model in training itself, or vLLM with a copy of its weights."""
    sampler_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of vllm.LLM: gpu_memory_utilization=0.4."""
    temperature: NonNegative = 1.0
    """Temperature of sampling and of all log-probabilities."""
    stop: tuple[str, ...] = ()
    """Strings that end a reply."""
    eval_every: Whole = 0
    """Steps between evaluations; 0 for none."""
    eval_episodes: Count = 128
    """Episodes of an evaluation, one of each of so many tasks, the same every time."""
    eval_env_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment that differ in evaluations: level_split=test."""
    save_episodes: Whole = 0
    """Write so many episodes of every step, and of every evaluation, to OUT/episodes.jsonl, whole: what was
    read and replied, what each turn and token earned (`python -m memenvs.view OUT`)."""
    best_metric: str | None = None
    """The evaluation's metric whose highest value, the earliest of equal ones, makes a checkpoint OUT/best;
    by default success."""


@dataclass
class BatchArgs(RunArgs):
    """Flags of how sampled replies are learned from, whatever the loss."""

    temperature: Positive = 1.0
    """Temperature of sampling and of all log-probabilities."""
    epochs: Count = 1
    """Passes over the episodes of a step."""
    minibatches: Count = 1
    """Optimizer steps a pass; groups stay together."""
    loss_agg_mode: losses.LossAggMode = "token-mean"
    """How the losses of tokens are averaged: each token weighs the same (DAPO), or each sequence (GRPO) …
    Where prompts are fresh, and on trees, a sequence is a turn."""
    horizon: Count | None = None
    """Tokens; "seq-mean-token-sum-norm" divides by them and by the number of sequences."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        if (self.loss_agg_mode == "seq-mean-token-sum-norm") != (self.horizon is not None):
            raise ValueError(
                f"horizon is what loss_agg_mode seq-mean-token-sum-norm divides by: give both or none, got "
                f"loss_agg_mode {self.loss_agg_mode} and horizon {self.horizon!r}"
            )


@dataclass
class UpdateArgs(BatchArgs):
    """Flags of an update by advantages (`update`)."""

    clip: Annotated[float, Range(above=0, below=1)] = 0.2
    """The ratio of probabilities is clipped below 1 - clip."""
    clip_high: Positive | None = None
    """… and above 1 + clip_high (DAPO's clip-higher); equal to clip by default."""
    dual_clip: Annotated[float, Range(above=1)] | None = None
    """Bound c > 1 on the loss of negative advantages; off by default."""
    kl_coef: NonNegative = 0.0
    """Weight of the divergence from the reference model; 0 loads none."""
    kl_estimator: losses.KLEstimator = "k3"
    """Estimator of this divergence (Schulman, 2020)."""
    entropy_coef: NonNegative = 0.0
    """Weight of the entropy bonus."""

    @property
    def kl_in_loss(self) -> bool:
        """Whether the divergence from the reference model is a part of the loss, not of the reward."""
        return True

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        if self.kl_coef and self.kl_estimator == "k1" and self.kl_in_loss:
            raise ValueError(
                "kl_estimator k1 has a mean gradient of 0 as a loss; "
                "give k3, k2 or abs, or to mt_ppo --kl-in reward"
            )


@dataclass
class StepArgs(RunArgs):
    """Flags of a run that plays tasks anew at every step."""

    LENGTH: ClassVar[str] = "steps"

    steps: Count = 100
    """Training steps."""
    groups: Count = 16
    """Tasks a step."""
    group_size: Count = 8
    """G, episodes of a task."""
    curriculum: dict[str, Any] = field(default_factory=dict)
    """Draw tasks by levels of difficulty, and move on by the mean of a metric: by=hops metric=success
    threshold=0.8 window=64 (tasks of `build mix`)."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        if self.num_envs % self.group_size:
            raise ValueError(
                f"num_envs must be a multiple of group_size {self.group_size}, got {self.num_envs}"
            )
        self.warmup_steps("lr_warmup", self.steps)
        known = tuple(inspect.signature(Curriculum).parameters)[1:]  # the task set is the environment's
        for name in self.curriculum:
            check_choice("a setting of curriculum", name, known)


@dataclass
class RolloutArgs(StepArgs, UpdateArgs):
    """Flags of a run that learns from the rewards of its own rollouts."""

    methods: str = "[]"
    """Reward methods around the environment, as JSON: '["SearchRewards", ["Judge", {"url": …}]]'."""
    scorer: str = "policy"
    """Model that scores for them: the policy in training, or a fixed one ("hf:MODEL", "lexical")."""
    ref_model: str = ""
    """Reference model of kl_coef; by default the model that the run began with."""

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        if self.ref_model and not self.kl_coef:
            raise ValueError(f"ref_model {self.ref_model!r} is what kl_coef pulls to; give --kl-coef too")
        read_methods([self.methods])


@dataclass
class PPOArgs(RolloutArgs):
    """Flags of a learner with a critic."""

    critic: Literal["separate", "shared"] = "separate"
    """A second model, begun as the first, which doubles the memory of training; or a linear layer on the
    policy's own hidden states, where large rewards need a small value_coef."""
    critic_lr: NonNegative | None = None
    """Learning rate of the critic (AdamW), of the linear layer alone where it is shared; by default ten times
    lr, as MT-PPO's 1e-5 beside 1e-6."""
    critic_lr_warmup: NonNegative = 0
    """As lr_warmup, of the critic."""
    critic_warmup: Whole = 0
    """First steps, in which the critic alone learns."""
    value_coef: Positive = 0.5
    """Weight of the critic's loss: beside the policy's where it is shared, before clipping where separate."""
    value_clip: Positive | None = None
    """The critic's step from its old values is cut to this; off by default."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where kl_coef weighs the divergence: in the loss, or taken off each token's reward."""

    @property
    def kl_in_loss(self) -> bool:
        """Whether the divergence from the reference model is a part of the loss, not of the reward."""
        return self.kl_in == "loss"

    def check(self) -> None:
        """See `RunArgs.check`."""
        super().check()
        self.warmup_steps("critic_lr_warmup", self.steps)
        if self.critic_warmup >= self.steps:
            raise ValueError(
                f"critic_warmup must be below steps {self.steps}, or the policy never learns, "
                f"got {self.critic_warmup}"
            )
        if self.kl_in == "reward" and not self.kl_coef:
            raise ValueError("kl_in reward says where kl_coef counts; give --kl-coef too")


def run_command(
    kind: type[Any],
    prepare: Callable[[Any], Any],
    train: Callable[[Any, Any], None],
    argv: Sequence[str] | None,
    name: str,
) -> int:
    """Read the flags of a learner, prepare its run and train.

    Args:
        kind: dataclass of the flags.
        prepare: makes the run of the flags.
        train: is given the run and the flags.
        argv: the command line; None: that of this process.
        name: module of the learner.

    Returns:
        The exit status: 2, and one line on standard error, for what is wrong before the training begins.
    """
    try:
        with reader_may_stop():
            args = read_args(kind, argv, name)
        run = prepare(args)
    except USER_ERRORS as error:
        return report_error(f"python -m {name}", error)
    try:
        train(run, args)
    except TrackerError as error:  # before the first step
        return report_error(f"python -m {name}", error)
    return 0


def read_args(kind: type[A], argv: Sequence[str] | None, name: str) -> A:
    """Flags as the fields of a dataclass; `--help` shows the line under each field.

    A field of type `dict[str, Any]` takes what `read_arguments` reads: `--env-args max_turns=2 tasks=FOLDER`.
    With `--recipe` the flags of a file are the defaults: one on the command line wins, wherever it stands. Of
    such a field it wins name by name, and `{}` leaves none.

    Raises:
        ValueError: there is no such recipe, or the NAME=VALUE of a field cannot be read.
        ImportError: tyro is not installed.
        SystemExit: tyro has shown the help, or said which flag cannot be read.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, prog=f"python -m {name}")
    parser.add_argument("--recipe", default="")
    recipe = parser.parse_known_args(given)[0].recipe
    if not recipe:
        return _parse(kind, given, prog=f"python -m {name}")
    flags = recipe_flags(recipe, kind, name.rpartition(".")[2])
    default = _parse(kind, flags, prog=f"recipe {recipe}")
    args = _parse(kind, given, prog=f"python -m {name}", default=default)
    for option in _named(kind):
        own = getattr(args, option)
        setattr(args, option, {**getattr(default, option), **own} if own else {})
    return args


def recipe_names() -> list[str]:
    """Names of the recipes that ship: one for each setting of a paper."""
    return sorted(path.stem for path in RECIPES.glob("*.txt"))


def recipe_flags(recipe: str, kind: type[Any], learner: str) -> list[str]:
    """The flags of a recipe: a line each, as a shell would read it, with `#` comments.

    Args:
        recipe: one of `recipe_names()`, or a file.
        kind: dataclass of the learner's flags.
        learner: its name, for the error.

    Raises:
        ValueError: there is no such recipe, or a line of it is no flag of this learner.
    """
    names = recipe_names()
    path = RECIPES / f"{recipe}.txt" if recipe in names else Path(recipe)
    if not path.is_file():
        raise ValueError(f"no recipe {recipe!r}; give a file, or one of {', '.join(names)}")
    known = {f"--{option.name}".replace("_", "-") for option in fields(kind)} - {"--recipe"}
    known |= {flag.replace("--", "--no-", 1) for flag in known}
    found: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise ValueError(f"recipe {recipe}, line {number}: {error} in {line.strip()!r}") from error
        if words and words[0].partition("=")[0].replace("_", "-") not in known:
            raise ValueError(f"recipe {recipe}, line {number}: {learner} has no flag {words[0]!r}")
        found += words
    return found


def check_device(device: str | None) -> None:
    """Refuse a device that torch does not know, or has not here.

    Raises:
        ValueError: with the device.
    """
    torch = require("torch", "train")
    try:
        kind = torch.device(device or "cpu").type
    except RuntimeError as error:
        raise ValueError(f"device must be one of torch's, as cpu or cuda:0, got {device!r}") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r}, and torch finds no GPU here")


def check_env(args: RunArgs) -> None:
    """Make the run's environments once, training's and evaluation's, before a model is loaded for wrong ones.

    Raises:
        ValueError: an argument that it does not take, or that it refuses; or it is no environment of texts.
        gymnasium.error.Error: there is no such environment.
    """
    for different in ({}, args.eval_env_args):
        options = {**args.env_args, **different}
        check_env_arguments(args.env, options)
        made: gym.Env[Any, Any] = gym.make(args.env, disable_env_checker=True, **options)
        if not isinstance(made.unwrapped, TextEnv):
            raise ValueError(f"env must be an environment of texts, as MemSokoban-v0, got {args.env!r}")
        made.close()


def _ranges(hint: Any) -> Iterator[Range]:
    """The ranges in a type, wherever in it they stand."""
    yield from (part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Range))
    for part in get_args(hint):
        yield from _ranges(part)


def _parse(kind: type[A], given: Sequence[str], **settings: Any) -> A:
    tyro = require("tyro", "train")
    count = Counter(text.partition("=")[0].replace("_", "-") for text in given)
    for option in _named(kind):
        flag = f"--{option}".replace("_", "-")
        if count[flag] > 1:  # tyro would take the last alone
            raise ValueError(
                f"{flag} is given {count[flag]} times; give it once: {flag} NAME=VALUE NAME=VALUE"
            )
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(functools.partial(_named_texts, tyro.constructors.PrimitiveConstructorSpec))
    with registry:
        args: A = tyro.cli(kind, args=list(given), **settings)
    for option in _named(kind):
        if isinstance(texts := getattr(args, option), list):
            setattr(args, option, read_arguments(texts, option))
    return args


def _named(kind: type[Any]) -> list[str]:
    """The fields whose values are arguments by name."""
    return [name for name, hint in get_type_hints(kind).items() if hint == dict[str, Any]]


def _named_texts(spec: Any, info: Any) -> Any:
    """How tyro reads a `dict[str, Any]`: as a list of its texts, which `_parse` reads afterwards."""
    if info.type != dict[str, Any]:
        return None
    return spec(
        nargs="*",
        metavar="NAME=VALUE",
        instance_from_str=list,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{name}={json.dumps(one)}" for name, one in value.items()],
    )
