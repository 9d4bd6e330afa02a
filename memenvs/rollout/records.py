"""The record of an episode: its turns, rewards and the token ids that a model is trained on; and its file.

A file of episodes has one line of JSON an episode. `EpisodeWriter` appends to it, `read_records` and
`read_episodes` read it; docs/view.md lists the fields.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from memenvs.core.data import convert, decode
from memenvs.core.env import MAX_REPLY_CHARS, End, Info, TextEnv, end_of
from memenvs.core.files import locked, path_in_errors
from memenvs.core.spaces import clean_text, replace_surrogates
from memenvs.core.state import plain_record
from memenvs.models import Ids, Policy, Reply

Floats = NDArray[np.float64]


class Turn(NamedTuple):
    """One observation, the reply to it, and what came back.

    Attributes:
        observation: what the policy read.
        action: its raw reply.
        before: the info that came with the observation.
        next_observation: what came back.
        info: the info that came back.
        end: `"terminated"` or `"truncated"` if the episode ended with this turn; otherwise empty.
    """

    observation: Any
    action: str
    before: Info
    next_observation: Any
    info: Info
    end: End = ""

    @property
    def over(self) -> bool:
        """Whether the episode ended with this turn."""
        return self.end != ""


@plain_record
class Credit(NamedTuple):
    """A value given to a turn, or to a span of characters in its action.

    Attributes:
        turn: number of the turn, from 0.
        value: the value; NaN where none could be found.
        span: [start, end) in characters of the action; None for the whole turn.
        reason: why the value is NaN.
        from_signal: whether the value rests on the turn's signal, so that it is NaN where the signal is.
        advantage: whether the value is an advantage already, which a learner must not normalise again.
    """

    turn: int
    value: float
    span: tuple[int, int] | None = None
    reason: str = ""
    from_signal: bool = True
    advantage: bool = False


def lacks_score(credits: Mapping[str, Sequence[Credit]]) -> bool:
    """Whether a judge or another model gave no score for one of the credits, so the return is unknown."""
    return any(
        math.isnan(credit.value) and not credit.from_signal
        for of_method in credits.values()
        for credit in of_method
    )


@dataclass
class Sample:
    """One training sequence: what a model read and what it sampled, token by token.

    Attributes:
        ids: (T,) tokens.
        response_mask: (T,) bool, the N tokens that the policy sampled.
        logprobs: (T,) nats of the sampled tokens when they were sampled; 0 elsewhere.
        turns: (T,) number of the turn that sampled a token; -1 elsewhere.
        values: (N,) a critic's values of the sampled tokens, if there is one.
        ref_logprobs: (N,) nats of the sampled tokens under a reference model, if there is one.
        teacher: what a teacher reads before the same tokens, a sequence for each turn that it can read.
    """

    ids: Ids
    response_mask: NDArray[np.bool_]
    logprobs: Floats
    turns: NDArray[np.int64]
    values: Floats | None = None
    ref_logprobs: Floats | None = None
    teacher: tuple[Sample, ...] = ()

    @classmethod
    def prompt(cls, ids: Ids) -> Sample:
        """A sequence without sampled tokens."""
        none = np.zeros(len(ids), np.bool_)
        return cls(ids, none, np.zeros(len(ids)), np.full(len(ids), -1, np.int64))

    def trimmed(self) -> Sample:
        """This sequence up to its last sampled token; the feedback after it is in no loss."""
        end = int(np.flatnonzero(self.response_mask)[-1]) + 1
        return Sample(self.ids[:end], self.response_mask[:end], self.logprobs[:end], self.turns[:end])

    def then(self, ids: Ids, logprobs: Floats | None = None, turn: int = -1) -> Sample:
        """This sequence followed by a reply with its log-probabilities, or by feedback without any."""
        sampled = logprobs is not None
        return Sample(
            np.concatenate([self.ids, ids]),
            np.concatenate([self.response_mask, np.full(len(ids), sampled)]),
            np.concatenate([self.logprobs, logprobs if logprobs is not None else np.zeros(len(ids))]),
            np.concatenate([self.turns, np.full(len(ids), turn if sampled else -1, np.int64)]),
        )


@dataclass
class Episode:
    """An episode of K turns, for reward methods, learners, evaluation and adapters.

    Reward wrappers keep the turns with their signals and credits. Whoever plays the episode adds its task,
    the replies with their token ids, and how it ended. What was not recorded is empty.

    Attributes:
        turns: (K,) what was read, replied and returned. In an episode read from a file the infos hold what
            the file has of them.
        outcomes: (K,) the outcome component of each turn, as the environment paid it.
        signals: the signal (K,) of each turn, by name of a reward method; NaN where it is not measured, or
            not yet.
        credits: credits by name of a reward method; empty until it has assigned them.
        turn_rewards: (K,) the reward of every turn; final when every method has assigned its credits.
        error: why it could not be played or scored to its end; empty otherwise. Signals of methods that pay
            at the end are then NaN at every turn, the others at the turn that failed.
        end: how it ended; `"failed"` if the environment or a scorer raised an error.
        group: name of its group, which is the seed of the task that its members play.
        task: the task's id.
        number: number of the task in its task set; None where the seed draws the task.
        member: which episode of its group or task it is, from 0.
        seed: seed of the reset, so that the replies can be replayed; -1 if none was given.
        env: id of the environment.
        step: step of the training run that played it; None elsewhere.
        phase: `"train"` or `"eval"` in a training run.
        replies: (K,) as they were sampled; empty for a prompt that did not fit the window.
        samples: its training sequences in order: one for an episode whose prompts grow (`"append"`), one a
            turn where every prompt is fresh (`"rewrite"`). Each has a sampled token.
        metrics: the environment's, and what whoever played it counted.
        rewards: the sum of each reward component over the turns; NaN where nothing of it could be measured.
        measured: signals by name of a reward method, only of turns where it measured one, without NaN;
            methods that measured none have no entry.
        replaces_outcome: whether a reward method paid for the result in place of the environment.
        length_penalty: what a learner adds to the result for its length (DAPO), at most 0.
        truncated_replies: number of replies that ended at their limit of tokens.
        overlong_prompts: number of turns whose prompt left no room for a reply, which was then empty.
        advantages: (N,) of its sampled tokens, where a learner has computed them.
    """

    turns: list[Turn] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)
    signals: dict[str, list[float]] = field(default_factory=dict)
    credits: dict[str, list[Credit]] = field(default_factory=dict)
    turn_rewards: list[float] = field(default_factory=list)
    error: str = ""
    end: Literal["", "terminated", "truncated", "failed"] = ""
    group: int = 0
    task: str = ""
    number: int | None = None
    member: int = 0
    seed: int = 0
    env: str = ""
    step: int | None = None
    phase: Literal["", "train", "eval"] = ""
    replies: list[Reply] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    measured: dict[str, list[float]] = field(default_factory=dict)
    replaces_outcome: bool = False
    length_penalty: float = 0.0
    truncated_replies: int = 0
    overlong_prompts: int = 0
    advantages: Floats | None = None

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.error or self.end) or (bool(self.turns) and self.turns[-1].over)

    @property
    def final_metrics(self) -> Mapping[str, float]:
        """Its metrics, or those of its last info; empty while it is played."""
        return self.metrics or (self.turns[-1].info.get("metrics", {}) if self.turns and self.over else {})

    @property
    def outcome(self) -> float:
        """What the environment paid for the result, before any reward method changed it."""
        return float(self.final_metrics.get("outcome", math.fsum(self.outcomes)))

    @property
    def success(self) -> bool:
        """Whether the task was solved (the environment's own metric)."""
        return self.final_metrics.get("success") == 1.0

    @property
    def outcome_rewards(self) -> list[float]:
        """(K,) R^O, the part of `turn_rewards` that is the outcome reward.

        Where a method replaces the environment's outcome, it is the reward of the last turn, without the
        credits that are advantages.
        """
        if not self.replaces_outcome:
            return self.outcomes
        return [0.0] * (len(self.turn_rewards) - 1) + [self.turn_rewards[-1] - self.turn_advantages[-1]]

    @property
    def turn_advantages(self) -> list[float]:
        """(K,) the part of `turn_rewards` that is credit marked as an advantage."""
        sums = [0.0] * len(self.turn_rewards)
        for credit in self._advantages():
            sums[credit.turn] += credit.value
        return sums

    def advantage_credits(self, policy: Policy) -> Floats:
        """Credits (N,) that are advantages already, on the tokens of their turn or of their span.

        A token that is partly inside a span gets the whole credit, because it wrote part of the span.

        Args:
            policy: gives the characters of its tokens.
        """
        turns = [np.zeros(0), *(np.zeros(length) for length in self._lengths)]
        for credit in self._advantages():
            inside: Any = slice(None)
            if credit.span is not None:
                places = policy.spans(self.replies[credit.turn].ids)
                inside = (places[:, 0] < credit.span[1]) & (places[:, 1] > credit.span[0])
            turns[credit.turn + 1][inside] += credit.value
        return np.concatenate(turns)

    def _advantages(self) -> list[Credit]:
        every = itertools.chain.from_iterable(self.credits.values())
        return [credit for credit in every if credit.advantage and not math.isnan(credit.value)]

    @property
    def _lengths(self) -> list[int]:
        """(K,) tokens of each reply."""
        return [len(reply.ids) for reply in self.replies]

    @property
    def tokens(self) -> int:
        """Tokens sampled, N."""
        return sum(self._lengths)

    @property
    def turn_ends(self) -> NDArray[np.int64]:
        """(K,) the last token of each turn, counted over all sampled tokens of the episode in order.

        A turn that sampled nothing ends where the turn before it did (a first one at token 0).
        """
        return np.maximum(np.cumsum(self._lengths, dtype=np.int64) - 1, 0)

    def split(self, values: Floats) -> list[Floats]:
        """Numbers (N,) for its sampled tokens, sample by sample."""
        lengths = [int(sample.response_mask.sum()) for sample in self.samples]
        return np.split(values, np.cumsum(lengths)[:-1])

    def by_token(self, turns: Sequence[float] | Floats) -> Floats:
        """Numbers (K,) of turns, given to each token (N,) that the turn sampled."""
        return np.repeat(np.asarray(turns, np.float64), self._lengths)


def observation_text(observation: Any) -> str:
    """The text of an observation, which may have a picture beside it."""
    if isinstance(observation, Mapping):
        observation = observation.get("text", "")
    return replace_surrogates(observation) if isinstance(observation, str) else ""


def text_reply(text: str) -> Reply:
    """A reply without tokens."""
    return Reply(text, np.zeros(0, np.int64), np.zeros(0), finished=True)


def component_sums(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each component over the turns, without those that could not be measured (NaN).

    A component that is NaN at the last turn is NaN: a method that pays at the end could not measure anything,
    and the 0 of the turns before only says that it had not paid yet.

    >>> component_sums([{"format": 0.5, "judge": 0.0}, {"format": 0.5, "judge": float("nan")}])
    {'format': 1.0, 'judge': nan}
    """
    sums = {}
    for name, last in turns[-1].items() if turns else ():
        measured = [turn[name] for turn in turns if not math.isnan(turn[name])]
        sums[name] = math.nan if math.isnan(last) else math.fsum(measured)
    return sums


def valid(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that a learner can use: they did not fail, and a token was sampled."""
    return [episode for episode in episodes if episode.end != "failed" and episode.tokens]


# The file of episodes.

Number = float | None
"""null in the file is NaN in memory: what could not be measured."""


class TurnRecord(msgspec.Struct, kw_only=True):
    """A turn in a line.

    `observation` is None where it is the one before, its reply and the feedback; `context`, which came back,
    where it is that of the line.
    """

    rewards: dict[str, Number]
    feedback: str
    observation: str | None = None
    evidence_in_chunk: list[Any] = []
    chunk_span: list[int] | None = None
    memory: str | None = None
    memory_span: list[int] | None = None
    context: str | None = None


class TokensRecord(msgspec.Struct, kw_only=True):
    """The tokens of a reply in a line."""

    ids: list[int]
    logprobs: list[Number]
    finished: bool
    spans: list[tuple[int, int]] | None = None
    advantages: list[Number] | None = None


class Record(msgspec.Struct, kw_only=True):
    """A line of a file of episodes; docs/view.md says what its fields are."""

    version: Literal[1] = 1
    env: str
    task: str
    number: int | None
    group: int
    member: int
    seed: int
    step: int | None
    phase: Literal["", "train", "eval"]
    context: str
    end: Literal["", "terminated", "truncated", "failed"]
    error: str
    turn_rewards: list[Number]
    metrics: dict[str, Number]
    rewards: dict[str, Number]
    replaces_outcome: bool
    truncated_replies: int
    overlong_prompts: int
    signals: dict[str, list[Number]]
    credits: dict[str, list[dict[str, Any]]]
    question: str
    answers: list[Any]
    target: str
    evidence: list[Any]
    sentences: list[str] = []
    turns: list[TurnRecord]
    tokens: list[TokensRecord]
    replies: list[str]


_COPIED = (
    *("env", "number", "group", "member", "seed", "step", "phase", "error"),
    *("replaces_outcome", "truncated_replies", "overlong_prompts"),
)
"""Fields that are the same in an `Episode` and its `Record`."""
_FACTS = ("question", "answers", "target", "evidence", "sentences")
_NUMBERS = ("turn_rewards", "metrics", "rewards", "signals")

_BEGINNING = b'{"version":1,"env":'  # of a line that `EpisodeWriter` wrote


class EpisodeWriter:
    """Appends episodes to a file, each as one line of JSON.

        with EpisodeWriter("episodes.jsonl") as writer:
            writer.write(episode)

    The episode is that of a `Session`, of `collect`, or `record` of a `RewardWrapper`; for a loop over a
    plain environment there is `RecordEpisodes`. Several processes may write to one file: each line is written
    under a lock, after removing an incomplete last line that a killed process left.

    Args:
        path: of the file; folders above it are made.
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
            if not (_BEGINNING.startswith(first) or re.match(rb'{"version": ?1, ?"env":', first)):
                self._file.close()
                raise ValueError(f"{self.path} does not begin with an episode; give another file")

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, episode: Episode, policy: Any = None) -> None:
        """Write an episode; with a policy that has `spans`, also the characters of its tokens."""
        line = _to_line(to_record(episode, policy, texts=self.texts))
        with path_in_errors(self.path), locked(self._file):
            _cut_incomplete_line(self._file)
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RecordEpisodes(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Write every episode that ends to a file; for loops over a text environment that keep no `Episode`.

    The signals and credits of reward methods inside it are written too.

    Args:
        env: a text environment, wrapped or not.
        path: of the file, which is appended to.

    Raises:
        ValueError: it is not a text environment, or the file holds something other than episodes.
        OSError: the file cannot be written.
    """

    def __init__(self, env: gym.Env[Any, Any], path: str | Path) -> None:
        if not isinstance(env.unwrapped, TextEnv):
            raise ValueError(f"env must be a text environment, got {type(env.unwrapped).__name__}")
        RecordConstructorArgs.__init__(self, path=str(path))
        gym.Wrapper.__init__(self, env)
        self._path = Path(path)
        EpisodeWriter(path).close()  # raises here, not at the end of the first episode
        self._episode, self._last = Episode(), ("", Info())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an unfinished one is not written."""
        observation, info = self.env.reset(seed=seed, options=options)
        inner: Any = self.env.unwrapped
        name = self.spec.id if self.spec else type(inner).__name__
        self._episode = Episode(
            env=name, task=str(info["task"]), number=inner.episode.task, seed=-1 if seed is None else seed
        )
        self._last = observation, info
        return observation, info

    def step(self, action: str) -> tuple[Any, Any, bool, bool, Info]:
        """Play a reply; the last one of an episode writes the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        end = end_of(terminated, truncated)
        self._episode.turns.append(Turn(self._last[0], action, self._last[1], observation, info, end))
        self._last = observation, info
        if end:
            with EpisodeWriter(self._path) as writer:
                writer.write(self._episode)
        return observation, reward, terminated, truncated, info


def to_record(episode: Episode, policy: Any = None, *, texts: bool = True) -> Record:
    """An episode as a line of its file.

    What the episode itself does not hold is taken from the infos of its turns.

    Args:
        episode: ended or not.
        policy: gives the characters of a reply's tokens, by `spans`.
        texts: see `EpisodeWriter`.
    """
    turns = episode.turns
    first: Info = turns[0].before if turns else {}
    last: Info = turns[-1].info if turns else {}
    signals: Any = episode.signals
    credits = episode.credits
    if not (signals or credits):
        signals, credits = last.get("signals", {}), last.get("credits", {})
    paid = {*signals, *credits}  # components that methods paid, which are in the credits
    components = [{name: v for name, v in turn.info["rewards"].items() if name not in paid} for turn in turns]
    privileged = first.get("privileged", {}) if texts else {}
    return Record(
        **{name: getattr(episode, name) for name in _COPIED},
        task=episode.task or str(first.get("task", "")),
        context=first.get("context", ""),
        end=episode.end or (turns[-1].end if turns else ""),
        turn_rewards=[*(episode.turn_rewards or last.get("turn_rewards", []))],
        metrics=dict(episode.final_metrics),
        rewards=dict(episode.rewards or component_sums(components)),
        signals=dict(signals),
        credits={name: [credit._asdict() for credit in some] for name, some in credits.items()},
        question=str(privileged.get("question", "")),
        answers=privileged.get("answers", []),
        target=str(privileged.get("target", "")),
        evidence=privileged.get("evidence", []),
        sentences=privileged.get("sentences", []),
        turns=_turns(turns, components, texts),
        tokens=_tokens(episode, policy),
        replies=[reply.text for reply in episode.replies] or [turn.action for turn in turns],
    )


def read_records(path: str | Path) -> Iterator[tuple[str, Episode]]:
    """The lines of a file of episodes, each with the episode.

    An incomplete last line is left out: it is being written, or its process was killed.

    Raises:
        ValueError: a line is not an episode; with its number.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                return
            try:
                line = raw.decode("utf-8")
                episode = to_episode(decode(line, Record, "the line"))
            except ValueError as error:
                raise ValueError(
                    f"{path}:{number} is not an episode ({error}); remove the line, or update memenvs"
                ) from error
            yield line, episode


def read_episodes(path: str | Path) -> list[Episode]:
    """The episodes of a file; see `read_records`."""
    return [episode for _, episode in read_records(path)]


def _turns(turns: Sequence[Turn], components: Sequence[dict[str, float]], texts: bool) -> list[TurnRecord]:
    found: list[TurnRecord] = []
    expected: str | None = None  # the observation before, its reply and the feedback
    for turn, rewards in zip(turns, components, strict=True):
        shown, before, after = observation_text(turn.observation), turn.before, turn.info
        record = TurnRecord(rewards=dict(rewards), feedback=str(after.get("feedback", "")))
        if (context := after.get("context", "")) != turns[0].before.get("context", ""):
            record.context = context
        if texts:
            read, left = before.get("privileged", {}), after.get("privileged", {})
            record.observation = None if shown == expected else shown
            record.evidence_in_chunk = read.get("evidence_in_chunk", [])
            record.chunk_span = read.get("chunk_span")
            record.memory = left.get("memory") if after.get("context") == "rewrite" else None
            record.memory_span = left.get("memory_span")
        expected = shown + clean_text(turn.action, MAX_REPLY_CHARS) + record.feedback
        found.append(record)
    return found


def _tokens(episode: Episode, policy: Any) -> list[TokensRecord]:
    """The tokens of each reply, with characters and advantages where they are known."""
    if not episode.tokens:
        return []
    parts: Any = [None] * len(episode.replies)
    if episode.advantages is not None and len(episode.advantages) == episode.tokens:
        parts = np.split(episode.advantages, np.cumsum(episode._lengths)[:-1])
    spans = getattr(policy, "spans", None)
    return [
        TokensRecord(
            ids=reply.ids.tolist(),
            logprobs=np.round(reply.logprobs, 4).tolist(),
            finished=reply.finished,
            spans=spans(reply.ids).tolist() if spans and len(reply.ids) else None,
            advantages=None if part is None else [float(f"{value:.4g}") for value in part],
        )
        for reply, part in zip(episode.replies, parts, strict=True)
    ]


def to_episode(record: Record) -> Episode:
    """The episode of a line. Its turns hold what the file has of them, its replies their tokens.

    Raises:
        ValueError: a credit lacks a field, or the tokens are those of another number of replies.
    """
    episode = Episode(
        **{name: getattr(record, name) for name in _COPIED},
        task=record.task,
        end=record.end,
        **{name: _with_nan(getattr(record, name)) for name in _NUMBERS},
        replies=[text_reply(text) for text in record.replies],
        credits={name: [_credit(one) for one in some] for name, some in record.credits.items()},
    )
    if record.tokens:
        episode.replies = [
            Reply(text, np.array(own.ids, np.int64), np.array(own.logprobs, np.float64), own.finished)
            for text, own in zip(record.replies, record.tokens, strict=True)
        ]
        advantages = [own.advantages for own in record.tokens if own.advantages is not None]
        if len(advantages) == len(record.tokens):
            episode.advantages = np.array(list(itertools.chain(*advantages)), np.float64)
    infos, following = _infos(record), ""
    for k, (turn, reply) in enumerate(zip(record.turns, record.replies, strict=False)):
        observation = following if turn.observation is None else turn.observation
        if episode.turns:
            episode.turns[-1] = episode.turns[-1]._replace(next_observation=observation)
        following = observation + clean_text(reply, MAX_REPLY_CHARS) + turn.feedback
        end = episode.end if k + 1 == len(record.turns) and episode.end != "failed" else ""
        episode.turns.append(Turn(observation, reply, infos[k], following, infos[k + 1], end))
        episode.outcomes.append(infos[k + 1]["rewards"].get("outcome", 0.0))
    return episode


def _infos(record: Record) -> list[Info]:
    """What the file has of the info before the first turn and after each."""
    facts = {name: getattr(record, name) for name in _FACTS}
    none = TurnRecord(rewards={}, feedback="")
    return [
        {
            "task": record.task,
            "turn": k,
            "context": record.context if last.context is None else last.context,
            "feedback": last.feedback,
            "rewards": _with_nan(last.rewards),
            "turn_rewards": _with_nan(record.turn_rewards[:k]),
            "metrics": _with_nan(record.metrics) if k == len(record.replies) else {},
            "privileged": {
                **facts,
                "evidence_in_chunk": coming.evidence_in_chunk,
                "chunk_span": coming.chunk_span,
                "memory": last.memory,
                "memory_span": last.memory_span,
            },
        }
        for k, (last, coming) in enumerate(itertools.pairwise([none, *record.turns, none]))
    ]


def _credit(plain: Mapping[str, Any]) -> Credit:
    value = math.nan if plain.get("value") is None else plain["value"]
    return convert([{**plain, "value": value}[name] for name in Credit._fields], Credit, "a credit")


def _with_nan(values: Any) -> Any:
    """Lists and objects of numbers, with NaN for null."""
    if isinstance(values, dict):
        return {name: _with_nan(value) for name, value in values.items()}
    if isinstance(values, list):
        return [_with_nan(value) for value in values]
    return math.nan if values is None else values


def _to_line(record: Record) -> bytes:
    """The line of a record; numbers that are not finite are null in it, and lone surrogates U+FFFD."""
    try:
        return msgspec.json.encode(record, enc_hook=np.generic.item) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False)
        return msgspec.json.encode(json.loads(replace_surrogates(text))) + b"\n"


def _cut_incomplete_line(file: BinaryIO) -> None:
    """Cut a file that is open for appending after its last line end."""
    if size := file.seek(0, 2):
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        if whole < size:
            file.truncate(whole)
