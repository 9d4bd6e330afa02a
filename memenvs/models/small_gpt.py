"""A small GPT to train from scratch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import tokenizers
import torch
import transformers

END = "<|end|>"


def save_small_gpt(
    folder: Path,
    phrases: Iterable[str],
    *,
    texts: Iterable[str] = (),
    vocabulary: int = 0,
    width: int = 128,
    layers: int = 4,
    window: int = 512,
    tied: bool = False,
    spread: float = 0.02,
    seed: int = 0,
) -> Path:
    """Save a GPT-2 of `layers` layers whose tokens are bytes, merges learned from texts, and whole phrases.

    Args:
        folder: created.
        phrases: texts that are one token each, such as an environment's instructions.
        texts: what merges of bytes are learned from.
        vocabulary: bytes and merges, at most; 0 for bytes alone.
        width: of the hidden states; an attention head has 32 dimensions.
        layers: number of transformer blocks.
        window: tokens of its context.
        tied: the lm_head shares the weights of the embeddings, so that copying a token is learned sooner.
        spread: standard deviation of the layers' first weights; GPT-2's 0.02 suits widths near 768, a narrow
            model learns sooner with about 1 / sqrt(width).
        seed: of the weights.
    """
    tokenizer = _tokenizer(list(texts), vocabulary, list(dict.fromkeys(phrases)))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, model_max_length=window
    )
    config = transformers.GPT2Config(
        vocab_size=len(fast),
        n_positions=window,
        n_embd=width,
        n_layer=layers,
        n_head=width // 32,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own, computed at once
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():  # larger embeddings of tokens and positions are told apart much sooner
        model.transformer.wte.weight.mul_(10.0)
        model.transformer.wpe.weight.mul_(10.0)
        for weight in model.transformer.h.parameters():
            if weight.ndim == 2:
                weight.mul_(spread / config.initializer_range)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def _tokenizer(texts: list[str], vocabulary: int, phrases: list[str]) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=max(vocabulary, len(letters)), initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([END])
    tokenizer.add_tokens([tokenizers.AddedToken(phrase, normalized=False) for phrase in phrases])
    return tokenizer
