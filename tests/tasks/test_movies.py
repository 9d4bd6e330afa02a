"""Recommended movies: which known movie a name matches, and the recall that MemoryAgentBench reports."""

import json

import pytest
from build_command import command
from reference_values import REFERENCE, cases

from memenvs import collect
from memenvs.tasks.metrics import get_metric, gold_answer

MOVIES = json.loads((REFERENCE / "memoryagentbench_redial.json").read_text(encoding="utf-8"))["movies"]


@pytest.fixture
def metric(tmp_path):
    file = tmp_path / "entity2id.json"
    file.write_text(json.dumps(MOVIES), encoding="utf-8")
    return f"movie_recall:{file}"


def test_the_recall_of_a_reply_is_what_the_benchmarks_code_gives(metric):
    recall, recorded = get_metric(metric), cases("memoryagentbench_redial")
    assert len(recorded) > 100
    for case in recorded:
        numbers = [str(number) for number in case["input"]["ids"]]
        assert recall(case["input"]["reply"], numbers) == pytest.approx(case["output"]), case


def test_of_a_box_or_an_answer_only_what_is_inside_is_a_list(metric):
    for reply in ("1. Up \\boxed{1. Heat\n2. Ran}", "1. Up <answer>Heat, Ran</answer>"):
        assert get_metric(metric)(reply, ["1", "2"]) == 1.0


def test_only_the_first_five_count(metric):
    assert get_metric(metric)("1. Up\n2. Up\n3. Up\n4. Ran\n5. Up\n6. Heat", ["1", "2"]) == 0.5


@pytest.mark.parametrize("reply", ["", "1.", "\n" * 2000, "x" * 60_000, "1. " + "Heat, " * 9000, "\ud800"])
def test_no_reply_raises(metric, reply):
    assert 0.0 <= get_metric(metric)(reply, ["1"]) <= 1.0


def test_redial_is_built_and_scored_by_the_names_of_a_reply(metric, tmp_path):
    record = {
        "context": "Dialogue 1: I like Heat.",
        "questions": ["What next?", "And then?"],
        "answers": [["1", "2"], ["6"]],
        "metadata": {"source": "recsys_redial_full", "qa_pair_ids": ["r0", "r1"]},
    }
    (tmp_path / "mab.json").write_text(json.dumps([record]))
    out = tmp_path / "set"
    assert command("memoryagentbench", "--source", tmp_path / "mab.json", "--out", out) == 0
    replies = iter(["a memory", "<think>1. Ran</think><answer>1. Heat (1995)\n2. Aliens</answer>"])
    scored = {"env_args": {"tasks": str(out), "answer_format": "tag", "metric": metric}, "tasks": [0]}
    (episode,) = collect("MemChunkQA-v0", lambda *_: next(replies), [0], **scored)
    assert episode.outcome == 0.5
    (gold,) = collect("MemChunkQA-v0", "gold", [0], **scored)
    assert gold.success


@pytest.mark.parametrize("text", ["{", '{"Heat": "1"}'])
def test_an_invalid_file_is_refused(tmp_path, text):
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(ValueError):
        get_metric(f"movie_recall:{tmp_path / 'names.json'}")


def test_an_answer_of_another_data_set_is_refused(metric):
    with pytest.raises(ValueError):
        gold_answer([["Ann"]], metric)
