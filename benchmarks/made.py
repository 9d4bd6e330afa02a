"""How much faster task sets are built than by tokenising each whole text, generated or read from files.

    python -m benchmarks.made [--tokens 131072] [--count 200] [--plain 2] [--sources vt cwe fwe]

"Ours" is a whole builder. "Plain" joins the texts of some of its tasks and tokenises each once; a search for
the number of documents by tokenising would do so several times. Both run in this process with one tokenizer.

Benchmarks from files are read from files in their format, which are written here from the bundled world's
prose and not timed. The ratio depends on how many texts share a document, so that number is printed. The
contexts of LongBench and MRCR are all different; those of MemAgent and LongMemEval draw on one pool; a
conversation of LoCoMo has 200 questions, a context of MemoryAgentBench 100. FlashRAG's questions have no
texts.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import peak, print_head, print_row, run
from memenvs.build.draft import Draft
from memenvs.build.sources import SOURCES
from memenvs.tasks.taskset import Task, open_tasks
from memenvs.tasks.tokens import load_tokenizer

PROSE = open_tasks("world-train").texts(range(open_tasks("world-train").n_documents))


MADE: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("ruler", {"kind": [name]}) for name in ("vt", "cwe", "fwe")},
    "aggregate": ("aggregate", {}),
    "mrcr_world": ("mrcr_world", {"needles": 4}),
}
"""By name: the source and its options."""

Pool = Callable[[], list[str]]
"""Gives new documents for a text."""


def memagent(count: int, pool: Pool) -> list[dict[str, Any]]:
    """Records like eval_200.json."""
    drawn = [pool() for _ in range(count)]
    return [
        {
            "context": "\n\n".join(f"Document {i}:\n{text}" for i, text in enumerate(texts, 1)),
            **{"input": f"question {number}?", "answers": ["Ann"], "num_docs": len(texts), "index": number},
        }
        for number, texts in enumerate(drawn)
    ]


def longbench(count: int, pool: Pool) -> list[dict[str, Any]]:
    """Records like 2wikimqa.jsonl; no two passages are equal."""
    return [
        {
            "context": "\n\n".join(f"Passage {i}:\n{number}.{i} {text}" for i, text in enumerate(pool(), 1)),
            **{"input": f"question {number}?", "answers": ["Ann"], "dataset": "2wikimqa", "_id": str(number)},
            **{"length": 0, "language": "en", "all_classes": None},
        }
        for number in range(count)
    ]


def longmemeval(count: int, pool: Pool) -> list[dict[str, Any]]:
    """Records like longmemeval_s_cleaned.json, two messages a session."""

    def record(number: int) -> dict[str, Any]:
        sessions = [
            [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}] for text in pool()
        ]
        names = [f"session_{number}_{i}" for i in range(len(sessions))]
        return {
            **{"question_id": str(number), "question_type": "multi-session", "question": "Who?"},
            **{"question_date": "2023/05/30 (Tue) 23:40", "answer": "Ann", "answer_session_ids": names[:1]},
            "haystack_dates": ["2023/05/20 (Sat) 02:21"] * len(sessions),
            **{"haystack_session_ids": names, "haystack_sessions": sessions},
        }

    return list(map(record, range(count)))


def mrcr(count: int, pool: Pool) -> list[dict[str, Any]]:
    """Records like 4needle.parquet; no two replies are equal."""
    found = []
    for number in range(count):
        messages = []
        for i, text in enumerate(pool()):
            messages.append({"role": "user", "content": f"write a text about {i % 40}"})
            messages.append({"role": "assistant", "content": f"{number}.{i} {text}"})
        asked = {"role": "user", "content": "Prepend aYooSG8CQg to the 1st (1 indexed) text about 0?"}
        record = {
            "prompt": json.dumps([*messages, asked]),
            "answer": "aYooSG8CQg" + messages[1]["content"],
            **{"random_string_to_prepend": "aYooSG8CQg", "n_needles": 4, "desired_msg_index": 1},
            **{"total_messages": len(messages) + 1, "n_chars": 0, "date_added": "04-12-2025"},
        }
        found.append(record)
    return found


def locomo(count: int, pool: Pool) -> list[dict[str, Any]]:
    """Records like locomo10.json, 200 questions a conversation, twenty turns a session."""
    found = []
    for number in range(-(-count // 200)):
        talk: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Bob"}
        texts = pool()
        for session, start in enumerate(range(0, len(texts), 20), 1):
            talk[f"session_{session}_date_time"] = "1:56 pm on 8 May, 2023"
            talk[f"session_{session}"] = [
                {"speaker": "Ann", "dia_id": f"D{session}:{turn}", "text": text}
                for turn, text in enumerate(texts[start : start + 20], 1)
            ]
        asked = [
            {"question": f"question {i}?", "answer": "Ann", "evidence": ["D1:1"], "category": 4}
            for i in range(200)
        ]
        found.append({"sample_id": f"conv-{number}", "conversation": talk, "qa": asked})
    return found


def memoryagentbench(count: int, pool: Pool) -> list[dict[str, Any]]:
    """Records like Accurate_Retrieval.parquet, 100 questions a context."""
    return [
        {
            "context": "\n\n".join(f"Document {i}:\n{text}" for i, text in enumerate(pool(), 1)),
            "questions": [f"question {number}.{i}?" for i in range(100)],
            "answers": [["Ann"]] * 100,
            "metadata": {
                "source": "ruler_qa1_197K",
                "qa_pair_ids": [f"ruler_qa1_197K_{number}_{i}" for i in range(100)],
            },
        }
        for number in range(-(-count // 100))
    ]


FILES = {
    "memagent": (memagent, ".json"),
    "longbench": (longbench, ".jsonl"),
    "longmemeval": (longmemeval, ".json"),
    "mrcr": (mrcr, ".parquet"),
    "locomo": (locomo, ".json"),
    "memoryagentbench": (memoryagentbench, ".parquet"),
}
"""By source: the function that makes a file's records, and the file's suffix."""


def write_file(folder: Path, name: str, count: int, tokens: int) -> Path:
    """Write a benchmark's file with this many questions, over texts of about this many tokens."""
    records, suffix = FILES[name]
    rng, sizes = np.random.default_rng(0), np.array(load_tokenizer().counts(PROSE))
    size = int(tokens / sizes.mean())
    made = records(count, lambda: [PROSE[i] for i in rng.choice(len(PROSE), size)])
    path = folder / f"{name}{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(made), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in made), encoding="utf-8")
    else:
        path.write_text(json.dumps(made), encoding="utf-8")
    return path


def whole(draft: Draft, task: Task) -> str:
    """The text of a task."""
    header, documents = draft.layout.header, draft.documents
    bodies = (
        f"{documents.titles[i]}\n{documents.texts[i]}" if documents.titles[i] else documents.texts[i]
        for i in task.documents
    )
    shown = (header.replace("{i}", str(number)) + body for number, body in enumerate(bodies, 1))
    return draft.layout.separator.join(shown)


def main(
    tokens: int = 131_072, count: int = 200, plain: int = 2, sources: tuple[str, ...] = (*MADE, *FILES)
) -> None:
    """Measure every source and print the table."""
    tokenizer = load_tokenizer()
    tokenizer.count("warm")
    print_head("source", "tasks", "read/stored", "seconds", "plain, M/s", "ours, M/s", "ratio")
    for name in sources:
        source, options = MADE.get(name, (name, {}))
        options = {**options, "num_tasks": count}
        with tempfile.TemporaryDirectory() as folder:
            if name in MADE:
                options["tokens"] = tokens
            else:
                options["source"] = str(write_file(Path(folder), name, count, tokens))
            start = time.process_time()
            (draft,) = SOURCES[source].drafts(SOURCES[source].options(**options), tokenizer)
            seconds = time.process_time() - start
        texts = [whole(draft, task) for task in draft.tasks[:plain]]
        start = time.process_time()
        counted = sum(tokenizer.count(text) for text in texts)
        whole_rate = counted / (time.process_time() - start) / 1e6
        ours = counted / len(texts) * len(draft.tasks) / seconds / 1e6
        shared = sum(len(task.documents) for task in draft.tasks) / len(draft.documents.titles)
        cells = [
            f"{shared:.1f}",
            f"{seconds:.1f}",
            f"{whole_rate:.2f}",
            f"{ours:.1f}",
            f"{ours / whole_rate:.1f}",
        ]
        print_row(name, len(draft.tasks), *cells)
    print(f"at most {peak():.2f} GiB of memory")


if __name__ == "__main__":
    run(main)
