"""Each memory mode alone: how a text changes the memory, what a prompt shows, and what is malformed."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memenvs import collect
from memenvs.baselines.advantages import group_advantages
from memenvs.core.episode import Reply, Turn
from memenvs.envs.memory import MAX_LINES, MODES, Memory, Written
from memenvs.models import ScriptedPolicy
from memenvs.tasks.tokens import load_tokenizer
from memenvs.testing import play
from memenvs.wrappers import ChooseReply, ReMemR1, RewardWrapper

TOKENIZER = load_tokenizer()


def mode(name, limit=100):
    return MODES[name](TOKENIZER, limit)


def write(name, *texts, limit=100):
    """The memory after some texts, and what the last one did."""
    memory, written = Memory(), Written(None)
    for text in texts:
        written = mode(name, limit).write(memory, text)
    return memory, written


class TestCallback:
    def test_the_earlier_memory_that_fits_the_query_is_called_back_once(self):
        texts = ["Ada wrote", "a moth", "new <recall>who wrote?</recall>"]
        memory, written = write("callback", *texts)
        assert (memory.text, memory.recalled) == ("new", "Ada wrote")
        assert written == Written((0, 3))
        memory, _ = write("callback", *texts, "and <recall>not closed")
        assert (memory.text, memory.recalled) == ("and <recall>not closed", "")

    def test_the_request_may_be_anywhere_and_is_not_kept(self):
        text = "<recall>x</recall> one <recall>y</recall>two "
        memory, written = write("callback", text)
        assert memory.text == "one two"
        assert text[slice(*written.span)] == "one <recall>y</recall>two"

    def test_a_request_that_fits_nothing_is_answered(self):
        memory, _ = write("callback", "Ada wrote", "b", "Ada wrote", "new <recall>moth</recall>")
        assert (memory.text, memory.recalled) == ("new", "")
        assert memory.notice == "No earlier memory contains a word of your query."
        assert memory.earlier == ["Ada wrote", "b"]  # none twice

    def test_nothing_but_a_request_leaves_the_memory(self):
        memory, written = write("callback", "Ada wrote", " <recall>Ada</recall>\n")
        assert (memory.text, memory.recalled, written) == ("Ada wrote", "Ada wrote", Written(None))

    def test_a_memory_over_the_limit_ends_where_it_was_cut(self):
        text = "<recall>x</recall>" + "many words " * 20
        memory, written = write("callback", text, limit=5)
        assert written.cut
        assert text[slice(*written.span)] == memory.text
        assert TOKENIZER.count(memory.text) <= 5


class TestStructured:
    def test_entries_are_added_updated_and_deleted_by_numbers_that_are_never_used_again(self):
        texts = ["ADD: one\nADD: two\nADD: three", "UPDATE 1: 1st\nDELETE 2\nDELETE 3\nADD: four", "NOOP"]
        memory, written = write("structured", *texts)
        assert mode("structured").show(memory, "") == "[1] 1st\n[4] four"
        assert (written, memory.notice) == (Written((0, 4)), "")

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("I add one", "it is not ADD: text"),
            ("ADD:", "it is not ADD: text"),
            ("DELETE", "it is not ADD: text"),
            ("add: two", "it is not ADD: text"),
            ("DELETE 7", "there is no entry with this number"),
            ("UPDATE 7: x", "there is no entry with this number"),
            ("ADD: one", "entry 1 already says this"),
        ],
    )
    def test_a_line_that_cannot_be_carried_out_leaves_the_memory_and_is_reported(self, line, why):
        memory, written = write("structured", "ADD: one", f"NOOP\n{line}")
        assert (mode("structured").notes(memory), written) == (["one"], Written((0, 4)))
        assert f"line 2: {why}" in memory.notice

    def test_what_does_not_fit_is_not_added_and_the_other_lines_are_carried_out(self):
        memory, written = write("structured", "ADD: one", "ADD: " + "many words " * 20, limit=10)
        assert (mode("structured").notes(memory), written) == (["one"], Written(None, cut=True))
        assert "it does not fit in 10 tokens" in memory.notice
        text = "well:\nADD: two\nDELETE 9\nADD: three\nthat is all"
        memory, written = write("structured", text)
        assert mode("structured").notes(memory) == ["two", "three"]
        assert text[slice(*written.span)] == "ADD: two\nDELETE 9\nADD: three"

    def test_the_number_of_operations_in_a_reply_is_limited(self):
        memory, _ = write("structured", "\n".join(f"ADD: {i}" for i in range(MAX_LINES + 5)), limit=1000)
        assert len(memory.entries) == MAX_LINES
        assert f"only {MAX_LINES} lines are read" in memory.notice


class TestNotes:
    def test_each_line_is_a_note_with_its_keywords_and_none_is_kept_twice(self):
        text = "Ada wrote the program | Lovelace, 1843\n\na moth"
        memory, written = write("a_mem", text)
        notes = [("Ada wrote the program", "Lovelace, 1843"), ("a moth", "")]
        assert [(one.text, one.keywords) for one in memory.entries] == notes
        assert written == Written((0, len(text)))
        memory, written = write("a_mem", text, "a moth")
        assert (len(memory.entries), written) == (2, Written(None))
        assert "this note already exists" in memory.notice

    def test_notes_that_fit_the_query_are_shown_and_those_linked_with_them(self):
        lines = [f"filler number {name}" for name in "abcdefgh"]
        memory, _ = write(
            "a_mem", "Lovelace lived in London\n" + "\n".join(lines) + "\nAda is Lovelace", limit=30
        )
        assert memory.entries[0].links == [10]
        assert memory.entries[-1].links == [1]
        assert mode("a_mem").show(memory, "Ada?") == "Lovelace lived in London\nAda is Lovelace"

    def test_notes_and_keywords_that_fit_are_shown_and_without_a_fit_the_latest(self):
        memory, _ = write("a_mem", "she wrote it | Ada\na moth")
        assert mode("a_mem").show(memory, "Ada") == "she wrote it | Ada"
        memory, _ = write("a_mem", "\n".join("abcdefgh"))
        assert mode("a_mem").show(memory, "zzz") == "\n".join("defgh")
        memory, _ = write("a_mem", "Ada and many more words here\nAda")
        assert mode("a_mem", limit=TOKENIZER.count("Ada") + 1).show(memory, "Ada") == "Ada"


@pytest.mark.parametrize("name", MODES)
@given(st.lists(st.text(alphabet="ADUPTELNO: 13|<>/recal\n", max_size=80), max_size=4))
@example([" " * 1_000_000])  # a pattern that looked for a letter took minutes
def test_no_text_raises_and_every_memory_is_within_its_limit(name, texts):
    memory = Memory()
    for text in texts:
        span, _ = mode(name, 8).write(memory, text)
        assert span is None or 0 <= span[0] < span[1] <= len(text)
        assert TOKENIZER.truncate(mode(name, 8).show(memory, "ADD"), 8)[1] is False
        assert len(memory.notice) < 1000


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("structured", "{0}"),
        ("structured", "UPDATE 7: {0}"),
        ("structured", "DELETE {0}"),
        ("structured", "ADD: {0} and more words than fit"),
        ("a_mem", "{0}\n{0}"),
        ("callback", "<recall>{0}</recall>"),
    ],
)
def test_no_notice_repeats_a_text_that_the_memory_does_not_hold(name, refused):
    notices = {write(name, refused.format(text), limit=5)[0].notice for text in ("1843", "1815")}
    assert len(notices) == 1
    assert notices != {""}


@pytest.mark.parametrize("name", MODES)
def test_a_memory_can_be_made_to_hold_some_lines(name):
    memory = Memory()
    for notes in (["one", "two"], ["two", "three"]):
        mode(name).write(memory, mode(name).text_of(memory, notes))
    held = ["one", "two", "three"] if name in ("a_mem", "react") else ["two", "three"]
    assert mode(name).notes(memory) == held


# In the environment.


def make(memory_mode, **kwargs):
    settings = {"tasks": "world-test", "chunk_size": 1500, "memory_mode": memory_mode, **kwargs}
    return gym.make("MemChunkQA-v0", **settings).unwrapped


def inside(observation, tag):
    return observation.partition(f"<{tag}>\n")[2].partition(f"\n</{tag}>")[0]


def test_what_was_called_back_is_shown_with_the_next_section_and_the_question():
    env = make("callback")
    env.reset(options={"task": 1})
    env.step("Ada wrote it")
    observation, _, _, _, info = env.step("a moth <recall>who wrote</recall>")
    assert (inside(observation, "memory"), inside(observation, "recalled")) == ("a moth", "Ada wrote it")
    told = info["privileged"]
    assert (told["memory"], told["written"], told["recalled"]) == ("a moth", "a moth", "Ada wrote it")
    assert inside(told["prompt_with_memory"], "recalled") == "Ada wrote it"
    assert "Ada wrote it" not in told["prompt_without_memory"]
    assert "Ada wrote it" in told["teacher_prompt"]


def test_the_thought_is_the_state_and_nothing_else_is_carried_on():
    env = make("mem1")
    env.reset(options={"task": 1})
    reply = " <think>Ada? She wrote it.</think> and so on"
    observation, _, _, _, info = env.step(reply)
    assert inside(observation, "memory") == "Ada? She wrote it."
    assert "and so on" not in observation
    assert reply[slice(*info["privileged"]["memory_span"])] == "Ada? She wrote it."
    assert env.step("opened by the template</think>")[4]["privileged"]["memory"] == "opened by the template"


@pytest.mark.parametrize("reply", ["no thought", "<think>cut", "a <think>later</think>", ""])
def test_a_reply_without_a_thought_changes_nothing_and_gets_a_notice(reply):
    env = make("mem1")
    env.reset(options={"task": 1})
    env.step("<think>known</think>")
    observation, _, _, _, info = env.step(reply)
    assert (info["privileged"]["memory"], info["privileged"]["memory_span"]) == ("known", None)
    assert "a closed <think>…</think>, so the memory is unchanged. Open your reply" in observation
    assert "unchanged" not in env.step("<think>new</think>")[0]


def test_entries_are_shown_with_their_numbers_and_what_was_not_carried_out():
    env = make("structured", max_memory=20)
    env.reset(options={"task": 1})
    observation, _, _, _, info = env.step("<think>hm</think>ADD: Ada wrote it\nDELETE 4")
    assert inside(observation, "memory") == "[1] Ada wrote it"
    assert "line 2: there is no entry with this number" in observation
    assert info["privileged"]["written"] == "ADD: Ada wrote it"
    env.step("ADD: " + "many words " * 30)
    while not env.state.end:
        info = env.step("NOOP")[4]
    assert info["metrics"]["memory_overflow"] == 1.0


def test_with_react_every_section_and_reply_stays():
    env = make("react")
    first, info = env.reset(options={"task": 1})
    assert info["context"] == "append"
    observation, _, _, _, info = env.step("it says nothing")
    assert observation == first + "it says nothing" + info["feedback"]
    while not env.answering:
        observation = env.step("more")[0]
    assert env._reading.context.text.strip()[:200] in observation
    assert "You have read the whole text." in observation
    counts = TOKENIZER.count(observation)
    info = env.step("x")[4]
    assert info["metrics"]["prompt_tokens_peak"] == pytest.approx(counts, rel=0.02)


@pytest.mark.parametrize("memory_mode", MODES)
def test_the_tokens_of_prompts_are_those_of_the_observations(memory_mode):
    replies = itertools.repeat("<think>ADD: a note of some words</think>")
    *steps, last = play(make(memory_mode), replies, options={"task": 2})
    counts = TOKENIZER.counts([step[0] for step in steps])
    assert last[4]["metrics"]["turns"] == len(counts)
    assert last[4]["metrics"]["prompt_tokens"] == pytest.approx(sum(counts), rel=0.02)


def test_a_policy_that_takes_notes_scores_the_same_in_every_mode():
    groups = [collect(make(mode), "careful", range(4), tasks=range(4)) for mode in MODES if mode != "react"]
    first, *others = ([episode.metrics["em"] for episode in episodes] for episodes in groups)
    assert all(scores == first for scores in others)


def test_tamtrl_scores_the_operations_and_mempo_credits_their_characters():
    env = RewardWrapper(make("structured"), ["TAMTRL", ["MemPO", {"trajectory": "outcome"}]], "lexical")
    _, before = env.reset(options={"task": 1})
    reply = "<think>hm</think>ADD: Ada wrote it"
    info = env.step(reply)[4]
    (asked,) = env.methods[0].requests(Turn("", before, Reply(reply), info))
    assert asked.continuation == "ADD: Ada wrote it"
    while not info["credits"]["mempo"]:
        info = env.step("NOOP")[4]
    credit = info["credits"]["mempo"][0]
    assert reply[slice(*credit.span)] == "ADD: Ada wrote it"


def test_rememr1_pays_for_the_words_of_the_answer_that_a_callback_brings_back():
    env = make("callback")
    env.reset(options={"task": 1})
    assert env.gold_reply() == "River Yulloa"
    env.step("River Yulloa it was")
    before = env.step("forgotten")[4]
    for reply, earned in (("nothing <recall>was</recall>", 1.0), ("nothing <recall>moth</recall>", 0.0)):
        info = env.step(reply)[4]
        turn = Turn("Which river?", before, Reply(reply), info)
        assert ReMemR1().signal(turn, []) == earned
        # The paper compares with the prompt, which has one of the two words already.
        assert ReMemR1(bounded=False).signal(turn, []) == earned / 2
        env.step("forgotten")


@pytest.mark.parametrize("memory_mode", MODES)
def test_episodes_of_every_mode_are_collected_and_credited(memory_mode):
    settings = {"tasks": "world-test", "chunk_size": 9000, "memory_mode": memory_mode}
    policy = ScriptedPolicy(lambda prompt: "<think>ADD: It is the river.</think>ADD: \\boxed{the river}")
    methods = ["MemPO", "InfoMem", "TAMTRL"]
    episodes = collect("MemChunkQA-v0", policy, [0], 2, methods, "lexical", env_args=settings)
    for episode in episodes:
        assert episode.error == ""
        assert len(episode.samples) == (1 if memory_mode == "react" else len(episode.turns))
    advantages = group_advantages(episodes, policy, reward="merged")
    assert all(np.isfinite(values).all() and len(values) for values in advantages)


def test_the_replies_to_choose_from_use_the_syntax_of_the_mode():
    env = ChooseReply(make("structured"), n_answers=2)
    _, info = env.reset(options={"task": 1})
    assert {reply[:12] for reply in info["replies"][:2]} == {"ADD: \\boxed{"}
    _, _, _, _, info = env.step(0)
    assert info["replies"][-1] == "NOOP"
    with pytest.raises(ValueError):
        ChooseReply(gym.make("MemChunkQA-v0", tasks="world-test", ask="later"))
