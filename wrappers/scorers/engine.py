"""A vLLM engine in this process, which is over before the interpreter is."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from memenvs.extras import require

PATIENCE = 5.0  # seconds that a thread of an engine has to end


def start_engine(model: str, arguments: Mapping[str, Any]) -> Any:
    """A `vllm.LLM` that is shut down when the interpreter ends.

    Left to itself its threads live on into the interpreter's end, which now and then aborts a process that
    has done its work.

    Args:
        model: a folder or a name on the hub.
        arguments: of `vllm.LLM`.
    """
    before = set(threading.enumerate())
    engine = require("vllm", "vllm").LLM(model, **arguments)
    threads = [one for one in threading.enumerate() if one not in before and one.name != "tqdm_monitor"]
    atexit.register(stop_engine, weakref.ref(engine), threads)
    return engine


def stop_engine(engine: weakref.ref[Any], threads: Sequence[threading.Thread]) -> None:
    """Shut an engine down, if there still is one, and wait for its threads."""
    core = getattr(getattr(engine(), "llm_engine", None), "engine_core", None)
    if core is not None:
        core.shutdown()
    for thread in threads:
        thread.join(PATIENCE)
