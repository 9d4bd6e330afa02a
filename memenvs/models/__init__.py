"""Language models as policies; a name's module loads when the name is first read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memenvs.core.optional import lazy_names

if TYPE_CHECKING:
    from memenvs.core.episode import Ids, Reply
    from memenvs.models.hf import HFPolicy
    from memenvs.models.policy import LoRA, PolicyOutput, ScriptedPolicy, TokenPolicy
    from memenvs.models.settings import ChatSettings, ModelOptions, Sampling, SamplingParams
    from memenvs.models.vllm import VLLMPolicy

__all__ = [
    "ChatSettings",
    "HFPolicy",
    "Ids",
    "LoRA",
    "ModelOptions",
    "PolicyOutput",
    "Reply",
    "Sampling",
    "SamplingParams",
    "ScriptedPolicy",
    "TokenPolicy",
    "VLLMPolicy",
]

__getattr__ = lazy_names(
    __name__,
    **dict.fromkeys(("Ids", "Reply"), ("memenvs.core.episode", "")),
    **dict.fromkeys(("LoRA", "PolicyOutput", "ScriptedPolicy", "TokenPolicy"), ("memenvs.models.policy", "")),
    **dict.fromkeys(
        ("ChatSettings", "ModelOptions", "Sampling", "SamplingParams"), ("memenvs.models.settings", "")
    ),
    HFPolicy=("memenvs.models.hf", "train"),
    VLLMPolicy=("memenvs.models.vllm", "vllm"),
)
