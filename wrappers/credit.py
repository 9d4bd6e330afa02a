"""Credit: what reward methods measure of the turns of episodes, and what they give to each turn.

`assign_credit(episodes, make_methods(["TAMTRL"]), make_scorer("lexical"))`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec.structs import replace

from memenvs.core.env import Info
from memenvs.core.episode import OUTCOME, Credit, Episode
from memenvs.core.errors import error_line
from memenvs.credit.groups import members
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores

Methods = Sequence[RewardMethod]
ScoreCache = dict[ScoreRequest, TokenScores]
Errors = Literal["fail", "raise"]
"""What an error does: `"fail"` fails the episode in which it was raised, `"raise"` raises it."""

ROUNDING = 1e-3  # by which a model's log-probability may be above 0
UNMEASURED = "the signal or the credit of this turn is not a finite number"


def assign_credit(
    episodes: Sequence[Episode],
    methods: Methods,
    scorer: Scorer | None = None,
    errors: Errors = "fail",
    cache: ScoreCache | None = None,
) -> None:
    """Measure the turns of ended episodes, and give each turn its credits by every method.

    All requests of all methods are one call of the scorer. An episode that failed is compared with none, and
    its credits are NaN with the error as their reason.

    Args:
        episodes: episodes of any number of groups, each group complete.
        methods: reward methods with different names.
        scorer: gives log-probabilities to the methods that ask for them.
        errors: what an error of the scorer does.
        cache: scores that need not be asked for, as for `measure`.
    """
    measure(episodes, methods, scorer, errors, cache)
    groups = [[episodes[i] for i in rows] for rows in members([episode.group for episode in episodes])]
    for method in methods:
        for compared in groups if method.group else [list(episodes)]:
            _credit(method, compared)
    for episode in episodes:
        episode.replaces_outcome = any(method.replaces_outcome for method in methods)
        unscored = {
            f"{name}_unscored": float(sum(not credit.known for credit in credits))
            for name, credits in episode.credits.items()
        }
        episode.metrics = {OUTCOME: math.fsum(episode.outcomes), **episode.metrics, **unscored}
        if not episode.error and (missing := _missing_outcome(episode, methods)):
            episode.fail(missing)


def credit_so_far(
    episodes: Sequence[Episode],
    methods: Methods,
    scorer: Scorer | None,
    errors: Errors = "fail",
    cache: ScoreCache | None = None,
) -> None:
    """Give turns the credit that is known while episodes are played: the signals of immediate methods.

    The arguments are those of `assign_credit`.
    """
    measure(episodes, [method for method in methods if method.immediate], scorer, errors, cache)
    for episode in episodes:
        for number, turn in enumerate(episode.turns):
            for method in methods:
                signal = turn.signals.get(method.name)
                credits = [] if signal is None else [Credit(number, signal)]
                turn.credits.setdefault(method.name, credits)


def measure(
    episodes: Sequence[Episode],
    methods: Methods,
    scorer: Scorer | None,
    errors: Errors = "fail",
    cache: ScoreCache | None = None,
) -> None:
    """Give turns the signals that they lack, by one call of the scorer; equal requests are scored once.

    If that call fails, the episodes are scored one by one, and those whose own call fails have failed. The
    arguments are those of `assign_credit`; the episodes need not have ended. `cache` then holds the scores of
    this call instead: a prompt after a turn is the prompt before the next, so a caller that measures turn by
    turn keeps it.
    """
    played = [episode for episode in episodes if not episode.error]
    unmeasured = [
        (episode, number, turn, method, method.requests(turn))
        for episode in played
        for method in methods
        for number, turn in enumerate(episode.turns)
        if method.name not in turn.signals
    ]
    wanted = dict.fromkeys(request for *_, requests in unmeasured for request in requests)
    unique = [request for request in wanted if request not in (cache or {})]
    try:
        nats = _log_probabilities(scorer, unique) if scorer and unique else []
    except Exception as error:
        if errors == "raise":
            raise
        if len(played) == 1:
            played[0].fail(error_line(error))
        else:
            for episode in played:
                measure([episode], methods, scorer)
        return
    scores = {**(cache or {}), **dict(zip(unique, nats, strict=True))}
    if cache is not None:
        cache.clear()
        cache.update({request: scores[request] for request in wanted})
    for episode, number, turn, method, requests in unmeasured:
        signal = float(method.signal(turn, [scores[request] for request in requests]))
        turn.signals[method.name] = signal if math.isfinite(signal) else math.nan
        if math.isfinite(signal) and method.has_signal and (requests or not method.asks):
            episode.measured.setdefault(method.name, []).append(number)


def _log_probabilities(scorer: Scorer, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
    """What a scorer gives, at most 0.

    Raises:
        ValueError: it gives another number of arrays, or numbers that are no log-probabilities.
    """
    nats = [np.asarray(scores, dtype=np.float64) for scores in scorer.logprobs(requests)]
    if len(nats) != len(requests):
        raise ValueError(f"the scorer gave {len(nats)} arrays for {len(requests)} requests")
    for scores in nats:
        if scores.ndim != 1:
            raise ValueError(f"the scorer gave {scores.ndim} dimensions for a continuation; give (T,) nats")
        if (scores > ROUNDING).any():
            raise ValueError(
                f"the scorer gave a log-probability of {scores.max():.4g}, above 0; give log p, not -log p"
            )
    return [np.minimum(scores, 0) for scores in nats]


def check_methods(methods: Methods, scorer: Scorer | None, info: Info, *, plays_on: bool = False) -> None:
    """Refuse methods that do not fit each other, or an environment, by the info of its reset.

    `plays_on` says whether the caller plays the continuations that a method asks for.

    Raises:
        ValueError: two components have one name, or a method needs what the info or the caller does not give.
    """
    names = [*info["rewards"], *(method.name for method in methods)]
    for method in methods:
        name = method.name
        if names.count(name) > 1:
            raise ValueError(
                f"a component {name!r} is paid already; leave the method out, or make a subclass with "
                "another `name`"
            )
        if method.asks and scorer is None:
            raise ValueError(f"{name} asks for log-probabilities; give a scorer, such as scorer='lexical'")
        if method.continuations and not plays_on:
            raise ValueError(
                f"{name} needs a policy that plays on from each state; use memenvs.collect, "
                "memenvs.evaluate or a learner, not a RewardWrapper or a tree"
            )
        for need in method.needs:
            if not has_entry(info, need):
                raise ValueError(
                    f"{name} needs info[{need.replace('/', '][')}], which this environment does not give "
                    f"(task {info.get('task')!r}); see its docstring for what its infos hold"
                )


def _credit(method: RewardMethod, episodes: Sequence[Episode]) -> None:
    """Keep what a method gives to episodes that it compares."""
    for turn in (turn for episode in episodes for turn in episode.turns):
        turn.signals.setdefault(method.name, math.nan)
        turn.credits[method.name] = []
    scored = [episode for episode in episodes if not episode.error]
    # A group stays whole, or its last episode without an error would look like one without a group.
    compared = episodes if method.group and scored else scored
    for episode, credits in zip(compared, method.assign_credit(compared) if compared else [], strict=True):
        for credit in () if episode.error else credits:
            turn = episode.turns[credit.turn]
            lacks_signal = credit.from_signal and math.isnan(turn.signals[method.name])
            if lacks_signal or math.isinf(credit.value):
                credit = replace(credit, value=math.nan, reason=credit.reason or UNMEASURED)
            turn.credits[method.name].append(credit)
    for episode in episodes:
        for number, turn in enumerate(episode.turns if episode.error else ()):
            turn.credits[method.name] = [Credit(number, math.nan, reason=episode.error)]


def _missing_outcome(episode: Episode, methods: Methods) -> str:
    """Why the method that replaces the outcome of an ended episode gave none; empty where it gave one."""
    for method in methods:
        if method.replaces_outcome and episode.turns:
            for credit in episode.turns[-1].credits.get(method.name, ()):
                if not credit.from_signal and not credit.known:
                    return f"no outcome: {method.name}: {credit.reason}"
    return ""


def has_entry(info: Info, path: str) -> bool:
    """Whether an info has an entry, such as `"privileged/target"`."""
    first, _, rest = path.partition("/")
    return first in info and (not rest or (isinstance(info[first], Mapping) and rest in info[first]))
