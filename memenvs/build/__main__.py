"""The command line of the builders: `python -m memenvs.build SOURCE …` writes a task set."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from memenvs.build.essays import read_prose
from memenvs.build.examples import among_distractors
from memenvs.build.export import FORMS
from memenvs.build.hotpotqa import read_hotpotqa
from memenvs.build.multi import multi
from memenvs.build.musique import read_musique
from memenvs.build.niah import VARIANTS, niah
from memenvs.build.world import world
from memenvs.build.write import Draft, write_task_set
from memenvs.tasks import Card, TaskSet, open_tasks
from memenvs.tokens import TextTokenizer, check_positive, load_tokenizer

_EPILOG = """\
examples:
  python -m memenvs.build hotpotqa --source hotpot_train_v1.1.json --documents 200 --out data/hotpot200
  python -m memenvs.build niah --variant multikey_1 --tokens 32768 --tasks 500 --out data/niah32k
  python -m memenvs.build world --entities 2000 --tasks 512 --documents 50 --out data/world
  python -m memenvs.build multi --source data/world --objectives 4 --out data/world4

The same inputs, arguments and seed give the same bytes, whatever the number of workers. An interrupted build
leaves what was there before. Play what was built: python -m memenvs.play MemChunkQA-v0 --tasks data/world
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of usage and a line."""
        self.exit(2, f"{self.prog}: error: {message}; `{self.prog} --help` shows every option\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Build a task set; 0 if it is written, 2 and one line on standard error if it cannot be."""
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half-written is removed
    started = time.perf_counter()
    try:
        tokenizer = load_tokenizer(args.tokenizer)
        if args.tasks is not None:
            check_positive("--tasks", args.tasks, "tasks")
        if args.seed < 0:
            raise ValueError(f"--seed must be at least 0, got {args.seed}")
        draft = _BUILDERS[args.builder](args, tokenizer)
        card = Card(args.builder, arguments=_arguments(args))
        written = write_task_set(args.out, draft, card, tokenizer, exports=args.export)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"memenvs.build {args.builder}: error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("memenvs.build: interrupted; nothing was changed\n")
        return 130
    sys.stdout.write(_summary(written, args.out, args.export, time.perf_counter() - started))
    return 0


def _hotpotqa(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    return _among(args, tokenizer, read_hotpotqa)


def _musique(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    return _among(args, tokenizer, read_musique)


def _among(args: argparse.Namespace, tokenizer: TextTokenizer, read: Callable[[str, str], Any]) -> Draft:
    inputs = () if args.source.startswith("hf:") else (Path(args.source),)
    return among_distractors(
        read(args.source, args.split),
        **_size(args),
        **_common(args, tokenizer),
        count=args.tasks,
        workers=args.workers,
        inputs=inputs,
    )


def _niah(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    prose, inputs = _bundled_prose() if args.essays is None else read_prose(args.essays)
    return niah(
        variant=args.variant,
        count=args.tasks or 100,
        tokens=args.tokens,
        prose=prose,
        inputs=inputs,
        workers=args.workers,
        **_common(args, tokenizer),
    )


def _bundled_prose() -> tuple[list[str], tuple[Path, ...]]:
    bundle = open_tasks("world-train")
    return bundle.texts(range(bundle.n_documents)), ()


def _world(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    return world(
        entities=args.entities,
        count=args.tasks or 512,
        hops=args.hops,
        workers=args.workers,
        **_size(args, default=50),
        **_common(args, tokenizer),
    )


def _multi(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    source = open_tasks(args.source)
    return multi(source, objectives=args.objectives, count=args.tasks, **_common(args, tokenizer))


_BUILDERS = {"hotpotqa": _hotpotqa, "musique": _musique, "niah": _niah, "world": _world, "multi": _multi}


def _common(args: argparse.Namespace, tokenizer: TextTokenizer) -> dict[str, Any]:
    return {"tokenizer": tokenizer, "split": args.split, "seed": args.seed}


def _size(args: argparse.Namespace, default: int | None = None) -> dict[str, Any]:
    documents = default if args.documents is None and args.tokens is None else args.documents
    return {"documents": documents, "tokens": args.tokens}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m memenvs.build",
        description="Build a task set: a folder of questions over shared documents.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    builders = parser.add_subparsers(dest="builder", required=True, metavar="SOURCE")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        sub = builders.add_parser(name, help=text, description=text)
        sub.add_argument(
            "--out", type=Path, required=True, help="folder to write; an old task set is replaced"
        )
        sub.add_argument(
            "--tasks", type=int, help="number of tasks (default: every question once; 100 or 512)"
        )
        sub.add_argument("--seed", type=int, default=0, help="decides every random choice (default 0)")
        sub.add_argument(
            "--split", default="train", help="name of the split; each draws apart (default train)"
        )
        sub.add_argument("--workers", type=int, default=1, help="processes (default 1)")
        sub.add_argument("--tokenizer", default="world", help="world, tokenizer.json, a folder or a hub id")
        sub.add_argument("--export", nargs="+", default=[], choices=FORMS, help="also write these forms")
        return sub

    for name, title in (("hotpotqa", "HotpotQA"), ("musique", "MuSiQue")):
        sub = add(name, f"{title} questions, their evidence among distractors from the whole file")
        sub.add_argument("--source", required=True, help="the official file, or hf:NAME[:CONFIG]")
        _add_size(sub)
    sub = add("niah", "needles in a haystack: RULER's eight variants")
    sub.add_argument("--variant", choices=VARIANTS, default="single_2", help="(default single_2)")
    sub.add_argument("--tokens", type=int, required=True, help="most tokens a task's text may have")
    sub.add_argument("--essays", type=Path, help="folder of *.txt as haystack (default: the bundled world)")
    sub = add("world", "multi-hop questions over an invented world, generated from the seed")
    sub.add_argument("--entities", type=int, default=2000, help="people, places and works (default 2000)")
    sub.add_argument("--hops", type=int, nargs="+", default=[1, 2, 3, 4], help="hops of the questions")
    _add_size(sub)
    sub = add("multi", "several questions of a task set asked at once")
    sub.add_argument("--source", required=True, help="a task set: a folder or a bundled name")
    sub.add_argument("--objectives", type=int, required=True, help="questions a task, 2 to 16")
    return parser


def _add_size(sub: argparse.ArgumentParser) -> None:
    size = sub.add_mutually_exclusive_group()
    size.add_argument("--documents", type=int, help="documents a task")
    size.add_argument("--tokens", type=int, help="instead: most tokens a task's text may have")


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    """What decides the content: paths by their names, and nothing about this machine."""
    left_out = {"builder", "out", "workers", "export"}
    named = {
        key: Path(value).name if key in {"source", "essays"} and value and ":" not in str(value) else value
        for key, value in vars(args).items()
        if key not in left_out
    }
    return {**named, "tokenizer": Path(named["tokenizer"]).name}


def _summary(written: TaskSet, out: Path, exports: Sequence[str], seconds: float) -> str:
    counts = written.card.counts
    size = sum(facts["bytes"] for facts in written.card.files.values()) / 1e6
    also = "".join(f"\nalso {form}.{FORMS[form][0]}" for form in exports)
    return (
        f"{counts['tasks']:,} tasks over {counts['documents']:,} documents in {out} "
        f"({size:.1f} MB, {seconds:.1f} s)"
        f"\nup to {counts['max_documents']:,} documents and {counts['max_tokens']:,} tokens a task{also}"
        f"\nplay one: python -m memenvs.play MemChunkQA-v0 --tasks {out}\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
