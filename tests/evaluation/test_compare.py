"""`memenvs evaluate compare`: what is paired, the intervals, what is written, what is refused."""

import json
import sys

import numpy as np
import pytest
from command_line import compare as main
from made_runs import write_run

from memenvs import evaluate
from memenvs.evaluation.compare import MATCHED, compare, paired_interval
from memenvs.models.settings import ModelOptions
from memenvs.rollout.policies import choose_policy


@pytest.fixture
def two(tmp_path):
    """Two runs of four tasks, by what their em is."""

    def make(base, other, **changes):
        write_run(tmp_path / "base", base)
        write_run(tmp_path / "other", other, policy="silent", **changes)
        return [tmp_path / "base", tmp_path / "other"]

    return make


def refused(arguments, capsys):
    """The one line of a refusal."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err


# What is compared.


def test_samples_are_averaged_and_tasks_are_paired(two):
    # base: 0.5, 0, 1; other: 1, 0, 0.5; differences 0.5, 0, -0.5
    runs = two({0: [1.0, 0.0], 1: [0.0, 0.0], 7: [1.0, 1.0]}, {7: [0.0, 1.0], 1: [0.0, 0.0], 0: [1.0, 1.0]})
    (row,) = compare(runs).differences
    assert (row.run, row.metric, row.baseline, row.mean) == ("other", "em", 0.5, 0.5)
    assert (row.difference.mean, row.wins, row.ties, row.losses) == (0.0, 1, 1, 1)


def test_the_interval_is_of_resampled_differences_and_not_of_two_independent_means(two):
    # the tasks differ widely in em, the runs by 0.1 on each but the last: d = 0.1, 0.1, 0.1, 0.2
    em = [0.0, 0.3, 0.6, 0.8]
    runs = two({k: [v] for k, v in enumerate(em)}, {k: [v + 0.1 + 0.1 * (k == 3)] for k, v in enumerate(em)})
    difference = compare(runs).differences[0].difference
    np.testing.assert_allclose(difference, [0.125, 0.1, 0.175], atol=1e-9)
    # a resample's number of the last task is binomial(4, 1/4): 97.5% of resamples hold it at most 3 times
    # (P(4) = 0.004, P(at least 3) = 0.051), which is 0.1 + 0.1 * 3 / 4


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        # h = 3.8415 / (12 + 3.8415) = 0.2425
        (0.0, 0.0, (0.0, -0.2425, 0.2425)),
        (1.0, 1.0, (0.0, -0.2425, 0.2425)),
        (0.0, 1.0, (1.0, 0.5150, 1.0)),  # (n - z^2) / (n + z^2) = 8.1585 / 15.8415
        (1.0, 0.0, (-1.0, -1.0, -0.5150)),
    ],
)
def test_a_share_that_differs_alike_on_every_task_has_tangos_interval(before, after, wanted):
    interval = paired_interval(np.full(12, before), np.full(12, after), share=True)
    np.testing.assert_allclose(interval, wanted, atol=1e-4)


def test_counts_and_partial_shares_that_differ_alike_are_resampled():
    assert paired_interval(np.full(9, 2.0), np.full(9, 4.0)) == (2.0, 2.0, 2.0)
    assert paired_interval(np.full(9, 0.5), np.full(9, 0.5), share=True) == (0.0, 0.0, 0.0)


def test_means_that_differ_by_rounding_alone_are_ties(two):
    before, after = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    assert np.mean(before) != np.mean(after)
    (row,) = compare(two({0: before, 1: before}, {0: after, 1: after})).differences
    assert (row.wins, row.ties, row.losses) == (0, 2, 0)


def test_the_means_are_those_of_the_summaries_to_the_digit(tmp_path):
    summaries = {}
    for policy in ("lexical", "random_text"):
        arguments = {"tasks": "world-test", "n_documents": 8}
        summaries[policy] = evaluate(
            "MemChunkQA-v0", policy, env_args=arguments, tasks="0:4", samples=2, out=tmp_path / policy
        )
    comparison = compare([tmp_path / policy for policy in summaries])
    assert {row.metric for row in comparison.differences} == set(summaries["lexical"].metrics)
    for row in comparison.differences:
        assert row.baseline == summaries["lexical"].metrics[row.metric].interval.mean
        assert row.mean == summaries[row.run].metrics[row.metric].interval.mean


def test_a_failed_episode_is_in_no_mean(two):
    comparison = compare(two({0: [1.0, None], 1: [0.0, 1.0]}, {0: [0.0, 0.0], 1: [None, 1.0]}))
    (row,) = comparison.differences
    assert (row.baseline, row.mean) == (0.75, 0.5)
    assert (comparison.runs[0].finished, comparison.runs[0].failed) == (3, 1)


def test_episodes_outside_the_results_are_not_compared(tmp_path):
    for policy in ("gold", "silent"):
        for tasks, samples in ((":6", 2), ("1:3", 1)):
            evaluate("MemToolQA-v0", policy, tasks=tasks, samples=samples, out=tmp_path / policy)
    comparison = compare([tmp_path / "gold", tmp_path / "silent"], metrics=["success"])
    (row,) = comparison.differences
    assert (comparison.tasks, comparison.runs[0].finished) == (2, 2)
    assert (row.baseline, row.mean) == (1.0, 0.0)


def test_the_metrics_are_those_that_are_asked_for_or_that_every_run_has(tmp_path):
    write_run(tmp_path / "a", {0: [1.0], 1: [0.0]}, metrics=lambda task: {"f1": 0.5, "reply_tokens": 9.0})
    write_run(tmp_path / "b", {0: [1.0], 1: [0.0]}, metrics=lambda task: {"f1": 0.25})
    runs = [tmp_path / "a", tmp_path / "b"]
    assert [row.metric for row in compare(runs).differences] == ["em", "f1"]
    assert [row.metric for row in compare(runs, metrics=["f1"]).differences] == ["f1"]
    with pytest.raises(ValueError, match="reply_tokens"):
        compare(runs, metrics=["f1", "reply_tokens"])


# What is shown and written.


def test_the_table_has_the_baseline_and_a_row_a_run(tmp_path, capsys):
    write_run(tmp_path / "base", {0: [0.0], 1: [1.0], 2: [0.0]})
    write_run(tmp_path / "mid|dle", {0: [0.0], 1: [1.0], 2: [0.0]}, policy="openai:x", model="m")
    write_run(tmp_path / "other", {0: [1.0], 1: [1.0], 2: [1.0]})
    assert main([tmp_path / name for name in ("base", "mid|dle", "other")]) == 0
    # h = 3.8415 / 6.8415 = 0.5615, a little less
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")] == [
        "| metric | run | mean | difference | 95% interval | win/tie/loss |",
        "| --- | --- | --- | --- | --- | --- |",
        "| em | base | 0.333 |  |  |  |",
        r"|  | mid\|dle | 0.333 | +0.000 | [-0.561, 0.561] | 0/3/0 |",
        "|  | other | 1.000 | +0.667 | [0.000, 1.000] | 2/1/0 |",
    ]


def test_the_folder_holds_the_table_the_numbers_and_the_pictures(two, tmp_path):
    runs = two({0: [0.0], 1: [0.25]}, {0: [1.0], 1: [0.5]})
    assert main([*runs, "--out", tmp_path / "out"]) == 0
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(written) == {"comparison.md", "comparison.json", "forest.png", "forest.svg"}
    assert b"](forest.png)" in written["comparison.md"]
    numbers = json.loads(written["comparison.json"])
    assert (numbers["baseline"], numbers["tasks"]) == ("base", 2)
    (row,) = numbers["differences"]
    assert row["difference"] == {"mean": 0.625, "low": 0.25, "high": 1.0}
    assert numbers["runs"]["other"]["setting"]["policy"] == "silent"
    main([*runs, "--out", tmp_path / "again"])
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == written


def test_the_forest_plot_has_a_bar_for_each_interval_and_a_line_at_zero(two):
    runs = two({0: [0.0], 1: [0.25]}, {0: [1.0], 1: [0.5]}, metrics=lambda task: {"turns": task + 2.0})
    write_run(runs[0], {0: [0.0], 1: [0.25]}, metrics=lambda task: {"turns": 2.0})
    em, turns = compare(runs).draw().axes
    for axis, label, ends in ((em, "em", [0.25, 1.0]), (turns, "turns", [0.0, 1.0])):
        zero, bar, point = (line.get_xdata() for line in axis.lines)
        assert (list(zero), list(bar), list(point)) == ([0, 0], ends, [sum(ends) / 2])
        assert axis.get_title(loc="left") == label


def test_runs_of_any_name_can_be_drawn(tmp_path):
    names = ["$base_{", "_x", "a$\\b$"]
    for k, name in enumerate(names):
        write_run(tmp_path / name, {0: [0.0], 1: [k / 10]})
    comparison = compare([tmp_path / name for name in names])
    comparison.write(tmp_path / "out")
    (axis,) = comparison.draw().axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == names[1:]


def test_without_matplotlib_the_numbers_are_written_and_the_extra_is_named(
    two, tmp_path, capsys, monkeypatch
):
    runs = two({0: [0.0], 1: [0.25]}, {0: [1.0], 1: [0.5]})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*runs, "--out", tmp_path / "out"]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"comparison.md", "comparison.json"}
    assert "[plots]" in capsys.readouterr().err


def test_a_program_can_read_the_comparison(two, tmp_path, capsys):
    runs = two({0: [1.0], 1: [0.0]}, {0: [1.0], 1: [1.0]})
    assert main([*runs, "--json", "--out", tmp_path / "out"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert printed["differences"][0]["difference"]["mean"] == 0.5


# What is refused.


def test_everything_of_a_setting_but_the_policy_has_to_match(tmp_path):
    evaluate("MemToolQA-v0", "gold", tasks="0", out=tmp_path)
    setting = json.loads((tmp_path / "setting.json").read_text())
    policy = choose_policy("gold", ModelOptions()).setting
    assert {*setting} - {*policy} | {"samples"} == {*MATCHED}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"env_args": {}}, "env_args"),
        ({"env_args": {"tasks": "world-test", "chunk_size": 9}}, "env_args.chunk_size"),
        ({"data": {"tasks": "ff"}}, "data.tasks"),
        ({"methods": [["OTC", {}]]}, "methods"),
    ],
)
def test_runs_that_differ_in_more_than_the_policy_are_refused_unless_it_is_allowed(change, name, two, capsys):
    runs = two({0: [0.0], 1: [1.0]}, {0: [1.0], 1: [1.0]}, **change)
    assert f"--allow {name}" in refused(runs, capsys)
    assert main([*runs, "--allow", name]) == 0
    assert f"{name} is" in capsys.readouterr().out or name == "env_args"


def test_all_that_differs_is_named_at_once_and_one_permission_is_for_one_difference(two, capsys):
    arguments = {"tasks": "world-test", "chunk_size": 9, "n_documents": 4}
    runs = two({0: [0.0], 1: [1.0]}, {0: [1.0, 1.0], 1: [1.0, 0.0]}, seed=1, env_args=arguments)
    names = ["env_args.chunk_size", "seed", "samples", "env_args.n_documents"]
    assert refused(runs, capsys).endswith(f"--allow {' '.join(names)}\n")
    assert refused([*runs, "--allow", "samples", "env_args"], capsys).endswith("--allow seed\n")
    assert main([*runs, "--allow", *names]) == 0


def test_a_task_set_of_the_same_hash_may_be_in_another_folder(two):
    moved = {"env_args": {"tasks": "elsewhere/world-test", "chunk_size": 5000}}
    (row,) = compare(two({0: [0.0]}, {0: [1.0]}, **moved)).differences
    assert row.difference.mean == 1.0


def test_tasks_that_one_run_lacks_are_refused_unless_the_common_ones_are_asked_for(two, capsys):
    runs = two({0: [0.0], 1: [1.0], 2: [1.0], 5: [0.0]}, {0: [1.0], 1: [None], 2: [1.0]})
    assert "other lacks em of 2 tasks" in refused(runs, capsys)
    comparison = compare(runs, common=True)
    (row,) = comparison.differences
    assert (row.baseline, row.mean, comparison.tasks) == (0.5, 1.0, 2)


@pytest.mark.parametrize(
    ("other", "options", "said"),
    [
        ({"em": {0: [0.0]}, "ids": "question {}", "data": {"tasks": "ff"}}, ["--allow", "data"], "task 0 is"),
        ({"em": {0: [None]}}, [], "no episode of other finished"),
        (None, [], "finished `evaluate run`"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(other, options, said, tmp_path, capsys):
    write_run(tmp_path / "base", {0: [0.0]})
    if other:
        write_run(tmp_path / "other", **other)
    assert said in refused([tmp_path / "base", tmp_path / "other", *options], capsys)


def test_one_run_is_not_compared(two, capsys):
    base, _ = two({0: [0.0]}, {0: [1.0]})
    for runs in ([base], [base, base]):
        assert "two or more" in refused(runs, capsys)


def test_results_of_something_else_are_refused(two, capsys):
    base, other = two({0: [0.0]}, {0: [1.0]})
    (other / "results.json").write_text('{"setting": 3}')
    assert "results.json" in refused([base, other], capsys)


def test_a_comparison_may_be_latex(two):
    lines = compare(two({0: [1.0], 1: [0.0]}, {0: [1.0], 1: [1.0]})).latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrr}"
    assert r"em & base & 0.500 &  &  &  \\" in lines


def test_the_name_of_a_run_breaks_no_page_and_controls_no_terminal(tmp_path):
    write_run(tmp_path / "base", {0: [1.0]})
    write_run(tmp_path / "a\n| b\x1b[2J", {0: [0.0]}, policy="openai", model="m\n\x1b]0;title\x07")
    comparison = compare([tmp_path / "base", tmp_path / "a\n| b\x1b[2J"])
    comparison.write(tmp_path / "page")
    page = (tmp_path / "page" / "comparison.md").read_text()
    assert "|  | a\\n\\| b\\x1b[2J | 0.000 |" in page
    assert "- a\\n| b\\x1b[2J: policy openai (m \ufffd]0;title\ufffd); 1 episode finished" in page
    assert "\x1b" not in page + comparison.latex()
