"""A judge model that scores the turns of an episode, or its outcome: requests, a cache, verdicts.

`RewardWrapper(env, [Judge(url="http://HOST:8000/v1", model="MODEL", rubric="general")])`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from memenvs.core.data import Count, NonNegative, checked, decode
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.episode import Credit, Episode, observation_text
from memenvs.core.errors import ServerError
from memenvs.core.files import json_sha256, write_text
from memenvs.core.progress import progress
from memenvs.core.servers import OpenAIClient, key_in
from memenvs.core.spaces import clean_text
from memenvs.core.text import Template, read_prompts, thought_end
from memenvs.models.endpoint import Watch, complete
from memenvs.tasks.metrics import boxed_content
from memenvs.wrappers.method import Outcome, Score, ScoreMethod

RUBRICS = Path(__file__).parent / "rubrics"
"""Prompts in our own words: `NAME_LEVEL.txt`, and those for special types of LongMemEval's questions."""

USER, SYSTEM = "user", "system"
"""The parts of a judge's prompt: the user's message and the system's."""
SPECIAL = ("temporal-reasoning", "knowledge-update", "single-session-preference", "abstention")
"""Parts with prompts for special types of LongMemEval's questions."""

LONGMEMEVAL = {
    **dict.fromkeys(("single-session-user", "single-session-assistant", "multi-session"), USER),
    **{name: name for name in SPECIAL if name != "abstention"},
}
"""By type of question the part whose prompt says what is right, as in LongMemEval's evaluation."""

PLACES = ("transcript", "first_prompt", "question", "answer", "reference", "turns")
MAX_CHARS = 8000
"""Characters shown of each text of the record, the middle left out."""

_MARKS = " \t\r\n*_`\"'>#•"
"""What may stand before a score: white space, Markdown, quotes."""

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_WORDS = {"yes": 1.0, "true": 1.0, "correct": 1.0, "no": 0.0, "false": 0.0, "incorrect": 0.0, "wrong": 0.0}
_ALONE = rf"(?:{'|'.join(_WORDS)})(?!\w|[ \t]+\w)"
_WORD = re.compile(rf"(?:^|(?<=[.!?,;:\n*(]))\s*({_ALONE})", re.IGNORECASE)
# a number that is not part of a fraction, a range, a sum or a choice such as "0 or 1"
_VALUE = rf"{_NUMBER}(?!\d|\.\d|\s*(?:[/%]|of\b|or\b|to\b|and\b|[-–+*=]\s*\d)|[^\n]*\bout of\b)|{_ALONE}"
_LABELLED = re.compile(
    rf"(?<![\w-])(?:(?:final|overall|total)[ _-]?)?(scores?|rating|grade|verdict)[{_MARKS}]*"
    rf"(?:[:=]|\bis\b)[{_MARKS}]*(\[[^\[\]]*\]|{_VALUE})",
    re.IGNORECASE,
)
_BREAK = re.compile(rf"\n|[,;|](?=[{_MARKS}-]*turn[\s\d])", re.IGNORECASE)
_LINE = re.compile(
    rf"(?:\d+[.)])?[{_MARKS}{{|-]*Turn\s*#?(\d+)(?:\s*score)?[{_MARKS}]*:[{_MARKS}]*"
    rf"({_NUMBER}(?![\d.\w])|{_ALONE})\D*",
    re.IGNORECASE,
)
# an object that has a name twice is none, so that two different scores are seen
_DECODER = json.JSONDecoder(
    object_pairs_hook=lambda pairs: dict(pairs) if len(dict(pairs)) == len(pairs) else None
)
_BUT = re.compile(r"\b(?:but|however|although|partly|partially|except|unless)\b", re.IGNORECASE)
_OTHER = re.compile("rating|grade|verdict", re.IGNORECASE)
_LIST = re.compile(r"\[([^\[\]]+)\]")
_TAGGED = re.compile(r"<(score|answer)>((?:(?!<\1>).)*?)(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_log = logging.getLogger(__name__)


@checked
@dataclass
class Judge(ScoreMethod):
    """Let a judge model score an episode, a number a turn or one for all (MT-PPO 5.3 and appendix D.2).

    The judge is asked when an episode has ended, once for all its turns; episodes that end together are asked
    about at once. The record it reads is JSON, so that nothing an agent writes can end it.

    The rubric `"search"` is that of appendix D.2, in our own words, for environments that search: the last
    turn gets -1, 0.2 or 1; an earlier one +0.1 or -0.2 for its form, +0.3 for what it found, -0.1 for each
    search so far; as an outcome 1 or 0. `"general"` asks of any task how far each turn moved it on, 0 to 1.
    `"longmemeval"` asks of the last reply alone whether it is right, 1 or 0, by the rule for its type of
    question, which is the first part of the task's id (`memenvs.build.readers.records`). `"equivalence"`
    asks whether the last reply means exactly the same as a right answer, 1 or 0 (InfoMem C.3).

    A verdict is read in any form in which it is clear (`read_verdict`), on the rubric's scale: `"search"`
    scores turns from -1 to 1 and an outcome 0 or 1. A thought that leads a verdict is dropped. A verdict
    without a score, with two different ones or with another number of them is NaN with the reason in its
    `Credit`, never 0, like a score off the scale and an unreachable endpoint. `failures` counts the reasons,
    the log warns of each once, and `info["metrics"]["judge_unscored"]` counts the credits. Where the outcome
    is replaced, a learner leaves out an episode whose last turn has no score.

    Args:
        url: address of an OpenAI-compatible endpoint, e.g. `http://localhost:8000/v1`; what may be secret in
            it is neither printed nor written to a file.
        model: the judge's name at the endpoint.
        level: `"turn"`, or `"outcome"`: one score, given to the last turn.
        rubric: `"search"`, `"general"`, or, of the outcome, `"longmemeval"` or `"equivalence"`.
        template: a prompt of your own in place of the rubric's: a file, its text, or `{"user": …, "system":
            …}` with either (docs/prompts.md). It has the placeholder `{transcript}` or `{answer}` (the last
            reply) and, if wanted, `{question}`, `{reference}` (the right answers), `{first_prompt}` (what the
            agent read first) and `{turns}` (their number). `system` is the text of a system message. With
            `rubric="longmemeval"` the parts `temporal-reasoning`, `knowledge-update`,
            `single-session-preference` and `abstention` are its special prompts.
        outcome: `"keep"` pays scores in addition to the environment's outcome; `"replace"` pays them instead,
            so that the last turn's score is the outcome reward (PPO-OR by a judge: `level="outcome"`);
            `"multiply"` pays each score times the outcome instead (TAMTRL's LLM-judge, appendix B.2).
        weight: weight of a score in the reward.
        concurrency: requests at a time.
        max_tokens: most tokens of a verdict.
        timeout: seconds to wait for one.
        tries: how often a request is sent.
        cache: a folder that keeps verdicts by the hash of what was asked.
        key_variable: the environment variable with the endpoint's key; None sends none. The key itself is
            never an argument, so that no spec or log holds it.
        chat_args: arguments of the endpoint's chat template, such as `{"enable_thinking": False}`.
        body: more fields of a request; None leaves a field out. Models that think unseen (gpt-5, o3) need
            `{"temperature": None, "max_tokens": None, "max_completion_tokens": 4096}`.
    """

    url: str = field(repr=False)
    model: str
    level: Literal["turn", "outcome"] = "turn"
    rubric: str = "search"
    template: str | dict[str, str] | None = None
    outcome: Outcome = "keep"
    weight: float = 1.0
    concurrency: Count = 8
    max_tokens: Count = 1024
    timeout: NonNegative = 120.0
    tries: Count = 4
    cache: str | None = None
    key_variable: str | None = None
    chat_args: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter, init=False, repr=False, compare=False)

    name = "judge"

    def __post_init__(self) -> None:
        end = f"_{self.level}.txt"
        known = sorted(path.name.removesuffix(end) for path in RUBRICS.glob(f"*{end}"))
        if self.rubric not in known:
            raise ValueError(
                f"rubric must be with level={self.level!r} one of {', '.join(known)}, got {self.rubric!r}; a "
                "prompt of your own is template=FILE"
            )
        parts = [USER, SYSTEM, *(SPECIAL if self.rubric == "longmemeval" else ())]
        texts = read_prompts(self.template, parts, [USER])
        self.template = texts or None  # so that the settings hold the texts
        self._system = Template("").reworded(texts[SYSTEM], SYSTEM).fill() if SYSTEM in texts else ""
        rubrics = {name: _rubric(f"longmemeval/{name}") for name in SPECIAL if name in parts}
        rubrics[USER] = text = _rubric(f"{self.rubric}_{self.level}")
        self._prompts = {name: Template(text, optional=PLACES, name=name) for name, text in rubrics.items()}
        for name in [name for name in texts if name != SYSTEM]:
            self._prompts[name] = Template("", optional=PLACES, name=name).reworded(texts[name], name)
            if not {"answer", "transcript"} & set(self._prompts[name].places):
                raise ValueError(
                    f"the {name!r} template has neither {{answer}} (the last reply) nor {{transcript}} (all "
                    "turns); add one"
                )
        of_turns = self.level == "turn"
        # the rubric's own scale; a prompt of a user's has that of the form in which it is answered
        self._low = None if USER in texts else -1.0 if of_turns and "<score>" in text else 0.0
        self._whole = self._low is not None and not of_turns and self.rubric != "general"
        self._watch = Watch(self._client(None).url)  # which refuses a wrong URL

    @property
    def needs(self) -> tuple[str, ...]:
        """What the record is made of; the rubric of a search needs an environment that searches."""
        of_searches = self.rubric == "search" and USER not in (self.template or {})
        return ("context", "feedback", *(("events/searches",) if of_searches else ()))

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        with ThreadPoolExecutor(self.concurrency) as pool:
            verdicts = list(progress(pool.map(self._judge, episodes), len(episodes), "judgements"))
        if all(reason for scores in verdicts for _, reason in scores):
            self._watch.end()
        for kind in (reason.partition(":")[0] for scores in verdicts for _, reason in scores if reason):
            if kind not in self.failures and "useless" not in self._watch.warned:
                failed = [scores for scores in verdicts if any(why.startswith(kind) for _, why in scores)]
                why = next(why for _, why in failed[0] if why)
                text = f"no score in {len(failed)} of {len(verdicts)} verdicts, such as: {why}"
                _log.warning("%s: the judge gave %s; change its template or its model", self._watch.url, text)
            self.failures[kind] += 1
        return [
            self.pay(episode, scores, 0 if self.level == "turn" else len(episode.turns) - 1)
            for episode, scores in zip(episodes, verdicts, strict=True)
        ]

    def ask(self, prompt: str, read: Callable[[str], list[Score]]) -> list[Score]:
        """The scores that `read` finds in the reply to a prompt, without the thought that leads the reply.

        A reply in the cache is taken from there; one whose scores have no reasons is kept in it.

        Raises:
            ServerError: no reply in `tries` tries, or a refusal.
        """
        messages = [{"role": "system", "content": self._system}] if self._system else []
        fields = {
            "model": self.model,
            "messages": [*messages, {"role": "user", "content": prompt}],
            "temperature": 0.0,
            "max_tokens": self.max_tokens,
            "chat_template_kwargs": self.chat_args or None,
            **self.body,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        place = None
        if self.cache is not None:
            digest = json_sha256(body)
            place = Path(self.cache).expanduser() / digest[:2] / f"{digest}.json"
            with contextlib.suppress(OSError, ValueError, KeyError):  # there is none, or its file is broken
                return read(decode(place.read_bytes(), dict[str, str], str(place))["reply"])
        key = key_in(self.key_variable) if self.key_variable else None
        completion = complete(self._client(key), body)
        self._watch.see(body, completion)
        reply = completion.text[thought_end(completion.text) :]
        scores = read(reply)
        if place is not None and not any(reason for _, reason in scores):
            write_text(place, json.dumps({"reply": reply}))
        return scores

    def _client(self, key: str | None) -> OpenAIClient:
        return OpenAIClient(self.url, timeout=self.timeout, tries=self.tries, key=key)

    def prompt(self, episode: Episode) -> str:
        """What the judge is asked about an episode.

        Raises:
            ValueError: the episode's type of question has no rule in the rubric.
        """
        last, template = episode.turns[-1], self._prompts[USER]
        if self.rubric == "longmemeval":
            task = str(last.info.get("task", ""))
            if (kind := task.partition("/")[0]) not in LONGMEMEVAL:
                raise ValueError(f"unknown type: task {task!r} is not one of LongMemEval")
            special = "abstention" if task.endswith("_abs") else LONGMEMEVAL[kind]
            template = self._prompts[special]
        privileged = last.info["privileged"]
        reply = last.action[thought_end(last.action) :]
        return template.fill(
            transcript=transcript(episode, MAX_CHARS),
            first_prompt=excerpt(observation_text(episode.turns[0].observation), MAX_CHARS),
            question=privileged.get("question", ""),
            answer=excerpt(clean_text(reply, MAX_REPLY_CHARS), MAX_CHARS),
            reference=json.dumps(privileged.get("answers"), ensure_ascii=False),
            turns=len(episode.turns),
        )

    def _judge(self, episode: Episode) -> list[Score]:
        count = len(episode.turns) if self.level == "turn" else None
        try:
            prompt = self.prompt(episode)
        except ValueError as error:
            return _unscored(None, str(error))
        try:
            return self.ask(
                prompt, lambda verdict: read_verdict(verdict, count, self._low, whole=self._whole)
            )
        except ServerError as error:
            return _unscored(count, f"endpoint: {error}")


def judge_tokens(
    methods: Iterable[object], episodes: Sequence[Episode], count: Callable[[str], int]
) -> tuple[float, float]:
    """The tokens of an episode that the judges among some methods read, the mean, and write at most."""
    judges = [method for method in methods if isinstance(method, Judge)]
    read = sum(count(judge.prompt(episode)) for judge in judges for episode in episodes)
    return read / len(episodes), float(sum(judge.max_tokens for judge in judges))


def _rubric(name: str) -> str:
    return (RUBRICS / f"{name}.txt").read_text(encoding="utf-8")


def transcript(episode: Episode, max_chars: int) -> str:
    """The record of an episode as JSON, each text cut in its middle to about `max_chars` characters."""
    record = []
    appended = False  # whether the entry before ended with what this turn begins with
    for number, turn in enumerate(episode.turns, 1):
        entry: dict[str, Any] = {"turn": number}
        if not appended:
            entry["read"] = excerpt(observation_text(turn.observation), max_chars)
        entry["reply"] = excerpt(clean_text(turn.action, MAX_REPLY_CHARS), max_chars)
        if turn.info["feedback"]:
            entry["came_back"] = excerpt(turn.info["feedback"], max_chars)
        appended = turn.info["context"] == "append"
        record.append(entry)
    return json.dumps(record, ensure_ascii=False, indent=1)


def excerpt(text: str, limit: int) -> str:
    """`text`, or its beginning and its end with the number of characters left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [… {len(text) - 2 * half} characters …] {text[-half:]}"


def read_verdict(
    verdict: str, count: int | None, low: float | None = None, *, whole: bool = False
) -> list[Score]:
    r"""The scores of a verdict in whatever form a judge gives it, with prose around it.

    It is in the text after the last `</reasoning>`: in `<score>…</score>`, otherwise in `<answer>…</answer>`
    (InfoMem C.3), otherwise in `\boxed{…}`, otherwise in all of it. A score is the value of `score` in an
    object of JSON or Python or after `Score:`, otherwise that of `rating`, `grade` or `verdict`, otherwise a
    text that is a number or begins or ends in yes, no, correct …. Scores of turns are the list under
    `scores`, otherwise lines `Turn1: X.X` in order, otherwise any list of numbers. Bold type, bullets, code
    fences, and numbers as text make no difference.

    Args:
        verdict: the judge's reply.
        count: number of scores of turns; None wants one score.
        low: the lowest score, where the highest is 1; None: -1 for lines, otherwise 0.
        whole: whether a single score must be 0 or 1; if `low` is None, one in tags must be, too.

    >>> read_verdict("**Score: 1**, as both mean the same.", None)
    [(1.0, '')]
    >>> read_verdict('Both help: {"scores": [1, "0.5"]}.', 2)
    [(1.0, ''), (0.5, '')]
    """
    text = verdict.rpartition("</reasoning>")[2].strip()
    tagged = [(match[1].lower(), match[2]) for match in _TAGGED.finditer(text)]
    insides = [[inside for name, inside in tagged if name == tag] for tag in ("score", "answer")]
    values: list[tuple[Any, ...]] = []
    is_lines = False
    for inside in next(filter(None, insides), [text]):
        boxed = boxed_content(inside)
        inside = inside if boxed is None else boxed
        named, rest = _named_values(inside)
        if count is None:
            values += [(value,) for value in named or _plain_values(rest)]
        elif lists := [tuple(value) for value in named if isinstance(value, list)]:
            values += lists
        elif lines := _turn_lines(rest):
            is_lines = True
            values += lines
        else:
            parts = [match[1].split(",") for match in _LIST.finditer(rest)]
            lists = [tuple(part) for part in parts if None not in map(_number, part)]
            values += lists or [(value,) for value in named]
    if not values:
        return _unscored(count, f"unreadable: no score in {text[-120:]!r}")
    scores, *others = dict.fromkeys(tuple(map(_number, value)) for value in values)
    if others:
        return _unscored(count, f"ambiguous: different scores in {text[-120:]!r}")
    if len(scores) != (count or 1):
        reason = f"wrong number: {len(scores)} scores in order for {count} turns in {text[-120:]!r}"
        return _unscored(count, reason)
    whole = whole or (low is None and count is None and any(insides))
    low = low if low is not None else -1.0 if is_lines else 0.0
    return [_score(score, raw, low, whole) for score, raw in zip(scores, values[0], strict=True)]


def _named_values(text: str) -> tuple[list[Any], str]:
    """The values of `score` or `scores` in a text, of the outer object only, and the rest of the text.

    A `rating`, `grade` or `verdict` counts where it is a number or yes, no, correct …, and no score is there.
    """
    scores, others, rest, end = list[Any](), list[Any](), "", 0
    for start in [match.start() for match in re.finditer(r"\{", text)][-64:]:
        if start < end:
            continue
        stop = text.rfind("}") + 1
        try:
            value, stop = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            try:
                value = ast.literal_eval(text[start:stop])
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
        count = len(scores) + len(others)
        for name, part in value.items() if isinstance(value, dict) else ():
            if re.fullmatch("scores?", str(name), re.IGNORECASE):
                scores.append(list(part.values()) if isinstance(part, dict) else part)
            elif _OTHER.fullmatch(str(name)) and not isinstance(part, dict) and _number(part) is not None:
                others.append(part)
        if len(scores) + len(others) > count:
            rest, end = rest + text[end:start], stop
    rest += text[end:]
    for match in _LABELLED.finditer(rest):
        values = scores if match[1].lower().startswith("score") else others
        values.append(match[2][1:-1].split(",") if match[2][0] == "[" else match[2])
    return scores or others, rest


def _plain_values(text: str) -> list[str]:
    """A text that is a number, or the words of a verdict if it begins or ends with one."""
    text = text.lstrip(_MARKS).rstrip(f"{_MARKS}!.,;")
    words = [] if _BUT.search(text) else list(_WORD.finditer(text))
    at_an_end = words and (words[0].start() == 0 or words[-1].end() == len(text))
    return [text] if re.fullmatch(_NUMBER, text) else [match[1] for match in words] if at_an_end else []


def _turn_lines(text: str) -> list[tuple[Any, ...]]:
    """The values of each series of lines `Turn1: X.X` in order; one out of order is empty."""
    matches = [match for line in _BREAK.split(text) if (match := _LINE.fullmatch(line))]
    labels = [match[1] for match in matches]
    size = max(1, len(set(labels)))
    if labels != [str(turn) for turn in range(1, size + 1)] * (len(labels) // size):
        return [()]
    return [tuple(match[2] for match in matches[row : row + size]) for row in range(0, len(labels), size)]


def _number(value: Any) -> float | None:
    """The number that a value means: a number, a truth, or one of them as text; None for another value."""
    value = value.get("score") if isinstance(value, dict) else value
    if isinstance(value, str):
        text = value.lstrip(_MARKS).rstrip(f"{_MARKS}!.,;").lower()
        return float(text) if re.fullmatch(_NUMBER, text) else _WORDS.get(text)
    return float(value) if isinstance(value, (bool, int, float)) else None


def _score(value: float | None, raw: Any, low: float, whole: bool) -> Score:
    if value is None:
        return math.nan, f"no number: {str(raw)[:60]!r}"
    if not low <= value <= 1.0 or (whole and value % 1):
        return math.nan, f"out of range: {value:g} is not {'0 or 1' if whole else f'in [{low:g}, 1]'}"
    return value, ""


def _unscored(count: int | None, reason: str) -> list[Score]:
    return [(math.nan, reason)] * (1 if count is None else count)
