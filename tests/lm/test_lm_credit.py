"""A real model tells evidence from what is none: under TAMTRL, and by information gain."""

import gymnasium as gym
import numpy as np

from benchmarks.credit_real import read, signals
from memenvs import open_tasks
from memenvs.build.__main__ import main as build
from memenvs.evaluation.discriminate import distract, information_gain
from memenvs.wrappers import TAMTRLMethod

READING = {"tasks": "world-test", "n_documents": 4, "chunk_size": 200, "max_memory": 96, "cut_at": "document"}


def first(turns):
    """The first turn that shows evidence; the memory before it is empty, whatever is copied."""
    return next(one.turn for one in turns if one.evidence)


def test_a_copy_of_the_evidence_beats_a_copy_of_a_distractor_under_tamtrl(scorer, template):
    env = gym.make("MemChunkQA-v0", **READING)
    turns = [first(read(env, task, kind)) for kind in ("evidence", "distractor") for task in range(60)]
    found = np.array(signals(scorer, template, turns, {"p_t": TAMTRLMethod()})["p_t"]).reshape(2, 60)
    assert (found[0] > found[1]).mean() > 0.9
    assert found[0].mean() > found[1].mean() + 0.1


def ahead(scorer, template, questions):
    """The share of questions whose evidence gives more information than as much of other documents."""
    assert len(questions) == 60
    pairs = [one._replace(corrupted=(one.corrupted[0], one.corrupted[0])) for one in questions]
    gains = information_gain(scorer, pairs, template=template)
    assert gains[:, 0].mean() > gains[:, 1].mean() + 0.5
    return (gains[:, 0] > gains[:, 1]).mean()


def test_evidence_of_the_bundled_world_informs_more_than_distractors(scorer, template):
    assert ahead(scorer, template, distract(open_tasks("world-test"))[:60]) > 0.8


def test_evidence_of_hotpotqa_informs_more_than_distractors(scorer, template, real_data, tmp_path):
    source = real_data / "hotpotqa" / "hotpot_train_100.json"
    build(["hotpotqa", "--source", str(source), "--documents", "10", "--out", str(tmp_path / "set")])
    assert ahead(scorer, template, distract(open_tasks(str(tmp_path / "set")))[:60]) > 0.8
