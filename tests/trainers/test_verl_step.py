"""Steps of verl's own worker, with the settings of our run.sh, are those of our learner: to the weights."""

import socket
from functools import partial

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import torch
import verl_cpu  # noqa: F401  # before anything of verl's asks for a device
from tiny_model import save_tiny_model
from verl.trainer.ppo.core_algos import compute_value_loss, get_adv_estimator_fn
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss
from verl_stub import compose, overrides

from memenvs.adapters.verl import rows_of
from memenvs.baselines import grpo, mt_ppo
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import read_args
from memenvs.baselines.losses import token_weights
from memenvs.baselines.optimizer import make_optimizer, set_rates
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.scoring import score
from memenvs.baselines.update import give_advantages
from memenvs.core.episode import Episode, Reply, Sample, Turn
from memenvs.models import HFPolicy, LoRA, SamplingParams

GROUPS, SIZE, STEPS = 2, 4, 3
TURNS = (3, 1, 2, 3, 1, 3, 3, 2)  # of the episodes: verl fills their rows up to those of 8 with the most
RUN = [
    *("--env", "MemChunkQA-v0", "--env-args", "chunk_size=300", "n_documents=4", "--max-new-tokens", "8"),
    *("--groups", str(GROUPS), "--group-size", str(SIZE), "--steps", str(STEPS), "--gpus", "1"),
    *("--lr", "1e-3"),
    # With AdamW's own eps the first step of a tiny gradient is the sign of its rounding.
    *("--adamw", "betas=[0.9,0.95]", "weight_decay=0.01", "eps=1e-4"),
]
EXACT = [
    "trainer.device=cpu",
    "actor_rollout_ref.actor.use_torch_compile=False",
    # verl computes in bfloat16 by default
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
]
CASES = {
    "the mean over tokens": [],
    "clip-higher, dual clip, a divergence, two passes": (
        "--clip 0.1 0.2 --dual-clip 1.2 --kl-coef 0.05 --epochs 2".split()
    ),
    "k2, entropy, a small norm": (
        "--kl-coef 0.5 --kl-estimator k2 --entropy-coef 0.02 --max-grad-norm 0.05".split()
    ),
    "the mean over rows": "--loss-agg-mode seq-mean-token-mean --max-grad-norm 100".split(),
    "the mean over rows, some of them truncated": (
        "--loss-agg-mode seq-mean-token-mean --max-grad-norm 100 --mask-truncated".split()
    ),
    "the sum over rows": "--loss-agg-mode seq-mean-token-sum --max-grad-norm 100".split(),
    "Dr. GRPO": "--loss-agg-mode seq-mean-token-sum-norm --max-grad-norm 100".split(),
    "GSPO": (
        "--loss-mode gspo --clip 0.01 0.02 --epochs 2 --loss-agg-mode seq-mean-token-mean --max-grad-norm 100"
    ).split(),
    "GSPO, some replies truncated": "--loss-mode gspo --clip 0.01 0.02 --epochs 2 --mask-truncated".split(),
    "CISPO": "--loss-mode cispo --clip 1 0.2 --epochs 2".split(),
    "a temperature": "--temperature 0.7".split(),
    "a warm-up": "--lr-warmup 2".split(),
    "an adapter": "--lora-rank 4 --kl-coef 0.05".split(),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("verl") / "model", window=40000)


@pytest.fixture(scope="module", autouse=True)
def one_process():
    """verl's worker is a process of a group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {"WORLD_SIZE": 1, "RANK": 0, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, str(value))
        yield
        torch.distributed.destroy_process_group()


def episodes_of(policy, draws):
    """Two groups of four episodes, a row a turn, with a made-up advantage of every token.

    Other weights sampled them, and every third reply reached its limit.
    """
    info = {"turn": 0, "context": "rewrite", "rewards": {"outcome": 0.0}, "metrics": {}}
    episodes = []
    for number, turns in enumerate(TURNS):
        group, member = divmod(number, SIZE)
        episode = Episode(env="MemChunkQA-v0", group=group, member=member, metrics={"success": 0.0})
        for turn in range(turns):
            read, ids = (
                draws.integers(5, 500, draws.integers(4, 40)),
                draws.integers(5, 500, draws.integers(1, 8)),
            )
            reply = Reply(
                "", ids, np.zeros(len(ids)), read=read, tokens=len(ids), finished=(number + turn) % 3 > 0
            )
            episode.turns.append(Turn("", info, reply, info))
        episode.end = episode.turns[-1].end = "terminated"
        episodes.append(episode)
    for sample in [sample for episode in episodes for sample in episode.samples]:
        with torch.no_grad():
            nats = policy.forward([sample.ids], [sample.response_mask]).logprobs.numpy()
        sample.logprobs[sample.response_mask] = nats + draws.normal(0, 0.2, len(nats))
    give_advantages(episodes, [draws.normal(size=episode.tokens) for episode in episodes])
    return episodes


def worker_of(config):
    """verl's worker of an actor, as its trainer makes it."""
    settings = config.actor_rollout_ref.actor
    actor, model = omega_conf_to_dataclass(settings), omega_conf_to_dataclass(config.actor_rollout_ref.model)
    actor.model_config, actor.optim.total_training_steps = model, config.trainer.total_training_steps
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=actor.engine,
            optimizer_config=actor.optim,
            checkpoint_config=actor.checkpoint,
        )
    )
    worker.engine_config.use_dynamic_bsz = settings.use_dynamic_bsz
    worker.engine_config.max_token_len_per_gpu = settings.ppo_max_token_len_per_gpu
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    return worker


def weights_of(worker):
    """The weights of verl's worker, by the names that they have in our models."""
    named = worker.engine.module.named_parameters()
    return {name.removeprefix("base_model.model."): weight.full_tensor() for name, weight in named}


def learned_weights(policy):
    """The weights of ours that learn, by their names."""
    return {name: weight for name, weight in policy.model.named_parameters() if weight.requires_grad}


def batch_of(episodes, config, mask_truncated):
    """What verl's trainer hands to its actor: our agent loop's rows, filled up, with their advantages."""
    actor, rows = config.actor_rollout_ref.actor, []
    for episode in episodes:
        outputs = rows_of(episode, 1, mask_truncated=mask_truncated)
        for output, sample in zip(outputs, episode.samples, strict=True):
            reference = np.zeros(len(sample.ids))
            if sample.ref_logprobs is not None:
                reference[sample.response_mask] = sample.ref_logprobs
            reference = torch.tensor(reference[len(output.prompt_ids) :], dtype=torch.float32)
            rows.append((output.as_dict(), reference))
    size = actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    filler = dict(
        prompts=torch.ones(127, dtype=torch.int64),
        responses=torch.ones(1, dtype=torch.int64),
        response_mask=torch.zeros(1, dtype=torch.int64),
        rollout_log_probs=torch.zeros(1),
        rm_scores=torch.zeros(1),
    )
    rows += [(filler, torch.zeros(1))] * (-len(rows) % size)

    def nested(values):
        return torch.nested.as_nested_tensor([*values], layout=torch.jagged)

    masks = nested(row["response_mask"] for row, _ in rows)
    paid = get_adv_estimator_fn(config.algorithm.adv_estimator)
    rewards = nested(row["rm_scores"] for row, _ in rows).to_padded_tensor(0.0)
    advantages, _ = paid(token_level_rewards=rewards, response_mask=masks.to_padded_tensor(0))
    ids = [torch.cat([row["prompts"], row["responses"]]) for row, _ in rows]
    fields = {
        "input_ids": nested(ids),
        "position_ids": nested(torch.arange(len(row)) for row in ids),
        "prompts": nested(row["prompts"] for row, _ in rows),
        "responses": nested(row["responses"] for row, _ in rows),
        "response_mask": masks,
        "loss_mask": masks,
        "old_log_probs": nested(row["rollout_log_probs"] for row, _ in rows),
        "ref_log_prob": nested(reference for _, reference in rows),
        "advantages": nested(
            values[: len(row["responses"])] for values, (row, _) in zip(advantages, rows, strict=True)
        ),
    }
    settings = {
        "calculate_entropy": bool(actor.entropy_coeff),
        "global_batch_size": size,
        "mini_batch_size": size,
        "epochs": actor.ppo_epochs,
        "temperature": config.actor_rollout_ref.rollout.temperature,
    }
    return tensordict_utils.get_tensordict(fields, settings)


@pytest.mark.parametrize("case", CASES)
def test_three_steps_give_the_weights_of_our_learner(case, model, tmp_path):
    argv = ["--model", str(model), "--out", str(tmp_path / "run"), *RUN, *CASES[case]]
    assert learn(["grpo", *argv, "--engine", "verl", "--dry-run"]) == 0
    args, config = read_args(grpo.GRPOArgs, argv, "test"), compose([*overrides(tmp_path / "run"), *EXACT])
    worker = worker_of(config)
    sampling = SamplingParams(args.temperature)
    load = partial(HFPolicy, str(model), device="cpu", dtype="float32", sampling_params=sampling)
    policy, reference = load(lora=LoRA(args.lora_rank) if args.lora_rank else None), load()
    if args.lora_rank:  # verl's own first weights, which it draws by the global generator
        drawn = weights_of(worker)
        with torch.no_grad():
            for name, weight in learned_weights(policy).items():
                weight.copy_(drawn[name])
    group = {"params": policy.parameters(), "full_lr": args.lr, "warmup": args.lr_warmup}
    optimizer = make_optimizer([group], lr=args.lr, **args.adamw)
    draws = np.random.default_rng(0)
    for step in range(1, STEPS + 1):
        earlier = [weight.detach().clone() for weight in policy.parameters()]
        episodes = episodes_of(reference, draws)
        samples = [sample for episode in episodes for sample in episode.samples]
        score(policy, samples, args, processes=ProcessGroup("cpu"), ref_model=reference)
        worker.train_mini_batch(batch_of(episodes, config, args.mask_truncated))
        set_rates(optimizer, step, STEPS)
        grpo.update(policy, optimizer, samples, args, processes=ProcessGroup("cpu"), seed=(0, step))
        theirs, named = weights_of(worker), learned_weights(policy).items()
        apart = torch.stack([(weight.detach() - theirs[name]).norm() for name, weight in named]).norm()
        both = zip(policy.parameters(), earlier, strict=True)
        moved = torch.stack([(weight.detach() - before).norm() for weight, before in both]).norm()
        assert bool(moved) == (step > 1 or case != "a warm-up")
        assert apart <= 1e-4 * moved


@pytest.mark.parametrize("clip", [0.2, None])
def test_the_loss_of_the_critic_is_that_of_verl(clip):
    draws = np.random.default_rng(0)
    lengths = [3, 5]
    samples = []
    for length in lengths:
        sample = Sample.of((np.arange(length), np.zeros(length), 0))
        sample.values, sample.returns = draws.normal(size=(2, length))
        samples.append(sample)
    values = torch.tensor(draws.normal(size=8), dtype=torch.float32, requires_grad=True)
    rows = torch.repeat_interleave(torch.arange(2), torch.tensor(lengths))
    weights = token_weights(rows, torch.tensor(lengths)).float()
    ours, _ = mt_ppo.value_loss(values, samples, weights, mt_ppo.MTPPOArgs(value_clip=clip))
    flat = {name: np.concatenate([getattr(s, name) for s in samples]) for name in ("values", "returns")}
    theirs, _ = compute_value_loss(
        vpreds=values[None],
        values=torch.tensor(flat["values"])[None],
        returns=torch.tensor(flat["returns"])[None],
        response_mask=torch.ones(1, 8),
        cliprange_value=clip or 1e6,
    )
    torch.testing.assert_close(ours, theirs.float())
    torch.testing.assert_close(*(torch.autograd.grad(loss, values)[0] for loss in (ours, theirs)))
