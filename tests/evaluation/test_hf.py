"""`memenvs evaluate run --policy hf:MODEL` with a real, tiny model."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from command_line import evaluate as main

from memenvs.core.episode_file import decode
from memenvs.models import HFPolicy, SamplingParams

SOKOBAN = ("--env", "MemSokoban-v0")
READING = ("--env", "MemChunkQA-v0", "--env-args", "n_documents=4", "chunk_size=300", "max_memory=40")


def run(out, *arguments):
    assert main([*arguments, "--out", str(out)]) == 0
    played = (out / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    episodes = map(decode, played)
    return sorted(episodes, key=lambda episode: (episode.number, episode.member))


def texts(episode):
    return tuple(turn.action for turn in episode.turns)


@pytest.mark.parametrize("env", [SOKOBAN, READING], ids=["append", "rewrite"])
def test_replies_do_not_depend_on_how_many_episodes_are_under_way(env, tiny_model, tmp_path):
    arguments = (*env, "--policy", f"hf:{tiny_model}", "--task", "0:2", "--samples", "2")
    limit = ("--max-new-tokens", "6")
    alone = run(tmp_path / "alone", *arguments, *limit, "--concurrency", "1")
    together = run(tmp_path / "together", *arguments, *limit, "--concurrency", "8")
    assert [*map(texts, alone)] == [*map(texts, together)]
    assert len({*map(texts, alone)}) == 4


def test_a_likeliest_reply_is_the_policys_own(tiny_model, tmp_path):
    options = ("--temperature", "0", "--max-new-tokens", "8", "--task", "0")
    (episode,) = run(tmp_path, *SOKOBAN, "--policy", f"hf:{tiny_model}", *options)
    policy = HFPolicy(str(tiny_model), sampling_params=SamplingParams(temperature=0.0))
    observation, _ = gym.make("MemSokoban-v0").reset(options={"task": 0})
    (reply,) = policy.sample([policy.encode(observation)], [np.random.default_rng(0)], 8)
    assert texts(episode)[0] == reply.text
    assert episode.metrics["reply_tokens"] <= 3 * 8


def test_a_saved_policy_keeps_its_chat_form(tiny_model, tmp_path):
    HFPolicy(str(tiny_model), chat=False).save(tmp_path / "policy")
    options = (*SOKOBAN, "--task", "0", "--max-new-tokens", "2")
    (plain,) = run(tmp_path / "plain", *options, "--policy", f"hf:{tmp_path / 'policy'}")
    (chat,) = run(tmp_path / "chat", *options, "--policy", f"hf:{tiny_model}")
    assert plain.metrics["model_prompt_tokens"] < chat.metrics["model_prompt_tokens"]


def test_a_system_prompt_and_examples_go_before_the_observation(tiny_model, tmp_path, capsys):
    examples = tmp_path / "examples.jsonl"
    examples.write_text('{"user": "2 + 2?", "assistant": "4"}\n')
    opening = ("--system-prompt", "Be brief.", "--examples", str(examples))
    options = (*SOKOBAN, "--temperature", "0", "--max-new-tokens", "8", "--task", "0")
    (episode,) = run(tmp_path / "run", *options, "--policy", f"hf:{tiny_model}", *opening)
    policy = HFPolicy(str(tiny_model), sampling_params=SamplingParams(temperature=0.0))
    observation, _ = gym.make("MemSokoban-v0").reset(options={"task": 0})
    said = [("system", "Be brief."), ("user", "2 + 2?"), ("assistant", "4"), ("user", observation)]
    chat = [{"role": role, "content": content} for role, content in said]
    prompt = policy.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    (reply,) = policy.sample([np.array(prompt)], [np.random.default_rng(0)], 8)
    assert texts(episode)[0] == reply.text
    HFPolicy(str(tiny_model), chat=False).save(tmp_path / "plain")
    assert main([*options, "--policy", f"hf:{tmp_path / 'plain'}", *opening]) == 2
    assert "has no chat template; leave out --system-prompt" in capsys.readouterr().err
