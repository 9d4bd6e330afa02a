"""Where the questions of a searching agent come from, and what it searches."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from memenvs.integrity import sha256
from memenvs.metrics import normalize_answer
from memenvs.retrieval import Retriever, load_retriever
from memenvs.spaces import is_utf8
from memenvs.state import text_hash
from memenvs.tasks import Task, TaskSet, open_tasks
from memenvs.text_env import Episode

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


def open_retriever(retriever: str | None, questions: Sequence[Task], source: str) -> Retriever:
    """The retriever of a spec; None searches the task set's own documents by BM25.

    Raises:
        ValueError: None with questions that come without documents.
    """
    if retriever is not None:
        return load_retriever(retriever)
    if not isinstance(questions, TaskSet) or not questions.n_documents:
        raise ValueError(
            f"{source} has questions but no documents: pass retriever='lexical:CORPUS.jsonl.gz', "
            "'dense:INDEX_DIR' or 'http://host:port'"
        )
    return load_retriever(f"lexical:{questions.path}")


def identity_of(questions: Sequence[Task]) -> tuple[str, str]:
    """The name of a task set or a file of questions, and a hash that tells it from others."""
    if isinstance(questions, TaskSet):
        return questions.path.name, text_hash(questions.card.to_json())
    return (questions.name, questions.hash) if isinstance(questions, Questions) else ("", "")


def check_turns(episode: Episode, history: Sequence[object], limit: int) -> None:
    """Raise a one-line `ValueError` where turns, their record and their limit do not fit together."""
    if episode.turn != len(history) or episode.turn > limit:
        raise ValueError(
            f"the state's episode cannot be: turn={episode.turn} of {limit} with {len(history)} on record"
        )


def extents(questions: Sequence[Task]) -> tuple[int, int]:
    """The most characters of a question, and the most objectives of a task."""
    sizes = [(len(task.question), len(task.answers)) for task in questions]
    return max(chars for chars, _ in sizes), max(objectives for _, objectives in sizes)


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
    told = tuple(answer for answer in answers if normalize_answer(answer))  # "The" would pay an empty answer
    if not told:
        raise ValueError(f"{path}:{number}: no answer of {answers} is more than articles; leave the line out")
    return Task(f"{path.name.partition('.')[0]}-{number}", question, (told,), (), ())
