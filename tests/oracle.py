"""The name of a reference file comes in, its cases go out; where the files are absent, so are the cases."""

import json
from pathlib import Path
from typing import Any

import pytest

ORACLE = Path(__file__).parents[2] / "shared" / "oracle"

needs_oracle = pytest.mark.skipif(
    not ORACLE.is_dir(), reason="reference values not beside the project: ../shared/oracle"
)


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of `name`.json, each with "input" and "output"; [] where the folder is absent.

    Put `@needs_oracle` above the `parametrize` that uses it. A wrong name beside a present folder raises.
    Non-finite floats stay the strings "nan", "inf" and "-inf", which `float` reads; an output
    {"raises": NAME} marks where the original raised.
    """
    if not ORACLE.is_dir():
        return []
    return json.loads((ORACLE / f"{name}.json").read_text(encoding="utf-8"))["cases"]
