"""verl's own worker without Ray, on a stand-in for its inference servers; needs verl."""

from __future__ import annotations

import asyncio
import random
import shlex
from collections import Counter
from types import SimpleNamespace

import hydra
import numpy as np
from omegaconf import OmegaConf
from verl.experimental.agent_loop import agent_loop
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

import memenvs.adapters.verl  # noqa: F401  # registers the estimator

END = "<|im_end|>"
SEEDS = {"one": 1, "two": 2}  # of the prompts
FIELDS = ("prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs", "extra_fields")
TRAIN = {"split": "train"}
LIMITS = [f"actor_rollout_ref.rollout.{name}=4000" for name in ("prompt_length", "response_length")]
BASE = ["actor_rollout_ref.rollout.name=vllm", *LIMITS, "algorithm.adv_estimator=memenvs_as_paid"]


def compose(overrides):
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", overrides=overrides)


def overrides(out):
    """The settings of a run's script, with those for a machine without flash-attn."""
    lines = (out / "run.sh").read_text().replace("\\\n", " ").splitlines()
    attention = shlex.split(lines[-2].partition("attention=(")[2].rstrip(")"))
    return [*shlex.split(lines[-1])[3:-2], *attention]


def nats(before, token):
    """A made-up log-probability of a token after others."""
    return -6.0 * random.Random(hash((len(before), *before[-20:], token))).random()


class Servers:
    """What verl's client calls in place of a vLLM server: `say(turn, prompt)` gives the replies.

    Args:
        tokenizer: of the model.
        say: from the number of the rollout's turn and its prompt to a reply, a text or token ids.
        fail: numbers of the calls for a reply that raise.
        aborts: calls for scores that new weights interrupt.
    """

    def __init__(self, tokenizer, say, fail=(), aborts=0):
        self.tokenizer, self.say, self.fail, self.aborts = tokenizer, say, fail, aborts
        self.generate, self.turns, self.prompts = SimpleNamespace(remote=self.answer), Counter(), []
        self.scored = self.scoring = self.most_scoring = 0

    async def answer(self, request_id, prompt_ids, sampling_params, image_data, video_data):
        steps = {"global_steps": 7}
        if "prompt_logprobs" in sampling_params:
            self.scored, self.scoring = self.scored + 1, self.scoring + 1
            self.most_scoring = max(self.most_scoring, self.scoring)
            await asyncio.sleep(0.001)
            self.scoring -= 1
            if self.scored <= self.aborts:
                return TokenOutput(token_ids=[], stop_reason="aborted", extra_fields=steps)
            told = [[nats(prompt_ids[:i], prompt_ids[i])] for i in range(1, len(prompt_ids))]
            return TokenOutput(token_ids=[0], extra_fields={**steps, "prompt_logprobs": [*told, [0.0]]})
        self.prompts.append(self.tokenizer.decode(prompt_ids))
        if len(self.prompts) in self.fail:
            raise OSError("the server is down")
        said = self.say(self.turns[request_id], self.prompts[-1])
        self.turns[request_id] += 1
        ids = self.tokenizer.encode(said + END) if isinstance(said, str) else said
        ids = ids[: sampling_params["max_tokens"]]
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields=steps)


def batch_of(seeds, info):
    """What verl sends to a worker: prompts, each with its seed and these entries of `extra_info`."""

    def column(values):
        made = np.empty(len(seeds), dtype=object)
        made[:] = values
        return made

    batch = tensordict_utils.get_tensordict(
        {
            "uid": column(list(seeds)),
            "raw_prompt": column([[{"role": "user", "content": "?"}]] * len(seeds)),
            "index": column(list(range(len(seeds)))),
            "extra_info": column([{"seed": seed, **info} for seed in seeds.values()]),
            "agent_name": column(["memenvs"] * len(seeds)),
        }
    )
    tensordict_utils.assign_non_tensor_data(batch, "global_steps", 8)
    return batch


class Queue:
    """What verl's workers put into its queue.

    Attributes:
        rows: by prompt and rollout, the key and the fields of each row.
    """

    def __init__(self):
        self.rows = {}

    def add(self, keys, fields):
        for i, key in enumerate(keys):
            uid, session, _ = key.rsplit("_", 2)
            row = {name: fields[name][i] for name in FIELDS}
            self.rows.setdefault((uid, int(session)), []).append((key, row))

    def advantages(self):
        """By prompt and rollout, the advantages of its sampled tokens, as verl's trainer computes them."""
        keys, rows = zip(*[row for rows in self.rows.values() for row in rows], strict=True)
        fields = [{name: row[name] for name in ("response_mask", "rm_scores")} for row in rows]
        data = DataProto(batch=tensordict_utils.list_of_dict_to_tensordict(fields).to_padded_tensor(0.0))
        data.batch["token_level_rewards"] = data.batch["rm_scores"]
        data.non_tensor_batch["uid"] = np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object)
        batch = compute_advantage_for_multi_trajectories(
            data, batch_keys=list(keys), adv_estimator="memenvs_as_paid"
        ).batch
        mask = batch["response_mask"].bool()
        assert not batch["advantages"][~mask].any()
        found = {}
        for key, own, sampled in zip(keys, batch["advantages"], mask, strict=True):
            uid, session, _ = key.rsplit("_", 2)
            found.setdefault((uid, int(session)), []).append(own[sampled].numpy())
        return {who: np.concatenate(parts) for who, parts in found.items()}

    def replies(self, who):
        """The ids of each turn of a rollout: each run of sampled tokens of its rows."""
        found = []
        for _, row in self.rows[who]:
            ids, mask = row["responses"].numpy(), row["response_mask"].numpy()
            edges = np.flatnonzero(np.diff(mask, prepend=0, append=0))
            found += [ids[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        return found


class Worker(Queue):
    """verl's worker without Ray, and what it puts into the queue.

    Attributes:
        tags: of the rows.
        statuses: that verl gives to prompts at the end.
    """

    def __init__(self, monkeypatch, tokenizer, servers, entry, overrides=(), client=LLMServerClient, n=4):
        super().__init__()
        config = compose([*BASE, f"actor_rollout_ref.rollout.n={n}", *overrides])
        config.actor_rollout_ref.rollout.full_determinism = True  # the servers see whose turn it is
        target = {"_target_": "memenvs.adapters.verl.EpisodeLoop"}
        monkeypatch.setitem(agent_loop._agent_loop_registry, "memenvs", OmegaConf.create({**target, **entry}))
        monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", self.put)
        monkeypatch.setattr(agent_loop_tq.tq, "async_kv_put", self.put_status)

        class Client(client):
            async def _acquire_server(self, request_id, **fields):
                return "server", servers

            def _release_server(self, server_id, request_id=None):
                pass

        this = object.__new__(agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class)
        this.config, this.llm_client, this.tokenizer = config, Client(config), tokenizer
        this.processor, this.hf_model_type, this.dataset_cls, this.tools = None, "qwen3", RLHFDataset, []
        this.reward_loop_worker_handles, this.distillation_enabled = None, False
        this.mm_processor_kwargs, this.background_tasks = {}, set()
        self.worker, self.tags, self.statuses = this, [], []

    async def put(self, keys, fields, tags, partition_id):
        self.add(keys, fields)
        self.tags += tags

    async def put_status(self, key, partition_id, tag):
        if tag["status"] != "running":
            self.statuses.append(tag["status"])

    def play(self, info=TRAIN, seeds=SEEDS):
        """Play prompts, each with its seed and these entries of `extra_info`."""

        async def go():
            await self.worker.generate_sequences(batch_of(seeds, info))
            await asyncio.wait_for(asyncio.gather(*list(self.worker.background_tasks)), 60)

        asyncio.run(go())
        return self
