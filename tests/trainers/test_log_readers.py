"""The log that `memenvs credit --out` writes is read by the packages whose forms these are.

Their examples are in `made_logs`, filled up where a package demands more than memenvs reads.
"""

import json

import pytest
from command_line import run
from made_logs import ASKED, CALLS, FIRST, SECOND, blocks, chat, items, write

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages

METHODS = ["--methods", "StepSearch", "gains=new", "RepeatedCalls"]
REWARDS = [1.0, 1.0, 0.0]  # each search brings something new, the answer nothing


def credited(folder, *rows, suffix=".jsonl", weight=()):
    """The file that is written for a log of these records."""
    (folder / "in").mkdir()
    path = write(folder / "in", *rows, name=f"log{suffix}")
    assert run("credit", [path, *METHODS, "--out", folder / "out", *weight]) == 0
    (file,) = (folder / "out" / "log").iterdir()
    return file


def test_openai_takes_chat_messages_with_weights_and_items(tmp_path):
    pytest.importorskip("openai", reason="openai is not installed")
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.responses import ResponseInputItemParam
    from pydantic import TypeAdapter

    (tmp_path / "chat").mkdir()
    (tmp_path / "items").mkdir()
    file = credited(tmp_path / "chat", {"messages": chat()}, weight=["--weight", "0.5"])
    record = json.loads(file.read_text())
    messages = TypeAdapter(list[ChatCompletionMessageParam]).validate_python(record["messages"], strict=True)
    assert [m["role"] for m in messages] == [m["role"] for m in chat()]
    assert [m["weight"] for m in record["messages"] if "weight" in m] == [1, 1, 0]
    asked = [{"id": "r", **item} if item.get("type") == "reasoning" else item for item in items()[:4]]
    record = json.loads(credited(tmp_path / "items", {"input": asked, "output": items()[4:]}).read_text())
    taken = TypeAdapter(list[ResponseInputItemParam]).validate_python(record["input"])
    assert len(taken) == 4
    assert record["turn_rewards"] == REWARDS


def test_anthropic_takes_messages_of_blocks(tmp_path):
    anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
    from pydantic import TypeAdapter

    record = json.loads(credited(tmp_path, {"messages": blocks()}).read_text())
    messages = TypeAdapter(list[anthropic.types.MessageParam]).validate_python(record["messages"])
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    assert record["turn_rewards"] == REWARDS


def trajectory(texts, **more):
    """A trajectory of ATIF: a question, a search for each text, and the answer."""
    steps = [{"step_id": 1, "source": "user", "message": ASKED}]
    for number, text in enumerate(texts):
        call = {"tool_call_id": "c", "function_name": "search", "arguments": json.loads(CALLS[number])}
        results = [{"source_call_id": "c", "content": text}]
        steps.append(
            {
                "step_id": number + 2,
                "source": "agent",
                "message": "",
                "tool_calls": [call],
                "observation": {"results": results},
                "extra": {"mine": 1},
            }
        )
    steps.append({"step_id": len(steps) + 1, "source": "agent", "message": "1904", "llm_call_count": 1})
    return {"schema_version": "ATIF-v1.8", "agent": {"name": "a", "version": "1"}, "steps": steps, **more}


def test_atif_reads_a_trajectory_whose_steps_have_credit(tmp_path):
    atif = pytest.importorskip("atif", reason="atif is not installed")
    read = atif.Trajectory.model_validate_json(
        credited(tmp_path, trajectory([FIRST, SECOND]), suffix=".json").read_text()
    )
    extras = [step.extra for step in read.steps if step.source == "agent"]
    assert [extra["memenvs"]["reward"] for extra in extras] == REWARDS
    assert extras[0]["mine"] == 1


def test_atif_reads_a_trajectory_whose_files_were_joined(tmp_path):
    atif = pytest.importorskip("atif", reason="atif is not installed")
    first = trajectory([FIRST], continued_trajectory_ref="log.cont-1.json")
    first["steps"].pop()
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", first, name="log.json")
    write(tmp_path / "in", trajectory([SECOND]), name="log.cont-1.json")
    command = [tmp_path / "in" / "*.json", *METHODS, "--out", tmp_path / "out"]
    assert run("credit", command) == 0
    (file,) = (tmp_path / "out" / "log").iterdir()
    read = atif.Trajectory.model_validate_json(file.read_text())
    assert [step.extra["memenvs"]["turn"] for step in read.steps if step.source == "agent"] == [0, 1, 2]
    assert read.continued_trajectory_ref is None


def test_verifiers_reads_traces_whose_info_has_credit(tmp_path):
    pytest.importorskip("verifiers", reason="verifiers is not installed")
    from verifiers.v1 import WireEpisode

    nodes = [
        {
            "parent": number - 1 if number else None,
            "message": message,
            "sampled": message["role"] == "assistant",
        }
        for number, message in enumerate(chat(flat=True))
    ]
    rewards = {"correct": {"score": 1.0, "weight": 1.0}}
    task = {"type": "Task", "data": {"idx": 7, "prompt": ASKED, "answer": "1904"}}
    record = {
        "env": {"id": "ferry"},
        "task": task,
        "traces": [{"task": task, "agent": {"config": {}}, "nodes": nodes, "rewards": rewards}],
    }
    read = WireEpisode.model_validate_json(credited(tmp_path, record).read_text())
    (trace,) = read.traces
    assert trace.info["turn_rewards"] == [1, 2, 3]  # the last turn has the reward of the trace
    assert (trace.num_turns, trace.reward) == (3, 1.0)


@pytest.mark.parametrize("form", ["eval", "json"])
def test_inspect_reads_a_log_that_has_the_credit_as_a_score(form, tmp_path, monkeypatch):
    inspect_ai = pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")
    from inspect_ai.agent import react
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import CompactionSummary, ModelAPI, ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import match
    from inspect_ai.tool import tool

    async def count(self, text):  # otherwise a tokenizer is downloaded
        return len(text) // 4

    monkeypatch.setattr(ModelAPI, "count_text_tokens", count)

    @tool
    def search():
        async def execute(query: str):
            """Search.

            Args:
                query: What to look up.
            """
            return f"{query}: {'It was built in 1902. ' * 90}"

        return execute

    calls = iter(["search", "search", "summary", "submit"])

    def answer(messages, tools, choice, config):
        name = next(calls)
        arguments = {"query": f"ferry {len(messages)}"} if name == "search" else {"answer": "1904"}
        output = ModelOutput.for_tool_call("mockllm", name, arguments)
        if name == "summary":
            output = ModelOutput.from_content("mockllm", "It was built in 1902.")
        return output.model_copy(
            update={"usage": ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)}
        )

    task = inspect_ai.Task(
        dataset=[Sample(input=ASKED, target="1904", id=1)],
        solver=react(tools=[search()], compaction=CompactionSummary(threshold=900)),
        scorer=match(),
    )
    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "in"), display="none", log_format=form)
    assert log.status == "success", log.error
    assert run("credit", [log.location.removeprefix("file://"), *METHODS, "--out", tmp_path / "out"]) == 0
    (file,) = (tmp_path / "out" / "log").iterdir()
    (sample,) = read_eval_log(str(file)).samples
    turns = sample.scores["memenvs"].metadata["turns"]
    assert [turn["reward"] for turn in turns] == [1, 1, 0, 1]  # the third wrote the summary
    assert sample.scores["match"].value == "C"
    assert len(sample.messages) == len(log.samples[0].messages)
