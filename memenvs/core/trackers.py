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

from memenvs.core.errors import counted, error_line
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

    A tracker that failed is left alone for a minute. Its first failure is reported, and at the end how many
    steps were not sent to it; the run's folder has them all.

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
        self._show = show
        self._trackers = dict[TrackerName, Any]()
        self._failed = dict[TrackerName, float]()  # when each last failed
        self._unsent = dict.fromkeys(names, 0)
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

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(failed=kind is not None)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the numbers of a step to every tracker that works."""
        for name, tracker in self._trackers.items():
            paused = name in self._failed and time.monotonic() < self._failed[name] + PAUSE
            if paused or not self._try(name, functools.partial(tracker.log, dict(metrics), step=step)):
                self._unsent[name] += 1

    def close(self, failed: bool = False) -> None:
        """End the trackers' runs.

        A run that failed is left for its client to end, which marks it so; MLflow's has to be told.
        """
        for name, tracker in self._trackers.items():
            if not failed:
                self._try(name, tracker.finish)
            elif name == "mlflow":
                self._try(name, functools.partial(require("mlflow", "mlflow").end_run, "FAILED"))
            if unsent := self._unsent[name]:
                self._show(f"warning: {counted(unsent, 'step')} not sent to {name}; the run's folder has all")

    def _try(self, name: TrackerName, work: Callable[[], object]) -> bool:
        """Whether a tracker did some work; its first failure is reported."""
        try:
            work()
        except Exception as error:
            if name not in self._failed:
                self._show(
                    f"warning: {name} fails ({error_line(error)}); the run continues without it for now"
                )
            self._failed[name] = time.monotonic()
            return False
        return True


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
    # By default an unreachable server is asked for minutes.
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
