"""The tool-use and MemPO reproductions: their questions have answers, and their models' tokens suffice."""

from __future__ import annotations

import hashlib
import json
import shutil

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch", reason="the small model needs torch")
pytest.importorskip("transformers", reason="the small model needs transformers")


from memenvs.baselines import grpo
from memenvs.baselines.flags import read_args
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.episode_file import read_episodes
from memenvs.models import HFPolicy
from memenvs.tasks.taskset import open_tasks
from research import harness
from research.demonstrations import pairs_of
from research.reproduce import mempo, search_teacher, tool_teacher, tool_use
from research.reproduce.search_memory import likely, shares
from research.reproduce.search_teacher import THEN_ANSWER, THEN_SEARCH, TITLE, Searcher, reply_tokens
from research.reproduce.tool_teacher import ANSWER, CALL, CALLED, Caller

ENTITIES = 300
SHOWN = f'{TITLE}Ada Orrel") Ada Orrel was born in Tarsk.</information>\n\n'


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return mempo.MemorySetting(tmp_path_factory.mktemp("mempo"), ENTITIES)


@pytest.fixture(scope="module")
def bare(setting):
    return mempo.Bare(setting.folder, ENTITIES)


@pytest.fixture(scope="module")
def calls(setting):
    return read_episodes(setting.singles.careful)


@pytest.fixture(scope="module")
def searches(setting):
    return read_episodes(setting.careful)


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
        names = setting.singles.names
        person = names.of_kind["person"][0]
        assert names.found_in(f"{person} was born in 1801; {person} died.") == [person, "1801"]

    def test_texts_are_renamed_alike_and_by_kind(self, setting):
        names, rng = setting.singles.names, np.random.default_rng(0)
        person = next(one for one in names._named if one.kind == "person" and one.short != one.name)
        town = names.of_kind["town"][0]
        texts = [f"{person.name} was born in {town} in 1820.", f"{person.short}: {town}; {person.short}"]
        made = list(names.renamed(texts, rng, 3))
        assert len({one for one, _ in made}) == 3
        for first, second in made:
            who, where, when = names.found_in(first)
            assert [names.kinds[one] for one in (who, where, when)] == ["person", "town", "year"]
            assert first == f"{who} was born in {where} in {when}."
            short = next(one.short for one in names._named if one.name == who)
            assert second == f"{short}: {where}; {short}"

    def test_a_name_and_a_fixed_text_are_one_token(self, setting, policy):
        names = [names[0] for names in setting.singles.names.of_kind.values()]
        for text in [*tool_teacher.FIXED, *search_teacher.FIXED, *names]:
            if text:
                assert len(policy.tokenizer(text)["input_ids"]) == 1, text

    def test_names_of_a_kind_begin_with_something_in_common(self, setting, policy):
        number, weights = policy.tokenizer.get_vocab(), policy.model.get_input_embeddings().weight
        towns, people = (
            weights[[number[name] for name in setting.singles.names.of_kind[kind]]].mean(0)
            for kind in ("town", "person")
        )
        assert towns.norm() > 1.0  # 45 tokens with nothing in common have a mean of about 0.3
        assert abs(towns @ people) < 0.5 * towns.norm() * people.norm()


class TestToolUse:
    def test_a_careful_caller_answers_nearly_every_question(self, calls):
        assert np.mean([one.success for one in calls]) > 0.97  # otherwise two documents have the name

    @pytest.mark.parametrize("teacher", ["careful", "careless"])
    def test_nearly_every_reply_fits(self, setting, policy, teacher):
        shown = read_episodes(getattr(setting.singles, teacher))
        fits = [
            len(policy.encode_reply(reply)) <= tool_teacher.REPLY
            for one in shown
            for _, reply in pairs_of(one)
        ]
        assert np.mean(fits) > 0.95

    def test_a_careless_caller_calls_well_with_the_chance_it_says(self, setting):
        names = setting.singles.names
        caller = Caller(names, np.random.default_rng(0), 0.5)
        town = names.of_kind["town"][0]
        replies = [caller.call("Where was Ada Orrel born?", "Ada Orrel", town) for _ in range(2000)]
        good = np.mean([reply == CALL + "Ada Orrel" + CALLED for reply in replies])
        assert abs(good - 0.5) < 0.05  # four standard deviations of a mean of 2,000 are 0.045
        guesses = [reply for reply in replies if reply.startswith(ANSWER)]
        assert len(guesses) > 100
        assert all(any(town in reply for town in names.of_kind["town"]) for reply in guesses)

    def test_its_mistakes_are_mistakes(self, setting):
        env = gym.make(f"memenvs:{tool_use.ENV}", **setting.singles.env_args("test"))
        caller = Caller(setting.singles.names, np.random.default_rng(0), 0.0)
        played = list(tool_teacher.play(env, caller, range(len(env.unwrapped.questions))))
        assert np.mean([one.success for one in played]) < 0.1  # a guess may be right

    def test_the_learner_takes_the_flags_of_every_run(self, setting):
        made = tool_use.jobs(setting.singles, setting.model, seeds=2, steps=7)
        for job in made:
            args = read_args(grpo.GRPOArgs, job.command[4:], "grpo")
            assert (args.steps, args.lr) == ((1, 0.0) if job.method == "warmed up" else (7, 2e-4))
        assert len({job.out for job in made}) == 2 * (1 + len(tool_use.METHODS))

    def test_curves_are_compared_by_their_area_and_where_they_reach_95_percent(self):
        steps = list(range(1, 101))
        slow = [0.5] * 10 + [1.0] * 90
        evaluated = [
            [step for step in steps if step % 5 == 0],
            [step / 100 for step in steps if step % 5 == 0],
        ]
        record = {
            "training": {
                "warmed up": {"called": [[[1], [0.5]]]},
                "GRPO-OR": {"called": [[steps, slow], [steps, [0.0] * 100]]},
            },
            "curves": {"GRPO-OR": {"eval_em": [evaluated, evaluated]}},
        }
        _, _, row = tool_use.by_curve(record).splitlines()
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[:4] == ["GRPO-OR", "0.375 (0.000 to 0.750)", "56 (11 to 100)", "0.050 (0.050 to 0.050)"]
        assert cells[-1] == "1.000 (1.000 to 1.000)"


class TestMemPO:
    def test_a_careful_searcher_answers_nearly_every_task(self, searches):
        assert np.mean([one.success for one in searches]) > 0.95

    @pytest.mark.parametrize("teacher", ["careful", "forgetful"])
    def test_nearly_every_reply_fits(self, setting, policy, teacher):
        fits = []
        for one in read_episodes(getattr(setting, teacher)):
            asked = one.turns[0].observation.count("; ") + 1
            fits += [len(policy.encode_reply(reply)) <= reply_tokens(asked) for _, reply in pairs_of(one)]
        assert np.mean(fits) > 0.95

    def test_prompts_of_all_lengths_fit_the_window(self, policy, searches):
        sizes = [len(policy.encode(prompt)) for one in searches for prompt, _ in pairs_of(one)]
        assert max(sizes) + reply_tokens(max(mempo.OBJECTIVES)) <= policy.model.config.n_positions

    def test_half_of_what_a_scorer_is_asked_is_shown_too(self, searches):
        pairs = [one for one in searches if one.turns[0].observation.count("; ") == 1]
        asked = [prompt for one in pairs for prompt, reply in pairs_of(one) if reply.startswith("<answer>")]
        notes = [prompt.partition("<mem>")[2].partition("</mem>")[0].count(": ") for prompt in asked]
        shares = [notes.count(count) / len(pairs) for count in range(3)]
        assert 0.35 < shares[0] < 0.65  # histories
        assert 0.15 < shares[1] < 0.35  # mostly of one turn, with one note
        assert 0.35 < shares[2] < 0.65

    def test_every_number_of_questions_is_shown_and_tested_but_two_are_learned(self, setting, searches):
        assert {one.turns[0].observation.count("; ") + 1 for one in searches} == set(mempo.OBJECTIVES)
        for objectives in mempo.OBJECTIVES:
            tasks = open_tasks(setting.folder / f"test-{objectives}")
            assert {len(task.evidence) for task in tasks} == {objectives}
        assert {len(task.answers) for task in open_tasks(setting.folder / "train-2")} == {2}

    def test_without_a_memory_the_same_is_done_and_all_turns_stand_in_the_prompt(self, bare, searches):
        played = read_episodes(bare.careful)
        assert {turn.before["context"] for one in played for turn in one.turns} == {"append"}
        assert not any("<mem>" in text for one in played for pair in pairs_of(one) for text in pair)
        assert {one.turns[0].observation.count("; ") + 1 for one in played} == set(mempo.OBJECTIVES)
        whole = [
            one for one in searches if "<mem></mem>" in one.turns[0].observation
        ]  # shown with one turn each
        shares = [np.mean([one.success for one in found]) for found in (played, whole)]
        assert shares[0] == pytest.approx(shares[1], abs=0.1)
        ended = next(one for one in played if one.success).turns[-1].action
        assert ended.startswith("<think></think><answer>")

    def test_without_a_memory_nothing_is_measured_of_one(self, bare, tmp_path, monkeypatch):
        for name, count in {"MEASURED": 2, "ALL": 3}.items():
            monkeypatch.setattr(mempo, name, count)
        (job, *_) = mempo.jobs(bare, bare.model, seeds=1, steps=7)
        assert job.method == "warmed up, no memory"
        shutil.copytree(bare.model, harness.last_policy(tmp_path))
        found = mempo.measure(bare, bare.model, job._replace(out=tmp_path))
        assert set(found) == {str(n) for n in mempo.OBJECTIVES}
        assert found["2"]["prompt_tokens"] >= found["2"]["prompt_tokens_peak"] > 0

    def test_a_searcher_notes_what_was_found_and_searches_for_the_next(self, setting):
        searcher = Searcher(setting.singles.names, np.random.default_rng(0), 1.0)
        subjects, answers = ["Ada Orrel", "Bo Venn"], ["Tarsk", "Munness"]
        reply = searcher.reply("", SHOWN, subjects, answers, last=False)
        assert reply == f"<mem>Ada Orrel: Tarsk{THEN_SEARCH}Bo Venn</search>"
        reply = searcher.reply("Bo Venn: Munness", SHOWN, subjects, answers, last=False)
        assert reply == f"<mem>Bo Venn: Munness; Ada Orrel: Tarsk{THEN_ANSWER}Tarsk; Munness</answer>"
        reply = searcher.reply("Bo Venn: Munness", "", subjects, answers, last=True)
        assert reply == f"<mem>Bo Venn: Munness{THEN_ANSWER}?; Munness</answer>"

    def test_a_forgetful_searcher_takes_longer_and_ends(self, setting, searches):
        def played(found):
            pairs = [one for one in found if one.turns[0].observation.count("; ") == 1]
            return [sum(reply.startswith("<mem>") for _, reply in pairs_of(one)) for one in pairs]

        assert max(played(searches)) == 3
        assert np.mean(played(read_episodes(setting.forgetful))) > np.mean(played(searches))

    def test_shares_say_what_became_of_each_answer(self, setting):
        tasks = open_tasks(setting.folder / "test-2")
        task = tasks[0]
        (one, two), (first, second) = tasks.titles(task.evidence), (accepted[0] for accepted in task.answers)
        replies = [
            f"<mem>{THEN_SEARCH}{one}</search>",
            f"<mem>{one}: {first}{THEN_SEARCH}{one}</search>",  # taken; searched again
            f"<mem>{THEN_SEARCH}Which</search>",  # not taken
            f"<mem>{two}: {second}{THEN_SEARCH}Which</search>",  # of the second nothing was searched
            f"<mem>{two}: {second}{THEN_ANSWER}?; {second}</answer>",  # kept
        ]
        played = [Turn("", {}, Reply(text), {}) for text in replies]
        episode = Episode(task=task.id, turns=played, metrics={"em": 0.5})
        assert shares([episode], tasks) == {"em": 0.5, "searched": 0.5, "taken": 0.5, "kept": 1.0}

    def test_likelihoods_are_means_by_turn_and_by_their_size(self):
        def episode(em, *turns):
            texts = [f"<mem>a{THEN_SEARCH}b</search>" if value is not None else "b" for value in turns]
            played = [
                Turn("", {}, Reply(text), {}, signals={"mempo": value or 0.0})
                for text, value in zip(texts, turns, strict=True)
            ]
            return Episode(task="a", turns=played, metrics={"em": em})

        found = likely([episode(1.0, 0.2, 1.0), episode(0.5, 0.6), episode(0.0, None, 0.3)])
        assert found["turns"] == [[pytest.approx(0.4), 2 / 3], [pytest.approx(0.65), 2 / 3]]
        assert found["bins"] == [[0.0, 0.0], [0.5, 0.5], [0.0, 0.0], [0.25, 0.5], [0.25, 1.0]]
        nothing = likely([episode(0.0, None)])
        assert nothing == {"turns": [], "bins": [[0.0, 0.0]] * 5}

    @pytest.mark.slow
    def test_a_model_is_measured(self, setting, tmp_path, monkeypatch):
        for name, count in {"MEASURED": 2, "ALL": 3}.items():
            monkeypatch.setattr(mempo, name, count)
        job = harness.LearnerJob("GRPO", 0, tmp_path, [])
        shutil.copytree(setting.model, harness.last_policy(tmp_path))
        found = mempo.measure(setting, setting.model, job)
        assert set(found["memories"]) == {"em", "searched", "taken", "kept"}
        assert found["likely"] == found["likely to all"]  # by the same policy
        assert min(found[f"{n}"]["prompt_tokens"] for n in mempo.OBJECTIVES) > 0
        assert all(found[f"{n}"]["strict"] <= found[f"{n}"]["success"] for n in mempo.OBJECTIVES)
        monkeypatch.delattr(mempo, "search")  # it must not run again
        assert mempo.measure(setting, setting.model, job) == found
        mempo.tables({"GRPO": [found]})

    def test_policies_are_measured_side_by_side_and_that_of_no_learning_once(self, setting, tmp_path):
        made = [
            harness.LearnerJob(method, seed, tmp_path / f"{method}{seed}", [])
            for seed in range(2)
            for method in ("warmed up", "GRPO")
        ]
        weights = hashlib.sha256(b"some").hexdigest()
        for job in made:  # measured before
            harness.last_policy(job.out).mkdir(parents=True)
            (harness.last_policy(job.out) / "model.safetensors").write_bytes(b"some")
            known = {"weights": weights, "found": {"said": job.out.name}}
            (job.out / "objectives.json").write_text(json.dumps(known))
        found = mempo.measure_all(setting, setting.model, made, parallel=2)
        assert found == {
            "warmed up": [{"said": "warmed up0"}],
            "GRPO": [{"said": "GRPO0"}, {"said": "GRPO1"}],
        }

    def test_tables_have_a_row_for_each_method(self):
        keys = [*map(str, mempo.OBJECTIVES)]
        keys += [f"{n}, {keep} turns" for n in mempo.IN_CONTEXT for keep in mempo.CONTEXTS]
        tokens = dict.fromkeys(("prompt_tokens", "prompt_tokens_peak", "reply_tokens"), 90.0)

        def run(em):
            likely = {"turns": [[em, 1.0], [0.3, 0.9]], "bins": [[1.0, 0.6], *[[0.0, 0.0]] * 4]}
            measured = {key: {"em": em, "f1": 0.6, "strict": 0.25, **tokens} for key in keys}
            return {**measured, "memories": {"em": em}, "likely": likely, "likely to all": likely}

        bare = [{key: run(0.1)[key] for key in map(str, mempo.OBJECTIVES)}] * 2
        found = {"GRPO": [run(0.5), run(0.4)], "MemPO": [run(0.6), run(0.7)], "GRPO, no memory": bare}
        made = mempo.tables(found).split("\n\n")
        assert made[1].splitlines()[2].startswith("| GRPO | 0.450 (0.400 to 0.500) |")
        assert made[3].splitlines()[2].startswith("| GRPO | 0.250 (0.250 to 0.250) |")
        assert made[8].splitlines()[-1] == "| MemPO | 0.65 (1.00) | 0.30 (0.90) |"
        assert made[9].splitlines()[2].startswith("| GRPO | 1.00 (0.60) | 0.00 (0.00) |")

    @pytest.mark.parametrize("kind", ["setting", "bare"])
    def test_the_learner_takes_the_flags_of_every_run(self, kind, request):
        setting = request.getfixturevalue(kind)
        made = mempo.jobs(setting, setting.model, seeds=2, steps=7)
        for job in made:
            args = read_args(grpo.GRPOArgs, job.command[4:], "grpo")
            assert (args.steps, args.lr) == ((1, 0.0) if job.method == setting.start else (7, 2e-4))
        assert len({job.out for job in made}) == 2 * (1 + len(setting.methods))
