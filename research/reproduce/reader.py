"""Turn credit against the outcome alone, training a language model that reads.

Each run trains a reader by one method on questions about one generated world, and tests it on another:

    python -m research.reproduce.reader runs/short --model runs/reader/warm/last/policy
    python -m research.reproduce.reader runs/long --plan long --add

`short` trains the warmed-up reader of `research.agent` for 12 steps; `long` trains the shipped reader for 30,
by the plan in `research/long_reader.md`. A run is added to `research/results/` when it ends: what the
memories took and kept, and what turns were paid.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.commands.build import main as build
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EPISODES, read_episodes
from memenvs.core.files import read_json, write_json
from memenvs.tasks.taskset import open_tasks
from research import harness
from research.agent import READING
from research.harness import LearnerJob, flags
from research.lessons import holds, values_of

WORLDS = {
    "train": "--split train --seed 2 --tokenizer world --entities 3000 --documents 20",
    "test": "--split test --seed 0 --tokenizer world --entities 1000 --documents 20",
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "outcome only": ("outcome", {}),
    "TAMTRL": ("tamtrl", {}),
    "TAMTRL, change": ("tamtrl", {"change": True}),
    "InfoMem": ("infomem", {}),
    "InfoMem, query": ("infomem", {"condition": "query"}),
    "IGPO": ("igpo", {}),
    "IGPO, bare": ("igpo", {"target": "bare"}),
}
"""Reward and its settings by the name in tables."""


class TrainingPlan(NamedTuple):
    """What is trained, and how it is tested; `env_args` differ from the shipped reader's.

    All seeds of a round's methods are run before the next round. Evaluations are `every` steps apart, on
    `questions` of the test world.
    """

    file: str
    env_args: Mapping[str, Any]
    rounds: Sequence[Sequence[str]]
    flags: str
    steps: int
    every: int
    seeds: int
    questions: int


PLANS = {
    "short": TrainingPlan(
        "reader",
        {"n_documents": 6},
        [["outcome only", "TAMTRL", "TAMTRL, change", "InfoMem", "InfoMem, query"]],
        "--dtype bfloat16 --max-new-tokens 192 --num-envs 32 --groups 4 --group-size 8 --lr 2e-4 "
        "--lr-warmup 2",
        steps=12,
        every=12,
        seeds=5,
        questions=128,
    ),
    "long": TrainingPlan(
        "long_reader",
        {"n_documents": 10, "chunk_size": 400},
        [["outcome only", "TAMTRL"], ["IGPO"], ["InfoMem"]],
        "--dtype bfloat16 --max-new-tokens 96 --num-envs 16 --groups 2 --group-size 8 --lr 2e-4 "
        "--lr-warmup 4",
        steps=30,
        every=30,
        seeds=6,
        questions=128,
    ),
}
KINDS = (
    "all facts shown are taken",
    "some facts shown are taken",
    "facts shown, none taken: changed",
    "facts shown, none taken: unchanged",
    "no fact shown: changed",
    "no fact shown: unchanged",
    "a fact is lost",
)
"""What a reading turn did with the facts that its chunk shows and the memory lacks."""
REPEATED = 0.75  # share of the question's words in a memory that counts as repeating it
SHARED = "--env MemChunkQA-v0 --micro-batch-tokens 1024 --temperature 0.8 --keep 1"

Needed = Mapping[str, Sequence[tuple[str, str]]]
"""The facts that each question needs."""

_WORDS = re.compile(r"\w+")


def jobs(plan: TrainingPlan, folder: Path, start: Path, seeds: int, steps: int) -> list[LearnerJob]:
    """A run for each method and seed, and the evaluation of the reader that they start from."""
    worlds = {name: str(folder / name) for name in WORLDS}
    for (name, world), tasks in zip(WORLDS.items(), (4000, plan.questions), strict=True):
        if not (folder / name / "card.json").exists():
            build(["world", *world.split(), *flags(num_tasks=tasks, out=worlds[name])])
    shared = [*SHARED.split(), *plan.flags.split(), *harness.steps_flags(steps, every=plan.every)]
    env_args = {**READING, **plan.env_args, "tasks": worlds["train"]}
    shared += flags(save_every=5, env_args=env_args, eval_env_args={"tasks": worlds["test"]})
    shared += flags(eval_episodes=plan.questions, save_episodes=plan.questions)
    unchanged = {name: [*words, *flags(lr_warmup=0)] for name, words in harness.UNCHANGED.items()}
    planned = harness.seeded_jobs(folder, start, unchanged, 1, shared)
    for names in plan.rounds:
        rewards = {name: METHODS[name] for name in names}
        methods = {
            name: ["grpo", *flags(reward=reward, reward_args=args)]
            for name, (reward, args) in rewards.items()
        }
        planned += harness.seeded_jobs(folder, start, methods, seeds, shared)
    return planned


def episodes(job: LearnerJob, phase: str) -> dict[int, list[Episode]]:
    """A run's recorded episodes of a phase, by step."""
    by_step: dict[int, list[Episode]] = {}
    for episode in read_episodes(job.out / EPISODES):
        if episode.phase == phase:
            by_step.setdefault(episode.step or 0, []).append(episode)
    return dict(sorted(by_step.items()))


def evaluations(job: LearnerJob, needed: Needed) -> list[dict[str, Any]]:
    """The results of each evaluation of a run, in order of steps; see `measure`."""
    return [{"step": step, **measure(played, needed)} for step, played in episodes(job, "eval").items()]


def measure(played: Sequence[Episode], needed: Needed) -> dict[str, Any]:
    """Mean metrics of episodes, and what their memories hold.

    Returns:
        Metrics; of the last memories the share of needed facts held (`noted`), the share that repeats most of
        the question's words (`repeats`, InfoMem Fig. 4), and the mean share of its words (`query_words`); by
        reading turn the share noted of the facts that the chunk showed first (`taken`), and the share kept of
        those in memory (`kept`).
    """
    found: dict[str, Any] = {
        name: float(np.mean([one.metrics[name] for one in played])) for name in ("em", "f1", "prompt_tokens")
    }
    found["reply_tokens"] = float(np.mean([sum(len(r.ids) for r in one.replies) for one in played]))
    last = [holds(_memories(one)[-1], fact) for one in played for fact in needed[_question(one)]]
    found["noted"] = float(np.mean(last))
    words = [_query_words(_memories(one)[-1], _question(one)) for one in played]
    found |= {"repeats": float(np.mean([share >= REPEATED for share in words]))}
    found |= {"query_words": float(np.mean(words))}
    turns = [list(_facts(one, needed[_question(one)])) for one in played]
    for number, name in enumerate(("taken", "kept")):
        by_turn = [
            [mark for one in turns if k < len(one) for mark in one[k][number]]
            for k in range(max(map(len, turns)))
        ]
        found[name] = [float(np.mean(marks)) if marks else None for marks in by_turn]
    return found


def _question(episode: Episode) -> str:
    return str(episode.turns[0].before["privileged"]["question"])


def _memories(episode: Episode) -> list[str]:
    """The memory after each reading turn."""
    return [turn.info["privileged"]["memory"].strip() for turn in episode.turns[:-1]]


def _query_words(memory: str, question: str) -> float:
    """The share of a question's words that a memory has."""
    words, known = set(_WORDS.findall(question.lower())), set(_WORDS.findall(memory.lower()))
    return len(words & known) / len(words)


def _facts(episode: Episode, needed: Sequence[tuple[str, str]]) -> Iterator[tuple[list[bool], list[bool]]]:
    """At each reading turn, which of the facts shown and of those in memory are in the new memory."""
    before = ""
    for turn, after in zip(episode.turns, _memories(episode), strict=False):
        text = "\n" + turn.observation.rpartition("Notes:\n")[0]
        had = [fact for fact in needed if holds(before, fact)]
        shown = [fact for fact in needed if f"\n{fact[0]}\n" in text and fact not in had]
        yield [holds(after, fact) for fact in shown], [holds(after, fact) for fact in had]
        before = after


def paid(played: Sequence[Episode], needed: Needed, reward: str) -> dict[str, dict[str, float]]:
    """By kind of reading turn: the number of turns, and the means of a reward's signal and of the advantage.

    Raises:
        KeyError: the episodes have no signals of this reward.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for one in played:
        first = 0  # of a turn's tokens, whose advantages are equal
        for turn, kind in zip(one.turns, _kinds(one, needed[_question(one)]), strict=False):
            found.setdefault(kind, []).append((turn.signals[reward], float(one.advantages[first])))
            first += len(turn.reply.ids)
    means = {kind: np.mean(found[kind], axis=0).tolist() for kind in KINDS if kind in found}
    return {
        kind: {"turns": len(found[kind]), "signal": signal, "advantage": advantage}
        for kind, (signal, advantage) in means.items()
    }


def _kinds(episode: Episode, needed: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What each reading turn did with the facts, one of `KINDS`."""
    before = ""
    for memory, (taken, kept) in zip(_memories(episode), _facts(episode, needed), strict=True):
        how = "unchanged" if memory == before else "changed"
        if not all(kept):
            yield "a fact is lost"
        elif any(taken):
            yield "all facts shown are taken" if all(taken) else "some facts shown are taken"
        else:
            yield f"{'facts shown, none taken' if taken else 'no fact shown'}: {how}"
        before = memory


def turns_of(job: LearnerJob, needed: Needed) -> dict[str, Any]:
    """`unchanged` in a run's last evaluation and, with turn credit, `paid` in its training."""
    found: dict[str, Any] = {"unchanged": unchanged(list(episodes(job, "eval").values())[-1])}
    reward, _ = METHODS.get(job.method, METHODS["outcome only"])
    if reward != "outcome":
        played = [one for step in episodes(job, "train").values() for one in step]
        found["paid"] = paid(played, needed, reward)
    return found


def costs(job: LearnerJob) -> dict[str, float]:
    """Mean seconds of a run's steps, by kind of work, and the mean tokens of an episode's replies."""
    lines = [json.loads(line) for line in (job.out / "log.jsonl").read_text().splitlines()]
    names = [name for name in lines[-1] if name.startswith("seconds_")]
    return {name: float(np.mean([line[name] for line in lines])) for name in (*names, "reply_tokens")}


def unchanged(played: Sequence[Episode]) -> list[float]:
    """By reading turn, from the second on, the share of episodes in which the memory does not change."""
    found: dict[int, list[bool]] = {}
    for one in played:
        for turn, (before, after) in enumerate(itertools.pairwise(_memories(one))):
            found.setdefault(turn, []).append(before == after)
    return [float(np.mean(found[turn])) for turn in sorted(found)]


def seeds_of(record: Mapping[str, Any], method: str) -> list[int]:
    """The seeds of a method in a record."""
    return [run["seed"] for run in record["methods"].get(method, [])]


def add_runs(record: dict[str, Any], runs: Sequence[tuple[str, int, list[dict[str, Any]]]]) -> None:
    """Add new runs to a record, which has them by seed: for each the method, the seed and its evaluations.

    Raises:
        ValueError: a run differs from the record's; nothing is added then.
    """
    new = []
    for method, seed, found in runs:
        made = {"seed": seed, "found": found}
        if seed not in seeds_of(record, method):
            new.append((method, made))
        elif made not in record["methods"][method]:
            raise ValueError(
                f"{method!r}, seed {seed}, differs from the record: {found[-1]}; "
                "leave out --add to make all runs here"
            )
    for method, made in new:
        runs_of = record["methods"].setdefault(method, [])
        runs_of.append(made)
        runs_of.sort(key=operator.itemgetter("seed"))


def table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A Markdown table of each method's means over seeds (smallest to largest) at its last evaluation."""
    names = ("em", "f1", "noted", "taken", "kept", "query_words", "reply_tokens")
    rows = {
        method: [_cell(name, [one["found"][-1][name] for one in seeds]) for name in names]
        for method, seeds in found.items()
    }
    return harness.markdown(("method", *names), rows)


def seeds_table(record: Mapping[str, Any]) -> str:
    """A Markdown table of each method's exact match by seed, and of `unchanged` memories by turn."""
    rows = {}
    for method, runs in record["methods"].items():
        exact = [f"{one['found'][-1]['em']:.3f}" for one in runs]
        by_turn = [run["unchanged"] for run in record["turns"][method].values()]
        rows[method] = [", ".join(exact), _cell("unchanged", by_turn)]
    return harness.markdown(("method", "em by seed", "unchanged"), rows)


def paid_to(runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """`paid` of several runs (`turns_of`) together; `turns` is a share of all turns."""
    measured = [run["paid"] for run in runs]
    whole = sum(one["turns"] for run in measured for one in run.values())
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        own = [run[kind] for run in measured if kind in run]
        counts = [one["turns"] for one in own]
        found[kind] = {"turns": sum(counts) / whole}
        for name in ("signal", "advantage") if own else ():
            found[kind][name] = float(np.average([one[name] for one in own], weights=counts))
    return found


def turns_table(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A Markdown table of `paid_to` for the runs of each method that have it."""
    by_method = {
        method: [run for run in found.get(method, {}).values() if "paid" in run] for method in METHODS
    }
    measured = {method: paid_to(runs) for method, runs in by_method.items() if runs}
    names = ("turns", "signal", "advantage")
    rows = {
        kind: [
            f"{own[kind][name]:.2f}" if name in own[kind] else ""
            for own in measured.values()
            for name in names
        ]
        for kind in KINDS
    }
    return harness.markdown(
        ("a reading turn", *(f"{method}: {name}" for method in measured for name in names)), rows
    )


def _cell(name: str, values: Sequence[Any]) -> str:
    """A metric's mean over seeds, or its means by turn."""
    if isinstance(values[0], list):
        columns = [[value for value in turn if value is not None] for turn in zip(*values, strict=False)]
        return ", ".join(f"{np.mean(turn):.2f}" for turn in columns if turn)
    return harness.shown(values, digits=0 if name == "reply_tokens" else 3)


def main() -> int:
    """Run from the command line."""
    parser = harness.options(__doc__, seeds=0, steps=0)
    parser.add_argument(
        "--add", action="store_true", help="keep the runs of the record, make the missing ones"
    )
    parser.add_argument("--plan", choices=sorted(PLANS), default="short", help="it has seeds and steps, too")
    parser.add_argument("--model", type=Path, default=Path("smollm2-reader"), help="initial reader")
    args = parser.parse_args()
    plan = PLANS[args.plan]
    seeds, steps = args.seeds or plan.seeds, args.steps or plan.steps
    planned, file = jobs(plan, args.folder, args.model, seeds, steps), harness.RESULTS / f"{plan.file}.json"
    record = {"steps": steps, "methods": {}, "turns": {}}
    if args.add and file.exists():
        record |= read_json(file)
    if record["steps"] != steps:
        parser.error(
            f"--add: the runs of {file} have {record['steps']} steps; give --steps {record['steps']}"
        )
    needed = {name: values_of(open_tasks(args.folder / name)) for name in WORLDS}

    def add(job: LearnerJob) -> None:
        add_runs(record, [(job.method, job.seed, evaluations(job, needed["test"]))])
        record["turns"].setdefault(job.method, {})[str(job.seed)] = turns_of(job, needed["train"])
        record.setdefault("costs", {}).setdefault(job.method, {})[str(job.seed)] = costs(job)
        write_json(file, record)

    missing = [job for job in planned if job.seed not in seeds_of(record, job.method)]
    harness.run_all(missing, args.parallel, add)
    print(table(record["methods"]), seeds_table(record), turns_table(record["turns"]), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
