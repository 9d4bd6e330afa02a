"""Credit against the worth of turns: the numbers of the table by hand, and a run of the command's parts."""

from http.server import ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest

from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.episode_file import EpisodeWriter
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.policies import policy_by_name
from memenvs.wrappers import Judge, assign_credit
from research import turn_values
from research.turn_values import HALVES, FirstHalf, JudgeStub, SecondHalf, Setting

SMALL = Setting("reader", {"n_documents": 4})


def episode(number, values, success):
    """An episode whose states have these values, the same in both halves."""
    turns = [Turn("", {}, Reply(""), {}, signals=dict.fromkeys(HALVES, value)) for value in values]
    return Episode(number=number, turns=turns, end="terminated", metrics={"success": float(success)})


@pytest.fixture
def turns():
    """A failure that lost its value at the second turn, and a success that gained it at the first."""
    return turn_values.turns_of(
        [episode(0, [0.5, 0.5, 0.0], False), episode(1, [0.2, 0.9, 1.0], True)], HALVES
    )


def test_a_turn_is_worth_the_change_of_the_value_and_the_answer_is_left_out(turns):
    assert turns.worth == pytest.approx([0.0, -0.5, 0.7, 0.1])
    assert turns.right.tolist() == [False, False, True, True]
    assert turns.task.tolist() == [0, 0, 1, 1]


def test_credit_that_finds_both_turns_has_an_area_of_one(turns):
    assert turn_values.numbers(turns, np.array([0.0, -1.0, 1.0, 0.0]))[:3] == [1.0, 1.0, 1.0]


def test_credit_that_is_the_same_everywhere_is_at_chance(turns):
    lost, gained, worst, rank = turn_values.numbers(turns, np.ones(4))
    assert (lost, gained, worst) == (0.5, 0.5, 0.5)
    assert np.isnan(rank)


def test_the_area_is_the_share_of_pairs_in_order_where_ties_count_half():
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(0, 4, 40).astype(float), rng.random(40) < 0.3
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    assert turn_values.area(scores, positive) == pytest.approx(np.mean(pairs))


def test_episodes_are_scored_by_every_method_that_fits_and_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(turn_values, "scorer_of", lambda name: turn_values.make_scorer("lexical"))
    make_env = maker(SMALL.env, SMALL.arguments)
    loop = Loop(make_env, policy_by_name("careful", make_env), [FirstHalf(2), SecondHalf(2)], errors="raise")
    with EpisodeWriter(tmp_path / "episodes.jsonl") as writer:
        for group in loop.play([turn_values.planned(task) for task in range(3)]):
            for played in group:
                writer.write(played)
        writer.write(turn_values.planned(9)[0])  # of a task that was interrupted
    episodes = turn_values.kept(tmp_path / "episodes.jsonl")
    assert [one.number for one in episodes] == [0] * 4 + [1] * 4 + [2] * 4
    scores = turn_values.score(SMALL, episodes, tmp_path / "scores.jsonl")
    assert {"TAMTRL", "IGPO", "MemPO", "GiGPO", "judge, stub"} <= scores.keys()
    assert "ToolRewards" not in scores
    assert [len(paid) for paid in scores["IGPO"]["turns"]] == [len(one.turns) for one in episodes]
    whole = (tmp_path / "scores.jsonl").read_bytes()
    first, second, third = whole.splitlines(keepends=True)
    (tmp_path / "scores.jsonl").write_bytes(first + second + third[:50])  # as a killed process leaves it
    again = turn_values.score(SMALL, episodes, tmp_path / "scores.jsonl")
    assert {name: paid["turns"] for name, paid in again.items()} == {
        name: paid["turns"] for name, paid in scores.items()
    }
    (tmp_path / "scores.jsonl").write_bytes(whole)
    monkeypatch.setattr(turn_values, "paid_by", None)  # nothing is scored twice
    assert turn_values.score(SMALL, episodes, tmp_path / "scores.jsonl") == scores
    record = turn_values.compared(episodes, scores)
    assert record["tasks"] == 3
    assert sum(record["losses"].values()) == record["lost in failures"]
    assert "Continuations, half by half" in record["methods"]
    both = {
        "settings": {"one": record, "other": {**record, "methods": {"outcome": record["methods"]["outcome"]}}}
    }
    assert turn_values.table(both).count("\n") == len(record["methods"]) + 1
    assert len(turn_values.draw(both).axes) == 4


def test_a_run_is_not_resumed_with_another_number_of_continuations(tmp_path):
    options = {"agents": ["caller"], "minutes": 0.0}
    turn_values.measure(tmp_path, continuations=8, **options)
    turn_values.measure(tmp_path, continuations=8, **options)
    with pytest.raises(ValueError, match="was begun with continuations 8, now 16"):
        turn_values.measure(tmp_path, continuations=16, **options)
    with pytest.raises(ValueError, match=r"must be even, .* got 7"):
        turn_values.measure(tmp_path / "other", continuations=7, **options)


def test_the_judge_without_a_model_scores_replies_that_hold_the_answer():
    server = ThreadingHTTPServer(("127.0.0.1", 0), JudgeStub)
    Thread(target=server.serve_forever, daemon=True).start()
    judge = Judge(url=f"http://127.0.0.1:{server.server_port}/v1", model="stub", rubric="general")
    make_env = maker(SMALL.env, SMALL.arguments)
    (played,) = Loop(make_env, policy_by_name("gold", make_env), errors="raise").play_all(
        [[Episode(number=1)]]
    )
    assign_credit([played], [judge], errors="raise")
    server.shutdown()
    server.server_close()
    answer = played.turns[-1].info["privileged"]["target"].lower()
    held = [float(answer in turn.reply.text.lower()) for turn in played.turns]
    assert [credit.value for credit in played.credits["judge"]] == held
    assert held[-1] == 1.0
