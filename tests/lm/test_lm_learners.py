"""One step of each learner with a real model and an adapter, in the dtype that is fast here."""

import json
import math
from typing import get_type_hints

import numpy as np
import pytest

from memenvs.baselines import distill, grpo, mt_ppo, sft
from memenvs.models import HFPolicy

READING = {
    "env": "MemChunkQA-v0",
    "env_args": {"tasks": "world-train", "n_documents": 4, "chunk_size": 300, "max_memory": 32},
}
# An untrained model hardly ever earns the outcome: with "plus" memories are paid all the same, and "turn"
# trains on groups without a right answer too.
PAID = {"reward": "turn", "methods": ["TAMTRL", "combine=plus"]}
SETTINGS = {
    "sft": (sft, {**READING, "teacher": "gold", "episodes": 4, "epochs": 1}),
    "grpo with TAMTRL": (grpo, {**READING, **PAID, "steps": 1, "groups": 1, "group_size": 4}),
    "distill": (distill, {**READING, "steps": 1, "groups": 2}),
    "distill of an agent that ships": (
        distill,
        {**READING, "steps": 1, "groups": 2, "model": "smollm2-reader", "lora_rank": 0},
    ),
    "mt_ppo": (mt_ppo, {"env": "MemSokoban-v0", "reward": "turn", "steps": 1, "groups": 4}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_moves_the_adapter_and_leaves_a_policy_that_plays(name, smollm2, tmp_path):
    learner, settings = SETTINGS[name]
    shared = {
        "model": "smollm2",
        "lora_rank": 4,
        "lr": 1e-3,
        "max_new_tokens": 32,
        "num_envs": 4,
        "micro_batch_tokens": 1024,
    }
    args = get_type_hints(learner.train)["args"](out=tmp_path / "run", **{**shared, **settings})
    training = learner.prepare(args)
    learner.train(training, args)
    (line,) = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert all(math.isfinite(value) for value in line.values() if isinstance(value, float))
    folder = tmp_path / "run" / "last" / "policy"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 20_000_000  # the adapter alone
    trained, base = HFPolicy.load(str(folder)), HFPolicy(smollm2)
    ids = trained.encode("Which school educated Zitena Sonenko?")
    (reply,) = trained.sample([ids], [np.random.default_rng(0)], 8)
    assert reply.text
    sequence, mask = np.append(ids, reply.ids), np.arange(len(ids) + len(reply.ids)) >= len(ids)
    now, before = (policy.forward([sequence], [mask]).logprobs.detach() for policy in (trained, base))
    assert float((now - before).abs().max()) > 0
