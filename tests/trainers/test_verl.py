"""verl's own worker plays memenvs' environments on a stand-in for its servers."""

import json
import math
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import ray
import torch
import transfer_queue as tq
from families import REQUESTS, WRAPPED
from omegaconf import OmegaConf
from replay import Replay
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer
from verl.trainer.ppo.core_algos import compute_gae_advantage_return
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.router import GlobalRequestLoadBalancer
from verl_stub import BASE, END, FIELDS, SEEDS, TRAIN, Queue, Servers, Worker, batch_of, compose, nats

import memenvs.adapters.verl  # noqa: F401  # registers the estimator
from memenvs.adapters.common import open_env
from memenvs.baselines.advantages import group_advantages, read_comparison
from memenvs.baselines.mt_ppo import token_advantages
from memenvs.core.episode_file import read_episodes
from memenvs.credit import overlong_penalty
from memenvs.models.chat import ChatTokens
from memenvs.rollout.collect import collect
from memenvs.sokoban.environments import SokobanEnv
from memenvs.wrappers.registry import make_methods, make_scorer
from memenvs.wrappers.scorers.protocol import PairScorer

DOCS = Path(__file__).parents[2] / "docs"
UP = "<think></think><answer>Up</answer>"
PROMPT = ContextVar("PROMPT", default="none")  # as verl keeps what it traces
READING = {"env": "MemChunkQA-v0", "settings": {"tasks": "world-test", "chunk_size": 300, "n_documents": 4}}
SEARCH = {"env": "MemSearchQA-v0", "settings": {"tasks": "world-test", "k": 1, "max_turns": 4}}
SOKOBAN = {"env": "MemSokoban-v0", "settings": {"max_turns": 3}}
SCORED = {"methods": ["TAMTRL"], "scorer": "policy", "comparison": {"reward": "tamtrl"}}
TAMTRL = {**READING, **SCORED}


class MadeUpScorer(PairScorer):
    """The scores that the stand-in gives, for our own learner."""

    def logprobs(self, requests):
        found = []
        for prompt, text in self.pairs(requests):
            ids = prompt + text
            found.append(np.array([nats(ids[:i], ids[i]) for i in range(len(prompt), len(ids))]))
        return found


def by_our_learner(tokenizer, entry, seed, replies, overlong=None):
    """The advantages that our own learner gives the sampled tokens of these rollouts of one task."""
    tokens, methods = ChatTokens(tokenizer), make_methods(entry["methods"])
    scorer = make_scorer(MadeUpScorer(tokenizer, None, None), tokens.template)
    policy, settings = Replay(tokens, replies), entry["settings"]
    episodes = collect(entry["env"], policy, [seed], len(replies), methods, scorer, env_args=settings)
    assert len({episode.outcome for episode in episodes}) > 1
    if overlong is not None:
        lengths = [episode.tokens for episode in episodes]
        for episode, penalty in zip(episodes, overlong_penalty(lengths, *overlong), strict=True):
            episode.length_penalty = float(penalty)
    return group_advantages(episodes, policy, *read_comparison(methods=methods, **entry["comparison"]))


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def golds():
    """The right reply to each prompt's question."""
    infos = [open_env(READING["env"], READING["settings"]).reset(seed=seed)[1] for seed in SEEDS.values()]
    return {info["privileged"]["question"]: info["privileged"]["target_wrapped"] for info in infos}


@pytest.fixture
def reader(golds):
    """Writes random memories, then every second time the right answer."""
    rng, answers = random.Random(5), Counter()

    def say(turn, prompt):
        words = " ".join(
            rng.choices("ada moth engine houston compiler london sang".split(), k=rng.randint(1, 9))
        )
        (gold,) = [gold for question, gold in golds.items() if question in prompt]
        if turn < 2:
            return words
        answers[gold] += 1
        return f"{words} {gold if answers[gold] % 2 else 'x'}"

    return say


@pytest.fixture
def searcher():
    """Searches for up to three turns, then answers, every second time rightly."""
    rng, answers = random.Random(5), Counter()
    env = open_env(SEARCH["env"], SEARCH["settings"])
    golds = {
        info["privileged"]["question"]: info["privileged"]["target"]
        for info in (env.reset(seed=seed)[1] for seed in SEEDS.values())
    }

    def say(turn, prompt):
        (question,) = [question for question in golds if question in prompt]
        if turn < 3 and rng.random() < 0.6:
            return f"<think></think><search>{question if rng.random() < 0.5 else 'a town'}</search>"
        answers[question] += 1
        return f"<think></think><answer>{golds[question] if answers[question] % 2 else 'x'}</answer>"

    return say


@pytest.fixture
def make(monkeypatch, tokenizer):
    """A worker and the servers that it asks."""

    def made(say, entry, fail=(), aborts=0, **settings):
        servers = Servers(tokenizer, say, fail, aborts)
        return Worker(monkeypatch, tokenizer, servers, entry, **settings), servers

    return made


def assert_as_our_learner(worker, tokenizer, entry, overlong=None):
    """Every token's advantage is what our own learner gives it on the same episodes."""
    found = worker.advantages()
    for uid, seed in SEEDS.items():
        members = sorted(who for who in found if who[0] == uid and len(found[who]))
        replies = [worker.replies(who) for who in members]
        wanted = by_our_learner(tokenizer, entry, seed, replies, overlong)
        assert max(np.abs(values).max() for values in wanted) > 0.1
        for who, values in zip(members, wanted, strict=True):
            np.testing.assert_allclose(found[who], values, rtol=1e-6, atol=1e-6)


class TestCredit:
    @pytest.mark.parametrize("client", [LLMServerClient, FullyAsyncLLMServerClient])
    @pytest.mark.parametrize(
        ("method", "comparison"),
        [
            ("TAMTRL", {"reward": "tamtrl"}),
            ("InfoMem", {"reward": "infomem"}),
            ("MemPO", {"reward": "mempo"}),
            ("ReMemR1", {"reward": "rememr1", "scale": "none"}),
        ],
    )
    def test_every_token_of_a_reader_has_the_advantage_of_our_learner(
        self, make, tokenizer, reader, method, comparison, client
    ):
        entry = {**READING, "methods": [method], "scorer": "policy", "comparison": comparison}
        worker, _ = make(reader, entry, client=client)
        worker.play()
        assert worker.statuses == ["finished"] * 2
        assert_as_our_learner(worker, tokenizer, entry)

    @pytest.mark.parametrize(
        ("method", "comparison"),
        [
            ("SearchRewards", {"reward": "turn"}),
            ("SearchRewards", {"reward": "turn", "ended": "skip"}),
            ("SearchRewards", {"reward": "turn-pool"}),
            ("GiGPO", {"reward": "gigpo"}),
            ("IGPO", {"reward": "igpo"}),
        ],
    )
    def test_every_token_of_a_searcher_has_the_advantage_of_our_learner(
        self, make, tokenizer, searcher, method, comparison
    ):
        entry = {**SEARCH, "methods": [method], "scorer": "policy", "comparison": comparison}
        worker, _ = make(searcher, entry)
        worker.play()
        assert len({len(worker.replies(who)) for who in worker.rows}) > 1
        assert_as_our_learner(worker, tokenizer, entry)

    def test_continuations_play_on_from_the_states_of_a_group_by_the_same_servers(self, make):
        def say(turn, prompt):  # the three turns of a rollout, then those that are played on from its states
            return "nothing" if turn == 1 else UP

        methods = [["Continuations", {"n": 2}]]
        worker, servers = make(
            say, {**SOKOBAN, "methods": methods, "comparison": {"reward": "continuations"}}
        )
        answer = servers.generate.remote

        async def with_version(*args, **fields):
            output = await answer(*args, **fields)
            # New weights, once the four rollouts have ended.
            version = 7 if len(servers.prompts) <= 4 * 3 else 8
            output.extra_fields |= {"min_global_steps": version, "max_global_steps": version}
            return output

        servers.generate.remote = with_version
        worker.play(seeds={"one": 1})
        assert worker.statuses == ["finished"]
        assert len(servers.prompts) == 4 * 3 + 2 * (3 + 2 + 1)  # two from each state that the rollouts share
        assert {tag["max_global_steps"] for tag in worker.tags} == {7}
        for who, advantages in worker.advantages().items():
            lengths = [len(reply) for reply in worker.replies(who)]
            # A move earns 0.4, so V falls from 1.2 by 0.4 a turn, and the turn without a move lost as much.
            np.testing.assert_allclose(advantages, np.repeat([0, -0.4, 0], lengths), atol=1e-6)

    @pytest.mark.parametrize("env_id", REQUESTS)
    def test_every_token_over_a_compaction_has_the_advantage_of_our_learner(
        self, make, tokenizer, searcher, env_id
    ):
        rng = random.Random(5)

        def say(turn, prompt):
            if prompt.rpartition(END)[0].endswith(("of this conversation.\n", "another time.\n")):
                words = " ".join(rng.choices("ada moth houston compiler london".split(), k=rng.randint(1, 9)))
                return f"<record>{words}</record><select>1</select>"
            return searcher(turn // 2, prompt)

        entry = {"env": env_id, "settings": WRAPPED, **SCORED}
        worker, _ = make(say, entry)
        worker.play()
        assert max(len(rows) for rows in worker.rows.values()) > 1
        assert_as_our_learner(worker, tokenizer, entry)

    def test_long_episodes_are_charged_as_in_our_learner(self, make, tokenizer, reader):
        entry = {**READING, "methods": ["InfoMem"], "scorer": "policy", "comparison": {"reward": "outcome"}}
        worker, _ = make(reader, {**entry, "overlong": [24, 16]})
        worker.play()
        assert_as_our_learner(worker, tokenizer, entry, overlong=(24, 16))

    def test_truncated_replies_are_left_out_of_the_loss(self, make, tokenizer, reader):
        worker, _ = make(reader, {**TAMTRL, "max_new_tokens": 6, "mask_truncated": True})
        worker.play()
        rows = [row for rows in worker.rows.values() for _, row in rows]
        ends = ChatTokens(tokenizer).ends
        for row in rows:
            assert bool(row["response_mask"].any()) == (row["responses"].tolist()[-1] in ends)
        assert 0 < sum(bool(row["response_mask"].any()) for row in rows) < len(rows)

    def test_a_prompt_without_earlier_thoughts_begins_a_row(self, make, tokenizer, searcher):
        def say(turn, prompt):
            return searcher(turn, prompt).replace("<think>", f"<think>thought {turn}")

        entry = {**SEARCH, "methods": ["SearchRewards"], "comparison": {"reward": "turn"}}
        entry["chat"] = {"drop_thoughts": True}
        worker, _ = make(say, entry)
        worker.play()
        assert_as_our_learner(worker, tokenizer, entry)
        assert max(len(rows) for rows in worker.rows.values()) > 1
        for rows in worker.rows.values():
            for turn, (_, row) in enumerate(rows):
                assert f"thought {turn}" in tokenizer.decode(row["responses"])
                assert "thought " not in tokenizer.decode(row["prompts"])

    def test_every_episode_has_as_many_rows_and_those_that_it_lacks_train_nothing(
        self, make, tokenizer, searcher
    ):
        entry = {**SEARCH, "methods": ["SearchRewards"], "comparison": {"reward": "turn"}, "rows": 4}
        entry["settings"] = {**SEARCH["settings"], "memory_mode": "rewrite"}
        worker, _ = make(lambda turn, prompt: "<mem></mem>" + searcher(turn, prompt), entry, fail=(1,))
        worker.play()
        assert {len(rows) for rows in worker.rows.values()} == {4}
        trained = {sum(bool(row["response_mask"].any()) for _, row in rows) for rows in worker.rows.values()}
        assert len(trained) > 1
        assert_as_our_learner(worker, tokenizer, entry)

    def test_groups_without_advantages_are_left_out_of_the_mask(self, make, golds, reader):
        flat = next(iter(golds))

        def say(turn, prompt):
            return reader(turn, prompt) if turn < 2 or flat not in prompt else "x"

        entry = {**READING, "methods": [], "comparison": {"reward": "outcome"}}
        worker, _ = make(say, {**entry, "drop_flat_groups": True})
        worker.play()
        taught = {}
        for (uid, _), rows in worker.rows.items():
            for _, row in rows:
                masked = bool(row["response_mask"].any())
                assert masked == taught.setdefault(uid, masked)
        assert sorted(taught.values()) == [False, *[True] * (len(SEEDS) - 1)]

    def test_a_scorer_by_name_reads_prompts_without_a_chat_template(self, make, reader):
        worker, servers = make(reader, {**TAMTRL, "scorer": "lexical"})
        worker.play()
        assert servers.scored == 0
        assert any(values.any() for values in worker.advantages().values())

    def test_the_requests_of_a_step_are_scored_together(self, make, reader):
        infomem = {"methods": ["InfoMem"], "comparison": {"reward": "infomem"}}
        worker, servers = make(reader, {**TAMTRL, **infomem})
        worker.play()
        assert servers.most_scoring > 1

    def test_scores_that_new_weights_interrupt_are_asked_for_again(self, make, tokenizer, reader):
        worker, _ = make(reader, TAMTRL, aborts=1)
        worker.play()
        assert_as_our_learner(worker, tokenizer, TAMTRL)
        (_, row), *_ = worker.rows["one", 0]
        assert row["extra_fields"]["score_global_steps"] == [7]

    def test_prompts_may_have_other_numbers_of_rollouts(self, make, tokenizer, reader):
        worker, _ = make(reader, TAMTRL)
        run = worker.worker._run_prompt

        async def run_prompt(prompt, *args, **kwargs):
            await run({**prompt, "__rollout_n__": 2 if prompt["uid"] == "one" else 5}, *args, **kwargs)

        worker.worker._run_prompt = run_prompt
        worker.play()
        assert len(worker.rows) == 7
        assert_as_our_learner(worker, tokenizer, TAMTRL)

    def test_the_episodes_are_kept_with_their_advantages_for_the_viewer(self, make, reader, tmp_path):
        path = tmp_path / "episodes.jsonl"
        worker, _ = make(reader, {**TAMTRL, "episodes": str(path)})
        worker.play()
        found, names = worker.advantages(), {seed: uid for uid, seed in SEEDS.items()}
        episodes = read_episodes(path)
        assert len(episodes) == 8
        for episode in episodes:
            own = found[names[episode.seed], episode.member]
            np.testing.assert_allclose(episode.advantages, own, atol=1e-3)
            assert (episode.env, episode.step, episode.phase) == ("MemChunkQA-v0", 8, "train")

    def test_the_servers_are_asked_in_the_context_of_the_prompt(self, make, reader):
        seen = set()
        worker, servers = make(reader, TAMTRL)
        answer = servers.generate.remote

        async def look(**request):
            seen.add(PROMPT.get())
            return await answer(**request)

        async def run_prompt(prompt, *args, **kwargs):
            PROMPT.set(prompt["uid"])
            await run(prompt, *args, **kwargs)

        run, worker.worker._run_prompt, servers.generate.remote = worker.worker._run_prompt, run_prompt, look
        worker.play()
        assert seen == {"one", "two"}


class TestCritic:
    @pytest.mark.parametrize("placement", ["turn", "merged", "outcome"])
    def test_verls_gae_over_our_rewards_is_our_learners(self, make, tokenizer, searcher, placement):
        entry = {**SEARCH, "methods": ["SearchRewards"], "placement": placement}
        worker, _ = make(searcher, entry, overrides=["algorithm.adv_estimator=gae"])
        worker.play()
        members = sorted(worker.rows)  # prompts end in any order
        rows = [row for who in members for _, row in worker.rows[who]]
        mask, rewards = (
            pad_sequence([row[name].float() for row in rows], batch_first=True)
            for name in ("response_mask", "rm_scores")
        )
        values = torch.from_numpy(np.random.default_rng(0).normal(size=mask.shape)).float()
        advantages, returns = compute_gae_advantage_return(rewards, values, mask, 0.99, 0.9)

        tokens, episodes = ChatTokens(tokenizer), []
        for uid, seed in SEEDS.items():
            replies = [worker.replies(who) for who in members if who[0] == uid]
            policy, methods = Replay(tokens, replies), make_methods(entry["methods"])
            settings = entry["settings"]
            episodes += collect(entry["env"], policy, [seed], len(replies), methods, env_args=settings)
        for i, episode in enumerate(episodes):
            (sample,) = episode.samples
            sample.values = values[i][mask[i].bool()].numpy()
        ours = token_advantages(episodes, reward=placement, gamma=0.99, lam=0.9)
        assert len({len(episode.turns) for episode in episodes}) > 1
        for i in range(len(episodes)):
            for found, wanted in zip((advantages, returns), ours, strict=True):
                np.testing.assert_allclose(found[i][mask[i].bool()], wanted[i], rtol=1e-4, atol=1e-5)


class TestFailures:
    @pytest.mark.parametrize("method", ["TAMTRL", "InfoMem"])
    @pytest.mark.parametrize("call", [1, 9, 20])
    def test_the_others_are_compared_without_a_rollout_whose_server_fails(
        self, make, tokenizer, reader, method, call
    ):
        entry = {**TAMTRL, "methods": [method], "comparison": {"reward": method.lower()}}
        worker, _ = make(reader, entry, fail=[call])
        with pytest.warns(UserWarning, match=r"a rollout of seed \d failed: .*the server is down"):
            worker.play()
        assert worker.statuses == ["finished"] * 2
        failed = [
            rows
            for rows in worker.rows.values()
            if rows[-1][1]["extra_fields"]["reward_extra_info"]["failed"]
        ]
        assert len(worker.rows) == 8
        assert len(failed) == 1
        ((_, row),) = failed[0]
        assert (row["response_mask"].tolist(), row["rm_scores"].tolist()) == ([0], [0.0])
        assert_as_our_learner(worker, tokenizer, entry)

    def test_a_request_that_fills_the_servers_window_fails_its_rollout_alone(self, make, reader, golds):
        long = iter([True])

        def say(turn, prompt):
            return "moth " * 400 if turn == 0 and next(long, False) else reader(turn, prompt)

        worker, _ = make(
            say,
            {**TAMTRL, "settings": {**READING["settings"], "max_memory": 500}},
            overrides=["actor_rollout_ref.rollout.max_model_len=600"],
        )
        with pytest.warns(UserWarning, match="failed: .* the model's window is 599"):
            worker.play()
        assert worker.statuses == ["finished"] * 2
        assert sum(len(values) == 0 for values in worker.advantages().values()) == 1

    @pytest.mark.parametrize(
        ("paid", "above"),
        [
            # Groups of three with a length penalty; verl drops a group whose numbers have no deviation.
            ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]),
            ([0.1, 0.1, 0.1], [0.0, 0.0, 0.0]),  # whose deviation in floats is not 0
            ([0.3, 0.1 + 0.2, 1.0], [0.0, 0.0, 1.0]),  # two are equal but for rounding
            ([1.0, 1.0, math.nan], [0.0, 0.0, 0.0]),  # the third has failed
        ],
    )
    def test_verl_can_filter_groups_by_their_outcomes_alone(self, make, paid, above, monkeypatch):
        outcomes, turns, play = iter(paid), Counter(), SokobanEnv._play

        def pay(self, reply):
            turns[id(self)] += 1
            outcome = next(outcomes) if turns[id(self)] == 3 else 0.0  # at the last turn
            return {**play(self, reply), "outcome": outcome}

        monkeypatch.setattr(SokobanEnv, "_play", pay)
        worker, _ = make(
            lambda turn, prompt: UP, {**SOKOBAN, "comparison": {"reward": "merged"}, "overlong": [9, 9]}, n=3
        )
        worker.play(seeds={"one": 1})
        infos = [row["extra_fields"]["reward_extra_info"] for rows in worker.rows.values() for _, row in rows]
        assert sorted(info["above_worst"] for info in infos) == above

    def test_a_group_of_failed_rollouts_is_returned(self, make, reader):
        worker, _ = make(reader, TAMTRL, fail=range(99))
        with pytest.warns(UserWarning, match="failed"):
            worker.play()
        assert worker.statuses == ["finished"] * 2
        assert all(isinstance(tag["min_global_steps"], int) for tag in worker.tags)

    def test_a_wrong_setting_fails_every_rollout(self, make, reader):
        worker, _ = make(reader, {**TAMTRL, "settings": {"no_such": 1}})
        worker.play()
        assert worker.statuses == ["failure"] * 2
        assert not worker.rows

    @pytest.mark.parametrize(
        ("overrides", "entry"),
        [
            (["algorithm.adv_estimator=grpo"], TAMTRL),
            ([], READING),
            (["algorithm.use_kl_in_reward=True"], TAMTRL),
            (["algorithm.filter_groups.enable=True"], TAMTRL),
            (["actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"], TAMTRL),
        ],
    )
    def test_a_configuration_that_would_change_the_credit_is_refused(self, make, reader, overrides, entry):
        worker, servers = make(reader, entry, overrides=overrides)
        worker.play()
        assert worker.statuses == ["failure"] * 2
        assert not servers.prompts

    @pytest.mark.parametrize("info", [{}, {"seed": None, **TRAIN}])
    def test_a_row_without_a_seed_and_a_split_is_refused(self, make, reader, info):
        worker, servers = make(reader, TAMTRL)
        worker.play(info)
        assert worker.statuses == ["failure"] * 2
        assert not servers.prompts

    def test_a_row_names_a_task_by_its_number(self, make, tmp_path):
        file = tmp_path / "episodes.jsonl"
        worker, _ = make(lambda turn, prompt: "a memory", {**TAMTRL, "episodes": str(file)})
        worker.play({**TRAIN, "task": 5})
        assert worker.statuses == ["finished"] * 2
        assert {json.loads(line)["number"] for line in file.read_text().splitlines()} == {5}


class TestRows:
    def play(self, make, say, entry, **settings):
        """The rows of one rollout whose turns are paid as verl's own estimators read them."""
        replies = say if callable(say) else lambda turn, prompt: say[turn]
        overrides = ["algorithm.adv_estimator=gae", *settings.pop("overrides", [])]
        worker, servers = make(replies, entry, overrides=overrides, n=1, **settings)
        worker.play(seeds={"one": 1})
        assert worker.statuses == ["finished"]
        return [row for _, row in worker.rows["one", 0]], servers

    def texts(self, tokenizer, row):
        runs = np.split(row["responses"].numpy(), np.flatnonzero(np.diff(row["response_mask"].numpy())) + 1)
        return [tokenizer.decode(run) for run in runs[:: 2 if row["response_mask"][0] else 1]]

    def test_an_episode_that_appends_is_one_row_paid_at_the_ends_of_its_turns(self, make, tokenizer):
        (row,), _ = self.play(make, [UP] * 3, SOKOBAN)
        assert self.texts(tokenizer, row) == [UP + END] * 3
        ends = np.flatnonzero(np.diff(row["response_mask"].numpy(), append=0) < 0)
        # +0.5 for the form of the reply and -0.1 for a step into nothing.
        wanted = np.zeros(len(row["rm_scores"]))
        wanted[ends] = 0.4
        np.testing.assert_allclose(row["rm_scores"], wanted, atol=1e-6)
        assert row["extra_fields"]["reward_extra_info"]["return"] == pytest.approx(1.2)
        assert row["extra_fields"]["reward_extra_info"]["format"] == 1.0
        assert "The board is now" in tokenizer.decode(row["responses"])

    def test_an_episode_that_rewrites_is_a_row_a_turn(self, make, tokenizer):
        rows, _ = self.play(make, ["memory one", "memory two", r"\boxed{x}"], READING)
        assert [tokenizer.decode(row["responses"]) for row in rows] == [
            "memory one" + END,
            "memory two" + END,
            r"\boxed{x}" + END,
        ]
        prompts = [tokenizer.decode(row["prompts"]) for row in rows]
        assert "memory one" in prompts[1]
        assert "memory one" not in prompts[2]

    @pytest.mark.parametrize("env_id", REQUESTS)
    def test_a_row_ends_with_the_memory_that_begins_the_next_one(self, make, tokenizer, env_id):
        request, memory, shown = REQUESTS[env_id]
        search, answer = "<think></think><search>town</search>", "<think></think><answer>x</answer>"
        # a token for each character, as the tokenizer would not encode the text
        replies = [
            [token for part in (*text, END) for token in tokenizer.encode(part)]
            for text in (search, memory, answer)
        ]
        first, second = self.play(make, replies, {"env": env_id, "settings": WRAPPED})[0]
        sampled = [row["responses"][row["response_mask"].bool()].tolist() for row in (first, second)]
        assert sampled == [replies[0] + replies[1], replies[2]]
        assert request in tokenizer.decode(first["responses"])
        prompt = tokenizer.decode(second["prompts"])
        assert shown in prompt
        assert search not in prompt

    def test_reward_methods_pay_turns(self, make):
        entry = {**SEARCH, "methods": ["SearchRewards"]}
        replies = ["<think></think><search>nobody</search>", "<answer>x</answer>"]
        (row,), _ = self.play(make, replies, entry)
        # 0.1 for form - 0.1 for the first search, then -1 for an answer in another form.
        assert row["rm_scores"].sum() == pytest.approx(-1.0)
        assert row["rm_scores"][-1] == pytest.approx(-1.0)

    def test_sampled_tokens_keep_the_servers_log_probabilities(self, make):
        (row,), _ = self.play(make, [UP] * 3, SOKOBAN)
        assert row["rollout_log_probs"].tolist() == [-0.5 * own for own in row["response_mask"].tolist()]

    def test_a_row_that_is_full_goes_on_in_silence(self, make, tokenizer):
        limit = ["actor_rollout_ref.rollout.response_length=60"]
        (row,), servers = self.play(make, [UP] * 3, SOKOBAN, overrides=limit)
        assert len(servers.prompts) == 1  # a board takes more than is left
        assert self.texts(tokenizer, row) == [UP + END]
        assert row["rm_scores"].sum() == pytest.approx(0.4)  # silence costs and earns nothing

    def test_a_prompt_that_is_too_long_gives_a_row_that_trains_nothing(self, make):
        limit = ["actor_rollout_ref.rollout.prompt_length=20"]
        (row,), _ = self.play(make, [], SOKOBAN, overrides=limit)
        assert (row["response_mask"].tolist(), row["rm_scores"].tolist()) == ([0], [0.0])

    def test_one_long_prompt_silences_its_own_turn_alone(self, make):
        # Each turn has a fresh prompt; the first chunk is the longest, the question at the end the shortest.
        whole, _ = self.play(make, ["a memory"] * 9, READING)
        lengths = [len(row["prompts"]) for row in whole]
        limit = [f"actor_rollout_ref.rollout.prompt_length={max(lengths) - 1}"]
        cut, _ = self.play(make, ["a memory"] * 9, READING, overrides=limit)
        assert lengths.count(max(lengths)) == 1
        assert len(cut) == len(whole) - 1
        assert all(row["response_mask"].any() for row in cut)

    def test_arguments_of_the_chat_template_reach_the_prompt(self, make, tokenizer, monkeypatch):
        switch = (
            "{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking -%}"
            "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}"
        )
        monkeypatch.setattr(tokenizer, "chat_template", tokenizer.chat_template + switch)
        _, servers = self.play(
            make, [UP] * 3, SOKOBAN, overrides=["+data.apply_chat_template_kwargs.enable_thinking=False"]
        )
        assert len(servers.prompts) == 3
        assert all(prompt.endswith("assistant\n<think>\n\n</think>\n\n") for prompt in servers.prompts)

    def test_validation_is_scored_by_the_environment_alone(self, make, reader):
        worker, servers = make(reader, TAMTRL)
        worker.play({"split": "test"})
        assert servers.scored == 0
        scores, infos = self.validated(worker)
        assert scores == [info["success"] for info in infos]
        assert sorted(scores) == [0.0] * 4 + [1.0] * 4

    def validated(self, worker):
        """The score and the metrics of each rollout, from its last row, as verl's `_validate` reads them."""
        last = [rows[-1][1] for rows in worker.rows.values()]
        scores = [float(row["rm_scores"].sum()) for row in last]
        return scores, [row["extra_fields"]["reward_extra_info"] for row in last]

    def test_validation_scores_the_turns_of_all_rows(self, make):
        # Each prompt leaves out the thought before it, so each of the three turns has a row.
        entry = {**SOKOBAN, "comparison": {"reward": "merged"}, "chat": {"drop_thoughts": True}}
        worker, _ = make(lambda turn, prompt: UP, entry)
        worker.play({"split": "test"}, seeds={"one": 1})
        assert {len(rows) for rows in worker.rows.values()} == {3}
        scores, infos = self.validated(worker)
        assert scores == pytest.approx([3 * 0.4] * 4)
        assert [info["return"] for info in infos] == pytest.approx([3 * 0.4] * 4)

    def test_validation_scores_an_episode_whose_prompts_are_too_long(self, make):
        entry = {"env": "MemSokoban-v0", "settings": {"max_turns": 3, "rewards": "bounded"}}
        limit = ["actor_rollout_ref.rollout.prompt_length=20"]
        worker, _ = make(None, {**entry, "comparison": {"reward": "merged"}}, overrides=limit)
        worker.play({"split": "test"}, seeds={"one": 1})
        assert self.validated(worker)[0] == [3 * -0.5] * 4  # for replies that are not well formed

    @pytest.mark.filterwarnings("ignore:a rollout of seed 1 failed")
    def test_a_rollout_that_is_paid_nan_has_a_return_of_zero(self, make, monkeypatch):
        play = SokobanEnv._play
        monkeypatch.setattr(SokobanEnv, "_play", lambda env, reply: {**play(env, reply), "outcome": math.nan})
        worker, _ = make(lambda turn, prompt: UP, {**SOKOBAN, "comparison": {"reward": "merged"}})
        worker.play({"split": "test"}, seeds={"one": 1})
        scores, infos = self.validated(worker)
        assert scores == [info["return"] for info in infos] == [0.0] * 4
        assert [info["failed"] for info in infos] == [1.0] * 4


class TestPages:
    """The run of the page, as far as a machine without GPUs can follow them."""

    VERL = (DOCS / "trainers" / "verl.md").read_text()

    def fenced(self, page, language):
        return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)

    def settings(self):
        """The settings of the run that the page starts."""
        lines = "\n".join(self.fenced(self.VERL, "sh")).replace("\\\n", " ").splitlines()
        (words,) = [
            shlex.split(line)[3:] for line in lines if line.startswith("python -m verl.trainer.main_ppo")
        ]
        return words

    def test_verl_accepts_the_command(self):
        config = compose(self.settings())
        validate_config(config, need_reference_policy(config), need_critic(config))
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)

    def test_the_loop_plays_under_the_command(self, make, reader):
        worker, _ = make(reader, TAMTRL, overrides=self.settings())
        worker.play()
        assert worker.statuses == ["finished"] * 2

    def test_the_data_and_the_loops_play_an_episode(self, make, tokenizer, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (code,), (loops,) = self.fenced(self.VERL, "py"), self.fenced(self.VERL, "yaml")
        exec(compile(code, "recipe", "exec"), {})
        Path("loops.yaml").write_text(loops)
        options = {"prompt_key": "prompt", "filter_overlong_prompts": False, "cache_dir": str(tmp_path)}
        for split, entry in zip(("train", "test"), OmegaConf.load("loops.yaml"), strict=True):
            row = RLHFDataset(f"{split}.parquet", tokenizer, OmegaConf.create(options))[7]
            assert row["agent_name"] == entry.name
            worker, servers = make(lambda turn, prompt: "a memory", entry)
            worker.play(row["extra_info"])
            assert worker.statuses == ["finished"] * 2
            assert bool(servers.scored) == (split == "train")

    def test_the_estimator_is_known_where_verl_loads_external_modules(self):
        code = "import verl.trainer.ppo.core_algos as c; c.get_adv_estimator_fn('memenvs_as_paid')"
        env = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "memenvs.adapters.verl"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]


@ray.remote
class Replica:
    """An actor in place of verl's vLLM server."""

    def __init__(self, model, say):
        self.servers = Servers(AutoTokenizer.from_pretrained(model), say)

    async def generate(self, **request):
        return await self.servers.answer(**request)


def test_verls_actor_router_and_queue_carry_the_credit(tiny_model, tokenizer, reader, tmp_path):
    entry = {"name": "memenvs", "_target_": "memenvs.adapters.verl.EpisodeLoop", **TAMTRL}
    OmegaConf.save([entry], tmp_path / "loops.yaml")
    agent = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={tmp_path}/loops.yaml"
    model = f"actor_rollout_ref.model.path={tiny_model}"
    config = compose([*BASE, "actor_rollout_ref.rollout.n=4", agent, model, "transfer_queue.enable=True"])
    config.actor_rollout_ref.rollout.full_determinism = True
    places = (Path(__file__).parent, DOCS.parent / "tests" / "support", DOCS.parent)
    paths = os.pathsep.join(map(str, places))
    env = {"VERL_USE_EXTERNAL_MODULES": "memenvs.adapters.verl", "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    ray.init("local", num_cpus=16, include_dashboard=False, runtime_env={"env_vars": env})
    try:
        tq.init(config.transfer_queue)
        servers = {"server": Replica.remote(str(tiny_model), reader)}
        router = ray.remote(GlobalRequestLoadBalancer).remote(servers=servers)
        client = LLMServerClient(config, load_balancer_handle=router)
        worker = agent_loop_tq.AgentLoopWorkerTQ.remote(config, client)
        ray.get(worker.generate_sequences.remote(batch_of(SEEDS, TRAIN)))
        found, end = {}, time.monotonic() + 120
        while {found.get(uid, {}).get("status") for uid in SEEDS} != {"finished"}:
            assert time.monotonic() < end, found
            time.sleep(0.2)
            found = (tq.kv_list() or {}).get("train", {})
        keys = sorted(key for key in found if key not in SEEDS)
        queue = Queue()
        queue.add(keys, tq.kv_batch_get(keys=keys, partition_id="train", select_fields=list(FIELDS)))
        assert len(queue.rows) == 8
        assert_as_our_learner(queue, tokenizer, TAMTRL)
    finally:
        tq.close()
        ray.shutdown()
