"""GRPOTrainers on the tiny model that record what they train on, and can reply as a test wrote."""

from __future__ import annotations

import json

import datasets
import torch
import trl
from transformers import AutoTokenizer
from trl.chat_template_utils import qwen3_chat_template

from memenvs.adapters.trl import TurnAdvantages

END = "<|im_end|>"


class Kept:
    """Keeps each batch that the trainer learns from, before it is shuffled, and the rewards it saw."""

    def __init__(self, *args, **kwargs):
        self.batches, self.rewards = [], []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        self.batches.append({name: value.clone() for name, value in batch.items()})
        return batch

    def _calculate_rewards(self, *args):
        rewards = super()._calculate_rewards(*args)
        self.rewards.append(rewards)
        return rewards

    def loss_mask(self, batch):
        """(B, T) bool, what the loss is taken over."""
        return (batch["completion_mask"] * batch.get("tool_mask", 1)).bool()

    def text(self, ids):
        return self.processing_class.decode(ids)

    def said(self, batch, row):
        """The written and the other tokens of a row, each run of them as text."""
        ids, mask = batch["completion_ids"][row], self.loss_mask(batch)[row]
        runs = []
        for token, own, shown in zip(ids.tolist(), mask.tolist(), batch["completion_mask"][row], strict=True):
            if shown and (not runs or runs[-1][0] != own):
                runs.append((own, []))
            if shown:
                runs[-1][1].append(token)
        return [(own, self.text(tokens)) for own, tokens in runs]

    def by_run(self, batch, row):
        """The advantages of a row, one for each run of written tokens; they must be equal inside it."""
        mask, values = self.loss_mask(batch)[row], batch["advantages"][row]
        starts = (mask & ~torch.cat([torch.zeros(1, dtype=torch.bool), mask[:-1]])).cumsum(0)
        runs = [values[mask & (starts == k)] for k in range(1, int(starts.max()) + 1)]
        assert all((run == run[0]).all() for run in runs)
        assert (values[~mask] == 0).all()
        return [round(float(run[0]), 4) for run in runs]


class Scripted:
    """Says what `script` gives: a list of replies for each call, or calls it for every reply."""

    script = None

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        if callable(self.script):
            replies = [self.script() for _ in prompt_ids]
            return [self.processing_class.encode(reply + END) for reply in replies], None
        made = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        if self.script is None:
            return made
        self._calls = getattr(self, "_calls", -1) + 1
        replies = self.script[self._calls % len(self.script)]
        assert len(replies) == len(prompt_ids)
        return [self.processing_class.encode(reply + END) for reply in replies], None


class Plain(Kept, Scripted, trl.GRPOTrainer):
    """TRL's trainer as it is."""


class ByTurn(Kept, TurnAdvantages, Scripted, trl.GRPOTrainer):
    """TRL's trainer with advantages by turn."""


def make_trainer(kind, model, out, rows, script=None, tools=False, options=None, **parts):
    """A trainer of two optimisation steps, two members a group."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    if tools:  # TRL knows how to read tool calls by the text of the template
        tokenizer.chat_template = qwen3_chat_template
    settings = {"per_device_train_batch_size": 2, "num_generations": 2, "max_completion_length": 12}
    settings |= {"max_steps": 2, "learning_rate": 1e-3, "shuffle_dataset": False, "use_cpu": True}
    settings |= {"bf16": False, "gradient_checkpointing": False, "report_to": [], "logging_steps": 1}
    settings |= {"save_strategy": "no", "disable_tqdm": True}
    args = trl.GRPOConfig(output_dir=str(out), **{**settings, **(options or {})})
    dataset = datasets.Dataset.from_list(list(rows))
    made = kind(model=str(model), args=args, train_dataset=dataset, processing_class=tokenizer, **parts)
    made.script = script
    return made


def tool_call(name, **arguments):
    """A tool call as Qwen3 writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def weights(trainer):
    """All weights, one vector."""
    return torch.cat([weight.detach().flatten().clone() for weight in trainer.model.parameters()])
