"""`memenvs new` writes the environment of the tutorial, whose environments pass the conformance tests."""

import subprocess
import sys

import gymnasium as gym
import pytest
from pages import DOCS, FILE, blocks, run_commands

from memenvs.commands import main

EXAMPLE = DOCS / "tutorials" / "write_an_environment.md"
FILES = {f"{file[1]}.py": block.body for block in blocks(EXAMPLE) if (file := FILE.match(block.body))}


def run(folder, *arguments):
    return subprocess.run([sys.executable, "-m", *arguments], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("env_id", "skips"), [("hilo:Hilo-v0", True), ("scored_hilo:ScoredHilo-v0", False)])
def test_an_environment_of_the_tutorial_passes_the_conformance_tests(env_id, skips, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace('"hilo:Hilo-v0"', f'"{env_id}"'), encoding="utf-8")
    done = run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "test_hilo.py")
    assert done.returncode == 0, done.stdout
    assert ("skipped" in done.stdout) == skips


def test_what_new_writes_is_what_the_tutorial_shows(tmp_path):
    done = run(tmp_path, "memenvs", "new", "hilo")  # a process of its own, which has imported no hilo
    assert done.returncode == 0, done.stderr
    assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == {
        name: FILES[name] for name in ("hilo.py", "test_hilo.py")
    }


@pytest.mark.parametrize(
    ("name", "env_id", "in_process"),
    [("my_game", "MyGame-v0", True), ("env", "Env-v0", True), ("text", "Text-v0", False)],
)
def test_an_environment_that_was_just_made_is_played(name, env_id, in_process, tmp_path):
    played = f"$ memenvs evaluate run --env {name}:{env_id} --policy random_text --task 0:2"
    run_commands(f"$ memenvs new {name}\n{played}", tmp_path, in_process=in_process)


def test_a_new_environment_passes_its_own_test_and_ruff(folder):
    assert main(["new", "hilo_hilo"]) == 0
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "test_hilo_hilo.py", "-k", "gold or silence")
    assert done.returncode == 0, done.stdout
    for command in ("check", "format --check"):
        done = run(folder, "ruff", *command.split(), "--isolated", "--no-cache", ".")
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name",
    [
        *("my-game", "1game", "class", "_", "_1", "a b", "../game", "gamé", ""),  # not identifiers
        *("numpy", "json", "sys", "__main__", "memenvs"),  # modules
        *("mem_sokoban", "cart_pole"),  # environments
    ],
)
def test_a_name_that_cannot_be_used_gets_one_line_and_no_file(name, folder, capsys):
    registered = dict(gym.registry)
    assert main(["new", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(folder.iterdir())
    assert gym.registry == registered


@pytest.mark.parametrize("file", ["game.py", "test_game.py"])
def test_no_file_is_overwritten_and_none_is_added(file, folder, capsys):
    (folder / file).write_text("mine")
    assert main(["new", "game"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
