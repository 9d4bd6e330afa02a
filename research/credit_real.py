r"""What TAMTRL, InfoMem and MemPO pay for memories of known kinds, with a model that reads.

python -m research.credit_real reading --scorer hf:MODEL
python -m research.credit_real reading --scorer hf:MODEL --tasks FOLDER --chunk-size 700 --documents 10
python -m research.credit_real search --scorer hf:MODEL

Scripted writers play the same tasks, each writing memories of one kind, and the reward methods compute their
signals, in the model's chat template if it has one. Means are over tasks, of the mean over a task's turns,
with 95% bootstrap intervals in brackets.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from memenvs.core.env import Info
from memenvs.core.episode import Turn
from memenvs.core.text import split_sentences
from memenvs.evaluation.summary import bootstrap
from memenvs.models.chat import ChatTokens
from memenvs.models.loading import load_hf_tokenizer
from memenvs.tasks.taskset import Task, TaskSet
from memenvs.tasks.tokens import load_tokenizer
from memenvs.wrappers import TAMTRL, InfoMem, MemPO, RewardMethod
from memenvs.wrappers.registry import make_scorer
from memenvs.wrappers.scorers import HFScorer, ScoreRequest
from research.demonstrations import taught

TOKENIZER = "world"  # research/real_model.md was measured with it
KINDS = {
    "evidence": "the sentences that the answer needs, of all sections so far",
    "distractor": "as many characters of the same sections' other documents, or of the task's",
    "empty": "nothing",
    "chunk": "the section itself, up to the limit",
    "stuffed": "the evidence, then sentences of other documents up to the limit",
}
READING: dict[str, RewardMethod] = {
    "p_t, local": TAMTRL(),
    "p_t, global": TAMTRL(view="global"),
    "MemPO's P": MemPO(bias="none"),
}
SEARCHING: dict[str, RewardMethod] = {"P": MemPO(bias="none"), "P - b": MemPO()}
_HEADER = re.compile(r"^Document \d+:$", re.MULTILINE)
_PASSAGE = re.compile(r"Doc \d+\(Title: (.*?)\) (.*?)(?=\nDoc \d+\(Title: |</information>)", re.DOTALL)


class WriterTurn(NamedTuple):
    """A turn of a scripted writer, and whether its section holds a sentence that the answer needs."""

    task: int
    kind: str
    number: int
    evidence: bool
    turn: Turn


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("reading", "search"))
    parser.add_argument("--scorer", default="lexical", help="lexical or hf:MODEL (default lexical)")
    parser.add_argument("--tasks", default="world-test", help="task set with spans (default world-test)")
    parser.add_argument("--n", type=int, default=24, help="number of tasks (default 24)")
    parser.add_argument("--documents", type=int, default=6, help="reading: documents per task (default 6)")
    parser.add_argument("--chunk-size", type=int, default=300, help="reading: tokens per chunk (default 300)")
    parser.add_argument("--max-memory", type=int, default=128, help="tokens of a memory (default 128)")
    args = parser.parse_args()
    scorer: Any = make_scorer(args.scorer)
    template = None
    if isinstance(scorer, HFScorer):
        template = ChatTokens(load_hf_tokenizer(None, scorer.model)).template
    (show_reading if args.what == "reading" else show_search)(args, scorer, template)


def show_reading(args: argparse.Namespace, scorer: Any, template: str | None) -> None:
    """Print tables of memories written while reading."""
    sizes = {"chunk_size": args.chunk_size, "n_documents": args.documents, "max_memory": args.max_memory}
    env = gym.make("MemChunkQA-v0", tasks=args.tasks, cut_at="document", tokenizer=TOKENIZER, **sizes)
    played = [one for task in range(args.n) for kind in KINDS for one in read(env, task, kind)]
    found = signals(scorer, template, [one.turn for one in played], READING)
    turns = sum(one.evidence for one in played if one.kind == "evidence")
    sections = sum(one.kind == "evidence" and not one.turn.over for one in played)
    print(f"{args.n} tasks of {args.tasks}, {args.scorer}; {turns} of {sections} sections hold evidence\n")
    for shown, title in ((True, "sections with evidence"), (False, "sections without")):
        print(f"| {title} | " + " | ".join(READING) + " |\n" + "| --- " * (1 + len(READING)) + "|")
        for kind in KINDS:
            rows = [i for i, one in enumerate(played) if (one.kind, one.evidence) == (kind, shown)]
            rows = [i for i in rows if not played[i].turn.over]
            cells = [of_tasks([(played[i].task, found[name][i]) for i in rows]) for name in READING]
            print(f"| {kind} | " + " | ".join(cells) + " |")
        print()
    print("| sections with evidence | " + " | ".join(f"{name}, above distractor" for name in READING) + " |")
    print("| --- " * (1 + len(READING)) + "|")
    for kind in KINDS:
        if kind != "distractor":
            cells = [share_above(played, found[name], kind, "distractor") for name in READING]
            print(f"| {kind} | " + " | ".join(cells) + " |")
    last = [reading for reading in played if reading.turn.over]
    gains = signals(scorer, template, [reading.turn for reading in last], {"gain": InfoMem()})["gain"]
    print("\n| final memory | InfoMem's gain, nats a token |\n| --- | --- |")
    for kind in KINDS:
        by_kind = zip(last, gains, strict=True)
        pairs = [(reading.task, gain) for reading, gain in by_kind if reading.kind == kind]
        print(f"| {kind} | {of_tasks(pairs)} |")


def show_search(args: argparse.Namespace, scorer: Any, template: str | None) -> None:
    """Print tables of memories written while searching, turn by turn."""
    env = gym.make(
        "MemSearchQA-v0",
        tasks=args.tasks,
        memory_mode="rewrite",
        max_memory=args.max_memory,
        tokenizer=TOKENIZER,
    )
    inner: Any = env.unwrapped
    tasks = [number for number, task in enumerate(inner.questions) if len(task.evidence) == 2][: args.n]
    kinds = ("evidence", "distractor", "passages", "nothing")
    played = [one for task in tasks for kind in kinds for one in search(env, task, kind)]
    found = signals(scorer, template, [one.turn for one in played], SEARCHING)
    print(f"{len(tasks)} questions of {args.tasks} that need two documents, {args.scorer}\n")
    for name in SEARCHING:
        print(f"| {name} | nothing found | first document found | both found |\n" + "| --- " * 4 + "|")
        for kind in kinds:
            cells = []
            for number in range(3):
                rows = [i for i, one in enumerate(played) if (one.kind, one.number) == (kind, number)]
                cells.append(of_tasks([(played[i].task, found[name][i]) for i in rows]))
            print(f"| {kind} | " + " | ".join(cells) + " |")
        print()


def read(env: gym.Env[Any, Any], number: int, kind: str) -> Iterator[WriterTurn]:
    """The turns of an episode whose memories are of one kind, including the answer turn."""
    inner: Any = env.unwrapped
    tokenizer, task = load_tokenizer(TOKENIZER), inner.tasks[number]
    evidence, others = list[str](), list[str]()
    apart = [document for document in task.documents if document not in task.evidence][:20]
    documents = list(zip(inner.tasks.titles(apart), inner.tasks.texts(apart), strict=True))
    unread = [title + sentence for title, sentence in lines("", documents)]

    def write(observation: str, before: dict[str, Any]) -> tuple[str, bool]:
        section = observation.partition("<section>\n")[2].rpartition("\n</section>")[0]
        if not section:
            return inner.gold_reply(), False
        new = [title + sentence for title, sentence in needed(inner.tasks, task) if sentence in section]
        rest = section
        for part in before["privileged"]["evidence_in_chunk"]:
            rest = rest.replace(part, "")
        other = [title + sentence for title, sentence in lines(rest)]
        evidence.extend(new)
        others.extend(fill([*other, *unread], len("\n".join(new))))
        memory = {
            "evidence": evidence,
            "distractor": others,
            "empty": [],
            "chunk": [section],
            "stuffed": [*evidence, *other, *unread],
        }[kind]
        return tokenizer.truncate("\n".join(memory), inner.max_memory)[0], bool(new)

    return play(env, number, kind, write)


def search(env: gym.Env[Any, Any], number: int, kind: str) -> Iterator[WriterTurn]:
    """The turns of an episode that searches for each evidence document's title, then answers."""
    inner: Any = env.unwrapped
    task = inner.questions[number]
    titles, wanted = inner.questions.titles(task.evidence), needed(inner.questions, task)
    sentences = {sentence for _, sentence in wanted}
    kept = {"evidence": list[str](), "distractor": [], "passages": [], "nothing": []}

    def write(observation: str, before: dict[str, Any]) -> tuple[str, bool]:
        passages = _PASSAGE.findall(observation.rpartition("</mem>")[2])
        new = [title + one for title, one in wanted if any(one in text for _, text in passages)]
        said = [title + one for title, one in lines("", passages) if one not in sentences]
        kept["evidence"] += [line for line in new if line not in kept["evidence"]]
        kept["distractor"] += fill(said, len("\n".join(new)))
        kept["passages"] += [f"{title}: {text}" for title, text in passages]
        memory = "\n".join(kept[kind]) or "nothing yet"
        title = next(titles_left, None)
        answer = inner.gold_reply().rpartition("</think>")[2]
        reply = "<think></think>" + (f"<search>{title}</search>" if title else answer)
        return (f"<mem>{memory}</mem>" if inner.context == "rewrite" else "") + reply, bool(new)

    titles_left = iter(titles)
    return play(env, number, kind, write)


def play(
    env: gym.Env[Any, Any],
    number: int,
    kind: str,
    write: Callable[[str, dict[str, Any]], tuple[str, bool]],
) -> Iterator[WriterTurn]:
    """The turns of an episode; `write` returns the reply and whether evidence was shown."""
    shown = list[bool]()

    def reply(observation: str, info: Info) -> str:
        text, has_evidence = write(observation, info)
        shown.append(has_evidence)
        return text

    for count, turn in enumerate(taught(env, reply, number, seed=number).turns):
        yield WriterTurn(number, kind, count, shown[count], turn)


def signals(
    scorer: Any, template: str | None, turns: Sequence[Turn], methods: dict[str, RewardMethod]
) -> dict[str, list[float]]:
    """The signal of each method for each turn; NaN where it measures nothing."""
    asked = {name: [method.requests(turn) for turn in turns] for name, method in methods.items()}
    unique = list(dict.fromkeys(one for of in asked.values() for some in of for one in some))
    form = template or "{prompt}"
    scores = scorer.logprobs([ScoreRequest(form.replace("{prompt}", one[0]), one[1]) for one in unique])
    known = dict(zip(unique, scores, strict=True))
    return {
        name: [
            methods[name].signal(turn, [known[one] for one in some]) if some else np.nan
            for turn, some in zip(turns, of, strict=True)
        ]
        for name, of in asked.items()
    }


def needed(tasks: TaskSet, task: Task) -> list[tuple[str, str]]:
    """The sentences that the answer needs, with their headings; needles are documents."""
    return [(heading(title), sentence) for title, sentence in tasks.needed_sentences(task)]


def lines(section: str, documents: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """The sentences of a section's documents, or of documents, with their titles."""
    for document in _HEADER.split(section):
        title, _, text = document.strip().partition("\n")
        documents = [*documents, (title, text)]
    return [
        (heading(title), sentence) for title, text in documents for sentence in split_sentences(text.strip())
    ]


def heading(title: str) -> str:
    """The text before a sentence of a document."""
    return f"{title}: " if title else ""


def fill(sentences: Sequence[str], characters: int) -> list[str]:
    """Leading sentences with that many characters in all; the last one may be cut."""
    return "\n".join(sentences)[:characters].split("\n") if characters and sentences else []


def of_tasks(pairs: Sequence[tuple[int, float]]) -> str:
    """The mean over tasks of each task's mean, with its interval."""
    means = by_task(pairs)
    return str(bootstrap(means)) if means else "none"


def by_task(pairs: Sequence[tuple[int, float]]) -> list[float]:
    """The mean of each task's measured values."""
    values: dict[int, list[float]] = {}
    for task, value in pairs:
        if not np.isnan(value):
            values.setdefault(task, []).append(value)
    return [float(np.mean(of)) for of in values.values()]


def share_above(played: Sequence[WriterTurn], values: Sequence[float], kind: str, other: str) -> str:
    """How often one kind of memory measures more than another at the same turn; ties count half."""
    places = {(one.task, one.number, one.kind): value for one, value in zip(played, values, strict=True)}
    pairs = []
    for one in played:
        first, second = (places.get((one.task, one.number, name), np.nan) for name in (kind, other))
        if one.kind == kind and one.evidence and not np.isnan([first, second]).any():
            pairs.append((one.task, float(first > second) + float(first == second) / 2))
    return of_tasks(pairs)


if __name__ == "__main__":
    main()
