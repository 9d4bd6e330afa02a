"""N text environments stepped together: the same as one by one, with one search per step."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from transcripts import plain

import memenvs
from memenvs.core.vector import TextVectorEnv
from memenvs.wrappers import VectorRewardWrapper

MODES = list(AutoresetMode)
REPLIES = ["<think>a</think><search>{}</search>", "<think></think><answer>{}</answer>", "noise {}", ""]


def replies(step, count):
    return [REPLIES[(step + i) % len(REPLIES)].format(f"town {step} {i}") for i in range(count)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("env_id", ["MemSearchQA-v0", "MemSokoban-v0", "MemChunkQA-v0"])
def test_together_is_the_same_as_gymnasiums_own_one_by_one(env_id, mode):
    import gymnasium as gym

    ours = TextVectorEnv(env_id, 4, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: gym.make(env_id)] * 4, autoreset_mode=mode)
    assert data_equivalence(plain(ours.reset(seed=5)), plain(theirs.reset(seed=5)))
    ended = 0
    for step in range(12):
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
    assert ended >= 2


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("methods", [[], ["SearchRewards"]], ids=["bare", "rewarded"])
def test_feedback_joins_what_was_read_to_what_is_read_next_and_is_empty_at_a_beginning(mode, methods):
    venv = TextVectorEnv("MemSearchQA-v0", 2, autoreset_mode=mode, max_turns=1)
    host = VectorRewardWrapper(venv, methods) if methods else venv
    before, _ = host.reset(seed=0)
    assert [info["feedback"] for info in venv.infos_list] == ["", ""]
    # the first answers and ends; the second searches, then runs out of turns
    said = ["<think></think><answer>x</answer>", "<think></think><search>town</search>"]
    after, _, terminated, _, infos = host.step(said)
    assert terminated.tolist() == [True, False]
    assert after[1] == before[1] + said[1] + venv.infos_list[1]["feedback"]
    assert "<information>" in venv.infos_list[1]["feedback"]
    assert infos["feedback"].tolist() == [info["feedback"] for info in venv.infos_list]
    if mode is AutoresetMode.SAME_STEP:
        assert infos["final_obs"][0] == before[0] + said[0] + infos["final_info"]["feedback"][0]
        assert venv.infos_list[0]["feedback"] == ""  # of the episode that has begun
    else:
        assert after[0] == before[0] + said[0] + venv.infos_list[0]["feedback"]
    if mode is AutoresetMode.NEXT_STEP:
        host.step(said)
        assert venv.infos_list[0]["feedback"] == ""


class Counted:
    """A retriever that counts the calls to another."""

    def __init__(self, retriever):
        self.retriever, self.calls = retriever, []

    def search(self, queries, k):
        self.calls.append(list(queries))
        return self.retriever.search(queries, k)

    def passages(self, ids):
        return self.retriever.passages(ids)


@pytest.mark.parametrize(
    ("env_id", "reply"),
    [
        ("MemSearchQA-v0", "<think></think><search>town {}</search>"),
        ("MemToolQA-v0", '<tool>{{"name": "wiki_search", "args": {{"query": "town {}"}}}}</tool>'),
    ],
)
def test_all_searches_of_a_step_are_one_call(env_id, reply):
    venv = TextVectorEnv(env_id, 8)
    counted = Counted(venv.envs[0].unwrapped.retriever)
    for env in venv.envs:
        env.unwrapped.retriever = counted
    venv.reset(seed=0)
    venv.step([reply.format(i) for i in range(8)])
    assert counted.calls == [[f"town {i}" for i in range(8)]]


def test_an_environment_that_does_not_play_keeps_its_observation():
    venv = TextVectorEnv("MemSokoban-v0", 3)
    first, _ = venv.reset(seed=0)
    mask = np.array([True, False, True])
    second, rewards, _, _, infos = venv.step(["a", "b", "c"], mask=mask)
    assert second[1] == first[1]
    assert second[0] != first[0]
    assert rewards[1] == 0.0
    assert infos["_turn"].tolist() == mask.tolist()


def test_equal_seeds_make_a_group_and_tasks_can_be_chosen():
    venv = TextVectorEnv("MemSokoban-v0", 4)
    group, _ = venv.reset(seed=np.array([7, 7, 7, 8]))
    assert group[0] == group[1] == group[2] != group[3]
    assert venv.reset(seed=np.int64(6))[0][1:3] == (group[0], group[3])
    _, infos = venv.reset(options={"task": [0, 1, 0, 1]})
    assert infos["task"][0] == infos["task"][2] != infos["task"][1] == infos["task"][3]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_episodes_that_begin_by_themselves_can_be_seeded_for_one_step(mode):
    def tasks(seeds):
        venv = TextVectorEnv("MemSokoban-v0", 2, autoreset_mode=mode, max_turns=1, max_actions=9)
        venv.reset(seed=0)
        begun = []
        for _ in range(4):
            venv.seed_autoreset(seeds)
            venv.step(["a", "b"])
            begun.append([info["task"] for info in venv.infos_list])
        return begun[1], begun[3]

    first, second = tasks([7, 7])
    assert first == second
    assert first[0] == first[1]
    assert len({task for begun in tasks([None, None]) for task in begun}) > 1


def test_with_same_step_autoreset_an_environment_that_does_not_play_does_not_begin():
    venv = TextVectorEnv("MemSokoban-v0", 2, autoreset_mode="SameStep")
    first = np.array([True, False])
    venv.reset(seed=0, options={"reset_mask": first})
    venv.step(["Up", "Up"], first)
    assert (venv.finals, venv.over.tolist()) == ({}, [False, True])


@pytest.mark.parametrize(
    "call",
    [
        lambda venv: TextVectorEnv("MemSokoban-v0"),
        lambda venv: TextVectorEnv("MemSokoban-v0", 0),
        lambda venv: TextVectorEnv([], None),
        lambda venv: venv.set_states([], ("a", "b")),
        lambda venv: venv.step(["only one"]),
        lambda venv: venv.step("ab"),  # not a reply for each character
        lambda venv: venv.step(["Up", "Up"], mask=[True]),
        lambda venv: venv.reset(seed=[1]),
        lambda venv: venv.reset(seed=-1),
        lambda venv: venv.reset(seed=True),
        lambda venv: venv.reset(options={"reset_mask": [1, 0]}),
        lambda venv: venv.reset(options={"task": [1]}),
        lambda venv: venv.reset(options={"task": [0, 10**9]}),
    ],
)
def test_what_does_not_fit_is_refused(call):
    venv = TextVectorEnv("MemSokoban-v0", 2, errors="truncate")
    venv.reset(seed=0)
    with pytest.raises(ValueError):
        call(venv)


def test_observations_and_actions_are_in_their_spaces():
    venv = TextVectorEnv("MemChunkQA-v0", 2)
    observations, _ = venv.reset(seed=0)
    assert venv.observation_space.contains(observations)
    assert venv.action_space.contains(("a", "b"))
    assert memenvs.UnicodeText(10).contains("x")


def test_one_environment_given_twice_is_refused():
    env = gym.make("memenvs:MemSokoban-v0")
    with pytest.raises(ValueError, match="a new environment"):
        TextVectorEnv([lambda: env, lambda: env])
