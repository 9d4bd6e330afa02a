"""What all forms of recorded conversations have in common, and the episode that it becomes."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memenvs.core.env import Info
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.files import json_sha256
from memenvs.core.lazy import LazyFields
from memenvs.core.spaces import replace_surrogates
from memenvs.core.text import Template, first_pair
from memenvs.envs.passages import holds_answer
from memenvs.models.chat import plain_chat

Render = Callable[[Sequence[tuple[str, str]]], str]
"""Writes messages, each a role and a text, as a model reads them up to its next reply."""

ASK = Template(
    "Answer this question in as few words as possible.\n\nQuestion: {question}", required=("question",)
)
"""What the user asks at the end of each prompt after which an answer is scored."""
_LONG = 160  # characters of the name of a task
_TEXTS = ("contents", "content", "text", "snippet", "passage", "body", "description", "summary")
"""Fields that hold the text of a document in a result that is JSON."""


MAY_LACK = {
    **dict.fromkeys(("privileged/target", "privileged/target_wrapped", "privileged/answers"), "an answer"),
    "privileged/evidence": "evidence",
    **dict.fromkeys(("turn_rewards", "metrics/success"), "a reward"),
    **dict.fromkeys(("privileged/memory", "privileged/memory_span"), "a memory in <mem>"),
    **dict.fromkeys(("privileged/passages", "events/repeated"), "a call of a tool"),
}
"""Entries of an info that only some conversations fill, each with what it is filled from."""


class Call(NamedTuple):
    """A call of a tool; its arguments are JSON where the log has an object, otherwise the log's text."""

    name: str
    arguments: str


class Message(NamedTuple):
    """A message of a conversation.

    Attributes:
        role: system, user, assistant or tool.
        text: what it says, without its calls.
        calls: the calls of an assistant's message.
        thought: what the model thought before it replied.
        key: what names the turn in its record (a number or an id), if the agent wrote this message in this
            run; None for every other message.
        fresh: whether the model read nothing from before this message: the context was compacted.
    """

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
    key: int | str | None = None
    fresh: bool = False

    @property
    def content(self) -> str:
        """The text with its calls behind it, each as JSON in `<tool_call>`."""
        calls = [
            f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>'
            for call in self.calls
        ]
        return "\n".join(part for part in (self.text, *calls) if part)

    @property
    def reply(self) -> str:
        """What the model wrote: its thought, and the content."""
        return (f"<think>\n{self.thought}\n</think>\n" if self.thought else "") + self.content

    @property
    def memory(self) -> tuple[str, int] | None:
        """The text in `<mem>…</mem>` of a turn, and where it begins in its reply; None without one."""
        if self.key is None or (pair := first_pair(self.content, "mem")) is None:
            return None
        return pair.text, len(self.reply) - len(self.content) + pair.start + len("<mem>")


@dataclass
class LogConversation:
    """A conversation that an agent had, in any form.

    Attributes:
        messages: in order; those with a `key` are its turns.
        group: names what was asked, if the log does; see `task`.
        question: what was asked; by default the last text of a user before the first reply.
        answers: the accepted answers, the preferred one first; none where they are not known.
        reward: what the conversation earned; None where the log does not say.
        evidence: texts that the answer needs, where they are known.
        model: the model that replied.
        truncated: whether a limit ended it.
        place: where it is, such as `runs.jsonl:3`.
    """

    messages: list[Message]
    group: str = ""
    question: str = ""
    answers: tuple[str, ...] = ()
    reward: float | None = None
    evidence: tuple[str, ...] = ()
    model: str = ""
    truncated: bool = False
    place: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("has no reply of an agent")
        opening = itertools.takewhile(lambda message: not message.fresh, self.messages[: self.turns[0]])
        asked = [message.text for message in opening if message.role == "user" and message.text.strip()]
        self.question = self.question or (asked[-1] if asked else "")

    @functools.cached_property
    def turns(self) -> list[int]:
        """Numbers of the messages that are turns."""
        return [number for number, message in enumerate(self.messages) if message.key is not None]

    @property
    def keys(self) -> list[int | str]:
        """What names each turn in the record."""
        return [key for message in self.messages if (key := message.key) is not None]

    @property
    def task(self) -> str:
        """The name of what was asked: the group that the log names, otherwise the question."""
        name = replace_surrogates(self.group or " ".join(self.question.split()))
        return name if len(name) <= _LONG else f"{name[: _LONG - 9]} {json_sha256(name)[:8]}"

    @property
    def lacks(self) -> set[str]:
        """What of the values of `MAY_LACK` this conversation does not have."""
        has = {
            "an answer": self.answers,
            "evidence": self.evidence,
            "a reward": self.reward is not None,
            "a memory in <mem>": any(message.memory for message in self.messages),
            "a call of a tool": any(message.calls for message in self.messages),
        }
        return {what for what, filled in has.items() if not filled}

    def to_episode(self, group: int = 0, member: int = 0, render: Render = plain_chat) -> Episode:
        """The episode that this conversation is, ended and without credit.

        Its infos are those of an environment, as far as they are known, with the events `called` (the number
        of calls), `repeated` (the share of them that were made before) and `retrieved`, and with `passages`:
        the documents, or the paragraphs, that came back.

        Args:
            group: number of what was asked.
            member: which conversation about it this is, from 0.
            render: writes prompts; that of a scorer by a model applies its chat template.
        """
        end: Any = "truncated" if self.truncated else "terminated"
        observations, infos = zip(*self._observed(render), strict=True)
        replies = [Reply(self.messages[place].reply) for place in self.turns]
        ends = [*("" for _ in self.turns[1:]), end]
        turns = [Turn(*parts) for parts in zip(observations, infos, replies, infos[1:], ends, strict=False)]
        return Episode(
            env="log",
            task=self.task,
            number=group,
            group=group,
            member=member,
            turns=turns,
            end=end,
            metrics=dict(infos[-1]["metrics"]),
        )

    def _observed(self, render: Render) -> Iterator[tuple[str | None, Info]]:
        """The observation and the info before each turn and after the last; None where the context grows."""
        start = 0  # the first message that the model can still read
        memory, earlier = "", set[Call]()
        for count, place in enumerate([*self.turns, len(self.messages)]):
            ended = count == len(self.turns)
            before = self.turns[count - 1] if count else -1
            last = self.messages[before] if count else Message("assistant", "")
            since = self.messages[before + 1 : place]
            fresh = any(message.fresh for message in since)
            start = max([start, *(n for n in range(max(0, before), place) if self.messages[n].fresh)])
            memory = last.memory[0] if last.memory else memory
            repeated = sum(call in earlier for call in last.calls) / max(1, len(last.calls))
            earlier.update(last.calls)
            rewards = {} if self.reward is None else {"outcome": self.reward if ended else 0.0}
            paid = rewards.get("outcome", math.nan)
            # The last reply may hold the answer, so it is in no prompt.
            history = slice(start, self.turns[-1] if ended else place)
            yield (
                _shown(self.messages[start:place]) if fresh or not count else None,
                {
                    "task": self.task,
                    "turn": count,
                    "context": "rewrite" if fresh else "append",
                    "feedback": f"\n\n{_shown(since)}\n\n" if count and since and not fresh else "",
                    "rewards": rewards,
                    "turn_rewards": [*([0.0] * (count - 1)), paid][:count],
                    "metrics": {"success": float((self.reward or 0) >= 1)} if rewards and ended else {},
                    "events": LazyFields(functools.partial(self._events, len(last.calls), repeated, since)),
                    "privileged": LazyFields(
                        functools.partial(self._privileged, last, since, history, memory, render)
                    ),
                },
            )

    def _events(self, called: int, repeated: float, since: Sequence[Message]) -> dict[str, float]:
        """What happened in a turn, whose results are among the messages since."""
        results = _results(since)
        holds = bool(results and self.answers) and holds_answer(results, [self.answers])[0]
        return {"called": float(called), "repeated": repeated, "retrieved": float(holds)}

    def _privileged(
        self,
        last: Message,
        since: Sequence[Message],
        history: slice,
        memory: str,
        render: Render,
    ) -> Mapping[str, Any]:
        """What reward methods read after the last reply and the messages since."""
        ask = ("user", ASK.fill(question=self.question))
        span = last.memory and [last.memory[1], last.memory[1] + len(last.memory[0])]
        target = self.answers[0] if self.answers else ""

        def with_history() -> str:
            return render([*((message.role, message.content) for message in self.messages[history]), ask])

        def with_memory() -> str:
            return render([("user", f"<memory>\n{memory}\n</memory>"), ask]) if memory else with_history()

        return {
            "question": self.question,
            "answers": [list(self.answers)] if self.answers else [],
            "target": target,
            "target_wrapped": target,  # `ASK` asks for no form
            "evidence": list(self.evidence),
            "passages": lambda: [passage for result in _results(since) for passage in passages_of(result)],
            "memory": memory,
            "memory_span": span,
            "reply": last.content if last is self.messages[self.turns[-1]] else "",
            "prompt_with_history": with_history,
            "prompt_with_memory": with_memory,
            "prompt_without_memory": lambda: render([ask]),
        }


def passages_of(result: str) -> list[str]:
    r"""The texts of the documents in a result that is JSON; otherwise its paragraphs.

    >>> passages_of('{"result": [{"document": {"id": "7", "contents": "River Ano"}}, {"text": "Bel"}]}')
    ['River Ano', 'Bel']
    >>> passages_of("River Ano\n\nBel")
    ['River Ano', 'Bel']
    """
    try:
        texts = list(_documents(json.loads(result)))
    except (ValueError, RecursionError):
        texts = result.split("\n\n")
    return [text.strip() for text in texts if text.strip()]


def _documents(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        texts = [value[name] for name in _TEXTS if isinstance(value.get(name), str)]
        inner = [part for part in value.values() if isinstance(part, (Mapping, list))]
        yield from texts[:1] or itertools.chain.from_iterable(map(_documents, inner))
    elif isinstance(value, list):
        yield from itertools.chain.from_iterable(map(_documents, value))


def _results(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


def _shown(messages: Sequence[Message]) -> str:
    """Messages as one text; with their roles where these differ."""
    roles_differ = len({message.role for message in messages}) > 1
    return "\n\n".join(
        f"{message.role}: {message.content}" if roles_differ else message.content for message in messages
    )
