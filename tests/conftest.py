"""Fixtures that several test files share: a tiny encoder, a tiny world, the real passages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SHARED = Path(__file__).parents[2] / "shared"
WORLD = [
    ("p3", "Ada Lovelace", "wrote the first program for the engine of Babbage"),
    ("p1", "Charles Babbage", "designed the analytical engine in London"),
    ("p2", "Grace Hopper", "built the first compiler and found a moth"),
    ("p10", "Beyoncé", "sang in Houston"),
    ("p0", "Moth", "a winged insect that comes out at night"),
]


@pytest.fixture(scope="session")
def wiki() -> Path:
    path = SHARED / "data" / "wiki" / "wiki_passages.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the real passages are not at {path}")
    return path


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of two layers, as a bare transformers folder whose name is not E5's."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789:"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    vocabulary = {
        piece: number for number, piece in enumerate([*pieces, "query", "passage", "the", "engine"])
    }
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.5,
    )
    transformers.BertModel(config).eval().save_pretrained(folder)
    return folder
