"""A batch of TRL's with one advantage a row comes in; the same batch with one a token goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.adapters.trl.credit import check_credit
from memenvs.adapters.trl.places import place, tool_episode
from memenvs.adapters.trl.rollout import EpisodeRollout
from memenvs.adapters.trl.rows import Row, empty_row
from memenvs.adapters.trl.tool_env import ToolEnv
from memenvs.adapters.versions import check_version
from memenvs.baselines.advantages import group_advantages
from memenvs.baselines.episode import Episode, Floats, sound
from memenvs.extras import require

CREDIT: Mapping[str, Any] = {"reward": "turn"}


class TurnAdvantages:
    """Mixin that gives every token the advantage of its turn: `class Trainer(TurnAdvantages, GRPOTrainer)`.

    It replaces TRL's advantages by `memenvs.baselines.advantages.group_advantages`, also in evaluation; TRL
    goes on logging its own, one a row. With an `EpisodeRollout` turns and tokens are those of the rollout.
    With tools turn k is the k-th run of ones in TRL's mask: parallel calls of one reply add up, and a closing
    reply without a call earns nothing of its own.

    A rewrite environment gives more rows than prompts. They are padded with rows of mask 0, to one number in
    every process that `steps_per_generation` divides. Where the loss is divided by tokens (`"dapo"`, TRL's
    default) such rows change nothing; `"grpo"` takes a mean over rows, which they make smaller.

    Args:
        *args: of the trainer.
        credit: arguments of `group_advantages`, `{"reward": "turn"}` by default (MT-GRPO).
        **kwargs: of the trainer, with `rollout_func=EpisodeRollout(…)` or an `environment_factory` of
            `memenvs.adapters.trl` tools.

    Raises:
        ImportError: TRL is missing or of another version.
        ValueError: the trainer has neither, or `credit` is not to be had there.
    """

    def __init__(self, *args: Any, credit: Mapping[str, Any] = CREDIT, **kwargs: Any) -> None:
        check_version("trl", "1.16", "1.17", "trl")
        try:
            super().__init__(*args, **kwargs)
        except ValueError as error:
            if "chat template" not in str(error):
                raise
            raise ValueError(
                f"TRL cannot read tool calls in this model's chat template ({error}); a model without a "
                "template gets one by processing_class=memenvs.adapters.trl.tool_tokenizer(MODEL)"
            ) from error
        self._steps: list[list[int]] = []  # environment steps of each rollout, after each generation
        this: Any = self
        pools = getattr(this, "_environment_pool", {}).values()
        tools = bool(pools) and all(isinstance(env, ToolEnv) for pool in pools for env in pool)
        if not tools and not isinstance(this.rollout_func, EpisodeRollout):
            raise ValueError(
                "TurnAdvantages needs rollout_func=EpisodeRollout(…), or an environment_factory of "
                "SearchTools, SokobanTools or another ToolEnv"
            )
        methods = (
            None if tools else [method.name for method in getattr(this.rollout_func.venv, "methods", [])]
        )
        self._credit = check_credit(credit, methods)

    def pad_rows(self, rows: Sequence[Row]) -> list[Row]:
        """The rows and as many empty ones as make their number equal in all processes and divisible."""
        this: Any = self
        count = require("torch", "trl").tensor([len(rows)], device=this.accelerator.device)
        most = int(this.accelerator.gather(count).max())
        parts = this.args.steps_per_generation if this.model.training else 1
        return [*rows, *[empty_row(this)] * (-(-most // parts) * parts - len(rows))]

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        """As the trainer does; then notes how many steps each tool environment has made."""
        parent: Any = super()
        made = parent._generate_single_turn(*args, **kwargs)
        environments = getattr(self, "environments", None) or []
        self._steps.append([len(env._turn_rewards) for env in environments])
        return made

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """The trainer's batch, its advantages (B, T) in place of (B,)."""
        this: Any = self
        parent: Any = super()
        self._steps = []
        output = parent._generate_and_score_completions(inputs)
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        written = mask.cpu().numpy().astype(bool)
        if isinstance(this.rollout_func, EpisodeRollout):
            values = self._of_rollout(this.rollout_func)
            if len(written) != len(inputs):  # TRL's table has a line a prompt, and was given one a row
                this._logs["completion"].extend(gather_last_words(this.rollout_func.episodes))
        else:
            values = self._of_tools(written)
        placed = require("torch", "trl").from_numpy(place(values, written))
        output["advantages"] = placed.to(mask.device)
        return output

    def _of_rollout(self, rollout: EpisodeRollout) -> list[Floats]:
        """Advantages of the written tokens of each row."""
        usable = sound(rollout.episodes)
        whole: Any = group_advantages(usable, rollout.policy, **self._credit)  # type: ignore[arg-type]
        by_episode = {id(episode): values for episode, values in zip(usable, whole, strict=True)}
        rows: list[Floats] = []
        for episode in rollout.episodes:
            values = by_episode.get(id(episode))
            rows += [np.zeros(0)] * max(len(episode.samples), 1) if values is None else episode.split(values)
        return rows

    def _of_tools(self, written: NDArray[np.bool_]) -> list[Floats]:
        """Advantages of the written tokens of each row, a turn being a run of them."""
        this: Any = self
        size = this.num_generations if this.model.training else this.num_generations_eval
        if len(written) % size:
            raise ValueError(
                f"a process got {len(written)} rollouts, which are not whole groups of {size}; make "
                "per_device_train_batch_size * steps_per_generation a multiple of num_generations"
            )
        steps = np.array(self._steps).T  # (B, generations)
        episodes = [
            tool_episode(i // size, env, steps[i], row)
            for i, (env, row) in enumerate(zip(this.environments, written, strict=True))
        ]
        return group_advantages(episodes, None, **self._credit)  # type: ignore[arg-type]


def gather_last_words(episodes: Sequence[Episode]) -> list[str]:
    """The text of the last reply of each episode, of all processes."""
    texts = [episode.replies[-1].text if episode.replies else "" for episode in episodes]
    found: list[str] = require("accelerate.utils", "trl").gather_object(texts)
    return found
