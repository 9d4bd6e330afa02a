"""Complete files and folders, and errors of a full disk."""

import errno
import os
import time

import pytest

from memenvs.core.files import (
    lock_file,
    read_json,
    read_sealed,
    whole_file,
    whole_folder,
    write_json,
    write_sealed,
    write_text,
)

FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")


def test_a_file_is_written_whole_with_the_folders_above_it(tmp_path):
    write_json(tmp_path / "a" / "b.json", {"a": [1, "é"]})
    assert read_json(tmp_path / "a" / "b.json") == {"a": [1, "é"]}
    assert os.listdir(tmp_path / "a") == ["b.json"]


def test_a_file_is_unchanged_if_the_block_fails(tmp_path):
    write_text(tmp_path / "file", "old")

    def interrupted():
        with whole_file(tmp_path / "file") as work:
            work.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_two_writers_of_one_place_write_under_different_names(tmp_path, whole):
    with whole(tmp_path / "out") as one, whole(tmp_path / "out") as other:
        assert one != other
        for work, text in ((one, "one"), (other, "other")):
            (work / "text" if work.is_dir() else work).write_text(text)
    out = tmp_path / "out"
    assert (out / "text" if out.is_dir() else out).read_text() == "one"  # whose block ended last
    assert os.listdir(tmp_path) == ["out"]


def test_the_file_that_a_link_leads_to_is_replaced(tmp_path):
    write_text(tmp_path / "file", "old")
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_leftovers_of_a_killed_writer_are_removed_after_a_day(tmp_path):
    old, young, foreign = (
        tmp_path / name for name in (".out.partial-1", ".out.partial-2", ".other.partial-1")
    )
    for path in (old, young, foreign):
        path.write_text("half")
    day_before = time.time() - 86_401
    os.utime(old, (day_before, day_before))
    os.utime(foreign, (day_before, day_before))
    write_text(tmp_path / "out", "all")
    assert sorted(os.listdir(tmp_path)) == [".other.partial-1", ".out.partial-2", "out"]


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "file must be an object, got")],
)
def test_a_file_that_is_not_a_json_object_is_refused_in_one_line_with_its_path(tmp_path, text, why):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=why) as refused:
        read_json(tmp_path / "file", "delete it")
    assert str(tmp_path / "file") in str(refused.value)
    assert str(refused.value).endswith("; delete it")
    assert "\n" not in str(refused.value)


@FULL
@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_a_full_disk_is_named_with_the_path(tmp_path, whole):
    def fill():
        with whole(tmp_path / "out"), open("/dev/full", "w") as file:
            file.write("x")

    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'out'}'"):
        fill()
    assert os.listdir(tmp_path) == []


@FULL
def test_a_full_disk_is_named_by_a_run_s_log(tmp_path):
    run = pytest.importorskip("memenvs.baselines.checkpoint", reason="needs the extra `train`")
    kept = run.TrainingLog(tmp_path)
    try:
        (tmp_path / "log.jsonl").unlink()
        (tmp_path / "log.jsonl").symlink_to("/dev/full")
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'log.jsonl'}'"):
            kept.write(1, {"loss": 0.5})
    finally:
        kept.close()


def test_a_lock_keeps_others_out_until_its_file_closes(tmp_path):
    with lock_file(tmp_path / "lock", wait=False), pytest.raises(BlockingIOError):
        lock_file(tmp_path / "lock", wait=False)
    lock_file(tmp_path / "lock", wait=True).close()


def test_a_file_system_without_locks_is_written_to_all_the_same(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def flock(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    lock_file(tmp_path / "lock", wait=True).close()


def test_a_sealed_card_comes_back_and_one_that_was_changed_or_has_another_format_is_refused(tmp_path):
    write_sealed(tmp_path / "card", {"format": 2, "count": 3})
    assert read_sealed(tmp_path / "card", 2) == {"format": 2, "count": 3}
    with pytest.raises(ValueError, match="has format 2, this memenvs reads 3"):
        read_sealed(tmp_path / "card", 3)
    write_json(tmp_path / "card", {**read_json(tmp_path / "card"), "count": 4})
    with pytest.raises(ValueError, match="its seal does not fit the rest"):
        read_sealed(tmp_path / "card", 2)
