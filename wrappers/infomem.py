"""InfoMem: how much the final memory raises the likelihood of the right answer.

`RewardWrapper(env, [InfoMem(beta=0.2)], scorer="hf:MODEL")`, `memenvs train grpo --reward infomem`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from memenvs.core.data import checked
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.core.text import Template, read_prompts
from memenvs.credit import infomem_bonus
from memenvs.tasks.metrics import answer_opening
from memenvs.wrappers.method import RememberingMethod, mean_logprobs
from memenvs.wrappers.scorers import ScoreRequest, TokenScores

Target = Literal["bare", "inside", "wrapped"]
TARGETS: dict[Target, tuple[str, ...]] = {
    "bare": ("privileged/target",),
    "inside": ("privileged/target", "privileged/target_wrapped"),
    "wrapped": ("privileged/target_wrapped",),
}
"""What each target needs."""

QUERY_PROMPT = Template(
    """\
<memory>
{memory}
</memory>

The question that this memory was kept for:
""",
    required=("memory",),
    optional=("question",),
)


def target_requests(
    prompts: Sequence[str], privileged: Mapping[str, Any], target: Target
) -> list[ScoreRequest]:
    """What asks for the answer after each prompt, `"inside"` after the beginning of its form too."""
    answer = privileged["target_wrapped" if target == "wrapped" else "target"]
    opening = answer_opening(answer, privileged["target_wrapped"]) if target == "inside" else ""
    return [ScoreRequest(prompt, answer, opening) for prompt in prompts]


def asks_another(turn: Turn) -> bool:
    """Whether a turn ends with another question than it began with, as where each is answered in a turn."""
    before, after = (info["privileged"].get("question") for info in (turn.before, turn.info))
    return bool(before != after)


@checked
@dataclass
class InfoMem(RememberingMethod):
    """Reward the final memory's information about the answer (InfoMem eq. 6, 9, 10).

        r_gain = mean log P(y* given q, M_K) - mean log P(y* given q, empty memory)      eq. 6
        r~     = z-score of r_gain inside the successful rollouts of the group          eq. 9
        R      = outcome + beta * r~                                                    eq. 10

    Both likelihoods are of the bare answer after the final-answer prompt (appendix D). The signal of the
    last turn is r_gain in nats per token, and its credit is beta * r~. The outcome stays a component of its
    own. A single success in a group keeps its raw gain, because a z-score would erase it.

    Without a group, the z-score compares with the gains of earlier rollouts on the same side; the first one
    of a side keeps its raw gain.

    Args:
        beta: weight of the gain.
        side: `"success"`, `"wrong"` or `"both"`, each side z-scored inside itself.
        normalize: False pays the raw gain.
        condition: `"answer"`, or `"query"`: the likelihood of the question given the memory alone (QueryPMI),
            which needs no answer.
        outcome: False leaves the outcome out of the sum (its component counts 0).
        target: y* as `"bare"` answer, `"inside"` the form that the prompt asks for, whose beginning is given,
            or `"wrapped"` in that form, all of which is scored.
        template: another prompt of `condition="query"`, after which the question is scored: a file or its
            text, with the placeholder `{memory}`; it ends before `{question}` if it has that one
            (docs/prompts.md). The prompt of `condition="answer"` is the environment's.
    """

    beta: float = 0.2
    side: Literal["success", "wrong", "both"] = "success"
    normalize: bool = True
    condition: Literal["answer", "query"] = "answer"
    outcome: bool = True
    target: Target = "bare"
    template: str | None = None

    name = "infomem"
    group = True
    immediate = False

    def __post_init__(self) -> None:
        self._query = QUERY_PROMPT
        if self.template is not None:
            if self.condition != "query":
                raise ValueError(
                    "template is the prompt of condition='query'; the answer's prompt is the environment's, "
                    "which has an argument template of its own"
                )
            self.template = read_prompts(self.template, ["query"], ["query"])["query"]
            self._query = QUERY_PROMPT.reworded(self.template, "query")

    @property
    def replaces_outcome(self) -> bool:
        return not self.outcome

    @property
    def needs(self) -> tuple[str, ...]:
        success = () if self.side == "both" else ("metrics/success",)
        if self.condition == "query":
            return ("privileged/memory", "privileged/question", *success)
        return (
            *success,
            "privileged/prompt_with_memory",
            "privileged/prompt_without_memory",
            *TARGETS[self.target],
        )

    def requests(self, turn: Turn) -> list[ScoreRequest]:
        """At the last turn, the answer (or the question) with the memory and without."""
        if not turn.over:
            return []
        privileged = turn.info["privileged"]
        if self.condition == "query":
            until = "question" if "question" in self._query.places else ""
            prompts = [self._query.fill(until, memory=memory) for memory in (privileged["memory"], "")]
            return [ScoreRequest(prompt, privileged["question"]) for prompt in prompts]
        prompts = [privileged["prompt_with_memory"], privileged["prompt_without_memory"]]
        return target_requests(prompts, privileged, self.target)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """r_gain at the last turn, 0.0 before; NaN where the target is empty."""
        if not scores:
            return 0.0
        with_memory, without = mean_logprobs(scores)
        return with_memory - without

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        gains = [(signals or [np.nan])[-1] for signals in self.signals_of(episodes)]
        if len(episodes) == 1:
            bonus = [self._alone(gains[0], episodes[0].success)]
        else:
            right = [episode.success for episode in episodes]
            bonus = infomem_bonus(gains, right, side=self.side, normalize=self.normalize).tolist()
        return [
            [Credit(len(episode.turns) - 1, self.beta * value)]
            for episode, value in zip(episodes, bonus, strict=True)
        ]

    def _alone(self, gain: float, success: bool) -> float:
        side = "success" if success else "wrong"
        if self.side not in ("both", side):
            return 0.0
        earlier = self._earlier[side]
        earlier.add([gain])
        raw = not self.normalize or earlier.count == 1
        return gain if raw else earlier.normalize(gain, ddof=0)
