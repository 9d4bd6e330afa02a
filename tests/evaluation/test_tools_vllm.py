"""Tool calls parsed by vLLM's own parsers, and conversations that it accepts; `make test-vllm` runs it."""

import importlib.util
import json

import gymnasium as gym
import pytest
from tiny_model import save_tiny_model

import memenvs  # noqa: F401  # registers the environments
from memenvs.models.endpoint import Completion, ToolConversation

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM here: `make test-vllm`"),
    pytest.mark.filterwarnings("ignore"),  # vLLM and what it imports warn of their own business
]

MOVES = 'Up || "Left"\nÇ {}'
WRITTEN = {"hermes": "Let me see.\n<tool_call>\n%s\n</tool_call>", "llama3_json": "%s"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """With the tokens that the parsers look for."""
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(save_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))
    made.add_tokens(["<tool_call>", "</tool_call>", "<|python_tag|>"])
    return made


@pytest.mark.parametrize("parser", WRITTEN)
def test_a_call_that_vllm_reads_is_played_and_vllm_takes_the_next_request(parser, tokenizer):
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    env = gym.make("MemSokoban-v0").unwrapped
    chat = ToolConversation(env)
    chat.observe(*env.reset(seed=0))

    def request():
        fields = {"model": "tiny", "messages": chat.messages, **chat.fields}
        return ChatCompletionRequest.model_validate(json.loads(json.dumps(fields)))

    field = "parameters" if parser == "llama3_json" else "arguments"
    written = WRITTEN[parser] % json.dumps({"name": "move", field: {"moves": MOVES}}, ensure_ascii=False)
    reader = ToolParserManager.get_tool_parser(parser)(tokenizer, request().tools)
    found = reader.extract_tool_calls(written, request())
    message = {"content": found.content, "tool_calls": [one.model_dump() for one in found.tool_calls]}
    reply = chat.read(Completion(found.content or "", "tool_calls", message=message))
    assert reply == f"<think>{(found.content or '').strip()}</think><answer>{MOVES}</answer>"
    observation, *_, info = env.step(reply)
    chat.observe(observation, info)
    assert [one["role"] for one in request().messages] == ["user", "assistant", "tool"]
