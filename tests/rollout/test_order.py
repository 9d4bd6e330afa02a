"""Which tasks a training draws: each once a pass."""

import json
from dataclasses import dataclass

import gymnasium as gym
import pytest

from memenvs.baselines import grpo, sft
from memenvs.baselines.lessons import demonstrations
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.episode_file import EpisodeWriter
from memenvs.rollout.order import MOST_SHUFFLED, draw_tasks
from memenvs.tasks.taskset import open_tasks
from memenvs.wrappers import RewardMethod


@pytest.mark.parametrize("tasks", [1, 7, 128])
def test_a_pass_has_every_task_once(tasks):
    first, second = (draw_tasks(tasks, [3], start, tasks) for start in (0, tasks))
    assert sorted(first) == sorted(second) == list(range(tasks))
    assert (first != second) == (tasks > 1)


def test_a_draw_depends_on_its_number_alone():
    whole = draw_tasks(10, [3], 0, 35)
    assert whole == [task for start in range(0, 35, 5) for task in draw_tasks(10, [3], start, 5)]


def test_seeds_give_other_orders():
    assert draw_tasks(100, [0], 0, 100) != draw_tasks(100, [1], 0, 100)


@pytest.mark.parametrize("tasks", [MOST_SHUFFLED + 2, 2**31, 10**18])
def test_draws_from_a_set_that_is_too_large_to_list_do_not_repeat(tasks):
    drawn = draw_tasks(tasks, [0], 5, 1000)
    assert len({*drawn}) == 1000
    assert all(0 <= task < tasks for task in drawn)


SETTINGS = {"num_envs": 8, "max_new_tokens": 2, "lr": 0.0, "track": (), "model": "", "env": "MemToolQA-v0"}


def arguments(learner, model, out, **options):
    return getattr(learner, f"{learner.__name__.rpartition('.')[2].upper()}Args")(
        **{**SETTINGS, "model": str(model), "out": out, **options}
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A set of 10 tasks."""
    from build_command import command

    out = tmp_path_factory.mktemp("sets") / "small"
    assert command("world", "--entities", 60, "--documents", 4, "--num-tasks", 10, "--out", out) == 0
    return str(out)


def tasks_played(out, phase):
    with (out / "episodes.jsonl").open(encoding="utf-8") as lines:
        return [one["task"] for line in lines if (one := json.loads(line))["phase"] == phase]


def test_training_plays_each_task_once_a_pass_also_when_it_is_resumed(tiny_model, small, tmp_path):
    options = {
        "env_args": {"tasks": small},
        "groups": 5,
        "group_size": 2,
        "save_episodes": 10,
        "save_every": 1,
    }
    for steps, resume in ((1, False), (4, True)):
        args = arguments(grpo, tiny_model, tmp_path / "run", steps=steps, resume=resume, **options)
        grpo.train(grpo.prepare(args), args)
    played = tasks_played(tmp_path / "run", "train")[::2]
    ids = sorted(task.id for task in open_tasks(small))
    assert sorted(played[:10]) == sorted(played[10:]) == ids
    assert played[:10] != played[10:]


def test_the_trees_of_a_step_are_of_different_tasks(tiny_model, small, tmp_path):
    options = {"env_args": {"tasks": small}, "groups": 10, "group_size": 2, "reward": "turn", "tree_turns": 1}
    run = grpo.prepare(args := arguments(grpo, tiny_model, tmp_path / "run", **options))
    _, episodes, _ = grpo.sample_trees(run, args, 1)
    assert len({episode.task for episode in episodes}) == 10


@pytest.mark.parametrize(("episodes", "played"), [(4, 4), (25, 10)])
def test_an_evaluation_plays_tasks_of_its_set_each_once_and_the_same_every_time(
    tiny_model, small, tmp_path, episodes, played
):
    run = grpo.prepare(
        arguments(
            grpo,
            tiny_model,
            tmp_path / "run",
            eval_env_args={"tasks": small},
            eval_every=1,
            eval_episodes=episodes,
            save_episodes=25,
        )
    )
    run.evaluate(1)
    once = tasks_played(tmp_path / "run", "eval")
    assert len(once) == len({*once}) == played
    run.evaluate(2)
    assert tasks_played(tmp_path / "run", "eval") == once * 2


def test_a_teacher_plays_each_task_once(tiny_model, small, tmp_path):
    args = arguments(
        sft, tiny_model, tmp_path / "run", env_args={"tasks": small}, teacher="gold", episodes=10
    )
    shown = [lesson.turns[0].observation for lesson in demonstrations(args, 10)]
    env = gym.make("MemToolQA-v0", tasks=small)
    assert {*shown} == {env.reset(options={"task": task})[0] for task in range(10)}
    assert len({*shown}) == 10


def test_the_model_as_its_own_teacher_plays_each_task_once(tiny_model, small, tmp_path, monkeypatch):
    options = {"env_args": {"tasks": small}, "teacher": "self", "episodes": 10, "learn_from": "all"}
    args, played = arguments(sft, tiny_model, tmp_path / "run", **options), []
    before = sft.SFTRun.play

    def noted(self, *args):
        played.extend(episodes := before(self, *args))
        return episodes

    monkeypatch.setattr(sft.SFTRun, "play", noted)
    sft.prepare(args)
    assert len({episode.task for episode in played}) == 10


@dataclass
class Half(RewardMethod):
    """Pays 0.5 for every turn."""

    name = "half"

    def signal(self, turn, scores):
        return 0.5


def test_the_return_of_an_evaluation_has_what_methods_pay(tiny_model, small, tmp_path):
    methods = [f"{__name__}:Half"]
    options = {"env_args": {"tasks": small}, "eval_every": 1, "methods": methods, "reward": "merged"}
    run = grpo.prepare(arguments(grpo, tiny_model, tmp_path / "run", **options))
    found = run.evaluate(1)
    parts = {name: value for name, value in found.items() if name.startswith("eval_rewards/")}
    assert parts["eval_rewards/half"] >= 0.5
    assert found["eval_return"] == pytest.approx(sum(parts.values()))


@pytest.fixture
def file(tmp_path):
    """A file of 30 demonstrations; the last 12 solved their task."""
    info = {"turn": 0, "context": "append", "feedback": "", "rewards": {}}
    with EpisodeWriter(tmp_path / "shown.jsonl") as writer:
        for i in range(30):
            turn = Turn(f"Question {i}", info, Reply(f"answer {i}"), info, "terminated")
            writer.write(Episode(turns=[turn], end="terminated", metrics={"success": float(i >= 18)}))
    return str(tmp_path / "shown.jsonl")


@pytest.mark.parametrize(
    ("options", "learned"),
    [
        ({"learn_from": "all"}, 30),
        ({}, 12),
        ({"episodes": 5}, 5),
        ({"episodes": 20}, 12),
        ({"episodes": 20, "learn_from": "all"}, 20),
    ],
)
def test_a_file_is_read_whole_filtered_and_then_cut(tiny_model, file, tmp_path, capsys, options, learned):
    run = sft.prepare(arguments(sft, tiny_model, tmp_path / "run", teacher=file, **options))
    assert len(run.samples) == learned
    assert (f"learning from {learned} of 30 episodes" in capsys.readouterr().err) == (learned < 30)
