"""Models that think: what reaches the template, the memory, the scorer and the training sequences."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

import transformers
from forgetful import play_without_thoughts
from tiny_model import CHAT_TEMPLATE, save_tiny_model

from memenvs.baselines.flags import main as learn
from memenvs.models import HFPolicy, Reply
from memenvs.models.policy import tokenised
from memenvs.rollout.collect import collect
from memenvs.wrappers.registry import make_scorer
from memenvs.wrappers.scorers import HFScorer

READING = {"tasks": "world-test", "chunk_size": 300, "n_documents": 4, "max_memory": 40}
OPENING = "{%- if add_generation_prompt -%}{{ '<think>\\n' }}{%- endif -%}"
SWITCH = (
    "{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false -%}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}"
)


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    """The folder of a tiny model whose chat template goes on like this."""

    def make(addition):
        folder = save_tiny_model(tmp_path_factory.mktemp("thinking") / "model")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = CHAT_TEMPLATE + addition
        tokenizer.save_pretrained(folder)
        return str(folder)

    return make


class Thinker(HFPolicy):
    """A model that closes the thought which its prompt has opened, and writes a memory behind it."""

    def sample(self, prompts, rngs, max_new_tokens):
        self.read = [*getattr(self, "read", []), *(self._tokens.decode(prompt) for prompt in prompts)]
        texts = [f"Hmm {rng.integers(9)}.\n</think>\n\nAda wrote it." for rng in rngs]
        replies = [self.encode_reply(text) for text in texts]
        return [Reply(self._tokens.reply_text(ids), ids, np.full(len(ids), -1.0), True) for ids in replies]


class Recorder:
    """A scorer that notes what it is asked."""

    def __init__(self, scorer):
        self.scorer, self.requests = scorer, []

    def logprobs(self, requests):
        self.requests += requests
        return self.scorer.logprobs(requests)


@pytest.fixture(scope="module")
def played(model_of):
    """An episode of a thinker whose template opens every thought, under TAMTRL."""
    policy = Thinker(model_of(OPENING))
    scorer = Recorder(HFScorer(policy.model, policy.tokenizer))
    episodes = collect(
        "MemChunkQA-v0", policy, [5], 2, ["TAMTRL"], make_scorer(scorer, policy.template),
        env_args=READING, max_new_tokens=64,
    )  # fmt: skip
    assert all(episode.end == "terminated" for episode in episodes)
    return policy, scorer, episodes[0]


def test_the_prompt_ends_in_the_opened_thought_and_the_reply_holds_its_end_alone(played):
    policy, _, episode = played
    assert all(prompt.endswith("assistant\n<think>\n") for prompt in policy.read)
    assert all(re.fullmatch(r"Hmm \d\.\n</think>\n\nAda wrote it\.", reply.text) for reply in episode.replies)


def test_the_next_prompt_holds_the_memory_without_the_thought(played):
    policy, _, episode = played
    later = [prompt for prompt in policy.read if "Ada wrote it." in prompt]
    assert len(later) == 2 * (len(episode.replies) - 1)  # every turn but the first, of both members
    assert not any("Hmm" in prompt for prompt in policy.read)
    assert all(prompt.count("think>") == 1 for prompt in policy.read)  # the template's own


def test_the_training_sequence_is_the_prompt_that_was_read_and_all_that_was_written(played):
    policy, _, episode = played
    read = policy.read[::2]  # of the first member
    for sample, reply, prompt in zip(episode.samples, episode.replies, read, strict=True):
        np.testing.assert_array_equal(sample.ids[sample.response_mask], reply.ids)
        assert policy._tokens.decode(sample.ids[~sample.response_mask]) == prompt
        assert "Hmm" in policy._tokens.decode(sample.ids[sample.response_mask])


def test_the_memory_is_scored_without_the_thought_behind_a_closed_one(played):
    _, scorer, _ = played
    memories = [request for request in scorer.requests if request.continuation]
    assert memories
    assert {request.continuation for request in memories} == {"Ada wrote it."}
    assert all(request.prompt.endswith("<think>\n\n</think>\n\n") for request in memories)


def test_an_argument_of_the_template_goes_from_a_learner_to_sampler_scorer_and_checkpoint(
    model_of, tmp_path, monkeypatch
):
    asked = []
    score = HFScorer.logprobs
    monkeypatch.setattr(
        HFScorer, "logprobs", lambda self, requests: asked.extend(requests) or score(self, requests)
    )
    out = tmp_path / "run"
    flags = ["--model", model_of(SWITCH), "--out", str(out), "--env", "MemChunkQA-v0", "--reward", "infomem"]
    flags += ["--env-args", *(f"{name}={value}" for name, value in READING.items())]
    flags += ["--chat-args", "enable_thinking=false", "--groups", "1", "--group-size", "2", "--num-envs", "2"]
    assert learn(["grpo", *flags, "--steps", "1", "--max-new-tokens", "4"]) == 0
    assert asked
    assert all(request.prompt.endswith("assistant\n<think>\n\n</think>\n\n") for request in asked)
    saved = json.loads((out / "last" / "policy" / "policy.json").read_text())
    assert saved["chat_args"] == {"enable_thinking": False}
    policy = HFPolicy.load(out / "last" / "policy")
    assert policy._tokens.decode(policy.encode("Who?")).endswith("</think>\n\n")


# As Qwen3's: of an earlier reply what follows its last </think> and the line breaks after that.
FORGETFUL = """{%- for message in messages -%}
{%- set text = message['content'] -%}
{%- if message['role'] == 'assistant' and not loop.last and '</think>' in text -%}
{%- set text = text.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{{ '<|im_start|>' + message['role'] + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""


def test_prompts_leave_out_earlier_thoughts_as_the_template_does(model_of):
    _, policy, rendered = play_without_thoughts(model_of(""), FORGETFUL)
    assert policy.read == rendered
    assert all("Where is it?" not in prompt for prompt in policy.read)


def test_a_fork_begins_a_training_sequence_and_keeps_the_tokens_that_were_sampled(model_of):
    episode, policy, _ = play_without_thoughts(model_of(""), FORGETFUL)
    # the second reply has no thought, so the third turn goes on in its row
    assert [len(turns) for turns in episode.sequences()] == [1, 2, 1]
    assert [turn.reply.forks for turn in episode.turns] == [False, True, False, True]
    assert len(episode.samples) == 3
    first, second, third = episode.samples
    for sample, replies in zip((first, second, third), ([0], [1, 2], [3]), strict=True):
        sampled = np.concatenate([episode.turns[k].reply.ids for k in replies])
        assert sample.ids[sample.response_mask].tolist() == sampled.tolist()
    shown = episode.turns[0].reply.ids[-len(policy.encode_reply("<answer>Up</answer>")) :].tolist()
    begun = episode.turns[0].reply.read.tolist() + shown
    assert second.ids[: len(begun)].tolist() == begun
    assert policy._tokens.decode(np.array(shown)) == "<answer>Up</answer><|im_end|>"
    assert episode.tokens == sum(len(sample.ids[sample.response_mask]) for sample in episode.samples)


def test_what_a_prompt_opens_is_left_out_of_later_ones_too(model_of):
    for addition, opening, chat_args in (
        (OPENING, "<think>\n", {}),
        (SWITCH, "<think>\n\n</think>\n\n", {"enable_thinking": False}),
    ):
        _, policy, rendered = play_without_thoughts(model_of(""), FORGETFUL + addition, opening, **chat_args)
        assert policy.read[0].endswith(opening)
        assert policy.read == rendered


def test_a_teacher_s_episode_forks_as_one_that_was_sampled(model_of):
    episode, policy, _ = play_without_thoughts(model_of(""), FORGETFUL)
    again = tokenised(policy, episode)
    for one, other in zip(episode.samples, again.samples, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.response_mask.tolist() == other.response_mask.tolist()
