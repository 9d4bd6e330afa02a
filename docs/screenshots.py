"""Draw docs/images/view_*.png and compare_*.png: reports in Chromium, and plots.

`python docs/screenshots.py runs/screenshots` first plays the runs that they show; the same command resumes.
It needs the extras lm, plots and dev-browser.
"""

from __future__ import annotations

import argparse
import base64
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

IMAGES = Path(__file__).parent / "images"
READING = (
    "--env MemChunkQA-v0 --env-args tasks=world-test n_documents=6 chunk_size=300 cut_at=document "
    "max_memory=128 max_answer=32 template=short tokenizer=world"
)
MEASURED = "--methods TAMTRL --scorer hf:smollm2-reader --task 24:48"
MODEL = "--policy hf:smollm2-reader --max-new-tokens 192 --temperature"
PAGE = (
    "--env MemChunkQA-v0 --env-args tasks=world-test n_documents=20 chunk_size=700 --methods TAMTRL "
    "--scorer lexical --task 0:40 --samples 2"
)
"""As docs/compare.md does."""
RUNS = {
    "reader/greedy": f"evaluate run {READING} {MEASURED} {MODEL} 0",
    "reader/sampled": f"evaluate run {READING} {MEASURED} {MODEL} 1",
    "reader/gold": f"evaluate run {READING} {MEASURED} --policy gold",
    "reader/random_text": f"evaluate run {READING} {MEASURED} --policy random_text",
    "grpo": f"train grpo --model smollm2-reader {READING} --reward tamtrl --steps 1 --groups 6 "
    "--group-size 4 --max-new-tokens 160 --save-episodes 24 --seed 1",
    **{
        f"page/{policy}": f"evaluate run {PAGE} --policy {policy}"
        for policy in ("lexical", "random_text", "gold")
    },
}
COMPARED = (
    "evaluate compare page/lexical page/random_text page/gold --metrics success em f1 format prompt_tokens"
)
CURVED = " ".join(f"tutorial/{seed}/{run}" for run in ("tamtrl", "outcome") for seed in range(6))
CURVES = f"view --curves {CURVED} --metrics success eval_success informative entropy --smooth 0.6"


class Shot(NamedTuple):
    """A picture of a report.

    Attributes:
        run: the folder that the report shows.
        view: the address inside the report.
        size: width and height of the window in CSS pixels.
        script: JavaScript that runs before the picture is taken.
    """

    run: str
    view: str
    size: tuple[int, int]
    script: str = ""


OPEN = "document.querySelector('tr.row a').click()"
SHOTS = {
    "view_table": Shot("reader", "#?compare=1,3", (1300, 1000)),
    "view_turn": Shot("reader/greedy", "#?q=world-test-37", (1100, 860), OPEN),
    "view_group": Shot(
        "grpo",
        "#?q=world-test-24&colour=advantage",
        (1200, 1120),
        f"{OPEN}; location.hash = location.hash.replace('e', 'g')",
    ),
}


def memenvs(command: str, folder: Path) -> None:
    """Run a command of memenvs in a folder."""
    subprocess.run([sys.executable, "-m", "memenvs", *shlex.split(command)], cwd=folder, check=True)


def take(driver: Any, shot: Shot, folder: Path, out: Path) -> None:
    """Write a picture of a report as a PNG with 1.25 pixels for each CSS pixel."""
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "report.html"
        memenvs(f"view {shot.run} --out {page}", folder)
        width, height = shot.size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1.25, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        driver.get(f"file://{page}{shot.view}")
        driver.execute_script(shot.script)
        time.sleep(1)  # the page reads the episode and draws it
        picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        out.write_bytes(base64.b64decode(picture["data"]))


def main() -> None:
    """Play the runs that are missing, and draw every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the runs")
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for run, command in RUNS.items():
        if not any((folder / run / name).exists() for name in ("results.json", "last")):
            memenvs(f"{command} --out {run}", folder)
    tutorial = ["-m", "research.reproduce.tutorial", str(folder / "tutorial")]
    subprocess.run([sys.executable, *tutorial], cwd=IMAGES.parents[1], check=True)
    memenvs(f"{COMPARED} --out comparison", folder)
    for name in ("forest", "turns"):
        (IMAGES / f"compare_{name}.png").write_bytes((folder / "comparison" / f"{name}.png").read_bytes())
    memenvs(f"{CURVES} --out {IMAGES / 'view_curves.png'}", folder)

    sys.path.insert(0, str(IMAGES.parents[1] / "tests" / "support"))
    from browser import chromium  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as profile:
        driver = chromium(profile)
        try:
            for name, shot in SHOTS.items():
                take(driver, shot, folder, IMAGES / f"{name}.png")
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
