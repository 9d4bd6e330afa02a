"""Each form of another tool is read by what it holds: turns, calls, results, rewards and answers."""

import json
import zipfile

import pytest
from made_logs import ASKED, CALLS, FIRST, FORMS, SECOND, atif, inspect, write

import memenvs
from memenvs.logs.files import LogFiles


@pytest.mark.parametrize("form", FORMS)
def test_the_turns_of_each_form_are_its_replies_with_their_calls_and_results(form, tmp_path):
    (conversation,) = LogFiles([str(write(tmp_path, *FORMS[form]))]).conversations()
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
    (episode,) = memenvs.read_conversations(write(tmp_path, *FORMS[form]))
    assert ASKED in episode.turns[0].observation
    assert [FIRST in turn.text for turn in episode.turns] == [False, True, False]
    assert (
        episode.turns[1].action
        == f'Built is not sailed.\n<tool_call>{{"name": "search", "arguments": {CALLS[1]}}}</tool_call>'
    )
    assert [turn.end for turn in episode.turns] == ["", "", "terminated"]


def test_rewards_answers_and_groups_are_taken_from_forms_that_have_them(tmp_path):
    for form, reward, task in (("verifiers", 1.0, "ferry/7"), ("Inspect", 1.0, "ferry/1")):
        (conversation,) = LogFiles([str(write(tmp_path, *FORMS[form]))]).conversations()
        assert (conversation.reward, conversation.answers, conversation.task) == (reward, ("1904",), task)


def test_an_archive_of_inspect_is_read_as_its_json(tmp_path):
    log = inspect()
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({k: v for k, v in log.items() if k != "samples"}))
        archive.writestr("samples/1_epoch_1.json", json.dumps(log["samples"][0]))
    (conversation,) = LogFiles([str(tmp_path / "log.eval")]).conversations()
    assert conversation == next(LogFiles([str(write(tmp_path, log))]).conversations())


def test_trajectories_of_swe_agent_are_read_step_by_step(tmp_path):
    query = [{"role": "system", "content": "A shell."}, {"role": "user", "content": "Count the files."}]
    steps = [
        {"query": query, "response": "List.\nls", "action": "ls", "observation": "a b"},
        {"query": query, "response": "submit 2", "action": "submit", "observation": ""},
    ]
    path = tmp_path / "log.traj"
    path.write_text(json.dumps({"trajectory": steps, "info": {}}, indent=1))
    (conversation,) = LogFiles([str(path)]).conversations()
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
    (episode,) = memenvs.read_conversations(write(tmp_path, {**atif(), "steps": steps}))
    assert [turn.action for turn in episode.turns] == ["Let me look.", "1904"]
    assert [turn.before["context"] for turn in episode.turns] == ["append", "rewrite"]
    assert ASKED not in episode.turns[1].observation
    assert "built in 1902" in episode.turns[1].observation


def test_a_compacted_log_of_inspect_is_read_from_what_its_model_read_and_wrote(tmp_path):
    log = inspect()
    (sample,) = log["samples"]
    system, user, call, result, *_, answer = sample["messages"]
    summary = {"role": "user", "id": "summary", "content": "attachment://s"}

    def model(read, reply, span="agent"):
        output = {"choices": [{"message": reply}]}
        return {"event": "model", "span_id": span, "input": [], "input_refs": read, "output": output}

    sample["events_data"] = {"messages": [system, user, call, result, summary], "calls": []}
    sample["events"] = [
        model([[0, 2]], call),
        model([[0, 1]], {"role": "assistant", "content": "of a sub-agent"}, "other"),
        {"event": "compaction", "span_id": "agent", "type": "summary"},
        model([[0, 2], [4, 5]], answer),
        model([[0, 1]], {"role": "assistant", "content": "of a scorer"}, "scorer"),
    ]
    sample |= {"messages": [system, summary, answer], "attachments": {"s": "Built in 1902."}}
    (episode,) = memenvs.read_conversations(write(tmp_path, log))
    assert [turn.before["context"] for turn in episode.turns] == ["append", "rewrite"]
    assert [turn.action[-4:] for turn in episode.turns] == ["all>", "1904"]
    assert FIRST not in episode.turns[1].observation
    assert "Built in 1902." in episode.turns[1].observation


def test_a_trajectory_that_continues_in_another_file_is_one_conversation(tmp_path):
    first, last = atif(), atif()
    first |= {"steps": first["steps"][:2], "continued_trajectory_ref": "log.cont-1.json"}
    summary = {"step_id": 1, "source": "user", "message": "Built in 1902.", "is_copied_context": True}
    last["steps"] = [summary, *last["steps"][2:]]
    write(tmp_path, first, name="log.json")
    with pytest.raises(ValueError, match=r"continues in log\.cont-1\.json"):
        memenvs.read_conversations(tmp_path / "log.json")
    write(tmp_path, last, name="log.cont-1.json")
    for paths in (tmp_path / "log.json", tmp_path / "*.json"):
        (episode,) = memenvs.read_conversations(paths)
        assert [turn.before["context"] for turn in episode.turns] == ["append", "rewrite", "append"]
        assert "Built in 1902." in episode.turns[1].observation
        assert FIRST not in episode.turns[1].observation


def test_a_branch_of_verifiers_reads_what_is_above_it_and_not_the_other_branch(tmp_path):
    def node(parent, role, content):
        return {
            "parent": parent,
            "message": {"role": role, "content": content},
            "sampled": role == "assistant",
        }

    nodes = [node(None, "user", ASKED), node(0, "assistant", "wrong way"), node(0, "assistant", "1904")]
    (episode,) = memenvs.read_conversations(write(tmp_path, {"traces": [{"nodes": nodes}]}))
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
    (conversation,) = LogFiles([str(write(tmp_path, *rows))]).conversations()
    assert [message.role for message in conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [call.name for call in conversation.messages[1].calls] == ["tool1", "tool2"]
