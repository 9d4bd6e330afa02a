"""A process reward model: how likely each turn leads to success, learned from the episodes of any policy.

`memenvs train prm --model MODEL --episodes FILE --out RUN`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from memenvs.baselines.args import PRMArgs
from memenvs.baselines.scoring import values_in
from memenvs.baselines.train import Run, shuffled_batches, split_by_task
from memenvs.baselines.update import flat_tensor
from memenvs.core.episode import Episode, Floats, Sample
from memenvs.core.episode_file import read_episodes
from memenvs.credit import all_equal
from memenvs.models.hf import HFPolicy
from memenvs.wrappers.prm import sigmoid, to_sequences, turn_logits


class PRMRun(Run):
    """A run that learns from which turns lead to success.

    Attributes:
        examples: to learn from; the `returns` of a sequence are the labels of its turns.
        held_out: to measure on, of other tasks.
        prior: mean label of the turns to learn from.
    """

    args: PRMArgs

    def open_data(self) -> None:
        """Read the episodes and hold out some tasks."""
        args = self.args
        episodes = read_usable(args.episodes, args.labels)
        split = split_by_task([episode.task for episode in episodes], args.held_out, args.seed)
        self._parts = [[episodes[place] for place in places] for places in split]

    def load_models(self) -> dict[str, HFPolicy]:
        """The model, with the linear layer as its value head."""
        return {"policy": self.load(self.args.model, value_head=True, adapt=True)}

    def restore(self) -> None:
        """Make sequences of the episodes, then load the newest checkpoint."""
        self.examples, self.held_out = (
            [example for episode in part for example in self._labelled(episode)] for part in self._parts
        )
        known, measured = (
            np.concatenate([np.zeros(0), *(np.asarray(example.returns) for example in part)])
            for part in (self.examples, self.held_out)
        )
        turns = sum(len(episode.turns) for part in self._parts for episode in part)
        overlong = turns - len(known) - len(measured)
        outgrown = f"{overlong} of {turns} turns do not fit the model's window of {self.policy.window} tokens"
        if not len(known) or not len(measured):
            raise ValueError(
                f"no turn is left to learn from, or to measure on: {outgrown}; use another model"
            )
        if all_equal(known):
            raise ValueError(
                f"all {len(known)} turns to learn from have the label {known[0]:g}, which teaches nothing; "
                "give episodes of a policy that solves some of its tasks"
            )
        self.prior = float(known.mean())
        if self.processes.is_main:
            sys.stderr.write(
                f"{len(known)} turns to learn from (mean label {self.prior:.3f}), {len(measured)} of other "
                f"tasks to measure on (mean label {measured.mean():.3f})\n"
            )
            if overlong:
                sys.stderr.write(f"warning: {outgrown}; they are left out\n")
        super().restore()

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics of the held-out tasks, at the end of each pass."""
        if step % math.ceil(len(self.examples) / self.args.batch_size):
            return {}
        mine = self.processes.shard(self.held_out)
        logits = self.processes.gather(turn_logits(self.policy, mine, self.args.micro_batch_tokens))
        labels = np.concatenate([np.asarray(example.returns) for example in self.held_out])
        metrics = quality(np.concatenate(logits), labels, self.prior)
        return {f"eval_{name}": value for name, value in metrics.items()}

    def _labelled(self, episode: Episode) -> list[Sample]:
        labels = turn_labels(episode, self.args.labels)
        return [
            replace(sample, returns=labels[sample.turns[sample.response_mask]])
            for sample in to_sequences(self.policy, episode)
        ]


prepare = PRMRun


def train(run: PRMRun, args: PRMArgs) -> None:
    """Train to the last step, or until SIGTERM; the loss is the mean cross-entropy of a batch's turns."""

    def nats(part: list[Sample]) -> torch.Tensor:
        logits = values_in(run.policy, part)
        labels = flat_tensor([example.returns for example in part], logits)
        return binary_cross_entropy_with_logits(logits, labels, reduction="sum")

    batches = shuffled_batches(run.examples, args.batch_size, args.epochs, args.seed)
    for step in run.steps(len(batches)):
        batch = batches[step - 1]
        ids = [example.ids for example in batch]
        turns = sum(int(example.response_mask.sum()) for example in batch)
        run.end(run.descend(batch, ids, nats, turns), sum(map(len, ids)))


def read_usable(files: Sequence[Path], labels: str) -> list[Episode]:
    """The episodes of files that ended without an error and whose labels were all measured.

    Raises:
        ValueError: one has replies alone, or no such labels.
        OSError: a file cannot be read.
    """
    recorded = [episode for file in files for episode in read_episodes(file)]
    ended = [episode for episode in recorded if episode.turns and episode.over and not episode.error]
    for episode in ended:
        if not all(turn.observation for turn in episode.turns):
            raise ValueError(f"task {episode.task} has only replies; evaluate without --no-texts")
    return [episode for episode in ended if not np.isnan(turn_labels(episode, labels)).any()]


def turn_labels(episode: Episode, labels: str) -> Floats:
    """The labels (K,), 0 to 1, of an episode's turns.

    Labels of a method are its signals at the turns before the last, which is labelled by the success. A turn
    that could not be measured is NaN.

    Raises:
        ValueError: the episode has no such signals or several questions, or a signal is not a probability.
    """
    success = np.full(len(episode.turns), float(episode.success))
    if labels == "outcome":
        return success
    if labels not in episode.signals:
        known = ", ".join(["outcome", *episode.signals])
        raise ValueError(
            f"task {episode.task} has no signals {labels!r} for --labels, only {known}; record episodes with "
            "--methods and the name of the reward method"
        )
    if len(episode.turns[0].before["privileged"]["answers"]) > 1:
        raise ValueError(
            f"task {episode.task} has several questions, whose answers have no signal; give --labels outcome"
        )
    scores = np.array([*episode.signals[labels][:-1], success[-1]])
    low, high = np.nanmin(scores), np.nanmax(scores)
    if low < 0 or high > 1:
        raise ValueError(
            f"task {episode.task} has signals {labels!r} from {low:g} to {high:g}, which are not "
            "probabilities; use a method whose signals are"
        )
    return scores


def quality(logits: Floats, labels: Floats, prior: float) -> dict[str, float]:
    """How well logits (N,) tell labels (N,).

    Args:
        logits: of the turns.
        labels: 0 to 1.
        prior: what a model would say that looks at nothing, between 0 and 1.

    Returns:
        `loss`, the mean cross-entropy in nats, and `base_loss`, the loss of always predicting the prior.
        Where all labels are 0 or 1, `accuracy`, the share of turns on whose label's side of 1/2 the model is,
        and `base_accuracy`; where both occur, `auc`, how often a turn labelled 1 has more than one labelled
        0, a tie counting half. Otherwise `correlation` (Pearson) of probabilities and labels, where both
        vary.
    """
    guess = np.full(len(labels), math.log(prior / (1 - prior)))
    metrics = {
        f"{name}loss": float((np.logaddexp(0, guesses) - labels * guesses).mean())
        for name, guesses in (("", logits), ("base_", guess))
    }
    right = labels == 1
    if not (right | (labels == 0)).all():
        probabilities = sigmoid(logits)
        if not all_equal(probabilities) and not all_equal(labels):
            metrics["correlation"] = float(np.corrcoef(probabilities, labels)[0, 1])
        return metrics
    metrics |= {
        f"{name}accuracy": float(((guesses >= 0) == right).mean())
        for name, guesses in (("", logits), ("base_", guess))
    }
    if 0 < right.sum() < len(right):
        low = np.sort(logits[~right])
        below = [np.searchsorted(low, logits[right], side) for side in ("left", "right")]
        metrics["auc"] = float(np.mean(below) / len(low))
    return metrics
