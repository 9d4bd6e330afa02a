"""The options of `python -m memenvs.build`, one subcommand a source."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from memenvs.arguments import Parser
from memenvs.build.export import FORMS
from memenvs.build.index import INDEXES
from memenvs.build.niah import VARIANTS

_EPILOG = """\
examples:
  python -m memenvs.build hotpotqa --source hotpot_train_v1.1.json --documents 200 --out data/hotpot200
  python -m memenvs.build jsonl --source questions.jsonl --pool documents.jsonl --documents 50 --out data/mine
  python -m memenvs.build niah --variant multikey_1 --tokens 32768 --tasks 500 --out data/niah32k
  python -m memenvs.build world --entities 2000 --tasks 512 --documents 50 --out data/world
  python -m memenvs.build multi --source data/world --objectives 4 --out data/world4
  python -m memenvs.build sokoban --size 6 --boxes 1 --min-solution 5 --levels 10000 --out levels.npz
  python -m memenvs.build index --corpus corpus.jsonl.gz --encoder intfloat/e5-base-v2 --out data/index

The same inputs, arguments and seed give the same bytes, whatever the number of workers. An interrupted build
leaves what was there before; an interrupted index goes on where it stopped. Play what was built:
python -m memenvs.play MemChunkQA-v0 --env-args tasks=data/world
"""

_INDEX = "a search index over a corpus, for load_retriever and the server"

Add = Callable[[str, str, str], argparse.ArgumentParser]


def build_parser() -> argparse.ArgumentParser:
    """The parser; its errors are one line."""
    parser = Parser(
        prog="python -m memenvs.build",
        description="Build a task set (a folder of questions over documents), levels or an index.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    builders = parser.add_subparsers(dest="builder", required=True, metavar="SOURCE")

    def add(name: str, text: str, out: str) -> argparse.ArgumentParser:
        sub = builders.add_parser(name, help=text, description=text)
        sub.add_argument("--out", type=Path, required=True, help=out)
        sub.add_argument("--seed", type=int, default=0, help="decides every random choice (default 0)")
        sub.add_argument("--split", default="train", help="name of the split (default train)")
        sub.add_argument("--workers", type=int, default=1, help="processes (default 1)")
        return sub

    _add_task_sets(add)
    _add_levels(add)
    _add_index(builders.add_parser("index", help=_INDEX, description=_INDEX))
    return parser


def _add_task_sets(add: Add) -> None:
    def task_set(name: str, text: str, tasks: str) -> argparse.ArgumentParser:
        sub = add(name, text, "folder to write; an old task set is replaced")
        sub.add_argument("--tasks", type=int, help=f"number of tasks (default: {tasks})")
        sub.add_argument("--tokenizer", default="world", help="world, tokenizer.json, a folder or a hub id")
        sub.add_argument("--export", nargs="+", default=[], choices=FORMS, help="also write these forms")
        return sub

    for name, title in (("hotpotqa", "HotpotQA"), ("musique", "MuSiQue")):
        text = f"{title} questions, their evidence among distractors from the whole file"
        sub = task_set(name, text, "every question once")
        sub.add_argument("--source", required=True, help="the official file, or hf:NAME[:CONFIG]")
        _add_size(sub, "needed, or --tokens")
    sub = task_set("jsonl", "questions and documents of your own, as JSON Lines", "every question once")
    sub.add_argument(
        "--source",
        required=True,
        help="a line a question: question, answers, paragraphs of title and text, evidence (numbers of the "
        "paragraphs needed, from 0)",
    )
    sub.add_argument("--pool", help="more paragraphs to draw distractors from, a line each: title and text")
    _add_size(sub, "needed, or --tokens")
    sub = task_set("niah", "needles in a haystack: RULER's eight variants", "100")
    sub.add_argument("--variant", choices=VARIANTS, default="single_2", help="(default single_2)")
    sub.add_argument("--tokens", type=int, required=True, help="most tokens a task's text may have")
    sub.add_argument("--essays", type=Path, help="folder of *.txt as haystack (default: the bundled world)")
    sub = task_set("world", "multi-hop questions over an invented world, generated from the seed", "512")
    sub.add_argument("--entities", type=int, default=2000, help="people, places and works (default 2000)")
    sub.add_argument("--hops", type=int, nargs="+", default=[1, 2, 3, 4], help="hops of the questions")
    _add_size(sub, "default 50")
    sub = task_set("multi", "several questions of task sets asked at once", "as many as the sources have")
    sub.add_argument(
        "--source",
        nargs="+",
        required=True,
        help="task sets (folders or bundled names), or JSON Lines of questions and answers, to be searched",
    )
    sub.add_argument("--weights", nargs="+", type=float, help="of the sources (default: equal)")
    sub.add_argument("--objectives", type=int, required=True, help="questions a task, 2 to 16")


def _add_size(sub: argparse.ArgumentParser, default: str) -> None:
    size = sub.add_mutually_exclusive_group()
    size.add_argument("--documents", type=int, help=f"documents a task ({default})")
    size.add_argument("--tokens", type=int, help="instead: most tokens a task's text may have")


def _add_index(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--corpus", required=True, help='JSON Lines of {"id", "contents"} (.gz too), or a task set'
    )
    sub.add_argument(
        "--out", type=Path, required=True, help="folder; a killed build goes on where it stopped"
    )
    sub.add_argument("--index", choices=INDEXES, default="flat", help="(default flat, which is exact)")
    sub.add_argument("--encoder", help="of a dense index: a hub id or a folder (default intfloat/e5-base-v2)")
    sub.add_argument("--query-prefix", help="before every query (default: what the encoder wants)")
    sub.add_argument("--passage-prefix", help="before every passage (default: what the encoder wants)")
    sub.add_argument(
        "--max-tokens", type=int, default=256, help="tokens of a text that are read (default 256)"
    )
    sub.add_argument("--device", help="of torch (default: a GPU if there is one)")


def _add_levels(add: Add) -> None:
    sub = add("sokoban", "Sokoban levels, each with a shortest solution", "file to write: .npz, or text")
    sub.add_argument("--size", type=int, default=6, help="squares a side, walls included (default 6)")
    sub.add_argument("--boxes", type=int, default=1, help="boxes (default 1)")
    sub.add_argument("--min-solution", type=int, default=5, help="fewest moves of a solution (default 5)")
    sub.add_argument("--max-solution", type=int, help="most moves of a shortest solution (default: any)")
    sub.add_argument("--levels", type=int, default=1000, help="number of levels (default 1000)")
