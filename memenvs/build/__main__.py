"""The command line of the builders: `python -m memenvs.build SOURCE …` writes a task set, or levels."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from memenvs.build.draft import Draft
from memenvs.build.index import INDEXES, build_index
from memenvs.build.niah import VARIANTS
from memenvs.build.ruler import FILES, RULER
from memenvs.build.sources import BENCHMARKS, SOURCES
from memenvs.build.stories import KINDS
from memenvs.build.worldgen import OPERATIONS
from memenvs.build.write import FORMS, check_replaceable, write_task_set
from memenvs.cli import Parameter, Parser, reader_may_stop, report_error, shell_form
from memenvs.core.checks import Range, check_whole
from memenvs.core.files import path_in_errors, resolved
from memenvs.data import bundled_names
from memenvs.retrieval.encoder import Encoder
from memenvs.retrieval.load import task_set_corpus
from memenvs.sokoban import Generator
from memenvs.tasks.metrics import METRICS
from memenvs.tasks.taskset import CARD, Card, open_tasks
from memenvs.tasks.tokens import GENERAL, TextTokenizer, load_tokenizer

_EPILOG = """\
examples:
  python -m memenvs.build hotpotqa --source hotpot_train_v1.1.json --documents 200 --out data/hotpot200
  python -m memenvs.build memagent --source eval_200.json --out data/eval200
  python -m memenvs.build jsonl --source questions.jsonl --pool documents.jsonl --documents 50 --out data/mine
  python -m memenvs.build niah --variant multikey_1 --tokens 32768 --num-tasks 500 --out data/niah32k
  python -m memenvs.build ruler --kind vt cwe fwe --tokens 32768 --num-tasks 500 --out data/ruler32k
  python -m memenvs.build world --entities 2000 --num-tasks 512 --documents 50 --out data/world
  python -m memenvs.build aggregate --tokens 1000000 --num-tasks 100 --out data/aggregate1M
  python -m memenvs.build mrcr_world --needles 4 --tokens 64000 --out data/mrcr64k
  python -m memenvs.build babi_world --kind qa1 qa2 qa3 --tokens 64000 --out data/babi64k
  python -m memenvs.build multi --source data/world --objectives 4 --out data/world4
  python -m memenvs.build mix --source data/world data/aggregate1M --weights 3 1 --out data/mixed
  python -m memenvs.build sokoban --size 6 --boxes 1 --min-solution 5 --levels 10000 --out levels.npz
  python -m memenvs.build index --corpus corpus.jsonl.gz --encoder intfloat/e5-base-v2 --out data/index

The same inputs, arguments and seed give the same bytes, whatever the number of workers. An interrupted build
leaves what was there before; an interrupted index resumes where it stopped. Play what was built:
python -m memenvs.play MemChunkQA-v0 --env-args tasks=data/world
"""

_SETS = "task sets (folders or bundled names), or JSON Lines of questions and answers"
_WEIGHTS = "of the sources (default: equal)"
_INDEX = "a search index over a corpus, for load_retriever and the server"

_TOKENIZER = (
    "counts the tokens: general (within 5%% of Qwen's on real prose), world (for toy models), a "
    "tokenizer.json, a folder or a hub id (default general)"
)

Add = Callable[..., argparse.ArgumentParser]


def build_parser() -> argparse.ArgumentParser:
    """The parser; its errors are one line."""
    parser = Parser(
        prog="python -m memenvs.build",
        description="Build a task set (a folder of questions over documents), levels or an index.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    builders = parser.add_subparsers(dest="builder", required=True, metavar="SOURCE", help="see below")

    def add(name: str, text: str, out: str, drawn: bool = True) -> argparse.ArgumentParser:
        sub = builders.add_parser(name, description=text)
        sub.add_argument("--out", type=Path, required=True, help=out)
        sub.set_defaults(seed=0, split="train", workers=1)
        if not drawn:
            return sub
        sub.add_argument("--seed", type=int, default=0, help="decides every random choice (default 0)")
        sub.add_argument("--split", default="train", help="name of the split (default train)")
        sub.add_argument("--workers", type=int, default=1, help="processes (default 1)")
        return sub

    _add_task_sets(add)
    _add_levels(add)
    _add_index(builders.add_parser("index", description=_INDEX).add_argument)
    benchmarks = {name: source.title for name, source in BENCHMARKS.items()}
    others = {name: sub.description for name, sub in builders.choices.items() if name not in BENCHMARKS}
    parser.epilog = "\n".join(
        [
            "benchmarks, read from their files:",
            *_rows(benchmarks),
            "\nother sources:",
            *_rows(others),
            f"\n{_EPILOG}",
        ]
    )
    return parser


def _rows(texts: Mapping[str, str | None]) -> list[str]:
    return [f"  {name:17} {text}" for name, text in texts.items()]


def _add_task_sets(add: Add) -> None:
    def task_set(name: str, text: str, tasks: str, drawn: bool = True) -> argparse.ArgumentParser:
        sub = add(name, text, "folder to write; an old task set is replaced", drawn)
        sub.add_argument("--num-tasks", type=int, help=f"number of tasks (default: {tasks})")
        sub.add_argument("--tokenizer", default=GENERAL, help=_TOKENIZER)
        sub.add_argument("--export", nargs="+", default=[], choices=FORMS, help="also write these forms")
        return sub

    def add_questions(sub: argparse.ArgumentParser) -> None:
        text = "asked of one context in a task, at most (default 1)"
        sub.add_argument("--questions", type=int, default=1, help=text)

    for name, source in BENCHMARKS.items():
        options = source.options
        sub = task_set(name, source.title, "every question once", "seed" in options)
        sub.add_argument("--source", required=True, help=options["source"].help)
        if "seed" in options:
            _add_size(sub, "needed, or --tokens")
        else:
            sub.add_argument("--split", default="train", help="of an hf: data set (default train)")
            add_questions(sub)
        for name in {"category", "subset", "canary"} & set(options):
            sub.add_argument(f"--{name}", help=options[name].help)
    sub = task_set("jsonl", "questions and documents of your own, as JSON Lines", "every question once")
    sub.add_argument(
        "--source",
        required=True,
        help="a line a question: question, answers, documents of title and text, evidence (numbers of those "
        "needed, from 0)",
    )
    sub.add_argument("--pool", help="more paragraphs to draw distractors from, a line each: title and text")
    sub.add_argument("--corpus", help="documents that the questions name by id, a line each: id and contents")
    _add_size(sub, "default: those of the question, as they are")
    add_questions(sub)
    sub = task_set("niah", "needles in a haystack: RULER's eight variants", "100")
    sub.add_argument("--variant", choices=VARIANTS, default="single_2", help="(default single_2)")
    sub.add_argument("--tokens", type=int, required=True, help="most tokens a task's text may have")
    sub.add_argument("--essays", type=Path, help="folder of *.txt as haystack (default: the bundled world)")
    sub = task_set(
        "ruler", "RULER's thirteen tasks by its names", "100, of qa_1 and qa_2 every question once"
    )
    sub.add_argument(
        "--kind",
        nargs="+",
        choices=RULER,
        required=True,
        help="RULER's name of the task; several go to OUT/KIND each",
    )
    sub.add_argument("--tokens", type=int, required=True, help="most tokens a task's text may have")
    sub.add_argument("--source", help="the official file: for qa_1 SQuAD's, for qa_2 HotpotQA's")
    sub.add_argument("--essays", type=Path, help="folder of *.txt for niah_… (default: the bundled world)")
    sub.add_argument("--chains", type=int, default=1, help="of vt (default 1)")
    sub.add_argument("--hops", type=int, default=4, help="of vt: assignments behind the first (default 4)")
    sub = task_set("world", "multi-hop questions over an invented world, generated from the seed", "512")
    sub.add_argument("--entities", type=int, default=2000, help="people, places and works (default 2000)")
    sub.add_argument("--hops", type=int, nargs="+", default=[1, 2, 3, 4], help="hops of the questions")
    _add_size(sub, "default 50")
    sub = task_set("aggregate", "counts, extremes, sums over a whole invented world, as CorpusQA's", "100")
    sub.add_argument("--ask", nargs="+", choices=OPERATIONS, default=[*OPERATIONS], help="(default: all)")
    sub.add_argument("--entities", type=int, help="documents of the world (default: as many as a task reads)")
    _add_size(sub, "needed, or --tokens")
    sub = task_set("mrcr_world", "which of several equal requests was answered how, as in MRCR", "100")
    sub.add_argument("--needles", type=int, default=4, help="equal requests, 2 to 8 (default 4)")
    sub.add_argument("--tokens", type=int, required=True, help="most tokens a task's text may have")
    sub.add_argument("--essays", type=Path, help="folder of *.txt for replies (default: the bundled world)")
    sub = task_set("babi_world", "where people and things are, as in bAbI, in a long text", "100")
    text = SOURCES["babi_world"].options["kind"].help
    sub.add_argument("--kind", nargs="+", choices=KINDS, default=[*KINDS], help=text)
    sub.add_argument("--events", type=int, default=16, help="events of a story, 4 or more (default 16)")
    sub.add_argument("--tokens", type=int, required=True, help="most tokens a task's text may have")
    sub.add_argument("--essays", type=Path, help="folder of *.txt as haystack (default: the bundled world)")
    sub = task_set("multi", "several questions of task sets asked at once", "as many as the sources have")
    sub.add_argument("--source", nargs="+", required=True, help=f"{_SETS}, to be searched")
    sub.add_argument("--weights", nargs="+", type=float, help=_WEIGHTS)
    sub.add_argument("--objectives", type=int, required=True, help="questions a task, 2 to 16")
    text = "tasks of one question each beside them (default 0)"
    sub.add_argument("--singles", type=int, default=0, metavar="N", help=text)

    sub = task_set("mix", "tasks of several sets as one, by weights", "as many as the sources have")
    sub.add_argument("--source", nargs="+", required=True, help=_SETS)
    sub.add_argument("--weights", nargs="+", type=float, help=_WEIGHTS)
    sub.add_argument("--metric", choices=METRICS, help="of the mixture (default: that of all its sources)")


def _add_size(sub: argparse.ArgumentParser, default: str) -> None:
    size = sub.add_mutually_exclusive_group()
    size.add_argument("--documents", type=int, help=f"documents a task ({default})")
    size.add_argument("--tokens", type=int, help="instead: most tokens a task's text may have")


def _add_index(add: Callable[..., object]) -> None:
    add("--corpus", required=True, help='JSON Lines of {"id", "contents"} (.gz too), or a task set')
    add("--out", type=Path, required=True, help="folder; a killed build goes on where it stopped")
    add("--index", choices=INDEXES, default="flat", help="(default flat, which is exact)")
    add("--encoder", help="of a dense index: a hub id or a folder (default intfloat/e5-base-v2)")
    add("--query-prefix", help="before every query (default: what the encoder wants)")
    add("--passage-prefix", help="before every passage (default: what the encoder wants)")
    add("--max-tokens", type=int, default=256, help="tokens of a text that are read (default 256)")
    add("--device", help="of torch (default: a GPU if there is one)")


def _add_levels(add: Add) -> None:
    sub = add("sokoban", "Sokoban levels, each with a shortest solution", "file to write: .npz, or text")
    sub.add_argument("--size", type=int, default=6, help="squares a side, walls included (default 6)")
    sub.add_argument("--boxes", type=int, default=1, help="boxes (default 1)")
    sub.add_argument("--min-solution", type=int, default=5, help="fewest moves of a solution (default 5)")
    sub.add_argument("--max-solution", type=int, help="most moves of a shortest solution (default: any)")
    sub.add_argument("--levels", type=int, default=1000, help="number of levels (default 1000)")


def main(argv: Sequence[str] | None = None) -> int:
    """Build what the first argument names; 0 if it is written, 2 and one line on standard error if not."""
    with reader_may_stop():
        args = build_parser().parse_args(argv)
    started = time.perf_counter()
    try:
        with path_in_errors(args.out):
            if args.builder != "index":
                check_whole(Range(0), **{"--seed": args.seed})
                check_whole(**{"--workers": args.workers})
            others = {"index": _index, "sokoban": _levels, "ruler": _ruler}
            summary = others.get(args.builder, _task_set)(args)
    except (ValueError, OSError, ImportError) as error:
        return report_error(f"memenvs build {args.builder}", error)
    except KeyboardInterrupt:
        kept = "what is done is kept" if args.builder == "index" else "nothing was changed"
        sys.stderr.write(f"memenvs build: interrupted; {kept}\n")
        return 130
    sys.stdout.write(f"{summary}\n({time.perf_counter() - started:.1f} s)\n")
    return 0


def _index(args: argparse.Namespace) -> str:
    check_whole(**{"--max-tokens": args.max_tokens})
    a_set = Path(args.corpus).is_dir() or args.corpus in bundled_names()
    if not a_set and not Path(args.corpus).is_file():
        raise FileNotFoundError(f"no corpus at {args.corpus}; give JSON Lines or a task set")
    corpus = task_set_corpus(open_tasks(args.corpus)) if a_set else args.corpus
    encoder = None
    if args.index != "lexical":
        model = {"model": args.encoder} if args.encoder else {}
        prefixes = {"query_prefix": args.query_prefix, "passage_prefix": args.passage_prefix}
        encoder = Encoder(**model, **prefixes, max_tokens=args.max_tokens, device=args.device)
    lines: list[str] = []
    card = build_index(corpus, args.out, args.index, encoder, say=lines.append)
    kind = "lexical" if card.kind == "lexical" else "dense"
    return "\n".join([*lines, f"search it: retriever='{kind}:{args.out}'"])


def _play(env: str, **env_args: Any) -> str:
    """The command that plays what was built."""
    given = (shell_form(Parameter(name, default=value)) for name, value in env_args.items())
    return f"python -m memenvs.play {env} --env-args {' '.join(given)}"


def _levels(args: argparse.Namespace) -> str:
    size = (args.size, args.size)
    generator = Generator(size, args.boxes, args.min_solution, args.max_solution, args.seed)
    made = generator.levels({args.split: args.levels}, args.workers)
    made.save(args.out)
    split = args.split if args.out.suffix == ".npz" else "all"  # text keeps no splits
    return (
        f"{len(made):,} levels in {args.out} ({args.out.stat().st_size / 1e6:.2f} MB): solutions of "
        f"{made.lengths.mean():.1f} moves on average, {made.lengths.max()} at most\n"
        f"play one: {_play('MemSokoban-v0', levels=str(args.out), level_split=split)}"
    )


def _ruler(args: argparse.Namespace) -> str:
    """A task set for each task; of several in folders of `--out` by their names."""
    names = list(dict.fromkeys(args.kind))
    if len(asking := [name for name in names if name in FILES]) > 1:
        raise ValueError(f"--kind {' '.join(asking)} read different files; build them one by one")
    if args.source is not None and not asking:
        raise ValueError(f"--kind {' '.join(names)} reads no file; leave --source {args.source} out")
    if len(names) > 1 and (args.out / CARD).is_file():
        raise ValueError(f"{args.out} is a task set; choose another --out for a folder of {len(names)}")
    made = []
    for name in names:
        own = {"kind": name, "out": args.out / name if len(names) > 1 else args.out}
        own["source"] = args.source if name in FILES else None
        made.append(argparse.Namespace(**{**vars(args), **own}))
    for one in made:
        check_replaceable(one.out)
    return "\n".join(map(_task_set, made))


def _task_set(args: argparse.Namespace) -> str:
    check_replaceable(args.out)  # before the work, and again when it is done
    tokenizer = load_tokenizer(args.tokenizer)
    draft = _draft(args, tokenizer)
    source = SOURCES[args.builder]
    arguments = _arguments(args, tokenizer)
    card = Card(args.builder, arguments=arguments, licence=source.licence, citation=source.citation)
    written = write_task_set(args.out, draft, card, tokenizer, exports=args.export)
    counts, env_args = written.card.counts, {"tasks": str(args.out)}
    if not counts["documents"]:
        env_args["retriever"] = "lexical:CORPUS"
    if tokenizer.name != args.tokenizer:  # a path, which the card does not keep
        env_args["tokenizer"] = args.tokenizer
    size = sum(facts["bytes"] for facts in written.card.files.values()) / 1e6
    also = "".join(f"\nalso {form}.{FORMS[form][0]}" for form in args.export)
    left_out = counts.get("left_out", 0)
    said = f"; {left_out:,} questions left out whose answer cannot be scored" if left_out else ""
    return (
        f"{counts['tasks']:,} tasks over {counts['documents']:,} documents in {args.out} "
        f"({size:.1f} MB){said}\n"
        f"{_lengths(counts, tokenizer)}{also}\n"
        f"play one: {_play(written.card.environment, **env_args)}"
    )


def _lengths(counts: dict[str, int], tokenizer: TextTokenizer) -> str:
    """How long the tasks of a set are, and what counted them."""
    most, tokens = counts["max_documents"], counts["mean_tokens"]
    if not most:
        return "questions without documents"
    return (
        f"up to {most:,} documents a task; {tokens:,} tokens a task by {tokenizer.name!r}, at most "
        f"{counts['max_tokens']:,}; {counts['mean_chars'] / tokens:.2f} characters a token"
    )


def _draft(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    """The task set of the named source, not written yet."""
    source, given = SOURCES[args.builder], vars(args)
    return source.draft(tokenizer, **{n: given[n] for n in source.options if given.get(n) is not None})


def _arguments(args: argparse.Namespace, tokenizer: TextTokenizer) -> dict[str, Any]:
    """What decides the content: paths by their names, and nothing about this machine."""
    left_out = {"builder", "out", "workers", "export"}
    given = {key: value for key, value in vars(args).items() if key not in left_out}
    for key in {"source", "pool", "corpus", "essays"} & set(given):
        if isinstance(given[key], list):
            given[key] = [resolved(path).name for path in given[key]]
        elif given[key] is not None and not str(given[key]).startswith("hf:"):
            given[key] = resolved(given[key]).name
    return {**given, "tokenizer": tokenizer.name}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half-written is removed
    raise SystemExit(main())
