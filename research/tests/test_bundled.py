"""The shipped data are what their own code makes."""

from dataclasses import replace

from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card, open_tasks
from memenvs.tasks.tokens import load_tokenizer
from research.bundled import SPECIAL, VOCABULARY, task_sets, world_tokenizer


def test_the_bundled_task_sets_are_those_that_their_code_makes(tmp_path):
    counter = load_tokenizer()
    for name, draft in task_sets(counter).items():
        made = write_task_set(tmp_path / name, draft, Card(f"bundled {name}"), counter)
        assert list(made) == list(open_tasks(name)), name
        numbers = range(made.n_documents)
        assert made.document_texts(numbers) == open_tasks(name).document_texts(numbers), name
        cards = made.card, open_tasks(name).card  # the files of another Arrow may differ
        assert replace(cards[0], files={}) == replace(cards[1], files={}), name


def test_the_bundled_tokenizer_is_the_one_that_its_code_trains():
    shipped = load_tokenizer("world").backend
    assert world_tokenizer().get_vocab() == shipped.get_vocab()
    assert shipped.get_vocab_size() == VOCABULARY
    assert [shipped.id_to_token(i) for i in range(3)] == SPECIAL


def test_the_bundled_splits_share_no_document():
    titles = [
        set(open_tasks(name).titles(range(open_tasks(name).n_documents)))
        for name in ("world-train", "world-test")
    ]
    assert titles[0].isdisjoint(titles[1])
