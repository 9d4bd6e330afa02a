"""Training with the memory methods: their scorer is the policy in training, and each changes the training."""

import json
import math
from dataclasses import replace
from typing import get_type_hints

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

from memenvs.baselines import grpo, mt_ppo
from memenvs.baselines.advantages import group_advantages
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.rollout import PlayRun
from memenvs.wrappers import TAMTRL
from memenvs.wrappers.registry import make_scorer
from memenvs.wrappers.scorers import HFScorer, ScoreRequest

READING = {"tasks": "world-test", "chunk_size": 150, "n_documents": 4, "max_memory": 12, "max_answer": 12}
SEARCH = {"tasks": "world-test", "memory_mode": "rewrite", "max_turns": 2, "k": 1, "max_information": 60}


def arguments(learner, tiny_model, out, env="MemChunkQA-v0", options=None, **others):
    return get_type_hints(learner.train)["args"](
        model=str(tiny_model), out=out, env=env, env_args=options or READING, steps=1, groups=2,
        group_size=2, num_envs=4, max_new_tokens=8, lr=1e-3, **others,
    )  # fmt: skip


def modules_of(training):
    return list(training.policy.model.modules())


def train(learner, args):
    training = learner.prepare(args)
    learner.train(training, args)
    (line,) = [json.loads(line) for line in (args.out / "log.jsonl").read_text().splitlines()]
    return training, line


@pytest.mark.parametrize(
    ("env", "options", "reward", "scored", "measured"),
    [
        ("MemChunkQA-v0", READING, "tamtrl", True, True),
        ("MemChunkQA-v0", READING, "infomem", True, True),
        ("MemChunkQA-v0", READING, "mempo", True, True),
        ("MemSearchQA-v0", SEARCH, "mempo", False, False),  # a random model opens no <mem>
        ("MemChunkQA-v0", READING, "igpo", True, True),
        ("MemSearchQA-v0", {**SEARCH, "memory_mode": "react"}, "igpo", True, True),
        ("MemChunkQA-v0", READING, "rememr1", False, True),
        ("MemSokoban-v0", {"max_turns": 2}, "gigpo", False, False),
        ("MemSokoban-v0", {"max_turns": 2}, "continuations", False, True),
    ],
)
def test_a_step_with_each_method_is_finite(env, options, reward, scored, measured, tiny_model, tmp_path):
    _, line = train(grpo, arguments(grpo, tiny_model, tmp_path / "run", env, options, reward=reward))
    assert all(math.isfinite(line[name]) for name in ("policy_loss", "grad_norm", "approx_kl"))
    assert ("seconds_scoring" in line) is scored
    assert (f"signals/{reward}" in line) is measured
    assert f"rewards/{reward}" in line
    assert line["failed"] == 0


def test_continuations_compare_no_episodes_and_need_no_group(tiny_model, tmp_path):
    args = arguments(
        grpo, tiny_model, tmp_path / "run", "MemSokoban-v0", {"max_turns": 2}, reward="continuations"
    )
    _, line = train(grpo, replace(args, group_size=1))
    assert math.isfinite(line["policy_loss"])
    assert "signals/continuations" in line


def test_the_scorer_is_the_policy_as_it_is_now(tiny_model, tmp_path):
    args = arguments(grpo, tiny_model, tmp_path / "run", reward="infomem")
    training = grpo.prepare(args)
    request = [ScoreRequest("The town of", " Kulvik")]
    before = training.scorer.logprobs(request)[0]
    with __import__("torch").no_grad():
        for weight in training.policy.parameters():
            weight.mul_(1.1)
    after = training.scorer.logprobs(request)[0]
    own = HFScorer(training.policy.model, training.policy.tokenizer)
    now = make_scorer(own, training.policy.template).logprobs(request)[0]
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, now)


def test_a_fixed_scorer_can_be_named(tiny_model, tmp_path):
    training, line = train(
        grpo, arguments(grpo, tiny_model, tmp_path / "run", reward="tamtrl", scorer="lexical")
    )
    assert line["seconds_scoring"] > 0
    assert type(training.scorer.scorer).__name__ == "LexicalScorer"


def test_mt_ppo_learns_from_search_rewards(tiny_model, tmp_path):
    options = {"tasks": "world-test", "max_turns": 2, "k": 1, "max_information": 60}
    args = arguments(
        mt_ppo, tiny_model, tmp_path / "run", "MemSearchQA-v0", options, methods=["searchrewards"]
    )
    _, line = train(mt_ppo, args)
    # Nothing it says is well-formed: -0.2 in each of 2 turns, -1 in the last.
    assert line["return"] == pytest.approx(-1.4)
    assert math.isfinite(line["value_loss"])


def judge_three_of_four(training, monkeypatch):
    """Of each draw of two groups the first is all right, the second half."""
    rollouts = training.rollouts

    def judged(*given):
        episodes = rollouts(*given)
        for number, episode in enumerate(episodes):
            right = float(number < 3)
            episode.metrics["success"] = episode.metrics["outcome"] = right
            episode.turns[-1].info["rewards"]["outcome"] = right
        return episodes

    monkeypatch.setattr(training, "rollouts", judged)


@pytest.mark.parametrize("reward", ["outcome", "merged", "turn", "turn-pool", "tamtrl"])
def test_dynamic_sampling_keeps_the_groups_that_are_neither_all_right_nor_all_wrong(
    reward, tiny_model, tmp_path, monkeypatch
):
    # DAPO's penalty (eq. 13) gives almost every group rewards that differ, and shapes the kept ones alone.
    options = {"reward": reward, "dynamic_sampling": 1, "overlong": (9, 9)}
    args = arguments(grpo, tiny_model, tmp_path / "run", **options)
    training = grpo.prepare(args)
    judge_three_of_four(training, monkeypatch)
    items, drawn, _ = grpo.sample_groups(training, args, 1)
    assert len(drawn) == 8
    second = {episode.group for episode in (*drawn[2:4], *drawn[6:8])}
    assert {item.group for item in items} == second


def test_tamtrl_normalises_before_dynamic_sampling_leaves_groups_out(tiny_model, tmp_path, monkeypatch):
    # Its algorithm 1: min and max (line 6) are those of a whole draw, groups are left out in line 9.
    args = arguments(grpo, tiny_model, tmp_path / "run", reward="tamtrl", dynamic_sampling=1)
    training = grpo.prepare(args)
    judge_three_of_four(training, monkeypatch)
    items, drawn, _ = grpo.sample_groups(training, args, 1)
    wanted = group_advantages(drawn[:4], training.policy, TAMTRL())[2:]
    found = [item.advantages for item in items if item.group == drawn[2].group]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(wanted))


def test_gradient_checkpointing_changes_no_number(tiny_model, tmp_path):
    lines = []
    for switch in (False, True):
        flags = {"reward": "infomem", "kl_coef": 0.1, "gradient_checkpointing": switch}
        args = arguments(grpo, tiny_model, tmp_path / str(switch), **flags)
        training, line = train(grpo, args)
        lines.append(line)
        modules = training.policy.model.modules()
        assert any(getattr(module, "gradient_checkpointing", False) for module in modules) is switch
        assert not any(m.training for m in modules_of(training) if "attention" in type(m).__name__.lower())
    # The two read in different ways, packed and padded: float32 is apart by 1e-6, where the loss itself is 0.
    for name in ("policy_loss", "grad_norm", "kl_ref", "return"):
        assert lines[0][name] == pytest.approx(lines[1][name], rel=1e-4, abs=2e-6)


def test_a_reference_model_stays_as_it_was(tiny_model, tmp_path):
    training, line = train(grpo, arguments(grpo, tiny_model, tmp_path / "run", reward="outcome", kl_coef=0.1))
    assert line["kl_ref"] == pytest.approx(0, abs=1e-9)  # before the first step both are one
    fresh = PlayRun(arguments(grpo, tiny_model, tmp_path / "other"), ProcessGroup("cpu")).policy
    for one, other in zip(training.ref_model.parameters(), fresh.parameters(), strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())
