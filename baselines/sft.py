"""Behaviour cloning (supervised fine-tuning) on episodes of a teacher, of a file or of the model itself.

`memenvs train sft --model MODEL --env MemSokoban-v0 --teacher gold --out RUN`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from memenvs.baselines.args import SFTArgs
from memenvs.baselines.lessons import TeacherEpisodes, demonstrations, draw_lessons
from memenvs.baselines.rollout import PlayRun
from memenvs.baselines.scoring import evaluate_in
from memenvs.baselines.train import shuffled_batches
from memenvs.core.episode import Episode, Sample


class SFTRun(PlayRun):
    """A run that learns from a teacher's episodes.

    Attributes:
        samples: their training sequences.
    """

    args: SFTArgs

    def restore(self) -> None:
        """Play or read the episodes, then load the newest checkpoint: a model teaches itself as it began.

        Raises:
            ValueError: there are none to learn from, or no such teacher.
        """
        args = self.args
        if args.teacher == "self":
            drawn = draw_lessons(args, self.n_tasks)
            episodes: Iterable[Episode] = self.play(self.make_loop(self.make_env), *drawn, 1)
        else:
            episodes = demonstrations(args, self.n_tasks)
        lessons = TeacherEpisodes(args, episodes, self.policy)
        self.samples = [sample for episode in lessons for sample in episode.samples]
        notes = lessons.notes()
        if self.processes.is_main:
            sys.stderr.writelines(f"{note}\n" for note in notes)
        super().restore()


prepare = SFTRun


def train(run: SFTRun, args: SFTArgs) -> None:
    """Train to the last step, or until SIGTERM; the loss is the mean of -log pi over a batch's tokens."""

    def nats(samples: list[Sample]) -> torch.Tensor:
        return -evaluate_in(run.policy, samples).logprobs.sum()

    batches = shuffled_batches(run.samples, args.batch_size, args.epochs, args.seed, shuffle=args.shuffle)
    for step in run.steps(len(batches)):
        batch = batches[step - 1]
        tokens = sum(int(sample.response_mask.sum()) for sample in batch)
        run.end(run.descend(batch, [sample.ids for sample in batch], nats, tokens), tokens)
