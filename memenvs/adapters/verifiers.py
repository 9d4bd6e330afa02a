"""verifiers: any text environment as a taskset, an environment and a harness; see docs/trainers.md.

verifiers finds all three in a top-level module of yours, `my_memory_v1.py`:

    from memenvs.adapters.verifiers import MemEnv, MemTaskset, ReplyHarness

    __all__ = ["MemEnv", "MemTaskset", "ReplyHarness"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from memenvs.adapters.common import TextEnvironment, open_env, public_info
from memenvs.core.env import TextEnv
from memenvs.core.optional import check_version

check_version("verifiers", "0.4.0", "0.4.1", "verifiers")

import httpx  # noqa: E402  # after the check
import verifiers.v1 as vf  # noqa: E402
from verifiers.v1.dialects.chat import message_to_wire  # noqa: E402

__all__ = [
    "MemData",
    "MemEnv",
    "MemEnvConfig",
    "MemTask",
    "MemTaskset",
    "MemTasksetConfig",
    "ReplyHarness",
]


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

    def open(self) -> TextEnvironment:
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

    verifiers' own `null` harness does the same by a Python program that is started anew at every turn.
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
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json=fields,
            )
        return vf.ProgramResult(0, "", "") if answer.is_success else vf.ProgramResult(1, "", answer.text)


class MemEnvConfig(vf.EnvConfig):
    """Who plays, and what a trace is worth where every turn has one.

    `credit="turn"` gives a trace its own turn's reward, `"return"` gives each the whole episode's.
    """

    player: vf.AgentConfig = vf.AgentConfig(runtime={"type": "subprocess"})
    credit: Literal["turn", "return"] = "turn"


@dataclass
class Playing:
    """An episode under way.

    Attributes:
        env: plays it.
        observation: what must be read now.
        context: how the next one relates to it.
        turns: what was told of each turn.
        traces: of the agent.
        over: it has ended.
    """

    env: TextEnvironment
    observation: str
    context: str
    turns: list[dict[str, Any]] = field(default_factory=list)
    traces: list[Any] = field(default_factory=list)
    over: bool = False

    async def step(self, segment: Any) -> str:
        """Play a segment's reply; what the environment put behind it."""
        # `Segment.last_reply` is stripped; a memory is kept as it was written.
        written = (message.content for message in reversed(segment.messages) if message.role == "assistant")
        reply = next(written, None) or ""
        played = await asyncio.to_thread(self.env.step, reply)  # a retriever must not hold up the others
        self.observation, _, terminated, truncated, info = played
        self.turns.append(public_info(info))
        self.over = terminated or truncated
        return str(info["feedback"])


class MemEnv(vf.Env[MemEnvConfig]):
    """An episode of a text environment.

    An episode that appends is one trace of K turns, with each component, summed, as a reward. One of fresh
    prompts is K traces, one interaction each, with the reward `turn` or `return`: what a model read at a
    turn is exactly its trace. `trace.info["turns"]` holds `memenvs.adapters.common.public_info` of a trace's
    turns, the last one with the final `turn_rewards`. The environment's metrics stand on every trace.
    An episode that the agent left early keeps what it earned by then, with the metric `complete` 0.
    """

    async def run(self, task: MemTask, agents: vf.Agents) -> None:
        """Play one episode."""
        env = self.taskset.config.open()
        try:
            options = {"task": task.data.number}
            observation, info = await asyncio.to_thread(env.reset, seed=task.data.seed, options=options)
            playing = Playing(env, observation, info["context"])
            if playing.context == "append":
                await self._converse(playing, task, agents)
            else:
                await self._ask_afresh(playing, task, agents)
        finally:
            env.close()
        self._record(playing)

    async def _converse(self, playing: Playing, task: MemTask, agents: vf.Agents) -> None:
        """One interaction; what comes back is its next message."""
        said = playing.observation
        async with agents.player.interaction(task) as interaction:
            while not playing.over and not (segment := await interaction.turn(said)).terminated:
                said = await playing.step(segment)
        interaction.trace.info["turns"] = playing.turns
        playing.traces.append(interaction.trace)

    async def _ask_afresh(self, playing: Playing, task: MemTask, agents: vf.Agents) -> None:
        """An interaction a turn, each with nothing but its prompt."""
        while not playing.over:
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn(playing.observation)
            playing.traces.append(interaction.trace)
            if segment.terminated:
                return
            await playing.step(segment)
            interaction.trace.info["turns"] = playing.turns[-1:]

    def _record(self, playing: Playing) -> None:
        last = playing.turns[-1] if playing.turns else {"turn_rewards": [], "metrics": {}, "rewards": {}}
        worth = last["turn_rewards"]
        for number, trace in enumerate(playing.traces):
            trace.record_metrics({**last["metrics"], "complete": float(playing.over)})
            if playing.context == "append":
                for name in last["rewards"]:
                    trace.record_reward(name, sum(turn["rewards"][name] or 0.0 for turn in playing.turns))
            elif self.config.credit == "return":
                trace.record_reward("return", sum(worth))
            else:  # a turn that no reply came to has earned nothing
                trace.record_reward("turn", worth[number] if number < len(worth) else 0.0)
