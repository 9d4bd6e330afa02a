"""What several test files need: small task sets, and where the real data lies."""

from pathlib import Path

import numpy as np
import pytest

from memenvs.build.examples import Example, among_distractors
from memenvs.build.write import write_task_set
from memenvs.card import Card
from memenvs.tokens import load_tokenizer

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def real_data():
    """The folder of real data that stands beside the project on some machines."""
    if not (SHARED / "data").is_dir():
        pytest.skip("no real data beside the project: ../shared/data")
    return SHARED / "data"


@pytest.fixture(scope="session")
def examples():
    """Forty questions, each with two evidence paragraphs and three others, about numbered things."""
    rng = np.random.default_rng(0)

    def paragraph(number):
        words = " ".join(f"word{w}" for w in rng.integers(0, 500, rng.integers(5, 40)))
        return f"Thing {number}", f"Thing {number} has code {number * 7}. It is about {words}."

    return [
        Example(
            f"q{i}",
            f"What is the code of Thing {i}?",
            (str(i * 7), f"number {i * 7}"),
            tuple(paragraph(n) for n in (i, 100 + i, 200 + i, 300 + i, 400 + i)),
            (0, 2),
            ((0, 0, len(f"Thing {i} has code {i * 7}.")),),
            {"type": "bridge"},
        )
        for i in range(40)
    ]


@pytest.fixture(scope="session")
def small_set(examples, tmp_path_factory):
    """A task set of them, twenty documents a task."""
    tokenizer = load_tokenizer("world")
    draft = among_distractors(examples, tokenizer=tokenizer, split="train", seed=1, documents=20)
    return write_task_set(tmp_path_factory.mktemp("sets") / "small", draft, Card("test"), tokenizer)
