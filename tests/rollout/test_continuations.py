"""Continuations: V of a state is what playing on from it earns, and a turn gets the difference it made."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from memenvs import collect, evaluate
from memenvs.core.env import EpisodeState, TextEnv
from memenvs.core.episode import Episode, Reply
from memenvs.core.episode_file import read_lines
from memenvs.models import ScriptedPolicy
from memenvs.rollout.collect import Loop
from memenvs.rollout.policy import ThreadPolicy, TurnPolicy
from memenvs.rollout.tree import collect_trees
from memenvs.wrappers import Continuations, GiGPO, RewardWrapper

TURNS, STEP_PAY = 3, 0.1


@dataclass
class Walk(EpisodeState):
    height: int = 0


class Climb(TextEnv):
    """Three replies, each up or down, and up pays a little at once; only three ups end at the top."""

    components = ("outcome", "step")
    context = "rewrite"

    def __init__(self, broken=False, render_mode=None):
        super().__init__(1, render_mode)
        self.broken = broken

    def _begin(self, task):
        return Walk(task)

    def _observe(self):
        return f"height {self.state.height}"

    def _play(self, reply):
        if self.broken and reply == "down" and self.state.turn == 2:
            raise OSError("the rope is broken")
        self.state.height += reply == "up"
        last = self.state.turn == TURNS - 1
        self.state.end = "terminated" if last else ""
        return {"outcome": float(last and self.state.height == TURNS), "step": STEP_PAY * (reply == "up")}

    def _metrics(self):
        return {"success": float(self.state.height == TURNS)}

    def _feedback(self):
        return ""

    def gold_reply(self):
        return "up"


UP = 0.7
climber = TurnPolicy(lambda request: Reply("up" if request.rng.random() < UP else "down"))


def climbs(n=8, size=4, policy=climber, **settings):
    return collect(Climb, policy, [5], n=size, methods=[Continuations(n)], errors="raise", **settings)


def true_value(turn, height):
    """What the climber earns from a state on, by its probabilities."""
    left = TURNS - turn
    top = UP**left if height == turn else 0.0
    return top + left * UP * STEP_PAY


def replayed_values(episodes, n):
    """V at each turn, by the random numbers of the loop, in code without an environment or a loop."""
    states, values = {}, []
    for episode in episodes:
        values.append([])
        height = 0
        for turn, reply in enumerate(episode.replies):
            number = states.setdefault((turn, height), len(states))
            earned = []
            for j in range(n):
                rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(number, 0, j)))
                ups = [rng.random() < UP for _ in range(turn, TURNS)]
                earned.append(STEP_PAY * sum(ups) + (height + sum(ups) == TURNS))
            values[-1].append(sum(earned) / n)
            height += reply.text == "up"
    return values


def test_values_are_the_means_of_n_continuations_of_each_state_of_a_group():
    episodes = climbs()
    expected = replayed_values(episodes, 8)
    for episode, values in zip(episodes, expected, strict=True):
        assert episode.signals["continuations"] == pytest.approx(values)
        assert episode.measured["continuations"] == [0, 1, 2]


def test_a_turn_gets_its_reward_and_the_change_of_the_value_as_an_advantage():
    for episode, values in zip(episodes := climbs(), replayed_values(episodes, 8), strict=True):
        rewards = [sum(turn.info["rewards"].values()) for turn in episode.turns]
        expected = [r + after - v for r, v, after in zip(rewards, values, [*values[1:], 0.0], strict=True)]
        credits = episode.credits["continuations"]
        assert [credit.value for credit in credits] == pytest.approx(expected)
        assert all(credit.advantage for credit in credits)
        assert sum(expected) == pytest.approx(sum(rewards) - values[0])


def test_values_approach_the_true_ones():
    (episode,) = climbs(n=2000, size=1)
    height = 0
    for turn, reply in enumerate(episode.replies):
        value = episode.signals["continuations"][turn]
        assert value == pytest.approx(true_value(turn, height), abs=4 * 0.6 / 2000**0.5)
        height += reply.text == "up"


def test_their_number_is_told_before_any_is_made(caplog, monkeypatch):
    class TooMany(Exception):
        pass

    def refuse(entropy, *, spawn_key=()):
        if spawn_key:  # of a continuation
            raise TooMany
        return plain(entropy)

    plain = np.random.SeedSequence
    monkeypatch.setattr(np.random, "SeedSequence", refuse)
    with pytest.raises(TooMany):
        collect(Climb, climber, [5], methods=[Continuations(10)], errors="raise")
    assert "takes about 60 more" in caplog.text  # 10 times 3 + 2 + 1


def test_turns_in_equal_states_share_their_continuations():
    asked = []
    counting = TurnPolicy(lambda request: (asked.append(1), climber._reply(request))[1])
    episodes = climbs(n=3, policy=counting)
    own = {(turn, sum(one.text == "up" for one in episode.replies[:turn]))
           for episode in episodes for turn in range(TURNS)}  # fmt: skip
    assert len(asked) == 4 * TURNS + sum(3 * (TURNS - turn) for turn, _ in own)


@pytest.mark.parametrize("concurrency", [1, 3, 64])
def test_values_depend_neither_on_what_is_played_at_once_nor_on_the_order_of_replies(concurrency):
    together = climbs()
    waiting = ThreadPolicy(climber._reply)
    for policy in (climber, waiting):
        episodes = climbs(policy=policy, concurrency=concurrency)
        assert [e.signals for e in episodes] == [e.signals for e in together]


def test_methods_that_both_play_on_have_continuations_of_their_own():
    class Second(Continuations):
        name = "second"

    (episode,) = collect(Climb, climber, [5], methods=[Continuations(50), Second(50)], errors="raise")
    first, second = (episode.signals[name] for name in ("continuations", "second"))
    assert first != second
    assert first == pytest.approx(second, abs=0.5)


def test_a_continuation_that_fails_is_left_out_of_the_mean():
    episodes = collect(lambda: Climb(broken=True), climber, [5], n=24, methods=[Continuations(40)])
    kept = [episode for episode in episodes if not episode.error]
    assert len(kept) < len(episodes)
    for episode in kept:
        assert np.isfinite([credit.value for credit in episode.credits["continuations"]]).all()
        # whatever did not fail at the last turn went up
        height = sum(reply.text == "up" for reply in episode.replies[:2])
        assert episode.signals["continuations"][2] == pytest.approx(STEP_PAY + (height == 2))
    failed = next(episode for episode in episodes if episode.error)
    assert np.isnan([credit.value for credit in failed.credits["continuations"]]).all()


def test_an_environment_that_cannot_be_copied_later_fails_its_own_episodes_alone():
    class Held(Climb):
        changing = (*Climb.changing, "held")
        held = None

        def _play(self, reply):
            self.held = (step for step in ()) if reply == "down" else None
            return super()._play(reply)

    policy = TurnPolicy(lambda request: Reply("down" if request.episode.seed == 5 else "up"))
    (failed, *rest) = collect(Held, policy, [5, 6, 7], methods=[Continuations(1)], concurrency=1)
    assert failed.end == "failed"
    assert "Held cannot be copied" in failed.error
    assert [episode.end for episode in rest] == ["terminated"] * 2


def test_an_environment_and_the_record_of_its_episode_are_as_without_continuations():
    plain = collect(Climb, climber, [5, 6], n=3)
    valued = collect(Climb, climber, [5, 6], n=3, methods=[Continuations(2)])
    texts = [[[reply.text for reply in e.replies] for e in episodes] for episodes in (valued, plain)]
    assert texts[0] == texts[1]
    assert [e.metrics["success"] for e in valued] == [e.metrics["success"] for e in plain]


def test_a_loop_plays_on_again_after_an_interrupted_play():
    loop = Loop(Climb, climber, [Continuations(4)], errors="raise")

    def plan():
        return [[Episode(seed=5, group=5, member=member) for member in range(4)]]

    for _ in loop.play(itertools.chain(plan(), [[Episode(seed=6, group=6)]])):
        break
    (group,) = loop.play(plan())
    for episode, values in zip(group, replayed_values(group, 4), strict=True):
        assert episode.signals["continuations"] == pytest.approx(values)


def test_an_episode_that_was_over_before_has_the_values_of_states_that_others_reach():
    over = Loop(Climb, climber).play_all([[Episode(seed=5, group=5)]])[0]
    rest = [Episode(seed=5, group=5, member=member) for member in (1, 2, 3)]
    Loop(Climb, climber, [Continuations(4)], errors="raise").play_all([[over, *rest]])
    values = {}
    for episode, expected in zip(rest, replayed_values(rest, 4), strict=True):
        assert episode.signals["continuations"] == pytest.approx(expected)
        values |= {
            (number, turn.observation): value
            for number, (turn, value) in enumerate(zip(episode.turns, expected, strict=True))
        }
    known = [values.get((number, turn.observation), np.nan) for number, turn in enumerate(over.turns)]
    assert np.isfinite(known[0])
    assert over.signals["continuations"] == pytest.approx(known, nan_ok=True)


def test_a_deterministic_policy_changes_no_value():
    (episode,) = collect(Climb, lambda observation, info: "up", [0], methods=["Continuations"])
    assert episode.signals["continuations"] == pytest.approx([1.3, 1.2, 1.1])
    assert [credit.value for credit in episode.credits["continuations"]] == pytest.approx([0, 0, 0])


def test_a_scripted_policy_is_made_again_in_the_state_it_plays_on_from():
    args = {"tasks": "world-test", "n_documents": 4, "chunk_size": 300}
    methods = [["Continuations", {"n": 4}]]
    (episode,) = collect("MemChunkQA-v0", "careful", [1], methods=methods, env_args=args)
    assert not episode.error
    assert len(episode.measured["continuations"]) == len(episode.turns)


def test_an_evaluation_keeps_the_credit_of_each_episode(tmp_path):
    evaluate(Climb, climber, tasks="0", samples=3, methods=[Continuations(4)], out=tmp_path)
    kept = [episode for _, episode in read_lines(tmp_path / "episodes.jsonl")]
    assert len(kept) == 3
    for episode in kept:
        rewards = [sum(turn.info["rewards"].values()) for turn in episode.turns]
        total = sum(credit.value for credit in episode.credits["continuations"])
        assert total == pytest.approx(sum(rewards) - episode.signals["continuations"][0])


def test_where_no_policy_can_be_asked_it_is_refused():
    with pytest.raises(ValueError, match="policy that plays on"):
        RewardWrapper(Climb(), ["Continuations"]).reset(seed=0)
    with pytest.raises(ValueError, match="hindsight"):
        collect_trees(Climb, climber, [Episode(seed=0)], [Continuations()], branches=2, turns=1)


def test_it_stands_beside_other_methods():
    episodes = collect(Climb, climber, [5], n=4, methods=[GiGPO(), Continuations(8)], errors="raise")
    for episode, values in zip(episodes, replayed_values(episodes, 8), strict=True):
        assert episode.signals["continuations"] == pytest.approx(values)
    assert all("gigpo" in e.credits for e in episodes)


class Searcher(ScriptedPolicy):
    """Searches while the prompt is short, then answers, with random words; it keeps the prompts it reads."""

    def __init__(self):
        super().__init__(str)
        self.read = []

    def sample(self, prompts, rngs, max_new_tokens):
        self.read += [prompt.tobytes() for prompt in prompts]
        replies = []
        for prompt, rng in zip(prompts, rngs, strict=True):
            word = ("river", "town", "opened", "wrote")[rng.integers(4)]
            kind = "search" if len(prompt) < 600 else "answer"
            text = f"<think>{word}</think><{kind}>{word}</{kind}>"
            ids = np.append(self.encode(text), rng.integers(5, 9))  # as no tokenizer would write it
            replies.append(Reply(text, ids, np.zeros(len(ids)), True))
        return replies


def test_where_prompts_grow_a_continuation_reads_the_tokens_that_were_sampled():
    policy = Searcher()
    env_args = {"tasks": "world-test"}
    (episode,) = collect("MemSearchQA-v0", policy, [3], methods=[Continuations(1)], env_args=env_args)
    assert len(episode.turns) > 1
    sequence = []
    for turn in episode.turns:
        prompt = np.concatenate([*sequence, turn.reply.read])
        # once for the episode, and again where it is played on from
        assert policy.read.count(prompt.tobytes()) >= 2
        sequence += [turn.reply.read, turn.reply.ids]
