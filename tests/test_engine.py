"""The engine: each episode continues as soon as it has its own reply, and plays as it would alone."""

import itertools

import numpy as np
import pytest
from test_rollout import RandomMoves, venv_of

from memenvs.rollout.engine import Answer, Engine, collect
from memenvs.rollout.records import Episode, text_reply, to_record
from memenvs.rollout.session import NO_REPLY, Session
from memenvs.wrappers import VectorRewardWrapper

SEARCH = {"tasks": "world-test"}


class Stream(RandomMoves):
    """Replies that take a random time; the one that ends first is given first, alone."""

    def __init__(self, times=None):
        super().__init__()
        self.under_way, self.now, self.order = {}, 0, []
        chance = np.random.default_rng(0)
        self.times = times or (int(chance.geometric(0.01)) for _ in range(10**6))

    def submit(self, key, prompt, rng, max_new_tokens):
        assert key not in self.under_way
        (reply,) = self.sample([prompt], [rng], [max_new_tokens])
        self.under_way[key] = self.now + next(self.times), reply

    def completed(self):
        key = min(self.under_way, key=lambda one: self.under_way[one][0])
        self.now, reply = self.under_way.pop(key)
        self.order.append(key)
        return [(key, reply)]

    def cancel(self):
        self.under_way.clear()


class Texts:
    """A policy over texts that answers with the number of its environment; environment 1 gets no reply.

    It gets as many as `before`, and then none.
    """

    def __init__(self, before=0):
        self.waiting, self.left = [], before

    def ask(self, request):
        self.waiting.append(request.env_index)

    def answered(self):
        indices, self.waiting = self.waiting, []
        return [self._answer(index) for index in indices]

    def _answer(self, index):
        if index == 1:
            self.left -= 1
            if self.left < 0:
                return Answer(index, error="no\nserver")
        return Answer(index, text_reply(str(index)))


def texts_of(episodes):
    return [[reply.text for reply in episode.replies] for episode in episodes]


def test_a_streamed_episode_is_the_one_of_a_batch():
    played = [
        collect(venv_of("MemSearchQA-v0", count, **SEARCH), policy, range(6), 2)
        for count, policy in ((4, RandomMoves()), (4, Stream()), (12, Stream()))
    ]
    batched, streamed, wide = map(texts_of, played)
    assert batched == streamed == wide
    for one, other in zip(played[0], played[1], strict=True):
        assert one.turn_rewards == other.turn_rewards
        assert [sample.ids.tolist() for sample in one.samples] == [s.ids.tolist() for s in other.samples]
        assert (one.group, one.member, one.end) == (other.group, other.member, other.end)


def test_no_streamed_episode_waits_for_the_reply_of_another():
    policy = Stream(itertools.chain([10_000], itertools.repeat(1)))  # the first reply outlasts all others
    episodes = collect(venv_of("MemSearchQA-v0", 3, **SEARCH), policy, range(6))
    turns = sum(len(episode.replies) for episode in episodes[1:])
    assert policy.order.index(0) == turns


def test_a_streamed_prompt_without_room_gets_an_empty_reply():
    policy = Stream()
    policy.window = 20
    (episode,) = collect(venv_of("MemSearchQA-v0", 1, **SEARCH), policy, [1])
    assert all(reply is NO_REPLY for reply in episode.replies)
    assert episode.overlong_prompts == len(episode.replies) > 0
    assert episode.samples == []


def test_replies_that_an_interrupted_rollout_left_are_cancelled_by_the_next_one():
    venv, policy = venv_of("MemSokoban-v0", 2), Stream()

    def die(action):
        raise RuntimeError("the engine is gone")

    venv.envs[0].unwrapped._play = venv.envs[1].unwrapped._play = die
    with pytest.raises(RuntimeError, match="the engine is gone"):
        collect(venv, policy, [1, 2])
    assert policy.under_way != {}
    streamed = collect(venv_of("MemSokoban-v0", 2), policy, [1, 2])
    assert texts_of(streamed) == texts_of(collect(venv_of("MemSokoban-v0", 2), RandomMoves(), [1, 2]))


def test_an_episode_without_a_reply_fails_alone():
    sessions = [[Session(episode=Episode(seed=seed))] for seed in range(4)]
    engine = Engine(venv_of("MemSokoban-v0", 2), Texts())
    episodes = {session.episode.seed: session.episode for (session,) in engine.play(sessions)}
    assert {seed for seed, episode in episodes.items() if episode.end == "failed"} >= {1}
    assert {episode.error for episode in episodes.values()} == {"", "no server"}
    assert all(len(episode.turns) > 1 for episode in episodes.values() if not episode.error)


def test_an_episode_that_fails_before_its_end_has_no_signals_of_methods_that_measure_there():
    venv = venv_of("MemChunkQA-v0", 2, tasks="world-test", n_documents=6, chunk_size=300)
    engine = Engine(VectorRewardWrapper(venv, ["TAMTRL", "IGPO"], "lexical"), Texts(before=2))
    groups = engine.play([[Session(episode=Episode(seed=seed))] for seed in range(2)])
    whole, failed = sorted((session.episode for (session,) in groups), key=lambda one: one.error)
    assert (failed.end, failed.error, len(failed.turns)) == ("failed", "no server", 2)
    assert np.isnan(failed.signals["tamtrl"]).tolist() == [True] * 2
    assert not np.isnan([*failed.signals["igpo"], *whole.signals["tamtrl"]]).any()
    assert len(whole.signals["tamtrl"]) == len(whole.turns) > 2


def test_an_episode_plays_the_task_of_its_number_and_otherwise_what_its_seed_draws():
    venv = venv_of("MemSearchQA-v0", 2, **SEARCH)
    drawn = venv.envs[0].reset(seed=7)[1]["task"]
    numbered = venv.envs[0].reset(seed=7, options={"task": 5})[1]["task"]
    group = [Session(episode=Episode(seed=7)), Session(episode=Episode(seed=7, number=5))]
    ((first, second),) = Engine(venv, Texts(), group_size=2).play([group])
    assert (first.episode.task, second.episode.task) == (drawn, numbered)
    assert drawn != numbered


def test_a_session_plays_an_episode_by_hand_as_collect_does():
    session, policy = Session(RandomMoves(), Episode(group=3, seed=3)), RandomMoves()
    (env,) = venv_of("MemSearchQA-v0", 1, **SEARCH).envs
    session.begin(*env.reset(seed=3))
    while not session.over:
        (reply,) = policy.sample([session.prompt], [session.rng], 64)
        session.step(env, reply)
    session.finish(session.info)
    (wanted,) = collect(venv_of("MemSearchQA-v0", 1, **SEARCH), policy, [3], max_new_tokens=64)
    session.episode.env = "MemSearchQA-v0"
    assert to_record(session.episode) == to_record(wanted)
    for one, other in zip(session.episode.samples, wanted.samples, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.turns.tolist() == other.turns.tolist()


def test_texts_alone_leave_no_training_sequences():
    ((session,),) = Engine(venv_of("MemSokoban-v0", 1), Texts()).play([[Session()]])
    assert session.episode.samples == []
    with pytest.raises(ValueError, match="there is no prompt"):
        _ = session.prompt


def test_a_fork_continues_by_itself():
    session = Session(RandomMoves())
    session.begin("Who?", {"context": "append"})
    info = {"context": "append", "feedback": " No.", "rewards": {"outcome": 0.5}}
    fork = session.fork()
    fork.play(text_reply("A"), "Who?A No.", info)
    assert (session.observation, len(session.episode.turns)) == ("Who?", 0)
    assert (fork.text, fork.episode.outcomes) == (" No.", [0.5])
