"""Files that other people made: found by name, folder or glob, decompressed, told apart by their bytes."""

from __future__ import annotations

import contextlib
import glob
import io
import lzma
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from memenvs.core.data import decode
from memenvs.core.errors import error_line
from memenvs.core.optional import require

PARQUET, ARROW, ARROW_STREAM = "Parquet", "Arrow", "an Arrow stream"
XLSX, PDF = "an Excel workbook (xlsx)", "a PDF"
NPY, NPZ, PAGE, UTF16 = "an array of NumPy", "an archive of NumPy", "a web page", "UTF-16 text"
_PATH = Path(__file__).with_name("kinds.json")
_KINDS = decode(_PATH.read_bytes(), list[tuple[str, str, str]], str(_PATH))
"""A regular expression of a file's first bytes, what such a file is, and a command that converts it."""
_CODECS = "gzip bz2 xz zstd lz4".split()
_COMPRESSED = ".gz .gzip .bgz .bz2 .xz .lzma .zst .zstd .lz4".split()
_RECORDS = ".jsonl .ndjson .jsonlines .json .csv .tsv .parquet .pq .arrow .ipc .feather .xlsx".split()
_TEXTS = ".txt .text .md .markdown .pdf".split()
_ABOUT = "dataset_dict.json dataset_info.json dataset_infos.json state.json".split()  # of a data set


class RefusedFile(ValueError):
    """A file that is not read; the message is one line that names it, says why, and what to do."""


def ending(path: Path) -> str:
    """The ending of a file's name in small letters, without that of its compression."""
    stem, last = os.path.splitext(path.name.lower())
    return os.path.splitext(stem)[1] if last in _COMPRESSED else last


@contextlib.contextmanager
def open_input(path: Path, *kinds: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, decompressed whatever its name: its bytes, and which of some kinds it is; "" for text.

    Raises:
        RefusedFile: it is of another kind than text and these, or its compressed bytes are damaged.
    """
    with contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(path.open("rb"))
        try:
            while True:
                head = file.peek(512)[:512].decode("latin-1")
                matches = (row[1:] for row in _KINDS if re.match(row[0], head, re.DOTALL))
                kind, command = next(matches, ("", ""))
                if kind not in _CODECS:
                    break
                inner = lzma.LZMAFile(file) if kind == "xz" else pa.input_stream(file, compression=kind)
                file = stack.enter_context(io.BufferedReader(inner))
            if kind and kind not in kinds:
                fix = f"make one that is read, as by `{command.format(path)}`"
                raise RefusedFile(f"{path} is {kind}, which is not read here; {fix}")
            yield file, kind
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise RefusedFile(f"{path} is damaged ({error_line(error, 160)}); copy it again") from error


def read_text(path: Path) -> str:
    """The text of a file in UTF-8 or of a PDF, its lines ended by line feeds.

    Raises:
        RefusedFile: it is neither, or it is damaged.
        ImportError: it is a PDF, and the extra `files` is not installed.
    """
    with open_input(path, PDF) as (file, kind):
        content = file.read()
    if kind == PDF:
        pypdf = require("pypdf", "files")
        try:
            return "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages)
        except Exception as error:  # pypdf raises many kinds
            raise RefusedFile(f"{path} is damaged ({error_line(error, 160)}); copy it again") from error
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        fix = f"save it as UTF-8, as by `iconv -f cp1252 -t UTF-8 {path} > {path}.utf8`"
        raise RefusedFile(f"{path} is not UTF-8 from byte {error.start} on; {fix}") from error


def input_files(source: str | Path, what: str = "a file", split: str = "") -> list[Path]:
    """The files that a source names: a file, those that a glob matches, or the shards in a folder.

    Shards are files of records whose names differ only in numbers and hashes, in the order of their numbers;
    of several such sets, that of the split. A folder without files of records may have them in a folder
    inside: its only one, or that of the split. Errors say `what` is wanted.

    Raises:
        FileNotFoundError: there is no such file.
        RefusedFile: a folder holds several sets, or a set lacks a shard.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return _shards(path, what, split)
    if path.exists():  # also a pipe of a shell
        return [path]
    files = [Path(name) for name in glob.glob(str(path), recursive=True) if not os.path.isdir(name)]
    if not files:
        raise FileNotFoundError(f"no file at {source}; give {what}, or hf:NAME")
    return sorted(files, key=_numbered)


def text_files(source: str | Path) -> list[Path]:
    """The texts (.txt, .md, .pdf) in a folder and in the folders inside it, except hidden ones, by name."""
    folder = Path(source).expanduser()
    paths = (path for path in folder.rglob("*") if ending(path) in _TEXTS and path.is_file())
    shown = (path for path in paths if all(part[0] != "." for part in path.relative_to(folder).parts))
    return sorted(shown, key=_numbered)


def _shards(folder: Path, what: str, split: str) -> list[Path]:
    sets, folders = dict[str, list[Path]](), dict[str, list[Path]]()
    for path in sorted(folder.iterdir(), key=_numbered):
        if path.name[0] in "._" or path.name in _ABOUT:
            continue
        if path.is_dir() and any(ending(file) in _RECORDS for file in path.rglob("*")):
            folders[path.name] = [path]
        elif path.is_file() and ending(path) in _RECORDS:
            sets.setdefault(re.sub(r"[0-9a-f]{8,}|[0-9]+", "#", path.name.lower()), []).append(path)
    choices = sets or folders
    if not choices:
        raise FileNotFoundError(f"no file of records in {folder}; give {what}")
    word = re.compile(rf"(?<![a-z]){re.escape(split)}(?![a-z])" if split else "(?!)")
    chosen = [name for name in choices if word.search(name)] if len(choices) > 1 else list(choices)
    if len(chosen) != 1:
        names = ", ".join(files[0].name for files in [*choices.values()][:6])
        raise RefusedFile(f"{folder} holds several sets ({names}); give one, or a glob such as {folder}/*")
    files = choices[chosen[0]]
    if not sets:
        return _shards(files[0], what, split)
    count = re.search(r"-of-0*([1-9][0-9]*)", files[0].name)
    if count and len(files) != int(count[1]):
        raise RefusedFile(
            f"{folder} has {len(files)} of {count[1]} files like {files[0].name}; copy them all"
        )
    return files


def _numbered(path: Path) -> list[tuple[int, str]]:
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split("([0-9]+)", str(path))]
