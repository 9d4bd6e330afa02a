"""A run comes in; its steps go out one by one, and what each has learned is written down and saved."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from memenvs.baselines.journal import Journal
from memenvs.baselines.report import duration, overlong_prompts
from memenvs.baselines.run import Run
from memenvs.files import write_json

TROUBLES = ("failed", "unread", "eval_failed", "eval_unread", "skipped", "nonfinite")
"""Counts that a line shows where they are not 0."""


class Steps:
    """The steps that a run has left; SIGTERM ends it after its step, saved.

    To be iterated inside its own `with`. Each step has its learning rate set when it begins, and is to be
    ended by `end`.

    Args:
        run: goes on from the steps that it has done.
        last: number of the last step, from 1.
        show: the names of the numbers to print; counts of what went wrong are printed where they are not 0.
    """

    def __init__(self, run: Run, last: int, show: tuple[str, ...]) -> None:
        self._run, self._last, self._show = run, last, show
        self._journal = Journal(run.args.out, run.step, quiet=not run.world.first)
        if run.world.first:  # every flag as it stands, and the recipe that it came from
            flags = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(run.args).items()}
            write_json(run.args.out / "args.json", flags)
        self._step, self._asked, self._stopping = run.step, False, False
        self._before: Any = None
        self._began, self._first, self._warned = time.perf_counter(), run.step, False

    def __enter__(self) -> Steps:
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __iter__(self) -> Iterator[int]:
        while self._step < self._last and not self._stopping:
            self._step += 1
            self._run.set_rate(self._step, self._last)
            yield self._step

    def end(self, numbers: dict[str, float]) -> None:
        """Evaluate and save where it is time to, and write the step's numbers down."""
        run, step = self._run, self._step
        self._stopping = run.world.any(self._asked)
        evaluation = {} if self._stopping else run.evaluate(step)
        self._report({**numbers, **evaluation})
        best = run.is_best(step, evaluation)
        if best or step % run.args.save_every == 0 or step == self._last or self._stopping:
            run.save(step)

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self._journal.close()
        if kind is None:  # the other processes are not waited for by one that has failed
            self._run.world.close()

    def _report(self, numbers: dict[str, float]) -> None:
        """Write a step's numbers down, show its line, and say once what is wrong with the prompts."""
        step, journal = self._step, self._journal
        journal.write(step, numbers)
        names = [name for name in self._show if name in numbers]
        names += [name for name in TROUBLES if numbers.get(name)]
        shown = "  ".join(f"{name} {numbers[name]:.4g}" for name in names)
        pace = (time.perf_counter() - self._began) / (step - self._first)
        left = duration(pace * (self._last - step))
        journal.show(f"step {step}/{self._last}  {shown}  {pace:.1f} s a step, {left} left")
        unread = numbers.get("unread", 0) + numbers.get("eval_unread", 0)
        if unread and not self._warned:
            self._warned = True
            journal.show(f"warning: {overlong_prompts(unread, self._run.policy.window)}")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
