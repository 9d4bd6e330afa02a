"""`memenvs evaluate signals`: what a method measured, by step and by value, from the episodes of runs."""

import json
import math

import numpy as np
import pytest
from command_line import run

from memenvs import evaluate
from memenvs.core.episode_file import EpisodeWriter, read_episodes
from memenvs.evaluation.signals import signal_figures
from memenvs.wrappers import MemPO

SEARCH = {"tasks": "world-test", "memory_mode": "rewrite", "max_turns": 3}
MEMORY = "<mem>a</mem><think></think>"


def agent(observation, info):
    """A memory at the first and the third turn, none at the second, and then an answer."""
    return [f"{MEMORY}<search>a</search>", "<search>b</search>", f"{MEMORY}<answer>x</answer>"][info["turn"]]


def made(folder, signals, scores, **changes):
    """A run whose signals at turns 1 and 3, and metrics, are given."""
    evaluate(
        "MemSearchQA-v0", agent, env_args=SEARCH | changes, tasks=range(len(scores)), out=folder,
        methods=[MemPO(bias="none")], scorer="lexical",
    )  # fmt: skip
    file = folder / "episodes.jsonl"
    episodes = read_episodes(file)
    file.unlink()
    with EpisodeWriter(file) as writer:
        for episode, values, score in zip(episodes, signals, scores, strict=True):
            for turn, value in zip(episode.turns[::2], values, strict=bool(values)):
                turn.signals["mempo"] = value
            episode.measured, episode.metrics["em"] = {"mempo": [0, 2] if values else []}, score
            writer.write(episode)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        made(folder / "grpo", [[0.1, 0.2], [0.3, 0.9]], [0.0, 1.0]),
        made(folder / "mempo", [[0.5, 0.5], [0.5, 1.0]], [0.25, 0.75]),
    ]


def test_a_step_has_the_mean_of_its_signals_and_their_share_of_the_episodes(runs):
    found = [tuple(row) for row in signal_figures("MemPO", runs).by_step]
    np.testing.assert_allclose([row[1:] for row in found], [
        (1, 2, 1.0, 0.2), (3, 2, 1.0, 0.55), (1, 2, 1.0, 0.5), (3, 2, 1.0, 0.75),
    ])  # fmt: skip
    assert [row[0] for row in found] == ["grpo", "grpo", "mempo", "mempo"]


def test_a_range_has_its_share_of_the_signals_and_the_metric_of_their_episodes(runs):
    figures = signal_figures("mempo", runs, ranges=2)
    assert [(row.low, row.high, row.turns, row.share, row.score) for row in figures.by_value] == [
        (0.0, 0.5, 3, 0.75, 0.5),  # both episodes, each once
        (0.5, 1.0, 1, 0.25, 1.0),
        (0.0, 0.5, 0, 0.0, pytest.approx(math.nan, nan_ok=True)),
        (0.5, 1.0, 4, 1.0, 0.5),
    ]


def test_a_signal_of_0_is_at_the_turn_where_it_was_measured(tmp_path):
    figures = signal_figures("mempo", [made(tmp_path, [[0.5, 0.0]], [1.0])])  # the second turn has no memory
    assert [(row.step, row.mean) for row in figures.by_step] == [(1, 0.5), (3, 0.0)]


def test_signals_outside_0_and_1_have_ranges_of_their_own(tmp_path):
    folder = made(tmp_path, [[-3.0, 1.0], [0.0, 2.0]], [0.0, 1.0])
    rows = signal_figures("mempo", [folder], ranges=5).by_value
    assert [(row.low, row.turns) for row in rows] == [(-3.0, 1), (-2.0, 0), (-1.0, 0), (0.0, 1), (1.0, 2)]


def test_equal_signals_are_in_one_range(tmp_path):
    rows = signal_figures("mempo", [made(tmp_path, [[-2.0, -2.0]], [1.0])]).by_value
    assert [row.score for row in rows if row.turns] == [1.0]


def test_the_command_prints_two_tables_and_writes_the_same_numbers(runs, tmp_path, capsys):
    assert run("evaluate signals", ["MemPO", *runs, "--ranges", "2", "--out", tmp_path / "figures"]) == 0
    page = capsys.readouterr().out
    assert "| 3 | 1.000 | 0.550 | 1.000 | 0.750 |" in page
    assert "| 0 to 0.5 | 0.750 | 0.500 | 0.000 |  |" in page
    numbers = json.loads((tmp_path / "figures" / "signals.json").read_text())
    assert [row["score"] for row in numbers["by_value"]] == [0.5, 1.0, None, 0.5]
    assert run("evaluate signals", ["MemPO", *runs, "--ranges", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == numbers
    assert (tmp_path / "figures" / "signals.png").stat().st_size > 10_000


def test_runs_without_the_signal_and_other_settings_are_refused(runs, tmp_path):
    with pytest.raises(ValueError, match=r"grpo has no signals of TAMTRL; it has those of mempo"):
        signal_figures("TAMTRL", runs)
    with pytest.raises(ValueError, match="no metric 'rouge'"):
        signal_figures("MemPO", runs, metric="rouge")
    other = made(tmp_path / "other", [[0.1, 0.2]], [0.0], k=1)
    with pytest.raises(ValueError, match=r"env_args\.k is 1 in"):
        signal_figures("MemPO", [runs[0], other])
    assert "env_args.k is 1 in" in signal_figures("MemPO", [runs[0], other], allow=["env_args.k"]).caption


def test_a_run_that_measured_nothing_has_no_signals(tmp_path):
    with pytest.raises(ValueError, match="no signals of MemPO; it has none"):
        signal_figures("MemPO", [made(tmp_path, [[]], [0.0])])


def test_episodes_that_are_not_in_the_file_count_as_failed(tmp_path):
    folder = made(tmp_path, [[0.1, 0.2], [0.3, 0.4]], [0.0, 1.0])
    file = folder / "episodes.jsonl"
    kept, _ = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(kept)
    assert ": 1." in signal_figures("MemPO", [folder]).caption
