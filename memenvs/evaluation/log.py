"""Records of episodes, in memory and in a folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from memenvs.core.env import MAX_REPLY_CHARS, Info
from memenvs.core.files import naming, read_json, write_json, write_text
from memenvs.core.spaces import clean_text


class Pair(NamedTuple):
    """Which episode: the `sample`-th of a task, both from 0."""

    task: int
    sample: int


@dataclass
class Record:
    """An episode that has ended, or failed.

    Attributes:
        task: number of the task.
        sample: which of the task's episodes.
        id: of the task.
        seed: of the reset, so that the replies can be played again.
        end: `"terminated"` or `"truncated"`; empty if it failed.
        error: why it failed; empty if it ended.
        turn_rewards: of each turn.
        metrics: `return`, the environment's, and what the policy counted.
        replies: of each turn.
    """

    task: int
    sample: int
    id: str
    seed: int
    end: str = ""
    error: str = ""
    turn_rewards: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)

    @property
    def pair(self) -> Pair:
        """Which episode it is."""
        return Pair(self.task, self.sample)

    def say(self, reply: str) -> None:
        """Keep a reply as the environment reads it."""
        self.replies.append(clean_text(reply, MAX_REPLY_CHARS))

    def finish(self, end: str, info: Info, counted: dict[str, float]) -> None:
        """Keep how it ended, from the last info and what the policy counted."""
        self.end, self.turn_rewards = end, [float(reward) for reward in info["turn_rewards"]]
        measured = {"return": sum(self.turn_rewards), **info["metrics"], **counted}
        self.metrics = {name: float(value) for name, value in measured.items()}

    def to_json(self) -> str:
        """The record in one line."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Record:
        """The record of a line.

        Raises:
            ValueError: it is not one.
        """
        try:
            found = cls(**json.loads(line))
            known = isinstance(found.task, int) and isinstance(found.sample, int)
            if known and all(isinstance(value, (int, float)) for value in found.metrics.values()):
                return found
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(repr(error)) from error
        raise ValueError("a number is none")


SETTING, EPISODES, RESULTS, TABLE = "setting.json", "episodes.jsonl", "results.json", "results.md"
LOCK = ".lock"


class RunLog:
    """The records of a run, kept in a folder where one is given.

    Of what an earlier run left, episodes that ended are kept; a torn last line and episodes that failed are
    dropped, to be played again. `records` holds all but the replies, which may be long, by task and sample.

    Args:
        folder: made if it is not there; None keeps nothing on disk.
        setting: what decides an episode, plain data; a folder holds episodes of one setting.

    Raises:
        ValueError: the folder is of another setting, holds something else, its lines cannot be read, or
            another run is writing to it.
    """

    def __init__(self, folder: Path | None, setting: dict[str, Any]) -> None:
        self.records: dict[Pair, Record] = {}
        self._file: TextIO | None = None
        self._lock: TextIO | None = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(folder)
        try:
            self._open(folder, setting)
        except BaseException:
            self.close()
            raise

    def _open(self, folder: Path, setting: dict[str, Any]) -> None:
        """Take over what an earlier run left."""
        path = folder / EPISODES
        kept = {record.pair: record for record in _read(path) if not record.error}
        check_folder(folder, setting, begun=bool(kept))
        write_text(path, "".join(record.to_json() + "\n" for record in kept.values()))
        self.records = {pair: replace(record, replies=[]) for pair, record in kept.items()}
        self._file = path.open("a", encoding="utf-8")

    def keep(self, record: Record) -> None:
        """Write a record down, at once."""
        self.records[record.pair] = replace(record, replies=[])
        if self._file:
            with naming(self._file.name):
                self._file.write(record.to_json() + "\n")
                self._file.flush()

    def close(self) -> None:
        """Close the file, and let another run have the folder."""
        for held in (self._file, self._lock):
            if held:
                held.close()


def check_folder(folder: Path, setting: dict[str, Any], *, begun: bool) -> None:
    """Write a folder's setting, or compare it with the one by which its episodes were played.

    Args:
        folder: of the run.
        setting: of the run.
        begun: whether an episode was kept there; until then a mistaken setting can be mended.

    Raises:
        ValueError: they differ, or the folder holds something else.
    """
    path = folder / SETTING
    if not begun:
        other = sorted(item.name for item in folder.iterdir() if not item.name.startswith("."))
        if other and not path.exists():
            raise ValueError(f"{folder} holds {other[0]!r} and no {SETTING}; choose another --out")
        write_json(path, setting)
        return
    try:
        before = read_json(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} holds episodes and no {SETTING}; choose another --out") from error
    now = json.loads(json.dumps(setting))  # as a file would hold it
    for name in [*now, *(name for name in before if name not in now)]:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{folder} was begun with {name} = {json.dumps(before.get(name))}, not "
                f"{json.dumps(now.get(name))}; choose another --out, or give what it was begun with"
            )


def _hold(folder: Path) -> TextIO | None:
    """Keep other runs out of a folder until the file that is returned closes, however this process ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two runs at once would lose lines of one of them
        return None
    file = (folder / LOCK).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ValueError(
            f"another run is writing to {folder}; wait for it, or choose another --out"
        ) from None
    except OSError:  # some network file systems know no locks
        pass
    return file


def _read(path: Path) -> list[Record]:
    """Records of a file; a last line without an end was torn when a run died."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(Record.from_json(line.decode("utf-8")))
        except ValueError as error:
            raise ValueError(f"{path}:{number} is no episode ({error}); remove the line") from error
    return records
