"""FactTable as sentences and documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.names import Chain, Dice, Entity, FactComparison, FactTable, article

SENTENCES = (4, 8)
WORDS = (60, 110)
_FORMS = {  # subject, possessive, object, reflexive
    "she": ("she", "her", "her", "herself"),
    "he": ("he", "his", "him", "himself"),
    "it": ("it", "its", "it", "itself"),
}


@dataclass(frozen=True)
class Page:
    """A title, its text, and for each relation the (start, end) of the one sentence that states it."""

    title: str
    text: str
    spans: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Pattern:
    """A sentence with fields: relations (`a_` before one asks for its article), fillers and the subject.

    N is the name; S, s, Ss, ss, o the subject as subject, possessive and object, capital where it opens the
    sentence; n the subject never as a pronoun; he, his, him, himself a pronoun bound inside the sentence.
    """

    text: str
    fields: tuple[str, ...]
    relations: frozenset[str]


def _patterns(lines: Sequence[str]) -> tuple[Pattern, ...]:
    out = []
    for line in lines:
        fields = tuple(dict.fromkeys(lex.FIELD.findall(line)))
        relations = lex.RELATIONS.keys() & {name.removeprefix("a_") for name in fields}
        out.append(Pattern(line, fields, frozenset(relations)))
    return tuple(out)


OPENERS = {kind: _patterns(lex.SENTENCES[f"{kind} openers"]) for kind in lex.KINDS}
FACTS = {kind: _patterns(lex.SENTENCES[f"{kind} facts"]) for kind in lex.KINDS}
_NOUNS = (name.removesuffix(" colour") for name in lex.SENTENCES if name.endswith(" colour"))
# By kind, or plain noun.
COLOUR = {kind: _patterns(lex.SENTENCES[f"{kind} colour"]) for kind in (*lex.KINDS, *_NOUNS)}


def write(facts: FactTable, number: int, rolls: Dice) -> Page:
    """The document of entity `number`: every fact of its row once, 4 to 8 sentences, 60 to 110 words."""
    stated = len(facts.entities[number].values)
    colours = max(1, rolls.between(7, 8) - max(stated, 3))
    for _ in range(20):
        writer = _DocumentWriter(facts, number, rolls)
        writer.compose(colours)
        words = sum(sentence.count(" ") + 1 for sentence in writer.sentences)
        few = words < WORDS[0] or len(writer.sentences) < SENTENCES[0]
        many = words > WORDS[1] or len(writer.sentences) > SENTENCES[1]
        if not few and not many:
            break
        colours = max(0, colours + few - many)
    return writer.page()


def turns(entity: Entity) -> dict[str, str]:
    """The words that agree with an entity: bound pronouns, tense, and how a work of its sort is made."""
    he, his, him, himself = _FORMS[entity.pronoun]
    words = {"he": he, "his": his, "him": him, "himself": himself, "noun": entity.noun}
    words |= {"a_noun": article(entity.noun), "was": "is" if entity.year >= 1930 else "was"}
    if entity.kind == "work":
        words |= lex.MAKING[entity.noun]
    return words


@dataclass
class _DocumentWriter:
    facts: FactTable
    number: int
    rolls: Dice
    sentences: list[str] = field(default_factory=list)
    stated: dict[str, int] = field(default_factory=dict)  # relation -> sentence
    _used: set[str] = field(default_factory=set)  # patterns and fillers of this document
    _named: bool = True  # the last sentence named its subject
    _clash: bool = False  # a pronoun could be taken for somebody the last sentence named

    @property
    def entity(self) -> Entity:
        return self.facts.entities[self.number]

    def compose(self, colours: int) -> None:
        """Opener, then facts in random order with colour between them."""
        entity, rolls = self.entity, self.rolls
        self._say(rolls.pick([p for p in OPENERS[entity.kind] if p.relations <= entity.values.keys()]))
        open_facts = rolls.shuffled([relation for relation in entity.values if relation not in self.stated])
        colour = COLOUR.get(entity.noun, COLOUR[entity.kind])
        while open_facts or colours:
            if colours and rolls.chance(colours / (colours + len(open_facts))):
                colours -= 1
                self._say(self._choose(colour))
            else:
                options = [p for p in FACTS[entity.kind] if open_facts[0] in p.relations]
                self._say(self._choose([p for p in options if p.relations <= set(open_facts)]))
                open_facts = [relation for relation in open_facts if relation not in self.stated]

    def _choose(self, patterns: list[Pattern] | tuple[Pattern, ...]) -> Pattern:
        fresh = [p for p in patterns if p.text not in self._used] or patterns
        if self._clash:  # a sentence that does not say whom it is about must follow on clearly
            fresh = [p for p in fresh if not lex.SELF.isdisjoint(p.fields)] or fresh
        return self.rolls.pick(fresh)

    def _say(self, pattern: Pattern) -> None:
        self._used.add(pattern.text)
        words = self._subject() | turns(self.entity)
        for name in pattern.fields:
            if name in lex.FILLERS:
                words[name] = self._fill(name)
            elif name.removeprefix("a_") in lex.FILLERS:
                words[name] = article(self._fill(name.removeprefix("a_")))
            elif name not in words:
                relation = name.removeprefix("a_")
                shown = self.facts.shown(relation, self.entity.values[relation])
                words[name] = article(shown) if name != relation else shown
        text = pattern.text.format_map(words)
        self.stated |= dict.fromkeys(pattern.relations, len(self.sentences))
        self.sentences.append(text[0].upper() + text[1:])
        others = [self.entity.values[name] for name in pattern.relations if lex.RELATIONS[name].links]
        self._clash = self.entity.pronoun in {self.facts.entities[int(value)].pronoun for value in others}

    def _fill(self, name: str) -> str:
        options = [word for word in lex.FILLERS[name] if word not in self._used] or lex.FILLERS[name]
        word = self.rolls.pick(options)
        self._used.add(word)
        return word

    def _subject(self) -> dict[str, str]:
        entity, rolls = self.entity, self.rolls
        plain = entity.short if entity.kind == "person" else f"the {entity.noun}"
        fresh = len(self.sentences) > 1 and entity.kind != "person"  # not right after the opener
        named = entity.shown if fresh and rolls.chance(0.25) else plain
        subject, possessive, object_, _ = _FORMS[entity.pronoun]
        self._named = self._clash or rolls.chance(0.2 if self._named else 0.55)
        if self._named:
            subject = object_ = named
            possessive = f"{named}'" if named.endswith("s") else f"{named}'s"
        return {
            "N": entity.shown, "n": named, "o": object_,
            "S": subject[0].upper() + subject[1:], "s": subject,
            "Ss": possessive[0].upper() + possessive[1:], "ss": possessive,
        }  # fmt: skip

    def page(self) -> Page:
        """The sentences joined by single spaces."""
        spans, start = [], 0
        for sentence in self.sentences:
            spans.append((start, start + len(sentence)))
            start += len(sentence) + 1
        stated = {relation: spans[self.stated[relation]] for relation in self.entity.values}
        return Page(self.entity.name, " ".join(self.sentences), stated)


SHORT = 45  # characters of an {x} that may be in the middle of a phrase


@dataclass(frozen=True)
class _Phrase:
    """A noun phrase; `plain` where it holds no clause of its own and so may be inside another's.

    `closed` where it ends in a noun: "the town where X stands" must not meet the verb of a sentence it opens.
    """

    words: str
    plain: bool = True
    closed: bool = True


def ask_chain(chain: Chain, trail: list[int], facts: FactTable, rolls: Dice) -> str:
    """The question of a chain whose steps reach exactly the entities of `trail`, its start first."""
    phrase = _anchor(chain, trail[0], facts, rolls)
    for entity, relation in zip(trail, chain.path[:-1], strict=False):
        phrase = _extend(lex.DESCRIBE, relation, phrase, entity, facts, rolls)
    last = trail[len(chain.path) - 1]
    return _sentence(_extend(lex.ASK, chain.path[-1], phrase, last, facts, rolls).words)


def ask_comparison(form: FactComparison, winner: int | None, facts: FactTable, rolls: Dice) -> str:
    """The question of a comparison; `winner` is the entity picked, None for a question of sameness."""
    both = {"a": facts.entities[form.left].shown, "b": facts.entities[form.right].shown}
    if winner is None:
        return _sentence(rolls.pick(lex.SAME[form.relation]).format(**both))
    side = 0 if form.order == "least" else 1
    if not form.ask:
        return _sentence(lex.COMPARE[form.relation][side].format(**both))
    pattern = lex.PICK[form.relation][side]
    picked = _Phrase(pattern.format(**both), plain=False, closed=pattern.endswith("{b}"))
    return _sentence(_extend(lex.ASK, form.ask, picked, winner, facts, rolls).words)


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def _anchor(chain: Chain, start: int, facts: FactTable, rolls: Dice) -> _Phrase:
    entity = facts.entities[start]
    if chain.where[0][0] != "name":
        values = {key: facts.shown(key, value) for key, value in chain.where}
        values |= {f"a_{key}": article(shown) for key, shown in values.items()}
        pattern = rolls.pick(lex.SINGLE_OUT[chain.kind][tuple(key for key, _ in chain.where)])
        return _Phrase(pattern.format(**values, **turns(entity)))
    # Never "the town where Where the Owls …".
    introduce = rolls.chance(0.3) or entity.name.startswith("Where ")
    if entity.kind in ("town", "region", "company", "work") and introduce and chain.path[0] != "form":
        of = "of " if entity.kind in ("town", "region") else ""
        return _Phrase(f"the {entity.noun} {of}{entity.name}")
    return _Phrase(entity.shown)


def _extend(
    table: dict[str, tuple[str, ...]], relation: str, x: _Phrase, entity: int, facts: FactTable, rolls: Dice
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
