"""Reward methods on one text environment, and on many that are stepped together."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

import memenvs
from memenvs.core.data import Count, checked, is_whole
from memenvs.core.env import End, Info, TextEnv, end_of
from memenvs.core.errors import error_line
from memenvs.core.state import State, check_keys, from_plain, to_plain
from memenvs.core.text import Template
from memenvs.core.vector import Mask, Step, TextVectorEnv, read_mask
from memenvs.envs.render import earned_lines
from memenvs.rollout.records import Credit, Episode, Turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import (
    MethodSpec,
    ScorerSpec,
    make_methods,
    make_scorer,
    plain_method,
    plain_scorer,
)
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores

OUTCOME = "outcome"

METHOD_FIELDS = ("rewards", "turn_rewards", "metrics", "signals", "credits", "error")
"""Entries of an info that methods change."""

Scores = dict[str, list[list[TokenScores]]]
"""The scores that methods asked for, by method: those of each turn that it measures now."""


@dataclass
class EpisodeRewards:
    """What reward methods keep of an episode of K turns, and what a state holds of it.

    Attributes:
        observations: (K + 1) what was shown, from the reset on.
        infos: (K + 1) the environment's infos for them.
        rewards: the components in the info that is returned now.
        signals: for each method by name, the signal (K,) of each turn; empty until the end if it pays then.
        credits: for each method by name, its credits; empty until it has assigned them.
        paid: for each method by name, what it has paid (K,) for each turn.
        actions: (K) the replies.
        end: how the episode ended; empty while it runs.
        error: why it could not begin, be played or be scored; empty otherwise.
        number: of the episode in its environment; equal numbers form a group.
        complete: whether its group is complete.
    """

    observations: list[Any]
    infos: list[dict[str, Any]]
    rewards: dict[str, float] = field(default_factory=dict)
    signals: dict[str, list[float]] = field(default_factory=dict)
    credits: dict[str, list[Credit]] = field(default_factory=dict)
    paid: dict[str, list[float]] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    end: End = ""
    error: str = ""
    number: int = 0
    complete: bool = False

    def __post_init__(self) -> None:
        # What the last turn was scored by. A state does not hold it: it is then asked for again.
        self.scored: dict[ScoreRequest, TokenScores] = {}

    @property
    def over(self) -> bool:
        """Whether the episode has ended, or never began."""
        return bool(self.end or self.error)

    @property
    def outcomes(self) -> list[float]:
        """(K) the outcome component of each turn, as the environment paid it."""
        return [float(info["rewards"].get(OUTCOME, 0.0)) for info in self.infos[1:]]

    @property
    def turns(self) -> list[Turn]:
        """(K) the turns."""
        shown, infos = self.observations, self.infos
        parts = zip(shown[:-1], self.actions, infos[:-1], shown[1:], infos[1:], strict=True)
        turns = [Turn(*part) for part in parts]
        if turns:
            turns[-1] = turns[-1]._replace(end=self.end)
        return turns

    def turns_with(self, action: str, observation: Any, info: Info, end: End) -> list[Turn]:
        """The turn made of a reply and what the environment returned; at the end, after all turns before it.

        `MethodStack.pay` adds it.
        """
        turn = Turn(self.observations[-1], action, self.infos[-1], observation, info, end)
        return [*self.turns, turn] if end else [turn]


Played = dict[int, EpisodeRewards]
"""Episodes by the number of their environment."""


class MethodStack:
    """Reward methods that pay for the same episodes, and their scorer.

    Args:
        methods: see `memenvs.wrappers.registry.make_methods`; their names differ.
        scorer: see `memenvs.wrappers.registry.make_scorer`; may be None where no method asks.
        template: the model's prompt, with `{prompt}` where the method's prompt goes; None leaves that as it
            is.

    Raises:
        ValueError: no such method or scorer, no scorer for a method that asks, two methods with one name, or
            a template without `{prompt}`.
    """

    def __init__(self, methods: Sequence[MethodSpec], scorer: ScorerSpec, template: str | None) -> None:
        self.methods = make_methods(methods)
        self.names = [method.name for method in self.methods]
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(
                f"two methods are named {twice[0]!r}, and both would pay in full; leave one out, or make a "
                "subclass with another `name`"
            )
        self.replaces_outcome = any(method.replaces_outcome for method in self.methods)
        self.scorer: Any = make_scorer(scorer)
        asking = [method.name for method in self.methods if method.asks]
        if asking and self.scorer is None:
            raise ValueError(f"{asking[0]} asks for log-probabilities; give a scorer, e.g. scorer='lexical'")
        self._scorer_spec = scorer
        self._template = None if template is None else Template(template, required=("prompt",), name="prompt")

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: a named scorer is shared within a process, so only its name is kept."""
        return {**self.__dict__, "scorer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.scorer = make_scorer(self._scorer_spec)

    def begin(self, observation: Any, info: Info, error: str = "") -> EpisodeRewards:
        """An episode without turns, or one that could not begin because of an `error`.

        Raises:
            ValueError: the environment has a component of a method's name, or lacks what a method needs.
        """
        for method in self.methods if not error else ():
            if method.name in info["rewards"]:
                raise ValueError(
                    f"the environment already has a component {method.name!r}; wrap it once, or make a "
                    "subclass with another `name`"
                )
            for need in method.needs:
                if not _has(info, need):
                    raise ValueError(
                        f"{method.name} needs info[{need.replace('/', '][')}], which this environment does "
                        f"not give (task {info.get('task')!r}); see its docstring for what its infos hold"
                    )
        episode = EpisodeRewards([observation], [info], error=error)
        episode.rewards = self._components(info, dict.fromkeys(self.names, 0.0))
        for name in self.names:
            episode.signals[name], episode.credits[name], episode.paid[name] = [], [], []
        return episode

    def score(
        self, episodes: Sequence[EpisodeRewards], played: Sequence[Sequence[Turn]], *, apart: bool = False
    ) -> list[Scores | str]:
        """Score what the methods ask now, in one call of the scorer.

        Equal requests are scored once, and so is what an episode asked at its turn before: a prompt after
        one turn is the prompt before the next.

        Args:
            episodes: before the turn.
            played: their turns: the last one, and at the end of an episode all.
            apart: if that call raises, score episode by episode, and return the error in one line for one
                that fails again.
        """
        asked = [
            {one.name: [*map(one.requests, one.turns_to_measure(turns))] for one in self.methods}
            for turns in played
        ]
        wanted = [
            [request for own in by_name.values() for requests in own for request in requests]
            for by_name in asked
        ]
        scores = {request: nats for episode in episodes for request, nats in episode.scored.items()}
        unique = {request: None for requests in wanted for request in requests if request not in scores}
        if unique:
            rendered = list(unique)
            if self._template is not None:
                rendered = [ScoreRequest(self._template.fill(prompt=prompt), text) for prompt, text in unique]
            try:
                scores |= zip(unique, self.scorer.logprobs(rendered), strict=True)
            except Exception as error:
                if not apart:
                    raise
                if len(played) == 1:
                    return [error_line(error)]
                return [
                    scores
                    for episode, turns in zip(episodes, played, strict=True)
                    for scores in self.score([episode], [turns], apart=True)
                ]
        for episode, requests in zip(episodes, wanted, strict=True):
            episode.scored = {request: scores[request] for request in requests}
        return [
            {name: [[scores[one] for one in requests] for requests in own] for name, own in by_name.items()}
            for by_name in asked
        ]

    def pay(
        self, episode: EpisodeRewards, turns: Sequence[Turn], reward: float, scores: Scores | str
    ) -> float:
        """Add a turn to its episode and return its reward, as far as it is known at that turn.

        Args:
            episode: to which the last of `turns` is added.
            turns: as `score` takes them.
            reward: the environment's.
            scores: of what was asked; or why the turn could not be played or scored, which ends the episode.
        """
        turn = turns[-1]
        episode.actions.append(turn.action)
        episode.observations.append(turn.next_observation)
        episode.infos.append(turn.info)
        episode.end = turn.end
        if isinstance(scores, str):
            episode.end, episode.error = turn.end or "truncated", scores
        components: dict[str, float] = {}
        for method in self.methods:
            signals = episode.signals[method.name]
            if isinstance(scores, str):
                signals += [math.nan] * (len(episode.actions) - len(signals))
            else:
                found = map(method.signal, method.turns_to_measure(turns), scores[method.name])
                signals += [signal if math.isfinite(signal) else math.nan for signal in map(float, found)]
            components[method.name] = signals[-1] if method.immediate else 0.0
            episode.paid[method.name].append(_nan_to_zero(components[method.name]))
        episode.rewards = self._components(turn.info, components)
        own = reward - turn.info["rewards"].get(OUTCOME, 0.0) if self.replaces_outcome else reward
        return sum(map(_nan_to_zero, components.values()), float(own))

    def assign_credit(self, method: RewardMethod, episodes: Sequence[EpisodeRewards]) -> list[float]:
        """Give ended episodes a method's credits; return what these add to what it has paid each of them.

        A credit based on a signal that is NaN is NaN, with the reason, whatever a method's formula gives. In
        an episode that an error ended, only what was paid at its turn keeps its value.
        """
        scored = [episode for episode in episodes if not episode.error]
        # A group stays whole, or its last episode without an error would look like one without a group.
        given = episodes if method.group and scored else scored
        made = method.assign_credit([self.record(episode) for episode in given]) if given else []
        of_episode = dict(zip(map(id, given), made, strict=True))
        return [self._take(method.name, one, of_episode.get(id(one), [])) for one in episodes]

    def info(self, episode: EpisodeRewards) -> Info:
        """The environment's last info with the methods' parts; always the same keys."""
        info = episode.infos[-1]
        signals = {name: list(own) for name, own in episode.signals.items()}
        credits = {name: list(own) for name, own in episode.credits.items()}
        # An inner wrapper that has replaced the outcome keeps it in its metrics, with 0 as its component.
        outcome = math.fsum(episode.outcomes) if episode.over else 0.0
        unscored = {f"{name}_unscored": float(_unscored(own)) for name, own in credits.items()}
        return {
            **info,
            **({"error": episode.error} if episode.error else {}),
            "rewards": dict(episode.rewards),
            "turn_rewards": self._turn_rewards(episode),
            "metrics": {OUTCOME: outcome, **info["metrics"], **unscored},
            "signals": {**info.get("signals", {}), **signals},
            "credits": {**info.get("credits", {}), **credits},
        }

    def record(self, episode: EpisodeRewards) -> Episode:
        """An episode for reward methods and learners."""
        unknown = [math.nan] * len(episode.actions)
        return Episode(
            turns=episode.turns,
            outcomes=episode.outcomes,
            signals={name: own + unknown[len(own) :] for name, own in episode.signals.items()},
            credits=episode.credits,
            turn_rewards=self._turn_rewards(episode),
            error=episode.error,
            replaces_outcome=self.replaces_outcome,
        )

    def get_state(self) -> State:
        """The methods with their settings, and what they remember of earlier episodes, as plain data."""
        memories = {method.name: method.get_state() for method in self.methods}
        return {"methods": self._plain_methods, "memories": to_plain(memories)}

    def check_state(self, state: Any, *names: str) -> None:
        """Raise a one-line `ValueError` unless a state has these entries and is of these methods."""
        check_keys(state, "inner", "methods", "memories", *names)
        if state["methods"] != self._plain_methods:
            theirs = list(state["methods"])
            other = [method for method in theirs if method not in self._plain_methods] or theirs
            raise ValueError(
                f"this state is from other reward methods ({other!s:.200}); make the wrapper with the "
                "methods of the state"
            )

    def set_state(self, state: State) -> None:
        """Restore what the methods remembered in the state."""
        memories = from_plain(state["memories"], dict[str, dict[str, Any]], "the state's memories")
        for method in self.methods:
            method.set_state(memories[method.name])

    @functools.cached_property
    def _plain_methods(self) -> Any:
        """Names and settings as they are in states; methods do not change them."""
        return to_plain([plain_method(method) for method in self.methods])

    def _components(self, info: Info, own: Mapping[str, float]) -> dict[str, float]:
        """The environment's components beside the methods' own; 0 for an outcome that they replace."""
        replaced = {OUTCOME: 0.0} if self.replaces_outcome and OUTCOME in info["rewards"] else {}
        return {**info["rewards"], **own, **replaced}

    def _turn_rewards(self, episode: EpisodeRewards) -> list[float]:
        """(K) what each turn was worth, as far as it is known."""
        # The environment's are from its last info: an inner wrapper may know only at the end what an earlier
        # turn was worth.
        own = episode.infos[-1]["turn_rewards"]
        if self.replaces_outcome:
            own = [reward - outcome for reward, outcome in zip(own, episode.outcomes, strict=True)]
        return [sum(parts) for parts in zip(own, *episode.paid.values(), strict=True)]

    def _take(self, name: str, episode: EpisodeRewards, credits: Sequence[Credit]) -> float:
        """Keep a method's credits, and return what they add to what it has paid."""
        signals, error = episode.signals[name], episode.error
        if error:
            credits = [
                Credit(k, signal, reason=error * math.isnan(signal)) for k, signal in enumerate(signals)
            ]
        own = [
            credit._replace(
                value=math.nan, reason=credit.reason or "the signal of this turn is not a finite number"
            )
            if credit.from_signal and math.isnan(signals[credit.turn])
            else credit
            for credit in credits
        ]
        earned = [0.0] * len(signals)
        for credit in own:
            earned[credit.turn] += _nan_to_zero(credit.value)
        added = math.fsum(value - paid for value, paid in zip(earned, episode.paid[name], strict=True))
        episode.paid[name], episode.credits[name] = earned, own
        unknown = _unscored(own) == len(own) and bool(own or error)
        episode.rewards[name] = math.nan if unknown else _nan_to_zero(episode.rewards[name]) + added
        return added


class _HasMethods:
    """What both wrappers show of their methods."""

    _stack: MethodStack

    @property
    def methods(self) -> list[Any]:
        """The methods."""
        return self._stack.methods

    @property
    def scorer(self) -> Scorer | None:
        """The methods' scorer."""
        return self._stack.scorer

    @property
    def replaces_outcome(self) -> bool:
        """Whether a method replaces the outcome; R^O is then the last turn's reward."""
        return self._stack.replaces_outcome


class RewardWrapper(_HasMethods, gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Add the components of reward methods to a text environment.

    Reward:
        The environment's, plus a component for each method, with the method's name. A reward that is known at
        its turn is paid there; a reward known only in hindsight is paid at the last turn. Then
        `info["turn_rewards"]` says what each turn was worth; both sum to the same return. A method that
        replaces the outcome sets that component to 0; `info["metrics"]["outcome"]` keeps it. If a method
        could not score, its component is NaN and the reward leaves it out.

    Info:
        As the environment's, with `signals` (each method's raw number of each turn, so far), `credits` (each
        method's `Credit`s) and, in `metrics`, `outcome` and for each method `NAME_unscored` (its credits
        without a number). Credits, and the signals of a method that pays at the end, are empty until then.

    Without a group, a method that compares the rollouts of a task uses statistics of earlier episodes (its
    docstring says which); they are part of the state. `VectorRewardWrapper` compares real groups.

    Args:
        env: a text environment, wrapped or not.
        methods: see `memenvs.wrappers.registry.make_methods`; any order.
        scorer: see `memenvs.wrappers.registry.make_scorer`; a spec can be rebuilt only with a name.
        template: chat template of the scorer's model, written out, with `{prompt}` where the prompt goes. By
            default the model reads the bare prompt.

    Raises:
        ValueError: no or unknown methods, two with one name, no such scorer, no scorer for a method that
            asks, a template without `{prompt}`; and at `reset`, an environment that does not give what a
            method needs.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        template: str | None = None,
    ) -> None:
        self._stack = MethodStack(methods, scorer, template)
        RecordConstructorArgs.__init__(
            self,
            methods=[plain_method(method) for method in self.methods],
            scorer=plain_scorer(scorer),
            template=template,
        )
        gym.Wrapper.__init__(self, env)
        self._episode: EpisodeRewards | None = None
        self._interrupted = False  # whether an error has left the last turn unpaid

    @property
    def record(self) -> Episode:
        """The episode that is being played or has just ended."""
        record = self._stack.record(self._episode or self._current)
        record.env = self.spec.id if self.spec else type(self.unwrapped).__name__
        record.seed = -1  # of the reset: not kept
        return record

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; what methods remember of earlier ones is kept."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode, self._interrupted = self._stack.begin(observation, info), False
        return observation, self._stack.info(self._episode)

    def step(self, action: str) -> tuple[Any, float, bool, bool, Info]:
        """Play a reply; the reward is the environment's with what the methods pay at this turn."""
        stack, episode = self._stack, self._current
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._interrupted = True
        turns = episode.turns_with(action, observation, info, end_of(terminated, truncated))
        (scores,) = stack.score([episode], [turns])
        reward = stack.pay(episode, turns, float(reward), scores)
        for method in self.methods if episode.over else ():
            reward += stack.assign_credit(method, [episode])[0]
        self._interrupted = False
        return observation, reward, terminated, truncated, stack.info(episode)

    def render(self) -> Any:
        """What the environment renders; a text shows this wrapper's reward, signals and credits.

        Shown are the signals of the last turn and its known credits; at the end, those of every turn.
        """
        episode, inner = self._episode, self.unwrapped
        if episode is None or not episode.actions:
            return self.env.render()
        info = self._stack.info(episode)
        own = earned_lines(info["rewards"], info["signals"], info["credits"], info["turn_rewards"])
        with inner.show_rewards(own) if isinstance(inner, TextEnv) else contextlib.nullcontext(own) as earned:
            drawn = self.env.render()
        said = "\n".join(earned)
        return drawn if not isinstance(drawn, str) or said in drawn else f"{drawn}\n{said}"

    def get_state(self) -> State:
        """The state of the environment, this episode's rewards, and the methods with what they remember.

        Plain data that JSON gives back equal.

        Raises:
            TypeError: an observation, an info or a method holds something else; see
                `memenvs.core.state.to_plain`.
        """
        return {
            "inner": memenvs.get_state(self.env),
            "record": to_plain(self._current),
            **self._stack.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Resume from a state of a wrapper with the same methods and settings.

        Raises:
            ValueError: it is from another environment or other methods; nothing has changed then.
        """
        self._stack.check_state(state, "record")
        record = from_plain(state["record"], EpisodeRewards, "the state's record")
        memenvs.set_state(self.env, state["inner"])
        self._stack.set_state(state)
        self._episode, self._interrupted = record, False

    @property
    def _current(self) -> EpisodeRewards:
        if self._episode is None or self._interrupted:
            raise gym.error.ResetNeeded("no episode, or an error interrupted its last step; call reset()")
        return self._episode


class VectorRewardWrapper(_HasMethods, VectorWrapper[Any, Any, Any, Any, Any]):
    """Add the components of reward methods to text environments that are stepped together.

    Reward and Info:
        As in `RewardWrapper`, for each environment; `infos_list` holds the infos one by one. All requests of
        a step, over all environments and methods, are one call of the scorer; equal requests are scored once.
        The environment inside keeps giving its own rewards and infos; once wrapped, step it through the
        wrapper.

    Group:
        Environments 0 to G - 1 are a group, G to 2G - 1 the next, and so on; they play one task.
        `reset(seed=s)` gives the environments of a group one seed (s, s + 1, … for the groups). The seed
        of an episode that begins without one is made from its group and its number, so that the n-th
        episodes of a group play one task whenever they begin. A method that compares rollouts assigns credit
        when the last of them has ended, and `completed_groups` holds the episodes of the groups that the last
        step completed.

        An episode that ends before its group shows what is known at its end. What the comparison adds is paid
        at the step that completes the group, with the final `turn_rewards` and `credits` in the info, if
        `autoreset_mode` is `"Disabled"`; other modes have begun another episode by then, and only
        `completed_groups` shows it.

    Errors:
        With the `TextVectorEnv`'s `errors="truncate"` an error of the scorer ends as few episodes as
        possible: the requests are scored again environment by environment, and an episode whose requests fail
        again ends (as truncated, unless the step ended it) with the error in its info. The credits of an
        episode that an error ended are NaN with the error as their reason, except those paid at earlier
        turns. When the rest of its group has ended, credit is assigned without it, with its signals NaN.

    With `group_size=1` a method that compares rollouts falls back to statistics of earlier episodes in all
    environments. One wrapper takes any number of methods; a second one around it is refused.

    Args:
        env: a `TextVectorEnv`, wrapped or not.
        methods: see `memenvs.wrappers.registry.make_methods`; any order.
        scorer: see `memenvs.wrappers.registry.make_scorer`.
        group_size: G, a divisor of the number of environments.
        template: see `RewardWrapper`.

    Raises:
        TypeError: `env` is not a `TextVectorEnv`.
        ValueError: see `RewardWrapper`; or `group_size` does not divide the number of environments.
    """

    @checked
    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        group_size: Count = 1,
        template: str | None = None,
    ) -> None:
        inner = env.unwrapped
        if not isinstance(inner, TextVectorEnv):
            raise TypeError(f"env must be a memenvs.core.vector.TextVectorEnv, got {type(inner).__name__}")
        layer: Any = env
        while layer is not inner:
            if isinstance(layer, VectorRewardWrapper):
                raise ValueError("env already has a VectorRewardWrapper; give all methods to one wrapper")
            layer = layer.env
        if inner.num_envs % group_size:
            raise ValueError(f"group_size must divide the {inner.num_envs} environments, got {group_size}")
        super().__init__(env)
        self.group_size = group_size
        self.completed_groups: list[list[Episode]] = []
        self.infos_list: list[Info] = [{}] * inner.num_envs
        self._stack = MethodStack(methods, scorer, template)
        self._vector = inner
        self._episodes: list[EpisodeRewards | None] = [None] * inner.num_envs
        self._numbers = [0] * inner.num_envs  # of the episodes that begin next
        # The groups that are not complete: their episodes so far by environment.
        self._groups: dict[tuple[int, int], Played] = {}
        self._base_seed = int(np.random.default_rng().integers(2**63))  # for episodes without a seed

    def record(self, i: int) -> Episode:
        """The episode that environment i is playing or has just ended."""
        return self._stack.record(self._episode(i))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Start episodes; see `TextVectorEnv.reset`, and the class for seeds."""
        self.completed_groups = []
        chosen = read_mask("reset_mask", (options or {}).get("reset_mask"), self.num_envs)
        size = self.group_size
        for first in range(0, self.num_envs, size):
            if chosen[first : first + size].all():
                self._restart(range(first, first + size), count=seed is not None)
        if seed is None:
            seed = self._seeds()
        elif size > 1 and is_whole(seed):
            self._base_seed = int(np.asarray(seed))
            seed = [self._base_seed + i // size for i in range(self.num_envs)]
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        begun = np.flatnonzero(chosen).tolist()
        for i in begun:
            self._begin(i, observations[i])
        own_infos = self._vector.batch_infos({i: self.infos_list[i] for i in begun})
        return observations, {**infos, **own_infos}

    def step(self, actions: Sequence[str], mask: Mask | None = None) -> Step:
        """Play one reply in each environment; see `TextVectorEnv.step`."""
        self.completed_groups = []
        vector = self._vector
        plays = read_mask("mask", mask, self.num_envs)
        begins = plays & vector.over  # by autoreset; mode "Disabled" refuses the step
        playing = np.flatnonzero(plays & ~begins).tolist()
        episodes = {i: self._episode(i) for i in playing}
        for i, episode in episodes.items():
            self._check_turn(i, episode, playing)
        same_step = vector.autoreset_mode is AutoresetMode.SAME_STEP
        if vector.autoreset_mode is not AutoresetMode.DISABLED:
            vector.seed_autoreset(self._seeds(ended=same_step))
        # Gymnasium's own wrappers in between do not take a mask.
        stepped: Step = self.env.step(actions, *(() if mask is None else (mask,)))
        observations, rewards, terminated, truncated, infos = stepped
        rewards, truncated = rewards.copy(), truncated.copy()  # a wrapper in between keeps its own
        for i in np.flatnonzero(begins).tolist():
            self._begin(i, observations[i])
        finals = dict(vector.finals)
        played = dict[int, list[Turn]]()
        for i, episode in episodes.items():
            observation, info = finals.get(i, (observations[i], vector.infos_list[i]))
            end = end_of(terminated[i], truncated[i])
            played[i] = episode.turns_with(actions[i], observation, info, end)
        late = self._pay(played, rewards)
        for i in (*playing, *late):
            self.infos_list[i] = self._stack.info(self._episode(i))
        failed = [i for i in playing if episodes[i].error and not (terminated[i] or truncated[i])]
        for i in failed:
            vector.truncate(i, episodes[i].error)
            truncated[i] = True
        if same_step and failed:
            finals |= {i: (observations[i], self.infos_list[i]) for i in failed}
            again = {"reset_mask": np.isin(np.arange(self.num_envs), failed)}
            observations, _ = self.env.reset(seed=self._seeds(), options=again)  # type: ignore[arg-type]
        ended = {i: (observation, self.infos_list[i]) for i, (observation, _) in finals.items()}
        for i in ended:
            self._begin(i, observations[i])
        shown = {i: self.infos_list[i] for i in {*np.flatnonzero(plays).tolist(), *late, *ended}}
        if not late and not ended:  # the rest is in `infos` already
            shown = {
                i: {name: info[name] for name in METHOD_FIELDS if name in info} for i, info in shown.items()
            }
        return observations, rewards, terminated, truncated, {**infos, **vector.batch_infos(shown, ended)}

    def get_states(self) -> list[State]:
        """The state of every environment, its current and waiting episodes, and the methods' memories.

        See `RewardWrapper.get_state`.
        """
        inner: Any = self.env
        shared = {"group_size": self.group_size, "base_seed": self._base_seed, **self._stack.get_state()}
        states = []
        for i, (state, current) in enumerate(zip(inner.get_states(), self._episodes, strict=True)):
            waiting = [group[i] for group in self._groups.values() if i in group and group[i] is not current]
            member = Member(self._numbers[i], [*waiting, current] if current else waiting)
            states.append({"inner": state, "member": to_plain(member), **shared})
        return states

    def set_states(self, states: Sequence[State], observations: Sequence[Any]) -> None:
        """Resume from states, with the observations that were shown in them.

        What the methods remember, and the seeds of episodes that begin by themselves, are the first state's.

        Raises:
            ValueError: see `RewardWrapper.set_state` and `TextVectorEnv.set_states`; or the groups were of
                another size.
        """
        inner: Any = self.env
        for state in states:
            self._stack.check_state(state, "group_size", "base_seed", "member")
            if state["group_size"] != self.group_size:
                raise ValueError(
                    f"this state has groups of {state['group_size']}, not {self.group_size}; make the "
                    "wrapper with that group_size"
                )
        members = [from_plain(state["member"], Member, "the state's member") for state in states]
        inner.set_states([state["inner"] for state in states], observations)
        self._stack.set_state(states[0])
        self._groups = {}
        for i, member in enumerate(members):
            for episode in member.episodes:
                if not episode.complete:
                    self._groups.setdefault((i // self.group_size, episode.number), {})[i] = episode
        self._numbers = [member.number for member in members]
        self._episodes = [member.episodes[-1] if member.episodes else None for member in members]
        self.infos_list = [self._stack.info(episode) if episode else {} for episode in self._episodes]
        self._base_seed = states[0]["base_seed"]
        self.completed_groups = []

    def _episode(self, i: int) -> EpisodeRewards:
        """The episode that environment i is playing or has just ended."""
        episode = self._episodes[i]
        if episode is None:
            raise ValueError(f"environment {i} was reset before it was wrapped; call reset() on the wrapper")
        return episode

    def _restart(self, block: range, *, count: bool) -> None:
        """Drop the episodes of a group of environments; `count` also counts them from 0 again."""
        number = 0 if count else max(map(self._number_after, block))
        for i in block:
            self._episodes[i], self._numbers[i] = None, number
        place = block[0] // self.group_size
        self._groups = {key: group for key, group in self._groups.items() if key[0] != place}

    def _number_after(self, i: int) -> int:
        """The number of the episode after the one that environment i is playing, or of its next one."""
        episode = self._episodes[i]
        return self._numbers[i] + (episode is not None and not episode.over)

    def _seeds(self, ended: bool = False) -> list[int | None]:
        """Seeds for episodes that the caller does not seed; `ended` counts the current ones as ended.

        Groups of one need none.
        """
        if self.group_size == 1:
            return [None] * self.num_envs
        seeds: list[int | None] = []
        for i in range(self.num_envs):
            number = self._number_after(i) if ended else self._numbers[i]
            place = [self._base_seed, i // self.group_size, number]
            seeds.append(int(np.random.SeedSequence(place).generate_state(1)[0]))
        return seeds

    def _error_of(self, info: Info) -> str:
        return str(info["error"]) if self._vector.errors == "truncate" else ""

    def _check_turn(self, i: int, episode: EpisodeRewards, playing: Sequence[int]) -> None:
        """Refuse a turn after a step that an error interrupted or that bypassed this wrapper.

        Also the first turn of another task than the group's other episodes play, or have played.
        """
        ours, theirs = episode.infos[-1], self._vector.infos_list[i]
        if any(ours[name] != theirs[name] for name in ("task", "turn")):
            raise ValueError(
                f"environment {i} is at turn {theirs['turn']} of task {theirs['task']!r}, this wrapper at "
                f"turn {ours['turn']} of {ours['task']!r}; reset the wrapper, then step only it"
            )
        group = {} if episode.actions else self._groups[i // self.group_size, episode.number]
        for j, other in group.items():
            task = other.infos[-1]["task"]
            if task != ours["task"] and (other.actions or (j in playing and not other.over)):
                raise ValueError(
                    f"environments {i} and {j} are in one group but play tasks {ours['task']!r} and "
                    f"{task!r}; reset the {self.group_size} environments together, with one seed"
                )

    def _begin(self, i: int, observation: Any) -> None:
        """Environment i has begun an episode, or failed to."""
        info = self._vector.infos_list[i]
        episode = self._stack.begin(observation, info, self._error_of(info))
        # An episode that has not ended leaves its number, and its place in the group, to this one.
        episode.number = self._numbers[i]
        self._episodes[i] = episode
        self._groups.setdefault((i // self.group_size, episode.number), {})[i] = episode
        if episode.over:
            self._assign_credit({i: episode}, np.zeros(self.num_envs), at_reset=True)
        self.infos_list[i] = self._stack.info(episode)

    def _pay(self, played: dict[int, list[Turn]], rewards: NDArray[np.float64]) -> list[int]:
        """Add the last turns, and their pay to `rewards`; return the environments paid without playing."""
        stack = self._stack
        outcomes: dict[int, Scores | str] = {i: self._error_of(own[-1].info) for i, own in played.items()}
        living = [i for i, error in outcomes.items() if not error]
        scored = stack.score(
            [self._episode(i) for i in living],
            [played[i] for i in living],
            apart=self._vector.errors == "truncate",
        )
        outcomes |= zip(living, scored, strict=True)
        for i, turns in played.items():
            rewards[i] = stack.pay(self._episode(i), turns, float(rewards[i]), outcomes[i])
        return self._assign_credit({i: e for i in played if (e := self._episode(i)).over}, rewards)

    def _assign_credit(
        self, ended: Played, rewards: NDArray[np.float64], *, at_reset: bool = False
    ) -> list[int]:
        """Assign credit to the episodes that ended and the groups they complete; add it to `rewards` (N,).

        Returns the environments that are paid late, for an episode that had ended before; none `at_reset`,
        which returns no rewards.
        """
        pays_late = self._vector.autoreset_mode is AutoresetMode.DISABLED and not at_reset
        self._credit(ended, rewards, ended, False)
        late: list[int] = []
        for i, episode in ended.items():
            self._numbers[i] = episode.number + 1
            key = (i // self.group_size, episode.number)
            group = dict(sorted(self._groups.get(key, {}).items()))  # empty if this step has completed it
            if len(group) < self.group_size or not all(other.over for other in group.values()):
                continue
            del self._groups[key]
            for j, other in group.items():
                other.complete = True
                if ended.get(j) is not other:  # it ended in an earlier step, whose rewards were returned
                    other.rewards = dict.fromkeys(other.rewards, 0.0)
                    if pays_late and self._episodes[j] is other:
                        late.append(j)
            self._credit(group, rewards, {j for j in group if ended.get(j) is group[j]} | {*late}, True)
            self.completed_groups.append([self._stack.record(other) for other in group.values()])
        return late

    def _credit(
        self, episodes: Played, rewards: NDArray[np.float64], paid: Iterable[int], group: bool
    ) -> None:
        """Assign credit by the methods that compare groups, or by the others; `paid` environments get it."""
        for method in (method for method in self.methods if method.group is group):
            added = self._stack.assign_credit(method, list(episodes.values()))
            for i, more in zip(episodes, added, strict=True):
                rewards[i] += more if i in paid else 0.0


@dataclass
class Member:
    """The episodes of one environment, in a state of a `VectorRewardWrapper`.

    Attributes:
        number: of the episode that begins next, counted in step with the other environments of the group.
        episodes: those that wait for their group, then the current one.
    """

    number: int
    episodes: list[EpisodeRewards]


def _has(info: Info, path: str) -> bool:
    """Whether an info has an entry, as `"privileged/target"`."""
    entry: Any = info
    for key in path.split("/"):
        if not isinstance(entry, Mapping) or key not in entry:
            return False
        entry = entry[key]
    return True


def _unscored(credits: Sequence[Credit]) -> int:
    return sum(math.isnan(credit.value) for credit in credits)


def _nan_to_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
