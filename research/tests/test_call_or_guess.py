"""Turn rewards teach to continue where the outcome favours stopping."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

import call_or_guess

from memenvs.baselines import grpo, sft

SHARED = {"env": "call_or_guess:CallOrGuess-v0", "max_new_tokens": 1, "num_envs": 64}


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A model that calls in four first turns of ten, and else says a digit."""
    folder = tmp_path_factory.mktemp("caller")
    args = sft.SFTArgs(
        model=str(call_or_guess.save_model(folder / "model")), out=folder / "sft", learn_from="all",
        teacher="call_or_guess:often", episodes=256, epochs=4, lr=1e-2, lr_warmup=5,
        save_every=1000, **SHARED,
    )  # fmt: skip
    sft.train(sft.prepare(args), args)
    return str(folder / "sft" / "last" / "policy")


def called(model, out: Path, **options):
    """The share of episodes that called, over the last three of 40 steps."""
    args = grpo.GRPOArgs(model=model, out=out, groups=8, steps=40, lr=2e-3, **SHARED, **options)
    grpo.train(grpo.prepare(args), args)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert len(lines) == 40
    return np.mean([line["called"] for line in lines[-3:]])


def test_mt_grpo_learns_to_call(caller, tmp_path):
    assert called(caller, tmp_path / "run", reward="turn") > 0.95


def test_the_outcome_alone_learns_not_to_call(caller, tmp_path):
    assert called(caller, tmp_path / "run", reward="outcome") < 0.2


def test_mt_grpo_over_those_that_call_alone_learns_as_the_outcome_does(caller, tmp_path):
    assert called(caller, tmp_path / "run", reward="turn", reward_args={"ended": "skip"}) < 0.2
