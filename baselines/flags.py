"""Flags of the learners, which a command line and a recipe fill in."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from memenvs.core import data
from memenvs.core.arguments import parse
from memenvs.core.data import Count, NonNegative, Positive, Share, Whole
from memenvs.core.errors import USER_ERRORS
from memenvs.core.files import read_json
from memenvs.core.optional import require
from memenvs.core.terminal import reader_may_stop, report_error
from memenvs.core.text import prompts_hash, read_system_prompt
from memenvs.core.trackers import TrackerError, TrackerName
from memenvs.wrappers.registry import read_methods

A = TypeVar("A", bound="TrainArgs")
R = TypeVar("R")

LossAggMode = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
Divergence = Literal["forward", "reverse", "jsd"]
KLEstimator = Literal["k3", "k2"]
Clip = Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=2)]

RECIPES = Path(__file__).parent / "recipes"
"""Folder of the recipes that ship, one file for each setting of a paper."""
ARGS = "args.json"
"""File of a run with all its flags."""
LEARNERS = ("sft", "distill", "prm", "mt_ppo", "grpo")
"""The learners, each a module beside this one."""
RESUMABLE = frozenset(
    "recipe out resume save_every keep dtype gradient_checkpointing micro_batch_tokens num_envs "
    "save_episodes track vllm eval_every workers dry_run merge".split()
)
"""Flags that may differ when a run is resumed, besides its length: they change how it computes or logs.

A checkpoint refuses a `dtype` of another precision than its own, which "auto" can be on another machine."""


@dataclass
class TrainArgs:
    """Arguments of every training: what a run writes, its model, and how the model is optimized (AdamW)."""

    LENGTH: ClassVar[str]
    """The flag that says how long a run is."""
    FIRST: ClassVar[tuple[str, ...]] = ("model", "env", "env_args", "out")
    """The flags that help shows first, those that a learner has."""

    recipe: str = ""
    """File of flags, args.json of a run, or name of a bundled recipe (docs/papers.md); the command line
    overrides it."""
    out: Path = Path("runs/last")
    """Folder for checkpoints and logs."""
    resume: bool = False
    """Resume from the newest checkpoint in the folder, with the run's own flags (OUT/args.json); `memenvs
    train --resume --out OUT` finds the learner there too."""
    save_every: Count = 50
    """Steps between checkpoints (OUT/checkpoints/step-N); OUT/last links to the newest."""
    keep: Count = 3
    """Number of recent checkpoints to keep, besides the best."""
    seed: Whole = 0
    """Seed of all random numbers."""
    track: tuple[TrackerName, ...] = ("tensorboard",)
    """Trackers that also get the numbers of log.jsonl (docs/learners.md); a bare `--track` uses none."""

    model: str = ""
    """Folder of a causal model, its name on the hub, or a name of `memenvs list`: smollm2, smollm2-reader."""
    chat_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the chat template, such as enable_thinking=false."""
    split_special_tokens: bool = False
    """Encode control tokens that an observation spells as ordinary text, so that no passage and no memory can
    end a message or begin one."""
    system_prompt: str = ""
    """Text of a system message before every prompt of a chat, or a file with it; saved with the model."""
    lora_rank: Whole = 0
    """Train a new LoRA adapter of this rank instead of the weights; 0 adds none."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Precision of the models; auto is the checkpoint's own if the device computes fast in it. In bfloat16
    the optimizer keeps float32 master weights."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""
    micro_batch_tokens: Count = 8192
    """Maximum number of tokens in a forward pass, with padding; limits memory."""
    lr: NonNegative = 1e-6
    """Learning rate."""
    lr_warmup: NonNegative = 0.0
    """Steps over which the learning rate rises; if below 1, a share of all steps."""
    lr_end: Share = 1.0
    """Final learning rate as a fraction of the peak, reached linearly after the warm-up."""
    adamw: dict[str, Any] = field(default_factory=dict)
    """Other settings of torch.optim.AdamW, such as betas=[0.9,0.95] weight_decay=0.01 (by default 0)."""
    max_grad_norm: Positive = 1.0
    """A gradient of a larger norm is scaled down to this norm."""

    def check(self) -> None:
        """Check every flag against its annotation; learners add what an annotation cannot say.

        Raises:
            ValueError: a flag is out of range, or contradicts another, or no model is given.
        """
        if not self.model:
            raise ValueError("no model is given; add --model with a folder or a name on the hub")
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            if data.is_plain(hint):
                data.check(name, getattr(self, name), hint)

    @property
    def chat_settings(self) -> dict[str, Any]:
        """How prompts are encoded, as `HFPolicy` takes it."""
        return {
            "chat_args": self.chat_args,
            "split_special_tokens": self.split_special_tokens,
            "system_prompt": read_system_prompt(self.system_prompt),
        }

    @functools.cached_property
    def prompts(self) -> dict[str, str]:
        """Hashes of the prompts that arguments give, by what takes them."""
        takers = {name: getattr(self, name, {}) for name in ("env_args", "eval_env_args")}
        for method in read_methods(getattr(self, "methods", ())):
            if isinstance(method, list):
                takers[f"methods.{method[0]}"] = method[1]
        templates = {taker: arguments.get("template") for taker, arguments in takers.items()}
        hashes = {
            name: prompts_hash(prompt, f"{name} template") for name, prompt in templates.items() if prompt
        }
        if self.system_prompt:
            hashes["system_prompt"] = prompts_hash(self.system_prompt, "system_prompt")
        return hashes

    def plain(self) -> dict[str, Any]:
        """Every flag by name, and `prompts` where there are any, as a JSON file holds them."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return {**values, **({"prompts": self.prompts} if self.prompts else {})}

    def check_begun(self, begun: Mapping[str, Any]) -> None:
        """Refuse to continue a run that was begun with other flags, apart from `resumable`.

        Args:
            begun: the flags that it was begun with, as `plain` gives them. A flag that is newer than the run
                had its default.

        Raises:
            ValueError: a flag differs.
        """
        before = {**type(self)().plain(), **begun}
        for name, value in self.plain().items():
            if name not in self.resumable and before.get(name) != value:
                raise ValueError(
                    f"{self.out} was begun with {name} {before.get(name)!r}, now {value!r}; give the same "
                    "value, or another --out"
                )

    @property
    def resumable(self) -> frozenset[str]:
        """The flags that may differ when a run is resumed.

        The length of the run may differ too, unless the learning rate depends on it.
        """
        shares = [getattr(self, name, 0.0) for name in ("lr_warmup", "critic_lr_warmup")]
        depends = self.lr_end < 1 or any(0 < share < 1 for share in shares)
        return RESUMABLE if depends else RESUMABLE | {self.LENGTH}


@dataclass
class EngineArgs(TrainArgs):
    """Arguments of a learner that another engine can run."""

    engine: Literal["memenvs", "verl"] = "memenvs"
    """What trains: the readable loop of this package, which holds a whole model on each GPU, or verl, which
    shards it (docs/scale.md)."""
    gpus: Count = 8
    """With verl, GPUs per node."""
    nodes: Count = 1
    """With verl, number of nodes."""
    dry_run: bool = False
    """With verl, check the run and write its folder without starting it."""
    merge: Count | None = None
    """With verl, make the checkpoint of this step a model that transformers and vLLM load
    (OUT/models/step-N), with the run's own flags (OUT/args.json)."""

    def check(self) -> None:
        """Check the engine's flags too."""
        super().check()
        for flag in ("dry_run", "merge"):
            if self.engine == "memenvs" and getattr(self, flag):
                name = f"--{flag}".replace("_", "-")
                raise ValueError(f"{name} is for --engine verl; add --engine verl, or leave {name} out")


@dataclass
class PlayArgs(TrainArgs):
    """Arguments of a learner that plays: the environment, how replies are sampled, and evaluations."""

    env: str = "MemSokoban-v0"
    """Id of the environment, such as MemChunkQA-v0 (`memenvs list environments`); a command line names it, or
    its recipe does."""
    env_args: dict[str, Any] = field(default_factory=dict)
    """Its arguments, as max_turns=2 level_split=test or one JSON object (`memenvs list ID` shows them)."""
    num_envs: Count = 128
    """Environments played at once, rounded down to whole groups."""
    max_new_tokens: Count = 512
    """Maximum number of tokens in a reply."""
    max_model_len: Count | None = None
    """Maximum number of tokens in a prompt and its replies together; by default the model's window, which it
    cannot exceed."""
    temperature: Positive = 1.0
    """Temperature of sampling and of all log-probabilities."""
    stop: tuple[str, ...] = ()
    """Strings that end a reply."""
    vllm: dict[str, Any] | None = None
    """Sample with vLLM, which gets a copy of the weights, and these arguments of vllm.LLM, such as
    gpu_memory_utilization=0.4. Without this flag the model in training samples."""
    eval_every: Whole = 0
    """Steps between evaluations; 0 turns them off. OUT/best links to the step with the highest success."""
    eval_episodes: Count = 128
    """Episodes in an evaluation, each of a different task, the same tasks every time; fewer if the set is
    smaller."""
    eval_env_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment that differ in evaluations, such as level_split=test."""
    eval_temperature: NonNegative | None = None
    """Temperature of evaluations; 0 takes the likeliest tokens. By default it is that of training."""
    save_episodes: Whole = 0
    """Write this many episodes of every step and of every evaluation to OUT/episodes.jsonl
    (`memenvs view OUT`)."""

    @property
    def model_plays(self) -> bool:
        """Whether the model samples replies."""
        return True


@dataclass
class StepArgs(PlayArgs):
    """Arguments of a learner that plays new tasks at every step: the tasks of a step, and its loss."""

    LENGTH = "steps"

    steps: Count = 100
    """Training steps."""
    groups: Count = 16
    """Tasks per step."""
    group_size: Count = 8
    """G, episodes per task."""
    epochs: Count = 1
    """Passes over the episodes of a step."""
    minibatches: Count = 1
    """Optimizer steps per pass; groups stay together."""
    loss_agg_mode: LossAggMode = "token-mean"
    """How the losses of tokens are averaged: each token weighs the same ("token-mean", DAPO) or each sequence
    does ("seq-mean-token-mean", GRPO). "seq-mean-token-sum" adds a sequence's tokens;
    "seq-mean-token-sum-norm" divides this sum by max_new_tokens (Dr. GRPO). If prompts are rewritten, and on
    trees, a sequence is a turn."""
    mask_truncated: bool = False
    """Leave replies that reached their limit of tokens out of the loss (DAPO's overlong filtering). Their
    episodes are compared as before."""


@dataclass
class RewardArgs(StepArgs):
    """Arguments of a learner that learns from rewards: reward methods, and the loss by advantages."""

    methods: Sequence[str] = ()
    """Reward methods: TAMTRL, InfoMem beta=0.1, package.module:Class for your own, or JSON such as
    '["Judge", {"url": …}]'. (`memenvs list` shows all.)"""
    scorer: str = "policy"
    """Model that scores for the reward methods: the policy in training, or a fixed one ("hf:MODEL",
    "lexical")."""
    clip: Clip = (0.2,)
    """How far the ratio of probabilities may go below and above 1: one number for both, or two, such as
    0.2 0.28 (DAPO's clip-higher)."""
    dual_clip: Annotated[float, Meta(gt=1)] | None = None
    """Bound c > 1 on the loss of negative advantages; off by default."""
    kl_coef: NonNegative = 0.0
    """Weight of the divergence from the initial model; 0 does not load that model."""
    kl_estimator: KLEstimator = "k3"
    """How the loss measures the divergence: "k3" is never negative and unbiased, and its gradient is that of
    KL(initial || policy); "k2" has the gradient of KL(policy || initial), however far apart the two are."""
    importance_cap: Positive | None = None
    """Weight the loss of a token by its probability under the policy in training divided by that under the
    sampler, at most by this much, such as 2. This corrects for vLLM and bfloat16; off by default."""
    entropy_coef: NonNegative = 0.0
    """Weight of the entropy bonus."""

    @property
    def kl_in_loss(self) -> bool:
        """Whether the divergence is a part of the loss, not of the rewards."""
        return True

    def check(self) -> None:
        """Check the methods too, and that the estimator has something to measure."""
        super().check()
        read_methods(self.methods)
        if self.kl_estimator != "k3" and not (self.kl_coef and self.kl_in_loss):
            raise ValueError(
                f"kl_estimator {self.kl_estimator} is for a divergence in the loss; give --kl-coef, and "
                "leave --kl-in reward out"
            )


def run_learner(
    kind: type[A],
    prepare: Callable[[A], R],
    train: Callable[[R, A], None],
    argv: Sequence[str] | None,
    name: str,
    start_in_verl: Callable[[A], int] | None = None,
) -> int:
    """Read the flags of a learner, prepare its run and train.

    Args:
        kind: class of the learner's arguments.
        prepare: makes the run of the arguments.
        train: is given the run and the arguments.
        argv: the command line; None: that of this process.
        name: the learner's name.
        start_in_verl: starts the run in verl; None starts it as a learner that plays.

    Returns:
        The exit status: 2, and one line on standard error, for what is wrong before
        the training begins, and for a full disk or a server that does not answer during it.
    """
    prog = f"memenvs train {name}"
    try:
        with reader_may_stop():
            args = read_args(kind, sys.argv[1:] if argv is None else argv, prog)
            if isinstance(args, EngineArgs) and args.engine == "verl":
                from memenvs.baselines.verl import start_player  # which needs verl

                return start_in_verl(args) if start_in_verl else start_player(args, name)
        run = prepare(args)
    except USER_ERRORS as error:
        return report_error(prog, error)
    try:
        train(run, args)
    except (TrackerError, OSError) as error:
        return report_error(prog, error)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the learner of the run whose flags a command line takes over, if it names no learner itself.

    Args:
        argv: the command line; None: that of this process.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        recipe = _value_in(argv, "--recipe")
        file = Path(recipe) if recipe.endswith(".json") else _begun(argv)
        if file is None:
            raise ValueError(
                f"no learner is given; choose one of {', '.join(LEARNERS)}, or add --resume to continue the "
                "run in --out"
            )
        learner = run_flags(file)["learner"]
    except USER_ERRORS as error:
        return report_error("memenvs train", error)
    status: int = importlib.import_module(f"memenvs.baselines.{learner}").main(argv)
    return status


def read_args(kind: type[A], argv: Sequence[str], prog: str) -> A:
    """The arguments on a command line.

    With `--recipe` the flags of a file are the defaults, and the command line overrides them: a
    `dict[str, Any]` name by name, and `{}` clears it. If another flag is repeated, the last value counts.
    With `--resume` or `--merge` and no recipe the flags of the run in `--out` are the defaults.

    Raises:
        ValueError: there is no such recipe, or a flag is unknown or cannot be read.
        ImportError: tyro is not installed.
    """
    require("tyro", "train")
    defaults, hints = kind(), get_type_hints(kind)
    if isinstance(defaults, PlayArgs):
        defaults.env = ""
    by_name = [name for name, hint in hints.items() if hint == dict[str, Any]]
    repeatable = [f"--{name}".replace("_", "-") for name in hints.keys() - {*by_name}]
    recipe, begun = _value_in(argv, "--recipe"), _begun(argv)
    if not recipe and begun is not None and begun.is_file():
        recipe = str(begun)
    if recipe.endswith(".json"):
        defaults = run_args(kind, Path(recipe), prog)
    elif recipe:
        defaults = _parse(recipe_flags(recipe), f"{prog} --recipe {recipe}", defaults, repeatable)
    args = _parse(argv, prog, defaults, repeatable)
    for name in by_name:
        if value := getattr(args, name):
            setattr(args, name, {**getattr(defaults, name), **value})
    if begun is not None and not recipe and not args.model:
        run_flags(begun)
    if isinstance(args, PlayArgs) and not args.env:
        raise ValueError("no environment is given; add --env, such as --env MemChunkQA-v0, or a --recipe")
    return args


def _parse(argv: Sequence[str], prog: str, defaults: A, repeatable: Sequence[str]) -> A:
    """The arguments on a command line.

    Its help shows the flags that matter first, and then the learner's own; `--help-all` also shows those of
    every other class.

    Args:
        argv: the command line.
        prog: the command as a user types it.
        defaults: the flags' defaults.
        repeatable: flags that may be repeated; the last value counts.
    """
    import tyro

    shows_all = "--help-all" in argv
    if shows_all:
        argv = ["--help" if word == "--help-all" else word for word in argv]
    hides = not shows_all and not {"-h", "--help"}.isdisjoint(argv)
    kind = type(defaults)
    first = [name for name in kind.FIRST if hasattr(defaults, name)]
    shown, groups = [*first], list[tuple[str, Any, Any]]()
    for base in sorted(kind.__mro__, key=lambda base: base is EngineArgs):
        annotations = vars(base).get("__annotations__", {}) if issubclass(base, TrainArgs) else {}
        names = [
            field.name for field in fields(kind) if field.name in annotations and field.name not in shown
        ]
        if names:
            shown += names
            group = make_dataclass(base.__name__, _columns(defaults, names))
            group.__doc__ = "" if base is kind else (base.__doc__ or "").partition("\n")[0]
            title = base.__name__.removesuffix("Args").lower()
            columns: Any = Annotated[group, tyro.conf.arg(name=title)]
            if hides and base is not kind:
                columns = Annotated[columns, tyro.conf.Suppress]
            groups.append((f"{title}_", columns, field(default_factory=group)))
    whole = make_dataclass(kind.__name__, [*_columns(defaults, first), *groups])
    whole.__doc__ = kind.__doc__
    if hides:
        whole.__doc__ = f"{inspect.getdoc(kind)}\n\n`{prog} --help-all` shows the other options too."
    parsed = vars(parse(whole, argv, prog, whole(), repeatable))
    values = {name: parsed[name] for name in first}
    for name, _, _ in groups:
        values |= vars(parsed[name])
    return kind(**values)


def _columns(defaults: TrainArgs, names: Sequence[str]) -> list[tuple[str, Any, Any]]:
    """Fields of a dataclass for some flags, with their help."""
    import tyro

    hints, texts = get_type_hints(type(defaults), include_extras=True), _texts(type(defaults))
    return [
        (
            name,
            Annotated[hints[name], tyro.conf.arg(help=texts[name])],
            field(default_factory=functools.partial(getattr, defaults, name)),
        )
        for name in names
    ]


def _texts(kind: type) -> dict[str, str]:
    """The docstrings of a class's attributes and of those it inherits, each on one line."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for statement, after in pairwise(getattr(definition, "body", ())):
            match statement, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def _begun(argv: Sequence[str]) -> Path | None:
    """The file with the flags of the run that a command line resumes or merges; None if it does neither."""
    if "--resume" not in argv and not _value_in(argv, "--merge"):
        return None
    return Path(_value_in(argv, "--out") or TrainArgs.out) / ARGS


def _value_in(argv: Sequence[str], flag: str) -> str:
    """The last value of a flag; empty without it."""
    last = ""
    for word, after in pairwise([*argv, ""]):
        name, equals, value = word.partition("=")
        if name == flag:
            last = value if equals else after
    return last


def run_args(kind: type[A], file: Path, prog: str) -> A:
    """The arguments in the `args.json` of a run, without those that say where it is written.

    Args:
        kind: class of the learner's arguments.
        file: as a run writes it.
        prog: the command that reads it, which ends in the name of the learner.

    Raises:
        ValueError: there is no such file, it is of another learner, or it has other arguments.
    """
    values = run_flags(file)
    learner = values.pop("learner")
    if learner != prog.rpartition(" ")[2]:
        raise ValueError(f"{file} is a run of {learner!r}, not of `{prog}`; name that learner, or none")
    of_call = ("out", "resume", "dry_run", "merge", "prompts")
    kept = {name: value for name, value in values.items() if name not in of_call}
    if unknown := sorted(kept.keys() - {field.name for field in fields(kind)}):
        raise ValueError(
            f"{file} holds arguments that {prog} does not have: {', '.join(unknown)}; take them out"
        )
    try:
        return msgspec.convert(kept, kind, dec_hook=lambda of, value: of(value))
    except msgspec.ValidationError as error:
        raise ValueError(f"{file} holds no flags of {prog}: {error}; give the args.json of a run") from None


def run_flags(file: Path) -> dict[str, Any]:
    """The flags of a run and its `learner`, as its `args.json` has them.

    Raises:
        ValueError: there is no such file, or it is not that of a run.
    """
    if not file.is_file():
        raise ValueError(
            f"no file {file}, so no run has begun there; give the folder or the args.json of a run"
        )
    values = read_json(file, "give the args.json of a run")
    if values.get("learner") not in LEARNERS:
        raise ValueError(
            f"the learner in {file} must be one of {', '.join(LEARNERS)}, got {values.get('learner')!r}; "
            "give the args.json of a run"
        )
    return values


def recipe_names() -> list[str]:
    """Names of the recipes that ship: one for each setting of a paper."""
    return sorted(path.stem for path in RECIPES.glob("*.txt"))


def recipe_flags(recipe: str) -> list[str]:
    """The flags in a recipe, which is read as a shell would read it, with `#` comments.

    Args:
        recipe: one of `recipe_names()`, or a file.

    Raises:
        ValueError: there is no such recipe, or a quotation mark in it is not closed.
    """
    names = recipe_names()
    path = RECIPES / f"{recipe}.txt" if recipe in names else Path(recipe)
    if not path.is_file():
        raise ValueError(f"no recipe {recipe!r}; give a file, or one of {', '.join(names)}")
    return shlex.split(path.read_text(encoding="utf-8"), comments=True)
