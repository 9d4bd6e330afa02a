"""How much faster tasks are assembled from counted sentences than by tokenising each whole sample.

    python -m benchmarks.niah [--prose FOLDER] [--tokens 131072] [--count 1000] [--plain 3]

Both make the same samples with one tokenizer in this process. The plain way joins a sample's text and
tokenises it once; a search for the number of sentences would do so several times. Ours is the whole of
`niah`: sentences split and counted, pool drawn, every task placed. The more tasks, the less its start-up time
matters. The prose is a folder of *.txt, or random words; the tokenizer is named, or trained on the prose.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.harness import print_head, print_row, run
from memenvs.build.haystack import read_prose
from memenvs.build.niah import ADJECTIVES, NOUNS, RECIPES, NiahOptions, niah
from memenvs.tasks.tokens import TextTokenizer, load_tokenizer


def generated_prose(sentences: int = 8000) -> list[str]:
    """Sentences of random words, used without essays."""
    chance = random.Random(0)
    words = ADJECTIVES + NOUNS
    return [
        " ".join(
            " ".join(chance.choices(words, k=chance.randint(6, 24))).capitalize() + "." for _ in range(40)
        )
        for _ in range(sentences // 40)
    ]


def trained(prose: list[str]) -> TextTokenizer:
    """A byte-level BPE tokenizer of 8,000 tokens, trained on the prose."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        prose, trainers.BpeTrainer(vocab_size=8000, initial_alphabet=alphabet, show_progress=False)
    )
    return TextTokenizer(backend, "trained on the prose")


def main(
    prose: str = "",
    tokenizer: str = "",
    tokens: int = 131_072,
    count: int = 1000,
    plain: int = 3,
    variants: tuple[str, ...] = tuple(RECIPES),
) -> None:
    """Measure every variant and print the table."""
    text = read_prose(Path(prose)) if prose else generated_prose()
    counter = load_tokenizer(tokenizer) if tokenizer else trained(text)
    counter.count("warm")
    print_head("variant", "plain, M tokens/s", "ours, M tokens/s", "ratio")
    for variant in variants:
        options = NiahOptions(variant=variant, num_tasks=count, tokens=tokens, split="benchmark")
        start = time.perf_counter()
        draft = niah(options, counter, text)
        seconds = time.perf_counter() - start
        sizes = draft.documents.tokens
        ours = sum(int(sizes[list(task.documents)].sum()) for task in draft.tasks) / seconds / 1e6
        start, counted = time.perf_counter(), 0
        for task in draft.tasks[:plain]:
            counted += counter.count("".join(draft.documents.texts[i] for i in task.documents))
        whole_rate = counted / (time.perf_counter() - start) / 1e6
        print_row(variant, f"{whole_rate:.2f}", f"{ours:.1f}", f"{ours / whole_rate:.0f}")


if __name__ == "__main__":
    run(main)
