"""The computed time of a step on GPUs, against the same arithmetic by hand."""

import pytest

from memenvs.baselines.costs import ModelSize, StepWork

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
