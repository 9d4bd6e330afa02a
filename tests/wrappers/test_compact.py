"""CompactContext: a summary replaces the turns, the environment plays on as ever, and credit reaches it."""

import copy
import pickle

import gymnasium as gym
import pytest
from gymnasium.envs.registration import WrapperSpec
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import TimeLimit

import memenvs
from memenvs import collect
from memenvs.core.spaces import UnicodeText
from memenvs.envs.search_qa import SUMMARIZE
from memenvs.tasks.tokens import load_tokenizer
from memenvs.testing import *  # noqa: F403  # every test of the contract runs here again
from memenvs.testing import play
from memenvs.wrappers import CompactContext, RewardWrapper, SelectRecords

SEARCH, SUM = "<think></think><search>a town</search>", "The town is Arl."
COMPACTED = {
    "CompactSearch-v0": ("envs.search_qa:SearchQAEnv", "CompactContext", {"at": 700}, {}),
    "CompactTool-v0": ("envs.tool_qa:ToolQAEnv", "CompactContext", {"at": 300, "by": "agent"}, {}),
    "CompactSokoban-v0": ("sokoban.environments:SokobanEnv", "CompactContext", {"at": 400}, {}),
    "SelectSearch-v0": ("envs.search_qa:SearchQAEnv", "SelectRecords", {"at": 700, "recent": 1}, {}),
    "SelectReading-v0": (
        *("envs.chunk_qa:ChunkQAEnv", "SelectRecords", {"at": 500}),
        {"tasks": "world-test", "memory_mode": "react", "chunk_size": 300, "n_documents": 4},
    ),
}
INSIDE = (
    "test_methods_that_ask_for_log_probabilities_run",
    "test_a_state_of_another_environment_is_refused_in_one_line",
    "test_an_action_that_is_no_text_is_refused",
    "test_check_env_finds_nothing_to_warn_of",
    # what a policy without memory replies is a summary, too, once one is asked for
    "test_the_gold_policy_scores_one",
)
for name in INSIDE:
    globals().pop(name, None)
for env_id, (entry_point, name, settings, arguments) in COMPACTED.items():
    wrapper = WrapperSpec(name, f"memenvs.wrappers:{name}", settings)
    gym.register(env_id, f"memenvs.{entry_point}", additional_wrappers=(wrapper,), kwargs=arguments)


def pytest_generate_tests(metafunc):
    if "env_id" in metafunc.fixturenames:
        metafunc.parametrize("env_id", COMPACTED)


def search(**settings):
    inner = gym.make("MemSearchQA-v0", tasks="world-test", max_turns=4, disable_env_checker=True)
    return CompactContext(inner, **{"at": 1, **settings})


def test_a_summary_is_asked_for_and_replaces_the_turns():
    env = search()
    first, _ = env.reset(seed=1)
    observation, *_, info = env.step(SEARCH)
    assert info["context"] == "append"
    assert observation == first + SEARCH + info["feedback"]
    assert "Write a summary" in observation
    observation, reward, terminated, truncated, info = env.step(f"<think>hm</think>{SUM}")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["context"], info["feedback"], info["turn"]) == ("rewrite", "", 2)
    assert observation.startswith(first)
    assert SUM in observation
    assert "hm" not in observation
    assert "Doc 1" not in observation
    observation_after, *_, info = env.step(SEARCH)
    assert observation_after == observation + SEARCH + info["feedback"]


def test_the_environment_plays_as_without_it():
    env, bare = search(), search().env
    env.reset(seed=1)
    bare.reset(seed=1)
    for number in range(3):
        inside = bare.step(f"<think></think><search>town {number}</search>")
        _, reward, *ends, info = env.step(f"<think></think><search>town {number}</search>")
        assert (reward, *ends) == inside[1:4]
        assert info["feedback"].startswith(inside[4]["feedback"])
        assert info["privileged"]["passages"] == inside[4]["privileged"]["passages"]
        env.step(SUM)
    *_, inside = bare.step(bare.unwrapped.gold_reply())
    *_, info = env.step(env.unwrapped.gold_reply())
    assert info["metrics"]["success"] == inside["metrics"]["success"] == 1.0
    assert info["metrics"]["summaries"] == 3.0
    assert info["metrics"]["prompt_tokens_peak"] < inside["metrics"]["prompt_tokens_peak"]
    assert info["turn_rewards"] == [0.0] * 6 + [1.0]


def test_a_context_below_the_limit_is_left_alone():
    env, bare = search(at=100_000), search().env
    replies = [SEARCH, SEARCH, "<think></think><answer>x</answer>"]
    steps = [play(one, replies, seed=1) for one in (env, bare)]
    assert [step[:4] for step in steps[0]] == [step[:4] for step in steps[1]]


@pytest.mark.parametrize("by", ["limit", "agent"])
def test_everything_that_the_agent_reads_counts_as_context(by):
    at, request = 800, SUMMARIZE.fill(limit=256)
    env = search(at=at, by=by)
    observation, _ = env.reset(seed=1)
    counts, replies = [], []
    for _ in range(20):
        asked = observation.endswith(request)
        counts.append(load_tokenizer().count(observation))
        unasked = load_tokenizer().count(observation.removesuffix(request))
        assert asked == (replies != [] and replies[-1] != SUM and unasked >= at)
        replies.append(SUM if asked else SEARCH)
        observation, _, terminated, truncated, info = env.step(replies[-1])
        if terminated or truncated:
            break
    assert SUM in replies
    assert info["metrics"]["prompt_tokens"] == pytest.approx(sum(counts), rel=0.002)
    assert info["metrics"]["prompt_tokens_peak"] == pytest.approx(max(counts), rel=0.002)


def test_a_summary_that_is_no_text_or_follows_the_end_is_refused():
    env = search(by="agent")
    env.reset(seed=1)
    env.step(SEARCH)
    with pytest.raises(TypeError, match="an action is a str"):
        env.step(None)
    env.step(SUM)
    _, _, terminated, *_ = env.step("<think></think><answer>x</answer>")
    assert terminated
    with pytest.raises(gym.error.ResetNeeded):
        env.step(f"<compact>{SUM}</compact>")


@pytest.mark.parametrize("wrapper", [CompactContext, SelectRecords])
def test_a_limit_inside_ends_the_episode_and_a_further_step_is_refused(wrapper):
    env = wrapper(TimeLimit(search().env, 1), at=100_000)
    env.reset(seed=1)
    assert env.step(SEARCH)[3]
    with pytest.raises(gym.error.ResetNeeded, match="over"):
        env.step(SEARCH)


def test_a_summary_is_truncated_to_its_limit():
    env = search(max_summary=8)
    env.reset(seed=1)
    env.step(SEARCH)
    observation, *_, info = env.step("one two three four five six seven eight nine ten eleven twelve")
    assert "twelve" not in observation
    assert load_tokenizer().count(info["privileged"]["memory"]) <= 8


def test_an_agent_summarises_when_it_wants_to_and_sees_what_its_context_costs():
    env = search(at=100_000, by="agent")
    first, _ = env.reset(seed=1)
    assert "<compact>" in first
    observation, *_, info = env.step(SEARCH)
    assert "of 100000 tokens of context used]" in info["feedback"]
    observation, *_, info = env.step(f"<think>enough</think><compact>{SUM}</compact>")
    assert info["context"] == "rewrite"
    assert observation.startswith(first)
    start, end = info["privileged"]["memory_span"]
    assert f"<think>enough</think><compact>{SUM}</compact>"[start:end] == SUM
    *_, info = env.step(f"<compact>{SUM}</compact>")  # nothing to replace: a reply for the environment
    assert info["context"] == "append"
    *_, info = env.step(f"I search. <compact>{SUM}</compact>")
    assert info["context"] == "append"


def test_a_requested_summary_may_be_in_the_tags_that_the_first_prompt_explains():
    env = search(by="agent")
    env.reset(seed=1)
    env.step(SEARCH)
    *_, info = env.step(reply := f"<think>hm</think>\n<compact>{SUM}</compact>")
    assert info["privileged"]["memory"] == SUM == reply[slice(*info["privileged"]["memory_span"])]
    env.step(SEARCH)
    *_, info = env.step(f"In short: <compact>{SUM}</compact>")
    assert info["privileged"]["memory"] == f"In short: <compact>{SUM}</compact>"


def test_the_fields_of_a_summary_are_what_methods_read():
    env = search()
    first, _ = env.reset(seed=1)
    *_, asked = env.step(SEARCH)
    observation, *_, info = env.step(SUM)
    fields = info["privileged"]
    assert (fields["memory"], fields["memory_span"]) == (SUM, [0, len(SUM)])
    assert fields["prompt_with_memory"] == observation
    assert fields["prompt_without_memory"] == observation.replace(SUM, "")
    assert (fields["passages"], info["events"]["well_formed"]) == ([], 1.0)
    evidence = asked["privileged"]["evidence"][0].splitlines()[-1]
    teacher = asked["privileged"]["teacher_prompt"]
    assert evidence in teacher
    assert teacher.startswith(first + SEARCH)
    assert teacher.endswith("of this conversation.\n")


def test_a_chunk_is_not_read_again_behind_a_summary():
    env = gym.make("SelectReading-v0", disable_env_checker=True, tasks="world-test")
    env.reset(seed=1)
    shown = []
    while not (shown and shown[-1][0]):
        _, _, over, _, info = env.step("some words")
        shown.append((over, info["context"], info["privileged"]["evidence_in_chunk"]))
    assert any(evidence for _, context, evidence in shown if context == "append")
    assert not any(evidence for _, context, evidence in shown if context == "rewrite")


@pytest.mark.parametrize(
    ("wrapper", "record"), [(CompactContext, ""), (SelectRecords, "<record>none</record>")]
)
def test_tool_rewards_read_what_the_environment_reads(wrapper, record):
    call = '<reasoning>x</reasoning><tool>{"name": "wiki_search", "args": {"query": "town"}}</tool>'
    answer = "<reasoning>x</reasoning><answer>a</answer>"
    bare, returns = gym.make("MemToolQA-v0", tasks="world-test", disable_env_checker=True), []
    with_memory = [call, "<select>1</select><answer>b</answer>", record + answer]
    for env, replies in ((bare, [call, answer]), (wrapper(bare, at=1), with_memory)):
        env = RewardWrapper(env, ["ToolRewards"])
        returns.append(sum(step[1] for step in play(env, replies, seed=1)))
    assert returns[0] == pytest.approx(returns[1])


def test_a_request_for_a_summary_is_another_state_than_the_board_it_follows():
    env = CompactContext(bare := gym.make("MemSokoban-v0", disable_env_checker=True), at=1)
    env.reset(seed=1)
    *_, asked = env.step("up")
    *_, after = env.step(SUM)
    board = bare.unwrapped.privileged()["state"]
    assert after["privileged"]["state"] == board != asked["privileged"]["state"]


def test_an_environment_may_have_a_tokenizer_of_its_own_and_few_fields():
    inner = gym.make("MemSokoban-v0", disable_env_checker=True)
    inner.unwrapped.tokenizer = "gpt2"
    inner.unwrapped._privileged = lambda: {"state": "the same"}
    env = CompactContext(inner, at=1)
    env.reset(seed=1)
    env.step("up")
    *_, info = env.step(SUM)
    assert (info["privileged"]["state"], dict(info["privileged"])["memory"]) == ("the same", SUM)


@pytest.mark.parametrize("method", ["TAMTRL", "MemPO", "InfoMem"])
def test_credit_reaches_the_summary(method):
    def agent(observation, info):
        if observation.endswith("of this conversation.\n"):
            return "The town is Arl."
        return SEARCH if info["turn"] < 3 else "<think></think><answer>x</answer>"

    methods = [[method, {"side": "both"}] if method == "InfoMem" else method]
    if method == "MemPO":
        methods = [["MemPO", {"trajectory": "outcome"}]]
    (episode,) = collect(lambda: search(), agent, [1], methods=methods, scorer="lexical", errors="raise")
    name = method.lower()
    summary = next(k for k, turn in enumerate(episode.turns) if turn.info["context"] == "rewrite")
    measured = episode.measured[name]
    assert (len(episode.turns) - 1 if method == "InfoMem" else summary) in measured
    if method == "TAMTRL":  # the other turns wrote nothing
        assert set(measured) == {
            k for k, turn in enumerate(episode.turns) if turn.info["context"] == "rewrite"
        }


def test_tokens_are_joined_again_behind_a_summary():
    (episode,) = collect(lambda: search(), lambda o, i: SUM if "Write a summary" in o else SEARCH, [1])
    runs = episode.sequences()
    assert len(runs) > 1
    assert all(turn.before["context"] == "append" for run in runs for turn in run[1:])


def test_a_wrapper_of_rewards_goes_around_it():
    with pytest.raises(ValueError, match="inside CompactContext"):
        CompactContext(RewardWrapper(search().env, ["IGPO"], "lexical"), at=1).reset(seed=0)
    with pytest.raises(ValueError, match="rewrites its prompts"):
        CompactContext(gym.make("MemChunkQA-v0"), at=1)
    with pytest.raises(ValueError, match=r"<CompactContext<.*>> rewrites its prompts"):
        CompactContext(search(), at=1)


@pytest.mark.parametrize("wrapper", [CompactContext, SelectRecords])
def test_an_environment_of_texts_that_is_no_text_environment_is_refused_in_one_line(wrapper):
    class Bare(gym.Env):
        observation_space = action_space = UnicodeText()

    with pytest.raises(ValueError, match=r"Bare is not a text environment, which extends memenvs\.TextEnv"):
        wrapper(Bare(), at=1)


def test_a_state_behind_a_summary_is_played_again():
    env = search()
    env.reset(seed=1)
    for reply in (SEARCH, SUM, SEARCH):
        env.step(reply)
    state, same = memenvs.get_state(env), search()
    assert state["actions"] == [SEARCH, SUM, SEARCH]
    memenvs.set_state(same, state)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env)), same]
    played = env.step("Another summary.")
    assert all(data_equivalence(one.step("Another summary."), played) for one in copies)
