"""An environment or what it gave comes in; a transcript goes out that compares with another."""

import numpy as np


def play(env, replies, **reset):
    """Every (observation, reward, terminated, truncated, info) of an episode."""
    observation, info = env.reset(**reset)
    steps = [(observation, 0.0, False, False, info)]
    for reply in replies:
        steps.append(env.step(reply))
        if steps[-1][2] or steps[-1][3]:
            break
    return steps


def plain(value):
    """Arrays as lists, so that object arrays compare."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.tolist() if isinstance(value, np.ndarray) else value
