"""slime: `--custom-generate-function-path memenvs.adapters.slime.generate`, a sample for each turn.

The settings are `memenvs` in the file of `--custom-config-path`:

    memenvs:
      env: MemChunkQA-v0
      settings: {tasks: world-train}
      methods: [TAMTRL]
      scorer: hf:Qwen/Qwen3-0.6B
      credit: {reward: tamtrl}
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import msgspec
import numpy as np

from memenvs.adapters.common import plain, read_draw
from memenvs.adapters.groups import LoopSampler, Meetings, RolloutGroup, Sampled, chat_tokens
from memenvs.core.asynchronous import in_thread
from memenvs.core.data import convert
from memenvs.core.optional import require
from memenvs.models import Ids
from memenvs.rollout.records import Episode, valid


class SlimeSettings(msgspec.Struct, forbid_unknown_fields=True):
    """`args.memenvs`; without `credit` a turn's reward is what it earned."""

    env: str
    settings: dict[str, Any] = {}  # msgspec copies it
    methods: list[Any] = []
    scorer: Any = None
    credit: dict[str, Any] | None = None
    chat_args: dict[str, Any] = {}


MEETINGS = Meetings()


async def generate(
    args: Any, sample: Any, sampling_params: dict[str, Any], evaluation: bool = False
) -> list[Any]:
    """Play a rollout as slime's custom generate function: a sample for each turn that it replied to.

    slime starts the rollouts of a group on one event loop. They meet here and play the task of the row's
    `metadata` side by side; then the reward methods compare the group, as in our own learners. A
    sample has the tokens up to the end of its reply, of which the reply alone is trained, and all samples of
    a rollout have its `rollout_id`. Its `reward` is the credit of the turn: the mean of its tokens'
    advantages with `credit`, otherwise what the turn earned. Give slime `--disable-rewards-normalization`
    with `credit`, since advantages are not to be normalised again.

    With `evaluation` each rollout plays alone, without methods, and its one sample has the return.

    A rollout that fails has one sample of status FAILED that trains nothing.

    Args:
        args: slime's, with `memenvs` (see `SlimeSettings`).
        sample: of the data; `metadata` has `task` (a number), `seed`, or both.
        sampling_params: slime's.
        evaluation: whether slime evaluates.

    Raises:
        ValueError: the settings are missing or wrong, or the row names no task.
    """
    settings = convert(
        plain(getattr(args, "memenvs", None)), SlimeSettings, "memenvs", "see docs/trainers.md"
    )
    read_draw(sample.metadata or {})
    if evaluation:
        plain_group = RolloutGroup(settings.env, settings.settings)
        (episode,) = await _play(args, plain_group, settings, sampling_params, [sample])
        last = _samples(sample, episode)[-1]
        last.reward = float(sum(episode.turn_rewards))
        return [last]
    group = RolloutGroup(settings.env, settings.settings, settings.methods, settings.credit)
    play = partial(_play, args, group, settings, sampling_params)
    return _samples(sample, await MEETINGS.play(sample.group_index, sample, play, args.n_samples_per_prompt))


async def _play(
    args: Any, group: RolloutGroup, settings: SlimeSettings, params: dict[str, Any], samples: list[Any]
) -> list[Episode]:
    """The episodes of samples."""
    rollout, http = (
        require(f"slime.{name}", "slime") for name in ("rollout.sglang_rollout", "utils.http_utils")
    )
    tokens = chat_tokens(rollout.GenerateState(args).tokenizer, json.dumps(settings.chat_args))
    url = rollout.get_model_url(args, "default")

    async def ask(index: int, prompt: Ids, room: int) -> Sampled:
        limited = {**params, "max_new_tokens": min(room, params["max_new_tokens"])}
        fields = {"input_ids": prompt.tolist(), "sampling_params": limited, "return_logprob": True}
        found = (await http.post(url, fields))["meta_info"]
        if found["finish_reason"]["type"] == "abort":
            raise ConnectionError("the server aborted the reply")
        told = found["output_token_logprobs"]  # of each token: log-probability, id, text
        return Sampled([one[1] for one in told], [one[0] for one in told])

    loop, size = asyncio.get_running_loop(), len(samples)
    longest = args.rollout_max_context_len or 2**31
    sampler = LoopSampler(ask, loop, tokens, longest, longest, size)
    seed, task = read_draw(samples[0].metadata)
    episodes = [Episode(group=seed, seed=seed, number=task, member=i) for i in range(size)]
    await in_thread(group.play, sampler, episodes, settings.scorer)
    return episodes


def _samples(base: Any, episode: Episode) -> list[Any]:
    """A sample for each turn that sampled tokens; for a rollout that failed, one that trains nothing.

    Args:
        base: slime's sample of the rollout.
        episode: has ended; with advantages where there is `credit`.
    """
    kind = require("slime.utils.types", "slime").Sample
    rollout = base.index if base.rollout_id is None else base.rollout_id
    shared = {"group_index": base.group_index, "index": base.index, "rollout_id": rollout}
    shared |= {"prompt": base.prompt, "label": base.label}
    metrics = {**episode.metrics, "return": float(sum(episode.turn_rewards))}
    if not valid([episode]):
        base.tokens, base.response_length, base.loss_mask, base.reward = base.tokens or [0, 0], 1, [0], 0.0
        base.status, base.remove_sample = kind.Status.FAILED, True
        return [base]
    found: list[Any] = []
    credit = episode.advantages
    parts = [None] * len(episode.samples) if credit is None else episode.split(credit)
    for sequence, part in zip(episode.samples, parts, strict=True):
        places = np.flatnonzero(sequence.response_mask)
        for turn in np.unique(sequence.turns[places]):
            own = sequence.turns[places] == turn
            start, end = int(places[own][0]), int(places[own][-1]) + 1
            found.append(
                kind(
                    **shared,
                    tokens=sequence.ids[:end].tolist(),
                    response_length=end - start,
                    loss_mask=[1] * (end - start),
                    rollout_log_probs=sequence.logprobs[start:end].tolist(),
                    reward=float(episode.turn_rewards[turn] if part is None else part[own].mean()),
                    status=kind.Status.COMPLETED,
                    metadata={**base.metadata, **metrics},
                )
            )
    return found
