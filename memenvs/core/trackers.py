"""Experiment trackers: a run's numbers in TensorBoard, Weights & Biases, MLflow and Trackio."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from memenvs.core.errors import error_line
from memenvs.core.files import read_json, write_json
from memenvs.core.optional import require

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
PROJECT = "memenvs"
"""Project, or experiment, of the runs, unless a variable of the tracker names another."""
IDS = "trackers.json"
"""File in a run's folder: the id of each tracker's run, with which a resumed run continues it."""
RETRY = 60.0
"""Seconds until a tracker that failed is tried again."""


class TrackerError(ValueError):
    """A tracker cannot begin; raised before a run's first step."""


@dataclass
class Tracker:
    """A tracker's run, and the numbers that it has not been sent.

    Attributes:
        log: sends the numbers of a step.
        close: ends the run; its argument is whether an error ended the training.
        id: with which the run can be resumed; empty where none is needed.
    """

    log: Callable[[int, dict[str, float]], object]
    close: Callable[[bool], object]
    id: str = ""
    waiting: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    retry_at: float = 0.0  # seconds; above 0 after a failure


def check_clients(names: Iterable[TrackerName]) -> None:
    """Import the trackers' clients.

    Raises:
        ImportError: one is not installed; the message names the command that installs it.
    """
    for name in names:
        board = name == "tensorboard"
        require("torch.utils.tensorboard" if board else name, "train" if board else name)


class Trackers:
    """Sends a run's numbers to several trackers, and survives any that fails.

    Numbers that could not be sent are kept, and sent again with those of a step at least `RETRY` seconds
    later. The first failure of each tracker is reported.

    Args:
        names: of trackers.
        folder: of the run, which gives it its name.
        config: the run's arguments, plain data.
        step: steps done before; above 0 the trackers' runs are continued.
        show: prints a line on the screen.

    Raises:
        TrackerError: a tracker refuses to begin.
    """

    def __init__(
        self,
        names: Sequence[TrackerName],
        folder: Path,
        config: Mapping[str, Any],
        step: int,
        show: Callable[[str], None],
    ) -> None:
        self._show, self._trackers = show, dict[str, Tracker]()
        file = folder / IDS
        ids = read_json(file) if step and file.exists() else {}
        for name in names:
            try:
                self._trackers[name] = _TRACKERS[name](folder, config, step, ids.get(name, ""))
            except Exception as error:
                self.close(failed=True)
                raise TrackerError(f"--track {name} cannot begin: {error_line(error)}") from error
        if ids := ids | {name: one.id for name, one in self._trackers.items() if one.id}:
            write_json(file, ids)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the numbers of a step to every tracker, or keep them for later."""
        for name, tracker in self._trackers.items():
            tracker.waiting.append((step, dict(metrics)))
            if time.monotonic() >= tracker.retry_at:
                self._send(name)

    def close(self, failed: bool = False) -> None:
        """Send what is left and end the trackers' runs; nothing is raised."""
        for name, tracker in self._trackers.items():
            self._send(name)
            self._attempt(name, tracker.close, failed)
            if left := len(tracker.waiting):
                self._show(f"warning: {left} steps were not sent to {name}; the run's folder has them")

    def _send(self, name: str) -> None:
        tracker = self._trackers[name]
        while tracker.waiting and self._attempt(name, tracker.log, *tracker.waiting[0]):
            del tracker.waiting[0]

    def _attempt(self, name: str, call: Callable[..., object], *given: Any) -> bool:
        tracker = self._trackers[name]
        try:
            call(*given)
        except Exception as error:
            if not tracker.retry_at:
                self._show(
                    f"warning: {name} fails ({error_line(error)}); the run continues, and numbers that were "
                    "not sent are sent again later"
                )
            tracker.retry_at = time.monotonic() + RETRY
            return False
        return True


def _tensorboard(folder: Path, config: Mapping[str, Any], step: int, id: str) -> Tracker:
    """Event files in the run's folder; steps that will be played again are purged."""
    board = require("torch.utils.tensorboard", "train")
    writer = board.SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
    if not step:
        writer.add_text("arguments", f"```json\n{json.dumps(config, indent=2)}\n```")

    def log(step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return Tracker(log, lambda failed: writer.close())


def _wandb(folder: Path, config: Mapping[str, Any], step: int, id: str) -> Tracker:
    """Files in the run's folder. Steps that the tracker already has are left as they are."""
    wandb = require("wandb", "wandb")
    begun = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=os.environ.get("WANDB_NAME", folder.name),
        id=id or uuid.uuid4().hex[:8],
        resume="allow",
        dir=str(folder),
        config=dict(config),
        settings=wandb.Settings(finish_timeout=300.0),  # without a network it would never return
    )
    return Tracker(
        lambda step, metrics: begun.log(metrics, step=step),
        lambda failed: begun.finish(exit_code=int(failed)),
        begun.id,
    )


def _mlflow(folder: Path, config: Mapping[str, Any], step: int, id: str) -> Tracker:
    """SQLite in the run's folder, or the server that `MLFLOW_TRACKING_URI` names."""
    # By default an unreachable server is asked for minutes; what is not sent is tried again later.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    mlflow, entities = require("mlflow", "mlflow"), require("mlflow.entities", "mlflow")
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # otherwise it reports each table that it creates
    files = (folder / "mlflow").resolve()
    address, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
    if not address:
        files.mkdir(parents=True, exist_ok=True)
        address, artifacts = f"sqlite:///{files / 'mlflow.db'}", (files / "artifacts").as_uri()
    client = mlflow.MlflowClient(tracking_uri=address)
    if id:
        client.update_run(id, status="RUNNING")
    else:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name, artifacts)
        id = client.create_run(experiment, run_name=folder.name).info.run_id
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in config.items()}
        client.log_batch(id, params=[entities.Param(name, text) for name, text in texts.items()])

    def log(step: int, metrics: dict[str, float]) -> None:
        now = int(1000 * time.time())
        batch = [entities.Metric(name, value, now, step) for name, value in metrics.items()]
        client.log_batch(id, metrics=batch)

    return Tracker(log, lambda failed: client.set_terminated(id, "FAILED" if failed else "FINISHED"), id)


def _trackio(folder: Path, config: Mapping[str, Any], step: int, id: str) -> Tracker:
    """This machine (`TRACKIO_DIR`), or the space that `TRACKIO_SPACE_ID` names."""
    trackio = require("trackio", "trackio")
    id = id or f"{folder.name}-{uuid.uuid4().hex[:8]}"  # Trackio knows a run by its name
    begun = trackio.init(project=PROJECT, name=id, resume="allow", config=dict(config), embed=False)
    return Tracker(lambda step, metrics: begun.log(metrics, step=step), lambda failed: begun.finish(), id)


_TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}
