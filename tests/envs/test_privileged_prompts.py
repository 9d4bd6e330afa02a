"""What environments give reward methods: prompts with and without evidence, memory and history."""

import itertools

import gymnasium as gym
import pytest

from memenvs.sokoban import to_text
from memenvs.testing import play

PROMPTS = {"prompt_with_memory", "prompt_without_memory", "prompt_with_history"}
ASKED = {"question", "target", "target_wrapped", "memory", *PROMPTS}
SEARCH = "<mem>I know {}</mem><think></think><search>town</search>"


@pytest.fixture
def reading():
    env = gym.make("MemChunkQA-v0", tasks="world-test", chunk_size=4000).unwrapped
    env.reset(options={"task": 1})
    return env


def reads(env, memory="notes"):
    """(observation, privileged) of each turn."""
    steps = play(env, itertools.repeat(memory), options={"task": 1})
    return [(step[0], step[-1]["privileged"]) for step in steps]


def test_the_teacher_reads_the_evidence_of_its_chunk_in_the_chunks_place_and_the_global_one_all(reading):
    for observation, told in reads(reading)[:-2]:
        chunk = observation.partition("<section>\n")[2].partition("\n</section>")[0]
        assert told["teacher_prompt"] == observation.replace(chunk, "\n\n".join(told["evidence_in_chunk"]))
        assert told["teacher_prompt_global"] == observation.replace(chunk, "\n\n".join(told["evidence"]))


def test_the_prompts_of_the_answer_turn_are_its_observation_but_for_the_memory(reading):
    *_, (observation, told), (_, last) = reads(reading)
    assert told["prompt_with_memory"] == last["prompt_with_memory"] == observation
    assert told["prompt_without_memory"] == observation.replace("\nnotes\n", "\n\n")
    with_evidence = "\n\n".join(["notes", *told["evidence"]])
    assert told["teacher_prompt"] == observation.replace("\nnotes\n", f"\n{with_evidence}\n")
    assert told["teacher_prompt_global"] == told["teacher_prompt"]
    assert (told["target"], told["target_wrapped"]) == ("River Yulloa", "\\boxed{River Yulloa}")


APPENDING = {
    "MemSearchQA-v0": ({"tasks": "world-test"}, "<think></think><search>town</search>"),
    "MemToolQA-v0": (
        {"tasks": "world-test"},
        '<tool>{"name": "wiki_search", "args": {"query": "town"}}</tool>',
    ),
    "MemSokoban-v0": ({}, "<think></think><answer>Up</answer>"),
}


@pytest.fixture(params=APPENDING)
def appending(request):
    """An environment whose prompt grows, and a reply that does not end it."""
    arguments, reply = APPENDING[request.param]
    return gym.make(request.param, **arguments).unwrapped, reply


def test_where_the_prompt_grows_the_memory_is_the_last_reply_and_its_prompt_the_observation(appending):
    env, reply = appending
    start, info = env.reset(options={"task": 1})
    assert info["privileged"]["memory"] == ""
    assert info["privileged"]["memory_span"] is None
    observation, *_, info = env.step(reply)
    told = info["privileged"]
    assert (told["memory"], told["memory_span"]) == (reply, [0, len(reply)])
    assert told["prompt_with_memory"] == told["prompt_with_history"] == observation
    assert told["prompt_without_memory"] == start


def test_where_the_prompt_grows_the_reply_that_ends_the_episode_is_no_memory(appending):
    env, reply = appending
    env.reset(options={"task": 1})
    before = env.step(reply)[0]
    over, last = False, env.gold_reply()
    while not over:
        _, _, terminated, truncated, info = env.step(last)
        over = terminated or truncated
        if not over:
            before = info["privileged"]["prompt_with_history"]
    told = info["privileged"]
    assert (told["memory"], told["memory_span"], told["teacher_prompt"]) == ("", None, "")
    assert told["reply"] == last
    assert told["prompt_with_memory"] == before


def test_where_the_prompt_grows_the_teacher_reads_the_evidence_behind_it(appending):
    env, reply = appending
    env.reset(options={"task": 1})
    observation, *_, info = env.step(reply)
    told = info["privileged"]
    evidence = told["teacher_prompt_global"].removeprefix(observation)
    assert told["teacher_prompt"] == observation + evidence
    assert told["target"] in evidence


def test_the_target_of_a_level_is_a_shortest_solution_in_the_words_of_its_moves():
    env = gym.make("MemSokoban-v0", max_turns=1, max_actions=9).unwrapped
    _, info = env.reset(seed=3)
    told = info["privileged"]
    assert told["target_wrapped"] == f"<answer>{told['target']}</answer>"
    assert told["question"] == f"Push every box onto a target.\n\n{to_text(env.board)}"
    assert env.step(f"<think></think>{told['target_wrapped']}")[2]


@pytest.mark.parametrize("keep_turns", [1, 3, "all"])
def test_the_prompts_of_a_search_with_a_memory_hold_it_alone_or_the_turns_alone(keep_turns):
    env = gym.make("MemSearchQA-v0", tasks="world-test", memory_mode="rewrite", keep_turns=keep_turns)
    _, info = env.reset(options={"task": 1})
    first = env.step(SEARCH.format("one"))[4]["privileged"]
    observation, *_, info = env.step(SEARCH.format("two"))
    told = info["privileged"]
    assert (told["target"], told["target_wrapped"]) == ("River Yulloa", "<answer>River Yulloa</answer>")
    assert told["prompt_with_memory"].replace("I know two", "") == told["prompt_without_memory"]
    assert "<information>" not in told["prompt_with_memory"].partition("Question:")[2]
    # A scorer can reuse the prefix.
    assert told["prompt_with_history"].startswith(first["prompt_with_history"])
    assert SEARCH.format("two") in told["prompt_with_history"]
    assert "<mem>\n\n</mem>" in told["prompt_with_history"]
    title = told["evidence"][0].partition("\n")[0]
    evidence = told["teacher_prompt"].removeprefix(observation)
    assert evidence.startswith(f"\n\n<information>Doc 1(Title: {title})")


def test_the_target_of_a_level_from_a_text_is_a_shortest_solution(tmp_path):
    (tmp_path / "level.txt").write_text("######\n#@ $.#\n#    #\n######\n")
    env = gym.make("MemSokoban-v0", levels=str(tmp_path / "level.txt"), min_solution=1)
    assert env.reset(seed=0)[1]["privileged"]["target"] == "Right || Right"
