"""What can be known: kinds of entity, and relations, each with one value for an entity that has it."""

from __future__ import annotations

from dataclasses import dataclass

# Shares of a world; persons take what rounding leaves.
SHARES = {
    "region": 0.025,
    "river": 0.03,
    "town": 0.15,
    "person": 0.36,
    "company": 0.12,
    "school": 0.065,
    "work": 0.18,
    "landmark": 0.07,
}
KINDS = tuple(SHARES)


@dataclass(frozen=True)
class Relation:
    """A functional relation: `domain` is the kind it is stated of, `range` a kind or year, number, word.

    `unit` follows a number in prose and in answers ("kilometres"); empty for counts of people.
    """

    name: str
    domain: str
    range: str
    unit: str = ""

    @property
    def links(self) -> bool:
        """True where the value is another entity."""
        return self.range in SHARES


_ROWS = """
region   capital town      | region   produce word      | region   area number square kilometres
region   emblem word       | river    source region     | river    mouth town
river    length number kilometres | river surveyor person | town    region region
town     river river       | town     population number | town     charter year
town     mayor person      | town     craft word        | person   birthplace town
person   born year         | person   profession word   | person   school school
person   employer company  | person   mentor person     | person   company company
person   masterpiece work  | person   design landmark   | person   instrument word
company  founder person    | company  founded year      | company  headquarters town
company  product word      | company  parent company    | school   campus town
school   opened year       | school   head person       | school   badge word
work     creator person    | work     year year         | work     form word
work     publisher company | work     setting town      | work     dedicatee person
landmark site town         | landmark architect person  | landmark completed year
landmark material word     | landmark patron company
"""


def _read(rows: str) -> dict[str, Relation]:
    relations = {}
    for row in rows.replace("\n", "|").split("|"):
        if row.strip():
            domain, name, range_, *unit = row.split()
            relations[name] = Relation(name, domain, range_, " ".join(unit))
    return relations


RELATIONS = _read(_ROWS)
OF_KIND = {kind: tuple(r.name for r in RELATIONS.values() if r.domain == kind) for kind in KINDS}
