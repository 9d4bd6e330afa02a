"""Task sets on disk: what is written can be read, and a broken set is refused in one line."""

import hashlib
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from memenvs.core.files import CARD, DOCUMENTS, TASKS, check_file, describe, write_sealed
from memenvs.tasks.taskset import TaskSet, open_tasks


@pytest.fixture
def broken(small_set, tmp_path):
    """A copy to be broken."""
    return shutil.copytree(small_set.path, tmp_path / "set")


def change_card(folder, **changes):
    """A card that says something else, sealed, as if it had been built so."""
    card = json.loads((folder / CARD).read_text())
    del card["seal"]
    write_sealed(folder / CARD, {**card, **changes})


def seal_again(folder, name):
    """Describe a changed file in the card, as if it had been built so."""
    files = json.loads((folder / CARD).read_text())["files"]
    files[name] = describe(folder / name)
    change_card(folder, files=files)


def read(folder, name):
    return pa.ipc.open_file(str(folder / name)).read_all()


def test_a_task_comes_back_as_it_was_built(small_set, examples):
    task = small_set[3]
    assert (task.question, task.answers) == (examples[3].question, (examples[3].answers,))
    assert [small_set.document_texts([i])[0] for i in task.evidence] == [
        "\n".join(examples[3].paragraphs[i]) for i in (0, 2)
    ]
    document, start, end = task.meta["spans"][0]
    assert small_set.texts([document])[0][start:end] == "Thing 3 has code 21."


def test_a_set_is_opened_once_a_process(small_set):
    assert open_tasks(str(small_set.path)) is open_tasks(small_set.path)


def test_a_set_that_was_built_again_is_opened_again(small_set, tmp_path):
    copy = shutil.copytree(small_set.path, tmp_path / "set")
    before = open_tasks(copy)
    (copy / CARD).write_text((copy / CARD).read_text())
    assert open_tasks(copy) is not before


def flip(file, bit):
    """Flip one bit of a file."""
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


@pytest.mark.parametrize("name", [DOCUMENTS, TASKS, CARD])
def test_a_flipped_bit_is_refused_in_one_line_or_changes_nothing(name, small_set, tmp_path):
    before = list(small_set), small_set.document_texts(range(small_set.n_documents)), small_set.card
    bits = np.random.default_rng(0).integers(0, 8 * (small_set.path / name).stat().st_size, 60)
    refused = unchanged = 0
    for number, bit in enumerate(bits.tolist()):
        folder = shutil.copytree(small_set.path, tmp_path / str(number))
        flip(folder / name, bit)
        try:
            opened = TaskSet(folder)
        except ValueError as error:
            refused += "\n" not in str(error)
        else:
            unchanged += (
                list(opened),
                opened.document_texts(range(opened.n_documents)),
                opened.card,
            ) == before
        shutil.rmtree(folder)
    assert refused + unchanged == 60
    assert not unchanged or name == CARD  # white space between its fields


def test_a_damaged_file_is_read_where_the_check_is_switched_off(broken, small_set, monkeypatch):
    text = (broken / DOCUMENTS).read_bytes().index(b"Thing 3 has code 21.")
    flip(broken / DOCUMENTS, 8 * text)
    with pytest.raises(ValueError, match=r"SHA-256 .* MEMENVS_VERIFY=0"):
        TaskSet(broken)
    monkeypatch.setenv("MEMENVS_VERIFY", "0")
    assert "Uhing 3 has code 21." in "".join(TaskSet(broken).document_texts(range(small_set.n_documents)))


@pytest.mark.parametrize("forged", [2**40, -1])
def test_an_offset_outside_the_file_is_refused_even_with_a_valid_seal(broken, forged):
    offsets = np.cumsum([0, *map(len, read(broken, DOCUMENTS)["title"].to_pylist()[:3])])
    data = (broken / DOCUMENTS).read_bytes()
    wrong = offsets.copy()
    wrong[2] = forged
    assert data.count(offsets.tobytes()) == 1
    (broken / DOCUMENTS).write_bytes(data.replace(offsets.tobytes(), wrong.tobytes()))
    seal_again(broken, DOCUMENTS)
    with pytest.raises(ValueError, match=r"documents.arrow is not a valid Arrow file \(.*\); build it again"):
        TaskSet(broken)


def test_a_text_that_is_not_utf8_is_refused_even_with_a_valid_seal(broken):
    data = (broken / DOCUMENTS).read_bytes()
    (broken / DOCUMENTS).write_bytes(data.replace(b"Thing 3 has", b"Thing \xff has"))
    seal_again(broken, DOCUMENTS)
    with pytest.raises(ValueError, match=r"documents.arrow is not a valid Arrow file"):
        TaskSet(broken)


def test_a_file_is_read_for_its_hash_once_a_process_until_it_changes(broken, monkeypatch):
    reads, real = [], hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda *data: reads.append(data) or real(*data))
    promised = describe(broken / DOCUMENTS)
    check_file(broken / DOCUMENTS, promised)
    assert len(reads) == 1
    flip(broken / DOCUMENTS, 8)
    with pytest.raises(ValueError, match="SHA-256"):
        check_file(broken / DOCUMENTS, promised)
    assert len(reads) == 2


def test_an_index_outside_the_set_is_an_index_error(small_set):
    with pytest.raises(IndexError, match=r"40.* 39"):
        small_set[40]
    assert small_set[-1] == small_set[39]


def test_a_missing_folder_says_how_to_build_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"memenvs build"):
        open_tasks(tmp_path / "nowhere")


def test_an_unknown_name_lists_what_ships():
    with pytest.raises(FileNotFoundError, match="world-train"):
        open_tasks("no-such-set")


def test_another_format_names_both(broken):
    change_card(broken, format=99)
    with pytest.raises(ValueError, match="format 99, this memenvs reads 2"):
        TaskSet(broken)


@pytest.mark.parametrize("name", [DOCUMENTS, TASKS])
def test_a_file_cut_short_is_refused_with_both_sizes(broken, name):
    data = (broken / name).read_bytes()
    (broken / name).write_bytes(data[:-100])
    with pytest.raises(ValueError, match=f"has {len(data) - 100} bytes, its card says {len(data)}"):
        TaskSet(broken)


def test_a_file_of_other_content_is_refused(broken):
    (broken / TASKS).write_bytes(b"x" * 1000)
    files = json.loads((broken / CARD).read_text())["files"]
    change_card(broken, files={**files, TASKS: describe(broken / TASKS)})
    with pytest.raises(ValueError, match="not a valid Arrow file"):
        TaskSet(broken)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_a_file_that_is_no_card_is_refused(broken, text):
    (broken / CARD).write_text(text)
    with pytest.raises(ValueError, match=r"card\.json .*; build it again"):
        TaskSet(broken)


@pytest.mark.parametrize(
    ("change", "where"),
    [({"counts": ["x"]}, "counts"), ({"layout": {"header": None, "separator": ""}}, "layout.header")],
)
def test_a_field_of_a_card_that_is_of_another_type_is_refused_in_one_line(broken, change, where):
    change_card(broken, **change)
    with pytest.raises(ValueError, match=rf"card\.json: card\.{where} must be .*; build it again") as error:
        TaskSet(broken)
    assert "\n" not in str(error.value)


def test_a_set_shows_what_it_is():
    shown = repr(open_tasks("niah"))
    assert "100 tasks of bundled niah, 7,371 documents, for MemNIAH-v0 by needle_exact" in shown
