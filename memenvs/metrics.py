r"""A model's text and the accepted answers come in, a score in [0, 1] goes out.

Each metric follows one paper's evaluation to the digit, oddities included, so that numbers compare.
No text makes one raise, and all take time linear in it. An empty list of answers scores 0.0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from memenvs.math_strings import boxed_content, last_boxed, light_strip, math_equal, strip_boxed

Metric = Callable[[str, Sequence[str]], float]

ANSWER_FORMATS = ("boxed", "tag")
BOXED_WINDOW = 300  # characters at the end of a reply in which MemAgent looks for the box

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PUNCTUATION_TO_SPACE = str.maketrans(string.punctuation, " " * len(string.punctuation))
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_ASSISTANT = "<|im_start|>assistant"
_VERDICTS = frozenset({"yes", "no", "noanswer"})


class Overlap(NamedTuple):
    """How far a prediction meets one gold answer, each in [0, 1]."""

    em: float
    f1: float
    precision: float
    recall: float


class Objectives(NamedTuple):
    """Sums over n objectives, each in [0, n]; `balanced`: every `<answer>` has a `</answer>` behind it."""

    em: float
    f1: float
    balanced: bool


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces, in that order.

    Hence "A.I." is "ai" and "The-Matrix" is "thematrix". Source: HotpotQA's evaluation (SQuAD's before it).
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def answer_overlap(prediction: str, answer: str) -> Overlap:
    """Exact match and bag-of-words overlap after normalisation; two empty texts: em 1, f1 0.

    Where either is yes, no or noanswer and they differ, nothing counts. Source: HotpotQA's evaluation.
    """
    predicted, wanted = normalize_answer(prediction), normalize_answer(answer)
    if predicted != wanted and not _VERDICTS.isdisjoint((predicted, wanted)):
        return Overlap(0.0, 0.0, 0.0, 0.0)
    return Overlap(float(predicted == wanted), *_word_overlap(predicted, wanted))


def em(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction is an accepted answer. Source: HotpotQA, Search-R1."""
    predicted = normalize_answer(prediction)
    return float(any(predicted == normalize_answer(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Word F1 with the best accepted answer, under HotpotQA's yes/no rule (see `answer_overlap`)."""
    return max((answer_overlap(prediction, answer).f1 for answer in answers), default=0.0)


def longbench_f1(prediction: str, answers: Sequence[str]) -> float:
    """Word F1 with the best accepted answer, without the yes/no rule. Source: LongBench's qa_f1_score."""
    predicted = normalize_answer(prediction)
    return max((_word_overlap(predicted, normalize_answer(answer))[0] for answer in answers), default=0.0)


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction contains an accepted answer, inside a word too.

    An answer that normalises to nothing ("the") is in every text. Source: Search-R1's subem_check.
    """
    predicted = normalize_answer(prediction)
    return float(any(normalize_answer(answer) in predicted for answer in answers))


def boxed_em(reply: str, answers: Sequence[str]) -> float:
    """1.0 if the last box in the final 300 characters holds an accepted answer, case and spaces aside.

    Source: MemAgent's training reward, which InfoMem and TAMTRL keep.
    """
    boxed = last_boxed(reply[-BOXED_WINDOW:].lower())
    content = None if boxed is None else strip_boxed(boxed)
    if content is None:
        return 0.0
    predicted = light_strip(content)
    return float(any(predicted == light_strip(answer.lower()) for answer in answers))


def math_em(reply: str, answers: Sequence[str]) -> float:
    """1.0 if the last box of the reply equals an accepted answer as mathematics, case kept.

    Source: MATH (Hendrycks et al., 2021), as in verl.
    """
    boxed = last_boxed(reply)
    content = None if boxed is None else strip_boxed(boxed)
    return float(content is not None and any(math_equal(content, answer) for answer in answers))


def string_match_all(reply: str, answers: Sequence[str]) -> float:
    """The share of the answers that the reply contains, lower-cased, nothing else normalised.

    Source: RULER's needle tasks (a fraction here, percent there); MemAgent calls it sub_em.
    """
    text = reply.lower()
    return sum(answer.lower() in text for answer in answers) / len(answers) if answers else 0.0


def string_match_part(reply: str, answers: Sequence[str]) -> float:
    """1.0 if the reply contains any of the answers, lower-cased. Source: RULER's question answering."""
    text = reply.lower()
    return float(any(answer.lower() in text for answer in answers))


def supporting_facts(prediction: Iterable[Sequence[object]], gold: Iterable[Sequence[object]]) -> Overlap:
    """Overlap of two sets of (title, sentence number); two empty sets: em 1, the rest 0. Source: HotpotQA."""
    predicted, wanted = {tuple(fact) for fact in prediction}, {tuple(fact) for fact in gold}
    return Overlap(
        float(predicted == wanted), *_f1_parts(len(predicted & wanted), len(predicted), len(wanted))
    )


def multi_objective(reply_or_answer: str, ground_truths: Sequence[Sequence[str]]) -> Objectives:
    """EM and F1 summed over the objectives, each with its own accepted answers, in order.

    A text with an `<answer>` tag in any case, or a chat marker, is a reply: the last tag pair of its last
    assistant turn counts, nothing if a tag is left open. A pair reaches from an opening tag to the next
    closing one, over openings between them, as the original's does. Any other text is the answer itself. It
    is split on ";"; another number of parts than of objectives scores 0. Punctuation becomes a space,
    articles stay, F1 is on sets of words. Source: MEM1's evaluation.
    """
    text = reply_or_answer.lower()
    turn = text.rpartition(_ASSISTANT)[2]
    opened, closed = turn.count("<answer>"), turn.count("</answer>")
    answer, balanced = _last_pair(turn)
    balanced &= opened == closed
    if not balanced or (answer is None and turn != text):
        return Objectives(0.0, 0.0, balanced)
    parts = (turn if answer is None else answer).split(";")
    if len(parts) != len(ground_truths):
        return Objectives(0.0, 0.0, balanced)
    pairs = [_objective(part, answers) for part, answers in zip(parts, ground_truths, strict=True)]
    return Objectives(sum((p[0] for p in pairs), 0.0), sum((p[1] for p in pairs), 0.0), balanced)


METRICS: dict[str, Metric] = {
    "em": em,
    "f1": f1,
    "sub_em": sub_em,
    "boxed_em": boxed_em,
    "math_em": math_em,
    "string_match_all": string_match_all,
    "string_match_part": string_match_part,
}
BOX_METRICS = frozenset({"boxed_em", "math_em"})  # look for a box themselves
# These read the whole reply; the others read what `extract_answer` took from it.
REPLY_METRICS = BOX_METRICS | frozenset({"string_match_all", "string_match_part"})


def get_metric(name: str) -> Metric:
    """The metric of that name; ValueError with the choices if there is none."""
    if not isinstance(name, str) or name not in METRICS:
        raise ValueError(f"no metric {name!r}; choose one of {', '.join(METRICS)}")
    return METRICS[name]


def extract_answer(reply: str, answer_format: str) -> str | None:
    r"""The reply's last complete answer, case kept, ends stripped; None if it has none, "" if it is empty.

    Args:
        reply: what the policy wrote, nothing it read.
        answer_format: "boxed" for `\boxed{...}` with balanced braces, "tag" for `<answer>...</answer>`.
    """
    _check_format(answer_format)
    content = boxed_content(reply) if answer_format == "boxed" else _tag_content(reply)
    return None if content is None else content.strip()


def wrap_answer(answer: str, answer_format: str) -> str:
    """The inverse of `extract_answer`, for answers with balanced braces and no answer tag of their own."""
    _check_format(answer_format)
    return f"\\boxed{{{answer}}}" if answer_format == "boxed" else f"<answer>{answer}</answer>"


def _check_format(answer_format: str) -> None:
    if answer_format not in ANSWER_FORMATS:
        raise ValueError(f"no answer format {answer_format!r}; choose one of {', '.join(ANSWER_FORMATS)}")


def _tag_content(text: str) -> str | None:
    """The content of the last pair; of several openings before one closing tag the nearest counts."""
    content, begin = None, 0
    while (end := text.find("</answer>", begin)) >= 0:
        opening = text.rfind("<answer>", begin, end)
        if opening >= 0:
            content = text[opening + len("<answer>") : end]
        begin = end + len("</answer>")
    return content


def _last_pair(text: str) -> tuple[str | None, bool]:
    """What stands between an opening tag and the next closing one, the last time; whether each has one."""
    content, end = None, 0
    while (start := text.find("<answer>", end)) >= 0:
        end = text.find("</answer>", start)
        if end < 0:
            return content, False
        content = text[start + len("<answer>") : end]
    return content, True


def _word_overlap(predicted: str, wanted: str) -> tuple[float, float, float]:
    """F1, precision and recall of two bags of words."""
    ours, theirs = Counter(predicted.split()), Counter(wanted.split())
    return _f1_parts(*(sum(bag.values()) for bag in (ours & theirs, ours, theirs)))


def _f1_parts(common: int, predicted: int, wanted: int) -> tuple[float, float, float]:
    """F1, precision and recall from counts; all 0 where nothing is common."""
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / predicted, common / wanted
    return 2 * precision * recall / (precision + recall), precision, recall


def _objective(prediction: str, answers: Sequence[str]) -> tuple[float, float]:
    """MEM1's EM and set F1 of one objective, each with the accepted answer that suits it best."""
    words = _plain_words(prediction)
    accepted = [_plain_words(answer) for answer in answers]
    best = max(
        (_f1_parts(len({*words} & {*gold}), len({*words}), len({*gold}))[0] for gold in accepted), default=0.0
    )
    return float(words in accepted), best


def _plain_words(text: str) -> list[str]:
    return text.lower().translate(_PUNCTUATION_TO_SPACE).split()
