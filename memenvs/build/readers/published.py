"""Read benchmarks that differ in little but the names of their fields, by the forms in benchmarks.json.

A form's metric is the benchmark's own; a task whose metric memenvs does not have is refused by its name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from memenvs.build.contexts import WHOLE, Example, KeptContexts, split_documents
from memenvs.build.examples import Pool
from memenvs.build.options import PUBLISHED, PUBLISHED_FORMS, Form
from memenvs.build.readers.records import READERS, Record, text_at, value_at
from memenvs.core.data import convert
from memenvs.tasks.cells import parse_printed, read_answers, scorable
from memenvs.tasks.metrics import METRICS
from memenvs.tasks.records import Fields, read_rows
from memenvs.tasks.taskset import Layout, read_open


def read_published(name: str, source: str, split: str = "train", **options: Any) -> KeptContexts | Pool:
    """The questions of a published file, each over its context, to the character; or a pool to draw from.

    Args:
        name: the benchmark; its form says how it is published, and `READERS` reads the records that fields
            alone do not describe.
        source: the file, or `hf:NAME[:CONFIG]`.
        split: split of a Hugging Face data set.
        **options: of its reader.

    Raises:
        ValueError: the source is something else, or is scored by a metric that memenvs does not have.
    """
    form = PUBLISHED_FORMS[name]
    metrics = set[str]()
    stream = _stream(name, metrics, source, split, options)
    if form.drawn:
        return Pool.of(stream, source)
    layouts = [Layout(header, separator) for header in form.headers for separator in form.separators]
    if form.context and layouts:
        examples, layout = _divided(list(stream), layouts, form.uniform, source)
        return KeptContexts(examples, layout, form.metric or next(iter(metrics)), source, form.environment)
    # the metric is that of the first record; the others are read as they are needed
    first = [] if form.metric else [next(stream)]
    metric = form.metric or next(iter(metrics))
    layout = (layouts or [WHOLE])[0]
    return KeptContexts(itertools.chain(first, stream), layout, metric, source, form.environment)


def _stream(
    name: str, metrics: set[str], source: str, split: str, options: Mapping[str, Any]
) -> Iterator[Example]:
    """The questions of a published file; their metric is added to `metrics`."""
    form, facts = PUBLISHED_FORMS[name], PUBLISHED[name]
    kind: Any = dict[str, Any]
    read: Callable[..., Iterable[Example]] = partial(_examples, form)
    names: Collection[str] = form.fields | ({form.task} - {""})
    if name in READERS:
        kind, read = READERS[name]
        names = getattr(kind, "__struct_fields__", ())
    fields = Fields(source, names, name_ignored=False)
    what = f"a file of {facts['title']} ({facts['files']})"
    for number, (where, row) in enumerate(read_rows(source, what, split)):
        if names:
            fields.check(row, where)
        record = convert(row, kind, where, f"give {what}")
        try:
            record = PREPARE.get(name, lambda record: record)(record)
            metrics.add(form.metric or _metric_of(form, record, f"{source} {split}"))
            examples = list(read(record, number, **options))
        except ValueError as error:
            raise ValueError(f"{where} {error}; give {what}") from error
        if len(metrics) > 1:
            raise ValueError(f"{source} has tasks of {' and '.join(sorted(metrics))}; build them apart")
        yield from examples


def _metric_of(form: Form, record: Record, path: str) -> str:
    """The metric of a record; the path is the file's, with the split."""
    if any(record.get(path) for path in form.options):
        return "choice"
    texts = [str(record[form.task])] if form.task in record else []
    pairs = itertools.product([*texts, path], form.metrics.items())
    metric = next((metric for text, (task, metric) in pairs if re.search(task, text)), "")
    if not metric:
        raise ValueError("and the file's path do not say which task it is of; name it as published")
    if metric not in METRICS:
        raise ValueError(f"is scored by {metric}, which memenvs does not have; build another task")
    return metric


def _divided(
    examples: list[Example], layouts: list[Layout], uniform: bool, source: str
) -> tuple[list[Example], Layout]:
    """The examples with their contexts in documents, by the layout that finds most; whole ones otherwise."""
    contexts = [example.paragraphs[0][1] for example in examples]
    divided = {layout: [split_documents(text, layout) for text in contexts] for layout in layouts}
    if uniform and () in (marked := divided[layouts[0]]) and marked[0]:
        raise ValueError(
            f"{source}: record {marked.index(())} has a context without 'Document 1:' at its beginning, "
            "where the first has it; build the two forms apart"
        )
    # of layouts that find equally many, as in contexts of one document, the last of the form counts
    fitting = [layout for layout in reversed(layouts) if all(divided[layout])]
    if not fitting:
        return examples, WHOLE
    layout = max(fitting, key=lambda layout: sum(map(len, divided[layout])))
    pairs = zip(examples, divided[layout], strict=True)
    return [replace(example, paragraphs=documents) for example, documents in pairs], layout


def read_searched(source: str, split: str = "train") -> KeptContexts:
    """The questions of any file without documents (`open_questions`), to be answered by searching."""
    examples = (
        Example(task.id, task.question, task.answers[0], (), (), meta=task.meta)
        for task in read_open(source, split)
    )
    return KeptContexts(examples, Layout(), "em", source, "MemSearchQA-v0")


def _examples(form: Form, record: Record, number: int) -> Iterator[Example]:
    """The question of a record with the fields of its form."""
    id_ = str(number if record.get(form.id) is None else record[form.id])
    question = text_at(record, form.question)
    question = question if question.strip() else form.asks
    paragraphs = (("", text_at(record, form.context)),) if form.context else ()
    answers = read_answers(value_at(record, form.answers), f"at {form.answers!r}", lambda line: None)
    listed = [_listed(record[path]) for path in form.options if record.get(path)]
    options = [str(option) for part in listed for option in part]
    if options:
        choices = dict(zip("ABCD", options, strict=False))
        right = [letter for letter, option in choices.items() if not {letter, option}.isdisjoint(answers)]
        if answers and not right:
            raise ValueError(f"has the answer {answers[0]!r:.80}, which is none of its options")
        answers = tuple(dict.fromkeys([*right[:1], *answers]))
        lines = (f"({letter}) {option}" for letter, option in choices.items())
        question = "\n".join((question, "Choices:", *lines, "Answer with the letter of the right choice."))
    meta = {path: record[path] for path in form.meta if path in record}
    yield Example(id_, question, answers, paragraphs, (), meta=meta)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# RULER's JSON Lines: the prompt is one text.

_ASKS = re.compile(r"\n(?:Question: |(?=What (?:is|are all) the special magic ))")
_ENDS = re.compile(r"\n|\s+Answer:|\s*\[/INST\]|<\||(?<=\?) The special magic ")  # of a template or a prefix
_RULER_QA = "Answer the question based on the given documents."


def _ruler(record: Record) -> Record:
    """The last line that asks is the question, and what is before it the context."""
    prompt = text_at(record, "input")
    *_, asks = [None, *_ASKS.finditer(prompt)]
    if asks is None:
        raise ValueError("has no line that begins with 'Question:' in its input")
    context = prompt[: asks.start()].rstrip("\n")
    if _RULER_QA in context:  # once before the documents, and once after them
        context = context[max(0, context.find("Document 1:\n")) : context.rfind(_RULER_QA)].rstrip("\n")
    question = _ENDS.split(prompt[asks.end() :], maxsplit=1)[0]
    return {**record, "question": question, "context": context}


# MemAgent: a question to evaluate on (`input`), or one to train on (`prompt`, `reward_model`).


def _memagent(record: Record) -> Record:
    trained = "reward_model" in record and "prompt" in record
    facts = (record.get("extra_info") or {}) if trained else record
    paths = {"input": "prompt.content", "answers": "reward_model.ground_truth"} if trained else {}
    flat = {**record, **{name: value_at(record, path) for name, path in paths.items()}}
    answers = flat.get("answers") or flat.get("outputs")
    flat["input"] = next(iter(_listed(value_at(flat, "input"))), None)
    marked = answers is not record.get("outputs") or split_documents(text_at(flat, "context"), Layout())
    if flat.keys().isdisjoint(("answers", "outputs")) or not flat["context"]:
        raise ValueError("has no answers or no context")
    flat["answers"] = answers
    flat["task"] = "training" if trained else "questions" if marked else "needles"
    kept = {name: facts[name] for name in ("index", "num_docs", "length") if facts.get(name) is not None}
    return {**{name: flat[name] for name in ("input", "answers", "context", "task")}, **kept}


# CorpusQA: the documents are in the user's message, and a list of no entity is an answer, too.

_QUESTION_LABEL = re.compile(r"[\s#*]*(?:question|问题)?[\s:*\uff1a]*\Z", re.IGNORECASE)


def _corpusqa(record: Record) -> Record:
    prompt, question, answer = record.get("prompt"), text_at(record, "question"), value_at(record, "answer")
    messages = [part for part in _listed(prompt) if isinstance(part, Mapping) and part.get("role") == "user"]
    text = "\n\n".join(text_at(message, "content") for message in messages) or text_at(record, "prompt")
    before, _, after = text.rpartition(question)
    context = _QUESTION_LABEL.sub("", before) if len(before) > len(after) else after.lstrip()
    start = re.search(r"^#* ?Document 1:$", context, re.MULTILINE)
    context = context[start.start() if start else 0 :]
    printed = parse_printed(answer) if isinstance(answer, str) else answer
    answers = ["none", "[]"] if printed in ([], {}) else answer if printed is None else _in_words(printed)
    return {**record, "context": context, "answer": answers}


def _in_words(answer: Any) -> Any:
    """An answer of rows in words, and one of a single value as it is."""
    if isinstance(answer, Mapping):
        return ", ".join(f"{name}: {_in_words([value])}" for name, value in answer.items())
    if isinstance(answer, list):
        return ", ".join(next(iter(scorable([_in_words(part)])), "") for part in answer)
    return answer


PREPARE: dict[str, Callable[[Record], Record]] = {
    "ruler_jsonl": _ruler,
    "corpusqa": _corpusqa,
    "memagent": _memagent,
}
"""Makes the fields of a form from a record."""
