"""How much faster tasks are assembled from counted sentences than by tokenising each whole sample.

    python -m benchmarks.niah [--prose FOLDER] [--tokens 131072] [--count 1000] [--plain 3]

Both make the same samples with one tokenizer in this process. The plain way joins a sample's text and
tokenises it once; a search for the number of sentences would do so several times. Ours is the whole of
`niah`: sentences split and counted, pool drawn, every task placed. The more tasks, the less its start-up time
matters.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

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


def main() -> None:
    """Measure every variant and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prose", type=Path, help="folder of *.txt (default: random words)")
    parser.add_argument("--tokenizer", help="name or tokenizer.json (default: trained on the prose)")
    parser.add_argument("--tokens", type=int, default=131072, help="token budget of a context")
    parser.add_argument("--count", type=int, default=1000, help="tasks built by memenvs")
    parser.add_argument("--plain", type=int, default=3, help="samples built the plain way")
    parser.add_argument("--variants", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    args = parser.parse_args()
    prose = read_prose(args.prose)[0] if args.prose else generated_prose()
    tokenizer = load_tokenizer(args.tokenizer) if args.tokenizer else trained(prose)
    tokenizer.count("warm")
    print("$ python", " ".join(sys.argv))
    print(f"{'variant':<12}{'plain, M tokens/s':>20}{'ours, M tokens/s':>20}{'ratio':>9}")
    for variant in args.variants:
        start = time.perf_counter()
        draft = niah(
            NiahOptions(variant=variant, num_tasks=args.count, tokens=args.tokens, split="benchmark"),
            tokenizer,
            prose,
        )
        seconds = time.perf_counter() - start
        sizes = draft.documents.tokens
        ours = sum(int(sizes[list(task.documents)].sum()) for task in draft.tasks) / seconds / 1e6
        start, counted = time.perf_counter(), 0
        for task in draft.tasks[: args.plain]:
            counted += tokenizer.count("".join(draft.documents.texts[i] for i in task.documents))
        plain = counted / (time.perf_counter() - start) / 1e6
        print(f"{variant:<12}{plain:>20.2f}{ours:>20.1f}{ours / plain:>9.0f}")


if __name__ == "__main__":
    main()
