"""Every way of asking and of remembering keeps the parts of the contract that depend on it."""

# ruff: noqa: F401  # imported tests

import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from memenvs import open_tasks
from memenvs.build.multi import multi
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import load_tokenizer
from memenvs.testing import (  # what depends on the mode; test_conformance.py runs the rest
    env,
    play,
    test_a_state_is_json_and_goes_on_from_there,
    test_a_state_taken_in_the_middle_replays_bit_for_bit_in_another_environment,
    test_check_env_finds_nothing_to_warn_of,
    test_every_hostile_reply_is_survived,
    test_no_reply_raises_or_leaves_the_observation_space,
    test_silence_scores_nothing,
    test_the_gold_policy_scores_one,
    test_the_info_has_the_same_keys_at_every_step,
    test_the_memory_stands_where_its_span_says,
    test_the_next_observation_is_this_one_the_reply_and_the_feedback_unless_the_context_is_rewritten,
    test_the_picture_of_a_state_put_back_is_the_one_it_was_taken_at,
    test_the_scoring_fields_are_texts_at_every_turn,
)
from memenvs.testing.conformance import SEARCHES
from memenvs.wrappers import RewardWrapper

_FOLDER = tempfile.TemporaryDirectory()
SEVERAL = str(Path(_FOLDER.name) / "multi")
_draft = multi(
    [open_tasks("world-test")],
    objectives=2,
    count=12,
    tokenizer=load_tokenizer("world"),
    split="test",
    seed=0,
)
write_task_set(Path(SEVERAL), _draft, Card("multi"), load_tokenizer("world"))

READING, SEARCHING = "memenvs.envs.chunk_qa:ChunkQAEnv", "memenvs.envs.search_qa:SearchQAEnv"
MODES = {
    "AskEach-v0": (READING, {"tasks": SEVERAL, "ask": "each"}),
    "AskLater-v0": (READING, {"tasks": SEVERAL, "ask": "later"}),
    **{
        f"Reading-{mode}-v0": (READING, {"tasks": "world-test", "memory_mode": mode})
        for mode in ("callback", "mem1", "structured", "a_mem", "react")
    },
    **{
        f"Searching-{mode}-v0": (SEARCHING, {"tasks": "world-test", "memory_mode": mode})
        for mode in ("rewrite", "callback", "mem1", "structured", "a_mem", "react")
    },
    **{
        f"Searching-{form}-v0": (SEARCHING, {"tasks": "world-test", "form": form})
        for form in ("research", "deep_researcher")
    },
    "AskStructured-v0": (READING, {"tasks": SEVERAL, "ask": "each", "memory_mode": "structured"}),
    "AskNotes-v0": (READING, {"tasks": SEVERAL, "ask": "later", "memory_mode": "a_mem"}),
    "AskReact-v0": (READING, {"tasks": SEVERAL, "ask": "later", "memory_mode": "react"}),
}
for name, (entry_point, kwargs) in MODES.items():
    gym.register(name, entry_point, kwargs=kwargs)

pytestmark = pytest.mark.parametrize("env_id", MODES)


def test_methods_that_ask_for_log_probabilities_run(env):  # noqa: F811
    methods = ["TAMTRL", ["InfoMem", {"side": "both"}], "IGPO"]
    _, *steps = play(RewardWrapper(env.unwrapped, methods, "lexical"), [*SEARCHES, *["x"] * 200], seed=0)
    for step in steps:
        assert np.isfinite([step[1], *step[4]["signals"].values()]).all()
