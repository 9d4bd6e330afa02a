"""N text environments stepped together: texts go out as a tuple, and all searches of a step are one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from memenvs.envs.searching import Searching, find_all
from memenvs.spaces import clean_text
from memenvs.state import get_state, set_state
from memenvs.text_env import MAX_REPLY_CHARS, End, Info, State

Mask = NDArray[np.bool_]
Step = tuple[tuple[Any, ...], NDArray[np.float64], Mask, Mask, dict[str, Any]]


class Played(NamedTuple):
    """A step of one environment.

    Attributes:
        number: of the environment.
        action: the reply as it was given.
        observation: what came back.
        reward: of the step.
        end: how the episode ended; empty while it runs.
        info: what came back.
    """

    number: int
    action: str
    observation: Any
    reward: float
    end: End
    info: Info


class Watcher(Protocol):
    """Sees what happens in a vector environment before it is told, and may tell it otherwise."""

    def began(self, index: int, observation: Any, info: Info) -> Info:
        """An episode began; returns the info to give out."""
        ...

    def played(self, steps: Sequence[Played]) -> dict[int, tuple[float, Info]]:
        """Environments played; returns reward and info to give out, also of some that did not play."""
        ...


class TextVectorEnv(VectorEnv[Any, Any, Any]):
    """Text environments in one process, stepped together.

    Observations are a tuple of N texts, actions any sequence of N texts. Infos are Gymnasium's vector infos;
    `infos_list` holds the last info of each environment as it was. The queries of a step are gathered over
    all environments with the same retriever and searched by one call.

    Gymnasium's own `AsyncVectorEnv` cannot carry text in shared memory; a text environment spends its time in
    retrievers and models, which batch here.

    Args:
        envs: an environment's id, or N functions that make one each.
        num_envs: N; only with an id.
        autoreset_mode: `"NextStep"` (the step after an end resets; its action is not played),
            `"SameStep"` (the final observation and info are in `infos["final_obs"]` and `["final_info"]`) or
            `"Disabled"` (reset by `options={"reset_mask": mask}`).
        **kwargs: of the environment; only with an id.
    """

    def __init__(
        self,
        envs: str | Sequence[Callable[[], gym.Env[Any, Any]]],
        num_envs: int | None = None,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **kwargs: Any,
    ) -> None:
        if isinstance(envs, str):
            if num_envs is None or num_envs < 1:
                raise ValueError(f"num_envs must be at least 1 with an id, got {num_envs!r}")
            self.envs = [gym.make(envs, disable_env_checker=True, **kwargs) for _ in range(num_envs)]
        elif num_envs is not None or kwargs or not envs:
            raise ValueError(
                "give an id with num_envs and its arguments, or functions that make environments"
            )
        else:
            self.envs = [make() for make in envs]
        self.num_envs = len(self.envs)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.spec = self.envs[0].spec
        self.render_mode = self.envs[0].render_mode
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.infos_list: list[Info] = [{}] * self.num_envs
        self.watchers: list[Watcher] = []
        self._observations: list[Any] = [""] * self.num_envs
        self._over: Mask = np.ones(self.num_envs, np.bool_)  # nothing has begun yet

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Start episodes, in all environments or where `options["reset_mask"]` says.

        Args:
            seed: one a environment, or a first one s for s, s + 1, …; G equal seeds make a group.
            options: `task` is a number for all or one for each; `reset_mask` (N,) bool.
        """
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, np.bool_)), np.bool_)
        if mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must have shape ({self.num_envs},), got {mask.shape}")
        count = range(self.num_envs)
        seeds = [seed + i for i in count] if isinstance(seed, int) else list(seed or [None] * self.num_envs)
        tasks = options.pop("task", None)
        numbers: list[Any] = (
            [tasks] * self.num_envs if tasks is None or isinstance(tasks, int) else list(tasks)
        )
        if len(seeds) != self.num_envs or len(numbers) != self.num_envs:
            raise ValueError(f"seed and task must have {self.num_envs} entries, or be one number")
        for i in np.flatnonzero(mask).tolist():
            chosen = options if numbers[i] is None else {**options, "task": int(numbers[i])}
            self._begin(i, seed=seeds[i], options=chosen)
        self._over &= ~mask
        return tuple(self._observations), self._gather(mask)

    def step(self, actions: Sequence[str], mask: Mask | None = None) -> Step:
        """Play one reply in each environment.

        Args:
            actions: N replies.
            mask: (N,) bool, which environments play; the others keep their observation, with reward 0 and no
                info. All by default.
        """
        if len(actions) != self.num_envs:
            raise ValueError(f"step wants {self.num_envs} replies, got {len(actions)}")
        plays = np.ones(self.num_envs, np.bool_) if mask is None else np.asarray(mask, np.bool_).copy()
        starts = (
            plays & self._over if self.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros_like(plays)
        )
        if (plays & self._over & ~starts).any():
            late = int((plays & self._over).argmax())
            raise gym.error.ResetNeeded(f"episode {late} is over; reset it by options={{'reset_mask': mask}}")
        self._search_for(actions, plays & ~starts)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        for i in np.flatnonzero(plays).tolist():
            if starts[i]:
                self._begin(i)
            else:
                played = self.envs[i].step(actions[i])
                self._observations[i], rewards[i], terminated[i], truncated[i], self.infos_list[i] = played
        told = self._tell(np.flatnonzero(plays & ~starts).tolist(), actions, rewards, terminated, truncated)
        self._over = np.where(plays, terminated | truncated, self._over)
        finals = self._restart() if self.autoreset_mode is AutoresetMode.SAME_STEP else {}
        return (
            tuple(self._observations),
            rewards,
            terminated,
            truncated,
            {**finals, **self._gather(plays | told)},
        )

    def get_states(self) -> list[State]:
        """The state of every environment; see `memenvs.get_state`."""
        return [get_state(env) for env in self.envs]

    def set_states(self, states: Sequence[State], observations: Sequence[Any]) -> None:
        """Go on from states, with the observations that were shown in them."""
        for env, state in zip(self.envs, states, strict=True):
            set_state(env, state)
        self._observations = list(observations)
        self._over = np.array([bool(env.unwrapped.episode.end) for env in self.envs])  # type: ignore[attr-defined]

    def render(self) -> tuple[Any, ...] | None:
        """What each environment shows."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _search_for(self, actions: Sequence[str], plays: Mask) -> None:
        """Search the queries of all environments that share a retriever in one call."""
        asked: dict[tuple[int, int], list[tuple[Searching, str]]] = {}
        for i in np.flatnonzero(plays).tolist():
            searching: Any = self.envs[i].unwrapped
            if isinstance(searching, Searching):
                query = searching.query_of(clean_text(actions[i], MAX_REPLY_CHARS))
                if query is not None:
                    asked.setdefault((id(searching.retriever), searching.k), []).append((searching, query))
        for (_, k), group in asked.items():
            found = find_all(group[0][0].retriever, [query for _, query in group], k)
            for (searching, query), passages in zip(group, found, strict=True):
                searching.give(query, passages)

    def _begin(self, i: int, **how: Any) -> None:
        observation, info = self.envs[i].reset(**how)
        for watcher in self.watchers:
            info = watcher.began(i, observation, info)
        self._observations[i], self.infos_list[i] = observation, info

    def _tell(
        self,
        indices: list[int],
        actions: Sequence[str],
        rewards: NDArray[np.float64],
        terminated: Mask,
        truncated: Mask,
    ) -> Mask:
        """Let the watchers look at a step; the environments that they told something of."""
        told = np.zeros(self.num_envs, np.bool_)
        for watcher in self.watchers:
            steps = []
            for i in indices:
                end: End = "terminated" if terminated[i] else "truncated" if truncated[i] else ""
                shown = (self._observations[i], float(rewards[i]), end, self.infos_list[i])
                steps.append(Played(i, actions[i], *shown))
            for i, (reward, info) in watcher.played(steps).items() if steps else ():
                rewards[i], self.infos_list[i], told[i] = reward, info, True
        return told

    def _restart(self) -> dict[str, Any]:
        """Start anew what is over; the final observations and infos."""
        finals: dict[str, Any] = {}
        for i in np.flatnonzero(self._over).tolist():
            final = {"final_obs": self._observations[i], "final_info": self.infos_list[i]}
            finals = self._add_info(finals, final, i)
            self._begin(i)
        self._over = np.zeros_like(self._over)
        return finals

    def _gather(self, mask: Mask) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(mask).tolist():
            infos = self._add_info(infos, self.infos_list[i], i)
        return infos
