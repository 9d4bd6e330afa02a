"""Episodes as an HTML report or in the terminal, and curves of training runs.

`memenvs view PATH… --out report.html` makes the report, `--curves RUN…` the curves; docs/view.md
shows both.
"""

from memenvs.view.curves import write_curves
from memenvs.view.report import write_report

__all__ = ["write_curves", "write_report"]
