"""What `memenvs evaluate compare` says of the turns: credit, and what became of the evidence."""

import numpy as np
import pytest

from memenvs import evaluate
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.evaluation.compare import compare
from memenvs.evaluation.turns import fates

EVIDENCE = "Fenn\nFenn was led by Aldo, who built its only bridge and gave the town its name."
BODY = EVIDENCE.partition("\n")[2]


def reading(chunks, memories, answers=("Aldo",), target=""):
    """An episode that reads chunks, by the evidence in each and the memory after it, and then answers.

    `answers` has one for each objective, its accepted wordings separated by slashes.
    """
    first = {"answers": [each.split("/") for each in answers], "target": target, "evidence": [EVIDENCE]}
    turns = []
    for chunk, before, after in zip([*chunks, []], ["", *memories], [*memories, memories[-1]], strict=True):
        told = {**first, "evidence_in_chunk": chunk, "memory": before}
        info = {"context": "rewrite", "privileged": told}
        turns.append(Turn("…", info, Reply("…"), {**info, "privileged": {**told, "memory": after}}))
    return Episode(turns=turns)


def searching(feedbacks):
    """An episode whose prompt grows, by what each search brought; its last turn answers."""
    info = {"context": "append", "privileged": {"answers": [["Aldo"]], "evidence": [EVIDENCE]}}
    return Episode(turns=[Turn("…", info, Reply("…"), {**info, "feedback": text}) for text in feedbacks])


@pytest.mark.parametrize(
    ("chunks", "memories", "wanted"),
    [
        ([[], [EVIDENCE], []], ["", "led by Aldo", "ALDO led it"], [None, "found", "kept", "kept"]),
        ([[EVIDENCE], []], ["Aldo", "nothing"], ["found", "lost", None]),
        ([[EVIDENCE], []], ["the town has a bridge", "same"], ["lost", None, None]),  # read and not noted
        ([[], []], ["", ""], [None, None, None]),
    ],
)
def test_a_reader_finds_keeps_and_loses_answers(chunks, memories, wanted):
    assert fates(reading(chunks, memories)) == wanted


def test_one_answer_lost_while_another_is_found_is_a_loss():
    episode = reading([[EVIDENCE], []], ["Aldo", "bridge"], answers=("Aldo", "bridge"))
    assert fates(episode)[1] == "lost"


@pytest.mark.parametrize(("target", "fate"), [("Aldo", "kept"), ("Aldo, bridge", "lost")])
def test_any_wording_of_an_answer_keeps_it_unless_the_target_wants_them_all(target, fate):
    chunks, memories = [[EVIDENCE], []], ["Aldo built a bridge", "the bridge"]
    assert fates(reading(chunks, memories, ("Aldo/bridge",), target))[1] == fate


def test_a_search_finds_new_evidence_or_is_wasted():
    shown = f"Doc 1(Title: Fenn) {BODY}"
    assert fates(searching(["Doc 1(Title: Elm) A tree.", shown, shown, ""])) == [
        "wasted",
        "found",
        "wasted",
        "kept",
    ]


def test_a_search_with_a_memory_shows_its_results_in_the_next_prompt():
    info = {"context": "rewrite", "privileged": {"answers": [["Aldo"]], "evidence": [EVIDENCE], "memory": ""}}
    prompts = ["search", f"results: {BODY}", "results: none", "answer"]
    assert fates(Episode(turns=[Turn(text, info, Reply("…"), info) for text in prompts])) == [
        "found",
        "lost",  # read and not noted
        "wasted",
        None,
    ]


def test_without_answers_or_with_yes_and_no_alone_nothing_is_said():
    assert fates(Episode()) == []
    assert fates(reading([[EVIDENCE]], ["yes"], answers=("yes",))) == []


def test_turns_of_runs_are_compared_with_the_episode_that_a_turn_cost(tmp_path):
    setting = {"tasks": "0:6", "env_args": {"tasks": "world-test", "n_documents": 6, "chunk_size": 300}}
    for policy in ("gold", "silent"):
        evaluate(
            "MemChunkQA-v0", policy, methods=["TAMTRL"], scorer="lexical", out=tmp_path / policy, **setting
        )
    comparison = compare([tmp_path / "gold", tmp_path / "silent"])
    silent = [row for row in comparison.turns if row.run == "silent"]
    assert sum(len(row.costly) for row in silent) == 6  # each failure is of one turn
    assert not any(row.fates.get("found") or row.fates.get("kept") for row in silent)
    gold = [row for row in comparison.turns if row.run == "gold"]
    assert not any(row.costly for row in gold)
    assert gold[-1].fates["kept"] == 1.0
    assert gold[-1].credit.mean > silent[-1].credit.mean
    assert np.all([row.credit.low <= row.credit.mean <= row.credit.high for row in comparison.turns])
    costly = max(silent, key=lambda row: len(row.costly))
    page = str(comparison)
    assert f"memenvs view {tmp_path / 'silent'} --terminal --episode {costly.costly[0]}" in page
    written = {path.name for path in comparison.write(tmp_path / "out")}
    assert {"turns.png", "turns.svg"} <= written


def test_long_episodes_are_shown_by_ranges_of_turns(tmp_path):
    args = {"max_turns": 30, "min_solution": 5, "max_solution": 5}
    for policy in ("gold", "random_text"):
        evaluate("MemSokoban-v0", policy, tasks="0:3", env_args=args, out=tmp_path / policy)
    rows = compare([tmp_path / "gold", tmp_path / "random_text"]).turns
    assert max(row.last for row in rows) == 30
    assert 1 < len({row.turn for row in rows}) <= 8
    assert not any(row.fates for row in rows)  # a board has no evidence


def test_a_row_is_shared_by_metrics_with_the_same_numbers(tmp_path):
    for policy in ("gold", "silent"):
        evaluate("MemChunkQA-v0", policy, tasks="0:4", out=tmp_path / policy)
    page = str(compare([tmp_path / "silent", tmp_path / "gold"], metrics=["success", "em", "turns"]))
    assert "| success, em | silent |" in page
    assert "| turns | silent |" in page
    assert page.startswith("gold: success 1.000 against 0.000 of silent, a difference of +1.000")
