"""Pairs of task and sample come in; they are played at once in a vector environment, and records go out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from memenvs.core.spaces import clean_text
from memenvs.core.vector import TextVectorEnv
from memenvs.evaluation.log import Pair, Record
from memenvs.evaluation.policies import Answer, Ask, BatchPolicy

_ERROR_CHARS = 1000


@dataclass
class _Episode:
    """An episode that is being played: its record so far, its generator and its answers."""

    record: Record
    rng: np.random.Generator
    answers: list[Answer] = field(default_factory=list)


class Player:
    """Plays pairs in the seats of a vector environment; a seat takes the next pair as its episode ends.

    An episode depends on its seed, its task and its sample alone: not on the number of seats, nor on which
    replies come first. (A local model's numbers may differ in the last digits between batches.)

    Args:
        venv: autoreset mode `"Disabled"`; with `errors="truncate"` an episode whose environment raises has
            failed, and the others go on.
        policy: replies.
        seed: of the run, 0 to 2**32 - 1.
    """

    def __init__(self, venv: TextVectorEnv, policy: BatchPolicy, seed: int = 0) -> None:
        self.venv, self.policy, self.seed = venv, policy, seed
        self._playing: dict[int, _Episode] = {}

    def play(self, pairs: Iterable[Pair]) -> Iterator[Record]:
        """The record of each pair, in the order in which the episodes end."""
        waiting = deque(pairs)
        while waiting or self._playing:
            yield from self._begin(waiting)
            if self._playing:
                yield from self._go_on(self.policy.answered())

    def _begin(self, waiting: deque[Pair]) -> Iterator[Record]:
        """Start an episode in every free seat while pairs are waiting; the records of those that fail."""
        count = self.venv.num_envs
        free = [seat for seat in range(count) if seat not in self._playing][: len(waiting)]
        if not free:
            return
        seeds, tasks = [0] * count, [0] * count
        for seat in free:
            pair = waiting.popleft()
            seeds[seat], rng = episode_seed(self.seed, pair)
            tasks[seat] = pair.task
            self._playing[seat] = _Episode(Record(*pair, id="", seed=seeds[seat]), rng)
        observations, _ = self.venv.reset(seed=seeds, options={"task": tasks, "reset_mask": self._mask(free)})
        for seat in free:
            info = self.venv.infos_list[seat]
            self._playing[seat].record.id = str(info["task"])
            if error := info.get("error"):
                yield self._fail(seat, error)
            else:
                self._ask(seat, observations[seat])

    def _go_on(self, answers: Sequence[Answer]) -> Iterator[Record]:
        """Play replies; the records of episodes that end by them."""
        told: dict[int, Answer] = {}
        for answer in answers:
            if answer.error:
                yield self._fail(answer.seat, answer.error)
            else:
                told[answer.seat] = answer
        texts = [told[seat].text if seat in told else "" for seat in range(self.venv.num_envs)]
        observations, _, terminated, truncated, _ = self.venv.step(texts, self._mask(told))
        for seat, answer in told.items():
            episode, info = self._playing[seat], self.venv.infos_list[seat]
            episode.record.say(answer.text)
            episode.answers.append(answer)
            if error := info.get("error"):
                yield self._fail(seat, error)
            elif terminated[seat] or truncated[seat]:
                end = "terminated" if terminated[seat] else "truncated"
                episode.record.finish(end, info, counts(episode.answers))
                yield self._playing.pop(seat).record
            else:
                self._ask(seat, observations[seat])

    def _ask(self, seat: int, observation: str) -> None:
        info = self.venv.infos_list[seat]
        self.policy.ask(Ask(seat, observation, info, self._playing[seat].rng))

    def _fail(self, seat: int, error: str) -> Record:
        record = self._playing.pop(seat).record
        record.error = clean_text(" ".join(error.split()), _ERROR_CHARS) or "no reason was given"
        return record

    def _mask(self, seats: Iterable[int]) -> Any:
        mask = np.zeros(self.venv.num_envs, np.bool_)
        mask[list(seats)] = True
        return mask


def episode_seed(seed: int, pair: Pair) -> tuple[int, np.random.Generator]:
    """The seed of an episode's reset, and the generator of its policy."""
    reset, policy = np.random.SeedSequence([seed, *pair]).spawn(2)
    return int(reset.generate_state(1)[0]), np.random.default_rng(policy)


def counts(answers: Sequence[Answer]) -> dict[str, float]:
    """What the policy counted over an episode's K turns; nothing that it did not count at every turn.

    Returns:
        `model_prompt_tokens` and `reply_tokens`, sums over turns; `model_tokens_peak`, the most tokens of a
        prompt and its reply together; `truncated_replies`, replies that ended at their limit.
    """
    found: dict[str, float] = {}
    prompts = [answer.prompt_tokens for answer in answers if answer.prompt_tokens is not None]
    replies = [answer.reply_tokens for answer in answers if answer.reply_tokens is not None]
    cuts = [answer.cut for answer in answers if answer.cut is not None]
    if len(prompts) == len(answers):
        found["model_prompt_tokens"] = sum(prompts)
    if len(replies) == len(answers):
        found["reply_tokens"] = sum(replies)
    if len(prompts) == len(replies) == len(answers):
        found["model_tokens_peak"] = max(map(sum, zip(prompts, replies, strict=True)))
    if len(cuts) == len(answers):
        found["truncated_replies"] = sum(cuts)
    return found
