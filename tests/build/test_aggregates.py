"""Questions over many documents: recounted from the text alone; their evidence, size and errors."""

import functools
import re

import pytest
from build_command import command

from memenvs.build.worldgen import OPERATIONS, AggregateOptions, aggregate, chronicle
from memenvs.build.worldgen.aggregates import EXTREMES, MOST_EVIDENCE, facts_told
from memenvs.tasks.context import Reader
from memenvs.tasks.metrics import em
from memenvs.tasks.taskset import open_tasks
from memenvs.tasks.tokens import load_tokenizer

ENTITIES, QUESTIONS = 800, 160
KINDS = {
    "people": "person", "works": "work", "landmarks": "landmark", "schools": "school", "rivers": "river",
    "companies": "company", "towns": "town",
}  # fmt: skip
SAID = re.compile(
    "(people born in|people educated at|works published by|landmarks in|schools in|companies based in|"
    "towns in|towns on|rivers that rise in) (.+)"
)
SINGLE = {
    "a town in": "towns in", "a town on": "towns on", "a school in": "schools in",
    "a company based in": "companies based in", "a river that rises in": "rivers that rise in",
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w,])[0-9][0-9,]*(?![\w,])")


@functools.cache
def made(operations=OPERATIONS):
    pool = aggregate(
        AggregateOptions(entities=ENTITIES, num_tasks=QUESTIONS, ask=operations), load_tokenizer()
    )
    return pool.extra, pool.examples


@functools.cache
def kinds():
    """The kind of each title; everything else these tests read in the texts."""
    return {entity.name: entity.kind for entity in chronicle.build(ENTITIES, "train", 0).entities}


def members(words):
    """The documents that a group's words are about: each names what it is tied to; None where unreadable."""
    found = SAID.fullmatch(words)
    if not found:
        return None
    said, end = found[1], found[2]
    single = next((one for one in SINGLE if end.startswith(f"{one} ")), None)
    names = {end}
    if single:
        inner = members(f"{SINGLE[single]} {end.removeprefix(single + ' ')}")
        names = inner and {title.removeprefix("the ") for title in inner}
    if not names or end.startswith(("a ", "the River")) != bool(single or end.startswith("the River")):
        return None
    names = {name.removeprefix("the ") for name in names}
    named = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names)))
    documents, _ = made()
    kind = KINDS[said.split()[0]]
    return {title for title, text in documents if kinds()[title] == kind and named.search(text)}


def group_of(question):
    """The words of the group that a question is about."""
    patterns = [
        r"How many (.+) do the documents tell of\?",
        *(rf"Which of the (.+) {end}\?" for ends in EXTREMES.values() for end in ends),
        r"How many inhabitants do the (.+) have together\?",
        r"How many kilometres long are the (.+) together\?",
        r"What is the most common [a-z ]+? of the (.+)\?",
    ]
    found = (re.fullmatch(pattern, question) for pattern in patterns)
    return next((match[1] for match in found if match), "")


def readable(operation):
    """Examples of an operation whose group can be read from the text, with its members."""
    for example in made()[1]:
        if example.meta["type"] == operation and (found := members(group_of(example.question))):
            yield example, found


def needed(example):
    """The marked sentences by title."""
    sentences = {}
    for paragraph, start, end in example.spans:
        title, text = example.paragraphs[paragraph]
        sentences.setdefault(title, []).append(text[start:end])
    return sentences


def test_counts_are_those_of_the_text():
    checked = list(readable("count"))
    assert len(checked) >= 10
    for example, found in checked:
        assert example.answers == (str(len(found)),), example.question
        assert example.meta["members"] == len(found)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_all_members_of_a_group_are_evidence(operation):
    for example, found in readable(operation):
        assert found <= {title for title, _ in example.paragraphs}, example.question


def test_sums_are_those_of_the_marked_sentences():
    checked = 0
    for example, found in readable("sum"):
        unit = r"([0-9,]+) kilometres"
        if "inhabitants" in example.question:  # years have no comma
            unit = r"(?<![\w,])([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{3})(?![\w])"
        numbers = [
            int(number.replace(",", ""))
            for title in found
            for sentence in needed(example)[title]
            for number in re.findall(unit, sentence)
        ]
        assert em(str(sum(numbers)), [answer.replace(",", "") for answer in example.answers]), example
        checked += 1
    assert checked >= 5


def test_the_extreme_is_that_of_the_marked_sentences():
    checked = 0
    for example, found in readable("extreme"):
        numbers = {}
        for title in found:
            sentences = " ".join(needed(example)[title])
            told = [int(number.replace(",", "")) for number in NUMBER.findall(sentences)]
            numbers[title] = told[0] if len(told) == 1 else None
        if None in numbers.values():
            continue  # a sentence tells another number too
        most = any(example.question.endswith(f"{end}?") for _, end in EXTREMES.values())
        best = (max if most else min)(numbers, key=numbers.get)
        assert example.answers[0] == best, example.question
        checked += 1
    assert checked >= 5


def test_the_most_common_value_is_said_of_most_members():
    checked = 0
    for example, found in readable("common"):
        holding = [title for title in found if example.answers[0] in " ".join(needed(example)[title])]
        assert len(holding) >= 2
        checked += 1
    assert checked >= 5


def test_who_made_a_thing_is_known_from_either_document():
    facts = chronicle.build(ENTITIES, "train", 0)
    told = facts_told(facts)
    makers = [i for i, entity in enumerate(facts.entities) if "masterpiece" in entity.values]
    assert makers
    for maker in makers:
        work = facts.entities[maker].values["masterpiece"]
        assert "creator" not in facts.entities[work].values
        assert told["creator"][work] == (maker, (maker, "masterpiece"))


def test_every_operation_and_both_numbers_of_hops_are_asked_in_turn():
    _, examples = made()
    assert [example.meta["type"] for example in examples[:4]] == list(OPERATIONS)
    assert {example.meta["hops"] for example in examples} == {1, 2}
    _, counts = made(("count",))
    assert {example.meta["type"] for example in counts} == {"count"}


def test_questions_differ_and_do_not_say_their_answer():
    _, examples = made()
    assert len({example.question for example in examples}) == QUESTIONS
    for example in examples:
        assert not re.search(rf"(?<!\w){re.escape(example.answers[0])}(?!\w)", example.question)
        assert len(example.evidence) <= MOST_EVIDENCE
        assert {paragraph for paragraph, _, _ in example.spans} == set(example.evidence)


def test_a_world_too_small_for_the_questions_says_how_many_it_holds():
    with pytest.raises(ValueError, match=r"900 questions are more than .* of 20 documents holds; ask for at"):
        aggregate(AggregateOptions(entities=20, num_tasks=900), load_tokenizer())


# --- the command


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("aggregate") / "set"
    assert command("aggregate", "--tokens", 40_000, "--num-tasks", 12, "--out", out) == 0
    return out


def test_a_text_fills_its_tokens_within_a_document(whole):
    tasks, tokenizer = open_tasks(whole), load_tokenizer()
    reader = Reader(tasks, tokenizer)
    longest = max(tokenizer.counts(tasks.document_texts(range(tasks.n_documents)))) + 8
    for task in tasks:
        assert 0 <= 40_000 - tokenizer.count(reader.context(task.documents).text) < longest


def test_a_text_is_nearly_the_whole_world(whole):
    tasks = open_tasks(whole)
    assert min(len(task.documents) for task in tasks) > 0.85 * tasks.n_documents
    assert len({task.documents for task in tasks}) == len(tasks)


def test_the_answer_holds_in_the_text_of_a_task(whole):
    """A world is larger than a text: who counts what the text alone names finds the same."""
    tasks = open_tasks(whole)
    for task in tasks:
        if task.meta["type"] == "count":
            assert set(task.evidence) <= set(task.documents)
            assert len(task.evidence) >= task.meta["members"] == int(task.answers[0][0])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "give either --documents (a number of documents) or --tokens"),
        (["--tokens", 10**9], "--tokens 1000000000 is more than a world fills; ask for at most"),
        (["--tokens", 300], "--tokens 300 is too small"),
        (["--documents", 30, "--entities", 25], "--documents 30 does not suit question aggregate-train-0"),
    ],
)
def test_what_cannot_be_built_is_one_line_and_leaves_nothing(refused, args, said):
    assert said in refused("aggregate", *args, "--num-tasks", 4)
