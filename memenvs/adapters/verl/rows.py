"""An episode comes in; the rows that verl trains on go out, each token with what it was paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from memenvs.adapters.versions import check_version
from memenvs.baselines.episode import Episode, Floats, Sample
from memenvs.credit import place_rewards
from memenvs.extras import require

check_version("verl", "0.9.1", "0.9.2", "verl")
agent_loop: Any = require("verl.experimental.agent_loop.agent_loop", "verl")
torch: Any = require("torch", "verl")


class TurnOutput(agent_loop.AgentLoopOutput):
    """A row of verl's whose response tokens have rewards of their own, (T,)."""

    token_scores: list[float]

    def as_dict(self) -> dict[str, Any]:
        """As verl's, with `rm_scores` (T,): what each token was paid in place of one score at the last."""
        fields: dict[str, Any] = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("token_scores"), dtype=torch.float32)
        return fields


class Steps:
    """What an episode has to tell of its sampling.

    Attributes:
        sampling: seconds.
        environment: seconds.
        knows_logprobs: whether the server gives them.
        weights: the first and the last version of the weights that wrote it, as verl keeps them.
    """

    def __init__(self) -> None:
        self.sampling = self.environment = 0.0
        self.knows_logprobs = False
        self.weights: dict[str, Any] = {}

    def note(self, fields: Mapping[str, Any], seconds: float) -> None:
        """A reply was written."""
        self.sampling += seconds
        for name, choose in (("min_global_steps", min), ("max_global_steps", max)):
            if fields.get(name) is not None:
                self.weights[name] = choose(self.weights.get(name, fields[name]), fields[name])


def rows_of(episode: Episode, steps: Steps, end: int) -> list[TurnOutput]:
    """The rows of an episode; one that wrote nothing has one that trains nothing, as verl wants one.

    Args:
        episode: played to its end.
        steps: its sampling.
        end: a token to fill that row with.
    """
    samples, scores = episode.samples, [np.zeros(0)]
    if samples:
        paid = place_rewards(episode.turn_rewards, episode.turn_ends, episode.tokens)
        scores = episode.split(paid)
    else:
        samples = [Sample.prompt(np.array([end])).then(np.array([end]))]
    told = {**episode.metrics, "return": float(sum(episode.turn_rewards))}
    turns = len(episode.replies)
    return [_row(sample, own, told, steps, turns) for sample, own in zip(samples, scores, strict=True)]


def _row(sample: Sample, own: Floats, told: dict[str, float], steps: Steps, turns: int) -> TurnOutput:
    start = int(sample.written.argmax()) if sample.written.any() else 1
    scores = np.zeros(len(sample.ids))
    scores[sample.written] = own
    return TurnOutput(
        prompt_ids=sample.ids[:start].tolist(),
        response_ids=sample.ids[start:].tolist(),
        response_mask=sample.written[start:].astype(int).tolist(),
        response_logprobs=sample.logprobs[start:].tolist() if steps.knows_logprobs else None,
        token_scores=scores[start:].tolist(),
        reward_score=told["return"],  # said, so that verl asks no reward model
        num_turns=2 * turns,
        metrics={"generate_sequences": steps.sampling, "tool_calls": steps.environment},
        extra_fields={**steps.weights, "reward_extra_info": told},
    )
