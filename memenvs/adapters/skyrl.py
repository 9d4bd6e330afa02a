"""SkyRL: any text environment as a SkyRL-gym environment, a conversation turn by turn.

`skyrl_gym.register("memory-search", "memenvs.adapters.skyrl:SkyRLEnv")`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from memenvs.adapters.common import component_sums, open_env, plain, read_draw, turn_record
from memenvs.core.data import convert
from memenvs.core.env import task_options
from memenvs.core.optional import check_version

check_version("skyrl-gym", "0.4", "0.5", "skyrl")

from skyrl_gym.envs.base_text_env import (  # noqa: E402  # after the check
    BaseTextEnv,
    BaseTextEnvStepOutput,
    ConversationType,
)


class Settings(msgspec.Struct):
    """The `env_config` of a `SkyRLEnv`."""

    env: str
    env_args: dict[str, Any] = {}  # msgspec copies it
    methods: list[Any] = []
    scorer: Any = None
    step_wise: bool = False


class SkyRLEnv(BaseTextEnv):
    """A text environment for `skyrl_gym.register(id, "memenvs.adapters.skyrl:SkyRLEnv")`.

    A step's reward is that of its turn, the sum of its components; with `step_wise` it is 0 until the last
    step, which gets the return, because step-wise training reads only the last step's reward. The
    metadata of a step are those of `memenvs.adapters.common.turn_record`; `get_metrics` has the environment's
    metrics, `return`, and `reward/NAME`, a component's sum over the episode. The metadata of the last step
    say what each turn earned, including what a method knows only in hindsight.

    Args:
        env_config: `env` (an id), `env_args`, `methods`, `scorer`; and `step_wise`, true if the
            generator has `step_wise_trajectories=true` (skyrl 0.3.0 or later). It must be true for an
            environment that gives a fresh prompt every turn, which otherwise would be appended to all the
            others.
        extras: a dataset row; `task` (a number) and `seed` choose the episode, so a group shares it.
            `max_turns`, which SkyRL's generator always sets, ends an episode early; `get_metrics` then has
            `cut` 1.0.

    Raises:
        ValueError: an unknown setting, no `env`, or fresh prompts without `step_wise`.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        config, self._row = plain(env_config or {}), dict(extras or {})
        settings = convert(config, Settings, "env_config", "give at least env='MemSearchQA-v0'")
        names = settings.__struct_fields__
        if unknown := sorted(set(config) - set(names)):
            raise ValueError(f"unknown setting {unknown[0]!r}; the settings are {', '.join(names)}")
        self.max_turns = int(self._row.get("max_turns") or 0)  # 0: the environment's own
        self._name, self._step_wise = settings.env, settings.step_wise
        self._env = open_env(settings.env, settings.env_args, settings.methods, settings.scorer)
        self._records: list[dict[str, Any]] = []
        self._over = self._done = False

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """The system messages of `prompt` and the first observation; its user messages are left out."""
        seed, task = read_draw(self._row)
        observation, self._info = self._env.reset(seed=seed, options=task_options(task))
        self.turns = 0
        self._records = [turn_record(self._info)]
        self._over = self._done = False
        fixed = [message for message in prompt if message["role"] == "system"]
        first = [{"role": "user", "content": observation}]
        self._check_context()
        self._chat = LatestPrompt(fixed, first)
        return self._chat, self._records[-1]

    def _check_context(self) -> None:
        if self._info["context"] == "rewrite" and not self._step_wise:
            raise ValueError(
                f"{self._name} gives fresh prompts and SkyRL appends: set "
                "generator.step_wise_trajectories=true, and step_wise=true in env_config"
            )

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play a reply."""
        observation, reward, terminated, truncated, self._info = self._env.step(action)
        self.turns += 1
        self._over = terminated or truncated
        self._records.append(turn_record(self._info))
        self._done = self._over or 0 < self.max_turns <= self.turns
        self._check_context()
        message = self._info["feedback"] if self._info["context"] == "append" else observation
        self._chat.fresh = self._info["context"] == "rewrite"
        if self._step_wise:
            reward = sum(self._info["turn_rewards"]) if self._done else 0.0
        return BaseTextEnvStepOutput(
            observations=[] if self._done else [{"role": "user", "content": message}],
            reward=float(reward),
            done=self._done,
            metadata=self._records[-1],
        )

    def get_metrics(self) -> dict[str, float]:
        """Metrics of the episode; zeros where it was cut."""
        components = {f"reward/{name}": value for name, value in component_sums(self._records).items()}
        summary = {"return": sum(self._info["turn_rewards"]), "cut": float(self._done and not self._over)}
        return {**self._info["metrics"], **summary, **components}

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class LatestPrompt(list[Any]):
    """A list of messages that starts over, after the system messages, where the prompt is a fresh one.

    SkyRL's generator appends every reply and every observation to the list that `init` returned
    (skyrl-gym's own RLM environment relies on that too). With `step_wise_trajectories` it reads the list
    again at every turn, so this is how it shows a fresh prompt.

    Args:
        fixed: the system messages.
        prompt: the first prompt.

    Attributes:
        fresh: whether the next prompt to be appended replaces what came before it.
    """

    def __init__(self, fixed: ConversationType, prompt: ConversationType) -> None:
        super().__init__([*fixed, *prompt])
        self._fixed, self.fresh = len(fixed), False

    def __iadd__(self, messages: Any) -> LatestPrompt:  # type: ignore[misc]
        """Append messages, or replace the conversation by the prompts among them."""
        prompts = [message for message in messages if message["role"] != "assistant"]
        if not self.fresh:
            self.extend(messages)
        elif prompts:
            self[self._fixed :] = prompts
        return self
