"""Metrics of answers (exact match, F1, string matches, boxed mathematics), and replies graded by them.

Each metric follows one paper's evaluation to the digit, oddities included ("outfraction" loses a letter), so
that numbers compare. No text makes one raise, and all but `mrcr_ratio` take time linear in it. An empty list
of answers scores 0.0. An answer of articles and punctuation alone ("A+", "The The") normalises to nothing, so
that an empty reply would equal it: where replies are graded, it is compared as it is written (`score`).

Two spellings of mathematics are in use: MemAgent's training reward undoes typesetting only (`light_strip`),
the MATH benchmark of Hendrycks et al. (2021) also rewrites units, roots and fractions (`full_strip`).
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import regex

from memenvs.core.errors import unknown_name
from memenvs.core.words import UNSPACED, fold_digits

BOXED = "\\boxed"

_BRACES = re.compile(r"[{}]")
_BOX_OR_BRACE = re.compile(r"\\boxed\{|[{}]")
_INTEGER_FRACTION = re.compile(r"(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)")

# Order counts in both tables: an earlier line may make or break the text of a later one.
_TYPESETTING = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
_NUMBERS = (("\\%", ""), (" .", " 0."), ("{.", "{0."))  # a bare "%" stays, as in the originals


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` of a text, or None if that does not close.

    `\boxed x` wins over any braced box and runs to the next `$`. An unclosed last box hides the earlier ones.
    Source: MATH (Hendrycks et al., 2021), as in verl.
    """
    if BOXED + " " in text:
        return text.rpartition(BOXED + " ")[2].partition("$")[0]
    _, command, argument = text.rpartition(BOXED)
    if not command or not argument.startswith("{"):
        return None
    depth = 0
    for brace in _BRACES.finditer(argument):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return argument[1 : brace.start()]
    return None


def boxed_content(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` whose braces balance; an unclosed one does not hide it.

    Of nested boxes the inner one counts, as it opens last. Escaped braces count as braces.
    """
    open_at: list[int] = []  # where each open brace's content begins; -1: not a box
    last, end = -1, None
    for token in _BOX_OR_BRACE.finditer(text):
        if token[0] != "}":
            open_at.append(token.end() if token[0] != "{" else -1)
        elif open_at and (begin := open_at.pop()) > last:
            last, end = begin, token.start()
    return None if end is None else text[last:end]


def light_strip(text: str) -> str:
    """Typesetting, dollar and percent commands and spaces gone; fractions, roots and units untouched.

    Source: MemAgent's reward for HotpotQA.
    """
    return _replace(_replace(text, _TYPESETTING), _NUMBERS).replace(" ", "")


def full_strip(text: str) -> str | None:
    r"""One spelling for equal MATH answers: no unit, no short left side ("k = "), braced roots and fractions.

    None where the original raises: two units, or a `\sqrt` or `\frac` with nothing after it.
    Source: MATH (Hendrycks et al., 2021), as in verl.
    """
    value, *units = _replace(text, _TYPESETTING).split("\\text{ ")
    if len(units) > 1:
        return None
    value = _replace(value, _NUMBERS)
    if value.startswith("."):
        value = "0" + value
    left, *right = value.split("=")
    if len(right) == 1 and len(left) <= 2:
        value = right[0]
    rooted = _brace_roots(value)
    braced = None if rooted is None else _brace_fractions(rooted.replace(" ", ""))
    if braced == "0.5":
        return "\\frac{1}{2}"
    if braced is not None and (fraction := _INTEGER_FRACTION.fullmatch(braced)):
        return f"\\frac{{{fraction[1]}}}{{{fraction[2]}}}"
    return braced


def math_equal(first: str, second: str) -> bool:
    """Equal in the full spelling; to the character where one of them has none."""
    spellings = full_strip(first), full_strip(second)
    return first == second if None in spellings else spellings[0] == spellings[1]


def _replace(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for old, new in table:
        text = text.replace(old, new)
    return text


def _brace_roots(text: str) -> str | None:
    r"""`\sqrt3` as `\sqrt{3}`: one character is the argument, a space too. None if a root has none."""
    if re.search(r"\\sqrt(?:\\sqrt|\Z)", text):
        return None
    return re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", text, flags=re.DOTALL)


def _brace_fractions(text: str) -> str | None:
    r"""`\frac12` and `\frac1{2}` as `\frac{1}{2}`; the text as it was if a numerator is alone.

    None if a fraction has nothing after it.
    """
    if short := re.search(r"\\frac([^{]?)(?=\\frac|\Z)", text, re.DOTALL):
        return text if short[1] else None
    text = re.sub(r"\\frac([^{])(?=\{)", r"\\frac{\1}", text, flags=re.DOTALL)
    return re.sub(r"\\frac([^{])([^{])", r"\\frac{\1}{\2}", text, flags=re.DOTALL)


_TYPESET = re.compile(
    r"(?P<command>\\(?:text(?:bf|it|rm|sf|sl|sc|tt|md|up|normal)?|math(?:rm|bf|it|sf|tt|normal)|[mh]box|emph"
    r"|underline|operatorname\*?|boldsymbol|bm)\s*\{)|\\?[{}]|~|\\(?:[ ,;:!\\]|q?quad\b)"
    r"|\\(?:bf|it|rm|sf|tt|em|bfseries|itshape|displaystyle|textstyle|large|Large)(?![A-Za-z])"
)

_TEX_THOUSANDS = re.compile(r"(?<=\d)\\,(?=\d{3}(?!\d))")

Metric = Callable[[str, Sequence[str]], float]

BOXED_WINDOW = 300  # characters at the end of a reply in which MemAgent looks for the box

LOCOMO_ABSENT = ("no information available", "not mentioned")
"""The answers of a question of LoCoMo about what was never said."""
MRCR_PREFIX = 10  # characters of the random string that an answer of MRCR begins with

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PUNCTUATION_TO_SPACE = str.maketrans(string.punctuation, " " * len(string.punctuation))
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_ARTICLE_OR_AND = re.compile(r"\b(?:a|an|the|and)\b")
_ASSISTANT = "<|im_start|>assistant"
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_THOUSANDS = re.compile(r"(?<=\d)[,._'’\u2009\u202f](?=\d{3}(?!\d))")
_AROUND = " .,;:!?()[]{}\"'`“”‘’"  # what replies put around an answer, which is no part of it
_EMPHASIS = re.compile(r"^([*_]+)(.+)\1$")
_VERDICTS = frozenset({"yes", "no", "noanswer"})


class Objectives(NamedTuple):
    """Sums over n objectives, each in [0, n]; `balanced`: every `<answer>` has a `</answer>` after it."""

    em: float
    f1: float
    balanced: bool


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces, in that order.

    Hence "A.I." is "ai" and "The-Matrix" is "thematrix". Source: HotpotQA's evaluation (SQuAD's before it).
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def as_written(text: str) -> str:
    """Lower case and single spaces, without the punctuation that replies put around an answer.

    >>> as_written("(A)."), as_written("**A**"), as_written("A*")
    ('a', 'a', 'a*')
    """
    spaced = " ".join(text.lower().split())
    bare = spaced.strip(_AROUND)
    return _EMPHASIS.sub(r"\2", bare) or spaced


def contains(text: str, answer: str) -> bool:
    """Whether a text contains an answer as it is written, not inside a word."""
    sought = as_written(answer)
    if not sought:
        return False
    before, after = (r"(?<!\w)" if sought[0].isalnum() else "", r"(?!\w)" if sought[-1].isalnum() else "")
    return re.search(before + re.escape(sought) + after, " ".join(text.lower().split())) is not None


def em(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction is an accepted answer. Source: HotpotQA, Search-R1."""
    predicted = normalize_answer(prediction)
    return float(any(predicted == normalize_answer(answer) for answer in answers))


def unicode_em(prediction: str, answers: Sequence[str]) -> float:
    """`em` in any language: full-width forms, quotes, dashes and stops of all of Unicode count as their like.

    Texts are compared in NFKC, without case and with one kind of digits; punctuation that Unicode marks as
    such is deleted as `em` deletes that of ASCII, and so are soft hyphens, joiners, and blanks in scripts
    that need none. Accents count.

    >>> unicode_em("“李安娜”。", ["李安娜"]), unicode_em("1933–1940", ["1933-1940"])
    (1.0, 1.0)
    """
    return em(_unicode_form(prediction), [_unicode_form(answer) for answer in answers])


_NOT_ASCII_PUNCTUATION = regex.compile(r"(?V1)[\p{P}\p{Sk}\p{Cf}--\p{ASCII}]+")
_BLANKS_INSIDE = regex.compile(rf"(?<=[{UNSPACED}])\s+(?=[{UNSPACED}])")


def _unicode_form(text: str) -> str:
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", _NOT_ASCII_PUNCTUATION.sub("", text)).casefold()
    return _BLANKS_INSIDE.sub("", fold_digits(unicodedata.normalize("NFC", folded))) or text


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Word F1 with the best accepted answer after normalisation.

    Where either is yes, no or noanswer and they differ, it is 0; so it is for two empty texts. Source:
    HotpotQA's evaluation.
    """
    predicted = normalize_answer(prediction)
    wanted = map(normalize_answer, answers)
    comparable = [
        answer for answer in wanted if answer == predicted or _VERDICTS.isdisjoint((predicted, answer))
    ]
    return max((_word_f1(predicted, answer) for answer in comparable), default=0.0)


def longbench_f1(prediction: str, answers: Sequence[str]) -> float:
    """Word F1 with the best accepted answer, without the yes/no rule. Source: LongBench's qa_f1_score."""
    predicted = normalize_answer(prediction)
    return max((_word_f1(predicted, normalize_answer(answer)) for answer in answers), default=0.0)


def set_f1(prediction: str, answers: Sequence[str]) -> float:
    """F1 of sets of words with the best accepted answer: punctuation becomes a space, articles stay.

    Source: DeepResearcher's reward; MEM1's evaluation of one objective.
    """
    return _objective(prediction, answers)[1]


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction contains an accepted answer, inside a word too.

    An answer that normalises to nothing ("the") is in every text. Source: Search-R1's subem_check.
    """
    predicted = normalize_answer(prediction)
    return float(any(normalize_answer(answer) in predicted for answer in answers))


def memagent_sub_em(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction contains the first answer, or is contained in it.

    Source: MemAgent's evaluation (its sub_em), which reads the first answer alone. A prediction that
    normalises to nothing ("the") is in every answer: it scores 0.0 here, there 1.0.
    """
    predicted = normalize_answer(prediction)
    if not predicted or not answers:
        return 0.0
    wanted = normalize_answer(answers[0])
    return float(wanted in predicted or predicted in wanted)


def boxed_em(reply: str, answers: Sequence[str]) -> float:
    """1.0 if the last box in the final 300 characters holds an accepted answer, case and spaces aside.

    Source: MemAgent's training reward, which InfoMem and TAMTRL keep.
    """
    content = last_boxed(reply[-BOXED_WINDOW:].lower())
    if content is None:
        return 0.0
    predicted = light_strip(content)
    return float(any(predicted == light_strip(answer.lower()) for answer in answers))


def math_em(reply: str, answers: Sequence[str]) -> float:
    """1.0 if the last box of the reply equals an accepted answer as mathematics, case kept.

    Source: MATH (Hendrycks et al., 2021), as in verl.
    """
    content = last_boxed(reply)
    return float(content is not None and any(math_equal(content, answer) for answer in answers))


def string_match_all(reply: str, answers: Sequence[str]) -> float:
    """The share of the answers that the reply contains, lower-cased, nothing else normalised.

    Source: RULER's needle tasks (a fraction here, percent there); MemAgent calls it sub_em.
    """
    text = reply.lower()
    return sum(answer.lower() in text for answer in answers) / len(answers) if answers else 0.0


def needle_exact(prediction: str, answers: Sequence[str]) -> float:
    """(needles found - wrong words) / needles, at least 0.0: `string_match_all` that pays no list of guesses.

    A needle is found in whole words, ignoring case; a hyphen joins words, so a uuid is one. A word is wrong
    if it is in no needle but looks like a word of one: it has the same length, and both or neither hold a
    digit. Each counts once. Marks between thousands and underscores around words do not count. Ours, for
    RULER's numbers, uuids and variables.

    >>> needle_exact("1111111, _2222222_ and 3,333,333", ["1111111", "2222222"])
    0.5
    """
    words = _needle_words(prediction)
    needles = {" ".join(_needle_words(answer)) for answer in answers} - {""}
    needed = {word for needle in needles for word in needle.split()}
    kinds = set(map(_kind, needed))
    wrong = sum(_kind(word) in kinds for word in set(words) - needed)
    contained = sum(f" {needle} " in f" {' '.join(words)} " for needle in needles)
    return max(0, contained - wrong) / len(needles) if needles else 0.0


def _needle_words(text: str) -> list[str]:
    return _WORD.findall(_THOUSANDS.sub("", unicodedata.normalize("NFKC", text).lower()))


def _kind(word: str) -> tuple[int, bool]:
    return len(word), any(map(str.isdigit, word))


def string_match_part(reply: str, answers: Sequence[str]) -> float:
    """1.0 if the reply contains any of the answers, lower-cased. Source: RULER's question answering."""
    text = reply.lower()
    return float(any(answer.lower() in text for answer in answers))


def locomo_f1(prediction: str, answers: Sequence[str]) -> float:
    """Word F1 of stems with one answer; of several the mean, each with the part that suits it best.

    Stems are Porter's by NLTK, "and" is dropped like an article. Several answers are parts that are all asked
    for, in a prediction of parts between commas (category 1; a part given twice is one alone). Where the
    answers are `LOCOMO_ABSENT` (category 5) the prediction must contain one of them. Source: LoCoMo's
    evaluation.
    """
    if tuple(answers) == LOCOMO_ABSENT:
        return float(any(answer in prediction.lower() for answer in answers))
    parts = [prediction] if len(answers) == 1 else prediction.split(",")
    bags = [Counter(_stems(part)) for part in dict.fromkeys(parts)]
    wanted = [Counter(_stems(answer)) for answer in answers]
    scores = [max(_bag_f1(bag, answer) for bag in bags) for answer in wanted]
    return sum(scores) / len(scores) if scores else 0.0


def _stems(text: str) -> list[str]:
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    words = _ARTICLE_OR_AND.sub(" ", bare).split() or as_written(text).split()
    return list(map(_porter(), words))


@functools.cache
def _porter() -> Any:
    from nltk.stem.porter import PorterStemmer  # slow, and one metric needs it

    # With NLTK's extensions, as LoCoMo's evaluation has it; a long reply repeats most of its words.
    return functools.lru_cache(2**16)(PorterStemmer().stem)


def mrcr_ratio(prediction: str, answers: Sequence[str]) -> float:
    """How similar the prediction and the answer are after the random string that both must begin with.

    The string is the answer's first 10 characters; a prediction that does not begin with it scores 0.0. The
    rest scores the ratio of `difflib.SequenceMatcher`, which takes quadratic time in the worst case.
    Source: OpenAI's MRCR.
    """
    ratios = (
        SequenceMatcher(None, prediction[MRCR_PREFIX:], answer[MRCR_PREFIX:]).ratio()
        for answer in answers
        if prediction.startswith(answer[:MRCR_PREFIX])
    )
    return max(ratios, default=0.0)


def rouge_l(prediction: str, answers: Sequence[str]) -> float:
    """ROUGE-L: F of the longest common subsequence of words, recall weighted by 1.2 squared.

    Precision and recall are each the best of all answers. Source: COCO's evaluation of captions, which is
    NarrativeQA's too; words are split at punctuation.
    """
    predicted, beta = _plain_words(prediction), 1.2
    wanted = [words for words in map(_plain_words, answers) if words]
    common = [_common_length(predicted, words) for words in wanted]
    if not any(common):
        return 0.0
    precision = max(common) / len(predicted)
    recall = max(length / len(words) for length, words in zip(common, wanted, strict=True))
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, by the bits of a row (Hyyrö, 2004)."""
    if len(first) > len(second):  # the time grows with the square of the first, a bit for each of its words
        first, second = second, first
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    row = whole = (1 << len(first)) - 1
    for word in second:
        matches = row & places.get(word, 0)
        row = (row + matches | row - matches) & whole
    return len(first) - row.bit_count()


def choice(prediction: str, answers: Sequence[str]) -> float:
    """1.0 for the letter of the right choice, or for its text.

    The letter is that of "The correct answer is (B)", otherwise the last of A to D that stands alone.
    Sources: LongBench v2, InfiniteBench.
    """
    text = prediction.replace("*", "")
    letters = re.findall(r"The correct answer is \(?([A-D])", text)[:1] or re.findall(r"\b[A-D]\b", text)
    return float(letters[-1] in answers if letters else prediction.strip() in answers)


def first_number(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the first number, or all of it, is an accepted answer. Source: InfiniteBench."""
    number = re.search(r"\d+\.\d+|\d+", prediction)
    return float((number[0] if number else prediction) in answers)


_BABILONG = """bathroom bedroom garden hallway kitchen office
bill fred jeff mary apple football milk
apple football milk nothing
none one three two
maybe no yes
bedroom cinema kitchen office park school
cat mouse sheep wolf
gray green white yellow
e,e e,n e,s n,e n,n n,w s,e s,s s,w w,n w,s w,w
bedroom bored garden hungry kitchen thirsty tired"""


def babilong(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the first sentence has the target, or all of its parts, and no other label of its tasks.

    Labels are whole words, while BABILong's code finds "one" in "none"; one that the question names counts,
    too. Source: BABILong's compare_answers.
    """
    tasks = [set(line.split()) for line in _BABILONG.splitlines()]
    words = set(re.findall(r"[\w,]*\w", prediction.lower().partition(".")[0].replace(", ", " ")))
    for answer in map(str.lower, answers):
        wanted = set(answer.split(",")) if len(answer) > 3 else {answer}
        labels = wanted.union(*(task for task in tasks if wanted <= task))
        if prediction.lower() == answer or words & labels == wanted:
            return 1.0
    return 0.0


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
    "unicode_em": unicode_em,
    "longbench_f1": longbench_f1,
    "locomo_f1": locomo_f1,
    "set_f1": set_f1,
    "sub_em": sub_em,
    "memagent_sub_em": memagent_sub_em,
    "boxed_em": boxed_em,
    "math_em": math_em,
    "mrcr_ratio": mrcr_ratio,
    "string_match_all": string_match_all,
    "needle_exact": needle_exact,
    "string_match_part": string_match_part,
    "rouge_l": rouge_l,
    "choice": choice,
    "first_number": first_number,
    "babilong": babilong,
}
BOX_METRICS = frozenset({"boxed_em", "math_em"})  # look for a box themselves
ALL_ANSWERS = frozenset({"string_match_all", "needle_exact"})  # want every answer
# These read the whole reply; the others read what `extract_answer` took from it.
REPLY_METRICS = BOX_METRICS | frozenset({"string_match_all", "string_match_part"})


def get_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in METRICS:
        raise ValueError(unknown_name("no metric", name, METRICS))
    return METRICS[name]


def extract_answer(reply: str, answer_format: str) -> str | None:
    r"""The reply's last complete answer, case kept, ends stripped; None if it has none, "" if it is empty.

    Args:
        reply: what the policy wrote, nothing it read.
        answer_format: "boxed" for `\boxed{...}` with balanced braces, "tag" for `<answer>...</answer>`.
    """
    content = boxed_content(reply) if answer_format == "boxed" else _tag_content(reply)
    return None if content is None else content.strip()


def without_typesetting(text: str) -> str:
    r"""LaTeX without the commands that set text and space, for metrics that compare words.

    >>> without_typesetting(r"\textbf{\text{Ann}~Lee},\ \mathrm{1933}")
    'Ann Lee, 1933'
    """
    parts, end = list[str](), 0
    inside = list[bool]()  # of each open brace, whether it opens a command that goes
    text = _TEX_THOUSANDS.sub("", text)
    for token in _TYPESET.finditer(text):
        kept, what = "", token[0]
        if token["command"] is not None:
            inside.append(True)
        elif what == "{":
            inside.append(False)
            kept = what
        elif what == "}":
            kept = "" if inside and inside.pop() else what
        elif what in (r"\{", r"\}"):
            kept = what
        elif what != r"\!":
            kept = " "
        parts += text[end : token.start()], kept
        end = token.end()
    return "".join((*parts, text[end:])).strip()


def wrap_answer(answer: str, answer_format: str) -> str:
    """The inverse of `extract_answer`, for answers with balanced braces and no answer tag of their own."""
    return f"\\boxed{{{answer}}}" if answer_format == "boxed" else f"<answer>{answer}</answer>"


def answer_opening(answer: str, wrapped: str) -> str:
    """What comes before an answer in its required form; nothing if it is not in there.

    In a form of your own the answer is where it first is a word of its own.

    >>> answer_opening("a", "<answer>a</answer>"), answer_opening("A", "Answer: A"), answer_opening("a", "a")
    ('<answer>', 'Answer: ', '')
    """
    marks = re.match(r"<answer>(\\boxed\{)?|\\boxed\{", wrapped)
    if marks and wrapped.startswith(answer, marks.end()):
        return marks[0]
    sought = re.escape(answer)
    place = re.search(rf"(?<!\w){sought}(?!\w)", wrapped) or re.search(sought, wrapped)
    return wrapped[: place.start()] if place else ""


def score(metric: str, prediction: str, answers: Sequence[str]) -> float:
    """A metric's score of an answer without its reply; answers that normalise to nothing count as written.

    >>> score("em", "(A)", ["A"]), score("em", "A", ["A+"]), score("em", "", ["The The"])
    (1.0, 0.0, 0.0)
    """
    as_is = [answer for answer in answers if metric in _WRITTEN and not normalize_answer(answer)]
    if not as_is:
        return get_metric(metric)(prediction, answers)
    others = [answer for answer in answers if answer not in as_is]
    scores = [_WRITTEN[metric](prediction, answer) for answer in as_is]
    if others:
        scores.append(METRICS[metric](prediction, others))
    return float(max(scores))


def _equals(prediction: str, answer: str) -> bool:
    return as_written(prediction) == as_written(answer) != ""


_WRITTEN: dict[str, Callable[[str, str], float]] = {
    **dict.fromkeys(("em", "unicode_em"), _equals),
    **dict.fromkeys(("f1", "longbench_f1", "set_f1"), lambda *texts: _word_f1(*map(as_written, texts))),
    **dict.fromkeys(("sub_em", "memagent_sub_em"), contains),
}
"""How an answer that normalises to nothing is compared by the metrics that normalise."""

Answers = Sequence[Sequence[str]]
"""For each objective, its accepted answers."""


class Grade(NamedTuple):
    """Scores in [0, 1]; of several objectives, their mean.

    Attributes:
        outcome: by the chosen metric.
        em: exact match of the extracted answer.
        f1: word F1 of the extracted answer.
        sub_em: whether the extracted answer contains an accepted one.
        format: 1.0 where an answer could be extracted.
    """

    outcome: float
    em: float
    f1: float
    sub_em: float
    format: float


def grade(reply: str, answers: Answers, *, metric: str = "em", answer_format: str = "boxed") -> Grade:
    r"""Grade a final reply; LaTeX that only sets text, as `\text{…}`, is undone in a box.

    Several objectives are answered in one place, separated by ";" and matched by position; another number of
    parts scores 0 (MEM1's rule). Metrics that look for a box get each part in a box of its own. A reply
    without an answer in the format scores 0 on all but the metrics that read the whole reply.

    >>> grade("It is \\boxed{The Thames}.", [["Thames", "River Thames"]])
    Grade(outcome=1.0, em=1.0, f1=1.0, sub_em=1.0, format=1.0)
    """
    answer = extract_answer(reply, answer_format)
    plain = answer if answer is None or answer_format != "boxed" else without_typesetting(answer)
    graded = grade_answer(plain, answers, metric=metric)
    if metric in BOX_METRICS and len(answers) > 1:  # which have rules of their own for what is in a box
        return graded._replace(outcome=_mean(metric, answer, answers))
    if metric in REPLY_METRICS:
        outcome = sum(get_metric(metric)(reply, accepted) for accepted in answers) / len(answers)
        return graded._replace(outcome=outcome)
    return graded


def grade_answer(prediction: str | None, answers: Answers, *, metric: str = "em") -> Grade:
    """Grade an answer without its reply, or None for none given; see `grade` for several objectives.

    Metrics that read a whole reply read the answer; those that look for a box get it in one.
    """
    scores = {name: _mean(name, prediction, answers) for name in ("em", "f1", "sub_em")}
    outcome = _mean(metric, prediction, answers)
    return Grade(outcome, scores["em"], scores["f1"], scores["sub_em"], float(prediction is not None))


def check_scoring(metric: str, answer_format: str) -> None:
    """Raise a one-line `ValueError` for an unknown metric, or one that cannot score this answer format."""
    get_metric(metric)
    if metric in BOX_METRICS and answer_format != "boxed":
        raise ValueError(
            f"metric {metric!r} reads a box, answer_format {answer_format!r} asks for none; "
            "use answer_format='boxed', or metric='em'"
        )


def answer_form(answer_format: str, objectives: int = 1) -> str:
    r"""How a prompt says that the answer must be given.

    >>> print(answer_form("boxed"))
    \boxed{…}
    >>> print(answer_form("boxed", 3))
    \boxed{…; …; …}: 3 answers in the order of the questions, separated by ";"
    """
    form = wrap_answer("; ".join("…" * objectives), answer_format)
    if objectives == 1:
        return form
    return f'{form}: {objectives} answers in the order of the questions, separated by ";"'


def gold_answer(answers: Answers, metric: str) -> str:
    """The text that scores 1.0: the preferred answers, or all where the metric wants every one contained."""
    if metric in ALL_ANSWERS:
        return "; ".join(", ".join(accepted) for accepted in answers)
    if metric == "locomo_f1":
        return "; ".join(
            accepted[0] if tuple(accepted) == LOCOMO_ABSENT else ", ".join(dict.fromkeys(accepted))
            for accepted in answers
        )
    return "; ".join(accepted[0] for accepted in answers)


def _mean(metric: str, prediction: str | None, answers: Answers) -> float:
    if prediction is None:
        return 0.0
    parts = prediction.split(";") if len(answers) > 1 else [prediction]
    if len(parts) != len(answers):
        return 0.0
    texts = [part.strip() for part in parts]
    if metric in BOX_METRICS:
        texts = [wrap_answer(text, "boxed") for text in texts]
    scores = [score(metric, text, accepted) for text, accepted in zip(texts, answers, strict=True)]
    return sum(scores) / len(answers)


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
    """What is between an opening tag and the next closing one, the last time; whether each has one."""
    content, end = None, 0
    while (start := text.find("<answer>", end)) >= 0:
        end = text.find("</answer>", start)
        if end < 0:
            return content, False
        content = text[start + len("<answer>") : end]
    return content, True


def _word_f1(predicted: str, wanted: str) -> float:
    return _bag_f1(Counter(predicted.split()), Counter(wanted.split()))


def _bag_f1(ours: Counter[str], theirs: Counter[str]) -> float:
    """F1 of two bags of words; 0 where nothing is common."""
    common = (ours & theirs).total()
    if not common:
        return 0.0
    precision, recall = common / ours.total(), common / theirs.total()
    return 2 * precision * recall / (precision + recall)


def _objective(prediction: str, answers: Sequence[str]) -> tuple[float, float]:
    """MEM1's EM and set F1 of one objective, each with the accepted answer that suits it best."""
    words = _plain_words(prediction)
    accepted = [_plain_words(answer) for answer in answers]
    best = max((_bag_f1(Counter({*words}), Counter({*gold})) for gold in accepted), default=0.0)
    return float(words in accepted), best


def _plain_words(text: str) -> list[str]:
    return text.lower().translate(_PUNCTUATION_TO_SPACE).split()
