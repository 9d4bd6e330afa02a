"""Groups of options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EnvOptions:
    """The environment."""

    env: str
    """id, such as MemChunkQA-v0, or package:ID for an environment of another package."""
    env_args: dict[str, Any] = field(default_factory=dict)
    """arguments, as chunk_size=1000 or one JSON object; `memenvs list ID` shows them."""


@dataclass(frozen=True)
class PolicyOptions:
    """The policy that plays, and the reward methods that wrap the environment."""

    policy: str | None = None
    """gold, silent, random_text, lexical, careful, hf:MODEL (a folder, a hub name, or a model of `memenvs
    list`, as hf:smollm2, or hf:smollm2-reader, which reads), openai:URL (reads a key from OPENAI_API_KEY),
    replay:RUN (the replies of an earlier run again), or your own as package.module:function. The function
    gets observation and info; a function or class with one argument gets the environment at every episode
    and returns such a function. `play` also takes me (you type the replies) and plays MemSokobanGrid-v0 with
    gold, random or me; its default is lexical for reading, searching and tools, and otherwise gold."""
    methods: Sequence[str] = ()
    """reward methods: TAMTRL, InfoMem beta=0.1, package.module:Class for your own, or JSON as for the
    learners (`memenvs list` shows all)."""
    scorer: str | None = None
    """computes log-probabilities for the methods: lexical, hf:MODEL, vllm:MODEL, policy (the model that
    plays; the default with hf:MODEL), or JSON with settings."""
