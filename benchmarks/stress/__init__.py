"""Stress tools: hostile replies, damaged files, kills and full disks, for as long as you like.

python -m benchmarks.stress.soak --seconds 60
python -m benchmarks.stress.soak_adapters --seconds 60
python -m benchmarks.stress.damage --tries 5000
python -m benchmarks.stress.kills --kills 100

They share the tests' tiny models, stub servers and viewer runs.
"""

import sys
from pathlib import Path

# pytest has this folder on its path too, so a stub is the same module in a test and here.
sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
