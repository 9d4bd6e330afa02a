"""The bench for credit: exact values against enumeration, credit against the suite, the bench's claims."""

import itertools
import json
import shutil
from functools import partial

import numpy as np
import pytest

from memenvs.credit import (
    gae,
    gigpo,
    group_normalize,
    grpo,
    igpo,
    infomem_bonus,
    mempo,
    mt_grpo,
    mt_rloo,
    redundancy,
    rememr1,
    rloo,
    search_gains,
    tamtrl,
    whiten,
)
from research.credit_bench.__main__ import main
from research.credit_bench.methods import GROUP, GROUPS, METHODS, Learner, continued, sample, verdicts
from research.credit_bench.report import (
    cells,
    read_cells,
    read_runs,
    write_report,
)
from research.credit_bench.train import accuracy, halfway, train
from research.credit_bench.worlds import (
    EMPTY,
    END,
    EVIDENCE_SHOWN,
    NOTHING_SHOWN,
    TRUTH,
    WORLDS,
    observation_of,
    probabilities,
)


def some_policy(world, seed=0):
    """A policy whose replies are not equally likely."""
    drawn = np.random.default_rng(seed).normal(size=world.initial.shape)
    return probabilities(world.features, world.initial + drawn)


def every_episode(world, probs):
    """Each possible episode: its probability, and (state, action, reward) of its turns."""
    actions = range(probs.shape[1])
    for start in world.starts:
        for replies in itertools.product(actions, repeat=world.turns):
            state, share, turns = start, 1 / len(world.starts), []
            for action in replies:
                if state == END:
                    break
                share *= probs[world.observed[state], action]
                turns.append((state, action, world.pay[state, action] + world.outcome[state, action]))
                state = world.follow[state, action]
            if not any(replies[len(turns) :]):  # one of those that differ only after the end
                yield share, turns


@pytest.mark.parametrize("name", WORLDS)
def test_exact_values_are_those_of_all_episodes_one_by_one(name):
    world = WORLDS[name](3)
    probs = some_policy(world)
    total, weight = np.zeros(world.pay.shape), np.zeros(world.pay.shape)
    mean = 0.0
    for share, turns in every_episode(world, probs):
        rewards = [reward for _, _, reward in turns]
        mean += share * sum(rewards)
        for k, (state, action, _) in enumerate(turns):
            total[state, action] += share * sum(rewards[k:])
            weight[state, action] += share
    by_state = probs[world.observed]
    met = weight > 0
    np.testing.assert_allclose(world.action_values(by_state)[met], (total / np.where(met, weight, 1))[met])
    np.testing.assert_allclose(world.visits(by_state)[:, None] * by_state, weight, atol=1e-12)
    assert world.expected_return(by_state) == pytest.approx(mean)


@pytest.mark.parametrize("name", ["chain", "calling", "late", "distracting", "stopping"])
def test_no_fixed_reply_to_each_observation_earns_more_than_the_best_return(name):
    world = WORLDS[name](2)
    observations, actions = world.features.shape[:2]
    found = [
        world.expected_return(np.eye(actions)[list(replies)][world.observed])
        for replies in itertools.product(range(actions), repeat=observations)
    ]
    assert world.best() == pytest.approx(max(found))


@pytest.mark.parametrize("name", ["carrying", "once"])
def test_a_memory_that_is_copied_rightly_always_earns_the_outcome(name):
    assert WORLDS[name](5).best() == 1.0


def test_the_advantage_of_a_right_reply_in_the_chain_is_its_pay_and_its_part_in_the_outcome():
    # Another reply earns 1 less at once and gives up 1/16; the last turn's right one is worth its 1/16 alone.
    world = WORLDS["chain"](3)
    exact, seen = world.advantages(np.full((3, 4), 0.25))
    np.testing.assert_allclose(seen, 1.0)
    assert exact[0, 0] == pytest.approx(0.75 * (1 + 1 / 16))
    assert exact[2, 2] == pytest.approx(0.75 / 16)


def test_in_late_payment_the_first_turn_has_all_the_advantage():
    exact, _ = WORLDS["late"](5).advantages(np.full((5, 4), 0.25))
    np.testing.assert_allclose(exact[0], [0.75, -0.25, -0.25, -0.25])
    np.testing.assert_allclose(exact[1:], 0.0, atol=1e-15)


# Credit


def learner_of(name, turns=4):
    world = WORLDS[name](turns)
    probs = some_policy(world, seed=1)
    values = np.random.default_rng(2).normal(size=len(probs))
    return Learner(world, probs, values, np.random.default_rng(3))


class SampledStep:
    """A step's episodes as plain rows, and the inputs of the credit functions."""

    def __init__(self, name):
        learner = learner_of(name)
        self.world, self.probs = learner.world, learner.probs
        made = sample(learner)
        self.states, self.actions, self.groups = made.states, made.actions, made.groups.tolist()
        self.lengths = made.lengths.tolist()
        self.pay = self.rows(made.pay)
        self.outcomes = made.outcomes.sum(1)
        self.paid = self.rows(made.pay + made.outcomes)
        self.sums = np.array([row.sum() for row in self.paid])
        # The last turn's pay counts with the outcome.
        self.results = self.outcomes + [row[-1] for row in self.pay]
        self.critic = learner.values[self.world.observed[self.states]]

    def rows(self, table):
        return [np.array(row[:n], np.float64) for row, n in zip(table, self.lengths, strict=True)]

    def all_turns(self, values):
        return [np.full(n, value) for n, value in zip(self.lengths, values, strict=True)]

    def likely(self):
        """P of the answer given the memory after each turn, and before it; the last turn writes none."""
        last = self.world.turns - 1
        answer = self.probs[observation_of(last, NOTHING_SHOWN, np.arange(EMPTY + 1)), TRUTH]
        return answer[self.actions], answer[self.world.memory[self.states]], answer

    def by_group(self, assign):
        parts = [assign(slice(g * GROUP, (g + 1) * GROUP)) for g in range(GROUPS)]
        return [row for part in parts for row in part]

    def ppo(self, placed):
        mask = np.arange(self.world.turns) < np.array(self.lengths)[:, None]
        rewards = np.zeros(mask.shape)
        for i, row in enumerate(placed):
            rewards[i, : len(row)] = row
        return self.rows(whiten(gae(rewards, np.where(mask, self.critic, 0.0), mask), mask))

    def at_the_end(self, values):
        return [np.append(np.zeros(n - 1), value) for n, value in zip(self.lengths, values, strict=True)]


def of_mempo(p):
    after, before, _ = p.likely()
    scores = after - before
    scores[:, -1] = np.nan
    made = p.by_group(lambda part: mempo(p.outcomes[part], p.rows(scores)[part]).memory)
    return [row + whole for row, whole in zip(made, grpo(p.outcomes, p.groups), strict=True)]


def of_infomem(p):
    _, before, answer = p.likely()
    gains = np.log(before[:, -1] / answer[EMPTY])
    bonus = p.by_group(lambda part: infomem_bonus(gains[part], p.outcomes[part] == 1))
    return p.all_turns(grpo(p.outcomes + 0.2 * np.array(bonus), p.groups))


def teacher_of(p):
    """p_t of each memory, by a teacher that reads only the evidence, in the first turn."""
    turns = np.arange(p.world.turns)
    shown = np.where(turns == 0, EVIDENCE_SHOWN, NOTHING_SHOWN)
    return p.probs[observation_of(turns, shown, p.world.memory[p.states]), p.actions]


def of_tamtrl(p):
    teacher = teacher_of(p)
    paid = [[np.nan] * (p.world.turns - 1) + [outcome] for outcome in p.outcomes]
    return tamtrl(list(teacher), p.outcomes, tasks=p.groups, fixed=paid)


def of_tamtrl_by_turn(p, scale="std"):
    teacher = teacher_of(p)
    read = teacher[:, :-1]  # the last turn writes no memory
    rewards = p.outcomes[:, None] * (teacher - read.min()) / np.ptp(read)
    return mt_grpo(list(rewards), p.outcomes, alpha=0.0, groups=p.groups, scale=scale)


def of_igpo(p):
    after, before, _ = p.likely()
    return igpo(list(after - before), p.outcomes, groups=p.groups)


def of_rememr1(p):
    held = [p.world.memory[p.states] == TRUTH, p.actions == TRUTH]
    gains = held[1].astype(float) - held[0]
    gains[:, -1] = 0.0
    return rememr1(list(gains), p.outcomes, groups=p.groups)


def of_stepsearch(p):
    rewards = []
    for row in p.actions:
        right = row == np.arange(len(row)) % 4
        brought = [[k if right[k] else "nothing"] for k in range(len(row) - 1)] + [[]]
        matches = [[float(k == place and right[k]) for place in range(len(row) - 1)] for k in range(len(row))]
        rewards.append(search_gains(matches) - redundancy(brought))
    results = p.outcomes + [row[-1] for row in rewards]
    return mt_grpo(rewards, results, groups=p.groups)


def of_gigpo(p):
    seen = [p.world.observed[row[:n]].tolist() for row, n in zip(p.states, p.lengths, strict=True)]
    step = gigpo(p.paid, seen, groups=p.groups)
    return [own + whole for own, whole in zip(step, grpo(p.sums, p.groups), strict=True)]


EXPECTED = {
    "outcome": ("calling", lambda p: p.all_turns(grpo(p.outcomes, p.groups))),
    "merged": ("calling", lambda p: p.all_turns(grpo(p.sums, p.groups))),
    "turn": ("calling", lambda p: mt_grpo(p.pay, p.results, groups=p.groups)),
    "turn-skip": ("calling", lambda p: mt_grpo(p.pay, p.results, groups=p.groups, ended="skip")),
    "turn-noscale": ("stopping", lambda p: mt_grpo(p.pay, p.results, groups=p.groups, scale="none")),
    "rloo": ("late", lambda p: p.all_turns(rloo(p.sums, p.groups))),
    "turn-rloo": ("calling", lambda p: mt_rloo(p.pay, p.results, groups=p.groups)),
    "reinforce": ("stopping", lambda p: [row[::-1].cumsum()[::-1] for row in p.paid]),
    "ppo-outcome": ("stopping", lambda p: p.ppo(p.at_the_end(p.outcomes))),
    "ppo-merged": ("stopping", lambda p: p.ppo(p.at_the_end(p.sums))),
    "ppo-turn": ("stopping", lambda p: p.ppo(p.paid)),
    "gigpo": ("stopping", of_gigpo),
    "tamtrl": ("carrying", of_tamtrl),
    "tamtrl-turn": ("carrying", of_tamtrl_by_turn),
    "tamtrl-turn-noscale": ("carrying", partial(of_tamtrl_by_turn, scale="none")),
    "infomem": ("carrying", of_infomem),
    "mempo": ("carrying", of_mempo),
    "igpo": ("carrying", of_igpo),
    "rememr1": ("carrying", of_rememr1),
    "stepsearch": ("chain", of_stepsearch),
}


@pytest.mark.parametrize("method", EXPECTED)
def test_credit_is_what_the_suites_function_gives_for_the_same_episodes(method):
    world, expected = EXPECTED[method]
    batch = METHODS[method].step(learner_of(world))
    found = np.concatenate(expected(SampledStep(world)))
    assert np.ptp(found) > 0.1
    np.testing.assert_allclose(batch.advantages, found, atol=1e-9)


def test_a_trees_replies_to_one_state_are_compared_with_each_other():
    batch = METHODS["tree"].step(learner_of("chain", turns=2))
    world = WORLDS["chain"](2)
    earned = world.outcome[batch.states, batch.actions]
    trees = np.arange(len(earned)).reshape(4, 20)  # of each: 4 replies to its root, then 4 to each of these
    for rows in trees[:, 4:].reshape(16, 4):
        assert len(set(batch.states[rows])) == 1
        np.testing.assert_allclose(batch.advantages[rows], group_normalize(earned[rows]))
    assert np.ptp(earned) == 1.0
    for rows in trees[:, :4]:
        pays = world.pay[batch.states[rows], batch.actions[rows]]
        results = [earned[rows[0] + 4 + 4 * k : rows[0] + 8 + 4 * k].mean() for k in range(4)]
        np.testing.assert_allclose(batch.advantages[rows], group_normalize(pays) + group_normalize(results))


def test_playing_on_values_states_as_they_are_and_pays_the_change():
    learner = learner_of("stopping")
    world, by_state = learner.world, learner.probs[learner.world.observed]
    batch = continued(learner, 4000, equal=False)
    values = np.append((by_state * world.action_values(by_state)).sum(1), 0.0)
    earned = world.pay[batch.states, batch.actions] + world.outcome[batch.states, batch.actions]
    exact = earned + values[world.follow[batch.states, batch.actions]] - values[batch.states]
    np.testing.assert_allclose(batch.advantages, exact, atol=0.04)
    assert np.ptp(exact) > 0.1


@pytest.mark.parametrize("turns", [3, 8])
def test_with_equal_samples_a_step_costs_no_more_replies_than_another(turns):
    batch = METHODS["continuations-equal"].step(learner_of("chain", turns))
    assert 0 < len(batch.states) + batch.others <= 64 * turns


def test_a_judge_errs_once_in_ten():
    learner = learner_of("chain")
    wrong = []
    for _ in range(40):
        made = sample(learner)
        wrong.append(verdicts(learner, made) != (made.actions == [0, 1, 2, 3]))
    assert np.mean(wrong) == pytest.approx(0.1, abs=0.012)  # four standard errors of 10,240


def test_the_process_reward_model_knows_which_first_reply_ends_well():
    learner = learner_of("late", turns=2)
    METHODS["prm"].step(learner)
    first, second = learner.kept["model"]
    assert first[0] > 0.98
    assert first[1:].tolist() == [0.0, 0.0, 0.0]
    # The second turn's observation does not show the first reply, so all its replies end well equally often.
    np.testing.assert_allclose(second, learner.probs[0, 0], atol=0.2)


@pytest.mark.parametrize("turns", [2, 3])
@pytest.mark.parametrize("name", WORLDS)
def test_every_method_gives_finite_credit_or_says_why_it_does_not_apply(name, turns):
    for method in METHODS.values():
        learner = learner_of(name, turns)
        if missing := method.missing(learner.world):
            assert "no " in missing
            continue
        batch = method.step(learner)
        assert len(batch.states) == len(batch.actions) == len(batch.advantages) > 0
        assert np.isfinite(batch.advantages).all(), method.title
        assert (batch.returns is not None) == method.critic


# Claims


def test_dividing_by_each_turns_std_lets_a_bait_weigh_as_much_as_the_outcome():
    world = WORLDS["distracting"](3)
    probs = probabilities(world.features, world.initial)
    assert accuracy(world, "turn-noscale", probs, 0, 60)["cosine"] > 0.98
    assert accuracy(world, "turn", probs, 0, 60)["cosine"] < 0.9


def test_the_outcome_alone_gives_the_last_turn_of_a_chain_as_much_as_the_others():
    # All right replies have equal parts in the outcome; of the exact advantage the last has 1/16 beside 17/16
    # of the two others: the cosine is (17 + 17 + 1) / sqrt(3 (17^2 + 17^2 + 1)) = 0.840.
    world = WORLDS["chain"](3)
    probs = probabilities(world.features, world.initial)
    found = accuracy(world, "outcome", probs, 0, 200)
    assert found["error"] < 0.05
    assert found["cosine"] == pytest.approx(0.840, abs=4 * found["error"])


def test_comparing_calls_with_calls_alone_never_teaches_to_call():
    world = WORLDS["calling"](2)
    assert train(world, "turn", 0, 40)["reached"] is not None
    skipping = train(world, "turn-skip", 0, 40)
    assert skipping["reached"] is None
    assert skipping["curve"][-1] < skipping["curve"][0]


def test_a_policy_halfway_has_half_of_the_return_that_is_missing():
    world = WORLDS["chain"](3)
    start = world.expected_return(probabilities(world.features, world.initial)[world.observed])
    assert world.expected_return(halfway(world)[world.observed]) == pytest.approx((start + 3) / 2, abs=0.05)


def test_the_exact_gradient_itself_comes_to_rest_where_a_memory_is_carried_over_eight_turns(tmp_path):
    assert halfway(WORLDS["carrying"](8)) is None
    flags = ["--worlds", "carrying", "--turns", "8", "--methods", "outcome", "--seeds", "1", "--steps", "1"]
    assert main([str(tmp_path), *flags]) == 0
    written = sorted(path.name for path in tmp_path.glob("*/*.json"))
    assert written == ["carrying-8-outcome-0.json", "carrying-8-outcome-start.json"]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    assert main([str(folder), "--smoke"]) == 0
    return folder, json.loads((folder / "credit_bench.json").read_text())


def test_on_the_chain_credit_of_turns_learns_sooner_than_the_outcome_alone(smoke):
    found = read_cells(smoke[1])
    turn, outcome = found["chain", 5, "turn"], found["chain", 5, "outcome"]
    assert turn.reached == 1
    assert turn.steps.mean < outcome.steps.mean


def test_where_turns_pay_noise_the_outcome_alone_learns_sooner_than_rewards_to_go(smoke):
    found = read_cells(smoke[1])
    assert found["late", 5, "outcome"].reached == 1
    assert found["late", 5, "outcome"].steps.mean < found["late", 5, "reinforce"].steps.mean


def test_rewards_to_go_are_unbiased_and_the_outcome_alone_is_not(smoke):
    checks = {
        (one["world"], one["method"]): one for one in smoke[1]["accuracy"] if one["policy"] == "halfway"
    }
    assert checks["chain", "reinforce"]["cosine"] > 0.98
    assert max(checks["chain", "reinforce"]["bias"]) < 0.2
    assert checks["chain", "reinforce"]["scale"] == pytest.approx(1.0, abs=0.1)
    assert checks["chain", "outcome"]["cosine"] < 0.9
    assert max(checks["chain", "outcome"]["bias"]) > 0.5


def test_a_second_call_does_nothing_again_and_other_settings_are_refused(smoke, capsys):
    folder, _ = smoke
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/*.json")}
    assert len(before) == 18
    assert main([str(folder), "--smoke"]) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/*.json")} == before
    assert main([str(folder), "--smoke", "--steps", "9"]) == 1
    assert "other settings for steps" in capsys.readouterr().err


def test_the_tables_leave_no_cell_empty(smoke):
    text = (smoke[0] / "credit_bench_tables.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(cell.strip() for line in lines for cell in line.strip("|").split("|"))
    titles = {line.split(" | ")[0].removeprefix("| ") for line in lines}
    worlds = [WORLDS[name](5) for name in ("chain", "late")]
    assert titles >= {method.title for method in METHODS.values() if not all(map(method.missing, worlds))}


def test_a_report_of_nothing_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path), "--report"]) == 1
    assert "holds no runs; run without --report first" in capsys.readouterr().err


def test_a_page_that_is_added_to_keeps_what_the_folder_lacks(smoke, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    write_report(smoke[0], tmp_path)
    whole = (results / "credit_bench.json").read_text()
    some = tmp_path / "some"
    shutil.copytree(smoke[0], some)
    for file in some.glob("*/*-turn-*"):
        file.unlink()
    assert {method for *_, method in cells(read_runs(some)[0])} == {"outcome", "reinforce"}
    write_report(some, tmp_path, add=True)
    assert (results / "credit_bench.json").read_text() == whole
    (some / "settings.json").write_text((some / "settings.json").read_text().replace("80", "90"))
    with pytest.raises(ValueError, match="the record has other settings for steps; leave out --add"):
        write_report(some, tmp_path, add=True)
