"""IGPO and ReMemR1: their equations against separate NumPy code, their signals by hand, and in episodes."""

import itertools
import math
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from groups import RecordingScorer, gold, play_group
from msgspec.structs import replace

import memenvs
from memenvs.baselines.advantages import group_advantages
from memenvs.build.multi import MultiOptions, multi
from memenvs.build.write import write_task_set
from memenvs.credit import igpo, rememr1, trace
from memenvs.models import Reply, ScriptedPolicy
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import load_tokenizer
from memenvs.testing import play
from memenvs.wrappers import IGPO, TRACE, ReMemR1, RewardWrapper, Turn
from memenvs.wrappers.comparison import ComparisonSettings
from memenvs.wrappers.infomem import target_requests
from memenvs.wrappers.rememr1 import recall
from memenvs.wrappers.scorers import HFScorer, ScoreRequest

close = np.testing.assert_allclose
HALF, QUARTER = math.log(0.5), math.log(0.25)
POLICY = ScriptedPolicy(str)
GAINS = [[0.1, -0.2, 9.0], [0.4, 9.0], [0.0, 0.3, 0.2, 9.0]]
OUTCOMES = [1.0, 0.0, 0.5]


def discounted(row, gamma):
    return [sum(gamma ** (later - k) * row[later] for later in range(k, len(row))) for k in range(len(row))]


def z(values, ddof):
    values = np.asarray(values)
    return (values - values.mean()) / (values.std(ddof=ddof) + 1e-6)


class TestIGPOAdvantage:
    @pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
    def test_gains_and_outcomes_are_normalised_apart_and_summed_from_the_turn_on(self, gamma):
        gains, results = z([0.1, -0.2, 0.4, 0.0, 0.3, 0.2], 0), z(OUTCOMES, 0)
        rows = [[*gains[:2], results[0]], [gains[2], results[1]], [*gains[3:], results[2]]]
        for found, row in zip(igpo(GAINS, OUTCOMES, gamma=gamma), rows, strict=True):
            close(found, discounted(row, gamma))

    def test_groups_do_not_touch_each_other(self):
        alone = igpo(GAINS[:2], OUTCOMES[:2])
        both = igpo([*GAINS[:2], [5.0, 0.0], [7.0, 0.0]], [*OUTCOMES[:2], 3, 4], groups=["a", "a", "b", "b"])
        for found, row in zip(both, alone, strict=False):
            close(found, row)

    def test_a_group_of_equal_outcomes_still_learns_from_its_gains(self):
        first, second = igpo([[0.1, 0], [0.3, 0]], [0, 0], eps=0)
        close([first, second], [[-1, 0], [1, 0]])

    def test_a_gain_that_could_not_be_measured_is_left_out(self):
        first, second, third = igpo([[0.1, 0], [np.nan, 0], [0.3, 0]], [0, 0, 0], eps=0)
        close([first, second, third], [[-1, 0], [0, 0], [1, 0]])

    def test_an_episode_of_one_turn_has_its_outcome_alone(self):
        close(igpo([[9.0], [0.5, 9.0]], [1, 0], eps=0)[0], [1.0])
        assert igpo([], []) == []

    def test_later_turns_count_in_full_by_default(self):
        # gains 0.1, 0.3 -> -1, 1; outcomes 0, 1 -> -1, 1
        close(igpo([[0.1, 0], [0.3, 0]], [0, 1], eps=0), [[-2, -1], [2, 1]])


class TestReMemR1Advantage:
    def test_it_is_the_outcomes_share_and_that_of_the_state_at_each_turn(self):
        states, outcomes = np.array([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [1.0, -0.5, 0.0]]), [1.0, 0.0, 0.0]
        by_turn = np.stack([z(states[:, k], 1) if np.ptp(states[:, k]) else np.zeros(3) for k in range(3)])
        close(rememr1(states, outcomes), 0.8 * z(outcomes, 1)[:, None] + 0.2 * by_turn.T)
        close(rememr1(states, outcomes, alpha=0.0), by_turn.T)

    def test_a_turn_is_compared_with_the_rollouts_that_have_it(self):
        first, second = rememr1([[1, 5], [0]], [0, 0], alpha=0.0, eps=0)
        close(first, [math.sqrt(0.5), 0.0])
        close(second, [-math.sqrt(0.5)])

    def test_a_state_that_could_not_be_measured_has_the_outcome_alone(self):
        assert rememr1([[np.nan], [1.0], [2.0]], [1, 0, 0])[0] == pytest.approx(0.8 * z([1, 0, 0], 1)[0])

    def test_without_std_neither_part_is_divided(self):
        # Outcomes 1, 0: +-0.5. States 0.4, 0 at turn 1: +-0.2, and equal ones at turn 2.
        first, second = rememr1([[0.4, 0], [0, 0]], [1, 0], alpha=0.5, scale="none")
        close(first, [0.25 + 0.1, 0.25])
        close(second, [-0.25 - 0.1, -0.25])

    def test_settings_out_of_their_range_are_refused(self):
        with pytest.raises(ValueError, match="alpha"):
            rememr1([[0.0]], [1.0], alpha=2)
        with pytest.raises(ValueError, match="gamma"):
            igpo(GAINS, OUTCOMES, gamma=-1)


def turn(before, after, end=""):
    return Turn("read", {"privileged": before}, Reply("reply"), {"privileged": after}, end)


AFTER = {"question": "q", "prompt_with_history": "q h2", "target": "y", "target_wrapped": "[y]"}


class TestIGPO:
    def test_the_answer_is_asked_after_the_turn_and_before_it(self):
        played = turn({"question": "q", "prompt_with_history": "q h1"}, AFTER)
        asked = {"inside": ("y", "["), "bare": ("y", ""), "wrapped": ("[y]", "")}
        for target, texts in asked.items():
            requests = [ScoreRequest(prompt, *texts) for prompt in ("q h2", "q h1")]
            assert IGPO(target=target).requests(played) == requests

    def test_the_last_turn_asks_nothing_and_gains_nothing(self):
        assert IGPO().requests(turn({}, AFTER, "terminated")) == []
        assert IGPO().signal(turn({}, AFTER, "terminated"), []) == 0.0

    def test_the_gain_is_a_difference_of_geometric_means(self):
        scores = [np.array([HALF, math.log(0.125)]), np.array([math.log(0.125)] * 2)]
        assert IGPO().signal(turn({}, AFTER), scores) == pytest.approx(0.25 - 0.125)
        assert IGPO(measure="log").signal(turn({}, AFTER), scores) == pytest.approx(math.log(2))

    def test_an_empty_target_is_not_measured(self):
        empty = turn({"question": "q", "prompt_with_history": "q h1"}, {**AFTER, "target": ""})
        assert [one.continuation for one in IGPO().requests(empty)] == ["", ""]
        assert math.isnan(IGPO().signal(turn({}, AFTER), [np.zeros(0), np.zeros(0)]))

    def test_a_form_that_is_given_as_part_of_the_prompt_scores_the_same(self, tiny_model):
        fields = {"target": "Tarsk", "target_wrapped": "\\boxed{Tarsk}"}
        scorer = HFScorer(str(tiny_model), device="cpu")
        prompts = ["Ada lived in Tarsk.", "Nobody knows."]
        found = scorer.logprobs(target_requests(prompts, fields, "inside"))
        given = [ScoreRequest(prompt + "\\boxed{", "Tarsk") for prompt in prompts]
        close(found, scorer.logprobs(given), rtol=1e-4)


class TestTRACE:
    def test_the_gain_is_the_log_ratio_of_what_is_missing(self):
        scores = [np.array([HALF, math.log(0.125)]), np.array([math.log(0.125)] * 2)]
        gain = math.log((0.1 + math.log(8)) / (0.1 + math.log(4)))
        assert TRACE().signal(turn({}, AFTER), scores) == pytest.approx(gain)

    @pytest.mark.parametrize("nats", [(-math.inf, HALF), (HALF, -math.inf), (-math.inf, -math.inf)])
    def test_an_answer_that_is_impossible_has_no_finite_gain(self, nats):
        assert not math.isfinite(TRACE().signal(turn({}, AFTER), [np.array([value]) for value in nats]))

    @pytest.mark.parametrize("horizon", [1, 2, 3, 9])
    def test_the_advantage_is_that_of_algorithm_1(self, horizon):
        def discounted(values):
            return sum(0.8**j * value for j, value in enumerate(values))

        mean = sum(OUTCOMES) / len(OUTCOMES)
        spread = math.sqrt(sum((outcome - mean) ** 2 for outcome in OUTCOMES) / len(OUTCOMES))
        for row, outcome, found in zip(
            GAINS, OUTCOMES, trace(GAINS, OUTCOMES, horizon=horizon, eps=0), strict=True
        ):
            advantage, gains = (outcome - mean) / spread, row[:-1]
            for k in range(len(gains)):
                window = gains[k : k + horizon]
                reward = discounted(window) / discounted([1] * len(window))
                if k + len(window) == len(gains):
                    reward += 2 * 0.8 ** (len(gains) - k) * advantage
                assert found[k] == pytest.approx(advantage + 0.2 * reward)
            assert found[-1] == pytest.approx(advantage)


class TestReMemR1:
    def test_recall_is_the_share_of_the_answers_words(self):
        assert recall("The mayor, Ano Bel, left.", [["Ano Cor"]]) == 0.5
        assert recall("Ano", [["Ano Bel", "Ano"]]) == 1.0  # the form it holds most of
        assert recall("Ano", [["Ano"], ["Bel"]]) == 0.5  # a mean over objectives
        assert recall("Anothing", [["Ano"]]) == 0.0  # whole words
        assert recall("", [["the"]]) == recall("x", []) == recall("x", [[]]) == 0.0

    @pytest.mark.parametrize(
        ("bounded", "signal"),
        [
            # at hand "ano bel" and "cor" behind "ano" and "dun": 3/4 - 2/4
            (True, 0.25),
            # memory 2/4 - 1/4; the prompt holds "dun", and with "cor" beside it 2/4 - 1/4
            (False, 0.5),
        ],
    )
    def test_the_signal_is_what_a_turn_adds_and_the_last_turn_adds_nothing(self, bounded, signal):
        before = {"answers": [["Ano Bel Cor Dun"]], "memory": "Ano", "recalled": "Dun"}
        played = turn(before, {"memory": "Ano Bel", "recalled": "Cor"})
        played.observation = "Dun was there."
        method = ReMemR1(bounded=bounded)
        assert method.signal(played, []) == pytest.approx(signal)
        assert method.signal(replace(played, end="terminated"), []) == 0.0


# Played.


@pytest.mark.parametrize("env_id", ["MemChunkQA-v0", "MemSearchQA-v0"])
def test_igpo_asks_about_each_prompt_once(env_id):
    scorer, reply = RecordingScorer(), "<think></think><search>a town</search>"
    env = RewardWrapper(gym.make(env_id, tasks="world-test", disable_env_checker=True), [IGPO()], scorer)
    env.reset(seed=0)
    for _ in range(3):
        env.step(reply)
    asked = [request for call in scorer.calls for request in call]
    assert len(asked) == len(set(asked)) > 1
    env.reset(seed=0)  # another episode, whose scorer may have learned since
    env.step(reply)
    assert {*scorer.calls[-1]} & {*asked}


@pytest.mark.parametrize("env_id", memenvs.ENV_IDS)
def test_the_gains_of_any_environment_add_up_to_the_rise_of_the_answers_probability(env_id):
    env = RewardWrapper(gym.make(env_id, disable_env_checker=True), [IGPO()], "lexical")
    *steps, (_, _, terminated, truncated, info) = play(env, ["first", "second", *["x"] * 200], seed=0)
    assert terminated or truncated
    prompts = [step[-1]["privileged"]["prompt_with_history"] for step in steps]
    target = info["privileged"]["target"]
    scores = env.scorer.logprobs([ScoreRequest(prompt, target) for prompt in (prompts[-1], prompts[0])])
    last, first = (math.exp(nats.mean()) for nats in scores)
    gains = [credit.value for credit in info["credits"]["igpo"]]
    assert gains[-1] == 0.0
    assert math.fsum(gains) == pytest.approx(last - first, abs=1e-12)
    assert "outcome" not in info["rewards"] or info["rewards"]["outcome"] == info["metrics"]["outcome"]


HOLD = {
    "rewrite": "{}",
    "callback": "{}",
    "mem1": "<think>{}</think>",
    "structured": "ADD: {}",
    "a_mem": "{}",
    "react": "{}",
}
DROP = {"structured": "DELETE 1", "mem1": "<think>nothing</think>"}


def sums(env, replies, turns):
    """For every sequence of so many replies, the sum of ReMemR1's signals and what is at hand at the end."""
    _, info = env.reset(seed=0)
    answers, start = info["privileged"]["answers"], memenvs.get_state(env)
    for sequence in itertools.product(replies, repeat=turns):
        memenvs.set_state(env, start)
        for reply in sequence:
            last = env.step(reply.format(info["privileged"]["target"]))[4]
        told = last["privileged"]
        at_hand = f"{told['memory']}\n{told.get('recalled', '')}"
        yield math.fsum(last["signals"]["rememr1"]), recall(at_hand, answers)


@pytest.mark.parametrize("mode", HOLD)
def test_whatever_is_held_dropped_and_called_back_earns_what_is_at_hand_at_the_end(mode):
    env = gym.make("MemChunkQA-v0", tasks="world-test", memory_mode=mode, disable_env_checker=True)
    env = RewardWrapper(env, [ReMemR1()])
    replies = [HOLD[mode], DROP.get(mode, "nothing"), "<recall>{}</recall>", "nothing <recall>{}</recall>"]
    found = list(sums(env, replies, 3))
    assert all(total == pytest.approx(held) for total, held in found)
    assert max(total for total, _ in found) == 1.0


def test_a_memory_of_a_search_is_rewarded_too():
    env = gym.make("MemSearchQA-v0", memory_mode="rewrite", disable_env_checker=True)
    env = RewardWrapper(env, [ReMemR1()])
    _, info = env.reset(seed=0)
    answer = info["privileged"]["target"]
    assert env.step(f"<mem>{answer}</mem><think></think><search>x</search>")[1] == 1.0


def test_questions_that_are_asked_one_by_one_leave_the_memory_its_recall(tmp_path):
    tokenizer = load_tokenizer()
    options = MultiOptions(source=["world-test"], objectives=2, num_tasks=2, split="test")
    draft = multi(options, tokenizer)
    write_task_set(tmp_path / "multi", draft, Card("multi"), tokenizer)
    env = gym.make("MemChunkQA-v0", tasks=str(tmp_path / "multi"), ask="each", disable_env_checker=True)
    env = RewardWrapper(env, ["IGPO", "ReMemR1"], "lexical")
    _, info = env.reset(seed=0)
    target = info["privileged"]["target"]
    while not info["metrics"]["turns"]:
        info = env.step(target)[4]
    signals = info["signals"]
    assert signals["rememr1"] == [1.0] + [0.0] * (info["turn"] - 1)
    # Two answers and the memory before them: the question is another one after each of these turns.
    assert signals["igpo"][0] > 0.0
    assert signals["igpo"][-3:] == [0.0] * 3


# Learners.


def collected(method):
    """A group of three episodes of one task, the first of which is right; a reply is one token."""
    group = play_group(
        gym.make("MemChunkQA-v0", tasks="world-test"), [gold], [""], ["noise"],
        task=0, methods=[method], scorer="lexical",
    )  # fmt: skip
    for turn in (turn for episode in group for turn in episode.turns):
        turn.reply = replace(turn.reply, ids=POLICY.encode("a"), logprobs=np.zeros(1))
    return group


@pytest.mark.parametrize(
    ("method", "scale", "advantage"),
    [
        (IGPO(gamma=0.5), "std", partial(igpo, gamma=0.5)),
        (TRACE(horizon=1), "std", partial(trace, horizon=1)),
        (ReMemR1(alpha=0.5), "none", partial(rememr1, alpha=0.5, scale="none")),
    ],
)
def test_the_learner_takes_the_methods_own_advantage_with_its_settings(method, scale, advantage):
    group = collected(method)
    wanted = advantage([one.signals[method.name] for one in group], [1.0, 0.0, 0.0])
    found = group_advantages(group, POLICY, method, ComparisonSettings(scale=scale))
    for tokens, turns in zip(found, wanted, strict=True):
        close(tokens, turns)  # one token a turn
    default = group_advantages(group, POLICY, type(method)())
    assert not np.allclose(np.concatenate(default), np.concatenate(found))
