"""The same run in verl, which shards a model over GPUs: `memenvs train … --engine verl`.

A run's folder gets the data, a script with every setting in verl's names, and the packages that verl's own
metadata pins. The script is all that runs afterwards.

    memenvs train grpo --recipe tamtrl_reading --model Qwen/Qwen3-8B --out runs/tamtrl --engine verl --dry-run
    memenvs train --merge 800 --out runs/tamtrl
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

import huggingface_hub
import transformers

from memenvs.baselines.rollout import evaluation_command
from memenvs.baselines.verl.rows import PlayTraining
from memenvs.baselines.verl.settings import CHECKPOINTS, check_carried, overrides
from memenvs.baselines.verl.sft import SFTTraining
from memenvs.core.errors import error_line
from memenvs.core.files import ARGS, read_json, write_json, write_text
from memenvs.core.optional import own_requirement, require
from memenvs.models.hf import SETTINGS, model_card
from memenvs.models.packaged import resolve

PINNED, SHARDS = ("verl[vllm]", "ray"), "fsdp"
"""What a run needs in the versions that are here, and verl's extra that a run needs besides."""
FLASH = "flash-attn"


def start(args: Any, learner: str) -> int:
    """Check a run, write its folder, and start it in verl; with `--merge`, make a model of a checkpoint.

    The check composes the configuration by the real verl, and plays, before a model is loaded.

    Returns:
        The exit status.

    Raises:
        ValueError: verl cannot carry a flag, the arguments do not fit each other, or the folder holds a run
            with others.
    """
    if args.merge:
        return merge(args)
    args.check()
    check_carried(learner, args)
    out = args.out.resolve()
    if (out / ARGS).is_file():
        flags = read_json(out / ARGS, "give another --out")
        if flags.get("learner") != learner:
            raise ValueError(
                f"{args.out} is a run of {flags.get('learner')!r}, not of {learner!r}; give another --out"
            )
        args.check_begun(flags)
    run = SFTTraining(args) if learner == "sft" else PlayTraining(args, learner)
    plain: dict[str, Any] = {}  # for a machine without flash-attn, which is verl's default
    for model in run.models:
        plain[f"+{model}.override_config.attn_implementation"] = "sdpa"
        plain[f"{model}.use_remove_padding"] = False  # sdpa takes longer for packed rows
    flash = importlib.util.find_spec("flash_attn") is not None
    fallback = f"attention=({shlex.join(overrides(plain))})"
    padded = "PyTorch's (sdpa, rows padded to the longest of a pass) unless flash-attn is installed"
    attention = "flash-attn" if flash else padded
    if "critic.model" in run.models:  # verl's `load_valuehead_model` names flash_attention_2
        fallback = "{ echo 'verl loads a critic with flash-attn only, which is not installed' >&2; exit 1; }"
        attention = "flash-attn, without which verl loads no critic"
    compose(run.configuration, overrides({**run.settings, **({} if flash else plain)}), run.check)
    out.mkdir(parents=True, exist_ok=True)
    run.write()
    settings = overrides({"hydra.run.dir": str(out / "hydra"), **run.settings})
    words = {
        **run.words,
        "folder": shlex.quote(str(Path.cwd())),
        "out": shlex.quote(str(out)),
        "fallback": fallback,
        "settings": "".join(f"  {shlex.quote(setting)} \\\n" for setting in settings),
        "flash": flash_attention(),
    }
    packages = requirements([*args.track, *run.extras])
    write_text(out / "requirements.txt", "".join(f"{line}\n" for line in packages))
    run_sh, install = out / "run.sh", out / "install.sh"
    for file, template in ((run_sh, run.script), (install, install.name)):
        text = Path(__file__).with_name(template).read_text(encoding="utf-8")
        write_text(file, Template(text).substitute(words))
    write_json(out / ARGS, {"learner": learner, **args.plain()})
    to_install = f"bash {shlex.quote(str(install))}"
    report = [
        f"verl {importlib.metadata.version('verl')} accepts {len(run.settings)} settings: {run_sh}",
        *run.findings(),
        f"model: {run.parameters / 1e9:.2f}B parameters on {args.nodes} x {args.gpus} GPUs, "
        f"attention: {attention}",
        *run.needs(),
        f"next: {to_install} && bash {shlex.quote(str(run_sh))}",
    ]
    sys.stdout.write("".join(f"{line}\n" for line in report))
    if args.dry_run:
        return 0
    if run.sampler and importlib.util.find_spec("vllm") is None:
        raise ValueError(f"vllm is not installed here; {to_install}")
    # The script starts the python that wrote it, and the torchrun beside it.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.run(["bash", run_sh], env={**os.environ, "PATH": path}, check=False).returncode


def requirements(extras: Sequence[str] = ()) -> list[str]:
    """The packages of a run: verl and Ray as they are here, what verl wants for FSDP, and this package.

    flash-attn is not among them: its setup imports torch, which pip hides from the setup of a package.
    """
    wanted, names = set[str](), [SHARDS]
    for name in names:
        for line in importlib.metadata.requires("verl") or []:
            requirement, _, condition = line.partition(";")
            if f'extra == "{name}"' not in condition:
                continue
            if inner := re.fullmatch(r"verl\[(.+)\]", requirement.strip()):
                names.append(inner[1])  # an extra that is made of others
            elif "=" in requirement and not requirement.startswith(f"{FLASH}="):
                wanted.add(requirement.strip())
    versions = [f"{name}=={importlib.metadata.version(name.partition('[')[0])}" for name in PINNED]
    needed = {"train", "verl", *extras} - {"tensorboard"}  # which `train` brings
    is_clone, place = own_requirement(",".join(sorted(needed)))
    return [*versions, *sorted(wanted), f"-e {place}" if is_clone else place]


def flash_attention() -> str:
    """flash-attn in the version that verl's metadata pins."""
    lines = importlib.metadata.requires("verl") or []
    return next(line.partition(";")[0].strip() for line in lines if line.startswith(f"{FLASH}="))


def compose(name: str, overrides: Sequence[str], check: Callable[[Any], object]) -> Any:
    """The configuration of verl's of that name with other settings, checked by verl.

    Raises:
        ValueError: verl refuses a setting; the message is its own.
    """
    hydra: Any = require("hydra", "verl")
    try:
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra.compose(name, overrides=list(overrides))
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(config)
    except (hydra.errors.HydraException, AssertionError) as error:
        raise ValueError(f"verl refuses the settings: {error_line(error)}") from error
    return config


def merge(args: Any) -> int:
    """Turn a checkpoint of verl's into a model with a card; the exit status of verl's merger.

    Raises:
        ValueError: there is no such checkpoint.
    """
    checkpoints, model = args.out / CHECKPOINTS, args.out / "models" / f"step-{args.merge}"
    actor = checkpoints / f"global_step_{args.merge}"
    if (actor / "actor").is_dir():  # where a trainer may have a critic too
        actor /= "actor"
    if not actor.is_dir():
        steps = sorted(int(folder.name.rpartition("_")[2]) for folder in checkpoints.glob("global_step_*"))
        error = "no checkpoint to merge yet; train first, then give --merge its step"
        if steps:
            choices = ", ".join(map(str, steps))
            error = f"no checkpoint of step {args.merge}; give --merge one of {choices}"
        raise ValueError(f"{args.out} has {error}")
    merger = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    folders = ["--local_dir", str(actor), "--target_dir", str(model)]
    if status := subprocess.run([*merger, *folders], check=False).returncode:
        return status
    merge_adapter(model)
    sampling = args.sampling_params
    settings = {**asdict(sampling), **asdict(args.chat_settings)}
    write_json(model / SETTINGS, settings)  # as `HFPolicy.save` does
    write_text(model / "README.md", model_card(args.plain(), sampling, licence=hub_licence(args.model)))
    commands, unknown = evaluation_command(args, str(model), served=True)
    other = ", with tasks that it has not trained on in place of …" if unknown else ""
    sys.stdout.write(f"the model is in {model}; serve it and evaluate it{other}:\n{commands}\n")
    return 0


def merge_adapter(model: Path) -> None:
    """Add a LoRA adapter to the weights that verl's merger has put beside it; nothing without one."""
    adapter = model / "lora_adapter"
    if not adapter.is_dir():
        return
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    require("peft", "verl").PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(model)
    shutil.rmtree(adapter)


def hub_licence(model: str) -> str:
    """The licence that a model's card on the hub names; empty for a folder, or where no card can be read."""
    if Path(str(resolve(model))).is_dir():
        return ""
    try:
        return str(huggingface_hub.ModelCard.load(model).data.license or "")
    except (OSError, ValueError):
        return ""
