"""Rollouts mark the tokens that the policy sampled, and a failure ends only its own episode."""

import math

import gymnasium as gym
import numpy as np
import pytest

from memenvs.core.vector import TextVectorEnv
from memenvs.models import Reply, ScriptedPolicy
from memenvs.rollout.engine import collect
from memenvs.rollout.records import Episode, Sample, valid
from memenvs.rollout.session import NO_REPLY
from memenvs.tasks.tokens import load_tokenizer
from memenvs.wrappers import Credit, VectorRewardWrapper

READING = {"tasks": "world-test", "chunk_size": 400, "n_documents": 4}


def venv_of(env, count, **options):
    return TextVectorEnv(env, count, autoreset_mode="Disabled", **options)


def text(ids):
    return load_tokenizer().backend.decode(ids.tolist(), skip_special_tokens=False)


def echo(prompt):
    """A reply that depends on the prompt: its last word, and a move."""
    return f"<think>{prompt.split()[-1]}</think><answer>Up</answer>"


class TestAppend:
    def test_an_episode_is_one_sample_with_the_whole_text(self):
        venv = venv_of("MemSokoban-v0", 2)
        first, second = collect(venv, ScriptedPolicy(echo), [7, 8])
        for episode, env in zip((first, second), venv.envs, strict=True):
            (sample,) = episode.samples
            history = env.unwrapped.episode.history
            assert history.startswith(text(sample.ids))
            assert history[len(text(sample.ids)) :].startswith("\nThe board is now")  # the last feedback

    def test_a_wrapper_that_changes_the_reply_leaves_one_sample_of_what_was_sampled_and_the_feedback(self):
        def make():
            return gym.wrappers.TransformAction(gym.make("MemSokoban-v0"), str.strip, None)

        policy = ScriptedPolicy(lambda prompt: f"  {echo(prompt)}\n")
        (episode,) = collect(TextVectorEnv([make], autoreset_mode="Disabled"), policy, [7])
        (sample,) = episode.samples
        assert [text(sample.ids[sample.turns == turn]) for turn in range(3)] == [
            reply.text for reply in episode.replies
        ]
        assert text(sample.ids).count("The board is now") == 2

    def test_turn_ends_count_written_tokens(self):
        (episode,) = collect(venv_of("MemSokoban-v0", 1), ScriptedPolicy(echo), [7])
        lengths = [len(reply.ids) for reply in episode.replies]
        assert episode.turn_ends.tolist() == [sum(lengths[: k + 1]) - 1 for k in range(3)]
        assert episode.tokens == sum(lengths)


class TestRecords:
    def test_a_replaced_outcome_is_what_the_last_turn_earned_without_credit_to_spans(self):
        credits = [
            Credit(0, 7.0, (0, 1), advantage=True),
            Credit(1, 2.5, (0, 1), advantage=True),
            Credit(1, math.nan, (1, 2), advantage=True),
            Credit(1, 1.0),
        ]
        episode = Episode(credits={"mempo": credits}, turn_rewards=[7.0, 3.5], replaces_outcome=True)
        assert episode.outcome_rewards == [0.0, 1.0]

    def test_an_episode_that_ends_before_its_group_keeps_what_its_last_turn_earned(self):
        options = {"tasks": "world-test", "memory_mode": "rewrite"}
        venv = VectorRewardWrapper(venv_of("MemSearchQA-v0", 2, **options), ["InfoMem"], "lexical", 2)
        answer = venv.unwrapped.envs[0].reset(seed=5)[1]["privileged"]["target_wrapped"]
        replies = iter([f"<mem>m</mem>{answer}", "<mem>m</mem><search>x</search>", f"<mem>m</mem>{answer}"])
        for episode in collect(venv, ScriptedPolicy(lambda prompt: next(replies)), [5], 2):
            assert sum(episode.rewards.values()) == pytest.approx(sum(episode.turn_rewards))
            assert episode.outcome == 1.0


class TestRewrite:
    def test_every_turn_is_a_separate_sample(self):
        policy = ScriptedPolicy(lambda prompt: "a memory")
        (episode,) = collect(venv_of("MemChunkQA-v0", 1, **READING), policy, [3])
        assert len(episode.samples) == len(episode.replies) == episode.metrics["turns"] > 1
        for turn, sample in enumerate(episode.samples):
            assert set(sample.turns[sample.response_mask].tolist()) == {turn}
            assert text(sample.ids[sample.response_mask]) == "a memory"

    def test_a_prompt_beyond_the_window_gets_an_empty_reply_and_is_counted(self):
        policy = ScriptedPolicy(lambda prompt: "a memory")
        policy.window = 300  # the first chunk of 400 tokens does not fit, the short last one does
        (episode,) = collect(venv_of("MemChunkQA-v0", 1, **READING), policy, [3])
        assert episode.end == "terminated"
        assert episode.overlong_prompts == 1
        assert [reply is NO_REPLY for reply in episode.replies] == [True, False, False]
        assert len(episode.samples) == 2
        assert episode.turn_ends.tolist() == [0, 1, 3]  # "a memory" is two tokens

    def test_a_reply_at_its_limit_is_truncated_and_counted(self):
        policy = ScriptedPolicy(lambda prompt: "one two three four five six")
        (episode,) = collect(venv_of("MemChunkQA-v0", 1, **READING), policy, [3], max_new_tokens=2)
        assert episode.truncated_replies == len(episode.replies)
        assert all(len(reply.ids) == 2 for reply in episode.replies)


class TestGroups:
    def test_members_play_one_task_and_groups_keep_their_order(self):
        episodes = collect(venv_of("MemSokoban-v0", 4), ScriptedPolicy(echo), [5, 6, 7], 2)
        assert [episode.group for episode in episodes] == [5, 5, 6, 6, 7, 7]
        tasks = [episode.task for episode in episodes]
        assert tasks[::2] == tasks[1::2]
        assert len(set(tasks)) == 3

    def test_nothing_depends_on_the_number_of_environments(self):
        def play(environments):
            venv = venv_of("MemSearchQA-v0", environments, tasks="world-test")
            return collect(venv, RandomMoves(), [1, 2, 3, 4], 2)

        for one, other in zip(play(2), play(6), strict=True):
            assert one.task == other.task
            assert [reply.text for reply in one.replies] == [reply.text for reply in other.replies]
            assert one.turn_rewards == other.turn_rewards

    def test_a_replaced_outcome_is_the_reward_of_the_last_turn_and_the_components_sum_to_the_return(self):
        # SearchRewards: one ill-formed reply to the end of its turns is -1 at the last, -0.2 before.
        venv = VectorRewardWrapper(
            venv_of("MemSearchQA-v0", 1, tasks="world-test"), ["SearchRewards"], group_size=1
        )
        (episode,) = collect(venv, ScriptedPolicy(lambda prompt: "hm"), [1])
        assert episode.turn_rewards == pytest.approx([-0.2] * 4 + [-1.0])
        assert episode.outcome_rewards == pytest.approx([0.0] * 4 + [-1.0])
        assert episode.rewards == pytest.approx({"outcome": 0.0, "search_rewards": -1.8})
        assert episode.outcome == 0.0

    def test_a_signal_is_averaged_over_the_turns_that_were_scored(self):
        venv = venv_of("MemChunkQA-v0", 2, **READING)
        host = VectorRewardWrapper(venv, ["TAMTRL"], "lexical", group_size=2)
        for episode in collect(host, ScriptedPolicy(lambda prompt: "a \\boxed{memory}"), [1], 2):
            *memories, answer = episode.signals["tamtrl"]
            assert answer == 0.0  # which is no p_t
            assert episode.measured == {"tamtrl": pytest.approx(memories)}

    @pytest.mark.parametrize(
        ("venv", "group_size", "message"),
        [
            (venv_of("MemSokoban-v0", 3), 2, "group_size must divide the 3 environments, got 2"),
            (TextVectorEnv("MemSokoban-v0", 2), 1, "autoreset_mode='Disabled'"),
        ],
    )
    def test_environments_that_do_not_fit_are_refused(self, venv, group_size, message):
        with pytest.raises(ValueError, match=message):
            collect(venv, ScriptedPolicy(echo), [1], group_size)


class TestFailures:
    def test_a_failing_environment_ends_only_its_own_episode(self):
        venv = venv_of("MemSokoban-v0", 3, errors="truncate")

        def die(action):
            raise RuntimeError("the engine failed")

        venv.envs[1].unwrapped._play = die
        episodes = collect(venv, ScriptedPolicy(echo), [1, 2, 3])
        assert [episode.end for episode in episodes] == ["truncated", "failed", "truncated"]
        assert "the engine failed" in episodes[1].error
        assert [episode.group for episode in valid(episodes)] == [1, 3]


def test_a_sample_grows_by_replies_and_feedback():
    sample = Sample.prompt(np.array([1, 2])).then(np.array([3]), np.array([-0.5]), 0).then(np.array([4]))
    assert sample.ids.tolist() == [1, 2, 3, 4]
    assert sample.response_mask.tolist() == [False, False, True, False]
    assert sample.logprobs.tolist() == [0, 0, -0.5, 0]
    assert sample.turns.tolist() == [-1, -1, 0, -1]


class RandomMoves(ScriptedPolicy):
    """Searches or answers by the chance it is given."""

    def __init__(self):
        super().__init__(str)

    def sample(self, prompts, rngs, max_new_tokens):
        replies = []
        for rng in rngs:
            word = ("river", "town", "opened", "wrote")[rng.integers(4)]
            kind = ("search", "search", "answer")[rng.integers(3)]
            said = f"<think>{word}</think><{kind}>{word}</{kind}>"
            ids = self.encode(said)
            replies.append(Reply(said, ids, np.zeros(len(ids)), True))
        return replies
