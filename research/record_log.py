r"""Record the log that ships: an agent that asks `smollm2-caller` through the OpenAI client and searches.

python -m research.record_log data/example-log.jsonl

It serves the model on loopback as an OpenAI endpoint with tool calls, and plays an agent against it as people
write them: the client, a list of messages, a tool. The first attempt at a question has to search once before
it may answer, the second twice, the third three times. Needs the extras `lm` and `endpoint`.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from openai import OpenAI

from memenvs.envs.tool_qa import PROMPT, TOOL
from memenvs.models.hf import HFPolicy, load_chat_tokens
from memenvs.retrieval import load_retriever
from memenvs.tasks.metrics import em
from memenvs.tasks.taskset import Task, open_tasks

MODEL, TASKS = "smollm2-caller", range(8)
ATTEMPTS = 3
PASSAGES = 2  # per search
TOKENS = 120
OPENING = '<reasoning>I look it up.</reasoning>\n<tool>\n{"name": "wiki_search", "args": {"query": "'
"""What a reply begins with if the request says `tool_choice="required"`."""
_CALL = re.compile(r"\n*<tool>\s*(\{.*?\})\s*</tool>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
SEARCH = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Search an encyclopedia.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


class ModelServer(ThreadingHTTPServer):
    """`POST /v1/chat/completions` of the model; requests that wait together are sampled together."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.tokens = load_chat_tokens(MODEL)
        self.waiting: queue.Queue[tuple[str, int, Future[str]]] = queue.Queue()
        threading.Thread(target=self._sample, daemon=True).start()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def reply(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The assistant's message after those of a request, a call in `<tool>` read as a tool call."""
        opening = OPENING if fields.get("tool_choice") == "required" else ""
        prompt = self.tokens.render([(m["role"], _text(m)) for m in fields["messages"]]) + opening
        future: Future[str] = Future()
        self.waiting.put((prompt, fields["seed"], future))
        text = opening + future.result()
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if call := _CALL.search(text):
            try:
                called = json.loads(call[1])
                function = {
                    "name": called["name"],
                    "arguments": json.dumps(called["args"], ensure_ascii=False),
                }
            except (ValueError, KeyError):
                return message
            calls = [{"id": f"call_{len(fields['messages'])}", "type": "function", "function": function}]
            message |= {"content": text[: call.start()], "tool_calls": calls}
        return message

    def _sample(self) -> None:
        policy = HFPolicy.load(MODEL)
        while True:
            batch = [self.waiting.get()]
            time.sleep(0.5)
            while not self.waiting.empty():
                batch.append(self.waiting.get())
            prompts = [self.tokens.encode(prompt) for prompt, _, _ in batch]
            rngs = [np.random.default_rng(seed) for _, seed, _ in batch]
            for (_, _, future), reply in zip(batch, policy.sample(prompts, rngs, TOKENS), strict=True):
                future.set_result(reply.text)


class ChatHandler(BaseHTTPRequestHandler):
    """Answers a request by the server's model."""

    server: ModelServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choice = {"index": 0, "message": self.server.reply(fields), "finish_reason": "stop"}
        completion = {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [choice],
        }
        body = json.dumps(completion).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _text(message: dict[str, Any]) -> str:
    """A message as the model was trained to read it: a call in `<tool>`, its result in `<result>`."""
    if message["role"] == "tool":
        return f"<result>\n{message['content']}\n</result>"
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    written = [
        f'<tool>\n{{"name": "{call["name"]}", "args": {call["arguments"]}}}\n</tool>' for call in calls
    ]
    return "\n".join([message["content"] or "", *written])


def attempt(client: OpenAI, retriever: Any, task: Task, searches: int) -> dict[str, Any]:
    """The conversation about a question, by an agent that searches at least so often before it answers."""
    messages: list[Any] = [{"role": "user", "content": PROMPT.fill(question=task.question, several="")}]
    text = ""
    for turn in range(searches + 2):
        response = client.chat.completions.create(
            model=MODEL,
            messages=messages,
            tools=[SEARCH],  # type: ignore[list-item]
            tool_choice="required" if turn < searches else "auto",
            seed=1000 * searches + turn,
        )
        message = response.choices[0].message
        text = message.content or ""
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            break
        call: Any = message.tool_calls[0]
        ids = retriever.search([json.loads(call.function.arguments).get("query", "")], PASSAGES).ids[0]
        found = "\n\n".join(passage.contents for passage in retriever.passages(list(ids)))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
    answer = _ANSWER.search(text)
    (answers,) = task.answers
    return {
        "messages": messages,
        "question": task.question,
        "answers": answers,
        "reward": em(answer[1], answers) if answer else 0.0,
        "model": MODEL,
    }


def main(out: str) -> None:
    """Write the file of messages."""
    tasks = open_tasks("world-test")
    retriever = load_retriever(f"lexical:{tasks.path}")
    client = OpenAI(base_url=f"http://127.0.0.1:{ModelServer().server_port}/v1", api_key="none", timeout=3600)
    with ThreadPoolExecutor(len(TASKS) * ATTEMPTS) as pool:
        lines = pool.map(
            lambda pair: attempt(client, retriever, tasks[pair[0]], pair[1]),
            [(number, searches) for number in TASKS for searches in range(1, ATTEMPTS + 1)],
        )
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
