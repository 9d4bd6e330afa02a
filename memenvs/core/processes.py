"""Work shared between processes, in order, with errors that reach the caller."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

J = TypeVar("J")
T = TypeVar("T")


def map_in_processes(make: Callable[[J], T], jobs: Sequence[J], workers: int) -> Generator[T, None, None]:
    """`make(job)` for each job, in order, by `workers` processes that take turns.

    They work ahead only as far as a pipe holds, so `jobs` may be longer than what the caller consumes.
    Closing the generator ends the processes.

    Each process has its own pipe, which closes if the process is killed in the middle of a result. With the
    single queue of a `ProcessPoolExecutor` the caller would wait forever for the rest of that result.

    Raises:
        ValueError: a process was killed; what `make` raises is raised here.
    """
    context = get_context("spawn")
    pipes: list[Connection] = []
    processes = []
    try:
        for worker in range(workers):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(theirs, make, jobs[worker::workers]), daemon=True)
            pipes.append(ours)
            process.start()
            processes.append(process)
            theirs.close()  # or its end would never be seen
        for job in range(len(jobs)):
            yield _receive(pipes[job % workers], processes[job % workers], workers)
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


def _receive(pipe: Connection, process: BaseProcess, workers: int) -> Any:
    try:
        made, error = pipe.recv()
    except (EOFError, OSError) as ended:
        process.join()
        raise ValueError(_why(process.exitcode or 0, workers)) from ended
    if error is not None:
        raise error
    return made


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


def _work(pipe: Connection, make: Callable[[J], Any], jobs: Sequence[J]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too, and ends this process
    with suppress(BrokenPipeError):  # the parent is gone
        for job in jobs:
            try:
                made, error = make(job), None
            except Exception as raised:  # whatever it is, the parent raises it
                made, error = None, raised
            pipe.send((made, error))
