"""Reward methods on real environments: stacked, in groups, with one scorer call a step."""

import math
import pickle
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import VectorWrapper
from transcripts import plain

from memenvs.core.vector import TextVectorEnv
from memenvs.testing import play
from memenvs.wrappers import (
    TAMTRL,
    Credit,
    InfoMem,
    InfoMemMethod,
    MemPO,
    RewardMethod,
    RewardWrapper,
    SearchRewards,
    ToolRewards,
    VectorRewardWrapper,
)
from memenvs.wrappers.scorers import LexicalScorer

CHUNKS = {"tasks": "world-test", "chunk_size": 9000}
MEMORY = {"tasks": "world-test", "memory_mode": "rewrite"}
ANSWER, SEARCH = "<mem>1623</mem><answer>1623</answer>", "<mem>1623</mem><search>x</search>"
READING = ["TAMTRL", "InfoMem", "MemPO"]


class Counted(LexicalScorer):
    """A scorer that counts its calls."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def logprobs(self, requests):
        self.calls.append(list(requests))
        return super().logprobs(requests)


@dataclass
class Unsure(RewardMethod):
    """Finds a number for the first turn only."""

    name = "unsure"
    immediate = False

    def assign_credit(self, episodes):
        return [
            [Credit(0, 2.0), *(Credit(k, math.nan, reason="dark") for k in range(1, len(e.turns)))]
            for e in episodes
        ]


def reading(**kwargs):
    return gym.make("MemChunkQA-v0", **{**CHUNKS, **kwargs})


def notes(env, count, final):
    """Replies that keep words of the evidence, then answer."""
    env.reset(options={"task": 0})
    evidence = env.unwrapped._privileged()["evidence"][0]
    return [f"{evidence[: 40 * (k + 1)]}" for k in range(count)] + [final]


def test_tamtrl_replaces_the_outcome_and_the_metrics_keep_it():
    env = TAMTRL(reading(), "lexical")
    info = play(env, notes(env, 3, "\\boxed{1623}"), options={"task": 0})[-1][4]
    assert (info["rewards"]["outcome"], info["metrics"]["outcome"]) == (0.0, 1.0)
    assert info["turn_rewards"] == [credit.value for credit in info["credits"]["tamtrl"]]


def test_methods_stack_in_any_order():
    returns = []
    for names in (READING, READING[::-1]):
        together = RewardWrapper(reading(), names, "lexical")
        replies = notes(together, 3, "\\boxed{1623}")
        apart = reading()
        for name in names:
            apart = RewardWrapper(apart, [name], "lexical")
        for env in (together, apart):
            info = play(env, replies, options={"task": 0})[-1][4]
            returns.append((pytest.approx(info["turn_rewards"]), info["credits"]))
    assert all(data_equivalence(credits, returns[0][1]) for _, credits in returns)
    assert all(rewards.expected == returns[0][0] for rewards, _ in returns)


def test_mempos_credit_is_a_span_of_the_action():
    env = MemPO(gym.make("MemSearchQA-v0", **MEMORY), "lexical")
    replies = ["<mem>dark</mem><think></think><search>town</search>", "<mem>1623</mem><answer>1623</answer>"]
    info = play(env, replies, options={"task": 0})[-1][4]
    *credits, result = info["credits"]["mempo"]
    assert [replies[credit.turn][slice(*credit.span)] for credit in credits] == ["dark", "1623"]
    assert credits[1].value > credits[0].value
    assert (result.turn, result.span, result.value) == (1, None, 0.0)  # right, but without its <think>


def test_an_answer_that_a_document_holds_earns_nothing(monkeypatch):
    env = ToolRewards(gym.make("MemToolQA-v0", tasks="world-test"))
    monkeypatch.setattr(env.unwrapped, "_show_found", lambda query: "<answer>sheaf</answer>")
    call = '<tool>{"name": "wiki_search", "args": {"query": "x"}}</tool>'
    info = play(env, [call, "nothing"], options={"task": 2})[-1][4]
    assert info["metrics"]["outcome"] == 0.0
    assert info["rewards"]["tool_rewards"] < 0.5


def test_a_component_without_a_number_is_left_out_and_counted():
    env = RewardWrapper(reading(), [Unsure()])
    steps = play(env, ["a", "b", "c", "\\boxed{x}"], options={"task": 0})
    info = steps[-1][4]
    assert (steps[-1][1], info["metrics"]["unsure_unscored"]) == (2.0, 3.0)
    assert info["turn_rewards"] == [2.0, 0.0, 0.0, 0.0]


def test_a_component_without_any_score_is_nan(monkeypatch):
    monkeypatch.setattr(Unsure, "assign_credit", lambda self, es: [[Credit(0, math.nan)] for _ in es])
    steps = play(RewardWrapper(reading(), [Unsure()]), ["a"] * 3 + ["\\boxed{1623}"], options={"task": 0})
    assert math.isnan(steps[-1][4]["rewards"]["unsure"])
    assert steps[-1][1] == 1.0


class Broken(LexicalScorer):
    """A scorer whose model has run out of numbers for some continuations."""

    def logprobs(self, requests):
        scores = super().logprobs(requests)
        return [
            s * math.nan if "broken" in r.continuation else s for r, s in zip(requests, scores, strict=True)
        ]


@pytest.mark.parametrize(
    "replies", [["a", "broken", "b", "\\boxed{1623}"], ["broken"] * 3 + ["\\boxed{1623}"]]
)
def test_nan_scores_give_nan_credits_and_not_the_outcome(replies):
    env = TAMTRL(reading(), Broken())
    steps = play(env, replies, options={"task": 0})
    credits, info = steps[-1][4]["credits"]["tamtrl"], steps[-1][4]
    assert [math.isnan(credit.value) for credit in credits[:3]] == [
        reply == "broken" for reply in replies[:3]
    ]
    assert credits[1].reason
    assert credits[3].value == 1.0
    assert info["metrics"]["tamtrl_unscored"] == replies.count("broken")
    assert sum(step[1] for step in steps) == pytest.approx(sum(info["turn_rewards"]))


def test_an_answer_that_is_impossible_without_the_memory_is_no_infinite_reward():
    class Impossible(LexicalScorer):
        def logprobs(self, requests):
            return [np.full(2, -math.inf) for _ in requests]

    venv = vector("MemChunkQA-v0", 2, ["InfoMem", "MemPO"], Impossible(), group_size=2, **CHUNKS)
    steps = run(venv, [["a", "b", "c", "\\boxed{1623}"]] * 2, options={"task": 0})
    assert np.isfinite([rewards for rewards, _ in steps]).all()
    assert venv.infos_list[0]["metrics"]["infomem_unscored"] == 1.0


def test_a_memory_that_cannot_be_measured_leaves_the_result_of_its_episode_known():
    class Broken(LexicalScorer):
        def logprobs(self, requests):
            return [np.full(2, math.nan) for _ in requests]

    env = MemPO(gym.make("MemSearchQA-v0", **MEMORY), Broken())
    reply = "<mem>1623</mem><think></think><answer>1623</answer>"
    _, reward, _, _, info = play(env, [reply], options={"task": 0})[-1]
    memory, result = info["credits"]["mempo"]
    assert (math.isnan(memory.value), result.value, reward) == (True, 1.0, 1.0)


def test_a_method_that_is_wrapped_twice_is_refused_since_it_would_pay_twice():
    env = TAMTRL(TAMTRL(reading(), "lexical"), "lexical")
    with pytest.raises(ValueError, match="already has a component 'tamtrl'; wrap it once"):
        env.reset(seed=0)


def test_equal_requests_of_a_step_are_scored_once():
    scorer = Counted()
    env = RewardWrapper(reading(), ["InfoMem", "MemPO"], scorer)
    play(env, ["a", "b", "c", "\\boxed{x}"], options={"task": 0})
    assert all(len(set(call)) == len(call) for call in scorer.calls)


def test_a_template_shows_the_model_its_own_form():
    scorer = Counted()
    env = InfoMem(reading(), scorer, template="<user>{prompt}</user>")
    play(env, ["a"] * 3 + ["\\boxed{x}"], options={"task": 0})
    assert all(r.prompt.startswith("<user>") and r.prompt.endswith("</user>") for r in scorer.calls[0])


def test_a_method_that_does_not_fit_the_environment_is_refused_at_reset():
    with pytest.raises(ValueError, match=r"search_rewards needs info\[events\]"):
        SearchRewards(gym.make("MemSokoban-v0")).reset(seed=0)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (["TAMTRLL"], "no method 'TAMTRLL'"),
        ("TAMTRL", "methods must be a list"),
        (["InfoMem", "InfoMem"], "'infomem', and both would pay in full; leave one out"),
        ([["InfoMem", 3]], "must be an object, got 3"),
        (["no.such.module:Method"], "no.such"),
    ],
)
def test_a_wrong_list_of_methods_is_refused(methods, said):
    with pytest.raises(ValueError, match=said):
        RewardWrapper(reading(), methods, "lexical")


def test_a_missing_scorer_is_named():
    with pytest.raises(ValueError, match="tamtrl asks for log-probabilities; give a scorer"):
        RewardWrapper(reading(), ["OTC", "TAMTRL"])


def test_a_scorer_object_is_noted_in_the_spec_and_refused_by_it():
    env = RewardWrapper(reading(), ["TAMTRL"], Counted())
    assert pickle.loads(pickle.dumps(env.spec)) == env.spec
    with pytest.raises(ValueError, match="Counted"):
        gym.make(env.spec)


@pytest.mark.parametrize(
    "scorer",
    [LexicalScorer, "lexicall", ["lexical"], ["server", {"url": "http://x", "api_key": "k"}]],
)
def test_an_invalid_scorer_is_refused(scorer):
    with pytest.raises(ValueError, match=r"scorer|spec"):
        RewardWrapper(reading(), ["TAMTRL"], scorer)


def test_a_scorer_with_settings_is_in_the_spec_and_shared():
    envs = [RewardWrapper(reading(), ["TAMTRL"], ["lexical", {"absent": -9.0}]) for _ in range(2)]
    assert envs[0].scorer is envs[1].scorer is gym.make(envs[0].spec).get_wrapper_attr("scorer")
    assert envs[0].scorer.absent == -9.0


def test_a_model_by_name_scores_a_stack_and_rebuilds_from_the_spec(tiny_model):
    chat = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    env = RewardWrapper(reading(), READING, f"hf:{tiny_model}", template=chat)
    replies = notes(env, 3, "\\boxed{1623}")
    steps = play(env, replies, options={"task": 0})
    signals = steps[-1][4]["signals"]
    assert min(signals["tamtrl"][:3]) > 0
    assert signals["infomem"][-1] != 0.0
    assert data_equivalence(play(gym.make(env.spec), replies, options={"task": 0}), steps)


def test_a_step_before_the_reset_is_refused():
    with pytest.raises(ResetNeeded):
        RewardWrapper(reading(), ["TAMTRL"], "lexical").get_state()


# Many environments.


def vector(env_id, n, methods, scorer="lexical", group_size=1, mode="Disabled", **kwargs):
    venv = TextVectorEnv(env_id, n, autoreset_mode=mode, **kwargs)
    return VectorRewardWrapper(venv, methods, scorer, group_size)


def run(venv, replies, **reset):
    """Step until all have ended, in Disabled mode; every (rewards, infos_list)."""
    venv.reset(**reset)
    over = np.zeros(venv.num_envs, bool)
    steps = []
    for k in range(max(map(len, replies))):
        actions = [of[min(k, len(of) - 1)] for of in replies]
        _, rewards, terminated, truncated, _ = venv.step(actions, mask=~over)
        over |= terminated | truncated
        steps.append((rewards.copy(), list(venv.infos_list)))
    assert over.all()
    return steps


def test_all_requests_of_a_step_are_one_call():
    scorer = Counted()
    venv = vector("MemChunkQA-v0", 8, ["IGPO"], scorer, **CHUNKS)
    venv.reset(options={"task": list(range(8))})
    venv.step([f"notes {i}" for i in range(8)])
    assert len(scorer.calls) == 1
    assert len(scorer.calls[0]) > 8


def test_methods_that_pay_at_the_end_ask_then_about_all_turns_in_one_call():
    scorer = Counted()
    venv = vector("MemChunkQA-v0", 2, ["TAMTRL"], scorer, **CHUNKS)
    steps = run(venv, [[f"notes {i}", "more", "all", "\\boxed{1623}"] for i in range(2)], options={"task": 0})
    assert [info["signals"]["tamtrl"] for _, (info, _) in steps[:-1]] == [[], [], []]
    assert len(scorer.calls) == 1
    assert {request.continuation for request in scorer.calls[0]} == {"notes 0", "notes 1", "more", "all"}
    apart = LexicalScorer()
    for signals in (info["signals"]["tamtrl"] for info in venv.infos_list):
        assert len(signals) == 4
        assert signals[2] in [np.exp(apart.logprobs([one])[0]).mean() for one in scorer.calls[0]]


def test_in_groups_of_one_it_pays_what_single_wrappers_of_shared_methods_pay():
    method = InfoMemMethod()
    singles = [RewardWrapper(reading(), [method], "lexical") for _ in range(4)]
    replies = [["", "", "the year 1623", "\\boxed{1623}"]] * 4
    expected = [play(env, replies[0], options={"task": 0})[-1][1] for env in singles]
    steps = run(vector("MemChunkQA-v0", 4, ["InfoMem"], **CHUNKS), replies, options={"task": 0})
    assert steps[-1][0].tolist() == pytest.approx(expected)


def test_a_group_is_compared_together():
    venv = vector("MemChunkQA-v0", 4, ["InfoMem"], group_size=4, **CHUNKS)
    memories = ["1623", "the year", "nothing", ""]
    replies = [["", "", memory, "\\boxed{1623}"] for memory in memories]
    steps = run(venv, replies, options={"task": 0})
    gains = np.array([info["signals"]["infomem"][-1] for info in venv.infos_list])
    expected = 1 + 0.2 * (gains - gains.mean()) / gains.std()
    np.testing.assert_allclose(steps[-1][0], expected, rtol=1e-4)


def half_ended():
    """A group of two of which the first has answered and the second has searched."""
    venv = vector("MemSearchQA-v0", 2, ["MemPO"], group_size=2, **MEMORY)
    venv.reset(options={"task": 0})
    venv.step([ANSWER, SEARCH])
    return venv


def test_a_completed_episode_whose_outcome_a_method_replaced_tells_that_outcome():
    venv = vector("MemSearchQA-v0", 2, ["MemPO"], group_size=2, **MEMORY)
    task = venv.reset(seed=3)[1]["privileged"][0]["target_wrapped"]
    venv.step([f"<mem>m</mem><think></think>{task}", f"junk {task}"])
    (group,) = venv.completed_groups
    assert [sum(episode.outcomes) for episode in group] == [1.0, 1.0]
    assert [sum(episode.outcome_rewards) for episode in group] == pytest.approx([1.0, 0.0])


def test_what_a_group_brings_an_ended_episode_is_paid_late():
    venv = vector("MemSearchQA-v0", 2, ["MemPO"], group_size=2, **MEMORY)
    steps = run(venv, [[ANSWER], [SEARCH, ANSWER]], options={"task": 0})
    infos, received = venv.infos_list, sum(rewards for rewards, _ in steps)
    assert steps[1][0][0] != 0.0
    assert [sum(info["turn_rewards"]) for info in infos] == pytest.approx(received.tolist())
    assert infos[0]["rewards"]["mempo"] == pytest.approx(steps[1][0][0])
    late = half_ended().step([ANSWER, ANSWER], mask=np.array([False, True]))[4]
    assert late["_turn_rewards"].tolist() == [True, True]


def test_an_episode_begun_early_is_not_paid_for_the_one_before():
    venv = half_ended()
    venv.reset(options={"task": 0, "reset_mask": np.array([True, False])})
    _, rewards, *_ = venv.step([SEARCH, ANSWER])
    assert rewards[0] == 0.0
    (group,) = venv.completed_groups
    assert [len(episode.turns) for episode in group] == [1, 2]
    venv.reset(options={"task": 0, "reset_mask": np.array([False, True])})
    venv.step([ANSWER, ANSWER])
    (group,) = venv.completed_groups
    assert [len(episode.turns) for episode in group] == [2, 1]


def test_an_episode_that_ends_with_the_group_before_is_paid_for_itself_alone():
    venv = half_ended()
    venv.reset(options={"task": 0, "reset_mask": np.array([True, False])})
    _, rewards, *_ = venv.step([ANSWER, ANSWER])
    assert rewards[0] == 0.0  # MemPO's own reward of the result comes with its group, which is not complete


def test_a_reset_of_all_drops_what_was_waited_for():
    venv = half_ended()
    venv.reset(options={"task": 1})
    venv.step([ANSWER, ANSWER])
    (group,) = venv.completed_groups
    assert {episode.turns[0].info["task"] for episode in group} == {"world-test-1"}


def test_a_group_of_two_tasks_is_refused():
    venv = vector("MemChunkQA-v0", 2, ["TAMTRL"], group_size=2, **CHUNKS)
    venv.reset(options={"task": [0, 1]})
    with pytest.raises(ValueError, match="one seed"):
        venv.step(["a", "b"])


def test_a_reward_wrapper_around_a_reward_wrapper_is_refused():
    venv = vector("MemChunkQA-v0", 2, ["TAMTRL"], **CHUNKS)
    with pytest.raises(
        ValueError, match="already has a VectorRewardWrapper; give all methods to one wrapper"
    ):
        VectorRewardWrapper(venv, ["InfoMem"], "lexical")


class Between(VectorWrapper):
    """Keeps what passes through it."""

    def __init__(self, env):
        super().__init__(env)
        self.stepped = []

    def step(self, actions):
        self.stepped.append(self.env.step(actions))
        return self.stepped[-1]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_wrapper_between_sees_the_rewards_of_the_environment(mode):
    makes = [TextVectorEnv("MemChunkQA-v0", 2, autoreset_mode=mode, **CHUNKS) for _ in range(2)]
    between, bare = Between(makes[0]), makes[1]
    outer = VectorRewardWrapper(between, READING, "lexical", group_size=2)
    seen, paid = [], 0.0
    for venv in (outer, bare):
        venv.reset(seed=3, options={"task": 0})
    for _ in range(4):  # to the end of the first episodes
        _, rewards, _, _, infos = outer.step(["1623", "\\boxed{1623}"])
        seen.append(bare.step(["1623", "\\boxed{1623}"]))
        paid += rewards.sum()
    ends = [[*played[1:4], played[4].get("final_info", played[4])] for played in seen]
    passed = [[*played[1:4], played[4].get("final_info", played[4])] for played in between.stepped]
    assert data_equivalence(plain(passed), plain(ends))
    assert "tamtrl" in infos.get("final_info", infos)["credits"]
    assert paid != sum(played[1].sum() for played in seen)


@pytest.mark.parametrize("around", ["step", "reset"])
def test_an_environment_that_was_stepped_or_reset_without_its_wrapper_is_refused(around):
    outer = vector("MemChunkQA-v0", 2, ["TAMTRL"], **CHUNKS)
    outer.reset(options={"task": 0})
    if around == "step":
        outer.unwrapped.step(["a", "b"])
    else:
        outer.step(["a", "b"])
        outer.unwrapped.reset(options={"task": 0})
    with pytest.raises(ValueError, match=r"environment 0 is at turn \d of task .* reset the wrapper"):
        outer.step(["a", "b"])
    outer.reset(options={"task": 0})
    assert outer.step(["a", "b"])[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("size", [0, 3])
def test_a_group_size_that_does_not_divide_the_environments_is_refused(size):
    with pytest.raises(ValueError, match="group_size"):
        vector("MemChunkQA-v0", 4, ["TAMTRL"], group_size=size, **CHUNKS)


def test_another_vector_environment_is_refused():
    with pytest.raises(TypeError, match="TextVectorEnv"):
        VectorRewardWrapper(gym.make_vec("CartPole-v1", 2), ["TAMTRL"])
