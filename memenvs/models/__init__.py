"""Language models as policies; those that need torch or vLLM load when they are first named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memenvs.models.chat import Ids
from memenvs.models.lora import LoRA
from memenvs.models.policy import Policy, PolicyOutput, Reply, SamplingParams, ScriptedPolicy

if TYPE_CHECKING:
    from memenvs.models.hf import HFPolicy
    from memenvs.models.vllm import VLLMPolicy

__all__ = [
    "HFPolicy",
    "Ids",
    "LoRA",
    "Policy",
    "PolicyOutput",
    "Reply",
    "SamplingParams",
    "ScriptedPolicy",
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
