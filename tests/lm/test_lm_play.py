"""A real model plays: from the command line, in its chat template, to complete records."""

import json
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from command_line import evaluate as main

from memenvs import evaluate, open_tasks
from memenvs.core.episode_file import read_episodes
from memenvs.data import bundled
from memenvs.models.packaged import resolve
from memenvs.models.settings import ModelOptions
from memenvs.tasks.tokens import load_tokenizer

ENV_ARGS = {"tasks": "world-test", "n_documents": 4, "chunk_size": 200, "max_memory": 32}


@pytest.fixture(scope="module")
def played(smollm2, tmp_path_factory):
    """The episodes of two tasks played twice each."""
    out = tmp_path_factory.mktemp("played") / "run"
    command = ["--env", "MemChunkQA-v0", "--env-args", json.dumps(ENV_ARGS), "--policy", "hf:smollm2"]
    command += ["--task", "0:2", "--samples", "2", "--max-new-tokens", "40", "--temperature", "0.7"]
    assert main([*command, "--out", str(out)]) == 0
    return read_episodes(out / "episodes.jsonl")


def test_every_episode_ends_and_writes_text(played):
    pairs = sorted((episode.number, episode.member) for episode in played)
    assert pairs == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for episode in played:
        assert (episode.end, episode.error) == ("terminated", "")
        assert len(episode.turns) == episode.metrics["turns"]
        assert all(turn.action.strip() and "<|im_" not in turn.action for turn in episode.turns)


def test_what_it_writes_is_english_and_not_noise(played):
    """A model loaded wrongly writes tokens without order; this one writes sentences."""
    replies = [turn.action for episode in played for turn in episode.turns]
    words = [word.strip(".,").lower() for reply in replies for word in reply.split()]
    common = {"the", "a", "of", "in", "is", "was", "and", "to"}
    assert sum(word in common for word in words) > 0.1 * len(words)


def test_its_tokens_are_counted(played):
    for episode in played:
        turns = episode.metrics["turns"]
        assert turns <= episode.metrics["reply_tokens"] <= 40 * turns
        assert episode.metrics["model_prompt_tokens"] > 100 * turns


def test_an_episode_can_be_played_again_from_its_line(played):
    env = gym.make("MemChunkQA-v0", **ENV_ARGS)
    for episode in played:
        env.reset(seed=episode.seed, options={"task": episode.number})
        for turn in episode.turns:
            *_, info = env.step(turn.action)
        assert info["turn_rewards"] == episode.turn_rewards
        assert {name: episode.metrics[name] for name in info["metrics"]} == info["metrics"]


@pytest.mark.parametrize(("agent", "least"), [("smollm2-reader", 0.3), ("smollm2-caller", 0.5)])
def test_an_agent_that_ships_plays(agent, least):
    """Greedy, of ten tasks the reader answers about six and the caller eight; each in the form asked for."""
    card = json.loads((bundled(agent) / "agent.json").read_text())
    numbers = range(10)
    if agent == "smollm2-caller":  # one call finds one document
        numbers = [i for i, task in enumerate(open_tasks("world-test")) if len(task.evidence) == 1][:10]
    summary = evaluate(
        card["env"],
        f"hf:{agent}",
        env_args=card["env_args"] | {"tasks": "world-test"},
        tasks=numbers,
        concurrency=10,
        options=ModelOptions(temperature=0, max_new_tokens=160),
    )
    assert summary.metrics["format"].interval.mean > 0.85
    assert summary.metrics["em"].interval.mean >= least


def test_a_process_that_trains_beside_others_converts_the_model_whatever_its_rank(tmp_path, monkeypatch):
    """Of the processes of a launch the first to ask converts, and transformers lets rank 0 alone save."""
    monkeypatch.setenv("MEMENVS_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: 1)
    folder = resolve("smollm2")
    assert folder.parent == tmp_path
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in folder.iterdir()}


def test_the_bundled_general_tokenizer_is_that_of_the_packaged_model(smollm2):
    packaged, general = load_tokenizer(smollm2), load_tokenizer("general")
    assert general.backend.get_vocab() == packaged.backend.get_vocab()
    texts = [*open_tasks("world-test").document_texts(range(200)), Path(__file__).read_text()]
    assert general.counts(texts) == packaged.counts(texts)
