"""The flags of a run: read again from its folder, and the command that a run prints for its evaluation."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

from build_command import command

from memenvs.baselines import grpo
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import read_args
from memenvs.baselines.rollout import evaluation_args
from memenvs.core.arguments import REQUIRED

FLAGS = [
    *("--model", "some model", "--env", "MemToolQA-v0", "--env-args", "tasks=world-test", "result=false"),
    *(
        "--reward",
        "merged",
        "--reward-args",
        "scale=none",
        "--clip",
        "0.2",
        "0.28",
        "--stop",
        "</answer>",
        " x",
    ),
    *("--track", "--gradient-checkpointing", "--adamw", "betas=[0.9,0.95]", "--lr", "1e-05", "--vllm", "{}"),
    *("--methods", '[["SearchRewards", {}]]', "--steps", "7"),
]


@pytest.fixture
def run(tmp_path):
    """The folder of a run with `FLAGS`."""
    args = grpo_args([*FLAGS, "--out", str(tmp_path / "run")])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "args.json").write_text(json.dumps({"learner": "grpo", **args.plain()}))
    return tmp_path / "run"


def grpo_args(argv):
    return read_args(grpo.GRPOArgs, argv, "memenvs train grpo")


def differences(one, other):
    return {name for name, value in one.plain().items() if other.plain()[name] != value}


def test_a_run_resumes_with_its_own_flags(run):
    began = grpo_args([*FLAGS, "--out", str(run)])
    assert differences(began, grpo_args(["--resume", "--out", str(run)])) == {"resume"}
    longer = grpo_args([f"--out={run}", "--steps", "9", "--resume"])
    assert (longer.steps, longer.lr, longer.clip) == (9, 1e-5, (0.2, 0.28))


def test_the_flags_of_a_run_are_a_recipe_for_another(run, tmp_path):
    began = grpo_args([*FLAGS, "--out", str(run)])
    other = grpo_args(["--recipe", str(run / "args.json"), "--out", str(tmp_path / "other"), "--seed", "3"])
    assert differences(began, other) == {"recipe", "out", "seed"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no file"),
        ("{}", "got None"),
        ("[1]", "args.json"),
        ('{"learner": "grpo", "lrr": 1}', "lrr"),
        ('{"learner": "mt_ppo"}', "a run of 'mt_ppo'"),
    ],
)
def test_a_file_that_has_no_flags_of_the_learner_is_one_line(run, capsys, content, said):
    file = run / "args.json"
    file.unlink() if content is None else file.write_text(content)
    assert learn(["grpo", "--recipe", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_another_learner_does_not_resume_a_run(run, capsys):
    assert learn(["mt_ppo", "--resume", "--out", str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a run of 'grpo'" in line


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """A working directory with the sets `held` and `held-holdout`, and `whole` without such a one."""
    monkeypatch.chdir(tmp_path)
    shared = ("world", "--entities", 60, "--documents", 6, "--num-tasks", 4)
    assert command(*shared, "--holdout", 2, "--out", "held") == 0
    assert command(*shared, "--out", "whole") == 0


@pytest.mark.parametrize(
    ("env", "trained", "evaluated", "wanted"),
    [
        ("MemChunkQA-v0", {}, {}, {"tasks": "world-test"}),
        ("MemChunkQA-v0", {"tasks": "held", "chunk_size": 9}, {}, {"tasks": "held-holdout", "chunk_size": 9}),
        ("MemChunkQA-v0", {"tasks": "./held/"}, {}, {"tasks": "./held-holdout"}),
        ("MemChunkQA-v0", {"tasks": "whole"}, {}, {"tasks": REQUIRED}),
        ("MemChunkQA-v0", {"tasks": "whole"}, {"tasks": "mine"}, {"tasks": "mine"}),
        ("MemSokoban-v0", {"max_turns": 2}, {}, {"max_turns": 2, "level_split": "test"}),
        ("MemSokoban-v0", {"levels": "mine.txt"}, {}, {"levels": REQUIRED}),
    ],
)
def test_a_trained_model_is_evaluated_on_other_tasks(sets, env, trained, evaluated, wanted):
    assert evaluation_args(env, trained, evaluated) == {**trained, **wanted}


def test_a_run_records_the_texts_of_prompts_and_its_file_is_read_again(tmp_path):
    ask, judge, system = (tmp_path / f"{name}.txt" for name in ("ask", "judge", "system"))
    ask.write_text("{question}")
    judge.write_text("{answer}")
    system.write_text("Be brief.\n")
    flags = [
        *("--model", "m", "--env", "MemSearchQA-v0", "--env-args", f"template={ask}", "--out", str(tmp_path)),
        *("--methods", "Judge", "url=http://127.0.0.1:1/v1", "model=j", f"template={judge}"),
        *("--system-prompt", str(system)),
    ]
    args = grpo_args(flags)
    before = args.plain()
    assert before["prompts"].keys() == {"env_args", "methods.Judge", "system_prompt"}
    assert args.chat_settings.system_prompt == "Be brief."
    judge.write_text("Right? {answer}")
    after = grpo_args(flags).plain()
    assert [name for name, value in after["prompts"].items() if before["prompts"][name] != value] == [
        "methods.Judge"
    ]
    (tmp_path / "args.json").write_text(json.dumps({"learner": "grpo", **after}))
    assert grpo_args(["--resume", "--out", str(tmp_path)]).plain()["prompts"] == after["prompts"]


def test_the_flags_of_a_run_are_written_without_secrets_and_must_be_given_again(tmp_path):
    address = "http://me:hidden@127.0.0.1:9/?t=hidden"
    methods = ["Judge", f"url={address}", "model=m", "rubric=general"]
    flags = ["--model", "m", "--env", "MemSearchQA-v0", "--env-args", f"retriever={address}"]
    began = grpo_args([*flags, "--methods", *methods, "--out", str(tmp_path)])
    began.check()
    assert "hidden" not in json.dumps(began.plain())
    (tmp_path / "args.json").write_text(json.dumps({"learner": "grpo", **began.plain()}))
    with pytest.raises(ValueError, match="without its secrets"):
        grpo_args(["--resume", "--out", str(tmp_path)]).check()
    again = grpo_args(
        ["--resume", "--out", str(tmp_path), "--env-args", f"retriever={address}", "--methods", *methods]
    )
    again.check()
    assert again.env_args == {"retriever": address}
