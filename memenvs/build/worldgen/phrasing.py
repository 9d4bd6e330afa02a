"""From a logical form to an English question; texts/questions.txt holds the phrases."""

from __future__ import annotations

from dataclasses import dataclass

from memenvs.build.worldgen.draws import Dice
from memenvs.build.worldgen.facts import Facts
from memenvs.build.worldgen.forms import Chain, Comparison
from memenvs.build.worldgen.lexicon import ASK, COMPARE, DESCRIBE, PICK, SAME, SINGLE_OUT
from memenvs.build.worldgen.names import article
from memenvs.build.worldgen.prose import turns

SHORT = 45  # characters of an {x} that may stand in the middle of a phrase


@dataclass(frozen=True)
class _Phrase:
    """A noun phrase; `plain` where it holds no clause of its own and so may stand inside another's.

    `closed` where it ends in a noun: "the town where X stands" must not meet the verb of a sentence it opens.
    """

    words: str
    plain: bool = True
    closed: bool = True


def ask_chain(chain: Chain, trail: list[int], facts: Facts, rolls: Dice) -> str:
    """The question of a chain whose steps reach exactly the entities of `trail`, its start first."""
    phrase = _anchor(chain, trail[0], facts, rolls)
    for entity, relation in zip(trail, chain.path[:-1], strict=False):
        phrase = _extend(DESCRIBE, relation, phrase, entity, facts, rolls)
    last = trail[len(chain.path) - 1]
    return _sentence(_extend(ASK, chain.path[-1], phrase, last, facts, rolls).words)


def ask_comparison(form: Comparison, winner: int | None, facts: Facts, rolls: Dice) -> str:
    """The question of a comparison; `winner` is the entity picked, None for a question of sameness."""
    both = {"a": facts.entities[form.left].shown, "b": facts.entities[form.right].shown}
    if winner is None:
        return _sentence(rolls.pick(SAME[form.relation]).format(**both))
    side = 0 if form.order == "least" else 1
    if not form.ask:
        return _sentence(COMPARE[form.relation][side].format(**both))
    pattern = PICK[form.relation][side]
    picked = _Phrase(pattern.format(**both), plain=False, closed=pattern.endswith("{b}"))
    return _sentence(_extend(ASK, form.ask, picked, winner, facts, rolls).words)


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def _anchor(chain: Chain, start: int, facts: Facts, rolls: Dice) -> _Phrase:
    entity = facts.entities[start]
    if chain.where[0][0] != "name":
        values = {key: facts.shown(key, value) for key, value in chain.where}
        values |= {f"a_{key}": article(shown) for key, shown in values.items()}
        pattern = rolls.pick(SINGLE_OUT[chain.kind][tuple(key for key, _ in chain.where)])
        return _Phrase(pattern.format(**values, **turns(entity)))
    introduce = rolls.chance(0.3) or entity.name.startswith(
        "Where "
    )  # never "the town where Where the Owls …"
    if entity.kind in ("town", "region", "company", "work") and introduce and chain.path[0] != "form":
        of = "of " if entity.kind in ("town", "region") else ""
        return _Phrase(f"the {entity.noun} {of}{entity.name}")
    return _Phrase(entity.shown)


def _extend(
    table: dict[str, tuple[str, ...]], relation: str, x: _Phrase, entity: int, facts: Facts, rolls: Dice
) -> _Phrase:
    """The phrase of one more step, said of `entity`, whom `x` describes."""
    here = facts.entities[entity]
    options = table.get(f"{relation}:{here.noun}", table[relation])
    if len(x.words) > SHORT or not x.plain:
        options = tuple(o for o in options if o.startswith("{x}") or o.rstrip("?").endswith("{x}"))
    if not x.closed:
        options = tuple(o for o in options if not o.startswith("{x}"))
    pattern = rolls.pick(options)
    clause = any(f" {word} " in pattern for word in ("who", "that", "which", "where", "whom"))
    closed = pattern.endswith("{x}") and x.closed
    return _Phrase(pattern.format(x=x.words, **turns(here)), x.plain and not clause, closed)
