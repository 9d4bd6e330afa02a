"""Walks over graphs: each answer is recomputed from the text."""

import re

import pytest
from build_command import command, one_line

from memenvs.build.graphs import MOST, graph_walks
from memenvs.tasks.metrics import set_f1
from memenvs.tasks.tokens import load_tokenizer

TOKENS = 1500


def draw(count=24, **options):
    return graph_walks(tokenizer=load_tokenizer(), tokens=TOKENS, count=count, **options)


def edges(draft, numbers):
    return [tuple(draft.documents.texts[number].strip().split(" -> ")) for number in numbers]


def reached(pairs, start, steps):
    """The nodes that a breadth-first search reaches in exactly so many steps."""
    distance, level = {start: 0}, [start]
    for step in range(1, steps + 1):
        level = [end for node in level for begin, end in pairs if begin == node and end not in distance]
        distance |= dict.fromkeys(level, step)
    return {node for node, found in distance.items() if found == steps}


def test_an_answer_is_what_a_search_over_all_edges_finds_and_evidence_is_enough_for_it():
    draft = draw()
    for task in draft.tasks:
        node = re.search(r"node (\w{6})", task.question)[1]
        answer = set(task.answers[0][0].split(", "))
        for numbers in (task.documents, task.evidence):
            pairs = edges(draft, numbers)
            if task.meta["type"] == "parents":
                assert answer == {begin for begin, end in pairs if end == node}
            else:
                assert f"in exactly {task.meta['hops']} step" in task.question
                assert answer == reached(pairs, node, task.meta["hops"])
        assert 1 <= len(answer) <= MOST
        assert set(task.evidence) <= set(task.documents)
    assert {(task.meta["type"], task.meta["hops"]) for task in draft.tasks} == {
        ("parents", 1), ("bfs", 1), ("bfs", 2), ("bfs", 3),
    }  # fmt: skip


def test_a_text_fills_its_budget_and_not_more():
    draft, tokenizer = draw(count=4), load_tokenizer()
    for task in draft.tasks:
        text = "".join(draft.documents.texts[number] for number in task.documents)
        (gaps,) = tokenizer.gaps([text])
        assert 0.98 * TOKENS < len(gaps) <= TOKENS


def test_naming_every_node_earns_little_and_the_order_does_not_matter():
    draft = draw(count=2)
    for task in draft.tasks:
        nodes = sorted({node for pair in edges(draft, task.documents) for node in pair})
        assert set_f1(", ".join(nodes), task.answers[0]) < 0.2
        assert set_f1(" ".join(reversed(task.answers[0][0].split(", "))), task.answers[0]) == 1.0


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--tokens", 60], "budget of 60 tokens is too small for a graph"), (["--depth", 9], "depth")],
)
def test_what_cannot_be_made_is_one_line(options, said, tmp_path, capsys):
    assert command("graphwalks_world", *options, "--out", tmp_path / "walks") == 2
    assert said in one_line(capsys)
