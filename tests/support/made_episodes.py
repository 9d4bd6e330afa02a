"""Episodes made by hand, for what reads their records."""

import numpy as np

from memenvs.core.episode import Episode, Turn
from memenvs.models import Reply, ScriptedPolicy

POLICY = ScriptedPolicy(str)


def reply(text, read=2):
    ids = POLICY.encode(text)
    return Reply(text, ids, np.zeros(len(ids)), True, np.array([read]))


def episode(group, turn_rewards, outcomes, texts, values=None, context="append"):
    """An episode whose turns earn an outcome and something else; each text is a reply of one token a word."""
    turns = [
        Turn("", before(number, context), reply(text), after(earned - outcome, outcome))
        for number, (earned, outcome, text) in enumerate(zip(turn_rewards, outcomes, texts, strict=True))
    ]
    turns[-1].end = "terminated"
    made = Episode(group=group, task="t", turns=turns, end="terminated")
    if values is not None:
        for sample, part in zip(made.samples, made.split(np.array(values)), strict=True):
            sample.values = part
    return made


def before(number, context="append"):
    return {"turn": number, "context": context, "feedback": "", "rewards": {}}


def after(other, outcome):
    privileged = {"memory": "notes"}
    return {"rewards": {"outcome": outcome, "other": other}, "metrics": {}, "privileged": privileged}


def give(one, name, *credits):
    """Give an episode the credits of a method."""
    for number, turn in enumerate(one.turns):
        turn.credits[name] = [credit for credit in credits if credit.turn == number]


def measure(one, name, signals):
    """Give the turns of an episode what a method measured."""
    for turn, signal in zip(one.turns, signals, strict=True):
        turn.signals[name] = signal
