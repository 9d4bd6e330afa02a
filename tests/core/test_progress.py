"""Progress of long work where standard error is no terminal."""

import io
import sys
import threading

from memenvs.core import progress


def test_a_line_says_what_is_done_while_work_goes_on(monkeypatch):
    said = threading.Event()

    class Listener(io.StringIO):
        def write(self, text):
            said.set()
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Listener())
    monkeypatch.setattr(progress, "SAY_EVERY", 0.01)
    with progress.Progress(2, "episodes", done=1) as bar:
        bar.add(failed=1)
        said.clear()
        assert said.wait(60)
    assert "2 of 2 episodes done, 1 failed" in sys.stderr.getvalue()
