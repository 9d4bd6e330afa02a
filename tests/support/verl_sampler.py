"""What replies to verl's trainer on a CPU, under the name of vLLM; verl loads it in every process.

The replies are a script's, or where `SAMPLES` is set the model's own, drawn by the prompt and the step, so
that a run can be repeated. Their log-probabilities, and the scores, are those of the weights in training.
The folder `EPISODES` of the environment gets the groups that our agent loop has played. `SHIFT` nats are
added to the log-probability of a third of the sampled tokens, and a share `FAILS` of the requests fails.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from uuid import uuid4

import numpy as np
import ray
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from memenvs.adapters.verl import EpisodeLoop
from memenvs.models.lora import PREFIX
from memenvs.tasks.taskset import open_tasks

NAME = "sampler"
SHIFT, FAILS = (float(os.environ.get(name, 0)) for name in ("SHIFT", "FAILS"))
SAMPLES = "SAMPLES" in os.environ
play_rows = EpisodeLoop._rows


def reply_to(prompt, answers, draws):
    """A search, the right answer or a wrong one, after a memory where the prompt asks for one."""
    answer = next(answer for question, answer in answers.items() if question in prompt)
    texts = ["<search>river</search>", f"<answer>{answer}</answer>", "<answer>river</answer>"]
    words = " ".join(draws.choice(prompt.split(), 3))
    memory = f"<mem>{words}</mem>" if "<mem>" in prompt else ""
    return f"{memory}<think></think>{draws.choice(texts)}<|im_end|>"


@ray.remote(num_cpus=0, max_concurrency=64)
class Sampler:
    """What verl calls in place of a vLLM server."""

    def __init__(self, path):
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.answers = {task.question: task.answers[0][0] for task in open_tasks()}
        self.first = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        self.step, self.prompts = 0, Counter()

    async def load(self, weights, step, adapter):
        if adapter:  # of which verl sends nothing else
            weights, changes, scale = dict(self.first), weights, adapter["lora_alpha"] / adapter["r"]
            for name, change in changes.items():
                if ".lora_A." in name:
                    layer = name.removeprefix(PREFIX).replace(".lora_A", "")
                    weights[layer] = weights[layer] + scale * changes[name.replace("_A", "_B")] @ change
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        assert not unexpected
        assert {*missing} <= {"lm_head.weight"}  # which is tied
        self.step, self.prompts = step, Counter()

    async def generate(self, request_id, prompt_ids, sampling_params, **others):
        fields, ids, replied = {"global_steps": self.step}, [*prompt_ids], []
        scoring = sampling_params.get("prompt_logprobs") is not None
        if not scoring:
            seed = [self.step, self.prompts[tuple(ids)], *ids]  # a group's rollouts begin with one prompt
            self.prompts[tuple(ids)] += 1
            draws = np.random.default_rng(seed)
            if SAMPLES:
                replied = self.sample(ids, sampling_params, draws)
            else:
                prompt = self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
                reply = reply_to(prompt, self.answers, draws)
                replied = self.tokenizer.encode(reply)[: sampling_params["max_tokens"]]
            if draws.random() < FAILS:
                raise RuntimeError("the sampler fails")
        everything = [*ids, *replied]
        with torch.no_grad():
            logits = self.model(torch.tensor([everything])).logits[0] / sampling_params.get(
                "temperature", 1.0
            )
        logprobs = logits.log_softmax(-1)
        nats = [float(logprobs[i, token]) for i, token in enumerate(everything[1:])]
        if scoring:
            fields["prompt_logprobs"] = [*([value] for value in nats), [0.0]]
            return TokenOutput(token_ids=[0], log_probs=[0.0], extra_fields=fields)
        sampled = [
            value + SHIFT * (id % 3 == 0) for id, value in zip(replied, nats[len(ids) - 1 :], strict=True)
        ]
        return TokenOutput(token_ids=replied, log_probs=sampled, extra_fields=fields)

    def sample(self, prompt, params, draws):
        """The ids of a reply of the model's."""
        replied = []
        while len(replied) < params["max_tokens"] and not {*replied[-1:]} & {*params["stop_token_ids"]}:
            with torch.no_grad():
                logits = self.model(torch.tensor([[*prompt, *replied]])).logits[0, -1].double()
            chances = (logits / params["temperature"]).softmax(-1).cumsum(-1)
            replied.append(min(int(torch.searchsorted(chances, draws.random())), len(chances) - 1))
        return replied

    async def nothing(self, *args, **kwargs):
        pass

    wake_up = sleep = abort_all_requests = resume_generation = nothing
    clear_kv_cache = release_kv_cache = resume_kv_cache = nothing


class SamplerReplica(RolloutReplica):
    """verl's handle of the sampler."""

    async def launch_servers(self):
        # The servers of all GPUs are one, so that what it has sampled does not depend on their number.
        sampler = Sampler.options(name=NAME, get_if_exists=True).remote(self.model_config.path)
        self.servers, self._server_handle, self._server_address = [sampler], sampler, NAME


class SamplerWeights(BaseRollout):
    """Sends the weights in training to the sampler."""

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, global_steps=None, peft_config=None, **others):
        whole = {name: weight.detach().float().clone() for name, weight in weights}
        await ray.get_actor(NAME).load.remote(whole, global_steps or 0, peft_config)


def keep_group(self, group, *others):
    """The rows of a group, which is left in the folder too."""
    file = Path(os.environ["EPISODES"], f"{group[0].step}-{uuid4().hex}")
    file.write_bytes(pickle.dumps(group))
    return play_rows(self, group, *others)


EpisodeLoop._rows = keep_group
_ROLLOUT_REGISTRY["vllm", "async"] = f"{__name__}.{SamplerWeights.__name__}"
RolloutReplicaRegistry.register("vllm", lambda: SamplerReplica)
