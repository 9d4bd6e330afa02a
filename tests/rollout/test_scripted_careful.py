"""The teacher that knows what is needed: its notes, its mistakes, its call, and what it answers from."""

import gymnasium as gym
import pytest

import memenvs  # noqa: F401
from memenvs.rollout.scripted import CarefulReader, make_policy, play_episode, play_tasks

READING = {"tasks": "world-test", "n_documents": 6, "chunk_size": 300, "cut_at": "document"}


def read(env, policy, task):
    """The memories of an episode, the sections that were shown, and its metrics."""
    memories, shown = [], []
    observation, info = env.reset(seed=3, options={"task": task})
    over = False
    while not over:
        shown.append(observation)
        reply = policy(observation, info)
        memories.append(reply)
        observation, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
    return memories, shown, info["metrics"]


def test_without_slips_it_notes_the_marked_sentences_alone_and_is_right():
    env = gym.make("MemChunkQA-v0", **READING).unwrapped
    policy = CarefulReader(env, slip=0.0, distractor=0.0)
    for number in range(0, 128, 8):
        memories, _, metrics = read(env, policy, number)
        assert metrics["em"] == 1.0
        task, notes = env.tasks[number], memories[-2].splitlines()
        marked = [env.tasks.texts([document])[0][start:end] for document, start, end in task.meta["spans"]]
        assert len(notes) == len({one.strip() for one in marked})
        assert all(any(note.endswith(one.strip()) for one in marked) for note in notes)


def test_it_slips_and_notes_distractors_and_answers_only_from_its_notes():
    env = gym.make("MemChunkQA-v0", **READING).unwrapped
    clean, slipping = (
        CarefulReader(env, slip=0.0, distractor=1.0),
        CarefulReader(env, slip=1.0, distractor=0.0),
    )
    memories, shown, metrics = read(env, clean, 5)
    assert all(
        line.partition(": ")[2] in "".join(shown) or line in "".join(shown)
        for line in memories[-2].splitlines()
    )
    assert len(memories[-2].splitlines()) == len(env.tasks[5].meta["spans"]) + len(shown) - 1
    assert metrics["em"] == 1.0
    memories, _, metrics = read(env, slipping, 5)
    assert memories == ["", "", "", "\\boxed{unknown}"][-len(memories) :]
    assert metrics["em"] == 0.0


def test_equal_seeds_give_equal_notes():
    env = gym.make("MemChunkQA-v0", **READING).unwrapped
    first, second = (read(env, make_policy("careful", env, 7), 9)[0] for _ in range(2))
    assert first == second


def test_it_calls_the_tool_for_the_question_and_answers_what_the_result_holds():
    env = gym.make("MemToolQA-v0", tasks="world-test")
    metrics = play_episode(env, make_policy("careful", env), task=2, seed=0)["metrics"]
    assert (metrics["called"], metrics["retrieved"], metrics["em"], metrics["format"]) == (1.0, 1.0, 1.0, 1.0)
    played = play_tasks(env, make_policy("careful", env), range(32))
    assert played["em"] == played["retrieved"]
    assert 0 < sum(played["em"]) < 32


def test_another_environment_is_refused_in_one_line():
    with pytest.raises(ValueError, match="unknown policy 'careful'; choose one of gold"):
        make_policy("careful", gym.make("MemSearchQA-v0", tasks="world-test"))
