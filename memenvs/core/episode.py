"""The record of an episode: turns, what methods measured and gave, and the tokens that a model learns from.

The loop fills it, reward methods pay into it, learners derive their training sequences from it, and
`memenvs.core.episode_file` keeps it as a line of JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium as gym
import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from memenvs.core.env import End, Info, TextEnv, end_of, env_name
from memenvs.core.errors import one_line
from memenvs.core.spaces import replace_surrogates

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

OUTCOME = "outcome"
"""Name of the component that the environment pays for the result."""


class TokenSpans(Protocol):
    """Says which characters a token is."""

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Start and end (T, 2) of each token's text, in characters of the reply's text."""


def _no_ids() -> Ids:
    return np.zeros(0, np.int64)


def _no_floats() -> Floats:
    return np.zeros(0)


class Reply(msgspec.Struct, omit_defaults=True):
    """What a policy replied at a turn. A policy over texts leaves the tokens empty.

    Attributes:
        text: the environment's action, without the end token.
        ids: (T,) tokens as sampled and never tokenised again, with the end token if it was sampled.
        logprobs: (T,) nats of these tokens when they were sampled, at the policy's temperature (at 1 where
            that is 0).
        finished: whether the end token or a stop string ended the reply; False where a limit or the window
            cut it off, None where that is not known.
        read: (T,) tokens that the model read since its last reply: a fresh prompt, or the feedback; the whole
            prompt where it forks.
        prompt_tokens: number of tokens of the whole prompt; None where nobody counted them.
        tokens: number of tokens of the reply; None where nobody counted them.
        spans: (T, 2) start and end of each token, in characters of the text; empty where they are not known.
        forks: whether the prompt left out a part of what the turns before read or replied, such as a thought.
    """

    text: str
    ids: Ids = field(default_factory=_no_ids)
    logprobs: Floats = field(default_factory=_no_floats)
    finished: bool | None = None
    read: Ids = field(default_factory=_no_ids)
    prompt_tokens: int | None = None
    tokens: int | None = None
    spans: NDArray[np.int64] = field(default_factory=_no_ids)
    forks: bool = False

    @property
    def overlong(self) -> bool:
        """Whether the prompt left no room for a reply, which is then empty."""
        return self.finished is False and self.tokens == 0

    @property
    def cut_off(self) -> bool:
        """Whether the reply ended at its limit of tokens."""
        return self.finished is False and not self.overlong


class Credit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that a reward method gives to a turn, or to a span of characters in its reply.

    Attributes:
        turn: number of the turn, from 0.
        value: the value; NaN where none could be found.
        span: [start, end) in characters of the reply; None for the whole turn.
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

    @property
    def known(self) -> bool:
        """Whether the value is a number."""
        return not math.isnan(self.value)


class Turn(msgspec.Struct, omit_defaults=True):
    """One observation, the reply to it, and what came back.

    Attributes:
        observation: what the policy read; None, in another agent's log, where it is the observation before
            with the reply and the feedback behind it.
        before: the info that came with the observation.
        reply: what the policy replied; an empty one while the turn waits for it.
        info: the info that came back.
        end: `"terminated"` or `"truncated"` if the episode ended with this turn; otherwise empty.
        signals: what each reward method measured, by its name; NaN where it could not.
        credits: what each reward method gave to the turn, by its name.
    """

    observation: Any
    before: Info
    reply: Reply = field(default_factory=lambda: Reply(""))
    info: Info = field(default_factory=dict)
    end: End = ""
    signals: dict[str, float] = field(default_factory=dict)
    credits: dict[str, list[Credit]] = field(default_factory=dict)

    @property
    def action(self) -> str:
        """The text of the reply."""
        return self.reply.text

    @property
    def components(self) -> dict[str, float]:
        """The environment's components of the reward, without those that the credits hold."""
        return {name: value for name, value in self.info["rewards"].items() if name not in self.credits}

    @property
    def over(self) -> bool:
        """Whether the episode ended with this turn."""
        return self.end != ""

    @property
    def fresh(self) -> bool:
        """Whether the observation is a fresh prompt, which does not continue the turns before."""
        return bool(self.before["turn"] == 0 or self.before["context"] == "rewrite")

    @property
    def text(self) -> str:
        """What was new to read: a fresh prompt, or the feedback to the reply before."""
        return observation_text(self.observation) if self.fresh else str(self.before["feedback"])


@dataclass
class Sample:
    """One training sequence: what a model read and what it sampled, token by token.

    Attributes:
        ids: (T,) tokens.
        response_mask: (T,) bool, the N tokens that the policy sampled.
        logprobs: (T,) nats of the sampled tokens when they were sampled, or scored again; 0 elsewhere.
        turns: (T,) number of the turn that sampled a token; -1 elsewhere.
        values: (N,) a critic's values of the sampled tokens, if there is one.
        ref_logprobs: (N,) nats of the sampled tokens under a reference model, if there is one.
        sampler_logprobs: (N,) nats when they were sampled, if `logprobs` have been scored again.
        cut_off: (T,) bool, the tokens of replies that ended at their limit; empty where none did.
        teacher: what a teacher reads before the same tokens, a sequence for each turn that it can read.
        group: names its group; groups are not shared among minibatches.
        advantages: (N,) advantages of the sampled tokens; empty where none were computed.
        returns: (N,) targets of a critic, if there is one.
        following: what would have been read next where a limit truncated the episode, with one more token,
            whose value is that state's; None unless a learner asks for it.
    """

    ids: Ids
    response_mask: NDArray[np.bool_]
    logprobs: Floats
    turns: NDArray[np.int64]
    values: Floats | None = None
    ref_logprobs: Floats | None = None
    sampler_logprobs: Floats | None = None
    cut_off: NDArray[np.bool_] = dataclasses.field(default_factory=lambda: np.zeros(0, np.bool_))
    teacher: tuple[Sample, ...] = ()
    group: int = 0
    advantages: Floats = dataclasses.field(default_factory=_no_floats)
    returns: Floats | None = None
    following: Sample | None = None

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(N,) whether a sampled token's reply ended by itself, and not at its limit."""
        cut = self.cut_off if len(self.cut_off) else np.zeros(len(self.ids), np.bool_)
        return ~cut[self.response_mask]

    @classmethod
    def of(cls, *parts: tuple[Ids, Floats | None, int]) -> Sample:
        """A sequence of parts up to its last sampled token, as the feedback after it is in no loss.

        Args:
            parts: tokens (T,); their log-probabilities (T,) if they were sampled, otherwise None; and the
                number of the turn that sampled them.
        """
        turns = np.concatenate(
            [np.full(len(ids), -1 if logprobs is None else turn) for ids, logprobs, turn in parts]
        )
        sampled = np.flatnonzero(turns >= 0)
        end = int(sampled[-1]) + 1 if len(sampled) else len(turns)
        ids = np.concatenate([ids for ids, _, _ in parts])[:end]
        nats = [np.zeros(len(ids)) if logprobs is None else logprobs for ids, logprobs, _ in parts]
        return cls(ids, turns[:end] >= 0, np.concatenate(nats)[:end], turns[:end])


class Episode(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """An episode of K turns, for reward methods, learners, evaluation and adapters.

    Attributes:
        env: id of the environment.
        task: the task's id.
        number: number of the task in its task set; None where the loop let the seed draw the task. Wrappers
            record it always, so a reset of your own that named no task is played again by its seed alone.
        seed: seed of the reset, so that the replies can be played again; -1 if none was given.
        group: names the episodes that are compared with each other.
        member: which episode of its group it is, from 0.
        step: step of the training run that played it; None elsewhere.
        phase: `"train"` or `"eval"` in a training run; otherwise empty.
        turns: (K,) what was read, replied and returned.
        end: how it ended; empty while it is played, `"failed"` if the environment, a scorer or a policy
            raised an error.
        error: why it failed, in one line.
        metrics: the environment's at the end, and what reward methods and whoever played it counted.
        measured: by name of a reward method, the turns, from 0, at which it measured a signal. At the others
            its signal is 0 or NaN.
        replaces_outcome: whether a reward method pays for the result in place of the environment.
        length_penalty: what a learner adds to the result for its length (DAPO), at most 0.
        advantages: (N,) of its sampled tokens, where a learner has computed them.
    """

    env: str = ""
    task: str = ""
    number: int | None = None
    seed: int = -1
    group: int = 0
    member: int = 0
    step: int | None = None
    phase: Literal["", "train", "eval"] = ""
    turns: list[Turn] = field(default_factory=list)
    end: Literal["", "terminated", "truncated", "failed"] = ""
    error: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    measured: dict[str, list[int]] = field(default_factory=dict)
    replaces_outcome: bool = False
    length_penalty: float = 0  # no 0.0, which after a pickle is another object, and then written to files
    advantages: Floats = field(default_factory=_no_floats)

    def __reduce__(self) -> Any:
        return _made_again, (msgspec.structs.asdict(self), self.__dict__)

    @classmethod
    def of_reset(cls, env: gym.Env[Any, Any], seed: int | None) -> Episode:
        """The record of an episode that a caller's own `reset` has begun, with the number of its task.

        Args:
            env: a text environment or a wrapper of one, which has been reset.
            seed: the seed of the reset.
        """
        inner = env.unwrapped
        number = inner.state.task if isinstance(inner, TextEnv) else None
        return cls(number=number, seed=-1 if seed is None else seed)

    def begin(self, env: gym.Env[Any, Any], observation: Any, info: Info) -> Turn:
        """Note what the reset of an environment began; the first turn, which waits for its reply."""
        self.env = env_name(env)
        self.task = str(info.get("task", ""))
        return Turn(observation, info)

    def play(self, turn: Turn, reply: Reply, result: tuple[Any, Any, bool, bool, Info]) -> Turn:
        """Record a turn by its reply and what `env.step` returned; the turn that follows."""
        observation, _, terminated, truncated, info = result
        self.add(replace(turn, reply=reply, info=info, end=end_of(terminated, truncated)))
        return Turn(observation, info)

    def add(self, turn: Turn) -> None:
        """Record a turn; with the last one also the end, and the credit of a `RewardWrapper` below."""
        self.turns.append(turn)
        if not turn.end:
            return
        self.end = turn.end
        self.metrics = dict(turn.info["metrics"])
        for name, signals in turn.info.get("signals", {}).items():
            for played, signal in zip(self.turns, signals, strict=False):  # none where a limit outside cut it
                played.signals[name] = signal
        self.measured |= {name: turns for name, turns in turn.info.get("measured", {}).items() if turns}
        for name, credits in turn.info.get("credits", {}).items():
            for number, played in enumerate(self.turns):
                played.credits[name] = [credit for credit in credits if credit.turn == number]
        if turn.info.get("error"):
            self.fail(turn.info["error"])
        self.check_rewards()

    def fail(self, error: object) -> None:
        """End the episode with an error."""
        self.end = "failed"
        self.error = one_line(error)

    def check_rewards(self) -> bool:
        """Fail an episode whose environment paid NaN or infinity; whether it has failed, by now or before."""
        for number, turn in enumerate(self.turns):
            for name, value in turn.components.items():
                if not self.error and not math.isfinite(value):
                    self.fail(f"task {self.task}, turn {number}: reward {name} must be finite, got {value}")
        return self.end == "failed"

    # What reward methods read.

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.end != ""

    @property
    def lacks_score(self) -> bool:
        """Whether a judge or another model gave no score for one of the credits, so the return is unknown."""
        return any(
            not (credit.known or credit.from_signal)
            for turn in self.turns
            for credit in itertools.chain.from_iterable(turn.credits.values())
        )

    @property
    def success(self) -> bool:
        """Whether the task was solved, by the environment's own metric."""
        return self.metrics.get("success") == 1.0

    @property
    def outcomes(self) -> list[float]:
        """(K,) the outcome component of each turn, as the environment paid it."""
        return [float(turn.info["rewards"].get(OUTCOME, 0.0)) for turn in self.turns]

    @property
    def outcome(self) -> float:
        """What the environment paid for the result, before any reward method replaced it."""
        return float(self.metrics.get(OUTCOME, math.fsum(self.outcomes)))

    @property
    def signals(self) -> dict[str, list[float]]:
        """(K,) the signal of each turn, by name of a reward method; those that are measured so far."""
        names = dict.fromkeys(name for turn in self.turns for name in turn.signals)
        return {name: [turn.signals[name] for turn in self.turns if name in turn.signals] for name in names}

    @property
    def measured_signals(self) -> dict[str, list[float]]:
        """The signals of the turns at which a reward method measured one, by its name."""
        return {
            name: [self.turns[turn].signals[name] for turn in turns] for name, turns in self.measured.items()
        }

    @property
    def credits(self) -> dict[str, list[Credit]]:
        """The credits of each reward method by its name, turn by turn."""
        names = dict.fromkeys(name for turn in self.turns for name in turn.credits)
        return {
            name: [credit for turn in self.turns for credit in turn.credits.get(name, ())] for name in names
        }

    # What learners read.

    @property
    def replies(self) -> list[Reply]:
        """(K,) what the policy replied."""
        return [turn.reply for turn in self.turns]

    @property
    def turn_rewards(self) -> list[float]:
        """(K,) what each turn earned: the environment's components and the credits of the methods."""
        paid = (sum(self._components(turn).values()) for turn in self.turns)
        return [sum(parts) for parts in zip(paid, self._credited(False), self.turn_advantages, strict=True)]

    @property
    def turn_advantages(self) -> list[float]:
        """(K,) the part of `turn_rewards` that is credit marked as an advantage."""
        return self._credited(True)

    @property
    def outcome_rewards(self) -> list[float]:
        """(K,) R^O, the part of `turn_rewards` that is the outcome reward.

        Where a method replaces the environment's outcome, it is what the last turn earned, without the
        credits that are advantages.
        """
        if not self.replaces_outcome or not self.turns:
            return self.outcomes
        last = sum(self._components(self.turns[-1]).values()) + self._credited(False)[-1]
        return [0.0] * (len(self.turns) - 1) + [last]

    @property
    def rewards(self) -> dict[str, float]:
        """The sum of each component over the turns; NaN for a method none of whose credits has a number."""
        components = [self._components(turn) for turn in self.turns]
        names = components[0] if components else ()
        sums = {name: math.fsum(of_turn[name] for of_turn in components) for name in names}
        for name, credits in self.credits.items():
            values = [credit.value for credit in credits if credit.known]
            sums[name] = math.fsum(values) if values or not credits else math.nan
        return sums

    def _components(self, turn: Turn) -> dict[str, float]:
        """The environment's components of a turn; 0 for an outcome that a method replaces."""
        rewards = turn.components
        return {**rewards, OUTCOME: 0.0} if self.replaces_outcome and OUTCOME in rewards else rewards

    def _credited(self, advantage: bool) -> list[float]:
        """(K,) the sums of the credits that are advantages, or of those that are not."""
        return [
            sum(
                credit.value
                for credit in itertools.chain.from_iterable(turn.credits.values())
                if credit.known and credit.advantage == advantage
            )
            for turn in self.turns
        ]

    def advantage_credits(self, policy: TokenSpans) -> Floats:
        """Credits (N,) that are advantages already, on the tokens of their turn or of their span.

        A token that is partly inside a span gets the whole credit, because it wrote part of the span.

        Args:
            policy: says which characters its tokens are.
        """
        values = [np.zeros(0)]
        for turn in self.turns:
            credited = np.zeros(len(turn.reply.ids))
            for credit in itertools.chain.from_iterable(turn.credits.values()):
                if credit.advantage and credit.known:
                    inside: Any = slice(None)
                    if credit.span is not None:
                        places = policy.spans(turn.reply.ids)
                        inside = (places[:, 0] < credit.span[1]) & (places[:, 1] > credit.span[0])
                    credited[inside] += credit.value
            values.append(credited)
        return np.concatenate(values)

    @property
    def _lengths(self) -> list[int]:
        """(K,) tokens of each reply."""
        return [len(turn.reply.ids) for turn in self.turns]

    @property
    def tokens(self) -> int:
        """Tokens sampled, N."""
        return sum(self._lengths)

    @property
    def truncated_replies(self) -> int:
        """Number of replies that ended at their limit of tokens."""
        return sum(turn.reply.cut_off for turn in self.turns)

    @property
    def overlong_prompts(self) -> int:
        """Number of turns whose prompt left no room for a reply, which was then empty."""
        return sum(turn.reply.overlong for turn in self.turns)

    @property
    def turn_ends(self) -> NDArray[np.int64]:
        """(K,) the last token of each turn, counted over all sampled tokens of the episode in order.

        A turn that sampled nothing ends where the turn before it did (a first one at token 0).
        """
        return np.maximum(np.cumsum(self._lengths, dtype=np.int64) - 1, 0)

    def by_token(self, turns: Sequence[float] | Floats) -> Floats:
        """Numbers (K,) of turns, given to each token (N,) that the turn sampled."""
        return np.repeat(np.asarray(turns, np.float64), self._lengths)

    def sequences(self) -> list[list[Turn]]:
        """The turns in runs that a model reads as one text; a fresh prompt or a fork begins a run."""
        runs: list[list[Turn]] = []
        for turn in self.turns:
            if turn.fresh or turn.reply.forks or not runs:
                runs.append([])
            runs[-1].append(turn)
        return runs

    @functools.cached_property
    def samples(self) -> list[Sample]:
        """The training sequences in order, each with a sampled token; read it when the episode has ended.

        There is one for an episode whose prompts grow (`"append"`), and one per turn where every prompt is
        fresh (`"rewrite"`). The list is made once, so a learner can note values in it.
        """
        samples, number = [], 0
        for turns in self.sequences():
            parts: list[tuple[Ids, Floats | None, int]] = []
            for turn in turns:
                reply = turn.reply
                parts += [(reply.read, None, -1), (reply.ids, reply.logprobs, number)]
                number += 1
            if any(len(turn.reply.ids) for turn in turns):
                sample = dataclasses.replace(Sample.of(*parts), group=self.group)
                cut = [k for k, turn in enumerate(turns, number - len(turns)) if turn.reply.cut_off]
                if cut:
                    sample.cut_off = np.isin(sample.turns, cut)
                samples.append(sample)
        return samples

    def split(self, values: Floats) -> list[Floats]:
        """Numbers (N,) for its sampled tokens, sample by sample."""
        lengths = [int(sample.response_mask.sum()) for sample in self.samples]
        return np.split(values, np.cumsum(lengths)[:-1])

    def without_texts(self) -> Episode:
        """This episode without what its policy read, for statistics and training sequences alone.

        Its infos hold what `turn_rewards` and the sequences need.
        """
        names = ("turn", "context", "rewards")
        turns = [
            replace(
                turn,
                observation="",
                before={name: turn.before[name] for name in names},
                info={name: turn.info[name] for name in names},
            )
            for turn in self.turns
        ]
        bare = replace(self, turns=turns)
        bare.__dict__.update(self.__dict__)  # the training sequences, in which a learner has noted values
        return bare


def _made_again(fields: dict[str, Any], derived: dict[str, Any]) -> Episode:
    """An episode of a pickle, with the training sequences in which a learner has noted values."""
    episode = Episode(**fields)
    episode.__dict__.update(derived)
    return episode


def observation_text(observation: Any) -> str:
    """The text of an observation, which may have a picture beside it."""
    return replace_surrogates(observation["text"] if isinstance(observation, dict) else observation)


def valid(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that a learner can use: they did not fail, with finite rewards and a sampled token."""
    return [episode for episode in episodes if not episode.check_rewards() and episode.tokens]
