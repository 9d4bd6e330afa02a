"""`python -m memenvs`: the overview, the commands behind it, and the list of what there is."""

import re
import subprocess
import sys

import pytest

import memenvs
from memenvs import list as listing
from memenvs.__main__ import COMMANDS, main
from memenvs.rollout.scripted import POLICIES, make_policy
from memenvs.tasks.metrics import METRICS
from memenvs.wrappers.registry import METHODS, SCORERS


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "memenvs", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_overview_shows_every_command_with_an_example(arguments, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert all(f"python -m memenvs {name} {example}\n" in shown for name, (_, example) in COMMANDS.items())


def test_an_unknown_command_is_answered_by_the_closest_ones():
    done = run("evalute")
    assert done.returncode == 2
    assert done.stderr.startswith("memenvs: error: no command 'evalute'; its commands: evaluate run, ")
    assert done.stderr.count("\n") == 1


def test_evaluate_alone_is_answered_by_its_commands(capsys):
    assert main(["evaluate"]) == 2
    said = capsys.readouterr().err
    known = "evaluate run, evaluate compare, evaluate table"
    assert said == f"memenvs: error: no command 'evaluate'; give one of {known}\n"


def test_a_command_is_the_module_of_its_name():
    done = run("play", "MemSokoban-v0", "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "return 11.9; success 1," in done.stdout


def test_a_command_ends_with_its_own_status():
    done = run("play", "Nothing-v0")
    assert done.returncode == 2
    assert done.stderr.startswith("memenvs play: error: ")


@pytest.mark.parametrize(
    "name",
    [
        *("list", "play", "evaluate run", "evaluate compare", "evaluate table"),
        *("build", "retrieval.server", "adapters.openenv"),
    ],
)
def test_every_command_has_help(name):
    done = run(*name.split(), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: python -m memenvs")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        *("play", "play X --nope", "list a b", "build", "build world --nope", "retrieval.server"),
        *("evaluate run", "evaluate run --env X --policy gold --tasks 0:5"),
        *("evaluate compare", "evaluate compare a b --nope"),
        *("evaluate table", "evaluate table nope runs/a"),
    ],
)
def test_options_that_there_are_not_are_one_line(command):
    done = run(*command.split())
    assert done.returncode == 2
    assert re.match(rf"memenvs {command.split()[0]}[a-z ]*: error: ", done.stderr)
    assert done.stderr.count("\n") == 1


def test_a_command_whose_extra_is_not_installed_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "memenvs.adapters.openenv", None)
    assert main(["adapters.openenv", "--env", "MemSokoban-v0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("memenvs adapters.openenv: error: ")


@pytest.mark.parametrize("command", ["", "list", "build --help", "play --help", "baselines.sft --help"])
def test_a_command_whose_output_is_not_read_to_its_end_says_nothing(command):
    if command.startswith("baselines"):
        pytest.importorskip("tyro", reason="the learners' flags want the extra train")
    command = [sys.executable, "-m", "memenvs", *command.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


def test_an_unknown_policy_is_answered_by_every_form_of_one(capsys):
    assert main("play MemSokoban-v0 --policy gpt-4o".split()) == 2
    said = capsys.readouterr().err
    assert said == (
        "memenvs play: error: unknown policy 'gpt-4o'; choose one of gold, silent, random_text, "
        "or a model: hf:MODEL, openai:URL --model NAME\n"
    )


def test_the_name_of_a_source_as_a_task_set_is_answered_by_the_command_that_builds_it(capsys):
    assert main("play MemChunkQA-v0 --env-args tasks=hotpotqa".split()) == 2
    said = capsys.readouterr().err
    assert "no task set named 'hotpotqa'; there are niah, " in said
    assert "`python -m memenvs.build hotpotqa`" in said
    assert ".npz" not in said
    assert "smollm2" not in said


def test_an_unregistered_environment_is_answered_by_how_to_name_one_of_a_package(capsys):
    assert main("play KeyDoor-v0".split()) == 2
    assert "needs its module: package:KeyDoor-v0" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_help_of_evaluate_shows_its_commands(flag, capsys):
    assert main(["evaluate", flag]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "  evaluate run           average every metric of a policy" in shown.out
    assert "  evaluate compare       compare policies" in shown.out


def test_the_list_has_everything_that_is_chosen_by_name(capsys):
    assert listing.main([]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    wanted = {*memenvs.ENV_IDS, "MemSokobanGrid-v0", *METRICS, *METHODS, *SCORERS, *POLICIES}
    assert wanted | {"world-train", "world-test", "niah", "sokoban_6x6_1box", "hf:MODEL"} <= shown


def test_the_list_shows_arguments_with_their_defaults(capsys):
    listing.main([])
    shown = capsys.readouterr().out
    for argument in (
        "chunk_size=5000",
        "tasks=niah",
        "search_cost=0.1",
        "present=-0.5",
        "model=…",
    ):
        assert argument in shown


def test_one_thing_is_shown_whole_by_its_name_in_any_case(capsys):
    assert listing.main(["memchunkqa-V0"]) == 0
    shown = capsys.readouterr().out
    assert "n_documents=null                  a whole number, at least 1, or null\n" in shown
    assert "\nObservation:\n" in shown


def test_a_name_of_two_things_shows_both(capsys):
    assert listing.main(["lexical"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("lexical, scorer\n")
    assert "\nlexical, policy\n" in shown


def test_an_environment_of_others_is_shown_too(capsys):
    assert listing.main(["CartPole-v1"]) == 0
    assert "sutton_barto_reward=false         true or false" in capsys.readouterr().out


def test_an_unknown_name_is_answered_by_the_closest_ones(capsys):
    assert listing.main(["TAMTL"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there are TAMTRL, " in line


def test_every_policy_of_the_list_can_be_made():
    env = memenvs.envs.chunk_qa.ChunkQAEnv(tasks="world-test", n_documents=4)
    assert all(make_policy(name, env) for name in POLICIES)
