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
