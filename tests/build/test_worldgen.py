"""The generated world: its documents are prose that states its facts, its questions have one answer each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from memenvs.build.worldgen import Question, World, chronicle, generate
from memenvs.build.worldgen.lexicon import KINDS, RELATIONS
from memenvs.build.worldgen.names import Chain, FactComparison, FactTable

SPLITS = ("train", "validation", "test")
SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")


@cache
def world(entities: int = 1500, questions: int = 1200, split: str = "train", seed: int = 0) -> World:
    return generate(entities, questions, split=split, seed=seed)


def bridges(made: World) -> list[Question]:
    return [question for question in made.questions if question.kind == "bridge"]


def inside(words: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words.lower())}(?!\w)", text.lower()) is not None


# documents


def test_documents_are_tidy_prose_about_their_title():
    for title, text in world().documents:
        sentences = SENTENCE.split(text)
        assert 4 <= len(sentences) == len(set(sentences)) <= 8, text
        assert 60 <= len(text.split()) <= 110, text
        assert title in sentences[0]
        assert re.search(r"[{}_*]|  |\s[.,;]|[.,;]{2}|^\s|\s$|\n", text) is None, text
        assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in sentences), text
        assert re.search(r"\ba [aeiou]\w", text, re.IGNORECASE) is None, text
        assert re.search(r"\ban (?!hour)[^aeiou]", text, re.IGNORECASE) is None, text


def test_every_fact_is_stated_in_the_sentence_marked_for_it():
    facts, documents = world().facts, world().pages
    for entity, document in zip(facts.entities, documents, strict=True):
        assert entity.values.keys() == document.spans.keys()
        for relation, (start, end) in document.spans.items():
            sentence = document.text[start:end]
            assert sentence in SENTENCE.split(document.text)
            assert facts.answer(relation, entity.values[relation]) in sentence


def test_documents_mention_no_entity_their_facts_do_not():
    facts, documents = world().facts, world().pages
    name = re.compile(r"[A-Z]\w+ (?:& )?[A-Z]\w+")
    owners = {entity.name: i for i, entity in enumerate(facts.entities)}
    for i, document in enumerate(documents):
        values = facts.entities[i].values.items()
        linked = {i} | {int(value) for relation, value in values if RELATIONS[relation].links}
        assert {owners[m] for m in name.findall(document.text) if m in owners} <= linked


def test_years_in_prose_are_the_years_of_the_facts():
    facts, documents = world().facts, world().pages
    for entity, document in zip(facts.entities, documents, strict=True):
        years = {str(v) for r, v in entity.values.items() if RELATIONS[r].range == "year"}
        assert set(re.findall(r"(?<![\d,])[12]\d{3}(?!\d|,\d)", document.text)) == years


# facts


def test_time_runs_one_way():
    facts = chronicle.build(3000, "test", 4)
    year = {i: entity.year for i, entity in enumerate(facts.entities)}
    for i, entity in enumerate(facts.entities):
        v = {relation: int(value) for relation, value in entity.values.items() if RELATIONS[relation].links}
        for child, maker in (("masterpiece", i), ("design", i), ("company", i)):
            assert child not in v or 20 <= year[v[child]] - year[maker] <= 70
        for relation in ("creator", "architect", "founder"):
            assert relation not in v or 20 <= year[i] - year[v[relation]] <= 70
        assert "mentor" not in v or year[i] - year[v["mentor"]] >= 18
        assert "school" not in v or year[v["school"]] - year[i] <= 8
        assert "dedicatee" not in v or year[i] > year[v["dedicatee"]]
        for older in ("publisher", "parent", "patron"):
            assert older not in v or year[i] >= year[v[older]]
        for office in ("mayor", "head"):
            assert office not in v or year[v[office]] >= 1946


def test_a_capital_is_in_its_region_and_a_mouth_on_its_river():
    facts = chronicle.build(3000, "train", 1)
    for region in facts.of_kind("region"):
        assert facts.value(int(facts.entities[region].values["capital"]), "region") == region
    for river in facts.of_kind("river"):
        assert facts.value(int(facts.entities[river].values["mouth"]), "river") == river


@pytest.mark.parametrize("entities", [20, 21, 37, 400])
def test_a_world_of_any_size_has_every_kind(entities):
    facts = chronicle.build(entities, "validation", 0)
    assert len(facts.entities) == entities
    assert {entity.kind for entity in facts.entities} == set(KINDS)


# names


def test_no_two_names_of_a_world_are_equal_or_inside_each_other():
    names = [entity.name for entity in chronicle.build(4000, "train", 0).entities]
    names += [name.split()[1] for name in names if name.startswith("River ")]  # an accepted answer too
    words = [tuple(re.findall(r"\w+", name.lower())) for name in names]
    known = set(words)
    assert len(known) == len(words)
    for full in words:
        parts = {full[i:j] for i in range(len(full)) for j in range(i + 1, len(full) + 1)} - {full}
        assert all(part == full[1:] and full[0] == "river" for part in parts & known), full


def test_splits_share_no_name_whatever_their_seeds():
    names = {s: set() for s in SPLITS}
    for seed, split in enumerate(SPLITS * 2):
        names[split] |= {entity.name for entity in chronicle.build(1500, split, seed).entities}
    assert not names["train"] & names["validation"]
    assert not names["train"] & names["test"]
    assert not names["validation"] & names["test"]


# questions


def test_spans_are_whole_sentences_of_the_evidence():
    for question in world().questions:
        for number, start, end in question.spans:
            text = world().documents[number][1]
            assert text[start:end] in SENTENCE.split(text)
        assert tuple(dict.fromkeys(number for number, _, _ in question.spans)) == question.evidence


def test_a_bridge_of_n_hops_has_n_documents_each_leading_to_the_next_and_the_last_to_the_answer():
    for question in bridges(world()):
        assert len(question.evidence) == len(set(question.evidence)) <= 4
        leads = [*(world().documents[after][0] for after in question.evidence[1:]), question.answers[0]]
        for here, needed in zip(question.evidence, leads, strict=True):
            spans = [span for span in question.spans if span[0] == here]
            assert needed in " ".join(world().documents[here][1][start:end] for _, start, end in spans)


def brute_force(form: Chain, facts: FactTable) -> list:
    """Every value the chain could mean, by scanning all entities for every step."""
    found = [
        i
        for i, entity in enumerate(facts.entities)
        if entity.kind == form.kind
        and all((entity.name if key == "name" else entity.values.get(key)) == v for key, v in form.where)
    ]
    for relation in form.path:
        found = [
            e.values[relation] for i, e in enumerate(facts.entities) if i in found and relation in e.values
        ]
    return found


def test_answers_are_unique_by_brute_force():
    made = world(300, 250)
    facts = made.facts
    for form, question in made.asked:
        if isinstance(form, Chain):
            values = brute_force(form, facts)
            assert [facts.answer(form.path[-1], value) for value in values] == [question.answers[0]]


def test_comparisons_hold_by_brute_force():
    facts, asked = world().facts, world().asked
    checked = 0
    for form, question in asked:
        if isinstance(form, FactComparison):
            left, right = (facts.entities[i] for i in (form.left, form.right))
            values = left.values[form.relation], right.values[form.relation]
            if form.order == "same":
                assert question.answers[0] == ("yes" if values[0] == values[1] else "no")
            else:
                assert values[0] != values[1]
                first = (values[0] < values[1]) == (form.order == "least")
                picked = left if first else right
                expected = facts.answer(form.ask, picked.values[form.ask]) if form.ask else picked.name
                assert question.answers[0] == expected
            checked += 1
    assert checked > 30


def test_no_chain_visits_an_entity_twice():
    facts, asked = world().facts, world().asked
    for form, question in asked:
        if isinstance(form, Chain):
            last = question.answers[0] if RELATIONS[form.path[-1]].links else None
            visited = [facts.entities[i].name for i in question.evidence] + ([last] if last else [])
            assert len(set(visited)) == len(visited)


def test_no_question_holds_its_answer_except_a_choice_of_two():
    for form, question in world().asked:
        if isinstance(form, Chain) or form.ask or form.order == "same":
            assert not any(inside(form, question.question) for form in question.answers), question


def test_no_question_names_a_document_on_the_way():
    for question in bridges(world()):
        for number in question.evidence[1:]:
            assert not inside(world().documents[number][0], question.question)


def test_questions_read_as_questions_and_none_is_asked_twice():
    texts = [question.question for question in world().questions]
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert text.endswith("?")
        assert text[0].isupper()
        assert (
            re.search(r"[{}_*]|  |\b[Aa] [aeiou]|\ba?n? ?the the\b|\b(\w+) \1\b", text, re.IGNORECASE) is None
        ), text


def test_hops_are_asked_equally_often():
    assert Counter(len(question.evidence) for question in world().questions) == dict.fromkeys(
        (1, 2, 3, 4), 300
    )


def test_2_hop_questions_are_balanced():
    questions = generate(1500, 1500, split="train", seed=3, hops=(2,)).questions
    answers = Counter(question.answers[0] for question in questions)
    assert 0.15 < sum(question.kind == "comparison" for question in questions) / 1500 < 0.25
    assert 0.3 < answers["yes"] / (answers["yes"] + answers["no"]) < 0.7
    assert answers["yes"] + answers["no"] < 0.15 * 1500
    assert sum(count for answer, count in answers.items() if answer.isdigit()) < 0.25 * 1500
    assert max(answers.values()) < 0.05 * 1500


# seeds


def test_the_first_questions_do_not_depend_on_how_many_follow():
    assert world(questions=300).questions == world().questions[:300]


def test_equal_arguments_give_equal_worlds_in_another_process():
    code = (
        "import hashlib; from memenvs.build.worldgen import generate; "
        "made = generate(300, 200, split='test', seed=5); "
        "print(hashlib.sha256(repr(made).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "4242")
    }
    assert len(digests) == 1


# errors


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"entities": 19}, "entities must be a whole number, at least 20 and at most 200000, got 19"),
        ({"split": "dev"}, "split must be one of train, validation, test, got 'dev'"),
        ({"hops": (0, 1)}, r"hops\[0\] must be a whole number, at least 1"),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_line(change, line):
    arguments = {"entities": 50, "questions": 5, "split": "train", "seed": 0, "hops": (1, 2)} | change
    with pytest.raises(ValueError, match=f"^{line}"):
        generate(arguments.pop("entities"), arguments.pop("questions"), **arguments)


def test_a_small_world_names_the_most_questions_it_holds_and_gives_that_many():
    with pytest.raises(ValueError, match="20 entities holds; ask for at most") as refused:
        generate(20, 10_000, split="train", seed=0)
    most = int(re.findall(r"at most (\d+)", str(refused.value))[0])
    assert len(generate(20, most, split="train", seed=0).questions) == most
