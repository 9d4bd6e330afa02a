"""Files that other people made: how they are found, decompressed and told apart."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from memenvs.core.inputs import RefusedFile, input_files
from memenvs.tasks.records import read_rows

ROWS = [{"id": "a", "text": "The dam."}, {"id": "b", "text": "The mill."}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
TABLE = pa.Table.from_pylist(ROWS)


def rows(source, split="train"):
    return [row for _, row in read_rows(str(source), "records", split)]


def in_memory(write):
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def arrow_stream(sink):
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=1)


FILES = {
    "a.jsonl.gz": gzip.compress(LINES),
    "a.jsonl.bz2": bz2.compress(LINES),
    "a.jsonl.xz": lzma.compress(LINES),
    "a.jsonl.lzma": lzma.compress(LINES, format=lzma.FORMAT_ALONE),
    "a.jsonl.zst": pa.compress(LINES, codec="zstd", asbytes=True),
    "a.jsonl.lz4": pa.compress(LINES, codec="lz4", asbytes=True),
    "two members.gz": gzip.compress(LINES[:30]) + gzip.compress(LINES[30:]),
    "two frames.zst": b"".join(
        pa.compress(part, codec="zstd", asbytes=True) for part in (LINES[:9], LINES[9:])
    ),
    "packed twice.gz": gzip.compress(bz2.compress(LINES)),
    "gzip without its ending.jsonl": gzip.compress(LINES),
    "text with the ending of gzip.jsonl.gz": LINES,
    "A.JSONL": LINES,
    "A.JSONL.GZ": gzip.compress(LINES),
    "A.CSV": b"id,text\na,The dam.\nb,The mill.\n",
    "A.TSV.XZ": lzma.compress(b"id\ttext\na\tThe dam.\nb\tThe mill.\n"),
    "a.parquet": in_memory(lambda sink: pq.write_table(TABLE, sink)),
    "A.PARQUET": in_memory(lambda sink: pq.write_table(TABLE, sink)),
    "parquet under another name.bin": in_memory(lambda sink: pq.write_table(TABLE, sink)),
    "a.parquet.zst": pa.compress(
        in_memory(lambda sink: pq.write_table(TABLE, sink)), codec="zstd", asbytes=True
    ),
    "a.arrow": in_memory(arrow_stream),
    "a.feather": in_memory(lambda sink: pa.feather.write_feather(TABLE, sink)),
}


@pytest.mark.parametrize("name", FILES)
def test_records_are_read_from_every_form_whatever_its_name(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    assert rows(tmp_path / name) == ROWS


def archive(name):
    def write(sink):
        with zipfile.ZipFile(sink, "w") as file:
            file.writestr(name, "")

    return in_memory(write)


def tar(sink):
    with tarfile.open(fileobj=sink, mode="w") as file:
        file.addfile(tarfile.TarInfo("a.jsonl"))


def database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("create table a (b)")
    connection.close()
    return path.read_bytes()


UNREAD = {
    "pickle": (pickle.dumps(ROWS), "pickle"),
    "old pickle": (pickle.dumps(ROWS, 0), "pickle"),
    "zip": (archive("a.jsonl"), "unzip"),
    "xlsx": (archive("[Content_Types].xml"), "damaged"),
    "npz": (in_memory(lambda sink: np.savez(sink, a=np.zeros(2))), "archive of NumPy"),
    "npy": (in_memory(lambda sink: np.save(sink, np.zeros(2))), "array of NumPy"),
    "torch": (archive("model/data.pkl"), "torch"),
    "tar": (in_memory(tar), "tar -xf"),
    "tar.gz": (gzip.compress(in_memory(tar)), "tar -xf"),
    "pdf": (b"%PDF-1.7\n", "pdftotext"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "read_hdf"),
    "page": (b"\n<!DOCTYPE html><html>", "web page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "utf-16": (LINES.decode().encode("utf-16"), "-t UTF-8"),
}


@pytest.mark.parametrize("kind", UNREAD)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_what_is_not_read_is_called_by_its_kind_whatever_its_name(tmp_path, kind, name):
    content, hint = UNREAD[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RefusedFile) as refusal:
        rows(tmp_path / name)
    assert hint in str(refusal.value)
    assert str(tmp_path / name) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_database_is_called_so(tmp_path):
    database(tmp_path / "a.jsonl")
    with pytest.raises(RefusedFile, match="sqlite3 -json"):
        rows(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "name", ["a.jsonl.gz", "a.jsonl.bz2", "a.jsonl.xz", "a.jsonl.zst", "a.parquet", "a.arrow"]
)
def test_a_file_that_was_cut_short_is_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name][:-9])
    with pytest.raises(ValueError, match=name) as refusal:
        rows(tmp_path / name)
    assert "\n" not in str(refusal.value)


def test_a_table_whose_first_column_reads_like_code_is_no_pickle(tmp_path):
    (tmp_path / "a.csv").write_text("contents\nAnn\nBo\n")
    assert rows(tmp_path / "a.csv") == [{"contents": "Ann"}, {"contents": "Bo"}]


def fill(folder, *names):
    """Files of one record each, which holds the file's name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"file": name}))
    return folder


def read_names(source, split="train"):
    return [row["file"] for row in rows(source, split)]


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (["part-10.jsonl", "part-2.jsonl", "_SUCCESS", "README.md"], ["part-2.jsonl", "part-10.jsonl"]),
        (["doc1.json", "doc2.json"], ["doc1.json", "doc2.json"]),
        (
            [
                "README.md",
                "data/train-00000-of-00002-0ab1c2d3.jsonl",
                "data/train-00001-of-00002-9f8e7d6c.jsonl",
            ],
            ["data/train-00000-of-00002-0ab1c2d3.jsonl", "data/train-00001-of-00002-9f8e7d6c.jsonl"],
        ),
        (["train.jsonl", "dev.jsonl", "test.jsonl", "dataset_info.json"], ["train.jsonl"]),
        (["dataset_dict.json", "train/data-0.jsonl", "test/data-0.jsonl"], ["train/data-0.jsonl"]),
        (["test-00000-of-00001.jsonl"], ["test-00000-of-00001.jsonl"]),
        ([".cache/a.json", "a.jsonl"], ["a.jsonl"]),
    ],
)
def test_a_folder_is_the_shards_of_its_data_set_in_the_order_of_their_numbers(tmp_path, names, read):
    assert read_names(fill(tmp_path, *names)) == read


def test_another_split_of_a_folder_is_read_when_it_is_asked_for(tmp_path):
    fill(tmp_path, "train.jsonl", "test-0.jsonl", "test-1.jsonl")
    assert read_names(tmp_path, "test") == ["test-0.jsonl", "test-1.jsonl"]


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["corpus.jsonl", "queries.jsonl"], "corpus.jsonl, queries.jsonl"),
        (["fr/a.jsonl", "en/a.jsonl"], "en, fr"),
        (["train-00000-of-00002.jsonl"], "1 of 2"),
        (["README.md"], "no file of records"),
        (["test.jsonl", "dev.jsonl"], "dev.jsonl, test.jsonl"),
    ],
)
def test_a_folder_that_is_not_one_data_set_is_refused(tmp_path, names, hint):
    with pytest.raises((ValueError, OSError), match=hint):
        read_names(fill(tmp_path, *names))


def test_a_glob_names_its_files(tmp_path):
    fill(tmp_path, "a-10.jsonl", "a-9.jsonl", "b-1.jsonl", "inner/a-1.jsonl")
    assert read_names(tmp_path / "a-*.jsonl") == ["a-9.jsonl", "a-10.jsonl"]
    assert read_names(tmp_path / "**" / "a-1.jsonl") == ["inner/a-1.jsonl"]
    with pytest.raises(FileNotFoundError, match="no file at"):
        read_names(tmp_path / "c-*.jsonl")


def test_a_name_with_the_signs_of_a_glob_is_a_name_first(tmp_path):
    fill(tmp_path, "a[1].jsonl", "a1.jsonl")
    assert [path.name for path in input_files(tmp_path / "a[1].jsonl")] == ["a[1].jsonl"]


def test_a_folder_of_save_to_disk_is_read_by_its_arrow_files(tmp_path):
    (tmp_path / "data-00000-of-00001.arrow").write_bytes(FILES["a.arrow"])
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    (tmp_path / "dataset_info.json").write_text("{}")
    assert rows(tmp_path) == ROWS
