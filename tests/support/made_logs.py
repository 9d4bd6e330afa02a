"""Logs of agents: three turns in the form of each tool, and two runs about one question."""

import json

ASKED, FIRST, SECOND = "When did the ferry first sail?", "It was built in 1902.", "It first sailed in 1904."
CALLS = [json.dumps({"query": query}) for query in ("ferry", "first crossing")]


def chat(arguments=lambda call: call, flat=False):
    """Three turns: a call, a call with a text, and the answer."""

    def call(number):
        function = {"name": "search", "arguments": arguments(CALLS[number])}
        return {"id": f"c{number}", **(function if flat else {"type": "function", "function": function})}

    return [
        {"role": "system", "content": "Use the archive."},
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": None, "reasoning_content": "No notes.", "tool_calls": [call(0)]},
        {"role": "tool", "tool_call_id": "c0", "content": FIRST},
        {"role": "assistant", "content": "Built is not sailed.", "tool_calls": [call(1)]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": SECOND}]},
        {"role": "assistant", "content": "1904", "weight": 0},
    ]


def items():
    output = "function_call_output"
    return [
        {"role": "user", "content": ASKED},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "No notes."}]},
        {"type": "function_call", "call_id": "c0", "name": "search", "arguments": CALLS[0]},
        {"type": output, "call_id": "c0", "output": FIRST},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Built is not sailed."}],
        },
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": CALLS[1]},
        {"type": output, "call_id": "c1", "output": SECOND},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1904"}]},
    ]


def blocks():
    def call(number):
        return {"type": "tool_use", "id": f"c{number}", "name": "search", "input": json.loads(CALLS[number])}

    def result(number, text):
        return {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": text}],
        }

    return [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "No notes."}, call(0)]},
        result(0, FIRST),
        {"role": "assistant", "content": [{"type": "text", "text": "Built is not sailed."}, call(1)]},
        result(1, [{"type": "text", "text": SECOND}]),
        {"role": "assistant", "content": [{"type": "text", "text": "1904"}]},
    ]


def claude_code():
    """A row for each block of a reply, with what is not part of the conversation between them."""
    rows = [{"type": "summary", "leafUuid": "u", "summary": "Ferry"}]
    for number, message in enumerate(blocks()):
        content = message["content"]
        for block in [[block] for block in content] if isinstance(content, list) else [content]:
            row = {"type": message["role"], "uuid": f"u{len(rows)}", "sessionId": "s"}
            rows.append({**row, "message": {"id": f"m{number}", **message, "content": block}})
    side = {"role": "assistant", "id": "side", "content": [{"type": "text", "text": "A sub-agent."}]}
    rows.append({"type": "assistant", "uuid": "x", "sessionId": "s", "isSidechain": True, "message": side})
    return rows


def codex():
    rows = [{"type": "session_meta", "payload": {"id": "s", "instructions": "Use the archive."}}]
    for item in items():
        rows.append({"type": "response_item", "payload": {"type": "message", **item}})
        rows.append({"type": "event_msg", "payload": {"type": "token_count"}})
    return rows


def atif():
    steps = [{"step_id": 1, "source": "user", "message": ASKED}]
    for number, text in enumerate((FIRST, SECOND)):
        call = {"tool_call_id": "c", "function_name": "search", "arguments": json.loads(CALLS[number])}
        steps.append(
            {
                "step_id": number + 2,
                "source": "agent",
                "message": ["", "Built is not sailed."][number],
                "reasoning_content": ["No notes.", None][number],
                "tool_calls": [call],
                "observation": {"results": [{"source_call_id": "c", "content": text}]},
            }
        )
    steps.append({"step_id": 4, "source": "agent", "message": "1904", "llm_call_count": 1})
    steps.append({"step_id": 5, "source": "agent", "message": "saved", "llm_call_count": 0})
    return {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": steps}


def verifiers():
    nodes = [
        {
            "parent": number - 1 if number else None,
            "message": message,
            "sampled": message["role"] == "assistant",
        }
        for number, message in enumerate(chat(flat=True))
    ]
    task = {"data": {"idx": 7, "prompt": ASKED, "answer": "1904"}}
    rewards = {"correct": {"score": 1.0, "weight": 0.5}, "form": {"score": 0.5, "weight": 1.0}}
    return {"env": {"id": "ferry"}, "task": task, "traces": [{"nodes": nodes, "rewards": rewards}]}


def inspect():
    messages = []
    for number, message in enumerate(chat(json.loads)):
        calls = [
            {"function": "search", "id": "c", "arguments": c["function"]["arguments"]}
            for c in message.get("tool_calls", ())
        ]
        messages.append({**message, "id": f"id{number}", "tool_calls": calls})
    sample = {"id": 1, "epoch": 1, "input": ASKED, "target": "1904", "messages": messages}
    sample["scores"] = {"match": {"value": "C"}}
    return {"version": 2, "eval": {"task": "ferry", "model": "m"}, "samples": [sample]}


FORMS = {
    "chat": [{"messages": chat()}],
    "chat with calls as text": [
        {
            "messages": [
                {**m, "tool_calls": json.dumps(m["tool_calls"])} if m.get("tool_calls") else m for m in chat()
            ]
        }
    ],
    "prompt and completion": [{"prompt": chat()[:2], "completion": chat()[2:]}],
    "session of the hub": [
        {"type": "session", "harness": "h", "id": "1"},
        *({"type": "message", "message": m} for m in chat()),
    ],
    "Responses": [{"input": items()[:4], "output": items()[4:]}],
    "NeMo Gym": [{"responses_create_params": {"input": ASKED}, "response": {"output": items()[1:]}}],
    "Codex": codex(),
    "Anthropic": [{"system": "Use the archive.", "messages": blocks()}],
    "Claude Code": claude_code(),
    "ATIF": [atif()],
    "verifiers": [verifiers()],
    "Inspect": [inspect()],
    "mini-swe-agent": [{"trajectory_format": "mini-swe-agent-1.1", "messages": chat(), "info": {}}],
}


QUESTION = "Which town is the capital of the county?"


def messages(*steps, question=QUESTION):
    """A user's question, then replies and results in turn; a reply that is a dictionary is a search."""
    made = [{"role": "user", "content": question}]
    for step in steps:
        if isinstance(step, dict):
            function = {"name": "search", "arguments": json.dumps(step)}
            made.append(
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
            )
        elif made[-1].get("tool_calls"):
            made.append({"role": "tool", "tool_call_id": "c", "content": step})
        else:
            made.append({"role": "assistant", "content": step})
    return made


FOUND = messages(
    {"query": "Osterland"}, "A county.", {"query": "capital"}, "Norrvik is its capital.", "Norrvik"
)
WRONG = messages({"query": "Osterland"}, "A county.", {"query": "Osterland"}, "A county.", "Hallem")


def write(folder, *rows, name="log.jsonl"):
    path = folder / name
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def labelled(folder):
    return write(
        folder,
        {"messages": FOUND, "answer": "Norrvik", "reward": 1},
        {"messages": WRONG, "answer": "Norrvik", "reward": 0},
    )
