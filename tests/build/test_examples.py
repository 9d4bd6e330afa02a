"""Evidence among distractors: what a task holds, and what determines it."""

import itertools
import json
import os
import signal
import subprocess
import sys
import zlib
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from memenvs.build.draft import item_rng, make_items
from memenvs.build.examples import among_distractors
from memenvs.build.options import DrawnFile
from memenvs.build.readers.hotpotqa import read_hotpotqa
from memenvs.build.sources import SOURCES
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import TextTokenizer, load_tokenizer


@pytest.fixture(scope="module")
def build(examples):
    def make(given=examples, **kwargs):
        defaults = {"tokenizer": load_tokenizer("world"), "split": "train", "seed": 0}
        return among_distractors(given, **{**defaults, **kwargs})

    return make


def test_a_task_has_the_documents_asked_for_its_evidence_and_its_own_first(build, examples):
    draft = build(documents=20)
    for task, example in zip(draft.tasks, examples, strict=True):
        titles = [draft.documents.titles[document] for document in task.documents]
        assert len(titles) == len(set(titles)) == 20
        assert {title for title, _ in example.paragraphs} <= set(titles)
        assert [draft.documents.titles[i] for i in task.evidence] == [
            example.paragraphs[0][0],
            example.paragraphs[2][0],
        ]


def test_evidence_falls_everywhere_not_always_in_the_same_places(build):
    positions = [task.documents.index(task.evidence[0]) for task in build(documents=50, count=400).tasks]
    counts = np.bincount(positions, minlength=50)
    # 400 draws over 50 places: 8 expected in each; the reference's one permutation would put all in one
    assert counts.max() < 30
    assert (counts > 0).sum() > 45


@pytest.fixture(scope="module")
def newline_joiner(examples):
    """Byte-level BPE with a token for a blank line at the end of a text, as GPT-2 has; else it is two."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [f"{title}\n{text}\n\n" for example in examples for title, text in example.paragraphs]
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, show_progress=False))
    assert made.get_vocab()["ĊĊ"]
    return TextTokenizer(made, "newline joiner")


def whole_counts(draft, tokenizer):
    """Tokens of each task's text, tokenised in one piece."""
    documents = [
        f"{title}\n{text}" for title, text in zip(draft.documents.titles, draft.documents.texts, strict=True)
    ]
    texts = [
        "\n\n".join(f"Document {n}:\n{documents[i]}" for n, i in enumerate(task.documents, 1))
        for task in draft.tasks
    ]
    return tokenizer.counts(texts), max(tokenizer.counts(documents)) + 20  # a header and a separator


def test_a_budget_holds_for_the_text_tokenised_whole(build, any_tokenizer):
    used, document = whole_counts(build(tokens=4000, tokenizer=any_tokenizer), any_tokenizer)
    assert 4000 - document < min(used) <= max(used) <= 4000


def test_a_budget_holds_where_parts_have_fewer_tokens_than_the_whole(build, newline_joiner):
    used, document = whole_counts(build(tokens=4000, tokenizer=newline_joiner), newline_joiner)
    assert 4000 - document < min(used) <= max(used) <= 4000


def test_a_paragraph_with_the_title_of_an_evidence_document_is_never_a_distractor(build, examples):
    title = examples[0].paragraphs[0][0]
    impostor = replace(examples[1], paragraphs=(*examples[1].paragraphs[:4], (title, "Something else.")))
    draft = build([examples[0], impostor, *examples[2:]], documents=150)
    texts = [draft.documents.texts[i] for i in draft.tasks[0].documents if draft.documents.titles[i] == title]
    assert texts == [examples[0].paragraphs[0][1]]


def test_equal_paragraphs_are_one_document(build, examples):
    twice = [examples[0], replace(examples[0], id="again")]
    assert len(build(twice, documents=3).documents.titles) == 5


def test_more_tasks_than_questions_use_them_again_with_other_documents(build, examples):
    first, again = (build(documents=20, count=80).tasks[i] for i in (0, 40))
    assert (first.question, f"{first.id}-2") == (again.question, again.id)
    assert set(first.documents) != set(again.documents)


def sets_of_one_question(build, **kwargs):
    """The document sets of question 0, each time it is used."""
    return [frozenset(task.documents) for task in build(count=40 * 12, **kwargs).tasks[::40]]


@pytest.mark.parametrize("size", [{"tokens": 500}, {"documents": 3}, {"documents": 5}, {"documents": 199}])
def test_a_question_that_is_used_again_has_other_documents_than_the_time_before(build, size):
    found = sets_of_one_question(build, **size)
    assert all(before != after for before, after in itertools.pairwise(found))


def test_where_only_the_shortest_documents_fit_they_come_and_go(build, examples):
    everything = [paragraph for example in examples for paragraph in example.paragraphs]
    # question 0 has evidence of 188 + 169 tokens and 7 of a header; of all 200 documents four have up to 60
    draft = build(examples[:1], extra=everything, tokens=188 + 169 + 7 + 60, count=50)
    found = [frozenset(task.documents) for task in draft.tasks]
    assert {len(documents) for documents in found} == {2, 3}
    assert all(before != after for before, after in itertools.pairwise(found))
    assert len(set().union(*found)) == 2 + 4


@pytest.mark.parametrize("size", [{"documents": 2}, {"documents": 200}])
def test_a_question_has_the_same_documents_again_where_there_are_no_others(build, size):
    assert len(set(sets_of_one_question(build, **size))) == 1


def die_at_300(item):
    if item == 300:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def fail_at_300(item):
    if item == 300:
        raise ValueError(f"item {item} cannot be made")
    return item


def test_a_killed_worker_is_one_line_that_names_the_fix():
    with pytest.raises(ValueError, match=r"worker process was killed.*fewer --workers than 2") as error:
        make_items(die_at_300, 10_000, workers=2)
    assert "\n" not in str(error.value)


def test_a_script_without_a_guard_gets_an_error_that_says_so(tmp_path):
    script = "from memenvs.build.draft import make_items\nmake_items(int, 10_000, workers=2)\n"
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert "a script that builds with --workers needs `if __name__" in done.stderr.splitlines()[-1]


def test_what_a_worker_raises_is_raised_here():
    with pytest.raises(ValueError, match="item 300 cannot be made"):
        make_items(fail_at_300, 10_000, workers=2)


def test_a_seed_of_two_words_draws_apart_from_shorter_seeds():
    # SeedSequence reads [7 + a * 2**32, b, 0] and [7, a, b] as the same words
    a, b = zlib.crc32(b"a"), zlib.crc32(b"b")
    assert item_rng(7 + (a << 32), "b", 0).random() != item_rng(7, "a", b).random()


def test_seed_and_split_each_draw_apart(build):
    drawn = [
        build(documents=20, **kwargs).tasks[0].documents
        for kwargs in ({}, {"seed": 1}, {"split": "test"}, {"seed": 2})
    ]
    assert len(set(drawn)) == 4


def test_the_first_tasks_do_not_depend_on_how_many_are_asked_for(build):
    assert build(documents=20, count=5).tasks[:] == build(documents=20, count=40).tasks[:5]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({}, "--documents"),
        ({"documents": 10, "tokens": 10}, "either --documents"),
        ({"documents": 0}, "documents must be"),
        ({"documents": 1}, "it needs 2"),
        ({"documents": 5000}, "the pool has 200"),
        ({"tokens": 20}, "--tokens 20 is too small"),
        ({"tokens": 50_000}, "the pool has 27113 tokens"),
        ({"documents": 5, "count": 0}, "count must be"),
    ],
)
def test_a_size_that_cannot_be_is_refused_in_one_line(build, kwargs, said):
    with pytest.raises(ValueError) as error:
        build(**kwargs)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_fact_belongs_to_the_first_paragraph_of_its_title_that_has_its_sentence(tmp_path):
    record = {
        "_id": "1",
        "question": "Who?",
        "answer": "Ann",
        "supporting_facts": [["A", 1], ["A", 0], ["A", 7]],
        "context": [["A", ["Short."]], ["A", ["Long.", " It is this."]], ["B", ["B."]]],
    }
    (tmp_path / "hotpot.json").write_text(json.dumps([record]))
    (example,) = read_hotpotqa(str(tmp_path / "hotpot.json")).examples
    assert example.evidence == (1, 0)
    assert [example.paragraphs[p][1][start:end] for p, start, end in example.spans] == [
        " It is this.",
        "Short.",
    ]


def test_hotpotqa_evidence_are_the_paragraphs_with_supporting_facts(real_data):
    examples = read_hotpotqa(str(real_data / "hotpotqa/hotpot_train_100.json")).examples
    by_question = {example.question: example for example in examples}
    example = by_question["If Gallu is a demon Lilu is what?"]
    assert [example.paragraphs[i][0] for i in example.evidence] == ["Alû", "Lilu (mythology)"]
    sentences = [example.paragraphs[p][1][start:end] for p, start, end in example.spans]
    assert all(sentence.strip().endswith((".", '"')) for sentence in sentences)
    assert len(examples) == 100


@pytest.mark.parametrize(("name", "documents"), [("hotpot_dev_300", 200), ("hotpot_train_100", 100)])
def test_a_benchmark_is_built_from_real_hotpotqa(real_data, tmp_path, name, documents):
    source = str(real_data / f"hotpotqa/{name}.json")
    tokenizer = load_tokenizer("world")
    draft = among_distractors(
        read_hotpotqa(source).examples, tokenizer=tokenizer, split="dev", seed=0, documents=documents
    )
    written = write_task_set(tmp_path / "set", draft, Card("hotpotqa"), tokenizer)
    assert len(written) == int(name.rpartition("_")[2])
    assert {len(task.documents) for task in written} == {documents}


def test_musique_evidence_follows_the_decomposition(real_data):
    options = DrawnFile(source=str(real_data / "musique/musique_train_60.json"))
    examples = SOURCES["musique"].make(options, load_tokenizer()).examples
    example = examples[0]
    assert example.meta["steps"][0] == "What company published Journal of Psychotherapy Integration?"
    assert "Psychotherapy Integration" in example.paragraphs[example.evidence[0]][0]
    assert example.answers == ("G. Stanley Hall", "Stanley Hall")
    assert min(len(example.evidence) for example in examples) >= 2
