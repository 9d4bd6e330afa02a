"""The reproduction with the shipped reader: what it measures of memories, and the flags of its runs."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="the learners need torch")
pytest.importorskip("transformers", reason="the learners need transformers")

import numpy as np
from msgspec.structs import replace

from memenvs.baselines import grpo
from memenvs.baselines.flags import read_args
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.episode_file import EPISODES, EpisodeWriter
from research.harness import LearnerJob
from research.reproduce import reader

NEEDED = {"Whose town?": [("Ada Orrel", "Tarsk"), ("Tarsk", "Bo Venn")]}
ADA, TARSK, OTHER = "Ada Orrel, birthplace: Tarsk", "Tarsk, mayor: Bo Venn", "Munness, mayor: Ann Ry"


def episode(chunks, memories, **more):
    """An episode: a turn for each chunk with the memory after it, then the answer; three tokens a turn."""
    turns, info = [], {"context": "rewrite", "feedback": "", "rewards": {}}
    for number, memory in enumerate((*memories, memories[-1])):
        text = f"Documents:\n{chunks[number]}\nNotes:\n(before)" if number < len(chunks) else "Answer."
        before = {**info, "turn": number, "privileged": {} if number else {"question": "Whose town?"}}
        after = {**info, "turn": number + 1, "privileged": {"memory": memory}}
        turns.append(Turn(text, before, Reply("", np.array([1, 2, 3]), np.zeros(3)), after))
    metrics = {"em": 1.0, "f1": 1.0, "prompt_tokens": 90.0}
    return Episode(**{"turns": turns, "end": "terminated", "phase": "eval", "metrics": metrics, **more})


def write(folder, *played):
    with EpisodeWriter(folder / EPISODES) as writer:
        for one in played:
            writer.write(one)


ADA_CHUNK, TARSK_CHUNK, NO_CHUNK = (f"Document 1:\n{name}\nText." for name in ("Ada Orrel", "Tarsk", "Rim"))


def paid_by_turn(played):
    """The episode, with a tenth of each turn's number as its signal and the number as its advantage."""
    for number, turn in enumerate(played.turns):
        turn.signals["tamtrl"] = number / 10
    return replace(played, advantages=np.repeat(np.arange(len(played.turns), dtype=float), 3))


class TestMeasure:
    def test_a_fact_is_taken_where_its_document_is_shown_and_kept_while_it_stays(self):
        played = [
            episode([ADA_CHUNK, NO_CHUNK, TARSK_CHUNK], [ADA, OTHER, TARSK]),  # takes, drops, takes
            episode([ADA_CHUNK, NO_CHUNK, TARSK_CHUNK], [ADA, ADA, ADA]),  # takes, keeps, keeps and misses
        ]
        found = reader.measure(played, NEEDED)
        assert found["taken"] == [1.0, None, 0.5]
        assert found["kept"] == [None, 0.5, 1.0]
        assert found["noted"] == 0.5
        assert (found["em"], found["reply_tokens"]) == (1.0, 12.0)

    def test_a_memory_that_has_most_words_of_the_question_repeats_it(self):
        played = [
            episode([NO_CHUNK], [memory]) for memory in ("Whose town? Unknown.", OTHER, "", "whose TOWN")
        ]
        found = reader.measure(played, NEEDED)
        assert found["repeats"] == 0.5
        assert found["query_words"] > 0.4

    def test_episodes_may_differ_in_length(self):
        played = [episode([ADA_CHUNK], [ADA]), episode([NO_CHUNK, ADA_CHUNK], [OTHER, OTHER])]
        found = reader.measure(played, NEEDED)
        assert found["taken"] == [1.0, 0.0]

    def test_evaluations_are_taken_apart_by_step(self, tmp_path):
        right, missed = [ADA + "\n" + TARSK], [OTHER]
        both = ADA_CHUNK + "\n" + TARSK_CHUNK
        played = [
            episode([both], missed, step=5),
            episode([both], right, step=10),
            episode([both], missed, step=10, phase="train"),
        ]
        write(tmp_path, *played)
        found = reader.evaluations(LearnerJob("TAMTRL", 0, tmp_path, []), NEEDED)
        assert [(one["step"], one["noted"]) for one in found] == [(5, 0.0), (10, 1.0)]


class TestTurns:
    """What a run's turns did with the facts, and what they were paid."""

    MEMORIES = (ADA, ADA, ADA, ADA + "\n" + TARSK, ADA, OTHER)
    CHUNKS = (ADA_CHUNK, NO_CHUNK, TARSK_CHUNK, TARSK_CHUNK, NO_CHUNK, NO_CHUNK)
    KINDS = (
        "all facts shown are taken",
        "no fact shown: unchanged",
        "facts shown, none taken: unchanged",
        "all facts shown are taken",
        "a fact is lost",
        "a fact is lost",
    )

    def played(self, **more):
        return paid_by_turn(episode(self.CHUNKS, self.MEMORIES, **more))

    def test_signals_and_advantages_are_parted_by_what_a_turn_made_of_the_facts(self):
        found = reader.paid([self.played()], NEEDED, "tamtrl")
        assert set(found) == set(self.KINDS)
        assert found["all facts shown are taken"] == {"turns": 2, "signal": 0.15, "advantage": 1.5}
        assert found["a fact is lost"] == {"turns": 2, "signal": 0.45, "advantage": 4.5}

    def test_of_several_facts_some_may_be_taken_and_a_memory_may_change_without_one(self):
        both = ADA_CHUNK + "\n" + TARSK_CHUNK
        for memory, kind in (
            (ADA, "some facts shown are taken"),
            (OTHER, "facts shown, none taken: changed"),
            ("", "facts shown, none taken: unchanged"),
        ):
            played = paid_by_turn(episode([both], [memory]))
            assert list(reader.paid([played], NEEDED, "tamtrl")) == [kind]

    def test_a_memory_that_stays_is_counted_by_turn(self):
        two = [episode([NO_CHUNK] * 3, memories) for memories in ([ADA, ADA, OTHER], [OTHER, ADA, ADA])]
        assert reader.unchanged([*two, episode([NO_CHUNK] * 2, [ADA, ADA])]) == [2 / 3, 0.5]

    def test_a_run_is_read_from_its_folder(self, tmp_path):
        still, changing = (
            episode([NO_CHUNK] * 2, [ADA, ADA], step=2),
            episode([NO_CHUNK] * 2, [ADA, OTHER], step=1),
        )
        write(tmp_path, self.played(step=1, phase="train"), changing, still)
        found = reader.turns_of(LearnerJob("TAMTRL", 0, tmp_path, []), NEEDED)
        assert found == {"unchanged": [1.0], "paid": reader.paid([self.played()], NEEDED, "tamtrl")}
        assert reader.turns_of(LearnerJob("outcome only", 0, tmp_path, []), NEEDED) == {"unchanged": [1.0]}

    def test_a_table_weighs_runs_by_their_turns(self):
        def run(count, signal):
            return {"paid": {self.KINDS[0]: {"turns": count, "signal": signal, "advantage": 0.0}}}

        other = {"paid": {self.KINDS[1]: {"turns": 4, "signal": 0.0, "advantage": -1.0}}}
        found = {"InfoMem": {"0": {}}, "TAMTRL": {"0": run(1, 0.0), "1": run(3, 1.0), "2": other}}
        lines = reader.turns_table(found).splitlines()
        assert lines[0] == "| a reading turn | TAMTRL: turns | TAMTRL: signal | TAMTRL: advantage |"
        assert lines[2] == "| all facts shown are taken | 0.50 | 0.75 | 0.00 |"
        assert "| no fact shown: unchanged | 0.50 | 0.00 | -1.00 |" in lines
        assert "| a fact is lost | 0.00 |  |  |" in lines


class TestAddingRunsToARecord:
    def test_runs_that_it_lacks_are_added(self):
        record = {"steps": 12, "methods": {"warmed up": [{"seed": 0, "found": [{"em": 0.5}]}]}}
        runs = [("warmed up", 0, [{"em": 0.5}]), ("TAMTRL", 3, [{"em": 0.25}]), ("TAMTRL", 2, [{"em": 0.75}])]
        reader.add_runs(record, runs)
        assert reader.seeds_of(record, "warmed up") == [0]
        by_seed = [{"seed": 2, "found": [{"em": 0.75}]}, {"seed": 3, "found": [{"em": 0.25}]}]
        assert record["methods"]["TAMTRL"] == by_seed

    def test_runs_from_another_policy_are_not(self):
        record = {"steps": 12, "methods": {"warmed up": [{"seed": 0, "found": [{"em": 0.5}]}]}}
        with pytest.raises(ValueError, match=r"differs from the record: .*; leave out --add"):
            reader.add_runs(record, [("TAMTRL", 3, [{"em": 0.25}]), ("warmed up", 0, [{"em": 0.75}])])
        assert reader.seeds_of(record, "TAMTRL") == []


def test_a_table_has_means_over_seeds():
    def run(em, taken):
        rest = {"f1": em, "noted": em, "kept": [None, 1.0], "query_words": 0.2, "reply_tokens": 100.0}
        return {"seed": 0, "found": [{"em": 0.0}, {"em": em, "taken": taken, **rest}]}

    lines = reader.table({"TAMTRL": [run(0.25, [0.5, 1.0]), run(0.75, [None, 0.5])]}).splitlines()
    assert lines[2].startswith("| TAMTRL | 0.500 (0.250 to 0.750) |")
    assert "| 0.50, 0.75 | 1.00 | 0.200 (0.200 to 0.200) | 100 (100 to 100) |" in lines[2]


@pytest.mark.parametrize("name", ["short", "long"])
def test_the_learner_takes_the_flags_of_every_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "build", lambda argv: 0)
    plan = reader.PLANS[name]
    planned = reader.jobs(plan, tmp_path, tmp_path / "warm", seeds=3, steps=7)
    for job in planned:
        args = read_args(grpo.GRPOArgs, job.command[4:], "grpo")
        assert (args.steps, args.lr) == ((1, 0.0) if job.method == "warmed up" else (7, 2e-4))
    assert len({job.out for job in planned}) == len(planned) == 1 + 3 * sum(map(len, plan.rounds))


def test_the_methods_of_a_round_share_a_seed_before_the_next_seed_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "build", lambda argv: 0)
    planned = reader.jobs(reader.PLANS["long"], tmp_path, tmp_path / "warm", seeds=2, steps=7)
    assert [(job.method, job.seed) for job in planned[1:6]] == [
        ("outcome only", 0),
        ("TAMTRL", 0),
        ("outcome only", 1),
        ("TAMTRL", 1),
        ("IGPO", 0),
    ]


def test_a_runs_costs_are_means_over_its_steps(tmp_path):
    steps = [
        {"step": 1, "reply_tokens": 40.0, "seconds_sampling": 2.0},
        {"step": 2, "reply_tokens": 60.0, "seconds_sampling": 4.0, "eval_em": 0.5},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    assert reader.costs(LearnerJob("TAMTRL", 0, tmp_path, [])) == {
        "seconds_sampling": 3.0,
        "reply_tokens": 50.0,
    }


def test_a_table_of_seeds_has_each_exact_match_and_the_memories_that_stay_by_turn():
    record = {
        "methods": {"IGPO": [{"found": [{"em": 0.0}, {"em": em}]} for em in (0.25, 0.5)]},
        "turns": {"IGPO": {"0": {"unchanged": [0.5, 1.0]}, "1": {"unchanged": [0.25, 0.5]}}},
    }
    assert reader.seeds_table(record).splitlines()[2] == "| IGPO | 0.250, 0.500 | 0.38, 0.75 |"
