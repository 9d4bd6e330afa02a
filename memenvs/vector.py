"""N text environments stepped together: texts go out as a tuple, and all searches of a step are one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from memenvs.envs.searching import search_together
from memenvs.state import State, check_keys, from_plain, get_state, set_state, to_plain
from memenvs.text_env import End, Info
from memenvs.vector_members import Members
from memenvs.vector_options import is_whole, one_each, read_mask, read_seeds
from memenvs.vector_watch import Played, Watcher

Mask = NDArray[np.bool_]
Step = tuple[tuple[Any, ...], NDArray[np.float64], Mask, Mask, dict[str, Any]]


@dataclass
class _MemberState:
    """What a state holds of an environment beside its own state."""

    over: bool
    info: Info


class TextVectorEnv(VectorEnv[Any, Any, Any]):
    """Text environments in one process, stepped together.

    Observations are a tuple of N texts, actions any sequence of N texts. Infos are Gymnasium's vector infos;
    `infos_list` holds the last info of each environment as it was. The queries of a step are gathered over
    all environments with the same retriever and searched by one call.

    Gymnasium's own `AsyncVectorEnv` cannot carry text in shared memory; a text environment spends its time in
    retrievers and models, which batch here.

    Errors:
        With `errors="truncate"` an environment that raises does not stop the others: its episode ends as
        truncated, with reward 0, the observation and the info it had (but no `feedback`), and the error in
        `info["error"]`, one line, which is empty everywhere else and a key in this mode alone. An episode
        whose reset raises is over at once; where environments begin by themselves, the next step tries again.
        If the one search of a step fails, each environment searches alone, so that those fail who would have
        failed alone (a server that is away is then waited for N times).

    Args:
        envs: an environment's id, or N functions that make one each.
        num_envs: N; only with an id.
        autoreset_mode: `"NextStep"` (the step after an end resets; its action is not played),
            `"SameStep"` (the final observation and info are in `infos["final_obs"]` and `["final_info"]`) or
            `"Disabled"` (reset by `options={"reset_mask": mask}`).
        errors: `"raise"`, or `"truncate"`: see above.
        **kwargs: of the environment; only with an id.
    """

    def __init__(
        self,
        envs: str | Sequence[Callable[[], gym.Env[Any, Any]]],
        num_envs: int | None = None,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        errors: str = "raise",
        **kwargs: Any,
    ) -> None:
        if isinstance(envs, str):
            if not is_whole(num_envs) or (count := int(num_envs or 0)) < 1:
                raise ValueError(f"num_envs must be a whole number, at least 1, with an id, got {num_envs!r}")
            self.envs = [gym.make(envs, disable_env_checker=True, **kwargs) for _ in range(count)]
        elif num_envs is not None or kwargs or not envs:
            raise ValueError(
                "give an id with num_envs and its arguments, or functions that make environments"
            )
        else:
            self.envs = [make() for make in envs]
        self._members = Members(self.envs, errors)
        self.num_envs, self.errors = len(self.envs), errors
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
        self._over: Mask = np.ones(self.num_envs, np.bool_)  # nothing has begun yet
        self._absent: Mask = np.zeros(self.num_envs, np.bool_)  # the last reset failed

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Start episodes, in all environments or where `options["reset_mask"]` says.

        Args:
            seed: one a environment, or a first one s for s, s + 1, …; G equal seeds make a group.
            options: `task` is a number for all or one for each; `reset_mask` (N,) bool.

        Raises:
            ValueError: another number of seeds, tasks or mask entries than N, or entries of another kind.
        """
        options = dict(options or {})
        mask = read_mask("reset_mask", options.pop("reset_mask", None), self.num_envs)
        seeds = read_seeds(seed, self.num_envs)
        tasks = one_each("task", options.pop("task", None), self.num_envs)
        hows: dict[int, dict[str, Any]] = {}
        for i in np.flatnonzero(mask).tolist():
            own = options if tasks[i] is None else {**options, "task": tasks[i]}
            inner: Any = self.envs[i].unwrapped
            if hasattr(inner, "check_options"):  # a wrong option is the caller's error, not that of a member
                inner.check_options(own)
            hows[i] = {"seed": seeds[i], "options": own}
        self._reset_ahead(hows)
        for i, how in hows.items():
            self._begin(i, **how)
        return tuple(self._members.observations), self._gather(mask)

    def step(self, actions: Sequence[str], mask: Mask | None = None) -> Step:
        """Play one reply in each environment.

        Args:
            actions: N replies.
            mask: (N,) bool, which environments play; the others keep their observation, with reward 0 and no
                info. All by default.

        Raises:
            ResetNeeded: an episode is over and is not begun anew by itself.
            TypeError: one text in place of a sequence, or a reply that is no text.
            ValueError: another number of replies or mask entries than N.
        """
        plays = read_mask("mask", mask, self.num_envs)
        starts = self._starting(plays)
        self._check_actions(actions, plays & ~starts)
        self._search_for(actions, plays & ~starts)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        for i in np.flatnonzero(plays).tolist():
            if starts[i]:
                truncated[i] = not self._begin(i)
            else:
                _, rewards[i], terminated[i], truncated[i], self.infos_list[i] = self._members.step(
                    i, actions[i]
                )
        told = self._tell(np.flatnonzero(plays & ~starts).tolist(), actions, rewards, terminated, truncated)
        self._over = np.where(plays, terminated | truncated, self._over)
        finals = self._restart() if self.autoreset_mode is AutoresetMode.SAME_STEP else {}
        return (
            tuple(self._members.observations),
            rewards,
            terminated,
            truncated,
            {**finals, **self._gather(plays | told)},
        )

    def get_states(self) -> list[State]:
        """The state of every environment (see `memenvs.get_state`), whether it is over, and its info."""
        return [
            {
                "inner": None if self._absent[i] else get_state(env),
                "over": bool(self._over[i]),
                "info": to_plain(info),
            }
            for i, (env, info) in enumerate(zip(self.envs, self._members.infos, strict=True))
        ]

    def set_states(self, states: Sequence[State], observations: Sequence[Any]) -> None:
        """Go on from states, with the observations that were shown in them.

        Raises:
            ValueError: another number of states or observations than N, or a state of another environment;
                no episode that had begun has changed then.
        """
        for name, given in (("states", states), ("observations", observations)):
            if len(given) != self.num_envs:
                raise ValueError(f"{name} must have {self.num_envs} entries, got {len(given)}")
        members = []
        for state in states:
            check_keys(state, "inner", "over", "info")
            own = {name: state[name] for name in ("over", "info")}
            members.append(from_plain(own, _MemberState, "environment"))
        before: list[tuple[gym.Env[Any, Any], State]] = []
        try:
            for env, state in zip(self.envs, states, strict=True):
                if state["inner"] is not None:
                    with contextlib.suppress(gym.error.ResetNeeded):
                        before.append((env, get_state(env)))
                    set_state(env, state["inner"])
        except Exception:
            for env, was in before:
                set_state(env, was)
            raise
        for i, (state, member) in enumerate(zip(states, members, strict=True)):
            self._over[i], self._absent[i] = member.over, state["inner"] is None
            self._members.infos[i] = self.infos_list[i] = member.info
        self._members.observations = list(observations)

    def render(self) -> tuple[Any, ...] | None:
        """What each environment shows."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _starting(self, plays: Mask) -> Mask:
        """Which of those that play begin an episode in this step."""
        over = plays & self._over
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            return over
        starts = over & self._absent & (self.autoreset_mode is AutoresetMode.SAME_STEP)
        if (over & ~starts).any():
            late = int((over & ~starts).argmax())
            raise gym.error.ResetNeeded(f"episode {late} is over; reset it by options={{'reset_mask': mask}}")
        return starts

    def _check_actions(self, actions: Sequence[str], plays: Mask) -> None:
        if isinstance(actions, str):
            raise TypeError(
                f"step wants {self.num_envs} replies, got one text {actions!r:.60}; put it in a list"
            )
        if len(actions) != self.num_envs:
            raise ValueError(f"step wants {self.num_envs} replies, got {len(actions)}")
        for i in np.flatnonzero(plays).tolist():
            if not isinstance(actions[i], str):
                raise TypeError(f"reply {i} must be a str, got {type(actions[i]).__name__}; decode it first")

    def _search_for(self, actions: Sequence[str], plays: Mask) -> None:
        """Search the queries of all environments that share a retriever in one call."""
        played = ((self.envs[i].unwrapped, actions[i]) for i in np.flatnonzero(plays).tolist())
        search_together(played, may_fail=self.errors == "truncate")

    def _reset_ahead(self, hows: dict[int, dict[str, Any]]) -> None:
        """Where environments are elsewhere, begin their episodes at once; here one by one will do."""

    def _begin(self, i: int, **how: Any) -> bool:
        """Start an episode; whether it could be started."""
        if not how:
            how = {"seed": next((watcher.seed(i) for watcher in self.watchers), None)}
        observation, _, _, failed, info = self._members.reset(i, **how)
        for watcher in self.watchers:
            info = watcher.began(i, observation, info)
        self.infos_list[i] = info
        self._over[i] = self._absent[i] = failed
        return not failed

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
                shown = (self._members.observations[i], float(rewards[i]), end, self.infos_list[i])
                steps.append(Played(i, actions[i], *shown))
            for i, (reward, info, fails) in watcher.played(steps).items() if steps else ():
                rewards[i], self.infos_list[i], told[i] = reward, info, True
                truncated[i] |= fails and not terminated[i]
        return told

    def _restart(self) -> dict[str, Any]:
        """Start anew what is over; the final observations and infos."""
        finals: dict[str, Any] = {}
        for i in np.flatnonzero(self._over & ~self._absent).tolist():
            final = {"final_obs": self._members.observations[i], "final_info": self.infos_list[i]}
            finals = self._add_info(finals, final, i)
            self._begin(i)
        return finals

    def _gather(self, mask: Mask) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(mask).tolist():
            infos = self._add_info(infos, self.infos_list[i], i)
        return infos
