"""Text environments stepped together in one process, with one retriever call a step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from memenvs.core.data import Count, Whole, check, checked
from memenvs.core.env import Info
from memenvs.core.errors import error_line
from memenvs.core.state import State, check_keys, from_plain, get_state, set_state, to_plain

Mask = NDArray[np.bool_]
Step = tuple[tuple[Any, ...], NDArray[np.float64], Mask, Mask, dict[str, Any]]


class TextVectorEnv(VectorEnv[Any, Any, Any]):
    """Text environments in one process, stepped together.

    Observations are a tuple of N texts, actions any sequence of N texts. Infos are Gymnasium's vector infos;
    `infos_list` holds the last info of each environment, unchanged. Environments with the same retriever
    search all queries of a step in one call.

    Gymnasium's own `AsyncVectorEnv` cannot carry text in shared memory; a text environment spends its time in
    retrievers and models, which batch here.

    Autoreset:
        `"NextStep"`: the step after an end begins the next episode; its action is not played. `"SameStep"`:
        the step that ends an episode begins the next one; the final observation and info are in
        `infos["final_obs"]` and `infos["final_info"]`, and as they were in `finals`, by the environment's
        number. `"Disabled"`: reset by `options={"reset_mask": mask}`.

    Errors:
        With `errors="truncate"` an environment that raises does not stop the others: its episode ends as
        truncated, with reward 0, the observation and the info it had (but no `feedback`), and the error in
        `info["error"]`, one line, which is empty everywhere else and a key in this mode alone. An episode
        whose reset raises is over at once; where environments begin by themselves, the next step tries again.
        If the shared search of a step fails, each environment searches alone, so that only those whose own
        search fails are truncated (the step then waits N times for an unreachable server).

    Args:
        envs: an environment's id, or N functions that make one each.
        num_envs: N; only with an id.
        autoreset_mode: see above.
        errors: `"raise"`, or `"truncate"`: see above.
        **kwargs: of the environment; only with an id.

    Raises:
        ValueError: an argument does not fit, or two functions give the same environment.
    """

    @checked
    def __init__(
        self,
        envs: str | Sequence[Callable[[], gym.Env[Any, Any]]],
        num_envs: Count | None = None,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        errors: Literal["raise", "truncate"] = "raise",
        **kwargs: Any,
    ) -> None:
        if not envs or isinstance(envs, str) != (num_envs is not None) or (num_envs is None and kwargs):
            raise ValueError("pass an id, num_envs and its arguments, or functions that make environments")
        if isinstance(envs, str):
            make = functools.partial(gym.make, envs, disable_env_checker=True, **kwargs)
            envs = [make] * (num_envs or 0)
        self.envs: list[gym.Env[Any, Any]] = [make() for make in envs]
        self.num_envs, self.errors = len(self.envs), errors
        if len({id(env.unwrapped) for env in self.envs}) < self.num_envs:
            raise ValueError(
                "two of the environments are the same object; give functions that make a new environment at "
                "each call, such as lambda: gym.make(…)"
            )
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.spec = self.envs[0].spec
        self.render_mode = self.envs[0].render_mode
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.infos_list: list[Info] = [{}] * self.num_envs
        self.finals: dict[int, tuple[Any, Info]] = {}
        self._observations: list[Any] = [""] * self.num_envs
        self._over: Mask = np.ones(self.num_envs, np.bool_)  # nothing has begun yet
        self._absent: Mask = np.zeros(self.num_envs, np.bool_)  # the last reset failed
        self._autoreset_seeds: list[int | None] = [None] * self.num_envs

    @property
    def over(self) -> Mask:
        """(N,) bool, a copy: whose episode has ended, or has not begun."""
        return self._over.copy()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Start episodes, in all environments or where `options["reset_mask"]` says.

        Args:
            seed: one per environment, or a first one s for s, s + 1, …; G equal seeds make a group.
            options: `task` is a number for all or one for each; `reset_mask` (N,) bool.
        """
        options = dict(options or {})
        mask = read_mask("reset_mask", options.pop("reset_mask", None), self.num_envs)
        seeds = read_seeds(seed, self.num_envs)
        tasks = one_each("task", options.pop("task", None), self.num_envs)
        hows: dict[int, dict[str, Any]] = {}
        for i in np.flatnonzero(mask).tolist():
            own = options if tasks[i] is None else {**options, "task": tasks[i]}
            inner: Any = self.envs[i].unwrapped
            if hasattr(inner, "check_options"):  # a wrong option is the caller's error, not an environment's
                inner.check_options(own)
            hows[i] = {"seed": seeds[i], "options": own}
        self._reset_ahead(hows)
        for i, how in hows.items():
            self._reset_one(i, **how)
        return tuple(self._observations), self.batch_infos({i: self.infos_list[i] for i in hows})

    def step(self, actions: Sequence[str], mask: Mask | None = None) -> Step:
        """Play one reply in each environment.

        Args:
            actions: N replies.
            mask: (N,) bool, which environments play; the others keep their observation, with reward 0 and no
                info. All by default.

        Raises:
            ResetNeeded: an episode is over and autoreset is disabled.
        """
        plays = read_mask("mask", mask, self.num_envs)
        seeds, self._autoreset_seeds = self._autoreset_seeds, [None] * self.num_envs
        begins = self._beginning(plays)
        self._check_actions(actions, plays & ~begins)
        self._prepare(actions, plays & ~begins)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        for i in np.flatnonzero(plays).tolist():
            if begins[i]:
                truncated[i] = not self._reset_one(i, seed=seeds[i])
            else:
                rewards[i], terminated[i], truncated[i] = self._step_one(i, actions[i])
        self._over = np.where(plays, terminated | truncated, self._over)
        self.finals = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(plays & self._over & ~self._absent).tolist():
                self.finals[i] = self._observations[i], self.infos_list[i]
                self._reset_one(i, seed=seeds[i])
        shown = {i: self.infos_list[i] for i in {*np.flatnonzero(plays).tolist(), *self.finals}}
        infos = self.batch_infos(shown, self.finals)
        return tuple(self._observations), rewards, terminated, truncated, infos

    def truncate(self, i: int, error: str) -> None:
        """End an episode as truncated, as if its last step had raised; only with `errors="truncate"`.

        For a wrapper that cannot use what a step returned. The next episode begins as after any other end,
        except that mode `"SameStep"` needs a reset by `reset_mask` before the next step.

        Args:
            i: number of the environment; its episode is not over.
            error: one line, for `info["error"]`.
        """
        self.infos_list[i] = {**self.infos_list[i], "error": error}
        self._over[i] = True

    def seed_autoreset(self, seeds: Sequence[int | None]) -> None:
        """Seed the episodes that begin by themselves in the next step; later ones are not seeded.

        Args:
            seeds: N; None continues with the environment's own generator.
        """
        self._autoreset_seeds = read_seeds(seeds, self.num_envs)

    def batch_infos(
        self, infos: Mapping[int, Info], finals: Mapping[int, tuple[Any, Info]] | None = None
    ) -> dict[str, Any]:
        """Gymnasium's vector infos of some environments' infos.

        Args:
            infos: infos by the number of the environment.
            finals: observation and info of episodes that ended where another has begun; see `finals`.
        """
        batch: dict[str, Any] = {}
        for i, info in infos.items():
            batch = self._add_info(batch, info, i)
        for i, (observation, info) in (finals or {}).items():
            batch = self._add_info(batch, {"final_obs": observation, "final_info": info}, i)
        return batch

    def get_states(self) -> list[State]:
        """The state of every environment (see `memenvs.get_state`), whether it is over, and its info."""
        return [
            {
                "inner": None if self._absent[i] else get_state(env),
                "over": bool(self._over[i]),
                "info": to_plain(info),
            }
            for i, (env, info) in enumerate(zip(self.envs, self.infos_list, strict=True))
        ]

    def set_states(self, states: Sequence[State], observations: Sequence[Any]) -> None:
        """Resume from states, with the observations that belong to them.

        Raises:
            ValueError: not N states, or a state of another environment; no episode that had begun has changed
                then.
        """
        held = []
        for state in states:
            check_keys(state, "inner", "over", "info")
            own = {name: state[name] for name in ("over", "info")}
            held.append(from_plain(own, _HeldBeside, "the state's environment"))
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
        for i, (state, beside) in enumerate(zip(states, held, strict=True)):
            self._over[i], self._absent[i] = beside.over, state["inner"] is None
            self.infos_list[i] = beside.info
        self._observations, self.finals = list(observations), {}

    def render(self) -> tuple[Any, ...] | None:
        """What each environment shows."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _beginning(self, plays: Mask) -> Mask:
        """Which of those that play begin an episode in this step."""
        over = plays & self._over
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            return over
        begins = over & self._absent & (self.autoreset_mode is AutoresetMode.SAME_STEP)
        if (over & ~begins).any():
            late = int((over & ~begins).argmax())
            raise gym.error.ResetNeeded(f"episode {late} is over; reset it by options={{'reset_mask': mask}}")
        return begins

    def _check_actions(self, actions: Sequence[str], plays: Mask) -> None:
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise ValueError(f"step takes a sequence of {self.num_envs} replies, got {actions!r:.60}")
        for i in np.flatnonzero(plays).tolist():
            if not isinstance(actions[i], str):
                raise TypeError(f"reply {i} must be a str, got {type(actions[i]).__name__}; decode it first")

    def _prepare(self, actions: Sequence[str], plays: Mask) -> None:
        """Let environments do together what they can, such as one search for all their queries."""
        played = ((self.envs[i].unwrapped, actions[i]) for i in np.flatnonzero(plays).tolist())
        prepare_together(played, may_fail=self.errors == "truncate")

    def _reset_ahead(self, hows: dict[int, dict[str, Any]]) -> None:
        """Begin episodes at once where environments are in other processes; see `RayTextVectorEnv`."""

    def _reset_one(self, i: int, **how: Any) -> bool:
        """Start an episode; whether it could be started."""
        error = ""
        try:
            self._observations[i], info = self.envs[i].reset(**how)
        except Exception as raised:
            error = self._line_of(raised)
            info = failed_reset(self.envs[i], self.infos_list[i])
        self._keep_info(i, info, error)
        self._over[i] = self._absent[i] = bool(error)
        return not error

    def _step_one(self, i: int, action: str) -> tuple[float, bool, bool]:
        """Play a reply: reward, terminated, truncated."""
        try:
            self._observations[i], reward, terminated, truncated, info = self.envs[i].step(action)
        except Exception as raised:
            self._keep_info(i, failed_turn(self.infos_list[i]), self._line_of(raised))
            return 0.0, False, True
        self._keep_info(i, info, "")
        return float(reward), terminated, truncated

    def _line_of(self, error: Exception) -> str:
        """What `info["error"]` says of an error; raises it where errors are raised."""
        if self.errors == "raise":
            raise error
        return error_line(error)

    def _keep_info(self, i: int, info: Info, error: str) -> None:
        self.infos_list[i] = info if self.errors == "raise" else {**info, "error": error}


@dataclass
class _HeldBeside:
    """What a state holds of an environment beside its own state."""

    over: bool
    info: Info


def prepare_together(plays: Iterable[tuple[Any, str]], *, may_fail: bool) -> None:
    """Call `TextEnv.prepare` once for all environments that have the same one."""
    calls: dict[Any, list[tuple[Any, str]]] = {}
    for env, reply in plays:
        calls.setdefault(env.prepare, []).append((env, reply))
    for prepare, own in calls.items():
        prepare(own, may_fail=may_fail)


def failed_turn(info: Info) -> Info:
    """The info of a turn that failed: as it was before, one turn later, which earned and showed nothing."""
    return {
        **info,
        "turn": info["turn"] + 1,
        "feedback": "",
        "rewards": dict.fromkeys(info["rewards"], 0.0),
        "turn_rewards": [*info["turn_rewards"], 0.0],
    }


def failed_reset(env: gym.Env[Any, Any], info: Info) -> Info:
    """The info of an episode that did not begin: no task, no turns, and the keys of the episode before.

    Args:
        env: whose reset failed.
        info: its last one; empty if it never had any.
    """
    inner: Any = env.unwrapped
    context = getattr(inner, "context", "append")
    components, metrics = getattr(inner, "components", ()), getattr(inner, "metric_names", ("success",))
    before = info or {"context": context, "rewards": components, "metrics": metrics, "privileged": {}}
    return {
        **before,
        "task": "",
        "turn": 0,
        "feedback": "",
        "rewards": dict.fromkeys(before["rewards"], 0.0),
        "turn_rewards": [],
        "metrics": dict.fromkeys(before["metrics"], 0.0),
    }


def read_mask(name: str, mask: Any, count: int) -> Mask:
    """A mask (N,) bool, a copy; None means all."""
    array = np.ones(count, np.bool_) if mask is None else np.array(mask)
    if array.shape != (count,) or array.dtype != np.bool_:
        raise ValueError(f"{name} must have shape ({count},) and hold bools, got {mask!r}")
    return array


def read_seeds(seed: Any, count: int) -> list[int | None]:
    """A seed per environment: a number s means s, s + 1, …; None means no seed."""
    seeds = [int(one) if isinstance(one, np.integer) else one for one in one_each("seed", seed, count)]
    for value in seeds:
        check("seed", value, Whole | None)
    alone = not isinstance(seed, Sequence) and np.ndim(seed) == 0
    return [None if value is None else value + i * alone for i, value in enumerate(seeds)]


def one_each(name: str, value: Any, count: int) -> list[Any]:
    """The entries of a sequence, which must be `count`; anything else is repeated `count` times."""
    if isinstance(value, np.ndarray):
        value = list(value) if value.ndim else value[()]
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must have {count} entries, or be one number, got {len(value)} entries")
    return list(value)
