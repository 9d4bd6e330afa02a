"""Files written whole or not at all, and the SHA-256 hashes that data files are checked against.

A process may be killed at any moment: the old file stays until the new one is complete. Two writers of one
path each write under their own temporary name; the last to finish wins. Nothing is forced to disk (no fsync),
so this protects against killed processes, not against a loss of power.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

import msgspec

from memenvs.core.data import convert, decode
from memenvs.core.errors import one_line

ARGS, LOG = "args.json", "log.jsonl"
"""Files in the folder of a training run: its flags, and the numbers of its steps, a line each."""
CARD, DOCUMENTS, TASKS = "card.json", "documents.arrow", "tasks.arrow"
"""Files in the folder of a task set."""
CACHE = "MEMENVS_CACHE"  # the environment variable that names another cache folder
VERIFY = "MEMENVS_VERIFY"  # the environment variable that switches the check of files off
_STALE = 86_400.0  # seconds after which the leftovers of a killed process are removed
_hashes: dict[tuple[Any, ...], str] = {}  # SHA-256 by a file's identity, size and time of change


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A temporary name for a file; it becomes `path` if the block succeeds, otherwise it is removed.

    Parent folders are created. Where `path` is a link, the file that it points to is replaced.

    Raises:
        OSError: with the path, even if the system did not give it (a full disk).
    """
    out = Path(os.path.realpath(path))
    with path_in_errors(out):
        work = _name_beside(out)
        try:
            yield work
            work.replace(out)
        finally:
            work.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a file of UTF-8 text, whole."""
    with whole_file(path) as work:
        work.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write a file of indented JSON, whole."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, fix: str = "build it again", kind: Any = dict[str, Any]) -> dict[str, Any]:
    """The JSON object in a file, with at least the fields of `kind`, a class of them.

    Raises:
        ValueError: it holds something else; one line that names the file and ends in `fix`.
    """
    fields = decode(path.read_bytes(), dict[str, Any], str(path), fix)
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # an escape of half a pair of surrogates
        raise ValueError(f"{path} is not Unicode ({error.reason}); {fix}") from None
    convert(fields, kind, str(path), fix)
    return fields


def whole_lines(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file, each after its place, `path:number`; an unfinished last one is left out."""
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield f"{path}:{number}", line


@contextlib.contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill; it replaces `path` if the block succeeds, otherwise it is removed.

    Where `path` is a link, the folder that it points to is replaced. The old folder, whatever it holds, is
    deleted only when the new one has taken its place, and is restored if anything, even a signal, prevents
    that. After a kill between the two renames the next writer of `path` restores it.

    Raises:
        OSError: with the path, even if the system did not give it (a full disk).
    """
    out = resolved(path)
    with path_in_errors(out):
        if out.is_file():  # which would be deleted
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(out))
        leftovers = [] if out.exists() else out.parent.glob(f"{glob.escape(_prefix(out))}*/old")
        if old := max(leftovers, key=lambda old: old.parent.stat().st_mtime, default=None):
            old.rename(out)
        work = _name_beside(out)
        new, old = work / "new", work / "old"
        try:  # the name is known before the folder is there, so that a signal at any time leaves neither
            new.mkdir(parents=True)
            yield new
            if out.exists():
                out.rename(old)
            new.rename(out)
        finally:
            if old.exists() and not out.exists():
                old.rename(out)
            shutil.rmtree(work, ignore_errors=True)


def resolved(path: str | Path) -> Path:
    """An absolute path without links and `~`."""
    return Path(os.path.realpath(Path(path).expanduser()))  # Path.resolve raises for a link to itself


def names_apart(paths: Sequence[Path]) -> list[str]:
    r"""Short names of paths: each relative to the folder that they share; of one alone its last name.

    Line ends and other characters that are not printed are escaped.

    >>> names_apart([Path("runs/lexical"), Path("runs/gold\n2")])
    ['lexical', 'gold\\n2']
    """
    if len(paths) == 1:
        names = [paths[0].name or str(paths[0])]
    else:
        whole = [os.path.abspath(path) for path in paths]
        shared = os.path.commonpath(whole)
        names = [os.path.relpath(path, shared) for path in whole]
    return ["".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in name) for name in names]


@contextlib.contextmanager
def path_in_errors(path: str | Path | None) -> Iterator[None]:
    """Add `path` to system errors that name no path, such as "No space left on device".

    A full disk, a used-up quota and a file that is too large are an `OSError` here even where a library
    (safetensors, FAISS) raises its own error for it.
    """
    try:
        yield
    except OSError as error:
        if path and error.errno and error.filename is None:
            error.filename = str(path)
        raise
    except Exception as error:
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if path and os.strerror(number) in str(error) and not isinstance(error, ValueError):
                raise OSError(number, os.strerror(number), str(path)) from error
        raise


@contextlib.contextmanager
def check_written() -> Iterator[None]:
    """Report a file that was cut short, around a block that opens what NumPy, FAISS or bm25s has written.

    They do not notice a disk that is full at the file's end.

    Raises:
        OSError: the file was cut short.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise OSError(errno.ENOSPC, f"The file was cut short ({error}); is the disk full?") from error


@contextlib.contextmanager
def damage_in_one_line(place: str | Path) -> Iterator[None]:
    """Turn the error of safetensors for damaged weights into one that names the file.

    Raises:
        ValueError: the weights are damaged.
    """
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "SafetensorError":  # not imported, because it is an optional dependency
            raise
        raise ValueError(
            f"the weights in {place} are damaged ({one_line(error)}); copy them again"
        ) from error


def lock_file(path: Path, *, wait: bool) -> TextIO:
    """Create and lock a file; the lock ends when the returned file is closed, or with this process.

    Windows and some network file systems have no locks; there the file is only created.

    Args:
        path: of the file.
        wait: whether to wait for another process's lock to end, or to raise.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    file = path.open("w")
    try:
        _flock(file, wait=wait)
    except BlockingIOError:
        file.close()
        raise
    return file


def hold_folder(folder: Path) -> TextIO:
    """Create a folder for the output of a run, and keep other runs out until the returned file is closed.

    Raises:
        ValueError: another run is writing to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return lock_file(folder / ".lock", wait=False)
    except BlockingIOError:
        raise ValueError(
            f"another run is writing to {folder}; wait for it, or choose another --out"
        ) from None


@contextlib.contextmanager
def locked(file: IO[Any]) -> Iterator[None]:
    """Hold a lock on an open file in this block, where there are locks (see `lock_file`)."""
    _flock(file)
    try:
        yield
    finally:
        _flock(file, release=True)


def _flock(file: IO[Any], wait: bool = True, release: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    how = fcntl.LOCK_UN if release else fcntl.LOCK_EX
    try:
        fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # some network file systems have no locks
        pass


def verifying() -> bool:
    """Whether files are checked when they are opened; the environment's MEMENVS_VERIFY=0 skips that."""
    return os.environ.get(VERIFY) != "0"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal; computed once a process while the file does not change."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in _hashes:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            _hashes[key] = digest.hexdigest()
    return _hashes[key]


def describe(path: Path) -> dict[str, Any]:
    """What a card keeps of a file: `{"bytes", "sha256"}`."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def reserve(file: IO[bytes], size: int) -> None:
    """Give an open file its bytes: a full disk is an OSError now, not a SIGBUS once the file is mapped."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)


def check_file(path: Path, promised: Mapping[str, Any]) -> None:
    """Refuse a file that is not the one described; its size is checked always, its SHA-256 if `verifying`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: size or SHA-256 differ; both are named.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; build it again")
    if (size := path.stat().st_size) != promised.get("bytes"):
        raise ValueError(f"{path} has {size} bytes, its card says {promised.get('bytes')}; build it again")
    if verifying() and (digest := sha256(path)) != promised.get("sha256"):
        raise ValueError(
            f"{path} has SHA-256 {digest}, its card says {promised.get('sha256')}: the file was changed or "
            f"damaged after it was built; build it again, or set {VERIFY}=0 to read it anyway"
        )


def write_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a card: JSON fields, and under "seal" the SHA-256 of the others."""
    write_json(path, {**fields, "seal": json_sha256(fields)})


class _Sealed(msgspec.Struct):
    files: dict[str, dict[str, Any]] = {}


def read_sealed(path: Path, version: int | None = None) -> dict[str, Any]:
    """The fields of a card without their seal, which is checked if `verifying`.

    Args:
        path: of the card.
        version: what its field "format" must be; None where it has none.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not a JSON object, has another format, or its seal is not that of its fields.
    """
    fields = read_json(path, kind=_Sealed)
    if version is not None and fields.get("format") != version:
        raise ValueError(
            f"{path} has format {fields.get('format')!r}, this memenvs reads {version}; build it again, or "
            "install the memenvs that made it"
        )
    seal = fields.pop("seal", None)
    if verifying() and seal != json_sha256(fields):
        raise ValueError(
            f"{path} was changed after it was built: its seal does not fit the rest; build it again, or set "
            f"{VERIFY}=0 to read it anyway"
        )
    return fields


def json_sha256(value: Any) -> str:
    """SHA-256 of a JSON value, in hexadecimal; the order of keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _prefix(out: Path) -> str:
    return f".{out.name}.partial-"


def _name_beside(out: Path) -> Path:
    """A new name in the folder of `out`, which is created; old leftovers of killed writers are removed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for work in out.parent.glob(f"{glob.escape(_prefix(out))}*"):
        with contextlib.suppress(OSError):  # another writer may be clearing up too
            if time.time() - work.stat().st_mtime >= _STALE:
                shutil.rmtree(work, ignore_errors=True) if work.is_dir() else work.unlink()
    return out.parent / f"{_prefix(out)}{secrets.token_hex(8)}"


def cache_folder() -> Path:
    """Where what is made once is kept: `MEMENVS_CACHE`, or `memenvs` in `XDG_CACHE_HOME` or in `~/.cache`."""
    variable = os.environ.get(CACHE)
    folder = Path(variable) if variable else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "memenvs")
    return folder.expanduser().absolute()
