"""Questions to be answered: a task set's, or those of JSON Lines without documents."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from memenvs.integrity import sha256
from memenvs.metrics import normalize_answer
from memenvs.spaces import is_utf8
from memenvs.state import text_hash
from memenvs.tasks import Task, TaskSet, open_tasks

_OPEN_KEYS = ("answers", "golden_answers", "answer")


class Questions(list[Task]):
    """The questions of a file; `path`, `name` and `hash` are the file's."""

    def __init__(self, tasks: Iterable[Task], path: Path) -> None:
        super().__init__(tasks)
        self.path, self.name, self.hash = path, path.name, sha256(path)[:16]


def open_questions(source: str) -> TaskSet | Questions:
    """Questions of a task set (by name or folder), or of JSON Lines in NQ-open's style (gzip too).

    Raises:
        FileNotFoundError: there is no such set or file.
        ValueError: a line holds no question with answers.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return _open_lines(path.resolve(), path.stat().st_mtime_ns)
    return open_tasks(source)


def own_metric(questions: Sequence[Task]) -> str:
    """The name of the metric that the questions are made for: what the task set's card says, else `em`."""
    return questions.card.metric if isinstance(questions, TaskSet) else "em"


def identity_of(questions: Sequence[Task]) -> tuple[str, str]:
    """The name of a task set or a file of questions, and a hash that tells it from others."""
    if isinstance(questions, TaskSet):
        return questions.path.name, text_hash(questions.card.to_json())
    return (questions.name, questions.hash) if isinstance(questions, Questions) else ("", "")


@functools.lru_cache(maxsize=8)
def _open_lines(path: Path, changed: int) -> Questions:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        tasks = [_task(line, number, path) for number, line in enumerate(file, 1) if line.strip()]
    if not tasks:
        raise ValueError(f"{path} holds no question; give JSON Lines with 'question' and 'answers'")
    return Questions(tasks, path)


def _task(line: str, number: int, path: Path) -> Task:
    try:
        record = json.loads(line)
        found = next(record[key] for key in _OPEN_KEYS if key in record)
        answers = tuple([found] if isinstance(found, str) else found)
        question = record["question"]
    except (ValueError, RecursionError, KeyError, TypeError, StopIteration) as error:
        raise ValueError(f"{path}:{number} has no 'question' with 'answers' ({error!r})") from error
    texts = (question, *answers)
    if not answers or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f"{path}:{number}: 'question' and 'answers' must be texts that are not empty")
    if not all(map(is_utf8, texts)):
        raise ValueError(f"{path}:{number} has a lone surrogate in its texts; replace it, as by U+FFFD")
    scored = tuple(answer for answer in answers if normalize_answer(answer))  # an empty reply equals "The"
    if not scored:
        raise ValueError(f"{path}:{number}: no answer of {answers} is more than articles; leave the line out")
    return Task(f"{path.name.partition('.')[0]}-{number}", question, (scored,), (), ())
