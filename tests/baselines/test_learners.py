"""The learners learn an easy game, resume bit for bit, and have the same curve in one process and in two."""

import errno
import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import get_type_hints

import easy_sokoban
import numpy as np
import pytest
from command_line import evaluate
from launching import launch, run_together

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

import torch
from safetensors.torch import load_file

from memenvs.baselines import distill, grpo, mt_ppo, sft
from memenvs.baselines.checkpoint import Checkpoints
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import read_args
from memenvs.baselines.optimizer import make_optimizer, mix_weights
from memenvs.baselines.train import shuffled_batches
from memenvs.core.episode_file import read_episodes

SOKOBAN = ("--env", "MemSokoban-v0")
SMALL = {"max_new_tokens": 5, "num_envs": 64}
AWAY = ("FailingSokoban-v0", "the server is unreachable")
INFINITE = ("InfiniteSokoban-v0", "task level.*turn 0: reward outcome must be finite, got (inf|nan)")
ANY_MOVE = {"teacher": "easy_sokoban:any_move", "learn_from": "all"}


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    """The arguments of an easy environment, and a model that writes any move in the right form."""
    folder = tmp_path_factory.mktemp("easy")
    env_args = easy_sokoban.save_levels(folder)
    model = easy_sokoban.save_model(folder / "model", env_args)
    options = {**ANY_MOVE, "episodes": 256, "epochs": 6, "lr": 3e-3, "lr_warmup": 5, "save_every": 1000}
    run(sft, (env_args, str(model)), folder / "sft", **options)
    return env_args, str(folder / "sft" / "last" / "policy")


@pytest.fixture(scope="module")
def teacher(game, tmp_path_factory):
    """A model that solves every board."""
    out = tmp_path_factory.mktemp("gold") / "run"
    run(sft, game, out, teacher="gold", episodes=128, epochs=3)
    return str(out / "last" / "policy")


@pytest.fixture
def longer(game, tmp_path):
    """A game whose prompt and one reply fit the window of 128 tokens; what comes back does not."""
    env_args = {**game[0], "max_turns": 3}
    return env_args, str(easy_sokoban.save_model(tmp_path / "model", env_args))


def arguments(learner, game, out, **options):
    env_args, model = game
    if learner is distill:
        options = {"teacher_model": before_cloning(game), "view": "student", **options}
    return get_type_hints(learner.train)["args"](
        **{"model": model, "out": out, "env_args": env_args, "lr": 2e-3, **SMALL, **options}
    )


def before_cloning(game):
    """The model of the game before it learned the form of a reply."""
    return str(Path(game[1]).parents[2] / "model")


def run(learner, game, out, **options):
    args = arguments(learner, game, out, **options)
    learner.train(learner.prepare(args), args)
    return read(out)


def read(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def curve(lines):
    timed = ("time", "seconds", "tokens_per_second")
    return [{k: v for k, v in line.items() if not k.startswith(timed)} for line in lines]


def warnings_of(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]


def test_episodes_of_a_tree_are_saved_with_their_texts(longer, tmp_path):
    options = {"reward": "turn", "groups": 1, "group_size": 2, "tree_turns": 1, "save_episodes": 1}
    run(grpo, longer, tmp_path / "run", steps=1, **options)
    (episode,) = read_episodes(tmp_path / "run" / "episodes.jsonl")
    assert all(turn.observation for turn in episode.turns)


class TestLearning:
    """A random move solves a board one time in four; "Right" solves all of them."""

    @pytest.mark.parametrize(
        ("learner", "options"),
        [
            (mt_ppo, {"reward": "turn", "groups": 64}),
            (mt_ppo, {"reward": "turn", "groups": 64, "critic": "shared", "value_coef": 0.02}),
            (grpo, {"groups": 8}),
            (grpo, {"reward": "turn", "groups": 8, "reward_args": {"estimator": "rloo"}, "lr": 1e-3}),
            (grpo, {"reward": "merged", "groups": 8, "clip": (0.2, 0.28), "dynamic_sampling": 1}),
            (grpo, {"reward": "turn", "groups": 8, "tree_turns": 1}),
        ],
        ids=["mt_ppo", "shared", "grpo", "mt_rloo", "dapo", "tree"],
    )
    def test_success_rises(self, learner, options, game, tmp_path):
        lines = run(learner, game, tmp_path / "run", steps=8, **options)
        success = [line["success"] for line in lines]
        assert len(success) == 8
        assert success[0] < 0.35
        assert np.mean(success[-3:]) > success[0] + 0.25
        assert all(np.isfinite(line["policy_loss"]) for line in lines)

    @pytest.mark.parametrize(
        "options",
        [{"divergence": "forward"}, {"divergence": "jsd"}, {"rollouts": "teacher", "dtype": "bfloat16"}],
        ids=lambda options: "-".join(map(str, options.values())),
    )
    def test_a_student_learns_what_its_teacher_knows(self, options, game, teacher, tmp_path):
        options = {"teacher_model": teacher, "groups": 32, "eval_every": 7, "eval_episodes": 32, **options}
        lines = run(distill, game, tmp_path / "run", steps=7, **options)
        assert lines[0]["divergence"] > 4 * lines[-1]["divergence"] > 0
        assert lines[-1]["eval_success"] > 0.8  # any move solves one board in four

    def test_a_long_episode_is_penalised_by_the_tokens_beyond_the_limit(self, game, tmp_path):
        # From 3 tokens on the penalty rises, and at 4 it is 1: a reply alone has up to 5.
        (line,) = run(grpo, game, tmp_path / "run", steps=1, groups=2, overlong=(4, 1))
        assert line["length_penalty"] <= -1

    def test_the_first_update_begins_where_sampling_ended(self, game, tmp_path):
        (line,) = run(grpo, game, tmp_path / "run", steps=1, groups=8)
        assert line["approx_kl"] < 1e-9
        assert line["clip_fraction"] == 0.0

    def test_the_model_can_be_its_own_teacher(self, game, tmp_path):
        # STaR: what solved its task is learned from; success rises above the quarter of any move.
        options = {"teacher": "self", "episodes": 256, "epochs": 6, "lr": 1e-3, "eval_every": 6}
        lines = [line for line in run(sft, game, tmp_path / "run", **options) if "eval_success" in line]
        assert lines[-1]["eval_success"] > 0.6

    def test_sequences_are_learned_from_in_their_order_if_asked(self):
        assert shuffled_batches(range(6), 4, 2, seed=0, shuffle=False) == 2 * [[0, 1, 2, 3], [4, 5]]
        first, second, *_ = shuffled_batches(range(6), 6, 2, seed=0)
        assert sorted(first) == sorted(second) == list(range(6))
        assert first != second


class TestHardSteps:
    def test_a_step_with_nothing_to_learn_is_skipped(self, game, tmp_path):
        # The answer must be written at once, and nothing is: every episode earns 0, no group differs.
        lines = run(grpo, game, tmp_path / "run", steps=2, groups=2, dynamic_sampling=1, max_new_tokens=1)
        assert [line["skipped"] for line in lines] == [1.0, 1.0]
        assert [line["informative"] for line in lines] == [0.0, 0.0]

    @pytest.mark.parametrize(
        ("learner", "env", "why", "options"),
        [
            *((learner, *AWAY, {}) for learner in (mt_ppo, grpo, distill)),
            *((learner, *INFINITE, {}) for learner in (mt_ppo, grpo)),
            (grpo, *AWAY, {"reward": "turn", "tree_turns": 1}),
        ],
    )
    def test_a_step_in_which_every_episode_failed_is_skipped(
        self, learner, env, why, options, game, tmp_path, capsys
    ):
        args = arguments(learner, game, tmp_path / "run", steps=1, groups=8, env=env, **options)
        learner.train(learner.prepare(args), args)
        (line,) = read(tmp_path / "run")
        assert (line["failed"], line["skipped"]) == (8 * args.group_size, 1.0)
        (warning,) = warnings_of(capsys)
        assert re.search(why, warning)

    @pytest.mark.parametrize("limits", [{}, {"max_model_len": 100}])
    def test_no_sequence_outgrows_the_window_or_the_flag(self, longer, tmp_path, limits):
        options = {"steps": 1, "groups": 2, "group_size": 2, "save_episodes": 4, **limits}
        run(grpo, longer, tmp_path / "run", **options)
        episodes = read_episodes(tmp_path / "run" / "episodes.jsonl")
        lengths = [
            turn.reply.prompt_tokens + turn.reply.tokens
            for episode in episodes
            for turn in episode.turns
            if turn.reply.tokens
        ]
        assert max(lengths) <= limits.get("max_model_len", 128)

    def test_an_episode_that_outgrows_the_window_is_trained_on_to_its_last_reply(self, longer, tmp_path):
        (line,) = run(mt_ppo, longer, tmp_path / "run", steps=1, groups=4, group_size=2)
        assert line["overlong_prompts"] > 0
        assert np.isfinite(line["policy_loss"])


class TestWarnings:
    def test_steps_in_which_no_group_differs_are_reported_once(self, game, tmp_path, capsys):
        run(grpo, game, tmp_path / "run", steps=4, groups=2, max_new_tokens=1)
        (warning,) = warnings_of(capsys)
        assert "no group differed up to step 3" in warning
        run(grpo, game, tmp_path / "differs", steps=3, groups=8)
        assert warnings_of(capsys) == []

    @pytest.mark.parametrize("learner", [mt_ppo, grpo])
    def test_a_run_by_turn_without_rewards_of_turns_is_reported_once(
        self, learner, game, tiny_model, tmp_path, capsys
    ):
        searching = {"env": "MemSearchQA-v0", "max_new_tokens": 4, "reward": "turn", "groups": 2}
        tasks = ({"tasks": "world-test", "max_turns": 2, "k": 1, "max_information": 60}, str(tiny_model))
        for methods, warnings in (((), 1), (["SearchRewards"], 0)):
            run(learner, tasks, tmp_path / str(warnings), steps=2, group_size=2, **searching, methods=methods)
            assert sum("--reward turn" in line for line in warnings_of(capsys)) == warnings


class TestReports:
    def test_a_line_has_the_mean_of_each_component(self, game, tmp_path):
        (line,) = run(grpo, game, tmp_path / "run", steps=1, groups=8)
        parts = [value for name, value in line.items() if name.startswith("rewards/")]
        assert len(parts) > 1
        assert sum(parts) == pytest.approx(line["return"], rel=1e-5)

    def test_the_first_step_says_what_it_does_and_the_end_which_commands_come_next(
        self, game, tmp_path, capsys
    ):
        run(grpo, game, tmp_path / "run", steps=2, groups=2, group_size=4, eval_env_args=game[0])
        said = capsys.readouterr().err
        assert said.count("step 1: sampling episodes …\n") == 1
        assert "step 1: updating the weights …\n" in said
        assert "step 2: " not in said
        assert f"\n  memenvs view {tmp_path}/run --curves\n" in said
        (command,) = re.findall(r"memenvs evaluate run ((?:.*\\\n)*.*)", said)
        assert evaluate([*shlex.split(command.replace("\\\n", "")), "--task", "0:2"]) == 0
        assert "2 episodes finished, 0 failed" in capsys.readouterr().out

    def test_prompts_that_do_not_fit_cause_one_warning_and_are_counted_at_every_step(
        self, longer, tmp_path, capsys
    ):
        lines = run(grpo, longer, tmp_path / "run", steps=2, groups=4, group_size=2)
        said = capsys.readouterr().err.splitlines()
        steps = [line for line in said if re.match(r"step \d+/", line)]
        counts = [f"overlong_prompts {line['overlong_prompts']:g}" for line in lines]
        assert all(count in shown for count, shown in zip(counts, steps, strict=True))
        assert sum(line.startswith("warning: ") for line in said) == 1

    def test_turns_of_a_teacher_that_do_not_fit_cause_a_warning(self, longer, tmp_path, capsys):
        run(sft, longer, tmp_path / "run", **ANY_MOVE, episodes=8)
        (warning,) = warnings_of(capsys)
        assert "128 tokens" in warning


class TestResuming:
    @pytest.mark.parametrize(
        ("learner", "own"),
        [
            (mt_ppo, {"critic": "separate", "kl_coef": 0.1}),
            (mt_ppo, {"critic": "shared"}),
            (grpo, {"dtype": "bfloat16"}),
            (grpo, {"lora_rank": 2, "kl_coef": 0.1}),
            (mt_ppo, {"lora_rank": 2, "critic": "separate", "dtype": "bfloat16"}),
            (grpo, {"dtype": "bfloat16", "kl_coef": 0.1, "ref_sync_steps": 1, "ref_mixup": 0.1}),
            (mt_ppo, {"lora_rank": 2, "kl_coef": 0.1, "ref_sync_steps": 1, "ref_mixup": 0.5}),
            (distill, {"rollouts": "teacher", "dtype": "bfloat16", "epochs": 2, "minibatches": 2}),
            (distill, {"lora_rank": 2, "divergence": "reverse"}),
        ],
        ids=[
            "separate",
            "shared",
            "bfloat16",
            "lora",
            "lora-separate",
            "reference",
            "reference-lora",
            "distill",
            "distill-lora",
        ],
    )
    def test_a_resumed_run_equals_an_uninterrupted_one(self, learner, own, game, tmp_path):
        options = {"groups": 8, "group_size": 2, **own}
        whole = run(learner, game, tmp_path / "whole", steps=2, **options)
        run(learner, game, tmp_path / "parts", steps=1, **options)
        parts = run(learner, game, tmp_path / "parts", steps=2, resume=True, **options)
        assert not any(line.get("skipped") for line in whole)  # so that the optimizer's state decides
        assert curve(parts) == curve(whole)
        weights = "adapter_model" if "lora_rank" in own else "model"
        files = [f"policy/{weights}.safetensors", "optimizer.safetensors"]
        for name in files + ["critic/value_head.safetensors"] * (own.get("critic") == "separate"):
            one, other = (tmp_path / run / "last" / name for run in ("whole", "parts"))
            assert one.read_bytes() == other.read_bytes()

    @pytest.mark.parametrize(
        ("own", "weights"),
        [
            ({**ANY_MOVE, "lora_rank": 2, "episodes": 64}, "adapter_model"),
            ({"teacher": "self", "episodes": 128, "batch_size": 8}, "model"),
        ],
        ids=["adapter", "self"],
    )
    def test_a_resumed_cloning_equals_an_uninterrupted_one(self, own, weights, game, tmp_path):
        def clone(name, **options):
            run(sft, game, tmp_path / name, **own, **options)
            return (tmp_path / name / "last" / "policy" / f"{weights}.safetensors").read_bytes()

        whole = clone("whole", epochs=2)
        clone("parts", epochs=1)
        assert clone("parts", epochs=2, resume=True) == whole

    def test_sigterm_ends_a_run_after_its_step_which_is_evaluated_and_saved(
        self, game, tmp_path, monkeypatch
    ):
        options = {"groups": 8, "group_size": 2, "eval_every": 2, "eval_episodes": 8}
        whole = run(grpo, game, tmp_path / "whole", steps=3, **options)
        update = grpo.update

        def interrupted(*args, **more):
            if more["seed"][-1] == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return update(*args, **more)

        monkeypatch.setattr(grpo, "update", interrupted)
        stopped = run(grpo, game, tmp_path / "parts", steps=3, **options)
        assert curve(stopped) == curve(whole)[:2]
        monkeypatch.undo()
        parts = run(grpo, game, tmp_path / "parts", steps=3, resume=True, **options)
        assert curve(parts) == curve(whole)
        best = [Checkpoints(tmp_path / name).newest for name in ("whole", "parts")]
        assert [json.loads((found / "state.json").read_text())["best"]["step"] for found in best] == [2, 2]

    def test_steps_logged_after_the_checkpoint_are_run_again(self, game, tmp_path):
        out = tmp_path / "run"
        few = {"groups": 8, "group_size": 2}
        run(grpo, game, out, steps=2, **few)
        flags = arguments(grpo, game, out, steps=2, **few).plain()
        assert json.loads((out / "args.json").read_text()) == {"learner": "grpo", **flags}
        with (out / "log.jsonl").open("a") as file:
            file.write('{"step": 3, "success": 9.0}\n{"step": 4, "succ')
        lines = run(grpo, game, out, steps=3, **few, resume=True)
        assert [line["step"] for line in lines] == [1, 2, 3]
        assert lines[-1]["success"] <= 1.0

    def test_a_run_killed_before_its_links_has_them_after_the_next_start(self, game, tmp_path, capsys):
        out = tmp_path / "run"
        run(grpo, game, out, steps=1, groups=8)
        (out / "last").unlink()
        run(grpo, game, out, steps=1, groups=8, resume=True)
        assert (out / "last").resolve() == Checkpoints(out).newest
        assert "resuming after step 1" in capsys.readouterr().err

    def test_a_full_disk_is_one_line(self, game, tmp_path, capsys, monkeypatch):
        def full(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device", "run/checkpoints")

        monkeypatch.setattr(Checkpoints, "save", full)
        settings = [
            *SOKOBAN,
            "--env-args",
            json.dumps(game[0]),
            *"--steps 1 --groups 2 --max-new-tokens 5".split(),
        ]
        assert learn(["grpo", *SOKOBAN, "--model", game[1], "--out", str(tmp_path / "run"), *settings]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
        assert "No space left on device: 'run/checkpoints'" in line

    def test_a_folder_with_a_run_is_not_overwritten(self, game, tmp_path, capsys):
        run(grpo, game, tmp_path / "run", steps=1, groups=8)
        assert learn(["grpo", *SOKOBAN, "--model", game[1], "--out", str(tmp_path / "run")]) == 2
        assert "holds a run; add --resume" in capsys.readouterr().err

    def test_a_second_run_in_one_folder_is_refused_and_the_first_continues(self, game, tmp_path, capsys):
        args = arguments(grpo, game, tmp_path / "run", steps=2, groups=8)
        first = grpo.prepare(args)
        assert learn(["grpo", *SOKOBAN, "--model", game[1], "--out", str(args.out)]) == 2
        assert f"another run is writing to {args.out}; wait for it" in capsys.readouterr().err
        grpo.train(first, args)
        assert [line["step"] for line in read(args.out)] == [1, 2]
        assert len(run(grpo, game, args.out, steps=3, groups=8, resume=True)) == 3

    @pytest.mark.parametrize(("name", "other"), [("seed", 3), ("eval_episodes", 9)])
    def test_other_arguments_are_no_resumption(self, name, other, game, tmp_path):
        run(grpo, game, tmp_path / "run", steps=1, groups=2)
        with pytest.raises(ValueError, match=f"was begun with {name} .*, now {other}"):
            run(grpo, game, tmp_path / "run", steps=2, groups=2, resume=True, **{name: other})


class TestAdapters:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_success_rises(self, dtype, game, tmp_path):
        options = {"groups": 8, "lora_rank": 8, "lr": 6e-3, "dtype": dtype}
        success = [line["success"] for line in run(grpo, game, tmp_path / "run", steps=8, **options)]
        assert success[0] < 0.3  # any move solves one board in four
        assert np.mean(success[-3:]) > 0.4

    def test_an_adapter_is_trained_further_and_its_reference_is_the_initial_adapter(self, game, tmp_path):
        warm = {"steps": 2, "groups": 8, "lr": 1e-2}
        run(grpo, game, tmp_path / "warm", lora_rank=2, **warm)
        adapter = str(tmp_path / "warm" / "last" / "policy")
        options = {"steps": 2, "groups": 8, "lr": 1e-2, "kl_coef": 0.1}
        first, second = run(grpo, (game[0], adapter), tmp_path / "run", **options)
        assert abs(first["kl_ref"]) < 1e-9 < second["kl_ref"]
        before, after = (
            load_file(tmp_path / name / "last" / "policy" / "adapter_model.safetensors")
            for name in ("warm", "run")
        )
        assert before.keys() == after.keys()
        assert not all((one == after[name]).all() for name, one in before.items())
        config = json.loads((tmp_path / "run" / "last" / "policy" / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == game[1]

    @pytest.mark.parametrize("critic", ["separate", "shared"])
    def test_models_of_a_run_share_the_weights(self, critic, game, tmp_path):
        args = arguments(
            mt_ppo, game, tmp_path / "run", lora_rank=2, kl_coef=0.1, critic=critic, steps=1, groups=8
        )
        training = mt_ppo.prepare(args)
        policy, others = training.policy.model, [training.critic.model, training.ref_model.model]
        for other in others:
            named = dict(other.named_parameters())
            for name, weight in policy.named_parameters():
                plain = name.replace(".base_layer", "")
                if ".lora_" in name:
                    assert other is policy or weight is not named.get(name)
                else:
                    assert weight is named[name if name in named else plain]
        frozen = [weight for weight in policy.parameters() if not weight.requires_grad]
        before = [weight.clone() for weight in frozen]
        mt_ppo.train(training, args)
        assert all((one == other).all() for one, other in zip(before, frozen, strict=True))

    def test_an_adapter_with_checkpointed_gradients_learns_the_same(self, game, tmp_path):
        options = {"steps": 1, "groups": 8, "lora_rank": 2}
        (plain,) = run(grpo, game, tmp_path / "plain", **options)
        (again,) = run(grpo, game, tmp_path / "again", gradient_checkpointing=True, **options)
        assert plain["grad_norm"] > 0
        assert again["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-4)

    def test_a_new_adapter_on_an_adapter_is_one_line(self, game, tmp_path, capsys):
        run(grpo, game, tmp_path / "warm", steps=1, groups=2, lora_rank=2)
        adapter = str(tmp_path / "warm" / "last" / "policy")
        given = [
            *SOKOBAN,
            "--model",
            adapter,
            "--env-args",
            json.dumps(game[0]),
            "--out",
            str(tmp_path / "run"),
        ]
        assert learn(["grpo", *given, "--lora-rank", "2"]) == 2
        assert "this model has one, which continues to learn" in capsys.readouterr().err


class TestReferences:
    @pytest.mark.parametrize("own", [{}, {"lora_rank": 2}], ids=["model", "adapter"])
    @pytest.mark.parametrize(("every", "mixup"), [(2, 1.0), (1, 0.25)], ids=["hard", "soft"])
    def test_a_reference_follows_the_policy(self, own, every, mixup, game, tmp_path):
        options = {"groups": 8, "lr": 1e-2, "kl_coef": 0.1, "save_every": 1, "keep": 9, **own}
        options |= {"ref_sync_steps": every, "ref_mixup": mixup}
        lines = run(grpo, game, tmp_path / "run", steps=3, **options)
        name = "adapter_model.safetensors" if own else "model.safetensors"
        steps = [tmp_path / "run" / "checkpoints" / f"step-{step}" for step in (1, 2, 3)]
        first = grpo.prepare(arguments(grpo, game, tmp_path / "first", **options))
        first.ref_model.save(tmp_path / "initial")
        expected = load_file(tmp_path / "initial" / name)
        for step, folder in enumerate(steps, start=1):
            policy = load_file(folder / "policy" / name)
            if step % every == 0:
                expected = {key: mixup * policy[key] + (1 - mixup) * expected[key] for key in expected}
            reference = load_file(folder / "reference" / name)
            for key, weight in expected.items():
                np.testing.assert_allclose(reference[key], weight, rtol=1e-5, atol=1e-7)
        # the first step measures the policy from itself, and so does one after a hard update
        assert [abs(line["kl_ref"]) < 1e-9 for line in lines] == [True, False, every == 2]

    def test_in_bfloat16_small_moves_of_a_reference_add_up(self):
        weights = [torch.nn.Parameter(torch.full((4,), value, dtype=torch.bfloat16)) for value in (1.0, 2.0)]
        make_optimizer([{"params": [weight]} for weight in weights], lr=0.0)
        for _ in range(100):
            mix_weights(weights[:1], weights[1:], 1e-3)  # less than bfloat16's rounding of 1, 1/256
        assert weights[0][0].item() == pytest.approx(2 - 0.999**100, abs=1 / 256)


class TestTruncation:
    @pytest.mark.parametrize("critic", ["separate", "shared"])
    def test_what_follows_a_truncated_episode_is_read_and_changes_the_step(self, critic, game, tmp_path):
        game = game[0], str(easy_sokoban.save_model(tmp_path / "model", game[0], window=512))
        options = {"groups": 4, "critic": critic, "steps": 1}
        args = arguments(mt_ppo, game, tmp_path / "run", bootstrap_truncated=True, **options)
        training = mt_ppo.prepare(args)
        for episode in training.rollouts(0):  # a random model solves nothing
            env = training.make_env()
            observation, _ = env.reset(seed=episode.seed, options={"task": episode.number})
            for turn in episode.turns:
                observation = env.step(turn.action)[0]
            state = episode.samples[-1].following
            read = training.policy.tokenizer.decode(state.ids[:-1])
            assert read.replace("<|end|>", "") == observation
        mt_ppo.train(training, args)
        plain = arguments(mt_ppo, game, tmp_path / "plain", **options)
        other = mt_ppo.prepare(plain)
        mt_ppo.train(other, plain)
        both = zip(training.critic.parameters(), other.critic.parameters(), strict=True)
        assert not all(torch.equal(one, two) for one, two in both)

    def test_what_does_not_fit_the_window_has_no_value(self, game, tmp_path):
        options = {"groups": 4, "bootstrap_truncated": True, "steps": 1}
        args = arguments(mt_ppo, game, tmp_path / "run", **options)
        training = mt_ppo.prepare(args)
        assert all(episode.samples[-1].following is None for episode in training.rollouts(0))


class TestFlatGroups:
    def test_groups_without_advantages_are_in_the_denominator_or_not(self, game, tmp_path):
        options = {"groups": 16, "group_size": 2, "steps": 1, "save_episodes": 32}
        (kept,) = run(grpo, game, tmp_path / "kept", **options)
        (dropped,) = run(grpo, game, tmp_path / "dropped", **options, drop_flat_groups=True)
        assert 0 < kept["informative"] == dropped["informative"] < 1
        assert kept["entropy"] == dropped["entropy"]
        tokens = {True: 0, False: 0}  # of groups with and without an advantage
        groups = {}
        for episode in read_episodes(tmp_path / "kept" / "episodes.jsonl"):
            groups.setdefault(episode.group, []).append(episode)
        for group in groups.values():
            differs = any(episode.advantages.any() for episode in group)
            tokens[differs] += sum(episode.tokens for episode in group)
        share = tokens[True] / sum(tokens.values())
        assert kept["grad_norm"] == pytest.approx(share * dropped["grad_norm"], rel=1e-4)

    def test_a_step_without_other_groups_is_skipped(self, game, tmp_path):
        (line,) = run(
            grpo,
            game,
            tmp_path / "run",
            steps=1,
            groups=1,
            group_size=2,
            drop_flat_groups=True,
            env_args={**game[0], "max_turns": 1},
            reward_args={"estimator": "grpo"},
            max_new_tokens=1,
        )
        assert (line["skipped"], line["informative"]) == (1.0, 0.0)


class TestRates:
    def test_rates_of_policy_and_critic_rise_over_shares_of_the_run(self, game, tmp_path):
        # MT-PPO D.1.3: 0.285 and 0.015 of 500 steps, as whole steps 142 and 7
        args = arguments(mt_ppo, game, tmp_path / "run", lr=1e-6, lr_warmup=0.285, critic_lr_warmup=0.015)
        training = mt_ppo.prepare(args)
        training.set_rate(72, 500)
        policy, critic = training.optimizer.param_groups
        assert (policy["lr"], critic["lr"]) == (pytest.approx(0.5e-6), pytest.approx(1e-5))
        training.set_rate(3, 500)
        assert critic["lr"] == pytest.approx(1e-5 * 2 / 7)

    def test_the_rate_falls_linearly_after_the_warm_up_to_its_last_share(self, game, tmp_path):
        training = grpo.prepare(
            arguments(grpo, game, tmp_path / "run", lr=1e-3, lr_warmup=2, lr_end=0.1, steps=13)
        )
        rates = [0.0]
        for step in range(1, 14):
            training.set_rate(step, 13)
            rates.append(training.optimizer.param_groups[0]["lr"])
        # Full after 2 steps, and down to a tenth in 10 more.
        chosen = [rates[step] for step in (1, 2, 3, 8, 13)]
        assert chosen == pytest.approx([0.0, 0.5e-3, 1e-3, 0.55e-3, 0.1e-3])

    @pytest.mark.parametrize(
        ("rates", "policy_stays", "critic_stays"),
        [({"lr": 0.0, "critic_lr": 1e-3}, True, False), ({"critic_lr": 0.0}, False, True)],
    )
    def test_each_learns_at_its_own_rate(self, rates, policy_stays, critic_stays, game, tmp_path):
        args = arguments(mt_ppo, game, tmp_path / "run", steps=1, groups=8, **{"lr": 1e-3, **rates})
        training = mt_ppo.prepare(args)
        before = [training.policy.model.transformer.wpe.weight.clone() for _ in range(2)]
        mt_ppo.train(training, args)
        after = [model.model.transformer.wpe.weight for model in (training.policy, training.critic)]
        stays = [bool((one == other).all()) for one, other in zip(before, after, strict=True)]
        assert stays == [policy_stays, critic_stays]

    @pytest.mark.parametrize("course", [{"lr_warmup": 0.5}, {"lr_end": 0.5}])
    def test_the_length_of_a_run_is_fixed_where_its_rates_depend_on_it(self, course, game, tmp_path):
        run(grpo, game, tmp_path / "run", steps=2, groups=2, **course)
        with pytest.raises(ValueError, match="was begun with steps 2, now 4"):
            run(grpo, game, tmp_path / "run", steps=4, groups=2, resume=True, **course)


class TestCheckpoints:
    def test_the_most_recent_checkpoints_are_kept(self, game, tmp_path):
        run(grpo, game, tmp_path / "run", steps=5, groups=2, save_every=1, keep=2)
        assert names(tmp_path / "run") == ["step-4", "step-5"]
        assert (tmp_path / "run" / "last").resolve().name == "step-5"

    def test_the_best_evaluation_is_kept_the_earliest_of_equal_ones(self, game, tmp_path):
        play(game, tmp_path / "run", [0.2, 0.5, 0.5, 0.3])
        assert names(tmp_path / "run") == ["step-2", "step-4"]
        assert (tmp_path / "run" / "best").resolve().name == "step-2"

    def test_a_resumed_run_remembers_the_best(self, game, tmp_path):
        play(game, tmp_path / "run", [0.2, 0.5])
        play(game, tmp_path / "run", [0.2, 0.5, 0.4], resume=True)
        assert (tmp_path / "run" / "best").resolve().name == "step-2"
        play(game, tmp_path / "run", [0.2, 0.5, 0.4, 0.6], resume=True)
        assert (tmp_path / "run" / "best").resolve().name == "step-4"
        assert names(tmp_path / "run") == ["step-4"]

    def test_an_evaluation_in_which_everything_failed_is_not_the_best(self, game, tmp_path):
        play(game, tmp_path / "run", [0.1], name="failed")
        assert not (tmp_path / "run" / "best").exists()

    @pytest.mark.parametrize("learner", [mt_ppo, grpo, sft, distill])
    def test_a_gradient_that_is_not_finite_spoils_no_checkpoint(self, learner, game, tmp_path):
        long = {"episodes": 24, "batch_size": 8} if learner is sft else {"groups": 8, "steps": 3}
        args = arguments(learner, game, tmp_path / "run", **long)
        prepared = learner.prepare(args)
        passes = iter([False, True, False])
        step = prepared.set_rate

        def spoil_the_second(*position):
            hook.broken = next(passes)
            return step(*position)

        hook = BrokenGradient()
        prepared.set_rate = spoil_the_second
        prepared.policy.model.get_input_embeddings().weight.register_hook(hook)
        learner.train(prepared, args)
        assert [line["nonfinite"] for line in read(tmp_path / "run")] == [0.0, 1.0, 0.0]
        saved = load_file(tmp_path / "run" / "last" / "policy" / "model.safetensors")
        assert all(bool(weight.isfinite().all()) for weight in saved.values())


class BrokenGradient:
    """A hook that makes a gradient NaN when it is told to."""

    broken = False

    def __call__(self, gradient):
        return gradient * float("nan") if self.broken else gradient


def names(out):
    return sorted(path.name for path in (out / "checkpoints").iterdir())


def play(game, out, values, name="success", **options):
    """A run with an evaluation after every step, whose numbers are given."""
    shared = {"steps": len(values), "groups": 2, "keep": 1, "save_every": 10, "eval_every": 1}
    args = arguments(grpo, game, out, **shared, **options)
    training = grpo.prepare(args)
    training.evaluate = lambda step: {f"eval_{name}": values[step - 1]}
    grpo.train(training, args)


@pytest.mark.parametrize(
    ("learner", "own"),
    [("mt_ppo", ""), ("grpo", ""), ("distill", "--view student --teacher-model {teacher}")],
)
def test_two_processes_have_the_curve_of_one(learner, own, game, tmp_path):
    flags = [*SOKOBAN, "--model", game[1], "--env-args", json.dumps(game[0]), "--steps", "3", "--groups", "8"]
    flags += "--group-size 4 --num-envs 16 --max-new-tokens 5 --lr 2e-3 --minibatches 2".split()
    flags += own.format(teacher=before_cloning(game)).split()
    curves = [curve(launch(learner, [*flags, "--out", str(tmp_path / str(n))], n)) for n in (1, 2)]
    for one, two in zip(*curves, strict=True):
        assert one.keys() == two.keys()
        # Padding is each process's own; sums of floats are added in another order.
        for name in one.keys() - {"computed"}:
            assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name


def test_a_process_group_that_was_closed_leaves_no_thread_behind():
    script = """
import pathlib, torch
from memenvs.baselines.processes import ProcessGroup
processes = ProcessGroup("cpu")
import torch.distributed.nn  # as transformers does
assert processes.sum(1.0) == [2.0]
processes.close()
names = [task.joinpath("comm").read_text() for task in pathlib.Path("/proc/self/task").iterdir()]
assert not [name for name in names if "gloo" in name], names
"""
    run_together(script, 2)


class TestArguments:
    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            ("", "no model is given; add --model"),
            ("--model nowhere", "no model 'nowhere'"),
            ("--env-args max_turn=2", "MemSokoban-v0 has no argument 'max_turn'"),
            ("--env-args max_turns=0", "max_turns of MemSokoban-v0 must be a whole number"),
            ("--eval-env-args level_split=tset", "tset"),
            ("--env MemChunkQA-v0 --env-args tasks=nothing", "no task set"),
            ("--env CartPole-v1", "CartPole-v1 has observations that are not texts"),
        ],
    )
    def test_wrong_arguments_are_one_line(self, flags, message, tmp_path, capsys):
        model = "" if message.startswith("no model") else "--model nowhere "
        assert learn(["grpo", *SOKOBAN, *(model + flags).split(), "--out", str(tmp_path / "run")]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
        assert message in line

    def test_arguments_are_names_with_values_or_one_json_object(self):
        flags = ("--env-args", "--eval-env-args", "--vllm")
        plain = [text for flag in flags for text in (flag, "max_turns=2", "level_split=null", "names=a b")]
        packed = ['{"max_turns": 2, "level_split": null, "names": "a b"}']
        args = [
            read_args(grpo.GRPOArgs, [*SOKOBAN, *given], "memenvs train grpo")
            for given in (plain, [text for flag in flags for text in (flag, *packed)])
        ]
        assert args[0] == args[1]
        assert args[0].vllm == {"max_turns": 2, "level_split": None, "names": "a b"}


@pytest.mark.parametrize(
    ("learner", "flags"),
    [
        ("grpo", ()),
        ("mt_ppo", ()),
        ("sft", ("--teacher", "gold")),
        ("distill", ("--view", "student", "--teacher-model", "missing")),
    ],
)
def test_pictures_are_refused_before_a_model_is_looked_for(learner, flags, tmp_path, capsys):
    given = ("--env", "MemSokobanImage-v0", "--model", "missing", "--out", str(tmp_path / "run"), *flags)
    assert learn([learner, *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "MemSokobanImage-v0 has observations that are not texts" in line
