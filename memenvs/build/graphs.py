"""Walks over a graph whose edges are a long text, one a line, as in OpenAI's GraphWalks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from memenvs.build.draft import Documents, Draft, Ints, item_rng
from memenvs.build.haystack import JOINED, too_small
from memenvs.core.data import Count, Whole, checked
from memenvs.core.progress import progress
from memenvs.tasks.taskset import Task
from memenvs.tasks.tokens import TextTokenizer

Kind = Literal["bfs", "parents"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DEPTHS = (1, 2, 3)
OUT = 2  # edges from a node, on average
LEAST = 8  # tokens of an edge, or more
MOST = 20  # nodes of an answer
ASK_BFS = "Starting from node {node}, which nodes does a breadth-first search reach in exactly {steps}?"
ASK_PARENTS = "Which nodes have an edge that leads to node {node}?"
ALL = " Name all of them, separated by commas."


@checked
def graph_walks(
    *,
    tokenizer: TextTokenizer,
    tokens: Count = 8000,
    kind: Annotated[Sequence[Kind], Meta(min_length=1)] = KINDS,
    depth: Annotated[Sequence[Annotated[int, Meta(ge=1, le=5)]], Meta(min_length=1)] = DEPTHS,
    count: Count = 100,
    split: str = "train",
    seed: Whole = 0,
) -> Draft:
    """Tasks about a random directed graph, whose edges are lines such as `3fa9c1 -> 07be52`.

    Each line is a document, and each task has a graph of its own with about half as many nodes as edges. The
    answer is the set of 1 to 20 nodes, scored by `set_f1`; a node on a cycle counts at the first step that
    reaches it, and the start never. Evidence are the edges that the search follows, or that lead to the node.
    `meta` has `type` (the `kind`) and `hops` (the depth).

    Args:
        tokens: maximum number of tokens of a task's edges.
        kind: kinds of question, used in turn: the nodes that a search reaches, or those that lead to a node.
        depth: steps of a search, in turn; 1 to 5.

    Raises:
        ValueError: a budget for fewer than 20 edges.
    """
    texts: list[str] = []
    drawn = []
    for item in range(count):
        rng = item_rng(seed, f"{split}/graph", item)
        size = tokens // LEAST
        nodes = [f"{number:06x}" for number in rng.choice(16**6, max(size // OUT, 2), replace=False)]
        edges = np.unique(rng.integers(len(nodes), size=(size, 2)), axis=0)
        edges = rng.permutation(edges[edges[:, 0] != edges[:, 1]])
        drawn.append((rng, nodes, edges, len(texts)))
        texts += [f"{nodes[start]} -> {nodes[end]}\n" for start, end in edges]
    documents = Documents.tokenized([("", text) for text in texts], tokenizer)
    sizes, tasks = documents.tokens, []
    for item, (rng, nodes, edges, first) in enumerate(progress(drawn, count, "graphs")):
        fits = int(np.searchsorted(np.cumsum(sizes[first : first + len(edges)]), tokens, side="right"))
        if fits < 20:
            raise too_small("a graph", tokens, f"it has room for {fits} edges")
        asked = kind[item % len(kind)]
        steps = depth[item // len(kind) % len(depth)] if asked == "bfs" else 1
        along = edges[:fits] if asked == "bfs" else edges[:fits, ::-1]
        start, reached, needed = _walk(steps, along, len(nodes), rng)
        question = ASK_BFS if asked == "bfs" else ASK_PARENTS
        question = question.format(node=nodes[start], steps=f"{steps} step{'s' * (steps > 1)}") + ALL
        answer = ", ".join(nodes[node] for node in reached)
        evidence = tuple(first + edge for edge in needed)
        meta = {"type": asked, "hops": steps}
        numbers = tuple(range(first, first + fits))
        tasks.append(Task(f"{asked}-{split}-{item}", question, ((answer,),), numbers, evidence, meta))
    return Draft(documents, tasks, JOINED, metric="set_f1")


def _walk(steps: int, edges: Ints, nodes: int, rng: np.random.Generator) -> tuple[int, list[int], list[int]]:
    """A node from which 1 to `MOST` nodes are reached along `edges` (E, 2), these, and the edges it takes."""
    beside: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]  # of a node: neighbour and edge
    for number, (start, end) in enumerate(edges.tolist()):
        beside[start].append((end, number))
    for node in rng.permutation(nodes).tolist():
        seen, level, needed = {node}, [node], []
        for _ in range(steps):
            followed = [pair for one in level for pair in beside[one]]
            needed += [edge for _, edge in followed]
            level = sorted({end for end, _ in followed} - seen)
            seen |= set(level)
        if 1 <= len(level) <= MOST:
            return node, level, sorted(needed)
    raise ValueError(f"no node has an answer at {steps} steps; lower --depth, or raise --tokens")
