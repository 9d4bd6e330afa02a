"""From a fact table and its documents to questions, each checked over all facts and asked once.

Item i draws its hops, form and words from its own stream: the first n do not depend on how many follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memenvs.build.worldgen.answers import Question, Register
from memenvs.build.worldgen.chains import Chains
from memenvs.build.worldgen.comparisons import Comparisons
from memenvs.build.worldgen.draws import HOPS, QUESTION, REST, Dice, dice
from memenvs.build.worldgen.facts import Facts
from memenvs.build.worldgen.forms import Chain, Comparison
from memenvs.build.worldgen.prose import Document

COMPARISONS = 0.2  # of the 2-hop questions
TRIES = 80

Asked = tuple[Chain | Comparison, Question]


class Asker:
    """Asks the questions of one world: `ask(count)` gives (logical form, question) pairs.

    Args:
        facts: the world's facts.
        documents: what states them, in the same order.
        split: the split.
        seed: the seed.
        hops: different numbers from 1 to 4, asked in turn (each block of len(hops) shuffled).
    """

    def __init__(
        self, facts: Facts, documents: Sequence[Document], *, split: str, seed: int, hops: Sequence[int]
    ):
        self._split, self._seed, self._hops = split, seed, hops
        self._entities = len(facts.entities)
        register = Register(facts, documents)
        self._chains = {h: Chains(register, h) for h in hops}
        self._comparisons = Comparisons(register)
        self._rest: dict[int, Iterator[Asked]] = {}  # of the hops of which drawing finds no more

    def ask(self, count: int) -> list[Asked]:
        """The first `count` questions. A world short of one number of hops gives others in its place.

        Raises:
            ValueError: the world holds fewer; the line says how many.
        """
        out: list[Asked] = []
        for i in range(count):
            found = self._item(i)
            if found is None:
                raise ValueError(
                    f"questions={count} is more than this world of {self._entities} entities holds; "
                    f"ask for at most {i}, or for more entities"
                )
            out.append(found)
        return out

    def _item(self, i: int) -> Asked | None:
        block = dice(self._seed, self._split, i // len(self._hops), HOPS).shuffled(self._hops)
        wanted = block[i % len(block)]
        found = self._drawn(wanted, dice(self._seed, self._split, i, QUESTION))
        for hops in dict.fromkeys((wanted, *block)):
            found = found or self._left(hops)
        return found

    def _drawn(self, hops: int, rolls: Dice) -> Asked | None:
        comparing = hops == 2 and rolls.chance(COMPARISONS)
        source = self._comparisons if comparing else self._chains[hops]
        for _ in range(0 if hops in self._rest else TRIES):
            found = source.draw(rolls)
            if found:
                return found
        return None

    def _left(self, hops: int) -> Asked | None:
        """The next chain not asked yet, from a walk over all of them."""
        if hops not in self._rest:
            self._rest[hops] = self._chains[hops].rest(dice(self._seed, self._split, hops, REST))
        return next(self._rest[hops], None)
