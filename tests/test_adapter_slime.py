"""slime's generate function: a group is collected, and each turn becomes a sample with its credit.

slime needs CUDA to be installed, so its modules are stand-ins with the fields and calls of its repository
(commit 624b824, August 2026).
"""

import asyncio
import enum
import itertools
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from replay import Replay
from transformers import AutoTokenizer

from memenvs.adapters.common import read_credit
from memenvs.adapters.slime import generate
from memenvs.baselines.advantages import group_advantages
from memenvs.core.vector import TextVectorEnv
from memenvs.models.chat import ChatTokens
from memenvs.rollout.engine import collect
from memenvs.wrappers import VectorRewardWrapper

END = "<|im_end|>"
READING = {"env": "MemChunkQA-v0", "settings": {"tasks": "world-test", "chunk_size": 300, "n_documents": 4}}
TAMTRL = {**READING, "methods": ["TAMTRL"], "scorer": "lexical", "credit": {"reward": "tamtrl"}}
SEARCH = {
    "env": "MemSearchQA-v0",
    "settings": {"tasks": "world-test", "k": 1, "max_turns": 3},
    "methods": ["SearchRewards"],
}
ASK = "<think></think><search>the mayor of the town</search>"


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


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def slime(monkeypatch, tokenizer):
    """Stand-ins for the modules of slime: `say(prompt)` gives each reply, and the calls in `fail` fail."""
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


def play(settings, seeds, size=4, **options):
    """The samples of each rollout of a group for each seed, as slime plays them."""
    args = SimpleNamespace(memenvs=settings, n_samples_per_prompt=size, rollout_max_context_len=None)
    params = {"max_new_tokens": 64, "temperature": 1.0}

    async def go():
        return await asyncio.gather(
            *(
                generate(
                    args, Sample(group, group * size + i, metadata={"seed": seed}), dict(params), **options
                )
                for group, seed in enumerate(seeds)
                for i in range(size)
            )
        )

    return asyncio.run(go())


def test_each_turn_of_a_reader_has_the_advantage_of_our_own_learner(slime, tokenizer):
    words = itertools.cycle("a note about Ann|the mayor|x|Houston and the dam|y z|\\boxed{1623}".split("|"))
    slime.say = lambda prompt: next(words)
    rollouts = play(TAMTRL, [3])
    replies = [[np.array(one.tokens[-one.response_length :]) for one in samples] for samples in rollouts]
    tokens = ChatTokens(tokenizer)
    venv = TextVectorEnv(TAMTRL["env"], 4, autoreset_mode="Disabled", **TAMTRL["settings"])
    venv = VectorRewardWrapper(venv, TAMTRL["methods"], "lexical", 4)
    policy = Replay(tokens, replies)
    episodes = collect(venv, policy, [3], 4)
    wanted = group_advantages(episodes, policy, *read_credit(TAMTRL["credit"], venv.methods))
    for samples, episode, values in zip(rollouts, episodes, wanted, strict=True):
        ends = np.cumsum([len(reply.ids) for reply in episode.replies])
        expected = [part.mean() for part in np.split(values, ends[:-1])]
        assert [one.reward for one in samples] == pytest.approx(expected)


def test_the_samples_of_a_rollout_share_its_id_and_train_their_reply_alone(slime):
    slime.say = lambda prompt: "a note"
    first, second = play(READING, [3], size=2)
    assert [one.rollout_id for one in first] == [0] * len(first)
    assert [one.rollout_id for one in second] == [1] * len(second)
    assert len(first) > 2
    for one in first:
        assert one.loss_mask == [1] * one.response_length
        assert len(one.rollout_log_probs) == one.response_length < len(one.tokens)
        assert one.status is Status.COMPLETED
        assert one.metadata["seed"] == 3
        assert one.metadata["success"] == 0.0


def test_a_growing_conversation_is_a_sample_a_turn_and_pays_what_each_turn_earned(slime, tokenizer):
    slime.say = lambda prompt: ASK
    (samples,) = play(SEARCH, [1], size=1)
    assert len(samples) == 4
    assert samples[1].tokens[: len(samples[0].tokens)] == samples[0].tokens
    assert samples[0].reward == pytest.approx(0.1 - 0.1)  # well-formed, and the first search
    assert samples[1].reward == pytest.approx(0.1 - 0.2)
    assert samples[2].reward == pytest.approx(0.1 - 0.3)
    assert samples[3].reward == pytest.approx(-1.0)  # no answer


def test_groups_play_apart_and_a_rollout_that_fails_trains_nothing(slime):
    slime.say, slime.fail = (lambda prompt: "a note"), (2,)
    with pytest.warns(UserWarning, match="failed: .*the router is down"):
        rollouts = play(READING, [3, 4], size=2)
    failed = [samples for samples in rollouts if samples[0].status is Status.FAILED]
    assert len(failed) == 1
    (one,) = failed[0]
    assert (one.remove_sample, one.loss_mask, one.reward) == (True, [0], 0.0)
    assert sum(len(samples) > 2 for samples in rollouts) == 3


def test_an_evaluated_rollout_is_one_sample_with_its_return(slime):
    slime.say = lambda prompt: ASK
    rollouts = play(SEARCH, [1], size=2, evaluation=True)
    assert [len(samples) for samples in rollouts] == [1, 1]
    assert [samples[0].reward for samples in rollouts] == [0.0, 0.0]


@pytest.mark.parametrize(("settings", "said"), [({"enw": "x"}, "memenvs"), (None, "memenvs")])
def test_wrong_settings_are_one_line(slime, settings, said):
    with pytest.raises(ValueError, match=said):
        play(settings, [1], size=1)
