"""Shared by several test files: small task sets, a tiny encoder, a tiny corpus, and paths of real data."""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_model import save_tiny_bert, save_tiny_model
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from vllm_server import vllm_server

from memenvs.build.contexts import Example
from memenvs.build.examples import among_distractors
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card, open_tasks
from memenvs.tasks.tokens import TextTokenizer, load_tokenizer

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing in the tests may ask a hub
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers of two threads each fight over two cores


def _refuse_other_machines(event, args):
    """Raise where a test looks up a name of another machine, or connects to one."""
    if event in ("socket.connect", "socket.getaddrinfo"):
        host = args[0] if event == "socket.getaddrinfo" else isinstance(args[1], tuple) and args[1][0]
        if host and str(host) not in ("localhost", "::1") and not str(host).startswith("127."):
            raise OSError(f"no test may reach another machine, and this one asks for {host}")


sys.addaudithook(_refuse_other_machines)

if importlib.util.find_spec("hypothesis"):  # the trainers' environments lack it
    from hypothesis import settings

    settings.register_profile("no deadline", deadline=None)  # a busy machine is not a failure
    settings.load_profile("no deadline")

# Tests that want a real language model and minutes (`make test-lm`), and what tests share.
collect_ignore = ["lm", "support"]

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def real_data():
    """The folder of real data next to the project, where there is one."""
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


@pytest.fixture(scope="session")
def wiki() -> Path:
    path = SHARED / "data" / "wiki" / "wiki_passages.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the real passages are not at {path}")
    return path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 of 0.36 M parameters with the bundled tokenizer and a chat template, window 1,024."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen3")


@pytest.fixture(scope="session")
def tokenizer(tiny_model):
    """The tiny model's tokenizer; a test that changes one loads its own."""
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="session")
def vllm_url(tiny_model, tmp_path_factory):
    """The address of a real vLLM server of `tiny_model`, served as "tiny"."""
    with vllm_server(tiny_model, tmp_path_factory.mktemp("vllm") / "log") as url:
        yield url


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of two layers, as a bare transformers folder whose name is not E5's."""
    for library in ("torch", "transformers", "sentence_transformers"):
        pytest.importorskip(library)
    return save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny")


def _word_piece():
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return made, trainers.WordPieceTrainer(vocab_size=1000, special_tokens=["[UNK]"], show_progress=False)


def _unigram():
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    return made, trainers.UnigramTrainer(
        vocab_size=1000, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )


def _word_level():
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made, trainers.WordLevelTrainer(vocab_size=1000, special_tokens=["[UNK]"], show_progress=False)


@pytest.fixture(scope="session", params=["byte_level", "word_piece", "unigram", "word_level"])
def any_tokenizer(request):
    """A tokenizer of each kind, trained on some of the bundled world."""
    if request.param == "byte_level":
        return load_tokenizer("world")
    texts = open_tasks("world-train").document_texts(range(300))
    make = {"word_piece": _word_piece, "unigram": _unigram, "word_level": _word_level}[request.param]
    made, trainer = make()
    made.train_from_iterator(texts, trainer)
    return TextTokenizer(made, request.param)
