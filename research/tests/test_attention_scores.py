"""How much the answer attends to a context: InfoMem's two attention scores, by hand and with a model."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_model import save_tiny_model
from tokenizers import Tokenizer, models, pre_tokenizers

from memenvs.wrappers.scorers import HFScorer
from memenvs.wrappers.scorers.protocol import TokenPair
from research.discriminate import Contexts, answer_prompt, attention

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


class Looks:
    """A model with given attention weights on earlier tokens: one layer of two heads."""

    class config:
        _attn_implementation = "sdpa"

    training = False

    def __init__(self, heads):
        self.heads = heads

    def set_attn_implementation(self, kind):
        self.config._attn_implementation = kind

    def get_input_embeddings(self):
        return torch.nn.Embedding(1, 1)

    def modules(self):
        return []

    def eval(self):
        pass

    def __call__(self, input_ids, output_attentions):
        assert self.config._attn_implementation == "eager"
        size = input_ids.shape[1]
        wide = torch.zeros(1, len(self.heads), size, size)
        for head, weights in enumerate(self.heads):
            for (row, column), weight in weights.items():
                wide[0, head, row, column] = weight
        return SimpleNamespace(attentions=(torch.full_like(wide, 9.0), wide))


class LooksScorer:
    """One token per word; the answer has two."""

    def __init__(self, heads):
        self.model = Looks(heads)
        self.tokenizer = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
        self.tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    def pairs(self, requests):
        ((prompt, answer, _),) = requests
        words = len(list(re.finditer(r"\S+", prompt)))
        return [TokenPair([0] * words, [0] * len(answer.split()))]


def test_attention_is_that_of_the_answers_tokens_to_the_contexts_by_hand():
    asked = Contexts("Who?", "Ada Byron", "one two", ("one two", "one two"))
    words = answer_prompt("Who?", "one two").split()
    one, two, first = words.index("one"), words.index("two"), len(words)
    heads = [
        {(first, one): 0.2, (first, two): 0.4, (first + 1, one): 0.6, (first + 1, 0): 0.3},
        {(first, one): 0.4, (first + 1, two): 0.2, (first, first): 0.5},
    ]
    # mean of heads: Ada looks at one 0.3, at two 0.2; Byron at one 0.3, at two 0.1
    # mass (0.5 + 0.4) / 2, top1 (0.3 + 0.3) / 2
    scores = attention(LooksScorer(heads), [asked])
    np.testing.assert_allclose(scores["mass"], [[0.45] * 3], rtol=1e-6)
    np.testing.assert_allclose(scores["top1"], [[0.3] * 3], rtol=1e-6)


def test_a_model_gives_its_attention_and_goes_on_as_before(tmp_path):
    scorer = HFScorer(str(save_tiny_model(tmp_path / "tiny")))
    before = scorer.model.config._attn_implementation
    scores = attention(scorer, [Contexts("Who?", "Ada", "It was Ada.", ("It was Bob.", "It was Cy."))])
    assert scorer.model.config._attn_implementation == before
    assert (scores["top1"] <= scores["mass"]).all()
    assert ((scores["mass"] > 0) & (scores["mass"] < 1)).all()
