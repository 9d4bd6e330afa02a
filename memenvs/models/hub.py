"""Models on the Hugging Face hub, without importing torch: a wrong name is reported within a second."""

from __future__ import annotations

import functools
from pathlib import Path

from memenvs.core.errors import error_line, near_names
from memenvs.models.packaged import MODELS, shipped_agents

_FILES = ("config.json", "tokenizer_config.json")  # of a model, or of a tokenizer alone


@functools.cache  # asked before torch is imported, for the tokenizer and for the weights
def check_found(name: str) -> None:
    """Refuse a model that is neither on this machine nor on the hub, by one request without retries.

    Raises:
        FileNotFoundError: there is no such folder or no such name, or the hub cannot be reached.
    """
    if Path(name).exists():
        return
    import huggingface_hub  # slow: it loads an HTTP client, and most models are folders
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    beside = [str(file.parent) for file in Path(name).parent.glob("*/*config.json")]  # of models and adapters
    near = near_names(name, {*MODELS, *shipped_agents(), *beside})
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FileNotFoundError(
            f"no model {name!r}: there is no such folder; give one that holds a model{hint}"
        )
    try:
        cached = (huggingface_hub.try_to_load_from_cache(name, file) for file in _FILES)
        if any(isinstance(place, str) for place in cached):
            return
        huggingface_hub.HfApi().model_info(name, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (RepositoryNotFoundError, HFValidationError):
        raise FileNotFoundError(
            f"no model {name!r} in this folder or on the Hugging Face hub; give the folder or the hub name "
            f"of one, or log in if it is private{hint}"
        ) from None
    except HfHubHTTPError:  # such as a limit of requests; transformers tries again, and says what is wrong
        return
    except Exception as error:  # of the HTTP library, which differs between versions of huggingface_hub
        raise FileNotFoundError(
            f"no model {name!r} in this folder, and the Hugging Face hub cannot be reached ({error}); give "
            f"the folder of a model{hint}"
        ) from None


@functools.cache  # asked for the tokenizer, the ends and the weights
def snapshot(name: str, revision: str) -> Path:
    """The folder of a model of the hub at a revision, downloaded unless it is cached; its name is the commit.

    Raises:
        FileNotFoundError: there is no such model or revision, or the hub cannot be reached.
    """
    import huggingface_hub

    files = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
    try:
        folder = huggingface_hub.snapshot_download(
            name,
            revision=revision,
            allow_patterns=files,
            ignore_patterns=["original/*", "consolidated*"],
            # Some releases ask for the files of a commit even offline, instead of looking into the cache.
            local_files_only=huggingface_hub.constants.HF_HUB_OFFLINE,
        )
    except Exception as error:  # also of the HTTP library, as above
        raise FileNotFoundError(
            f"no model {name!r} of revision {revision!r} on the Hugging Face hub or in its cache; give a "
            f"commit, tag or branch of a hub name ({error_line(error)})"
        ) from error
    return Path(folder)
