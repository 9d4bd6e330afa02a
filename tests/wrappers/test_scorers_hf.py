"""The transformers scorer against the plain way: each request alone, all logits."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers
from tiny_model import plain_logprobs
from tokenizers import Tokenizer, models

from memenvs.wrappers.registry import make_scorer
from memenvs.wrappers.scorers import HFScorer, ScoreRequest
from memenvs.wrappers.scorers.protocol import PairScorer, TokenPair

HISTORY = "Ada Lovelace wrote the first program for the engine of Babbage. "
QUESTION = "<|im_start|>user\nWho wrote the first program?<|im_end|>\n<|im_start|>assistant\n"


def requests():
    """Prompts that grow or are shared, answers that begin alike, lone ones, an empty one, a repeated one."""
    words = "Ada Babbage engine moth London night Houston 1843".split()
    rng = np.random.default_rng(0)
    growing = [HISTORY * k + "Who?" for k in range(1, 6)]
    made = [ScoreRequest(prompt, " Ada Lovelace") for prompt in growing]
    made += [ScoreRequest(HISTORY * 4 + "Who?", answer) for answer in (" Ada", " Ada L", " Grace Hopper", "")]
    made += [ScoreRequest(HISTORY * 4 + "Who? Ada", " Lovelace"), ScoreRequest("é", "😀 ok")]
    made += [
        ScoreRequest(" ".join(rng.choice(words, n)), " ".join(rng.choice(words, 3))) for n in (2, 40, 9, 40)
    ]
    return [*made, made[0]]


@pytest.fixture(scope="module")
def scorer(tiny_model):
    return HFScorer(str(tiny_model))


@pytest.mark.parametrize("budget", [7, 100, None])
def test_scores_are_those_of_each_request_alone(tiny_model, budget):
    scorer = HFScorer(str(tiny_model), max_batch_tokens=budget)
    asked = requests()
    scores = scorer.logprobs(asked)
    assert len(scores) == len(asked)
    for pair, found in zip(scorer.pairs(asked), scores, strict=True):
        np.testing.assert_allclose(found, plain_logprobs(scorer.model, pair), rtol=0, atol=1e-4)


def test_an_empty_continuation_gives_an_empty_array(scorer):
    assert [len(scores) for scores in scorer.logprobs([ScoreRequest("Ada", ""), ScoreRequest("", "")])] == [
        0,
        0,
    ]
    assert scorer.logprobs([]) == []


def test_special_tokens_that_are_written_out_are_read_as_such(scorer):
    (pair,) = scorer.pairs([ScoreRequest(QUESTION, "Ada<|im_end|>")])
    assert pair.prompt[0] == 1
    assert pair.continuation[-1] == 2


def test_a_lone_surrogate_is_scored_as_a_replacement_character(scorer):
    first, second = scorer.logprobs([ScoreRequest("Ada \ud800", "x\udfff"), ScoreRequest("Ada �", "x�")])
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("answer", "scored"),
    [("Rex", [">R", "ex"]), ("R", [">R"]), ("ex", ["ex"]), ("e>", ["e", ">"]), ("", [])],
)
def test_a_token_that_the_opening_shares_with_the_continuation_is_scored(tmp_path, answer, scored):
    pieces = ["<", ">", "R", "e", "x", ">R", "ex"]
    merges = [(">", "R"), ("e", "x")]
    backend = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    backend.save(str(tmp_path / "tokenizer.json"))
    scorer = PairScorer(str(tmp_path), None, None)
    (pair,) = scorer.pairs([ScoreRequest("x", answer, "<>")])
    assert [pieces[token] for token in pair.continuation] == scored
    assert [pieces[token] for token in pair.prompt] == ["x", "<", ">"][: 2 if answer[:1] == "R" else 3]


@pytest.mark.parametrize("opening", ["<answer>", "\\boxed{", "<answer>\\boxed{", "Answer: ", "é\ud800", ""])
@pytest.mark.parametrize("answer", ["Ada L", '"Ada"', "\\frac{1}{2}", "-3", " 7", "é", "李安娜", "Ada " * 99])
def test_an_opening_and_its_continuation_have_the_tokens_of_one_text(opening, answer):
    scorer = PairScorer("general", None, None)
    requests = [ScoreRequest("Who?", answer, opening), ScoreRequest("Who?", opening + answer)]
    pair, whole = scorer.pairs(requests)
    assert pair.prompt + pair.continuation == whole.prompt + whole.continuation
    given, longer = (scorer.tokenizer.decode(pair.prompt + pair.continuation[:more]) for more in (0, 1))
    assert len(given) <= len("Who?" + opening) < len(longer)


def test_an_opening_comes_after_the_template(scorer):
    rendered = make_scorer(scorer, "User: {prompt}\nAgent: ").logprobs([ScoreRequest("Who?", "Ada", "[")])
    plain = scorer.logprobs([ScoreRequest("User: Who?\nAgent: ", "Ada", "[")])
    np.testing.assert_array_equal(rendered, plain)


def shapes_read(scorer, pairs):
    """Shapes (rows, tokens) of what the model was given to score pairs."""
    shapes = []
    hook = scorer.model.base_model.register_forward_pre_hook(
        lambda module, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    scorer.token_logprobs(pairs)
    hook.remove()
    return [shape for shape in shapes if shape != (1, 1)]  # a token that logits are made with


PROMPT = list(range(3, 203))


def test_a_shared_prefix_is_read_once_and_nothing_is_padded(scorer):
    pairs = [TokenPair([*PROMPT, *range(500 + 20 * i, 500 + 22 * i)], [5, 6, 7]) for i in range(8)]
    # the prompt's 200 tokens, then 2 i of each request's own and two of its continuation
    assert shapes_read(scorer, pairs) == [(1, 200 + 56 + 16)]


def test_requests_beyond_the_budget_are_read_in_another_pass(tiny_model):
    small = HFScorer(str(tiny_model), max_batch_tokens=205)
    pairs = [TokenPair(PROMPT, [5 + i, 7]) for i in range(8)]
    # 200 tokens of the prompt and one of each continuation: five fit, and the other three read it again
    assert shapes_read(small, pairs) == [(1, 205), (1, 203)]


def test_each_module_is_left_in_its_mode(tiny_model):
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model).train()
    model.model.layers[0].eval()
    scorer = HFScorer(model)
    scorer.logprobs(requests()[:3])
    assert model.training
    assert model.model.layers[1].mlp.training
    assert not model.model.layers[0].mlp.training


def test_a_request_beyond_the_window_is_refused_with_both_numbers(scorer):
    beyond = ScoreRequest("7" * 1_020, "12345")
    with pytest.raises(ValueError, match=r"request 1 is 1,025 tokens long, 5 of them .* window is 1,024"):
        scorer.logprobs([ScoreRequest("7" * 1_019, "12345"), beyond])


def test_a_prompt_beyond_the_window_loses_its_first_tokens_on_request(tiny_model):
    cut = HFScorer(str(tiny_model), truncate="left")
    long, kept = ScoreRequest("8" + "7" * 1_019, "12345"), ScoreRequest("7" * 1_019, "12345")
    np.testing.assert_allclose(*cut.logprobs([long, kept]), rtol=0, atol=1e-6)


def test_a_continuation_that_leaves_no_room_for_a_prompt_is_refused(tiny_model):
    cut = HFScorer(str(tiny_model), truncate="left")
    with pytest.raises(ValueError, match="shorten the continuation"):
        cut.logprobs([ScoreRequest("7", "7" * 1_024)])


def test_an_empty_prompt_is_refused(scorer):
    with pytest.raises(ValueError, match="request 0 has an empty prompt"):
        scorer.logprobs([ScoreRequest("", "Ada")])


def test_a_missing_model_is_named():
    with pytest.raises(FileNotFoundError, match="no model '/nowhere'"):
        HFScorer("/nowhere")


def test_a_model_in_memory_is_not_moved(tiny_model):
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    with pytest.raises(ValueError, match="move a model in memory yourself"):
        HFScorer(model, device="cpu")


def test_a_model_without_a_head_is_refused(tiny_model):
    with pytest.raises(ValueError, match="not a causal language model"):
        HFScorer(transformers.AutoModel.from_pretrained(tiny_model))


def test_a_model_made_in_memory_needs_a_tokenizer(tiny_model):
    config = transformers.AutoConfig.from_pretrained(tiny_model)
    config._name_or_path = ""
    with pytest.raises(FileNotFoundError, match="give one as tokenizer="):
        HFScorer(transformers.Qwen3ForCausalLM(config))


def test_a_conversation_is_written_in_the_chat_template_of_the_model(scorer):
    talk = [("user", "Who?"), ("assistant", "Let me look."), ("tool", "Ann."), ("user", "So?")]
    assert scorer.render(talk) == (
        "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\nLet me look.<|im_end|>\n"
        "<|im_start|>tool\nAnn.<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_refuses_the_role_of_a_tool_reads_its_result_as_a_users(tiny_model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    refusal = (
        "{%- for m in messages if m['role'] == 'tool' -%}{{ raise_exception('no tools') }}{%- endfor -%}"
    )
    tokenizer.chat_template = refusal + tokenizer.chat_template
    written = HFScorer(str(tiny_model), tokenizer).render([("tool", "Ann."), ("user", "So?")])
    assert written == "<|im_start|>user\nAnn.\n\nSo?<|im_end|>\n<|im_start|>assistant\n"


def test_a_model_without_a_chat_template_reads_plain_text(tiny_model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = None
    written = HFScorer(str(tiny_model), tokenizer).render([("user", "Who?")])
    assert written == "user: Who?\n\nassistant: "
