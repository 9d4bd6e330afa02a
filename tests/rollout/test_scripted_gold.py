"""The policy that knows the answer plays the environment before it gives it."""

import pytest

from memenvs import collect
from memenvs.envs.memory import MODES


def played(name, **arguments):
    """The turns of an episode."""
    (episode,) = collect(name, "gold", [0], tasks=[3], env_args={"tasks": "world-test", **arguments})
    return episode.turns


@pytest.mark.parametrize("mode", MODES)
def test_it_notes_the_answer_once_all_evidence_was_shown(mode):
    turns = played("MemChunkQA-v0", n_documents=10, chunk_size=400, memory_mode=mode)
    told = turns[0].before["privileged"]
    shown, whole = 0, sum(map(len, told["evidence"]))
    knew = []
    for turn in turns[:-1]:
        shown += sum(map(len, turn.before["privileged"]["evidence_in_chunk"]))
        knew.append((shown == whole, told["target"] in turn.action))
    assert not knew[0][0]
    first = [complete for complete, _ in knew].index(True)
    assert [said for _, said in knew[: first + 1]] == [False] * first + [True]
    assert turns[-1].info["metrics"]["success"] == 1.0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("MemSearchQA-v0", {"memory_mode": mode}) for mode in ("react", "rewrite", "mem1", "compact")),
        ("MemSearchQA-v0", {"form": "deep_researcher"}),
        ("MemToolQA-v0", {}),
    ],
)
def test_it_searches_for_the_question_and_then_answers(name, arguments):
    turns = played(name, **arguments)
    assert len(turns) == 2
    assert turns[0].info["privileged"]["passages"]
    assert turns[-1].info["metrics"]["success"] == 1.0


def test_it_answers_at_once_where_there_is_one_turn():
    turns = played("MemSearchQA-v0", max_turns=1, final_answer_turn=False)
    assert len(turns) == 1
    assert turns[0].info["metrics"]["success"] == 1.0
