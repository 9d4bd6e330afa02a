"""Lessons of `research.agent`: the teacher's notes are in the text, and its answers in the notes."""

import itertools

import gymnasium as gym
import pytest

from memenvs import collect
from memenvs.commands.build import main as build
from memenvs.rollout.policy import made_policy
from memenvs.tasks.taskset import open_tasks
from memenvs.wrappers import RewardWrapper
from research.demonstrations import pairs_of
from research.lessons import FactNotes, Lessons, fact_caller, facts_of, write_notes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lessons") / "world"
    flags = "--split train --seed 3 --num-tasks 300 --entities 80 --documents 8"
    assert build(["world", *flags.split(), "--out", str(folder)]) == 0
    return str(folder)


@pytest.fixture(scope="module")
def world(folder):
    return open_tasks(folder)


def turns(world, texts=20, **options):
    """(text, notes, question, notes after) of reading lessons; (notes, question, reply) of others."""
    read, answered = [], []
    for lesson in Lessons(world, **options).draw(texts):
        ((prompt, reply),) = pairs_of(lesson)
        text, _, rest = prompt.rpartition("Notes:\n")
        notes, _, rest = rest.partition("\n\nQuestion: ")
        question = rest.partition("\n")[0]
        if text:
            read.append((text, notes.splitlines(), question, reply.splitlines()))
        else:
            answered.append((notes.splitlines(), question, reply))
    return read, answered


def test_a_careful_teacher_notes_what_is_needed_and_what_the_text_states(world):
    facts, needed = facts_of(world)
    by_question = {task.question: some for task, some in zip(world, needed, strict=True)}
    read, _ = turns(world, slip=0.0, distractor=0.0)
    assert len(read) > 100
    added = 0
    for text, before, question, after in read:
        assert after[: len(before)] == before
        wanted = {
            f"{facts.entities[one].name}, {name}: {facts.answer(name, facts.entities[one].values[name])}"
            for one, name in by_question[question]
        }
        shown = {note for note in wanted if f"\n{note.partition(',')[0]}\n" in text}
        assert set(after) == set(before) | shown
        for note in after[len(before) :]:
            added += 1
            assert note.partition(": ")[2] in text.replace("the River", "River")
    assert added > 50


def test_answers_stand_in_whole_notes_or_follow_from_two(world):
    _, answered = turns(world)
    assert len(answered) > 20
    held = [reply.removeprefix("\\boxed{")[:-1] in "\n".join(notes) for notes, _, reply in answered]
    assert sum(held) > 0.9 * len(held)  # "yes" and "no" are not


def test_a_teacher_may_slip_and_note_what_nobody_asked_for(world):
    careful, _ = turns(world, slip=0.0, distractor=0.0)
    slipping, _ = turns(world, slip=1.0, distractor=0.0)
    distracted, _ = turns(world, slip=0.0, distractor=1.0)
    assert all(before == after for _, before, _, after in slipping)
    assert any(before != after for _, before, _, after in careful)
    lines = [sum(len(after) - len(before) for _, before, _, after in one) for one in (careful, distracted)]
    assert lines[1] > lines[0]


def test_lessons_of_a_text_stand_side_by_side(world):
    read, _ = turns(world, texts=6)
    texts = [text for text, *_ in read]
    changes = sum(a != b for a, b in itertools.pairwise(texts))
    assert changes == len(set(texts)) - 1


def test_the_same_seed_gives_the_same_lessons(world):
    first, again, other = (list(map(pairs_of, Lessons(world, seed=seed).draw(3))) for seed in (1, 1, 2))
    assert first == again != other


def test_a_world_that_is_not_its_cards_is_refused(world, monkeypatch):
    monkeypatch.setitem(world.card.arguments, "seed", 4)
    with pytest.raises(ValueError, match="does not match its card; build it again"):
        Lessons(world)


def test_the_fact_caller_reasons_in_facts_that_the_result_states_and_answers_by_them(tmp_path):
    flags = "--split train --seed 3 --num-tasks 60 --entities 80 --documents 8 --hops 1"
    assert build(["world", *flags.split(), "--out", str(tmp_path / "world")]) == 0
    policy = made_policy(lambda env, seed: fact_caller(env), teacher=True)
    played = collect("MemToolQA-v0", policy, range(60), env_args={"tasks": str(tmp_path / "world")})
    known = 0
    for (_, call), (result, reply) in (pairs_of(one) for one in played if len(one.turns) == 2):
        assert '"query": ' in call
        notes, _, answer = reply.removeprefix("<reasoning>").partition("</reasoning>\n")
        if answer == "<answer>unknown</answer>":
            assert not notes
            continue
        known += 1
        *_, last = notes.splitlines()
        name, _, value = last.partition(", ")
        assert f'(Title: "{name}")' in result
        assert f"<answer>{value.partition(': ')[2]}</answer>" == answer
    assert known > 30


def test_a_memory_is_paid_for_needed_facts_and_charged_for_other_lines(world, folder):
    env = gym.make("memenvs:MemChunkQA-v0", tasks=folder, n_documents=4, chunk_size=100)
    paid = RewardWrapper(env, [FactNotes(folder, cost=0.25)])
    facts, needed = facts_of(world)
    by_question = dict(zip((task.question for task in world), needed, strict=True))
    _, info = paid.reset(seed=8)
    notes = write_notes(facts, by_question[info["privileged"]["question"]])
    assert len(notes) > 1
    memories = [notes[0], "\n".join([*notes, "Nobody, born: 1800"]), "Nobody, born: 1800", notes[0]]
    earned = [paid.step(memory)[1] for memory in memories]
    assert earned == pytest.approx([1, len(notes) - 1 - 0.25, -len(notes), 1.25])


def test_a_world_that_does_not_say_how_it_was_built_is_refused():
    with pytest.raises(ValueError, match="world-train was not built by"):
        FactNotes("world-train")
