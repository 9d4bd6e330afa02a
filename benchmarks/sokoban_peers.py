"""Sokoban steps a second of processor time, beside GEM (text) and Jumanji (arrays), on one core.

pip install gem-llm jumanji
python -m benchmarks.sokoban_peers [--levels boxoban_unfiltered_valid_000.txt]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import memenvs  # noqa: F401
from benchmarks.harness import print_head, print_row, run
from memenvs.data import bundled
from memenvs.sokoban.board import BOX, XSB, to_text
from memenvs.sokoban.environments import BUNDLED
from memenvs.sokoban.levels import LevelSet

BOARDS, STEPS, REPEATS = 1024, 300, 5
NAMES = ("up", "down", "left", "right")


def main(levels: str = "") -> None:
    """Measure what is installed.

    Args:
        levels: Boxoban's text: boards of 10x10, four boxes, to compare too.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # on two cores JAX takes more processor time
    print_head("work", "memenvs", "the other", "ratio")
    line("text, GEM: replies/s", lambda: text_rate(True), lambda: gem_rate(True))
    line("text, GEM, resets left out", lambda: text_rate(False), lambda: gem_rate(False))
    for chosen in (BUNDLED, levels):
        if chosen:
            height, width = read_levels(chosen).boards[0].shape
            name = f"{BOARDS} boards of {height}x{width}, Jumanji: steps/s"
            line(name, partial(grid_rate, chosen), partial(jumanji_rate, chosen))


def line(name: str, ours: Callable[[], float], theirs: Callable[[], float]) -> None:
    """Print a row; both are measured in turns, because other work may run beside them."""
    try:
        pairs = [(ours(), theirs()) for _ in range(REPEATS)]
    except ImportError as error:
        print(f"{name}: not installed ({error})")
        return
    a, b = (max(rates) for rates in zip(*pairs, strict=True))
    print_row(name, f"{a:,.0f}", f"{b:,.0f}", f"{a / b:.1f}")


def read_levels(name: str) -> LevelSet:
    """All levels of a set by bundled name or by file."""
    return LevelSet.load(bundled(f"{name}.npz") if name == BUNDLED else name, None)


def text_rate(count_resets: bool) -> float:
    """Replies a second of `MemSokoban-v0`, each with one move, in episodes of 100, as GEM's."""
    env = gym.make("MemSokoban-v0", disable_env_checker=True, max_turns=100, max_actions=1)
    return reply_rate(env, "<think>go</think><answer>{}</answer>", count_resets)


def gem_rate(count_resets: bool) -> float:
    """Replies a second of GEM's text Sokoban, 6x6 with one box, in episodes of 100."""
    from gem.envs.game_env.sokoban import SokobanEnv

    env = SokobanEnv(dim_room=(6, 6), num_boxes=1, max_turns=100)
    return reply_rate(env, "<think>go</think>\\boxed{{{}}}", count_resets)


def reply_rate(env: Any, form: str, count_resets: bool) -> float:
    """Replies a second of processor time, with or without the time of the resets."""
    replies = [form.format(NAMES[i]) for i in np.random.default_rng(0).integers(0, 4, 5000)]
    env.reset(seed=0)
    resets, begun = 0.0, time.process_time()
    for reply in replies:
        _, _, terminated, truncated, _ = env.step(reply)
        if terminated or truncated:
            started = time.process_time()
            env.reset()
            resets += time.process_time() - started
    seconds = time.process_time() - begun
    return len(replies) / (seconds if count_resets else seconds - resets)


def grid_rate(levels: str) -> float:
    """Steps a second of `MemSokobanGrid-v0` over 1,024 boards, observations and autoreset included."""
    venv = gym.make_vec("MemSokobanGrid-v0", num_envs=BOARDS, levels=levels, level_split=None)
    venv.reset(seed=0)
    return rate(venv.step, lambda: None)


def jumanji_rate(levels: str) -> float:
    """Steps a second of Jumanji's Sokoban on 64 of the levels, jitted, vmapped and with its autoreset."""
    import jax
    import jax.numpy as jnp
    from jumanji.environments.routing.sokoban import env as rules
    from jumanji.environments.routing.sokoban import generator, reward
    from jumanji.environments.routing.sokoban.types import State
    from jumanji.wrappers import VmapAutoResetWrapper

    boards = read_levels(levels).boards
    texts = [text for text in map(partial(to_text, vocabulary=XSB), boards[:256]) if not {*text} & {*"*+"}]
    rules.GRID_SIZE = boards.shape[1]
    rules.N_BOXES = reward.N_BOXES = int(np.count_nonzero(boards[0] & BOX))
    arrays = [generator.convert_level_to_array(text.split("\n")) for text in texts[:64]]
    fixed, variable = (jnp.stack(one) for one in zip(*arrays, strict=True))

    class Levels(generator.Generator):
        def __call__(self, key: Any) -> Any:
            key, drawn = jax.random.split(key)
            i = jax.random.randint(drawn, (), 0, len(fixed))
            player = self.get_agent_coordinates(variable[i])
            return State(
                key=key,
                fixed_grid=fixed[i],
                variable_grid=variable[i],
                agent_location=player,
                step_count=jnp.array(0, jnp.int32),
            )

    env: Any = VmapAutoResetWrapper(rules.Sokoban(generator=Levels()))
    state, _ = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), BOARDS))
    step, timestep = jax.jit(env.step), None

    def move(row: Any) -> None:
        nonlocal state, timestep
        state, timestep = step(state, row)

    return rate(move, lambda: jax.block_until_ready(timestep.observation))


def rate(step: Callable[[Any], Any], end: Callable[[], Any]) -> float:
    """Board steps a second, after as many to warm up."""
    actions = np.random.default_rng(0).integers(0, 4, (STEPS, BOARDS)).astype(np.int32)
    for _ in range(2):
        started = time.process_time()
        for row in actions:
            step(row)
        end()
        seconds = time.process_time() - started
    return actions.size / seconds


if __name__ == "__main__":
    run(main)
