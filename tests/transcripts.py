"""What an environment gave, in a form that compares."""

import numpy as np


def plain(value):
    """Arrays as lists, so that object arrays compare."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.tolist() if isinstance(value, np.ndarray) else value
