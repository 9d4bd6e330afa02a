"""The computed time of a step on GPUs, against the same arithmetic by hand."""

from types import SimpleNamespace

import pytest

from memenvs.baselines.costs import ADAPTER, LEARNING, ModelSize, RunWork, StepWork

SIZE = ModelSize(parameters=1e9, layers=10, kv_heads=4, head_dim=50)  # 8,000 bytes of cache a token


def test_a_step_is_its_passes_and_the_weights_and_caches_that_sampling_reads():
    work = StepWork(episodes=8, read=900, written=100, row=1000, scored=500)
    # 8 (7 * 1,000 + 500) tokens of 2e9 FLOP on two GPUs; 100 tokens, each of which reads 2e9 bytes of weights
    # and the caches of the four episodes of a server, 8e6 bytes each.
    compute = 8 * 7500 * 2e9 / 2 / (0.4 * 989e12)
    sampling = 100 * (2e9 + 4 * 8e6) / 3.35e12
    assert work.seconds(SIZE, gpus=2, gpus_a_server=1) == pytest.approx(compute + sampling)


def test_what_has_no_room_in_the_cache_is_sampled_later():
    work = StepWork(episodes=8, read=0, written=100, row=2_375_000)  # a cache of half the room of 38e9 bytes
    compute = 8 * 700 * 2e9 / (0.4 * 989e12)
    sampling = 4 * 100 * (2e9 + 38e9) / 3.35e12
    assert work.seconds(SIZE, gpus=1, gpus_a_server=1) == pytest.approx(compute + sampling)


def test_weights_that_fill_the_share_of_vllm_are_refused():
    with pytest.raises(ValueError, match="parameters need more than 1 GPUs a server"):
        StepWork(8, 0, 100, 100).seconds(SIZE._replace(parameters=30e9), gpus=8, gpus_a_server=1)


def test_a_run_is_its_steps_its_evaluations_and_the_checkpoints_that_are_kept():
    step = StepWork(episodes=8, read=900, written=100, row=1000)
    cost = RunWork(step, steps=10, evaluated=16, trained=2, kept=3, asked=(5e6, 2e6)).cost(SIZE, 2, 1)
    # 7 passes of the policy and 5 of the critic; sampling as above
    sampling = 100 * (2e9 + 4 * 8e6) / 3.35e12
    assert cost.step == pytest.approx(8 * 12 * 1000 * 2e9 / 2 / (0.4 * 989e12) + sampling)
    assert cost.training == pytest.approx(10 * cost.step * 2 / 3600)
    # twice as many episodes, each token once; a server samples eight at once
    played = 16 * 1000 * 2e9 / 2 / (0.4 * 989e12) + 100 * (2e9 + 8 * 8e6) / 3.35e12
    assert cost.evaluation == pytest.approx(played * 2 / 3600)
    assert cost.disk == 3 * 2 * 12e9 + 2e9
    assert str(cost).endswith("reads 5.0 and writes 2.0 million tokens")


def test_learning_from_given_episodes_is_four_passes_and_an_adapter_is_small_on_disk():
    args = SimpleNamespace(eval_every=5, keep=2, save_every=50, lora_rank=8)
    step = StepWork(episodes=32, read=500, written=0, row=600)
    work = RunWork.of(args, step, 100, held=6, passes=LEARNING)
    assert (work.evaluated, work.kept, work.saved) == (20 * 6, 2, ADAPTER)  # two are written in all
    assert work.cost(SIZE, 1, 1).step == pytest.approx(32 * 500 * 4 * 2e9 / (0.4 * 989e12))
