"""A scorer or an environment fails under reward methods: its episode ends, and its group is completed."""

import math
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from test_reward_wrapper import CHUNKS, MEMORY, READING
from test_vector_errors import Mortal

from memenvs.core.vector import TextVectorEnv
from memenvs.credit import infomem_bonus
from memenvs.wrappers import (
    Credit,
    InfoMemMethod,
    RewardMethod,
    RewardWrapper,
    SearchRewardsMethod,
    VectorRewardWrapper,
)
from memenvs.wrappers.scorers import LexicalScorer

SEARCH = "<mem>1623</mem><think></think><search>{}</search>"
ANSWER = "<mem>1623</mem><think></think><answer>1623</answer>"
AWAY = "ConnectionError: no scorer at http://node:8000"


class Partly(LexicalScorer):
    """A scorer that raises for continuations or prompts with a word, and counts its calls."""

    def __init__(self, word):
        super().__init__()
        self.word, self.calls = word, 0

    def logprobs(self, requests):
        self.calls += 1
        if any(self.word in text for request in requests for text in request):
            raise ConnectionError("no scorer at http://node:8000")
        return super().logprobs(requests)


@dataclass
class Kept(RewardMethod):
    """Keeps the groups it assigned credit to."""

    name = "kept"
    group = True
    immediate = False

    def __post_init__(self):
        self.groups = []

    def assign_credit(self, episodes):
        self.groups.append(list(episodes))
        return [[Credit(0, 1.0)] for _ in episodes]


def rewarded(n, methods, scorer="lexical", group_size=1, *, fates=None, errors="truncate", **kwargs):
    mode, env_id = kwargs.pop("mode", "Disabled"), kwargs.pop("env_id", "MemChunkQA-v0")
    fates = fates or [{}] * n
    makes = [lambda fate=fate: Mortal(gym.make(env_id, **kwargs), **fate) for fate in fates]
    venv = TextVectorEnv(makes, autoreset_mode=mode, errors=errors)
    return VectorRewardWrapper(venv, methods, scorer, group_size)


def run(venv, replies, turns=4, **reset):
    """Play to the end, in Disabled mode; what each environment received, and how it ended."""
    venv.reset(**(reset or {"options": {"task": 0}}))
    over = np.array([info["error"] != "" for info in venv.infos_list])
    received, cut, groups = (
        np.zeros(venv.num_envs),
        np.zeros(venv.num_envs, bool),
        list(venv.completed_groups),
    )
    for turn in range(turns):
        if over.all():
            break
        actions = [of[min(turn, len(of) - 1)] for of in replies]
        _, rewards, terminated, truncated, _ = venv.step(actions, mask=~over)
        received += rewards
        cut |= truncated
        over |= terminated | truncated
        groups += venv.completed_groups
    assert over.all()
    return received, cut, groups


def reading(*memories):
    return [["", "", memory, "\\boxed{1623}"] for memory in memories]


def test_a_scorer_that_fails_for_one_environment_truncates_it_alone():
    scorer = Partly("poison")
    venv = rewarded(3, ["IGPO"], scorer, **CHUNKS)
    _, cut, _ = run(venv, reading("1623", "poison", "the year"))
    assert cut.tolist() == [False, True, False]
    assert [info["error"] for info in venv.infos_list] == ["", AWAY, ""]
    assert venv.infos_list[1]["turn"] == 3
    # the first step; none for the second, whose memories are as empty; the third, once more for each
    # environment; none at the last
    assert scorer.calls == 1 + (1 + 3)


def test_a_turn_after_a_step_that_the_scorer_interrupted_is_refused():
    venv = rewarded(2, ["IGPO"], Partly("poison"), errors="raise", **CHUNKS)
    single = RewardWrapper(gym.make("MemChunkQA-v0", **CHUNKS), ["IGPO"], Partly("poison"))
    for env, bad, good in ((venv, ["a", "poison"], ["a", "b"]), (single, "poison", "a")):
        env.reset(seed=0)
        with pytest.raises(ConnectionError):
            env.step(bad)
        with pytest.raises((gym.error.ResetNeeded, ValueError), match=r"reset"):
            env.step(good)
        assert len((env.record(1) if env is venv else env.record).turns) == 0
        env.reset(seed=0)
        env.step(good)


@pytest.mark.parametrize("mode", ["Disabled", "NextStep"])
def test_an_end_that_the_scorer_interrupted_is_played_again_by_its_group(mode):
    answer, search = ANSWER, SEARCH.format("x")
    scorer = Partly("poison")
    options = {"env_id": "MemSearchQA-v0", "errors": "raise", "mode": mode, **MEMORY}
    venv = rewarded(2, ["MemPO"], scorer, 2, **options)
    venv.reset()  # its seeds are of the episodes' numbers
    venv.step([search, search])
    with pytest.raises(ConnectionError):
        venv.step([answer.replace("1623", "poison"), search], np.array([True, False]))
    again = np.array([True, False])
    if mode == "Disabled":
        venv.reset(options={"reset_mask": again})
    else:
        venv.step([answer, answer], again)
    venv.step([answer, answer])
    (group,) = venv.completed_groups
    assert [len(episode.turns) for episode in group] == [1, 2]


def test_the_credits_of_an_episode_that_could_not_be_scored_are_nan_with_the_reason():
    venv = rewarded(2, READING, Partly("poison"), group_size=2, **CHUNKS)
    run(venv, reading("1623", "poison"))
    info = venv.infos_list[1]
    for name in ("tamtrl", "infomem", "mempo"):
        assert np.isnan(info["signals"][name]).tolist() == [True] * 4
        assert math.isnan(info["rewards"][name])
        assert [credit.reason for credit in info["credits"][name]] == [AWAY] * 4
        assert all(math.isnan(credit.value) for credit in info["credits"][name])
        assert info["metrics"][f"{name}_unscored"] == 4.0
    assert info["turn_rewards"] == [0.0] * 4


def test_the_group_is_compared_without_the_failed_one():
    venv = rewarded(4, ["InfoMem"], Partly("poison"), group_size=4, **CHUNKS)
    received, _, (group,) = run(venv, reading("1623", "poison", "the year", "nothing"))
    gains = np.array([episode.signals["infomem"][-1] for episode in group])
    assert np.isnan(gains).tolist() == [False, True, False, False]
    living = [0, 2, 3]
    expected = 1 + 0.2 * infomem_bonus(gains[living], [True] * 3)
    np.testing.assert_allclose(received[living], expected)
    assert received[1] == 1.0  # InfoMem asks at the last turn, when the outcome is known


def test_a_group_with_one_alive_is_not_taken_for_an_episode_without_a_group():
    kept = Kept()
    method = InfoMemMethod()
    venv = rewarded(2, [method, kept], Partly("poison"), group_size=2, **CHUNKS)
    received, _, _ = run(venv, reading("the year 1623", "poison"))
    assert [len(group) for group in kept.groups] == [2]
    assert method.get_state() == {}  # no running statistics: the raw gain of one success
    gain = venv.infos_list[0]["signals"]["infomem"][-1]
    assert received[0] == pytest.approx(1 + 0.2 * gain + 1.0)


def test_a_group_that_failed_as_a_whole_is_completed_without_credit():
    kept = Kept()
    venv = rewarded(2, [kept, "TAMTRL"], Partly(""), group_size=2, **CHUNKS)
    _, _, (group,) = run(venv, reading("1623", "x"))
    assert kept.groups == []
    assert all(episode.error == AWAY for episode in group)


def test_an_episode_that_had_ended_anyway_stays_terminated():
    venv = rewarded(1, ["InfoMem"], Partly("1623"), **CHUNKS)  # InfoMem asks at the last turn
    venv.reset(options={"task": 0})
    for reply in ("", "", ""):
        venv.step([reply])
    _, rewards, terminated, truncated, _ = venv.step(["\\boxed{1623}"])
    assert (terminated[0], truncated[0]) == (True, False)
    assert venv.infos_list[0]["error"] == AWAY
    assert rewards[0] == venv.infos_list[0]["metrics"]["outcome"] == 1.0  # the outcome is known


def test_what_was_paid_at_its_turn_stays_paid():
    fates = [{"steps": [1]}]
    venv = rewarded(1, [SearchRewardsMethod(search_cost=0.0)], fates=fates, env_id="MemSearchQA-v0", **MEMORY)
    received, _, _ = run(venv, [[SEARCH.format("zzz")]])
    info = venv.infos_list[0]
    # a well-formed search that found nothing: 0.1 for its form; then the environment dies
    assert [credit.value for credit in info["credits"]["search_rewards"]] == pytest.approx(
        [0.1, math.nan], nan_ok=True
    )
    assert np.isnan(info["signals"]["search_rewards"]).tolist() == [False, True]
    assert received[0] == pytest.approx(math.fsum(info["turn_rewards"])) == pytest.approx(0.1)


def test_a_group_whose_resets_all_failed_is_complete_after_the_reset():
    venv = rewarded(2, READING, group_size=2, fates=[{"resets": [0]}] * 2, **CHUNKS)
    venv.reset(seed=0)
    assert [len(group) for group in venv.completed_groups] == [2]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_where_episodes_begin_by_themselves_the_one_after_a_scorer_that_fails_does_too(mode):
    venv = rewarded(2, ["IGPO"], Partly("poison"), group_size=2, mode=mode, **CHUNKS)
    venv.reset(seed=3)
    observations, _, terminated, truncated, infos = venv.step(["a", "poison"])
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [False, True])
    if mode == "SameStep":
        assert infos["final_info"]["error"].tolist() == [None, AWAY]
        assert infos["_final_info"].tolist() == [False, True]
        assert infos["final_obs"][1] != observations[1]
    else:
        assert venv.infos_list[1]["error"] == AWAY
        observations, _, _, truncated, _ = venv.step(["b", "not played"])
        assert not truncated.any()
    assert (venv.infos_list[1]["turn"], venv.infos_list[1]["error"]) == (0, "")
    assert venv.unwrapped.envs[1].unwrapped.episode.turn == 0
    venv.step(["b", "c"])
    assert venv.infos_list[1]["turn"] == 1


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_groups_play_one_task_again_after_a_reset_that_failed(mode):
    fates = [{"resets": [1, 3]}, {}, {"steps": [2]}, {}]
    venv = rewarded(4, ["TAMTRL"], group_size=2, fates=fates, mode=mode, **CHUNKS)
    venv.reset(seed=3)
    groups = []
    for _ in range(24):
        venv.step(["\\boxed{a}"] * 4)
        groups += venv.completed_groups
    played = [[episode for episode in group if episode.turns] for group in groups]
    assert all(len({e.turns[0].info["task"] for e in group}) == 1 for group in played if group)
    assert len([group for group in played if len(group) == 2]) >= 6
    assert len([group for group in played if len(group) == 1]) == 2  # whose other member never began


def test_after_a_reset_that_raised_a_group_plays_the_task_that_came_next():
    def begun(*failing):
        fates = [{"resets": failing}, {}]
        venv = rewarded(2, ["TAMTRL"], group_size=2, fates=fates, errors="raise", **CHUNKS)
        venv.reset(seed=5)
        tasks = []
        for i in range(1, 4):
            if i in failing:
                with pytest.raises(ConnectionError):
                    venv.reset()
            else:
                venv.reset()
                tasks.append([info["task"] for info in venv.infos_list])
        return tasks

    assert begun(2) == begun()[:2]


def test_numpys_whole_seed_makes_groups_too():
    venv = rewarded(4, ["TAMTRL"], group_size=2, **CHUNKS)
    venv.reset(seed=np.int64(5))
    first = [info["task"] for info in venv.infos_list]
    venv.reset(seed=5)
    assert first == [info["task"] for info in venv.infos_list]
    assert first[0] == first[1] != first[2]


def test_members_that_are_reset_one_after_another_play_one_task():
    venv = rewarded(2, ["TAMTRL"], group_size=2, **CHUNKS)
    venv.reset(seed=0)
    for i in (0, 1):
        venv.reset(options={"reset_mask": np.arange(2) == i})
    assert len({info["task"] for info in venv.infos_list}) == 1


class Unlucky(gym.Wrapper):
    """An environment that raises now and then, also when its step is done."""

    def __init__(self, env, rng):
        super().__init__(env)
        self.rng = rng

    def reset(self, **how):
        self._risk(0.1)
        return self.env.reset(**how)

    def step(self, action):
        self._risk(0.05)
        played = self.env.step(action)
        self._risk(0.05)
        return played

    def _risk(self, share):
        if self.rng.random() < share:
            raise RuntimeError("out of luck")


@pytest.mark.parametrize("size", [1, 2, 6])
def test_whatever_dies_all_groups_complete_and_the_rewards_add_up(size):
    rng = np.random.default_rng(size)
    makes = [lambda: Unlucky(gym.make("MemChunkQA-v0", **CHUNKS), rng)] * 6
    venv = TextVectorEnv(makes, autoreset_mode="Disabled", errors="truncate")
    venv = VectorRewardWrapper(venv, READING, Partly("poison"), group_size=size)
    failed = 0
    for seed in range(8):
        words = rng.choice(
            ["1623", "the year", "", "\\boxed{1623}", "poison"], (6, 4), p=[0.3, 0.3, 0.2, 0.1, 0.1]
        )
        received, _, groups = run(venv, words.tolist(), seed=seed)
        assert len(groups) == 6 // size
        sums = [math.fsum(info["turn_rewards"]) for info in venv.infos_list]
        assert sums == pytest.approx(received.tolist())
        failed += sum(info["error"] != "" for info in venv.infos_list)
    assert 0 < failed < 48
