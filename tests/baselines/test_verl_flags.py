"""The table of flags and verl's settings is whole, and is the one on the page."""

from dataclasses import fields
from pathlib import Path

import pytest

from memenvs.baselines.grpo import GRPOArgs
from memenvs.baselines.mt_ppo import MTPPOArgs
from memenvs.baselines.sft import SFTArgs
from memenvs.baselines.verl import PLACES, EpisodeShape, absolute, flag_table
from memenvs.baselines.verl_sft import SFT
from memenvs.core.arguments import env_parameters

PAGE = Path(__file__).parents[2] / "docs" / "trainers" / "verl.md"
ARGS = {"grpo": GRPOArgs, "mt_ppo": MTPPOArgs, "sft": SFTArgs}
TABLES = {**PLACES, "sft": SFT}


@pytest.mark.parametrize("learner", ARGS)
def test_every_flag_has_a_place_in_verl_or_a_reason(learner):
    assert set(TABLES[learner]) == {field.name for field in fields(ARGS[learner])}


def test_the_page_has_the_table_of_the_code():
    section = PAGE.read_text().partition("\n## Flags\n")[2].partition("\n## ")[0]
    assert "\n".join(line for line in section.splitlines() if line.startswith("|")) == flag_table(TABLES)


@pytest.mark.parametrize(("gpus", "group_size", "rows"), [(8, 5, 32), (3, 8, 27), (8, 8, 27)])
def test_the_only_optimizer_step_has_room_for_every_row(gpus, group_size, rows):
    args = GRPOArgs(groups=9, group_size=group_size, gpus=gpus)
    shape = EpisodeShape(rows=2.5, most_rows=3, prompt=100, response=100)
    (size,) = PLACES["grpo"]["minibatches"].settings(args, shape).values()
    assert size == rows  # of 9 tasks with 3 rows each, in whole shares of the GPUs


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
