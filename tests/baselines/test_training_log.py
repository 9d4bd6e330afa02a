"""The log line of a step: components, signals with their spread, and the evidence in the memory."""

import math

import gymnasium as gym
import pytest
from made_episodes import before, give, reply
from msgspec.structs import replace

pytest.importorskip("torch", reason="the learners want the extra train")
pytest.importorskip("tyro", reason="the learners want the extra train")

from memenvs.baselines.checkpoint import Checkpoints, lines_until
from memenvs.baselines.metrics import evidence_in_memory, question_in_memory, summary
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.models import Reply
from memenvs.rollout.collect import collect
from memenvs.wrappers import RewardWrapper


def played(rewards, metrics=None, **fields):
    """An episode of one turn that earned these components."""
    info = {**before(1), "rewards": rewards}
    turns = [Turn("", before(0), reply("a"), info, "terminated")]
    return Episode(end="terminated", turns=turns, metrics=metrics or {}, **fields)


def test_means_leave_out_episodes_that_have_no_such_number():
    episodes = [
        played({"format": 0.5}, {"em": 1.0, "evidence_kept": 0.5}),
        played({"format": 0.25}, {"em": 0.0}),
        played({"format": 9.0}, {"em": 9.0}),
    ]
    give(episodes[0], "judge", Credit(0, math.nan))
    give(episodes[1], "judge", Credit(0, 1.0))
    episodes[2].fail("no answer")
    found = summary(episodes)
    assert found["rewards/format"] == 0.375
    assert found["rewards/judge"] == 1.0
    assert (found["em"], found["evidence_kept"], found["failed"]) == (0.5, 0.5, 1)


def test_an_episode_that_lacks_a_score_has_no_return():
    lacking, whole = played({"outcome": 1.0}), played({"outcome": 0.5})
    give(lacking, "judge", Credit(0, math.nan, reason="no verdict", from_signal=False))
    assert summary([lacking, whole])["return"] == 0.5


def test_a_signal_has_its_mean_over_episodes_and_its_spread_over_their_turns():
    # Means of the episodes 0.3 and 0.8: 0.55. Turns 0.2, 0.4, 0.8: mean 1.4 / 3, of the squares 0.28,
    # variance 0.28 - 0.217778 = 0.062222.
    # A turn with nothing to measure, whose signal is 0, counts in neither.
    first, second, third = played({}), played({}), played({})
    first.turns *= 3
    first.turns = [
        replace(turn, signals={"tamtrl": p}) for turn, p in zip(first.turns, (0.2, 0.0, 0.4), strict=True)
    ]
    second.turns[0].signals["tamtrl"] = 0.8
    first.measured, second.measured = {"tamtrl": [0, 2]}, {"tamtrl": [0]}
    found = summary([first, second, third])
    assert found["signals/tamtrl"] == pytest.approx(0.55)
    assert found["signals/tamtrl_std"] == pytest.approx(0.062222**0.5, abs=1e-6)


EVIDENCE = "Tarsk has 4 bridges. The baker lives in Tarsk."


def reading(*memories, question="Who lives in Tarsk?"):
    """An episode of reading: the first turn shows a sentence of the evidence, the second the other."""
    first, second = EVIDENCE.split(". ")
    shown = [[first], [second], []]

    def info(turn):
        privileged = {"evidence": [EVIDENCE], "evidence_in_chunk": shown[turn] if turn < 3 else []}
        memory = ["", *memories][turn]
        return {"context": "rewrite", "privileged": {**privileged, "question": question, "memory": memory}}

    turns = [Turn("…", info(k), Reply("…"), info(k + 1)) for k in range(len(memories))]
    return Episode(turns=turns)


def test_evidence_is_taken_when_it_is_shown_and_kept_until_the_end():
    # Its words without those of the question, short words or not a digit: 4, bridges, baker. The first turn
    # shows "4 bridges", of which the memory takes one; the second "baker", which is taken and lost after.
    found = evidence_in_memory(reading("4 towers", "four towers, a BAKER", "bridges"))
    assert found == {"evidence_taken": 2 / 3, "evidence_kept": 1 / 3}


def test_without_a_memory_or_words_nothing_is_said_of_evidence():
    assert evidence_in_memory(Episode()) == {}
    assert evidence_in_memory(reading("x", question=EVIDENCE)) == {}
    search = {"env_args": {"tasks": "world-test"}, "tasks": [2]}
    (episode,) = collect("MemSearchQA-v0", "lexical", [0], methods=["SearchRewards"], **search)
    assert evidence_in_memory(episode) == {}


@pytest.mark.parametrize(
    ("memory", "repeats"),
    [
        ("Asked: who LED the town, in 1291? Unknown.", 1.0),
        ("The town in 1291 was led by", 0.0),
        ("who led the town in 12910", 0.0),
        ("", 0.0),
    ],
)
def test_the_share_of_memories_that_repeat_the_question_is_logged(memory, repeats):
    episode = reading("Who led the town in 1291?", memory, question="Who led the town in 1291?")
    assert question_in_memory(episode) == {"question_in_memory": repeats}
    assert question_in_memory(Episode()) == {}
    (search,) = collect("MemSearchQA-v0", "lexical", [0], env_args={"tasks": "world-test"}, tasks=[2])
    assert question_in_memory(search) == {}


def test_a_search_shows_evidence_when_a_result_brings_its_document():
    env = RewardWrapper(
        gym.make("MemSearchQA-v0", tasks="world-test", memory_mode="rewrite"), ["MemPO"], "lexical"
    )
    _, info = env.reset(seed=0)
    title, _, text = info["privileged"]["evidence"][0].partition("\n")
    form = "<mem>{}</mem><think></think><search>{}</search>"
    shown, *_ = env.step(form.format("", title))
    assert text in shown
    env.step(form.format(text, "nothing at all"))  # takes all of it
    env.step(f"<mem>{text}</mem><think></think><answer>x</answer>")
    found = evidence_in_memory(env.episode)
    assert found["evidence_taken"] == 1.0
    assert 0 < found["evidence_kept"] < 1  # of the other documents nothing was ever read


def test_a_reader_that_writes_needed_sentences_down_keeps_more_than_a_silent_one():
    reading = {"env_args": {"tasks": "world-test", "n_documents": 16}, "tasks": [3]}
    careful, silent = (
        evidence_in_memory(*collect("MemChunkQA-v0", policy, [5], 1, ["TAMTRL"], "lexical", **reading))
        for policy in ("careful", "silent")
    )
    assert careful["evidence_taken"] >= careful["evidence_kept"] > 0
    assert silent == {"evidence_taken": 0.0, "evidence_kept": 0.0}


def test_a_damaged_line_of_a_log_is_named_and_an_unfinished_one_dropped(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1}\n{"step": 2}\n{"step": 3')
    assert lines_until(log, 1) == ['{"step": 1}\n']
    log.write_text('{"step": 1}\n{"stp": 2}\n')
    with pytest.raises(ValueError, match=r"log.jsonl:2 has no 'step'"):
        lines_until(log)


@pytest.mark.parametrize("state", ["{", "[]", '{"step": 1}', '{"step": -1, "args": {}, "optimizer": {}}'])
def test_a_damaged_state_of_a_checkpoint_is_one_line(state, tmp_path):
    folder = tmp_path / "checkpoints" / "step-1"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(state)
    with pytest.raises(ValueError, match=r"step-1/state.json.*; delete the folder") as failure:
        _ = Checkpoints(tmp_path).newest_args
    assert "\n" not in str(failure.value)
