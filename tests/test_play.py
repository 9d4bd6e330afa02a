"""`python -m memenvs.play`: an episode on the terminal."""

import json
import subprocess
import sys

import pytest

from memenvs.play import main


def status(arguments):
    try:
        return main(arguments)
    except SystemExit as ended:  # by argparse
        return ended.code


def test_sokoban_is_played_by_its_solution_unless_told_otherwise(capsys):
    assert main(["MemSokoban-v0", "--seed", "3"]) == 0
    assert "return 11.9; success 1," in capsys.readouterr().out


def test_chunked_reading_is_played_by_word_overlap_unless_told_otherwise(capsys):
    arguments = ["MemChunkQA-v0", "--env-args", "tasks=world-test", "n_documents=4", "--task", "1"]
    assert main([*arguments, "--policy", "lexical"]) == 0
    lexical = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == lexical


def test_the_grid_is_played_move_by_move(capsys):
    assert main(["MemSokobanGrid-v0", "--env-args", "max_steps=50", "--task", "0"]) == 0
    shown = capsys.readouterr().out
    *boards, last = shown.split("\n\n")
    steps = len([board for board in boards if "#" in board]) - 1  # the first board is before any move
    assert f"steps {steps}, success 1" in last


def test_a_random_player_of_the_grid_is_drawn_by_the_seed(capsys):
    shown = []
    for seed in ("1", "1", "2"):
        main(["MemSokobanGrid-v0", "--policy", "random", "--task", "0", "--seed", seed])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


def test_false_behind_a_name_is_false(capsys):
    search = ["MemSearchQA-v0", "--policy", "silent", "--env-args", "max_turns=2", "tasks=world-test"]
    turns = {}
    for value in ("true", "false"):
        main([*search, f"final_answer_turn={value}"])
        turns[value] = "turns 3" in capsys.readouterr().out
    assert turns == {"true": True, "false": False}


def test_a_model_plays_as_an_evaluation_of_it_does(tiny_model, tmp_path, capsys):
    from memenvs.evaluation.run import main as evaluate

    options = ["--policy", f"hf:{tiny_model}", "--temperature", "0", "--max-new-tokens", "8", "--task", "2"]
    assert evaluate(["--env", "MemSokoban-v0", *options, "--out", str(tmp_path)]) == 0
    (line,) = map(json.loads, (tmp_path / "episodes.jsonl").read_text(encoding="utf-8").splitlines())
    capsys.readouterr()
    assert main(["MemSokoban-v0", *options]) == 0
    shown = capsys.readouterr().out
    assert f"return {line['metrics']['return']:g}; " in shown
    words = " ".join(shown.split())
    assert [reply for reply in line["replies"] if " ".join(reply.split()) not in words] == []


def test_a_models_replies_are_drawn_by_the_seed(tiny_model, capsys):
    shown = []
    for seed in ("1", "1", "2"):
        play = ["MemSokoban-v0", "--policy", f"hf:{tiny_model}", "--max-new-tokens", "8", "--task", "2"]
        assert main([*play, "--seed", seed]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MemChunkQA-v0", "--env-args", "chunksize=600"], "its arguments: chunk_size, tasks"),
        (["MemSearchQA-v0", "--env-args", "final_answer_turn=no"], "must be true or false, got 'no'"),
        (["MemSokoban-v0", "--env-args", "max_turns"], "--env-args must be NAME=VALUE"),
        (["MemSokoban-v0", "--env-args", "render_mode=human"], "has no argument 'render_mode'"),
        (["MemSokobanGrid-v0", "--policy", "lexical"], "choose one of gold, random"),
        (["MemSokoban-v0", "--policy", "nobody"], "choose one of gold, silent"),
        (["MemSokobanGrid-v0", "--policy", "hf:small"], "hf:small plays environments of texts"),
        (["MemSokoban-v0", "--policy", "hf:/nowhere"], "no model '/nowhere'"),
        (["MemSokoban-v0", "--policy", "gold", "--temperature", "0"], "temperature is for models, not for"),
        (
            ["MemSokoban-v0", "--policy", "gold", "--dtype", "float32"],
            "dtype is for hf:MODEL, not for policy gold",
        ),
        (["MemSokoban-v0", "--policy", "hf:x", "--dtype", "bf16"], "invalid choice: 'bf16' (choose from"),
        (["MemSokoban-v0", "--policy", "hf:x", "--max-new-tokens", "0"], "max_new_tokens must be"),
        (["Nothing-v0"], "Nothing"),
        (["nothing:Nothing-v0"], "No module named 'nothing'"),
        (["MemChunkQA-v0", "--env-args", "tasks=nothing"], "no task set named 'nothing'"),
    ],
)
def test_what_cannot_be_played_is_one_line(arguments, message, capsys):
    assert status(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_reader_that_stops_early_ends_the_command_without_a_word():
    play = [sys.executable, "-m", "memenvs", "play", "MemSokoban-v0", "--seed", "3"]
    with subprocess.Popen(play, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")
