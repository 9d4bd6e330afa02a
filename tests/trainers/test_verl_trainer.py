"""verl's own trainer plays and learns on a CPU, and its steps on the episodes are those of our learner."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import torch
from tiny_model import save_tiny_model
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
from memenvs.models import HFPolicy, SamplingParams

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
    "ray_kwargs.ray_init.num_cpus=16",  # of actors, almost all of which wait
    "+ray_kwargs.ray_init.address=local",  # a cluster of its own
    "+ray_kwargs.ray_init.num_gpus=1",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "+ray_kwargs.ray_init.object_store_memory=300000000",
]
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


def train(run, *more, **environment):
    """Start verl's trainer with the settings of a run; its groups are left in the folder of episodes."""
    variables = {
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu,memenvs.adapters.verl,verl_sampler",
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[1])]),
        "EPISODES": str(run.episodes),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    of_workers = "++ray_kwargs.ray_init.runtime_env.env_vars"
    settings = [*SMALL, *(f"{of_workers}.{name}='{value}'" for name, value in variables.items())]
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(run.out), *settings, *more]
    run.episodes.mkdir()
    # Ray's folder has sockets, whose paths must be short. In the usual one a run leaves the address of its
    # cluster, to which others would connect.
    with tempfile.TemporaryDirectory(prefix="ray") as ray:
        env = {**os.environ, **variables, "RAY_TMPDIR": ray}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def groups_of(run, step):
    """The groups of a step, each a list of episodes."""
    return [pickle.loads(file.read_bytes()) for file in sorted(run.episodes.glob(f"{step}-*"))]


def weights_of(checkpoints, step, model="actor"):
    """The weights of a model in a checkpoint of verl's."""
    file = checkpoints / f"global_step_{step}" / model / "model_world_size_1_rank_0.pt"
    saved = torch.load(file, weights_only=False)
    return {name: getattr(weight, "full_tensor", weight.detach)() for name, weight in saved.items()}


def start(learner, argv, kind, folder, **environment):
    """Write a run of ours for verl, and start it with variables of the environment."""
    model = str(save_tiny_model(folder / "model", window=4096))
    argv = ["--model", model, "--out", str(folder / "run"), *argv]
    assert learn([learner, *argv, "--engine", "verl", "--dry-run"]) == 0
    args = read_args(kind, argv, "test")
    run = SimpleNamespace(args=args, out=folder / "run", episodes=folder / "episodes")
    train(run, **environment)
    return run


def models_of(args, count):
    """As many copies of the model that a run began with."""
    settings = {"device": "cpu", "dtype": "float32", "sampling_params": SamplingParams(args.temperature)}
    return [HFPolicy(args.model, **settings) for _ in range(count)]


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
    weights = dict(policy.model.named_parameters())
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


def test_a_run_that_was_killed_takes_the_same_third_step(run, tmp_path):
    begun = tmp_path / "checkpoints"
    shutil.copytree(run.out / "checkpoints", begun)
    shutil.rmtree(begun / f"global_step_{STEPS}")
    (begun / "latest_checkpointed_iteration.txt").write_text(str(STEPS - 1))
    resumed = SimpleNamespace(out=run.out, episodes=tmp_path / "episodes")
    train(resumed, f"trainer.default_local_dir={begun}")
    assert len(groups_of(resumed, STEPS)) == len([*resumed.episodes.iterdir()])  # and of no other step
    theirs = weights_of(run.out / "checkpoints", STEPS)
    for name, weight in weights_of(begun, STEPS).items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-5, atol=1e-6)
