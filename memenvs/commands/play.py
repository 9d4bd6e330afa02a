"""`memenvs play`."""

from __future__ import annotations

from pathlib import Path

import memenvs  # noqa: F401  # registers the environments
from memenvs.commands.options import EnvOptions, PolicyOptions
from memenvs.core.arguments import check_env_arguments
from memenvs.core.data import Seed, Whole, checked
from memenvs.models.settings import ModelOptions


@checked
def play(
    *,
    environment: EnvOptions,
    policy: PolicyOptions,
    models: ModelOptions,
    task: Whole | None = None,
    seed: Seed = 0,
    save: Path | None = None,
) -> int:
    """Play one episode and show it turn by turn.

    With `--policy me` you read what the agent would read and type its replies. A line is a reply. To reply
    with several lines, put a line with a single `.` before and after them. Empty lines are skipped. Ctrl-D or
    Ctrl-C ends the episode. You can pipe replies from a file. In MemSokobanGrid-v0 a line is one or more
    moves: w a s d, 0 to 3, or up down left right.

    Examples:
      memenvs play --env MemSearchQA-v0 --seed 8
      memenvs play --env MemChunkQA-v0 --env-args chunk_size=1000 --policy me --save mine.jsonl
      memenvs play --env MemChunkQA-v0 --methods TAMTRL InfoMem beta=0.1 --scorer lexical
      memenvs play --env MemSokobanGrid-v0 --policy me

    Args:
        task: number of the task; by default the seed draws one.
        seed: seed of the episode.
        save: append the episode to this file, for `memenvs view`.

    Returns:
        0, or 130 if an episode of another policy than `me` was interrupted.
    """
    check_env_arguments(environment.env, environment.env_args)
    from memenvs.commands.episode import play_episode  # slow: no wrong name or option waits for it

    return play_episode(environment, policy, models, task, seed, save)
