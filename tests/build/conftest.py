"""Builds of records, and refusals of builds, that the tests of all sources share."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_command import command, one_line

from memenvs.tasks.taskset import open_tasks


@pytest.fixture
def source_file(tmp_path):
    """Writes records as Parquet or as JSON, a line each, by the file's name; the file's path."""

    def write(name, records):
        path = tmp_path / name
        if path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(list(records)), path)
        else:
            lines = "".join(f"{json.dumps(record)}\n" for record in records)
            path.write_text(lines, encoding="utf-8")
        return path

    return write


@pytest.fixture
def built(source_file, tmp_path):
    """Builds records by the source of that name; the task set."""

    def make(name, *records, suffix=".jsonl", args=()):
        path = source_file(f"{name}{suffix}", records)
        assert command(name, "--source", path, *args, "--out", tmp_path / "set") == 0
        return open_tasks(tmp_path / "set")

    return make


@pytest.fixture
def refused(tmp_path, capsys):
    """The one line by which a build is refused that leaves no task set."""

    def line(*args):
        capsys.readouterr()
        assert command(*args, "--out", tmp_path / "refused") == 2
        assert not (tmp_path / "refused").exists()
        return one_line(capsys)

    return line


@pytest.fixture
def refused_records(source_file, refused):
    """The one line by which records are refused by the source of that name."""

    def line(name, *records, args=()):
        return refused(name, "--source", source_file("records.jsonl", records), *args)

    return line
