"""One of several environments dies: its episode ends as truncated, and the others continue."""

import gymnasium as gym
import numpy as np
import pytest

import memenvs
from memenvs.core.vector import TextVectorEnv

SEARCH = "<think>a</think><search>town {}</search>"


class Mortal(gym.Wrapper):
    """An environment that raises at chosen calls of reset and step, counted from 0 over its whole life."""

    def __init__(self, env, resets=(), steps=()):
        super().__init__(env)
        self.fatal = {"reset": set(resets), "step": set(steps)}
        self.calls = {"reset": -1, "step": -1}

    def reset(self, **how):
        self._live("reset")
        return self.env.reset(**how)

    def step(self, action):
        self._live("step")
        return self.env.step(action)

    def get_state(self):
        return memenvs.get_state(self.env)

    def set_state(self, state):
        memenvs.set_state(self.env, state)

    def _live(self, call):
        self.calls[call] += 1
        if self.calls[call] in self.fatal[call]:
            raise ConnectionError(f"gone at {call}\n{self.calls[call]}")


def mortal(*fates, mode="Disabled", env_id="MemSokoban-v0", errors="truncate", **kwargs):
    makes = [lambda fate=fate: Mortal(gym.make(env_id, **kwargs), **fate) for fate in fates]
    return TextVectorEnv(makes, autoreset_mode=mode, errors=errors)


class Partly:
    """A retriever that raises for queries with a word, and counts its calls."""

    def __init__(self, retriever, word):
        self.retriever, self.word, self.calls = retriever, word, 0

    def search(self, queries, k):
        self.calls += 1
        if any(self.word in query for query in queries):
            raise ConnectionError("no retriever at http://node:8000")
        return self.retriever.search(queries, k)

    def passages(self, ids):
        return self.retriever.passages(ids)


def searching(word, count=3, errors="truncate"):
    venv = TextVectorEnv("MemSearchQA-v0", count, autoreset_mode="Disabled", errors=errors)
    partly = Partly(venv.envs[0].unwrapped.retriever, word)
    for env in venv.envs:
        env.unwrapped.retriever = partly
    return venv, partly


def errors_of(venv):
    return [info.get("error", "") for info in venv.infos_list]


def test_a_step_that_raises_truncates_its_episode_alone():
    venv = mortal({}, {"steps": [0]}, {})
    first, _ = venv.reset(seed=0)
    observations, rewards, terminated, truncated, _ = venv.step(["Up"] * 3)
    assert truncated.tolist() == [False, True, False]
    assert not terminated.any()
    assert (observations[1], rewards[1]) == (first[1], 0.0)
    assert observations[0] != first[0]
    assert errors_of(venv) == ["", "ConnectionError: gone at step 0", ""]


def test_the_others_play_as_if_nothing_had_died():
    dying, healthy = mortal({}, {"steps": [1]}, {}), mortal({}, {}, {})
    for venv in (dying, healthy):
        venv.reset(seed=0)
        for turn in range(2):
            played = venv.step([f"Up {turn}"] * 3)
        venv.last = played
    for i in (0, 2):
        assert dying.last[0][i] == healthy.last[0][i]
        assert dying.infos_list[i] == healthy.infos_list[i]


def test_the_info_of_a_failed_turn_and_of_a_failed_reset_has_the_keys_it_had():
    venv = mortal({"steps": [1], "resets": [1]}, {})
    venv.reset(seed=0)
    venv.step(["Up"] * 2)
    keys = [set(info) for info in venv.infos_list]
    venv.step(["Up"] * 2)
    dead, alive = venv.infos_list
    assert keys == [set(dead), set(alive)]
    assert (dead["turn"], len(dead["turn_rewards"]), dead["turn_rewards"][1]) == (2, 2, 0.0)
    assert set(dead["rewards"].values()) == set(dead["metrics"].values()) == {0.0}
    assert (dead["feedback"] == "", alive["feedback"] == "") == (True, False)
    venv.reset(seed=0, options={"reset_mask": np.array([True, False])})
    assert (venv.infos_list[0]["turn"], venv.infos_list[0]["feedback"]) == (0, "")


def test_by_default_an_error_is_raised_and_infos_have_no_key_for_it():
    venv = mortal({"steps": [1]}, {}, errors="raise")
    venv.reset(seed=0)
    venv.step(["Up"] * 2)
    assert "error" not in venv.infos_list[0]
    with pytest.raises(ConnectionError, match="gone"):
        venv.step(["Up"] * 2)


def test_a_retriever_that_fails_for_one_query_fails_that_environment_until_its_reset():
    venv, partly = searching("town 1")
    venv.reset(seed=0)
    observations, _, _, truncated, _ = venv.step([SEARCH.format(i) for i in range(3)])
    assert truncated.tolist() == [False, True, False]
    assert errors_of(venv)[1] == "ConnectionError: no retriever at http://node:8000"
    assert all("<information>" in observations[i].split(f"town {i}</search>")[1] for i in (0, 2))
    assert partly.calls == 1 + 3  # all together, then each alone
    venv.reset(options={"reset_mask": np.array([False, True, False])})
    assert not venv.step([SEARCH.format(7)] * 3)[3].any()
    assert errors_of(venv) == ["", "", ""]


def test_a_retriever_that_fails_fails_those_who_search():
    venv, _ = searching("town")
    venv.reset(seed=0)
    replies = [SEARCH.format(0), "<think></think><answer>x</answer>", SEARCH.format(2)]
    _, _, terminated, truncated, _ = venv.step(replies)
    assert truncated.tolist() == [True, False, True]
    assert terminated.tolist() == [False, True, False]


def test_an_episode_whose_reset_fails_is_over_at_once():
    venv = mortal({}, {"resets": [0]})
    observations, infos = venv.reset(seed=0)
    assert observations[1] == ""
    assert errors_of(venv) == ["", "ConnectionError: gone at reset 0"]
    assert set(infos["error"]) == set(errors_of(venv))
    with pytest.raises(gym.error.ResetNeeded, match="episode 1 is over"):
        venv.step(["Up"] * 2)
    venv.step(["Up"] * 2, mask=np.array([True, False]))


def test_an_episode_that_never_began_tells_what_every_environment_tells():
    venv = mortal({"resets": [0]}, {}, env_id="MemChunkQA-v0")
    venv.reset(seed=0)
    dead, alive = venv.infos_list
    assert set(dead) == set(alive)
    assert (dead["task"], dead["turn"], dead["turn_rewards"]) == ("", 0, [])
    assert dead["metrics"].keys() == alive["metrics"].keys()


def test_with_next_step_autoreset_a_failed_reset_is_tried_again():
    venv = mortal({"resets": [1], "steps": [0]}, {}, mode="NextStep")
    venv.reset(seed=0)
    ends = [bool(venv.step(["Up"] * 2)[3][0]) for _ in range(4)]
    # the step fails; the reset fails: an episode without turns; the second reset works; a turn is played
    assert ends == [True, True, False, False]
    assert venv.infos_list[0]["turn"] == 1


def test_with_same_step_autoreset_the_error_is_in_the_final_info():
    venv = mortal({"steps": [0]}, {}, mode="SameStep")
    venv.reset(seed=0)
    _, _, _, truncated, infos = venv.step(["Up"] * 2)
    assert truncated.tolist() == [True, False]
    assert infos["final_info"]["error"][0] == "ConnectionError: gone at step 0"
    assert errors_of(venv) == ["", ""]


def test_with_same_step_autoreset_a_failed_reset_is_tried_at_the_next_step():
    venv = mortal({"steps": [0], "resets": [1, 2]}, {}, mode="SameStep")
    venv.reset(seed=0)
    ends, marks = [], []
    for _ in range(3):
        ends.append(bool(venv.step(["Up"] * 2)[3][0]))
        marks.append(errors_of(venv)[0])
    assert ends == [True, True, False]
    assert [bool(mark) for mark in marks] == [True, True, False]
    assert venv.envs[0].calls["reset"] == 3


def test_states_keep_who_is_over():
    venv = mortal({"resets": [0]}, {"steps": [0]}, {})
    observations, _ = venv.reset(seed=0)
    observations = venv.step(["Up"] * 3, mask=np.array([False, True, True]))[0]
    states = venv.get_states()
    other = mortal({}, {}, {})
    other.reset(seed=1)
    other.set_states(states, observations)
    for i in (0, 1):
        with pytest.raises(gym.error.ResetNeeded, match=f"episode {i}"):
            other.step(["Up"] * 3, mask=np.arange(3) == i)
    assert errors_of(other) == errors_of(venv)
    other.step(["Up"] * 3, mask=np.array([False, False, True]))


def test_a_reply_that_is_no_text_is_the_callers_mistake():
    venv = mortal({}, {})
    venv.reset(seed=0)
    with pytest.raises(TypeError, match="reply 1"):
        venv.step(["Up", 3])
    assert [info["turn"] for info in venv.infos_list] == [0, 0]


@pytest.mark.parametrize("mode", ["Disabled", "NextStep"])
def test_a_wrapper_can_truncate_an_episode_whose_others_play_on(mode):
    venv = mortal({}, {}, mode=mode)
    venv.reset(seed=0)
    venv.step(["Up"] * 2)
    venv.truncate(1, "TimeoutError: no scorer")
    assert errors_of(venv) == ["", "TimeoutError: no scorer"]
    assert venv.over.tolist() == [False, True]
    if mode == "Disabled":
        with pytest.raises(gym.error.ResetNeeded, match="episode 1 is over"):
            venv.step(["Up"] * 2)
        venv.reset(options={"reset_mask": np.array([False, True])})
    else:
        venv.step(["Up"] * 2)
    assert errors_of(venv) == ["", ""]
    assert venv.infos_list[1]["turn"] == 0
