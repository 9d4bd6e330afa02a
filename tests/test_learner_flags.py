"""What a learner's command line refuses, before it loads anything, and what it says without torch."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

from memenvs.baselines import distill, grpo, mt_ppo, sft
from memenvs.models import HFPolicy


def refusal(learner, flags, tmp_path, capsys):
    """The one line that a learner says; its model is nowhere, so that it cannot have been looked for."""
    assert learner.main(["--model", "nowhere", "--out", str(tmp_path / "run"), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("learner", "flags", "message"),
    [
        (grpo, "--kl-coef nan", "kl_coef must be at least 0, got nan"),
        (mt_ppo, "--gamma 1.5", "gamma must be at least 0 and at most 1, got 1.5"),
        (grpo, "--kl-coef 0.1 --kl-estimator k1", "kl_estimator k1 has a mean gradient of 0 as a loss"),
        (
            grpo,
            "--normalize components",
            "reward outcome uses estimator, scale; leave out normalize components",
        ),
        (
            grpo,
            "--reward turn-pool --estimator rloo",
            "reward turn-pool uses no setting; leave out estimator rloo",
        ),
        (grpo, "--reward rememr1 --estimator rloo", "reward rememr1 uses scale; leave out estimator rloo"),
        (grpo, "--reward tamtrl --scale none", "reward tamtrl uses no setting; leave out scale none"),
        (grpo, "--reward tamtrll", "reward must be one of outcome, merged, turn, turn-pool, tamtrl, "),
        (grpo, "--tree-turns 1", "trees are for --reward turn and --estimator grpo, got outcome and grpo"),
        (
            grpo,
            "--reward turn --tree-turns 1 --estimator rloo",
            "trees are for --reward turn and --estimator grpo, got turn and rloo",
        ),
        (grpo, "--reward merged --normalize components --scale none", "leave estimator grpo and scale std"),
        (
            grpo,
            "--reward merged --component-weights format=0.5",
            "component_weights are for normalize components",
        ),
        (
            grpo,
            "--reward merged --normalize components --component-weights format=much",
            "component_weights: format must be a finite number, got 'much'",
        ),
        (grpo, "--steps 10 --lr-warmup 11", "lr_warmup must be at most the 10 steps of the run, got 11"),
        (grpo, "--num-envs 12", "num_envs must be a multiple of group_size 8, got 12"),
        (grpo, "--methods {}", "methods must be a JSON list, got '{}'"),
        (grpo, "--lr-warmup 1.5", "lr_warmup must be a whole number of steps, or a share below 1, got 1.5"),
        (mt_ppo, "--critic-lr-warmup 101", "critic_lr_warmup must be at most the 100 steps"),
        (
            mt_ppo,
            "--kl-in reward --kl-estimator k1",
            "kl_in reward says where kl_coef counts; give --kl-coef too",
        ),
        (mt_ppo, "--kl-coef 0.1 --kl-estimator k1", "or to mt_ppo --kl-in reward"),
        (mt_ppo, "--steps 10 --critic-warmup 10", "critic_warmup must be below steps 10"),
        (distill, "--view student", "view student leaves the model as its own teacher nothing to teach"),
        (
            distill,
            "--rollouts teacher --sampler vllm",
            "sampler vllm has the student's weights, and rollouts are the teacher's; give --sampler hf",
        ),
    ],
)
def test_wrong_flags_are_one_line_before_a_model_is_looked_for(learner, flags, message, tmp_path, capsys):
    assert message in refusal(learner, flags.split(), tmp_path, capsys)


def test_rememr1_may_be_compared_without_std():
    grpo.GRPOArgs(reward="rememr1", scale="none").check()


def without(library, learner, flags):
    """A learner's command where a library is not installed."""
    script = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from memenvs.commands import main
sys.exit(main(["train", {learner!r}, *{flags!r}]))
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ)


@pytest.mark.parametrize("learner", ["grpo", "mt_ppo", "sft", "distill"])
def test_help_needs_no_torch(learner):
    done = without("torch", learner, ["--help"])
    assert done.returncode == 0, done.stderr
    assert "--max-new-tokens" in done.stdout


def test_a_model_that_is_nowhere_is_one_line(tmp_path, capsys, monkeypatch):
    def fail(*args, **settings):
        raise OSError("no connection\nis the network up?")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    assert "(no connection is the network up?)" in refusal(sft, [], tmp_path, capsys)


def test_a_run_without_torch_is_one_line():
    done = without("torch", "grpo", ["--model", "any"])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("memenvs train grpo: error: No module named 'torch'")


@pytest.fixture
def plain_model(tiny_model, tmp_path):
    """The tiny model without its chat template."""
    folder = tmp_path / "plain"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("chat_template*"))
    return folder


def test_a_model_without_a_chat_template_reads_plain_text(plain_model, tmp_path):
    flags = ["--model", str(plain_model), "--teacher", "gold", "--episodes", "1", "--epochs", "1"]
    assert sft.main([*flags, "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    policy = HFPolicy(tmp_path / "run" / "last" / "policy", device="cpu")
    assert policy.chat is False
    assert policy.tokenizer.decode(policy.encode("a moth")) == "a moth"
