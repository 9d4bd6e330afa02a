"""Groups of options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EnvOptions:
    """The environment.

    Attributes:
        env: its id, such as MemChunkQA-v0; of another package with the module, as package:ID.
        env_args: its arguments, as chunk_size=1000, or one JSON object; `memenvs list ID` shows them.
    """

    env: str
    env_args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PolicyOptions:
    """Who plays, and the reward methods around the environment.

    Attributes:
        policy: gold, silent, random_text, lexical, careful, hf:MODEL (a folder, a hub name or a packaged
            model's, as hf:smollm2), openai:URL (its key, if it wants one, in OPENAI_API_KEY), or your own as
            package.module:function, called with observation and info; a function or class of one argument
            gets the environment at every episode and returns such a function. `play` also takes me (you type
            the replies), of MemSokobanGrid-v0 gold, random or me, and by default lexical for chunked reading
            and gold elsewhere.
        methods: reward methods: TAMTRL, InfoMem beta=0.1, package.module:Class for your own, or JSON as for
            the learners (`memenvs list` names them).
        scorer: gives the methods log-probabilities: lexical, hf:MODEL, vllm:MODEL, or JSON with settings;
            policy is the model that plays, the default with hf:MODEL.
    """

    policy: str | None = None
    methods: Sequence[str] = ()
    scorer: str | None = None
