"""What the studies share: their runs' record, and warm-ups."""

import json

import pytest

pytest.importorskip("matplotlib", reason="a record is drawn")

from research import harness

METRICS = ("eval_em", "eval_format")


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def made(folder, method, *seeds, names=METRICS):
    """Jobs whose logs have, for each seed, one evaluation per number."""
    jobs = []
    for seed, values in enumerate(seeds):
        out = folder / f"{method}-{seed}"
        out.mkdir(parents=True)
        lines = [{"step": 10 * step, **dict.fromkeys(names, value)} for step, value in enumerate(values, 1)]
        (out / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        jobs.append(harness.LearnerJob(method, seed, out, []))
    return jobs


def test_the_last_evaluations_of_a_run_count(tmp_path, results):
    jobs = made(tmp_path, "warmed up", [0.25], [0.25]) + made(
        tmp_path, "GRPO", [0.0, 0.5, 1.0], [0.0, 0.0, 0.5]
    )
    table = harness.Study("some", "A title", METRICS, last=2).record(jobs)
    assert table.splitlines()[3].startswith("| GRPO | 0.500 (0.250 to 0.750) |")
    record = json.loads((results / "some.json").read_text())
    assert record["last"]["GRPO"]["eval_em"] == [0.75, 0.25]
    assert record["curves"]["GRPO"]["eval_em"][1] == [[10, 20, 30], [0.0, 0.0, 0.5]]
    assert (results / "some.png").stat().st_size > 0


def test_a_method_whose_seeds_were_evaluated_at_different_steps_is_refused(tmp_path, results):
    with pytest.raises(ValueError, match="seeds of GRPO were evaluated at different steps; run them again"):
        harness.Study("some", "A title", METRICS).record(made(tmp_path, "GRPO", [0.5], [0.5, 0.5]))
    assert not results.exists()


def jobs_of(folder, *programs):
    return [
        harness.LearnerJob("GRPO", seed, folder / str(seed), ["-c", program])
        for seed, program in enumerate(programs)
    ]


def test_a_field_that_a_record_lacks_is_named_with_its_file(tmp_path):
    file = tmp_path / "reader.json"
    file.write_text('{"last": {"TAMTRL": [{"em": 1.0}]}}')
    record = harness.read_record(file)
    assert record == {"last": {"TAMTRL": [{"em": 1.0}]}}
    with pytest.raises(ValueError, match=r"reader\.json has no 'f1'"):
        record["last"]["TAMTRL"][0]["f1"]


def test_all_runs_end_before_those_that_failed_are_named(tmp_path):
    ended = []
    jobs = jobs_of(tmp_path, "pass", "raise SystemExit('no model')", "pass")
    with pytest.raises(RuntimeError, match=rf"1 runs failed; see \['{tmp_path}/1/stderr.txt'\]"):
        harness.run_all(jobs, 2, ended.append)
    assert sorted(job.seed for job in ended) == [0, 2]
    assert (tmp_path / "1" / "stderr.txt").read_text() == "no model\n"


def test_where_a_run_cannot_be_recorded_those_under_way_end_and_no_others_begin(tmp_path):
    def ended(job):
        raise OSError("no space left")

    slow = f"import pathlib, time; time.sleep(1); pathlib.Path({str(tmp_path / 'ended')!r}).touch()"
    jobs = jobs_of(tmp_path, "pass", slow, slow, "pass")
    with pytest.raises(OSError, match="no space left"):
        harness.run_all(jobs, 2, ended)
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "3").exists()


def test_a_clone_that_has_ended_is_made_again_for_other_episodes_alone(tmp_path, monkeypatch):
    teacher, commands = tmp_path / "episodes.jsonl", []
    teacher.write_text("an episode\n")
    monkeypatch.setattr(harness, "python", commands.append)

    def clone(rate=0.5):
        return harness.clone(
            tmp_path / "model", teacher, tmp_path / "out", ["--seed", "0"], passes=1, rate=rate
        )

    assert clone() == clone() == harness.last_policy(tmp_path / "out")
    assert len(commands) == 1
    teacher.write_text("another\n")
    clone()
    clone(rate=0.25)
    assert [command[command.index("--lr") + 1] for command in commands] == ["0.5", "0.5", "0.25"]


def test_warming_up_ends_where_an_evaluation_reaches_the_share(tmp_path, monkeypatch):
    log, passes = tmp_path / "log.jsonl", []

    def train(command):
        passes.append(command[command.index("--epochs") + 1])
        log.write_text(json.dumps({"step": len(passes), "eval_success": 0.1 * len(passes)}) + "\n")

    monkeypatch.setattr(harness, "python", train)
    assert harness.clone_until(0.25, tmp_path / "model", tmp_path, []) == harness.last_policy(tmp_path)
    assert passes == ["1", "2", "3"]
    harness.clone_until(0.25, tmp_path / "model", tmp_path, [])
    assert passes == ["1", "2", "3"]
