"""A small GPT for one-line documents, and a careless reader's episodes for its warm-up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import transformers

from memenvs.core.env import Info
from memenvs.core.episode import Episode
from memenvs.models.small_gpt import save_small_gpt
from memenvs.tasks.metrics import wrap_answer
from research.demonstrations import demonstration, taught, write_demonstrations
from research.reproduce.reading_tasks import BORN, LINE, QUESTION, STOP, TEMPLATE, names, sentence

CARE = 0.7  # probability, at each turn, that the careless reader keeps the sentence asked for
ALONE = 0.5  # probability that a memory is one sentence
WIDTH = 96  # of the model
WINDOW = 32  # tokens: the longest prompt of the task sets has 16, a reply 4
_PROMPT = re.compile(
    r"(?:Section:\n(?P<section>.*)\n)?Memory:\n(?P<memory>.*)\n.+ the birthplace of (?P<person>.+)", re.S
)


def save_reading_gpt(folder: Path) -> Path:
    """Save a model with a token for every name, every sentence and every fixed text around them.

    A sentence is one token because a model of this size, trained from scratch, learned in minutes which
    sentence to keep, but not to copy one name by name: it then wrote any of the section's towns.
    """
    templates = [TEMPLATE[part].replace("{question}", QUESTION) for part in ("read", "answer")]
    fixed = [part for text in templates for part in re.split(r"\{\w+\}", text) if part]
    boxed = wrap_answer("|", "boxed").split("|")
    people, towns = names()
    parts = {sentence(person, town): (person, town) for person in people for town in towns}
    phrases = [*fixed, LINE, *boxed, *parts, *people, *towns]
    size = {"width": WIDTH, "layers": 2, "window": WINDOW, "tied": True, "spread": WIDTH**-0.5}
    save_small_gpt(folder, phrases, **size)
    _begin_as_sums(folder, parts)
    return folder


def _begin_as_sums(folder: Path, parts: dict[str, tuple[str, ...]]) -> None:
    """Initialise tokens with the sum of other tokens' embeddings, as is usual when whole words are added."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    number = transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    embeddings = model.transformer.wte.weight
    with torch.no_grad():
        for whole, names_in_it in parts.items():
            embeddings[number[whole]] = sum(embeddings[number[name]] for name in names_in_it)
    model.save_pretrained(folder)


class CarelessReader:
    """Keeps the sentence asked for with probability `care`, at each turn that has it in section or memory.

    It reads all it knows from the prompt, in any section, also one with only the evidence.
    """

    def __init__(self, rng: np.random.Generator, care: float = CARE) -> None:
        self._rng, self._care = rng, care

    def __call__(self, prompt: str, info: Any = None) -> str:
        """A memory of one or two sentences, the one asked for first; or an answer from the memory."""
        asked, section, memory = _parts(prompt)
        if section is None:
            best = next(iter(_about(asked, memory) or memory), "")
            return wrap_answer(best.partition(BORN)[2].rstrip(STOP), "boxed")
        shown = list(dict.fromkeys([*memory, *section]))
        wanted = _about(asked, shown)
        others = [line for line in section or memory if line not in wanted]
        kept = wanted if self._rng.random() < self._care or not others else []
        fill = 2 - (self._rng.random() < ALONE) - len(kept)
        drawn = self._rng.permutation(len(others))[:fill]
        return LINE.join([*kept, *(others[i] for i in drawn)])


def save_demonstrations(
    file: Path, env: gym.Env[Any, Any], episodes: int, seed: int, *, answers: bool = False
) -> None:
    """Write the careless reader's episodes, with reading turns repeated with the evidence alone.

    A model trained from scratch knows only these prompts, while TAMTRL asks the same model what it would
    write with the evidence in place of the section, so it has to learn to read such sections too. Of the
    turns without anything that is asked for only a quarter is shown: they are the most frequent and teach the
    least. With `answers` answer turns are repeated too, with the evidence after the memory.
    """
    rng = np.random.default_rng([seed, 1])
    write_demonstrations(file, (_demonstration(env, rng, answers) for _ in range(episodes)))


def _demonstration(env: gym.Env[Any, Any], rng: np.random.Generator, answers: bool) -> Episode:
    reader, turns = CarelessReader(rng), list[tuple[str, str]]()

    def reply(observation: str, info: Info) -> str:
        reminded, written = info["privileged"]["teacher_prompt"], reader(observation)
        asked, section, memory = _parts(observation)
        if section is None or _about(asked, section + memory) or rng.random() < 0.25:
            turns.append((observation, written))
            if section is not None or answers:
                turns.append((reminded, reader(reminded)))
        return written

    episode = taught(env, reply, seed=int(rng.integers(2**31)))
    return demonstration(turns, "rewrite", episode.success)


def _parts(prompt: str) -> tuple[str, list[str] | None, list[str]]:
    """The person asked about, the section's sentences (None at the answer turn), and those of the memory."""
    if not (found := _PROMPT.fullmatch(prompt)):
        raise ValueError(f"the careless reader reads only its own template's prompts, got {prompt!r:.80}")
    section = found["section"]
    return found["person"], None if section is None else _sentences(section), _sentences(found["memory"])


def _sentences(text: str) -> list[str]:
    return [line for line in text.split(LINE) if line]


def _about(person: str, sentences: list[str]) -> list[str]:
    return [line for line in sentences if line.startswith(person + BORN)]
