"""A world comes in; a small GPT with a token for each of its names goes out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
import transformers

from benchmarks.reproduce.world_tasks import World
from memenvs.baselines.small_gpt import save_small_gpt
from memenvs.tasks import TaskSet

WORDS = 4096  # tokens that are learned from the world's prose, names left out
KIND = 0.2  # standard deviation of what names of a kind have in common; that of a name itself is 0.2 too


def save_world_gpt(
    folder: Path,
    world: World,
    tasks: TaskSet,
    fixed: Iterable[str],
    *,
    width: int = 128,
    layers: int = 3,
    window: int = 256,
    seed: int = 0,
) -> Path:
    """Save a model that reads names, years and the fixed texts of an environment as one token each.

    A name begins as the sum of what its kind has in common and of what is its own: what a town is a
    pretrained model would know, and one from nothing would have to learn for every town.

    Args:
        folder: to be made.
        world: its names.
        tasks: whose questions and documents the other words are learned from.
        fixed: texts of the environment that are one token each.
        width: of the hidden states.
        layers: of the model.
        window: tokens that it can read.
        seed: of the weights.
    """
    texts = [task.question for task in tasks] + tasks.texts(range(tasks.n_documents))
    words = [world.pattern.sub(" ", text) for text in texts]
    size = {"width": width, "layers": layers, "window": window, "tied": True, "spread": width**-0.5}
    save_small_gpt(folder, [*fixed, *world.kinds], texts=words, vocabulary=WORDS, seed=seed, **size)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    number = transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    draws = torch.Generator().manual_seed(seed)
    common = {kind: KIND * torch.randn(width, generator=draws) for kind in sorted(world.of_kind)}
    with torch.no_grad():
        for name, kind in world.kinds.items():
            model.transformer.wte.weight[number[name]] += common[kind]
    model.save_pretrained(folder)
    return folder
