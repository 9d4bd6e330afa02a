"""TAMTRL: a memory is rewarded by its probability under a teacher that reads the evidence alone.

`RewardWrapper(env, [TAMTRL()], scorer="hf:MODEL")`, `memenvs train grpo --reward tamtrl`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memenvs.core.data import checked
from memenvs.core.episode import Credit, Episode, Floats, Turn
from memenvs.credit import tamtrl, tamtrl_rewards
from memenvs.wrappers.comparison import ComparisonSettings
from memenvs.wrappers.method import RememberingMethod
from memenvs.wrappers.scorers import ScoreRequest, TokenScores

VIEWS = {"local": "teacher_prompt", "global": "teacher_prompt_global"}  # what the teacher reads, by the view


@checked
@dataclass
class TAMTRL(RememberingMethod):
    """Give each turn the outcome times a teacher's score of its memory (TAMTRL eq. 3 to 7).

        p_t  = mean over the memory's tokens of pi(token given q, C_t, M_t)    eq. 4
        p^_t = (p_t - min p) / (max p - min p)                                 eq. 5
        R_t  = p^_t * r                                                        eq. 6

    C_t is the evidence inside chunk t. The mean is one of probabilities, not of their logarithms. The signal
    is p_t, the credits are R_t; their advantage over the turns of a task (eq. 7) is `memenvs.credit.tamtrl`.
    A learner trains only on groups with right and wrong answers (eq. 3; `Comparison.needs_both_answers`).
    A memory that could not be measured has a signal and a credit of NaN, which pay nothing. An empty memory
    has no tokens for eq. 4: it is not scored, its p^_t is 0, and it counts in neither extreme of eq. 5. Where
    several questions are answered in a turn each (`ChunkQAEnv(ask="each")`), r is the whole outcome for the
    memories, and for an answer what it earned itself.

    The paper takes min-max over the whole batch, and so do `advantages`, which a learner trains by. The
    credits are assigned group by group, so min-max runs over the group; alone, over all turns of this method
    so far.

    In product form the credits replace the outcome: its component counts 0, and `info["metrics"]["outcome"]`
    keeps it. In the form "plus" the outcome stays where it is and each turn gets p^_t.

    Args:
        length_norm: False sums over the tokens instead.
        minmax: False leaves p_t unscaled.
        combine: `"product"` or `"plus"`.
        view: `"local"`, the evidence inside the chunk, or `"global"`, all evidence at every turn.
        final_turn: the answer turn gets the `"outcome"` itself (p^ = 1), or is scored by the `"teacher"`,
            which reads the memory and then all evidence.
        change: True scores what the turn changed instead of p_t (ours): p_t of the memory that was
            written less that of the memory before under the same prompt. A memory that is kept as it is then
            scores 0 before min-max, whatever it holds; a teacher without evidence gives it a high p_t.
    """

    length_norm: bool = True
    minmax: bool = True
    combine: Literal["product", "plus"] = "product"
    view: Literal["local", "global"] = "local"
    final_turn: Literal["outcome", "teacher"] = "outcome"
    change: bool = False

    name = "tamtrl"
    uses = ()
    adds_advantages = False
    needs_both_answers = True
    group = True
    immediate = False

    @property
    def replaces_outcome(self) -> bool:
        return self.combine == "product"

    @property
    def needs(self) -> tuple[str, ...]:
        final = ("privileged/memory_span", "privileged/reply") if self.final_turn == "teacher" else ()
        return (f"privileged/{VIEWS[self.view]}", "privileged/memory", *final)

    def requests(self, turn: Turn) -> list[ScoreRequest]:
        """The memory that was written, under the teacher's prompt; with `change` also the one before."""
        if self._takes_outcome(turn) or not (written := _written(turn)):
            return []
        texts, before = [written], turn.before["privileged"]
        if self.change and not _answers(turn) and "written" not in turn.info["privileged"]:
            texts.append(before["memory"])
        return [ScoreRequest(before[VIEWS[self.view]], text) for text in texts]

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """p_t, or its change; 0.0 where nothing is scored."""
        written, *before = (self._score(nats) for nats in scores) if scores else (0.0,)
        return written - sum(before)

    def fixed_rewards(self, episode: Episode) -> list[float]:
        """(K,) R_t of the turns that no teacher scores; NaN at the others, which eq. 6 pays.

        This is the argument `fixed` of `memenvs.credit.tamtrl`.
        """
        several = sum(_answered(turn) for turn in episode.turns) > 1
        rewards = []
        for turn, outcome in zip(episode.turns, episode.outcomes, strict=True):
            if self._takes_outcome(turn):
                # Each of several answers is worth what it earned itself.
                rewards.append(outcome if several else episode.outcome)
            elif _written(turn):
                rewards.append(math.nan)
            else:  # an empty memory: eq. 6 with p^_t = 0
                rewards.append(0.0 if self.combine == "product" else episode.outcome)
        return rewards

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        teacher = self.signals_of(episodes)
        # In the form "plus" the outcome keeps its own component, so that none is added here.
        share = 1.0 if self.replaces_outcome else 0.0
        fixed = [share * np.array(self.fixed_rewards(episode)) for episode in episodes]
        bounds = None
        if len(episodes) == 1:
            earlier = self._earlier["memory"]
            earlier.add(np.array(teacher[0])[np.isnan(fixed[0])].tolist())
            bounds = (earlier.low, earlier.high) if earlier.count else None
        rewards = tamtrl_rewards(
            teacher,
            [share * episode.outcome for episode in episodes],
            fixed=fixed,
            minmax=self.minmax,
            combine=self.combine,
            bounds=bounds,
        )
        return [[Credit(k, value) for k, value in enumerate(turns.tolist())] for turns in rewards]

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        """Eq. 5 to 7: min-max over all these episodes, then each R_t over the turns of its group."""
        return tamtrl(
            self.signals_of(episodes),
            [episode.outcome for episode in episodes],
            tasks=[episode.group for episode in episodes],
            fixed=[self.fixed_rewards(episode) for episode in episodes],
            minmax=self.minmax,
            combine=self.combine,
            # Eq. 6 gives a failed rollout 0 at every turn, and DAPO adds its length penalty to that.
            penalties=[episode.length_penalty for episode in episodes],
        )

    def _score(self, nats: TokenScores) -> float:
        probabilities = np.exp(nats)
        if not len(probabilities):
            return 0.0
        return float(probabilities.mean() if self.length_norm else probabilities.sum())

    def _takes_outcome(self, turn: Turn) -> bool:
        return self.final_turn == "outcome" and (turn.over or _answered(turn))


def _answered(turn: Turn) -> bool:
    """Whether the environment says that the reply answered one of several questions."""
    return bool(turn.info["privileged"].get("answered", False))


def _answers(turn: Turn) -> bool:
    """Whether the reply is an answer; a limit outside may end a reading turn too."""
    return _answered(turn) or (turn.over and turn.info["privileged"].get("memory_span") is None)


def _written(turn: Turn) -> str:
    """The answer, or what was written of the memory: in some memory modes a change of it."""
    fields = turn.info["privileged"]
    return str(fields.get("reply", "") if _answers(turn) else fields.get("written", fields["memory"]))
