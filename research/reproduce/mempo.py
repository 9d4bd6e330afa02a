"""Many objectives with a memory (MemPO): GRPO with and without credit for memories, and without a memory.

`python -m research.reproduce.mempo runs/mempo` runs everything. It makes a world, its questions (two to ten
at once) and a model, teaches the model to search and to remember, and adds mistakes with a forgetful
searcher's episodes. Then it trains the model by each method on two questions at once, tests it on up to ten
and writes `research/results/`. A model without a memory goes through the same stages.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.episode import Episode
from memenvs.core.files import read_json, write_json
from memenvs.tasks.taskset import open_tasks
from research import harness
from research.demonstrations import write_demonstrations
from research.harness import LearnerJob, flags
from research.reproduce import tool_use
from research.reproduce.search_memory import ENV, likely, means, search, shares
from research.reproduce.search_teacher import (
    BARE_TEMPLATE,
    FIXED,
    TEMPLATE,
    Searcher,
    play,
    play_bare,
    renamed,
    reply_tokens,
    turns,
)
from research.reproduce.world_tasks import ENTITIES, save_joined

TARGET = {"target": "wrapped"}  # models trained from scratch know an answer only in its tag
REWARD = {"trajectory": "outcome", **TARGET}  # half right is half a reward, in any form
METHODS: dict[str, list[str]] = {
    "GRPO": flags(reward="outcome"),
    "MemPO": flags(reward="mempo", reward_args=REWARD),
    "MemPO, b = 0": flags(reward="mempo", reward_args={**REWARD, "bias": "none"}),
    # 1 if all answers are right and all replies in form, else 0
    "GRPO, strict": flags(reward="outcome", methods=[["MemPO", TARGET]]),
    "MemPO, strict": flags(reward="mempo", reward_args=TARGET),
}
BARE_METHODS = {"GRPO, no memory": METHODS["GRPO"]}
METRICS = ("eval_em", "eval_f1", "eval_prompt_tokens", "eval_prompt_tokens_peak", "eval_format")
EVALUATED = 256  # episodes of a test set
ALL = 1024  # tasks of a test set, and episodes of a last policy with as many questions as in training
MEASURED = 128  # episodes of a last policy with more questions, or with more turns in the prompt
OBJECTIVES = {2: 3000, 4: 2000, 6: 1500, 8: 1200, 10: 1000}  # questions at once: tasks of the warm-up
LEARNED = 2  # questions at once in training
CONTEXTS = (3, "all")  # turns in the prompt other than 1; the warm-up must show them too
IN_CONTEXT = (2, 4, 6)  # questions at once in tests with more turns in the prompt
LONGER = 700  # episodes of the warm-up with more turns, for each of these
RENAMED = 3  # times that each of a careful searcher's episodes is shown, with new names each time
PROBED = 6  # questions at once for measuring P of the memories
CARE = 0.6  # of the forgetful searcher
FORGETFUL_EVERY = 6  # it plays every sixth task of the warm-up


class MemorySetting:
    """What all runs with a memory share: a world, joined questions, an untrained model and demonstrations.

    Attributes:
        start: the row of the policy that all runs start from.
        remembers: whether it writes memories that can be measured.
        contexts: turns in the prompt, in its tests.
        batch: sequences per step of training on the forgetful searcher's episodes.
        kind: suffix of its own files and folders.
    """

    start = "warmed up"
    methods = METHODS
    remembers = True
    contexts: Sequence[int | str] = CONTEXTS
    batch = 32
    kind = ""

    def __init__(self, folder: Path, entities: int = ENTITIES) -> None:
        self.singles = tool_use.ToolSetting(folder, entities, "search-model", FIXED, window=1024)
        self.folder, self.model, self.size = folder, self.singles.model, entities / ENTITIES
        self.careful, self.forgetful = (
            folder / f"{care}-searches{self.kind}.jsonl" for care in ("careful", "forgetful")
        )
        parts = [("warm", n, self._sized(count)) for n, count in OBJECTIVES.items()]
        parts += [("train", LEARNED, self._sized(4000))]
        parts += [("test", n, self._sized(ALL)) for n in OBJECTIVES]
        for part, objectives, count in parts:
            if not (folder / f"{part}-{objectives}").exists():
                save_joined(folder, part, objectives, count)
        if not self.careful.exists():
            write_demonstrations(self.careful, self._demonstrations(1.0, every=1, times=RENAMED))
        if not self.forgetful.exists():
            write_demonstrations(self.forgetful, self._demonstrations(CARE, every=FORGETFUL_EVERY, times=1))

    def _sized(self, count: int) -> int:
        return max(8, int(count * min(1.0, self.size)))

    def _demonstrations(self, care: float, every: int, times: int) -> Iterator[Episode]:
        """Episodes of a searcher with all numbers of questions, some with more turns in the prompt.

        Each is shown `times` times, with new names each time.
        """
        searcher, rng = Searcher(self.singles.names, np.random.default_rng(0), care), np.random.default_rng(1)
        kinds: list[tuple[int, int | str, int]] = [
            (n, 1, self._sized(count)) for n, count in OBJECTIVES.items()
        ]
        kinds += [(n, keep, self._sized(LONGER)) for n in IN_CONTEXT for keep in self.contexts]
        for objectives, keep, count in kinds:
            env: Any = gym.make(f"memenvs:{ENV}", **self.env_args("warm", objectives, keep))
            known = len(env.unwrapped.questions)
            for played in self.play(env, searcher, range(0, min(count, known), every), rng):
                yield from renamed(played, self.singles.names, rng, times)

    def play(
        self, env: gym.Env[Any, Any], searcher: Searcher, tasks: range, rng: np.random.Generator
    ) -> Iterator[Episode]:
        """Episodes of a searcher to train on."""
        return play(env, searcher, tasks, rng)

    def env_args(self, part: str, objectives: int = LEARNED, keep_turns: int | str = 1) -> dict[str, Any]:
        """Arguments of the environment that asks `objectives` questions of a part at once."""
        search = {"retriever": f"lexical:{self.folder / 'all'}", "k": 1, "max_information": 200}
        sizes = {"max_turns": turns(objectives), "tokenizer": str(self.model)}
        shared = {"tasks": str(self.folder / f"{part}-{objectives}"), **search, **sizes}
        return {**shared, "memory_mode": "rewrite", "keep_turns": keep_turns, "template": TEMPLATE}

    def flags(self, part: str) -> list[str]:
        """Flags of every learner."""
        test, sizes = self.folder / f"test-{LEARNED}", {"eval_episodes": EVALUATED, "num_envs": 64}
        return harness.env_flags(ENV, self.env_args(part), test, reply=reply_tokens(LEARNED), **sizes)

    def spoiled(self) -> Path:
        """A model that can search and remember but often forgets; its warm-up starts with one tool call."""
        shared = [*self.flags("warm"), *flags(lr_end=0)]
        first, then = (
            self.folder / f"{name}{self.kind}" for name in ("able-to-search", "forgetful-searcher")
        )
        able = harness.clone(self.singles.able(), self.careful, first, shared, passes=1, rate=1e-3)
        return harness.clone(able, self.forgetful, then, shared, passes=1, rate=5e-4, batch=self.batch)


class Bare(MemorySetting):
    """The same without a memory: all turns are in the prompt, and replies hold a search or an answer."""

    start = "warmed up, no memory"
    methods = BARE_METHODS
    remembers = False
    contexts = ()
    batch = 8  # a sequence is an episode here, not a turn
    kind = "-bare"

    def play(
        self, env: gym.Env[Any, Any], searcher: Searcher, tasks: range, rng: np.random.Generator
    ) -> Iterator[Episode]:
        """Episodes of a searcher that keeps its notes to itself."""
        return play_bare(env, searcher, tasks)

    def env_args(self, part: str, objectives: int = LEARNED, keep_turns: int | str = 1) -> dict[str, Any]:
        """Arguments of the environment; `keep_turns` is ignored."""
        env_args = super().env_args(part, objectives, keep_turns)
        return {**env_args, "memory_mode": "react", "template": BARE_TEMPLATE}


def jobs(setting: MemorySetting, warm: Path, seeds: int, steps: int) -> list[LearnerJob]:
    """A run for each method and seed, and one without training."""
    (unchanged,) = harness.UNCHANGED.values()
    methods = {name: ["grpo", *options] for name, options in setting.methods.items()}
    shared = [
        *harness.steps_flags(steps, every=10),
        *harness.GROUPS,
        *flags(lr=2e-4),
        *setting.flags("train"),
    ]
    return harness.seeded_jobs(setting.folder, warm, {setting.start: unchanged, **methods}, seeds, shared)


def measure_all(
    setting: MemorySetting, warm: Path, planned: Sequence[LearnerJob], parallel: int
) -> dict[str, list[dict[str, Any]]]:
    """`measure` of every policy, by method, several at once."""
    # The policy that they start from is the same for every seed.
    policies = [job for job in planned if job.method != setting.start or not job.seed]
    measured = harness.spread(partial(measure, setting, warm), policies, parallel)
    by_method: dict[str, list[dict[str, Any]]] = {}
    for job, one in zip(policies, measured, strict=True):
        by_method.setdefault(job.method, []).append(one)
    return by_method


def measure(setting: MemorySetting, warm: Path, job: LearnerJob) -> dict[str, Any]:
    """Test a run's last policy on two to ten questions and, with a memory, in longer prompts; measure P.

    P is measured by the policy itself, as MemPO does, and by the warmed-up policy. The result is stored
    beside the run with a digest of the policy's weights, and is read from there the next time.
    """
    file, model = job.out / "objectives.json", harness.last_policy(job.out)
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    if file.exists() and (known := read_json(file)).get("weights") == digest:
        return dict(known["found"])
    found: dict[str, Any] = {}
    for objectives in OBJECTIVES:
        env_args = setting.env_args("test", objectives)
        probed = setting.remembers and objectives == PROBED
        count = ALL if objectives == LEARNED else MEASURED
        played = search(model, env_args, objectives, count, scorer=model if probed else None)
        found[f"{objectives}"] = means(played)
        if setting.remembers and objectives == LEARNED:
            found["memories"] = shares(played, open_tasks(env_args["tasks"]))
        if probed:
            found["likely"] = likely(played)
            found["likely to all"] = likely(search(model, env_args, objectives, count, scorer=warm))
    for objectives in IN_CONTEXT:
        for keep in setting.contexts:
            env_args = setting.env_args("test", objectives, keep)
            found[f"{objectives}, {keep} turns"] = means(search(model, env_args, objectives, MEASURED))
    write_json(file, {"weights": digest, "found": found})
    return found


def tables(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Markdown tables of means over seeds: by number of questions, by turns in the prompt, P by turn."""

    def cells(runs: Sequence[Mapping[str, Any]], keys: Sequence[str], metric: str, digits: int) -> list[str]:
        return [harness.shown([run[key][metric] for run in runs], digits) for key in keys]

    numbers = [f"{objectives}" for objectives in OBJECTIVES]
    contexts = [key for n in IN_CONTEXT for key in (f"{n}", *(f"{n}, {keep} turns" for keep in CONTEXTS))]
    remembering = {name: runs for name, runs in found.items() if "memories" in runs[0]}
    made = [
        harness.shares_table({name: [run["memories"] for run in runs] for name, runs in remembering.items()})
    ]
    for metric, keys, digits in (
        ("em", numbers, 3),
        ("f1", numbers, 3),
        ("strict", numbers, 3),
        ("prompt_tokens", numbers, 0),
        ("prompt_tokens_peak", numbers, 0),
        ("reply_tokens", numbers, 0),
        ("em", contexts, 3),
    ):
        rows = {
            name: cells(runs, keys, metric, digits)
            for name, runs in found.items()
            if all(metric in runs[0].get(key, ()) for key in keys)
        }
        made.append(harness.markdown((metric, *keys), rows))
    for by, whose in (("likely", "the policy's own"), ("likely to all", "the warmed-up policy's")):
        made.append(_pairs_table(remembering, by, "turns", f"P, {whose}", "turn {}"))
        made.append(_pairs_table(remembering, by, "bins", f"memories by P, {whose}", "fifth {}"))
    return "\n\n".join(made)


def _pairs_table(
    found: Mapping[str, Sequence[Mapping[str, Any]]], by: str, part: str, head: str, place: str
) -> str:
    """A Markdown table of `likely`'s pairs, the second in brackets; means over seeds."""
    last = min(len(run[by][part]) for runs in found.values() for run in runs)
    rows = {
        name: [
            "{:.2f} ({:.2f})".format(*np.mean([run[by][part][number] for run in runs], axis=0))
            for number in range(last)
        ]
        for name, runs in found.items()
    }
    return harness.markdown((head, *(place.format(number + 1) for number in range(last))), rows)


def main() -> int:
    """Run from the command line."""
    args = harness.options(__doc__, seeds=5, steps=60).parse_args()
    measured: dict[str, Any] = {}
    planned: list[LearnerJob] = []
    for kind in (MemorySetting, Bare):
        setting = kind(args.folder)
        warm = setting.spoiled()
        runs = jobs(setting, warm, args.seeds, args.steps)
        harness.run_all(runs, args.parallel)
        measured |= measure_all(setting, warm, runs, args.parallel)
        planned += runs
    print(harness.Study("mempo", f"Two objectives, {EVALUATED} test episodes", METRICS).record(planned))
    write_json(harness.RESULTS / "mempo_objectives.json", measured)
    print(tables(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
