"""Every search form and memory mode keeps the parts of the contract that depend on it."""

# ruff: noqa: F401  # imported tests

import tempfile
from pathlib import Path

import gymnasium as gym
import pytest

from memenvs import open_tasks
from memenvs.build.multi import MultiOptions, multi
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import load_tokenizer
from memenvs.testing import (  # what depends on the mode; test_conformance.py runs the rest
    env,
    test_a_state_is_json_and_is_resumed_bit_for_bit_as_often_as_wanted,
    test_no_reply_raises_or_leaves_the_observation_space,
    test_silence_scores_nothing,
    test_the_gold_policy_scores_one,
    test_the_info_has_the_same_keys_at_every_step_and_pickles,
    test_the_next_observation_is_this_one_the_reply_and_the_feedback_unless_the_context_is_rewritten,
    test_the_scoring_fields_are_texts_and_the_memory_is_where_its_span_says,
)

_FOLDER = tempfile.TemporaryDirectory()
SEVERAL = str(Path(_FOLDER.name) / "multi")
_tokenizer = load_tokenizer("world")
_draft = multi(MultiOptions(source=["world-test"], objectives=2, num_tasks=3, split="test"), _tokenizer)
write_task_set(Path(SEVERAL), _draft, Card("multi"), _tokenizer)

READING, SEARCHING = "memenvs.envs.chunk_qa:ChunkQAEnv", "memenvs.envs.search_qa:SearchQAEnv"
MODES = {
    **{
        f"Reading-{mode}-v0": (READING, {"tasks": SEVERAL, "ask": ask, "memory_mode": mode})
        for mode, ask in {"rewrite": "each", "structured": "each", "a_mem": "later", "react": "later"}.items()
    },
    **{f"Reading-{mode}-v0": (READING, {"memory_mode": mode}) for mode in ("callback", "mem1")},
    **{
        f"Searching-{mode}-v0": (SEARCHING, {"tasks": "world-test", "memory_mode": mode})
        for mode in ("rewrite", "callback", "mem1", "structured", "a_mem")
    },
    "Searching-compact-v0": (
        SEARCHING,
        {"tasks": "world-test", "memory_mode": "compact", "compact_at": 400, "max_memory": 40},
    ),
    **{
        f"Searching-{form}-v0": (SEARCHING, {"tasks": "world-test", "form": form})
        for form in ("research", "deep_researcher")
    },
}
for name, (entry_point, kwargs) in MODES.items():
    gym.register(name, entry_point, kwargs=kwargs)

pytestmark = pytest.mark.parametrize("env_id", MODES)
