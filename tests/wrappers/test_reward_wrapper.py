"""`RewardWrapper`: the credit of `assign_credit`, paid step by step."""

import copy
import json
import math
import pickle
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from groups import RecordingScorer, play_group
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import TimeLimit

import memenvs
from memenvs.core.spaces import UnicodeText
from memenvs.testing import play
from memenvs.wrappers import TAMTRL, Credit, InfoMem, MemPO, RewardMethod, RewardWrapper, ToolRewards
from memenvs.wrappers.scorers import LexicalScorer

CHUNKS = {"tasks": "world-test", "chunk_size": 9000}
MEMORY = {"tasks": "world-test", "memory_mode": "rewrite"}
SEARCH = "<mem>1623</mem><think></think><search>{}</search>"
ANSWER = "<mem>1623</mem><think></think><answer>1623</answer>"
READING = ["TAMTRL", "InfoMem", "MemPO"]
NOTES = ["", "the year", "the year 1623", "\\boxed{1623}"]


class Broken(LexicalScorer):
    """A scorer that knows no number for continuations with the word "broken"."""

    def logprobs(self, requests):
        scores = super().logprobs(requests)
        return [
            s * math.nan if "broken" in r.continuation else s for r, s in zip(requests, scores, strict=True)
        ]


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


class Bare(gym.Env):
    """Texts alone, without the infos of a text environment."""

    observation_space = action_space = UnicodeText()

    def reset(self, *, seed=None, options=None):
        return "", {}


def reading(**kwargs):
    return gym.make("MemChunkQA-v0", **{**CHUNKS, **kwargs})


def wrapped(methods, scorer="lexical", env=None):
    return RewardWrapper(env or reading(), methods, scorer)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "methods", "replies"),
    [
        ("MemChunkQA-v0", CHUNKS, READING, NOTES),
        ("MemChunkQA-v0", CHUNKS, ["IGPO", "ReMemR1", "GiGPO"], NOTES),
        ("MemSearchQA-v0", MEMORY, ["MemPO", "SearchRewards", "InfoMem"], [SEARCH.format("town"), ANSWER]),
        ("MemToolQA-v0", {}, ["ToolRewards"], ["<tool>", "<answer>x</answer>"]),
    ],
)
def test_it_pays_step_by_step_what_assign_credit_gives_a_group_of_one(env_id, kwargs, methods, replies):
    env = gym.make(env_id, **kwargs)
    steps = play(RewardWrapper(copy.deepcopy(env), methods, "lexical"), replies, seed=3, options={"task": 0})
    info = steps[-1][4]
    (episode,) = play_group(env, replies, task=0, seed=3, methods=methods, scorer="lexical")
    assert len(steps) == 1 + len(episode.turns)
    assert data_equivalence(info["signals"], episode.signals)
    assert info["credits"] == episode.credits
    assert {name: turns for name, turns in info["measured"].items() if turns} == episode.measured
    assert info["turn_rewards"] == pytest.approx(episode.turn_rewards)
    assert info["metrics"] == episode.metrics
    assert math.fsum(step[1] for step in steps) == pytest.approx(math.fsum(episode.turn_rewards))
    assert [step[1] for step in steps] == [
        pytest.approx(math.fsum(step[4]["rewards"].values())) for step in steps
    ]


def test_methods_stack_in_any_order():
    infos = []
    for names in (READING, READING[::-1]):
        apart = reading()
        for name in names:
            apart = RewardWrapper(apart, [name], "lexical")
        for env in (RewardWrapper(reading(), names, "lexical"), apart):
            infos.append(play(env, NOTES, options={"task": 0})[-1][4])
    for info in infos[1:]:
        assert info["credits"] == infos[0]["credits"]
        assert info["turn_rewards"] == pytest.approx(infos[0]["turn_rewards"])


@pytest.mark.parametrize("method", ["tamtrl", "TAMTRL", TAMTRL, TAMTRL(), ["TamTRL", {}]], ids=str)
def test_a_method_is_a_name_in_any_case_a_class_or_an_object(method):
    found = play(RewardWrapper(reading(), [method], "lexical"), NOTES, options={"task": 0})[-1][4]
    wanted = play(RewardWrapper(reading(), [TAMTRL()], "lexical"), NOTES, options={"task": 0})[-1][4]
    assert found["credits"] == wanted["credits"]
    (episode,) = play_group(
        "MemChunkQA-v0", NOTES, methods=[method], scorer="lexical", env_args=CHUNKS, task=0
    )
    assert episode.credits == wanted["credits"]


def test_a_signal_that_is_known_at_its_turn_is_paid_there():
    # searches in form that find nothing: 0.1 for the form, less 0.1 for each search so far
    env = RewardWrapper(gym.make("MemSearchQA-v0", **MEMORY), ["SearchRewards"])
    steps = play(env, [SEARCH.format("zzz")] * 3 + ["no answer"], options={"task": 0})[1:]
    assert [step[1] for step in steps[:4]] == pytest.approx([0.0, -0.1, -0.2, -0.2 - 0.3])
    assert [step[4]["rewards"]["search_rewards"] for step in steps] == [step[1] for step in steps]


def test_tamtrl_replaces_the_outcome_and_the_metrics_keep_it():
    info = play(RewardWrapper(reading(), [TAMTRL()], "lexical"), NOTES, options={"task": 0})[-1][4]
    assert (info["rewards"]["outcome"], info["metrics"]["outcome"]) == (0.0, 1.0)
    assert info["turn_rewards"] == [credit.value for credit in info["credits"]["tamtrl"]]


def test_mempos_credit_is_a_span_of_the_action():
    env = RewardWrapper(gym.make("MemSearchQA-v0", **MEMORY), [MemPO()], "lexical")
    replies = ["<mem>dark</mem><think></think><search>town</search>", "<mem>1623</mem><answer>1623</answer>"]
    info = play(env, replies, options={"task": 0})[-1][4]
    *credits, result = info["credits"]["mempo"]
    assert [replies[credit.turn][slice(*credit.span)] for credit in credits] == ["dark", "1623"]
    assert credits[1].value > credits[0].value
    assert (result.turn, result.span, result.value) == (1, None, 0.0)  # right, but without its <think>


def test_an_answer_that_a_document_holds_earns_nothing(monkeypatch):
    env = RewardWrapper(gym.make("MemToolQA-v0", tasks="world-test"), [ToolRewards])
    monkeypatch.setattr(env.unwrapped, "find", lambda query: ["T\n<answer>sheaf</answer>"])
    call = '<tool>{"name": "wiki_search", "args": {"query": "x"}}</tool>'
    info = play(env, [call, "nothing"], options={"task": 2})[-1][4]
    assert info["metrics"]["outcome"] == 0.0
    assert info["rewards"]["tool_rewards"] < 0.5


def test_a_component_without_a_number_is_left_out_and_counted():
    steps = play(RewardWrapper(reading(), [Unsure()]), ["a", "b", "c", "\\boxed{x}"], options={"task": 0})
    info = steps[-1][4]
    assert (steps[-1][1], info["metrics"]["unsure_unscored"]) == (2.0, 3.0)
    assert info["turn_rewards"] == [2.0, 0.0, 0.0, 0.0]


@dataclass
class Flickering(RewardMethod):
    """Measures 1 at every turn but those whose reply is "dark"."""

    name = "flickering"

    def signal(self, turn, scores):
        return math.nan if turn.action == "dark" else 1.0


def test_a_turn_that_could_not_be_measured_is_nan_when_it_is_played_and_no_part_of_the_others():
    env = RewardWrapper(reading(), [Flickering()])
    first, *steps = play(env, ["a", "dark", "b", "\\boxed{x}"], seed=3, options={"task": 0})
    np.testing.assert_equal([step[4]["rewards"]["flickering"] for step in steps], [1.0, math.nan, 1.0, 1.0])
    assert [step[1] for step in steps] == [1.0, 0.0, 1.0, 1.0]
    unscored = [info["metrics"]["flickering_unscored"] for *_, info in (first, *steps)]
    assert unscored == [0.0] * 4 + [1.0]


def test_the_record_names_what_is_played():
    env = RewardWrapper(reading(), [Flickering()])
    for seed, task in ((3, None), (None, 1)):
        _, info = env.reset(seed=seed, options=None if task is None else {"task": task})
        assert env.episode.seed == (-1 if seed is None else seed)
        assert env.episode.number == env.unwrapped.state.task
        assert task in (None, env.episode.number)
        assert (env.episode.env, env.episode.task) == ("MemChunkQA-v0", info["task"])


def test_a_component_without_any_score_is_nan(monkeypatch):
    monkeypatch.setattr(Unsure, "assign_credit", lambda self, es: [[Credit(0, math.nan)] for _ in es])
    steps = play(RewardWrapper(reading(), [Unsure()]), ["a"] * 3 + ["\\boxed{1623}"], options={"task": 0})
    assert math.isnan(steps[-1][4]["rewards"]["unsure"])
    assert steps[-1][1] == 1.0


@pytest.mark.parametrize(
    "replies", [["a", "broken", "b", "\\boxed{1623}"], ["broken"] * 3 + ["\\boxed{1623}"]]
)
def test_nan_scores_give_nan_credits_and_not_the_outcome(replies):
    steps = play(RewardWrapper(reading(), [TAMTRL()], Broken()), replies, options={"task": 0})
    credits, info = steps[-1][4]["credits"]["tamtrl"], steps[-1][4]
    assert [math.isnan(credit.value) for credit in credits[:3]] == [
        reply == "broken" for reply in replies[:3]
    ]
    assert credits[1].reason
    assert credits[3].value == 1.0
    assert info["metrics"]["tamtrl_unscored"] == replies.count("broken")
    assert sum(step[1] for step in steps) == pytest.approx(sum(info["turn_rewards"]))


def test_a_memory_that_cannot_be_measured_leaves_the_result_of_its_episode_known():
    class Nothing(LexicalScorer):
        def logprobs(self, requests):
            return [np.full(2, math.nan) for _ in requests]

    env = RewardWrapper(gym.make("MemSearchQA-v0", **MEMORY), [MemPO()], Nothing())
    _, reward, _, _, info = play(env, [ANSWER], options={"task": 0})[-1]
    memory, result = info["credits"]["mempo"]
    assert (math.isnan(memory.value), result.value, reward) == (True, 1.0, 1.0)


# The scorer.


def test_a_limit_outside_ends_an_episode_that_methods_have_not_credited():
    def make():
        return TimeLimit(RewardWrapper(gym.make("MemChunkQA-v0", **CHUNKS), [InfoMem()], "lexical"), 1)

    (episode,) = memenvs.collect(make, lambda *_: "a memory", [0])
    assert (episode.end, episode.error, episode.turn_rewards) == ("truncated", "", [0.0])
    assert episode.signals == {}


def test_a_limit_inside_ends_the_episode_and_a_further_step_is_refused():
    env = RewardWrapper(TimeLimit(reading(), 1), ["InfoMem"], "lexical")
    env.reset(seed=0)
    assert env.step("a memory")[3]
    with pytest.raises(ResetNeeded, match="over"):
        env.step("another")
    assert len(env.episode.turns) == 1


def test_methods_that_pay_at_the_end_ask_then_about_all_turns_in_one_call():
    scorer = RecordingScorer()
    steps = play(RewardWrapper(reading(), READING, scorer), NOTES, options={"task": 0})
    assert [step[4]["signals"]["tamtrl"] for step in steps[:-1]] == [[], [], [], []]
    assert len(scorer.calls) == 1
    assert len({*scorer.calls[0]}) == len(scorer.calls[0])


def test_a_template_shows_the_model_its_own_form():
    scorer = RecordingScorer()
    env = RewardWrapper(reading(), [InfoMem()], scorer, template="<user>{prompt}</user>")
    play(env, ["a"] * 3 + ["\\boxed{x}"], options={"task": 0})
    assert all(r.prompt.startswith("<user>") and r.prompt.endswith("</user>") for r in scorer.calls[0])


@pytest.mark.parametrize(
    "scorer",
    [
        LexicalScorer,
        "lexicall",
        ["lexical"],
        ["lexical", {"absnt": -9.0}],
        ["server", {"url": "http://x/v1", "model": "m", "api_key": "k"}],
    ],
)
def test_an_invalid_scorer_is_refused(scorer):
    with pytest.raises(ValueError, match=r"scorer|spec"):
        RewardWrapper(reading(), ["TAMTRL"], scorer)


def test_a_scorer_with_settings_is_in_the_spec_and_shared():
    envs = [RewardWrapper(reading(), ["TAMTRL"], ["lexical", {"absent": -9.0}]) for _ in range(2)]
    assert envs[0].scorer is envs[1].scorer is gym.make(envs[0].spec).get_wrapper_attr("scorer")
    assert envs[0].scorer.absent == -9.0


def test_a_scorer_object_is_noted_in_the_spec_and_refused_by_it():
    env = RewardWrapper(reading(), ["TAMTRL"], RecordingScorer())
    assert pickle.loads(pickle.dumps(env.spec)) == env.spec
    with pytest.raises(ValueError, match="RecordingScorer"):
        gym.make(env.spec)


def test_a_model_by_name_scores_a_stack_and_rebuilds_from_the_spec(tiny_model):
    chat = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    env = RewardWrapper(reading(), READING, f"hf:{tiny_model}", template=chat)
    steps = play(env, ["a", "the year", "1623", "\\boxed{1623}"], options={"task": 0})
    signals = steps[-1][4]["signals"]
    assert min(signals["tamtrl"][:3]) > 0
    assert signals["infomem"][-1] != 0.0
    again = play(gym.make(env.spec), ["a", "the year", "1623", "\\boxed{1623}"], options={"task": 0})
    assert data_equivalence(again, steps)


def test_a_turn_after_a_step_that_the_scorer_interrupted_is_refused():
    env = RewardWrapper(reading(), ["IGPO"], RecordingScorer("poison"))
    env.reset(seed=0)
    with pytest.raises(ConnectionError):
        env.step("poison")
    with pytest.raises(ResetNeeded):
        env.step("a")
    env.reset(seed=0)
    env.step("a")


# What is refused.


@pytest.mark.parametrize(
    "methods",
    [["TAMTRLL"], "TAMTRL", [], [["InfoMem", 3]], [["InfoMem", {"bta": 1}]], ["no.such.module:Method"]],
    ids=str,
)
def test_a_wrong_list_of_methods_is_refused(methods):
    with pytest.raises(ValueError) as error:
        RewardWrapper(reading(), methods, "lexical")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: wrapped(["InfoMem"], env=wrapped(["InfoMem"])), "infomem"),
        (lambda: wrapped(["InfoMem", "InfoMem"]), "infomem"),
        (lambda: wrapped(["ReMemR1", "TAMTRL"], None), "scorer"),
        (lambda: wrapped(["SearchRewards"], env=gym.make("MemSokoban-v0")), "events"),
        (lambda: wrapped(["GiGPO"], env=Bare()), "Bare is not a text environment"),
    ],
    ids=["wrapped twice", "listed twice", "no scorer", "no such entry", "no text environment"],
)
def test_methods_that_do_not_fit_are_refused_at_reset(make, named):
    env = make()
    with pytest.raises(ValueError, match=named) as error:
        env.reset(seed=0)
    assert "\n" not in str(error.value)
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_a_step_before_the_reset_is_refused():
    env = RewardWrapper(reading(), ["TAMTRL"], "lexical")
    for call in (lambda: env.step("x"), lambda: memenvs.get_state(env)):
        with pytest.raises(ResetNeeded):
            call()


def test_before_the_first_step_the_environment_is_drawn_alone():
    env = wrapped(["ReMemR1"], env=reading(render_mode="ansi"))
    with pytest.raises(ResetNeeded):
        env.render()
    env.reset(seed=0)
    assert env.render() == env.env.render()
    env.step("notes")
    assert "rememr1" in env.render()
    assert "rememr1" not in env.env.render()


# States, copies and pickles.


def begun(methods=("TAMTRL", "InfoMem"), replies=("the year", "1623"), **kwargs):
    env = RewardWrapper(reading(**kwargs), list(methods), "lexical")
    env.reset(options={"task": 0}, seed=1)
    for reply in replies:
        env.step(reply)
    return env


def resumed(env, replies=("the year", "\\boxed{1623}")):
    """All that further replies bring."""
    return [env.step(reply) for reply in replies], env.episode


def through_json(state):
    read = json.loads(json.dumps(state, allow_nan=False))
    assert read == state
    return read


def test_a_state_resumes_with_what_methods_remember_and_pays_the_same():
    env, other = begun(), begun(replies=())
    play(env, NOTES, options={"task": 0})  # InfoMem remembers the gain of this episode
    env.reset(options={"task": 0}, seed=1)
    env.step("the year")
    env.step("1623")
    memenvs.set_state(other, through_json(memenvs.get_state(env)))
    assert data_equivalence(resumed(env)[0], resumed(other)[0])


def test_wrappers_inside_each_other_are_resumed_together():
    envs = [RewardWrapper(begun(["TAMTRL"], ()), ["InfoMem", "GiGPO"], "lexical") for _ in range(2)]
    for env in envs:
        env.reset(options={"task": 0}, seed=1)
    envs[0].step("1623")
    memenvs.set_state(envs[1], through_json(memenvs.get_state(envs[0])))
    steps = [resumed(env, NOTES[1:])[0] for env in envs]
    assert data_equivalence(*steps)
    assert {"tamtrl", "infomem", "gigpo"} <= steps[0][-1][4]["credits"].keys()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_resumes_with_the_same_scorer_and_template(copied):
    env = RewardWrapper(reading(), [InfoMem()], "lexical", template="<user>{prompt}</user>")
    env.reset(seed=0, options={"task": 0})
    env.step("1623")
    other = copied(env)
    mine, others = resumed(env, NOTES[1:]), resumed(other, NOTES[1:])
    assert data_equivalence(mine[0], others[0])
    assert mine[1].credits == others[1].credits


@pytest.mark.parametrize("scorer", ["lexical", RecordingScorer()], ids=["named", "an object"])
def test_a_copy_shares_the_scorer(scorer):
    env = RewardWrapper(reading(), [InfoMem()], scorer)
    env.reset(seed=0)
    assert copy.deepcopy(env).scorer is env.scorer


@pytest.mark.parametrize(
    "other",
    [
        {"methods": ["InfoMem", "TAMTRL"]},
        {"methods": ["TAMTRL", ["InfoMem", {"beta": 0.5}]]},
        {"methods": ["TAMTRL"]},
        {"chunk_size": 5000},
    ],
    ids=str,
)
def test_a_state_of_other_methods_or_another_environment_is_refused(other):
    env = begun()
    before = memenvs.get_state(env)
    with pytest.raises(ValueError) as error:
        memenvs.set_state(env, memenvs.get_state(begun(replies=["a"], **other)))
    assert "\n" not in str(error.value)
    assert memenvs.get_state(env) == before
