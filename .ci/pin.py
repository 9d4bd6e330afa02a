"""Rewrite a file of constraints with what an environment has now: `.ci/pin.py PYTHON FILE`.

Its comments stay, and so do the markers of a package. Local versions, such as +cpu, are left out.
"""

import re
import subprocess
import sys
from pathlib import Path


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


python, path = sys.argv[1], Path(sys.argv[2])
old = path.read_text().splitlines() if path.exists() else []
markers = {_plain(line.partition("==")[0]): line.partition(";")[2] for line in old}
command = [python, "-m", "pip", "freeze", "--exclude-editable"]
lines = [line for line in old if line.startswith("#")]
for found in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
    name, version = re.fullmatch(r"([\w.-]+)==([^+]+)(\+.*)?", found).groups()[:2]
    lines.append(f"{name}=={version}" + (f";{marker}" if (marker := markers.get(_plain(name))) else ""))
path.write_text("\n".join(lines) + "\n")
