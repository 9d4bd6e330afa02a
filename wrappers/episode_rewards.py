"""What reward methods pay for an episode, and for a group of episodes of one task."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from memenvs.core.checks import error_line
from memenvs.core.env import End, Info
from memenvs.core.state import State, check_keys, from_plain, to_plain
from memenvs.core.text import Template
from memenvs.rollout.records import Credit, Episode, Turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_methods, make_scorer, plain_method
from memenvs.wrappers.scorers import ScoreRequest, TokenScores

OUTCOME = "outcome"
NO_NUMBER = "the signal of this turn is no finite number"
INFO_FIELDS = {"task": str, "turn": int, "rewards": dict, "turn_rewards": list, "metrics": dict}
"""Entries of every info that rewards are computed from."""

METHOD_FIELDS = ("rewards", "turn_rewards", "metrics", "signals", "credits", "error")
"""Entries of an info in which methods have a part."""

Requests = dict[str, list[ScoreRequest]]
"""The requests of one turn, by method."""

Scores = dict[str, list[TokenScores]]
"""The scores that answer them, by method."""


class MethodStack:
    """Reward methods that pay for the same episodes, and the scorer that they ask.

    Args:
        methods: see `memenvs.wrappers.registry.make_methods`; their names differ.
        scorer: see `memenvs.wrappers.registry.make_scorer`; may be None where no method asks.
        template: makes the model's prompt of a prompt, `{prompt}` its place; None leaves it as it is.

    Raises:
        ValueError: no such method or scorer, two methods of one name, or a template without its place.
    """

    def __init__(self, methods: Sequence[MethodSpec], scorer: ScorerSpec, template: str | None) -> None:
        self.methods = make_methods(methods)
        for method in self.methods:
            if not isinstance(getattr(method, "name", None), str):
                raise ValueError(
                    f"{type(method).__name__} has no name; give the class one: name = 'my_method'"
                )
        self.names = [method.name for method in self.methods]
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(
                f"two methods are called {twice[0]!r}, and each would pay in full; leave one out, or make a "
                "subclass with another `name`"
            )
        self.replaces_outcome = any(method.replaces_outcome for method in self.methods)
        self.scorer = make_scorer(scorer)
        self._scorer_spec = scorer
        self._template = None if template is None else Template(template, required=("prompt",), name="prompt")

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: a scorer that has a name is shared in a process and travels by it."""
        return {**self.__dict__, "scorer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.scorer = make_scorer(self._scorer_spec)

    def check(self, info: Info) -> None:
        """ValueError if an environment has a component of a method's name, or lacks what a method needs."""
        for method in self.methods:
            if method.name in info["rewards"]:
                raise ValueError(
                    f"there is a component {method.name!r} below this wrapper already; wrap once, or make a "
                    "subclass with another `name`"
                )
            for need in method.needs:
                paths = need.split(" or ")
                if not any(_has(info, path) for path in paths):
                    wanted = " or ".join(f"info[{path.replace('/', '][')}]" for path in paths)
                    raise ValueError(
                        f"{method.name} needs {wanted}, which this environment does not give (task "
                        f"{info.get('task')!r}); see the environment's docstring for what its infos hold"
                    )

    def requests(self, turns: Sequence[Turn]) -> list[Requests]:
        """What the methods ask about each turn."""
        return [{method.name: method.requests(turn) for method in self.methods} for turn in turns]

    def score(self, requests: Sequence[Requests]) -> list[Scores]:
        """Score the requests of several turns by one call of the scorer, equal requests once.

        Raises:
            ValueError: something is asked and there is no scorer.
        """
        unique = {request: None for of in requests for some in of.values() for request in some}
        if not unique:
            return [{} for _ in requests]
        if self.scorer is None:
            raise ValueError("a method asks for log-probabilities; give a scorer, e.g. scorer='lexical'")
        rendered = list(unique)
        if self._template is not None:
            rendered = [ScoreRequest(self._template.fill(prompt=prompt), text) for prompt, text in unique]
        scores = dict(zip(unique, self.scorer.logprobs(rendered), strict=True))
        return [{name: [scores[request] for request in some] for name, some in of.items()} for of in requests]

    def score_apart(self, requests: Sequence[Requests]) -> list[Scores | str]:
        """As `score`; if that call raises, turn by turn: the error in one line where it raises again."""
        try:
            return [*self.score(requests)]
        except Exception as error:
            if self.scorer is None:
                raise
            if len(requests) == 1:
                return [error_line(error)]
        return [scores for one in requests for scores in self.score_apart([one])]

    def record(self, episode: EpisodeRewards) -> Episode:
        """An episode for reward methods and learners."""
        return Episode(
            turns=episode.turns,
            outcomes=episode.outcomes,
            signals=episode.signals,
            credits=episode.credits,
            turn_rewards=episode.turn_rewards,
            error=episode.error,
            replaces_outcome=self.replaces_outcome,
        )

    def assign_credit(self, method: RewardMethod, episodes: Sequence[EpisodeRewards]) -> list[list[Credit]]:
        """A method's credits of each ended episode: NaN, with the reason, where an error ended it."""
        scored = [episode for episode in episodes if not episode.error]
        # A group stays whole, or its last episode without an error would look like one without a group.
        given = list(episodes) if method.group and scored else scored
        made = method.assign_credit([self.record(episode) for episode in given]) if given else []
        _check_credits(method.name, made, given)
        credits = dict(zip(map(id, given), made, strict=True))
        return [
            _failed_credits(episode, method.name)
            if episode.error
            else _measured(credits[id(episode)], episode.signals[method.name])
            for episode in episodes
        ]

    def get_state(self) -> State:
        """The methods with their settings, and what they remember of earlier episodes, as plain data."""
        memories = {method.name: method.get_state() for method in self.methods}
        state: State = to_plain({"methods": self._plain_methods, "memories": memories})
        return state

    def check_state(self, state: State) -> dict[str, Any]:
        """The memories of a state of `get_state`.

        Raises:
            ValueError: it is of other methods, or of other settings.
        """
        check_keys(state, "methods", "memories")
        own = {name: state[name] for name in ("methods", "memories")}
        held = from_plain(own, _StackState, "the state's wrapper")
        if state["methods"] != self._plain_methods:
            difference = _first_difference(held.methods, self._plain_methods)
            raise ValueError(f"this state is of {difference}; make the wrapper with the methods of the state")
        if set(held.memories) != set(self.names):
            raise ValueError(f"the state's memories must be of {', '.join(self.names)}")
        return held.memories

    @contextlib.contextmanager
    def restored(self, state: State) -> Iterator[None]:
        """Let the methods remember what a state of `get_state` says, and take it back if the block raises.

        Raises:
            ValueError: see `check_state`; or a method refuses what it is to remember.
        """
        memories = self.check_state(state)
        before = [copy.deepcopy(method.get_state()) for method in self.methods]
        try:
            for method in self.methods:
                method.set_state(memories[method.name])
            yield
        except Exception:
            for method, memory in zip(self.methods, before, strict=True):
                method.set_state(memory)
            raise

    @functools.cached_property
    def _plain_methods(self) -> Any:
        """Names and settings as they are in states; methods do not change them."""
        return to_plain([plain_method(method) for method in self.methods])


@dataclass
class EpisodeRewards:
    """Reward state of one episode of K turns; its fields are what a state holds.

    Attributes:
        observations: (K + 1) what was shown, from the reset on.
        infos: (K + 1) the environment's infos that came with them.
        rewards: the components in the info that is given out now.
        metrics: the metrics in it.
        signals: for each method by name, the signal (K,) of each turn.
        credits: for each method by name, its credits; empty until it has assigned them.
        paid: for each method by name, what it paid (K,) at each turn.
        actions: (K) the replies.
        end: how the episode ended; empty while it runs.
        error: why it could not begin, be played or be scored; empty otherwise.
        outcomes: (K) the outcome component of each turn, as the environment paid it.
        env_rewards: (K) the environment's own rewards, less the outcome where a method replaces it.
        turn_rewards: (K) what each turn was worth, as far as it is known.
        number: of the episode in its environment, which finds its group.
        settled: whether its group is complete.
    """

    observations: list[Any]
    infos: list[dict[str, Any]]
    rewards: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    signals: dict[str, list[float]] = field(default_factory=dict)
    credits: dict[str, list[Credit]] = field(default_factory=dict)
    paid: dict[str, list[float]] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    end: End = ""
    error: str = ""
    outcomes: list[float] = field(default_factory=list)
    env_rewards: list[float] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    number: int = 0
    settled: bool = False

    @classmethod
    def begin(cls, stack: MethodStack, observation: Any, info: Info, error: str = "") -> EpisodeRewards:
        """An episode without turns.

        Args:
            stack: pays for it.
            observation: the first.
            info: that came with it.
            error: why the episode could not begin.

        Raises:
            ValueError: this environment does not fit the methods.
        """
        if not error:
            stack.check(info)
        episode = cls([observation], [info], error=error)
        for name in stack.names:
            episode.signals[name], episode.credits[name], episode.paid[name] = [], [], []
        episode._show(stack, dict.fromkeys(stack.names, 0.0))
        return episode

    @property
    def over(self) -> bool:
        """Whether the episode has ended, or never began."""
        return bool(self.end or self.error)

    @property
    def unpaid(self) -> bool:
        """Whether its last turn has no rewards, because its step was interrupted."""
        return len(self.turn_rewards) < len(self.actions)

    @property
    def turns(self) -> list[Turn]:
        """Its K turns."""
        last = len(self.actions) - 1
        return [self._turn(k, self.end if k == last else "") for k in range(last + 1)]

    @property
    def last_turn(self) -> Turn:
        """The last of its turns."""
        return self._turn(len(self.actions) - 1, self.end)

    @property
    def info(self) -> Info:
        """The environment's last info with the methods' parts; always the same keys."""
        info = self.infos[-1]
        signals = {name: (own or [0.0])[-1] for name, own in self.signals.items()}
        credits = {name: list(own) for name, own in self.credits.items()}
        return {
            **info,
            **({"error": self.error} if self.error else {}),
            "rewards": dict(self.rewards),
            "turn_rewards": list(self.turn_rewards),
            "metrics": dict(self.metrics),
            "signals": {**info.get("signals", {}), **signals},
            "credits": {**info.get("credits", {}), **credits},
        }

    def check_paid(self, name: str = "this episode") -> None:
        """Refuse another turn where the step before was interrupted, such as by an error of the scorer.

        Raises:
            ResetNeeded: the rewards of the last turn were not computed; `name` is what the error calls it.
        """
        if self.unpaid:
            raise gym.error.ResetNeeded(
                f"{name} has no rewards for turn {len(self.actions)}, whose step was interrupted; "
                "reset it by the wrapper"
            )

    def add_turn(self, action: str, observation: Any, info: Info, end: End) -> None:
        """Take a reply and what the environment returned."""
        self.actions.append(action)
        self.observations.append(observation)
        self.infos.append(info)
        self.end = end

    def fail(self, error: str) -> None:
        """End the episode at its last turn, which could not be played or not be scored."""
        self.end, self.error = self.end or "truncated", error

    def pay(self, stack: MethodStack, reward: float, scores: Scores) -> float:
        """The reward of the last turn, as far as it is known at that turn.

        Args:
            stack: pays.
            reward: the environment's.
            scores: answer the requests of the turn; not read after an error.
        """
        turn = self.last_turn
        outcome = float(turn.info["rewards"].get(OUTCOME, 0.0))
        self.outcomes.append(outcome)
        own = reward - outcome if stack.replaces_outcome else reward
        self.env_rewards.append(own)
        components: dict[str, float] = {}
        for method in stack.methods:
            signal = math.nan if self.error else float(method.signal(turn, scores.get(method.name, [])))
            signals = self.signals[method.name]
            signals.append(signal if math.isfinite(signal) else math.nan)
            if self.error and not method.immediate:
                signals[:] = [math.nan] * len(signals)
            components[method.name] = signals[-1] if method.immediate else 0.0
            self.paid[method.name].append(_nan_to_zero(components[method.name]))
        env_rewards = turn.info["turn_rewards"]
        if len(env_rewards) == len(self.env_rewards):
            # Those of a wrapper below, which may know only at the end what an earlier turn was worth.
            replaced = self.outcomes if stack.replaces_outcome else [0.0] * len(env_rewards)
            self.env_rewards = [
                reward - outcome for reward, outcome in zip(env_rewards, replaced, strict=True)
            ]
        paid = zip(self.env_rewards, *(self.paid[name] for name in stack.names), strict=True)
        self.turn_rewards = [sum(by_method, own) for own, *by_method in paid]
        self._show(stack, components)
        return sum(map(_nan_to_zero, components.values()), own)

    def settle(self, name: str, credits: list[Credit]) -> float:
        """Take a method's credits, once; what they bring beyond what it paid at the turns, to be paid now."""
        earned = [0.0] * len(self.actions)
        for credit in credits:
            earned[credit.turn] += _nan_to_zero(credit.value)
        due = [value - paid for value, paid in zip(earned, self.paid[name], strict=True)]
        self.paid[name], self.credits[name] = earned, list(credits)
        self.turn_rewards = [reward + more for reward, more in zip(self.turn_rewards, due, strict=True)]
        unscored, total = sum(math.isnan(credit.value) for credit in credits), math.fsum(due)
        nothing = unscored == len(credits) and (bool(credits) or bool(self.error))
        self.rewards[name] = math.nan if nothing else _nan_to_zero(self.rewards[name]) + total
        self.metrics[f"{name}_unscored"] = float(unscored)
        return total

    def check(self, stack: MethodStack, env_state: Any) -> None:
        """Raise a one-line `ValueError` for what no episode under these methods can be.

        Args:
            stack: pays for it.
            env_state: of the environment; None where it plays another episode, or its last reset failed.
        """
        turns, played, names = len(self.actions), _turns_played(env_state), set(stack.names)
        if len(self.observations) != turns + 1 or len(self.infos) != turns + 1:
            shown = f"{len(self.observations)} observations and {len(self.infos)} infos"
            raise ValueError(f"the state's record cannot be: it has {turns} replies to {shown}")
        for info in self.infos:
            if not all(isinstance(info.get(name), kind) for name, kind in INFO_FIELDS.items()):
                raise ValueError(f"the state's record cannot be: an info lacks its {', '.join(INFO_FIELDS)}")
            if not self.error:
                stack.check(info)
        lists = [*self.signals.values(), *self.paid.values()]
        lists += [self.outcomes, self.turn_rewards, self.env_rewards]
        credits = [credit for some in self.credits.values() for credit in some]
        metrics = {*self.infos[-1]["metrics"], OUTCOME, *(f"{name}_unscored" for name in names)}
        wrong = {
            f"{turns} turns, and lists of another length": any(len(some) != turns for some in lists),
            "other methods": any(set(of) != names for of in (self.signals, self.credits, self.paid)),
            "other rewards": set(self.rewards) != {*self.infos[-1]["rewards"], *names},
            "other metrics": set(self.metrics) != metrics,
            f"a credit of none of its {turns} turns": not all(0 <= c.turn < turns for c in credits),
            "an end before the first turn": bool(self.end) and not turns,
            f"another turn than its environment's {played}": not self.error
            and played not in (None, self.infos[-1]["turn"]),
        }
        for what, cannot_be in wrong.items():
            if cannot_be:
                raise ValueError(f"the state's record cannot be: it has {what}")

    def _turn(self, k: int, end: End) -> Turn:
        (before, after), (info_before, info) = self.observations[k : k + 2], self.infos[k : k + 2]
        return Turn(before, self.actions[k], info_before, after, info, end)

    def _show(self, stack: MethodStack, components: dict[str, float]) -> None:
        """Set the rewards and metrics to give out."""
        info = self.infos[-1]
        self.rewards = {**info["rewards"], **components}
        if stack.replaces_outcome and OUTCOME in info["rewards"]:
            self.rewards[OUTCOME] = 0.0
        # A wrapper below that has replaced the outcome keeps it in its metrics, and 0 in its component.
        outcome = math.fsum(self.outcomes) if self.over else 0.0
        unscored = {f"{name}_unscored": 0.0 for name in stack.names}
        self.metrics = {OUTCOME: outcome, **info["metrics"], **unscored}


@dataclass
class Slot:
    """The episodes of one environment of a group; its fields are what a state holds.

    Attributes:
        number: of the current episode, counted in step with the other environments of the group.
        episodes: those that ended and wait for their group, then the current one, which may have ended too.
    """

    number: int = -1
    episodes: list[EpisodeRewards] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        """The number of the episode that would begin now."""
        return self.number + (not self.episodes or (self.episodes[-1].over and not self.episodes[-1].unpaid))

    def find(self, number: int) -> EpisodeRewards | None:
        """Its episode of that number."""
        return next((episode for episode in self.episodes if episode.number == number), None)

    def begin(self, episode: EpisodeRewards) -> None:
        """Begin an episode; one before that has not ended, or is unpaid, leaves its number to it."""
        self.number = episode.number = self.next_number
        self.episodes = [
            other for other in self.episodes if other.over and not other.settled and not other.unpaid
        ]
        self.episodes.append(episode)

    def check(self, stack: MethodStack, env_state: Any) -> None:
        """Raise a one-line `ValueError` for what no environment of a group can have; see `EpisodeRewards`."""
        for place, episode in enumerate(reversed(self.episodes)):
            episode.check(stack, None if place else env_state)
            if place and (episode.settled or not episode.over):
                raise ValueError(
                    f"the state's slot cannot be: episode {episode.number} waits and has not ended"
                )


class Groups:
    """Groups of G neighbouring environments: the n-th episodes of a group's environments belong together.

    Args:
        count: N environments.
        size: G, a divisor of N.

    Raises:
        ValueError: `size` does not divide `count`.
    """

    def __init__(self, count: int, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1 or count % size:
            raise ValueError(f"group_size must divide the {count} environments, got {size!r}")
        self.size = size
        self.slots = [Slot() for _ in range(count)]

    def neighbours(self, i: int) -> range:
        """The environments of environment i's group, itself included."""
        return range(i - i % self.size, i - i % self.size + self.size)

    def forget(self, i: int, *, restart: bool) -> None:
        """Begin afresh with the group of environment i: what waited is dropped.

        Args:
            i: the environment.
            restart: count its episodes from 0 again.
        """
        number = -1 if restart else max(self.slots[j].number for j in self.neighbours(i))
        for j in self.neighbours(i):
            self.slots[j] = Slot(number)

    def current(self, i: int) -> EpisodeRewards:
        """The episode that environment i is playing or has just ended.

        Raises:
            ValueError: it has none.
        """
        if not self.slots[i].episodes:
            raise ValueError(f"environment {i} was reset before it was wrapped; call reset() on the wrapper")
        return self.slots[i].episodes[-1]

    def check_task(self, i: int) -> None:
        """Refuse environment i's first turn if its neighbours play, or have played, another task.

        Raises:
            ValueError: with the two tasks.
        """
        task = self.current(i).infos[-1]["task"]
        for j in self.neighbours(i):
            other = self.slots[j].find(self.slots[i].number)
            if other is not None and other.actions and (theirs := other.infos[-1]["task"]) != task:
                raise ValueError(
                    f"environments {i} and {j} are of one group but play tasks {task!r} and {theirs!r}; "
                    f"reset the {self.size} environments together, with one seed"
                )

    def complete(self, i: int) -> dict[int, EpisodeRewards]:
        """The group of environment i's episode by environment, once: when all its episodes have ended."""
        group = {j: self.slots[j].find(self.slots[i].number) for j in self.neighbours(i)}
        ended = {j: episode for j, episode in group.items() if episode and episode.over}
        if len(ended) < len(group) or self.current(i).settled:
            return {}
        for j, episode in ended.items():
            episode.settled = True
            *waiting, current = self.slots[j].episodes
            self.slots[j].episodes = [*(other for other in waiting if not other.settled), current]
        return ended


@dataclass
class _StackState:
    """What a state holds of a list of methods: names with settings, and what they remember."""

    methods: list[tuple[str, dict[str, Any]]]
    memories: dict[str, dict[str, Any]]


def _has(info: Info, path: str) -> bool:
    """Whether an info has an entry, as `"privileged/target"`."""
    entry: Any = info
    for key in path.split("/"):
        if not isinstance(entry, Mapping) or key not in entry:
            return False
        entry = entry[key]
    return True


def _turns_played(state: Any) -> Any:
    """Turns of the text environment that a state is of, inside any wrappers; None where it does not say."""
    while isinstance(state, dict) and "inner" in state:
        state = state["inner"]
    episode = state.get("episode") if isinstance(state, dict) else None
    return episode.get("turn") if isinstance(episode, dict) else None


def _failed_credits(episode: EpisodeRewards, name: str) -> list[Credit]:
    """Credits of an episode that an error ended; what was paid at its turn stays paid."""
    signals = enumerate(episode.signals[name])
    return [Credit(k, signal, reason=episode.error * math.isnan(signal)) for k, signal in signals]


def _check_credits(name: str, made: Sequence[Sequence[Credit]], episodes: Sequence[EpisodeRewards]) -> None:
    if len(made) != len(episodes):
        raise ValueError(
            f"{name}.assign_credit gave {len(made)} lists of credits for {len(episodes)} episodes"
        )
    for credits, episode in zip(made, episodes, strict=True):
        for credit in credits:
            if not episode.error and not 0 <= credit.turn < len(episode.actions):
                raise ValueError(
                    f"{name}.assign_credit gave a credit of turn {credit.turn}; the episode's turns are 0 to "
                    f"{len(episode.actions) - 1}"
                )


def _measured(credits: list[Credit], signals: list[float]) -> list[Credit]:
    """The credits; NaN where one rests on a signal that is none, whatever a formula makes of it."""
    return [
        credit._replace(value=math.nan, reason=credit.reason or NO_NUMBER)
        if credit.of_signal and math.isnan(signals[credit.turn])
        else credit
        for credit in credits
    ]


def _first_difference(theirs: Sequence[Any], own: Sequence[Any]) -> str:
    """In which methods, or in which setting of one, two lists of methods differ."""
    names = [[name for name, _ in methods] for methods in (theirs, own)]
    if names[0] != names[1]:
        return f"the reward methods {names[0]!s:.200}, not of {names[1]!s:.200}"
    for (name, settings), (_, here) in zip(theirs, own, strict=True):
        for setting in {**here, **settings}:
            values = [some.get(setting, "no such setting") for some in (settings, here)]
            if values[0] != values[1]:
                return f"{name} with {setting!r:.60} {values[0]!r:.60}, not {values[1]!r:.60}"
    return "methods written otherwise"


def _nan_to_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
