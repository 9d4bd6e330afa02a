"""`memenvs evaluate suite`: what is built, played, resumed, skipped and compared."""

import functools
import json
from dataclasses import asdict

import pytest
from command_line import compare, run

from memenvs.core.files import write_json
from memenvs.evaluation import suite as suites
from memenvs.evaluation.suite import SUITES, PartScore, SuitePart, SuiteResult, compare_parts, read_suite

main = functools.partial(run, "evaluate suite")
NEEDLES = "niah --tokens 600 --num-tasks 3 --seed 1 --split test"


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path_factory):
    """Needles of a few hundred tokens and three levels in place of `small`."""
    parts = [
        SuitePart("short needles", "MemNIAH-v0", "return", 3, NEEDLES, {"chunk_size": 300}),
        SuitePart("Sokoban", "MemSokoban-v0", "success", 3, env_args={"level_split": "test"}),
    ]
    monkeypatch.setitem(SUITES, "small", parts)
    monkeypatch.setenv("MEMENVS_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def table(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_a_suite_is_built_and_played_and_its_scores_are_a_row(tmp_path, capsys):
    assert main(["small", "--policy", "gold", "--out", tmp_path / "gold"]) == 0
    head, _, row = table(capsys.readouterr().out)
    assert head == ["policy", "short needles", "Sokoban"]
    # Wilson for 3 successes of 3: 3 / (3 + 3.84) = 0.44
    assert row == ["gold (sees privileged information)", "1.00 [0.44, 1.00]", "1.00 [0.44, 1.00]"]
    result = read_suite(tmp_path / "gold" / "suite.json")
    assert (result.suite, result.policy, result.samples) == ("small", "gold", 1)
    assert result.scores["Sokoban"].tasks == 3
    assert main(["small", "--policy", "gold", "--out", tmp_path / "gold", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == asdict(result)


def test_the_same_command_resumes_and_the_tasks_are_built_once(tmp_path, capsys, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    command = ["small", "--policy", "gold", "--out", tmp_path / "gold"]
    with monkeypatch.context() as patched:
        patched.setitem(SUITES, "small", SUITES["small"][:1])
        assert main(command) == 0
        patched.setattr(suites, "evaluate", stop)
        assert main(command) == 130
    first = (tmp_path / "gold" / "short-needles" / "episodes.jsonl").read_bytes()
    monkeypatch.setattr("memenvs.commands.build.main", stop)
    capsys.readouterr()
    assert main(command) == 0
    assert (tmp_path / "gold" / "short-needles" / "episodes.jsonl").read_bytes() == first
    assert len(json.loads((tmp_path / "gold" / "suite.json").read_text())["scores"]) == 2


def test_a_scripted_policy_without_rules_for_an_environment_plays_as_silent_there(tmp_path, capsys):
    assert main(["small", "--policy", "lexical", "--out", tmp_path / "lexical"]) == 0
    _, _, row = table(capsys.readouterr().out)
    assert row[1:] == ["1.00 [0.44, 1.00]", "0.00 [0.00, 0.56]"]  # 3.84 / (3 + 3.84)
    episodes = (tmp_path / "lexical" / "Sokoban" / "episodes.jsonl").read_text().splitlines()
    assert {turn.get("action", "") for line in episodes for turn in json.loads(line)["turns"]} == {""}


def test_a_policy_chooses_how_it_reads_chunks_and_the_result_says_what(tmp_path, capsys):
    reading = ["chunk_size=100", "template=short"]
    command = ["small", "--policy", "lexical", "--out", tmp_path / "run", "--note", "two cores"]
    assert main([*command, "--reading", *reading]) == 0
    result = read_suite(tmp_path / "run" / "suite.json")
    assert (result.reading, result.note) == ({"chunk_size": 100, "template": "short"}, "two cores")
    parts = [tmp_path / "run" / part / "episodes.jsonl" for part in ("short-needles", "Sokoban")]
    needles, sokoban = (json.loads(part.read_text().splitlines()[0])["turns"][0] for part in parts)
    assert needles["observation"].startswith("Text:\n")
    assert not sokoban["observation"].startswith("Text:\n")


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        ("chunk_size=301", "chunk_size must be at most 300 in short needles, got 301"),
        ("max_memory=1025", "max_memory must be at most 1024 in short needles, got 1025"),
        ("chunk_size=many", "chunk_size of MemNIAH-v0 must be a whole number, at least 1, got 'many'"),
        ("tasks=mine", "the suite fixes tasks"),
    ],
)
def test_reading_in_a_way_that_the_suite_does_not_allow_is_refused(reading, said, tmp_path, capsys):
    assert main(["small", "--policy", "lexical", "--out", tmp_path / "run", "--reading", reading]) == 2
    assert said in capsys.readouterr().err


def test_results_of_a_suite_are_compared_part_by_part(tmp_path, capsys):
    for policy in ("gold", "silent"):
        assert main(["small", "--policy", policy, "--out", tmp_path / policy]) == 0
    folders = [tmp_path / "silent", tmp_path / "gold"]
    compared = compare_parts(folders)
    assert [*compared] == ["short needles", "Sokoban"]
    assert [(row.metric, row.difference.mean) for row in compared["Sokoban"].differences] == [
        ("success", 1.0)
    ]
    (row,) = compare_parts(folders[::-1], metrics=["turns"])["short needles"].differences
    assert row.run.startswith("silent")
    capsys.readouterr()
    assert compare([*folders, "--out", tmp_path / "compared"]) == 0
    assert "## Sokoban\n" in capsys.readouterr().out
    assert (tmp_path / "compared" / "short-needles" / "comparison.md").exists()


def test_results_of_different_suites_are_refused(tmp_path, capsys):
    for name, version in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        result = SuiteResult("small", version, "gold", 1, "2026-01-01", "0.1.0", {})
        write_json(tmp_path / name / "suite.json", asdict(result))
    assert compare([tmp_path / "a", tmp_path / "b"]) == 2
    assert "version 2" in capsys.readouterr().err


@pytest.mark.parametrize("lacking", ["a", "b"])
def test_a_result_that_lacks_a_part_is_refused(lacking, tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        parts = {"search": PartScore("em", 0.5, 0.3, 0.7, 20, 0)} if name != lacking else {}
        result = SuiteResult("small", 2, "gold", 1, "2026-01-01", "0.1.0", parts)
        write_json(tmp_path / name / "suite.json", asdict(result))
    assert compare([tmp_path / "a", tmp_path / "b"]) == 2
    assert "one result lacks search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hotpotqa", "--policy", "gold"], "give --source FILE"),
        (["small"], "--policy"),
        (["small", "--policy", "gold", "--source", "tasks.json"], "needs no file, got --source tasks.json"),
        (["large", "--policy", "gold"], "large"),
        (["small", "--policy", "lexica"], "no policy 'lexica'; did you mean lexical?"),
    ],
)
def test_what_a_suite_cannot_be_played_with_is_refused(arguments, said, tmp_path, capsys):
    assert main([*arguments, "--out", tmp_path / "run"]) == 2
    assert said in capsys.readouterr().err
