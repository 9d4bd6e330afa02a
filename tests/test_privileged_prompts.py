"""What environments tell reward methods: prompts with and without evidence, memory and history."""

import gymnasium as gym
import pytest

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
    observation, info = env.reset(options={"task": 1})
    turns = [(observation, info["privileged"])]
    over = False
    while not over:
        observation, _, terminated, truncated, info = env.step(memory)
        turns.append((observation, info["privileged"]))
        over = terminated or truncated
    return turns


def test_the_teacher_reads_the_evidence_of_its_chunk_in_the_chunks_place(reading):
    for observation, told in reads(reading)[:-2]:
        chunk = observation.partition("<section>\n")[2].partition("\n</section>")[0]
        assert told["teacher_prompt"] == observation.replace(chunk, "\n\n".join(told["evidence_in_chunk"]))


def test_the_global_teacher_reads_all_evidence_at_every_turn(reading):
    for _, told in reads(reading)[:-1]:
        assert all(document in told["teacher_prompt_global"] for document in told["evidence"])


def test_the_teacher_of_the_answer_turn_reads_all_evidence_behind_the_memory(reading):
    observation, told = reads(reading)[-2]
    with_evidence = "\n\n".join(["notes", *told["evidence"]])
    assert told["teacher_prompt"] == observation.replace("\nnotes\n", f"\n{with_evidence}\n")


def test_the_prompt_with_memory_is_the_answer_turns_observation(reading):
    *_, (observation, told), (_, last) = reads(reading)
    assert told["prompt_with_memory"] == last["prompt_with_memory"] == observation


def test_the_prompt_without_memory_differs_in_the_memory_alone(reading):
    told = reads(reading)[-2][1]
    assert told["prompt_with_memory"].replace("\nnotes\n", "\n\n") == told["prompt_without_memory"]


def test_the_target_is_the_bare_answer_and_as_a_reply_would_give_it(reading):
    told = reads(reading)[-2][1]
    assert (told["target"], told["target_wrapped"]) == ("River Yulloa", "\\boxed{River Yulloa}")


def test_the_target_of_a_search_is_the_bare_answer_and_in_its_tag():
    _, info = gym.make("MemSearchQA-v0", tasks="world-test", memory_mode="memory").reset(options={"task": 1})
    told = info["privileged"]
    assert (told["target"], told["target_wrapped"]) == ("River Yulloa", "<answer>River Yulloa</answer>")


@pytest.mark.parametrize("keep_turns", [1, 3, "all"])
def test_search_with_memory_tells_the_same_keys_at_every_turn(keep_turns):
    env = gym.make("MemSearchQA-v0", tasks="world-test", memory_mode="memory", keep_turns=keep_turns)
    _, info = env.reset(options={"task": 0})
    assert set(info["privileged"]) >= ASKED
    assert env.step(SEARCH.format("it"))[4]["privileged"].keys() == info["privileged"].keys()


def test_search_that_appends_has_no_memory_to_tell_of():
    _, info = gym.make("MemSearchQA-v0", tasks="world-test").reset(seed=0)
    assert ASKED.isdisjoint(info["privileged"])


def test_the_history_of_a_search_grows_by_its_turns_and_holds_no_memory():
    env = gym.make("MemSearchQA-v0", tasks="world-test", memory_mode="memory")
    env.reset(options={"task": 0})
    first = env.step(SEARCH.format("one"))[4]["privileged"]["prompt_with_history"]
    second = env.step(SEARCH.format("two"))[4]["privileged"]["prompt_with_history"]
    assert second.startswith(first)  # so that a scorer can reuse the prefix
    assert SEARCH.format("two") in second
    assert "<mem>\n\n</mem>" in second


def test_the_memory_of_a_search_is_in_its_prompt_without_what_came_back():
    env = gym.make("MemSearchQA-v0", tasks="world-test", memory_mode="memory")
    env.reset(options={"task": 0})
    told = env.step(SEARCH.format("one"))[4]["privileged"]
    assert told["prompt_with_memory"].replace("I know one", "") == told["prompt_without_memory"]
    assert "<information>" not in told["prompt_with_memory"].partition("Question:")[2]
