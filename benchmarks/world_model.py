"""Train a small model on the bundled world, for measures that want one that knows its ways of speaking.

python -m benchmarks.world_model FOLDER [--steps 800]
python -m memenvs.evaluate discriminate --measure hf:FOLDER
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import transformers

from memenvs.data import bundled
from memenvs.envs.chunk_prompts import reading_templates
from memenvs.metrics import wrap_answer
from memenvs.tasks import TaskSet, open_tasks
from memenvs.wrappers.corruption import corrupt

WINDOW = 1_024


def model(vocabulary: int) -> transformers.Qwen3ForCausalLM:
    """A random Qwen3 of 1.3 M parameters, its embeddings tied."""
    config = transformers.Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
        dtype="float32",
    )
    return transformers.Qwen3ForCausalLM(config)


def answered(tasks: TaskSet, epoch: int) -> list[str]:
    """Each bridge question in the final-answer prompt: the true sentences, those of another, the answer."""
    _, answer = reading_templates(None)
    form = wrap_answer("…", "boxed")
    return [
        answer.fill(question=one.question, memory=one.true, turn=1, turns=1, max_memory=0, format=form)
        + wrap_answer(one.answer, "boxed")
        for one in corrupt(tasks, seed=epoch)
    ]


def batches(tasks: TaskSet, size: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Documents and answered questions for ever, shuffled together; other donors in every epoch."""
    documents = tasks.shown(range(tasks.card.counts["documents"]))
    epoch = 0
    while True:
        # A seed that no measure uses draws the donors.
        texts = answered(tasks, 1_000_000 + 2 * epoch) + answered(tasks, 1_000_001 + 2 * epoch)
        texts += [documents[i] for i in rng.choice(len(documents), len(texts) // 4, replace=False)]
        order = rng.permutation(len(texts))
        for start in range(0, len(texts) - size + 1, size):
            yield [texts[i] for i in order[start : start + size]]
        epoch += 1


def train(folder: Path, steps: int, size: int, rate: float, seed: int) -> None:
    """Next-token training; saves the model and its tokenizer in `folder`."""
    torch.manual_seed(seed)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(bundled("tokenizer.json")), pad_token="<|endoftext|>"
    )
    learner = model(len(tokenizer))
    print(f"{learner.num_parameters():,} parameters, {torch.get_num_threads()} threads")
    optimizer = torch.optim.AdamW(learner.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    texts, began = batches(open_tasks("world-train"), size, np.random.default_rng(seed)), time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 100, 2 * (1 - step / steps))
        read = tokenizer(next(texts), return_tensors="pt", padding=True, truncation=True, max_length=WINDOW)
        labels = read.input_ids.masked_fill(read.attention_mask == 0, -100)
        loss = learner(input_ids=read.input_ids, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1:5}: {loss:.3f} nats, {time.perf_counter() - began:.0f} s", flush=True)
    learner.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description="a small model that has read the bundled world")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--size", type=int, default=8, help="texts in a batch")
    parser.add_argument("--rate", type=float, default=2e-3, help="of learning, at its highest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.folder, args.steps, args.size, args.rate, args.seed)


if __name__ == "__main__":
    main()
