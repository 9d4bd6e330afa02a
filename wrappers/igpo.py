"""IGPO: a turn earns what it adds to the probability of the right answer.

`RewardWrapper(env, [IGPO()], scorer="hf:MODEL")`, `memenvs train grpo --reward igpo`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.core.data import NonNegative, checked
from memenvs.core.episode import Episode, Floats, Turn
from memenvs.credit import igpo
from memenvs.wrappers.comparison import ComparisonSettings, results_of
from memenvs.wrappers.infomem import TARGETS, Target, asks_another, target_requests
from memenvs.wrappers.mempo import Measure
from memenvs.wrappers.method import RewardMethod, mean_logprobs
from memenvs.wrappers.scorers import ScoreRequest, TokenScores


class GainMethod(RewardMethod):
    """Asks for the answer's log-probabilities after each turn but the last, and before it.

    Attributes:
        target: the answer that is scored, a dataclass's field of a subclass.
    """

    target: Target

    @property
    def needs(self) -> tuple[str, ...]:
        return ("privileged/prompt_with_history", "privileged/question", *TARGETS[self.target])

    def requests(self, turn: Turn) -> list[ScoreRequest]:
        """The answer after the turn and before it; nothing at the last turn, or if the question changes."""
        if turn.over or asks_another(turn):
            return []
        prompts = [info["privileged"]["prompt_with_history"] for info in (turn.info, turn.before)]
        return target_requests(prompts, turn.info["privileged"], self.target)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """The turn's gain; 0.0 where nothing is asked, NaN where the target is empty."""
        if not scores:
            return 0.0
        after, before = mean_logprobs(scores)
        return self.gain(after, before)

    def gain(self, after: float, before: float) -> float:
        """What a turn gains, by the answer's mean log-probability after it and before it, nats a token."""
        raise NotImplementedError


@checked
@dataclass
class IGPO(GainMethod):
    """Reward each turn's gain of information about the answer (IGPO).

        r_t = p(a given q, o_<=t) - p(a given q, o_<=t-1)      t < T,   p = exp(mean log p)
        r_T = the outcome

    o_<=t are the turns so far (`privileged/prompt_with_history`), all of them also in a search whose prompt
    repeats a memory instead. In chunked reading it is the memory, since nothing else is left of earlier
    turns. r_T stays the component `outcome`; the paper's is F1, which is `metric="f1"` of the environments
    that ask questions.

    The signals are paid at their turns, as rewards of turns for any learner. `grpo --reward igpo` takes the
    paper's advantage instead (`memenvs.credit.igpo`): gains and outcomes are normalised over the group, then
    summed from each turn on.

    Where several questions are answered in a turn each (`ChunkQAEnv(ask="each")`), the gain of the
    last memory is not measured and counts 0: the question after it is another one than before it.

    As in the public code, a is scored inside the form that the prompt asks for, whose beginning is given: a
    model that always writes the form finds a bare answer next to impossible, and all gains are next to 0.

    A target that is empty, such as a level without a known solution, has signals of NaN. What the paper pays
    for a last turn in a bad format is left to the environment's metrics. Source: arXiv 2510.14967, of which
    we read the abstract, a summary with the equations, and the public code.

    Args:
        measure: `"probability"`, or `"log"`: differences of mean log p, nats per token (its code's option).
        target: a `"inside"` the form, as `"bare"` answer, or `"wrapped"`, the form and all.
        gamma: discount per turn, in the paper's advantage.
    """

    measure: Measure = "probability"
    target: Target = "inside"
    gamma: NonNegative = 1.0

    name = "igpo"
    uses = ()
    adds_advantages = False

    def gain(self, after: float, before: float) -> float:
        """r_t."""
        return math.exp(after) - math.exp(before) if self.measure == "probability" else after - before

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        """The paper's: gains and outcomes normalised in the group and summed from each turn on."""
        groups = [episode.group for episode in episodes]
        return igpo(self.signals_of(episodes), results_of(episodes), gamma=self.gamma, groups=groups)
