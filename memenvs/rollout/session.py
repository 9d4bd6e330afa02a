"""One episode while it is played: the only code that makes token ids of prompt, reply and feedback."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from memenvs.core.env import End, Info, end_of
from memenvs.core.errors import one_line
from memenvs.models import Ids, Policy, Reply
from memenvs.rollout.records import Episode, Sample, Turn, component_sums

NO_REPLY = Reply("", np.zeros(0, np.int64), np.zeros(0), finished=False)
"""The empty reply to a prompt that leaves no room for one."""


class PromptEncoder(Protocol):
    """The part of a `Policy` that makes token ids of texts."""

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,)."""

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """What follows a reply (T,) in an episode that appends."""


class Usage(NamedTuple):
    """What a reply took.

    Attributes:
        prompt_tokens: that the model read; None where they are not counted.
        reply_tokens: that it sampled; None where they are not counted.
        truncated: whether the reply ended at its limit of tokens; None where this is unknown.
    """

    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    truncated: bool | None = None


class Session:
    """An episode while it is played: its record so far, and the token ids that the next reply follows.

    If `info["context"]` is `"append"`, the episode is one growing sequence: the model reads its own replies
    as it sampled them, never tokenised again, each followed by `info["feedback"]`. If it is `"rewrite"`,
    every observation is a fresh prompt, which begins a training sequence.

        session = Session(policy)
        session.begin(*env.reset(seed=3))
        while not session.over:
            (reply,) = policy.sample([session.prompt], [session.rng], 64)
            session.step(env, reply)
        session.finish(session.info)
        session.episode.samples

    Args:
        encoder: makes the token ids, such as a `Policy`; None keeps only the texts, for policies that read
            text. `prompt` and `episode.samples` need one.
        episode: the record to fill, with the known facts of its task; a new one by default.
        rng: of the replies; by default seeded by the episode's group and member, so that what is sampled
            depends neither on the number of environments nor on the other episodes.

    Attributes:
        observation: the last one, which the next reply answers.
        info: that came with it.
        over: whether the episode has ended or failed.
        fresh: whether the next reply begins a training sequence.
        usage: what each reply took, if the caller keeps it.
    """

    def __init__(
        self,
        encoder: PromptEncoder | None = None,
        episode: Episode | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.encoder = encoder
        self.episode = Episode() if episode is None else episode
        self.rng = rng or np.random.default_rng([self.episode.group, self.episode.member])
        self.observation, self.over, self.fresh = "", False, True
        self.info: Info = {}
        self.usage: list[Usage] = []
        self._sequence: Sample | None = None

    @property
    def prompt(self) -> Ids:
        """(T,) ids that the next reply follows."""
        if self._sequence is None:
            raise ValueError("there is no prompt: the episode is over, has not begun, or has no encoder")
        return self._sequence.ids

    @property
    def text(self) -> str:
        """What the next reply answers: the feedback to the last one, or the observation of a fresh prompt."""
        continues = bool(self.episode.replies) and self.info["context"] == "append"
        return str(self.info["feedback"]) if continues else self.observation

    def begin(self, observation: str, info: Info) -> None:
        """Take the first observation; with an `error` in its `info` the episode has failed."""
        self.episode.task = str(info.get("task", ""))
        self.observation, self.info = observation, info
        if error := info.get("error"):
            self.fail(error)
        else:
            self.read(self.text, info["context"])

    def step(self, env: gym.Env[Any, Any], reply: Reply) -> float:
        """Play a reply in an environment; returns the reward."""
        observation, reward, terminated, truncated, info = env.step(reply.text)
        self.play(reply, observation, info, end_of(terminated, truncated))
        return float(reward)

    def play(self, reply: Reply, observation: str, info: Info, end: End = "") -> None:
        """Record a reply that was played, and what the environment returned.

        Args:
            reply: with its ids as they were sampled; `NO_REPLY` where the prompt left no room.
            observation: that came back.
            info: that came back; with an `error` the episode has failed.
            end: how the episode ended with this turn, if it did.
        """
        episode = self.episode
        episode.turns.append(Turn(self.observation, reply.text, self.info, observation, info, end))
        episode.outcomes.append(float(info["rewards"].get("outcome", 0.0)))
        self.write(reply)
        self.observation, self.info, self.over, episode.end = observation, info, end != "", end
        if error := info.get("error"):
            self.fail(error)
        elif end:
            self.close()
        else:
            self.read(self.text, info["context"])

    def read(self, text: str, context: str) -> None:
        """Append what the next reply answers to the sequence, or begin a sequence with it.

        Args:
            text: the feedback to the last reply, or the observation of a fresh prompt.
            context: `"append"` or `"rewrite"`, as `info["context"]`.
        """
        if self.encoder is None:
            return
        self.fresh = self._sequence is None or context == "rewrite"
        if self._sequence is None or self.fresh:
            self.close()
            self._sequence = Sample.prompt(self.encoder.encode(text))
        else:
            last = self.episode.replies[-1].ids
            self._sequence = self._sequence.then(self.encoder.encode_feedback(text, last))

    def write(self, reply: Reply) -> None:
        """Append a reply to the sequence, with the ids as they were sampled."""
        episode, turn = self.episode, len(self.episode.replies)
        episode.replies.append(reply)
        episode.overlong_prompts += reply is NO_REPLY
        episode.truncated_replies += reply is not NO_REPLY and not reply.finished
        if self._sequence is not None:
            self._sequence = self._sequence.then(reply.ids, reply.logprobs, turn)

    def fail(self, error: str) -> None:
        """End the episode as failed, with the error in one line."""
        self.episode.error, self.episode.end, self.over = one_line(error), "failed", True
        self.close()

    def finish(self, info: Info) -> None:
        """Take the final rewards.

        Args:
            info: of the last turn (`session.info`); or a later one, whose rewards are added to the last
                turn's, because methods that compare a group pay when its last member has ended.
        """
        episode = self.episode
        self.close()
        if error := info.get("error"):
            self.fail(error)
        components = [turn.info["rewards"] for turn in episode.turns]
        if components and not episode.error and info is not self.info:  # what came after its last turn
            late = info["rewards"]
            components[-1] = {name: value + late.get(name, 0.0) for name, value in components[-1].items()}
        episode.rewards = component_sums(components)
        episode.turn_rewards = list(info.get("turn_rewards", []))
        episode.metrics = dict(info.get("metrics", {}))

    def close(self) -> None:
        """End the training sequence; a sequence without sampled tokens is dropped."""
        if self._sequence is not None and self._sequence.response_mask.any():
            self.episode.samples.append(self._sequence.trimmed())
        self._sequence = None

    def fork(self) -> Session:
        """An independent copy, for another reply to the same prompt; it shares the generator."""
        fork = copy.copy(self)
        fork.usage = list(self.usage)
        parts = {part.name: copy.copy(getattr(self.episode, part.name)) for part in fields(Episode)}
        fork.episode = Episode(**parts)
        return fork


def sample_within(
    policy: Policy, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: int
) -> list[Reply]:
    """A reply to each prompt, by one call of the policy; `NO_REPLY` where the prompt fills the window."""
    rooms = [room_for(policy, prompt, max_new_tokens) for prompt in prompts]
    fits = [number for number, room in enumerate(rooms) if room > 0]
    sampled = policy.sample([prompts[n] for n in fits], [rngs[n] for n in fits], [rooms[n] for n in fits])
    replies = dict(zip(fits, sampled, strict=True))
    return [replies.get(number, NO_REPLY) for number in range(len(prompts))]


def room_for(policy: Policy, prompt: Ids, max_new_tokens: int) -> int:
    """Tokens that the reply to a prompt may have; 0 or fewer where the prompt fills the policy's window."""
    return max_new_tokens if policy.window is None else min(max_new_tokens, policy.window - len(prompt))
