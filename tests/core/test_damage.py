"""Damaged files of ours: every command that reads one answers with its result or with one line."""

import shutil

import pytest

from benchmarks.stress.damage import COMMANDS, make_runs, soak
from memenvs.commands import main


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    make_runs(folder)
    return folder


@pytest.fixture
def copy(runs, tmp_path, monkeypatch):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verify", ["0", "1"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_file_is_one_line_with_its_name(name, verify, runs, copy, monkeypatch):
    monkeypatch.setenv("MEMENVS_VERIFY", verify)
    assert not soak(runs, 4, int(verify), {name: COMMANDS[name]})


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ('"feedback"', '"feedbak"', "has no 'feedback'"),
        (
            '"context":"rewrite"',
            '"context":"other"',
            "before.context must be one of append, rewrite",
        ),
        ('"rewards":{', '"rewards":{"x":"y",', "rewards.x must be a number, got 'y'"),
        ('"chunk_span":[', '"chunk_span":[5,', "chunk_span must be a list of 2"),
        ('"observation":"', '"observation":5,"x":"', "turns[0].observation must be a string, got 5"),
        ('[{"turn":19', '[{"turn":3', "turns[19] has a credit of turn 3"),
    ],
)
def test_a_damaged_line_of_episodes_is_named_with_its_number_and_what_is_wrong(
    before, after, part, copy, capsys
):
    file = copy / "runs/gold/episodes.jsonl"
    first, second = file.read_text().splitlines(keepends=True)
    assert before in second
    file.write_text(first + second.replace(before, after, 1))
    for command in ("view runs/gold --terminal", "evaluate compare runs/lexical runs/gold"):
        assert main(command.split()) == 2
        line = capsys.readouterr().err
        assert "gold/episodes.jsonl:2 is not an episode (" in line
        assert part in line
        assert line.count("\n") == 1


@pytest.mark.parametrize(
    "ids", ["[0.5]", "[true]", '["1"]', "[[1, 2], [3]]", "[100000000000000000000]", "[1, 2]", "[null]"]
)
def test_token_ids_that_are_none_are_refused(ids, copy, capsys):
    file = copy / "runs/gold/episodes.jsonl"
    file.write_text(file.read_text().replace('"reply":{', f'"reply":{{"logprobs":[-1.0],"ids":{ids},', 1))
    assert main(["view", "runs/gold", "--terminal"]) == 2
    assert "episodes.jsonl:1 is not an episode (" in capsys.readouterr().err


def test_an_unfinished_last_line_of_a_log_is_left_out_and_a_damaged_one_is_named(copy, capsys):
    file = copy / "train/0/log.jsonl"
    with file.open("a") as log:
        log.write('{"step": 3, "retu')
    draw = ["view", "train", "--curves", "--out", "curves.svg"]
    assert main(draw) == 0
    file.write_text(file.read_text().replace('"step": 1', '"step": -1'))
    assert main(draw) == 2
    assert "train/0/log.jsonl:2: step must be" in capsys.readouterr().err
