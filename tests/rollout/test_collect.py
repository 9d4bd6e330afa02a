"""The loop: it marks the tokens that a policy sampled, credits groups as they end, and no episode waits."""

import asyncio
import itertools
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from made_episodes import after, before, give, reply

from memenvs import ENV_IDS, collect
from memenvs.core.episode import Credit, Episode, Reply, Sample, Turn, valid
from memenvs.core.episode_file import encode
from memenvs.models import ScriptedPolicy
from memenvs.rollout.collect import Loop, begin, maker, step
from memenvs.rollout.policy import (
    ThreadPolicy,
    TurnPolicy,
    as_policy,
    loop_policy,
    made_policy,
    replies_to,
)
from memenvs.rollout.scripted import make_policy
from memenvs.tasks.tokens import load_tokenizer

READING = {"tasks": "world-test", "chunk_size": 400, "n_documents": 4}
SEARCH = {"tasks": "world-test"}


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


class Stream(RandomMoves):
    """Replies that take a random time; the one that ends first is given first, alone."""

    def __init__(self, times=None):
        super().__init__()
        self.under_way, self.now, self.order, self.begun = {}, 0, [], []
        chance = np.random.default_rng(0)
        self.times = times or (int(chance.geometric(0.01)) for _ in range(10**6))

    def submit(self, key, prompt, rng, max_new_tokens):
        assert key not in self.under_way
        (sampled,) = self.sample([prompt], [rng], [max_new_tokens])
        self.under_way[key] = self.now + next(self.times), sampled
        self.begun.append(key)

    def completed(self):
        key = min(self.under_way, key=lambda one: self.under_way[one][0])
        self.now, sampled = self.under_way.pop(key)
        self.order.append(key)
        return [(key, sampled)]

    def cancel(self):
        self.under_way.clear()


def text(ids):
    return load_tokenizer().backend.decode(ids.tolist(), skip_special_tokens=False)


def echo(prompt):
    """A reply that depends on the prompt: its last word, and a move."""
    return f"<think>{prompt.split()[-1]}</think><answer>Up</answer>"


def texts_of(episodes):
    return [[reply.text for reply in episode.replies] for episode in episodes]


class TestAppend:
    def test_an_episode_is_one_sample_with_the_whole_text(self):
        envs = []

        def make():
            envs.append(gym.make("MemSokoban-v0"))
            return envs[-1]

        for episode, env in zip(collect(make, ScriptedPolicy(echo), [7, 8]), envs, strict=True):
            (sample,) = episode.samples
            history = env.unwrapped.state.history
            assert history.startswith(text(sample.ids))
            assert history[len(text(sample.ids)) :].startswith("\nThe board is now")  # the last feedback

    def test_a_wrapper_that_changes_the_reply_leaves_one_sample_of_what_was_sampled_and_the_feedback(self):
        def make():
            return gym.wrappers.TransformAction(gym.make("MemSokoban-v0"), str.strip, None)

        policy = ScriptedPolicy(lambda prompt: f"  {echo(prompt)}\n")
        (episode,) = collect(make, policy, [7])
        (sample,) = episode.samples
        assert [text(sample.ids[sample.turns == turn]) for turn in range(3)] == texts_of([episode])[0]
        assert text(sample.ids).count("The board is now") == 2

    def test_turn_ends_count_written_tokens(self):
        (episode,) = collect("MemSokoban-v0", ScriptedPolicy(echo), [7])
        lengths = [len(reply.ids) for reply in episode.replies]
        assert episode.turn_ends.tolist() == [sum(lengths[: k + 1]) - 1 for k in range(3)]
        assert episode.tokens == sum(lengths)

    def test_a_reply_says_how_long_its_prompt_was(self):
        (episode,) = collect("MemSokoban-v0", ScriptedPolicy(echo), [7])
        (sample,) = episode.samples
        begins = [int(np.flatnonzero(sample.turns == turn)[0]) for turn in range(3)]
        assert [reply.prompt_tokens for reply in episode.replies] == begins
        assert [reply.tokens for reply in episode.replies] == [len(reply.ids) for reply in episode.replies]


class TestRewrite:
    def test_every_turn_is_a_separate_sample(self):
        policy = ScriptedPolicy(lambda prompt: "a memory")
        (episode,) = collect("MemChunkQA-v0", policy, [3], env_args=READING)
        assert len(episode.samples) == len(episode.replies) == episode.metrics["turns"] > 1
        for turn, sample in enumerate(episode.samples):
            assert set(sample.turns[sample.response_mask].tolist()) == {turn}
            assert text(sample.ids[sample.response_mask]) == "a memory"

    def test_a_prompt_beyond_the_window_gets_an_empty_reply_and_is_counted(self):
        policy = ScriptedPolicy(lambda prompt: "a memory")
        policy.window = 300  # the first chunk of 400 tokens does not fit, the short last one does
        (episode,) = collect("MemChunkQA-v0", policy, [3], env_args=READING)
        assert episode.end == "terminated"
        assert episode.overlong_prompts == 1
        assert [reply.text for reply in episode.replies] == ["", "a memory", "a memory"]
        assert len(episode.samples) == 2
        assert episode.turn_ends.tolist() == [0, 1, 3]  # "a memory" is two tokens

    def test_a_reply_at_its_limit_is_truncated_and_counted(self):
        policy = ScriptedPolicy(lambda prompt: "one two three four five six")
        (episode,) = collect("MemChunkQA-v0", policy, [3], env_args=READING, max_new_tokens=2)
        assert episode.truncated_replies == len(episode.replies)
        assert all(len(reply.ids) == 2 for reply in episode.replies)


class TestCredit:
    def test_a_replaced_outcome_is_what_the_last_turn_earned_without_credit_to_spans(self):
        turns = [Turn("", before(k), reply("a"), after(0.0, 0.5 * k)) for k in range(2)]
        episode = Episode(turns=turns, replaces_outcome=True)
        spans = [Credit(0, 7.0, (0, 1), advantage=True), Credit(1, 2.5, (0, 1), advantage=True)]
        unscored = Credit(1, float("nan"), (1, 2), advantage=True)
        give(episode, "mempo", *spans, unscored, Credit(1, 1.0))
        assert episode.turn_rewards == [7.0, 3.5]
        assert episode.outcome_rewards == [0.0, 1.0]

    def test_an_episode_that_ends_before_its_group_keeps_what_its_last_turn_earned(self):
        options = {"tasks": "world-test", "memory_mode": "rewrite"}
        answer = gym.make("MemSearchQA-v0", **options).reset(seed=5)[1]["privileged"]["target_wrapped"]
        replies = iter([f"<mem>m</mem>{answer}", "<mem>m</mem><search>x</search>", f"<mem>m</mem>{answer}"])
        policy = ScriptedPolicy(lambda prompt: next(replies))
        played = collect("MemSearchQA-v0", policy, [5], 2, ["InfoMem"], "lexical", env_args=options)
        assert [len(episode.turns) for episode in played] == [1, 2]
        for episode in played:
            assert sum(episode.rewards.values()) == pytest.approx(sum(episode.turn_rewards))
            assert episode.outcome == 1.0

    def test_a_replaced_outcome_is_the_reward_of_the_last_turn_and_the_components_sum_to_the_return(self):
        # SearchRewards: one ill-formed reply to the end of its turns is -1 at the last, -0.2 before.
        (episode,) = collect(
            "MemSearchQA-v0", lambda observation, info: "hm", [1], methods=["searchrewards"], env_args=SEARCH
        )
        assert episode.turn_rewards == pytest.approx([-0.2] * 4 + [-1.0])
        assert episode.outcome_rewards == pytest.approx([0.0] * 4 + [-1.0])
        assert episode.rewards == pytest.approx({"outcome": 0.0, "search_rewards": -1.8})
        assert episode.outcome == 0.0

    def test_a_signal_is_averaged_over_the_turns_that_were_scored(self):
        policy = ScriptedPolicy(lambda prompt: "a \\boxed{memory}")
        for episode in collect("MemChunkQA-v0", policy, [1], 2, ["TAMTRL"], "lexical", env_args=READING):
            *memories, answer = episode.signals["tamtrl"]
            assert answer == 0.0  # which is no p_t
            assert episode.measured == {"tamtrl": [*range(len(memories))]}
            assert episode.measured_signals == {"tamtrl": memories}

    def test_an_episode_that_fails_before_its_end_keeps_what_was_measured_and_gets_no_credit(self):
        def reply(request):
            if request.episode.member and len(request.episode.turns) == 2:
                raise OSError("no\nserver")
            return Reply("a memory")

        options = {"tasks": "world-test", "n_documents": 6, "chunk_size": 300}
        methods = ["TAMTRL", "IGPO"]
        whole, failed = collect(
            "MemChunkQA-v0", TurnPolicy(reply), [0], 2, methods, "lexical", env_args=options
        )
        assert (failed.end, failed.error, len(failed.turns)) == ("failed", "OSError: no server", 2)
        assert np.isnan([credit.value for credits in failed.credits.values() for credit in credits]).all()
        assert not np.isnan(whole.signals["tamtrl"]).any()
        assert len(whole.signals["tamtrl"]) == len(whole.turns) > 2


class TestGroups:
    def test_members_play_one_task_and_groups_keep_their_order(self):
        episodes = collect("MemSokoban-v0", ScriptedPolicy(echo), [5, 6, 7], 2, concurrency=4)
        assert [(episode.group, episode.member) for episode in episodes] == [
            *((5, 0), (5, 1), (6, 0), (6, 1), (7, 0), (7, 1))
        ]
        tasks = [episode.task for episode in episodes]
        assert tasks[::2] == tasks[1::2]
        assert len(set(tasks)) == 3

    def test_an_episode_plays_the_task_of_its_number_and_otherwise_what_its_seed_draws(self):
        env = gym.make("MemSearchQA-v0", **SEARCH)
        drawn = env.reset(seed=7)[1]["task"]
        numbered = env.reset(seed=7, options={"task": 5})[1]["task"]
        first, second = collect("MemSearchQA-v0", RandomMoves(), [7, 8], env_args=SEARCH, tasks=[None, 5])
        assert (first.task, second.task) == (drawn, numbered)
        assert drawn != numbered

    @pytest.mark.parametrize("policy", [RandomMoves, Stream])
    @pytest.mark.parametrize("concurrency", [1, 2, 12])
    def test_an_episode_depends_neither_on_how_many_are_played_at_once_nor_on_who_waits(
        self, policy, concurrency
    ):
        def play(policy, concurrency):
            return collect("MemSearchQA-v0", policy, range(6), 2, env_args=SEARCH, concurrency=concurrency)

        for one, other in zip(play(RandomMoves(), 4), play(policy(), concurrency), strict=True):
            assert (one.task, one.group, one.member, one.end) == (
                *(other.task, other.group, other.member, other.end),
            )
            assert one.turn_rewards == other.turn_rewards
            assert texts_of([one]) == texts_of([other])
            assert [sample.ids.tolist() for sample in one.samples] == [s.ids.tolist() for s in other.samples]

    def test_a_group_is_given_as_soon_as_its_last_episode_has_ended(self):
        lengths = {1: 5, 2: 1}  # the group of seed 2 answers at once

        def reply(request):
            seen = len(request.episode.turns)
            over = seen + 1 == lengths[request.episode.group]
            return Reply("<think></think>" + ("<answer>x</answer>" if over else "<search>x</search>"))

        loop = Loop(maker("MemSearchQA-v0", SEARCH), TurnPolicy(reply))
        plan = [[Episode(seed=seed, group=seed)] for seed in (1, 2)]
        assert [group[0].group for group in loop.play(plan)] == [2, 1]

    @pytest.mark.parametrize(
        "given",
        [
            *({"seeds": [1, 1]}, {"seeds": [-1]}, {"seeds": [1.5]}, {"seeds": ["1"]}),
            *({"seeds": [1], "n": 0}, {"seeds": [1], "concurrency": 0}),
        ],
        ids=["equal seeds", "negative", "a fraction", "a text", "no episodes", "no room"],
    )
    def test_a_plan_that_cannot_be_played_is_refused(self, given):
        with pytest.raises(ValueError):
            collect("MemSokoban-v0", ScriptedPolicy(echo), **given)

    def test_one_environment_for_all_episodes_is_refused(self):
        env = gym.make("MemSokoban-v0")
        with pytest.raises(ValueError, match="same object"):
            collect(lambda: env, ScriptedPolicy(echo), [1, 2])

    def test_an_environment_is_copied(self):
        env = gym.make("MemSokoban-v0")
        wanted = collect("MemSokoban-v0", ScriptedPolicy(echo), [1, 2])
        assert texts_of(collect(env, ScriptedPolicy(echo), [1, 2])) == texts_of(wanted)

    def test_an_environment_of_another_kind_is_refused(self):
        with pytest.raises(ValueError, match="CartPole-v1 is not a text environment"):
            collect("CartPole-v1", lambda observation, info: 0, [1])

    def test_methods_that_lack_a_scorer_or_an_entry_of_the_infos_are_refused(self):
        with pytest.raises(ValueError, match="scorer"):
            collect("MemSokoban-v0", ScriptedPolicy(echo), [1], methods=["TAMTRL"])
        with pytest.raises(ValueError, match="needs"):
            collect("MemSokoban-v0", ScriptedPolicy(echo), [1], methods=["SearchRewards"])


class TestFailures:
    def broken(self):
        """Makes environments of which the second breaks."""
        number = itertools.count()

        def make():
            env = gym.make("MemSokoban-v0")
            if next(number) == 1:
                env.unwrapped._play = self.die
            return env

        return make

    def die(self, action):
        raise RuntimeError("the engine failed")

    def test_a_failing_environment_ends_only_its_own_episode(self):
        episodes = collect(self.broken(), ScriptedPolicy(echo), [1, 2, 3])
        assert [episode.end for episode in episodes] == ["truncated", "failed", "truncated"]
        assert "the engine failed" in episodes[1].error
        assert len(episodes[1].turns) == 1  # the reply that could not be played
        assert [episode.group for episode in valid(episodes)] == [1, 3]

    @pytest.mark.parametrize("policy", [lambda *_: None, made_policy(lambda env, seed: lambda *_: None)])
    def test_a_reply_that_is_no_text_fails_its_episode_before_a_search_for_all(self, policy):
        episodes = collect("MemSearchQA-v0", policy, [1, 2], env_args=SEARCH)
        assert [episode.end for episode in episodes] == ["failed", "failed"]
        assert all("NoneType" in episode.error and not episode.turns for episode in episodes)

    def test_it_is_raised_where_errors_are(self):
        with pytest.raises(RuntimeError, match="the engine failed"):
            collect(self.broken(), ScriptedPolicy(echo), [1, 2, 3], errors="raise")

    def test_an_episode_without_a_reply_fails_alone(self):
        def agent(observation, info):
            if info["turn"] == 1 and next(calls) == 0:
                raise OSError("no\nserver")
            return "no move"

        calls = itertools.count()
        episodes = collect("MemSokoban-v0", agent, range(4), concurrency=2)
        assert sorted(episode.error for episode in episodes) == ["", "", "", "OSError: no server"]
        assert all(len(episode.turns) > 1 for episode in episodes if not episode.error)


class TestInterruptions:
    def test_late_replies_of_an_interrupted_play_are_not_taken_for_those_of_the_next(self):
        first = threading.Event()

        def answer(request):
            if request.episode.seed == 0:
                raise ValueError("away")
            if request.episode.seed < 3:
                first.wait()
            return Reply("<answer>Up</answer>")

        policy = ThreadPolicy(answer)
        with pytest.raises(ValueError, match="away"):
            collect("MemSokoban-v0", policy, range(3), errors="raise")
        first.set()
        episodes = collect("MemSokoban-v0", policy, [3, 4])
        assert [(episode.seed, episode.error) for episode in episodes] == [(3, ""), (4, "")]

    @pytest.mark.parametrize(
        ("env", "policy"), [("MemSokoban-v0", "nobody"), ("MemSokobanGrid-v0", lambda observation, info: 0)]
    )
    def test_what_cannot_be_played_is_refused_before_the_first_episode(self, env, policy):
        with pytest.raises(ValueError):
            collect(env, policy, [0])


class TestPolicies:
    def test_no_streamed_episode_waits_for_the_reply_of_another(self):
        policy = Stream(itertools.chain([10_000], itertools.repeat(1)))  # the first reply outlasts all others
        episodes = collect("MemSearchQA-v0", policy, range(6), env_args=SEARCH, concurrency=3)
        turns = sum(len(episode.replies) for episode in episodes[1:])
        assert policy.order.index(policy.begun[0]) == turns

    def test_a_streamed_prompt_without_room_gets_an_empty_reply(self):
        policy = Stream()
        policy.window = 20
        (episode,) = collect("MemSearchQA-v0", policy, [1], env_args=SEARCH)
        assert texts_of([episode])[0] == [""] * 5
        assert episode.overlong_prompts == 5
        assert episode.samples == []

    def test_replies_that_an_interrupted_rollout_left_are_cancelled_by_the_next_one(self):
        def broken():
            env = gym.make("MemSokoban-v0")
            env.unwrapped._play = TestFailures().die
            return env

        policy = Stream()
        with pytest.raises(RuntimeError, match="the engine failed"):
            collect(broken, policy, [1, 2], errors="raise")
        assert policy.under_way != {}
        streamed = collect("MemSokoban-v0", policy, [1, 2])
        assert texts_of(streamed) == texts_of(collect("MemSokoban-v0", RandomMoves(), [1, 2]))

    def test_a_function_sees_nothing_privileged_and_a_teacher_does(self):
        seen = []

        def agent(observation, info):
            seen.append("privileged" in info)
            return ""

        collect("MemSokoban-v0", agent, [1])
        assert not any(seen)
        collect("MemSokoban-v0", made_policy(lambda env, seed: agent, teacher=True), [1])
        assert seen[-1]

    def test_a_function_is_made_for_each_episode_with_its_own_chance(self):
        def make(env, seed):
            return make_policy("random_text", env, seed)

        one, other = (
            collect("MemSokoban-v0", made_policy(make), range(3), 2, concurrency=count) for count in (1, 6)
        )
        assert texts_of(one) == texts_of(other)
        assert len({tuple(texts) for texts in texts_of(one)}) == 6

    def test_texts_alone_leave_no_training_sequences(self):
        (episode,) = collect("MemSokoban-v0", lambda observation, info: "no move", [1])
        assert episode.samples == []
        assert episode.replies[0].prompt_tokens is None

    def test_calls_that_wait_run_beside_each_other(self):
        meeting = threading.Barrier(3)

        def reply(request):
            meeting.wait(timeout=60)  # until all three are asked
            return Reply("no move")

        options = {"max_turns": 2}
        episodes = collect("MemSokoban-v0", ThreadPolicy(reply), range(3), env_args=options)
        assert [episode.end for episode in episodes] == ["truncated"] * 3

    def test_a_trainers_loop_awaits_the_replies(self):
        async def reply(request):
            await asyncio.sleep(0)
            return Reply(f"no move {request.episode.seed}")

        async def trainer():
            policy = loop_policy(reply, asyncio.get_running_loop())
            return await asyncio.to_thread(collect, "MemSokoban-v0", policy, [1, 2])

        first, second = asyncio.run(trainer())
        assert {*texts_of([first])[0]} == {"no move 1"}
        assert {*texts_of([second])[0]} == {"no move 2"}

    def test_replies_come_in_the_order_of_their_requests(self):
        def reply(request):
            time.sleep(0.05 if request.episode.seed == 0 else 0)
            return Reply(str(request.episode.seed))

        env = gym.make("MemSokoban-v0")
        requests = [begin(env, Episode(seed=seed)) for seed in range(3)]
        assert [own.text for own in replies_to(ThreadPolicy(reply), requests)] == ["0", "1", "2"]

    def test_a_thread_that_ends_fails_its_episode_alone(self):
        def reply(request):
            if request.episode.seed == 0:
                raise SystemExit(1)
            return Reply("no move")

        first, second = collect("MemSokoban-v0", ThreadPolicy(reply), range(2), env_args={"max_turns": 2})
        assert "SystemExit" in first.error
        assert not second.error

    def test_what_is_no_policy_is_refused(self):
        with pytest.raises(TypeError, match="got 3"):
            as_policy(3)


@pytest.mark.parametrize("env", ENV_IDS)
def test_an_environment_that_played_others_before_plays_the_episodes_of_a_new_one(env):
    def make(env, seed):
        return make_policy(("random_text", "gold")[seed % 2], env, seed)

    kept, new = (collect(env, made_policy(make), range(3), 2, concurrency=count) for count in (1, 6))
    assert [encode(episode) for episode in kept] == [encode(episode) for episode in new]


def test_an_episode_played_by_hand_is_the_one_of_collect():
    policy, env = as_policy(RandomMoves(), 64), gym.make("MemSearchQA-v0", **SEARCH)
    request = begin(env, episode := Episode(group=3, seed=3))
    while request:
        request = step(request, *replies_to(policy, [request]))
    (wanted,) = collect("MemSearchQA-v0", RandomMoves(), [3], env_args=SEARCH, max_new_tokens=64)
    assert texts_of([episode]) == texts_of([wanted])
    assert (episode.metrics, episode.turn_rewards) == (wanted.metrics, wanted.turn_rewards)
    for one, other in zip(episode.samples, wanted.samples, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.turns.tolist() == other.turns.tolist()


def test_the_turn_after_a_limit_is_given_and_none_after_the_end_of_a_task():
    following = {}
    make_env = maker("MemSokoban-v0", {"max_turns": 3})
    gold = made_policy(lambda env, seed: make_policy(("gold", "silent")[seed % 2], env, seed), teacher=True)

    def keep(request):
        following[request.episode.seed, request.episode.member] = request.observation

    groups = [[Episode(seed=seed, group=seed, member=member) for member in range(2)] for seed in range(4)]
    episodes = Loop(make_env, gold, on_truncated=keep).play_all(groups)
    truncated = {(one.seed, one.member): one for one in episodes if one.end == "truncated"}
    assert 0 < len(truncated) < len(episodes)
    assert following.keys() == truncated.keys()
    for key, observation in following.items():
        assert observation.endswith(truncated[key].turns[-1].info["feedback"])


def test_a_sample_ends_with_its_last_sampled_token():
    sample = Sample.of(
        (np.array([1, 2]), None, -1), (np.array([3]), np.array([-0.5]), 0), (np.array([4]), None, -1)
    )
    assert sample.ids.tolist() == [1, 2, 3]
    assert sample.response_mask.tolist() == [False, False, True]
    assert sample.logprobs.tolist() == [0, 0, -0.5]
    assert sample.turns.tolist() == [-1, -1, 0]


def test_the_tokens_of_a_reply_that_was_cut_off_are_marked():
    whole = Reply("", np.array([5, 6]), np.zeros(2), True, np.array([7]))
    cut = Reply("", np.array([8]), np.zeros(1), False, np.array([9]))
    turns = [
        Turn("", before(0), whole, after(0.0, 0.0)),
        Turn("", before(1), cut, after(0.0, 1.0), "terminated"),
    ]
    (sample,) = Episode(turns=turns, end="terminated").samples
    assert sample.ids.tolist() == [7, 5, 6, 9, 8]
    assert sample.ended.tolist() == [True, True, False]
