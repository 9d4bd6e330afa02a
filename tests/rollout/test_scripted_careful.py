"""The teacher that knows what is needed: its notes, its mistakes, its call, and what it answers from."""

import gymnasium as gym
import pytest

from memenvs.rollout.collect import collect
from memenvs.rollout.policy import made_policy
from memenvs.rollout.scripted import CarefulReader, make_policy
from memenvs.tasks.taskset import open_tasks

READING = {"tasks": "world-test", "n_documents": 6, "chunk_size": 300, "cut_at": "document"}


def read(tasks, **chances):
    """The memories of each task's episode, the sections that were shown, and the metrics."""
    policy = made_policy(lambda env, seed: CarefulReader(env.unwrapped, seed, **chances))
    return [
        ([turn.action for turn in episode.turns], [turn.text for turn in episode.turns], episode.metrics)
        for episode in collect("MemChunkQA-v0", policy, tasks, env_args=READING, tasks=tasks)
    ]


def test_without_slips_it_notes_the_marked_sentences_alone_and_is_right():
    tasks, numbers = open_tasks("world-test"), range(0, 128, 8)
    for number, (memories, _, metrics) in zip(numbers, read(numbers, slip=0.0, distractor=0.0), strict=True):
        assert metrics["em"] == 1.0
        task, notes = tasks[number], memories[-2].splitlines()
        marked = [tasks.texts([document])[0][start:end] for document, start, end in task.meta["spans"]]
        assert len(notes) == len({one.strip() for one in marked})
        assert all(any(note.endswith(one.strip()) for one in marked) for note in notes)


def test_it_slips_and_notes_distractors_and_answers_only_from_its_notes():
    ((memories, shown, metrics),) = read([5], slip=0.0, distractor=1.0)
    assert all(
        line.partition(": ")[2] in "".join(shown) or line in "".join(shown)
        for line in memories[-2].splitlines()
    )
    assert len(memories[-2].splitlines()) == len(open_tasks("world-test")[5].meta["spans"]) + len(shown) - 1
    assert metrics["em"] == 1.0
    ((memories, _, metrics),) = read([5], slip=1.0, distractor=0.0)
    assert memories == ["", "", "", "\\boxed{unknown}"][-len(memories) :]
    assert metrics["em"] == 0.0


def test_equal_seeds_give_equal_notes():
    assert read([9])[0] == read([9])[0]


def test_it_calls_the_tool_for_the_question_and_answers_what_the_result_holds():
    played = {"tasks": range(32), "env_args": {"tasks": "world-test"}}
    metrics = [episode.metrics for episode in collect("MemToolQA-v0", "careful", range(32), **played)]
    names = ("called", "retrieved", "em", "format")
    assert [metrics[2][name] for name in names] == [1.0, 1.0, 1.0, 1.0]
    assert [one["em"] for one in metrics] == [one["retrieved"] for one in metrics]
    assert 0 < sum(one["em"] for one in metrics) < 32


def test_another_environment_is_refused_in_one_line():
    with pytest.raises(ValueError, match="no policy 'careful'; choose one of gold"):
        make_policy("careful", gym.make("MemSearchQA-v0", tasks="world-test"))
