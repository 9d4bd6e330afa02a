"""Each form of another tool is read by what it holds: turns, calls, results, rewards and answers."""

import json
import zipfile

import pytest

import memenvs
from memenvs.logs.files import Source

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


def write(folder, rows, name="log.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_the_turns_of_each_form_are_its_replies_with_their_calls_and_results(form, tmp_path):
    (conversation,) = Source([str(write(tmp_path, FORMS[form]))]).conversations()
    turns = [conversation.messages[place] for place in conversation.turns]
    assert conversation.question == ASKED
    assert [turn.text for turn in turns] == ["", "Built is not sailed.", "1904"]
    assert [[call.name for call in turn.calls] for turn in turns] == [["search"], ["search"], []]
    assert [json.loads(call.arguments) for turn in turns for call in turn.calls] == list(
        map(json.loads, CALLS)
    )
    assert turns[0].thought == "No notes."
    results = [message.text for message in conversation.messages if message.role == "tool"]
    assert results == [FIRST, SECOND]


@pytest.mark.parametrize("form", FORMS)
def test_an_episode_of_each_form_has_what_was_read_and_replied(form, tmp_path):
    (episode,) = memenvs.read_conversations(write(tmp_path, FORMS[form]))
    assert ASKED in episode.turns[0].observation
    assert [FIRST in turn.text for turn in episode.turns] == [False, True, False]
    assert (
        episode.turns[1].action
        == f'Built is not sailed.\n<tool_call>{{"name": "search", "arguments": {CALLS[1]}}}</tool_call>'
    )
    assert [turn.end for turn in episode.turns] == ["", "", "terminated"]


def test_rewards_answers_and_groups_are_taken_from_forms_that_have_them(tmp_path):
    for form, reward, task in (("verifiers", 1.0, "ferry/7"), ("Inspect", 1.0, "ferry/1")):
        (conversation,) = Source([str(write(tmp_path, FORMS[form]))]).conversations()
        assert (conversation.reward, conversation.answers, conversation.task) == (reward, ("1904",), task)


def test_an_archive_of_inspect_is_read_as_its_json(tmp_path):
    log = inspect()
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({k: v for k, v in log.items() if k != "samples"}))
        archive.writestr("samples/1_epoch_1.json", json.dumps(log["samples"][0]))
    (conversation,) = Source([str(tmp_path / "log.eval")]).conversations()
    assert conversation == next(Source([str(write(tmp_path, [log]))]).conversations())


def test_trajectories_of_swe_agent_are_read_step_by_step(tmp_path):
    query = [{"role": "system", "content": "A shell."}, {"role": "user", "content": "Count the files."}]
    steps = [
        {"query": query, "response": "List.\nls", "action": "ls", "observation": "a b"},
        {"query": query, "response": "submit 2", "action": "submit", "observation": ""},
    ]
    path = tmp_path / "log.traj"
    path.write_text(json.dumps({"trajectory": steps, "info": {}}, indent=1))
    (conversation,) = Source([str(path)]).conversations()
    assert [conversation.messages[place].text for place in conversation.turns] == ["List.\nls", "submit 2"]
    assert conversation.question == "Count the files."


def test_a_compacted_context_begins_a_fresh_prompt(tmp_path):
    steps = [
        {"step_id": 1, "source": "user", "message": ASKED},
        {"step_id": 2, "source": "agent", "message": "Let me look."},
        {
            "step_id": 3,
            "source": "system",
            "message": "",
            "extra": {"context_management": {"type": "compaction"}},
        },
        {"step_id": 4, "source": "user", "message": "Summary: built in 1902.", "is_copied_context": True},
        {"step_id": 5, "source": "agent", "message": "copied", "is_copied_context": True},
        {"step_id": 6, "source": "agent", "message": "1904"},
    ]
    (episode,) = memenvs.read_conversations(write(tmp_path, [{**atif(), "steps": steps}]))
    assert [turn.action for turn in episode.turns] == ["Let me look.", "1904"]
    assert [turn.before["context"] for turn in episode.turns] == ["append", "rewrite"]
    assert ASKED not in episode.turns[1].observation
    assert "built in 1902" in episode.turns[1].observation


def test_a_branch_of_verifiers_reads_what_is_above_it_and_not_the_other_branch(tmp_path):
    def node(parent, role, content):
        return {
            "parent": parent,
            "message": {"role": role, "content": content},
            "sampled": role == "assistant",
        }

    nodes = [node(None, "user", ASKED), node(0, "assistant", "wrong way"), node(0, "assistant", "1904")]
    (episode,) = memenvs.read_conversations(write(tmp_path, [{"traces": [{"nodes": nodes}]}]))
    assert [turn.observation for turn in episode.turns] == [ASKED, ASKED]


def test_parallel_calls_are_one_turn_even_where_their_results_come_between_the_rows(tmp_path):
    def row(kind, content, id_="m"):
        return {
            "type": kind,
            "uuid": f"{content}",
            "sessionId": "s",
            "message": {"id": id_, "role": kind, "content": content},
        }

    def call(n):
        return [{"type": "tool_use", "id": f"c{n}", "name": f"tool{n}", "input": {}}]

    def result(n):
        return [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"result {n}"}]

    rows = [
        row("user", ASKED),
        row("assistant", call(1)),
        row("user", result(1)),
        row("assistant", call(2)),
        row("user", result(2)),
        row("assistant", [{"type": "text", "text": "1904"}], "n"),
    ]
    (conversation,) = Source([str(write(tmp_path, rows))]).conversations()
    assert [message.role for message in conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [call.name for call in conversation.messages[1].calls] == ["tool1", "tool2"]
