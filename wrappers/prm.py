"""A process reward model: how likely a turn belongs to an episode that solves its task.

`memenvs train prm --episodes FILE --out PRM` trains one, `RewardWrapper(env, [PRM(model="PRM")])` asks it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memenvs import models
from memenvs.core.data import Count, checked
from memenvs.core.episode import Credit, Episode, Sample
from memenvs.core.files import read_json
from memenvs.core.optional import require
from memenvs.models.policy import tokenised
from memenvs.models.settings import Dtype
from memenvs.wrappers.method import Outcome, Score, ScoreMethod

if TYPE_CHECKING:
    from memenvs.models import HFPolicy


@checked
@dataclass
class PRM(ScoreMethod):
    """Give each turn a process reward model's probability that its episode solves the task.

        p_k = sigmoid(w h_k + b)    h_k: the model's state when it has read turn k's prompt and reply

    TAMTRL's baseline PRM (appendix B.2) pays R_k = p_k r, r the outcome; its advantage over the turns of a
    task (eq. 7) is the learner's `--reward turn-pool`. The paper's model is a BERT; ours is
    a causal model that `memenvs train prm` has trained. It reads observations and replies
    alone, of any text environment: where prompts are appended, the whole episode so far; where
    they are rewritten, the turn by itself.

    The model is asked when an episode has ended, once for all episodes that end together. A turn that does
    not fit its window has a credit of NaN with the reason, and `info["metrics"]["prm_unscored"]` counts them.

    Args:
        model: folder of a checkpoint of `memenvs train prm`, such as `runs/prm/last`; loaded once a
            process, when it is first asked.
        outcome: `"multiply"` pays each probability times the environment's outcome. `"keep"` pays
            probabilities beside the outcome and `"replace"` instead of it, however an episode ends.
        weight: weight of a probability in the reward.
        device: torch device; None: a GPU if there is one.
        dtype: see `memenvs.models.loading.load_model`.
        max_batch_tokens: most tokens of a forward pass.

    Raises:
        ValueError: the folder holds no process reward model, or a setting is out of range.
    """

    model: str
    outcome: Outcome = "multiply"
    weight: float = 1.0
    device: str | None = None
    dtype: Dtype = "auto"
    max_batch_tokens: Count = 8192

    name = "prm"
    needs = ("context", "feedback")

    def __post_init__(self) -> None:
        check_checkpoint(self.model)

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        if not episodes:
            return []
        policy = _load_prm(str(Path(self.model).expanduser().resolve()), self.device, self.dtype)
        sequences = [
            (i, sequence) for i, episode in enumerate(episodes) for sequence in to_sequences(policy, episode)
        ]
        reason = f"too long: the turn does not fit the model's window of {policy.window} tokens"
        scores: list[list[Score]] = [[(math.nan, reason)] * len(episode.turns) for episode in episodes]
        logits = turn_logits(policy, [sequence for _, sequence in sequences], self.max_batch_tokens)
        for (i, sequence), values in zip(sequences, logits, strict=True):
            turns = sequence.turns[sequence.response_mask].tolist()
            for turn, value in zip(turns, sigmoid(values).tolist(), strict=True):
                finite = math.isfinite(value)
                scores[i][turn] = (value, "") if finite else (math.nan, "not finite: the model's logit")
        return [self.pay(episode, of_turns) for episode, of_turns in zip(episodes, scores, strict=True)]


def to_sequences(policy: HFPolicy, episode: Episode) -> list[Sample]:
    """An episode's turns as a process reward model reads them: one sequence, or one per turn if rewritten.

    The mask of a sequence is True only at the last token of each reply, where its value is read. A turn that
    does not fit the model's window is left out, and, where prompts are appended, every later turn too.

    Raises:
        ValueError: the episode holds replies alone, as of `evaluate run --no-texts`.
    """
    samples = tokenised(policy, episode).samples
    for sample in samples:
        sample.response_mask &= np.append(sample.turns[1:] != sample.turns[:-1], True)
    return samples


def turn_logits(
    policy: HFPolicy, sequences: Sequence[Sample], max_batch_tokens: int
) -> list[NDArray[np.float64]]:
    """Logits of each sequence's turns, without gradients.

    The value head reads the state before a reply's last token, which is the end token that `to_sequences`
    has put there: it has read the whole reply.
    """
    ids = [sequence.ids for sequence in sequences]
    logits: list[NDArray[np.float64]] = [np.zeros(0)] * len(ids)
    with require("torch", "train").no_grad():
        for batch in policy.micro_batches(ids, max_batch_tokens):
            masks = [sequences[i].response_mask for i in batch]
            values = policy.values([ids[i] for i in batch], masks)
            cuts = np.cumsum([mask.sum() for mask in masks])[:-1]
            for i, of_turns in zip(batch, np.split(values.double().cpu().numpy(), cuts), strict=True):
                logits[i] = of_turns
    return logits


def sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of logits, without an overflow."""
    halves: NDArray[np.float64] = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return halves


def check_checkpoint(folder: str) -> None:
    """Raise a one-line `ValueError` unless a folder is a checkpoint of a process reward model."""
    path = Path(folder).expanduser()
    advice = "give the folder of a checkpoint of memenvs train prm, such as runs/prm/last"
    state = path / "state.json"
    args = read_json(state, advice).get("args") if state.is_file() and (path / "policy").is_dir() else None
    if not isinstance(args, dict) or "labels" not in args:
        raise ValueError(f"there is no process reward model in {folder}; {advice}")


@functools.lru_cache(maxsize=4)
def _load_prm(folder: str, device: str | None, dtype: str) -> HFPolicy:
    """The model of a checkpoint; equal arguments give one object a process."""
    return models.HFPolicy.load(Path(folder) / "policy", device=device, dtype=dtype)
