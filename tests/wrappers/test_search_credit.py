"""OTC, StepSearch, SearchR1: equations against separate NumPy code, credits by hand, and in episodes."""

import json
import math

import gymnasium as gym
import numpy as np
import pytest

from memenvs.core.episode import Reply
from memenvs.credit import redundancy, search_gains, tool_efficiency
from memenvs.wrappers import OTC, Episode, RewardWrapper, SearchR1, StepSearch, Turn
from memenvs.wrappers.stepsearch import NO_EVIDENCE, matches

close = np.testing.assert_allclose
TOWN = 2  # a task of world-test: one search finds its answer


def turn(end="", events=None, success=0.0, passages=(), evidence=()):
    info = {
        "events": events or {},
        "metrics": {"success": success},
        "privileged": {"passages": list(passages), "evidence": list(evidence)},
    }
    return Turn("read this", info, Reply("reply"), info, end)


def calling(calls, outcome, name="searched", error=""):
    """An episode of so many calls and an answer."""
    turns = [turn(events={name: 1.0}) for _ in range(calls)]
    turns.append(turn("terminated", {name: 0.0}, success=float(outcome == 1.0)))
    return ended(turns, outcome, error)


def ended(turns, outcome=0.0, error=""):
    """An episode of turns, the last of which earns the outcome."""
    for one in turns:
        one.info["rewards"] = {"outcome": outcome if one is turns[-1] else 0.0}
    metrics = turns[-1].info["metrics"]
    return Episode(turns=turns, end="failed" if error else "terminated", error=error, metrics=metrics)


def paid(method, group):
    return [credits[0].value for credits in method.assign_credit(group)]


class TestToolEfficiency:
    def test_without_a_needed_call_it_is_the_cosine_of_the_paper(self):
        m = np.arange(9)
        for c in (0.5, 1.0, 4.0):
            close(tool_efficiency(m, smooth=c), np.cos(m * np.pi / (2 * m + c)))

    def test_with_a_needed_call_it_is_the_sine_of_the_mapped_number_of_calls(self):
        m = np.arange(9)
        for n in (1, 2, 5):
            mapped = 2 * n * m / (m + n)
            close(tool_efficiency(m, n), np.sin(mapped * np.pi / (2 * n)), atol=1e-12)


class TestSearchGains:
    def test_each_turn_earns_what_it_adds_to_the_best_so_far(self):
        rows = np.random.default_rng(0).random((6, 3))
        before = np.vstack([np.zeros(3), np.maximum.accumulate(rows, axis=0)[:-1]])
        close(search_gains(rows), np.clip(rows - before, 0, None).mean(axis=1))
        assert search_gains([[], []]).tolist() == [0.0, 0.0]  # no evidence


class TestOTC:
    def test_the_outcome_is_multiplied_by_the_efficiency_against_the_groups_fewest(self):
        # n = 1: sin(pi / 2), sin(3 pi / 4); the wrong answer did not call and sets no n
        group = [calling(1, 1.0), calling(3, 1.0), calling(0, 0.0)]
        close(paid(OTC(), group), [1.0, math.sqrt(0.5), 0.0], atol=1e-12)

    def test_alone_it_is_the_cosine(self):
        close(paid(OTC(), [calling(1, 1.0)]), [math.cos(math.pi / 3)])
        close(paid(OTC(smooth=2.0), [calling(1, 1.0)]), [math.cos(math.pi / 4)])

    def test_a_success_that_called_nothing_makes_it_the_cosine(self):
        close(paid(OTC(), [calling(0, 1.0), calling(1, 1.0)]), [1.0, 0.5])

    def test_half_an_answer_earns_its_share_and_sets_no_fewest(self):
        # no success: n = 0
        close(paid(OTC(), [calling(1, 0.5), calling(1, 0.0)]), [0.25, 0.0])

    def test_an_episode_that_an_error_ended_sets_no_fewest(self):
        broken = calling(1, 1.0, error="away")
        assert paid(OTC(), [broken, calling(2, 1.0)])[1] == 1.0

    def test_calls_of_a_tool_count_as_searches_do(self):
        close(paid(OTC(), [calling(1, 1.0, name="called")]), [0.5])


class TestStepSearch:
    def test_matches_are_cosines_of_tf_idf_weights(self):
        passage, evidence = "ana bob bob cid", ("ana bob", "dov eve", "cid cid ana")
        words = ["ana", "bob", "cid", "dov", "eve"]
        counts = np.array([[text.split().count(word) for word in words] for text in (passage, *evidence)])
        rows = counts * (1 + np.log(5 / (1 + (counts > 0).sum(axis=0))))
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        close(matches(passage, evidence), rows[1:] @ rows[0])

    def test_a_turn_earns_its_gain_less_its_redundancy(self):
        evidence = ["ana bob", "cid dov"]
        turns = [
            turn(passages=["ana bob", "eve fay"], evidence=evidence),  # one of two found: 1/2
            turn(passages=["ana bob", "cid dov"], evidence=evidence),  # the other: 1/2, less 1/2
            turn("terminated", passages=[], evidence=evidence),
        ]
        played = ended(turns, 1.0)
        close(paid_by_turn(StepSearch(), played), [0.5, 0.0, 0.0], atol=1e-12)
        close(paid_by_turn(StepSearch(gain=2.0, redundancy=0.0), played), [1.0, 1.0, 0.0])
        close([StepSearch().signal(one, ()) for one in turns], [0.5, 1.0, 0.0])

    def test_a_passage_that_was_seen_before_is_redundant(self):
        close(redundancy([["a"], ["a"], ["a", "b"], []]), [0.0, 1.0, 0.5, 0.0])

    def test_a_task_without_evidence_has_no_credit_and_the_reason(self):
        played = ended([turn(passages=["ana"])])
        with pytest.warns(UserWarning, match="no evidence"):
            ((credit,),) = StepSearch().assign_credit([played])
        assert math.isnan(credit.value)
        assert credit.reason == NO_EVIDENCE
        assert math.isnan(StepSearch().signal(played.turns[0], ()))


def paid_by_turn(method, episode):
    (credits,) = method.assign_credit([episode])
    return [credit.value for credit in credits]


# Played.


def searching(method, **options):
    env = RewardWrapper(gym.make("MemSearchQA-v0", tasks="world-test", **options), [method])
    questions = env.unwrapped.questions
    task = questions[TOWN]
    search = f"<think></think><search>{questions.titles(task.evidence)[-1]}</search>"
    return env, search, f"<think></think><answer>{task.answers[0][0]}</answer>"


def play(env, replies):
    env.reset(seed=0, options={"task": TOWN})
    return [env.step(reply)[4] for reply in replies]


@pytest.mark.parametrize("memory_mode", ["react", "rewrite"])
def test_the_search_that_finds_evidence_is_paid_and_its_repetition_charged(memory_mode):
    env, search, answer = searching(StepSearch, memory_mode=memory_mode)
    last = play(env, [search, search, answer])[-1]
    first, again, end = (credit.value for credit in last["credits"]["stepsearch"])
    assert 0 < first <= 1
    assert (again, end) == (-1.0, 0.0)
    close(last["turn_rewards"], [first, -1.0, 1.0])


def test_a_search_more_costs_a_right_answer_its_share():
    env, search, answer = searching(OTC)
    assert [credit.turn for credit in play(env, [search, answer])[-1]["credits"]["otc"]] == [1]
    costs = [play(env, [*[search] * calls, answer])[-1]["rewards"]["otc"] for calls in (0, 1, 3)]
    close(costs, [1.0, 0.5, math.cos(3 * math.pi / 7)])


def test_a_tool_call_is_paid_by_both():
    env = RewardWrapper(gym.make("MemToolQA-v0", tasks="world-test"), ["StepSearch", "OTC"])
    _, info = env.reset(seed=0, options={"task": TOWN})
    assert info["privileged"]["passages"] == []
    title = info["privileged"]["evidence"][-1].partition("\n")[0]
    call = json.dumps({"name": "wiki_search", "args": {"query": title}})
    called = env.step(f"<reasoning></reasoning><tool>{call}</tool>")[4]
    assert called["privileged"]["passages"]
    last = env.step(env.unwrapped.gold_reply())[4]
    assert last["privileged"]["passages"] == []
    assert last["credits"]["stepsearch"][0].value > 0
    assert last["rewards"]["otc"] == pytest.approx(0.5)
    assert last["rewards"]["outcome"] == 0.0


def test_passages_are_those_that_are_shown_in_part_or_whole():
    env = gym.make("MemSearchQA-v0", tasks="world-test", k=3, max_information=5)
    env.reset(seed=0, options={"task": TOWN})
    info = env.step("<think></think><search>the mayor</search>")[4]
    assert len(info["privileged"]["passages"]) == 1  # five tokens are less than the first one
    assert env.step("<think></think><search>the mayor</search>")[4]["privileged"]["passages"]
    assert env.step("no tags")[4]["privileged"]["passages"] == []


@pytest.mark.parametrize(
    ("replies", "paid"),
    [
        (["{search}", "<think></think>{right}"], 1.0),
        (["{search}", "{right}"], 1.0 - 0.2),  # no thought
        (["{search}", "<think></think>{wrong}"], 0.2 + 0.1),
        (["<think></think>{wrong}"], 0.2),  # nothing was found
        (["{search}", "{wrong}"], 0.1),
        (["hm", "<think></think>{right}"], 1.0 - 0.2),  # every reply must be in form
        (["{search}"] * 5, 0.0),  # no answer
        (["{right", "hm", "hm", "hm", "hm"], 0.0),
    ],
)
def test_search_r1_pays_a_search_by_its_answer_its_form_and_what_it_found(replies, paid):
    env, search, right = searching(SearchR1)
    filled = {
        "search": search,
        "right": right.removeprefix("<think></think>"),
        "wrong": "<answer>no</answer>",
    }
    replies = [reply.format(**filled) if reply.endswith("}") else reply for reply in replies]
    info = play(env, replies)[-1]
    assert info["rewards"] == pytest.approx({"outcome": 0.0, "search_r1": paid})
    assert info["turn_rewards"] == pytest.approx([0.0] * (len(replies) - 1) + [paid])


def test_the_shares_of_search_r1s_reward_can_be_set():
    env, search, right = searching(SearchR1(structure=0.4, answered=0.05, retrieval=0.3))
    wrong = "<think></think><answer>no</answer>"
    given = [[search, wrong], [wrong], ["<answer>no</answer>"], [right.removeprefix("<think></think>")]]
    close([play(env, replies)[-1]["turn_rewards"][-1] for replies in given], [0.7, 0.4, 0.05, 0.6])
