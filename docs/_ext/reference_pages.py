"""The reference of the public names: a page for each module, written when the site is built.

The pages are files because Sphinx reads files: docs/api/MODULE.rst, which git ignores. Without the site,
`python -m pydoc MODULE` shows the same.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import memenvs

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MODULES: dict[str, list[str]] = {
    "memenvs": [f"memenvs.{name}" for name in memenvs.__all__],
    "memenvs.wrappers": [],
    "memenvs.wrappers.scorers": [],
    "memenvs.rollout": [
        *("memenvs.rollout.collect.collect", "memenvs.rollout.collect.Loop"),
        *("memenvs.rollout.policy.Policy", "memenvs.rollout.policy.Request"),
        *("memenvs.core.episode.Episode", "memenvs.core.episode.Turn"),
        *("memenvs.core.episode.Reply", "memenvs.core.episode.Credit"),
        *("memenvs.core.episode.Sample", "memenvs.core.episode_file.EpisodeWriter"),
        *("memenvs.core.episode_file.RecordEpisodes", "memenvs.core.episode_file.read_episodes"),
        "memenvs.rollout.scripted.make_policy",
    ],
    "memenvs.credit": [],
    "memenvs.models": [],
    "memenvs.evaluation": [
        *("memenvs.evaluation.run.evaluate", "memenvs.evaluation.run.EvaluationSettings"),
        *("memenvs.evaluation.summary.Summary", "memenvs.evaluation.summary.MetricSummary"),
        *("memenvs.evaluation.summary.Interval", "memenvs.evaluation.summary.summarise"),
        *("memenvs.evaluation.summary.bootstrap", "memenvs.evaluation.summary.wilson"),
        *("memenvs.evaluation.compare.compare", "memenvs.evaluation.compare.CompareOptions"),
        "memenvs.evaluation.compare.PairedComparison",
        *("memenvs.evaluation.compare.MetricDifference", "memenvs.evaluation.log.EvaluatedRun"),
        "memenvs.evaluation.compare.paired_interval",
    ],
    "memenvs.baselines": [
        *(
            "memenvs.baselines.args.MTPPOArgs",
            "memenvs.baselines.args.GRPOArgs",
            "memenvs.baselines.args.SFTArgs",
            "memenvs.baselines.args.DistillArgs",
            "memenvs.baselines.args.PRMArgs",
        ),
        *("memenvs.baselines.args.TrainArgs", "memenvs.baselines.args.PlayArgs"),
        *("memenvs.baselines.args.StepArgs", "memenvs.baselines.args.RewardArgs"),
        "memenvs.baselines.advantages.group_advantages",
        *("memenvs.baselines.losses.policy_loss", "memenvs.baselines.losses.value_loss"),
        *("memenvs.baselines.losses.kl_penalty", "memenvs.baselines.losses.divergence"),
        "memenvs.baselines.losses.aggregate",
        "memenvs.baselines.update.train_on",
        "memenvs.baselines.scoring.score",
    ],
}
"""What each page documents; nothing listed: the module's `__all__`."""


def module_page(name: str) -> str:
    """A page that documents a module's public names by autodoc."""
    module = importlib.import_module(name)
    listed = MODULES[name] or [f"{name}.{public}" for public in module.__all__]
    blocks = [name, "=" * len(name), ""]
    for full in (
        sorted(listed, key=lambda full: full.rpartition(".")[2].lower()) if not MODULES[name] else listed
    ):
        place, _, public = full.rpartition(".")
        value = getattr(importlib.import_module(place), public)
        kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
        if kind == "data":  # autodoc would print the docstring of its type
            blocks += [f".. py:data:: {full}", f"   :value: {_shown(value)}", ""]
            continue
        blocks += [f".. auto{kind}:: {full}"]
        if kind == "class":
            blocks += ["   :members:", *(["   :undoc-members:"] if _is_flags(value) else [])]
        blocks += [""]
    return "\n".join([*blocks, ""])


def _is_flags(kind: Any) -> bool:
    return kind.__name__.endswith("Args")  # of a learner


def _shown(value: Any) -> str:
    return " ".join(repr(value).split()).replace("numpy.", "np.")


def _write(app: Sphinx) -> None:
    """Before Sphinx looks for files."""
    folder = Path(app.srcdir) / "api"
    for stale in folder.glob("*.rst"):
        stale.unlink()
    for name in MODULES:
        (folder / f"{name}.rst").write_text(module_page(name), encoding="utf-8")


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Link the names in the table of modules, which have no page on a code host."""
    if docname == "api/index":
        source[0] = re.sub(r"^\| `(memenvs[\w.]*)` \|", r"| [`\1`](\1.rst) |", source[0], flags=re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
