"""A learner whose rollouts come from a real vLLM engine on a CPU; `make test-vllm` runs it."""

import importlib.util
import json

import numpy as np
import pytest
from tiny_model import save_tiny_model

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM here: `make test-vllm`"),
    pytest.mark.filterwarnings("ignore"),  # vLLM and what it imports warn of their own business
]


@pytest.mark.parametrize("lora_rank", [0, 4], ids=["whole", "adapter"])
def test_the_engine_writes_with_the_weights_of_the_last_update(lora_rank, tmp_path):
    from memenvs.baselines import mt_ppo
    from memenvs.models import HFPolicy

    # vLLM on a CPU cannot renew a tied head; an adapter leaves it as it is.
    tiny_model = save_tiny_model(tmp_path / "tiny", tied=bool(lora_rank))
    # Nothing that a random model says earns anything; a critic that expected something moves the weights.
    args = mt_ppo.MTPPOArgs(
        model=str(tiny_model), out=tmp_path / "run", env_args={"max_turns": 2}, steps=2, groups=4,
        num_envs=4, max_new_tokens=8, lr=1e-2,
        vllm={"enforce_eager": True}, kl_coef=0.1, seed=1,
        lora_rank=lora_rank,
    )  # fmt: skip
    training = mt_ppo.prepare(args)
    mt_ppo.train(training, args)
    lines = [json.loads(line) for line in (args.out / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    # Old log-probabilities are the policy's own, so that the first ratio is 1 whatever the engine rounds.
    assert all(line["approx_kl"] < 1e-9 for line in lines)
    assert all(abs(line["kl_sampler"]) < 1e-3 for line in lines)
    prompt = training.policy.encode("Ada Lovelace wrote the first program")
    (reply,) = training.sampler.sample([prompt], [np.random.default_rng(0)], 12)
    sequence, mask = (
        np.concatenate([prompt, reply.ids]),
        np.arange(len(prompt) + len(reply.ids)) >= len(prompt),
    )
    now = training.policy.forward([sequence], [mask]).logprobs.detach().numpy()
    np.testing.assert_allclose(reply.logprobs, now, atol=1e-3)
    before = HFPolicy(str(tiny_model)).forward([sequence], [mask]).logprobs.detach().numpy()
    assert np.abs(before - now).max() > 0.01
