"""The rewards of the two-turn tool environment: as recorded, to the digit; and replies that earn none."""

from dataclasses import fields

import gymnasium as gym
import pytest
from reference_values import cases

from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.text import first_pair
from memenvs.wrappers import RewardWrapper, ToolRewards

NAMES = {
    "execution": "tool_execution",
    "found": "search_result_answer_presence",
    "present": "answer_presence",
    "exact": "exact_match",
    "form": "xml_format",
    "tags": "xml_tag_usage",
}
CALL = '<reasoning>r</reasoning><tool>{"name": "%s", "args": {"query": "%s"}}</tool>'
ANSWER = "<reasoning>r</reasoning><answer>%s</answer>"


# Our environment has no episode without a reply.
PLAYED = [case for case in cases("mt_rl_rewards") if case["input"]["completion"]]


def played(case):
    """The recorded messages as turns, with the events that our environment reports of such a turn."""
    messages, accepted = case["input"]["completion"], case["input"]["answer"]
    turns = []
    for message, behind in zip(messages, [*messages[1:], {"role": "", "content": ""}], strict=True):
        if message["role"] != "assistant":
            continue
        response = behind["content"] if behind["role"] == "user" else ""
        called = first_pair(message["content"], "tool") is not None and bool(response)
        result = first_pair(response, "result")
        ran = called and result is not None and not result.text.strip().startswith("Error:")
        retrieved = ran and any(answer in result.text.lower() for answer in accepted)
        events = {"called": float(called), "ran": float(ran), "retrieved": float(retrieved)}
        info = {"events": events, "privileged": {"answers": [accepted]}}
        turns.append(Turn("", info, Reply(message["content"]), info))
    return Episode(turns=turns)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", PLAYED, ids=lambda case: case["input"]["name"])
def test_each_of_the_six_rewards_is_as_recorded(case, name):
    alone = {field.name: 0.0 for field in fields(ToolRewards) if field.name != name}
    episode = played(case)
    (credits,) = ToolRewards(**alone).assign_credit([episode])
    assert credits[-1].turn == len(episode.turns) - 1
    assert sum(credit.value for credit in credits) == pytest.approx(case["output"][NAMES[name]], abs=1e-15)


def test_calls_share_the_reward_of_their_run_and_the_first_alone_has_that_of_its_result():
    info = {"events": dict.fromkeys(("called", "ran", "retrieved"), 1.0), "privileged": {"answers": [["x"]]}}
    turns = [Turn("", info, Reply(CALL % ("wiki_search", "y")), info) for _ in range(2)]
    (credits,) = ToolRewards(form=0.0, tags=0.0).assign_credit([Episode(turns=turns)])
    assert [(credit.turn, credit.value) for credit in credits] == [(0, 0.1), (1, 0.1), (0, 0.5), (1, 0.0)]


@pytest.fixture
def env():
    return RewardWrapper(gym.make("MemToolQA-v0", tasks="world-test"), [ToolRewards(form=0.0, tags=0.0)])


def test_an_error_text_that_repeats_the_answers_is_no_result(env):
    _, info = env.reset(options={"task": 0})
    gold = info["privileged"]["answers"][0][0]
    observation, reward, _, _, info = env.step(CALL % (gold, "x"))
    assert f"Unknown tool '{gold}'" in observation
    assert (reward, info["rewards"]["tool_rewards"]) == (0.0, 0.0)


def test_a_call_that_finds_the_answer_earns_its_run_and_its_result(env):
    env.reset(options={"task": 0})
    questions = env.unwrapped.questions
    title = questions.titles(questions[0].evidence)[-1]
    _, reward, _, _, info = env.step(CALL % ("wiki_search", title))
    assert info["events"] == {"called": 1.0, "ran": 1.0, "retrieved": 1.0}
    assert reward == pytest.approx(0.2 + 0.5)


def test_a_call_in_a_reply_of_over_a_million_characters_earns_what_it_did(env):
    env.reset(options={"task": 0})
    long = CALL % ("wiki_search", "town") + "x" * MAX_REPLY_CHARS
    assert env.step(long)[1] >= 0.2


def test_an_answer_after_the_millionth_character_does_not_count(env):
    _, info = env.reset(options={"task": 0})
    gold = info["privileged"]["answers"][0][0]
    env.step("hello")
    assert env.step("x" * MAX_REPLY_CHARS + ANSWER % gold)[1] == 0.0


def test_an_episode_reports_whether_its_answer_holds_an_accepted_one_and_its_use_of_tags(env):
    _, info = env.reset(options={"task": 0})
    gold = info["privileged"]["answers"][0][0]
    env.step(CALL % ("wiki_search", "x"))
    metrics = env.step(ANSWER % f"perhaps {gold.upper()}")[4]["metrics"]
    assert (metrics["answer_present"], metrics["em"], metrics["xml_tags"]) == (1.0, 0.0, 1.0)
    env.reset(options={"task": 0})
    # of the forms <tool> and </tool> one is missing, and <answer> is there twice: (1 + 0) / 2, (0 + 1) / 2
    env.step("<tool>{}")
    metrics = env.step("<answer><answer>x</answer>")[4]["metrics"]
    assert (metrics["answer_present"], metrics["xml_tags"]) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("replies", "score"),
    [
        ([CALL % ("wiki_search", "x"), ANSWER % "y"], 1.0),
        (["<tool>{}</tool>", ANSWER % "y"], (0.6 + 1.0) / 2),
        (["nothing of it", "nor of this"], 0.2),
    ],
)
def test_an_episode_reports_the_xml_format_of_its_replies_as_the_paper_does(env, replies, score):
    env.reset(options={"task": 0})
    *_, info = [env.step(reply)[4] for reply in replies]
    assert info["metrics"]["xml_format"] == pytest.approx(score)
