"""The chunked reading reproduction: tasks can be read, the model can write them, the reader is careless."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch", reason="the small model needs torch")
pytest.importorskip("transformers", reason="the small model needs transformers")

from memenvs.core.episode import Episode, Reply, Turn
from memenvs.rollout.collect import collect
from research.reproduce.reading import ReadingSetting
from research.reproduce.reading_memory import ENV, REPLY, Read, read, shares, signals
from research.reproduce.reading_model import CARE, CarelessReader
from research.reproduce.reading_tasks import CHUNKS, LINE, QUESTION, SENTENCES, TEMPLATE, sentence

ASKED = QUESTION.format(person="Ada Orrel")
GOLD, OTHER = sentence("Ada Orrel", "Tarsk"), sentence("Bo Venn", "Munness")


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return ReadingSetting(tmp_path_factory.mktemp("reading"), tasks=64)


@pytest.fixture
def env(setting):
    return gym.make(f"memenvs:{ENV}", **setting.env_args("test"))


def test_a_chunk_shows_whole_sentences_only(env):
    for seed in range(8):
        observation, _ = env.reset(seed=seed)
        for _ in range(CHUNKS):
            section = observation.split("Section:\n")[1].split("\nMemory:\n")[0].rstrip(LINE).split(LINE)
            assert len(section) == SENTENCES
            assert all(re.fullmatch(r"\w+ \w+ was born in \w+\.", line) for line in section)
            observation, *_ = env.step("")


def test_two_sentences_fit_the_memory_and_the_reply(setting, env):
    from memenvs.models import HFPolicy

    policy = HFPolicy(setting.model)
    tasks = env.unwrapped.tasks
    longest = sorted(tasks.texts(range(tasks.n_documents)), key=len)[-2:]
    env.reset(seed=0)
    info = env.step(LINE.join(longest))[4]
    assert info["metrics"]["memory_overflow"] == 0
    assert len(policy.encode_reply(LINE.join(longest))) == REPLY


def test_who_keeps_what_is_asked_for_always_answers(env):
    reader = CarelessReader(np.random.default_rng(0), care=1.0)
    assert [episode.metrics["em"] for episode in collect(env, reader, range(16))] == [1.0] * 16


def test_the_careless_reader_keeps_the_evidence_with_the_chance_it_says():
    reader = CarelessReader(np.random.default_rng(0))
    prompt = TEMPLATE["read"].format(chunk=LINE.join([GOLD, OTHER]), memory="", question=ASKED)
    kept = np.mean([reader(prompt).startswith(GOLD) for _ in range(2000)])
    assert abs(kept - CARE) < 0.04  # four standard deviations of a mean of 2,000 are 0.041


def test_the_careless_reader_keeps_the_evidence_where_it_sees_nothing_else():
    reader = CarelessReader(np.random.default_rng(0))
    prompt = TEMPLATE["read"].format(chunk=GOLD, memory="", question=ASKED)
    assert {reader(prompt) for _ in range(50)} == {GOLD}


def test_the_careless_reader_answers_by_the_sentence_asked_for():
    prompt = TEMPLATE["answer"].format(memory=LINE.join([OTHER, GOLD]), question=ASKED)
    assert CarelessReader(np.random.default_rng(0))(prompt) == r"\boxed{Tarsk}"


def test_the_careless_reader_refuses_a_foreign_prompt():
    with pytest.raises(ValueError, match="reads only its own template's prompts"):
        CarelessReader(np.random.default_rng(0))("What now?")


def test_a_sentence_begins_as_the_sum_of_its_names(setting):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from research.reproduce.reading_tasks import names

    people, towns = names()
    ids = AutoTokenizer.from_pretrained(setting.model).get_vocab()
    weights = AutoModelForCausalLM.from_pretrained(setting.model).get_input_embeddings().weight
    whole, *parts = (weights[ids[text]] for text in (sentence(people[0], towns[1]), people[0], towns[1]))
    torch.testing.assert_close(whole, parts[0] + parts[1])


def played(holds, shown, em, signals=None, query=False):
    turns = (
        [
            Turn("", {}, Reply(""), {}, signals=dict(zip(signals, values, strict=True)))
            for values in zip(*signals.values(), strict=True)
        ]
        if signals
        else []
    )
    episode = Episode(metrics={"em": em}, turns=turns)
    return Read(episode, shown, holds, answer=holds[-1], query=query)


def test_evidence_is_taken_where_it_is_shown_and_kept_where_it_is_in_memory():
    took = played([False, True, True, False], shown=1, em=0.0)  # kept once, then dropped
    missed = played([False, False, False, False], shown=0, em=1.0, query=True)
    held = played([False, False, False, True], shown=3, em=1.0, query=True)
    assert shares([took, missed, held])["query alone"] == pytest.approx(1 / 3)
    found = shares([took, missed])
    assert (found["taken"], found["kept"]) == (0.5, 0.5)
    assert (found["em"], found["evidence in memory"]) == (0.5, 0.0)


def test_signals_are_told_by_what_became_of_the_evidence():
    tamtrl = [0.1, 0.9, 0.8, 0.2, 0.0]  # before it was shown, taken, kept, dropped; the answer turn has none
    one = played([False, True, True, False], 1, 1.0, {"tamtrl": tamtrl, "infomem": [0.0] * 4 + [1.5]})
    assert signals([one]) == {
        "infomem, success, not held, guessed": 1.5,
        "tamtrl, dropped": 0.2,
        "tamtrl, kept": 0.8,
        "tamtrl, out of sight": 0.1,
        "tamtrl, taken": 0.9,
    }


def test_a_model_reads_and_is_measured_at_every_turn(setting):
    found = read(setting.model, setting.env_args("test"), 4, measured=True)
    assert [len(one.holds) for one in found] == [CHUNKS] * 4
    for one in found:
        person = one.episode.turns[0].info["privileged"]["question"].removeprefix("the birthplace of ")
        assert one.query == (person in one.episode.replies[CHUNKS - 1].text)
    assert all(len(one.episode.signals["tamtrl"]) == CHUNKS + 1 for one in found)
