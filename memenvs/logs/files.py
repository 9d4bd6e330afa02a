"""Files of recorded conversations: their records, their conversations, and the answers to their questions."""

from __future__ import annotations

import itertools
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from memenvs.build.readers.records import value_at
from memenvs.core.episode import Episode
from memenvs.core.errors import counted, error_line
from memenvs.core.files import names_apart
from memenvs.core.inputs import PARQUET, input_files, open_input
from memenvs.data import bundled, bundled_names
from memenvs.logs.conversation import LogConversation, Render
from memenvs.logs.forms import FORMS, LogForm, form_of
from memenvs.logs.forms.inspect_log import read_archive
from memenvs.models.chat import plain_chat
from memenvs.tasks.cells import read_answers
from memenvs.tasks.records import QUESTIONS, QuestionRecord, read_questions
from memenvs.wrappers.registry import ScorerSpec, make_scorer

WHAT = f"a log of conversations ({', '.join(form.name for form in FORMS)})"
ARCHIVE = "a ZIP archive"
FIELDS: Mapping[str, tuple[str, ...]] = {
    "answer": ("answers", "answer", "golden_answers", "target", "ground_truth", "reference"),
    "reward": ("reward", "score", "success", "correct"),
    "group": ("group", "task_id", "question_id", "prompt_id", "task"),
    "question": ("question",),
    "evidence": ("evidence",),
}
"""What a record may say of its conversation, and the names under which it is looked for."""
_CONTINUED = re.compile(rb'"continued_trajectory_ref"\s*:\s*"([^"\\]+)"')
_BROKEN = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


class LogEntry(NamedTuple):
    """A record of a file: its form, the record (of a session all rows) and the conversations in it."""

    path: Path
    form: LogForm
    record: Any
    conversations: list[LogConversation]


@dataclass
class LogFiles:
    """Files of conversations, read in order, one record in memory at a time.

    Attributes:
        paths: files, globs or folders, as for `memenvs.core.inputs.input_files`, or what ships by its name.
        answers: a file of questions and answers, for logs that do not hold them.
        fields: by `answer`, `reward`, `group`, `question` or `evidence` the field of a record that holds it,
            as `metadata.target`, where it has another name than those of `FIELDS`.
        strict: raise at the first record that cannot be read; otherwise it is left out.
        broken: the records that were left out at the last reading, each with its place and why.
        names: what each file is called in places.
    """

    paths: Sequence[str]
    answers: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if unknown := [name for name in self.fields if name not in FIELDS]:
            raise ValueError(f"fields has no {unknown[0]!r}; name {', '.join(FIELDS)}")
        ships = [path for path in self.paths if path in bundled_names() and not Path(path).exists()]
        paths = (bundled(path) if path in ships else path for path in self.paths)
        files = list(dict.fromkeys(file for path in paths for file in input_files(path, WHAT)))
        documents = [file for file in files if file.suffix == ".json"]
        parts = {
            file.parent / Path(os.fsdecode(name)).name
            for file in documents
            for name in _CONTINUED.findall(file.read_bytes())
        }
        self._files = [file for file in files if file not in parts]
        self.names = dict(zip(self._files, names_apart(self._files), strict=True))
        self._answers: dict[str, tuple[str, tuple[str, ...]]] = {}  # by question and by id
        if self.answers:
            for _, record, answers in read_questions(self.answers, "train", QuestionRecord, QUESTIONS):
                question = " ".join(str(record.question).split())
                self._answers[question] = self._answers[record.named(question)] = (question, answers)

    def entries(self) -> Iterator[LogEntry]:
        """The records with conversations, file by file.

        Raises:
            ValueError: a record cannot be read and `strict` is set, or no record of a file can be.
        """
        self.broken.clear()
        for path in self._files:
            before, count = len(self.broken), 0
            for entry in self._of_file(path):
                count += 1
                yield entry
            if not count:
                why = self.broken[before] if len(self.broken) > before else f"{path} is empty"
                raise ValueError(f"{path} holds no conversation: {why}; give {WHAT}")

    def conversations(self) -> Iterator[LogConversation]:
        """The conversations of all records."""
        for entry in self.entries():
            yield from entry.conversations

    def _of_file(self, path: Path) -> Iterator[LogEntry]:
        rows, form = list[Any](), None
        for place, record in self._records(path):
            form = form_of(record) if form is None or not form.session else form
            if form and form.session:
                rows.append(record)
            elif form:
                yield from self._read(path, form, record, place)
            else:
                held = ", ".join(map(str, record)) if isinstance(record, Mapping) else type(record).__name__
                self._skip(place, f"is no conversation, but holds {held[:100]}")  # no text of the log
        if rows and form:
            yield from self._read(path, form, rows, self.names[path])

    def _whole(self, path: Path, form: LogForm, record: Any) -> Any:
        """A record with what follows in the files in which it continues, which are beside it."""
        joined = {path}
        while form.continued and (name := record.get("continued_trajectory_ref")):
            part = path.parent / Path(name).name
            rest: Any = None
            if part.is_file() and part not in joined:
                rest = next((row for _, row in self._records(part)), None)
            if form_of(rest) is not form:
                raise ValueError(f"it continues in {name}, which is not beside it")
            joined.add(part)
            record = form.continued(record, rest)
        return record

    def _read(self, path: Path, form: LogForm, record: Any, place: str) -> Iterator[LogEntry]:
        try:
            record = self._whole(path, form, record)
            if not (conversations := list(form.read(record))):
                raise ValueError("there is none in it")
            for number, conversation in enumerate(conversations):
                conversation.place = place if len(conversations) == 1 else f"{place}[{number}]"
                self._label(conversation, record if isinstance(record, Mapping) else {})
        except _BROKEN as error:
            self._skip(place, f"cannot be read as {form.name}: {error_line(error, 160)}")
        else:
            yield LogEntry(path, form, record, conversations)

    def _label(self, conversation: LogConversation, record: Mapping[str, Any]) -> None:
        """Fill what the form has no place for from the record, and answers from the file of answers."""
        if answers := self._field(record, "answer", conversation.answers):
            answers = answers.get("target", answers) if isinstance(answers, Mapping) else answers
            conversation.answers = read_answers(answers, conversation.place, lambda line: None)
        reward = self._field(record, "reward", conversation.reward)
        conversation.reward = float(reward) if isinstance(reward, (bool, int, float)) else None
        for name in ("group", "question"):
            value = self._field(record, name, getattr(conversation, name) if name == "group" else "")
            if value != "" and isinstance(value, (str, int)):
                setattr(conversation, name, str(value))
        evidence = self._field(record, "evidence", conversation.evidence) or ()
        conversation.evidence = (evidence,) if isinstance(evidence, str) else tuple(map(str, evidence))
        question = " ".join(conversation.question.split())
        pair = self._answers.get(conversation.group) or self._answers.get(question)
        if pair is None:  # the question may be inside a longer prompt
            inside = [pair for pair in self._answers.values() if pair[0] in question]
            pair = max(inside, key=lambda pair: len(pair[0]), default=None)
        if pair:
            conversation.question, conversation.answers = pair

    def _field(self, record: Mapping[str, Any], name: str, known: Any) -> Any:
        """What a record has under the user's name of a field; otherwise what is known, or an alias has."""
        if name in self.fields:
            return value_at(record, self.fields[name])
        if known not in (None, "", ()):
            return known
        return next((record[alias] for alias in FIELDS[name] if record.get(alias) is not None), None)

    def _skip(self, place: str, why: str) -> None:
        line = f"{place} {why}"
        if self.strict:
            raise ValueError(f"{line}; fix it, or leave --strict out to skip it")
        self.broken.append(line)

    def _records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """The records of a file, each with its place."""
        name = self.names.get(path, path.name)
        with open_input(path, PARQUET, ARCHIVE) as (file, kind):
            if kind == PARQUET:
                held = (row for batch in pq.ParquetFile(file).iter_batches(64) for row in batch.to_pylist())
                yield from ((f"{name}:{number}", row) for number, row in enumerate(held, 1))
                return
            if kind:
                try:
                    yield name, read_archive(file)
                except ValueError as error:
                    raise ValueError(f"{path} {error}") from error
                return
            first = next(filter(bytes.strip, file), b"")
            if first.strip() == b"{" or first.lstrip().startswith(b"["):  # JSON over several lines, or a list
                lines: Iterable[tuple[str, bytes]] = [(name, first + file.read())]
            else:
                numbered = enumerate(itertools.chain([first], file), 1)
                lines = ((f"{name}:{number}", line) for number, line in numbered if line.strip())
            for place, line in lines:
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError) as error:
                    self._skip(place, f"is not JSON ({error_line(error, 120)})")
                    continue
                rows = value if isinstance(value, list) else [value]
                yield from (
                    (f"{place}:{n}" if len(rows) > 1 else place, row) for n, row in enumerate(rows, 1)
                )


def read_conversations(
    path: str | Path | Sequence[str | Path],
    *,
    answers: str | Path | None = None,
    fields: Mapping[str, str] | None = None,
    scorer: ScorerSpec = None,
    strict: bool = False,
) -> list[Episode]:
    """Conversations that another agent had, as ended episodes without credit.

        episodes = memenvs.read_conversations("runs.jsonl", answers="questions.jsonl")
        assign_credit(episodes, [IGPO()], scorer)

    The form of a file is told by its content; docs/logs.md lists the forms. Every message that the agent
    wrote is a turn. Conversations about one question are a group. Nothing is played and no network is opened.

    Args:
        path: files, globs or folders.
        answers: a file of questions with their answers, for logs without answers.
        fields: the fields that hold `answer`, `reward`, `group`, `question` or `evidence`, by these names,
            where a record calls them something else, such as `{"answer": "metadata.target"}`.
        scorer: the scorer that methods will ask, whose chat template then writes the prompts.
        strict: raise at the first record that cannot be read; otherwise it is left out with a warning.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file holds no conversation that can be read.
    """
    paths = [str(each) for each in ([path] if isinstance(path, (str, Path)) else path)]
    source = LogFiles(paths, None if answers is None else str(answers), fields or {}, strict)
    conversations = list(source.conversations())
    if source.broken:
        count = counted(len(source.broken), "record")
        warnings.warn(f"{count} left out, such as {source.broken[0]}", stacklevel=2)
    tasks = [conversation.task for conversation in conversations]
    return [episode for _, episode in episodes_of(conversations, tasks, scorer)]


def episodes_of(
    conversations: Iterable[LogConversation], tasks: Iterable[str], scorer: ScorerSpec
) -> Iterator[tuple[LogConversation, Episode]]:
    """Each conversation with its episode, numbered by its task and among those about it.

    Args:
        conversations: in any order.
        tasks: the tasks of all of them; equal sets are numbered alike, in whatever order they come.
        scorer: writes the prompts.
    """
    numbers = {task: number for number, task in enumerate(sorted(set(tasks)))}
    members = Counter[str]()
    render: Render = getattr(make_scorer(scorer), "render", plain_chat)
    for conversation in conversations:
        task = conversation.task
        yield conversation, conversation.to_episode(numbers[task], members[task], render)
        members[task] += 1
