"""Text environments stepped together in one process, with one retriever call a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from memenvs.core.checks import check_choice, error_line, is_whole
from memenvs.core.env import End, Info
from memenvs.core.state import State, check_keys, from_plain, get_state, set_state, to_plain


def prepare_together(plays: Iterable[tuple[Any, str]], *, may_fail: bool) -> None:
    """Call `TextEnv.prepare` once for all environments that have the same one."""
    calls: dict[Any, list[tuple[Any, str]]] = {}
    for env, reply in plays:
        calls.setdefault(env.prepare, []).append((env, reply))
    for prepare, own in calls.items():
        prepare(own, may_fail=may_fail)


def one_each(name: str, value: Any, count: int) -> list[Any]:
    """The entries of a sequence, unchanged; anything else stands `count` times.

    Raises:
        ValueError: a sequence of another length.
    """
    if isinstance(value, np.ndarray):
        value = list(value) if value.ndim else value[()]
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must have {count} entries, or be one number, got {len(value)} entries")
    return list(value)


def read_seeds(seed: Any, count: int) -> list[int | None]:
    """A seed an environment: a number s stands for s, s + 1, …; None for no seed.

    Raises:
        ValueError: another length, or what is no whole number of at least 0.
    """
    seeds = one_each("seed", seed, count)
    for value in seeds:
        if value is not None and not (is_whole(value) and value >= 0):
            raise ValueError(f"a seed must be None or a whole number, at least 0, got {value!r}")
    alone = not isinstance(seed, Sequence) and np.ndim(seed) == 0
    return [None if value is None else int(value) + i * alone for i, value in enumerate(seeds)]


def read_mask(name: str, mask: Any, count: int) -> NDArray[np.bool_]:
    """A mask (N,) bool, a copy; None stands for all.

    Raises:
        ValueError: another shape, or entries that are no bools.
    """
    array = np.ones(count, np.bool_) if mask is None else np.array(mask)
    if array.shape != (count,) or array.dtype != np.bool_:
        raise ValueError(f"{name} must have shape ({count},) and hold bools, got {mask!r}")
    return array


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


class Told(NamedTuple):
    """What a watcher makes of a step.

    Attributes:
        reward: to give out.
        info: to give out.
        fails: the episode cannot go on; it ends as truncated, unless the step ended it anyway.
    """

    reward: float
    info: Info
    fails: bool = False


class Watcher(Protocol):
    """Sees what happens in a vector environment before it is told, and may tell it otherwise."""

    def seed(self, index: int) -> int | None:
        """The seed of an episode that begins by itself; None goes on with the environment's generator."""
        ...

    def began(self, index: int, observation: Any, info: Info) -> Info:
        """An episode began, or failed to (`info["error"]`); returns the info to give out."""
        ...

    def played(self, steps: Sequence[Played]) -> dict[int, Told]:
        """Environments played; returns what to give out, also of some that did not play."""
        ...


ERRORS = ("raise", "truncate")


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
        info: its last one; empty if it never had any. What every text environment tells stands then.
    """
    inner: Any = env.unwrapped
    context = getattr(inner, "context", "append")
    components, metrics = getattr(inner, "components", ()), getattr(inner, "metric_names", ("success",))
    known = info or {"context": context, "rewards": components, "metrics": metrics, "privileged": {}}
    return {
        **known,
        "task": "",
        "turn": 0,
        "feedback": "",
        "rewards": dict.fromkeys(known["rewards"], 0.0),
        "turn_rewards": [],
        "metrics": dict.fromkeys(known["metrics"], 0.0),
    }


class Shown(NamedTuple):
    """What an environment shows after a reset or a step.

    Attributes:
        observation: the one it had, if it raised.
        reward: 0.0 if it raised.
        terminated: the task is over.
        truncated: a limit, or an error, cut it.
        info: with `error` unless errors are raised.
    """

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Info


class Members:
    """The environments of a vector environment.

    Args:
        envs: N environments.
        errors: `"raise"`, or `"truncate"`: an error ends its episode as truncated.

    Raises:
        ValueError: `errors` is neither.
    """

    def __init__(self, envs: list[gym.Env[Any, Any]], errors: str) -> None:
        check_choice("errors", errors, ERRORS)
        self.envs = envs
        self.errors = errors
        self.observations: list[Any] = [""] * len(self.envs)
        self.infos: list[Info] = [{}] * len(self.envs)

    def reset(self, i: int, **how: Any) -> Shown:
        """Begin an episode; truncated if it could not begin."""
        try:
            observation, info = self.envs[i].reset(**how)
        except Exception as error:
            if self.errors == "raise":
                raise
            return self._failed(i, failed_reset(self.envs[i], self.infos[i]), error)
        return self._keep(i, Shown(observation, 0.0, False, False, self._marked(info)))

    def step(self, i: int, action: str) -> Shown:
        """Play a reply."""
        try:
            observation, reward, terminated, truncated, info = self.envs[i].step(action)
        except Exception as error:
            if self.errors == "raise":
                raise
            return self._failed(i, failed_turn(self.infos[i]), error)
        return self._keep(i, Shown(observation, float(reward), terminated, truncated, self._marked(info)))

    def _failed(self, i: int, info: Info, error: Exception) -> Shown:
        marked = {**info, "error": error_line(error)}
        return self._keep(i, Shown(self.observations[i], 0.0, False, True, marked))

    def _marked(self, info: Info) -> Info:
        return info if self.errors == "raise" else {**info, "error": ""}

    def _keep(self, i: int, shown: Shown) -> Shown:
        self.observations[i], self.infos[i] = shown.observation, shown.info
        return shown


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
        """Let environments do together what they can, such as one search for all their queries."""
        played = ((self.envs[i].unwrapped, actions[i]) for i in np.flatnonzero(plays).tolist())
        prepare_together(played, may_fail=self.errors == "truncate")

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
