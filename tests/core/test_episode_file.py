"""Files of episodes: their content, and that reading returns what was written."""

import json
import math
import subprocess
import sys

import easy_sokoban
import gymnasium as gym
import msgspec
import numpy as np
import pytest
from command_line import play
from viewer_runs import replied

from memenvs import collect
from memenvs.core.episode import Credit, Episode, Reply, Turn
from memenvs.core.episode_file import (
    EpisodeWriter,
    RecordEpisodes,
    decode,
    encode,
    read_episodes,
    read_lines,
)
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.render import block
from memenvs.models import ScriptedPolicy
from memenvs.rollout.scripted import make_policy
from memenvs.wrappers import RewardWrapper
from memenvs.wrappers.mempo import MemPO
from memenvs.wrappers.tamtrl import TAMTRL

READING = {"tasks": "world-test", "n_documents": 6, "chunk_size": 300}


def one(path):
    (episode,) = read_episodes(path)
    return episode


def record(path):
    ((line, _),) = read_lines(path)
    return json.loads(line)


def read_by_lexical(path, methods=("TAMTRL", "InfoMem")):
    """A reading episode under reward methods, written by the loop of a user."""
    inner = gym.make("MemChunkQA-v0", **READING)
    env = RewardWrapper(inner, list(methods), scorer="lexical")
    collect(lambda: env, "lexical", [5], tasks=[3])
    with EpisodeWriter(path) as writer:
        writer.write(env.episode)
    return env.episode


def info(turn, **privileged):
    """An info as a file keeps it."""
    kept = {"evidence_in_chunk": [], "chunk_span": None, "memory": "", "memory_span": None, **privileged}
    return {
        "turn": turn,
        "context": "rewrite",
        "feedback": "",
        "rewards": {"outcome": 0.5, "format": -1.0},
        "privileged": kept,
    }


def full_episode():
    """An episode of two turns in which every field that a file keeps has a value."""
    asked = {"question": "Who?", "answers": [["Ann", "A."]], "target": "Ann", "evidence": ["Ann did."]}
    before = info(0, **asked, sentences=["Ann did."], evidence_in_chunk=["Ann did."], chunk_span=[2, 9])
    middle = info(1, memory="Ann", memory_span=[0, 3])
    replies = [
        Reply(
            text,
            ids=np.array([5, 6]),
            logprobs=np.array([-0.25, -1.5]),
            finished=finished,
            prompt_tokens=7,
            tokens=2,
            spans=np.array([[0, 1], [1, 3]]),
        )
        for text, finished in (("Ann", True), ("Bob", False))
    ]
    credits = [Credit(0, 0.75, (0, 2), "why", from_signal=False, advantage=True), Credit(0, 0.5)]
    return Episode(
        env="MemChunkQA-v0",
        task="t-3",
        number=3,
        seed=11,
        group=2**62,
        member=1,
        step=7,
        phase="train",
        turns=[
            Turn("\U0001f600 Ann did.", before, replies[0], middle, "", {"m": 0.125}, {"m": credits}),
            Turn("Who?", middle, replies[1], info(2), "truncated", {"m": 0.25}, {"m": [Credit(1, -1.0)]}),
        ],
        end="truncated",
        error="it broke",
        metrics={"success": 1.0, "f1": 0.5},
        measured={"m": [0, 1]},
        replaces_outcome=True,
        length_penalty=-0.5,
        advantages=np.array([0.5, -0.5, 1.5, 2.5]),
    )


def plain(episode):
    return msgspec.to_builtins(episode, enc_hook=np.ndarray.tolist)


def test_every_field_is_read_as_it_was_written():
    episode = full_episode()
    line = encode(episode)
    assert plain(decode(line)) == plain(episode)
    assert encode(decode(line)) == line


def test_a_line_has_no_field_that_is_at_its_default():
    found = json.loads(encode(replied("a")))
    assert found.keys() == {"version", "turns", "turn_rewards"}
    assert found["turns"][0]["reply"] == {"text": "a"}


def test_a_turn_comes_after_the_info_of_the_turn_before():
    first, second = json.loads(encode(full_episode()))["turns"]
    assert first["before"]["privileged"]["evidence_in_chunk"] == ["Ann did."]
    assert first["info"]["privileged"]["memory"] == "Ann"
    assert second["before"] == {}


def test_a_line_without_texts_keeps_replies_tokens_rewards_and_credits():
    episode = full_episode()
    line = encode(episode, texts=False)
    assert b"did." not in line
    again = decode(line)
    assert [turn.observation for turn in again.turns] == ["", ""]
    for name in ("turn_rewards", "outcomes", "metrics", "signals", "credits", "end"):
        assert getattr(again, name) == getattr(episode, name)
    assert [plain(reply) for reply in again.replies] == [plain(reply) for reply in episode.replies]
    assert [turn.before["context"] for turn in again.turns] == ["rewrite", "rewrite"]


@pytest.mark.parametrize("place", ["reply", "feedback", "observation", "error", "memory", "metric"])
def test_a_lone_surrogate_anywhere_is_written_as_a_replacement(place):
    episode, text = full_episode(), "a\ud800b"
    turn = episode.turns[0]
    if place == "reply":
        turn.reply.text = text
    elif place == "feedback":
        turn.info["feedback"] = text
    elif place == "observation":
        turn.observation = text
    elif place == "error":
        episode.error = text
    elif place == "memory":
        turn.info["privileged"]["memory"] = text
    else:
        episode.metrics[text] = 1.0
    line = encode(episode)
    assert "a\ufffdb" in line.decode()
    assert encode(decode(line)) == line


def test_a_prompt_that_stays_the_same_is_written_again_where_the_context_is_rewritten():
    episode = replied("", "", "")
    for turn in episode.turns:
        turn.observation = "the same"
    assert [turn["observation"] for turn in json.loads(encode(episode))["turns"]] == ["the same"] * 3


def test_two_lines_write_what_each_turn_read_was_paid_and_why(tmp_path):
    played = read_by_lexical(tmp_path / "a" / "episodes.jsonl")
    again = one(tmp_path / "a" / "episodes.jsonl")
    assert again.env == "MemChunkQA-v0"
    assert again.task == played.turns[0].before["task"]
    assert again.turn_rewards == played.turn_rewards
    assert again.signals == played.signals
    assert again.credits == played.credits
    assert again.outcomes == played.outcomes
    assert again.end == "terminated"
    for name in ("question", "answers", "target", "evidence", "sentences"):
        assert again.turns[0].before["privileged"][name] == played.turns[0].before["privileged"][name]
    for turn, wanted in zip(again.turns, played.turns, strict=True):
        assert (turn.observation, turn.action, turn.end) == (wanted.observation, wanted.action, wanted.end)
        for name in ("evidence_in_chunk", "chunk_span"):
            assert turn.before["privileged"][name] == wanted.before["privileged"][name]
        assert turn.info["privileged"]["memory"] == wanted.info["privileged"]["memory"]


def test_the_components_and_credits_of_a_line_add_up_to_the_turn_rewards(tmp_path):
    read_by_lexical(tmp_path / "e.jsonl")
    found = record(tmp_path / "e.jsonl")
    assert found["replaces_outcome"]  # TAMTRL does
    for turn, reward in zip(found["turns"], found["turn_rewards"], strict=True):
        own = sum(value for name, value in turn["info"]["rewards"].items() if name != "outcome")
        credits = [credit["value"] for some in turn["credits"].values() for credit in some]
        assert math.isclose(own + sum(credits), reward, abs_tol=1e-12)


def test_a_growing_episode_is_written_once_and_read_whole(tmp_path):
    env = RecordEpisodes(gym.make("MemSearchQA-v0", tasks="world-test"), tmp_path / "e.jsonl")
    shown = []

    def policy(observation, info):
        shown.append(observation)
        return "<think></think><search>the mayor \ud800</search>" if len(shown) < 3 else "<answer>A</answer>"

    collect(env, policy, [2], tasks=[1])
    assert [turn["observation"] for turn in record(tmp_path / "e.jsonl")["turns"]] == [shown[0], None, None]
    again = one(tmp_path / "e.jsonl")
    assert [turn.observation for turn in again.turns] == shown
    assert (again.number, again.seed, again.env) == (1, 2, "MemSearchQA-v0")


def test_an_episode_that_starts_over_in_between_is_read_with_the_context_of_each_turn(tmp_path):
    settings = {"tasks": "world-test", "memory_mode": "compact", "compact_at": 100, "max_turns": 2}
    env = RecordEpisodes(gym.make("MemSearchQA-v0", **settings), tmp_path / "e.jsonl")
    told = []

    def policy(observation, info):
        told.append(info["context"])
        return "<think></think><search>a town</search>"

    collect(env, policy, [2], tasks=[1])
    assert set(told) == {"append", "rewrite"}
    again = one(tmp_path / "e.jsonl")
    assert [turn.before["context"] for turn in again.turns] == told


def test_a_recorder_outside_reward_methods_writes_their_signals_and_credits(tmp_path):
    inner = RewardWrapper(gym.make("MemChunkQA-v0", **READING), ["TAMTRL"], scorer="lexical")
    env = RecordEpisodes(inner, tmp_path / "e.jsonl")
    collect(lambda: env, "lexical", [5], tasks=[3])
    again = one(tmp_path / "e.jsonl")
    assert again.signals == inner.episode.signals
    assert again.measured == inner.episode.measured == {"tamtrl": [0, 1, 2]}
    assert again.credits == inner.episode.credits
    assert again.turn_rewards == pytest.approx(inner.episode.turn_rewards)
    for turn in again.turns:  # what methods paid is in the credits
        assert set(turn.before["rewards"]) == set(turn.info["rewards"]) == {"outcome"}


def test_an_episode_of_no_texts_is_refused(tmp_path):
    with pytest.raises(ValueError):
        RecordEpisodes(gym.make("MemSokobanGrid-v0"), tmp_path / "e.jsonl")


def test_a_model_s_tokens_are_written_with_their_characters(tmp_path):
    policy = ScriptedPolicy(lambda prompt: "<think></think><answer>Up</answer>")
    (episode,) = collect("MemSokoban-v0", policy, [0])
    with EpisodeWriter(tmp_path / "e.jsonl") as writer:
        writer.write(episode, policy)
    first = record(tmp_path / "e.jsonl")["turns"][0]["reply"]
    assert "".join(first["text"][a:b] for a, b in first["spans"]) == first["text"]
    again = one(tmp_path / "e.jsonl")
    assert [reply.ids.tolist() for reply in again.replies] == [r.ids.tolist() for r in episode.replies]


def test_what_could_not_be_measured_is_null_in_the_file_and_nan_when_it_is_read():
    credit = Credit(0, math.nan, (0, 1), "no target")
    episode = replied("a", signals={"m": math.nan}, credits={"m": [credit]}, metrics={"f1": math.nan})
    line = encode(episode)
    json.loads(line, parse_constant=pytest.fail)
    again = decode(line)
    (read,) = again.credits["m"]
    assert all(map(math.isnan, [again.signals["m"][0], read.value, again.metrics["f1"]]))
    assert (read.span, read.reason) == ((0, 1), "no target")
    assert again.turn_rewards == [0.0]


def test_a_torn_last_line_is_not_read_and_is_cut_by_the_next_writer(tmp_path):
    path = tmp_path / "e.jsonl"
    for number in range(3):
        with EpisodeWriter(path) as writer:
            writer.write(Episode(number=number))
        if number == 1:
            path.write_bytes(path.read_bytes()[:-10])
            assert [episode.number for episode in read_episodes(path)] == [0]
    assert [episode.number for episode in read_episodes(path)] == [0, 2]


WRITE = """
import sys
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EpisodeWriter
for number in range(12):
    with EpisodeWriter("e.jsonl") as writer:
        writer.write(Episode(task=sys.argv[1], number=number, error="word " * 20_000))
"""


def test_processes_that_write_to_one_file_lose_none_of_each_other_s_episodes(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, name], cwd=tmp_path) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    written = sorted((episode.task, episode.number) for episode in read_episodes(tmp_path / "e.jsonl"))
    assert written == [(name, number) for name in "abc" for number in range(12)]


@pytest.mark.parametrize("text", ["no line end", '{"version":2,"turn_rewards":[]}\n'])
def test_a_file_of_something_else_is_refused_and_stays_as_it_is(tmp_path, text):
    (tmp_path / "notes.txt").write_text(text)
    with pytest.raises(ValueError):
        EpisodeWriter(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == text


@pytest.mark.parametrize("length", [1, 12, 500])
def test_a_first_line_that_was_never_ended_is_replaced(tmp_path, length):
    read_by_lexical(tmp_path / "whole.jsonl")
    (tmp_path / "e.jsonl").write_bytes((tmp_path / "whole.jsonl").read_bytes()[:length])
    with EpisodeWriter(tmp_path / "e.jsonl") as writer:
        writer.write(Episode(number=7))
    assert one(tmp_path / "e.jsonl").number == 7


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"version": 99}', '{"version": 3, "seed": "x"}'])
def test_a_line_that_is_no_episode_is_refused_by_its_number(tmp_path, line):
    (tmp_path / "e.jsonl").write_bytes(encode(Episode()) + f"{line}\n".encode())
    with pytest.raises(ValueError, match=r"e.jsonl:2 "):
        read_episodes(tmp_path / "e.jsonl")


@pytest.mark.parametrize("measured", [{"m": [2]}, {"m": [0, -1]}, {"other": [0]}])
def test_a_signal_that_was_measured_at_a_turn_without_one_is_refused(measured):
    line = json.loads(encode(full_episode()))
    with pytest.raises(ValueError, match=r"measured"):
        decode(json.dumps({**line, "measured": measured}))


def test_play_saves_an_episode_of_the_grid_with_boards_and_moves_as_text(tmp_path):
    path = tmp_path / "e.jsonl"
    assert play(["--env", "MemSokobanGrid-v0", "--task", "1", "--save", str(path)]) == 0
    episode, board = one(path), gym.make("MemSokobanGrid-v0", render_mode="ansi")
    board.reset(options={"task": 1})
    assert (episode.env, episode.number, episode.success) == ("MemSokobanGrid-v0", 1, True)
    assert len(episode.turns) == episode.metrics["steps"]
    for turn, reward in zip(episode.turns, episode.turn_rewards, strict=True):
        assert turn.observation == board.render()
        assert board.step(["up", "down", "left", "right"].index(turn.action))[1] == pytest.approx(reward)


def test_play_saves_the_credits_of_its_methods_as_a_group_of_one_does(tmp_path):
    path, options = tmp_path / "e.jsonl", [f"{name}={value}" for name, value in READING.items()]
    named = ["--methods", "TAMTRL", "length_norm=false", "mempo", "--scorer", "lexical"]
    assert (
        play(["--env", "MemChunkQA-v0", "--env-args", *options, "--task", "3", *named, "--save", str(path)])
        == 0
    )
    played = one(path)
    replies = [reply.text for reply in played.replies]
    (episode,) = collect(
        "MemChunkQA-v0",
        lambda observation, info: replies[info["turn"]],
        [0],
        methods=[TAMTRL(length_norm=False), MemPO()],
        scorer="lexical",
        env_args=READING,
        tasks=[3],
    )
    assert (played.signals, played.credits) == (episode.signals, episode.credits)
    assert played.measured == episode.measured
    assert "tamtrl" in played.measured
    assert played.turn_rewards == pytest.approx(episode.turn_rewards)
    assert played.replaces_outcome
    assert any(credit.value for some in played.credits.values() for credit in some)


# Rendering.


def test_a_turn_drawn_under_reward_methods_says_what_they_paid():
    inner = gym.make("MemChunkQA-v0", render_mode="ansi", **READING)
    env = RewardWrapper(inner, ["TAMTRL", "IGPO"], scorer="lexical")
    drawn, reader = [], make_policy("lexical", env)

    def reply(observation, info):
        drawn.append(env.render())
        return reader(observation, info)

    collect(lambda: env, reply, [5], tasks=[3], errors="raise")
    drawn.append(env.render())
    episode, last = env.episode, drawn[-1]
    assert "reward" not in drawn[0]
    assert f"igpo {episode.signals['igpo'][0]:.4g}" in drawn[1]
    assert "tamtrl" not in drawn[1].partition("signals")[2]
    assert last.count("\x1b[33mreward\x1b[0m") == 1
    paid = sum(episode.turn_rewards) - sum(episode.signals["igpo"])  # IGPO pays at its turns
    assert f"\x1b[33mreward\x1b[0m {paid:+.2f} (" in last
    assert "outcome" not in last.partition("reward")[2]  # TAMTRL pays in its place
    for number, reward in enumerate(episode.turn_rewards, 1):
        assert f"turn {number}: {reward:+.2f} in all" in last
    assert last.endswith("the episode is terminated\x1b[0m")


class Cinema(ChunkQAEnv):
    """Draws a list of its own below the turn, under a heading that a reward's lines have too."""

    def render(self):
        return "\n".join([super().render(), *block("credits", "  turn 1: the director", limit=80)])


def test_what_an_environment_draws_itself_is_kept_under_reward_methods():
    env = RewardWrapper(Cinema(render_mode="ansi", **READING), ["InfoMem"], "lexical")
    collect(lambda: env, "lexical", [5], tasks=[3])
    drawn = env.render()
    assert drawn.count("\x1b[33mreward\x1b[0m") == 1
    assert drawn.endswith("\x1b[33mcredits\x1b[0m\n  turn 1: the director")


# Learners.


def test_a_learner_saves_episodes_of_steps_and_evaluations_with_advantages(tmp_path):
    for library in ("torch", "tyro", "tensorboard"):
        pytest.importorskip(library, reason="the learners want the extra train")
    from memenvs.baselines import grpo
    from memenvs.baselines.checkpoint import TrainingLog

    env_args = easy_sokoban.save_levels(tmp_path)
    args = grpo.GRPOArgs(
        model=str(easy_sokoban.save_model(tmp_path / "model", env_args)),
        out=tmp_path / "run",
        env_args=env_args,
        steps=2,
        groups=1,
        group_size=2,
        num_envs=2,
        max_new_tokens=5,
        eval_every=2,
        eval_episodes=3,
        save_episodes=2,
    )
    grpo.train(grpo.prepare(args), args)
    played = read_episodes(tmp_path / "run" / "episodes.jsonl")
    wanted = [(1, "train")] * 2 + [(2, "train")] * 2 + [(2, "eval")] * 2
    assert [(episode.step, episode.phase) for episode in played] == wanted
    for episode in played:
        assert episode.turns[0].observation
        assert (len(episode.advantages) == 0) == (episode.phase == "eval")
        assert episode.env == "MemSokoban-v0"
    TrainingLog(tmp_path / "run", step=1).close()  # a run that resumes from step 1 plays step 2 again
    assert {episode.step for episode in read_episodes(tmp_path / "run" / "episodes.jsonl")} == {1}
