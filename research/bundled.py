"""Make the bundled world, its tokenizer and its task sets again: `python -m research.bundled FOLDER`."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from memenvs.build.draft import Draft
from memenvs.build.examples import among_distractors
from memenvs.build.niah import NiahOptions, niah
from memenvs.build.worldgen import Split, generate
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import TextTokenizer, load_tokenizer

VOCABULARY = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# What policies write and environments say beside prose, so that it costs few tokens.
_MARKUP = """\
<question> </question> <memory> </memory> <section> </section> <think> </think> <answer> </answer> <search>
</search> <information> </information> <mem> </mem> <reasoning> </reasoning> <tool> </tool> <result> </result>
\\boxed{answer} {"name": "wiki_search", "args": {"query": "text"}} Document 1: Doc 1(Title: "name")
Up || Down || Left || Right system user assistant
"""


def world_tokenizer() -> Tokenizer:
    """A byte-level BPE of 4,096 entries for toy models, trained on its own world."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    invented = generate(3000, 1500, split="validation", seed=1)
    prose = (f"{title}\n{text}" for title, text in invented.documents)
    questions = (question.question for question in invented.questions)
    backend.train_from_iterator(itertools.chain([_MARKUP] * 200, prose, questions), trainer)
    return backend


def task_sets(counter: TextTokenizer) -> dict[str, Draft]:
    """The bundled task sets by name."""

    def about(split: Split, entities: int, count: int) -> Draft:
        invented = generate(entities, count, split=split, seed=0)
        return among_distractors(
            invented.examples(split),
            tokenizer=counter,
            split=split,
            seed=0,
            documents=200,
            extra=invented.documents,
        )

    sets = {"world-train": about("train", 1500, 512), "world-test": about("test", 1000, 128)}
    sets["niah"] = niah(
        NiahOptions(variant="multiquery", num_tasks=100, tokens=16384, split="test"),
        counter,
        sets["world-test"].documents.texts,
    )
    return sets


def main() -> int:
    """Write the world's tokenizer and the task sets into a folder."""
    parser = argparse.ArgumentParser(prog="python -m research.bundled", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; the project's own is data/")
    folder: Path = parser.parse_args().folder
    path = folder / "tokenizers" / "world.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    world_tokenizer().save(str(path), pretty=False)
    counter = load_tokenizer()
    for name, draft in task_sets(counter).items():
        written = write_task_set(folder / name, draft, Card(f"bundled {name}"), counter)
        sys.stdout.write(f"{name}: {written.card.counts}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
