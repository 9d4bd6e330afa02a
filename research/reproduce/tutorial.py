"""Run the code of docs/tutorials/read_with_tamtrl.md with several seeds, and record its curves.

`python -m research.reproduce.tutorial runs/tutorial` runs the page once for each seed.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from research.harness import LearnerJob, Study, run_all

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "read_with_tamtrl.md"
METHODS = {"TAMTRL": "tamtrl", "outcome alone": "outcome"}


def program(page: str, folder: Path, seed: int) -> str:
    """The Python blocks and the commands of the page, as one program that runs in a folder.

    Without what the page asserts of its own seed, since a record has every seed.
    """
    parts = [f"import os, subprocess, sys\n\nos.chdir({str(folder)!r})\n"]
    for language, body in re.findall(r"^```(python|console)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        if language == "python":
            code = re.sub(r"^assert .*\n", "", body, flags=re.MULTILINE)
            parts.append(re.sub(r"^SEED = 0\b", f"SEED = {seed}", code, flags=re.MULTILINE))
        else:
            words = (shlex.split(line.removeprefix("$ ")) for line in body.splitlines())
            parts += [
                f"subprocess.run([sys.executable, '-m', *{command}], check=True)\n" for command in words
            ]
    return "\n".join(parts)


def run(folder: Path, seeds: Sequence[int], parallel: int) -> str:
    """Run the page for each seed; write the record, and return the table."""
    folders = [(folder / f"{seed}").resolve() for seed in seeds]
    waiting = []
    for seed, out in zip(seeds, folders, strict=True):
        if not (out / "report.html").exists():  # which the page makes last
            out.mkdir(parents=True, exist_ok=True)
            (out / "page.py").write_text(
                program(PAGE.read_text(encoding="utf-8"), out, seed), encoding="utf-8"
            )
            waiting.append(LearnerJob("the page", seed, out, [str(out / "page.py")]))
    run_all(waiting, parallel)
    jobs = [
        LearnerJob(method, seed, out / name, [])
        for method, name in METHODS.items()
        for seed, out in zip(seeds, folders, strict=True)
    ]
    return Study("tutorial", "Unseen questions", ["eval_success"], last=1, picture=False).record(jobs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the runs; finished ones are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(6))
    parser.add_argument("--parallel", type=int, default=1, help="runs at once")
    args = parser.parse_args()
    print(run(args.folder, args.seeds, args.parallel))
