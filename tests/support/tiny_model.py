"""A tiny random Qwen3 and a tiny random BERT, in folders; the plain way to score, to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from memenvs.data import bundled

CHAT_TEMPLATE = """{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' -%}
{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
{%- else -%}
{{ message['content'] + '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


def save_tiny_model(
    folder: Path,
    window: int = 1024,
    seed: int = 0,
    *,
    tied: bool = True,
    spare_rows: int = 0,
    tokenizer: Any = None,
) -> Path:
    """Save a model of 0.36 M parameters; needs torch and transformers, touches no global random state.

    Its weights are spread far enough that its log-probabilities differ by nats, not by rounding.

    Args:
        folder: to be made.
        window: tokens that it can read.
        seed: of the weights.
        tied: the head has the embeddings' weights.
        spare_rows: of the embeddings and the head, beyond the tokenizer's tokens.
        tokenizer: of transformers; None: the bundled world's, with a chat template.
    """
    import torch
    import transformers

    tokenizer = tokenizer or transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(bundled("tokenizers/world.json")),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
        model_max_length=window,
    )
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer) + spare_rows,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM's kernels for a CPU know
        max_position_embeddings=window,
        tie_word_embeddings=tied,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen3ForCausalLM(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tiny_bert(folder: Path) -> Path:
    """Save a random BERT of two layers, as a bare transformers folder; needs torch and transformers."""
    import torch
    import transformers

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


def joined(prompts, replies):
    """Sequences of prompt and reply, and which of their tokens the policy wrote."""
    pairs = list(zip(prompts, replies, strict=True))
    sequences = [np.concatenate([prompt, reply.ids]) for prompt, reply in pairs]
    return sequences, [np.arange(len(prompt) + len(reply.ids)) >= len(prompt) for prompt, reply in pairs]


def plain_logprobs(model, pair):
    """Log-probabilities (T,) of a pair of token ids by their definition: the pair alone, all logits."""
    import torch

    with torch.no_grad():
        logits = model.eval()(torch.tensor([[*pair.prompt, *pair.continuation]])).logits[0].double()
    rows = len(pair.prompt) - 1 + torch.arange(len(pair.continuation))
    return logits.log_softmax(-1)[rows, torch.tensor(pair.continuation, dtype=torch.long)].numpy()
