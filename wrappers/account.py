"""The book of one environment: its steps and signals come in; rewards and infos with the methods' go out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memenvs.text_env import End, Info
from memenvs.wrappers.method import Credit, Episode, RewardMethod, Turn
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores

OUTCOME = "outcome"


@dataclass
class Account:
    """An episode that is being played, and what has been paid for it.

    Attributes:
        observation: what the next reply answers.
        info: the environment's info that came with it.
        episode: the record so far.
        base: the environment's own reward of each turn, less the outcome where a method spends it.
        paid: for each method by name, what it paid at each turn.
        given: the info given out last.
    """

    observation: Any
    info: Info
    episode: Episode = field(default_factory=Episode)
    base: list[float] = field(default_factory=list)
    paid: dict[str, list[float]] = field(default_factory=dict)
    given: Info = field(default_factory=dict)

    def copy(self) -> Account:
        """A copy that can be played on; what is never changed (turns, infos) is shared."""
        episode = Episode(
            list(self.episode.turns),
            list(self.episode.outcomes),
            copy.deepcopy(self.episode.signals),
            copy.deepcopy(self.episode.credits),
            list(self.episode.turn_rewards),
        )
        return Account(
            self.observation, self.info, episode, list(self.base), copy.deepcopy(self.paid), self.given
        )


class Bookkeeper:
    """Keeps accounts for a list of methods; the part that both hosts share.

    Args:
        methods: their names differ.

    Raises:
        ValueError: two methods have one name.
    """

    def __init__(self, methods: Sequence[RewardMethod]) -> None:
        self.methods = list(methods)
        self.names = [method.name for method in self.methods]
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(f"two methods are called {twice[0]!r}; wrap twice, or give one another name")
        self.spends = any(method.spends_outcome for method in self.methods)

    def open(self, observation: Any, info: Info) -> Account:
        """Begin an episode; `given` is the info to give out.

        Raises:
            ValueError: a method needs what this environment does not tell.
        """
        for method in self.methods:
            for path in method.needs:
                _check_told(method, path, info)
        empty: dict[str, list[Any]] = {name: [] for name in self.names}
        account = Account(observation, info, Episode(signals=empty, credits=copy.deepcopy(empty)))
        account.paid = copy.deepcopy(empty)
        account.given = self._info(account, info, dict.fromkeys(self.names, 0.0))
        return account

    def play(self, account: Account, action: str, observation: Any, info: Info, end: End) -> Turn:
        """Write a step down."""
        turn = Turn(account.observation, action, account.info, observation, info, end)
        account.observation, account.info = observation, info
        account.episode.turns.append(turn)
        return turn

    def pay(self, account: Account, reward: float, scores: dict[str, list[TokenScores]]) -> float:
        """The reward of the step that was written down, as far as it is known; `given` is its info.

        Args:
            account: of the step.
            reward: the environment's.
            scores: for each method by name, the answers to its requests.
        """
        episode, turn = account.episode, account.episode.turns[-1]
        outcome = float(turn.info["rewards"].get(OUTCOME, 0.0))
        episode.outcomes.append(outcome)
        own = reward - outcome if self.spends else reward
        account.base.append(own)
        for method in self.methods:
            signal = float(method.signal(turn, scores.get(method.name, [])))
            episode.signals[method.name].append(signal)
            known = signal if method.immediate and not math.isnan(signal) else 0.0
            account.paid[method.name].append(known)
        self._reckon(account)
        components = {name: account.paid[name][-1] for name in self.names}
        account.given = self._info(account, turn.info, components)
        return sum(components.values(), own)

    def settle(self, account: Account, name: str, credits: list[Credit]) -> float:
        """Write a method's credits down, once; what they bring beyond what was paid, now to be paid too."""
        episode = account.episode
        earned = [0.0] * len(episode.turns)
        for credit in credits:
            if not math.isnan(credit.value):
                earned[credit.turn] += credit.value
        lacking = [value - paid for value, paid in zip(earned, account.paid[name], strict=True)]
        account.paid[name] = earned
        episode.credits[name] = list(credits)
        episode.turn_rewards = [had + more for had, more in zip(episode.turn_rewards, lacking, strict=True)]
        unscored = sum(math.isnan(credit.value) for credit in credits)
        given, total = account.given, math.fsum(lacking)
        nothing = bool(credits) and unscored == len(credits)
        value = math.nan if nothing else given["rewards"][name] + total
        account.given = {
            **given,
            "rewards": {**given["rewards"], name: value},
            "metrics": {**given["metrics"], f"{name}_unscored": float(unscored)},
            "credits": {**given["credits"], name: list(credits)},
            "turn_rewards": list(episode.turn_rewards),
        }
        return total

    def get_state(self) -> dict[str, Any]:
        """What the methods remember of earlier episodes."""
        return {method.name: copy.deepcopy(method.get_state()) for method in self.methods}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of `get_state`."""
        for method in self.methods:
            method.set_state(copy.deepcopy(state[method.name]))

    def _reckon(self, account: Account) -> None:
        """The turn rewards as far as they are known.

        The environment's own list counts, where it keeps one: a wrapper below may have known only at the end
        what an earlier turn was worth.
        """
        episode, told = account.episode, account.episode.turns[-1].info["turn_rewards"]
        if len(told) == len(account.base):
            spent = episode.outcomes if self.spends else [0.0] * len(told)
            account.base = [reward - outcome for reward, outcome in zip(told, spent, strict=True)]
        paid = [account.paid[name] for name in self.names]
        episode.turn_rewards = [sum(now, own) for own, *now in zip(account.base, *paid, strict=True)]

    def _info(self, account: Account, info: Info, components: dict[str, float]) -> Info:
        """The environment's info with the methods' parts; always the same keys."""
        episode = account.episode
        rewards = dict(info["rewards"])
        if self.spends and OUTCOME in rewards:
            rewards[OUTCOME] = 0.0
        # What a wrapper below has written down stands: its outcome is 0 here if it has spent it.
        metrics = {OUTCOME: episode.outcome if episode.over else 0.0, **info["metrics"]}
        signals = {name: (episode.signals[name] or [0.0])[-1] for name in self.names}
        return {
            **info,
            "rewards": {**rewards, **components},
            "turn_rewards": list(episode.turn_rewards),
            "metrics": {**metrics, **{f"{name}_unscored": 0.0 for name in self.names}},
            "signals": {**info.get("signals", {}), **signals},
            "credits": {
                **info.get("credits", {}),
                **{name: list(episode.credits[name]) for name in self.names},
            },
        }


def score_all(
    scorer: Scorer | None,
    asked: Sequence[tuple[Sequence[RewardMethod], Turn]],
    render: Callable[[str], str],
) -> list[dict[str, list[TokenScores]]]:
    """Score every request of several turns by one call of the scorer, equal requests once.

    Args:
        scorer: may be None where nothing is asked.
        asked: methods and the turn they look at.
        render: makes the model's prompt of a text prompt.

    Returns:
        For each turn the answers by method.
    """
    wanted = [{method.name: method.requests(turn) for method in methods} for methods, turn in asked]
    places: dict[ScoreRequest, int] = {}
    for requests in wanted:
        for some in requests.values():
            for request in some:
                places.setdefault(request, len(places))
    if not places:
        return [{} for _ in wanted]
    if scorer is None:
        raise ValueError("a method asks for log-probabilities; give a scorer, e.g. scorer='lexical'")
    rendered = [ScoreRequest(render(prompt), continuation) for prompt, continuation in places]
    answers = scorer.logprobs(rendered)
    return [
        {name: [answers[places[request]] for request in some] for name, some in requests.items()}
        for requests in wanted
    ]


def _check_told(method: RewardMethod, path: str, info: Info) -> None:
    place: Any = info
    for key in path.split("/"):
        if not isinstance(place, dict) or key not in place:
            raise ValueError(
                f"{method.name} needs info[{path.replace('/', '][')}], which this environment does not give "
                f"(task {info.get('task')!r}); see the environment's docstring for what it tells of its turns"
            )
        place = place[key]
