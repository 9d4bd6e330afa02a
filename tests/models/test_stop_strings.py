"""Stop strings end a reply under every kind of decoder: at the first token after which its text has one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tokenizers import Tokenizer, decoders, models

from memenvs.data import bundled
from memenvs.models.chat import TokenText
from memenvs.models.sampling import StoppingCriteria

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
STRIP = decoders.Strip(" ", 1, 0)  # the first space of a text is the tokenizer's own
SPACE = decoders.Replace("▁", " ")
DECODERS = {
    "llama": decoders.Sequence([SPACE, decoders.ByteFallback(), decoders.Fuse(), STRIP]),
    "gemma": decoders.Sequence([SPACE, decoders.ByteFallback(), decoders.Fuse()]),
    "metaspace": decoders.Metaspace(),
    "wordpiece": decoders.WordPiece(),
    "suffix": decoders.BPEDecoder("</w>"),
}


def text_of(decoder, words):
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, words[0]))
    tokenizer.decoder = DECODERS[decoder]
    return TokenText(tokenizer)


def ended(text, stop, ids):
    """Number of tokens after which a reply is over; None: it is never."""
    rows = np.array([ids])
    stopping = StoppingCriteria(text, stop, text.backend.get_vocab_size())
    for step in range(len(ids)):
        if stopping.ended(rows, np.array([0]), step)[0]:
            return step + 1
    return None


CASES = [
    # decoder, tokens, stop strings, number of tokens of the reply
    ("llama", ["the", ":", "▁", "the"], [": "], 3),
    ("llama", ["▁Answer", ":", "▁the"], [": "], 3),  # the token shows more than the string
    ("llama", ["▁Answer", ":", "▁", "▁the"], ["Answer: "], 3),
    ("llama", ["▁Answer", ":", "▁", "▁"], [":  "], 4),
    ("llama", ["▁the", "▁", "▁"], [" "], 2),  # a text's first space is not shown
    ("llama", ["▁", "▁the"], [" the"], 2),
    ("llama", ["▁the", "<0xC3>", "<0xA9>", "▁the"], ["é"], 3),
    ("llama", ["▁the", "<0x20>", "▁the"], ["the "], 2),
    ("llama", ["▁the", "</end>\n", "▁the"], ["end>"], 2),
    ("llama", ["▁the", ":", "<0x0A>", "▁the"], [":\n"], 3),
    ("gemma", ["▁", "▁the"], [" "], 1),
    ("gemma", [*["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"] * 40, "<0xC3>", "<0xA9>", "▁the"], ["é"], 162),
    ("gemma", [*["<0xE3>", "<0x80>", "<0x82>"] * 30, "▁the"], ["。" * 30], 90),
    ("metaspace", ["▁the", ":", "▁", "▁the"], [": "], 3),
    ("metaspace", ["▁", "the", "▁the"], ["the t"], 3),
    ("wordpiece", ["the", "##re", "is", "not"], ["there "], 3),
    ("wordpiece", ["the", "##re", "is", "not"], ["re i"], 3),
    ("wordpiece", ["the", ".", "is"], ["the."], 2),
    ("suffix", ["the", "re</w>", "is</w>", "not</w>"], ["there "], 3),
    ("suffix", ["the", "re</w>", "is</w>"], ["there"], 2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2][0]!r}")
def test_the_token_that_completes_a_stop_string_is_the_last(case):
    decoder, tokens, stop, count = case
    text = text_of(decoder, list(dict.fromkeys(["<unk>", *BYTES, *tokens])))
    ids = [text.backend.token_to_id(token) for token in tokens]
    assert ended(text, [*stop, "never"], ids) == count
    assert stop[0] in text.decode(ids[:count])
    assert stop[0] not in text.decode(ids[: count - 1])


def test_a_stop_string_that_only_the_end_of_a_reply_would_show_is_none():
    # Alone, the first token of a text shows its marks: the words are one, and have no space between them.
    text = text_of("wordpiece", ["<unk>", "a", "##b"])
    assert ended(text, ["##b"], [1, *[2] * 40]) is None


@pytest.mark.parametrize("stop", ["é", "né", " ", "e: ", "😀", "\n\n"])
def test_under_a_byte_level_decoder_the_last_byte_completes_a_stop_string(stop):
    text = TokenText(Tokenizer.from_file(str(bundled("tokenizers/world.json"))))
    ids = text.encode(f"The name{stop}: and more né: 😀\n\n, e: x").tolist()
    count = ended(text, [stop], ids)
    assert count is not None
    assert stop in text.decode(ids[:count])
    assert stop not in text.decode(ids[: count - 1])
