"""Stand-ins for slime's modules, with the fields and calls of its repository (commit 624b824)."""

from __future__ import annotations

import asyncio
import enum
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

END = "<|im_end|>"


class Status(enum.Enum):
    PENDING, COMPLETED, FAILED = "pending", "completed", "failed"


@dataclass
class Sample:
    """The fields of `slime.utils.types.Sample` that are used."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: Any = ""
    tokens: list[int] = field(default_factory=list)
    response_length: int = 0
    label: str | None = None
    reward: float | None = None
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict = field(default_factory=dict)


Sample.Status = Status


def install(monkeypatch, tokenizer):
    """Make slime's modules importable: `say(prompt)` of what is returned gives each reply.

    The calls whose numbers are in its `fail` raise.
    """
    server = SimpleNamespace(say=None, fail=(), prompts=[])

    async def post(url, payload):
        assert url == "http://router/generate"
        server.prompts.append(tokenizer.decode(payload["input_ids"]))
        if len(server.prompts) in server.fail:
            raise OSError("the router is down")
        ids = tokenizer.encode(server.say(server.prompts[-1]) + END, add_special_tokens=False)
        ids = ids[: payload["sampling_params"]["max_new_tokens"]]
        pairs = [[-0.5, token, None] for token in ids]
        return {"text": "", "meta_info": {"finish_reason": {"type": "stop"}, "output_token_logprobs": pairs}}

    parts = {
        "slime.rollout.sglang_rollout": {
            "GenerateState": lambda args: SimpleNamespace(tokenizer=tokenizer),
            "get_model_url": lambda args, name: "http://router/generate",
        },
        "slime.utils.http_utils": {"post": post},
        "slime.utils.types": {"Sample": Sample},
    }
    for name in ("slime", "slime.rollout", "slime.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, values in parts.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return server


def play(settings, seeds, size=4, named="seed", **options):
    """The samples of each rollout of a group for each seed, or `named` task, as slime plays them."""
    from memenvs.adapters.slime import generate

    args = SimpleNamespace(memenvs=settings, n_samples_per_prompt=size, rollout_max_context_len=None)
    params = {"max_new_tokens": 64, "temperature": 1.0}

    async def go():
        return await asyncio.gather(
            *(
                generate(
                    args, Sample(group, group * size + i, metadata={named: seed}), dict(params), **options
                )
                for group, seed in enumerate(seeds)
                for i in range(size)
            )
        )

    return asyncio.run(go())
