"""Agents that `research.agent` ships: found by name, described, under 5 MB."""

import json

import gymnasium as gym
import pytest

import memenvs.data
from memenvs.commands import list as listing
from memenvs.models import packaged
from memenvs.rollout import policies
from research import agent


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """The folder of an agent `smollm2-reader`, written by `ship` next to the task sets."""
    data, policy = tmp_path / "data", tmp_path / "policy"
    (data / "world-train").mkdir(parents=True)
    policy.mkdir()
    (policy / "adapter_model.safetensors").write_bytes(b"weights")
    (policy / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": "smollm2"})
    )
    (policy / "policy.json").write_text("{}")
    monkeypatch.setattr(memenvs.data, "_HERE", data)
    scores = {"6 documents, warm-up": {"em": [0.4, 0.3, 0.5]}}
    agent.ship("reader", agent.AGENTS["reader"], policy, {"warm": 1.5}, scores)
    return data / "smollm2-reader"


def test_it_is_found_by_its_name(shipped):
    assert packaged.shipped_agents() == ["smollm2-reader"]
    assert packaged.resolve("smollm2-reader") == shipped
    assert packaged.resolve("./smollm2-reader") == "./smollm2-reader"


@pytest.mark.parametrize(
    "name", ["adapter_model.safetensors", "adapter_config.json", "policy.json", "agent.json"]
)
def test_a_file_of_it_that_was_changed_is_refused_in_one_line(shipped, name):
    text = (shipped / name).read_bytes()
    (shipped / name).write_bytes(text.replace(b"e", b"E") if b"e" in text else b"[]")
    with pytest.raises(ValueError, match=f"{name} .*(damaged|changed)") as error:
        packaged.resolve("smollm2-reader")
    assert "\n" not in str(error.value)


def test_its_card_says_how_it_was_made(shipped):
    card = json.loads((shipped / "agent.json").read_text())
    assert (card["model"], card["env"]) == ("smollm2", "MemChunkQA-v0")
    assert card["command"] == "python -m research.agent reader runs/reader --stage warm"
    assert card["texts"] == agent.AGENTS["reader"].texts
    assert (card["hours"], card["learning"]) == ({"warm": 1.5}, "")
    assert card["scores"]["6 documents, warm-up"]["em"] == [0.4, 0.3, 0.5]


def test_it_is_listed_and_its_files_are_part_of_an_evaluations_setting(shipped, monkeypatch):
    assert (
        "smollm2-reader",
        "An adapter of smollm2 that plays MemChunkQA-v0: `--policy hf:smollm2-reader`.",
    ) in [(entry.name, entry.summary) for entry in listing.entries()]
    names = [name for name, *_ in policies._files("smollm2-reader")]
    own = ["adapter_config.json", "adapter_model.safetensors", "agent.json", "policy.json"]
    assert names == [*own, packaged.MODELS["smollm2"].file]


@pytest.mark.parametrize("name", sorted(agent.AGENTS))
def test_an_agents_environment_takes_its_arguments(name):
    made = agent.AGENTS[name]
    env = gym.make(made.env, disable_env_checker=True, **made.env_args, tasks="world-test")
    observation, _ = env.reset(seed=0)
    assert observation
