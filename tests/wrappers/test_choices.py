"""The choice version of a task: which replies it offers, and that the right ones are right."""

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import memenvs
from memenvs.tasks.metrics import gold_answer
from memenvs.wrappers import ChooseReply, CompactContext, HashText, RewardWrapper, SelectRecords

FAMILIES = {
    "reading": ("MemChunkQA-v0", {"tasks": "world-test"}, 5),
    "needles": ("MemNIAH-v0", {}, 5),
    "search": ("MemSearchQA-v0", {"tasks": "world-test"}, 9),
    "memory": ("MemSearchQA-v0", {"tasks": "world-test", "memory_mode": "rewrite"}, 9),
    "tool": ("MemToolQA-v0", {"tasks": "world-test"}, 9),
    "sokoban": ("MemSokoban-v0", {}, 4),
}
ASKING = [name for name in FAMILIES if name != "sokoban"]


def made(family, n_answers=4):
    env_id, arguments, _ = FAMILIES[family]
    return ChooseReply(gym.make(env_id, disable_env_checker=True, **arguments), n_answers)


def right(env):
    """The number of the right candidate."""
    inner = env.unwrapped
    tasks = inner.tasks if hasattr(inner, "tasks") else inner.questions
    return env._answers.index(gold_answer(tasks[inner.state.task].answers, inner.metric))


@pytest.mark.parametrize("family", FAMILIES)
def test_there_are_always_as_many_replies(family):
    env = made(family)
    _, info = env.reset(seed=0)
    over = False
    while not over:
        assert len(info["replies"]) == env.action_space.n == FAMILIES[family][2]
        *_, terminated, truncated, info = env.step(env.action_space.n - 1)
        over = terminated or truncated


@pytest.mark.parametrize("family", ASKING)
def test_the_right_candidate_scores_1_and_a_wrong_one_0(family):
    for choose, outcome in ((right, 1.0), (lambda env: (right(env) + 1) % 4, 0.0)):
        env = made(family)
        env.reset(seed=3)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(choose(env))
            over = terminated or truncated
        assert info["metrics"]["success"] == outcome


def test_the_last_reply_of_a_reader_keeps_its_memory():
    env = made("reading")
    env.reset(seed=0)
    *_, info = env.step(2)
    written = info["privileged"]["memory"]
    *_, info = env.step(4)
    assert info["privileged"]["memory"] == written == info["replies"][2]


@pytest.mark.parametrize("family", ["search", "memory", "tool"])
def test_the_replies_after_the_answers_are_searches_that_run(family):
    env = made(family)
    env.reset(seed=0)
    observation, *_, info = env.step(4)
    assert info["turn"] == 1
    assert "Doc 1(Title:" in observation


def test_the_right_candidate_occurs_at_every_place():
    env = made("tool")
    places = set()
    for seed in range(30):
        _, info = env.reset(seed=seed)
        places.add(right(env))
        assert len(set(info["replies"][:4])) == 4
    assert places == {0, 1, 2, 3}


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")  # it is a wrapper
@pytest.mark.parametrize("family", FAMILIES)
def test_check_env_finds_nothing_wrong(family):
    check_env(HashText(made(family), 8), skip_render_check=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_another_environment_resumes_from_a_state(family):
    env, other = made(family), made(family)
    env.reset(seed=0)
    env.step(3)
    memenvs.set_state(other, memenvs.get_state(env))
    if env.unwrapped.state.end:
        assert other.unwrapped.state.end
    else:
        assert repr(env.step(0)) == repr(other.step(0))


@pytest.mark.parametrize("action", [-1, 4, 1.0, None, float("nan"), "1"])
def test_an_action_that_is_no_number_of_a_reply_is_refused(action):
    env = made("sokoban")
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="from 0 to 3"):
        env.step(action)


def test_its_spec_makes_it_again():
    env = HashText(made("tool"), 8)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert env.reset(seed=1)[0].tolist() == again.reset(seed=1)[0].tolist()


def test_a_state_of_something_else_is_refused():
    with pytest.raises(ValueError, match="candidates"):
        made("tool").check_memory([1, 2])


def test_questions_that_are_asked_one_by_one_have_no_choices():
    env = gym.make("MemChunkQA-v0", tasks="world-test", ask="each", disable_env_checker=True)
    with pytest.raises(ValueError, match="ask='each'"):
        ChooseReply(env)


@pytest.mark.parametrize(
    "wrap",
    [
        ChooseReply,
        lambda env: CompactContext(env, at=100),
        lambda env: SelectRecords(env, at=100),
        lambda env: RewardWrapper(env, ["GiGPO"]),
    ],
    ids=["chosen twice", "summaries", "records", "rewards"],
)
def test_a_wrapper_that_reads_replies_does_not_go_around_it(wrap):
    with pytest.raises(ValueError, match="actions here that are not texts"):
        wrap(made("tool"))


def test_fewer_than_two_candidates_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        made("tool", 1)


def test_more_candidates_than_there_are_answers_are_refused():
    env = made("tool", 10_000)
    with pytest.raises(ValueError, match="n_answers=10000, but task"):
        env.reset(seed=0)


def test_an_environment_without_a_choice_version_is_refused():
    env = gym.make("memenvs:MemSokobanGrid-v0", disable_env_checker=True)
    with pytest.raises(TypeError, match="SokobanGridEnv has no version with choices"):
        ChooseReply(env)
