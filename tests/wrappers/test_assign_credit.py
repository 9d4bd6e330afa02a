"""`assign_credit`: groups are compared, and an episode that failed leaves the others credited."""

import math
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from groups import AWAY, RecordingScorer, gold, play_group

import memenvs
from memenvs.core.episode import Episode
from memenvs.credit import infomem_bonus
from memenvs.wrappers import TAMTRL, TRACE, Credit, InfoMem, MemPO, RewardMethod, RewardWrapper, SearchRewards
from memenvs.wrappers.credit import assign_credit
from memenvs.wrappers.scorers import LexicalScorer

CHUNKS = {"tasks": "world-test", "chunk_size": 9000}
MEMORY = {"tasks": "world-test", "memory_mode": "rewrite"}
READING = ["TAMTRL", "InfoMem", "MemPO"]
SEARCH = "<mem>1623</mem><think></think><search>{}</search>"
ANSWER = "<mem>1623</mem><think></think><answer>1623</answer>"


class Mortal(gym.Wrapper):
    """An environment that raises at a reply."""

    def step(self, action):
        if action == "die":
            raise ConnectionError("gone")
        return self.env.step(action)


@dataclass
class Kept(RewardMethod):
    """Keeps the groups it assigned credit to."""

    name = "kept"
    group = True
    immediate = False

    def __post_init__(self):
        self.groups = []

    def assign_credit(self, episodes):
        self.groups.append(list(episodes))
        return [[Credit(0, 1.0)] for _ in episodes]


def read(*memories, scorer="lexical", methods=READING, **settings):
    """A group that reads one text; each member writes a memory at its third turn and answers right."""
    replies = [["", "", memory, "\\boxed{1623}"] for memory in memories]
    settings = {"env_args": CHUNKS, "task": 0, **settings}
    return play_group("MemChunkQA-v0", *replies, methods=methods, scorer=scorer, **settings)


def test_a_group_is_compared_together():
    group = read("1623", "the year", "nothing", "", methods=["InfoMem"])
    gains = np.array([episode.signals["infomem"][-1] for episode in group])
    expected = 1 + 0.2 * (gains - gains.mean()) / gains.std()
    np.testing.assert_allclose([sum(episode.turn_rewards) for episode in group], expected, rtol=1e-4)


def test_all_requests_of_all_methods_are_one_call_without_a_repetition():
    scorer = RecordingScorer()
    read("1623", "1623", "the year", scorer=scorer)
    (call,) = scorer.calls
    assert len({*call}) == len(call)


def answering(before):
    """A reply that ends with the right answer."""
    return lambda request: before + request.info["privileged"]["target_wrapped"]


def test_an_episode_whose_outcome_a_method_replaced_has_both_outcomes():
    group = play_group(
        "MemSearchQA-v0",
        [answering("<mem>m</mem><think></think>")],
        [answering("junk ")],
        env_args=MEMORY,
        methods=["MemPO"],
        scorer="lexical",
        seed=3,
    )
    assert [sum(episode.outcomes) for episode in group] == [1.0, 1.0]
    assert [sum(episode.outcome_rewards) for episode in group] == pytest.approx([1.0, 0.0])


def test_an_answer_that_is_impossible_without_the_memory_is_no_infinite_reward():
    class Impossible(LexicalScorer):
        def logprobs(self, requests):
            return [np.full(2, -math.inf) for _ in requests]

    group = read("a", "b", scorer=Impossible(), methods=["InfoMem", "MemPO"])
    assert np.isfinite([episode.turn_rewards for episode in group]).all()
    assert group[0].metrics["infomem_unscored"] == 1.0


def test_a_signal_that_is_no_finite_number_is_not_measured_and_gives_no_credit():
    class Endless(Kept):
        name = "endless"

        def signal(self, turn, scores):
            return {"up": math.inf, "down": -math.inf}.get(turn.action, 1.0)

        def assign_credit(self, episodes):
            return RewardMethod.assign_credit(self, episodes)

    (episode,) = read("up", methods=[Endless()])
    signals, credits = episode.signals["endless"], episode.credits["endless"]
    assert [math.isnan(signal) for signal in signals] == [False, False, True, False]
    assert [credit.known for credit in credits] == [True, True, False, True]
    assert episode.measured["endless"] == [0, 1, 3]
    assert credits[2].reason
    assert sum(episode.turn_rewards) == 3.0 + episode.outcome


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda scores: scores[1:], "arrays"),
        (lambda scores: [-one for one in scores], "give log p, not -log p"),
        (lambda scores: [one.sum() for one in scores], "give (T,) nats"),
    ],
    ids=["too few arrays", "of the other sign", "one number each"],
)
def test_a_scorer_that_gives_no_log_probabilities_of_tokens_fails_the_episodes(given, said):
    class Wrong(LexicalScorer):
        def logprobs(self, requests):
            return given(super().logprobs(requests))

    group = read("a", "b", scorer=Wrong(), methods=["TAMTRL"])
    assert all(said in episode.error for episode in group)
    credits = [credit for episode in group for credit in episode.credits["tamtrl"]]
    assert credits
    assert not any(credit.known for credit in credits)


def test_log_probabilities_that_rounding_left_above_0_count_as_0():
    class Certain(LexicalScorer):
        def logprobs(self, requests):
            return [np.full(2, 5e-4) for _ in requests]

    (episode,) = read("a", scorer=Certain(), methods=[TRACE(epsilon=1e-4)])
    assert not episode.error
    assert episode.signals["trace"] == [0.0] * 4


@pytest.mark.parametrize(
    "env",
    ["MemChunkQA-v0", lambda: gym.make("MemChunkQA-v0"), gym.make("MemChunkQA-v0")],
    ids=["an id", "a function", "an environment"],
)
def test_a_group_of_any_form_of_environment_is_collected_with_a_function(env):
    episodes = memenvs.collect(
        env, lambda text, info: "notes", range(2), n=2, methods=[TAMTRL()], scorer="lexical"
    )
    assert [episode.group for episode in episodes] == [0, 0, 1, 1]
    assert all(len(episode.credits["tamtrl"]) == len(episode.turns) for episode in episodes)


def test_methods_inside_and_outside_are_paid_together():
    env = RewardWrapper(gym.make("MemChunkQA-v0", **CHUNKS), ["TAMTRL"], "lexical")
    group = play_group(env, ["1623"] * 3 + [gold], ["x"], task=0, methods=["InfoMem"], scorer="lexical")
    together = play_group(
        "MemChunkQA-v0", ["1623"] * 3 + [gold], ["x"],
        task=0, env_args=CHUNKS, methods=["TAMTRL", "InfoMem"], scorer="lexical",
    )  # fmt: skip
    for one, other in zip(group, together, strict=True):
        assert one.credits.keys() == other.credits.keys()
        assert one.credits["infomem"] == other.credits["infomem"]


# Failures.


def test_the_credits_of_an_episode_that_could_not_be_scored_are_nan_with_the_reason():
    scored, failed = read("1623", "poison", scorer=RecordingScorer("poison"))
    assert (scored.error, failed.error) == ("", AWAY)
    assert failed.end == "failed"
    for name in ("tamtrl", "infomem", "mempo"):
        assert all(credit.known for credit in scored.credits[name])
        assert np.isnan(failed.signals[name]).tolist() == [True] * 4
        assert math.isnan(failed.rewards[name])
        assert [(math.isnan(credit.value), credit.reason) for credit in failed.credits[name]] == [
            (True, AWAY)
        ] * 4
        assert failed.metrics[f"{name}_unscored"] == 4.0
    assert failed.outcome == 1.0  # what the environment paid is known


def test_the_group_is_compared_without_the_failed_one():
    group = read(
        "1623", "poison", "the year", "nothing", scorer=RecordingScorer("poison"), methods=["InfoMem"]
    )
    living = [group[i] for i in (0, 2, 3)]
    gains = [episode.signals["infomem"][-1] for episode in living]
    expected = 1 + 0.2 * infomem_bonus(np.array(gains), [True] * 3)
    np.testing.assert_allclose([sum(episode.turn_rewards) for episode in living], expected)


def test_a_group_with_one_alive_is_not_taken_for_an_episode_without_a_group():
    kept, method = Kept(), InfoMem()
    alive, _ = read("the year 1623", "poison", scorer=RecordingScorer("poison"), methods=[method, kept])
    assert [len(group) for group in kept.groups] == [2]
    assert method.get_memory() == {}  # no running statistics: the raw gain of one success
    gain = alive.signals["infomem"][-1]
    assert sum(alive.turn_rewards) == pytest.approx(1 + 0.2 * gain + 1.0)


def test_a_group_that_failed_as_a_whole_is_given_back_without_credit():
    kept = Kept()
    group = read("1623", "x", scorer=RecordingScorer(""), methods=[kept, "TAMTRL"])
    assert kept.groups == []
    assert [episode.error for episode in group] == [AWAY] * 2


def test_an_environment_that_fails_leaves_the_others_credited():
    group = play_group(
        lambda: Mortal(gym.make("MemSearchQA-v0", **MEMORY)),
        [SEARCH.format("zzz"), ANSWER],
        [SEARCH.format("zzz"), "die"],
        ["die"],
        task=0,
        methods=[SearchRewards(search_cost=0.0), "MemPO"],
        scorer="lexical",
    )
    assert [episode.end for episode in group] == ["terminated", "failed", "failed"]
    assert [episode.error for episode in group[1:]] == ["ConnectionError: gone"] * 2
    # a well-formed search that found nothing: 0.1 for its form
    assert group[0].credits["search_rewards"][0].value == pytest.approx(0.1)
    assert all(credit.known for credit in group[0].credits["mempo"])
    assert group[1].turn_rewards == [0.0, 0.0]
    assert [len(episode.turns) for episode in group] == [2, 2, 1]


def test_an_episode_that_never_began_is_compared_with_none():
    group = [Episode(), Episode()]
    for episode in group:
        episode.fail("ConnectionError: gone")
    assign_credit(group, [InfoMem(), MemPO(), TAMTRL()], LexicalScorer())
    assert [episode.credits for episode in group] == [{}, {}]


def test_where_errors_are_raised_the_scorers_is():
    with pytest.raises(ConnectionError):
        read("1623", "poison", scorer=RecordingScorer("poison"), errors="raise")


@pytest.mark.parametrize("size", [1, 2, 6])
def test_whatever_dies_all_groups_complete(size):
    rng = np.random.default_rng(size)
    failed = 0
    for seed in range(6):
        words = rng.choice(
            ["1623", "the year", "", "\\boxed{1623}", "poison", "die"],
            (size, 4),
            p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1],
        )
        group = play_group(
            lambda: Mortal(gym.make("MemChunkQA-v0", **CHUNKS)),
            *words.tolist(),
            seed=seed,
            methods=READING,
            scorer=RecordingScorer("poison"),
        )
        assert all(episode.over for episode in group)
        assert np.isfinite(np.concatenate([episode.turn_rewards for episode in group])).all()
        for episode in group:
            assert (episode.end == "failed") == any(math.isnan(value) for value in episode.rewards.values())
        failed += sum(episode.end == "failed" for episode in group)
    assert failed
