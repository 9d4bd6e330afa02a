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
    ("learner", "flag", "value", "bounds"),
    [
        (grpo, "kl_coef", "-1", "at least 0"),
        (grpo, "kl_coef", "nan", "at least 0"),
        (grpo, "entropy_coef", "nan", "at least 0"),
        (grpo, "entropy_coef", "-0.1", "at least 0"),
        (grpo, "lr", "-1e-6", "at least 0"),
        (grpo, "lr", "nan", "at least 0"),
        (grpo, "lr_warmup", "-5", "at least 0"),
        (grpo, "weight_decay", "-1", "at least 0"),
        (grpo, "betas", "0.9 1", "at least 0 and below 1"),
        (grpo, "temperature", "inf", "above 0"),
        (grpo, "clip", "1.5", "above 0 and below 1"),
        (grpo, "clip_high", "-0.1", "above 0"),
        (grpo, "dual_clip", "1", "above 1"),
        (grpo, "alpha", "nan", "at least 0"),
        (grpo, "epochs", "0", "at least 1"),
        (grpo, "minibatches", "0", "at least 1"),
        (grpo, "groups", "-4", "at least 1"),
        (grpo, "steps", "0", "at least 1"),
        (grpo, "seed", "-1", "at least 0"),
        (grpo, "save_every", "0", "at least 1"),
        (grpo, "eval_every", "-1", "at least 0"),
        (grpo, "eval_episodes", "0", "at least 1"),
        (grpo, "micro_batch_tokens", "0", "at least 1"),
        (grpo, "dynamic_sampling", "-1", "at least 0"),
        (grpo, "overlong", "0 0", "at least 1"),
        (mt_ppo, "critic_lr", "-1", "at least 0"),
        (mt_ppo, "critic_lr_warmup", "nan", "at least 0"),
        (mt_ppo, "value_coef", "-3", "above 0"),
        (mt_ppo, "gamma", "1.5", "at least 0 and at most 1"),
        (mt_ppo, "lam", "nan", "at least 0 and at most 1"),
        (mt_ppo, "critic_warmup", "-1", "at least 0"),
        (sft, "episodes", "0", "at least 1"),
        (sft, "batch_size", "0", "at least 1"),
        (sft, "epochs", "0", "at least 1"),
        (sft, "temperature", "0", "above 0"),
        (distill, "temperature", "0", "above 0"),
        (distill, "group_size", "0", "at least 1"),
    ],
)
def test_a_number_out_of_range_is_one_line_before_a_model_is_looked_for(
    learner, flag, value, bounds, tmp_path, capsys
):
    line = refusal(learner, [f"--{flag.replace('_', '-')}", *value.split()], tmp_path, capsys)
    assert line.startswith(
        f"{learner.__name__.replace('memenvs.', 'memenvs ')}: error: {flag} must be {bounds}, got "
    )


@pytest.mark.parametrize(
    ("learner", "flags", "message"),
    [
        (grpo, "--kl-coef 0.1 --kl-estimator k1", "kl_estimator k1 has a mean gradient of 0 as a loss"),
        (
            grpo,
            "--normalize components",
            "is for the rewards merged, infomem, gigpo, which add",
        ),
        (
            grpo,
            "--reward turn-pool --estimator rloo",
            "--reward turn-pool has its own estimator; leave out rloo",
        ),
        (grpo, "--reward rememr1 --estimator rloo", "--reward rememr1 has its own estimator; leave out rloo"),
        (grpo, "--reward tamtrl --scale none", "--reward tamtrl always divides by std; leave out scale none"),
        (
            grpo,
            "--reward turn --tree-turns 1 --estimator rloo",
            "trees are compared by the estimator grpo, got rloo",
        ),
        (grpo, "--reward merged --normalize components --scale none", "leave estimator grpo and scale std"),
        (grpo, "--component-weights format=0.5", "component_weights are for --normalize components"),
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
def test_flags_that_contradict_each_other_are_one_line_before_a_model_is_looked_for(
    learner, flags, message, tmp_path, capsys
):
    assert message in refusal(learner, flags.split(), tmp_path, capsys)


def test_rememr1_may_be_compared_without_std():
    grpo.GRPOArgs(reward="rememr1", scale="none").check()


def without(library, learner, flags):
    """A learner's command where a library is not installed."""
    script = f"""
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["learner", *{flags!r}]
runpy.run_module("memenvs.baselines.{learner}", run_name="__main__", alter_sys=True)
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
    assert line.startswith("memenvs baselines.grpo: error: No module named 'torch'")


def test_help_without_the_libraries_of_the_learners_is_one_line():
    done = without("tyro", "grpo", ["--help"])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("memenvs baselines.grpo: error: No module named 'tyro'")


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
