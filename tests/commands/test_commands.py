"""`memenvs COMMAND`: the overview, how options are parsed, errors, and the list."""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import command_line
import pytest
from command_line import listing
from pages import ROOT, run_commands

import memenvs
from memenvs.baselines.flags import read_args
from memenvs.commands import COMMANDS, CommandGroup, main
from memenvs.core.arguments import parse, run_command
from memenvs.rollout.names import POLICIES
from memenvs.rollout.scripted import make_policy
from memenvs.tasks.metrics import METRICS
from memenvs.wrappers.names import METHODS, SCORERS

HEAVY = ("torch", "transformers", "faiss", "vllm")


def run(*arguments, module="memenvs"):
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["evaluate"], ["train", "-h"]])
def test_the_overview_shows_commands_with_examples(arguments, capsys):
    assert main(arguments) == 0
    command = " ".join(["memenvs", *(word for word in arguments if word[0] != "-")])
    assert f"{command} COMMAND" in capsys.readouterr().out


def every_command(commands=COMMANDS, before=()):
    """The words of each command and group, the overview first."""
    yield before
    for name, entry in commands.items():
        if isinstance(entry, CommandGroup):
            yield from every_command(entry.commands, (*before, name))
        else:
            yield (*before, name)


def examples(words, width, capsys, monkeypatch):
    """The example commands in a help, as a shell reads them when they are pasted, and the help."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert command_line.run(" ".join(words), ["--help"]) == 0
    page = capsys.readouterr().out
    _, _, block = re.sub(r"\\\n", "", page).partition(
        "xamples:\n" if "xamples:\n" in page else "begin with:\n"
    )
    lines = itertools.takewhile(str.strip, block.splitlines())
    return [shlex.split(line) for line in lines], page


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_every_example_of_a_help_can_be_pasted_at_any_width_and_is_read(words, capsys, monkeypatch):
    whole, _ = examples(words, 400, capsys, monkeypatch)
    for width in (80, 60):
        pasted, page = examples(words, width, capsys, monkeypatch)
        assert pasted == whole
        assert max(map(len, page.splitlines()[1:])) <= width  # below the usage, which tyro does not break
    assert whole
    for memenvs_, *command in whole:
        assert memenvs_ == "memenvs"
        assert options_are_read(command, monkeypatch)


def options_are_read(command, monkeypatch):
    """Whether the options of a command are right; it is not run."""

    def read_only(*arguments, **options):
        parse(*arguments, **options)
        sys.exit(0)

    monkeypatch.setattr("memenvs.commands.run_command", read_only)
    monkeypatch.setattr("memenvs.commands.build.parse", read_only)
    learner = "memenvs.baselines.flags.run_learner"
    monkeypatch.setattr(
        learner, lambda kind, prepare, train, argv, name: sys.exit(not read_args(kind, argv, name))
    )
    with pytest.raises(SystemExit) as end:
        main(command)
    return not end.value.code


@pytest.mark.parametrize("command", ["evalute", "train grop", "build wrold"])
def test_an_unknown_command_is_answered_by_the_closest_one(command, capsys):
    assert main(command.split()) == 2
    meant = {"evalute": "evaluate", "grop": "grpo", "wrold": "world"}[command.split()[-1]]
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_the_module_is_the_console_script():
    done = run("play", "--env", "MemSokoban-v0", "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "return 11.9; success 1," in done.stdout


REPLY = "def reply(observation, info):\n    return 'hello'\n"
PLAY = ("play", "--env", "MemToolQA-v0", "--policy", "mine:reply")
SCRIPT = "from memenvs.commands import console; console()"  # the installed one


@pytest.mark.parametrize("flag", ["", "-P"])
@pytest.mark.parametrize("form", ["script", "module"])
def test_a_module_of_the_working_directory_is_found_last_and_only_by_its_name(flag, form, tmp_path):
    if flag and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    (tmp_path / "mine.py").write_text(REPLY)
    for library in ("tyro", "bm25s", "difflib"):
        (tmp_path / f"{library}.py").write_text("raise SystemExit('a file of the working directory ran')")
    start = ["-m", "memenvs"]
    if form == "script":
        script = tmp_path / "bin" / "memenvs"
        script.parent.mkdir()
        script.write_text(SCRIPT)
        start = [str(script)]
    else:
        (tmp_path / "difflib.py").unlink()  # memenvs itself imports it, before it can look at the path
    command = [sys.executable, *([flag] if flag else []), *start, *PLAY]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "ran" not in done.stderr
    if flag:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "'mine:reply'" in done.stderr
    else:
        assert done.returncode == 0
        assert "hello" in done.stdout


MINE = """
from dataclasses import dataclass

import gymnasium as gym
from memenvs.wrappers import RewardMethod

gym.register("Mine-v0", "memenvs.sokoban.environments:SokobanEnv")


def reply(observation, info):
    return "<answer>Up</answer>"


@dataclass
class Pay(RewardMethod):
    name = "pay"

    def signal(self, turn, scores):
        return 0.25
"""


def test_the_installed_script_finds_a_module_of_the_working_folder(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    run_commands(
        "$ memenvs play --env mine:Mine-v0 --policy mine:reply --methods mine:Pay", tmp_path, in_process=False
    )


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"memenvs {memenvs.__version__}\n"


SHELLS = {
    "bash": ("memenvs.bash", "source memenvs.bash", "bash --norc -i"),
    "zsh": (".zfunc/_memenvs", "fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit", "zsh -f -i"),
    "fish": (".config/fish/completions/memenvs.fish", "", "fish -i"),
}
"""By name: where its script is in the home folder, what is typed first, and the command that starts it."""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_options_and_files(shell, capsys, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    place, setup, command = SHELLS[shell]
    assert main(["completion", shell]) == 0
    script = tmp_path / place
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(capsys.readouterr().out)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first run.jsonl").touch()
    # a function of the same name writes down what each completed line gives it
    function = """memenvs() { printf '%s ' "$@" >> called; echo >> called; }"""
    if shell == "fish":
        function = "function memenvs; echo $argv >> called; end"
    typed = {
        "eval": "evaluate",
        "evaluate comp": "evaluate compare",
        "evaluate run --conc": "evaluate run --concurrency",
        "evaluate by hops runs/f": "evaluate by hops runs/first run.jsonl",
        "evaluate table --format lat": "evaluate table --format latex",
        "build texts --out ru": "build texts --out runs",
        "train grpo --group-s": "train grpo --group-size",
        "view ru": "view runs",
    }
    lines = [setup, function, *(f"memenvs {words}\t" for words in typed), "exit"]
    subprocess.run(
        [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *command.split()],
        input="\n".join([*lines, ""]).encode(),
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
    )
    # zsh takes back the slash of a folder
    called = (tmp_path / "called").read_text().splitlines()
    assert [line.rstrip(" /") for line in called] == [*typed.values()]


def test_the_list_can_be_read_by_programs(capsys):
    assert listing(["--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert {"MemChunkQA-v0", "TAMTRL", "em", "gold"} <= {entry["name"] for entry in entries}
    assert listing(["metrics", "--json"]) == 0
    assert {entry["kind"] for entry in json.loads(capsys.readouterr().out)} == {"metric"}
    assert listing(["MemSokoban-v0", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["arguments"]["max_actions"] == 3


def test_the_module_of_the_builders_is_the_command_build():
    assert run("--help", module="memenvs.build").stdout == run("build", "--help").stdout != ""


@pytest.mark.parametrize("words", [["--help"], ["list"], ["build", "world", "--help"]])
def test_help_and_the_list_load_no_heavy_library(words):
    code = "import atexit, sys; from memenvs.commands import main; atexit.register(lambda: sys.stderr.write("
    code += f"str([m for m in {HEAVY} if m in sys.modules]))); main({words})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]"


@pytest.mark.parametrize(
    "command", ["", "train sft --help", "build index --help", "play --env MemSokoban-v0 --seed 3"]
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

    Args:
        group: A group.
        size: the size.
        kind: the kind.
        status: the exit status.
    """
    if size < 1:
        raise ValueError(f"size must be\nat least 1, got {size}")
    return status


def test_options_are_the_arguments_of_the_function():
    words = ["--size", "4", "--env-args", "k=3", "tasks=a", '{"turns": null}']
    options = parse(command, words, "command").keywords
    assert options["group"] == Group({"k": 3, "tasks": "a", "turns": None})
    assert (options["size"], options["kind"], options["status"]) == (4, "a", None)


@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--status", "1"], 1)])
def test_a_command_ends_with_the_status_that_it_returns(arguments, status):
    assert run_command(command, arguments, "command") == status


@pytest.mark.parametrize("words", [["--size", "0"], ["--size", "2", "--size", "3"]])
def test_an_error_of_the_user_is_one_line_and_the_status_2(words, capsys):
    assert run_command(command, words, "command") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("command: error: ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--size", "two"], "--size"),
        (["--size"], "--size"),
        (["--sise", "2"], "--size"),
        (["--kind", "c"], "--kind"),
        (["--env-args", "k"], "NAME=VALUE"),
        (["--env-args", "k=1", "k=2"], "twice"),
        (["more"], "more"),
    ],
)
def test_options_that_cannot_be_read_are_named_with_the_status_2(words, named, capsys):
    with pytest.raises(SystemExit) as end:
        run_command(command, words, "command")
    assert end.value.code == 2
    assert named in capsys.readouterr().err


def test_an_option_that_is_missing_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "retriever"])
    assert "--index" in capsys.readouterr().err


def test_an_error_of_the_program_itself_is_no_line():
    def broken():
        raise KeyError("k")

    with pytest.raises(KeyError):
        run_command(broken, [], "command")


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("--env MemSokoban-v0 --policy gpt-4o", "openai:URL --model NAME"),
        ("--env MemChunkQA-v0 --env-args tasks=hotpotqa", "memenvs build"),
        ("--env KeyDoor-v0", "package:KeyDoor-v0"),
    ],
)
def test_an_unknown_name_is_answered_by_what_to_write(words, helps, capsys):
    assert main(["play", *words.split()]) == 2
    assert helps in capsys.readouterr().err


# The list.


def test_the_list_has_everything_that_is_chosen_by_name(capsys):
    assert listing([]) == 0
    names = set(capsys.readouterr().out.split())
    wanted = {*memenvs.ENV_IDS, "MemSokobanGrid-v0", *METRICS, *METHODS, *SCORERS, *POLICIES}
    assert wanted | {"world-train", "world-test", "niah", "sokoban_6x6_1box", "hf:MODEL"} <= names


@pytest.mark.parametrize(
    ("group", "wanted"),
    [
        ("environments", "chunk_size=5000"),
        ("task set", "niah "),
        ("Rewards", "search_cost=0.1"),
        ("scorer", "model=…"),
    ],
)
def test_a_group_of_the_list_has_defaults_and_nothing_of_others(group, wanted, capsys):
    assert listing([group]) == 0
    shown = capsys.readouterr().out
    assert wanted in shown
    assert "random_text" not in shown


@pytest.mark.parametrize(("name", "meant"), [("environmets", "environments"), ("TAMTL", "TAMTRL")])
def test_an_unknown_entry_is_answered_by_the_closest_one(name, meant, capsys):
    assert listing([name]) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("memchunkqa-V0", "n_documents=null                  a whole number, at least 1, or null\n"),
        ("memchunkqa-V0", "\nObservation:\n"),
        ("MemNIAH-v0", "\n    max_memory: "),  # of the class that it extends
        ("lexical", "lexical, scorer\n"),
        ("lexical", "\nlexical, policy\n"),
        ("CartPole-v1", "sutton_barto_reward=false         true or false"),
    ],
)
def test_one_thing_is_shown_whole_by_its_name(name, wanted, capsys):
    assert listing([name]) == 0
    assert wanted in capsys.readouterr().out


def test_every_key_of_the_privileged_information_is_listed_on_its_own_line(capsys):
    assert main(["list", "MemSearchQA-v0"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    listed = [line for line in lines if line.startswith("- `")]
    assert [line for line in lines if " - `" in line] == []
    assert any(line.startswith("- `prompt_with_history`") for line in listed)


def test_every_policy_of_the_list_can_be_made():
    env = memenvs.envs.chunk_qa.ChunkQAEnv(tasks="world-test", n_documents=4)
    assert all(make_policy(name, env) for name in POLICIES)


@pytest.mark.parametrize("place", ["file", "file/run"])
@pytest.mark.parametrize(
    "command",
    [
        "evaluate run --env MemSokoban-v0 --policy gold --task 0:1 --out",
        "build world --num-tasks 2 --documents 10 --entities 40 --out",
    ],
)
def test_a_file_where_a_folder_is_needed_stays_and_is_named(command, place, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main([*command.split(), str(tmp_path / place)]) == 2
    line = capsys.readouterr().err
    assert f"{tmp_path}/file" in line
    assert "another" in line  # what to do
    assert line.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"
