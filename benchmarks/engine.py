"""Many episodes on a server with continuous batching: each at its own pace, against all in step.

python -m benchmarks.engine

The server is simulated: a reply of L tokens (geometric, `--mean`) takes L times `--token-time` seconds,
whatever else is sampled at the same time. Both ways play the same episodes with the same lengths, one after
the other in each round.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.harness import print_head, print_row, run
from memenvs import collect
from memenvs.models import Ids, Reply, ScriptedPolicy
from memenvs.models.policy import Limit


class LockstepServer(ScriptedPolicy):
    """Waits for all replies of a batch.

    Args:
        mean: tokens of a reply on average.
        token_time: seconds a token.
    """

    def __init__(self, mean: float, token_time: float) -> None:
        super().__init__(str)
        self.mean, self.token_time = mean, token_time

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt, all returned when the longest has ended."""
        replies = [self.draw(rng) for rng in rngs]
        time.sleep(max((len(reply.ids) for reply in replies), default=0) * self.token_time)
        return replies

    def draw(self, rng: np.random.Generator) -> Reply:
        """A reply of random length that makes no move."""
        length = int(rng.geometric(1 / self.mean))
        return Reply("no move", np.full(length, 5), np.zeros(length), finished=True)


class StreamingServer(LockstepServer):
    """Returns each reply as soon as it has ended; see `memenvs.models.policy.StreamingPolicy`."""

    def __init__(self, mean: float, token_time: float) -> None:
        super().__init__(mean, token_time)
        self._under_way: dict[int, tuple[float, Reply]] = {}

    def submit(self, key: int, prompt: Ids, rng: np.random.Generator, max_new_tokens: int) -> None:
        """Begin a reply."""
        reply = self.draw(rng)
        self._under_way[key] = time.perf_counter() + len(reply.ids) * self.token_time, reply

    def completed(self) -> list[tuple[int, Reply]]:
        """The replies that have ended, at least one."""
        first = min(end for end, _ in self._under_way.values())
        time.sleep(max(0.0, first - time.perf_counter()))
        now = time.perf_counter()
        ended = [key for key, (end, _) in self._under_way.items() if end <= now]
        return [(key, self._under_way.pop(key)[1]) for key in ended]

    def cancel(self) -> None:
        """Drop the replies that are under way."""
        self._under_way.clear()


def rate(policy: LockstepServer, seeds: Sequence[int], turns: int) -> float:
    """Episodes a second, making the environments included."""
    start = time.perf_counter()
    episodes = collect(
        "MemSokoban-v0", policy, seeds, env_args={"max_turns": turns}, max_new_tokens=10**6, errors="raise"
    )
    seconds = time.perf_counter() - start
    if {len(episode.replies) for episode in episodes} != {turns}:
        raise RuntimeError(f"an episode had not {turns} turns")
    return len(episodes) / seconds


def main(
    rounds: int = 7, turns: tuple[int, ...] = (4, 8), mean: float = 100.0, token_time: float = 0.001
) -> None:
    """Measure and print a table."""
    print_head("episodes", "turns", "in step, episodes/s", "own pace", "ratio, median (least to most)")
    for episodes in (64, 256):
        for count in turns:
            rates = []
            for number in range(rounds):
                seeds = range(number * episodes, (number + 1) * episodes)
                measured = {}
                for server in (LockstepServer, StreamingServer)[:: 1 if number % 2 else -1]:
                    measured[server] = rate(server(mean, token_time), seeds, count)
                rates.append([measured[LockstepServer], measured[StreamingServer]])
            lockstep, own = np.median(rates, axis=0)
            ratios = [own / lockstep for lockstep, own in rates]
            spread = f"**{np.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
            print_row(episodes, count, f"{lockstep:.1f}", f"{own:.1f}", spread)


if __name__ == "__main__":
    run(main)
