"""The table of flags and verl's settings is whole, and is the one on the page."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from memenvs.baselines.args import LEARNERS, GRPOArgs
from memenvs.baselines.verl.plan import BatchPlan
from memenvs.baselines.verl.settings import PLACES, absolute, where
from memenvs.core.arguments import env_parameters
from memenvs.core.episode import Episode, Reply, Turn

PAGE = Path(__file__).parents[2] / "docs" / "trainers" / "verl.md"


def flag_table():
    """Every flag's place in verl as a Markdown table; a place that differs by learner names it."""
    lines = ["| flag | in verl, or why not |", "| --- | --- |"]
    for flag in dict.fromkeys(flag for table in PLACES.values() for flag in table):
        places = {}
        for learner, table in PLACES.items():
            if flag in table:
                places.setdefault(where(table[flag]), []).append(f"`{learner}`")
        first, *others = places
        texts = [first, *(f"in {' and '.join(places[place])} {place}" for place in others)]
        lines.append(f"| `--{flag.replace('_', '-')}` | {'; '.join(texts)} |")
    return "\n".join(lines)


@pytest.mark.parametrize("learner", PLACES)
def test_every_flag_has_a_place_in_verl_or_a_reason(learner):
    assert set(PLACES[learner]) == {field.name for field in fields(LEARNERS[learner])}


def test_the_page_has_the_table_of_the_code():
    section = PAGE.read_text().partition("\n## Flags\n")[2].partition("\n## ")[0]
    assert "\n".join(line for line in section.splitlines() if line.startswith("|")) == flag_table()


@pytest.mark.parametrize(("gpus", "group_size", "rows"), [(8, 5, 40), (3, 8, 36), (8, 8, 36)])
def test_the_only_optimizer_step_has_room_for_every_row(gpus, group_size, rows):
    args = GRPOArgs(groups=9, group_size=group_size, gpus=gpus)
    plan = BatchPlan(args, rows=[2, 3], prompt=100, response=100)
    assert plan.mini_batch == rows  # of 9 tasks with 3 rows each and one to spare, a whole share a GPU


@pytest.mark.parametrize(
    ("rows", "mini_batch", "steps"),
    [([1, 1], 8, "4 of 64 rows"), ([4, 5], 48, "4 of 384 rows"), ([1, 19], 168, "4 of 1,344 rows")],
)
def test_a_step_has_the_recipe_s_optimizer_steps_whatever_its_rows_are(rows, mini_batch, steps):
    """Of 32 tasks: an episode has at most as many rows as seen, and a tenth more for other tasks."""
    plan = BatchPlan(GRPOArgs(groups=32, group_size=8, gpus=8, minibatches=4), rows, prompt=100, response=100)
    assert (plan.mini_batch, plan.optimizer_steps) == (mini_batch, steps)


@pytest.mark.parametrize(
    ("read", "limits"), [(60, (512, 1_024)), (7_000, (7_168, 1_024)), (8_000, (8_000, 192))]
)
def test_a_reply_has_room_in_the_window_before_longer_prompts_have(read, limits):
    reply = Reply("", ids=np.zeros(5, np.int64), read=np.zeros(read, np.int64))
    episode = Episode(turns=[Turn("", {"turn": 0}, reply)])
    args = GRPOArgs(max_new_tokens=1_024)
    plan = BatchPlan.of(args, [episode], window=8_192)
    assert (plan.prompt, plan.response) == limits


def test_files_become_absolute_and_choices_metrics_and_bundled_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("research", "f1", "world-train", "data", "index"):
        (tmp_path / name).mkdir()
    stay = {"form": "research", "metric": "f1", "tasks": "world-train", "k": 3, "tokenizer": "general"}
    known = env_parameters("MemSearchQA-v0")
    assert absolute(stay, known) == stay
    moved = absolute({"tasks": "data", "retriever": "lexical:index"}, known)
    assert moved == {"tasks": f"{tmp_path}/data", "retriever": f"lexical:{tmp_path}/index"}
    served = {"retriever": "http://127.0.0.1:8000"}
    assert absolute(served, known) == served
