"""Work shared between processes, or tasks of a Ray cluster, in order, with errors that reach the caller."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeVar

from memenvs.core.data import Count
from memenvs.core.optional import require

J = TypeVar("J")
T = TypeVar("T")
Workers = Count | Literal["ray"]
"""A number of processes, or the workers of a Ray cluster."""


def map_jobs(
    make: Callable[[J], T], jobs: Sequence[J], workers: Workers, *, gpu: bool = False
) -> Generator[T, None, None]:
    """`make(job)` for each job, in order, by processes or on Ray; it works ahead, and closing it ends that.

    Args:
        make: a picklable function of a job.
        jobs: what to do.
        workers: how many processes, or `"ray"`.
        gpu: give each process, or on Ray each job, a GPU of its own as far as there are any.

    Raises:
        ValueError: a process was killed (Ray repeats the job first); what `make` raises is raised here.
    """
    if workers == "ray":
        return map_on_ray(make, jobs, gpu)
    return _map_in_processes(make, jobs, workers, gpu)


def connect_ray() -> Any:
    """Ray, connected to the cluster at RAY_ADDRESS, or to one started here.

    Raises:
        ImportError: Ray is not installed.
    """
    ray = require("ray", "ray")
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    return ray


def map_on_ray(make: Callable[[J], T], jobs: Iterable[J], gpu: bool = False) -> Generator[T, None, None]:
    """As `map_jobs` on Ray, which repeats a killed worker's job; with `gpu` on a GPU each, if it has any."""
    ray = connect_ray()
    slots = ray.cluster_resources()
    kind = "GPU" if gpu and "GPU" in slots else "CPU"
    work = ray.remote(**{f"num_{kind.lower()}s": 1})(lambda make, job: make(job))
    shared, left = ray.put(make), iter(jobs)
    ahead = 2 * max(1, int(slots.get(kind, 1)))
    waiting = deque(work.remote(shared, job) for job in islice(left, ahead))
    try:
        while waiting:
            result = ray.get(waiting.popleft())
            waiting.extend(work.remote(shared, job) for job in islice(left, 1))
            yield result
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.WorkerCrashedError as error:
        raise ValueError("a job's Ray workers were killed each time; give them more memory") from error
    finally:
        for task in waiting:
            ray.cancel(task, force=True)


def _map_in_processes(
    make: Callable[[J], T], jobs: Sequence[J], workers: int, gpu: bool
) -> Generator[T, None, None]:
    """`make(job)` for each job, in order, by `workers` processes that take turns.

    They work ahead only as far as a pipe holds, so `jobs` may be longer than what the caller consumes.
    Closing the generator ends the processes.

    Each process has its own pipe, which closes if the process is killed in the middle of a result. With the
    single queue of a `ProcessPoolExecutor` the caller would wait forever for the rest of that result.
    """
    context = get_context("spawn")
    workers = min(workers, len(jobs))
    pipes: list[Connection] = []
    processes = []
    try:
        for worker in range(workers):
            ours, theirs = context.Pipe(duplex=False)
            # Torchrun's name for the number of a process on its machine, by which a model chooses its GPU.
            variables = {"LOCAL_RANK": str(worker)} if gpu else {}
            work = (theirs, make, jobs[worker::workers], variables)
            process = context.Process(target=_work, args=work, daemon=True)
            pipes.append(ours)
            process.start()
            processes.append(process)
            theirs.close()  # or its end would never be seen
        for job in range(len(jobs)):
            try:
                result, error = pipes[job % workers].recv()
            except (EOFError, OSError) as ended:
                process = processes[job % workers]
                process.join()
                raise ValueError(_why(process.exitcode or 0, workers)) from ended
            if error is not None:
                raise error
            yield result
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


def _why(exitcode: int, workers: int) -> str:
    if exitcode < 0:  # by a signal
        return (
            f"a worker process was killed (signal {-exitcode}), usually because memory ran out; "
            f"give fewer --workers than {workers}"
        )
    return (
        f"a worker process ended with exit code {exitcode}; a script that builds with --workers needs "
        '`if __name__ == "__main__":` around it'
    )


def _work(
    pipe: Connection, make: Callable[[J], Any], jobs: Sequence[J], variables: Mapping[str, str]
) -> None:
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too, and ends this process
    with suppress(BrokenPipeError):  # the parent is gone
        for job in jobs:
            try:
                result, error = make(job), None
            except Exception as raised:  # whatever it is, the parent raises it
                result, error = None, raised
            pipe.send((result, error))
