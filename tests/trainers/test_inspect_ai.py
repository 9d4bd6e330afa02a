"""Episodes of all families in the real inspect-ai, with replies of its `mockllm/model`."""

import json
import os
import subprocess
import sys

import pytest
from families import FAMILIES, play

inspect_ai = pytest.importorskip(
    "inspect_ai", reason='inspect-ai is not installed: pip install -e ".[inspect]"'
)
pytestmark = pytest.mark.filterwarnings("ignore")  # inspect-ai leaves streams open

from inspect_ai.model import (  # noqa: E402
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.solver import system_message  # noqa: E402

from memenvs import ENV_IDS  # noqa: E402
from memenvs.adapters.inspect_ai import environment  # noqa: E402

CASES = [("reading", 1), ("search", 2), ("sokoban", 1)]
USAGE = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # otherwise mockllm downloads a tokenizer


def run(task, folder, replies, asked=None, **settings):
    """The log of a task; `replies` are those of the episode, texts or contents."""
    replies = iter(replies)

    def answer(messages, *_):
        if asked is not None:
            asked.append(messages)
        message = ChatMessageAssistant(content=next(replies))
        return ModelOutput.from_message(message).model_copy(update={"usage": USAGE})

    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(folder), display="none", **settings)
    assert log.status == "success", log.error
    return log


def run_gold(family, number, folder, asked=None):
    """The one sample of a log in which a family's episode is played by the right answers."""
    made = FAMILIES[family]
    settings = {name: made[name] for name in ("methods", "scorer") if name in made}
    task = environment(made["env"], seed=7, **settings, **made.get("env_args", {}))
    replies = [turn.reply for turn in play(family, number)]
    (sample,) = run(task, folder, replies, asked, sample_id=number).samples
    return sample


SCRIPT = """
import sys
import inspect_ai
from inspect_ai.model import ModelOutput, ModelUsage, get_model

def say_nothing(*_):
    output = ModelOutput.from_content("mockllm", "nothing")
    return output.model_copy(update={"usage": ModelUsage()})

model = get_model("mockllm/model", custom_outputs=say_nothing)
settings = {"model": model, "limit": 1, "display": "none", "task_args": {"seed": 3}}
for log in inspect_ai.eval(sys.argv[1:], **settings):
    print(log.status, log.eval.task, log.eval.task_args)
    print(log.error.message if log.error else "", file=sys.stderr)
"""


def test_the_entry_point_gives_a_task_for_every_environment(tmp_path):
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", SCRIPT, *(f"memenvs/{env}" for env in ENV_IDS)]
    ended = subprocess.run(command, cwd=tmp_path, env=elsewhere, capture_output=True, text=True)
    lines = [f"success {env} {{'seed': 3}}" for env in ENV_IDS]
    assert ended.stdout.splitlines() == lines, ended.stderr


@pytest.mark.parametrize(("family", "number"), CASES)
def test_metrics_and_turn_rewards_are_in_the_log(family, number, tmp_path):
    turns = play(family, number)
    score = run_gold(family, number, tmp_path).scores["episode"]
    assert score.metadata["turn_rewards"] == turns[-1].public["turn_rewards"]
    assert score.value.items() >= turns[-1].public["metrics"].items()
    assert score.value["return"] == pytest.approx(sum(turn.reward for turn in turns))


def test_components_are_summed_under_their_names(tmp_path):
    value = run_gold("sokoban", 1, tmp_path).scores["episode"].value
    # two turns of three moves at -0.1, then one that ends on the target: 10 + 1; format 0.5 a turn
    sums = {name: value[f"reward/{name}"] for name in ("outcome", "placement", "format", "step")}
    assert sums == pytest.approx({"outcome": 10.0, "placement": 1.0, "format": 1.5, "step": -0.6})


def test_every_metric_has_a_mean_and_an_error(tmp_path):
    log = run(environment("MemSokoban-v0"), tmp_path, ["nothing"] * 6, limit=2)
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert (means["success"], means["turns"], means["complete"]) == (0.0, 3.0, 1.0)
    assert all(score.metrics["stderr"].value == 0.0 for score in log.results.scores if score.name == "turns")


@pytest.mark.parametrize(("family", "number"), CASES)
def test_the_model_reads_the_observation(family, number, tmp_path):
    asked = []
    run_gold(family, number, tmp_path, asked)
    read = ["".join(message.text for message in messages) for messages in asked]
    assert read == [turn.observation for turn in play(family, number)]


@pytest.mark.parametrize(("family", "number"), CASES)
def test_the_messages_are_the_turns(family, number, tmp_path):
    sample = run_gold(family, number, tmp_path)
    replies = [message.text for message in sample.messages if message.role == "assistant"]
    assert replies == [turn.reply for turn in play(family, number)]
    assert [message.role for message in sample.messages] == ["user", "assistant"] * len(replies)


def test_the_transcript_says_after_each_reply_what_it_earned(tmp_path):
    sample = run_gold("sokoban", 1, tmp_path)
    events = [event for event in sample.events if event.event in ("model", "info")]
    assert [event.event for event in events] == ["model", "info"] * 3
    assert [event.data["rewards"] for event in events[1::2]] == [
        turn.public["rewards"] for turn in play("sokoban", 1)
    ]


def test_the_sample_shows_question_and_target_and_nothing_else_that_is_privileged(tmp_path):
    sample = run_gold("search", 2, tmp_path)
    assert sample.input in play("search", 2)[0].observation
    assert sample.target in sample.scores["episode"].answer
    assert "privileged" not in json.dumps(sample.model_dump(mode="json"))


def test_a_thought_that_inspect_split_off_is_played_as_the_model_wrote_it(tmp_path):
    split = [ContentReasoning(reasoning="Up."), ContentText(text="<answer>Up</answer>")]
    log = run(environment("MemSokoban-v0", max_turns=3), tmp_path, [split] * 3, limit=1)
    assert log.samples[0].scores["episode"].value["format"] == 1.0


def test_an_episode_that_a_limit_cuts_is_incomplete(tmp_path):
    log = run(environment("MemSokoban-v0"), tmp_path, ["nothing"] * 3, limit=1, message_limit=3)
    score = log.samples[0].scores["episode"]
    assert (score.value["complete"], score.value["turns"], len(score.metadata["turn_rewards"])) == (
        0.0,
        0.0,
        1,
    )


def test_a_system_message_is_read_at_every_turn(tmp_path):
    asked = []
    task = inspect_ai.task_with(environment("MemChunkQA-v0"), setup=system_message("Be brief."))
    run(task, tmp_path, ["nothing"] * 99, asked, limit=1)
    assert [[m.role for m in messages] for messages in asked] == [["system", "user"]] * len(asked)


def test_pictures_are_sent_beside_the_text(tmp_path):
    asked = []
    run(environment("MemSokobanImage-v0"), tmp_path, ["nothing"] * 3, asked, limit=1)
    assert [[part.type for part in messages[-1].content] for messages in asked] == [["text", "image"]] * 3


def test_a_wrong_argument_is_named():
    with pytest.raises(ValueError, match="chunk_sizes"):
        environment("MemChunkQA-v0", chunk_sizes=3)
