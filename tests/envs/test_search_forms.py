"""Call and answer formats of other search agents, and the rewards that they were trained with."""

import json

import gymnasium as gym
import pytest
from reference_values import cases

from memenvs.core.text import first_pair
from memenvs.envs.search_forms import FORMS, MAX_QUERIES, deep_researcher_format, research_format
from memenvs.tasks.metrics import METRICS
from memenvs.wrappers import FormatGate, RewardWrapper

THOUGHT = "<think>so</think>"
OTHERS = [name for name in FORMS if name != "search_r1"]
PAID = {
    "research": (research_format, "f1", FormatGate(improper=0.0, wrong=0.1)),
    "deep_researcher": (deep_researcher_format, "set_f1", FormatGate()),
}


def make(form, **settings):
    env = gym.make("MemSearchQA-v0", tasks="world-test", form=form, **settings)
    observation, info = env.reset(seed=0, options={"task": 0})
    return env, observation, info


def call(*queries, name="web_search"):
    command = json.dumps({"name": name, "arguments": {"query": list(queries)}}, ensure_ascii=False)
    return f"<tool_call>{command}</tool_call>"


@pytest.mark.parametrize("form", OTHERS)
def test_the_reward_of_a_text_is_what_the_public_code_pays(form):
    """Both codes are given the whole response, here as one text."""
    proper, metric, gate = PAID[form]
    recorded = cases(f"{form}_reward")
    assert len(recorded) > 50
    for case in recorded:
        text = case["input"]["text"]
        paid = gate.improper
        if proper(text):
            given = first_pair(text if form == "research" else text.lower(), "answer")
            answer = FORMS[form].read(f"<answer>{given.text}</answer>").content
            paid = METRICS[metric](answer, case["input"]["golds"]) or gate.wrong
        assert paid == pytest.approx(case["output"]), text


@pytest.mark.parametrize(
    ("form", "reply", "kind", "queries", "content", "well_formed"),
    [
        ("research", f"{THOUGHT}<search> the Seine </search>", "search", ("the Seine",), "the Seine", True),
        ("research", "<search>a</search>", "search", ("a",), "a", False),
        (
            "research",
            f"{THOUGHT}<answer>\\boxed{{a}}</answer><search>b</search>",
            "search",
            ("b",),
            "b",
            False,
        ),
        ("research", rf"{THOUGHT}<answer>It is \[ \boxed{{Paris}} \]</answer>", "answer", (), "Paris", True),
        ("research", f"{THOUGHT}<answer>Paris</answer>", "answer", (), "", False),
        ("research", r"\boxed{Paris}", "", (), "", False),
        ("deep_researcher", THOUGHT + call("a", " b "), "search", ("a", "b"), "a", True),
        ("deep_researcher", call("a"), "search", ("a",), "a", False),
        ("deep_researcher", f"{THOUGHT}{call('a')}<answer>b</answer>", "answer", (), "b", False),
        ("deep_researcher", f"{THOUGHT}<answer>b</answer>", "answer", (), "b", True),
        ("deep_researcher", call("", " "), "", (), "", False),
        ("deep_researcher", call("a", name="browse_webpage"), "", (), "", False),
        ("deep_researcher", "<tool_call>[1, 2]</tool_call>", "", (), "", False),
        ("deep_researcher", "<tool_call>{" * 9, "", (), "", False),
        ("deep_researcher", call(1), "", (), "", False),
        ("deep_researcher", call().replace("[]", '"a"'), "", (), "", False),
    ],
)
def test_a_reply_is_read_in_its_form(form, reply, kind, queries, content, well_formed):
    move = FORMS[form].read(reply)
    assert (move.kind, move.queries, move.content, move.well_formed) == (kind, queries, content, well_formed)


@pytest.mark.parametrize(
    ("form", "example", "kind", "content"),
    [
        ("search_r1", "<search>query</search>", "search", "query"),
        ("research", "<search>query</search>", "search", "query"),
        ("research", r"<answer>It is \boxed{…}</answer>", "answer", "…"),
        ("deep_researcher", call("…", "…"), "search", "…"),
        ("deep_researcher", "<answer>…</answer>", "answer", "…"),
    ],
)
def test_the_examples_of_a_prompt_are_read_as_what_they_show(form, example, kind, content):
    _, observation, _ = make(form)
    assert example in observation
    move = FORMS[form].read(example)
    assert (move.kind, move.content) == (kind, content)


@pytest.mark.parametrize("form", FORMS)
def test_what_a_form_writes_it_reads(form):
    form = FORMS[form]
    assert form.read(form.call('who "is" Ada?')).queries == ('who "is" Ada?',)
    assert form.read(form.answer("Ada; 1 {2}")).content == "Ada; 1 {2}"


@pytest.mark.parametrize(("form", "tag"), [("research", "result"), ("deep_researcher", "tool_response")])
def test_what_is_found_comes_back_in_the_forms_own_tag_and_an_answer_ends_it(form, tag):
    env, observation, info = make(form)
    reply = THOUGHT + env.unwrapped.form.call(info["privileged"]["question"])
    after, *_, info = env.step(reply)
    found = first_pair(info["feedback"], tag)
    assert found.text.startswith("Doc 1(Title: ")
    assert after == observation + reply + info["feedback"]
    assert info["events"]["searched"] == 1.0
    *_, terminated, _, info = env.step(env.unwrapped.gold_reply())
    assert terminated
    assert (info["metrics"]["success"], info["metrics"]["format"]) == (1.0, 1.0)
    assert info["privileged"]["target_wrapped"] in env.unwrapped.gold_reply()


def test_every_query_of_a_call_is_searched_for_by_one_call_of_the_retriever():
    env, *_ = make("deep_researcher", k=2)
    asked, inner = [], env.unwrapped.retriever

    class Counted:
        def search(self, queries, k):
            asked.append(list(queries))
            return inner.search(queries, k)

        def passages(self, ids):
            return inner.passages(ids)

    env.unwrapped.retriever = Counted()
    names = [f"town {n}" for n in range(MAX_QUERIES + 2)]
    *_, info = env.step(THOUGHT + call(*names))
    assert asked == [names[:MAX_QUERIES]]
    alone = [text for name in names[:MAX_QUERIES] for text in env.unwrapped.find(name)]
    assert info["privileged"]["passages"] == alone[: len(info["privileged"]["passages"])]
    assert info["events"]["searches"] == 1.0


@pytest.mark.parametrize("form", OTHERS)
def test_a_reply_that_does_nothing_gets_a_hint_and_the_episode_is_out_of_form(form):
    env, *_ = make(form)
    *_, info = env.step("what?")
    assert "Use one of them." in info["feedback"]
    *_, info = env.step(env.unwrapped.gold_reply())
    assert (info["metrics"]["success"], info["metrics"]["format"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("improper", "wrong", "replies", "paid"),
    [
        (-1.0, 0.0, [THOUGHT + call("a"), "gold"], 1.0),
        (-1.0, 0.0, [f"{THOUGHT}<answer>nothing of it</answer>"], 0.0),
        (0.0, 0.1, [f"{THOUGHT}<answer>nothing of it</answer>"], 0.1),
        (-1.0, 0.0, ["<think>so<answer>1</answer>"], -1.0),
        (-1.0, 0.0, ["what?", "gold"], -1.0),
        (-1.0, 0.0, [THOUGHT + call("a")] * 5, -1.0),
    ],
    ids=["gold", "wrong", "wrong but in form", "a thought unclosed", "a reply that did nothing", "no answer"],
)
def test_the_gate_pays_the_outcome_in_form_at_the_last_turn(improper, wrong, replies, paid):
    env = gym.make("MemSearchQA-v0", tasks="world-test", form="deep_researcher", metric="set_f1")
    env = RewardWrapper(env, [FormatGate(improper=improper, wrong=wrong)])
    env.reset(seed=0, options={"task": 0})
    for reply in replies:
        *_, info = env.step(env.unwrapped.gold_reply() if reply == "gold" else reply)
    assert info["turn_rewards"] == [0.0] * (len(replies) - 1) + [paid]
    assert info["rewards"]["outcome"] == 0.0


@pytest.mark.parametrize(
    ("partial", "answer", "paid"), [(True, "one", 2 / 3), (False, "one", 0.0), (False, "one two", 1.0)]
)
def test_the_gate_of_mempo_pays_nothing_for_a_part_of_the_answer(partial, answer, paid, tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"question": "which?", "answers": ["one two"]}))
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "0", "contents": "a\nb"}))
    places = {"tasks": str(tmp_path / "tasks.jsonl"), "retriever": f"lexical:{tmp_path / 'corpus.jsonl'}"}
    env = gym.make("MemSearchQA-v0", metric="f1", **places)
    env = RewardWrapper(env, [FormatGate(improper=0.0, partial=partial)])
    env.reset(seed=0)
    *_, info = env.step(f"<think>so</think><answer>{answer}</answer>")
    assert info["turn_rewards"] == [pytest.approx(paid)]
