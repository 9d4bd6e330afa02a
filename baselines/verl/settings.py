"""Where each flag of `memenvs train` goes in verl, by the table in settings.json, and how Hydra reads values.

In the table a text is the reason why verl has no setting for a flag. Otherwise each entry is a setting in
verl's names, in which `…` stands for `actor_rollout_ref.`. `$NAME` is a flag, a size of `BatchPlan`, an
attribute of `Training` or one of `VALUES`; where a setting's name ends in `*`, this is a dict of the ends of
several. What no flag decides is under `always`, with the variables of Ray's workers, since those of a cluster
have the environment of `ray start`, not that of run.sh. Other entries are

- `where`: the flag's place as the page names it, where that is not the names of its settings;
- `when`: the flag without which there are no settings;
- `only`, `never`: the value that verl can carry, or cannot.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from memenvs.core.arguments import Parameter
from memenvs.core.files import CARD, read_json
from memenvs.data import bundled_names
from memenvs.models.packaged import resolve
from memenvs.tasks.metrics import METRICS

if TYPE_CHECKING:
    from memenvs.baselines.verl.plan import Training

CHECKPOINTS = "checkpoints"
HYDRA_WORDS = ("null", "true", "false", "nan", "inf")
"""Words that Hydra does not read as text."""
VLLM = {"tensor_parallel_size": "tensor_model_parallel_size"} | {
    name: name for name in ("gpu_memory_utilization", "max_num_seqs", "enforce_eager")
}
"""Arguments of vLLM that verl has a name for."""
_TABLE = read_json(Path(__file__).with_name("settings.json"))
_PLAYING = _TABLE["training"] | _TABLE["playing"]
PLACES: Mapping[str, Mapping[str, Any]] = {
    "grpo": _PLAYING | _TABLE["grpo"],
    "mt_ppo": _PLAYING | _TABLE["mt_ppo"],
    "sft": _TABLE["training"] | _TABLE["sft"],
}
"""By learner, every flag's place in verl, or the reason why it has none."""


def _warmup(steps: float) -> dict[str, Any]:
    return {"lr_warmup_steps_ratio": steps} if 0 < steps < 1 else {"lr_warmup_steps": int(steps)}


def _optimizer(args: Any) -> dict[str, Any]:
    others = {"weight_decay": 0.0, **args.adamw}
    settings = {"weight_decay": others.pop("weight_decay")}
    if "betas" in others:
        settings["betas"] = list(others.pop("betas"))
    return {**settings, **({"override_optimizer_config": others} if others else {})}


def _divergence(args: Any) -> dict[str, Any]:
    if not args.kl_coef:
        return {}
    if args.kl_in_loss:
        return {"…actor.use_kl_loss": True, "…actor.kl_loss_coef": args.kl_coef}
    return {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": args.kl_coef}


def _validation(args: Any) -> dict[str, Any]:
    temperature = args.temperature if args.eval_temperature is None else args.eval_temperature
    return {"temperature": temperature, "do_sample": temperature > 0}


VALUES: Mapping[str, Callable[[Any], Any]] = {
    "experiment": lambda args: args.out.resolve().name,
    "loggers": lambda args: ["console", *args.track],
    "model_path": lambda args: model_path(args.model),
    # alpha is twice the rank, the scale of our learners
    "lora": lambda args: (
        {"lora_rank": args.lora_rank, "lora_alpha": 2 * args.lora_rank} if args.lora_rank else {}
    ),
    "warmup": lambda args: _warmup(args.lr_warmup),
    "critic_warmup_steps": lambda args: _warmup(args.critic_lr_warmup),
    "first_policy_step": lambda args: args.critic_warmup + 1,
    "estimator": lambda args: (
        "memenvs_as_paid" if args.loss_agg_mode == "token-mean" else "memenvs_as_paid_by_row"
    ),
    "optimizer": _optimizer,
    "validation": _validation,
    "vllm_engine": lambda args: {
        f"…rollout.{VLLM[name]}" if name in VLLM else f"+…rollout.engine_kwargs.vllm.{name}": value
        for name, value in (args.vllm or {}).items()
    },
    "clip_low": lambda args: args.clip[0],
    "clip_high": lambda args: args.clip[-1],
    "divergence": _divergence,
    "loss": lambda args: "vanilla" if args.loss_mode == "ppo" else args.loss_mode,
    "importance_bounds": lambda args: (
        f"{args.importance_floor}_{args.importance_cap}" if args.importance_floor else args.importance_cap
    ),
}
"""By the run's arguments, values of the table that are more than a flag."""


def where(place: Any) -> str:
    """A flag's place as the page names it, or why it has none."""
    return place if isinstance(place, str) else place.get("where") or ", ".join(f"`{name}`" for name in place)


def check_carried(learner: str, args: Any) -> None:
    """Refuse a flag whose value changes what is learned, and that verl cannot carry.

    Raises:
        ValueError: with the flag and the reason.
    """
    for flag, place in PLACES[learner].items():
        value = getattr(args, flag)
        plain = list(value) if isinstance(value, tuple) else value
        rules = {} if isinstance(place, str) else place
        if plain != rules.get("only", plain) or ("never" in rules and plain == rules["never"]):
            name, reason = flag.replace("_", "-"), where(place).replace("`", "")
            raise ValueError(f"--engine verl cannot use --{name} {value!r}: {reason}")


def settings_of(learner: str, run: Training) -> dict[str, Any]:
    """The settings of a run in verl's names; `+` begins one that verl's configuration lacks."""
    settings: dict[str, Any] = {}
    always = _TABLE["always"]["sft" if learner == "sft" else "playing"]
    for place in [*PLACES[learner].values(), always]:
        if isinstance(place, str) or ("when" in place and not getattr(run.args, place["when"])):
            continue
        for name, text in place.items():
            if name in ("where", "when", "only", "never"):
                continue
            value = _value(text[1:], run) if isinstance(text, str) and text.startswith("$") else text
            if name.endswith("*"):
                settings |= {name[:-1] + end: part for end, part in value.items()}
            else:
                settings[name] = value
    return {name.replace("…", "actor_rollout_ref."): value for name, value in settings.items()}


def _value(text: str, run: Training) -> Any:
    """The value of `NAME`, or of `NAME or JSON`."""
    name, _, default = text.partition(" or ")
    if name in VALUES:
        return VALUES[name](run.args)
    value = next(getattr(holder, name) for holder in (run.plan, run, run.args) if hasattr(holder, name))
    return json.loads(default) if default and not value else value


def overrides(settings: Mapping[str, Any]) -> list[str]:
    """Settings as verl's command line takes them."""
    return [f"{name}={hydra_value(value)}" for name, value in settings.items()]


def hydra_value(value: Any) -> str:
    """A value as Hydra's command line reads it.

    >>> hydra_value([0.9, 0.95]), hydra_value({"eps": 1e-8}), hydra_value("a b"), hydra_value("7")
    ('[0.9,0.95]', '{eps:1e-08}', "'a b'", "'7'")
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{hydra_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if not isinstance(value, str | Path):
        return "null" if value is None else str(value)
    value = str(value)
    if re.fullmatch(r"[A-Za-z_/][\w./-]*", value, re.ASCII) and value.lower() not in HYDRA_WORDS:
        return value
    # Of a quoted text Hydra reads the backslashes before a quotation mark as escapes, and no others.
    escaped = re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), unresolved(value))
    return f"'{escaped}'"


def unresolved(value: Any) -> Any:
    """A value in which OmegaConf does not resolve `${…}`."""
    if isinstance(value, Mapping):
        return {name: unresolved(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [unresolved(inner) for inner in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def absolute(values: Mapping[str, Any], parameters: Sequence[Parameter] | None = None) -> dict[str, Any]:
    """Arguments with absolute paths, since verl's workers start in other folders.

    A text is a path if it names a file or folder, also after a kind and a colon, such as `lexical:FOLDER`,
    and is not one of the choices of the parameter that takes it.
    """
    choices = {parameter.name: _choices(parameter.annotation) for parameter in parameters or ()}
    moved = dict(values)
    for name, value in values.items():
        if isinstance(value, Mapping):  # prompts by their parts
            moved[name] = absolute(value)
        elif isinstance(value, str) and value not in choices.get(name, ()):
            moved[name] = absolute_path(value)
    return moved


def _choices(annotation: Any) -> list[Any]:
    """The values that an annotation lists."""
    parts = get_args(annotation)
    return list(parts) if get_origin(annotation) is Literal else [c for part in parts for c in _choices(part)]


def absolute_path(text: str) -> str:
    """A path made absolute; a text that names no file or folder, or that has a meaning here, is unchanged."""
    is_name = text in bundled_names() and not Path(text, CARD).is_file()
    if is_name or text in METRICS:
        return text
    kind, colon, place = "", "", text
    if not os.path.exists(text):
        kind, colon, place = text.partition(":")
    return kind + colon + os.path.abspath(place) if place and os.path.exists(place) else text


def model_path(model: str) -> str:
    """The folder of a model as an absolute path, or its name on the hub."""
    return absolute_path(str(resolve(model)))
