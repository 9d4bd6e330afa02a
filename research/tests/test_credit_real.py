"""Memories of known kinds scored by the reward methods, with word overlap in place of a model."""

import gymnasium as gym
import numpy as np
import pytest

from memenvs.wrappers.scorers import LexicalScorer
from research import credit_real

ENV = {"tasks": "world-test", "chunk_size": 300, "max_memory": 128, "n_documents": 6, "cut_at": "document"}


@pytest.fixture(scope="module")
def played():
    env = gym.make("MemChunkQA-v0", **ENV)
    return [
        one for kind in credit_real.KINDS for task in range(6) for one in credit_real.read(env, task, kind)
    ]


def memories(played, kind):
    return [one.turn.info["privileged"]["memory"] for one in played if one.kind == kind and one.evidence]


def test_every_kind_reads_the_same_sections(played):
    turns = {
        kind: [(one.task, one.number, one.evidence) for one in played if one.kind == kind]
        for kind in credit_real.KINDS
    }
    assert len(set(map(tuple, turns.values()))) == 1
    assert sum(evidence for _, _, evidence in turns["evidence"]) >= 6


def test_evidence_and_distractors_are_of_one_length(played):
    lengths = [[len(memory) for memory in memories(played, kind)] for kind in ("evidence", "distractor")]
    assert np.abs(np.diff(lengths, axis=0)).max() <= 1  # a newline may be cut off
    assert not set(memories(played, "evidence")) & set(memories(played, "distractor"))


def test_the_stuffed_memory_begins_with_the_evidence(played):
    for stuffed, evidence in zip(memories(played, "stuffed"), memories(played, "evidence"), strict=True):
        assert stuffed.startswith(evidence)
        assert len(stuffed) > len(evidence)


def test_the_answer_stands_in_the_last_memory_of_the_evidence_alone(played):
    held = {kind: [] for kind in credit_real.KINDS}
    for one in (one for one in played if one.turn.over):
        known = one.turn.before["privileged"]
        held[one.kind].append(known["target"] in known["memory"])
    assert (held["evidence"], held["distractor"], held["empty"]) == ([True] * 6, [False] * 6, [False] * 6)


def test_methods_are_asked_through_the_template_and_empty_memories_are_not_measured(played):
    asked = []

    class Kept(LexicalScorer):
        def logprobs(self, requests):
            asked.extend(requests)
            return super().logprobs(requests)

    turns = [one.turn for one in played if one.kind in ("evidence", "empty")]
    found = credit_real.signals(Kept(), "<user>{prompt}<reply>", turns, credit_real.READING)
    assert all(one.prompt.startswith("<user>") and one.prompt.endswith("<reply>") for one in asked)
    assert len(set(asked)) == len(asked)
    empty = [one.kind == "empty" for one in played if one.kind in ("evidence", "empty")]
    assert np.isnan(np.array(found["MemPO's P"])[empty]).all()


def test_a_search_notes_what_it_found_turn_by_turn():
    env = gym.make("MemSearchQA-v0", tasks="world-test", memory_mode="rewrite")
    noted = [one.turn.info["privileged"]["memory"] for one in credit_real.search(env, 0, "evidence")]
    assert noted[0] == "nothing yet"
    assert [("Dirmonte" in memory, "1623" in memory) for memory in noted] == [
        (False, False),
        (True, False),
        (True, True),
    ]


def test_shares_above_count_ties_half_and_means_are_of_tasks():
    assert credit_real.by_task([(0, 1.0), (0, 0.0), (1, 1.0), (1, np.nan), (2, np.nan)]) == [0.5, 1.0]
