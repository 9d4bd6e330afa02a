"""A small GPT with a token for each name of a world."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
import transformers

from memenvs.core.files import whole_folder
from memenvs.models.small_gpt import save_small_gpt
from memenvs.tasks.taskset import TaskSet
from research.reproduce.world_tasks import Names

WIDTH, LAYERS = 128, 3
WORDS = 4096  # tokens learned from the world's prose without its names
KIND = 0.2  # standard deviation of the part that names of a kind share; that of a name's own part is 0.2 too


def save_world_gpt(
    folder: Path,
    names: Names,
    tasks: TaskSet,
    fixed: Iterable[str],
    *,
    window: int = 256,
) -> Path:
    """Save a model that reads names, years and the fixed texts of an environment as one token each.

    A name starts as the sum of a part that its kind shares and a part of its own: a pretrained model knows
    what a town is, and a model trained from scratch would have to learn it for every town. Other words are
    learned from the questions and documents of `tasks`.
    """
    texts = [task.question for task in tasks] + tasks.texts(range(tasks.n_documents))
    words = [names.pattern.sub(" ", text) for text in texts]
    size = {"width": WIDTH, "layers": LAYERS, "window": window, "tied": True, "spread": WIDTH**-0.5}
    with whole_folder(folder) as new:
        save_small_gpt(new, [*fixed, *names.kinds], texts=words, vocabulary=WORDS, **size)
        _begin_by_kind(new, names, torch.Generator().manual_seed(0))
    return folder


def _begin_by_kind(folder: Path, names: Names, draws: torch.Generator) -> None:
    """Add the shared part of its kind to the token of each name."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    number = transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    embeddings = model.transformer.wte.weight
    common = {
        kind: KIND * torch.randn(embeddings.shape[1], generator=draws) for kind in sorted(names.of_kind)
    }
    with torch.no_grad():
        for name, kind in names.kinds.items():
            embeddings[number[name]] += common[kind]
    model.save_pretrained(folder)
