"""Language models as policies; those that need torch or vLLM load when they are first named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memenvs.core.episode import Ids, Reply
from memenvs.core.optional import lazy_names
from memenvs.models.policy import LoRA, PolicyOutput, SamplingParams, ScriptedPolicy, TokenPolicy

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

__getattr__ = lazy_names(
    __name__, HFPolicy=("memenvs.models.hf", "train"), VLLMPolicy=("memenvs.models.vllm", "vllm")
)
