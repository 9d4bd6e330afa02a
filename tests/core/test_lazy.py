"""Fields that are computed when they are first read."""

import copy
import json
import pickle

import gymnasium as gym
import pytest

from memenvs.core.lazy import LazyFields


def test_fields_equal_a_dictionary_and_travel_as_one():
    given, plain = {"turn": 1, "prompt": lambda: "Who?"}, {"turn": 1, "prompt": "Who?"}
    for fields in (LazyFields(given), LazyFields(lambda: given)):
        assert fields == plain
        assert plain == fields
        for other in (
            pickle.loads(pickle.dumps(fields)),
            copy.deepcopy(fields),
            json.loads(json.dumps({**fields})),
        ):
            assert other == plain


def test_fields_of_sokoban_read_after_the_episode_are_those_of_their_turn():
    env = gym.make("MemSokoban-v0", max_turns=4)
    played = []
    for read in (dict, lambda fields: fields):
        infos = [read(env.reset(seed=3)[1]["privileged"])]
        for move in ("up", "left", "down", "right"):
            infos.append(read(env.step(f"<answer>{move}</answer>")[4]["privileged"]))
        played.append(infos)
        env.reset(seed=4)
    at_once, late = played
    assert [dict(fields) for fields in late] == at_once
    assert len({fields["prompt_with_history"] for fields in at_once}) == 4  # the last one answers the fourth


@pytest.mark.parametrize("memory_mode", ["rewrite", "callback", "structured", "a_mem", "react"])
@pytest.mark.parametrize("ask", ["together", "later"])
def test_prompts_read_after_the_episode_are_those_of_their_turn(memory_mode, ask):
    """The same episode twice: every field read at once, and every field read when two episodes are over."""
    env = gym.make("MemChunkQA-v0", tasks="world-test", chunk_size=4000, memory_mode=memory_mode, ask=ask)
    played = []
    for read in (dict, lambda fields: fields):
        _, info = env.reset(seed=3)
        infos, over = [read(info["privileged"])], False
        while not over:
            reply = f"ADD: note {len(infos)}\nOf part {len(infos)}. <recall>part</recall>"
            _, _, terminated, truncated, info = env.step(reply)
            infos.append(read(info["privileged"]))
            over = terminated or truncated
        played.append(infos)
        env.reset(seed=4)
    at_once, late = played
    assert [dict(fields) for fields in late] == at_once
    assert len({fields["teacher_prompt"] for fields in at_once}) == len(at_once)
