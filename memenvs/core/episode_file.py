"""The file of episodes: a line of JSON for each, which `memenvs view` shows.

`EpisodeWriter` appends to it, `read_episodes` reads it; docs/view.md lists the fields.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from msgspec.structs import replace

from memenvs.core.data import Whole, convert, shown
from memenvs.core.env import MAX_REPLY_CHARS, Info, text_env_of
from memenvs.core.episode import Episode, Ids, Reply, TokenSpans, Turn, observation_text
from memenvs.core.files import locked, path_in_errors, whole_lines
from memenvs.core.spaces import clean_text, replace_surrogates

VERSION = 3
EPISODES = "episodes.jsonl"
"""Name of the file in the folder of a run."""

_OF_TASK = ("question", "answers", "target", "evidence", "sentences")
_OF_TURN = ("evidence_in_chunk", "chunk_span", "memory", "memory_span")
"""What a line keeps of `info["privileged"]`: of the first info, and of each."""
_NUMBERS = frozenset({"signals", "rewards", "metrics", "value", "logprobs", "advantages", "turn_rewards"})
"""Fields of numbers, in which null is NaN: what could not be measured."""
_BEGINNING = f'{{"version":{VERSION},'.encode()


class EpisodeWriter:
    """Appends episodes to a file, each as one line of JSON.

        with EpisodeWriter("episodes.jsonl") as writer:
            writer.write(episode)

    Several processes may write to one file: each line is written under a lock, after removing an incomplete
    last line that a killed process left.

    Args:
        path: path of the file; folders above it are made.
        texts: keep what was read (observations, memories, evidence); without it a line is a few kilobytes.

    Raises:
        ValueError: the file holds something else; it is left as it is.
        OSError: it cannot be written; with the path.
    """

    def __init__(self, path: str | Path, *, texts: bool = True) -> None:
        self.path, self.texts = Path(path), texts
        with path_in_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self.path.open("ab+")
            self._file.seek(0)
            first = self._file.readline(len(_BEGINNING) + 8)
            if not (_BEGINNING.startswith(first) or re.match(rb'{"version": ?%d,' % VERSION, first)):
                self._file.close()
                raise ValueError(
                    f"{self.path} does not begin with an episode of version {VERSION}; give another file"
                )

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, episode: Episode, policy: Any = None) -> None:
        """Write an episode; with a policy that has `spans`, also the characters of its tokens."""
        line = encode(with_spans(episode, policy) if hasattr(policy, "spans") else episode, texts=self.texts)
        with path_in_errors(self.path), locked(self._file):
            _cut_incomplete_line(self._file)
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RecordEpisodes(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Write every episode that ends to a file; for loops over a text environment that keep no `Episode`.

    The signals and credits of a `RewardWrapper` inside are written too.

    Args:
        env: a text environment, wrapped or not.
        path: path of the file, which is appended to.

    Raises:
        ValueError: it is not a text environment, or the file holds something other than episodes.
        OSError: the file cannot be written.
    """

    def __init__(self, env: gym.Env[Any, Any], path: str | Path) -> None:
        text_env_of(env)  # raises for another kind
        RecordConstructorArgs.__init__(self, path=str(path))
        gym.Wrapper.__init__(self, env)
        self._path = Path(path)
        EpisodeWriter(path).close()  # raises here, not at the end of the first episode
        self._episode = Episode()
        self._turn = Turn("", {})  # which waits for its reply

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an unfinished one is not written."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode = Episode.of_reset(self.env, seed)
        self._turn = self._episode.begin(self.env, observation, info)
        return observation, info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, Info]:
        """Play a reply; the last one of an episode writes the episode."""
        result = self.env.step(action)
        self._turn = self._episode.play(self._turn, Reply(action), result)
        if self._episode.over:
            with EpisodeWriter(self._path) as writer:
                writer.write(self._episode)
        return result


def with_spans(episode: Episode, policy: TokenSpans) -> Episode:
    """An episode whose replies say which characters their tokens are."""
    turns = [
        replace(turn, reply=replace(turn.reply, spans=policy.spans(turn.reply.ids)))
        if len(turn.reply.ids)
        else turn
        for turn in episode.turns
    ]
    return replace(episode, turns=turns)


def read_lines(path: str | Path) -> Iterator[tuple[str, Episode]]:
    """The lines of a file of episodes, each with the episode.

    An incomplete last line is left out: it is being written, or its process was killed.

    Raises:
        ValueError: a line is not an episode; with its number.
        OSError: the file cannot be read.
    """
    for place, raw in whole_lines(path):
        try:
            line = raw.decode("utf-8")
            episode = decode(line)
        except ValueError as error:
            raise ValueError(
                f"{place} is not an episode ({error}); remove the line, or play it again"
            ) from error
        yield line, episode


def read_episodes(path: str | Path) -> list[Episode]:
    """The episodes of a file; errors are those of `read_lines`."""
    return [episode for _, episode in read_lines(path)]


def encode(episode: Episode, *, texts: bool = True) -> bytes:
    """An episode as a line of JSON.

    The line also has `turn_rewards`, which a reader of the file would otherwise have to derive. An
    observation that is the one before with its reply and the feedback is null, and so is a NaN.

    Args:
        episode: ended or not.
        texts: keep what was read, as for `EpisodeWriter`.
    """
    turns: list[Turn] = []
    expected: str | None = None  # the observation before, its reply and the feedback
    for turn in episode.turns:
        reply = turn.reply
        has_observation = turn.observation is not None
        observation = (
            (observation_text(turn.observation) if has_observation else expected or "") if texts else ""
        )
        line = replace(
            turn,
            observation=None if texts and not turn.fresh and observation == expected else observation,
            before={} if turns else _kept(turn.before, (*_OF_TASK, *_OF_TURN) if texts else (), turn),
            reply=replace(
                reply,
                text=replace_surrogates(reply.text),
                # Nothing trains on a file, which keeps no prompts, so short numbers are enough.
                logprobs=np.round(reply.logprobs, 4),
                read=reply.read[:0],
            ),
            info=_kept(turn.info, _OF_TURN if texts else (), turn),
        )
        turns.append(line)
        expected = _continued(line, observation)
    advantages = np.array([float(f"{value:.4g}") for value in episode.advantages])
    plain = msgspec.to_builtins(
        replace(episode, turns=turns, advantages=advantages), enc_hook=_to_plain, str_keys=True
    )
    for turn in plain.get("turns", ()):
        turn["reply"] = {name: value for name, value in turn["reply"].items() if value != []}
    if not len(advantages):
        del plain["advantages"]
    whole = {"version": VERSION, **plain, "turn_rewards": episode.turn_rewards}
    try:
        return msgspec.json.encode(whole) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(whole, ensure_ascii=False)
        return msgspec.json.encode(json.loads(replace_surrogates(text))) + b"\n"


def decode(line: bytes | str) -> Episode:
    """The episode of a line. Its infos hold what the file keeps of them, and its replies no prompt.

    Raises:
        ValueError: the line is not an episode.
    """
    try:
        plain = _with_nan(msgspec.json.decode(line))
        version = plain.get("version") if isinstance(plain, dict) else None
        if version != VERSION:
            raise ValueError(f"its version must be {VERSION}, got {version}")
        episode = msgspec.convert(plain, Episode, dec_hook=_to_array)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    for name, numbers in episode.measured.items():
        signalled = {number for number, turn in enumerate(episode.turns) if name in turn.signals}
        if unknown := [number for number in numbers if number not in signalled]:
            raise ValueError(f"measured says {name!r} at turns without a signal of that name: {unknown}")
    _check_turns(episode.turns)
    for last, turn in itertools.pairwise(episode.turns):
        turn.before = last.info
        if turn.observation is None:
            turn.observation = _continued(last, last.observation)
    return episode


class _Privileged(msgspec.Struct):
    question: str = ""
    answers: list[list[str]] = []
    target: str = ""
    evidence_in_chunk: list[str] = []
    chunk_span: tuple[int, int] | None = None


class _KeptInfo(msgspec.Struct):
    """What a line keeps of an info (`_kept`)."""

    turn: Whole
    context: Literal["append", "rewrite"]
    feedback: str
    rewards: dict[str, float]
    privileged: _Privileged


def _check_turns(turns: Sequence[Turn]) -> None:
    """Refuse turns whose parts do not fit together, or whose infos lack what `_kept` keeps."""
    for number, turn in enumerate(turns):
        where = f"turns[{number}]"
        if number == 0:
            convert(turn.before, _KeptInfo, f"{where}.before")
        convert(turn.info, _KeptInfo, f"{where}.info")
        if not (isinstance(turn.observation, str) or (number and turn.observation is None)):
            raise ValueError(f"{where}.observation must be a string, got {shown(turn.observation)}")
        count, reply = (len(turn.reply.ids),), turn.reply
        shapes = [reply.ids.shape, reply.logprobs.shape, reply.spans.shape]
        if shapes[:2] != [count, count] or shapes[2] not in ((0,), (*count, 2)):
            raise ValueError(f"{where}.reply has ids, logprobs and spans of the shapes {shapes}")
        if strange := [credit for credit in itertools.chain(*turn.credits.values()) if credit.turn != number]:
            raise ValueError(f"{where} has a credit of turn {strange[0].turn}")


def _continued(turn: Turn, observation: str) -> str:
    """The observation after a turn in an episode whose prompt grows."""
    return observation + clean_text(turn.action, MAX_REPLY_CHARS) + str(turn.info["feedback"])


def _kept(info: Info, fields: Sequence[str], turn: Turn) -> Info:
    """What a line keeps of an info of a turn, whose credits hold what methods paid."""
    privileged, rewrites = info.get("privileged", {}), info["context"] == "rewrite"
    names = [name for name in fields if name in privileged and (rewrites or name != "memory")]
    kept = {name: info[name] for name in ("turn", "context", "feedback")}
    rewards = {name: value for name, value in info["rewards"].items() if name not in turn.credits}
    return {**kept, "rewards": rewards, "privileged": {name: privileged[name] for name in names}}


def _with_nan(value: Any, number: bool = False) -> Any:
    """Plain data with NaN for null inside fields of numbers."""
    if isinstance(value, dict):
        return {name: _with_nan(inner, number or name in _NUMBERS) for name, inner in value.items()}
    if isinstance(value, list) and value and (isinstance(value[0], dict) or (number and None in value)):
        return [_with_nan(inner, number) for inner in value]
    return math.nan if value is None and number else value


def _to_plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else dict(value)


def _to_array(kind: Any, value: Any) -> Any:
    array, wanted = np.array(value), np.int64 if kind == Ids else np.float64
    if (array.size and not np.can_cast(array.dtype, wanted, "same_kind")) or array.dtype == bool:
        raise ValueError(f"numbers must be {wanted.__name__}, got {shown(value)}")
    return array.astype(wanted)


def _cut_incomplete_line(file: BinaryIO) -> None:
    """Cut a file that is open for appending after its last line end."""
    if size := file.seek(0, 2):
        # Mapped, as the file may be larger than memory and its last line megabytes long.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        if whole < size:
            file.truncate(whole)
