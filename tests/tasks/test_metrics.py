"""Metrics against the reference files, then against numbers worked out by hand."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_values import cases

from memenvs.tasks import metrics
from memenvs.tasks.metrics import (
    METRICS,
    REPLY_METRICS,
    answer_opening,
    boxed_content,
    extract_answer,
    full_strip,
    get_metric,
    last_boxed,
    light_strip,
    math_equal,
    wrap_answer,
)


def close(value):
    return pytest.approx(value, abs=1e-5, rel=1e-4)


def per_case(name):
    """Run a test on each case of a reference file."""
    return pytest.mark.parametrize("case", cases(name))


# --- reference files


@per_case("hotpot_em_f1")
def test_hotpot_em_and_f1_are_the_reference(case):
    prediction, answer = case["input"]["prediction"], case["input"]["ground_truth"]
    expected = case["output"]
    assert metrics.normalize_answer(prediction) == expected["norm_prediction"]
    assert metrics.em(prediction, [answer]) == float(expected["em"])
    assert metrics.f1(prediction, [answer]) == close(expected["f1"])


@per_case("longbench_qa_f1")
def test_longbench_f1_is_the_reference(case):
    score = metrics.longbench_f1(case["input"]["prediction"], [case["input"]["ground_truth"]])
    assert score == close(case["output"])


@per_case("search_r1_em_check")
def test_em_and_sub_em_are_the_reference(case):
    prediction, answers = case["input"]["prediction"], case["input"]["golden_answers"]
    answers = [answers] if isinstance(answers, str) else answers  # the original wraps a lone answer
    assert metrics.em(prediction, answers) == case["output"]["em"]
    assert metrics.sub_em(prediction, answers) == case["output"]["subem"]


@per_case("memagent_boxed_reward")
def test_boxed_em_is_the_reference(case):
    reply, golds, expected = case["input"]["solution_str"], case["input"]["golds_tested"], case["output"]
    content = last_boxed(reply[-metrics.BOXED_WINDOW :].lower())
    assert content == expected["removed"]
    assert content is None or expected["last_boxed"] in (f"\\boxed{{{content}}}", f"\\boxed {content}")
    assert (None if content is None else light_strip(content)) == expected["stripped"]
    assert {g: s for g in golds if (s := metrics.boxed_em(reply, [g]))} == expected["scores"]
    assert metrics.boxed_em(reply, golds) == expected["score_all_golds"]


@per_case("memagent_strip_string")
def test_light_strip_is_the_reference(case):
    assert light_strip(case["input"]["s"]) == case["output"]


@per_case("verl_math_reward")
def test_math_em_is_the_reference(case):
    reply, golds, expected = case["input"]["solution_str"], case["input"]["golds_tested"], case["output"]
    content = last_boxed(reply)
    assert content == expected["removed"]
    assert content is None or expected["last_boxed"] in (f"\\boxed{{{content}}}", f"\\boxed {content}")
    stripped = expected["stripped"] if isinstance(expected["stripped"], str) else None  # ours never raises
    assert (None if content is None else full_strip(content)) == stripped
    assert {g: s for g in golds if (s := metrics.math_em(reply, [g]))} == expected["scores"]


@per_case("verl_strip_string")
def test_full_strip_is_the_reference_and_none_where_that_raises(case):
    expected = case["output"]
    assert full_strip(case["input"]["s"]) == (None if isinstance(expected, dict) else expected)


@per_case("memagent_ruler_general_metrics")
def test_memagent_evaluation_is_the_reference(case):
    prediction, gold, expected = case["input"]["prediction"], case["input"]["gold"], dict(case["output"])
    if case["input"]["fn"] == "calc_metrics":
        score = {"sub_em": metrics.string_match_all(prediction, gold)}
    else:
        score = {name: metrics.METRICS[name](prediction, [gold]) for name in ("em", "f1", "sub_em")}
        if metrics.normalize_answer(prediction):  # theirs finds nothing in every answer
            assert metrics.memagent_sub_em(prediction, [gold]) == expected["sub_em"]
    if "raises" in expected:  # no answers: the original divides by zero
        expected = {"sub_em": 0.0}
    expected = {key: value for key, value in expected.items() if key in score}
    assert {key: round(value, 2) for key, value in score.items()} == close(expected)


@per_case("ruler_string_match")
@pytest.mark.parametrize(
    ("key", "metric"), [("all", metrics.string_match_all), ("part", metrics.string_match_part)]
)
def test_ruler_string_match_is_the_reference(case, key, metric):
    predictions, references = case["input"]["preds"], case["input"]["refs"]
    expected = case["output"][key]
    # The original takes a batch, in percent, cut to the shorter list; ours takes one reply.
    scores = [metric(p, r) for p, r in zip(predictions, references, strict=False)]
    percent = round(100 * sum(scores) / max(len(predictions), 1), 2)
    assert percent == close(0.0 if isinstance(expected, dict) else expected)


@per_case("mem1_eval_multi")
def test_multi_objective_is_the_reference(case):
    score = metrics.multi_objective(case["input"]["solution_str"], case["input"]["ground_truths"])
    assert score._asdict() == close(case["output"])


# --- by hand: words


def test_normalisation_drops_punctuation_before_articles():
    assert metrics.normalize_answer(" The  A.I.-Matrix, an  OPERA ") == "aimatrix opera"


@pytest.mark.parametrize(
    ("name", "prediction", "answers", "score"),
    [
        ("em", "the  big apple.", ["New York", "Big Apple"], 1.0),  # any alias
        # "barack obama": precision 2/3, recall 1, F1 0.8; "obama": precision 1/3, recall 1, F1 0.5
        ("f1", "President Barack Obama", ["Obama", "Barack Obama"], 0.8),
        ("f1", "yes it is", ["yes"], 0.0),  # a long answer to a yes-or-no question
        ("longbench_f1", "yes it is", ["no", "yes"], 0.5),  # precision 1/3, recall 1
        ("set_f1", "the city, the Paris", ["Rome", "The Paris"], 0.8),  # {the, city, paris}, {the, paris}
        ("set_f1", "don't", ["dont"], 0.0),  # {don, t}
        ("string_match_part", "12,34", ["1234"], 0.0),  # punctuation is kept
        ("boxed_em", "\\boxed{}" + "." * 292, [""], 1.0),  # the box, of 8 characters, is in the last 300
        ("boxed_em", "\\boxed{}" + "." * 293, [""], 0.0),
    ],
)
def test_a_metric_scores_as_worked_out_by_hand(name, prediction, answers, score):
    assert METRICS[name](prediction, answers) == close(score)


UUIDS = ["9f1c5e7a-0b2d-4c3e-8f90-a1b2c3d4e5f6", "00000000-0000-4000-8000-000000000000"]


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("1234567, 7654321", ["1234567", "7654321"], 1.0),
        ("The 2 numbers are 1234567 and 7654321.", ["1234567", "7654321"], 1.0),  # other words are free
        ("1234567", ["1234567", "7654321"], 1 / 2),
        ("1234567 7654321 1111111", ["1234567", "7654321"], (2 - 1) / 2),
        ("1234567 1111111 2222222", ["1234567", "7654321"], 0.0),  # not (1 - 2) / 2
        ("1111111 1111111 1234567 7654321", ["1234567", "7654321"], (2 - 1) / 2),  # a word counts once
        ("91234567", ["1234567"], 0.0),  # part of a word is not found
        (UUIDS[0].upper(), UUIDS[:1], 1.0),
        (" ".join(UUIDS), UUIDS[:1], 0.0),
        ("ABCDE, FGHIJ are 12345", ["abcde"], 0.0),
        ("ABCDE is 12345", ["abcde"], 1.0),  # a number is no variable
        ("ab12c, hello", ["ab12c"], 1.0),
        ("New York", ["new york", "Rome"], 1 / 2),
        ("York, New", ["New York"], 0.0),
        ("", ["1234567"], 0.0),
        ("", ["…"], 0.0),
        ("1234567", [], 0.0),
    ],
)
def test_needle_exact_subtracts_wrong_needles_from_those_found(prediction, answers, score):
    assert metrics.needle_exact(prediction, answers) == pytest.approx(score)


@pytest.mark.parametrize(
    ("text", "em", "balanced"),
    [
        ("a; b", 2.0, True),
        ("a; x", 1.0, True),
        ("a", 0.0, True),
        ("<|im_start|>assistant\n<answer>A; b</answer>", 2.0, True),
        ("<answer>x; x</answer><|im_start|>assistant <answer>a; b</answer>", 2.0, True),  # its last turn
        ("<|im_start|>assistant\na; b", 0.0, True),  # a reply without an answer
        ("<answer>a; b</answer></answer><answer>a; b", 0.0, False),  # as many of both, and one left open
    ],
)
def test_objectives_are_answered_in_the_last_turn_or_by_the_text_itself(text, em, balanced):
    assert metrics.multi_objective(text, [["a"], ["b"]]) == (em, em, balanced)


def test_a_metric_of_whole_replies_is_a_mean_over_objectives():
    assert metrics.grade("Ann", [["Ann"], ["Bob"]], metric="string_match_all").outcome == 0.5
    assert metrics.score("em", "Ann", []) == 0.0


# --- by hand: boxes and mathematics


def test_malformed_mathematics_equals_itself_alone():
    assert math_equal("\\frac", "\\frac")
    assert not math_equal("\\frac", "\\sqrt")


def test_an_fbox_is_no_answer():
    assert last_boxed("\\fbox{Rome} \\fbox{Paris}") is None


# --- names


def test_an_unknown_metric_is_refused():
    with pytest.raises(ValueError, match="no metric 'bleu'"):
        get_metric("bleu")


@pytest.mark.parametrize("name", METRICS)
def test_no_accepted_answer_scores_zero(name):
    assert METRICS[name]("\\boxed{Paris}", []) == 0.0


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("answer_format", ["boxed", "tag"])
def test_the_gold_answer_scores_one(name, answer_format):
    if name in ("boxed_em", "math_em") and answer_format == "tag":
        answer_format = "boxed"  # these two read no tags
    reply = "I think " + wrap_answer("New York", answer_format)
    text = reply if name in REPLY_METRICS else extract_answer(reply, answer_format)
    score = METRICS[name](text, ["New York"])
    assert isinstance(score, float)
    assert score == 1.0


@pytest.mark.parametrize(
    ("metric", "accepted", "gold"),
    [
        ("em", ["Ann", "A. Lee"], "Ann"),
        ("string_match_all", ["Ann", "Bob"], "Ann, Bob"),
        ("locomo_f1", ["Ann", "Bob", "Ann"], "Ann, Bob"),  # all are asked for, each once
        ("locomo_f1", metrics.LOCOMO_ABSENT, "no information available"),  # one of them says it
    ],
)
def test_the_gold_answer_names_one_or_all_as_the_metric_asks(metric, accepted, gold):
    assert metrics.gold_answer([accepted, ["x"]], metric) == f"{gold}; x"
    assert metrics.grade_answer(gold, [accepted], metric=metric).outcome == 1.0


# --- extraction


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("\\boxed{ New York }", "New York"),
        ("\\boxed{a} or \\boxed{B}", "B"),
        ("\\boxed{a \\boxed{b} c", "b"),
        ("\\boxed{a \\boxed{b} c}", "b"),
        ("} \\boxed{a} }{", "a"),
        ("{c} \\boxed{a} {b}", "a"),
        ("{c}", None),
        ("\\boxed{}", ""),
        ("\\boxed{a", None),
        ("", None),
    ],
)
def test_a_boxed_answer_is_the_last_balanced_box(reply, answer):
    assert extract_answer(reply, "boxed") == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<answer>\n New York </answer>", "New York"),
        ("<answer>a</answer><answer>B</answer>", "B"),
        ("<answer>a</answer><answer>b", "a"),
        ("in <answer> tags: <answer>a</answer>", "a"),
        ("</answer><answer>a</answer>", "a"),
        ("<answer></answer>", ""),
        ("\\boxed{a}", None),
        ("", None),
    ],
)
def test_a_tagged_answer_is_the_last_complete_pair(reply, answer):
    assert extract_answer(reply, "tag") == answer


@pytest.mark.parametrize("answer_format", ["boxed", "tag"])
@given(answer=st.text(st.characters(exclude_characters="{}<")).map(str.strip))
def test_extract_undoes_wrap(answer_format, answer):
    assert extract_answer("so " + wrap_answer(answer, answer_format) + ".", answer_format) == answer


@pytest.mark.parametrize("answer", ["Tarsk", "a", "answer", "boxed", "{x}", "\\boxed{x}", "<answer>"])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [("<answer>", "</answer>"), ("\\boxed{", "}"), ("<answer>\\boxed{", "}</answer>"), ("", "")],
)
def test_the_opening_of_an_answer_is_what_its_form_writes_before_it(answer, opening, closing):
    assert answer_opening(answer, opening + answer + closing) == opening


@pytest.mark.parametrize(
    ("answer", "opening", "closing"),
    [
        ("Tarsk", "The answer is: ", ", Tarsk."),
        ("A", "Answer: ", ""),
        ("s", "<solution>", "</solution>"),
        ("-3", "[", "]"),
        ("李", "答案", "。"),
    ],
)
def test_a_form_of_your_own_opens_where_the_answer_first_is_a_word(answer, opening, closing):
    assert answer_opening(answer, opening + answer + closing) == opening


def test_a_form_without_its_answer_has_no_opening():
    assert answer_opening("Tarsk", "<answer>Ulm</answer>") == ""


# --- hostile text

FRAGMENTS = [
    "\\boxed",
    "\\boxed{",
    "\\boxed ",
    "\\fbox{",
    "{",
    "}",
    "$",
    "<answer>",
    "</ANSWER>",
    "</answer>",
]
FRAGMENTS += ["\\frac", "\\sqrt", "\\text{ ", "=", "/", ".", "1", ";", "\n", "<|im_start|>assistant"]
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
HOSTILE = st.lists(st.sampled_from(FRAGMENTS) | ANY_TEXT).map("".join)
NOISE = [
    f * (100_000 // len(f)) for f in [*FRAGMENTS, "\\boxed{a}", "<answer>a</answer>", "\ud800", "a ", " "]
]


@given(text=HOSTILE, answers=st.lists(HOSTILE, max_size=3))
def test_every_metric_stays_in_range_on_any_text(text, answers):
    scores = {name: metric(text, answers) for name, metric in METRICS.items()}
    assert all(isinstance(score, float) and 0.0 <= score <= 1.0 for score in scores.values()), scores


@given(text=HOSTILE, answers=st.lists(HOSTILE, max_size=3))
def test_multi_objective_stays_in_range_on_any_text(text, answers):
    score = metrics.multi_objective(text, [answers] * 2)
    assert 0.0 <= score.em <= 2.0
    assert 0.0 <= score.f1 <= 2.0 + 1e-12


@given(text=HOSTILE)
def test_an_extracted_answer_is_part_of_the_reply(text):
    for answer_format in ("boxed", "tag"):
        assert (extract_answer(text, answer_format) or "") in text


@given(text=st.text(st.sampled_from("ab {}")))
def test_a_lone_box_is_found_by_both_readings(text):
    assert last_boxed("\\boxed{" + text) == boxed_content("\\boxed{" + text)


HUGE = ["\\boxed{" + "{" * 100_000, "=" * 100_000, *NOISE]


@pytest.mark.parametrize("name", METRICS)
def test_100_kb_of_noise_score_nothing(name):
    # were a metric not linear in its text, this test would not end
    noises = [*HUGE, "\\boxed{" + "\\frac12" * 14_000 + "}"]
    assert [METRICS[name](noise, ["Paris"]) for noise in noises] == [0.0] * len(noises)


@pytest.mark.parametrize("answer_format", ["boxed", "tag"])
def test_no_more_than_the_text_is_read_from_100_kb_of_noise(answer_format):
    assert all((extract_answer(noise, answer_format) or "") in noise for noise in HUGE)


def test_100_kb_of_noise_answer_no_objective():
    assert [metrics.multi_objective(noise, [["Paris"]])[:2] for noise in HUGE] == [(0.0, 0.0)] * len(HUGE)


# --- by hand: what people answer


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{\text{Ann Lee}}",
        r"\boxed{\textbf{Ann Lee}}",
        r"$\boxed{Ann~Lee}$",
        r"\boxed{\text{Ann}\ \text{Lee}}",
        r"\boxed{\mathrm{Ann\,Lee}}",
        r"\boxed{\textbf{\text{Ann} Lee}}",
        r"\boxed{\text {Ann}\quad\mbox{Lee}}",
        r"\boxed{{\bf Ann Lee}}",
        r"\boxed{\displaystyle\text{Ann Lee}}",
    ],
)
def test_typesetting_in_a_box_does_not_count_for_metrics_of_words(reply):
    graded = metrics.grade(reply, [["Ann Lee"]])
    assert (graded.em, graded.f1, graded.outcome) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        (r"\boxed{\mathrm{1{,}933}}", [["1,933"]]),
        (r"\boxed{1\,933}", [["1933"]]),
        (r"\boxed{\text{Ann; Bob}}", [["Ann"], ["Bob"]]),
    ],
)
def test_numbers_and_several_answers_in_a_box_may_be_typeset(reply, answers):
    assert metrics.grade(reply, answers).em == 1.0


def test_braces_that_no_command_opened_stay():
    assert metrics.without_typesetting(r"{a} \text{b {c}} d}") == "{a} b {c} d}"
    assert metrics.without_typesetting(r"\text{a {b} c}") == "a {b} c"
    assert metrics.without_typesetting(r"\{a\}") == r"\{a\}"


@pytest.mark.parametrize(
    ("text", "answer", "whether"),
    [
        ("By Ann.", "Ann", True),
        ("By Anna.", "Ann", False),
        ("By Joann.", "Ann", False),
        ("C++11", "C++", True),  # what ends in no letter may be followed by one
        ("x.net", ".net", True),
        ("a", "", False),
    ],
)
def test_an_answer_as_it_is_written_is_contained_in_whole_words(text, answer, whether):
    assert metrics.contains(text, answer) is whether


def test_a_metric_that_reads_a_box_needs_answers_in_one():
    with pytest.raises(ValueError, match="boxed_em"):
        metrics.check_scoring("boxed_em", "tag")
    with pytest.raises(ValueError, match="bleu"):
        metrics.check_scoring("bleu", "boxed")
    metrics.check_scoring("boxed_em", "boxed")
    metrics.check_scoring("em", "tag")


def test_metrics_that_read_a_box_themselves_keep_their_rules():
    assert metrics.grade(r"\boxed{\text{Ann}}", [["Ann"]], metric="boxed_em").outcome == 0.0
    assert metrics.grade(r"\boxed{\text{Ann}; b}", [["Ann"], ["b"]], metric="boxed_em").outcome == 0.5
    assert metrics.grade(r"\boxed{Ann}" + "." * 300, [["Ann"]], metric="boxed_em").outcome == 0.0


@pytest.mark.parametrize(
    ("reply", "answer", "score"),
    [
        ("A+", "A+", 1.0),
        ("a+.", "A+", 1.0),
        ("A", "A+", 0.0),
        ("A", "A", 1.0),
        ("(A)", "A", 1.0),
        ("**A**", "A", 1.0),
        ("A*", "A", 0.0),
        ("B", "A", 0.0),
        ("the", "A", 0.0),
        ("", "A", 0.0),
        ("", "+", 0.0),
        ("+", "+", 1.0),
        ("The  The", "The The", 1.0),
    ],
)
def test_an_answer_that_normalises_to_nothing_is_compared_as_it_is_written(reply, answer, score):
    for metric in ("em", "unicode_em", "f1", "longbench_f1", "set_f1", "sub_em", "memagent_sub_em"):
        if metric.endswith("sub_em") and reply in ("A+", "A*") and answer == "A":
            continue  # which it contains
        assert metrics.grade_answer(reply, [[answer]], metric=metric).outcome == score, metric
    assert metrics.grade_answer("AB+", [[answer, "AB+"]]).em == 1.0


@pytest.mark.parametrize(
    ("reply", "score"),
    [("_1234567_", 1.0), ("**1234567**", 1.0), ("1,234,567", 1.0), ("1 234 567", 0.0), ("1234567_89", 1.0)],
)
def test_a_needle_is_read_in_the_forms_in_which_models_write_numbers(reply, score):
    assert metrics.needle_exact(reply, ["1234567"]) == score


@pytest.mark.parametrize(
    ("prediction", "answer"),
    [
        ("李安娜。", "李安娜"),
        ("李 安娜", "李安娜"),
        ("「東京」", "東京"),
        ("１９３３", "1933"),
        ("1933–1940", "1933-1940"),
        ("“Ann Lee”", "Ann Lee"),
        ("O’Brien", "O'Brien"),
        ("Beyonce\u0301", "Beyoncé"),
        ("Ann\u00a0Lee", "Ann Lee"),
        ("dam\u00adned", "damned"),
        ("the STRASSE", "Straße"),
        ("ﬁre", "fire"),
        ("آنا لي؟", "آنا لي"),
        ("١٩٣٣", "1933"),
    ],
)
def test_unicode_em_folds_what_exact_match_tells_apart(prediction, answer):
    assert metrics.unicode_em(prediction, [answer]) == 1.0


@pytest.mark.parametrize(
    ("prediction", "answer"), [("Sao", "São"), ("李安", "李安娜"), ("", "。"), ("1933", "1934")]
)
def test_unicode_em_keeps_letters_apart(prediction, answer):
    assert metrics.unicode_em(prediction, [answer]) == 0.0


@pytest.mark.parametrize("reply", ["a,", "towns, ", "town "])
def test_locomo_f1_of_a_megabyte_takes_as_long_as_its_different_words(reply):
    answers = ["the town of Bel", "1623"]
    part = METRICS["locomo_f1"](reply, answers)  # also loads the stemmer
    began = time.process_time()
    whole = METRICS["locomo_f1"](reply * 140_000, answers)
    assert time.process_time() - began < 2
    if "," in reply:
        assert whole == part
    assert part == {"a,": 0.0}.get(reply, 0.25)  # 1 of 3 words of the first answer: F1 0.5
