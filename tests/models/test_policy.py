"""How policies handle text: prompts, feedback, the text of replies, and the characters of their tokens."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import CHAT_TEMPLATE
from tokenizers import Tokenizer, decoders, models

from memenvs.data import bundled
from memenvs.models import ScriptedPolicy
from memenvs.models.chat import TokenText
from memenvs.models.policy import reply_limits
from memenvs.models.sampling import StoppingCriteria
from memenvs.tasks.tokens import load_tokenizer

END, OPENING = 2, 1  # <|im_end|>, <|im_start|> of the bundled tokenizer
TEXTS = ("Ada Lovelace, 1843.", "naïve 😀😀 café", " leading and trailing ", "", "\n\n")


@pytest.fixture
def world():
    return TokenText(load_tokenizer("world").backend, [END])


@pytest.fixture
def chat():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from memenvs.models.chat import ChatTokens
    from memenvs.models.settings import ChatSettings

    def make(template=CHAT_TEMPLATE, chat=None, ends=(), **settings):
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(bundled("tokenizers/world.json")),
            eos_token="<|endoftext|>",
            additional_special_tokens=["<|im_start|>", "<|im_end|>"],
            chat_template=template,
        )
        return ChatTokens(tokenizer, chat, ends, ChatSettings(**settings))

    return make


@pytest.mark.parametrize("text", TEXTS[:4])
def test_spans_cover_the_text_under_any_tokenizer(any_tokenizer, text):
    tokens = TokenText(any_tokenizer.backend)
    ids = tokens.encode(text)
    spans = tokens.spans(ids)
    covered = sorted({place for start, end in spans for place in range(start, end)})
    assert covered == list(range(len(tokens.reply_text(ids))))


def test_tokens_that_share_a_character_all_have_it(world):
    ids = world.encode("a😀b")
    assert len(ids) > 3
    spans = world.spans(ids).tolist()
    assert spans[0] == [0, 1]
    assert spans[1:-1] == [[1, 2]] * (len(ids) - 2)
    assert spans[-1] == [2, 3]


def test_tokens_of_single_bytes_share_the_character_that_they_make():
    names = ["<unk>", "▁a", *(f"<0x{byte:02X}>" for byte in "é".encode())]
    vocabulary = [(name, 0.0) for name in names]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokens = TokenText(backend)
    ids = np.array([1, 2, 3, 1])
    assert tokens.decode(ids) == " aé a"
    assert tokens.spans(ids).tolist() == [[0, 2], [2, 3], [2, 3], [3, 5]]


def test_an_end_token_has_an_empty_span_behind_the_text(world):
    ids = np.append(world.encode("Ada"), END)
    assert world.reply_text(ids) == "Ada"
    assert world.spans(ids)[-1].tolist() == [3, 3]


def test_only_the_last_end_token_is_left_out_of_the_text(world):
    ids = np.array([END, *world.encode("Ada"), END])
    assert world.reply_text(ids) == "<|im_end|>Ada"
    assert world.spans(ids).tolist()[0] == [0, 10]


def test_a_character_cut_in_two_is_shown_as_broken_and_has_its_span(world):
    ids = world.encode("a😀")[:-1]
    text = world.reply_text(ids)
    assert text.startswith("a\ufffd")
    assert world.spans(ids)[-1, 1] == len(text)


def test_random_bytes_have_spans_up_to_the_end_of_their_text(world):
    rng = np.random.default_rng(0)
    for _ in range(200):
        ids = rng.integers(3, 259, 12)  # mostly the tokens of single bytes
        spans, text = world.spans(ids), world.reply_text(ids)
        assert spans[-1, 1] == len(text)
        assert (spans[1:, 0] <= spans[:-1, 1]).all()
        assert (np.diff(spans, axis=0) >= 0).all()


def test_lone_surrogates_in_an_observation_are_no_error(world):
    assert world.decode(world.encode("a\ud800b")) == "a\ufffdb"


def test_feedback_does_not_repeat_the_end_token_of_a_reply(chat):
    tokens = chat()
    reply = np.append(tokens.encode("Ada"), END)
    assert tokens.decode(tokens.feedback("No.", reply)).startswith("\n<|im_start|>user\nNo.")


def test_prompt_reply_and_feedback_joined_are_what_the_template_renders(chat):
    tokens = chat()
    reply = np.append(tokens.encode("Ada"), END)
    joined = np.concatenate([tokens.prompt("Who?"), reply, tokens.feedback("No.", reply)])
    said = [("user", "Who?"), ("assistant", "Ada"), ("user", "No.")]
    rendered = tokens.tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in said],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert tokens.decode(joined) == rendered


def test_the_token_that_closes_a_message_ends_a_reply_too(chat):
    assert chat().ends == {0, END}
    assert chat(chat=False).ends == {0}
    assert chat(ends=[0]).ends == {0, END}  # a base model's own


PARTS = """{%- for message in messages -%}
<|im_start|>{{ message['role'] + message['content'] }}
{%- if loop.last and not add_generation_prompt -%}<|endoftext|>{%- else -%}<|im_end|>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant{%- endif -%}"""
"""As gpt-oss, whose `<|end|>` closes a part of a message and whose `<|return|>` closes the reply."""


@pytest.mark.parametrize("own", [[], [0], [0, OPENING]])
def test_a_token_that_closes_part_of_a_message_ends_no_reply(chat, own):
    assert chat(PARTS, ends=own).ends == {0, *own}


def test_a_model_that_names_several_end_tokens_gets_no_other(chat):
    tokens = chat(ends=[0, OPENING])
    assert tokens.ends == {0, OPENING}
    assert tokens.reply("Ada")[-1] == 0


def test_without_a_template_text_stays_as_it_is(chat):
    tokens = chat(template=None)
    assert not tokens.chat
    assert tokens.decode(tokens.prompt("Who?")) == "Who?"
    assert tokens.decode(tokens.feedback(" No.", tokens.encode("Ada"))) == " No."


# As Qwen3's: thoughts can be switched off, by an empty one in the generation prompt.
SWITCH = CHAT_TEMPLATE + (
    "{% if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)
OPENS = CHAT_TEMPLATE + "{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}"


def test_arguments_of_the_template_reach_every_prompt(chat):
    on, off = chat(SWITCH), chat(SWITCH, chat_args={"enable_thinking": False})
    assert on.decode(on.prompt("Who?")) == "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    assert off.decode(off.prompt("Who?")).endswith("assistant\n<think>\n\n</think>\n\n")
    assert off.decode(off.feedback("No.", off.encode("Ada"))).endswith("assistant\n<think>\n\n</think>\n\n")


def test_scorers_are_shown_what_the_policy_reads(chat):
    tokens = chat(SWITCH, chat_args={"enable_thinking": False})
    assert tokens.template == tokens.decode(tokens.prompt("{prompt}"))


def test_a_system_message_opens_every_prompt_and_what_a_scorer_is_shown(chat):
    tokens = chat(system_prompt="Use {braces}.")
    start = "<|im_start|>system\nUse {braces}.<|im_end|>\n<|im_start|>user\n"
    assert tokens.decode(tokens.prompt("Who?")).startswith(start + "Who?")
    assert tokens.template.startswith(start + "{prompt}")
    other = tokens.decode(tokens.prompt("Who?", [("system", "Be brief.")]))
    assert other.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho?")
    assert "system" not in tokens.decode(tokens.feedback("No.", tokens.encode("Ada")))


def test_a_thought_that_the_prompt_opens_is_closed_where_an_answer_is_scored(chat):
    tokens = chat(OPENS)
    assert tokens.template.endswith("{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_a_demonstration_does_not_open_the_thought_again(chat):
    tokens = chat(OPENS)
    assert tokens.decode(tokens.reply("<think>\nAda?</think>Ada")[:-1]) == "Ada?</think>Ada"
    assert tokens.decode(chat().reply("<think>Ada?</think>Ada")[:-1]) == "<think>Ada?</think>Ada"


@pytest.mark.parametrize(
    "arguments",
    [
        {"template": None, "chat": True},
        {"template": SWITCH, "chat_args": {"enable_thoughts": False}},
        {"template": SWITCH, "chat_args": {"messages": []}},
        {"template": None, "chat_args": {"enable_thinking": False}},
        {"template": None, "system_prompt": "Be brief."},
        {"template": "{{ raise_exception('no system here') }}"},
        {"template": "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"},
    ],
)
def test_templates_and_arguments_that_cannot_be_used_are_refused(chat, arguments):
    with pytest.raises(ValueError, match=r"template|plain text"):
        chat(**arguments)


def test_a_beginning_of_sequence_token_comes_before_a_prompt_and_not_before_feedback(chat):
    from tokenizers.processors import TemplateProcessing

    tokenizer = chat(template=None).tokenizer
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", OPENING)]
    )
    tokenizer.bos_token = "<|im_start|>"
    tokens = type(chat())(tokenizer)
    assert tokens.prompt("Ada").tolist() == [OPENING, *tokens.encode("Ada")]
    assert tokens.feedback("Ada", np.zeros(0, np.int64)).tolist() == tokens.encode("Ada").tolist()


def over(world, stop, text):
    """How many tokens of a text are written until it is over."""
    ids = world.encode(text)[None]
    stopping = StoppingCriteria(world, stop, 4096)
    ended = [bool(stopping.ended(ids, np.array([0]), step)[0]) for step in range(ids.shape[1])]
    return (ended.index(True) + 1 if True in ended else None), ids[0]


@pytest.mark.parametrize("stop", ["</search>", "é", "😀", "Lovelace", "\n\n", "engine of"])
def test_a_stop_string_ends_a_reply_with_the_token_that_completes_it(world, stop):
    text = f"Ada thought{stop}and wrote on"
    count, ids = over(world, ["never", stop], text)
    assert stop in world.decode(ids[:count])
    assert stop not in world.decode(ids[: count - 1])


def test_a_reply_continues_until_its_stop_string(world):
    assert over(world, ["</search>"], "</answer> </search ></searc>")[0] is None


def test_a_long_stop_string_is_found_whole(world):
    stop = "the first program for the engine " * 4 + "😀"
    count, ids = over(world, [stop], f"She wrote {stop} and more")
    assert stop in world.decode(ids[:count])


def test_a_scripted_policy_replies_to_the_whole_prompt():
    policy = ScriptedPolicy(lambda text: text.upper())
    first = policy.encode("héllo")
    prompt = np.concatenate([first, policy.encode_feedback(" wörld", first)])
    (reply,) = policy.sample([prompt], [np.random.default_rng(0)], 100)
    assert reply.text == "HÉLLO WÖRLD"
    assert reply.finished
    assert reply.logprobs.tolist() == [0.0] * len(reply.ids)
    assert policy.spans(reply.ids)[-1, 1] == len(reply.text)


def test_a_scripted_reply_is_truncated_at_its_limit():
    policy = ScriptedPolicy(lambda text: "one two three four five")
    prompts, rngs = [policy.encode("?")] * 2, [np.random.default_rng(0)] * 2
    short, whole = policy.sample(prompts, rngs, [2, 50])
    assert len(short.ids) == 2
    assert whole.text.startswith(short.text)
    assert (short.finished, whole.finished) == (False, True)


def test_a_scripted_reply_of_lone_surrogates_is_no_error():
    policy = ScriptedPolicy(lambda text: "\udc80")
    (reply,) = policy.sample([policy.encode("?")], [np.random.default_rng(0)], 9)
    assert reply.text == "\ufffd"


def test_a_reply_is_limited_by_the_rest_of_the_window():
    # window 10: 8 tokens leave 2, 10 and 12 leave none; 3 leave 7, of which 4 are asked
    assert reply_limits([8, 10, 12, 3], 4, 10) == [2, 0, 0, 4]
    assert reply_limits([8, 10], [5, 6], None) == [5, 6]
