"""Episodes against an address that a trainer injects, with a reward for each completion, as AReaL wants."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memenvs.adapters.common import open_env, read_draw
from memenvs.core.asynchronous import in_thread
from memenvs.core.episode import Episode, Reply
from memenvs.core.servers import OpenAIClient, key_in
from memenvs.models.endpoint import TextConversation, ToolConversation, Watch, read_completion
from memenvs.rollout.collect import Loop
from memenvs.rollout.policy import Request, loop_policy


class EpisodeAgent:
    """An agent that plays one episode of a text environment by chat completions.

    AReaL takes it as a workflow. It can be pickled, and each `run` has its own environment.

    Args:
        env: id of the environment.
        env_args: the environment's arguments.
        methods: reward methods, as `memenvs.wrappers.registry.make_methods` takes them. A method that
            compares the episodes of a group sees a single one.
        scorer: gives them log-probabilities, as `memenvs.wrappers.registry.make_scorer` takes it.
        model: the model's name in requests.
        timeout: seconds for a completion.
        tools: send the environment's tools, and read tool calls instead of text.
        body: other fields of a request, such as `temperature`.
    """

    def __init__(
        self,
        env: str = "MemChunkQA-v0",
        env_args: Mapping[str, Any] | None = None,
        methods: Sequence[Any] = (),
        scorer: Any = None,
        *,
        model: str = "default",
        timeout: float = 600.0,
        tools: bool = False,
        **body: Any,
    ) -> None:
        self._env = (env, env_args, methods, scorer)
        self._body, self._timeout = {"model": model, **body}, timeout
        self._prompts = ToolConversation if tools else TextConversation
        self._watch: Watch | None = None

    async def run(
        self,
        data: Mapping[str, Any],
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        on_turn: Callable[[str, float], object] = lambda completion, reward: None,
        **unused: Any,
    ) -> dict[str, float]:
        """Play an episode.

        Args:
            data: a row with `task` (a number), `seed`, or both; rollouts of a row share their task.
            base_url: the address, as `memenvs.core.servers.OpenAIClient` reads it; by default the
                environment variable OPENAI_BASE_URL.
            api_key: by default OPENAI_API_KEY.
            on_turn: is given the id of each completion and the reward of its turn, when the turn was played.
            unused: what else a trainer passes.

        Returns:
            By the id of a completion what its turn earned in the end, with what a method knows only in
            hindsight; the sum is the return.

        Raises:
            ValueError: there is no address, or the row names neither a task nor a seed.
            ServerError: the server does not answer.
        """
        if not (url := base_url or os.environ.get("OPENAI_BASE_URL")):
            raise ValueError("no address: give base_url, or set OPENAI_BASE_URL")
        seed, task = read_draw(data)
        key = api_key or key_in("OPENAI_API_KEY")
        client = OpenAIClient(url, timeout=self._timeout, tries=1, key=key)
        watch = self._watch = self._watch or Watch(client.url)  # one for all episodes
        episode = Episode(seed=seed, number=task)
        env = await in_thread(open_env, *self._env)
        prompts = self._prompts(env)
        names: list[str] = []  # of the completions

        def tell() -> None:
            """What the last turn earned at once."""
            paid = episode.turns[-1].info["rewards"].values()
            on_turn(names[-1], math.fsum(value for value in paid if not math.isnan(value)))

        async def reply(request: Request) -> Reply:
            if names:
                tell()
            prompts.observe(request.observation, request.public_info)
            fields = {**self._body, **prompts.fields, "messages": prompts.messages}
            name, completion = await in_thread(
                client.post,
                "/chat/completions",
                fields,
                lambda answer: (str(answer["id"]), read_completion(answer)),
            )
            watch.see(fields, completion)
            names.append(name)
            return Reply(prompts.read(completion))

        policy = loop_policy(reply, asyncio.get_running_loop())
        await in_thread(Loop(lambda: env, policy, errors="raise").play_all, [[episode]])
        tell()
        watch.see_episode(episode)
        return dict(zip(names, episode.turn_rewards, strict=True))
