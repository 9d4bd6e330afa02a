"""An evaluation with a real vLLM server on a CPU; `make test-vllm` runs it."""

from __future__ import annotations

import importlib.util
import json

import pytest
from command_line import evaluate as main
from tiny_model import save_tiny_model
from vllm_server import vllm_server

from memenvs.core.episode_file import decode, read_episodes

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM here: `make test-vllm`"),
    pytest.mark.filterwarnings("ignore"),  # vLLM and what it imports warn of their own business
]

SOKOBAN = ("--env", "MemSokoban-v0")
READING = ("--env", "MemChunkQA-v0", "--env-args", "n_documents=4", "chunk_size=300", "max_memory=40")


def texts(episode):
    return [turn.action for turn in episode.turns]


@pytest.fixture
def run(vllm_url, tmp_path):
    """Evaluates the server's model; the lines of the episodes in order, and the results."""

    def run(*arguments, name="out"):
        out = tmp_path / name
        policy = ("--policy", f"openai:{vllm_url}", "--max-new-tokens", "12")
        code = main([*policy, *arguments, "--out", str(out)])
        played = (out / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
        episodes = sorted(map(decode, played), key=lambda episode: (episode.number, episode.member))
        return code, episodes, json.loads((out / "results.json").read_text(encoding="utf-8"))

    return run


@pytest.mark.parametrize(
    "arguments", [SOKOBAN, (*SOKOBAN, "--conversation"), (*SOKOBAN, "--tools", "native"), READING]
)
def test_a_real_server_plays_every_kind_of_context(run, arguments):
    code, episodes, results = run(*arguments, "--task", "0:4", "--samples", "2")
    assert (code, results["finished"], results["failed"]) == (0, 8, 0)
    assert all(any(texts(episode)) for episode in episodes)


def test_a_real_server_counts_tokens_and_tells_what_was_cut(run):
    _, (episode,), _ = run(*SOKOBAN, "--task", "0", "--temperature", "0")
    turns = len(episode.turns)
    assert 0 < episode.metrics["reply_tokens"] <= 12 * turns
    assert episode.metrics["truncated_replies"] <= turns
    # the chat form costs tokens, so the model reads more than the text of three growing prompts has words
    assert episode.metrics["model_prompt_tokens"] > episode.metrics["model_tokens_peak"] > 12


def test_a_real_server_takes_prompts_as_token_ids_and_returns_those_of_replies(run, tiny_model):
    code, episodes, results = run(*SOKOBAN, "--tokens", str(tiny_model), "--task", "0:2")
    assert (code, results["finished"], results["failed"]) == (0, 2, 0)
    assert all(0 < turn.reply.tokens <= 12 for episode in episodes for turn in episode.turns)


def test_a_seed_makes_a_real_server_repeat_itself(run):
    # one at a time: in a batch a random model's close calls may fall otherwise by rounding
    arguments = (*SOKOBAN, "--task", "0:2", "--concurrency", "1")
    first, second = (run(*arguments, name=name)[1] for name in ("a", "b"))
    other = run(*arguments, "--seed", "1", name="c")[1]
    assert [*map(texts, first)] == [*map(texts, second)]
    assert [*map(texts, first)] != [*map(texts, other)]


def test_a_stop_string_ends_a_reply_of_a_real_server_and_stays_in_it(run):
    _, (free,), _ = run(*SOKOBAN, "--task", "0", "--temperature", "0", name="free")
    reply = texts(free)[0]
    stop = reply[len(reply) // 2 :][:3]
    _, (episode,), _ = run(*SOKOBAN, "--task", "0", "--temperature", "0", "--stop", stop, name="stopped")
    assert texts(episode)[0] == reply[: reply.index(stop) + len(stop)]


def test_a_prompt_beyond_the_window_fails_its_episode_in_the_servers_words(run):
    reading = ("--env", "MemChunkQA-v0", "--env-args", "n_documents=20", "chunk_size=1100")
    code, (episode,), results = run(*reading, "--task", "0")
    assert (code, results["finished"], results["failed"]) == (1, 0, 1)
    assert "HTTP 400" in episode.error
    assert "1024" in episode.error


def test_a_checkpoint_that_verl_has_merged_replies_served_as_it_does_here(tmp_path):
    """verl's merger writes bfloat16, leaves an adapter beside its base, and keeps the generation config."""
    import peft
    import torch
    import transformers

    from memenvs.baselines.verl import merge_adapter

    folder = save_tiny_model(tmp_path / "step-1")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model.generation_config.update(do_sample=True, repetition_penalty=1.5, top_k=20, temperature=0.6)
    model.save_pretrained(folder)
    torch.manual_seed(0)
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    peft.get_peft_model(model, lora).save_pretrained(folder / "lora_adapter")
    merge_adapter(folder)
    arguments = (*SOKOBAN, "--task", "0:4", "--temperature", "0", "--max-new-tokens", "12", "--out")
    here, there = tmp_path / "here", tmp_path / "there"
    assert main(["--policy", f"hf:{folder}", "--dtype", "float32", *arguments, str(here)]) == 0
    with vllm_server(folder, tmp_path / "log") as url:
        assert main(["--policy", f"openai:{url}", "--tokens", str(folder), *arguments, str(there)]) == 0
    wanted, served = (
        {episode.number: texts(episode) for episode in read_episodes(out / "episodes.jsonl")}
        for out in (here, there)
    )
    assert all(any(replies) for replies in wanted.values())
    assert served == wanted
