"""Settings of models, each declared once: flags of every command that uses them, and arguments in Python.

Nothing here loads a model or a tokenizer, so that a command's help is shown at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from memenvs.core.data import Count, NonNegative, Positive, Share, Whole, checked

Dtype = Literal["auto", "bfloat16", "float32"]
"""What a model by name computes in; see `memenvs.models.loading.load_model`."""


@dataclass(frozen=True)
class Loading:
    """How a model by name is loaded."""

    dtype: Dtype = "auto"
    """Precision of a model in this process; auto is the checkpoint's own if the device computes fast in it.
    A learner keeps float32 master weights of a model in bfloat16."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are sampled from the whole distribution, and where a reply ends."""

    temperature: NonNegative = 1.0
    """Temperature of sampling and of all log-probabilities; 0, not in training, takes the likeliest token."""
    stop: Sequence[Annotated[str, Meta(min_length=1)]] = ()
    """Strings that end a reply. The token that completes one is the reply's last, and what it shows beyond
    the string stays."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))


@dataclass(frozen=True)
class Generation(Sampling):
    """How a model that plays makes its replies."""

    max_new_tokens: Count = 512
    """Maximum number of tokens in a reply."""


@checked
@dataclass(frozen=True)
class SamplingParams(Sampling):
    """How tokens are sampled: by probability, from what `top_k`, then `top_p`, then `min_p` leave.

    Besides `temperature` and `stop`, all of the distribution is sampled from where a field is None.

    Raises:
        ValueError: a value is out of its range.
    """

    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Sample only from the likeliest tokens that together have this probability."""
    top_k: Whole | None = None
    """Sample only from this many of the likeliest tokens; 0 stands for all."""
    min_p: Share | None = None
    """Sample only from tokens at least this share as likely as the likeliest one."""

    @property
    def truncates(self) -> bool:
        """Whether some tokens are never sampled."""
        return (self.top_p is not None and self.top_p < 1) or bool(self.top_k or self.min_p)


@checked
@dataclass(frozen=True)
class ChatSettings:
    """How prompts become tokens."""

    chat_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the chat template, such as enable_thinking=false."""
    split_special_tokens: bool = False
    """Encode control tokens that an observation spells as ordinary text, so that no passage and no memory can
    end a message or begin one. The messages before an episode may."""
    system_prompt: str = ""
    """Text of a system message before every fresh prompt of a chat; as a flag also a file with it."""
    drop_thoughts: bool = False
    """Show earlier replies of a conversation without their thoughts, as the template of Qwen3 does. A prompt
    that leaves out a thought begins a training sequence of its own, with the tokens that were sampled."""


@checked
@dataclass(frozen=True)
class ModelOptions(ChatSettings, SamplingParams, Generation, Loading):
    """Sampling from a model, and requests to an endpoint; None leaves a setting to the model or endpoint.

    Raises:
        ValueError: a value is out of its range.
    """

    max_new_tokens: Count = 1024
    model: str | None = None
    """Name of the model at the endpoint; None if it serves only one."""
    conversation: bool = False
    """Send an endpoint each episode of context `"append"` as a conversation."""
    tools: Literal["native"] | None = None
    """`"native"` sends an endpoint the environment's tools, in a conversation, and reads tool calls."""
    tokens: str | None = None
    """Folder or name of the endpoint's model. Its prompts are then sent as token ids, made as in training, to
    a server that takes them (vLLM, SGLang)."""
    examples: str | None = None
    """File of JSON lines {"user", "assistant"}, turns that every chat starts with."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """More fields of a request to the endpoint; None leaves a field out."""
    timeout: Positive = 600.0
    """Seconds to wait for the endpoint's answer."""
    tries: Count = 6
    """How often a request is sent before its episode fails."""
