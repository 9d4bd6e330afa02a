"""Ranking a true context against corrupted ones: the corruption, the numbers by hand, the command."""

import json
import math
import re

import numpy as np
import pytest

from memenvs import models, open_tasks
from memenvs.commands.build import main as build
from memenvs.wrappers.scorers import LexicalScorer
from research.discriminate import (
    Contexts,
    answer_prompt,
    answered,
    corrupt,
    discrimination,
    distract,
    information_gain,
    intervals,
    kind,
    main,
    similarity,
)


@pytest.fixture(scope="module")
def questions():
    return corrupt(open_tasks("world-test"))


def test_bridge_questions_are_corrupted_by_another_answer_and_by_words_in_other_places(questions):
    def words(text):
        return sorted(re.findall(r"\w+", text))

    assert len(questions) > 100
    for one in questions:
        foreign, swapped = one.corrupted
        assert one.answer in one.true
        assert one.answer not in foreign
        assert one.answer in swapped != one.true
    kept = [one for one in questions if words(one.true) == words(one.corrupted[1])]
    assert len(kept) > 0.8 * len(questions)  # an answer with an alias may change its form


def test_corruption_follows_its_seed(questions):
    tasks = open_tasks("world-test")
    assert corrupt(tasks) == questions != corrupt(tasks, seed=1)


def test_answers_are_swapped_for_answers_of_their_kind():
    assert [kind(answer) for answer in ("1623", "42,050", "River Yulloa", "sheaf")] == ["9", "9", "AA", "a"]


def test_a_set_without_spans_is_refused():
    with pytest.raises(ValueError, match="spans"):
        corrupt(open_tasks("niah"))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        # ranks 1, 2, 3: (1 + 1/2 + 1/3) / 3
        ([[3, 2, 1], [2, 3, 1], [1, 3, 2]], {"mrr": 11 / 18}),
        # a tie is broken in every way, with one other: (1 + 1/2) / 2; with both: (1 + 1/2 + 1/3) / 3
        ([[2, 2, 1]], {"mrr": 0.75}),
        ([[2, 2, 2]], {"mrr": 11 / 18, "snr": 0.0}),
        # std of (2, 0, 1) and (1, 0, 2) is sqrt(2/3); in units of 1 / sqrt(2/3) the margins are 2, 1 and
        # 1, -1: mean 3/4, std sqrt((4 + 1 + 1 + 1) / 4 - 9/16) = sqrt(19) / 4
        ([[2, 0, 1], [1, 0, 2]], {"snr": 3 / 19**0.5}),
        # a question's scores are standardised by themselves: its scale and shift do not matter
        ([[2, 0, 1], [700, 600, 800]], {"snr": 3 / 19**0.5}),
        # a measure that always tells alike has no noise
        ([[1, 0, 0], [5, 4, 4]], {"mrr": 1.0, "snr": math.inf, "ahead": 1.0}),
        # question 1 is ahead of both, question 2 of one and level with the other: (2 + 1.5) / 4
        ([[3, 2, 1], [2, 2, 1]], {"ahead": 3.5 / 4}),
    ],
)
def test_the_numbers_of_a_measure_by_hand(scores, expected):
    found = discrimination(np.array(scores, float))._asdict()
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_overlap_of_words_has_the_papers_ratio_of_a_measure_that_one_corruption_fools(questions):
    # a question's scores are a, b, a: margins 3 / sqrt(2) and 0, mean and std both half of that
    found = discrimination(information_gain(LexicalScorer(), questions))
    assert found.snr == pytest.approx(1.0, abs=5e-4)


def test_overlap_of_words_sees_what_is_missing_and_not_what_is_swapped(questions):
    scores = information_gain(LexicalScorer(), questions)
    assert (scores[:, 0] > scores[:, 1]).mean() > 0.95
    assert np.median(scores[:, 0] - scores[:, 2]) == 0.0


def test_intervals_hold_the_values_and_shrink_with_more_questions():
    scores = np.random.default_rng(0).normal([0.5, 0, 0], size=(30, 3))
    for few, many, value in zip(
        intervals(scores), intervals(np.tile(scores, (8, 1))), discrimination(scores), strict=True
    ):
        assert few.mean == pytest.approx(many.mean) == pytest.approx(value)
        assert few.low < many.low < value < many.high < few.high


def test_distractors_are_as_long_as_the_evidence_and_hold_no_answer():
    found = distract(open_tasks("world-test"))
    assert len(found) == 128
    for one in found:
        assert one.answer in one.true
        assert [len(text) for text in one.corrupted] == [len(one.true)] * 2
        assert not any(one.answer in text for text in one.corrupted)
    assert all(set(one.corrupted[0].split("\n")).isdisjoint(one.corrupted[1].split("\n")) for one in found)


def test_overlap_of_words_puts_evidence_ahead_of_distractors():
    scores = information_gain(LexicalScorer(), distract(open_tasks("world-test")))
    assert discrimination(scores).ahead > 0.95


class BobReader:
    """A policy that knows Bob by heart, else what the context says; a prompt's ids are its characters."""

    def __init__(self, model, sampling_params, chat):
        assert (model, sampling_params.temperature, chat) == ("model", 0.0, None)

    def encode(self, prompt):
        return np.array([ord(letter) for letter in prompt])

    def sample(self, prompts, rngs, limit):
        texts = ["".join(map(chr, ids)) for ids in prompts]
        said = ["It is the Ada!" if "by Ada" in text else "Bob" for text in texts]
        return [models.Reply(text, np.zeros(0), np.zeros(0), True) for text in said]


def test_questions_that_are_known_by_heart_or_not_answered_are_left_out(monkeypatch):
    monkeypatch.setattr(models, "HFPolicy", BobReader)
    of_context = Contexts("Who?", "Ada", "by Ada", ("x", "y"))
    by_heart = Contexts("Who?", "Bob", "by Bob", ("x", "y"))
    unread = Contexts("Who?", "Cy", "by Cy", ("x", "y"))
    assert answered("model", [of_context, by_heart, unread]) == [of_context]
    with pytest.raises(ValueError, match="model answers none of 2 questions"):
        answered("model", [by_heart, unread])


def test_a_template_stands_around_the_prompt():
    plain = answer_prompt("Who {prompt}?", "It was Ada.")
    assert answer_prompt("Who {prompt}?", "It was Ada.", "<user>{prompt}<reply>") == f"<user>{plain}<reply>"


def test_a_model_is_asked_in_its_chat_template_where_it_has_one(tiny_model, capsys, monkeypatch):
    command = ["--measure", f"hf:{tiny_model}", "--questions", "2"]
    tables = []
    for more in ([], ["--chat"], ["--no-chat"]):
        assert main([*command, *more]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] != tables[2]
    assert "2 questions of world-test" in tables[0]
    assert [line.split(",")[0] for line in tables[0].splitlines()[2:]] == [
        "information gain", "attention mass", "attention top1"
    ]  # fmt: skip


class Told:
    """An encoder that records its inputs."""

    def queries(self, texts):
        self.asked = list(texts)
        return np.ones((len(texts), 1))

    def passages(self, texts):
        return np.ones((len(texts), 1))


def test_an_embedding_is_asked_by_question_and_answer():
    encoder = Told()
    similarity(encoder, [Contexts("Who?", "Ada", "t", ("a", "b"))], with_answer=True)
    assert encoder.asked == ["Question: Who? Answer: Ada"]


def test_the_likelihood_is_that_of_the_bare_answer():
    class Kept(LexicalScorer):
        def logprobs(self, requests):
            self.requests = list(requests)
            return super().logprobs(requests)

    scorer = Kept()
    for target, scored in (("bare", "Ada"), ("wrapped", "\\boxed{Ada}")):
        information_gain(scorer, [Contexts("Who?", "Ada", "t", ("a", "b"))], target)
        assert {request.continuation for request in scorer.requests} == {scored}


def test_contexts_that_were_corrupted_elsewhere_are_read(tmp_path, capsys):
    record = {"question": "Who?", "answer": "Ada", "context": "It was Ada.", "corrupted": ["It was.", "Bob"]}
    (tmp_path / "contexts.jsonl").write_text(json.dumps(record) + "\n")
    assert main(["--contexts", str(tmp_path / "contexts.jsonl")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-6:-3] == ["inf", "[inf,", "inf]"]


@pytest.mark.parametrize(
    "line", ["", "[]", "{", '{"question": "q", "answer": "a", "context": "c", "corrupted": ["x"]}',
             '{"question": "q", "answer": "a", "context": 3, "corrupted": ["x", "y"]}']
)  # fmt: skip
def test_a_file_without_contexts_is_one_line(tmp_path, capsys, line):
    (tmp_path / "contexts.jsonl").write_text(line)
    assert main(["--contexts", str(tmp_path / "contexts.jsonl")]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), "contexts.jsonl" in said) == (1, True)


def test_questions_of_hotpotqa_are_corrupted_by_their_supporting_facts(tmp_path):
    people = ["Ada Byron", "Bo Carter", "Cy Dent"]
    records = [
        {
            "_id": name,
            "question": f"Who built engine {i}?",
            "answer": name,
            "context": [[f"Engine {i}", [f"Engine {i} was built by {name}.", " It is large."]]],
            "supporting_facts": [[f"Engine {i}", 0]],
        }
        for i, name in enumerate(people)
    ]
    (tmp_path / "hotpot.json").write_text(json.dumps(records))
    source, out = (str(tmp_path / name) for name in ("hotpot.json", "set"))
    build(["hotpotqa", "--source", source, "--documents", "1", "--out", out])
    first = corrupt(open_tasks(str(tmp_path / "set")))[0]
    true, (foreign, swapped) = first.true, first.corrupted
    assert true.startswith("Engine 0: Engine 0 was built by Ada Byron.\n")
    assert "Ada Byron" not in foreign
    assert "Ada Byron" in swapped.splitlines()[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--task-set", "niah"],
        ["--task-set", "niah", "--against", "distractors"],
        ["--task-set", "no"],
        ["--contexts", "no.jsonl"],
        ["--questions", "0"],
        ["--chat"],
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
