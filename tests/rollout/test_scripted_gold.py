"""The policy that knows the answer plays the environment before it gives it."""

import gymnasium as gym
import pytest

from memenvs.envs.memory import MODES
from memenvs.rollout.scripted import make_policy


def played(name, **arguments):
    """Each turn's info, reply and the info after it."""
    env = gym.make(f"memenvs:{name}", tasks="world-test", **arguments)
    policy = make_policy("gold", env)
    observation, info = env.reset(seed=0, options={"task": 3})
    turns, over = [], False
    while not over:
        reply = policy(observation, info)
        observation, _, terminated, truncated, after = env.step(reply)
        turns.append((info, reply, after))
        info, over = after, terminated or truncated
    return turns


@pytest.mark.parametrize("mode", MODES)
def test_it_notes_the_answer_once_all_evidence_was_shown(mode):
    turns = played("MemChunkQA-v0", n_documents=10, chunk_size=400, memory_mode=mode)
    answer = turns[0][0]["privileged"]["target"]
    shown, whole = 0, sum(map(len, turns[0][0]["privileged"]["evidence"]))
    knew = []
    for before, reply, _ in turns[:-1]:
        shown += sum(map(len, before["privileged"]["evidence_in_chunk"]))
        knew.append((shown == whole, answer in reply))
    assert not knew[0][0]
    first = [complete for complete, _ in knew].index(True)
    assert [said for _, said in knew[: first + 1]] == [False] * first + [True]
    assert turns[-1][2]["metrics"]["success"] == 1.0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("MemSearchQA-v0", {"memory_mode": mode}) for mode in ("react", "rewrite", "mem1", "compact")),
        ("MemSearchQA-v0", {"form": "deep_researcher"}),
        ("MemToolQA-v0", {}),
    ],
)
def test_it_searches_for_the_question_and_then_answers(name, arguments):
    turns = played(name, **arguments)
    assert len(turns) == 2
    assert turns[0][2]["privileged"]["passages"]
    assert turns[-1][2]["metrics"]["success"] == 1.0


def test_it_answers_at_once_where_there_is_one_turn():
    turns = played("MemSearchQA-v0", max_turns=1, final_answer_turn=False)
    assert len(turns) == 1
    assert turns[0][2]["metrics"]["success"] == 1.0
