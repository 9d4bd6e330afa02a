"""Conversations in the chat templates of models: calls parsed back from their text, and earlier thoughts."""

import json
from pathlib import Path

import gymnasium as gym
import pytest
from forgetful import play_without_thoughts
from tiny_model import save_tiny_model

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` installs it")
import trl
from transformers import AutoTokenizer
from trl.chat_template_utils import add_response_schema, parse_response

import memenvs  # noqa: F401  # registers the environments
from memenvs.models.endpoint import Completion, ToolConversation

FOLDER = Path(trl.__file__).parent / "chat_templates"
# Qwen2.5 writes calls as Hermes models do, whose own template no test dependency has. That one also wants the
# name of the tool in what the tool returned.
FAMILIES = {"Qwen3": "qwen3", "Hermes": "qwen2_5", "Qwen3.5": "qwen3_5_think", "Llama 3.1": "llama3_1"}
CALLS = {
    "MemSearchQA-v0": ("search", {"query": 'who said "no"?\nin Çorlu, {then}'}),
    "MemToolQA-v0": ("wiki_search", {"query": "the dam's builder"}),
    "MemSokoban-v0": ("move", {"moves": "Up || Left"}),
}


@pytest.fixture(scope="module", params=FAMILIES)
def tokenizer(request, tmp_path_factory):
    """A tokenizer with the chat template of a family, which TRL can read."""
    template = FOLDER / f"{FAMILIES[request.param]}.jinja"
    if not template.exists():
        pytest.skip(f"this version of TRL has no {template.name}")
    made = AutoTokenizer.from_pretrained(save_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))
    made.chat_template = template.read_text(encoding="utf-8")
    return add_response_schema(made)


def as_servers(messages):
    """Messages with the arguments of calls as objects, which is how servers pass them to a template."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return messages


@pytest.mark.parametrize("env_id", CALLS)
def test_a_call_comes_back_from_the_text_of_a_template(env_id, tokenizer):
    name, arguments = CALLS[env_id]
    env = gym.make(env_id).unwrapped
    chat = ToolConversation(env)
    chat.observe(*env.reset(seed=0))

    def render(**how):
        given = as_servers(chat.messages)
        return tokenizer.apply_chat_template(given, tools=env.tools(), tokenize=False, **how)

    prompt = render(add_generation_prompt=True)
    assert chat.messages[0]["content"].strip() in prompt
    assert all(tool["function"]["description"] in prompt for tool in env.tools())

    call = {"id": "one", "function": {"name": name, "arguments": json.dumps(arguments)}}
    reply = chat.read(Completion("", "tool_calls", message={"tool_calls": [call]}))
    said = render().removeprefix(prompt)
    before, ids = (tokenizer.encode(text, add_special_tokens=False) for text in (prompt, said))
    parsed = parse_response(tokenizer, ids, prefix=before)
    (found,) = parsed["tool_calls"]
    assert (found["function"]["name"], found["function"]["arguments"]) == (name, arguments)
    again = ToolConversation(env).read(Completion("", "tool_calls", message=parsed))
    assert again == reply

    observation, *_, info = env.step(reply)
    chat.observe(observation, info)
    returned, text = chat.messages[-1]["content"], render(add_generation_prompt=True)
    assert returned in text or json.dumps(returned, ensure_ascii=False) in text  # Llama reads JSON


@pytest.mark.parametrize(
    ("family", "opening", "chat_args"),
    [
        ("qwen3", "", {}),
        ("qwen3", "<think>\n\n</think>\n\n", {"enable_thinking": False}),
        ("qwen3_5_think", "<think>\n", {}),
    ],
)
def test_earlier_thoughts_are_left_out_as_the_template_leaves_them_out(family, opening, chat_args, tmp_path):
    template = FOLDER / f"{family}.jinja"
    if not template.exists():
        pytest.skip(f"this version of TRL has no {template.name}")
    folder, text = save_tiny_model(tmp_path / "tiny"), template.read_text(encoding="utf-8")
    _, policy, rendered = play_without_thoughts(folder, text, opening, **chat_args)
    assert policy.read[0].endswith(opening)
    assert policy.read == rendered
