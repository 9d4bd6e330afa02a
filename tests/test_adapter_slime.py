"""slime's generate function: a group is collected, and each turn becomes a sample with its credit.

slime needs CUDA to be installed, so its modules are stand-ins (`slime_stub`).
"""

import itertools

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from replay import Replay
from slime_stub import Status, install, play
from transformers import AutoTokenizer

from memenvs.adapters.common import open_env, read_credit
from memenvs.baselines.advantages import group_advantages
from memenvs.core.vector import TextVectorEnv
from memenvs.models.chat import ChatTokens
from memenvs.rollout.engine import collect
from memenvs.wrappers import VectorRewardWrapper

READING = {"env": "MemChunkQA-v0", "settings": {"tasks": "world-test", "chunk_size": 300, "n_documents": 4}}
TAMTRL = {**READING, "methods": ["TAMTRL"], "scorer": "lexical", "credit": {"reward": "tamtrl"}}
SEARCH = {
    "env": "MemSearchQA-v0",
    "settings": {"tasks": "world-test", "k": 1, "max_turns": 3},
    "methods": ["SearchRewards"],
}
ASK = "<think></think><search>the mayor of the town</search>"


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def slime(monkeypatch, tokenizer):
    return install(monkeypatch, tokenizer)


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


def test_a_row_names_a_task_by_its_number(slime):
    slime.say = lambda prompt: "a note"
    env = open_env(READING["env"], READING["settings"])
    play(READING, [5, 0], size=2, named="task")
    for task in (5, 0):
        question = env.reset(options={"task": task})[1]["privileged"]["question"]
        assert sum(question in prompt for prompt in slime.prompts) >= 2


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
