"""`make demo`."""

import runpy

from pages import ROOT


def test_the_demo_marks_the_turn_that_lost_the_answer(capsys):
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    first, second = (
        next(i for i, line in enumerate(lines) if line.endswith(end)) for end in (": right", ": wrong")
    )
    marked = [i for i, line in enumerate(lines) if "<-" in line]
    assert len(marked) == 1
    assert first < second < marked[0]
    assert len(lines) <= 40  # a screen
