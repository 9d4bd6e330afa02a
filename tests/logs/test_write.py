"""What `memenvs credit --out` writes: a run, a table of turns, the log in its own form."""

import json

import pyarrow.parquet as pq
import pytest
from command_line import compare, run, view
from made_logs import FORMS, FOUND, WRONG, labelled, write

import memenvs
from memenvs.core.episode_file import read_episodes
from memenvs.logs.files import LogFiles

METHODS = ["--methods", "RepeatedCalls", "StepSearch", "gains=new"]


def credit(path, out, *more):
    assert run("credit", [path, "--out", out, *more]) == 0
    return out


def of_form(form, folder, *more):
    """The records that are written for a log of a form."""
    (folder / "in").mkdir()
    out = credit(write(folder / "in", *FORMS[form]), folder / "out", *METHODS, *more)
    (file,) = (out / "log").iterdir()
    text = file.read_text()
    return file.name, [json.loads(text)] if file.suffix == ".json" else list(
        map(json.loads, text.splitlines())
    )


def test_the_run_holds_the_episodes_with_their_credit(tmp_path):
    out = credit(labelled(tmp_path), tmp_path / "out", "--methods", "IGPO")
    episodes = read_episodes(out / "episodes.jsonl")
    assert [episode.metrics["return"] > 1 for episode in episodes] == [True, False]
    assert [episode.success for episode in episodes] == [True, False]
    assert episodes[0].turns[1].observation.endswith("A county.\n\n")
    assert view([out, "--terminal", "--episode", 0]) == 0


def test_the_table_has_a_row_for_each_turn(tmp_path):
    out = credit(labelled(tmp_path), tmp_path / "out", *METHODS, "--compare", "outcome")
    table = pq.read_table(out / "turns.parquet").to_pydict()
    assert table["conversation"] == ["log.jsonl:1"] * 3 + ["log.jsonl:2"] * 3
    assert table["stepsearch"] == [1, 1, 0, 1, -1, 0]
    assert table["stepsearch_signal"] == [1, 1, 0, 1, 1, 0]
    assert table["reward"] == [1, 1, 1, 1, -2, 0]
    assert table["advantage"] == pytest.approx([0.7071] * 3 + [-0.7071] * 3, abs=1e-4)


def test_runs_about_the_same_questions_are_compared(tmp_path, capsys):
    better = credit(write(tmp_path, {"messages": FOUND, "reward": 1}), tmp_path / "a", *METHODS)
    worse = credit(write(tmp_path, {"messages": WRONG, "reward": 0}), tmp_path / "b", *METHODS)
    capsys.readouterr()
    assert compare([worse, better]) == 0
    assert "success 1.000 against 0.000" in capsys.readouterr().out


def test_chat_messages_get_a_weight_by_the_threshold_and_are_read_again_as_they_were(tmp_path):
    path = write(tmp_path, {"messages": WRONG, "reward": 1, "mine": 5})
    out = credit(path, tmp_path / "out", *METHODS, "--weight", "-0.5")
    written = out / "log" / "log.jsonl"
    record = json.loads(written.read_text())
    assert record["turn_rewards"] == [1, -2, 1]
    assert [message.get("weight") for message in record["messages"]] == [None, 1, None, 0, None, 1]
    assert record["mine"] == 5
    assert [turn["credits"]["stepsearch"] for turn in record["memenvs"]["turns"]] == [1, -1, 0]
    before, after = (next(LogFiles([str(file)]).conversations()) for file in (path, written))
    assert before == after


def test_verifiers_gets_states_whose_differences_are_the_rewards_of_turns(tmp_path):
    _, (record,) = of_form("verifiers", tmp_path)
    assert record["traces"][0]["info"]["turn_rewards"] == [1, 2, 3]


def test_atif_gets_credit_in_the_extra_of_each_step_that_is_a_turn(tmp_path):
    name, (record,) = of_form("ATIF", tmp_path)
    assert name == "log.json"
    assert [step["step_id"] for step in record["steps"] if "memenvs" in step.get("extra", {})] == [2, 3, 4]


def test_inspect_gets_a_score_with_the_turns_in_its_metadata(tmp_path):
    _, (record,) = of_form("Inspect", tmp_path)
    scores = record["samples"][0]["scores"]
    assert scores["memenvs"]["value"] == 1
    assert [turn["reward"] for turn in scores["memenvs"]["metadata"]["turns"]] == [1, 1, 1]
    assert scores["match"] == {"value": "C"}


@pytest.mark.parametrize("form", ["Claude Code", "Codex", "session of the hub", "mini-swe-agent"])
def test_a_form_without_a_place_for_credit_gets_a_file_of_turns_beside(form, tmp_path):
    name, turns = of_form(form, tmp_path)
    assert name == "log.jsonl.credit.jsonl"
    assert [turn["turn"] for turn in turns] == [0, 1, 2]
    assert all("1904" not in json.dumps(turn) for turn in turns)


def test_our_own_episodes_get_credit_by_another_method(tmp_path):
    memenvs.evaluate("MemToolQA-v0", "lexical", tasks="0:2", out=tmp_path / "run")
    path = tmp_path / "run" / "episodes.jsonl"
    played = read_episodes(path)
    credited = read_episodes(credit(path, tmp_path / "out", "--methods", "IGPO") / "episodes.jsonl")
    assert [episode.task for episode in credited] == sorted(episode.task for episode in played)
    assert {len(episode.turns) for episode in credited} == {len(episode.turns) for episode in played}
    assert all("igpo" in episode.turns[0].credits for episode in credited)


def test_a_folder_with_files_in_it_is_refused(tmp_path, capsys):
    assert run("credit", [labelled(tmp_path), "--out", tmp_path, *METHODS]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_failed_method_leaves_no_results(tmp_path):
    path = labelled(tmp_path)
    assert run("credit", [path, "--out", tmp_path / "out", "--methods", "ToolRewards"]) == 2
    assert not (tmp_path / "out" / "results.json").exists()
