"""States: an episode is its seed and its replies, of one environment."""

import copy
import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import RecordEpisodeStatistics

import memenvs
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.sokoban.environments import SokobanEnv, SokobanImageEnv
from memenvs.sokoban.grid import SokobanGridEnv

SEARCH = "<think></think><search>a town</search>"


def state_of(env):
    env.reset(seed=0)
    return memenvs.get_state(env)


def refused(env, state):
    """`set_state` raises one line and changes nothing."""
    before = memenvs.get_state(env)
    with pytest.raises(ValueError) as error:
        memenvs.set_state(env, state)
    assert "\n" not in str(error.value)
    assert memenvs.get_state(env) == before


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (ChunkQAEnv, lambda: ChunkQAEnv(chunk_size=900)),
        (ChunkQAEnv, lambda: ChunkQAEnv("world-test")),
        (SokobanEnv, lambda: SokobanEnv(max_turns=9)),
        (SokobanEnv, SokobanImageEnv),
        (SokobanGridEnv, SokobanEnv),
        (SokobanGridEnv, lambda: SokobanGridEnv(max_steps=9)),
    ],
)
def test_a_state_of_another_environment_is_refused(make, other):
    env = make()
    env.reset(seed=1)
    refused(env, state_of(other()))


def test_one_question_file_tells_itself_from_another(tmp_path):
    envs = []
    for name, question in (("a", "who?"), ("b", "what?")):
        path = tmp_path / name / "questions.jsonl"
        path.parent.mkdir()
        path.write_text(f'{{"question": "{question}", "answers": ["Ann"]}}\n')
        envs.append(SearchQAEnv(tasks=str(path), retriever="http://127.0.0.1:9"))
    envs[1].reset(seed=0)
    refused(envs[1], state_of(envs[0]))


def test_a_default_that_is_written_out_is_the_same_argument():
    memenvs.set_state(SokobanEnv(max_turns=3), state_of(SokobanEnv()))


def test_the_id_and_the_class_behind_it_take_each_others_states():
    memenvs.set_state(gym.make("MemChunkQA-v0"), state_of(ChunkQAEnv(render_mode="ansi")))


def test_an_episode_that_no_seed_began_has_a_state_too():
    env, other = SokobanEnv(), SokobanEnv()
    env.reset()
    env.step("<think></think><answer>Up</answer>")
    memenvs.set_state(other, memenvs.get_state(env))
    assert data_equivalence(env.step("x"), other.step("x"))
    assert data_equivalence(env.reset(), other.reset())


@pytest.mark.parametrize("seed", [1.5, "1", float("nan"), -1])
def test_a_seed_that_is_no_whole_number_from_0_on_is_refused(seed):
    env = SokobanEnv()
    with pytest.raises(gym.error.Error, match="Seed must be"):
        env.reset(seed=seed)
    assert data_equivalence(env.reset(seed=np.int64(1)), SokobanEnv().reset(seed=1))


def test_replies_that_lead_elsewhere_are_refused():
    env = SokobanEnv()
    env.reset(seed=0)
    env.step("<think></think><answer>Up</answer>")
    state = memenvs.get_state(env)
    other = SokobanEnv()
    for changed in ({"seed": 1}, {"actions": []}):
        with pytest.raises(ValueError):
            memenvs.set_state(other, {**state, **changed})


def test_wrappers_that_do_not_know_states_play_the_replies_too():
    env, other = (RecordEpisodeStatistics(gym.make("MemSokoban-v0", max_turns=3)) for _ in range(2))
    env.reset(seed=0)
    env.step("x")
    memenvs.set_state(other, json.loads(json.dumps(memenvs.get_state(env))))
    for one in (env, other):
        one.step("x")
        info = one.step("x")[4]
        assert info["episode"]["l"] == 3


def test_an_episode_that_is_over_is_over_in_its_copies_and_where_its_state_is_put_back():
    env = gym.make("MemSokoban-v0", max_turns=1, max_actions=9)
    env.reset(seed=0)
    env.step("x")
    other = gym.make("MemSokoban-v0", max_turns=1, max_actions=9)
    memenvs.set_state(other, memenvs.get_state(env))
    for one in (other, copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        with pytest.raises(gym.error.ResetNeeded):
            one.step("x")


def test_there_is_no_state_before_a_reset():
    with pytest.raises(gym.error.ResetNeeded):
        memenvs.get_state(gym.make("MemSokoban-v0"))


class Counted:
    """A retriever that counts the calls to another."""

    def __init__(self, retriever):
        self.retriever, self.calls = retriever, 0

    def search(self, queries, k):
        self.calls += 1
        return self.retriever.search(queries, k)

    def passages(self, ids):
        return self.retriever.passages(ids)


def test_a_copy_searches_no_more_than_the_original_did():
    env = SearchQAEnv(tasks="world-test")
    env.retriever = Counted(env.retriever)
    env.reset(seed=0)
    env.step(SEARCH)
    other = copy.deepcopy(env)
    assert env.retriever.calls == 1
    assert other.retriever is env.retriever
    assert data_equivalence(env.step(SEARCH), other.step(SEARCH))
