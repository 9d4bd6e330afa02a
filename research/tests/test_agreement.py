"""Agreement of scores of steps with labels, by numbers worked out by hand, and the file of recorded runs."""

import json

import numpy as np
import pytest

from memenvs.wrappers import RepeatedCalls
from research.agreement import agreement, auc, credit, main, read


def run(number, question, queries, labels):
    """A run of searches and an answer; labels by number of the message."""
    messages = [{"role": "user", "content": f"Question {question}?"}]
    for query in queries:
        function = {"name": "search", "arguments": json.dumps({"query": query})}
        messages.append(
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": "c", "content": query})
    messages.append({"role": "assistant", "content": "The answer."})
    return {
        "total_index": number,
        "query_index": question,
        "messages": messages,
        "step_labels": {str(place): label for place, label in labels.items()},
        "final_label": 1,
        "ground_truth": {"target": ["The answer"]},
    }


@pytest.fixture
def folder(tmp_path):
    runs = [run(5, 1, ["a", "a"], {1: 1, 3: -1, 5: 1}), run(6, 2, ["a", "b"], {1: -1, 3: 1, 5: -1})]
    (tmp_path / "hotpotqa_30.jsonl").write_text("".join(json.dumps(row) + "\n" for row in runs))
    (tmp_path / "judges_30.json").write_text(json.dumps({"somebody": {"5": {"1": 1, "3": 0}}}))
    return tmp_path


def test_ties_count_half():
    assert auc([1, 0], [0]) == 0.75


def test_agreement_within_runs_leaves_answers_out(folder):
    runs = read(folder / "hotpotqa_30.jsonl")
    scores = credit(runs, RepeatedCalls())
    assert scores == {(5, 1): 0, (5, 3): -1, (5, 5): 1, (6, 1): 0, (6, 3): 0, (6, 5): 1}
    result = agreement(runs, scores)
    assert result.within.mean == 0.75  # 1 in the first run, a tie in the second
    assert result.all.mean == pytest.approx(np.mean([1, 0.5, 0, 1, 1, 0.5, 1, 0.5, 0]))


def test_the_command_prints_a_row_for_each_method_and_judge(folder, capsys):
    main([str(folder)])
    out = capsys.readouterr().out
    assert "| judge somebody | 1.00 [1.00, 1.00] |" in out
    assert "| IGPO (lexical) |" in out
