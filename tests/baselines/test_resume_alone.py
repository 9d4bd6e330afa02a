"""`memenvs train --resume --out RUN` needs no learner's name, and `--recipe RUN/args.json` none either."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

from memenvs import evaluate
from memenvs.commands import main
from memenvs.core.episode_file import EpisodeWriter, read_episodes

SAMPLED = ["--steps", "1", "--groups", "2", "--group-size", "2", "--max-new-tokens", "8"]
SOKOBAN = ["--env", "MemSokoban-v0", "--env-args", "max_turns=2"]
READING = ["--env", "MemChunkQA-v0", "--env-args", "chunk_size=300", "n_documents=4"]
LEARNERS = {
    "grpo": [*SOKOBAN, *SAMPLED, "--reward-args", "estimator=reinforce"],
    "mt_ppo": [*SOKOBAN, *SAMPLED, "--critic", "shared"],
    "distill": [*READING, *SAMPLED],
    "sft": [*SOKOBAN, "--teacher", "gold", "--episodes", "8", "--batch-size", "8", "--epochs", "1"],
    "prm": ["--batch-size", "4", "--epochs", "1"],
}


@pytest.fixture
def begin(tiny_model, tmp_path):
    """Begin a run of a learner with these flags; its folder."""

    def begun(learner):
        more = []
        if learner == "prm":
            evaluate("MemSokoban-v0", "gold", tasks="0:5", out=tmp_path / "played")
            more = ["--episodes", str(tmp_path / "labelled.jsonl")]
            with EpisodeWriter(tmp_path / "labelled.jsonl") as writer:
                for number, episode in enumerate(read_episodes(tmp_path / "played" / "episodes.jsonl")):
                    episode.metrics = {**episode.metrics, "success": float(number % 2)}
                    writer.write(episode)
        out = tmp_path / "run"
        flags = ["--model", str(tiny_model), "--out", str(out), "--track", *LEARNERS[learner], *more]
        assert main(["train", learner, *flags]) == 0
        return out

    return begun


def flags_of(out):
    return json.loads((out / "args.json").read_text())


def steps_of(out):
    return [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_run_of_every_learner_resumes_without_its_name(begin, learner):
    out = begin(learner)
    before, steps = flags_of(out), steps_of(out)
    length = "epochs" if learner in ("sft", "prm") else "steps"
    assert main(["train", "--resume", "--out", str(out), f"--{length}", "2"]) == 0
    assert flags_of(out) == {**before, "resume": True, length: 2}
    assert steps_of(out) == [*steps, *(step + len(steps) for step in steps)]


def test_the_flags_of_a_run_begin_another_without_the_learners_name(begin, tmp_path):
    out, other = begin("grpo"), tmp_path / "other"
    recipe = str(out / "args.json")
    assert main(["train", "--recipe", recipe, "--out", str(other), "--seed", "3"]) == 0
    changed = {"recipe": recipe, "out": str(other), "seed": 3}
    assert flags_of(other) == {**flags_of(out), **changed}
    assert steps_of(other) == [1]


def test_a_run_resumes_with_its_own_values_alone_and_keeps_its_recipes_name(begin, capsys):
    out = begin("grpo")
    assert main(["train", "--resume", "--out", str(out), "--lr", "0.5"]) == 2
    assert "was begun with lr" in capsys.readouterr().err.splitlines()[-1]
    values = flags_of(out)
    (out / "args.json").write_text(json.dumps({**values, "recipe": "tamtrl_reading"}))
    assert main(["train", "--resume", "--out", str(out), "--steps", "2"]) == 0
    assert flags_of(out)["recipe"] == "tamtrl_reading"


@pytest.mark.parametrize(
    ("content", "argv", "named"),
    [
        (None, ["--resume"], "no run has begun there"),
        (None, ["grpo", "--resume"], "no run has begun there"),
        (None, ["--merge", "3"], "no run has begun there"),
        (None, [], "no learner is given"),
        (b"{}", ["--resume"], "got None"),
        (b'{"learner": "ppo"}', ["--resume"], "got 'ppo'"),
        (b'{"learner": ["grpo"]}', ["--resume"], "got ['grpo']"),
        (b'{"learner": "grpo"', ["--resume"], "args.json is not JSON"),
        (b"\xff\x00", ["--resume"], "args.json"),
        (b"[]", ["--resume"], "args.json"),
        (b'{"learner": "grpo", "lr": "fast"}', ["--resume"], "lr"),
        (b'{"learner": "grpo", "lr": -1}', ["--resume"], "lr"),
        (b'{"learner": "grpo", "speed": 1}', ["--resume"], "speed"),
        (b'{"learner": "grpo"}', ["sft", "--resume"], "a run of 'grpo'"),
    ],
)
def test_what_cannot_be_resumed_is_one_line(tmp_path, capsys, content, argv, named):
    out = tmp_path / "run"
    if content is not None:
        out.mkdir()
        (out / "args.json").write_bytes(content)
    assert main(["train", *argv, "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line
