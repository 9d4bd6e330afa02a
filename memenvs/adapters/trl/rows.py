"""What a dataset of TRL's says, and the rows that its batches are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from memenvs.baselines.episode import Sample

PREFIX = "seed "


def seed_rows(seeds: Iterable[int]) -> list[dict[str, str]]:
    """The dataset of an `EpisodeRollout`: a row for each task, whose prompt names the task's seed.

    TRL hands a `rollout_func` the prompts and no other column, so the prompt must say which task is meant.
    What the model reads comes from the environment.

    >>> seed_rows([7])
    [{'prompt': 'seed 7'}]
    """
    return [{"prompt": f"{PREFIX}{int(seed)}"} for seed in seeds]


class Row(NamedTuple):
    """A row of TRL's batch.

    Attributes:
        prompt: ids before the first that was written.
        completion: ids from there on, never empty.
        mask: 1 where the policy wrote, 0 where the environment did.
        logprobs: nats of the completion's ids; 0 where the environment wrote.
    """

    prompt: list[int]
    completion: list[int]
    mask: list[int]
    logprobs: list[float]

    @classmethod
    def of(cls, sample: Sample, usable: bool) -> Row:
        """A training sequence; one that is not usable has mask 0 everywhere."""
        start = int(sample.written.argmax())
        mask = (sample.written[start:] & usable).astype(int)
        ids = sample.ids.tolist()
        return cls(ids[:start], ids[start:], mask.tolist(), sample.logprobs[start:].tolist())


def empty_row(trainer: Any) -> Row:
    """A row that trains nothing: two tokens, mask 0."""
    end = [int(trainer.eos_token_ids[0])]
    return Row(end, end, [0], [0.0])


def read_groups(prompts: Sequence[Any], size: int) -> list[int]:
    """The seeds of whole groups, from prompts each of which comes `size` times.

    Raises:
        ValueError: they are not of `seed_rows`, or not whole groups.
    """
    for prompt in prompts:
        if not (isinstance(prompt, str) and prompt.removeprefix(PREFIX).isdecimal()):
            raise ValueError(f"a prompt must be of memenvs.adapters.trl.seed_rows, got {prompt!r:.80}")
    blocks = [set(prompts[first : first + size]) for first in range(0, len(prompts), size)]
    if len(prompts) % size or any(len(block) > 1 for block in blocks):
        raise ValueError(
            f"a process got {len(prompts)} prompts, which are not whole groups of {size}; make "
            "per_device_train_batch_size * steps_per_generation a multiple of num_generations"
        )
    return [int(block.pop().removeprefix(PREFIX)) for block in blocks]
