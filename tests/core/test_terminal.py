"""What is written to a terminal and to a file: colours, wrapped lines, tables."""

import io

from memenvs.core.terminal import RED, RESET, in_columns, show


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


def test_a_table_that_is_wider_than_the_terminal_is_shown_in_parts():
    rows = [["run", "em", "return"], ["---"] * 3, ["a\\|b", "1.000", "-0.5"]]
    page = "\n".join(["title", "", *(f"| {' | '.join(row)} |" for row in rows)])
    wide, narrow = in_columns(page, 80), in_columns(page, 12)
    assert wide.splitlines() == ["title", "", "run     em  return", "a|b  1.000    -0.5"]
    assert narrow.splitlines()[2:] == ["run     em", "a|b  1.000", "", "run  return", "a|b    -0.5"]


def test_each_part_of_a_wide_table_names_its_rows_also_if_they_are_grouped():
    rows = [["metric", "run", "em"], ["---"] * 3, ["f1", "a", "1.000"], ["", "b", "0.500"]]
    lines = in_columns("\n".join(f"| {' | '.join(row)} |" for row in rows), 14).splitlines()
    assert lines == ["metric  run     em", "f1      a    1.000", "        b    0.500"]
    rows = [[*row, wide] for row, wide in zip(rows, ["f1", "---", "2.000", "3.000"], strict=True)]
    lines = in_columns("\n".join(f"| {' | '.join(row)} |" for row in rows), 18).splitlines()
    assert lines[4:] == ["metric  run     f1", "f1      a    2.000", "        b    3.000"]
