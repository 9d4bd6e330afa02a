"""`replay:RUN`: the replies of a run again, in the same environment or in one without a memory."""

import pytest

from memenvs import evaluate
from memenvs.core.episode_file import read_episodes

WITH = {"tasks": "world-test", "memory_mode": "rewrite"}
WITHOUT = {"tasks": "world-test", "memory_mode": "react"}
REPLIES = [
    "<mem>nothing <think>yet</think></mem>\n<think>look it up</think>\n<search>a town</search>",
    "<think>so far</think>\n<mem></mem><search>a mayor</search>",
    "<search>no memory here</search>",
    "<mem>the mayor</mem><think>I know</think><answer>nobody</answer>",
]
SHORN = [
    "<think>look it up</think>\n<search>a town</search>",
    "<think>so far</think>\n<search>a mayor</search>",
    "<search>no memory here</search>",
    "<think>I know</think><answer>nobody</answer>",
]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    evaluate("MemSearchQA-v0", lambda _, info: REPLIES[info["turn"]], env_args=WITH, tasks="0:2", out=folder)
    return folder


def replayed(run, out, env_args, tasks="0:2"):
    evaluate("MemSearchQA-v0", f"replay:{run}", env_args=env_args, tasks=tasks, out=out)
    return {episode.number: episode for episode in read_episodes(out / "episodes.jsonl")}


@pytest.mark.parametrize("file", ["", "episodes.jsonl"])
def test_the_same_environment_plays_the_same_episodes(traces, tmp_path, file):
    before = {episode.number: episode for episode in read_episodes(traces / "episodes.jsonl")}
    after = replayed(traces / file, tmp_path, WITH)
    for number, episode in after.items():
        assert [(turn.observation, turn.action) for turn in episode.turns] == [
            (turn.observation, turn.action) for turn in before[number].turns
        ]
        assert episode.metrics == before[number].metrics


def test_an_environment_without_a_memory_gets_the_replies_without_theirs(traces, tmp_path):
    for episode in replayed(traces, tmp_path, WITHOUT).values():
        assert [turn.action for turn in episode.turns] == SHORN
        assert "mem>" not in episode.turns[-1].observation
        assert all(reply in episode.turns[-1].observation for reply in SHORN[:-1])


def test_what_a_run_cannot_answer_fails_alone(traces, tmp_path):
    shorter = replayed(traces, tmp_path / "fewer", WITH, "0:3")
    assert [bool(shorter[number].error) for number in range(3)] == [False, False, True]
    assert "task 2, sample 0" in shorter[2].error
    elsewhere = replayed(traces, tmp_path / "elsewhere", {**WITH, "tasks": "world-train"})
    assert all("give the same task set" in episode.error for episode in elsewhere.values())


def test_replies_that_end_too_early_fail_their_episode(tmp_path):
    few = {**WITH, "max_turns": 1}
    search = "<mem>a</mem><think></think><search>town</search>"
    evaluate("MemSearchQA-v0", lambda *_: search, env_args=few, tasks="0:1", out=tmp_path / "few")
    (episode,) = replayed(tmp_path / "few", tmp_path / "more", {**few, "max_turns": 3}, "0:1").values()
    assert "ends after 2 replies" in episode.error


def test_a_run_is_named(tmp_path):
    with pytest.raises(ValueError, match="replay:RUN"):
        evaluate("MemSearchQA-v0", "replay:", env_args=WITH, out=tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        evaluate("MemSearchQA-v0", f"replay:{tmp_path}/nowhere", env_args=WITH)


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x00\x01", b"\x7fELF\n\x00\n"])
def test_a_file_without_an_episode_is_refused_before_anything_is_played(tmp_path, content):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file}.* episode"):
        evaluate("MemSearchQA-v0", f"replay:{file}", env_args=WITH, tasks="0:1", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
