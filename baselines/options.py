"""The flags of the learners: dataclasses whose fields are the help, and refusals of what is out of range."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memenvs.baselines import losses
from memenvs.extras import require

FREE = frozenset(
    (
        *("recipe", "out", "resume", "save_every", "steps", "passes", "device", "gradient_checkpointing"),
        *("micro_batch_tokens", "num_envs", "sampler_args", "eval_every", "eval_episodes", "eval_env_args"),
    )
)
"""Arguments that a resumed run may have different: they change how long it runs or how it computes."""


@dataclass
class RunArgs:
    """What every way of training shares; the fields are flags."""

    recipe: str = ""
    """File of flags, or the name of one that ships (docs/papers.md); the command line wins over it."""
    model: str = ""
    """Folder of a causal model, or its name on the hub."""
    out: Path = Path("runs/last")
    """Folder for checkpoints and logs."""
    resume: bool = False
    """Go on from the checkpoint in the folder."""
    save_every: int = 50
    """Steps between checkpoints."""
    seed: int = 0
    """Of everything that is drawn."""
    device: str | None = None
    """Of torch; by default a GPU if there is one."""
    bf16: bool = False
    """Compute in bfloat16, keep float32 weights (on a GPU)."""
    gradient_checkpointing: bool = False
    """Compute activations again instead of keeping them."""
    micro_batch_tokens: int = 8192
    """Tokens of a forward pass, padding included; bounds memory."""
    lr: float = 1e-6
    """Learning rate (AdamW)."""
    lr_warmup: int = 0
    """Steps over which the learning rate rises to it."""
    weight_decay: float = 0.0
    """Weight decay (AdamW)."""
    max_grad_norm: float = 1.0
    """The gradient's norm is cut to this."""
    env: str = "MemSokoban-v0"
    """Id of the environment."""
    env_args: str = "{}"
    """Its arguments, as JSON."""
    num_envs: int = 128
    """Environments played at once, a multiple of the group size."""
    max_new_tokens: int = 512
    """Tokens of a reply."""
    sampler: Literal["hf", "vllm"] = "hf"
    """Who writes: the model in training itself, or a vLLM engine beside it that takes its weights over."""
    sampler_args: str = "{}"
    """Arguments of vllm.LLM, as JSON: '{"gpu_memory_utilization": 0.4}'."""
    temperature: float = 1.0
    """Of sampling, and of all log-probabilities."""
    stop: tuple[str, ...] = ()
    """Strings that end a reply."""
    chat: bool | None = None
    """Show prompts as chats; by default where the tokenizer has a template."""
    eval_every: int = 0
    """Steps between evaluations; 0 for none."""
    eval_episodes: int = 128
    """Episodes of an evaluation, one each of so many tasks drawn once."""
    eval_env_args: str = "{}"
    """What is different in its environment, as JSON."""


@dataclass
class UpdateArgs(RunArgs):
    """How a policy is updated from what it has sampled; the fields are flags of the learners."""

    epochs: int = 1
    """Passes over the episodes of a step."""
    minibatches: int = 1
    """Optimizer steps a pass; groups stay together."""
    clip: float = 0.2
    """The ratio of probabilities is cut below 1 - clip."""
    clip_high: float | None = None
    """… and above 1 + clip_high (DAPO's clip-higher); equal to clip by default."""
    dual_clip: float | None = None
    """Bound c > 1 on the loss of negative advantages; off by default."""
    aggregate: losses.Mode = "token-mean"
    """How the losses of tokens become one: each token weighs the same (DAPO), or each sequence (GRPO) …
    Where prompts are fresh, and on trees, a sequence is a turn."""
    horizon: int | None = None
    """Tokens that "seq-mean-token-sum-norm" divides by."""
    kl_coef: float = 0.0
    """Weight of the divergence from the reference model; 0 loads none."""
    kl_kind: losses.Kind = "k3"
    """Its estimator."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
    value_coef: float = 0.5
    """Weight of the critic's loss, where there is one."""
    value_clip: float | None = None
    """The critic's step from its old values is cut to this; off by default."""


@dataclass
class TrainingArgs(UpdateArgs):
    """How rollouts are made; the fields are flags of the learners."""

    methods: str = "[]"
    """Reward methods around the environment, as JSON: '["SearchRewards", ["Judge", {"url": …}]]'."""
    scorer: str = "policy"
    """Who scores for them: the policy itself as it is now, or a fixed one ("hf:MODEL", "lexical")."""
    steps: int = 100
    """Training steps."""
    groups: int = 16
    """Tasks a step."""
    group_size: int = 8
    """G, episodes of a task."""
    reference: str = ""
    """Model that kl_coef pulls to; by default the model the run began with."""


def check_update(args: UpdateArgs) -> None:
    """Refuse numbers out of range, before anything is loaded.

    Raises:
        ValueError: with the flag and its value.
    """
    check_at_least_1(args, "epochs", "minibatches", "micro_batch_tokens")
    if not 0 < args.clip < 1:
        raise ValueError(f"clip must be between 0 and 1, got {args.clip!r}")
    if args.clip_high is not None and args.clip_high <= 0:
        raise ValueError(f"clip_high must be above 0, got {args.clip_high!r}")
    if args.dual_clip is not None and args.dual_clip <= 1:
        raise ValueError(f"dual_clip must be above 1, got {args.dual_clip!r}")
    if (args.aggregate == "seq-mean-token-sum-norm") != (args.horizon is not None):
        raise ValueError(
            f"horizon is what aggregate seq-mean-token-sum-norm divides by: give both or none, got "
            f"aggregate {args.aggregate} and horizon {args.horizon!r}"
        )
    if args.horizon is not None and args.horizon < 1:
        raise ValueError(f"horizon must be at least 1 token, got {args.horizon!r}")
    if args.temperature <= 0:
        raise ValueError(f"temperature must be above 0 to learn from what is drawn, got {args.temperature!r}")


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


def read_json(name: str, text: str, kind: type) -> Any:
    """The value of a flag that is JSON.

    Raises:
        ValueError: it is not, or not of this kind.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} must be JSON, got {text!r} ({error})") from error
    if not isinstance(found, kind):
        raise ValueError(f"{name} must be a JSON {kind.__name__}, got {text!r}")
    return found


def check_at_least_1(args: Any, *names: str) -> None:
    """Refuse a number below 1."""
    for name in names:
        if getattr(args, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(args, name)!r}")
