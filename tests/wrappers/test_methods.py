"""Each reward method alone: what it asks a scorer, its signal, and the credits of a group, by hand."""

import math
from functools import partial

import numpy as np
import pytest
from msgspec.structs import replace

from memenvs.core.episode import Reply
from memenvs.credit import tamtrl_rewards
from memenvs.wrappers import (
    TAMTRL,
    Credit,
    Episode,
    FormatGate,
    InfoMem,
    Judge,
    MemPO,
    QuestionCredit,
    RewardMethod,
    SearchRewards,
    ToolRewards,
    Turn,
)
from memenvs.wrappers.method import RunningStatistics
from memenvs.wrappers.registry import make_methods, make_scorer, read_methods
from memenvs.wrappers.scorers import ScoreRequest

close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-9)
HALF, QUARTER = math.log(0.5), math.log(0.25)
TEACHER = {"teacher_prompt": "evidence here", "teacher_prompt_global": "all evidence"}
FINAL = {
    **{"prompt_with_memory": "q m", "prompt_without_memory": "q", "memory": "m"},
    **{"target": "y", "target_wrapped": "\\boxed{y}"},
}
WRITTEN = {"prompt_with_memory": "q m", "target": "y", "target_wrapped": "<answer>y</answer>", "memory": "m"}
HISTORY = {"prompt_with_history": "q h"}


def told(**privileged):
    return {
        "context": "rewrite",
        "metrics": {name: privileged.pop(name, 0.0) for name in ("success", "em", "format")},
        "events": privileged.pop("events", {}),
        "privileged": privileged,
    }


def turn(action="notes", end="", before=None, **after):
    """A turn; where the action holds the memory, that is where it was written."""
    memory = after.get("memory", "")
    at = action.find(memory) if memory else -1
    after.setdefault("memory_span", None if at < 0 else [at, at + len(memory)])
    return Turn("read this", told(**(before or {})), Reply(action), told(**after), end)


def episode(method, signals, *, outcome=0.0, proper=1.0, actions=None, memory="notes"):
    """An episode of given signals whose last turn answers; `memory` after every turn, or a list of them."""
    last = len(signals) - 1
    memories = [memory] * len(signals) if isinstance(memory, str) else memory
    turns = [
        turn(
            action=actions[k] if actions else "notes",
            end="terminated" if k == last else "",
            success=float(outcome == 1.0),
            format=proper,
            memory=memories[k],
        )
        for k in range(len(signals))
    ]
    return made(method, turns, signals, [0.0] * last + [outcome])


def made(method, turns, signals, outcomes, error=""):
    """An ended episode of given turns, signals and outcomes."""
    for one, signal, outcome in zip(turns, signals, outcomes, strict=True):
        one.signals[method.name] = signal
        one.info["rewards"] = {"outcome": outcome}
    metrics = turns[-1].info["metrics"]
    return Episode(turns=turns, end="failed" if error else "terminated", error=error, metrics=metrics)


def values(credits):
    return [credit.value for credit in credits]


class TestTAMTRL:
    def test_the_memory_kept_is_scored_under_the_evidence_of_its_chunk(self):
        written = turn("notes and more", before=TEACHER, memory="notes")
        assert TAMTRL().requests(written) == [ScoreRequest("evidence here", "notes")]
        assert TAMTRL(view="global").requests(written) == [ScoreRequest("all evidence", "notes")]

    def test_the_answer_turn_is_scored_only_by_a_teacher(self):
        action = "<think>so</think> my answer"
        last = turn(action, "terminated", before=TEACHER, memory="notes", reply="my answer")
        assert TAMTRL().requests(last) == []
        assert TAMTRL(final_turn="teacher").requests(last) == [ScoreRequest("evidence here", "my answer")]

    def test_a_reading_turn_that_a_limit_outside_ends_is_scored_by_its_memory(self):
        last = turn("notes", "truncated", before=TEACHER, memory="notes", reply="")
        assert TAMTRL(final_turn="teacher").requests(last) == [ScoreRequest("evidence here", "notes")]

    def test_the_signal_is_the_mean_of_probabilities(self):
        scores = [np.array([HALF, QUARTER])]
        assert TAMTRL().signal(turn(), scores) == pytest.approx(0.375)
        assert TAMTRL(length_norm=False).signal(turn(), scores) == pytest.approx(0.75)

    def test_an_empty_memory_is_not_scored(self):
        assert TAMTRL().requests(turn("", before=TEACHER, memory="")) == []
        assert TAMTRL(change=True).requests(turn("", before={**TEACHER, "memory": "old"}, memory="")) == []
        assert TAMTRL().signal(turn(), []) == 0.0

    @pytest.mark.parametrize("combine", ["product", "plus"])
    def test_an_empty_memory_earns_no_share_and_moves_no_other_memory(self, combine):
        # min 0.4, max 0.6: p^ = 0, 1 | -, 0.5; were the empty one a p of 0, 0.4 would be p^ = 2/3.
        method = TAMTRL(combine=combine)
        group = [
            episode(method, [0.4, 0.6, 0.0], outcome=1.0),
            episode(method, [0.0, 0.5, 0.0], outcome=1.0, memory=["", "notes", "notes"]),
        ]
        first, second = (values(credits) for credits in method.assign_credit(group))
        last = 1.0 if combine == "product" else 0.0  # plus leaves the outcome where it is
        close(first, [0.0, 1.0, last])
        close(second, [0.0, 0.5, last])
        # The learner's R_t is the same, or in the form plus the outcome more.
        rewards = tamtrl_rewards(
            [one.signals["tamtrl"] for one in group],
            [one.outcome for one in group],
            combine=combine,
            fixed=[method.fixed_rewards(one) for one in group],
        )
        close(rewards, np.array([first, second]) + (combine == "plus"))

    def test_alone_an_empty_memory_is_not_the_smallest_so_far(self):
        method = TAMTRL()
        method.assign_credit([episode(method, [0.0, 0.4, 0.6, 0.0], memory=["", "a", "b", "b"])])
        close(values(method.assign_credit([episode(method, [0.5, 0.0], outcome=1.0)])[0]), [0.5, 1.0])

    def test_the_change_compares_with_the_memory_before(self):
        method, before = TAMTRL(change=True), {**TEACHER, "memory": "old"}
        assert method.requests(turn(before=before, memory="notes")) == [
            ScoreRequest("evidence here", "notes"),
            ScoreRequest("evidence here", "old"),
        ]
        assert method.signal(turn(), [np.array([HALF, QUARTER]), np.array([QUARTER])]) == pytest.approx(0.125)
        assert method.signal(turn(), [np.array([HALF]), np.zeros(0)]) == pytest.approx(0.5)
        assert method.requests(turn(end="terminated", before=before, memory="notes")) == []
        # A reply that changes the memory without writing it whole is a change already.
        edit = turn(before=before, memory="notes", written="add notes")
        assert method.requests(edit) == [ScoreRequest("evidence here", "add notes")]


class TestQuestionCredit:
    def reads(self, earned, method=None, error=""):
        """An episode of one memory and two answers."""
        turns = [turn(answered=False), turn(answered=True), turn(end="terminated", answered=True)]
        for k, reward in enumerate((0.0, *earned)):
            turns[k].info["rewards"] = {"outcome": reward}
        method = method or QuestionCredit()
        signals = [method.signal(one, []) for one in turns]
        return made(method, turns, signals, [0.0, *earned], error)

    def test_an_answer_is_compared_with_answers_to_its_question_and_the_memory_with_all(self):
        # question 1: 0.5, 0 (std 0.5 / sqrt 2, deviations +-0.25 -> +-0.7071); question 2: 0, 0 -> 0, 0
        group = [self.reads((0.5, 0.0)), self.reads((0.0, 0.0))]
        credits = QuestionCredit().assign_credit(group)
        close(values(credits[0]), [0.5**0.5 / 2, 0.5**0.5, 0.0])
        close(values(credits[1]), [-(0.5**0.5) / 2, -(0.5**0.5), 0.0])
        assert all(credit.advantage for one in credits for credit in one)

    def test_an_episode_that_failed_is_compared_with_none(self):
        group = [self.reads((0.5, 0.5)), self.reads((0.0, 0.5)), self.reads((0.5, 0.5), error="away")]
        group.append(Episode(end="failed", error="never began"))
        close(values(QuestionCredit().assign_credit(group)[0]), [0.5**0.5 / 2, 0.5**0.5, 0.0])

    def test_a_turn_that_answers_nothing_has_no_signal_nor_a_memory_without_answers_credit(self):
        assert QuestionCredit().signal(turn(answered=False), []) == 0.0
        cut = made(QuestionCredit(), [turn(end="truncated", answered=False)], [0.0], [0.0])
        assert values(QuestionCredit().assign_credit([cut])[0]) == [0.0]

    def test_alone_a_question_is_compared_with_all_so_far(self):
        # 0.5 and 0: mean 0.25, std 0.25 sqrt(2)
        credits = values(QuestionCredit().assign_credit([self.reads((0.5, 0.0))])[0])
        close(credits, [0.0, 0.5**0.5, -(0.5**0.5)])


def test_tamtrl_does_not_take_an_answer_for_a_memory():
    method = TAMTRL()
    answer = turn("\\boxed{x}", before=TEACHER, answered=True, memory="notes", memory_span=None, reply="x")
    assert method.requests(answer) == []
    last = turn("y", "terminated", answered=True)
    turns = [turn("notes", answered=False, memory="notes"), answer, last]
    close(method.fixed_rewards(made(method, turns, [0.0] * 3, [0.0, 0.5, 0.0])), [math.nan, 0.5, 0.0])
    asked = TAMTRL(final_turn="teacher").requests(answer)
    assert asked == [ScoreRequest("evidence here", "x")]


class TestInfoMem:
    def test_the_answer_is_scored_at_the_last_turn_with_the_memory_and_without(self):
        asked = InfoMem().requests(turn(end="terminated", **FINAL))
        assert asked == [ScoreRequest("q m", "y"), ScoreRequest("q", "y")]
        wrapped = InfoMem(target="wrapped").requests(turn(end="terminated", **FINAL))
        assert [one.continuation for one in wrapped] == ["\\boxed{y}"] * 2
        assert InfoMem().requests(turn(**FINAL)) == []
        assert InfoMem().signal(turn(**FINAL), []) == 0.0

    def test_query_pmi_scores_the_question_from_the_memory_alone(self):
        method = InfoMem(condition="query", target="inside")
        with_memory, without = method.requests(turn(end="terminated", memory="m", question="who?"))
        assert with_memory.continuation == without.continuation == "who?"
        assert "\nm\n" in with_memory.prompt
        assert "m\n</memory>" not in without.prompt
        assert method.signal(turn(end="terminated"), [np.array([HALF]), np.array([QUARTER])]) == -QUARTER / 2

    @pytest.mark.parametrize("end", ["", "{query}. So it is."])
    def test_query_pmi_takes_a_prompt_which_ends_before_the_question(self, tmp_path, end):
        file = tmp_path / "query.txt"
        file.write_text("From {memory} we answer " + end)
        method = InfoMem(condition="query", template=str(file))
        with_memory, without = method.requests(turn(end="terminated", memory="m", question="who?"))
        assert (with_memory.prompt, without.prompt) == ("From m we answer ", "From  we answer ")
        assert InfoMem(**method.settings()).template == file.read_text()
        with pytest.raises(ValueError, match="condition='query'"):
            InfoMem(template=str(file))

    def test_the_gain_is_a_difference_of_means_in_nats(self):
        scores = [np.array([HALF, HALF]), np.array([QUARTER, QUARTER])]
        assert InfoMem().signal(turn(end="terminated"), scores) == pytest.approx(math.log(2))

    def test_the_bonus_goes_to_the_last_turn_of_successes(self):
        method = InfoMem()
        # successes 1 and 3: z = -1, 1
        group = [episode(method, [0, gain], outcome=right) for gain, right in ((1, 1.0), (3, 1.0), (9, 0.0))]
        credits = method.assign_credit(group)
        close([values(c)[0] for c in credits], [-0.2, 0.2, 0.0])
        assert [c[0].turn for c in credits] == [1, 1, 1]

    def test_alone_the_first_success_is_raw_and_the_next_are_scored_against_the_earlier(self):
        method = InfoMem(beta=1.0)
        paid = [
            values(method.assign_credit([episode(method, [gain], outcome=1.0)])[0])[0] for gain in (1.0, 3.0)
        ]
        close(paid, [1.0, 1.0])  # second: mean 2, std 1
        assert values(method.assign_credit([episode(method, [5.0], outcome=0.0)])[0]) == [0.0]


class TestMemPO:
    def test_the_answer_is_scored_after_the_memory_and_after_the_turns_before(self):
        asked = MemPO().requests(turn("<mem>m</mem>", before=HISTORY, **WRITTEN))
        assert asked == [ScoreRequest("q m", "y"), ScoreRequest("q h", "y")]
        alone = MemPO(target="wrapped", bias="none").requests(turn("<mem>m</mem>", **WRITTEN))
        assert alone == [ScoreRequest("q m", "<answer>y</answer>")]
        assert MemPO().requests(turn("no memory", before=HISTORY, **{**WRITTEN, "memory": ""})) == []

    @pytest.mark.parametrize(("bias", "measured"), [("history", False), ("none", True)])
    def test_a_memory_before_another_question_has_no_history_to_compare_with(self, bias, measured):
        method = MemPO(bias=bias, trajectory="outcome")
        last = turn("<mem>m</mem>", before={**HISTORY, "question": "q; r"}, **WRITTEN, question="q")
        assert bool(method.requests(last)) is measured
        last.signals["mempo"] = 0.5
        group = [Episode(turns=[last]), Episode(turns=[last])]
        assert [len(credits) for credits in method.assign_credit(group)] == [int(measured)] * 2

    @pytest.mark.parametrize(
        ("outcome", "proper", "reward"),
        [(1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.5, 1.0, 0.0)],
    )
    def test_a_trajectory_earns_one_if_and_only_if_it_is_right_and_in_form(self, outcome, proper, reward):
        method = MemPO()
        assert method.replaces_outcome
        played = episode(method, [0, 0], outcome=outcome, proper=proper, memory="")
        assert method.assign_credit([played]) == [[Credit(1, reward, from_signal=False)]]

    def test_the_environments_outcome_can_be_kept_instead(self):
        method = MemPO(trajectory="outcome")
        assert not method.replaces_outcome
        assert method.assign_credit([episode(method, [0, 0], outcome=0.5, memory="")]) == [[]]

    def test_the_signal_is_a_difference_of_probabilities(self):
        scores = [np.array([HALF, HALF]), np.array([QUARTER, QUARTER])]
        assert MemPO().signal(turn(), scores) == pytest.approx(0.25)
        assert MemPO(bias="none").signal(turn(), scores[:1]) == pytest.approx(0.5)
        assert MemPO(measure="log").signal(turn(), scores) == pytest.approx(math.log(2))

    def test_the_probability_is_the_exponential_of_the_mean(self):
        # the geometric mean of 1/2 and 1/8 is 1/4
        scores = [np.array([HALF, math.log(0.125)])]
        assert MemPO(bias="none").signal(turn(), scores) == pytest.approx(0.25)

    def test_the_credit_is_on_the_text_inside_the_tags(self):
        method = MemPO()
        actions = ["<mem>ab</mem><search>x</search>", "<mem>c</mem><answer>y</answer>"]
        group = [episode(method, r, actions=actions, memory=["ab", "c"]) for r in ([1, 3], [2, 2])]
        credits = method.assign_credit(group)
        # R = 1, 3, 2, 2: mean 2, std sqrt(2 / 3); the last credit is the trajectory's reward
        close(values(credits[0]), [-(1.5**0.5), 1.5**0.5, 0.0])
        assert [credit.advantage for credit in credits[0]] == [True, True, False]
        assert [actions[c.turn][slice(*c.span)] for c in credits[0][:-1]] == ["ab", "c"]

    def test_a_reply_that_is_the_memory_is_credited_up_to_where_it_was_cut(self):
        method = MemPO(trajectory="outcome")
        group = [episode(method, [r, 0], actions=["notes and more", "answer"]) for r in (1, 2)]
        assert [(c.turn, c.span) for c in method.assign_credit(group)[0]] == [(0, (0, 5))]

    def test_alone_memories_are_normalised_over_all_so_far(self):
        method = MemPO(trajectory="outcome")
        actions = ["<mem>a</mem>"]
        method.assign_credit([episode(method, [1], actions=actions, memory="a")])
        (credits,) = method.assign_credit([episode(method, [3], actions=actions, memory="a")])
        close(values(credits), [0.5**0.5])  # mean 2, std sqrt(2)


RIGHT = {"searched": 0.0, "retrieved": 0.0, "retrieved_new": 0.0, "well_formed": 1.0, "searches": 2.0}


@pytest.mark.parametrize(
    ("end", "changed", "em", "expected"),
    [
        # the last turn: exact and well-formed, well-formed, not
        ("terminated", {}, 1.0, 1.0),
        ("terminated", {}, 0.0, 0.2),
        ("terminated", {"well_formed": 0.0}, 1.0, -1.0),
        ("truncated", {}, 0.0, -1.0),  # a well-formed search where an answer was due
        ("truncated", {"searched": 1.0, "retrieved": 1.0}, 0.0, -1.0),
        # other turns: retrieval 0.3, format 0.1 or -0.2, search -0.1 * searches so far
        ("", {"searched": 1.0, "retrieved": 1.0, "searches": 3.0}, 0.0, 0.3 + 0.1 - 0.3),
        ("", {"searched": 1.0, "searches": 1.0}, 0.0, 0.1 - 0.1),
        ("", {"searched": 1.0, "searches": 2.0, "well_formed": 0.0}, 0.0, -0.2 - 0.2),
        ("", {"searched": 1.0, "retrieved": 1.0, "searches": 2.0, "well_formed": 0.0}, 0.0, 0.3 - 0.2 - 0.2),
        ("", {"well_formed": 0.0, "searches": 2.0}, 0.0, -0.2 - 0.2),  # earlier searches go on costing
        ("", {"searches": 0.0}, 0.0, 0.1),
    ],
)
def test_every_branch_of_the_search_rewards(end, changed, em, expected):
    signal = SearchRewards().signal(turn(end=end, events={**RIGHT, **changed}, em=em), [])
    assert signal == pytest.approx(expected)


def test_every_weight_of_the_search_rewards_can_be_set():
    method = SearchRewards(2.0, 3.0, -4.0, 5.0, 6.0, -7.0, 8.0)
    searched = {**RIGHT, "searched": 1.0, "retrieved": 1.0}
    assert method.parts(turn(events=searched)) == {"retrieval": 5.0, "format": 6.0, "search": -16.0}
    assert method.parts(turn(events={**RIGHT, "well_formed": 0.0}))["format"] == -7.0
    assert SearchRewards(once=True).parts(turn(events=searched))["retrieval"] == 0.0
    assert SearchRewards(once=True).parts(turn(events={**searched, "retrieved_new": 1.0}))["retrieval"] == 0.3
    assert method.signal(turn(end="terminated", events=RIGHT, em=1.0), []) == 2.0
    assert method.signal(turn(end="terminated", events=RIGHT), []) == 3.0
    assert method.signal(turn(end="truncated", events=RIGHT), []) == -4.0


@pytest.mark.parametrize(
    ("rewards", "partial", "signal"),
    [
        ({"outcome": 0.5}, True, 0.5),
        ({"outcome": 0.5}, False, 0.1),
        ({"outcome": 1.0}, False, 1.0),
        ({"outcome": 0.0}, True, 0.1),
        ({"other": 1.0}, True, 0.1),  # an environment without an outcome
    ],
)
def test_the_gate_pays_the_outcome_of_a_reply_in_form_or_what_a_wrong_one_earns(rewards, partial, signal):
    gate = FormatGate(wrong=0.1, partial=partial)
    last = turn(end="terminated", format=1.0)
    last.info["rewards"] = rewards
    assert gate.signal(last, []) == signal
    last.info["metrics"]["format"] = 0.0
    assert gate.signal(last, []) == -1.0
    assert gate.signal(replace(last, end=""), []) == 0.0


ANSWERING = {"prompt_with_memory", "prompt_without_memory"}


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        (InfoMem(), {*ANSWERING, "target", "success"}),
        (InfoMem(target="wrapped", side="both"), {*ANSWERING, "target_wrapped"}),
        (InfoMem(condition="query"), {"memory", "question", "success"}),
        (MemPO(), {"prompt_with_memory", "prompt_with_history", "target", "memory_span", "format"}),
        (MemPO(bias="none", trajectory="outcome"), {"prompt_with_memory", "target", "memory_span"}),
        (TAMTRL(), {"teacher_prompt", "memory"}),
        (
            TAMTRL(view="global", final_turn="teacher"),
            {"teacher_prompt_global", "memory", "memory_span", "reply"},
        ),
    ],
)
def test_a_method_needs_what_its_settings_read_and_no_more(method, needs):
    assert {need.rpartition("/")[2] for need in method.needs} == needs


def test_numbers_that_are_close_together_are_normalised_by_their_std_and_eps():
    # 0 and 2e-6: mean 1e-6, std 1e-6, and eps 1e-6 beside it
    numbers = RunningStatistics()
    numbers.add([0.0, math.nan, 2e-6])
    close([numbers.normalize(value, ddof=0) for value in (0.0, 2e-6, math.nan)], [-0.5, 0.5, 0.0])
    close(numbers.normalize(2e-6, ddof=1), 1 / (1 + 2**0.5))
    three = RunningStatistics()
    three.add([1.0, 2.0, 6.0])  # mean 3, squares 4 + 1 + 9
    close(three.normalize(6.0, ddof=1), 3 / 7**0.5)
    assert RunningStatistics().normalize(1.0, ddof=0) == 0.0
    equal = RunningStatistics()
    equal.add([1e6 * (0.1 + 0.2), 1e6 * 0.3])  # but for rounding
    assert equal.normalize(1e6 * 0.3, ddof=1) == 0.0


PAIR = ["MemPO", {"bias": "none"}]


@pytest.mark.parametrize(
    ("texts", "specs"),
    [
        (['["MemPO", "TAMTRL"]'], ["MemPO", "TAMTRL"]),
        (['["MemPO", {"bias": "none"}]'], [PAIR]),
        (['[["MemPO", {"bias": "none"}], "TAMTRL", "GiGPO"]'], [PAIR, "TAMTRL", "GiGPO"]),
        ([' ["MemPO"]', "igpo"], ["MemPO", "IGPO"]),
        (["mempo", "bias=none", "target=wrapped"], [["MemPO", {"bias": "none", "target": "wrapped"}]]),
        ([], []),
    ],
)
def test_a_command_line_names_methods_one_by_one_or_as_json(texts, specs):
    assert read_methods(texts) == specs


@pytest.mark.parametrize("texts", [["mempo", "bias=2"], ["left"], ["bias=none"], ["3"], ["[3]"]])
def test_what_names_no_method_or_setting_on_a_command_line_is_refused(texts):
    with pytest.raises(ValueError):
        read_methods(texts)


@pytest.mark.parametrize("text", ['["lexical", {"absent": -9.0}]', ' ["lexical", {"absent": -9.0}]'])
def test_a_scorer_with_settings_may_be_written_as_json(text):
    assert make_scorer(text) is make_scorer(["lexical", {"absent": -9.0}])
    assert make_scorer(text).absent == -9.0


class Undecorated(RewardMethod):
    name = "undecorated"


@pytest.mark.parametrize("name", ["Undecorated", "turn", "Turn"])
def test_what_is_no_method_is_refused(name):
    with pytest.raises(ValueError, match=name):
        make_methods([f"{__name__}:{name}"])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (InfoMem, {"beta": math.nan}),
        (MemPO, {"bias": 2}),
        (TAMTRL, {"view": "both"}),
        (ToolRewards, {"execution": None}),
        (Judge, {"url": "http://x/v1", "model": "m", "concurrency": 2.5}),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(method, settings):
    with pytest.raises(ValueError, match=[*settings][-1]):
        method(**settings)


def test_the_answer_turn_is_marked_unless_the_teacher_scores_it():
    method = TAMTRL()
    close(method.fixed_rewards(episode(method, [0.2, 0.4, 0.0], outcome=1.0)), [math.nan, math.nan, 1.0])
    close(TAMTRL(final_turn="teacher").fixed_rewards(episode(method, [0.2, 0.4])), [math.nan] * 2)
