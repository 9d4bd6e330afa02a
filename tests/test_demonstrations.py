"""A teacher's episodes become the sequences that the model would have produced by playing them itself."""

import json

import gymnasium as gym
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from memenvs import evaluate
from memenvs.models import HFPolicy, SamplingParams
from memenvs.rollout.demonstrations import (
    Demonstration,
    play_teacher,
    read_demonstrations,
    to_samples,
    write_demonstrations,
)
from memenvs.rollout.scripted import make_policy

READING = {"tasks": "world-test", "chunk_size": 150, "n_documents": 4, "max_memory": 12}


@pytest.fixture(scope="module")
def policy(tiny_model):
    return HFPolicy(str(tiny_model), chat=False)


def played(env_id, teacher="gold", seeds=(1, 2), **options):
    env = gym.make(f"memenvs:{env_id}", disable_env_checker=True, **options)
    return list(play_teacher(env, make_policy(teacher, env, 0), seeds))


def text(policy, ids):
    return policy.tokenizer.decode(ids)


def test_an_episode_that_appends_is_one_sequence_of_what_was_said(policy):
    for shown in played("MemSokoban-v0"):
        (sample,) = to_samples(policy, shown)
        replies = [reply for _, reply in shown.turns]
        assert shown.success
        assert sorted(set(sample.turns[sample.response_mask].tolist())) == list(range(len(replies)))
        for turn, reply in enumerate(replies):
            assert text(policy, sample.ids[sample.turns == turn]) == reply + "<|im_end|>"
        said = "".join(text + reply for text, reply in shown.turns)
        assert text(policy, sample.ids).replace("<|im_end|>", "") == said
        assert sample.response_mask[-1]


@pytest.mark.parametrize("env_id", ["MemSokoban-v0", "MemToolQA-v0"])
def test_the_turns_of_an_episode_that_appends_are_the_last_observation_in_pieces(env_id):
    env = gym.make(f"memenvs:{env_id}", disable_env_checker=True)
    read = []

    def babble(observation, info):
        read.append(observation)
        return f"no move {len(read)}"

    (shown,) = play_teacher(env, babble, [1])
    assert len(shown.turns) > 1
    assert "".join(text + reply for text, reply in shown.turns) == read[-1] + f"no move {len(read)}"


def test_an_episode_that_rewrites_is_a_sequence_a_turn(policy):
    (shown,) = played("MemChunkQA-v0", seeds=(3,), **READING)
    samples = to_samples(policy, shown)
    assert len(samples) == len(shown.turns) > 1
    for (observation, reply), sample in zip(shown.turns, samples, strict=True):
        assert text(policy, sample.ids) == observation + reply + "<|im_end|>"


def test_an_episode_with_summaries_is_shown_by_its_observations():
    settings = {"tasks": "world-test", "memory_mode": ["compact", {"at": 100}], "max_turns": 2}
    env = gym.make("memenvs:MemSearchQA-v0", disable_env_checker=True, **settings)
    read = []

    def searching(observation, info):
        read.append(observation)
        return "<think></think><search>town</search>"

    (shown,) = play_teacher(env, searching, [1])
    assert shown.context == "rewrite"
    assert [text for text, _ in shown.turns] == read
    assert len(read) == 5  # two searches, a summary behind each, and the turn for an answer


def test_a_stop_string_needs_no_end_token(tiny_model):
    policy = HFPolicy(str(tiny_model), chat=False, sampling_params=SamplingParams(stop=("</answer>",)))
    (sample,) = to_samples(policy, played("MemSokoban-v0", seeds=(1,))[0])
    assert "<|im_end|>" not in text(policy, sample.ids)


def test_what_does_not_fit_the_window_is_left_out_from_its_turn_on(policy):
    long = "word " * policy.window
    shown = Demonstration([("ask", "say"), (long, "more")], "append", True)
    (sample,) = to_samples(policy, shown)
    assert text(policy, sample.ids) == "asksay<|im_end|>"


def test_a_file_holds_what_was_written_to_it(tmp_path):
    shown = played("MemSokoban-v0")
    write_demonstrations(tmp_path / "shown.jsonl", shown)
    assert read_demonstrations(tmp_path / "shown.jsonl") == shown


@pytest.mark.parametrize("line", ["{", "{}", '{"turns": [["a"]], "context": "append", "success": true}'])
def test_a_line_that_is_no_demonstration_is_named(line, tmp_path):
    write_demonstrations(tmp_path / "shown.jsonl", [Demonstration([("a", "b")], "append", True)])
    with (tmp_path / "shown.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="line 2: "):
        read_demonstrations(tmp_path / "shown.jsonl")


def test_a_policy_that_is_not_there_is_named():
    env = gym.make("memenvs:MemSokoban-v0")
    with pytest.raises(ValueError, match="there is no 'nowhere:maker': No module"):
        make_policy("nowhere:maker", env, 0)


@pytest.mark.parametrize(("env_id", "options"), [("MemSokoban-v0", {}), ("MemChunkQA-v0", READING)])
def test_the_episodes_of_an_evaluation_are_demonstrations(env_id, options, tmp_path):
    evaluate(env_id, "gold", env_args=options, tasks="0:2", out=tmp_path)
    found = read_demonstrations(tmp_path / "episodes.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    env = gym.make(f"memenvs:{env_id}", disable_env_checker=True, **options)
    for shown, line in zip(found, lines, strict=True):
        text, info = env.reset(seed=line["seed"], options={"task": line["number"]})
        turns = []
        for reply in line["replies"]:
            turns.append((text, reply))
            observation, _, _, _, info = env.step(reply)
            text = info["feedback"] if info["context"] == "append" else observation
        assert shown == Demonstration(turns, info["context"], True)


def test_of_an_evaluation_failed_episodes_are_left_out_and_replies_alone_are_refused(tmp_path):
    evaluate("MemSokoban-v0", "gold", tasks="0:1", out=tmp_path / "whole")
    file = tmp_path / "whole" / "episodes.jsonl"
    failed = {**json.loads(file.read_text()), "error": "no answer", "end": "failed"}
    file.write_text(file.read_text() + json.dumps(failed) + "\n")
    assert len(read_demonstrations(file)) == 1
    evaluate("MemSokoban-v0", "gold", tasks="0:1", out=tmp_path / "bare", texts=False)
    with pytest.raises(ValueError, match=r"has only replies; evaluate without --no-texts"):
        read_demonstrations(tmp_path / "bare" / "episodes.jsonl")
