"""Distillation from a teacher that reads the evidence: every token of a reply, over the whole vocabulary.

`memenvs train distill --model MODEL --env MemChunkQA-v0 --out RUN`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from memenvs.baselines import losses
from memenvs.baselines.args import DistillArgs
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.rollout import PlayRun
from memenvs.baselines.update import Loss, Objective, train_on
from memenvs.core.episode import Episode, Sample, valid
from memenvs.models import TokenPolicy
from memenvs.models.hf import HFPolicy
from memenvs.rollout.collect import Loop
from memenvs.wrappers.tamtrl import VIEWS


class DistillRun(PlayRun):
    """A run that learns the distributions of a teacher.

    Attributes:
        teacher: stays as it is.

    Raises:
        ValueError: the environment gives no teacher's prompt, or the teacher has another vocabulary.
    """

    args: DistillArgs

    def __init__(self, args: DistillArgs, processes: ProcessGroup | None = None) -> None:
        super().__init__(args, processes)
        if args.view != "student":
            env = self.make_env()
            _, info = env.reset(seed=0)
            env.close()
            if VIEWS[args.view] not in info.get("privileged", {}):
                raise ValueError(
                    f"{args.env} has no privileged {VIEWS[args.view]}, which the teacher reads with view "
                    f"{args.view}; give --view student and a --teacher-model"
                )
        self.teacher = self.load_fixed(args.teacher_model)
        if args.rollouts == "teacher":
            self.teacher.check_can_sample()
        check_vocabulary(self.policy, self.teacher, args.teacher_model)

    @functools.cached_property
    def loop(self) -> Loop:
        """The loop of the rollouts; a teacher that plays continues the tokens that the student would read."""
        if self.args.rollouts == "student":
            return self.make_loop(self.make_env)
        player = copy.copy(self.policy)
        player.sample = self.teacher.sample  # type: ignore[method-assign]
        player.window = min(filter(None, (self.policy.window, self.teacher.window)), default=None)
        return self.make_loop(self.make_env, player)

    def read(self, episode: Episode) -> None:
        """Write into an episode's samples what the teacher reads."""
        for sample in episode.samples:
            sample.teacher = teacher_samples(episode, sample, self.teacher, self.args.view)


prepare = DistillRun


def train(run: DistillRun, args: DistillArgs) -> None:
    """Train to the last step, or until SIGTERM."""

    def losses_of(part: list[Sample], weights: torch.Tensor) -> list[Loss]:
        return [divergence_loss(run.policy, run.teacher, part, weights, args)]

    objective = Objective(run.policy, args, losses_of)
    for step in run.steps(args.steps):
        # Sample
        episodes = run.rollouts(step)

        # Align: the same tokens after what the teacher reads
        lessons, overlong = to_lessons(valid(episodes))

        # Loss and step
        with run.timer("update"):
            seed = (args.seed, step)
            metrics = train_on(objective, run.optimizer, lessons, processes=run.processes, seed=seed)
        metrics["teacher_overlong_prompts"] = float(overlong)
        run.end(metrics, sum(episode.tokens for episode in episodes), episodes)


def teacher_samples(episode: Episode, sample: Sample, teacher: TokenPolicy, view: str) -> tuple[Sample, ...]:
    """What a teacher reads of a training sequence: a prompt and the tokens that were sampled, for each turn.

    A turn whose sequence does not fit the teacher's window, or that has no teacher's prompt, is left out.

    Args:
        episode: with its turns.
        sample: one of the episode's training sequences.
        teacher: encodes its prompts, in its own chat template.
        view: as `DistillArgs.view`; with `"student"` it is one sequence, the sample's own.
    """
    if view == "student":
        lessons = [replace(sample, teacher=())]
    else:
        lessons = []
        for turn in np.unique(sample.turns[sample.response_mask]).tolist():
            reply = episode.replies[turn]
            if prompt := episode.turns[turn].before["privileged"][VIEWS[view]]:
                read = teacher.encode(prompt)
                lessons.append(Sample.of((read, None, -1), (reply.ids, reply.logprobs, turn)))
    return tuple(lesson for lesson in lessons if teacher.window is None or len(lesson.ids) <= teacher.window)


def to_lessons(episodes: Sequence[Episode]) -> tuple[list[Sample], int]:
    """What can be learned from episodes, and the number of turns that the teacher cannot read.

    The sampled tokens of each sequence are those of its `teacher` sequences in order.
    """
    lessons, missing = [], 0
    for episode in episodes:
        for sample in episode.samples:
            read = [
                turn for lesson in sample.teacher for turn in np.unique(lesson.turns[lesson.response_mask])
            ]
            mask = np.isin(sample.turns, read)
            missing += len(np.unique(sample.turns[sample.response_mask])) - len(read)
            if read:
                lessons.append(replace(sample, response_mask=mask))
    return lessons, missing


def divergence_loss(
    policy: HFPolicy, teacher: HFPolicy, lessons: Sequence[Sample], weights: torch.Tensor, args: DistillArgs
) -> Loss:
    """The weighted divergence () of a micro-batch, and its metrics.

    Args:
        policy: the student.
        teacher: has the same vocabulary.
        lessons: the micro-batch, N tokens.
        weights: (N,) weights of the tokens.
        args: `divergence`, and `micro_batch_tokens` for the teacher's passes.
    """
    read = [lesson for sample in lessons for lesson in sample.teacher]
    apart = policy.compare(
        [sample.ids for sample in lessons],
        [sample.response_mask for sample in lessons],
        teacher,
        states_in(teacher, read, args.micro_batch_tokens),
        functools.partial(losses.divergence, kind=args.divergence),
    )
    return (weights * apart).sum(), {"divergence": apart.mean()}


def states_in(teacher: HFPolicy, samples: Sequence[Sample], budget: int) -> torch.Tensor:
    """A teacher's hidden states (N, H) before the sampled tokens of samples, in order, without gradients.

    Args:
        teacher: whose states they are.
        samples: in any number.
        budget: most tokens of a forward pass.
    """
    parts: dict[int, torch.Tensor] = {}
    with torch.no_grad():
        for batch in teacher.micro_batches([sample.ids for sample in samples], budget):
            masks = [samples[i].response_mask for i in batch]
            states = teacher.states([samples[i].ids for i in batch], masks)
            for i, part in zip(batch, states.split([int(mask.sum()) for mask in masks]), strict=True):
                parts[i] = part
    return torch.cat([parts[i] for i in range(len(samples))])


def check_vocabulary(policy: HFPolicy, teacher: HFPolicy, name: str) -> None:
    """Refuse a teacher with another vocabulary than the policy's.

    Raises:
        ValueError: with the name and a token that differs.
    """
    ours, others = (model.tokenizer.get_vocab() for model in (policy, teacher))
    if ours != others:
        token, number = min(ours.items() ^ others.items(), key=lambda item: (item[1], item[0]))
        whose = "the model" if (token, number) in ours.items() else "the teacher"
        raise ValueError(
            f"teacher_model {name!r} has {len(others):,} tokens and the model {len(ours):,}, and {token!r} "
            f"is number {number} of {whose} alone; give a teacher with the same vocabulary"
        )
