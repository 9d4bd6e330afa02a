"""TAMTRL measures what it claims: with a model that copies, memories of evidence score above others."""

import re

import gymnasium as gym
import numpy as np
import pytest

from memenvs.wrappers import TAMTRL, RewardWrapper
from memenvs.wrappers.scorers import HFScorer
from memenvs.wrappers.scorers.protocol import TokenPair
from research.demonstrations import taught
from research.tests.copy_model import copying_model

TASKS = range(40)


@pytest.fixture(scope="module")
def scorer():
    pytest.importorskip("transformers")
    return HFScorer(*copying_model())


def read(env, task, write):
    """p_t of each turn that showed evidence, under the memory that `write` makes of it; NaN if none."""

    def reply(observation, info):
        chunk = observation.partition("<section>\n")[2].partition("\n</section>")[0]
        evidence = info["privileged"]["evidence_in_chunk"]
        return write(chunk, evidence) if evidence else ""

    return [
        turn.signals["tamtrl"] if turn.info["privileged"]["memory"] else np.nan
        for turn in taught(env, reply, task, seed=task).turns
        if turn.before["privileged"]["evidence_in_chunk"]
    ]


def of_evidence(chunk, evidence):
    return beginning(evidence)


def of_distractor(chunk, evidence):
    for part in evidence:
        chunk = chunk.replace(part, "")
    return beginning(re.split(r"Document \d+:\n", chunk))


def beginning(documents):
    """Two sentences of the longest document, behind its title."""
    longest = max(documents, key=len).strip()
    return " ".join(longest.partition("\n")[2].split(". ")[:2])


def test_the_model_has_learned_to_copy(scorer):
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 4096, 150).tolist()
    (copied, other) = scorer.token_logprobs(
        [TokenPair(prompt, prompt[50:70]), TokenPair(prompt, rng.integers(0, 4096, 20).tolist())]
    )
    assert np.exp(copied).mean() > 0.4 > 100 * np.exp(other).mean()


def test_a_memory_that_copies_the_evidence_scores_above_one_that_copies_a_distractor(scorer):
    settings = {"tasks": "world-test", "chunk_size": 400, "max_memory": 64, "n_documents": 4}
    env = RewardWrapper(gym.make("MemChunkQA-v0", **settings), [TAMTRL()], scorer)
    pairs = [
        pair
        for task in TASKS
        for pair in zip(read(env, task, of_evidence), read(env, task, of_distractor), strict=True)
        if not np.isnan(pair).any()
    ]
    copied, other = np.array(pairs).T
    assert len(pairs) >= 24
    assert (copied > other).mean() >= 0.9
    assert copied.mean() > 2 * other.mean()
