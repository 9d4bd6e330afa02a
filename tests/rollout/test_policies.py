"""One door: `collect` and `evaluate` take the same names, and say the same of a wrong one."""

import gymnasium as gym
import pytest

from memenvs import collect, evaluate
from memenvs.core.errors import near_names
from memenvs.rollout.policies import choose_policy


def agent(observation, info):
    return "<answer>Up</answer>"


def messages(env, policy, **env_args):
    """What `collect` and `evaluate` say."""
    said = []
    for call in (
        lambda: collect(env, policy, [0], env_args=env_args),
        lambda: evaluate(env, policy, env_args=env_args, tasks="0"),
    ):
        with pytest.raises((ValueError, OSError, gym.error.Error)) as error:
            call()
        said.append(str(error.value))
    return said


@pytest.mark.parametrize(
    ("env", "policy", "env_args", "decisive"),
    [
        ("MemSokoban-v0", "gold", {"max_turnz": 3}, "did you mean max_turns?"),
        ("MemSokoban-v0", "gold", {"max_turns": 0}, "max_turns of MemSokoban-v0"),
        ("MemChunkQA", "gold", {}, "did you mean MemChunkQA-v0?"),
        ("memchunkqa-v0", "gold", {}, "did you mean MemChunkQA-v0?"),
        ("MemChunkQA-v1", "gold", {}, "did you mean MemChunkQA-v0?"),
        ("memenvs:MemChunkQA", "gold", {}, "did you mean memenvs:MemChunkQA-v0?"),
        ("MemChunkQA-v0", "gold", {"tasks": "world_tset"}, "did you mean world-test?"),
        ("MemChunkQA-v0", "lexicall", {}, "did you mean lexical?"),
        ("MemChunkQA-v0", "hf:", {}, "has no name"),
        ("MemChunkQA-v0", "hf:./smolm2-reader", {}, "did you mean smollm2-reader?"),
        ("MemChunkQA-v0", "HF:smollm2", {}, "did you mean hf:smollm2?"),
        ("MemChunkQA-v0", "opneai:http://127.0.0.1:9/v1", {}, "did you mean openai:http://127.0.0.1:9/v1?"),
        ("MemSokobanImage-v0", "hf:smollm2-reader", {}, "observations that are not texts"),
        ("CartPole-v1", "gold", {}, "not a text environment"),
    ],
)
def test_collect_and_evaluate_say_the_same_of_a_wrong_name(env, policy, env_args, decisive):
    (message,) = {*messages(env, policy, **env_args)}
    assert decisive in message


def test_a_task_set_beside_the_one_that_is_not_there_is_offered(tmp_path):
    (tmp_path / "hotpot200").mkdir()
    (tmp_path / "hotpot200" / "card.json").write_text("{}")
    (message,) = {*messages("MemChunkQA-v0", "gold", tasks=str(tmp_path / "hotpt200"))}
    assert f"did you mean {tmp_path / 'hotpot200'}?" in message


def test_an_environment_of_another_package_is_offered_by_its_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ledger_for_doors.py").write_text(
        "import gymnasium\ngymnasium.register('Ledger-v0', 'ledger_for_doors:Ledger')\n"
        "def agent(observation, info): return ''"
    )
    try:
        (message,) = {*messages("ledger_for_doors:Ledgr-v0", "gold")}
        assert "did you mean ledger_for_doors:Ledger-v0?" in message
        assert "did you mean Ledger-v0?" in messages("Ledgr-v0", "gold")[0]
        assert "did you mean agent?" in messages("MemSokoban-v0", "ledger_for_doors:agnet")[1]
    finally:
        gym.registry.pop("Ledger-v0")


def test_an_environment_that_is_made_takes_no_more_arguments():
    (message,) = {*messages(lambda: gym.make("MemSokoban-v0"), "gold", max_turns=2)}
    assert "max_turns" in message


def test_evaluate_takes_an_environment_as_collect_does():
    env = gym.make("MemSokoban-v0", max_turns=2)
    assert evaluate(env, agent, tasks="0:2").metrics["success"].interval.mean == 0.0
    assert {len(episode.turns) for episode in collect(env, agent, [0, 1])} == {2}


def test_a_model_plays_by_its_name_as_it_does_as_an_object(tiny_model):
    models = pytest.importorskip("memenvs.models.hf")
    game = {"env_args": {"max_turns": 2}, "max_new_tokens": 4}
    by_name = collect("MemSokoban-v0", f"hf:{tiny_model}", [0, 1], **game)
    as_object = collect("MemSokoban-v0", models.HFPolicy.load(str(tiny_model)), [0, 1], **game)
    assert [episode.replies[0].text for episode in by_name] == [
        episode.replies[0].text for episode in as_object
    ]


def test_an_address_may_name_its_model():
    spec = choose_policy("openai:Qwen/Qwen3-8B@http://127.0.0.1:9/v1")
    assert spec.setting["model"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("name", "names", "near"),
    [
        ("tamtl", ["InfoMem", "TAMTRL"], ["TAMTRL"]),
        ("mt-ppo", ["grpo", "mt_ppo"], ["mt_ppo"]),
        ("Sokoban", ["MemSokoban-v0", "MemNIAH-v0"], ["MemSokoban-v0"]),
        ("xyz", ["MemSokoban-v0", "MemNIAH-v0"], []),
        ("", ["a"], []),
        ("a", [], []),
    ],
)
def test_names_are_near_by_spelling_in_any_case(name, names, near):
    assert near_names(name, names) == near
