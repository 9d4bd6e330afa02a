"""The benchmarks measure a GRPO step of TRL beside ours."""

import pytest

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` installs it")
from benchmarks import gpu

pytestmark = [pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing:FutureWarning")]


def test_trl_takes_the_step_that_ours_takes(tmp_path):
    bench = gpu.Bench(gpu.TINY, tmp_path)
    assert bench.ours()["step"] > 0
    assert bench.trl()["step"] > 0
