"""Answers in the cells of other people's files: which are accepted, and what is said of doubtful ones."""

from __future__ import annotations

import datetime
import decimal
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memenvs.commands.build import main
from memenvs.tasks.cells import read_answers, scorable
from memenvs.tasks.taskset import open_questions, open_tasks


def read(field):
    """The answers in a field, and what is said of them."""
    lines = []
    return read_answers(field, "here", lines.append), lines


LISTS = {
    "JSON": '["Ann Lee", "A. Lee"]',
    "Python": "['Ann Lee', 'A. Lee']",
    "NumPy": "['Ann Lee' 'A. Lee']",
    "NumPy over two lines": "['Ann Lee'\n 'A. Lee']",
    "NumPy by repr": "array(['Ann Lee', 'A. Lee'], dtype=object)",
    "NumPy by repr, with a type in quotes": "array(['Ann Lee', 'A. Lee'], dtype='<U7')",
    "NumPy 2's texts": "[np.str_('Ann Lee'), np.str_('A. Lee')]",
    "a tuple": "('Ann Lee', 'A. Lee')",
    "with a null": "['Ann Lee', None, nan, 'A. Lee', <NA>]",
    "SQuAD in JSON": '{"text": ["Ann Lee", "A. Lee"], "answer_start": [3, 3]}',
    "SQuAD in Python": "{'text': ['Ann Lee', 'A. Lee'], 'answer_start': [3, 3]}",
    "SQuAD in NumPy": "{'text': array(['Ann Lee', 'A. Lee'], dtype=object), 'answer_start': array([3, 3])}",
    "objects": '[{"text": "Ann Lee"}, {"text": "A. Lee"}]',
    "a list of null and texts": ["Ann Lee", None, "A. Lee", float("nan"), " "],
    "SQuAD's object": {"text": ["Ann Lee", "A. Lee"], "answer_start": [3, 3]},
    "TriviaQA's object": {"Value": "Ann Lee", "Aliases": ["A. Lee"], "NormalizedAliases": ["ann"]},
}


@pytest.mark.parametrize("form", LISTS)
def test_several_answers_are_read_in_every_form_of_a_list(form):
    assert read(LISTS[form]) == (("Ann Lee", "A. Lee"), [])


@pytest.mark.parametrize("text", ["{'Ann', 'Bo'}", "frozenset({'Ann', 'Bo'})"])
def test_a_set_is_several_answers(text):
    assert read(text) == (("Ann", "Bo"), [])


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("""["Bo O'Kim"]""", ("Bo O'Kim",)),
        (r"['Bo O\'Kim', 'C:\\new']", ("Bo O'Kim", "C:\\new")),
        (r"['\u00e9', 'tab\there']", ("é", "tab\there")),
        ('["a\\/b"]', ("a/b",)),
        (r"['\d+']", (r"\d+",)),
        ("['None', 'nan']", ("None", "nan")),  # in quotes they are words
        ("[True]", ("yes",)),
    ],
)
def test_quotes_and_escapes_are_those_of_the_program_that_wrote_them(text, answers):
    assert read(text)[0] == answers


@pytest.mark.parametrize(
    ("field", "answers"),
    [
        (1933.0, ("1933", "1933.0")),
        ("1933.0", ("1933", "1933.0")),
        ("-3.0", ("-3", "-3.0")),
        (2.5, ("2.5",)),
        ("[1933. 1934.]", ("1933", "1933.0", "1934", "1934.0")),
        ("[1933, 1934]", ("1933", "1934")),
        ([1933, 1934.0], ("1933", "1934", "1934.0")),
        (decimal.Decimal("7.0"), ("7", "7.0")),
        (datetime.date(1933, 5, 1), ("1933-05-01",)),
        (datetime.datetime(1933, 5, 1), ("1933-05-01",)),
        ("v1.0", ("v1.0",)),
        (1e300, ("1e+300",)),
    ],
)
def test_a_whole_float_is_a_whole_number_too(field, answers):
    assert read(field)[0] == answers


@pytest.mark.parametrize(
    "field",
    [None, "", "  ", [], [None], [""], float("nan"), "nan", "NaN", "NaT", "<NA>", "None", "null", "[]",
     "[nan]", "[None]", "set()", "{}", {"text": [], "answer_start": []}, {"text": None},
     "{'text': [], 'answer_start': []}"],
)  # fmt: skip
def test_null_and_blank_are_no_answer(field):
    assert read(field)[0] == ()


@pytest.mark.parametrize(
    "text",
    ["[1] in a list", "(A)", "(2, 3)", "{1, 2}", "['Ann'", "['Ann' ... 'Bob']", "[[1, 2], [3, 4]]",
     '{"a": 1}', "[Ann, Bob]", "[" * 100_000, "a;b", "Ann | Bob", "['a'] and ['b']", "array('a'"],
)  # fmt: skip
def test_a_doubtful_cell_is_one_answer_and_one_line_says_so(text):
    answers, lines = read(text)
    assert answers == (text,)
    assert len(lines) == 1
    assert "one answer" in lines[0]


def test_numbers_in_brackets_are_several_answers_and_one_line_says_so():
    assert read("[1933, 1934]")[1] == ["'[1933, 1934]' is read as 2 answers"]


def test_a_text_of_brackets_takes_no_time_and_runs_nothing(tmp_path):
    evil = f"[open({str(tmp_path / 'x')!r}, 'w')]"
    assert read(evil)[0] == (evil,)
    assert not (tmp_path / "x").exists()
    assert read("[" + "'a', " * 10_000 + "'a']")[0] == ("a",)


def test_an_answer_that_comes_twice_is_accepted_once():
    assert scorable(["Ann", 3, "Ann", None, 3.0]) == ("Ann", "3", "3.0")


# Files.


def test_a_null_answer_leaves_its_question_out_and_refuses_no_file(tmp_path, capsys):
    rows = [("a", "Ann"), ("b", None), ("c", float("nan")), ("d", ["Bo", None]), ("e", "nan")]
    lines = (json.dumps({"id": id_, "question": "Who?", "answers": answer}) for id_, answer in rows)
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    assert main(["nq", "--source", str(tmp_path / "q.jsonl"), "--out", str(tmp_path / "set")]) == 0
    tasks = open_tasks(tmp_path / "set")
    assert [task.answers for task in tasks] == [(("Ann",),), (("Bo",),)]
    assert tasks.card.counts["left_out"] == 3
    assert capsys.readouterr().err.count("no answer") == 1


def test_a_column_of_whole_numbers_with_a_gap_is_read_as_it_was_meant(tmp_path):
    table = pa.table({"question": ["When?", "Why?", "How many?"], "answer": [1933.0, None, 4.0]})
    pq.write_table(table, tmp_path / "q.parquet")
    questions = open_questions(str(tmp_path / "q.parquet"))
    assert [task.answers[0] for task in questions] == [("1933", "1933.0"), ("4", "4.0")]
    assert questions.left_out == 1


@pytest.mark.parametrize("name", ["nq-test.csv", "nq-test.tsv", "topics.nq.test.txt"])
def test_a_file_of_dpr_has_tabs_lists_and_no_header(tmp_path, name):
    (tmp_path / name).write_text(
        'who built the dam, and when\t[\'Ann Lee\', \'A. Lee\']\nwho runs it\t"[""Bo O\'Kim""]"\n'
    )
    questions = open_questions(str(tmp_path / name))
    assert [task.question for task in questions] == ["who built the dam, and when", "who runs it"]
    assert [task.answers[0] for task in questions] == [("Ann Lee", "A. Lee"), ("Bo O'Kim",)]


def test_a_table_may_have_semicolons_or_tabs_whatever_its_name_says(tmp_path):
    for mark in (";", "\t"):
        (tmp_path / "q.csv").write_text(f"question{mark}answer\nWho, then?{mark}Ann\n")
        (task,) = open_questions(str(tmp_path / "q.csv"))
        assert (task.question, task.answers) == ("Who, then?", (("Ann",),))
        (tmp_path / "q.csv").unlink()


def test_records_may_be_in_an_object_by_their_ids(tmp_path):
    records = {"dam": {"question": "Who?", "answer": "Ann"}, "mill": {"question": "Whose?", "answer": "Bo"}}
    (tmp_path / "q.json").write_text(json.dumps(records))
    assert [task.id for task in open_questions(str(tmp_path / "q.json"))] == ["dam", "mill"]
