"""A judge model that scores the turns of an episode, or its outcome: requests, a cache, verdicts."""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
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

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_LINE = re.compile(rf"Turn\s*(\d+)\s*:\s*({_NUMBER})", re.IGNORECASE)
_TAGGED = re.compile(r"<(score|answer)>((?:(?!<\1>).)*?)(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_WORDS = {"yes": 1.0, "no": 0.0}
_FENCE = re.compile(r"```(?:json)?\n(.*)\n```", re.DOTALL)
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
    question, which is the first part of the task's id (`memenvs.build.readers.longmemeval`). `"equivalence"`
    asks whether the last reply means exactly the same as a right answer, 1 or 0 (InfoMem C.3).

    A rubric's prompt decides how the verdict is read. A prompt with `<score>` asks for lines `Turn1: X.X`
    from -1 to 1 inside `<score>…</score>`, after the `<reasoning>…</reasoning>` if there is one; any other
    asks for one JSON object, `{"scores": […]}`, of numbers from 0 to 1. An outcome, and the verdict on a
    prompt of your own, is read with prose around it (`read_verdict`). A thought that leads a verdict is
    dropped. A verdict in another form or with another number of scores is NaN with the reason in its
    `Credit`, never 0, like a score out of range and an unreachable endpoint. `failures` counts the reasons,
    the log warns of each once, and `info["metrics"]["judge_unscored"]` counts the credits. Where the outcome
    is replaced, a learner leaves out an episode whose last turn has no score.

    Args:
        url: address of an OpenAI-compatible endpoint, e.g. `http://localhost:8000/v1`.
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

    url: str
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
        prompts = {name: _template(text, name) for name, text in rubrics.items()}
        prompts |= {name: _own_template(text, name) for name, text in texts.items() if name != SYSTEM}
        self._prompts = prompts
        self._read = tagged_scores if "<score>" in text else json_scores
        if self.level == "outcome" or USER in texts:
            self._read = read_verdict
        self._watch = Watch(self._client(None).url)  # which refuses a wrong URL

    @property
    def needs(self) -> tuple[str, ...]:
        """What the record is made of; the rubric of a search needs an environment that searches."""
        of_searches = self.rubric == "search" and USER not in (self.template or {})
        return ("context", "feedback", *(("events/searches",) if of_searches else ()))

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        """The scores of each episode, times `weight`, and the outcome where that is wanted."""
        with ThreadPoolExecutor(self.concurrency) as pool:
            verdicts = list(progress(pool.map(self._judge, episodes), len(episodes), "judgements"))
        for reason in (reason for scores in verdicts for _, reason in scores if reason):
            kind = reason.partition(":")[0]
            if kind not in self.failures:
                _log.warning("the judge gave no score: %s", reason)
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
            if (kept := _read_reply(place)) is not None:
                return read(kept)
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

    def _judge(self, episode: Episode) -> list[Score]:
        last, template = episode.turns[-1], self._prompts[USER]
        if self.rubric == "longmemeval":
            task = str(last.info.get("task", ""))
            if (kind := task.partition("/")[0]) not in LONGMEMEVAL:
                return _unscored(None, f"unknown type: task {task!r} is not one of LongMemEval")
            special = "abstention" if task.endswith("_abs") else LONGMEMEVAL[kind]
            template = self._prompts[special]
        privileged = last.info["privileged"]
        reply = last.action[thought_end(last.action) :]
        prompt = template.fill(
            transcript=transcript(episode, MAX_CHARS),
            first_prompt=excerpt(observation_text(episode.turns[0].observation), MAX_CHARS),
            question=privileged.get("question", ""),
            answer=excerpt(clean_text(reply, MAX_REPLY_CHARS), MAX_CHARS),
            reference=json.dumps(privileged.get("answers"), ensure_ascii=False),
            turns=len(episode.turns),
        )
        count = len(episode.turns) if self.level == "turn" else None
        try:
            return self.ask(prompt, lambda verdict: self._read(verdict, count))
        except ServerError as error:
            return _unscored(count, f"endpoint: {error}")


def _read_reply(place: Path) -> str | None:
    """A kept reply; None if there is none, or if the file is broken."""
    try:
        return decode(place.read_bytes(), dict[str, str], str(place))["reply"]
    except (OSError, ValueError, KeyError):
        return None


def _rubric(name: str) -> str:
    return (RUBRICS / f"{name}.txt").read_text(encoding="utf-8")


def _template(text: str, name: str) -> Template:
    return Template(text, optional=PLACES, name=name)


def _own_template(text: str, name: str) -> Template:
    """A prompt of a user's, which shows the judge the last reply or the whole record."""
    template = _template("", name).reworded(text, name)
    if not {"answer", "transcript"} & set(template.places):
        raise ValueError(
            f"the {name!r} template has neither {{answer}} (the last reply) nor {{transcript}} (all turns); "
            "add one"
        )
    return template


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


def json_scores(verdict: str, count: int | None) -> list[Score]:
    """The scores, 0 to 1, of a verdict that is one JSON object, with a code fence around it or not.

    Args:
        verdict: the judge's reply.
        count: scores that `{"scores": […]}` must hold; None wants `{"score": …}`.

    >>> json_scores('{"scores": [1, 0.5]}', 2)
    [(1.0, ''), (0.5, '')]
    """
    stripped, key = verdict.strip(), "score" if count is None else "scores"
    fenced = _FENCE.fullmatch(stripped)
    try:
        answer: Any = json.loads(fenced[1] if fenced else stripped)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or set(answer) != {key}:
        return _unscored(count, f"unreadable: not an object of {key!r} alone but {stripped[:120]!r}")
    scores = [answer[key]] if count is None else answer[key]
    if not isinstance(scores, list) or len(scores) != (count or 1):
        size = len(scores) if isinstance(scores, list) else "no list"
        return _unscored(count, f"wrong number: {size} scores for {count} turns")
    return [_score(value, 0.0) for value in scores]


def tagged_scores(verdict: str, count: int | None) -> list[Score]:
    r"""The scores of a verdict in the form of MT-PPO's appendix D.2.

    The text after the last `</reasoning>` (or all of it, without one) must be one `<score>…</score>`.

    Args:
        verdict: the judge's reply.
        count: lines `Turn1: X.X`, `Turn2: X.X`, … from -1 to 1 that it must hold, in order; None wants one
            number, 0 or 1.

    >>> tagged_scores("<reasoning>…</reasoning><score>Turn1: -0.2\nTurn2: 1.0</score>", 2)
    [(-0.2, ''), (1.0, '')]
    """
    score = verdict.rpartition("</reasoning>")[2].strip()
    inside = score.removeprefix("<score>").removesuffix("</score>")
    if len(inside) != len(score) - len("<score></score>") or "<score>" in inside:
        return _unscored(count, f"unreadable: not one <score> after the reasoning but {score[:120]!r}")
    if count is None:
        if not re.fullmatch(_NUMBER, inside.strip()):
            return _unscored(count, f"unreadable: not one number but {inside[:60]!r}")
        if (value := float(inside)) not in (0.0, 1.0):
            return _unscored(count, f"out of range: {value!r} is neither 0 nor 1")
        return [(value, "")]
    return _line_scores(inside, count)


def _line_scores(text: str, count: int) -> list[Score]:
    """The scores of lines `Turn1: X.X`, from -1 to 1."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    matches = [match for line in lines if (match := _LINE.fullmatch(line))]
    if len(matches) < len(lines):
        return _unscored(count, f"unreadable: not lines of 'Turn1: X.X' but {text[:120]!r}")
    if [match[1] for match in matches] != [str(turn) for turn in range(1, count + 1)]:
        return _unscored(count, f"wrong number: {len(lines)} lines, not Turn1 to Turn{count} in order")
    return [_score(float(match[2]), -1.0) for match in matches]


def read_verdict(verdict: str, count: int | None) -> list[Score]:
    r"""The scores of a verdict with prose around it.

    It is in the text after the last `</reasoning>`, or in all of it: the inside of the last
    `<score>…</score>`, otherwise of the last `<answer>…</answer>` (InfoMem C.3), otherwise of the last
    `\boxed{…}`, otherwise the last JSON object of `score` or `scores`, otherwise all of the text.

    Args:
        verdict: the judge's reply.
        count: scores that it must hold, as lines `Turn1: X.X` from -1 to 1 in order, or as a JSON list of
            numbers from 0 to 1; None wants one number from 0 to 1, in tags 0 or 1, or yes or no.

    >>> read_verdict("Reason: the same.\n<answer>1</answer>", None)
    [(1.0, '')]
    >>> read_verdict('Both help: {"scores": [1, 0.5]}.', 2)
    [(1.0, ''), (0.5, '')]
    """
    said = verdict.rpartition("</reasoning>")[2].strip()
    tagged = [(match[1].lower(), match[2]) for match in _TAGGED.finditer(said)]
    inside = next((text for tag in ("score", "answer") for name, text in tagged[::-1] if name == tag), None)
    text = said if inside is None else inside
    boxed = boxed_content(text)
    text = (text if boxed is None else boxed).strip(" \n\t*`")  # also without Markdown's bold type
    value = _last_json(text)
    if count is None:
        if isinstance(value, dict):
            value = value.get("score")
        elif re.fullmatch(_NUMBER, text):
            value = float(text)
        else:
            value = _WORDS.get(text.strip(".").lower())
        if value is None:
            return _unscored(None, f"unreadable: no score in {said[-120:]!r}")
        if inside is not None and isinstance(value, float) and 0 < value < 1:
            return _unscored(None, f"out of range: {value!r} is neither 0 nor 1")
        return [_score(value, 0.0)]
    if isinstance(value, dict):
        value = value.get("scores")
    elif value is None:
        return _line_scores(text, count)
    if not isinstance(value, list) or len(value) != count:
        size = len(value) if isinstance(value, list) else "no list"
        return _unscored(count, f"wrong number: {size} scores for {count} turns")
    return [_score(score, 0.0) for score in value]


def _last_json(text: str) -> Any:
    """The last JSON object with `score` or `scores` that is in no other, or the list that is the text."""
    last, end = None, 0
    for start in [match.start() for match in re.finditer(r"\{", text)][-64:]:
        if start < end:
            continue
        try:
            value, stop = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if not {"score", "scores"}.isdisjoint(value):
            last, end = value, stop
    if last is not None:
        return last
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _score(value: Any, low: float) -> Score:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan, f"no number: {str(value)[:60]!r}"
    if not low <= value <= 1.0:
        return math.nan, f"out of range: {value!r} is not in [{low:g}, 1]"
    return float(value), ""


def _unscored(count: int | None, reason: str) -> list[Score]:
    return [(math.nan, reason)] * (1 if count is None else count)
