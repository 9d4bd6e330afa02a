"""What the reproductions share: the record of their runs, written at once or extended."""

import json

import pytest

pytest.importorskip("matplotlib", reason="a record is drawn")

from research.reproduce import runs

METRICS = ("eval_em", "eval_format")


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def made(folder, method, *seeds, names=METRICS):
    """Jobs whose logs have, for each seed, one evaluation per number."""
    jobs = []
    for seed, values in enumerate(seeds):
        out = folder / f"{method}-{seed}"
        out.mkdir(parents=True)
        lines = [{"step": 10 * step, **dict.fromkeys(names, value)} for step, value in enumerate(values, 1)]
        (out / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        jobs.append(runs.LearnerJob(method, seed, out, []))
    return jobs


def test_the_last_evaluations_of_a_run_count(tmp_path, results):
    jobs = made(tmp_path, "warmed up", [0.25], [0.25]) + made(
        tmp_path, "GRPO", [0.0, 0.5, 1.0], [0.0, 0.0, 0.5]
    )
    table = runs.finish("some", "A title", jobs, METRICS, last=2)
    assert table.splitlines()[3].startswith("| GRPO | 0.500 (0.250 to 0.750) |")
    record = json.loads((results / "some.json").read_text())
    assert record["last"]["GRPO"]["eval_em"] == [0.75, 0.25]
    assert record["curves"]["GRPO"]["eval_em"][1] == [[10, 20, 30], [0.0, 0.0, 0.5]]
    assert (results / "some.png").stat().st_size > 0


def test_a_method_whose_seeds_were_evaluated_at_different_steps_is_refused(tmp_path, results):
    with pytest.raises(ValueError, match="seeds of GRPO were evaluated at different steps; run them again"):
        runs.finish("some", "A title", made(tmp_path, "GRPO", [0.5], [0.5, 0.5]), METRICS)
    assert not results.exists()


def test_a_clone_that_has_ended_is_made_again_for_other_episodes_alone(tmp_path, monkeypatch):
    teacher, commands = tmp_path / "episodes.jsonl", []
    teacher.write_text("an episode\n")
    monkeypatch.setattr(runs, "python", commands.append)

    def clone(rate=0.5):
        return runs.clone(tmp_path / "model", teacher, tmp_path / "out", ["--seed", "0"], passes=1, rate=rate)

    assert clone() == clone() == runs.last_policy(tmp_path / "out")
    assert len(commands) == 1
    teacher.write_text("another\n")
    clone()
    clone(rate=0.25)
    assert [command[command.index("--lr") + 1] for command in commands] == ["0.5", "0.5", "0.25"]


class TestAddingMethodsToARecord:
    def first(self, folder):
        jobs = made(folder, "warmed up", [0.25], names=METRICS[:1])
        jobs += made(folder, "GRPO", [0.5, 1.0], names=METRICS[:1])
        runs.finish("some", "A title", jobs, METRICS[:1])
        return json.loads((runs.RESULTS / "some.json").read_text())

    def test_its_methods_stay_and_show_what_they_have(self, tmp_path, results):
        kept = self.first(tmp_path / "first")
        jobs = made(tmp_path, "warmed up", [0.25]) + made(tmp_path, "MemPO", [0.0, 0.5])
        table = runs.finish("some", "A title", jobs, METRICS, kept=kept)
        assert table.splitlines()[2:] == [
            "| warmed up | 0.250 | 0.250 |",
            "| GRPO | 0.750 |  |",
            "| MemPO | 0.250 | 0.250 |",
        ]
        record = json.loads((results / "some.json").read_text())
        assert record["curves"]["GRPO"] == kept["curves"]["GRPO"]
        assert list(record["last"]) == ["warmed up", "GRPO", "MemPO"]

    def test_runs_from_another_policy_are_refused(self, tmp_path, results):
        kept = self.first(tmp_path / "first")
        jobs = made(tmp_path, "warmed up", [0.5]) + made(tmp_path, "MemPO", [0.0, 0.5])
        with pytest.raises(ValueError, match=r"of 'warmed up' is .* in some.json; leave out --add"):
            runs.finish("some", "A title", jobs, METRICS, kept=kept)
        assert json.loads((results / "some.json").read_text()) == kept

    def test_a_record_of_other_seeds_or_steps_is_refused(self, tmp_path):
        kept = self.first(tmp_path / "first")
        assert runs.kept_record("some", 1, 20) == kept
        for seeds, steps in ((2, 20), (1, 30)):
            with pytest.raises(
                ValueError, match=r"runs of 1 seeds and 20 steps, .*; give --seeds 1 --steps 20"
            ):
                runs.kept_record("some", seeds, steps)
