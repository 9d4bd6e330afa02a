"""verl's loop plays memenvs' environments on a stand-in for its server; verl's own code takes the rows."""

import asyncio
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import hydra
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.protocol import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.replica import TokenOutput

from memenvs.adapters.verl import by_run

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("trainers*.md"))
PAGE = next(page for page in PAGES if "\n## verl\n" in page.read_text())
UP = "<think></think><answer>Up</answer>"
END = "<|im_end|>"
READING = {"tasks": "world-test", "chunk_size": 300, "n_documents": 4}  # three turns an episode
TARGET = "memenvs.adapters.verl.EpisodeLoop"


class Server:
    """Says one text after another, in place of verl's client of its inference servers."""

    def __init__(self, tokenizer, replies):
        self.tokenizer, self.replies, self.asked = tokenizer, list(replies), []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        ids = self.tokenizer.encode(self.replies[len(self.asked)] + END)[: sampling_params["max_tokens"]]
        self.asked.append((prompt_ids, sampling_params))
        version = {"min_global_steps": len(self.asked), "max_global_steps": len(self.asked)}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields=version)


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def loop(tokenizer):
    """A loop as verl's worker makes it: by Hydra, from an entry of its YAML file."""

    def made(replies, prompt_length=800, response_length=800, data=None, **entry):
        limits = {"prompt_length": prompt_length, "response_length": response_length}
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": limits}, "data": data or {}})
        return hydra.utils.instantiate(
            config=OmegaConf.create({"name": "memenvs", "_target_": TARGET, **entry}),
            trainer_config=DictConfigWrap(config),
            server_manager=Server(tokenizer, replies),
            tokenizer=tokenizer,
            processor=None,
            hf_model_type="qwen3",
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap([]),
        )

    return made


def test_arguments_of_the_chat_template_reach_the_prompt(loop, tokenizer, monkeypatch):
    switch = (
        "{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking -%}"
        "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}"
    )
    monkeypatch.setattr(tokenizer, "chat_template", tokenizer.chat_template + switch)
    data = {"apply_chat_template_kwargs": {"enable_thinking": False}}
    made = loop([UP] * 3, data=data, env="MemSokoban-v0", settings={"max_turns": 3})
    play(made)
    asked = [tokenizer.decode(prompt) for prompt, _ in made.server_manager.asked]
    assert len(asked) == 3
    assert all(prompt.endswith("assistant\n<think>\n\n</think>\n\n") for prompt in asked)


def play(loop, seed=1):
    return asyncio.run(loop.run({"temperature": 1.0}, raw_prompt=[], extra_info={"seed": seed}))


def runs(tokenizer, row):
    """The text of each run of written tokens, and what each token of the row was paid."""
    mask = np.array(row.response_mask)
    edges = np.flatnonzero(np.diff(mask, prepend=0, append=0))
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    return [tokenizer.decode(row.response_ids[a:b]) for a, b in spans], [int(b) - 1 for _, b in spans]


def take(monkeypatch, outputs, uid="task"):
    """The rows of rollouts of one task as verl's V1 worker puts them into its queue, with their keys."""
    worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    this = object.__new__(worker)
    this.reward_loop_worker_handles, this.distillation_enabled, this.processor = None, False, None
    this.mm_processor_kwargs, keys, rows, tags = {}, [], [], []

    async def put(keys, fields, tags, partition_id):
        stored.append((keys, fields, tags))

    stored = []
    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", put)
    for session, output in enumerate(outputs):
        given = {"uid": uid, "session_id": session, "global_steps": 1, "raw_prompt": []}
        asyncio.run(this._agent_loop_postprocess(output, False, **given))
    for some, fields, told in stored:
        keys, tags = keys + list(some), tags + told
        rows += [{name: fields[name][i] for name in ("response_mask", "rm_scores")} for i in range(len(some))]
    return keys, rows, tags


def advantages(keys, rows, estimator):
    """(B, T) as verl's V1 trainer computes them."""
    padded = list_of_dict_to_tensordict(rows).to_padded_tensor(0.0)
    data = DataProto(batch=padded)
    data.batch["token_level_rewards"] = data.batch["rm_scores"]
    data.non_tensor_batch["uid"] = np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object)
    return compute_advantage_for_multi_trajectories(data, batch_keys=keys, adv_estimator=estimator).batch


class TestLoop:
    def test_an_episode_that_appends_is_one_row_paid_at_the_ends_of_its_turns(self, loop, tokenizer):
        row = play(loop([UP] * 3, env="MemSokoban-v0"))
        texts, ends = runs(tokenizer, row)
        assert texts == [UP + END] * 3
        # +0.5 for the form of the reply and -0.1 for a step into nothing.
        assert {i: score for i, score in enumerate(row.token_scores) if score} == pytest.approx(
            dict.fromkeys(ends, 0.4)
        )
        assert row.reward_score == pytest.approx(1.2)
        assert "The board is now" in tokenizer.decode(row.response_ids)
        assert row.extra_fields["reward_extra_info"]["format"] == 1.0

    def test_an_episode_that_rewrites_is_a_row_a_turn(self, loop, tokenizer):
        rows = play(loop(["memory one", "memory two", r"\boxed{x}"], env="MemChunkQA-v0", settings=READING))
        assert [runs(tokenizer, row)[0] for row in rows] == [
            ["memory one" + END],
            ["memory two" + END],
            [r"\boxed{x}" + END],
        ]
        prompts = [tokenizer.decode(row.prompt_ids) for row in rows]
        assert "memory one" in prompts[1]
        assert "memory one" not in prompts[2]

    def test_reward_methods_pay_turns(self, loop):
        entry = {
            "env": "MemSearchQA-v0",
            "settings": {"tasks": "world-test", "max_information": 40},
            "methods": ["SearchRewards"],
        }
        row = play(loop(["<think></think><search>nobody</search>", "<answer>x</answer>"], **entry))
        # 0.1 for form - 0.1 for the first search, then -1 for an answer in another form.
        assert row.reward_score == pytest.approx(-1.0)
        assert row.token_scores[-1] == pytest.approx(-1.0)

    def test_methods_that_compare_a_group_are_named_in_one_warning(self, loop):
        replies = ["memory one", "memory two", r"\boxed{x}"]
        entry = {"env": "MemChunkQA-v0", "settings": READING, "scorer": "lexical"}
        with pytest.warns(UserWarning, match="single episode instead: tamtrl, infomem "):
            play(loop(replies, **entry, methods=["TAMTRL", "ReMemR1", "InfoMem"]))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="verl plays each rollout")
            play(loop(replies, **entry, methods=["TAMTRL", "ReMemR1", "InfoMem"]))
            play(loop(replies, **entry, methods=["ReMemR1"]))

    def test_what_the_server_said_is_kept_with_its_log_probabilities(self, loop):
        row = play(loop([UP] * 3, env="MemSokoban-v0"))
        said = {(own, chance) for own, chance in zip(row.response_mask, row.response_logprobs, strict=True)}
        assert said == {(1, -0.5), (0, 0.0)}
        assert (row.extra_fields["min_global_steps"], row.extra_fields["max_global_steps"]) == (1, 3)

    def test_a_row_that_is_full_goes_on_in_silence(self, loop, tokenizer):
        made = loop([UP] * 3, env="MemSokoban-v0", response_length=60)
        row = play(made)
        assert len(made.server_manager.asked) == 1  # a board takes more than is left
        assert runs(tokenizer, row)[0] == [UP + END]
        assert row.num_turns == 6
        assert row.reward_score == pytest.approx(0.4)  # silence costs and earns nothing

    def test_a_prompt_that_is_too_long_gives_a_row_that_trains_nothing(self, loop):
        row = play(loop([], env="MemSokoban-v0", prompt_length=20))
        assert (row.response_mask, row.token_scores, row.reward_score) == ([0], [0.0], 0.0)

    def test_one_long_prompt_silences_its_own_turn_alone(self, loop):
        # Each turn has a fresh prompt; the first chunk is the longest, the question at the end the shortest.
        settings = {"tasks": "world-test", "chunk_size": 300, "n_documents": 4}
        whole = play(loop(["a memory"] * 9, env="MemChunkQA-v0", settings=settings))
        lengths = [len(row.prompt_ids) for row in whole]
        cut = play(
            loop(["a memory"] * 9, env="MemChunkQA-v0", settings=settings, prompt_length=max(lengths) - 1)
        )
        assert lengths.count(max(lengths)) == 1
        assert len(cut) == len(whole) - 1
        assert all(sum(row.response_mask) > 0 for row in cut)

    def test_a_row_without_a_seed_is_refused(self, loop):
        made = loop([], env="MemSokoban-v0")
        with pytest.raises(ValueError, match="the dataset needs extra_info"):
            asyncio.run(made.run({}, raw_prompt=[], extra_info={}))


class TestWhatVerlMakesOfIt:
    def test_turn_rewards_arrive_in_the_queue(self, loop, monkeypatch):
        outputs = [play(loop(replies, env="MemSokoban-v0")) for replies in ([UP] * 3, ["no"] * 3)]
        keys, rows, tags = take(monkeypatch, outputs)
        assert keys == ["task_0_0", "task_1_0"]
        assert rows[0]["rm_scores"][rows[0]["rm_scores"] != 0].tolist() == pytest.approx([0.4] * 3)
        assert rows[1]["rm_scores"].abs().sum() == 0
        assert (tags[0]["min_global_steps"], tags[0]["max_global_steps"]) == (1, 3)

    def test_mt_grpo_gives_every_token_the_advantage_of_its_turn(self, loop, monkeypatch):
        outputs = [play(loop(replies, env="MemSokoban-v0")) for replies in ([UP] * 3, ["no"] * 3)]
        keys, rows, _ = take(monkeypatch, outputs)
        batch = advantages(keys, rows, "memenvs_mt_grpo")
        found = [batch["advantages"][i][batch["response_mask"][i].bool()].tolist() for i in range(2)]
        # A^I: +-0.2 / (0.4 / sqrt 2 + 1e-4) = 0.7069 at the turns before the last, and what the last turn
        # earns, 0.4 and 0, counts as the outcome: the same again. A turn has its own and all that follow.
        for sign, values in zip((1, -1), found, strict=True):
            lengths = [round(len(values) / 3)] * 3
            wanted = np.repeat(np.multiply(sign, [2.1206, 1.4138, 0.7069]), lengths)
            assert values == pytest.approx(wanted.tolist(), abs=1e-4)
        outside = batch["advantages"][~batch["response_mask"].bool()]
        assert outside.abs().sum() == 0

    @pytest.mark.parametrize(("name", "far"), [("memenvs_mt_grpo", 0.7071), ("memenvs_mt_grpo_skip", 0.0)])
    def test_mt_grpo_compares_going_on_with_stopping_unless_told_to_skip(self, name, far):
        # The first goes on for 0.7, the second stops; nobody's outcome is anything.
        rewards = torch.tensor([[0.7, 0.0, 0.0], [0.0, 0.0, 0.0]])
        mask = torch.tensor([[1, 0, 1], [1, 0, 0]])
        estimator = core_algos.get_adv_estimator_fn(name)
        made, _ = estimator(token_level_rewards=rewards, response_mask=mask, index=np.array(["a", "a"]))
        wanted = [[far, 0.0, 0.0], [-far, 0.0, 0.0]]
        assert made.tolist() == [pytest.approx(row, abs=2e-4) for row in wanted]

    def test_turns_of_a_task_are_compared_over_its_rows(self, loop, monkeypatch, tokenizer):
        told = []
        for final in ("gold", r"\boxed{x}"):
            made = loop(["a", "b", final], env="MemChunkQA-v0", settings=READING)
            if final == "gold":
                env = made._make()
                made.server_manager.replies[2] = env.reset(seed=1)[1]["privileged"]["target_wrapped"]
            told.append(play(made))
        keys, rows, _ = take(monkeypatch, told)
        assert [key[-3:] for key in keys] == ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
        batch = advantages(keys, rows, "memenvs_turns")
        firsts = batch["advantages"][:, 0].tolist()
        # One turn of six was paid 1: mean 1/6, std sqrt(1/6) = 0.40825; (5/6) / 0.40825 and (-1/6) / 0.40825.
        assert firsts == pytest.approx([-0.4082, -0.4082, 2.0412, -0.4082, -0.4082, -0.4082], abs=1e-4)
        batch = advantages(keys, rows, "memenvs_as_paid")
        assert batch["advantages"][:, 0].tolist() == [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]

    def test_rows_that_pad_are_in_no_group(self):
        rewards = torch.tensor([[0.0, 3.0, 0.0, 1.0], [9.0, 9.0, 9.0, 9.0]])
        mask = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0]])
        seen = []
        made, returns = by_run(rewards, mask, ["a", "a"], lambda turns, names: seen.append(names) or turns)
        assert seen == [["a"]]
        assert made.tolist() == returns.tolist() == [[3.0, 3.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]


class TestRecipe:
    SECTION = PAGE.read_text().partition("\n## verl\n")[2].partition("\n## ")[0]

    def fenced(self, language):
        (found,) = re.findall(rf"^```{language}\n(.*?)^```", self.SECTION, re.DOTALL | re.MULTILINE)
        return found

    def test_the_estimators_are_known_where_verl_loads_external_modules(self):
        code = "import verl.trainer.ppo.core_algos as c; c.get_adv_estimator_fn('memenvs_mt_grpo')"
        env = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "memenvs.adapters.verl"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]

    def test_verl_knows_every_setting_of_the_command(self):
        settings = re.findall(r"\s([a-z][\w.]*=\S+)", self.fenced("sh").partition("main_ppo")[2])
        assert len(settings) == 10
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra.compose("ppo_trainer", overrides=settings)
        assert config.algorithm.adv_estimator == "memenvs_mt_grpo"
        assert config.trainer.use_v1 is True

    def test_the_data_and_the_entry_play_an_episode(self, loop, tokenizer, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        exec(compile(self.fenced("py"), "recipe", "exec"), {})
        options = {"prompt_key": "prompt", "filter_overlong_prompts": False, "cache_dir": str(tmp_path)}
        row = RLHFDataset("train.parquet", tokenizer, OmegaConf.create(options))[7]
        (entry,) = OmegaConf.create(self.fenced("yaml"))
        entry = {name: value for name, value in entry.items() if name not in ("name", "_target_")}
        output = asyncio.run(loop([UP] * 3, **entry).run({}, **row))
        assert row["agent_name"] == "memenvs"
        assert output.reward_score == pytest.approx(1.2)
