"""The measurements of docs/benchmarks.md still start, and the one for a GPU runs from start to end."""

import importlib
import importlib.util
import json
import pkgutil

import pytest

import benchmarks
from benchmarks import gpu


@pytest.mark.parametrize(
    "name", [module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]
)
def test_a_benchmark_uses_only_what_is_there(name):
    importlib.import_module(name)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """By the names of the parts: what a run of the tiny model reports."""
    out = tmp_path_factory.mktemp("gpu") / "tiny.json"
    assert gpu.main(out=out, tiny=True) == 0
    report = json.loads(out.read_text())
    assert report["versions"]["torch"]
    return {row.pop("part"): row for row in report["rows"]}


def test_every_part_has_its_numbers(rows):
    assert list(rows) == list(gpu.PARTS)
    steps = [rows[name] for name in rows if "step" not in name]
    assert len(steps) == 3
    for row in steps:
        parts = [row[name] for name in ("sampling", "scoring", "log_probs", "update")]
        assert min(parts) > 0
        assert sum(parts) < row["step"]
    assert rows["one GRPO step, memenvs"]["step"] > 0


def test_a_shared_prefix_is_computed_once_or_for_each(rows):
    assert rows["GRPO with TAMTRL"]["computed"] < 0.8
    assert rows["GRPO with TAMTRL, prefixes not shared"]["computed"] == 1


def test_what_is_trained_has_the_log_probabilities_that_were_sampled(rows):
    for name in ("GRPO with TAMTRL", "GRPO with TAMTRL, prefixes not shared", "MT-PPO with TAMTRL"):
        assert rows[name]["logprobs_mean"] <= rows[name]["logprobs_largest"] < 1e-3


def test_trl_is_measured_where_it_is_installed(rows):
    installed = importlib.util.find_spec("trl") is not None
    assert ("step" in rows["one GRPO step, TRL"]) == installed


def test_what_there_is_no_time_for_is_named(tmp_path):
    assert gpu.main(out=tmp_path / "none.json", tiny=True, minutes=0) == 0
    rows = json.loads((tmp_path / "none.json").read_text())["rows"]
    assert [row["part"] for row in rows] == list(gpu.PARTS)
    assert all("0 minutes" in row["left_out"] for row in rows)
