"""GiGPO: actions that were taken in equal states of a group are compared with each other.

`memenvs.collect("MemSokoban-v0", policy, range(8), n=4, methods=["GiGPO"])`, `--reward gigpo` of a learner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memenvs.core.data import NonNegative, Share, checked
from memenvs.core.episode import Credit, Episode, Turn, observation_text
from memenvs.credit import gigpo
from memenvs.wrappers.method import RewardMethod


@checked
@dataclass
class GiGPO(RewardMethod):
    """Give each turn an advantage over the group's other turns in the same state (GiGPO eq. 5 to 8).

        R_{i,k}   = sum_{l >= k} gamma^(l-k) r_{i,l}                          eq. 5
        A^S_{i,k} = (R_{i,k} - mean R) / (std R + eps)                        eq. 7
                    over the turns of all rollouts of the group whose state is that of turn k (eq. 6)
        A_{i,k}   = A^E_i + omega A^S_{i,k}                                   eq. 8

    omega A^S is a credit to each turn, marked as an advantage. A^E, the return compared in the group (eq. 3),
    is the learner's: `grpo --reward gigpo` adds the two. r are the rewards of what is wrapped, not those of
    methods beside this one. A state that occurs once has nothing to compare, so its credit is 0. Without a
    group, the equal states of one episode are compared.

    A^E counts each rollout once, as eq. 3 does. verl-agent's default counts it once a turn
    (`compute_mean_std_cross_steps=True`): for a win of one turn and a loss of three its mean return is 1/4,
    and A^E without std is 0.75 and -0.25, where here it is 0.5 and -0.5.

    The state of a turn is `privileged/state` if the environment has it (the board of Sokoban). Otherwise it
    is what came back last: the feedback to the reply before, or the prompt, if it is the first or rewritten.

    Source: arXiv 2505.10978, with the numbers that its public code (verl-agent, `core_gigpo.py`) gives its
    equations.

    Args:
        omega: weight of A^S.
        gamma: discount per turn.
        scale: `"std"`, or `"none"` to leave the standard deviation out.
        similarity: texts are one state if they share at least this part of their words, 0 to 1; 1 asks for
            equal texts. verl-agent takes 0.9 for what a search brings, of difflib's ratio, which also depends
            on the order and takes minutes for long texts.
    """

    omega: float = 1.0
    gamma: NonNegative = 0.95
    scale: Literal["std", "none"] = "std"
    similarity: Share = 1.0

    name = "gigpo"
    group = True
    immediate = False
    needs = ("feedback", "privileged", "turn_rewards")

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        # An episode that failed is compared with none, as if it had no turns.
        played = [[] if episode.error else episode.turns for episode in episodes]
        rewards = [turns[-1].info["turn_rewards"] if turns else [] for turns in played]
        states = similar_states([[state_of(turn) for turn in turns] for turns in played], self.similarity)
        advantages = gigpo(rewards, states, gamma=self.gamma, scale=self.scale)
        return [
            [Credit(k, self.omega * value, advantage=True) for k, value in enumerate(values.tolist())]
            for values in advantages
        ]


def state_of(turn: Turn) -> str:
    """The text of the state that a turn acts in, as `GiGPO` compares it."""
    info = turn.before
    return str(info["privileged"].get("state") or info["feedback"] or observation_text(turn.observation))


def similar_states(texts: Sequence[Sequence[str]], similarity: float) -> list[list[str]]:
    """Each text replaced by the first one before it that is similar enough; texts of the turns of rollouts.

    Two texts have in common the part 2 |A and B| / (|A| + |B|) of their words A and B, each word counted as
    often as it occurs, in any order.

    >>> similar_states([["a b c d", "b"], ["a b d c e"]], similarity=0.8)
    [['a b c d', 'b'], ['a b c d']]
    """
    if similarity == 1:
        return [list(row) for row in texts]
    numbers: dict[tuple[str, int], int] = {}  # of the n-th occurrence of a word
    first: dict[str, str] = {}
    words: dict[str, set[int]] = {}  # of each state
    for text in (text for row in texts for text in row):
        if text in first:
            continue
        counts = Counter[str]()
        words_here = set[int]()
        for word in text.split():
            counts[word] += 1
            words_here.add(numbers.setdefault((word, counts[word]), len(numbers)))
        first[text] = next(
            (state for state in words if _shared(words[state], words_here) >= similarity), text
        )
        words.setdefault(first[text], words_here)
    return [[first[text] for text in row] for row in texts]


def _shared(first: set[int], second: set[int]) -> float:
    """The part of their words that two texts share, 0 to 1; two texts without a word share all."""
    total = len(first) + len(second)
    return 2 * len(first & second) / total if total else 1.0
