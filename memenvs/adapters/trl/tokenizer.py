"""The tokenizer of a model that shall call tools in TRL."""

from __future__ import annotations

from typing import Any

from memenvs.adapters.versions import check_version
from memenvs.extras import require
from memenvs.wrappers.scorers.loading import load_tokenizer


def tool_tokenizer(model: str) -> Any:
    """A tokenizer for `processing_class`: the model's own; one without a chat template is given Qwen3's.

    TRL reads tool calls by the text of the chat template, so a model without one, such as a base model,
    cannot call tools there. A template that is there stays, also where TRL does not know it.

    Args:
        model: a folder, or a name on the hub.

    Raises:
        ImportError: TRL is missing or of another version.
        FileNotFoundError: there is no such tokenizer.
    """
    check_version("trl", "1.16", "1.17", "trl")
    tokenizer = load_tokenizer(model, None)
    if not tokenizer.chat_template:
        tokenizer.chat_template = require("trl.chat_template_utils", "trl").qwen3_chat_template
    return tokenizer
