"""The real model of these tests, and fixtures that prompt it in its chat template."""

import pytest

from memenvs.models.chat import ChatTokens
from memenvs.models.loading import load_hf_tokenizer
from memenvs.models.packaged import resolve
from memenvs.wrappers.scorers import HFScorer


@pytest.fixture(scope="session")
def smollm2():
    """The folder of SmolLM2-135M-Instruct, converted when it is first asked for."""
    return str(resolve("smollm2"))


@pytest.fixture(scope="session")
def exact(smollm2):
    return HFScorer(smollm2, dtype="float32")


@pytest.fixture(scope="session")
def template(exact):
    """The model's chat around `{prompt}`."""
    return ChatTokens(load_hf_tokenizer(None, exact.model)).template
