"""A run's numbers in TensorBoard, Weights & Biases, MLflow and Trackio, by accelerate's trackers."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
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
PAUSE = 60.0
"""Seconds that a tracker that failed is left alone, since a failure may take long."""


class TrackerError(ValueError):
    """A tracker cannot begin; raised before a run's first step."""


def check_clients(names: Iterable[TrackerName]) -> None:
    """Import the trackers' clients.

    Raises:
        ImportError: one is not installed; the message names the command that installs it.
    """
    for name in names:
        require("accelerate.tracking", "train")
        board = name == "tensorboard"
        require("torch.utils.tensorboard" if board else name, "train" if board else name)


class Trackers:
    """Sends a run's numbers to several trackers, and survives any that fails.

    Numbers that could not be sent are sent with those of a step at least a minute later. The first failure of
    each tracker is reported.

    Args:
        names: names of the trackers.
        folder: folder of the run, which gives the run its name.
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
        self._show, self._trackers, self._failed = show, dict[str, Any](), dict[str, float]()
        self._unsent: dict[str, list[tuple[int, dict[str, float]]]] = {name: [] for name in names}
        ids = read_json(folder / IDS) if step and (folder / IDS).exists() else {}
        plain = {
            name: value if isinstance(value, str | int | float) else json.dumps(value)
            for name, value in config.items()
        }
        for name in names:
            try:
                self._trackers[name] = _begin(name, folder, plain, step, ids)
            except Exception as error:
                self.close(failed=True)
                raise TrackerError(f"--track {name} cannot begin: {error_line(error)}") from error
        if ids:
            write_json(folder / IDS, ids)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the numbers of a step to every tracker, or keep them for later."""
        for name, unsent in self._unsent.items():
            unsent.append((step, dict(metrics)))
            if name not in self._failed or time.monotonic() > self._failed[name] + PAUSE:
                self._send(name)

    def close(self, failed: bool = False) -> None:
        """Send what is left and end the trackers' runs.

        A run that failed is left for its client to end, which marks it so; MLflow's has to be told.
        """
        for name, tracker in self._trackers.items():
            end: Callable[[], object] | None = None if failed else tracker.finish
            if failed and name == "mlflow":
                end = functools.partial(require("mlflow", "mlflow").end_run, "FAILED")
            self._send(name, end)
            if left := len(self._unsent[name]):
                self._show(f"warning: {left} steps were not sent to {name}; the run's folder has them")

    def _send(self, name: str, then: Callable[[], object] | None = None) -> None:
        unsent = self._unsent[name]
        try:
            while unsent:
                step, metrics = unsent[0]
                self._trackers[name].log(metrics, step=step)
                del unsent[0]
            if then:
                then()
        except Exception as error:
            if name not in self._failed:
                self._show(
                    f"warning: {name} fails ({error_line(error)}); the run continues, and numbers that were "
                    "not sent are sent again later"
                )
            self._failed[name] = time.monotonic()


def _begin(name: str, folder: Path, config: dict[str, Any], step: int, ids: dict[str, str]) -> Any:
    """A tracker whose run has begun; the id of a new run is put into `ids`."""
    tracking = require("accelerate.tracking", "train")
    require("accelerate.state", "train").PartialState()  # accelerate's trackers ask it which process this is
    run = ids.get(name)
    if name == "tensorboard":  # steps that will be played again are purged
        settings: dict[str, Any] = {"run_name": name, "logging_dir": folder, "purge_step": step + 1}
    elif name == "mlflow":
        settings = {"experiment_name": PROJECT, "run_id": run, "run_name": folder.name}
        settings["logging_dir"] = _place_mlflow(folder)
    else:
        run = ids[name] = run or uuid.uuid4().hex[:8]
        settings = {"run_name": PROJECT, "resume": "allow", "config": config}
        if name == "trackio":
            settings |= {"name": f"{folder.name}-{run}", "embed": False}  # it knows a run by its name
        else:
            settings |= {
                "run_name": os.environ.get("WANDB_PROJECT", PROJECT),
                "name": os.environ.get("WANDB_NAME", folder.name),
                "id": run,
                "dir": str(folder),
                "settings": {"finish_timeout": 300.0},  # without a network it would never return
            }
    tracker = tracking.LOGGER_TYPE_TO_CLASS[name](**settings)
    tracker.start()
    if name == "mlflow":
        ids[name] = tracker.tracker.info.run_id
    if not step and "config" not in settings:
        tracker.store_init_configuration(config)
    return tracker


def _place_mlflow(folder: Path) -> str | None:
    """Let MLflow write into the run's folder, unless `MLFLOW_TRACKING_URI` is set; where artifacts go."""
    # By default an unreachable server is asked for minutes; what is not sent is tried again later.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # otherwise it reports each table that it creates
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return None
    files = (folder / "mlflow").resolve()
    files.mkdir(parents=True, exist_ok=True)
    require("mlflow", "mlflow").set_tracking_uri(f"sqlite:///{files / 'mlflow.db'}")
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # MLflow sets it, and the next run has a folder of its own
    return (files / "artifacts").as_uri()
