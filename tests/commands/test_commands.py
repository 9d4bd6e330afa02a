"""`memenvs COMMAND`: the overview, how options are parsed, one-line errors, and the list."""

import contextlib
import io
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from command_line import listing
from pages import run_commands

import memenvs
from memenvs.commands import main
from memenvs.core.arguments import parse, run_command
from memenvs.core.terminal import RED, RESET, in_columns, show
from memenvs.rollout.scripted import POLICIES, make_policy
from memenvs.tasks.metrics import METRICS
from memenvs.wrappers.registry import METHODS, SCORERS

HEAVY = ("torch", "transformers", "faiss", "vllm")


def run(*arguments, module="memenvs"):
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["evaluate"], ["train", "-h"]])
def test_the_overview_shows_commands_with_examples(arguments, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    command = " ".join(["memenvs", *arguments[: bool(arguments) and arguments[0][0] != "-"]])
    assert shown.startswith(f"usage: {command} COMMAND …\n")
    assert {"memenvs": "memenvs train grpo --model", "memenvs evaluate": "memenvs evaluate run --env"}.get(
        command, "memenvs train sft --model"
    ) in shown


@pytest.mark.parametrize(
    "command", ["evalute", "evaluate rum", "train grop", "build wrold", "serve retriver"]
)
def test_an_unknown_command_is_answered_by_the_closest_one(command, capsys):
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    meant = {"evalute": "evaluate", "rum": "run", "grop": "grpo", "wrold": "world", "retriver": "retriever"}
    assert f" {command.split()[-1]!r}; choose one of {meant[command.split()[-1]]}, " in said
    assert said.count("\n") == 1


def test_the_module_is_the_console_script():
    done = run("play", "--env", "MemSokoban-v0", "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "return 11.9; success 1," in done.stdout


MINE = """
from dataclasses import dataclass

import gymnasium as gym
from memenvs.wrappers import RewardMethod

gym.register("Mine-v0", "memenvs.envs.sokoban:SokobanEnv")


def reply(observation, info):
    return "<answer>Up</answer>"


@dataclass
class Pay(RewardMethod):
    name = "pay"

    def signal(self, turn, scores):
        return 0.25
"""


@pytest.mark.parametrize(
    "options",
    [
        "--env mine:Mine-v0",
        "--env MemSokoban-v0 --policy mine:reply",
        "--env MemSokoban-v0 --methods mine:Pay",
    ],
)
def test_the_installed_script_finds_a_module_of_the_working_folder(options, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    run_commands(f"$ memenvs play {options}", tmp_path)


def test_the_module_of_the_builders_is_the_command_build():
    assert run("--help", module="memenvs.build").stdout == run("build", "--help").stdout != ""


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("list", "NAME"),
        ("play", "--policy"),
        ("view", "--curves"),
        ("evaluate run", "--temperature"),
        ("evaluate compare", "--baseline"),
        ("evaluate table", "--published"),
        ("build world", "--entities"),
        ("build locomo", "--category"),
        ("serve retriever", "--topk"),
        ("serve openenv", "--sessions"),
        ("serve mcp", "--memory-mode"),
        ("package openenv", "--reward-range"),
        ("package verifiers", "--methods"),
        ("train sft", "--teacher"),
    ],
)
def test_every_command_has_help_with_options_and_examples(command, option, capsys):
    with contextlib.suppress(SystemExit):  # of a learner
        assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"usage: memenvs {command}")
    assert option in shown.out
    assert command.startswith("build") or f"\n  memenvs {command} " in shown.out.replace(
        "    memenvs", "  memenvs"
    )


@pytest.mark.parametrize(
    "words", [["--help"], ["list"], ["build", "world", "--help"], ["evaluate", "--help"]]
)
def test_help_and_the_list_load_no_heavy_library(words):
    code = f"import sys; from memenvs.commands import main; main({words})"
    code += f"; sys.stderr.write(str([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]"


@pytest.mark.parametrize(
    "command", ["", "build --help", "train sft --help", "play --env MemSokoban-v0 --seed 3"]
)
def test_a_command_whose_output_is_not_read_to_its_end_says_nothing(command):
    command = [sys.executable, "-m", "memenvs", *command.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


def test_a_command_whose_extra_is_not_installed_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "memenvs.adapters.openenv", None)
    assert main(["serve", "openenv", "--env", "MemSokoban-v0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("memenvs serve openenv: error: ")


# How options are read.


@dataclass
class Group:
    """A group.

    Attributes:
        env_args: by name.
    """

    env_args: dict[str, Any] = field(default_factory=dict)


def command(*, group: Group, size: int = 3, kind: Literal["a", "b"] = "a", status: int | None = None):
    """Do it.

    Examples:
      command --size 3

    Args:
        group: A group.
        size: of it.
        kind: of it.
        status: the exit status.
    """
    if size < 1:
        raise ValueError(f"size must be\nat least 1, got {size}")
    return status


def test_options_are_the_arguments_of_the_function():
    given = parse(
        command, ["--size", "4", "--env-args", "k=3", "tasks=a", '{"turns": null}'], "command"
    ).keywords
    assert given["group"] == Group({"k": 3, "tasks": "a", "turns": None})
    assert (given["size"], given["kind"], given["status"]) == (4, "a", None)


@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--status", "1"], 1), (["--help"], 0)])
def test_a_command_ends_with_the_status_that_it_returns(arguments, status):
    assert run_command(command, arguments, "command") == status


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--size", "0"], "size must be at least 1, got 0"),
        (
            ["--size", "two"],
            "Error parsing --size: invalid literal for int() with base 10: 'two'",
        ),
        (["--size"], "Missing value for argument '--size'"),
        (["--sise", "2"], "--sise, 2; did you mean --size?"),
        (["--kind", "c"], "invalid choice 'c' for argument '--kind'. Expected one of ('a', 'b')"),
        (["--size", "2", "--size", "3"], "--size is given 2 times; give it once"),
        (["--env-args", "k"], "arguments must be NAME=VALUE …, or one JSON object, got 'k'"),
        (["--env-args", "k=1", "k=2"], "k is given twice, 1 and 2"),
        (["more"], "Unrecognized options: more"),
    ],
)
def test_an_error_of_the_command_line_is_one_line_and_the_status_2(arguments, said, capsys):
    assert run_command(command, arguments, "command") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("command: error: ")
    assert said in line


def test_an_option_that_is_missing_is_named(capsys):
    assert main(["serve", "retriever"]) == 2
    assert "error: missing --index STR; `memenvs serve retriever --help`" in capsys.readouterr().err


def test_an_error_of_the_program_itself_is_no_line():
    def broken():
        raise KeyError("k")

    with pytest.raises(KeyError):
        run_command(broken, [], "command")


# What commands say of names.


def test_an_unknown_policy_is_answered_by_every_form_of_one(capsys):
    assert main("play --env MemSokoban-v0 --policy gpt-4o".split()) == 2
    said = capsys.readouterr().err
    assert said == (
        "memenvs play: error: unknown policy 'gpt-4o'; choose one of gold, silent, random_text, "
        "module:function of your own, or a model: hf:MODEL, openai:URL --model NAME\n"
    )


def test_the_name_of_a_source_as_a_task_set_is_answered_by_the_command_that_builds_it(capsys):
    assert main("play --env MemChunkQA-v0 --env-args tasks=hotpotqa".split()) == 2
    said = capsys.readouterr().err
    assert "no task set named 'hotpotqa'; there are niah, " in said
    assert "build hotpotqa`" in said.replace(".build", " build")


def test_an_unregistered_environment_is_answered_by_how_to_name_one_of_a_package(capsys):
    assert main("play --env KeyDoor-v0".split()) == 2
    assert "needs its module: package:KeyDoor-v0" in capsys.readouterr().err


# The list.


def test_the_list_has_everything_that_is_chosen_by_name_with_its_defaults(capsys):
    assert listing([]) == 0
    shown = capsys.readouterr().out
    names = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    wanted = {*memenvs.ENV_IDS, "MemSokobanGrid-v0", *METRICS, *METHODS, *SCORERS, *POLICIES}
    assert wanted | {"world-train", "world-test", "niah", "sokoban_6x6_1box", "hf:MODEL"} <= names
    defaults = (
        "chunk_size=5000",
        "tasks=niah",
        "search_cost=0.1",
        "present=-0.5",
        "model=…",
    )
    assert [one for one in defaults if one not in shown] == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("memchunkqa-V0", "n_documents=null                  a whole number, at least 1, or null\n"),
        ("memchunkqa-V0", "\nObservation:\n"),
        ("MemNIAH-v0", "\n    max_memory: tokens of memory kept"),  # of the class that it extends
        ("lexical", "lexical, scorer\n"),
        ("lexical", "\nlexical, policy\n"),
        ("CartPole-v1", "sutton_barto_reward=false         true or false"),
    ],
)
def test_one_thing_is_shown_whole_by_its_name(name, wanted, capsys):
    assert listing([name]) == 0
    assert wanted in capsys.readouterr().out


def test_an_unknown_name_is_answered_by_the_closest_ones(capsys):
    assert listing(["TAMTL"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "choose one of TAMTRL, " in line


def test_every_policy_of_the_list_can_be_made():
    env = memenvs.envs.chunk_qa.ChunkQAEnv(tasks="world-test", n_documents=4)
    assert all(make_policy(name, env) for name in POLICIES)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_text_is_wrapped_and_coloured_on_a_terminal_and_plain_elsewhere(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = f"  {RED}failed{RESET}: the server did not answer in time\n"
    terminal, file = Terminal(), io.StringIO()
    show(text, terminal)
    show(text, file)
    assert file.getvalue() == "  failed: the server did not answer in time\n"
    assert RED in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    show(text, plain)
    assert plain.getvalue() == "  failed: the server did not\n  answer in time\n"


def test_a_table_that_is_wider_than_the_terminal_is_shown_in_parts():
    rows = [["run", "em", "return"], ["---"] * 3, ["a\\|b", "1.000", "-0.5"]]
    page = "\n".join(["title", "", *(f"| {' | '.join(row)} |" for row in rows)])
    wide, narrow = in_columns(page, 80), in_columns(page, 12)
    assert wide.splitlines() == ["title", "", "run     em  return", "a|b  1.000    -0.5"]
    assert narrow.splitlines()[2:] == ["run     em", "a|b  1.000", "", "run  return", "a|b    -0.5"]


def test_each_part_of_a_wide_table_names_its_rows_also_if_they_are_grouped():
    rows = [["metric", "run", "em"], ["---"] * 3, ["f1", "a", "1.000"], ["", "b", "0.500"]]
    lines = in_columns("\n".join(f"| {' | '.join(row)} |" for row in rows), 14).splitlines()
    assert lines == ["metric  run     em", "f1      a    1.000", "        b    0.500"]
    rows = [[*row, wide] for row, wide in zip(rows, ["f1", "---", "2.000", "3.000"], strict=True)]
    lines = in_columns("\n".join(f"| {' | '.join(row)} |" for row in rows), 18).splitlines()
    assert lines[4:] == ["metric  run     f1", "f1      a    2.000", "        b    3.000"]


def test_the_documentation_of_an_entry_fits_a_narrow_terminal_in_whole_paragraphs(monkeypatch, capsys):
    assert main(["list", "TAMTRL"]) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["list", "TAMTRL"]) == 0
    narrow = capsys.readouterr().out
    assert wide.split() == narrow.split()
    assert max(map(len, narrow.splitlines())) <= 50
    paragraph = next(one for one in narrow.split("\n\n") if one.startswith("The paper takes")).splitlines()
    assert min(map(len, paragraph[:-1])) > 35
