"""`memenvs build … --holdout N`: questions set aside in a task set of their own."""

import pytest
from build_command import command

from memenvs.tasks.taskset import open_tasks


@pytest.fixture
def divided(tmp_path, source_file):
    """Builds questions of one's own with some set aside: the rest, and those."""

    def make(records, holdout, *args, source="jsonl"):
        file = source_file("questions.jsonl", records)
        out = tmp_path / "set"
        assert command(source, "--source", file, *args, "--holdout", holdout, "--out", out) == 0
        return both(out)

    return make


def both(out):
    return open_tasks(out), open_tasks(f"{out}-holdout")


def asked(tasks):
    return [" ".join(task.question.casefold().split()) for task in tasks]


def read(tasks):
    """The texts of each task's documents."""
    return [set(tasks.texts(task.documents)) for task in tasks]


def own(number, question=None, documents=1):
    """A question with its documents, the first of which is its evidence."""
    return {
        "question": question or f"Who built dam {number}?",
        "answers": [f"Ann {number}"],
        "documents": [{"title": f"T{number}.{i}", "text": f"text {number}.{i}"} for i in range(documents)],
        "evidence": [0],
    }


def test_the_questions_are_divided_and_none_is_lost(divided):
    rest, held = divided([own(i) for i in range(20)], 5)
    assert (len(rest), len(held)) == (15, 5)
    assert sorted(asked(rest) + asked(held)) == sorted(f"who built dam {i}?" for i in range(20))


def test_num_tasks_counts_the_tasks_that_are_not_set_aside(divided):
    rest, held = divided([own(i) for i in range(20)], 5, "--num-tasks", 7)
    assert (len(rest), len(held)) == (7, 5)
    assert not {*asked(rest)} & {*asked(held)}


def test_a_question_that_comes_again_is_on_one_side(divided):
    records = [own(i) for i in range(10)]
    records += [own(i, question=f"WHO built  dam {i - 10}?") for i in range(10, 20)]
    rest, held = divided(records, 6)
    assert len(held) == 6
    assert not {*asked(rest)} & {*asked(held)}


def test_questions_about_one_text_are_on_one_side(divided):
    records = [{**own(i), "documents": own(i // 3)["documents"]} for i in range(30)]
    rest, held = divided(records, 6)
    assert len(held) == 6
    assert not set.union(*read(rest)) & set.union(*read(held))


def test_one_text_is_divided_where_it_is_all_there_is(divided):
    rest, held = divided([{**own(i), "documents": own(0)["documents"]} for i in range(10)], 4)
    assert (len(rest), len(held)) == (6, 4)


def test_the_same_words_about_other_texts_are_other_questions(divided):
    rest, held = divided([own(i, question="Who built it?") for i in range(10)], 4)
    assert (len(rest), len(held)) == (6, 4)


def test_distractors_of_the_rest_are_not_from_questions_set_aside(divided):
    records = [own(i, documents=3) for i in range(20)]
    rest, held = divided(records, 5, "--documents", 12, "--num-tasks", 40)
    assert (len(rest), len(held)) == (40, 5)
    needed = {text for task in held for text in held.texts(task.evidence)}
    assert not needed & set.union(*read(rest))


def test_questions_to_be_searched_are_divided(divided):
    records = [{"id": str(i), "question": f"Who {i}?", "golden_answers": ["Ann"]} for i in range(12)]
    rest, held = divided(records, 4, source="nq")
    assert (len(rest), len(held)) == (8, 4)
    assert not {*asked(rest)} & {*asked(held)}


@pytest.mark.parametrize(
    "args",
    [
        ("world", "--entities", 100, "--documents", 5),
        ("niah", "--tokens", 600),
        ("aggregate", "--tokens", 5000),
        ("mrcr_world", "--tokens", 2000),
        ("ruler", "--kind", "cwe", "--tokens", 600),
        ("mix", "--source", "world-test"),
    ],
)
def test_made_tasks_are_divided_too(tmp_path, args):
    assert command(*args, "--num-tasks", 10, "--holdout", 4, "--out", tmp_path / "set") == 0
    rest, held = both(tmp_path / "set")
    assert (len(rest), len(held)) == (10, 4)
    whole = [
        {(task.question, *sorted(tasks.texts(task.documents))) for task in tasks} for tasks in (rest, held)
    ]
    assert not whole[0] & whole[1]


def test_the_seed_chooses_the_questions(divided):
    records = [own(i) for i in range(20)]
    held = [asked(divided(records, 5, "--documents", 1, "--seed", seed)[1]) for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]


def test_the_cards_say_which_part_a_set_is(divided):
    rest, held = (tasks.card.arguments for tasks in divided([own(i) for i in range(6)], 2))
    assert rest["holdout"] == held["holdout"] == 2
    assert "part" not in rest
    assert held["part"] == "holdout"


@pytest.mark.parametrize("count", [3, 4, -1])
def test_questions_cannot_all_be_set_aside(refused_records, count):
    line = refused_records("jsonl", *(own(i) for i in range(3)), args=(f"--holdout={count}",))
    assert str(count) in line


def test_joined_questions_are_divided_before_they_are_joined(refused):
    assert refused("multi", "--source", "world-test", "--objectives", 2, "--holdout", 4)


def test_nothing_is_written_where_the_second_folder_is_not_a_task_set(refused_records, tmp_path):
    (tmp_path / "refused-holdout").mkdir()
    (tmp_path / "refused-holdout" / "mine.txt").write_text("mine")
    assert refused_records("jsonl", *(own(i) for i in range(6)), args=("--holdout", 2))
