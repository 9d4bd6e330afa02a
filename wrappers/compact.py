"""Compaction for any text environment whose prompt grows: a summary replaces the turns so far."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from memenvs.core.data import Count, checked
from memenvs.core.env import (
    MAX_REPLY_CHARS,
    Info,
    check_text_actions,
    check_text_observations,
    text_env_of,
)
from memenvs.core.lazy import LazyFields
from memenvs.core.spaces import clean_text
from memenvs.core.state import OVER
from memenvs.core.text import Template, first_pair, thought_end
from memenvs.envs.memory import Memory, MemoryMode
from memenvs.envs.search_qa import SUMMARIZE
from memenvs.tasks.tokens import GENERAL, TextTokenizer, load_tokenizer

SUMMARY = Template(
    "\n\nYour summary of the conversation so far:\n\n<summary>\n{memory}\n</summary>\n", required=["memory"]
)
"""What follows the first prompt in one that continues from a summary."""
COMPACT = Template(
    "\n\nTo make room, you may reply with <compact>summary</compact> and nothing else. Up to {limit} tokens "
    "of the summary then replace everything after this task. At {at} tokens you will be asked for one.\n",
    required=["limit", "at"],
)
"""What `by="agent"` puts behind the first prompt."""
COST = Template("\n[{tokens} of {at} tokens of context used]\n", required=["tokens", "at"])
"""What `by="agent"` puts behind each feedback."""
_UNSEEN: Mapping[str, Callable[[], Any]] = {"passages": list, "answered": bool, "evidence_in_chunk": list}
"""Makers of the fields about what a reply did or brought, for one that the environment does not see."""


@dataclass
class _Reading:
    """What the agent reads in an episode, and what it wrote."""

    first: str  # the prompt at reset
    prompt: str  # the last fresh prompt
    tokens: int  # of the observation
    since: str = ""  # what follows the fresh prompt; empty right behind one
    request: str = ""  # the end of `since` that asks for a summary
    memory: Memory = field(default_factory=Memory)
    played: str | None = None  # what the environment saw of the last reply
    summaries: int = 0
    over: bool = False
    actions: list[str] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    tokens_read: list[int] = field(default_factory=list)  # of each observation that has its reply


class CompactContext(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Give a text environment whose prompt grows a memory: a summary that replaces all turns.

        env = RewardWrapper(CompactContext(gym.make("MemToolQA-v0"), at=2048), ["InfoMem"], scorer="lexical")

    Action:
        As the environment's. The reply to a request for a summary, without the thought that leads it, is the
        summary; with `by="agent"` so is the inside of `<compact>…</compact>`. The environment does not see
        this turn, which earns 0. A turn of the environment follows each summary.

    Observation:
        As the environment's. Once it has `at` tokens after a turn, it ends with a request for a summary.
        After the summary comes a fresh prompt (`info["context"]` is `"rewrite"`): the first one, then the
        summary. With `by="agent"` the first prompt explains `<compact>`, and each feedback ends with the
        number of tokens used.

    Info:
        As the environment's, also behind a summary, where `rewards` and `events` are zeros, but a summary
        that says something is `well_formed`. `turn`, `turn_rewards`, and the metrics `prompt_tokens` and
        `prompt_tokens_peak`, if there are any, include summaries. The metric `summaries` counts them.

    Privileged:
        The environment's, except that the memory is the summary: `memory`; `memory_span` and `written`, if
        the last reply was one; `prompt_with_memory` and `prompt_without_memory`, the first prompt with it and
        with an empty one; `teacher_prompt` and `teacher_prompt_global`, what the agent reads with the
        evidence in it. So TAMTRL, InfoMem and MemPO pay for summaries. `played` is what the environment saw
        of the last reply, None of a summary, which brings no `passages` and answers nothing. A request for
        one is a `state` of its own, and `chunk_span` is None.

    Source of `by="agent"`: SelfCompact (arXiv 2606.23525), of which we know only the idea.

    Args:
        env: a text environment whose context is `"append"`. A `RewardWrapper` goes around this wrapper.
        at: tokens of an observation at which a summary is requested.
        by: `"limit"`: only requested summaries; `"agent"`: also those that the agent writes unasked.
        max_summary: most tokens of a summary; a longer one is truncated.
        tokenizer: name of the tokenizer that counts; None: the environment's, or else the general one.

    Raises:
        ValueError: the environment is of another kind.
    """

    context = "rewrite"
    count_name: ClassVar[str] = "summaries"  # the metric that counts fresh prompts
    block: ClassVar[Template] = SUMMARY  # how a fresh prompt shows the memory

    @checked
    def __init__(
        self,
        env: gym.Env[Any, Any],
        at: Count,
        by: Literal["limit", "agent"] = "limit",
        max_summary: Count = 256,
        tokenizer: str | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, at=at, by=by, max_summary=max_summary, tokenizer=tokenizer)
        gym.Wrapper.__init__(self, env)
        check_text_observations(env)
        check_text_actions(env)
        counter = getattr(text_env_of(env), "tokenizer", None)
        if env.get_wrapper_attr("context") != "append":
            raise ValueError(f"{env} rewrites its prompts; wrap one whose context is 'append'")
        self.at, self.by = at, by
        # What a user's environment calls its tokenizer may be of another library.
        if tokenizer or not isinstance(counter, TextTokenizer):
            counter = load_tokenizer(tokenizer or GENERAL)
        self._mode = MemoryMode(counter, max_summary)
        self._now = _Reading("", "", 0)
        self._info: Info = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> CompactContext:
        """A copy that shares the tokenizer."""
        copied = object.__new__(type(self))
        tokenizer = self._mode.tokenizer
        memo |= {id(self): copied, id(tokenizer): tokenizer}
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    @property
    def actions(self) -> Sequence[str]:
        """All replies of the episode, those to requests included, for `memenvs.get_state`."""
        return list(self._now.actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        prompt, info = self.env.reset(seed=seed, options=options)
        if "credits" in info:
            name = type(self).__name__
            raise ValueError(f"a RewardWrapper is inside {name}; put it around, to pay for the memory")
        prompt += self._rule()
        self._now = _Reading(prompt, prompt, self._count(prompt))
        self._info = info
        return prompt, self._seen(info["context"], "")

    def step(self, action: Any) -> tuple[str, float, bool, bool, Info]:
        """Play a reply, or continue from the summary that it is."""
        now = self._now
        if now.over:  # a limit inside may have ended what the environment would play on
            raise gym.error.ResetNeeded(OVER)
        if not isinstance(action, str):
            observation, reward, terminated, truncated, info = self.env.step(action)  # which refuses it
            return observation, float(reward), terminated, truncated, info
        reply = clean_text(action, MAX_REPLY_CHARS)
        start, end = self._summary_in(reply)
        if end >= 0:
            self._note(reply, None, 0.0)
            self._replace_turns(reply, start, end)
            now.summaries += 1
            now.since = now.request = ""
            now.prompt = now.first + self.block.fill(memory=now.memory.text) + self._notice()
            now.tokens = self._count(now.prompt)
            for part in {"rewards", "events"} & self._info.keys():
                self._info = {**self._info, part: dict.fromkeys(self._info[part], 0.0)}
            if "well_formed" in self._info.get("events", ()):
                self._info["events"]["well_formed"] = float(now.memory.span is not None)
            return now.prompt, 0.0, False, False, self._seen("rewrite", "", _UNSEEN)
        played = self._for_env(reply)
        observation, reward, terminated, truncated, self._info = self.env.step(played)
        self._note(reply, played, float(reward))
        self._end_turn(reply, played)
        now.request, now.over = "", terminated or truncated
        feedback = self._info["feedback"]
        if self._info["context"] == "rewrite":
            now.first = now.prompt = observation + self._rule()
            now.since, now.tokens = "", self._count(now.prompt)
        else:
            now.tokens += self._count(reply + feedback)
            now.since += reply + feedback
            if not now.over:
                added = self._notice()
                now.tokens += self._count(added)
                if now.tokens >= self.at:
                    now.request = self._request()
                    now.tokens += self._count(now.request)
                added += now.request
                now.since += added
                feedback += added
        info = self._seen(self._info["context"], feedback)
        return now.prompt + now.since, float(reward), terminated, truncated, info

    # What SelectRecords does in its own way.

    def _rule(self) -> str:
        """What follows the first prompt."""
        return COMPACT.fill(limit=self._mode.limit, at=self.at) if self.by == "agent" else ""

    def _for_env(self, reply: str) -> str:
        """The part of a reply that the environment sees."""
        return reply

    def _end_turn(self, reply: str, played: str) -> None:
        """Take note of a reply, of which the environment has seen `played`."""
        self._now.memory.wrote()

    def _notice(self) -> str:
        """What follows the feedback of a turn, or a fresh prompt."""
        now = self._now
        return COST.fill(tokens=now.tokens, at=self.at) if self.by == "agent" and now.since else ""

    def _request(self) -> str:
        """What asks for a summary."""
        return SUMMARIZE.fill(limit=self._mode.limit)

    def _replace_turns(self, reply: str, start: int, end: int) -> None:
        """Write the memory by the reply to a request, whose summary is at [start, end)."""
        memory = self._now.memory
        memory.wrote(reply, self._mode.write_block(memory, reply[start:end]).shift(start))

    def _count(self, text: str) -> int:
        return sum(self._mode.tokenizer.counts([text]))

    def _note(self, reply: str, played: str | None, reward: float) -> None:
        """Record a reply, what the environment saw of it, and the tokens that were read before it."""
        now = self._now
        now.played = played
        now.actions.append(reply)
        now.turn_rewards.append(reward)
        now.tokens_read.append(now.tokens)

    def _summary_in(self, reply: str) -> tuple[int, int]:
        """Where in a reply the summary is, in characters; (0, -1) if the reply is for the environment."""
        now, start = self._now, thought_end(reply)
        pair = first_pair(reply, "compact", start) if self.by == "agent" and now.since else None
        if pair and not reply[start : pair.start].strip() and not reply[pair.end :].strip():
            return pair.start + len("<compact>"), pair.end - len("</compact>")
        return (start, len(reply)) if now.request else (0, -1)

    def _seen(self, context: str, feedback: str, unseen: Mapping[str, Callable[[], Any]] = {}) -> Info:
        """The info with what the agent reads in place of what the environment shows, and `unseen` fields."""
        now, info = self._now, self._info
        metrics = {**info["metrics"], self.count_name: float(now.summaries) if now.over else 0.0}
        if now.over and "prompt_tokens" in metrics:
            metrics |= {"prompt_tokens": float(sum(now.tokens_read))}
            metrics |= {"prompt_tokens_peak": float(max(now.tokens_read))}
        return {
            **info,
            "turn": len(now.actions),
            "context": context,
            "feedback": feedback,
            "turn_rewards": list(now.turn_rewards),
            "metrics": metrics,
            "privileged": self._privileged(unseen),
        }

    def _privileged(self, unseen: Mapping[str, Callable[[], Any]]) -> LazyFields:
        inner, now = self._info["privileged"], self._now
        if not inner:
            return LazyFields({})
        first, memory, observation = now.first, now.memory.text, now.prompt + now.since
        request, over, span, block = now.request, now.over, now.memory.span, self.block

        def with_evidence(name: str) -> str:
            # The environment's own prompt so far, which the evidence follows, has no memory.
            evidence = str(inner[name]).removeprefix(str(inner.get("prompt_with_history", "")))
            return "" if over else observation.removesuffix(request) + evidence + request

        replaced: dict[str, Callable[[], Any]] = {
            "teacher_prompt": functools.partial(with_evidence, "teacher_prompt"),
            "teacher_prompt_global": functools.partial(with_evidence, "teacher_prompt_global"),
            "state": lambda: f"{inner['state']}{request}",
            "chunk_span": lambda: None,  # of the environment's own observation
            **unseen,
        }
        return LazyFields(
            {
                **{name: replaced.get(name, functools.partial(inner.__getitem__, name)) for name in inner},
                "memory": memory,
                "memory_span": span and list(span),
                "written": now.memory.written,
                "played": now.played,
                "prompt_with_memory": lambda: first + block.fill(memory=memory),
                "prompt_without_memory": lambda: first + block.fill(memory=""),
            }
        )
