"""The package as a whole: what an import costs, and what the repository promises of itself."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "faiss", "vllm", "sentence_transformers", "bm25s", "fastapi", "pandas")


def fresh(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    "module",
    [
        "memenvs",
        "memenvs.envs.chunk_qa",
        "memenvs.build.__main__",
        "memenvs.wrappers",
        "memenvs.wrappers.scorers",
        "memenvs.baselines",
    ],
)
def test_an_import_loads_no_heavy_library(module):
    assert fresh(f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])") == "[]"


def test_making_and_playing_an_environment_loads_no_heavy_library():
    code = (
        "import sys, gymnasium as gym\n"
        "env = gym.make('memenvs:MemChunkQA-v0'); env.reset(seed=0); env.step('x')\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert fresh(code) == "[]"


def test_the_folders_beside_the_package_are_its_subpackages():
    for name in ("wrappers", "baselines", "data"):
        assert (ROOT / "memenvs" / name).resolve() == ROOT / name


def test_no_global_random_generator_is_touched():
    code = (
        "import random, numpy as np, gymnasium as gym\n"
        "random.seed(1); np.random.seed(1)\n"
        "env = gym.make('memenvs:MemChunkQA-v0', n_documents=20)\n"
        "env.reset(seed=0); env.step('x'); env.reset()\n"
        "a = (random.random(), np.random.random())\n"
        "random.seed(1); np.random.seed(1)\n"
        "print(a == (random.random(), np.random.random()))"
    )
    assert fresh(code) == "True"
