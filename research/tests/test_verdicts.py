"""The verdicts of docs/results.md: their statistics, and that the page has what the script computes."""

import itertools

import numpy as np
import pytest

from research import verdicts
from research.verdicts import PAGE, Endpoint, Row, holm, interval, p_value, page, table


def test_five_seeds_are_compared_by_a_paired_t_test():
    # Mean 3, standard error sqrt(2.5 / 5), so t = 3 sqrt(2) and t^2 = 18 with 4 degrees of freedom, where
    # P(|T| > t) = 1 - 3/4 s (1 - s^2 / 12), s = t / sqrt(1 + t^2 / 4).
    s = np.sqrt(18 / 5.5)
    assert p_value(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == pytest.approx(1 - 0.75 * s * (1 - s**2 / 12))


def test_ten_seeds_are_compared_by_all_their_sign_flips():
    differences = np.array([3.0, -1.0, 4.0, 1.0, 5.0, -2.0, 6.0, 5.0, 3.0, 5.0])
    flips = [abs(differences @ signs) for signs in itertools.product((1, -1), repeat=10)]
    assert p_value(differences) == np.mean(np.array(flips) >= 29)
    assert p_value(np.abs(differences)) == 2 / 1024


def test_seeds_that_do_not_vary_are_compared_by_sign_flips():
    assert p_value(np.zeros(5)) == 1.0
    assert p_value(np.array([0.3 - 0.2, 0.4 - 0.3, 0.5 - 0.4])) == 2 / 2**3  # 0.1 but for rounding


def test_a_page_that_lacks_the_heading_of_a_table_is_refused():
    with pytest.raises(ValueError, match="has no table under the heading 'Sokoban: PPO and GRPO'"):
        page("# Results\n")


def test_an_interval_is_students():
    mean, low, high = interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (mean, high - mean) == pytest.approx((3, 2.776445 * np.sqrt(0.5)))
    assert low == pytest.approx(2 * mean - high)


def test_holm_corrects_the_smallest_most_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_a_claim_holds_by_its_sign_is_reversed_or_is_undecided(monkeypatch):
    seeds = {"quick": [10, 11, 12, 13, 14], "slow": [20.5, 21, 22, 23, 24], "similar": [11, 10, 13, 12, 14]}
    seeds |= {"lost": [], "broken": [np.nan, 11, 12, 13, 14], "same": seeds["quick"]}
    fewer = Endpoint(lambda name: np.array(seeds[name], float), sign=-1, digits=0)
    monkeypatch.setattr(verdicts, "ENDPOINTS", {"steps": fewer})
    pairs = [("quick", "slow"), ("slow", "quick"), ("quick", "similar"), ("quick", "lost")]
    pairs += [("quick", "same"), ("broken", "slow")]
    rows = [
        *(Row("faster", "steps", *pair) for pair in pairs),
        Row("faster", "steps", "quick", "slow", "why"),
    ]
    words = [line.strip("| ").split(" | ")[-1].partition(":")[0] for line in table(rows)[2:]]
    decided = ["holds", "does not hold", "undecided", "no verdict", "undecided"]
    assert words == [*decided, "no verdict", "no verdict"]


@pytest.mark.parametrize("numbers", [[1.0], [np.nan] * 12, [np.inf, *range(11)]])
def test_numbers_that_cannot_be_tested_have_no_verdict_and_correct_no_other_row(numbers, monkeypatch):
    seeds = {"odd": numbers, "low": [1, 2, 3, 4, 5.5], "high": [2, 4, 5, 6, 7]}
    monkeypatch.setattr(verdicts, "ENDPOINTS", {"em": Endpoint(lambda name: np.array(seeds[name], float))})
    tested = Row("higher", "em", "high", "low")
    odd = Row("higher", "em", "odd", "odd")
    alone, (*_, line, last) = table([tested]), table([tested, odd])
    assert line == alone[-1]
    assert "no verdict: " in last


def test_rows_that_are_planned_and_have_not_run_are_counted_in_the_correction(monkeypatch):
    seeds = {"low": [1, 2, 3, 4, 5.5], "high": [2, 4, 5, 6, 7]}
    monkeypatch.setattr(verdicts, "ENDPOINTS", {"em": Endpoint(lambda name: np.array(seeds[name], float))})
    tested, planned = Row("higher", "em", "high", "low"), Row("later", "em", "new", "low", verdicts.NOT_RUN)
    (*_, p, corrected, _), *later = [
        line.strip("| ").split(" | ") for line in table([tested, planned, planned])[2:]
    ]
    assert float(corrected) == pytest.approx(3 * float(p), abs=0.002)
    assert [row[-1] for row in later] == ["no verdict: planned, and not all run yet"] * 2


def test_the_page_has_the_tables_of_the_script():
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text
