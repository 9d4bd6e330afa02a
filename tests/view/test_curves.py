"""Curves of training runs: which runs form one line, its label, and what is drawn."""

import json
import struct

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="curves want the extra plots")

from command_line import view as main

from memenvs.view import write_curves
from memenvs.view.curves import curve, group_by_seed, read_runs

ARGS = {
    "learner": "grpo",
    "seed": 0,
    "out": "x",
    "reward": "turn",
    "lr": 1e-6,
    "env_args": {"k": 3},
    "steps": 3,
}


def save(folder, rows, **args):
    """A run's folder; `rows` are the values of `success` from step 1 on, None where none was logged."""
    folder.mkdir(parents=True)
    (folder / "args.json").write_text(json.dumps({**ARGS, **args}))
    lines = [{"step": step, "time": 0.0, "success": value} for step, value in enumerate(rows, 1)]
    lines = [{k: v for k, v in line.items() if v is not None} for line in lines]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def labels(*folders):
    return {name: [run.name for run in runs] for name, runs in group_by_seed(read_runs(folders)).items()}


def test_runs_that_differ_in_their_seed_alone_are_one_line(tmp_path):
    save(tmp_path / "a0", [0.1, 0.2])
    save(tmp_path / "a1", [0.3, 0.4], seed=1, num_envs=8, out="y")
    save(tmp_path / "b0", [0.1, 0.2], reward="outcome", env_args={"k": 5})
    assert labels(tmp_path) == {"reward=turn, k=3": ["a0", "a1"], "reward=outcome, k=5": ["b0"]}


def test_learners_are_told_apart_by_their_names_and_what_both_have(tmp_path):
    save(tmp_path / "a", [0.1], clip=0.2, lr=1e-5)
    save(tmp_path / "b", [0.1], learner="mt_ppo", lam=0.9)
    assert list(labels(tmp_path)) == ["grpo, lr=1e-05", "mt_ppo, lr=1e-06"]


def test_lines_that_only_a_flag_of_one_tells_apart_have_it(tmp_path):
    save(tmp_path / "a", [0.1], clip=0.2)
    save(tmp_path / "b", [0.1])
    assert list(labels(tmp_path)) == ["clip=0.2", "neither"]


def test_a_run_without_arguments_goes_by_its_folder(tmp_path):
    for name in ("old", "older"):
        save(tmp_path / name, [0.1])
        (tmp_path / name / "args.json").unlink()
    assert labels(tmp_path) == {"old": ["old"], "older": ["older"]}


def test_a_line_has_the_steps_of_all_seeds_and_each_is_smoothed_by_itself(tmp_path):
    save(tmp_path / "a", [0.0, 1.0, float("nan"), 0.5])
    save(tmp_path / "b", [0.5, 0.25, 1.0], seed=1)
    runs = read_runs([tmp_path])
    steps, values = curve(runs, "success")
    np.testing.assert_array_equal(steps, [1, 2])
    np.testing.assert_allclose(values, [[0.0, 1.0], [0.5, 0.25]])
    # Weight 0.5: (0.5 * 0.5 * first + 0.5 * second) / 0.75
    np.testing.assert_allclose(curve(runs, "success", 0.5)[1][:, 1], [2 / 3, 1 / 3])


def test_a_band_reaches_from_the_lowest_to_the_highest_seed_and_says_so(tmp_path, monkeypatch):
    from memenvs.view import curves

    for seed, rows in enumerate(([0.0, 0.5], [0.2, 0.7], [0.7, 0.9])):
        save(tmp_path / f"a{seed}", rows, seed=seed)
    save(tmp_path / "b", [0.5, 0.5], reward="outcome")
    drawn = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, path: drawn.append(figure))
    made = write_curves([tmp_path], tmp_path / "c.png")
    assert made.metrics == ["success"]
    (axis,) = drawn[0].axes
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [0.3, 0.7])
    (band,) = axis.collections
    height = band.get_paths()[0].vertices
    for step, low, high in ((1, 0.0, 0.7), (2, 0.5, 0.9)):
        at = height[height[:, 0] == step, 1]
        assert (at.min(), at.max()) == (low, high)
    assert "bands: from the lowest to the highest seed" in drawn[0].get_supxlabel()
    texts = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert texts == ["reward=turn (3 seeds)", "reward=outcome"]


def test_the_command_writes_png_and_svg_and_names_lines_and_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "runs" / "a0", [0.1, 0.2, 0.3])
    save(tmp_path / "runs" / "a1", [0.3, 0.4], seed=1)
    assert main(["--curves", "runs"]) == 0
    assert capsys.readouterr().out == (
        "curves.png, curves.svg: success\n"
        "  grpo: a0, a1\n"
        "    plotted up to step 2, which all of them have reached\n"
    )
    head = (tmp_path / "curves.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", head[16:])) > 300
    first = (tmp_path / "curves.svg").read_bytes()
    assert first.startswith(b"<?xml")
    assert main(["--curves", "runs", "--out", "curves.svg"]) == 0
    assert (tmp_path / "curves.svg").read_bytes() == first


def test_a_signal_is_drawn_by_itself_and_its_spread_when_it_is_named(tmp_path):
    save(tmp_path / "a", [0.1])
    row = {
        "step": 1,
        "success": 0.5,
        "em": 0.5,
        "signals/tamtrl": 0.2,
        "signals/tamtrl_std": 0.1,
        "seconds": 1,
    }
    (tmp_path / "a" / "log.jsonl").write_text(json.dumps(row) + '\n{"step": 2, "succ')
    assert write_curves([tmp_path], tmp_path / "c.svg").metrics == ["success", "signals/tamtrl"]
    made = write_curves([tmp_path], tmp_path / "c.svg", ["signals/tamtrl_std"])
    assert made.metrics == ["signals/tamtrl_std"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--curves", "empty"],
        ["--curves", "begun"],
        ["--curves", "broken"],
        ["--curves", "a", "--metrics", "sucess"],
        ["--curves", "a", "--out", "c.pdf"],
        ["--curves", "a", "--terminal"],
        ["a", "--metrics", "success", "--out", "r.html"],
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "a", [0.1])
    (tmp_path / "empty").mkdir()
    save(tmp_path / "begun", [])
    save(tmp_path / "broken", [])
    (tmp_path / "broken" / "log.jsonl").write_text("[]\n")
    before = {path.name for path in tmp_path.iterdir()}
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == before
