"""verl asks for a trajectory; an episode is played, and its rows go back with the reward of every turn."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from memenvs.adapters.plain import open_env, plain
from memenvs.adapters.verl.rows import Steps, rows_of
from memenvs.adapters.versions import check_version
from memenvs.baselines.chat import ChatPolicy, ChatTokens
from memenvs.baselines.policy import Ids, Reply
from memenvs.baselines.rollout import NO_REPLY, Seat
from memenvs.extras import require
from memenvs.wrappers.registry import MethodSpec, ScorerSpec

check_version("verl", "0.9.1", "0.9.2", "verl")
agent_loop: Any = require("verl.experimental.agent_loop.agent_loop", "verl")


@agent_loop.register("memenvs")
class EpisodeLoop(agent_loop.AgentLoopBase):
    """Plays an episode of any text environment for verl's V1 trainer.

    An environment whose prompts grow gives one row, one that rewrites them a list, a row a turn. A turn is
    paid at the last token it wrote. `prompt_length` is the limit of a fresh prompt and `response_length` that
    of all behind it in a row; where they leave no room the turn is silence. A row names its task by
    `extra_info["seed"]`, so that the rollouts of one prompt are a group. The chat template has the arguments
    `data.apply_chat_template_kwargs`, as in verl's own loops.

    Args:
        *args: verl's.
        env: the environment's id.
        settings: its arguments.
        methods: reward methods around it; those that compare a group fall back to one episode's statistics,
            because verl plays each rollout alone.
        scorer: theirs.
        **kwargs: verl's.

    Raises:
        ValueError: no environment is named.
    """

    def __init__(
        self,
        *args: Any,
        env: str = "",
        settings: Mapping[str, Any] | None = None,
        methods: Sequence[MethodSpec] = (),
        scorer: ScorerSpec = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if not env:
            raise ValueError(
                "EpisodeLoop needs the id of an environment; name it in the YAML file of "
                "actor_rollout_ref.rollout.agent.agent_loop_config_path, as `env: MemSokoban-v0`"
            )
        self._make = functools.partial(open_env, env, settings, methods, scorer)
        self._tokens = ChatTokens(self.tokenizer, chat_args=plain(self.apply_chat_template_kwargs))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Play the episode of a row; one `TurnOutput`, or a list of them.

        Raises:
            ValueError: the row names no seed.
        """
        seed = (row.get("extra_info") or {}).get("seed")
        if seed is None:
            raise ValueError('the dataset needs extra_info={"seed": …}, or a group plays different tasks')
        env = await asyncio.to_thread(self._make)
        policy: Any = ChatPolicy(self._tokens)  # verl samples
        seat = Seat(policy, int(seed), np.random.default_rng(int(seed)))
        steps, request = Steps(), uuid4().hex
        observation, info = await asyncio.to_thread(env.reset, seed=int(seed))
        seat.begin(observation, info)
        over, start = False, 0
        while not over:
            fresh, prompt = seat.fresh, seat.prompt
            if fresh:
                start = len(prompt)
            reply = await self._reply(prompt, start, sampling_params, request, steps)
            began = time.perf_counter()
            observation, _, terminated, truncated, info = await asyncio.to_thread(env.step, reply.text)
            steps.environment += time.perf_counter() - began
            over = bool(terminated or truncated)
            seat.play(reply, observation, info, over)
        seat.episode.turn_rewards, seat.episode.metrics = list(info["turn_rewards"]), dict(info["metrics"])
        rows = rows_of(seat.episode, steps, min(self._tokens.ends))
        return rows[0] if info["context"] == "append" and len(rows) == 1 else rows

    async def _reply(
        self, prompt: Ids, start: int, sampling_params: dict[str, Any], request: str, steps: Steps
    ) -> Reply:
        """What verl's server writes behind a prompt, in the room that the row has left."""
        config = self.rollout_config
        room = config.response_length - (len(prompt) - start)
        if room < 1 or start > config.prompt_length:
            return NO_REPLY
        began = time.perf_counter()
        output = await self.server_manager.generate(
            request_id=request,
            prompt_ids=prompt.tolist(),
            sampling_params={**sampling_params, "max_tokens": room},
        )
        steps.note(output.extra_fields, time.perf_counter() - began)
        ids = np.array(output.token_ids[:room], dtype=np.int64)
        if not len(ids):
            return NO_REPLY
        steps.knows_logprobs = bool(output.log_probs)
        logprobs = np.array((output.log_probs or [0.0] * room)[: len(ids)], dtype=np.float64)
        return Reply(self._tokens.reply_text(ids), ids, logprobs, int(ids[-1]) in self._tokens.ends)
