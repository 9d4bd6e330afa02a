"""Words of a text in any language, and whether a text mentions an answer."""

from __future__ import annotations

import pytest

from memenvs.core.words import units, words
from memenvs.envs.passages import holds_answer
from memenvs.tasks.mentions import spelling


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Čapek's R.U.R.", ["capek", "s", "r", "u", "r"]),
        ("snake_case 1,234", ["snake_case", "1", "234"]),
        ("Die STRASSE, die Straße", ["die", "strasse", "die", "strasse"]),
        ("dam\u00adned wa\u200bter", ["damned", "water"]),
        ("Ann\u00a0Lee\u2014１９３３", ["ann", "lee", "1933"]),
        ("राजधानी क्षेत्र", ["राजधानी", "क्षेत्र"]),
        ("السَّدُّ", ["السد"]),
        ("שָׁלוֹם", ["שלום"]),
        ("東京都 2020年", ["東京", "京都", "2020", "年"]),
        ("ｶﾞｲﾄﾞ がか", ["ガイ", "イド", "がか"]),
        ("수도이다", ["수도", "도이", "이다"]),
        ("เขื่อน", ["เขื่", "ขื่อ", "อน"]),
        ("ប្រាសាទ", ["ប្រា", "រាសា", "សាទ"]),
        ("🎉!", []),
    ],
)
def test_words_are_letters_with_their_marks_and_pairs_where_a_script_has_no_blanks(text, found):
    if text == "ប្រាសាទ":  # versions of Unicode differ in where its stacked consonants part
        assert "សាទ" in words(text)
    else:
        assert words(text) == found


def test_units_are_single_characters_where_a_script_has_no_blanks():
    assert units("_Ann_ Lee’s 東京") == ["ann", "lee", "s", "東", "京"]


FOUND = [
    ("The dam was Ann Lee's work.", "Ann Lee"),
    ("Ann Lee\u2019s dam", "ann lee"),
    ("The dam (1933\u20131940) is old.", "1940"),
    ("the \u201cAnn Lee\u201d dam", "Ann Lee"),
    ("the Paris/London line", "London"),
    ("the Lee-built dam", "Lee"),
    ("Ann Lee[1] built it", "Ann Lee"),
    ("_Ann Lee_ and **Bob**", "Ann Lee"),
    ("by Ann\u00a0Lee", "Ann Lee"),
    ("a Jean Luc", "Jean-Luc"),
    ("O\u2019Brien", "O'Brien"),
    ("the US army", "U.S."),  # punctuation deleted, as exact match has it
    ("1,234 people", "1234"),
    ("in Sao Paulo", "S\u00e3o Paulo"),
    ("Beyonce\u0301 sang", "Beyonc\u00e9"),
    ("only Thames here", "The Thames"),
    ("She founded The The.", "The The"),
    ("blood group A+.", "A+"),
    ("大坝由李安娜建造。", "李安娜"),
    ("เขื่อนนี้สร้างโดยแอนนา ลี", "แอนนา ลี"),
    ("서울은 수도이다", "서울"),
    ("من قِبَلِ آنا لي.", "آنا لي"),
    ("१९३३ में", "1933"),
    ("سنة ١٩٣٣", "1933"),
    ("１９３３年", "1933"),
]
NOT_FOUND = [
    ("Anna Leeds", "Ann Lee"),
    ("Lee Ann", "Ann Lee"),
    ("in 19330", "1933"),
    ("大坝由李安建造", "李安娜"),
    ("blood group AB", "A+"),
    ("the band", "The The"),
    ("anything", ""),
    ("", "Ann"),
]


@pytest.mark.parametrize(
    ("text", "answer", "found"), [(*one, True) for one in FOUND] + [(*one, False) for one in NOT_FOUND]
)
def test_an_answer_is_found_in_whole_words_whatever_stands_beside_it(text, answer, found):
    assert holds_answer([text], [[answer]]) == (found, [found])
    assert (spelling(text).share(answer) == 1.0) is (found or text == "Lee Ann")  # in any order


def test_an_answer_over_two_parts_is_found_in_the_whole():
    assert holds_answer(["by Ann\n", "Lee's"], [["Ann Lee"]]) == (True, [False, False])
