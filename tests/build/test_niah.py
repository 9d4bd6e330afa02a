"""Needle tasks against the definition of the eight variants; their budget, randomness and errors."""

import functools
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from reference_values import cases
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from memenvs.build.draft import item_rng
from memenvs.build.haystack import prose_files, read_prose
from memenvs.build.niah import (
    ADJECTIVES,
    NOUNS,
    RECIPES,
    NiahOptions,
    draw,
    niah,
)
from memenvs.build.write import write_task_set
from memenvs.core.text import split_sentences
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import TextTokenizer, load_tokenizer

PROSE = tuple(
    " ".join(
        f"The {ADJECTIVES[(37 * i + j) % 500]} {NOUNS[(53 * i + 7 * j) % 600]} was seen by {j} people."
        for j in range(40)
    )
    for i in range(3)
)
NEEDLE = re.compile(r"A special magic (number|uuid) for (\S+) is (\S+)\.")
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
KINDS = {"word": "[a-z]+-[a-z]+", "number": "[1-9][0-9]{6}", "uuid": UUID}
# RULER's eight: haystack, kind of key, kind of value, keys hidden, keys asked, values of a key
DEFINITION = {
    "single_1": ("noise", "word", "number", 1, 1, 1),
    "single_2": ("prose", "word", "number", 1, 1, 1),
    "single_3": ("prose", "word", "uuid", 1, 1, 1),
    "multikey_1": ("prose", "word", "number", 4, 1, 1),
    "multikey_2": ("needles", "word", "number", 1, 1, 1),
    "multikey_3": ("needles", "uuid", "uuid", 1, 1, 1),
    "multivalue": ("prose", "word", "number", 1, 1, 4),
    "multiquery": ("prose", "word", "number", 4, 4, 1),
}
every_variant = pytest.mark.parametrize("variant", RECIPES)


@functools.cache
def tokenizer():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(PROSE, trainer)
    return TextTokenizer(backend, "tiny")


@functools.cache
def build(variant="single_2", count=12, tokens=900, prose=PROSE, split="train", seed=7, workers=1):
    options = NiahOptions(
        variant=variant, num_tasks=count, tokens=tokens, split=split, seed=seed, workers=workers
    )
    return niah(options, tokenizer(), prose)


def texts(draft, task):
    return [draft.documents.texts[number] for number in task.documents]


def context(draft, task):
    return "".join(texts(draft, task))


def used(draft, task):
    return int(draft.documents.tokens[list(task.documents)].sum())


def hay(draft):
    """Numbers of the haystack's documents: all that are no task's own needles."""
    per_task = RECIPES[draft.tasks[0].meta["variant"]].needles
    return range(len(draft.documents.texts) - per_task * len(draft.tasks))


def found(draft, task):
    return [(kind, key, value) for kind, key, value in NEEDLE.findall(context(draft, task))]


# --- the eight variants


@every_variant
def test_a_context_has_the_needles_of_its_definition(variant):
    draft = build(variant)
    haystack, key, value, keys, _, values = DEFINITION[variant]
    for task in draft.tasks:
        needles = found(draft, task)
        if haystack == "needles":
            assert len(needles) == len(task.documents) >= 10
            assert len(set(task.documents) - set(hay(draft))) == 1
        else:
            assert len(needles) == keys * values
            assert len({key for _, key, _ in needles}) == keys
        assert all(kind == value for kind, _, _ in needles)
        assert all(re.fullmatch(KINDS[key], name) for _, name, _ in needles)
        assert all(re.fullmatch(KINDS[value], told) for _, _, told in needles)


@every_variant
def test_the_answers_are_the_values_in_the_evidence(variant):
    draft = build(variant)
    *_, asked, values = DEFINITION[variant]
    for task in draft.tasks:
        told = [NEEDLE.search(draft.documents.texts[number]).groups() for number in task.evidence]
        assert len(task.answers) == 1
        assert task.answers[0] == tuple(value for _, _, value in told) == tuple(task.meta["values"])
        assert len(task.answers[0]) == asked * values
        assert list(dict.fromkeys(key for _, key, _ in told)) == task.meta["keys"]


@every_variant
def test_the_question_names_the_asked_keys_whose_values_are_in_the_context_once(variant):
    draft = build(variant)
    for task in draft.tasks:
        values, keys = task.answers[0], task.meta["keys"]
        assert [context(draft, task).count(value) for value in values] == [1] * len(values)
        assert sorted(values) == sorted(value for _, key, value in found(draft, task) if key in keys)
        several = len(values) > 1
        start = "What are all the special magic" if several else "What is the special magic"
        assert task.question.startswith(f"{start} {RECIPES[variant].value}{'s' if several else ''} for ")
        named = re.search(r"for (.*) that the text gives\?$", task.question)[1]
        assert re.split(", | and ", named) == keys


@pytest.mark.parametrize("variant", [v for v in RECIPES if DEFINITION[v][0] == "prose"])
def test_a_prose_haystack_is_the_sentences_in_order_from_anywhere(variant):
    draft = build(variant)
    n = len(hay(draft))
    assert [draft.documents.texts[i] for i in hay(draft)] == [
        f" {s}" for p in PROSE for s in split_sentences(p)
    ]
    starts = set()
    for task in draft.tasks:
        order = np.array([number for number in task.documents if number in hay(draft)])
        assert (np.diff(order) % n == 1).all()
        starts.add(int(order[0]))
    assert len(starts) > len(draft.tasks) / 2


def test_noise_repeats_five_sentences_one_to_a_line():
    draft = build("single_1")
    lines = context(draft, draft.tasks[0]).splitlines()
    rest = [line for line in lines if not NEEDLE.fullmatch(line)]
    assert len(rest) == len(lines) - 1
    assert len(set(rest)) == 5
    assert rest[5:] == rest[:-5]


def test_prose_starts_again_where_it_ends():
    draft = build(tokens=9000)
    assert len(draft.tasks[0].documents) > 2 * len(hay(draft))
    assert 9000 - used(draft, draft.tasks[0]) < draft.documents.tokens.max()


# --- the budget


def test_a_budget_of_the_needles_alone_leaves_the_needles():
    draft = build(tokens=int(build(count=1).documents.tokens[-1]), count=1)
    assert found(draft, draft.tasks[0])
    assert len(draft.tasks[0].documents) == 1


# --- depths


@every_variant
def test_a_needle_begins_within_a_sentence_of_its_depth(variant):
    draft = build(variant, tokens=4096)
    longest = max(len(text) for text in draft.documents.texts)
    for task in draft.tasks:
        slack = longest * (1 + RECIPES[variant].needles) / len(context(draft, task))
        np.testing.assert_allclose(task.meta["depths"], task.meta["grid"], atol=slack)


def test_depths_are_drawn_from_all_forty_points_and_differ_within_a_task():
    drawn = [task.meta["grid"] for task in build("multiquery", count=120).tasks]
    np.testing.assert_allclose(np.unique(drawn), [i / 39 for i in range(40)])
    assert all(len(set(grid)) == 4 for grid in drawn)


# --- chance


def test_a_value_that_the_prose_holds_is_not_drawn():
    (value,) = build().tasks[0].answers[0]
    draft = build(prose=(*PROSE, f"Call 00{value}55 today."))
    assert value not in draft.tasks[0].answers[0]


def test_a_key_that_the_prose_holds_is_not_drawn():
    (key,) = build().tasks[0].meta["keys"]
    draft = build(prose=(*PROSE, f"Nobody wants a {key.title()} here."))
    assert key not in draft.tasks[0].meta["keys"]


def test_more_keys_than_there_are_is_one_clear_error():
    with pytest.raises(ValueError, match=r"kind 'word' are wanted, there are \d+; ask for fewer tokens"):
        draw("word", len(ADJECTIVES) * len(NOUNS) + 1, item_rng(0, "train", 0))


# --- errors at the door


@pytest.mark.parametrize("prose", [(), (" \n",)])
def test_prose_variants_without_prose_are_an_error(prose):
    with pytest.raises(ValueError, match="the prose is empty; give a folder of essays"):
        build("single_2", prose=prose)


# --- prose


def test_read_prose_reads_the_texts_of_a_folder_in_order(tmp_path):
    for name, text in (("b.txt", "B é."), ("a.txt", "\ufeffA."), ("c.md", "C.")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_prose(tmp_path) == ["A.", "B é."]
    assert prose_files(tmp_path) == [tmp_path / "a.txt", tmp_path / "b.txt"]


def test_a_text_that_is_not_utf8_is_an_error_that_names_it(tmp_path):
    (tmp_path / "latin.txt").write_bytes("caf\xe9 au lait".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8 from byte 3"):
        read_prose(tmp_path)


def test_real_essays_build(real_data, tmp_path):
    prose, files = read_prose(real_data / "essays"), prose_files(real_data / "essays")
    draft = niah(
        NiahOptions(variant="multiquery", num_tasks=20, tokens=32_768, split="test", seed=1),
        tokenizer(),
        prose,
    )
    tasks = write_task_set(tmp_path / "set", replace(draft, inputs=files), Card("niah"), tokenizer())
    assert len(tasks.card.inputs) == len(files) == 49
    assert 32_768 - tasks.card.counts["max_tokens"] < draft.documents.tokens.max()


# --- the reference's structure (its texts depend on a word list's version, its essays are stand-ins)


@pytest.mark.parametrize("case", cases("ruler_niah"))
def test_needles_and_values_number_as_in_the_reference(case):
    variant = case["input"]["task"].removeprefix("niah_")
    draft = build(variant)
    for sample in case["output"]["samples"]:
        # the instruction and the question say "special magic" once each
        theirs = sample["special_magic"] - 2
        ours = len(found(draft, draft.tasks[0]))
        assert theirs == ours or DEFINITION[variant][0] == "needles"
        assert len(sample["outputs"]) == len(draft.tasks[0].answers[0])
        assert all(re.fullmatch(KINDS[RECIPES[variant].value], value) for value in sample["outputs"])


def test_the_memory_of_a_build_does_not_grow_with_its_tasks(tmp_path):
    tokenizer, peaks = load_tokenizer(), []
    for count in (20, 300, 1200):  # the first fills caches
        tracemalloc.start()
        draft = niah(NiahOptions(variant="single_1", tokens=300, num_tasks=count), tokenizer, PROSE)
        write_task_set(tmp_path / str(count), draft, Card("niah"), tokenizer)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]
