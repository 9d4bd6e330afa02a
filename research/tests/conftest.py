"""Fixtures of the research tests; the package's test helpers are on the path (pyproject.toml)."""

import pytest
from tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A random Qwen3 of 0.36 M parameters with the bundled tokenizer and a chat template."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen3")
