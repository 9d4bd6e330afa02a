"""An environment's output in a form that can be compared."""

from collections.abc import Mapping

import numpy as np


def plain(value):
    """Arrays as lists and mappings as dictionaries, so that object arrays and lazy fields compare."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value))
    return plain(value.tolist()) if isinstance(value, np.ndarray) else value
