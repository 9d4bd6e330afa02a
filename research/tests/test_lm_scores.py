"""Examples before a prompt, for the few-shot scores of a pretrained model."""

from argparse import Namespace

import numpy as np
import pytest

from memenvs.models import HFPolicy
from research.lm_scores import COLUMNS, SETTINGS, FewShotPolicy, cell, examples

pytest.importorskip("transformers")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_examples_of_every_environment_are_messages_that_end_in_an_answer(name):
    told = examples(SETTINGS[name])("the prompt")
    assert len(told) >= 1
    assert all(isinstance(text, str) and text for message in told for text in message)
    ends = {"reading": "\\boxed{", "needles": "\\boxed{"}.get(name, "<answer>")
    assert ends in told[-1][1]


def test_a_prompt_that_shows_a_section_is_taught_by_prompts_that_do():
    shots = examples(SETTINGS["reading"])
    assert all("<section>" in text and "\\boxed" not in reply for text, reply in shots("… <section> …"))
    assert all("<section>" not in text and "\\boxed" in reply for text, reply in shots("…"))


def test_a_prompt_stands_behind_its_examples_in_the_chat(tiny_model):
    policy = FewShotPolicy(str(tiny_model), lambda observation: [("one?", "1"), ("two?", "2")])
    plain = HFPolicy(str(tiny_model), tokenizer=policy.tokenizer)
    ids = policy.encode("three?")
    assert policy.tokenizer.decode(ids) == (
        "<|im_start|>user\none?<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n"
        "<|im_start|>user\ntwo?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\nthree?<|im_end|>\n<|im_start|>assistant\n"
    )
    end = plain.encode("three?")
    np.testing.assert_array_equal(ids[-len(end) :], end)


def test_every_column_is_scored(tiny_model, tmp_path):
    args = Namespace(model=str(tiny_model), out=tmp_path, tasks=1, samples=1, max_new_tokens=2)
    cells = {column: cell(args, "tool", column) for column in COLUMNS}
    assert cells["gold"].startswith("1.000")
    assert cells["zero-shot"].startswith("0.000")
    assert cells["few-shot"].startswith("0.000")
    assert (tmp_path / "tool" / "few-shot" / "episodes.jsonl").is_file()
    assert cell(args, "sokoban", "lexical") == "none"
