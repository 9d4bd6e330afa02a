"""Training a process reward model: its data, its metrics, and what it refuses."""

import json
import math

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

import call_or_guess
import torch
from launching import launch
from safetensors.torch import load_file

from memenvs.baselines import grpo, prm, sft
from memenvs.baselines.flags import main as learn
from memenvs.core.episode_file import EpisodeWriter, read_lines
from memenvs.models import HFPolicy
from memenvs.rollout.collect import collect
from memenvs.wrappers import PRM, TAMTRL

SOKOBAN = {"max_turns": 2}


def record(path, policies=("gold", "silent"), tasks=range(12)):
    """Episodes of Sokoban: the gold policy solves every task, the silent one none."""
    with EpisodeWriter(path) as writer:
        for name in policies:
            for episode in collect("MemSokoban-v0", name, tasks, tasks=tasks, env_args={"max_turns": 4}):
                writer.write(episode)
    return path


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return record(tmp_path_factory.mktemp("played") / "episodes.jsonl")


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Episodes of four tasks, where more would prove nothing."""
    return record(tmp_path_factory.mktemp("few") / "episodes.jsonl", tasks=range(4))


def arguments(model, out, *files, **options):
    return prm.PRMArgs(model=str(model), out=out, episodes=files, **{"lr": 1e-3, "track": (), **options})


def run(*given, **options):
    args = arguments(*given, **options)
    training = prm.prepare(args)
    prm.train(training, args)
    return training, [json.loads(line) for line in (args.out / "log.jsonl").read_text().splitlines()]


def rewritten(path, **changes):
    """A file whose episodes have other fields."""
    changed = [{**json.loads(line), **changes} for line, _ in read_lines(path)]
    file = path.with_name("changed.jsonl")
    file.write_text("".join(json.dumps(data) + "\n" for data in changed))
    return file


def test_it_learns_to_predict_success_on_held_out_tasks(tiny_model, played, tmp_path):
    _, lines = run(tiny_model, tmp_path / "run", played, epochs=6, batch_size=8, held_out=0.25)
    last = lines[-1]
    assert last["eval_accuracy"] == last["eval_auc"] == 1.0
    assert last["eval_base_accuracy"] < 0.9
    assert last["eval_loss"] < 0.5 * last["eval_base_loss"]
    # As a reward method: one of the held-out kind of task, played well and not at all.
    method = PRM(str(tmp_path / "run" / "last"), outcome="keep")
    gold, silent = (
        collect("MemSokoban-v0", name, [0], methods=[method], env_args={"max_turns": 4}, tasks=[40])[0]
        for name in ("gold", "silent")
    )
    assert gold.turn_rewards[0] > silent.turn_rewards[0]


def test_the_loss_is_the_mean_cross_entropy_of_the_turns_of_a_batch(tiny_model, few, tmp_path):
    training, (line,) = run(tiny_model, tmp_path / "run", few, batch_size=1000, micro_batch_tokens=500)
    policy = HFPolicy(str(tiny_model)).add_value_head()
    nats = []
    with torch.no_grad():
        for example in training.examples:
            ids, ends, labels = example.ids, example.response_mask, example.returns
            states = policy.model.model(input_ids=torch.tensor([list(ids)])).last_hidden_state[0]
            logits = policy.value_head(states)[:, 0].double().numpy()[np.flatnonzero(ends) - 1]
            likely = 1 / (1 + np.exp(-logits))
            nats += [-math.log(p if label else 1 - p) for p, label in zip(likely, labels, strict=True)]
    assert line["loss"] == pytest.approx(np.mean(nats), rel=1e-4)


def test_a_resumed_run_equals_an_uninterrupted_one(tiny_model, few, tmp_path):
    run(tiny_model, tmp_path / "whole", few, epochs=2, batch_size=4)
    run(tiny_model, tmp_path / "halves", few, epochs=1, batch_size=4)
    run(tiny_model, tmp_path / "halves", few, epochs=2, batch_size=4, resume=True)
    whole, halves = (
        load_file(tmp_path / name / "last" / "policy" / "model.safetensors") for name in ("whole", "halves")
    )
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def test_an_adapter_can_be_trained_instead_of_the_weights(tiny_model, few, tmp_path):
    pytest.importorskip("peft")
    run(tiny_model, tmp_path / "run", few, lora_rank=2)
    assert not (tmp_path / "run" / "last" / "policy" / "model.safetensors").exists()
    method = PRM(str(tmp_path / "run" / "last"), outcome="keep")
    (episode,) = collect("MemSokoban-v0", "silent", [0], methods=[method], env_args=SOKOBAN)
    assert all(0 < credit.value < 1 for credit in episode.credits["prm"])


def test_two_processes_have_the_curve_of_one(tiny_model, played, tmp_path):
    flags = ["--model", str(tiny_model), "--episodes", str(played), "--lr", "1e-3", "--batch-size", "8"]
    lines = [launch("prm", [*flags, "--track", "--out", str(tmp_path / str(n))], n) for n in (1, 2)]
    curves = [[[line["loss"], line.get("eval_loss", 0.0)] for line in of_one] for of_one in lines]
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-4)


def test_grpo_compares_the_probabilities_of_all_turns_of_a_task(tiny_model, few, tmp_path):
    """In a group with right and wrong guesses, the only kind of group whose turns are compared."""
    run(tiny_model, tmp_path / "prm", few)
    shared = {"env": "call_or_guess:CallOrGuess-v0", "max_new_tokens": 1, "num_envs": 64, "track": ()}
    guesses = sft.SFTArgs(
        model=str(call_or_guess.save_model(tmp_path / "model")), out=tmp_path / "sft", learn_from="all",
        teacher="call_or_guess:often", episodes=256, epochs=4, lr=1e-2, save_every=1000, **shared,
    )  # fmt: skip
    sft.train(sft.prepare(guesses), guesses)
    args = grpo.GRPOArgs(
        model=str(tmp_path / "sft" / "last" / "policy"), out=tmp_path / "grpo", reward="turn-pool", steps=1,
        methods=["PRM", f"model={tmp_path}/prm/last", "outcome=keep"], groups=1, group_size=64, **shared,
    )  # fmt: skip
    grpo.train(grpo.prepare(args), args)
    (line,) = [json.loads(line) for line in (args.out / "log.jsonl").read_text().splitlines()]
    assert 0 < line["rewards/outcome"] < 1
    assert 0 < line["rewards/prm"] < 2  # the sum of at most two turns
    assert line["informative"] == 1.0
    assert "signals/prm" not in line


def test_an_appended_episode_is_one_sequence_and_each_of_its_turns_an_example(tiny_model, played, tmp_path):
    training, _ = run(tiny_model, tmp_path / "run", played)
    episodes = [episode for _, episode in read_lines(played)]
    assert len(training.examples) + len(training.held_out) == len(episodes)
    sequences = [*training.examples, *training.held_out]
    assert sum(len(one.returns) for one in sequences) == sum(len(one.turns) for one in episodes)


def test_no_task_is_on_both_sides():
    tasks = [f"t{i % 10}" for i in range(40)]
    learned, apart = prm.split_by_task(tasks, 0.3, seed=1)
    assert {tasks[place] for place in learned}.isdisjoint(tasks[place] for place in apart)
    assert (len(learned), len(apart)) == (28, 12)
    again = prm.split_by_task(tasks[::-1], 0.3, seed=1)[1]
    assert {tasks[::-1][place] for place in again} == {tasks[place] for place in apart}


def test_each_side_has_at_least_one_task():
    for held_out in (0.01, 0.99):
        learned, apart = prm.split_by_task(["a", "b"], held_out, seed=0)
        assert (len(learned), len(apart)) == (1, 1)


def test_the_quality_of_logits_is_worked_out_by_hand():
    # turns of label 1 have 2 and 0.5, those of 0 have -1 and 0.5: of four pairs 3 right and a tie
    found = prm.quality(np.array([2.0, -1.0, 0.5, 0.5]), np.array([1.0, 0.0, 0.0, 1.0]), prior=0.75)
    nats = [math.log1p(math.exp(-2)), math.log1p(math.exp(-1)), math.log1p(math.exp(0.5))]
    assert found == {
        "loss": pytest.approx((sum(nats) + math.log1p(math.exp(-0.5))) / 4),
        "base_loss": pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2),
        "accuracy": 0.75,
        "base_accuracy": 0.5,
        "auc": 3.5 / 4,
    }


def test_where_all_held_out_turns_have_one_label_there_is_no_auc():
    assert "auc" not in prm.quality(np.array([1.0, -1.0]), np.array([1.0, 1.0]), prior=0.5)


def test_soft_labels_are_correlated_with_probabilities():
    # sigmoid(-ln 3), 1/2, sigmoid(ln 3) = 1/4, 1/2, 3/4: on one line with the labels
    found = prm.quality(np.array([-1.0, 0.0, 1.0]) * math.log(3), np.array([0.2, 0.4, 0.6]), prior=0.4)
    assert found["correlation"] == pytest.approx(1.0)
    assert "accuracy" not in found


def reading(tmp_path, **settings):
    """An episode of chunked reading under TAMTRL, in a file."""
    options = {"tasks": "world-test", "n_documents": 4, "chunk_size": 150}
    with EpisodeWriter(tmp_path / "taught.jsonl") as writer:
        for task in range(4):
            policy, method = "gold" if task % 2 else "lexical", TAMTRL(**settings)
            played = {"env_args": options, "tasks": [task]}
            writer.write(*collect("MemChunkQA-v0", policy, [0], 1, [method], "lexical", **played))
    return tmp_path / "taught.jsonl"


def test_a_memory_is_labelled_by_the_teacher_and_the_answer_by_the_success(tmp_path):
    *_, (line, episode) = read_lines(reading(tmp_path))
    data = json.loads(line)
    labels = prm.turn_labels(episode, "tamtrl")
    assert data["metrics"]["success"] == 1.0
    assert labels.tolist() == [*(turn["signals"]["tamtrl"] for turn in data["turns"][:-1]), 1.0]
    assert len(set(labels)) > 2
    assert prm.turn_labels(episode, "outcome").tolist() == [1.0] * len(episode.turns)


def test_an_episode_with_a_memory_that_was_not_measured_is_left_out(tmp_path):
    file = reading(tmp_path)
    first, *others = (json.loads(line) for line, _ in read_lines(file))
    first["turns"][0]["signals"]["tamtrl"] = None
    file.write_text("".join(json.dumps(data) + "\n" for data in (first, *others)))
    assert len(prm.read_usable([file], "tamtrl")) == 3
    assert len(prm.read_usable([file], "outcome")) == 4


def test_turns_that_do_not_fit_the_window_are_reported_and_left_out(tiny_model, played, tmp_path, capsys):
    file = rewritten(played)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["turns"][0]["observation"] += " word" * 2000
    file.write_text("".join(json.dumps(data) + "\n" for data in lines))
    prm.prepare(arguments(tiny_model, tmp_path / "run", file))
    lost, turns = len(lines[0]["turns"]), sum(len(data["turns"]) for data in lines)
    assert f"warning: {lost} of {turns} turns do not fit the model's window" in capsys.readouterr().err


def refusal(tiny_model, tmp_path, capsys, *flags):
    assert learn(["prm", "--model", str(tiny_model), "--out", str(tmp_path / "run"), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    prefix = "memenvs train prm: error: "
    assert line.startswith(prefix)
    return line.removeprefix(prefix)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"error": "ServerError: away", "end": "failed"}, "that ended without an error, got 0 of 0; record"),
        ({"task": "t7"}, "needs episodes of 2 tasks or more that ended without an error, got 24 of 1;"),
        ({"metrics": {"success": 0.0}}, "turns to learn from have the label 0, which teaches nothing; give"),
    ],
)
def test_episodes_that_teach_nothing_are_refused(change, message, tiny_model, played, tmp_path, capsys):
    file = rewritten(played, **change)
    assert message in refusal(tiny_model, tmp_path, capsys, "--episodes", str(file))


def test_episodes_without_texts_are_refused(tiny_model, played, tmp_path, capsys):
    with EpisodeWriter(tmp_path / "bare.jsonl", texts=False) as writer:
        for _, episode in read_lines(played):
            writer.write(episode)
    line = refusal(tiny_model, tmp_path, capsys, "--episodes", str(tmp_path / "bare.jsonl"))
    assert line.endswith("has only replies; evaluate without --no-texts")


@pytest.mark.parametrize(
    ("settings", "change", "message"),
    [
        ({"length_norm": False}, dict, "which are not probabilities"),
        (
            {},
            lambda turn: turn.get("before", {}).get("privileged", {}).update(answers=[["a"], ["b"]]),
            "has several questions, whose answers have no signal; give --labels",
        ),
        (
            {},
            lambda turn: turn.update(signals={}),
            "has no signals 'tamtrl' for --labels, only outcome; record episodes with",
        ),
    ],
)
def test_signals_that_are_no_labels_are_refused(settings, change, message, tiny_model, tmp_path, capsys):
    file = reading(tmp_path, **settings)
    lines = [json.loads(line) for line, _ in read_lines(file)]
    for data in lines:
        for turn in data["turns"]:
            change(turn)
            if not turn["signals"]:
                data.pop("measured", None)
    file.write_text("".join(json.dumps(data) + "\n" for data in lines))
    assert message in refusal(tiny_model, tmp_path, capsys, "--episodes", str(file), "--labels", "tamtrl")
