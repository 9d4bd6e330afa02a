"""The advantage estimators for verl are our learners' own, on the same episodes; verl is stood in for."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from memenvs import open_tasks
from memenvs.baselines.advantages import group_advantages
from memenvs.core.vector import TextVectorEnv
from memenvs.credit import place_rewards
from memenvs.models import ScriptedPolicy
from memenvs.rollout.engine import collect
from memenvs.wrappers import IGPOMethod, VectorRewardWrapper
from memenvs.wrappers.comparison import ComparisonSettings

PLACES = ("verl.experimental.agent_loop.agent_loop", "verl.trainer.ppo.core_algos")


@pytest.fixture(scope="module")
def estimators():
    """By name, as the adapter registers them with a verl that does nothing else."""
    found, patch = {}, pytest.MonkeyPatch()

    def registrar(name):
        return lambda made: found.setdefault(name, made)

    loops, algorithms = (ModuleType(place) for place in PLACES)
    loops.register, loops.AgentLoopBase, loops.AgentLoopOutput = registrar, object, object
    algorithms.register_adv_est = registrar
    for place, module in zip(PLACES, (loops, algorithms), strict=True):
        for end in range(1, place.count(".") + 1):
            patch.setitem(sys.modules, ".".join(place.split(".")[:end]), ModuleType(place))
        patch.setitem(sys.modules, place, module)
    patch.setattr("importlib.metadata.version", lambda package: "0.9.1")
    patch.delitem(sys.modules, "memenvs.adapters.verl", raising=False)
    importlib.import_module("memenvs.adapters.verl")
    yield found
    patch.undo()
    sys.modules.pop("memenvs.adapters.verl", None)


def played(methods, scorer=None):
    """Two groups of four searchers, who search up to three times and then answer, some of them right."""
    answers = {task.question: task.answers[0][0] for task in open_tasks("world-test")}
    rng = np.random.default_rng(5)

    def reply(prompt):
        question = prompt.partition("Question: ")[2].partition("\n")[0]
        if prompt.count("<information>") < 4 and rng.random() < 0.6:
            return f"<think></think><search>{question if rng.random() < 0.5 else 'a town'}</search>"
        return f"<think></think><answer>{answers[question] if rng.random() < 0.4 else 'x'}</answer>"

    venv = TextVectorEnv("MemSearchQA-v0", 8, autoreset_mode="Disabled", tasks="world-test", k=1)
    venv = VectorRewardWrapper(venv, methods, scorer=scorer, group_size=4)
    policy = ScriptedPolicy(reply)
    return policy, collect(venv, policy, [3, 8], group_size=4)


def rows(episodes):
    """(B, T) rewards and (B, T) masks, as the loop's rows of whole episodes have them."""
    length = max(len(episode.samples[0].ids) for episode in episodes)
    rewards, masks = np.zeros((len(episodes), length)), np.zeros((len(episodes), length), int)
    for paid, mask, episode in zip(rewards, masks, episodes, strict=True):
        (sample,) = episode.samples
        mask[: len(sample.ids)] = sample.response_mask
        own = place_rewards(episode.turn_rewards, episode.turn_ends, episode.tokens)
        paid[: len(sample.ids)][sample.response_mask] = own
    return torch.tensor(rewards), torch.tensor(masks)


@pytest.mark.parametrize(
    ("name", "methods", "settings"),
    [
        ("memenvs_mt_grpo", ["SearchRewards"], {"reward": "turn"}),
        (
            "memenvs_mt_grpo_skip",
            ["SearchRewards"],
            {"reward": "turn", "how": ComparisonSettings(ended="skip")},
        ),
        ("memenvs_turns", ["SearchRewards"], {"reward": "turn-pool"}),
        ("memenvs_igpo", ["IGPO"], {"reward": IGPOMethod()}),
    ],
)
def test_an_estimator_gives_every_token_what_our_learner_gives_it(estimators, name, methods, settings):
    policy, episodes = played(methods, "lexical" if methods == ["IGPO"] else None)
    assert len({len(episode.replies) for episode in episodes}) > 1
    rewards, mask = rows(episodes)
    groups = np.array([episode.group for episode in episodes])
    made, returns = estimators[name](token_level_rewards=rewards, response_mask=mask, index=groups)
    wanted = group_advantages(episodes, policy, **settings)
    assert max(np.abs(own).max() for own in wanted) > 0.5
    for row, own, sampled in zip(made.numpy(), wanted, mask.numpy().astype(bool), strict=True):
        np.testing.assert_allclose(row[sampled], own, atol=1e-9)
        assert not row[~sampled].any()
    assert (returns == made).all()


def test_every_estimator_of_the_adapter_is_in_the_table_of_the_trainers_page(estimators):
    page = (Path(__file__).parents[1] / "docs" / "trainers.md").read_text()
    named = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `memenvs_")}
    assert named == {name for name in estimators if name.startswith("memenvs_")}
