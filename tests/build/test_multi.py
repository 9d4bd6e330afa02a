"""`build mix`: tasks of several sets as one, by weights, with two measures of difficulty."""

import json

import numpy as np
import pytest
from build_command import command

from memenvs.tasks.context import Reader
from memenvs.tasks.taskset import open_tasks
from memenvs.tasks.tokens import load_tokenizer


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Two sets of a world's questions, an aggregate one, a haystack, and questions alone."""
    folder = tmp_path_factory.mktemp("sets")
    world = ("world", "--entities", 80)
    assert (
        command(*world, "--num-tasks", 12, "--documents", 10, "--hops", 1, 2, "--out", folder / "easy") == 0
    )
    assert command(*world, "--num-tasks", 8, "--documents", 20, "--hops", 4, "--out", folder / "hard") == 0
    assert command("aggregate", "--documents", 60, "--num-tasks", 8, "--out", folder / "many") == 0
    assert command("niah", "--tokens", 600, "--num-tasks", 4, "--out", folder / "needles") == 0
    lines = [json.dumps({"question": f"q{i}?", "answers": [f"a{i}"]}) for i in range(9)]
    (folder / "nq.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_task_of_a_mixture_is_that_of_its_source(sets, tmp_path):
    names = ("easy", "hard", "many")
    assert command("mix", "--source", *(sets / name for name in names), "--out", tmp_path / "mix") == 0
    sources = {name: open_tasks(sets / name) for name in names}
    mixed = open_tasks(tmp_path / "mix")
    assert len(mixed) == 28
    assert list(mixed.card.inputs) == [f"{name}/card.json" for name in names]
    assert (mixed.card.source, mixed.card.arguments["source"]) == ("mix", list(names))
    assert {task.meta["source"] for task in mixed} == set(names)
    for task in mixed:
        source, _, rest = task.id.partition("/")
        assert source == task.meta["source"]
        (was,) = [one for one in sources[source] if rest in (one.id, f"{one.id}-2")]
        assert (task.question, task.answers) == (was.question, was.answers)
        assert mixed.document_texts(task.documents) == sources[source].document_texts(was.documents)
        assert mixed.document_texts(task.evidence) == sources[source].document_texts(was.evidence)
        assert mixed.needed_sentences(task) == sources[source].needed_sentences(was)
        assert task.meta["hops"] == was.meta["hops"]


def test_the_tokens_of_a_task_are_those_of_its_text(sets, tmp_path):
    assert command("mix", "--source", sets / "easy", sets / "many", "--out", tmp_path / "mix") == 0
    tasks = open_tasks(tmp_path / "mix")
    reader = Reader(tasks, load_tokenizer())
    sizes = [task.meta["tokens"] for task in tasks]
    assert sizes == [len(reader.context(task.documents).gaps) for task in tasks]
    assert tasks.card.counts["max_tokens"] == max(sizes)


def test_every_task_comes_once_before_any_comes_again(sets, tmp_path):
    assert command("mix", "--source", sets / "easy", "--num-tasks", 30, "--out", tmp_path / "mix") == 0
    ids = [task.id for task in open_tasks(tmp_path / "mix")]
    own = {f"easy/{task.id}" for task in open_tasks(sets / "easy")}
    assert set(ids[:12]) == own
    assert set(ids[12:24]) == {f"{name}-2" for name in own}
    assert len(set(ids)) == 30
    assert [name[:-2] for name in ids[12:24]] != ids[:12]


def test_weights_decide_how_often_a_source_is_drawn(sets, tmp_path):
    args = ("--source", sets / "easy", sets / "hard", "--weights", 9, 1, "--num-tasks", 400)
    assert command("mix", *args, "--out", tmp_path / "mix") == 0
    hard = np.mean([task.meta["source"] == "hard" for task in open_tasks(tmp_path / "mix")])
    assert 0.05 < hard < 0.15
    assert open_tasks(tmp_path / "mix").card.arguments["weights"] == [9.0, 1.0]


def test_a_mixture_of_haystacks_is_one(sets, tmp_path):
    assert command("mix", "--source", sets / "needles", sets / "needles", "--out", tmp_path / "mix") == 0
    card = open_tasks(tmp_path / "mix").card
    assert (card.environment, card.metric) == ("MemNIAH-v0", "needle_exact")
    assert {task.meta["source"] for task in open_tasks(tmp_path / "mix")} == {"needles-1", "needles-2"}


def test_questions_alone_are_mixed_for_searching(sets, tmp_path):
    args = ("--source", sets / "nq.jsonl", sets / "nq.jsonl", "--out", tmp_path / "mix")
    assert command("mix", *args) == 0
    tasks = open_tasks(tmp_path / "mix")
    assert (tasks.n_documents, tasks.card.environment) == (0, "MemSearchQA-v0")


@pytest.mark.parametrize("order", [("easy", "nq.jsonl"), ("nq.jsonl", "easy")])
def test_questions_alone_and_questions_over_documents_are_mixed_for_searching(sets, tmp_path, order):
    args = ("--source", *(sets / name for name in order), "--num-tasks", 40)
    assert command("mix", *args, "--out", tmp_path / "mix") == 0
    tasks = open_tasks(tmp_path / "mix")
    assert (tasks.n_documents, tasks.card.environment) == (0, "MemSearchQA-v0")
    easy = {task.id: task for task in open_tasks(sets / "easy")}
    ours = [task for task in tasks if task.meta["source"] == "easy"]
    assert 8 <= len(ours) <= 32  # half of 40 are expected
    for task in ours:
        rest = task.id.removeprefix("easy/")
        (was,) = [one for id, one in easy.items() if rest in (id, f"{id}-2", f"{id}-3")]
        assert (task.question, task.answers, task.documents) == (was.question, was.answers, ())
        assert task.meta["hops"] == was.meta["hops"]
        assert "spans" not in task.meta


def test_another_metric_can_be_given_for_all(sets, tmp_path):
    args = ("--source", sets / "easy", "--metric", "f1", "--out", tmp_path / "mix")
    assert command("mix", *args) == 0
    assert open_tasks(tmp_path / "mix").metric == "f1"


@pytest.mark.parametrize(
    ("sources", "extra", "said"),
    [
        (("easy", "needles"), (), "mix sets of one metric, or give --metric for all"),
        (("easy", "needles"), ("--metric", "f1"), "are shown differently"),
        (("nq.jsonl", "needles"), ("--metric", "em"), "needles asks about one text"),
        (("easy", "hard"), ("--weights", 1), "--weights must be a number for each of 2 sources"),
        (("easy",), ("--num-tasks", 0), "--num-tasks must be a whole number"),
    ],
)
def test_what_cannot_be_mixed_is_one_line_and_leaves_nothing(sets, refused, sources, extra, said):
    assert said in refused("mix", "--source", *(sets / name for name in sources), *extra)
