"""What a learner's command line refuses before loading anything, and its message without torch."""

import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

import memenvs
from memenvs.baselines import grpo
from memenvs.baselines.advantages import read_comparison
from memenvs.baselines.args import GRPOArgs
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import run_learner
from memenvs.commands import main


def refusal(learner, flags, tmp_path, capsys):
    """The one line that a learner says; its model is nowhere, so that it cannot have been looked for."""
    out = str(tmp_path / "run")
    assert learn([learner, "--model", "nowhere", "--env", "MemSokoban-v0", "--out", out, *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("learner", "flags", "named"),
    [
        ("grpo", "--kl-coef nan", "kl_coef"),
        ("grpo", "--dual-clip 0.5", "dual_clip"),
        ("grpo", "--reward rememr1 --reward-args estimator=rloo", "estimator"),
        ("grpo", "--reward outcome --reward-args ended=skip", "ended"),
        ("grpo", "--reward outcome --reward-args scale=no", "scale of reward outcome"),
        ("grpo", "--reward tamtrll", "tamtrll"),
        ("grpo", "--reward infomem --reward-args betta=1", "betta"),
        ("grpo", "--tree-turns 1", "tree_turns"),
        ("grpo", "--reward turn --tree-turns 9", "budget"),
        ("grpo", "--reward turn --tree-turns 1 --methods Continuations", "continuations pays in hindsight"),
        ("grpo", "--methods Continuations n=2", "--reward outcome learns nothing from Continuations"),
        ("mt_ppo", "--reward outcome --methods Continuations", "give --reward turn"),
        ("grpo", "--loss-mode gspo --dual-clip 3", "got gspo; give --dual-clip None"),
        ("grpo", "--reward turn --tree-turns 1 --methods GiGPO", "gigpo pays in hindsight"),
        ("grpo", "--reward merged --reward-args normalize=components scale=none", "scale"),
        ("grpo", "--group-size 1", "group_size"),
        ("grpo", "--overlong 8 9", "overlong"),
        ("grpo", "--group-size 1 --reward-args estimator=reinforce --dynamic-sampling 1", "dynamic_sampling"),
        ("grpo", '--methods ["Nobody"]', "Nobody"),
        ("grpo", "--env MemSearchQA-v0 --env-args template=no.txt", "'no.txt' does not exist"),
        ("grpo", "--system-prompt no.txt", "'no.txt' does not exist"),
        ("sft", "--adamw beta=0.9", "beta"),
        ("mt_ppo", "--steps 10 --critic-warmup 10", "critic_warmup"),
        ("grpo", "--steps 10 --kl-coef 0.1 --ref-sync-steps 11", "ref_sync_steps"),
        ("grpo", "--clip 1 inf", "clip"),
        ("mt_ppo", "--turn-gamma 0.9 --gae turn", "turn_gamma is for gae both"),
        ("mt_ppo", "--kl-in reward", "kl_in reward has no effect"),
        ("mt_ppo", "--kl-estimator k2 --kl-coef 0.1 --kl-in reward", "leave --kl-in reward out"),
        ("grpo", "--kl-estimator k2", "kl_estimator k2 is for a divergence in the loss"),
        ("distill", "--view student", "teacher-model"),
        ("distill", "--rollouts teacher --vllm", "vllm"),
    ],
)
def test_wrong_flags_are_one_line_before_a_model_is_looked_for(learner, flags, named, tmp_path, capsys):
    assert named in refusal(learner, flags.split(), tmp_path, capsys)


def test_a_learner_without_a_model_asks_for_a_model(capsys):
    assert learn(["grpo", "--env", "MemSokoban-v0"]) == 2
    assert "no model is given; add --model" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--gpus", "--nodes", "--merge"])
def test_a_flag_of_another_engine_is_refused_instead_of_ignored(flag, tmp_path, capsys):
    line = refusal("grpo", ["--model", "nowhere", flag, "2"], tmp_path, capsys)
    assert f"{flag} is for --engine verl" in line


@pytest.mark.parametrize("learner", ["grpo", "mt_ppo", "sft", "distill"])
def test_a_command_line_without_an_environment_is_refused(learner, tmp_path, capsys):
    assert learn([learner, "--model", "nowhere", "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--env" in line


@pytest.mark.parametrize(
    ("learner", "own"),
    [("grpo", "grpo"), ("mt_ppo", "mtppo"), ("sft", "sft"), ("distill", "distill"), ("prm", "prm")],
)
def test_help_shows_what_matters_and_the_learners_own_flags_before_all_others(learner, own, capsys):
    own_first, others = ("--model ", "--out ", f" {own} options"), (" train options", "--lr-end")
    for word, shows_all in (("--help", False), ("--help-all", True)):
        with pytest.raises(SystemExit) as end:
            learn([learner, word])
        shown = capsys.readouterr().out
        assert end.value.code == 0
        assert all((text in shown) == shows_all for text in others)
        places = [shown.index(text) for text in (*own_first, *(others if shows_all else ()))]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("reward", "settings", "own", "compared"),
    [
        ("GiGPO", {"scale": "none", "omega": 0.5}, {"scale": "none", "omega": 0.5}, {"scale": "none"}),
        ("infomem", {"normalize": False}, {"normalize": False}, {"normalize": "sum"}),
        ("infomem", {"normalize": "components"}, {"normalize": True}, {"normalize": "components"}),
        ("REMEMR1", {"scale": "none", "alpha": 0.5}, {"alpha": 0.5}, {"scale": "none"}),
    ],
)
def test_a_setting_reaches_the_method_or_the_comparison_that_takes_its_value(reward, settings, own, compared):
    method, how = read_comparison(reward, **settings)
    assert {name: getattr(method, name) for name in own} == own
    assert {name: getattr(how, name) for name in compared} == compared


def test_a_model_that_cannot_be_read_is_one_line(tmp_path, capsys, monkeypatch):
    def fail(*args, **settings):
        raise OSError("no connection\nis the network up?")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    line = refusal("sft", ["--model", str(tmp_path / "model")], tmp_path, capsys)
    assert "(no connection is the network up?)" in line


@pytest.fixture
def unreachable(monkeypatch):
    """The requests to a hub that cannot be reached, which transformers would ask again and again."""
    requests = []

    def refuse(_api, name, timeout):
        requests.append(name)
        raise ConnectionError("no route")

    def ask_again(name, **settings):
        raise AssertionError(f"transformers looked for {name}")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", ask_again)
    return requests


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("nowhere", ["nowhere"]),
        ("Qwen/Qwen3-0.7B", ["Qwen/Qwen3-0.7B"]),
        ("./modell", []),
        ("runs/a/last", []),
    ],
)
def test_a_model_that_is_nowhere_costs_one_request_at_most(name, requests, unreachable, tmp_path, capsys):
    assert repr(name) in refusal("sft", ["--model", name], tmp_path, capsys)
    assert unreachable == requests


def test_a_flag_that_is_newer_than_a_run_had_its_default_there():
    begun = grpo.GRPOArgs().plain()
    del begun["tree_turns"]
    grpo.GRPOArgs().check_begun(begun)
    with pytest.raises(ValueError, match="tree_turns 0, now 2"):
        grpo.GRPOArgs(tree_turns=2).check_begun(begun)


def without_torch(monkeypatch):
    """As in a process without torch, which has imported no module that needs it."""
    for room in ("baselines", "models"):
        # the import sets the attribute to a new module, which would stay after the test
        monkeypatch.setattr(memenvs, room, getattr(memenvs, room))
    for name in [name for name in sys.modules if name.startswith(("memenvs.baselines", "memenvs.models"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)


def test_ctrl_c_names_the_command_that_resumes(tmp_path, capsys):
    def train(run, args):
        raise KeyboardInterrupt

    flags = ["--model", "nowhere", "--env", "MemSokoban-v0", "--out", str(tmp_path / "run")]
    assert run_learner(GRPOArgs, lambda args: None, train, flags, "grpo") == 130
    assert f"`memenvs train --resume --out {tmp_path / 'run'}`" in capsys.readouterr().err


@pytest.mark.parametrize("learner", ["grpo", "mt_ppo", "sft", "distill", "prm"])
def test_a_learner_without_torch_is_one_line_that_names_the_extra(learner, monkeypatch, capsys):
    without_torch(monkeypatch)
    assert (
        main(["train", learner, "--model", "m", *([] if learner == "prm" else ["--env", "MemSokoban-v0"])])
        == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert "train]" in line


@pytest.mark.parametrize(
    ("flags", "status", "named"),
    [
        (["--help"], 0, "--reward"),
        (["--no-such", "1"], 2, "--no-such"),
        (["--model", "nowhere", "--env", "MemSokobn-v0"], 2, "did you mean MemSokoban-v0?"),
        (["--model", "nowhere", "--env", "MemSokoban-v0", "--env-args", "max_turnz=2"], 2, "max_turns?"),
        (["--model", "nowhere", "--env", "MemSokoban-v0", "--reward", "tamtl"], 2, "did you mean tamtrl?"),
        (["--model", "nowhere", "--env", "MemSokoban-v0", "--group-size", "1"], 2, "group_size"),
    ],
)
def test_help_and_wrong_flags_need_no_torch(flags, status, named, monkeypatch, capsys):
    without_torch(monkeypatch)
    try:
        ended = main(["train", "grpo", *flags])
    except SystemExit as end:  # of tyro
        ended = end.code
    output = capsys.readouterr()
    assert (ended, named in output.out + output.err) == (status, True)
