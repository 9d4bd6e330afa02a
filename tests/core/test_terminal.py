"""What is written to a terminal and to a file: colours, wrapped lines, tables."""

import io
import os
import re
import subprocess
import sys

import pytest

from memenvs.core.errors import one_line, printable
from memenvs.core.terminal import RED, RESET, in_columns, report_error, show, show_page

ATTACK = "\x1b]0;title\x07\x1b[31mred\x1b[2J\u202e\x9b1A\r\U000e0041\u200b\ud800"
"""A title, a colour, a cleared screen, reversed text, C1, a line to overwrite, a tag, what nobody sees."""
HARM = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\U000e0041\u200b\ud800]")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_text_is_wrapped_and_coloured_on_a_terminal_and_plain_elsewhere(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = f"  {RED}failed{RESET}: the server did not answer in time\n"
    terminal, file = Terminal(), io.StringIO()
    show(text, terminal)
    show(text, file)
    assert file.getvalue() == "  failed: the server did not answer in time\n"
    assert RED in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    show(text, plain)
    assert plain.getvalue() == "  failed: the server did not\n  answer in time\n"


def test_a_table_of_markdown_is_columns():
    rows = [["metric", "run", "em"], ["---"] * 3, ["f1", "a\\|b", "1.000"], ["", "c", "-0.5"]]
    page = "\n".join(["title", "", *(f"| {' | '.join(row)} |" for row in rows)])
    assert in_columns(page).splitlines() == [
        "title",
        "",
        "metric  run     em",
        "f1      a|b  1.000",
        "        c     -0.5",
    ]


@pytest.mark.parametrize(
    "write", [show, show_page, lambda text, *_: report_error("memenvs", ValueError(text))]
)
def test_no_text_of_others_controls_a_terminal(write, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    write(f"the model {ATTACK} | a\n")
    text = re.sub(r"\x1b\[(31|0)m", "", terminal.getvalue())  # our colours
    assert not HARM.search(text)
    assert "red" in text


def test_an_error_in_one_line_holds_no_control_character():
    assert not HARM.search(one_line(ConnectionError(f"HTTP 400:\n{ATTACK}")))


def test_joiners_stay_where_the_spelling_needs_them():
    text = (
        "\u0645\u06cc\u200c\u0631\u0648\u0645 and \U0001f469\u200d\U0001f680"  # Persian; a woman in a rocket
    )
    assert printable(text) == text
    assert printable("pay\u200cpal") == "pay\ufffdpal"


HOSTILE = """
import logging, sys, warnings
from memenvs.core.terminal import clean_streams
clean_streams()
text = {text!r}
warnings.warn(text)
sys.stdout.write("\u2500\u2500 \u6771\u4eac\\n")
raise RuntimeError(text)
"""


@pytest.mark.parametrize(
    ("encoding", "line"), [("cp1252", b"-- ??"), ("ascii", b"-- ??"), ("cp932", "── 東京".encode("cp932"))]
)
def test_streams_pass_any_encoding_and_warnings_and_tracebacks_are_clean(encoding, line):
    code = HOSTILE.format(text=ATTACK[:-1])
    environment = {"PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True
    )
    assert done.stdout.rstrip() == line
    assert done.stderr.count(b"red") == 2
    assert not re.search(rb"[\x00-\x08\x0b-\x1f]", done.stderr)
