"""256 search environments stepped together against one by one, and BM25 beside bm25s, query by query.

python -m benchmarks.search --questions nq_open_gold_1000.jsonl.gz --dense INDEX_DIR

The questions are a task set or JSON Lines. `--lexical` is a corpus or an index; by default it has the task
set's documents.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import bm25s
import gymnasium as gym

from benchmarks.harness import fastest, print_head, print_row, run, timed
from memenvs.core.vector import TextVectorEnv
from memenvs.retrieval import Retriever
from memenvs.rollout.collect import maker
from memenvs.tasks.taskset import open_questions

ENVIRONMENTS, TURNS = 256, 3


def main(questions: str = "world-train", lexical: str = "", dense: str = "") -> None:
    """Measure the lexical index, and a dense one if given."""
    specs = {"lexical": f"lexical:{lexical}" if lexical else None}
    if dense:
        specs["dense"] = f"dense:{dense}"
    beside_bm25s(questions, specs["lexical"])
    print_head("retriever, steps/s", "queries", "one by one", "together", "ratio")
    for name, spec in specs.items():
        for same in (1, 16):
            measure(name, {"tasks": questions, "retriever": spec}, questions, same)


def measure(name: str, kwargs: dict[str, Any], questions: str, same: int) -> None:
    """Print one line; `same` environments in a row ask the same question."""
    texts = [task.question for task in open_questions(questions)]
    make = maker("MemSearchQA-v0", {"max_turns": TURNS, **kwargs})
    venv, singles = TextVectorEnv([make] * ENVIRONMENTS), [make() for _ in range(ENVIRONMENTS)]
    everywhere: list[Any] = [env.unwrapped for env in (*venv.envs, *singles)]
    bare = uncached(everywhere[0].retriever)
    for env in everywhere:
        env.retriever = bare

    def replies(turn: int) -> list[str]:
        asked = [texts[(i // same * 7 + turn) % len(texts)] for i in range(ENVIRONMENTS)]
        return [f"<think></think><search>{text} {turn}</search>" for text in asked]

    def one_by_one(actions: list[str]) -> None:
        for env, action in zip(singles, actions, strict=True):
            env.step(action)

    together, apart = [], []
    for _ in range(3):
        venv.reset(seed=0)
        for env in singles:
            env.reset(seed=0)
        for turn in range(TURNS):
            actions = replies(turn)
            together.append(timed(partial(venv.step, actions)))
            apart.append(timed(partial(one_by_one, actions)))
    ours, theirs = (ENVIRONMENTS / statistics.median(times) for times in (together, apart))
    what = "all different" if same == 1 else f"{same} ask the same"
    print_row(name, what, f"{theirs:,.0f}", f"{ours:,.0f}", f"{ours / theirs:.1f}")


def beside_bm25s(questions: str, spec: str | None) -> None:
    """Print queries a second of processor time, one a call: bm25s with its own words, and ours."""
    env: Any = gym.make("MemSearchQA-v0", tasks=questions, retriever=spec).unwrapped
    ours: Any = uncached(env.retriever)
    options = {"stopwords": "en", "show_progress": False}
    texts = [ours.corpus.passage(row).contents for row in range(len(ours.corpus))]
    theirs = bm25s.BM25()
    theirs.index(bm25s.tokenize(texts, **options), show_progress=False)

    def retrieve(query: str) -> None:
        theirs.retrieve(bm25s.tokenize([query], **options), k=TURNS, show_progress=False)

    asked = [task.question for task in open_questions(questions)][:ENVIRONMENTS]
    ways = (retrieve, lambda query: ours.search([query], TURNS))
    rates = [len(asked) / fastest(lambda search=search: list(map(search, asked)), 2) for search in ways]
    print(
        f"{len(texts):,} passages, BM25 query by query: bm25s {rates[0]:,.0f}/s, memenvs {rates[1]:,.0f}/s, "
        f"{rates[1] / rates[0]:.1f}x",
        flush=True,
    )


def uncached(retriever: Retriever) -> Retriever:
    """The retriever without its cache of queries, so that searches are measured."""
    return getattr(retriever, "retriever", retriever)


if __name__ == "__main__":
    run(main)
