"""From (entities, split, seed) to a world's fact table: places first, then people, then what people made.

Time runs one way: a school is older than its pupils, a teacher than the pupil; makers are adults.
"""

from __future__ import annotations

from memenvs.build.worldgen.draft import Draft
from memenvs.build.worldgen.draws import LAYOUT, dice
from memenvs.build.worldgen.facts import Facts
from memenvs.build.worldgen.makings import companies, landmarks, works
from memenvs.build.worldgen.people import careers, offices, persons
from memenvs.build.worldgen.places import regions, rivers, schools, towns, waters
from memenvs.build.worldgen.schema import SHARES


def build(entities: int, split: str, seed: int) -> Facts:
    """The fact table; `entities` and `split` as `generate` checks them."""
    kinds = dice(seed, split, 0, LAYOUT).shuffled(_kinds(entities))
    draft = Draft(kinds, split, seed)
    for step in (
        regions,
        rivers,
        towns,
        waters,
        schools,
        persons,
        companies,
        careers,
        offices,
        works,
        landmarks,
    ):
        step(draft)
    return draft.facts


def _kinds(entities: int) -> list[str]:
    """The kind of every entity, unshuffled: at least one of each, persons taking what rounding leaves."""
    counts = {kind: max(1, int(share * entities)) for kind, share in SHARES.items()}
    counts["person"] += entities - sum(counts.values())
    return [kind for kind, count in counts.items() for _ in range(count)]
