"""Recommended movies: which known movie a name matches, and the recall that MemoryAgentBench reports."""

import json

import gymnasium as gym
import pytest
from build_command import command
from reference_values import REFERENCE, cases

import memenvs  # noqa: F401
from memenvs.wrappers import MovieRecall, Turn

MOVIES = json.loads((REFERENCE / "memoryagentbench_redial.json").read_text(encoding="utf-8"))["movies"]


@pytest.fixture
def names(tmp_path):
    file = tmp_path / "entity2id.json"
    file.write_text(json.dumps(MOVIES), encoding="utf-8")
    return str(file)


def turn(reply, answers, end="terminated"):
    told = {"privileged": {"answers": [answers]}, "task": "q1"}
    return Turn("read", reply, told, "", told, end)


def test_the_recall_of_a_reply_is_what_the_benchmarks_code_gives(names):
    method, recorded = MovieRecall(names), cases("memoryagentbench_redial")
    assert len(recorded) > 100
    for case in recorded:
        played = turn(case["input"]["reply"], [str(number) for number in case["input"]["ids"]])
        assert method.signal(played, []) == pytest.approx(case["output"]), case


def test_of_a_box_or_an_answer_only_what_is_inside_is_a_list(names):
    method = MovieRecall(names, k=2)
    for reply in (r"So: \boxed{1. Heat\n2. Ran}", "<think>1. Up</think><answer>Heat, Ran</answer>"):
        assert method.signal(turn(reply.replace("\\n", "\n"), ["1", "2"]), []) == 1.0


def test_only_the_first_k_and_the_last_turn_count(names):
    reply = "1. Up\n2. Ran\n3. Heat"
    assert MovieRecall(names, k=2).signal(turn(reply, ["1", "2"]), []) == 0.5
    assert MovieRecall(names, k=3).signal(turn(reply, ["1", "2"]), []) == 1.0
    assert MovieRecall(names).signal(turn(reply, ["1", "2"], end=""), []) == 0.0


@pytest.mark.parametrize("reply", ["", "1.", "\n" * 2000, "x" * 60_000, "1. " + "Heat, " * 9000, "\ud800"])
def test_no_reply_raises(names, reply):
    assert 0.0 <= MovieRecall(names).signal(turn(reply, ["1"]), []) <= 1.0


def test_redial_is_built_and_scored_by_the_names_of_a_reply(names, tmp_path):
    record = {
        "context": "Dialogue 1: I like Heat.",
        "questions": ["What next?", "And then?"],
        "answers": [["1", "2"], ["6"]],
        "metadata": {"source": "recsys_redial_full", "qa_pair_ids": ["r0", "r1"]},
    }
    (tmp_path / "mab.json").write_text(json.dumps([record]))
    out = tmp_path / "set"
    assert command("memoryagentbench", "--source", tmp_path / "mab.json", "--out", out) == 0
    env = MovieRecall(gym.make("MemChunkQA-v0", tasks=str(out), answer_format="tag"), names=names)
    env.reset(seed=0, options={"task": 0})
    env.step("a memory")
    _, reward, terminated, _, info = env.step("<answer>1. Heat (1995)\n2. Aliens</answer>")
    assert (terminated, reward, info["rewards"]) == (True, 0.5, {"outcome": 0.0, "movie_recall": 0.5})


@pytest.mark.parametrize("text", ["{", '{"Heat": "1"}'])
def test_an_invalid_file_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(ValueError, match=r"names\.json.*; give the data set's entity2id\.json"):
        MovieRecall(str(tmp_path / "names.json"))


def test_an_answer_of_another_data_set_is_named(names):
    with pytest.raises(ValueError, match=r"answer 'Ann' of task q1 is not in .*entity2id.json"):
        MovieRecall(names).signal(turn("Heat", ["Ann"]), [])
