"""A chat endpoint plays many episodes: each turn is a request, and those that are answered go on."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from memenvs.chat import ChatClient, EndpointError
from memenvs.evaluation.protocol import Answer, Ask

_log = logging.getLogger(__name__)

Fields = dict[str, Any]


class _Turn(NamedTuple):
    """The last turn of a seat: what was sent, and what was replied."""

    messages: list[dict[str, str]]
    text: str = ""


class EndpointPolicy:
    """A model behind an OpenAI-compatible server; a `BatchPolicy`.

    Every request has a seed of its own, drawn from its episode's generator. An episode whose request fails
    has failed; the others go on.

    A stop string that ended a reply is put back: environments read it, endpoints take it off. Many servers
    do not tell which one it was, or whether it was one at all. From the first reply of such a server on, that
    one included, requests go out without stop strings, and a reply is cut behind the first one that it
    holds: it is what the stop string would have left, though the model writes on unseen.

    Args:
        client: of the server.
        fields: of every request: model, temperature and the like; None leaves one out.
        concurrency: requests under way at once.
        conversation: send an episode of context `"append"` as messages, the replies as the assistant's;
            otherwise an observation is one message of the user.
    """

    def __init__(
        self, client: ChatClient, fields: Fields, *, concurrency: int, conversation: bool = False
    ) -> None:
        self.client, self.fields, self.conversation = client, fields, conversation
        self._past: dict[int, _Turn] = {}
        self._cuts = False  # replies are cut here
        self._asked: queue.SimpleQueue[tuple[int, Fields] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        # Daemons, so that an interrupted run need not wait for replies that may take minutes.
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(concurrency)]
        for worker in self._workers:
            worker.start()

    def ask(self, asked: Ask) -> None:
        """See `BatchPolicy`."""
        messages = self._messages(asked)
        self._past[asked.seat] = _Turn(messages)
        seed = int(asked.rng.integers(2**31))
        fields = {"seed": seed, **self.fields, "messages": messages}
        self._asked.put((asked.seat, {name: value for name, value in fields.items() if value is not None}))

    def answered(self) -> list[Answer]:
        """See `BatchPolicy`."""
        ready = [self._answers.get()]
        while not self._answers.empty():
            ready.append(self._answers.get())
        for answer in ready:
            self._past[answer.seat] = self._past[answer.seat]._replace(text=answer.text)
        return ready

    def close(self) -> None:
        """See `BatchPolicy`."""
        for _ in self._workers:
            self._asked.put(None)

    def _messages(self, asked: Ask) -> list[dict[str, str]]:
        past = self._past.get(asked.seat)
        if past is None or asked.first or not self.conversation:
            return [{"role": "user", "content": asked.observation}]
        said = {"role": "assistant", "content": past.text}
        return [*past.messages, said, {"role": "user", "content": asked.info["feedback"]}]

    def _work(self) -> None:
        while (job := self._asked.get()) is not None:
            seat, fields = job
            try:
                answer = self._complete(seat, fields)
            except EndpointError as error:
                answer = Answer(seat, error=str(error))
            except Exception as error:  # a worker that died in silence would be waited for for ever
                answer = Answer(seat, error=repr(error))
            self._answers.put(answer)

    def _complete(self, seat: int, fields: Fields) -> Answer:
        """The reply with the stop string that ended it."""
        given = fields.get("stop") or ()
        stops = [given] if isinstance(given, str) else given
        if not (stops and self._cuts):
            reply = self.client.complete(fields)
            if not stops or reply.tells_stop:
                text = reply.text if reply.text.endswith(reply.stop) else reply.text + reply.stop
                return Answer(seat, text, reply.prompt_tokens, reply.reply_tokens, reply.finish == "length")
            if not self._cuts:
                self._cuts = True
                _log.warning(
                    "%s does not tell which stop string ended a reply: replies are written to their end, and "
                    "cut here",
                    self.client.url,
                )
        reply = self.client.complete({name: value for name, value in fields.items() if name != "stop"})
        found = cut_behind(reply.text, stops)
        is_cut = found is None and reply.finish == "length"
        # What was counted is what the model wrote, not what is left of it.
        return Answer(seat, reply.text if found is None else found, reply.prompt_tokens, None, is_cut)


def cut_behind(text: str, stops: Sequence[str]) -> str | None:
    """A text up to the end of the stop string that is complete first; None where it holds none.

    >>> cut_behind("<a>x</a> <b>y</b>", ["</b>", "</a>"])
    '<a>x</a>'
    """
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else None
