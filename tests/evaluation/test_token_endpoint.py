"""A trained model behind a server reads the token ids that it was trained on."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("openai")

from json_stub import JSONStub
from tiny_model import CHAT_TEMPLATE

from memenvs import collect
from memenvs.evaluation.policies import ModelOptions, choose_policy
from memenvs.models import HFPolicy, Reply

REPLIES = (
    "<think>\nI look it up.\n</think>\n\n<search>the mayor of the town</search>",
    "<think>\nI know.\n</think>\n\n<answer>nobody</answer>",
)
STRIPS_THOUGHTS = CHAT_TEMPLATE.replace(
    "{{ message['content'] + '<|im_end|>' }}",
    "{{ message['content'].split('</think>')[-1].lstrip() + '<|im_end|>' }}",
)
ENV = {"tasks": "world-test"}


class Completions(JSONStub):
    """A server of the model "tiny" that replies as a list says, with the ids of its tokens or without."""

    def __init__(self, replies, window=1024):
        super().__init__()
        self.replies, self.window = iter(replies), window

    def answer(self, path, fields):
        if fields is None:
            return 200, {"data": [{"id": "tiny", "max_model_len": self.window}]}
        text, ids = next(self.replies)
        choice = {"index": 0, "text": text, "finish_reason": "stop"}
        return 200, {"choices": [choice if ids is None else {**choice, "token_ids": ids.tolist()}]}


class Trained(HFPolicy):
    """Notes what it reads, and replies as the list says."""

    def sample(self, prompts, rngs, max_new_tokens):
        self.read = [*getattr(self, "read", []), *(prompt.tolist() for prompt in prompts)]
        ids = self.encode_reply(REPLIES[len(self.read) - 1])
        return [Reply(self._tokens.reply_text(ids), ids, np.zeros(len(ids)), True)]


@pytest.fixture
def trained(tiny_model, tmp_path):
    """A model whose template leaves thoughts out of the messages before the last, saved, and what it read."""
    policy = Trained(str(tiny_model), device="cpu")
    assert STRIPS_THOUGHTS != CHAT_TEMPLATE
    policy.tokenizer.chat_template = STRIPS_THOUGHTS
    policy.save(tmp_path / "policy")
    collect("MemSearchQA-v0", policy, [0], tasks=[0], env_args=ENV)
    return policy, str(tmp_path / "policy")


def play(stub, model):
    """The episode that a server's model plays."""
    options = ModelOptions(tokens=model, max_new_tokens=64)
    with gym.make("MemSearchQA-v0", **ENV) as env:
        policy, _ = choose_policy(f"openai:{stub.url}/v1", options).make(env)
    (episode,) = collect("MemSearchQA-v0", policy, [0], tasks=[0], env_args=ENV)
    return episode


@pytest.mark.parametrize("gives_ids", [True, False])
def test_a_served_model_reads_the_tokens_that_it_was_trained_on(trained, gives_ids):
    policy, folder = trained
    ids = [policy.encode_reply(text) for text in REPLIES]
    with Completions(zip(REPLIES, ids if gives_ids else (None, None), strict=True)) as stub:
        episode = play(stub, folder)
    assert [body["prompt"] for body in stub.bodies] == policy.read
    assert "I look it up." in policy._tokens.decode(policy.read[1])
    assert [turn.action for turn in episode.turns] == list(REPLIES)
    assert [turn.reply.ids.tolist() for turn in episode.turns] == [of_reply.tolist() for of_reply in ids]
    assert set(stub.paths) == {"/v1/completions"}
    assert stub.bodies[0]["stop_token_ids"] == [policy.tokenizer.eos_token_id]


def test_a_prompt_that_fills_the_servers_window_gets_an_empty_reply(trained):
    with Completions([], window=16) as stub:
        episode = play(stub, trained[1])
    assert stub.bodies == []
    assert episode.overlong_prompts == len(episode.turns)


def test_prompts_as_tokens_are_no_conversation(trained):
    with Completions([]) as stub, pytest.raises(ValueError, match="leave --conversation and --tools out"):
        choose_policy(f"openai:{stub.url}/v1", ModelOptions(tokens=trained[1], conversation=True))
