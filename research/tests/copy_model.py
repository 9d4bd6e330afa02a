"""A small Qwen3 that has learned to copy: it expects what its prompt says to be repeated."""

from __future__ import annotations

from typing import Any

from memenvs.data import bundled

WIDTH, HEAD = 128, 32  # of a token's state, and of an attention head
FAST = 4  # of the 16 angles of a head: those that tell one place from the next
STEPS, TOKENS, LEARNING_RATE = 60, 512, 5e-4


def copying_model(seed: int = 0) -> tuple[Any, Any]:
    """A model of 0.7 M parameters trained in seconds on random tokens said twice, and its tokenizer.

    Copying takes two layers: the first looks one token back, the second looks for the places that come after
    the token at hand. To find that out takes millions of tokens, so both layers begin near it and training
    sharpens them. Touches no global random state.

    Args:
        seed: of the weights and of the sequences.
    """
    import torch
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(bundled("tokenizers/world.json")))
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=WIDTH // HEAD,
        num_key_value_heads=WIDTH // HEAD,
        head_dim=HEAD,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},  # the slow angles hardly turn at all
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen3ForCausalLM(config)
        with torch.no_grad():
            _begin_near_copying(model)
    _train(model, torch.Generator().manual_seed(seed))
    return model.eval(), tokenizer


def _begin_near_copying(model: Any) -> None:
    import torch

    one = torch.eye(WIDTH)
    turned = torch.linalg.qr(
        torch.randn(WIDTH, WIDTH)
    ).Q  # keeps the token before apart from the token itself
    first, second = (layer.self_attn for layer in model.model.layers)
    model.model.embed_tokens.weight.normal_(std=0.1).requires_grad_(False)
    model.model.norm.weight.fill_(3.0)

    angles = 1e12 ** (-torch.arange(HEAD // 2) * 2 / HEAD)
    fast = (torch.arange(HEAD // 2) <= FAST).float()
    query, key = torch.cat([fast, 0 * fast]), torch.cat([fast * angles.cos(), fast * angles.sin()])
    for part, bias in ((first.q_proj, query), (first.k_proj, key)):  # a key matches one place further on
        part.weight.zero_()
        part.bias.copy_(bias.repeat(WIDTH // HEAD))
    first.v_proj.weight.copy_(one)
    first.o_proj.weight.copy_(0.1 * turned)

    slow = (torch.arange(WIDTH) % (HEAD // 2) >= FAST).float()[:, None]
    second.q_proj.weight.copy_(slow * one)
    second.k_proj.weight.copy_(slow * turned.T)
    second.v_proj.weight.copy_(one)
    second.o_proj.weight.copy_(one)
    for attention, sharpness in ((first, 4.0), (second, 2.0)):
        attention.q_norm.weight.fill_(sharpness)
        attention.k_norm.weight.fill_(sharpness)
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.zero_()


def _train(model: Any, generator: Any) -> None:
    """Lower the loss of the second time that 32 to 64 random tokens are said."""
    import torch

    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    for _ in range(STEPS):
        length = int(torch.randint(32, 65, (), generator=generator))
        said = torch.randint(0, model.config.vocab_size, (TOKENS // length, length), generator=generator)
        logits = model(input_ids=said.repeat(1, 2), logits_to_keep=length, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), said[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
