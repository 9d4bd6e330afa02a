"""From a fact table to questions that hold two documents against each other."""

from __future__ import annotations

from collections.abc import Iterable

from memenvs.build.worldgen.answers import Question, Register, accepted, names_of
from memenvs.build.worldgen.draws import Dice
from memenvs.build.worldgen.forms import Comparison
from memenvs.build.worldgen.lexicon import COMPARE, SAME
from memenvs.build.worldgen.phrasing import ask_comparison
from memenvs.build.worldgen.schema import KINDS, RELATIONS

YES_NO = 0.3  # of the comparisons
ASK_ON = 0.5  # of the others ask for a fact of the one picked, so that the question does not name the answer


class Comparisons:
    """Pairs of one kind, drawn at random; half of the yes-or-no questions are true."""

    def __init__(self, register: Register):
        self._register, self._facts = register, register.facts
        self._of = {kind: self._facts.of_kind(kind) for kind in KINDS}

    def draw(self, rolls: Dice) -> tuple[Comparison, Question] | None:
        """One try at a comparison; None where a value is missing, or equal where one must be larger."""
        return self._same(rolls) if rolls.chance(YES_NO) else self._which(rolls)

    def _pair(self, relations: Iterable[str], rolls: Dice) -> tuple[int, int, str]:
        """Any entity, another of its kind, and a relation to compare them in ("" where the kind has none)."""
        left = rolls.below(len(self._facts.entities))
        kind = self._facts.entities[left].kind
        options = [name for name in relations if RELATIONS[name].domain == kind]
        return left, rolls.pick(self._of[kind]), rolls.pick(options or [""])

    def _same(self, rolls: Dice) -> tuple[Comparison, Question] | None:
        left, right, relation = self._pair(SAME, rolls)
        if not relation:
            return None
        value = self._facts.value(left, relation)
        if rolls.chance(0.5) and value is not None:
            right = rolls.pick(self._facts.holders(relation, value))
        other = self._facts.value(right, relation)
        if left == right or value is None or other is None:
            return None
        form = Comparison(relation, left, right, "same")
        return self._enter(form, None, ("yes" if value == other else "no",), rolls)

    def _which(self, rolls: Dice) -> tuple[Comparison, Question] | None:
        facts = self._facts
        left, right, relation = self._pair(COMPARE, rolls)
        order, ask = rolls.pick(("least", "most")), ""
        winner = Comparison(relation, left, right, order).winner(facts)
        if winner is None:
            return None
        answers = names_of(facts, winner)
        others = [name for name in facts.entities[winner].values if name != relation]
        if rolls.chance(ASK_ON) and others:
            ask = rolls.pick(others)
            if facts.value(left, ask) == facts.value(right, ask):
                return None  # no need to compare
            answers = accepted(facts, ask, facts.entities[winner].values[ask])
        return self._enter(Comparison(relation, left, right, order, ask), winner, answers, rolls)

    def _enter(
        self, form: Comparison, winner: int | None, answers: tuple[str, ...], rolls: Dice
    ) -> tuple[Comparison, Question] | None:
        stated = [(form.left, form.relation), (form.right, form.relation)]
        if winner is not None and form.ask:
            stated.append((winner, form.ask))
        asked = self._register.enter(
            (frozenset((form.left, form.right)), form.relation, form.order, form.ask),
            ask_comparison(form, winner, self._facts, rolls),
            answers,
            stated=stated,
            names=(form.left, form.right),
            kind="comparison",
            choice=winner is not None and not form.ask,
        )
        return (form, asked) if asked else None
