"""The folder of a run: its setting, a line for each episode as it ends, and the results."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from memenvs.core.files import hold_folder, read_json, write_json, write_text
from memenvs.rollout.records import Episode, EpisodeWriter, read_records

SETTING, EPISODES, RESULTS, TABLE = "setting.json", "episodes.jsonl", "results.json", "results.md"
COST = "cost.json"


class Pair(NamedTuple):
    """Which episode: the `sample`-th of a task, both from 0."""

    task: int
    sample: int


class RunLog:
    """The episodes of a run, kept in a folder where one is given.

    Finished episodes of an earlier run are kept; failed ones and an incomplete last line are dropped, to be
    played again. `episodes` holds their results without turns and replies, which may be long.

    Args:
        folder: made if it does not exist; None keeps nothing on disk.
        setting: what decides an episode, plain data; a folder has episodes of one setting.
        texts: also keep what was read; see `EpisodeWriter`.

    Raises:
        ValueError: the folder has another setting or other files, its lines cannot be read, or another run is
            writing to it.
    """

    def __init__(self, folder: Path | None, setting: dict[str, Any], *, texts: bool = True) -> None:
        self.episodes: dict[Pair, Episode] = {}
        self._writer: EpisodeWriter | None = None
        self._open = contextlib.ExitStack()
        if folder is None:
            return
        with contextlib.ExitStack() as opened:
            opened.enter_context(hold_folder(folder))
            path = folder / EPISODES
            lines: dict[Pair, str] = {}
            for line, episode in read_records(path) if path.exists() else ():
                if not episode.error:
                    lines[pair_of(episode)], self.episodes[pair_of(episode)] = line, without_texts(episode)
            check_folder(folder, setting, begun=bool(lines))
            write_text(path, "".join(lines.values()))
            self._writer = opened.enter_context(EpisodeWriter(path, texts=texts))
            self._open = opened.pop_all()

    def keep(self, episode: Episode, policy: Any = None) -> None:
        """Write an episode to the folder; with a policy that has `spans`, also its tokens' characters."""
        self.episodes[pair_of(episode)] = without_texts(episode)
        if self._writer:
            self._writer.write(episode, policy)

    def close(self) -> None:
        """Close the file and release the folder, even if the rest cannot be written."""
        self._open.close()


def check_folder(folder: Path, setting: dict[str, Any], *, begun: bool) -> None:
    """Write a folder's setting, or compare it with the setting of its episodes.

    Args:
        folder: of the run.
        setting: of the run.
        begun: whether the folder has an episode; until then another setting replaces a mistaken one.

    Raises:
        ValueError: they differ, or the folder has other files.
        FileNotFoundError: there are episodes and no setting.
    """
    path = folder / SETTING
    if not begun:
        other = sorted(item.name for item in folder.iterdir() if not item.name.startswith("."))
        if other and not path.exists():
            raise ValueError(f"{folder} holds {other[0]!r} and no {SETTING}; choose another --out")
        write_json(path, setting)
        return
    before = read_json(path, "choose another --out")
    now = json.loads(json.dumps(setting))  # as a file would hold it
    for name in now | before:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{folder} was begun with {name} = {json.dumps(before.get(name))}, not "
                f"{json.dumps(now.get(name))}; choose another --out, or give the setting it was begun with"
            )


def pair_of(episode: Episode) -> Pair:
    """The task and sample of an episode."""
    return Pair(-1 if episode.number is None else episode.number, episode.member)


def without_texts(episode: Episode) -> Episode:
    """An episode without its texts and tokens."""
    return replace(episode, turns=[], replies=[], samples=[], credits={}, advantages=None)
