"""TRL asks for completions; groups are played in a vector environment, and its rows go back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from memenvs.adapters.trl.policy import TRLPolicy
from memenvs.adapters.trl.rows import Row, empty_row, read_groups
from memenvs.adapters.versions import check_version
from memenvs.baselines.episode import Episode
from memenvs.baselines.rollout import collect


def episode_return(
    prompts: Sequence[str],
    returns: Sequence[float | None],
    metrics: Sequence[dict[str, float]],
    log_metric: Callable[[str, float], None],
    **row: Any,
) -> list[float | None]:
    """The reward function of an `EpisodeRollout`: the return of each episode, None for one that broke.

    The environment's metrics are logged under `env/`. TRL passes all else that it knows, too.
    """
    sound = [told for told, value in zip(metrics, returns, strict=True) if value is not None]
    for name in sound[0] if sound else ():
        log_metric(f"env/{name}", float(np.mean([told[name] for told in sound])))
    return list(returns)


class EpisodeRollout:
    """`rollout_func` of a GRPOTrainer that plays episodes of any text environment.

    An environment whose prompts grow gives a row an episode. One that rewrites them gives a row a turn, more
    than TRL asked for, which needs a trainer with `TurnAdvantages`. Reward functions get `returns`,
    `turn_rewards` and `metrics`, one for each prompt.

    Args:
        venv: a `TextVectorEnv` in autoreset mode `"Disabled"`, or a `VectorRewardWrapper` around one with
            `group_size` equal to the trainer's `num_generations`, which must divide its number of
            environments. With `errors="truncate"` an episode that breaks is left out of the update.

    Attributes:
        policy: that has played.
        episodes: the last ones, in the order of the prompts.

    Raises:
        ImportError: TRL is missing or of another version.
    """

    def __init__(self, venv: Any) -> None:
        check_version("trl", "1.16", "1.17", "trl")
        self.venv = venv
        self.policy: TRLPolicy | None = None
        self.episodes: list[Episode] = []

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play an episode for each prompt.

        Args:
            prompts: of `seed_rows`, each as often as a group has members, one after another.
            trainer: samples.

        Raises:
            ValueError: the prompts are of another kind or cut a group, or the trainer takes one row an
                episode and the environment rewrites its prompts.
        """
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        expand = getattr(trainer, "pad_rows", None)
        rewrites = self.venv.unwrapped.envs[0].unwrapped.context == "rewrite"
        if rewrites and expand is None:
            raise ValueError(
                "this environment rewrites its prompts, so an episode is many rows, and "
                f"{type(trainer).__name__} takes one; put TurnAdvantages before it: "
                "class Trainer(TurnAdvantages, GRPOTrainer)"
            )
        self.policy = TRLPolicy(trainer)
        groups = read_groups(prompts, size)
        limit = trainer.max_completion_length
        self.episodes = collect(self.venv, self.policy, groups, size, max_new_tokens=limit)
        rows = [row for episode in self.episodes for row in self._rows(episode, trainer)]
        return self._output(expand(rows) if expand else rows)

    def _rows(self, episode: Episode, trainer: Any) -> list[Row]:
        """The rows of an episode; one that wrote nothing has one that trains nothing, as TRL wants one."""
        usable = episode.end != "failed"
        return [Row.of(sample, usable) for sample in episode.samples] or [empty_row(trainer)]

    def _output(self, rows: Sequence[Row]) -> dict[str, Any]:
        episodes, policy = self.episodes, self.policy
        return {
            "prompt_ids": [row.prompt for row in rows],
            "completion_ids": [row.completion for row in rows],
            "logprobs": [row.logprobs for row in rows] if policy and policy.knows_logprobs else None,
            "env_mask": [row.mask for row in rows],
            "returns": [None if e.end == "failed" else float(sum(e.turn_rewards)) for e in episodes],
            "turn_rewards": [list(episode.turn_rewards) for episode in episodes],
            "metrics": [episode.metrics for episode in episodes],
        }
