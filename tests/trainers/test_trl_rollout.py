"""TRL's GRPOTrainer plays memenvs' environments: what it trains on, token by token, in two steps each."""

import itertools

import gymnasium as gym
import numpy as np
import pytest

from memenvs import open_tasks
from memenvs.credit import tamtrl
from memenvs.wrappers import TAMTRL, RewardMethod

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` installs it")
import datasets
import torch
from families import REQUESTS, WRAPPED
from scripted_trl import END, ByTurn, Plain, make_trainer, weights
from tiny_model import save_tiny_model

from memenvs.adapters.trl import (
    EpisodeRollout,
    TRLPolicy,
    episode_return,
    read_comparison,
    read_groups,
    seed_rows,
    task_rows,
)

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:You are using 'rollout_func':UserWarning"
    ),  # TRL calls it experimental
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing:FutureWarning"),  # TRL's own words
]

UP = "<think></think><answer>Up</answer>"
READING = {"tasks": "world-test", "chunk_size": 300, "n_documents": 4}  # three turns an episode
REMEMBERING = {"tasks": "world-test", "memory_mode": "rewrite", "max_information": 60, "max_turns": 2}


class Brevity(RewardMethod):
    """Charges every turn for its length, so that whatever a random model says earns differently."""

    name = "brevity"

    def signal(self, turn, scores):
        return -0.01 * len(turn.action)

    def settings(self):
        return {}


@pytest.fixture(scope="module")
def make(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")

    def made(kind, env="MemSokoban-v0", seeds=(1, 2), methods=(), scorer=None, env_args=None, **parts):
        rollout = EpisodeRollout(env, methods, scorer, **(env_args or {}))
        rows = seed_rows(seeds)
        parts = {"reward_funcs": episode_return, **parts}
        return make_trainer(kind, tiny_model, out, rows, rollout_func=rollout, **parts)

    return made


MOVES = ((UP, "nothing"),) * 3
SHORT = {"max_completion_length": 40}
MERGED = {"reward": "merged"}


@pytest.fixture(scope="module")
def moved(make):
    """TRL's own trainer after two steps of the script."""
    trainer = make(Plain, script=MOVES, options=SHORT)
    trainer.train()
    return trainer


MEMORIES = (("memory one", "other one"), ("memory two", "other two"), ("yes", "no"))


@pytest.fixture(scope="module")
def read(make):
    """A trainer by turns after two steps of the script, with a reward function beside the return."""

    def length(prompts, completions, completion_ids, turn_rewards, **row):
        seen.append((prompts, completions, [trainer.text(ids) for ids in completion_ids], turn_rewards))
        return [float(len(text)) for text in completions]

    seen = []
    funcs = [episode_return, length]
    trainer = make(ByTurn, "MemChunkQA-v0", env_args=READING, script=MEMORIES, reward_funcs=funcs)
    trainer.seen = seen
    trainer.train()
    return trainer


@pytest.mark.parametrize("generations", [1, 2])
@pytest.mark.parametrize("methods", [(), [Brevity()]], ids=["plain", "method"])
def test_an_evaluation_plays_another_task_set(make, generations, methods):
    options = {
        **{"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1},
        **{"per_device_eval_batch_size": 2, "num_generations_eval": generations},
    }
    rows = datasets.Dataset.from_list(task_rows([0, 1]))
    env_args = {"tasks": "world-train", "eval_env_args": {"tasks": "world-test"}}
    trainer = make(
        ByTurn, "MemToolQA-v0", methods=methods, env_args=env_args, options=options, eval_dataset=rows
    )
    trainer.train()
    tasks = [episode.task for episode in trainer.rollout_func.episodes]
    assert set(tasks) <= {task.id for task in open_tasks("world-test")}
    assert [tasks.count(task) for task in tasks] == [generations] * 2
    assert trainer.rollout_func.n_eval_tasks == len(open_tasks("world-test"))


@pytest.mark.parametrize(
    "setting",
    [
        {"scale_rewards": "none"},
        {"scale_rewards": False},
        {"reward_weights": [0.5]},
        {"multi_objective_aggregation": "normalize_then_sum"},
    ],
)
def test_a_setting_of_the_advantages_that_are_replaced_is_refused(make, setting):
    with pytest.raises(ValueError, match=f"so {next(iter(setting))}=.* would have no effect"):
        make(ByTurn, options=setting)
    make(ByTurn, options={"scale_rewards": "group"})


@pytest.mark.filterwarnings("ignore:You are using 'environment_factory'")
@pytest.mark.parametrize("kind", [Plain, ByTurn])
def test_tools_beside_a_rollout_are_refused(make, kind):
    class Asked:
        def reset(self, **row):
            """Begin."""

        def ask(self, question: str) -> str:
            """Ask.

            Args:
                question: What to ask.

            Returns:
                The answer.
            """

    with_tools = {"tools": True, "environment_factory": Asked}  # the first for a template of tools
    for parts in (with_tools, {"options": {"max_tool_calling_iterations": 2}}):
        with pytest.raises(ValueError, match="tools, environment_factory and max_tool_calling_iterations"):
            make(kind, **parts).train()


class TestAppend:
    def test_what_the_policy_said_is_trained_on_and_the_boards_between_are_not(self, moved):
        assert len(moved.batches) == 2
        for batch in moved.batches:
            runs = moved.said(batch, 0)
            assert [own for own, _ in runs] == [True, False, True, False, True]
            assert [text for own, text in runs if own] == [UP + END] * 3
            assert all("The board is now" in text for own, text in runs if not own)

    def test_the_first_observation_is_the_prompt(self, moved):
        batch = moved.batches[0]
        first, _ = gym.make("memenvs:MemSokoban-v0").reset(seed=1)
        prompt = moved.text(batch["prompt_ids"][0][batch["prompt_mask"][0].bool()])
        assert prompt == f"<|im_start|>user\n{first}{END}\n<|im_start|>assistant\n"

    def test_the_reward_of_a_row_is_the_return_of_its_episode(self, moved):
        # Three moves into nothing, each +0.5 for its form and -0.1 a step; silence costs and earns nothing.
        assert moved.rewards[0].flatten().tolist() == pytest.approx([1.2, 0.0])
        assert moved.state.log_history[0]["env/format"] == 0.5  # the mean of 1 and 0

    def test_members_of_a_group_play_the_task_of_their_seed(self, make):
        options = {"per_device_train_batch_size": 4, "max_steps": 1}
        trainer = make(Plain, script=((UP,) * 4,) * 3, options=options)
        trainer.train()
        one, other = trainer.rollout_func.episodes[:2], trainer.rollout_func.episodes[2:]
        assert [episode.seed for episode in one + other] == [1, 1, 2, 2]
        assert one[0].task == one[1].task != other[0].task == other[1].task

    def test_every_token_has_the_advantage_of_its_turn(self, make):
        trainer = make(ByTurn, script=MOVES, options=SHORT)
        trainer.train()
        # Every turn earned 0.4 and 0, so +-0.2 / (0.4 / sqrt 2 + 1e-4) = 0.70686. A turn gets its advantage
        # and those of all later ones, of which the last is the result's.
        for batch in trainer.batches:
            assert trainer.by_run(batch, 0) == pytest.approx([2.1206, 1.4137, 0.7069], abs=1e-4)
            assert trainer.by_run(batch, 1) == pytest.approx([-2.1206, -1.4137, -0.7069], abs=1e-4)

    @pytest.mark.parametrize("rows", [task_rows([3, 3]), seed_rows([7, 7])], ids=["tasks", "seeds"])
    @pytest.mark.parametrize("training", [True, False], ids=["train", "evaluate"])
    def test_rows_that_name_one_task_are_groups_of_their_own(self, make, rows, training):
        options = {**SHORT, "per_device_train_batch_size": 4}
        trainer = make(ByTurn, script=((UP, "nothing", UP, UP),) * 3, options=options, comparison=MERGED)
        trainer.model.train(training)
        batch = trainer._generate_and_score_completions([row for row in rows for _ in range(2)])
        # Returns 1.2 and 0, then 1.2 twice: +-0.6 / (1.2 / sqrt 2 + 1e-6), and nothing where they are equal.
        assert [trainer.by_run(batch, row)[0] for row in range(4)] == [0.7071, -0.7071, 0, 0]
        assert [episode.group for episode in trainer.rollout_func.episodes] == [0, 0, 1, 1]

    def test_a_row_that_names_a_task_is_played_with_other_chances_each_time(self, make):
        trainer = make(ByTurn, "MemChunkQA-v0", env_args=READING, options={"max_completion_length": 4})
        played = []
        for mode in (True, True, False, False):
            trainer.model.train(mode)
            trainer._generate_and_score_completions(task_rows([3, 3, 3, 3]))
            played.append([e.turns[0].observation for e in trainer.rollout_func.episodes])
            assert {episode.number for episode in trainer.rollout_func.episodes} == {3}
        first, second, evaluated, again = played
        assert first[0] == first[1] != first[2] == first[3]  # the members of a group play the same
        assert len({first[0], first[2], second[0], second[2]}) == 4
        assert len({*evaluated, *again}) == 1

    def test_arguments_of_the_chat_template_reach_every_prompt(self, make):
        switch = (
            "{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking -%}"
            "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}"
        )
        options = {**SHORT, "chat_template_kwargs": {"enable_thinking": False}, "max_steps": 1}
        trainer = make(Plain, script=MOVES, options=options)
        trainer.processing_class.chat_template += switch
        trainer.train()
        batch = trainer.batches[0]
        prompt = trainer.text(batch["prompt_ids"][0][batch["prompt_mask"][0].bool()])
        assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
        boards = [text for own, text in trainer.said(batch, 0) if not own]
        assert len(boards) == 2
        assert all(text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n") for text in boards)

    def test_the_comparison_that_was_asked_for_is_made(self, make):
        comparison = {"reward": "merged", "estimator": "rloo"}
        options = {**SHORT, "max_steps": 1}
        trainer = make(ByTurn, script=MOVES, options=options, comparison=comparison)
        trainer.train()
        assert trainer.by_run(trainer.batches[0], 0) == pytest.approx([1.2] * 3)  # 1.2 - the other's 0
        assert trainer.by_run(trainer.batches[0], 1) == pytest.approx([-1.2] * 3)

    def test_continuations_play_on_with_the_trainers_model(self, make, caplog):
        # The six replies of two episodes; whatever is played on from a state moves at every turn.
        replies = itertools.chain([UP, "nothing", "nothing", UP, UP, UP], itertools.repeat(UP))
        trainer = make(
            ByTurn,
            methods=[["Continuations", {"n": 2}]],
            script=lambda: next(replies),
            options={**SHORT, "max_steps": 1},
            comparison={"reward": "continuations"},
        )
        trainer.train()
        # A move earns 0.4, so V falls from 1.2 by 0.4 a turn, and a turn without a move lost as much.
        rows = [trainer.by_run(trainer.batches[0], row) for row in range(2)]
        assert rows == [pytest.approx([0, -0.4, 0]), pytest.approx([-0.4, 0, 0])]
        assert "playing on from 5 states" in caplog.text

    def test_what_the_model_samples_itself_is_trained_on(self, make):
        trainer = make(ByTurn, methods=[Brevity()])
        before = weights(trainer)
        trainer.train()
        for batch, rewards in zip(trainer.batches, trainer.rewards, strict=True):
            lengths, lasts = [], []
            for row in range(2):
                own = [text.removesuffix(END) for own, text in trainer.said(batch, row) if own]
                assert len(own) == 3
                # No reply holds a move: the return is the price of the characters.
                assert float(rewards[row, 0]) == pytest.approx(-0.01 * sum(map(len, own)), abs=1e-5)
                lengths.append(len(own[2]))
                lasts.append(trainer.by_run(batch, row)[2])
            assert np.sign(lasts[0] - lasts[1]) == np.sign(lengths[1] - lengths[0])  # the shorter was cheaper
        assert (weights(trainer) - before).abs().max() > 1e-4


class TestRewrite:
    def test_every_turn_is_a_row_with_the_prompt_it_read(self, read):
        batch = read.batches[0]
        assert [read.said(batch, row) for row in range(6)] == [
            [(True, said + END)] for member in (0, 1) for said in (turn[member] for turn in MEMORIES)
        ]
        prompts = [read.text(ids) for ids in batch["prompt_ids"]]
        assert "memory one" in prompts[1]
        assert "memory one" not in prompts[2]  # a fresh prompt: it reads the second memory alone
        assert "memory two" in prompts[2]

    def test_rows_are_padded_with_rows_that_train_nothing(self, make):
        search = "<mem></mem><think></think><search>nobody</search>"
        script = (("<mem></mem><think></think><answer>no</answer>", search), ("<answer>no</answer>",))
        options = {
            "per_device_train_batch_size": 1,
            "steps_per_generation": 2,
            "gradient_accumulation_steps": 2,
        }
        options["max_completion_length"] = 60
        trainer = make(
            ByTurn, "MemSearchQA-v0", methods=["SearchRewards"], env_args=REMEMBERING, script=script,
            options=options,
        )  # fmt: skip
        trainer.train()
        for batch in trainer.batches:  # 1 and 2 turns: three rows, and one for steps_per_generation
            assert trainer.loss_mask(batch).any(1).tolist() == [True, True, True, False]
            # Outcomes 0.2 and -1: 0.6 / (1.2 / sqrt 2 + 1e-4). The search, in the only second turn before a
            # last one, has nothing to be compared with and adds 0 to its outcome's.
            rows = [trainer.by_run(batch, row) for row in range(3)]
            assert rows == [[pytest.approx(value, abs=1e-4)] for value in (0.7070, -0.7070, -0.7070)]
            assert batch["advantages"][3].abs().sum() == 0
        # An answer in the right form is worth 0.2, in another -1; a search 0.1 for form, -0.1 for cost.
        assert trainer.rewards[0].flatten().tolist() == pytest.approx([0.2, -1.0])

    def test_rows_that_pad_leave_the_loss_as_it_is(self, make):
        trainer = make(ByTurn, "MemChunkQA-v0", env_args=READING)
        batch = trainer._generate_and_score_completions([{"prompt": "seed 1"}, {"prompt": "seed 1"}])
        batch["advantages"] = batch["advantages"] + 1  # what a random model has earned is 0
        padded = {
            name: torch.cat([value, value[:1].expand(3, *value.shape[1:])]) if value.dim() else value
            for name, value in batch.items()
        }
        padded["tool_mask"][-3:] = 0
        trainer.current_gradient_accumulation_steps = 1
        with torch.no_grad():
            losses = [float(trainer._compute_loss(trainer.model, each)) for each in (batch, padded)]
        assert losses[0] != 0
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)

    def test_the_credit_of_a_turn_reaches_the_row_that_it_wrote(self, make):
        told = gym.make("memenvs:MemChunkQA-v0", **READING).reset(seed=1)[1]["privileged"]
        school = told["evidence"][0][:80]
        script = (("nothing", school), (school, school), (told["target_wrapped"], "no"))
        how = {
            "methods": ["TAMTRL"],
            "scorer": "lexical",
            "env_args": READING,
            "comparison": {"reward": "TAMTRL"},
        }
        trainer = make(ByTurn, "MemChunkQA-v0", script=script, options={"max_steps": 1}, **how)
        trainer.train()
        records = trainer.rollout_func.episodes
        taught = [record.signals["tamtrl"] for record in records]
        fixed = [TAMTRL().fixed_rewards(record) for record in records]
        wanted = np.concatenate(tamtrl(taught, [1.0, 0.0], tasks=[1, 1], fixed=fixed))
        rows = [trainer.by_run(trainer.batches[0], row)[0] for row in range(6)]
        assert rows == pytest.approx(wanted.tolist(), abs=1e-4)
        assert rows[0] < rows[1] < rows[2]  # nothing, the evidence, the answer
        assert rows[0] == rows[3] == rows[4] == rows[5]  # a wrong answer earns 0 at every turn

    def test_a_trainer_that_takes_one_row_an_episode_is_refused_before_it_samples(self, make):
        trainer = make(Plain, "MemChunkQA-v0", env_args=READING)
        with pytest.raises(ValueError, match=r"rewrites its prompts.*TurnAdvantages before it"):
            trainer.train()
        assert trainer.rollout_func.episodes == []

    def test_every_reward_function_gets_the_last_reply_of_each_episode(self, read):
        said = (["yes", "no"], ["yes" + END, "no" + END])
        assert read.seen[0] == (["seed 1"] * 2, *said, [[0.0] * 3] * 2)
        assert read.rewards[0].tolist() == [[0.0, 3.0], [0.0, 2.0]]

    def test_the_table_of_completions_has_a_line_a_prompt(self, read):
        assert list(read._logs["completion"]) == ["yes", "no"]
        assert list(read._logs["prompt"]) == ["seed 2", "seed 2"]


class SpellsOut(ByTurn):
    """Samples a token for each character, as its tokenizer would not encode the text."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        replies, logprobs = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        texts = [self.text(ids).removesuffix(END) for ids in replies]
        return [self.spelled(text) for text in texts], logprobs

    def spelled(self, text):
        return [token for part in (*text, END) for token in self.processing_class.encode(part)]


class TestCompaction:
    SEARCH, ANSWER = "<think></think><search>town</search>", "<think></think><answer>no</answer>"

    @pytest.mark.parametrize("env_id", REQUESTS)
    def test_a_row_ends_with_the_memory_that_begins_the_next_one(self, make, env_id):
        request, memory, shown = REQUESTS[env_id]
        script = ((self.SEARCH,) * 2, (memory, "Unknown."), (self.ANSWER,) * 2)
        options = {"max_completion_length": 80, "max_steps": 1}
        trainer = make(SpellsOut, env_id, env_args=WRAPPED, script=script, options=options)
        trainer.train()
        batch = trainer.batches[0]
        for member, reply in enumerate(script[1]):
            first, second = 2 * member, 2 * member + 1
            search, asked, noted = trainer.said(batch, first)
            assert (search, noted) == ((True, self.SEARCH + END), (True, reply + END))
            assert request in asked[1]
            assert trainer.said(batch, second) == [(True, self.ANSWER + END)]
            prompt = trainer.text(batch["prompt_ids"][second])
            assert (shown in prompt) == (reply == memory)
            assert self.SEARCH not in prompt
            for row, replies in ((first, (self.SEARCH, reply)), (second, (self.ANSWER,))):
                sampled = batch["completion_ids"][row][trainer.loss_mask(batch)[row]].tolist()
                assert sampled == [token for text in replies for token in trainer.spelled(text)]


class Breaks(gym.Wrapper):
    """A Sokoban whose second turn raises."""

    def step(self, action):
        if self.unwrapped.state.turn == 1:
            raise OSError("the board is gone")
        return super().step(action)


class TestWhatBreaks:
    def test_an_episode_that_broke_is_no_part_of_the_update(self, make):
        envs = itertools.count(-1)  # the first one is only looked at

        def make_env():
            env = gym.make("memenvs:MemSokoban-v0")
            return env if next(envs) % 4 else Breaks(env)

        script = ((UP, UP, "no", UP), (UP, "no", "no", UP), ("no", "no", UP))
        options = {"num_generations": 4, "per_device_train_batch_size": 4, "max_completion_length": 40}
        trainer = make(ByTurn, make_env, script=script, options=options)
        trainer.train()
        batch = trainer.batches[0]
        assert trainer.loss_mask(batch).any(1).tolist() == [False, True, True, True]
        assert trainer.rewards[0].flatten().isnan().tolist() == [True, False, False, False]
        # Of those that did not break, first turns 0.4, 0 and 0.4: mean 0.8 / 3, std 0.23094, so 0.5771,
        # -1.1542 and 0.5771; second and last turns 0, 0 and 0.4: -0.5771, -0.5771 and 1.1542, both added.
        firsts = [trainer.by_run(batch, row)[0] for row in (1, 2, 3)]
        assert firsts == pytest.approx([-0.5771, -2.3084, 2.8855], abs=1e-3)

    @pytest.mark.parametrize("kind", [Plain, ByTurn])
    def test_an_episode_that_could_not_be_read_gives_a_row_that_trains_nothing(self, make, kind):
        trainer = make(kind)
        trainer.model.config.max_position_embeddings = 10  # no board fits
        before = weights(trainer)
        trainer.train()
        assert [episode.overlong_prompts for episode in trainer.rollout_func.episodes] == [3, 3]
        assert not trainer.loss_mask(trainer.batches[0]).any()
        assert (weights(trainer) == before).all()

    @pytest.mark.parametrize(
        "prompt", ["What is it?", "seed -1", "task", [{"role": "user", "content": "task 1"}] * 2]
    )
    def test_a_dataset_of_another_kind_is_refused(self, prompt):
        with pytest.raises(ValueError, match=r"a prompt must come from .*task_rows, got"):
            read_groups([prompt], 1)

    def test_a_prompt_names_a_task_by_its_number_or_by_a_seed(self):
        chat = [{"role": "user", "content": "task 3"}]  # as `memenvs build --export rows` writes it
        prompts = ["task 5", "task 5", "seed 6", "seed 6", chat, chat]
        assert read_groups(prompts, 2) == [(5, 5), (6, None), (3, 3)]

    @pytest.mark.parametrize("prompts", [["seed 1"] * 3, ["seed 1", "seed 2"]])
    def test_a_batch_that_cuts_a_group_is_refused(self, prompts):
        with pytest.raises(ValueError, match="not whole groups of 2; make per_device_train_batch_size"):
            read_groups(prompts, 2)

    def test_a_trainer_without_turns_is_refused(self, tiny_model, tmp_path):
        with pytest.raises(ValueError, match="TurnAdvantages needs rollout_func=EpisodeRollout"):
            make_trainer(
                ByTurn, tiny_model, tmp_path, [{"prompt": "hello"}], reward_funcs=lambda **row: [0.0]
            )

    @pytest.mark.parametrize(
        "comparison", [{"reward": "tamtrl"}, {"estimator": "ppo"}, {"beta": 1.0}, {"normalize": "components"}]
    )
    def test_a_comparison_that_is_not_there_is_refused(self, comparison):
        with pytest.raises(ValueError, match=next(iter(comparison))):
            read_comparison(methods=[], **comparison)


class TestPolicy:
    def test_a_reply_ends_where_the_window_does(self, make):
        trainer = make(Plain, script=(("one two three four five six seven",),))
        prompt = TRLPolicy(trainer).encode("Count.")
        trainer.model.config.max_position_embeddings = len(prompt) + 5
        (reply,) = TRLPolicy(trainer).sample([prompt], [np.random.default_rng(0)], 12)
        assert (len(reply.ids), len(reply.logprobs), reply.finished) == (5, 5, False)

    def test_an_id_that_no_token_has_is_never_sampled(self, tmp_path):
        padded = save_tiny_model(tmp_path / "padded", spare_rows=4096)
        rollout = EpisodeRollout("MemSokoban-v0")
        options = {"generation_kwargs": {"suppress_tokens": [2]}}
        parts = {"rollout_func": rollout, "reward_funcs": episode_return, "options": options}
        trainer = make_trainer(Plain, padded, tmp_path / "out", seed_rows([1]), **parts)
        for _ in range(2):  # every batch makes its own policy
            policy = TRLPolicy(trainer)
            prompts = [policy.encode("Count.")] * 8
            replies = policy.sample(prompts, [np.random.default_rng(0)] * 8, 12)
            sampled = np.concatenate([reply.ids for reply in replies])
            assert sampled.max() < 4096
            assert 2 not in sampled

    def test_a_whole_reply_is_read_without_its_end(self, make):
        trainer = make(Plain, script=(("one two",),))
        policy = TRLPolicy(trainer)
        (reply,) = policy.sample([policy.encode("Count.")], [np.random.default_rng(0)], 12)
        assert (reply.text, reply.finished) == ("one two", True)
        assert trainer.text(reply.ids) == "one two" + END

    def test_log_probabilities_that_the_engine_gives_reach_trl(self, make):
        trainer = make(Plain)
        end = trainer.eos_token_ids[0]
        # As TRL hands on what vLLM says: None where it could not score a token.
        trainer._generate_single_turn = lambda ids, *rest: ([[7, end]] * len(ids), [[-1.5, None]] * len(ids))
        made = trainer.rollout_func(["seed 1"] * 2, trainer)
        own = np.array(made["env_mask"][0], bool)
        told = np.array(made["logprobs"][0])
        assert told[own].tolist() == pytest.approx([-1.5, np.nan] * 3, nan_ok=True)
        assert (told[~own] == 0).all()
