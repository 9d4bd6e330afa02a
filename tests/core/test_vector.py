"""N text environments stepped together: Gymnasium's `SyncVectorEnv`, with one search a step."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from transcripts import plain

from memenvs import TextVectorEnv
from memenvs.wrappers import RewardWrapper

MODES = list(AutoresetMode)
REPLIES = ["<think>a</think><search>{}</search>", "<think></think><answer>{}</answer>", "noise {}", ""]


def replies(step, count):
    return [REPLIES[(step + i) % len(REPLIES)].format(f"town {step} {i}") for i in range(count)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("methods", [[], ["SearchRewards", "MemPO"]], ids=["bare", "rewarded"])
def test_together_is_the_same_as_one_by_one(methods, mode):
    def make():
        env = gym.make("MemSearchQA-v0", max_turns=3, disable_env_checker=True)
        return RewardWrapper(env, methods, "lexical") if methods else env

    ours = TextVectorEnv([make] * 4, autoreset_mode=mode)
    theirs = SyncVectorEnv([make] * 4, autoreset_mode=mode)
    assert data_equivalence(plain(ours.reset(seed=5)), plain(theirs.reset(seed=5)))
    ended = 0
    for step in range(8):
        actions = replies(step, 4)
        mine, gymnasiums = ours.step(actions), theirs.step(actions)
        assert data_equivalence(plain(mine), plain(gymnasiums))
        over = mine[2] | mine[3]
        ended += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            options = [{"reset_mask": over.copy()} for _ in range(2)]
            assert data_equivalence(
                plain(ours.reset(options=options[0])), plain(theirs.reset(options=options[1]))
            )
    assert ended >= 4


class Counted:
    """A retriever that counts the calls to another."""

    def __init__(self, retriever):
        self.retriever, self.calls = retriever, []

    def search(self, queries, k):
        self.calls.append(list(queries))
        return self.retriever.search(queries, k)

    def passages(self, ids):
        return self.retriever.passages(ids)


def counted(env_id, count, **kwargs):
    """Environments that share a retriever, and that retriever."""
    venv = TextVectorEnv([lambda: gym.make(env_id, **kwargs)] * count)
    retriever = Counted(venv.envs[0].unwrapped.retriever)
    for env in venv.envs:
        env.unwrapped.retriever = retriever
    venv.reset(seed=0)
    return venv, retriever


@pytest.mark.parametrize(
    ("env_id", "reply"),
    [
        ("MemSearchQA-v0", "<think></think><search>town {}</search>"),
        ("MemToolQA-v0", '<tool>{{"name": "wiki_search", "args": {{"query": "town {}"}}}}</tool>'),
    ],
)
def test_all_searches_of_a_step_are_one_call(env_id, reply):
    venv, retriever = counted(env_id, 8)
    venv.step([reply.format(i) for i in range(8)])
    assert retriever.calls == [[f"town {i}" for i in range(8)]]


def test_a_reply_to_an_episode_that_is_over_searches_nothing():
    venv, retriever = counted("MemSearchQA-v0", 2)
    search = "<think></think><search>town</search>"
    venv.step(["<think></think><answer>x</answer>", search])
    venv.step([search, search])  # the first one is reset
    assert [len(queries) for queries in retriever.calls] == [1, 1]


def test_the_number_of_replies_is_the_number_of_environments():
    venv = TextVectorEnv([lambda: gym.make("MemSokoban-v0")] * 2)
    venv.reset(seed=0)
    with pytest.raises(ValueError):
        venv.step(["only one"])


def test_a_task_can_be_chosen_for_all():
    venv = TextVectorEnv([lambda: gym.make("MemSokoban-v0")] * 3)
    _, infos = venv.reset(seed=[1, 2, 3], options={"task": 4})
    assert len({*infos["task"].tolist()}) == 1


def test_observations_and_actions_are_in_their_spaces():
    venv = TextVectorEnv([lambda: gym.make("MemChunkQA-v0")] * 2)
    observations, _ = venv.reset(seed=0)
    assert venv.observation_space.contains(observations)
    assert venv.action_space.contains(("a", "b"))
    _, rewards, *_ = venv.step(np.array(["a", "b"], object))
    assert rewards.shape == (2,)
