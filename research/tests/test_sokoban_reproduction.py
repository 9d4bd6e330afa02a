"""The Sokoban reproduction measures what its page says."""

import shutil
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

from memenvs.baselines import grpo, mt_ppo
from memenvs.baselines.flags import read_args
from memenvs.rollout.collect import collect
from research import harness
from research.reproduce import sokoban


def test_a_solver_that_wastes_no_move_has_the_whole_of_every_metric():
    for episode in collect("MemSokoban-v0", "gold", range(20), env_args={"level_split": "test"}):
        metrics = {name: episode.metrics[name.removeprefix("eval_")] for name in sokoban.METRICS}
        assert metrics == dict.fromkeys(sokoban.METRICS, 1.0)


def test_the_early_share_is_that_of_rewards_before_an_episode_s_last_turn():
    rng = np.random.default_rng(0)
    early, last = rng.normal(size=(2, 4000)) * [[1.0], [2.0]]
    episodes = [
        SimpleNamespace(turn_rewards=[0.5, one, other]) for one, other in zip(early, last, strict=True)
    ]
    assert sokoban.early_share(episodes) == pytest.approx(1 / 5, abs=0.03)
    episodes = [SimpleNamespace(turn_rewards=[other]) for other in last]  # one turn is the last
    assert sokoban.early_share(episodes) == 0.0


def test_half_of_the_careless_solver_s_replies_are_malformed_and_the_rest_are_the_solver_s():
    env = gym.make("memenvs:MemSokoban-v0", disable_env_checker=True)
    teacher = sokoban.careless_solver(env)

    def reply(observation, info):
        gold, said = env.unwrapped.gold_reply(), teacher(observation, info)
        assert said in (gold, gold.replace(sokoban.OPEN, sokoban.BARE))
        return said

    episodes = collect(lambda: env, reply, range(100), concurrency=1, errors="raise")
    assert 0.4 < np.mean([episode.metrics["format"] for episode in episodes]) < 0.6


@pytest.mark.slow
def test_the_learners_take_the_flags_of_every_run_and_last_policies_are_by_method(tmp_path, monkeypatch):
    monkeypatch.setattr(sokoban, "LEVELS", {"train": 20, "test": 20})
    monkeypatch.setattr(sokoban, "PLAYED", 30)
    setting = sokoban.SokobanSetting(tmp_path, boxes=2)
    made = sokoban.jobs(setting, setting.model, seeds=2, steps=7)
    assert len({job.out for job in made}) == 2 * (1 + len(sokoban.METHODS))
    kinds = {"mt_ppo": mt_ppo.MTPPOArgs, "grpo": grpo.GRPOArgs}
    for job in made:
        learner = job.command[3]
        args = read_args(kinds[learner], job.command[4:], learner)
        assert args.groups * args.group_size == 256
        shutil.copytree(setting.model, harness.last_policy(job.out))
    found = sokoban.last_policies(setting, made)
    assert set(found) == set(sokoban.LAST)
    for of in found.values():
        assert set(of) == {"warmed up", *sokoban.METHODS}
        assert {len(numbers) for numbers in of.values()} == {2}
        assert len({number for numbers in of.values() for number in numbers}) == 1  # of one policy
    assert len(sokoban.last_table(found).splitlines()) == 2 + 1 + len(sokoban.METHODS)
