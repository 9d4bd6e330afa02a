"""A training step on one GPU: seconds of its parts, memory, and log-probabilities sampled against trained.

python -m benchmarks.gpu --out gpu.json
python -m benchmarks.gpu --out tiny.json --tiny

The model has the shape of Qwen3-0.6B and random weights, so nothing is downloaded. It reads two tasks of two
chunks of 5,000 tokens, eight episodes of each, and every reply has 128 tokens. A learner takes two steps, of
which the second is reported. No answer is right, so that rewards do not move the weights, but the pull to the
initial model reads and trains every token, as a real step does. No part starts after `--minutes`. `--tiny`
runs the same with a tiny model, to see whether everything runs; its numbers mean nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import json
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
import transformers

from benchmarks import peer_step
from benchmarks.harness import processor, run
from benchmarks.step import unshared
from memenvs.baselines import grpo, mt_ppo
from memenvs.baselines.rollout import PlayRun
from memenvs.baselines.scoring import score
from memenvs.build.sources import SOURCES
from memenvs.build.write import write_task_set
from memenvs.core.episode import Episode, valid
from memenvs.core.errors import error_line
from memenvs.core.files import LOG, write_json
from memenvs.data import bundled
from memenvs.models.settings import Dtype
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import GENERAL, load_tokenizer

TASKS, STEPS = 2, 2
SPREAD = 4.0  # standard deviation of the logits
ENV = "MemChunkQA-v0"
Row = dict[str, Any]


class Size(NamedTuple):
    """What is measured: settings of `transformers.Qwen3Config`, a tokenizer that ships, and sizes.

    Tokens are those of a task's text, of a chunk, and of a reply, which a memory has at most.
    """

    shape: dict[str, int]
    dtype: Dtype
    tokenizer: str
    episodes: int
    text: int
    chunk: int
    reply: int


QWEN3 = {
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 1_024,
    "intermediate_size": 3_072,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
}
SMALL = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "hidden_size": 32,
    "intermediate_size": 64,
    "vocab_size": 4_200,
    "max_position_embeddings": 2_048,
}
FULL = Size(QWEN3, "bfloat16", GENERAL, episodes=8, text=10_000, chunk=5_000, reply=128)
TINY = Size(SMALL, "float32", "world", episodes=2, text=800, chunk=400, reply=4)


class MeasuredRun(PlayRun):
    """A run that keeps no checkpoint, and compares log-probabilities in its first step.

    Attributes:
        apart: (N,) nats, sampled log-probabilities minus those of the update's pass.
    """

    apart = np.zeros(0)

    def save(self, step: int) -> None:
        """Keep nothing."""

    def next_commands(self) -> list[str]:
        """Nothing can be done with what is not kept."""
        return []

    def rollouts(self, step: int, part: int = 0) -> list[Episode]:
        """Roll out the groups of a step."""
        episodes = super().rollouts(step, part)
        if step == 1:
            samples = [sample for episode in valid(episodes) for sample in episode.samples]
            score(self.policy, samples, self.args, ref_model=self.policy)  # type: ignore[arg-type]
            self.apart = np.concatenate([s.logprobs[s.response_mask] - s.ref_logprobs for s in samples])
        return episodes


class MeasuredGRPO(MeasuredRun, grpo.GRPORun):
    """GRPO, measured."""


class MeasuredMTPPO(MeasuredRun, mt_ppo.MTPPORun):
    """MT-PPO, measured."""


class Bench:
    """The parts of the measurement, each a row of the table; a folder has the model, the tasks, the runs."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.size, self.folder = size, folder
        self.model = str(save_model(size, folder / "model"))
        self.tasks = str(save_tasks(size, folder / "tasks"))

    def grpo(self) -> Row:
        """A step of GRPO."""
        run = MeasuredGRPO(grpo.GRPOArgs(**self.settings("grpo"), reward="tamtrl"))
        grpo.train(run, run.args)
        return row(run)

    def grpo_unshared(self) -> Row:
        """The same step, every sequence read by itself."""
        with unshared():
            return self.grpo()

    def mt_ppo(self) -> Row:
        """A step of MT-PPO, with a critic of the policy's size."""
        run = MeasuredMTPPO(mt_ppo.MTPPOArgs(**self.settings("mt_ppo"), methods=["TAMTRL"]))
        mt_ppo.train(run, run.args)
        return row(run)

    def ours(self) -> Row:
        """The step that TRL does too, over the first chunk of each task."""
        return self.peer_row(peer_step.ours(self.model, self.prompts(), self.size.dtype, **self.peers))

    def trl(self) -> Row:
        """TRL's step, with float32 weights under autocast, its default."""
        if find_spec("trl") is None:
            raise ImportError("TRL is not installed")
        settings = {**self.peers, "rows": 1, "out": str(self.folder / "trl")}
        return self.peer_row(peer_step.trl(self.model, self.prompts(), "autocast", **settings))

    def settings(self, name: str) -> dict[str, Any]:
        """Arguments of a learner."""
        size = self.size
        return {
            "out": Path(tempfile.mkdtemp(prefix=name, dir=self.folder)) / "run",
            "track": (),
            "model": self.model,
            "dtype": size.dtype,
            "env": ENV,
            "env_args": {"tasks": self.tasks, "chunk_size": size.chunk, "max_memory": size.reply},
            "groups": TASKS,
            "group_size": size.episodes,
            "max_new_tokens": size.reply,
            "steps": STEPS,
            "kl_coef": 0.001,
        }

    def prompts(self) -> list[list[int]]:
        """The first prompt (T,) of each task."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        env = gym.make(ENV, tasks=self.tasks, chunk_size=self.size.chunk)
        texts = [env.reset(options={"task": i})[0] for i in range(TASKS)]
        return [tokenizer(text)["input_ids"] for text in texts]

    @property
    def peers(self) -> dict[str, Any]:
        """How both sides of the comparison are measured."""
        return {"copies": self.size.episodes, "reply": self.size.reply, "clock": clock}

    def peer_row(self, seconds: float) -> Row:
        """The row of a step, in which every reply has as many tokens as it may."""
        tokens = TASKS * self.size.episodes * self.size.reply
        return {"step": seconds, "tokens_per_second": tokens / seconds, "peak_gb": peak()}


PARTS: dict[str, Callable[[Bench], Row]] = {
    "GRPO with TAMTRL": Bench.grpo,
    "GRPO with TAMTRL, prefixes not shared": Bench.grpo_unshared,
    "MT-PPO with TAMTRL": Bench.mt_ppo,
    "one GRPO step, memenvs": Bench.ours,
    "one GRPO step, TRL": Bench.trl,
}
"""What is measured, by its name, in this order."""
COLUMNS = {
    "part": "part",
    "sampling": "sampling, s",
    "scoring": "scoring, s",
    "log_probs": "log-probs, s",
    "update": "update, s",
    "step": "step, s",
    "tokens_per_second": "tokens/s",
    "peak_gb": "peak, GB",
    "computed": "computed",
    "logprobs_mean": "apart, mean",
    "logprobs_largest": "largest, nats",
}
"""Columns of the table, by their names in the file."""


def save_model(size: Size, folder: Path) -> Path:
    """Save a random Qwen3 that never ends a reply and writes the words of its tokenizer alone."""
    file, end = str(bundled(f"tokenizers/{size.tokenizer}.json")), "<|endoftext|>"
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file, eos_token=end, pad_token=end)
    config = transformers.Qwen3Config(
        **size.shape,
        tie_word_embeddings=True,
        initializer_range=SPREAD / size.shape["hidden_size"] ** 0.5,  # hidden states are normalised
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.Qwen3ForCausalLM(config)
    weights = model.get_input_embeddings().weight
    with torch.no_grad():
        weights[len(tokenizer) :] = 0
        weights[sorted(tokenizer.added_tokens_decoder)] = 0
    model.to(getattr(torch, size.dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tasks(size: Size, folder: Path) -> Path:
    """Save tasks about an invented world."""
    tokenizer, source = load_tokenizer(size.tokenizer), SOURCES["world"]
    (draft,) = source.drafts(source.options(num_tasks=TASKS * STEPS, tokens=size.text), tokenizer)
    write_task_set(folder, draft, Card("benchmark"), tokenizer)
    return folder


def row(run: PlayRun) -> Row:
    """The numbers of a run's last step, from its log."""
    numbers = json.loads((run.args.out / LOG).read_text().splitlines()[-1])
    if numbers.get("failed"):
        raise RuntimeError(f"{numbers['failed']:.0f} episodes failed")
    parts = ("sampling", "scoring", "log_probs", "update")
    return {
        **{name: numbers.get(f"seconds_{name}", 0.0) for name in parts},
        "step": numbers["seconds"],
        "tokens_per_second": numbers["tokens_per_second"],
        "peak_gb": peak(),
        "computed": numbers["computed"],
        "logprobs_mean": float(np.abs(run.apart).mean()),
        "logprobs_largest": float(np.abs(run.apart).max()),
    }


def clock() -> float:
    """Seconds, once the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def peak() -> float | None:
    """Gigabytes of the GPU's memory that this part took at most; None on a CPU."""
    return torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None


def versions() -> dict[str, str]:
    """Versions of what computes, as far as it is installed."""
    known = {"python": sys.version.split()[0]}
    for name in ("memenvs", "torch", "transformers", "trl"):
        with contextlib.suppress(PackageNotFoundError):
            known[name] = version(name)
    return known


def device() -> str:
    """The card and its memory, or the processor."""
    if not torch.cuda.is_available():
        return processor()
    card = torch.cuda.get_device_properties(0)
    return f"{card.name}, {card.total_memory / 1e9:.0f} GB"


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown; what was left out below it."""

    def cell(value: Any) -> str:
        return "" if value is None else value if isinstance(value, str) else f"{value:,.4g}"

    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "| --- " * len(COLUMNS) + "|"]
    measured = [row for row in rows if "left_out" not in row]
    lines += ["| " + " | ".join(cell(row.get(name)) for name in COLUMNS) + " |" for row in measured]
    return "\n".join([*lines, "", *(f"{r['part']}: {r['left_out']}" for r in rows if "left_out" in r)])


def main(*, out: Path, tiny: bool = False, minutes: float = 5.0) -> int:
    """Measure every part that there is time for; print the table and write the file.

    Returns:
        1 if a part failed, otherwise 0.
    """
    transformers.logging.set_verbosity_error()
    size, rows, failed = TINY if tiny else FULL, list[Row](), False
    report = {
        "date": f"{datetime.date.today()}",
        "command": f"python -m benchmarks.gpu {shlex.join(sys.argv[1:])}",
        "device": device(),
        "versions": versions(),
        "size": size._asdict(),
        "rows": rows,
    }
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(size, Path(folder))
        for name, part in PARTS.items():
            if time.monotonic() >= end:
                break
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            try:
                rows.append({"part": name, **part(bench)})
            except ImportError as error:
                rows.append({"part": name, "left_out": str(error)})
            except Exception as error:
                traceback.print_exc()
                rows.append({"part": name, "left_out": f"failed: {error_line(error)}"})
                failed = True
            write_json(out, report)
    reported = [row["part"] for row in rows]
    why = f"left out, since {minutes:g} minutes were over"
    rows += [{"part": name, "left_out": why} for name in PARTS if name not in reported]
    write_json(out, report)
    print(f"{report['date']}, {report['device']}: {report['versions']}\n\n{table(rows)}")
    return int(failed)


if __name__ == "__main__":
    run(main)
