"""Looking at episodes: an HTML report of its own, and a transcript on the terminal.

`python -m memenvs.view PATH… --out report.html` makes the report; docs/view.md shows it.
"""

from memenvs.view.report import write_report

__all__ = ["write_report"]
