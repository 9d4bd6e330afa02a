"""A chat endpoint on loopback with replies that the test sets."""

from __future__ import annotations

import itertools

from json_stub import JSONStub


class ChatStub(JSONStub):
    """`reply` gets a request's fields and returns (status, text), or (status, text, parts of the choice).

    A part that is `...` is left out.
    """

    def __init__(self, reply):
        super().__init__()
        self.reply, self.models, self.usage = reply, ["tiny"], True
        self.numbers = itertools.count(1)  # of the completions

    @property
    def url(self):
        return f"{super().url}/v1"

    def answer(self, path, fields):
        if fields is None:
            return 200, {"data": [{"id": name} for name in self.models]}
        number = next(self.numbers)
        status, text, *parts = self.reply(fields)
        if status != 200:
            return status, {"error": {"message": text}}
        choice = {"message": {"role": "assistant", "content": text}, "index": 0}
        choice |= {"finish_reason": "stop", "stop_reason": None, **(parts[0] if parts else {})}
        body = {"id": f"chat-{number}", "object": "chat.completion", "created": 0}
        body["model"] = fields.get("model", "")
        body["choices"] = [{name: part for name, part in choice.items() if part is not ...}]
        counted = sum(len(str(message["content"]).split()) for message in fields["messages"])
        written = len(str(text or "").split())
        usage = {"prompt_tokens": counted, "completion_tokens": written, "total_tokens": counted + written}
        return 200, body | ({"usage": usage} if self.usage else {})
