"""Recorded outputs of other systems for our inputs: see reference/README.md."""

import json
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parents[1] / "reference"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of `reference/name.json`, each with "input" and "output".

    Non-finite floats are the strings "nan", "inf" and "-inf", which `float` reads; an output
    {"raises": NAME} marks where the original raised.
    """
    return json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))["cases"]
