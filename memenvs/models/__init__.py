"""Language models as policies; those that need torch or vLLM load when they are first named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memenvs.core.episode import Ids, Reply
from memenvs.models.lora import LoRA
from memenvs.models.policy import PolicyOutput, SamplingParams, ScriptedPolicy, TokenPolicy

if TYPE_CHECKING:
    from memenvs.models.hf import HFPolicy
    from memenvs.models.vllm import VLLMPolicy

__all__ = [
    "HFPolicy",
    "Ids",
    "LoRA",
    "PolicyOutput",
    "Reply",
    "SamplingParams",
    "ScriptedPolicy",
    "TokenPolicy",
    "VLLMPolicy",
]


def __getattr__(name: str) -> Any:
    if name == "HFPolicy":
        from memenvs.models.hf import HFPolicy

        return HFPolicy
    if name == "VLLMPolicy":
        from memenvs.models.vllm import VLLMPolicy

        return VLLMPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
