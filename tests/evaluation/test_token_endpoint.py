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
from memenvs.core.servers import OpenAIClient
from memenvs.models import ChatSettings, HFPolicy, Reply, SamplingParams
from memenvs.models.endpoint import served_window
from memenvs.models.settings import ModelOptions
from memenvs.rollout.policies import choose_policy

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
    """A server of the model "tiny" that replies with texts and more fields of a choice, as a list says."""

    def __init__(self, replies, window=1024):
        super().__init__()
        self.replies, self.window = iter(replies), window

    def answer(self, path, fields):
        if fields is None:
            return 200, {"data": [{"id": "tiny", "max_model_len": self.window}]}
        text, more = next(self.replies)
        return 200, {"choices": [{"index": 0, "text": text, "finish_reason": "stop", **more}]}


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


def play(stub, model, **options):
    """The episode that a server's model plays."""
    options = ModelOptions(tokens=model, max_new_tokens=64, **options)
    with gym.make("MemSearchQA-v0", **ENV) as env:
        policy, _ = choose_policy(f"openai:{stub.url}/v1", options).make(env)
    (episode,) = collect("MemSearchQA-v0", policy, [0], tasks=[0], env_args=ENV)
    return episode


@pytest.mark.parametrize("gives_ids", [True, False])
def test_a_served_model_reads_the_tokens_that_it_was_trained_on(trained, gives_ids):
    policy, folder = trained
    ids = [policy.encode_reply(text) for text in REPLIES]
    more = [{"token_ids": of_reply.tolist()} if gives_ids else {} for of_reply in ids]
    with Completions(zip(REPLIES, more, strict=True)) as stub:
        episode = play(stub, folder)
    assert [body["prompt"] for body in stub.bodies] == policy.read
    assert "I look it up." in policy._tokens.decode(policy.read[1])
    assert [turn.action for turn in episode.turns] == list(REPLIES)
    assert [turn.reply.ids.tolist() for turn in episode.turns] == [of_reply.tolist() for of_reply in ids]
    assert set(stub.paths) == {"/v1/completions"}
    assert stub.bodies[0]["stop_token_ids"] == [policy.tokenizer.eos_token_id]


def test_a_server_samples_as_the_model_was_saved_whatever_its_generation_config_says(tiny_model, tmp_path):
    saved = SamplingParams(top_k=20)
    HFPolicy(str(tiny_model), device="cpu", sampling_params=saved).save(tmp_path / "policy")
    with Completions(zip(REPLIES, [{}, {}], strict=True)) as stub:
        play(stub, str(tmp_path / "policy"), min_p=0.1, body={"repetition_penalty": None})
    wanted = {"top_p": 1.0, "top_k": 20, "min_p": 0.1}
    assert [{name: body[name] for name in wanted} for body in stub.bodies] == [wanted] * 2
    assert not any("repetition_penalty" in body for body in stub.bodies)


def test_a_run_without_the_form_that_is_asked_for_is_warned_of(trained, caplog):
    with Completions([("I do not know.", {})] * 9) as stub:
        play(stub, trained[1])
    (record,) = caplog.records
    assert "0 of 1 episodes" in record.getMessage()


@pytest.mark.parametrize("left_out", [True, False])
@pytest.mark.parametrize("names_it", [{"stop_reason": "</search>"}, {"matched_stop": "</search>"}])
def test_the_text_of_a_server_without_ids_ends_in_its_stop_string(trained, left_out, names_it):
    replies = (REPLIES[0].removesuffix("</search>") if left_out else REPLIES[0], f"{REPLIES[1]}<|im_end|>")
    with Completions(zip(replies, (names_it, {"stop_reason": None}), strict=True)) as stub:
        episode = play(stub, trained[1], stop=["</search>"])
    assert [turn.action for turn in episode.turns] == list(REPLIES)
    policy, (first, second) = trained[0], episode.turns
    assert first.reply.ids.tolist() == policy._tokens.encode(REPLIES[0]).tolist()  # no end token
    assert second.reply.ids.tolist() == policy.encode_reply(REPLIES[1]).tolist()  # one end token


@pytest.mark.parametrize(("served", "window"), [("tiny", 16), ("adapter", 16), ("other", None)])
def test_an_adapter_has_the_window_of_its_base_model(served, window):
    class Models(JSONStub):
        def answer(self, path, fields):
            adapter = {"id": "adapter", "parent": "tiny"}
            return 200, {"data": [{"id": "tiny", "max_model_len": 16}, adapter, {"id": "other"}]}

    with Models() as stub:
        assert served_window(OpenAIClient(f"{stub.url}/v1", timeout=10, tries=1), served) == window


def test_a_prompt_that_fills_the_servers_window_gets_an_empty_reply(trained):
    with Completions([], window=16) as stub:
        episode = play(stub, trained[1])
    assert stub.bodies == []
    assert episode.overlong_prompts == len(episode.turns)


@pytest.mark.parametrize("saved", [True, False])
def test_control_tokens_are_split_as_the_model_was_saved_or_as_asked(tiny_model, tmp_path, saved):
    settings = ChatSettings(split_special_tokens=saved)
    HFPolicy(str(tiny_model), device="cpu", chat_settings=settings).save(tmp_path / "policy")
    options = ModelOptions(tokens=str(tmp_path / "policy"), split_special_tokens=not saved)
    with Completions([]) as stub, gym.make("MemSearchQA-v0", **ENV) as env:
        _, model = choose_policy(f"openai:{stub.url}/v1", options).make(env)
        _, here = choose_policy(
            f"hf:{tmp_path / 'policy'}", ModelOptions(split_special_tokens=not saved)
        ).make(env)
    plain = HFPolicy(str(tiny_model), device="cpu").encode("<|im_end|>")
    assert len(model.encode("<|im_end|>")) > len(plain)
    assert here.encode("<|im_end|>").tolist() == model.encode("<|im_end|>").tolist()


@pytest.mark.parametrize("field", ["max_tokens", "stop", "chat_template_kwargs", "prompt"])
def test_a_field_that_prompts_as_tokens_set_is_refused_in_the_body(trained, field):
    with Completions([]) as stub, pytest.raises(ValueError, match=f"--tokens takes no {field} in --body"):
        choose_policy(f"openai:{stub.url}/v1", ModelOptions(tokens=trained[1], body={field: None}))


@pytest.mark.parametrize("flag", ["split_special_tokens", "drop_thoughts"])
def test_how_a_chat_endpoint_makes_tokens_of_prompts_is_not_ours_to_choose(flag):
    with Completions([]) as stub, pytest.raises(ValueError, match=f"{flag} .* add --tokens MODEL"):
        choose_policy(f"openai:{stub.url}/v1", ModelOptions(**{flag: True}))


@pytest.mark.parametrize("saved", [True, False])
def test_thoughts_are_left_out_as_the_model_was_saved_or_as_asked(tiny_model, tmp_path, saved):
    policy = HFPolicy(str(tiny_model), device="cpu", chat_settings=ChatSettings(drop_thoughts=saved))
    policy.save(tmp_path / "policy")
    with Completions(zip(REPLIES, [{}, {}], strict=True)) as stub:
        play(stub, str(tmp_path / "policy"), drop_thoughts=not saved)
    second = policy._tokens.decode(stub.bodies[1]["prompt"])
    assert "<search>the mayor of the town</search>" in second
    assert "I look it up." not in second


def test_prompts_as_tokens_are_no_conversation(trained):
    with Completions([]) as stub, pytest.raises(ValueError, match="leave --conversation and --tools out"):
        choose_policy(f"openai:{stub.url}/v1", ModelOptions(tokens=trained[1], conversation=True))


def test_a_system_message_is_saved_with_a_policy(tiny_model, tmp_path):
    from memenvs.models.hf import load_chat_tokens

    policy = HFPolicy(str(tiny_model), device="cpu", chat_settings=ChatSettings(system_prompt="Be brief."))
    policy.save(tmp_path / "policy")
    again = HFPolicy.load(tmp_path / "policy", device="cpu")
    assert again.encode("Who?").tolist() == policy.encode("Who?").tolist()
    assert "Be brief." in load_chat_tokens(tmp_path / "policy").template
