"""The tool-use and MemPO reproductions: their questions can be answered, their models write the replies."""

from __future__ import annotations

import re

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch", reason="the small model needs torch")
pytest.importorskip("transformers", reason="the small model needs transformers")

from benchmarks.reproduce import mempo, search_teacher, tool_teacher, tool_use
from benchmarks.reproduce.search_teacher import BETWEEN, THEN_ANSWER, THEN_SEARCH, TITLE, UNKNOWN, Searcher
from benchmarks.reproduce.tool_teacher import ANSWER, CALL, CALLED, Caller
from memenvs.baselines.demonstrations import read_demonstrations
from memenvs.baselines.hf_policy import HFPolicy

ENTITIES = 300
SHOWN = f'\n\n<information>{TITLE}Ada Orrel") Ada Orrel was born in Tarsk.</information>\n\n'


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return mempo.Setting(tmp_path_factory.mktemp("mempo"), ENTITIES)


@pytest.fixture(scope="module")
def calls(setting):
    return read_demonstrations(setting.singles.careful)


@pytest.fixture(scope="module")
def searches(setting):
    return read_demonstrations(setting.careful)


@pytest.fixture(scope="module")
def policy(setting):
    return HFPolicy(setting.model)


class TestWorld:
    def test_parts_share_no_question(self, setting):
        parts = [
            {
                task.question
                for task in gym.make(
                    f"memenvs:{tool_use.ENV}", **setting.singles.env_args(part)
                ).unwrapped.questions
            }
            for part in ("warm", "train", "test")
        ]
        assert sum(map(len, parts)) == len(set.union(*parts))

    def test_names_are_found_whole(self, setting):
        world = setting.singles.world
        person = world.of_kind["person"][0]
        assert world.names_in(f"{person} was born in 1801; {person} died.") == [person, "1801"]

    def test_a_name_and_a_fixed_text_are_one_token(self, setting, policy):
        names = [names[0] for names in setting.singles.world.of_kind.values()]
        for text in [*tool_teacher.FIXED, *search_teacher.FIXED, *names]:
            if text:
                assert len(policy.tokenizer(text)["input_ids"]) == 1, text

    def test_names_of_a_kind_begin_with_something_in_common(self, setting, policy):
        number, weights = policy.tokenizer.get_vocab(), policy.model.get_input_embeddings().weight
        towns, people = (
            weights[[number[name] for name in setting.singles.world.of_kind[kind]]].mean(0)
            for kind in ("town", "person")
        )
        assert towns.norm() > 1.0  # 45 tokens with nothing in common have a mean of about 0.3
        assert abs(towns @ people) < 0.5 * towns.norm() * people.norm()


class TestToolUse:
    def test_a_careful_caller_answers_nearly_every_question(self, calls):
        assert np.mean([one.success for one in calls]) > 0.97  # else the name is of two documents

    def test_a_reply_fits(self, calls, policy):
        longest = max(len(policy.encode_reply(reply)) for one in calls for _, reply in one.turns)
        assert longest <= tool_teacher.REPLY

    def test_a_careless_caller_calls_well_with_the_chance_it_says(self, setting):
        world = setting.singles.world
        caller = Caller(world, np.random.default_rng(0), 0.5)
        town = world.of_kind["town"][0]
        replies = [caller.call("Where was Ada Orrel born?", "Ada Orrel", town) for _ in range(2000)]
        good = np.mean([reply == CALL + "Ada Orrel" + CALLED for reply in replies])
        assert abs(good - 0.5) < 0.05  # four standard deviations of a mean of 2,000 are 0.045
        guesses = [reply for reply in replies if reply.startswith(ANSWER)]
        assert all(any(town in reply for town in world.of_kind["town"]) for reply in guesses)

    def test_its_mistakes_are_mistakes(self, setting):
        env = gym.make(f"memenvs:{tool_use.ENV}", **setting.singles.env_args("test"))
        caller = Caller(setting.singles.world, np.random.default_rng(0), 0.0)
        played = list(tool_teacher.play(env, caller, range(len(env.unwrapped.questions))))
        assert not any(one.success for one in played)

    def test_every_method_has_a_run_for_every_seed(self, setting):
        made = tool_use.jobs(setting.singles, setting.model, seeds=2, steps=1)
        assert len({job.out for job in made}) == len(made) == 2 * len(tool_use.METHODS)


class TestMemPO:
    def test_a_careful_searcher_answers_nearly_every_pair(self, searches):
        assert np.mean([one.success for one in searches]) > 0.95

    def test_a_reply_fits(self, searches, policy):
        longest = max(len(policy.encode_reply(reply)) for one in searches for _, reply in one.turns)
        assert longest <= search_teacher.REPLY

    def test_what_a_scorer_is_asked_is_shown_too(self, searches):
        asked = [
            reply
            for one in searches
            for _, reply in one.turns
            if re.fullmatch(r"<answer>.*; .*</answer>", reply)
        ]
        assert 0.5 < len(asked) / len(searches) < 1.5  # half of the memories, half of the histories

    def test_a_searcher_notes_what_was_found_and_searches_for_the_other(self, setting):
        searcher = Searcher(setting.singles.world, np.random.default_rng(0), 1.0)
        subjects, answers = ["Ada Orrel", "Bo Venn"], ["Tarsk", "Munness"]
        reply = searcher.reply(BETWEEN.join([UNKNOWN] * 2), SHOWN, subjects, answers, last=False)
        assert reply == f"<mem>Tarsk; ?{THEN_SEARCH}Bo Venn</search>"
        reply = searcher.reply("?; Munness", SHOWN, subjects, answers, last=False)
        assert reply == f"<mem>Tarsk; Munness{THEN_ANSWER}Tarsk; Munness</answer>"

    def test_a_forgetful_searcher_takes_longer_and_ends(self, setting, searches):
        forgetful = read_demonstrations(setting.forgetful)
        played = [sum(reply.startswith("<mem>") for _, reply in one.turns) for one in forgetful]
        careful = [sum(reply.startswith("<mem>") for _, reply in one.turns) for one in searches]
        assert max(careful) == 3
        assert np.mean(played) > np.mean(careful)
        assert max(played) <= search_teacher.TURNS + 1

    def test_every_method_has_a_run_for_every_seed(self, setting):
        made = mempo.jobs(setting, setting.model, seeds=2, steps=1)
        assert len({job.out for job in made}) == len(made) == 2 * len(mempo.METHODS)
