"""verifiers and prime-rl: any text environment as a taskset, an environment and a harness.

verifiers finds all three by the top-level module `memenvs_v1`, which the package brings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import gymnasium as gym

from memenvs.adapters.common import component_sums, open_env, turn_record
from memenvs.core.asynchronous import in_thread
from memenvs.core.env import TextEnv
from memenvs.core.episode import Episode, Reply
from memenvs.core.optional import check_version
from memenvs.models.endpoint import with_thought
from memenvs.rollout.collect import begin, step
from memenvs.rollout.policy import Request

check_version("verifiers", "0.4.0", "0.5", "verifiers")  # prime-rl runs commits between releases

import httpx  # noqa: E402  # after the check
import verifiers.v1 as vf  # noqa: E402
from verifiers.v1.dialects.chat import message_to_wire  # noqa: E402

__all__ = ["MemData", "MemEnv", "MemEnvConfig", "MemTask", "MemTaskset", "MemTasksetConfig", "ReplyHarness"]


class MemData(vf.TaskData):
    """A task by its number; the seed makes every other random choice, so that rollouts share them."""

    number: int
    seed: int = 0


class MemTask(vf.Task[MemData]):
    """Nothing but its data: the environment says what an episode is worth."""


class MemTasksetConfig(vf.TasksetConfig):
    """Which environment: `env` (an id), `env_args`, `methods` and `scorer`; and the seed of every task."""

    env: str = "MemChunkQA-v0"
    env_args: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it
    methods: list[Any] = []  # noqa: RUF012
    scorer: Any = None
    seed: int = 0

    def open(self) -> gym.Env[str, str]:
        """The environment."""
        return open_env(self.env, self.env_args, self.methods, self.scorer)


class MemTaskset(vf.Taskset[MemTask, MemTasksetConfig]):
    """The tasks of an environment."""

    def load(self) -> Iterator[MemTask]:
        """Each task once; `--select.include.idx 0:100` takes some of them."""
        inner = self.config.open().unwrapped
        for number in range(inner.n_tasks if isinstance(inner, TextEnv) else 0):
            yield MemTask(MemData(number=number, seed=self.config.seed), self.config.task)


class ReplyHarnessConfig(vf.HarnessConfig):
    """`chat_args`: arguments of the endpoint's chat template, sent as `chat_template_kwargs`."""

    chat_args: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it


class ReplyHarness(vf.Harness[ReplyHarnessConfig]):
    """One chat completion a turn: no program, no tools, no sandbox.

    verifiers' own `null` harness does the same by a Python program that starts at every turn.
    """

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Send the conversation; verifiers listens in between, sets the sampling and records the reply."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        fields: dict[str, Any] = {"model": ctx.model, "messages": messages}
        if self.config.chat_args:
            fields["chat_template_kwargs"] = self.config.chat_args
        async with httpx.AsyncClient(timeout=None) as client:  # verifiers has time limits of its own
            answer = await client.post(
                f"{endpoint}/chat/completions", headers={"Authorization": f"Bearer {secret}"}, json=fields
            )
        return vf.ProgramResult(0, "", "") if answer.is_success else vf.ProgramResult(1, "", answer.text)


class MemEnvConfig(vf.EnvConfig):
    """Who plays, and what a trace is worth where an episode has several.

    `reward="turn"` gives a trace what its own turns earned, `"return"` gives each what the episode earned.
    """

    player: vf.AgentConfig = vf.AgentConfig(runtime={"type": "subprocess"})
    reward: Literal["turn", "return"] = "turn"


class MemEnv(vf.Env[MemEnvConfig]):
    """An episode of a text environment.

    A trace ends where the prompt is rewritten, so a trace is exactly what a model read. An episode whose
    prompts grow is one trace, an episode of fresh prompts has one trace per turn, and an episode with
    compaction has one per summary and one more. The rewards of a trace are the sums of each component in an
    environment that only appends, otherwise `turn` or `return`.

    `trace.info["turns"]` holds `memenvs.adapters.common.turn_record` of a trace's turns, the last one with
    the final `turn_rewards`. `trace.info["turn_rewards"]` holds, for each sampled turn of a trace, what the
    episode had earned by its end, None for a reply that was not played: the state scores whose differences
    prime-rl's `turn_credit` pays (pull request 3282). Every trace has the environment's metrics. An episode
    that the agent left early keeps what it earned by then, with the metric `complete` 0.
    """

    async def run(self, task: MemTask, agents: vf.Agents) -> None:
        """Play one episode."""
        env = self.taskset.config.open()
        episode = Episode(seed=task.data.seed, number=task.data.number)
        traces: list[tuple[Any, slice]] = []  # with their turns
        try:
            request: Request | None = await in_thread(begin, env, episode)
            appends, left = request is not None and request.info["context"] == "append", False
            while request and not left:
                first = len(episode.turns)
                async with agents.player.interaction(task) as interaction:
                    request, left = await self._converse(request, interaction)
                traces.append((interaction.trace, slice(first, len(episode.turns))))
        finally:
            env.close()
        self._record(episode, traces, appends)

    async def _converse(self, request: Request, interaction: Any) -> tuple[Request | None, bool]:
        """Play until the prompt is a fresh one or the episode ends; the next turn, and if the agent left."""
        message = request.observation
        while not (segment := await interaction.turn(message)).terminated:
            following = await _step(request, segment)
            if following is None or following.turn.fresh:
                return following, False
            request, message = following, following.turn.text  # the next message of the same conversation
        return request, True

    def _record(self, episode: Episode, traces: Sequence[tuple[Any, slice]], appends: bool) -> None:
        """Give every trace its turns, metrics and rewards."""
        turns = [turn_record(turn.info) for turn in episode.turns]
        last = turns[-1] if turns else {"turn_rewards": [], "metrics": {}}
        rewards = last["turn_rewards"]
        states = list(itertools.accumulate(rewards))
        for trace, place in traces:
            trace.info["turns"] = turns[place]
            trace.info["turn_rewards"] = [*states[place], *[None] * (trace.num_turns - len(states[place]))]
            trace.record_metrics({**last["metrics"], "complete": float(episode.over)})
            rewarded = place if self.config.reward == "turn" else slice(None)
            if appends:
                sums = component_sums(turns[rewarded])
                for name in component_sums(turns):
                    trace.record_reward(name, sums.get(name, 0.0))
            else:  # a turn without a reply has earned nothing
                trace.record_reward(self.config.reward, sum(rewards[rewarded]))


async def _step(request: Request, segment: Any) -> Request | None:
    # `Segment.last_reply` is stripped; a memory must stay as the model gave it.
    messages = (message for message in reversed(segment.messages) if message.role == "assistant")
    last = next(messages, None)
    text, thought = (last.content or "", last.reasoning_content or "") if last else ("", "")
    reply = Reply(with_thought(request.env, thought, text))
    # In a thread, as a retriever must not hold up the others.
    return await in_thread(step, request, reply)
