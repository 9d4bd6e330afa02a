"""A run's numbers reach every tracker through its real client, offline; a failing tracker stops nothing."""

import json
import sys
import time

import easy_sokoban
import numpy as np
import pytest
import yaml

pytest.importorskip("accelerate", reason="the extra train installs it")
from accelerate import tracking

from memenvs.baselines.flags import main as learn
from memenvs.core.trackers import Trackers

WHY = "make test-track installs it"
CONFIG = {"learner": "grpo", "lr": 1e-6, "env_args": {"k": 3}, "stop": [], "model": ""}
SENT = {"learner": "grpo", "lr": "1e-06", "env_args": '{"k": 3}', "stop": "[]", "model": ""}
NUMBERS = [{"return": 0.25, "signals/tamtrl_std": 0.5}, {"return": 0.5}, {"return": 1.0}]


def wandb_records(file):
    """The records of an offline file: LevelDB's log format behind a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := -place % 2**15) < 7:  # the rest of a block, too short for a record's header
            place += left
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last of its pieces
            yield Record.FromString(whole)
            whole = b""


def wandb_rows(folder):
    """Config, and the rows of each run by step, as its offline files hold them."""
    config, rows = {}, {}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        records = list(wandb_records(file))
        while not any(record.HasField("exit") for record in records):  # its process still writes
            time.sleep(0.1)
            records = list(wandb_records(file))
        for record in records:
            if record.HasField("run"):
                id = record.run.run_id
                config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            if record.HasField("history"):
                items = record.history.item
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
                kept = {name: value for name, value in row.items() if name[0] != "_"}
                rows.setdefault(id, {})[row["_step"]] = kept
    return {name: one for name, one in config.items() if name != "_wandb"}, rows


def mlflow_rows(folder):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("memenvs")
    config, rows = {}, {}
    for run in client.search_runs([experiment.experiment_id]):
        assert run.info.status == "FINISHED"
        config |= run.data.params
        of = rows.setdefault(run.info.run_id, {})
        for name in run.data.metrics:
            for one in client.get_metric_history(run.info.run_id, name):
                of.setdefault(one.step, {})[name] = one.value
    return config, rows


def trackio_rows(folder):
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    config, rows = {}, {}
    for run in trackio.Api().runs("memenvs"):
        config |= {name: one for name, one in run.config.items() if name[0] != "_"}
        for row in SQLiteStorage.get_logs("memenvs", run.name):
            if kept := {name: one for name, one in row.items() if name in ("return", "signals/tamtrl_std")}:
                rows.setdefault(run.name, {})[row["step"]] = kept
    return config, rows


def tensorboard_rows(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    rows = {}
    for name in board.Tags()["scalars"]:
        for event in board.Scalars(name):
            rows.setdefault(event.step, {})[name] = event.value
    (file,) = folder.glob("tensorboard/*/hparams.yml")
    return yaml.safe_load(file.read_text()), {"": rows}


READERS = {
    "tensorboard": tensorboard_rows,
    "wandb": wandb_rows,
    "mlflow": mlflow_rows,
    "trackio": trackio_rows,
}


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """No tracker asks a network, or finds the user's own settings."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    if "trackio" not in sys.modules:  # which reads it once
        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's use of SQLAlchemy
@pytest.mark.parametrize("name", READERS)
def test_a_resumed_run_continues_the_trackers_run(name, tmp_path, offline):
    pytest.importorskip("torch.utils.tensorboard" if name == "tensorboard" else name, reason=WHY)
    folder, told = tmp_path / "grpo-0", []
    first = Trackers([name], folder, CONFIG, 0, told.append)
    for step in (1, 2):
        first.log(step, NUMBERS[step - 1])
    first.close()
    if name == "tensorboard":  # which reads files in the order of their names, and these have a whole second
        time.sleep(1)
    again = Trackers([name], folder, CONFIG, 2, told.append)
    again.log(3, NUMBERS[2])
    again.close()
    assert told == []
    config, rows = READERS[name](folder)
    assert {key: str(value) for key, value in config.items()} == SENT
    (run,) = rows.values()
    assert run == {step: NUMBERS[step - 1] for step in (1, 2, 3)}
    assert not (tmp_path / "mlruns").exists()
    assert not (tmp_path / "wandb").exists()


class Flaky(tracking.GeneralTracker):
    """A tracker that fails while `down`, and keeps what it was sent."""

    name = "wandb"
    requires_logging_directory = False
    tracker = None
    last = None

    def __init__(self, run_name, **settings):
        super().__init__()
        self.settings = settings
        self.down, self.sent, self.ended = False, [], False
        Flaky.last = self

    def log(self, values, step=None):
        if self.down:
            raise ConnectionError("no route\nto host")
        self.sent.append((step, values["return"]))

    def finish(self):
        self.ended = True


@pytest.fixture
def flaky(monkeypatch):
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "wandb", Flaky)
    monkeypatch.setitem(sys.modules, "wandb", tracking)  # some module: the real one may not be installed


def test_a_tracker_that_fails_is_reported_once_and_gets_later_steps(flaky, tmp_path, monkeypatch):
    monkeypatch.setattr("memenvs.core.trackers.PAUSE", 0.0)
    shown = []
    trackers = Trackers(["wandb"], tmp_path, {}, 0, shown.append)
    client = Flaky.last
    for step, client.down in ((1, False), (2, True), (3, True), (4, False)):
        trackers.log(step, {"return": step / 2})
    assert client.sent == [(1, 0.5), (4, 2.0)]
    trackers.close()
    assert "no route" in shown[0]
    assert shown[1].startswith("warning: 2 steps not sent to wandb")
    assert client.ended


def test_a_tracker_that_fails_is_left_alone_for_a_while(flaky, tmp_path):
    shown = []
    trackers = Trackers(["wandb"], tmp_path, {}, 0, shown.append)
    for step, Flaky.last.down in ((1, True), (2, False)):
        trackers.log(step, {"return": 0.0})
    trackers.close(failed=True)
    assert Flaky.last.sent == []
    assert shown[1].startswith("warning: 2 steps not sent to wandb")
    assert not Flaky.last.ended


def test_a_new_run_in_an_old_folder_is_a_new_run_of_the_tracker(flaky, tmp_path):
    ids = []
    for step in (0, 5, 0):  # the last died before its first checkpoint
        Trackers(["wandb"], tmp_path, {}, step, print)
        ids.append(Flaky.last.settings["id"])
    assert ids[0] == ids[1] != ids[2]


# Learners.


@pytest.fixture
def run(tmp_path):
    """Runs `grpo` on an easy board with more flags; its exit status."""
    for library in ("torch", "tyro", "tensorboard"):
        pytest.importorskip(library, reason="the learners need the extra train")

    env_args = easy_sokoban.save_levels(tmp_path)
    model = easy_sokoban.save_model(tmp_path / "model", env_args)
    flags = ["--env", "MemSokoban-v0"]
    flags += ["--model", str(model), "--env-args", json.dumps(env_args), "--out", str(tmp_path / "run")]
    flags += "--groups 1 --steps 2 --group-size 2 --num-envs 2 --max-new-tokens 5 --save-every 1".split()
    return lambda *more: learn(["grpo", *flags, *more])


def test_a_learner_sends_its_log_and_its_arguments(run, flaky, tmp_path):
    assert run("--track", "wandb") == 0
    client = Flaky.last
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert client.sent == [(line["step"], line["return"]) for line in lines]
    assert client.settings["config"]["learner"] == "grpo"
    assert client.settings["config"]["group_size"] == 2
    assert client.ended
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert run("--track", "wandb", "tensorboard", "--resume", "--steps", "3") == 0
    assert Flaky.last.settings["id"] == client.settings["id"]
    assert [step for step, _ in Flaky.last.sent] == [3]
    assert (tmp_path / "run" / "tensorboard").exists()


def test_a_tracker_that_fails_does_not_stop_the_training(run, flaky, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Flaky, "log", lambda *_, **__: 1 / 0)
    assert run("--track", "wandb") == 0
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 2
    said = capsys.readouterr().err
    assert said.count("warning: wandb fails (ZeroDivisionError") == 1
    assert "2 steps not sent to wandb" in said


def test_a_tracker_that_refuses_to_begin_is_reported_in_one_line(run, flaky, tmp_path, monkeypatch, capsys):
    def refuse(self, *_, **__):
        raise RuntimeError("api_key not configured.\nrun wandb login")

    monkeypatch.setattr(Flaky, "__init__", refuse)
    assert run("--track", "wandb") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(
        "error: --track wandb cannot begin: RuntimeError: api_key not configured. run wandb login"
    )


def test_a_missing_client_is_reported_before_a_model_is_loaded(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert run("--track", "mlflow", "--model", "nowhere") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert '[mlflow]"`' in line
    assert not (tmp_path / "run").exists()


def test_only_the_first_process_tracks(flaky, tmp_path):
    pytest.importorskip("torch", reason="the learners need the extra train")
    from memenvs.baselines.checkpoint import TrainingLog

    Flaky.last = None
    log = TrainingLog(tmp_path / "run", quiet=True, track=["wandb"])
    log.write(1, {"return": float(np.pi)})
    log.close()
    assert Flaky.last is None
    assert not (tmp_path / "run").exists()
