"""Distillation: what the teacher reads, what is compared, and what is refused."""

import json
import math
import shutil
from typing import get_args

import gymnasium as gym
import numpy as np
import pytest
from made_episodes import before
from model_families import save_model_of_states
from tiny_model import save_tiny_model

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

import torch

from memenvs.baselines import distill, losses
from memenvs.baselines.args import Divergence
from memenvs.baselines.flags import main as learn
from memenvs.core.episode import Episode, Reply, Sample, Turn, valid
from memenvs.models import HFPolicy, SamplingParams

READING = {"tasks": "world-test", "chunk_size": 150, "n_documents": 4, "max_memory": 12, "max_answer": 12}
WARM = SamplingParams(temperature=0.7)


def arguments(tiny_model, out, **options):
    shared = {"groups": 2, "num_envs": 4, "max_new_tokens": 8, "lr": 1e-3, "steps": 1}
    env = {"env": "MemChunkQA-v0", "env_args": READING}
    return distill.DistillArgs(**{"model": str(tiny_model), "out": out, **shared, **env, **options})


def train(args):
    training = distill.prepare(args)
    distill.train(training, args)
    return training, [json.loads(line) for line in (args.out / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another model of the same vocabulary."""
    return str(save_tiny_model(tmp_path_factory.mktemp("other") / "model", seed=1))


@pytest.fixture(scope="module")
def policies(tiny_model, other):
    return [HFPolicy(model, device="cpu", sampling_params=WARM) for model in (tiny_model, other)]


def sequences(*lengths):
    """Sequences behind prompts of so many tokens, six response tokens each."""
    draws = np.random.default_rng(0)
    replies = [draws.integers(300, 900, 6) for _ in lengths]
    prompts = [np.random.default_rng(n).integers(300, 900, n) for n in lengths]
    ids = [np.concatenate(pair) for pair in zip(prompts, replies, strict=True)]
    return ids, [np.arange(len(one)) >= n for one, n in zip(ids, lengths, strict=True)]


def plain_distributions(policy, ids, masks):
    """Log-probabilities (N, V) by their definition: each sequence alone, all its logits."""
    found = []
    for one, mask in zip(ids, masks, strict=True):
        logits = policy.model(torch.from_numpy(one)[None]).logits[0]
        found.append((logits[np.flatnonzero(mask) - 1] / policy.sampling_params.temperature).log_softmax(-1))
    return torch.cat(found)


class TestComparison:
    @pytest.mark.parametrize("kind", get_args(Divergence))
    @pytest.mark.parametrize("rows", [1000, 5], ids=["one slice", "slices"])
    def test_values_and_gradients_are_those_of_whole_logits(self, kind, rows, policies, monkeypatch):
        student, teacher = policies
        vocabulary = student.model.get_output_embeddings().weight.shape[0]
        monkeypatch.setattr("memenvs.models.reader.LOGITS", rows * 2 * vocabulary)
        ids, masks = sequences(9, 14, 9)
        read, read_masks = sequences(12, 20, 15)  # the same replies behind other prompts
        with torch.no_grad():
            states = teacher.states(read, read_masks)
            target = plain_distributions(teacher, read, read_masks)
        found, gradients = [], []
        for value in (
            student.compare(ids, masks, teacher, states, lambda q, p: losses.divergence(q, p, kind)),
            losses.divergence(plain_distributions(student, ids, masks), target, kind),
        ):
            student.model.zero_grad()
            (value * torch.arange(1.0, 19.0)).sum().backward()
            gradients.append([weight.grad.clone() for weight in student.model_parameters()])
            found.append(value.detach())
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        assert float(found[0].min()) > 0.01
        for one, other in zip(*gradients, strict=True):
            scale = max(1.0, float(other.abs().max()))
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * scale)
        assert all(weight.grad is None for weight in teacher.model_parameters())

    def test_logits_beyond_the_smaller_vocabulary_are_left_out(self, policies, tmp_path):
        student, teacher = policies
        wider = HFPolicy(save_tiny_model(tmp_path / "wider", seed=1), device="cpu", sampling_params=WARM)
        wider.model.resize_token_embeddings(len(teacher.tokenizer) + 64, mean_resizing=False)
        wider = HFPolicy(wider.model, wider.tokenizer, sampling_params=WARM)
        ids, masks = sequences(9, 14)
        with torch.no_grad():
            one, same = (
                student.compare(ids, masks, other, other.states(ids, masks), losses.divergence)
                for other in (teacher, wider)
            )
        torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def played(tiny_model, tmp_path_factory):
    """The runs by view, each with its episodes."""
    runs = {}
    for view in ("local", "global"):
        args = arguments(tiny_model, tmp_path_factory.mktemp(view), view=view, save_episodes=2)
        runs[view] = distill.prepare(args)
    return {view: (run, valid(run.rollouts(1))) for view, run in runs.items()}


class TestPrompts:
    @pytest.mark.parametrize("view", ["local", "global"])
    def test_the_teacher_reads_its_prompt_and_the_very_tokens_of_the_reply(self, view, played):
        run, episodes = played[view]
        env = gym.make("MemChunkQA-v0", **READING)
        assert len(episodes) == 2
        for episode in episodes:
            observation, info = env.reset(seed=episode.seed, options={"task": episode.number})
            for number, sample in enumerate(episode.samples):
                (one,) = sample.teacher
                text = info["privileged"]["teacher_prompt" if view == "local" else "teacher_prompt_global"]
                prompt, reply = run.policy.encode(text), episode.replies[number]
                np.testing.assert_array_equal(one.ids, [*prompt, *reply.ids])
                np.testing.assert_array_equal(one.response_mask, np.arange(len(one.ids)) >= len(prompt))
                np.testing.assert_array_equal(sample.ids[: -len(reply.ids)], run.policy.encode(observation))
                observation, *_, info = env.step(reply.text)

    def test_in_a_growing_context_each_turn_has_a_sequence_of_the_teachers(self, tiny_model, tmp_path):
        search = {"tasks": "world-test", "max_turns": 2, "k": 1, "max_information": 60}
        args = arguments(tiny_model, tmp_path / "run", env="MemSearchQA-v0", env_args=search)
        run = distill.prepare(args)
        for episode in valid(run.rollouts(1)):
            (sample,) = episode.samples
            assert len(sample.teacher) == len(episode.replies) > 1
            theirs = np.concatenate([one.ids[one.response_mask] for one in sample.teacher])
            np.testing.assert_array_equal(theirs, sample.ids[sample.response_mask])

    def test_a_teacher_can_read_what_the_student_reads(self, tiny_model, other, tmp_path):
        run = distill.prepare(
            arguments(tiny_model, tmp_path / "run", view="student", teacher_model=other, env_args=READING)
        )
        for episode in valid(run.rollouts(1)):
            for sample in episode.samples:
                (one,) = sample.teacher
                np.testing.assert_array_equal(one.ids, sample.ids)

    def test_a_turn_that_the_teacher_cannot_read_is_left_out_and_counted(self, played):
        run, episodes = played["local"]
        episode = episodes[0]
        lengths = [len(sample.teacher[0].ids) for sample in episode.samples]
        assert len(set(lengths)) > 1
        before, run.teacher.window = run.teacher.window, max(lengths) - 1
        try:
            run.read(episode)
            lessons, missing = distill.to_lessons([episode])
        finally:
            run.teacher.window = before
            run.read(episode)
        assert missing == lengths.count(max(lengths))
        assert len(lessons) == len(lengths) - missing

    def test_of_a_growing_context_the_turns_that_the_teacher_can_read_are_learned_from(self):
        ids = np.arange(9)
        replies = [
            Reply("", ids[2:4], np.zeros(2), read=ids[:2]),
            Reply("", ids[6:], np.zeros(3), read=ids[4:6]),
        ]
        episode = Episode(group=7, turns=[Turn("", before(k), own, {}) for k, own in enumerate(replies)])
        episode.samples[0].teacher = (Sample.of((np.arange(3), None, -1), (ids[6:], np.zeros(3), 1)),)
        (lesson,), missing = distill.to_lessons([episode])
        assert (lesson.group, missing) == (7, 1)
        np.testing.assert_array_equal(np.flatnonzero(lesson.response_mask), [6, 7, 8])


class TestTraining:
    def test_the_divergence_falls_and_the_teacher_stays_the_model_as_it_began(self, tiny_model, tmp_path):
        reading = {**READING, "chunk_size": 400}  # few turns
        options = {"steps": 6, "groups": 4, "lr": 3e-3, "env_args": reading}
        training, lines = train(arguments(tiny_model, tmp_path / "run", **options))
        assert all(math.isfinite(line["grad_norm"]) for line in lines)
        divergences = [line["divergence"] for line in lines]
        assert sum(divergences[3:]) < sum(divergences[:3])
        began = HFPolicy(tiny_model, device="cpu")
        for one, same in zip(training.teacher.parameters(), began.parameters(), strict=True):
            assert torch.equal(one, same)
        assert not all(map(torch.equal, training.policy.parameters(), began.parameters()))

    def test_beside_an_adapter_the_teacher_has_the_same_weights_and_the_adapter_as_it_began(
        self, tiny_model, tmp_path
    ):
        first, _ = train(arguments(tiny_model, tmp_path / "one", lora_rank=2, lr=1e-2))
        assert first.teacher.adapter_of is None
        shared = dict(first.teacher.model.named_parameters())
        own = dict(first.policy.model.named_parameters())
        assert all(weight is own.get(name, own.get(plain(name))) for name, weight in shared.items())
        adapter = tmp_path / "one" / "last" / "policy"
        second = distill.prepare(arguments(adapter, tmp_path / "two", lr=1e-2))
        began = [weight.clone() for weight in second.teacher.model.parameters()]
        distill.train(second, second.args)
        assert all(map(torch.equal, second.teacher.model.parameters(), began))
        assert second.teacher.adapter_of is not None

    def test_micro_batches_change_nothing_but_memory(self, tiny_model, tmp_path):
        options = {"loss_agg_mode": "seq-mean-token-mean"}
        (_, (whole,)), (_, (cut,)) = (
            train(arguments(tiny_model, tmp_path / str(budget), micro_batch_tokens=budget, **options))
            for budget in (100_000, 1)
        )
        for name in ("divergence", "grad_norm"):
            assert cut[name] == pytest.approx(whole[name], rel=1e-4)

    def test_a_student_that_cannot_sample_learns_from_the_teachers_rollouts(self, tiny_model, tmp_path):
        model = save_model_of_states(tmp_path / "model", tiny_model)
        options = {"view": "student", "teacher_model": str(tiny_model)}
        args = arguments(model, tmp_path / "run", rollouts="teacher", **options)
        _, (row,) = train(args)
        assert row["grad_norm"] > 0
        for refused in (
            arguments(model, tmp_path / "other", **options),
            arguments(
                tiny_model, tmp_path / "x", rollouts="teacher", view="student", teacher_model=str(model)
            ),
        ):
            with pytest.raises(ValueError, match="HFPolicy cannot sample"):
                distill.prepare(refused)

    def test_rollouts_can_be_the_teachers(self, tiny_model, other, tmp_path):
        options = {"rollouts": "teacher", "view": "student", "teacher_model": other}
        run = distill.prepare(arguments(tiny_model, tmp_path / "run", **options))
        theirs = distill.prepare(arguments(other, tmp_path / "theirs"))
        played = theirs.rollouts(1)
        seeds, tasks = [episode.group for episode in played], [episode.number for episode in played]
        replies, wanted, own = (
            [reply.text for episode in episodes for reply in episode.replies]
            for episodes in (run.rollouts(1), played, run.play(run.make_loop(run.make_env), seeds, tasks, 1))
        )
        assert replies == wanted != own


def plain(name):
    """The name of a weight inside a layer that has an adapter."""
    layer, _, weight = name.rpartition(".")
    return f"{layer}.base_layer.{weight}"


class TestRefusals:
    def refusal(self, tiny_model, tmp_path, capsys, *flags):
        given = ["--model", str(tiny_model), "--env", "MemChunkQA-v0"]
        assert learn(["distill", *given, "--out", str(tmp_path / "run"), *flags]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
        return line

    @pytest.mark.parametrize("larger", ["student", "teacher"])
    def test_either_model_may_have_more_rows_than_there_are_tokens(self, larger, tiny_model, tmp_path):
        padded = str(save_tiny_model(tmp_path / "padded", spare_rows=4096))
        models = {"model": padded, "teacher_model": str(tiny_model)}
        if larger == "teacher":
            models = {"model": str(tiny_model), "teacher_model": padded, "rollouts": "teacher"}
        args = arguments(models.pop("model"), tmp_path / "run", view="student", **models)
        _, (line,) = train(args)
        assert line["failed"] == 0
        assert math.isfinite(line["divergence"])
        assert line["divergence"] > 0

    def test_a_teacher_of_another_vocabulary_is_one_line(self, tiny_model, tmp_path, capsys):
        folder = tmp_path / "foreign"
        shutil.copytree(tiny_model, folder)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        vocabulary = tokenizer["model"]["vocab"]
        one, two = list(vocabulary)[300:302]
        vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        line = self.refusal(tiny_model, tmp_path, capsys, "--teacher-model", str(folder))
        assert f"teacher_model '{folder}' has " in line
        assert "alone; give a teacher with the same vocabulary" in line

    def test_an_environment_without_a_teacher_prompt_is_one_line(
        self, tiny_model, tmp_path, capsys, monkeypatch
    ):
        from memenvs.envs.chunk_qa import ChunkQAEnv

        told = ChunkQAEnv._privileged

        def without(env):
            return {key: value for key, value in told(env).items() if not key.startswith("teacher_prompt")}

        monkeypatch.setattr(ChunkQAEnv, "_privileged", without)
        line = self.refusal(tiny_model, tmp_path, capsys)
        assert (
            "MemChunkQA-v0 has no privileged teacher_prompt, which the teacher reads with view local" in line
        )
