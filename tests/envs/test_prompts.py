"""Environments that play prompts of a user's own, by file."""

import json

import gymnasium as gym
import pytest

import memenvs
from memenvs.core.state import get_state, set_state
from memenvs.evaluation.compare import compare

MEMAGENT = """=== read ===
<problem>
{prompt}
</problem>
<memory>
{memory}
</memory>
<section>
{chunk}
</section>

Updated memory:

=== answer ===
<problem>
{prompt}
</problem>
<memory>
{memory}
</memory>
Put the answer in \\\\boxed{{}}.
=== no_memory ===
No previous memory
"""


@pytest.fixture
def prompt(tmp_path):
    def write(text, name="prompt.txt"):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


def make(env_id, template, **arguments):
    return gym.make(env_id, tasks="world-test", template=template, disable_env_checker=True, **arguments)


def test_a_file_in_the_form_of_memagents_code_is_read_as_its_checkpoints_were_trained(prompt):
    env = make("MemChunkQA-v0", prompt(MEMAGENT))
    first, info = env.reset(options={"task": 0})
    question = info["privileged"]["question"]
    start = f"<problem>\n{question}\n</problem>\n<memory>\nNo previous memory\n</memory>\n<section>\n"
    assert first.startswith(start)
    assert first.endswith("\n</section>\n\nUpdated memory:\n")
    # what is measured without a memory has an empty one (InfoMem, appendix D)
    assert "<memory>\n\n</memory>" in info["privileged"]["prompt_without_memory"]
    assert info["privileged"]["memory"] == ""
    observation, *_ = env.step("A note.")
    assert "<memory>\nA note.\n</memory>" in observation
    read = [observation]
    while read[-1]:
        read.append(env.step("A note.")[0])
    assert read[-2].endswith("Put the answer in \\boxed{}.")


def test_what_is_shown_for_a_missing_memory_counts_as_read(prompt):
    counts = []
    for text in ("No previous memory", ""):
        file = prompt(MEMAGENT.replace("No previous memory", text))
        env = make("MemChunkQA-v0", file)
        env.reset(options={"task": 0})
        while not (info := env.step("A note.")[4])["metrics"]["turns"]:
            pass
        counts.append(info["metrics"]["prompt_tokens"])
    assert counts[0] - counts[1] == env.unwrapped.tokenizer.count("No previous memory")


def test_what_was_recalled_is_shown_as_in_rememr1s_prompts(prompt):
    read = "{prompt}|{recalled_memory}|{memory}|{chunk}"
    file = prompt(f"=== read ===\n{read}\n=== answer ===\n{read[:-8]}\n=== no_recall ===\nNothing.")
    env = make("MemChunkQA-v0", file, chunk_size=200, memory_mode="callback")
    assert env.reset(options={"task": 0})[0].split("|")[1:3] == ["Nothing.", ""]
    env.step("The mill is red.")
    assert env.step("The dam. <recall>mill</recall>")[0].split("|")[1:3] == ["The mill is red.", "The dam."]


@pytest.mark.parametrize("env_id", ["MemSearchQA-v0", "MemToolQA-v0"])
def test_one_file_is_the_prompt_of_an_environment_that_has_one(env_id, prompt):
    env = make(env_id, prompt("Why? {question}\n"))
    observation, info = env.reset(options={"task": 0})
    assert observation == f"Why? {info['privileged']['question']}"


def test_tool_descriptions_are_filled_in(prompt):
    file = prompt("{tool_descriptions}\n\n{question}")
    env = make("MemToolQA-v0", file)
    observation, _ = env.reset(seed=0)
    assert observation.startswith("wiki_search: ")
    assert "\n\nArguments:\n  - query: " in observation


@pytest.mark.parametrize("env_id", ["MemSokoban-v0", "MemSokobanImage-v0"])
def test_sokoban_takes_a_prompt(env_id, prompt):
    env = gym.make(env_id, template=prompt("{board}\nMoves: {actions}"), disable_env_checker=True)
    observation, info = env.reset(seed=0)
    text = observation["text"] if env_id == "MemSokobanImage-v0" else observation
    assert text == f"{info['privileged']['state']}\nMoves: 3"


def test_the_first_prompt_and_what_is_said_at_the_limit_may_differ(prompt):
    file = prompt(
        "=== ask ===\n{questions}\n<think>{memory}</think>{recent}\n=== first ===\n{questions}\n"
        "=== last ===\n=== hint ===\nAct."
    )
    env = make("MemSearchQA-v0", file, memory_mode="mem1", max_turns=1)
    first, info = env.reset(options={"task": 0})
    assert first == info["privileged"]["question"]
    second, *_ = env.step("<think>So far.</think> No action.")
    assert second == f"{first}\n<think>So far.</think> No action.\nAct.\n"


def test_prompts_of_agents_that_call_tools_and_of_summaries_have_parts_of_their_own(prompt):
    file = prompt(
        "=== tools ===\nUse {tool}: {question}\n=== summarize ===\nSum up.\n=== summary ===\n|{summary}|"
    )
    env = make("MemSearchQA-v0", file, memory_mode="compact", compact_at=1)
    _, info = env.reset(options={"task": 0})
    assert env.unwrapped.tool_use().prompt() == f"Use search: {info['privileged']['question']}"
    assert env.step("<think></think><search>x</search>")[0].endswith("Sum up.")
    assert env.step("All I know.")[0].endswith("|All I know.|")


@pytest.mark.parametrize(
    ("env_id", "text", "arguments", "said"),
    [
        (
            "MemSearchQA-v0",
            "<tool_call> {question}",
            {},
            "<tool_call>.*reads <answer>, <information>, <search>",
        ),
        ("MemSearchQA-v0", "<search> {question}", {"form": "deep_researcher"}, "<search>.*<tool_call>"),
        ("MemToolQA-v0", "<search> {question}", {}, "<search>.*<tool>"),
        ("MemSearchQA-v0", "<mem> {question}", {}, "<mem>"),
    ],
)
def test_a_tag_that_is_not_read_is_named(env_id, text, arguments, said, prompt):
    with pytest.warns(UserWarning, match=said):
        make(env_id, prompt(text), **arguments)


@pytest.mark.parametrize(
    ("part", "text", "arguments", "said"),
    [
        (
            "read",
            "<update> {question}{memory}{chunk}",
            {"memory_mode": "callback"},
            "<update>.*reads <recall>",
        ),
        ("answer", "<answer> {question}{memory}", {}, "<answer>"),
        ("answer", "\\boxed{} {question}{memory}", {"answer_format": "tag"}, "answer_format='boxed'"),
    ],
)
def test_a_form_that_reading_does_not_take_is_named(part, text, arguments, said):
    with pytest.warns(UserWarning, match=said):
        gym.make("MemChunkQA-v0", template={part: text}, disable_env_checker=True, **arguments)


def test_a_state_and_an_evaluation_know_the_text_of_a_file_and_not_its_name(prompt, tmp_path):
    def evaluated(file, out):
        arguments = {"tasks": "world-test", "template": file}
        memenvs.evaluate("MemSearchQA-v0", "gold", env_args=arguments, tasks="0:2", out=tmp_path / out)
        return tmp_path / out

    one = prompt("A {question}")
    first = make("MemSearchQA-v0", one)
    first.reset(seed=0)
    state = get_state(first)
    set_state(make("MemSearchQA-v0", prompt("A {question}", "same.txt")), state)
    runs = [evaluated(one, "one"), evaluated(prompt("A {question}", "same.txt"), "same")]
    assert compare(runs)
    one = prompt("B {question}")
    with pytest.raises(ValueError, match="another arguments"):
        set_state(make("MemSearchQA-v0", one), state)
    with pytest.raises(ValueError, match="template"):
        evaluated(one, "one")
    runs.append(evaluated(one, "other"))
    with pytest.raises(ValueError, match=r"data\.template"):
        compare(runs)
    setting = json.loads((runs[0] / "results.json").read_text())["setting"]
    assert setting["data"].keys() >= {"tasks", "template"}
