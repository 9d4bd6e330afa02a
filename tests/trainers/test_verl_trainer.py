"""verl's own trainer plays and learns on a CPU, and its steps on the episodes are those of our learner."""

import contextlib
import json
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import easy_sokoban
import numpy as np
import psutil
import torch
from command_line import evaluate
from ray.cluster_utils import Cluster
from tiny_model import save_tiny_model
from transformers import AutoTokenizer
from verl_cpu import FIRST_VALUES
from verl_stub import overrides

from memenvs.baselines import grpo, mt_ppo
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import read_args
from memenvs.baselines.optimizer import make_optimizer, set_rates
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.scoring import score
from memenvs.baselines.update import give_advantages
from memenvs.core.episode import valid
from memenvs.core.episode_file import read_episodes
from memenvs.models import HFPolicy, LoRA, SamplingParams
from memenvs.models.lora import PREFIX

STEPS = 3
SUPPORT = Path(__file__).parents[1] / "support"
EXACT = "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"  # verl computes in bfloat16 by default
A = "actor_rollout_ref"
SMALL = [
    "trainer.device=cpu",
    "actor_rollout_ref.actor.use_torch_compile=False",
    *(
        f"+{part}.mixed_precision={EXACT}"
        for part in (f"{A}.actor.fsdp_config", f"{A}.ref.fsdp_config", "critic.fsdp")
    ),
    *(f"++{model}.override_config.attn_implementation=sdpa" for model in (f"{A}.model", "critic.model")),
    *(f"{model}.use_remove_padding=False" for model in (f"{A}.model", "critic.model")),
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "data.dataloader_num_workers=0",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
]
NODE = {"num_cpus": 16, "num_gpus": 1, "include_dashboard": False, "object_store_memory": 300_000_000}
"""A machine of Ray's, with room for actors, almost all of which wait."""
ALONE = [f"++ray_kwargs.ray_init.{name}={value}" for name, value in {"address": "local", **NODE}.items()]
RUN = [
    *("--steps", str(STEPS), "--save-every", "1", "--keep", str(STEPS), "--gpus", "1"),
    *("--env", "MemSearchQA-v0", "--max-new-tokens", "64", "--groups", "2", "--group-size", "4"),
    *("--lr", "1e-3", "--kl-coef", "0.01", "--adamw", "eps=1e-4"),
]
MEMPO = [*RUN, "--reward", "mempo", "--env-args", "memory_mode=rewrite", "max_turns=2"]
MT_PPO = [
    *RUN,
    *("--reward", "turn", "--methods", "SearchRewards", "--env-args", "max_turns=2"),
    *("--critic-lr", "2e-3", "--critic-warmup", "1", "--kl-in", "reward"),
]
CAPPED = [
    *(*RUN, "--groups", "1", "--group-size", "3", "--env-args", "max_turns=2", "--steps", "5", "--keep", "5"),
    *("--importance-cap", "1.1", "--dynamic-sampling", "2", "--seed", "1"),
]


@contextlib.contextmanager
def trainer(run, *more, cluster=None, **environment):
    """verl's trainer with the settings of a run, as a process; its groups are left in the folder of episodes.

    It has a Ray cluster of its own, or that of an address.
    """
    variables = {
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu,memenvs.adapters.verl,verl_sampler",
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[1])]),
        "EPISODES": str(run.episodes),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    of_workers = "++ray_kwargs.ray_init.runtime_env.env_vars"
    settings = [*SMALL, *(f"{of_workers}.{name}='{value}'" for name, value in variables.items())]
    settings += [f"+ray_kwargs.ray_init.address={cluster}"] if cluster else ALONE
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(run.out), *settings, *more]
    run.episodes.mkdir()
    # Ray's folder has sockets, whose paths must be short. In the usual one a run leaves the address of its
    # cluster, to which others would connect.
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as ray,
        (run.episodes.parent / "output").open("w") as output,
    ):
        env = {**os.environ, **variables, "RAY_TMPDIR": ray}
        with subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT) as process:
            try:
                yield process
            finally:
                process.kill()  # which does nothing to one that has ended


def train(run, *more, **others):
    """Run verl's trainer to its end."""
    with trainer(run, *more, **others) as process:
        process.wait(timeout=1800)
    assert process.returncode == 0, (run.episodes.parent / "output").read_text()[-10000:]


def groups_of(run, step):
    """The groups of a step, each a list of episodes."""
    return [pickle.loads(file.read_bytes()) for file in sorted(run.episodes.glob(f"{step}-*"))]


def weights_of(checkpoints, step, model="actor"):
    """The weights of a model in a checkpoint of verl's."""
    files = sorted((checkpoints / f"global_step_{step}" / model).glob("model_world_size_*_rank_*.pt"))
    shards = [torch.load(file, weights_only=False) for file in files]
    return {
        name.removeprefix(PREFIX): torch.cat(
            [getattr(shard[name], "to_local", shard[name].detach)() for shard in shards]
        )
        for name in shards[0]
    }


def write(learner, argv, kind, folder, model=None):
    """Write a run of ours for verl; None: of a random model."""
    model = model or save_tiny_model(folder / "model", window=4096)
    argv = ["--model", str(model), "--out", str(folder / "run"), *argv]
    assert learn([learner, *argv, "--engine", "verl", "--dry-run"]) == 0
    args = read_args(kind, argv, "test")
    return SimpleNamespace(args=args, out=folder / "run", episodes=folder / "episodes")


def start(*run, **environment):
    """Write a run, and start it with variables of the environment."""
    run = write(*run)
    train(run, **environment)
    return run


def models_of(args, count):
    """As many copies of the model that a run began with, the first with the adapter that it trains."""
    settings = {"device": "cpu", "dtype": "float32", "sampling_params": SamplingParams(args.temperature)}
    adapters = [LoRA(args.lora_rank) if args.lora_rank else None] + [None] * (count - 1)
    return [HFPolicy(args.model, lora=adapter, **settings) for adapter in adapters]


def copies(weights):
    return {name: weight.detach().clone() for name, weight in weights.items()}


def check_same(weights, earlier, theirs):
    """Weights, by their names, moved in a step, to those of verl's checkpoint."""
    moved = torch.stack([(weight.detach() - earlier[name]).norm() for name, weight in weights.items()]).norm()
    apart = torch.stack([(weight.detach() - theirs[name]).norm() for name, weight in weights.items()]).norm()
    assert 0 < moved
    assert apart <= 1e-4 * moved


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three steps of verl's trainer by MemPO."""
    return start("grpo", MEMPO, grpo.GRPOArgs, tmp_path_factory.mktemp("verl"))


def check_steps(run, args, episodes_of):
    """Each step of our learner, on the episodes that verl learned from, gives verl's weights."""
    processes = ProcessGroup("cpu")
    policy, reference = models_of(args, 2)
    weights = {name: weight for name, weight in policy.model.named_parameters() if weight.requires_grad}
    group = {"params": policy.parameters(), "full_lr": args.lr, "warmup": args.lr_warmup}
    optimizer = make_optimizer([group], lr=args.lr, weight_decay=0.0, **args.adamw)
    for step in range(1, args.steps + 1):
        earlier, episodes = copies(weights), episodes_of(groups_of(run, step))
        samples = give_advantages(episodes, [episode.advantages for episode in episodes])
        score(policy, samples, args, processes=processes, ref_model=reference)
        set_rates(optimizer, step, args.steps)
        grpo.update(policy, optimizer, samples, args, processes=processes, seed=(0, step))
        check_same(weights, earlier, weights_of(run.out / "checkpoints", step))


def test_each_step_of_verls_trainer_is_our_learners(run):
    args = run.args

    def episodes_of(groups):
        assert [len(group) for group in groups] == [args.group_size] * args.groups
        episodes = [episode for group in groups for episode in group]
        assert not any(episode.error for episode in episodes)
        assert any(episode.advantages.any() for episode in episodes)
        return episodes

    check_steps(run, args, episodes_of)


def test_a_step_of_policy_and_critic_is_our_learners(tmp_path):
    run = start("mt_ppo", MT_PPO, mt_ppo.MTPPOArgs, tmp_path)
    args, processes = run.args, ProcessGroup("cpu")
    policy, critic, reference = models_of(args, 3)
    critic.add_value_head()
    with torch.no_grad():
        critic.value_head.weight.fill_(FIRST_VALUES)
    of_policy = dict(policy.model.named_parameters())
    of_critic = {name: weight for name, weight in critic.model.named_parameters() if name != "lm_head.weight"}
    of_critic |= {"score.weight": critic.value_head.weight, "score.bias": critic.value_head.bias}
    groups = [
        {"params": policy.model_parameters(), "full_lr": args.lr, "warmup": 0},
        {"params": critic.critic_parameters(shared=False), "full_lr": args.critic_rate, "warmup": 0},
    ]
    paid_early = []
    optimizer = make_optimizer(groups, lr=args.lr, weight_decay=0.0, **args.adamw)
    for step in range(1, STEPS + 1):
        earlier, earlier_critic = copies(of_policy), copies(of_critic)
        episodes = [episode for group in groups_of(run, step) for episode in group]
        assert len(episodes) == args.groups * args.group_size
        assert not any(episode.error for episode in episodes)
        paid_early += [value for episode in episodes for value in episode.turn_rewards[:-1]]
        samples = [sample for episode in episodes for sample in episode.samples]
        score(policy, samples, args, processes=processes, critic=critic, ref_model=reference)
        advantages, returns = mt_ppo.token_advantages(
            episodes,
            reward=args.reward,
            gamma=args.gamma,
            lam=args.lam,
            penalties=mt_ppo.kl_penalties(episodes, args.kl_coef),
        )
        samples, only = give_advantages(episodes, advantages, returns), step <= args.critic_warmup
        set_rates(optimizer, step, STEPS)
        seed = (0, step)
        mt_ppo.update(
            policy, critic, optimizer, samples, args, processes=processes, seed=seed, critic_only=only
        )
        saved = run.out / "checkpoints"
        check_same(of_critic, earlier_critic, weights_of(saved, step, "critic"))
        if only:
            theirs = weights_of(saved, step)
            assert all(torch.equal(weight, theirs[name]) for name, weight in of_policy.items())
        else:
            check_same(of_policy, earlier, weights_of(saved, step))
    assert any(paid_early)


def test_failed_rollouts_flat_groups_and_another_samplers_numbers_count_as_in_our_learner(tmp_path):
    run = start("grpo", CAPPED, grpo.GRPOArgs, tmp_path, SHIFT="-0.3", FAILS="0.2")
    args = replace(run.args, vllm={})  # as if another engine had sampled
    sizes = []

    def episodes_of(groups):
        (kept,) = [group for group in groups if any(episode.advantages.any() for episode in valid(group))]
        sizes.append((len(groups), len(valid(kept))))
        return valid(kept)

    check_steps(run, args, episodes_of)
    played, learned = zip(*sizes, strict=True)
    assert max(played) > 1  # another in place of a flat one
    assert min(learned) < args.group_size  # a rollout failed


def test_a_step_has_the_recipes_optimizer_steps_whatever_its_rows_are(tmp_path):
    more = ["--groups", "4", "--minibatches", "2", "--steps", "2", "--keep", "2"]
    run = start("grpo", [*MEMPO, *more], grpo.GRPOArgs, tmp_path)
    for step in (1, 2):
        (file,) = run.out.glob(f"checkpoints/global_step_{step}/actor/optim_*.pt")
        taken = {int(weight["step"]) for weight in torch.load(file, weights_only=False)["state"].values()}
        assert taken == {2 * step}
    assert len({len(e.samples) for step in (1, 2) for group in groups_of(run, step) for e in group}) > 1


def check_close(weights, theirs):
    for name, weight in weights.items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-5, atol=1e-6)


def test_a_run_that_was_killed_takes_the_same_third_step(run, tmp_path):
    begun, (first, resumed) = tmp_path / "checkpoints", (tmp_path / "first", tmp_path / "resumed")
    there, latest = f"trainer.default_local_dir={begun}", begun / "latest_checkpointed_iteration.txt"
    with trainer(SimpleNamespace(out=run.out, episodes=first), there) as process:
        while not latest.exists() or latest.read_text() != str(STEPS - 1):
            assert process.poll() is None
            time.sleep(0.05)
        driver = psutil.Process(process.pid)
        for killed in [*driver.children(recursive=True), driver]:  # with Ray's
            killed.kill()
    assert not (begun / f"global_step_{STEPS}").exists()
    resumed = SimpleNamespace(out=run.out, episodes=resumed)
    train(resumed, there)
    assert len(groups_of(resumed, STEPS)) == len([*resumed.episodes.iterdir()])  # and of no other step
    check_close(weights_of(begun, STEPS), weights_of(run.out / "checkpoints", STEPS))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The same run, sharded over two machines of a Ray cluster."""
    run = write("grpo", [*MEMPO, "--nodes", "2"], grpo.GRPOArgs, tmp_path_factory.mktemp("two"))
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as ray,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", ray)
        cluster = Cluster(True, head_node_args=NODE)
        try:
            cluster.add_node(**NODE)
            train(run, cluster=cluster.address)
        finally:
            cluster.shutdown()
    return run


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_two_machines_of_a_cluster_take_the_steps_of_one(step, run, two):
    assert len([*two.out.rglob(f"global_step_{step}/actor/model_world_size_2_rank_*.pt")]) == 2
    check_close(weights_of(two.out / "checkpoints", step), weights_of(run.out / "checkpoints", step))


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Twenty steps with an adapter, of a model that writes any move and samples for itself."""
    folder = tmp_path_factory.mktemp("easy")
    env_args = easy_sokoban.save_levels(folder)
    tokenizer = AutoTokenizer.from_pretrained(easy_sokoban.save_model(folder / "tokens", env_args))
    tokenizer.add_tokens("<|im_end|>")  # which verl wants of a Qwen3
    model = save_tiny_model(folder / "model", tokenizer=tokenizer)
    game = ["--env", "MemSokoban-v0", "--env-args", json.dumps(env_args), "--max-new-tokens", "5"]
    lessons = "--teacher easy_sokoban:any_move --learn-from all --episodes 256 --epochs 6 --lr 3e-3".split()
    form = ["--model", str(model), "--out", str(folder / "form"), "--lr-warmup", "5", *lessons, *game]
    assert learn(["sft", *form]) == 0
    easy = "--groups 4 --group-size 8 --steps 20 --save-every 1 --keep 20 --gpus 1".split()
    easy += "--lora-rank 8 --lr 1e-2 --kl-coef 0.01 --adamw eps=1e-4".split()
    model = folder / "form" / "last" / "policy"
    return start("grpo", [*game, *easy], grpo.GRPOArgs, folder, model, SAMPLES="1")


def success(episodes):
    return np.mean([episode.success for episode in episodes])


def test_success_rises_in_twenty_steps_which_are_our_learners(learned):
    curve = []

    def episodes_of(groups):
        episodes = [episode for group in groups for episode in group]
        curve.append(success(episodes))
        return episodes

    check_steps(learned, learned.args, episodes_of)
    assert np.mean(curve[:2]) < np.mean(curve[-3:]) - 0.25


def test_a_checkpoint_is_merged_and_evaluated(learned, capfd):
    assert learn(["grpo", "--out", str(learned.out), "--merge", "20"]) == 0
    _, command = capfd.readouterr().out.replace("\\\n", " ").split("memenvs evaluate run ")
    model = learned.out / "models" / "step-20"
    served = f"openai:http://127.0.0.1:8000 --tokens {model}"  # by vLLM
    assert evaluate(shlex.split(command.replace(served, f"hf:{model}"))) == 0
    episodes = read_episodes(learned.out / "evaluation" / "episodes.jsonl")
    assert success([*episodes]) > 0.8  # any move solves one board in four
