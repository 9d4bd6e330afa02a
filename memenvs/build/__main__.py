"""The command line of the builders: `python -m memenvs.build SOURCE …` writes a task set, or levels."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memenvs.arguments import Parameter, one_line, shell_form
from memenvs.build import sokoban
from memenvs.build.draft import Draft
from memenvs.build.essays import read_prose
from memenvs.build.examples import among_distractors
from memenvs.build.export import FORMS
from memenvs.build.hotpotqa import read_hotpotqa
from memenvs.build.index import build_index
from memenvs.build.jsonl import read_jsonl, read_pool
from memenvs.build.multi import multi
from memenvs.build.musique import read_musique
from memenvs.build.niah import niah
from memenvs.build.parser import build_parser
from memenvs.build.replacing import check_replaceable
from memenvs.build.world import world
from memenvs.build.write import write_task_set
from memenvs.card import Card
from memenvs.data import bundled_names
from memenvs.files import naming, resolved
from memenvs.questions import open_questions
from memenvs.retrieval.encoder import Encoder
from memenvs.retrieval.load import task_set_corpus
from memenvs.tasks import open_tasks
from memenvs.tokens import TextTokenizer, check_positive, load_tokenizer


def main(argv: Sequence[str] | None = None) -> int:
    """Build what the first argument names; 0 if it is written, 2 and one line on standard error if not."""
    args = build_parser().parse_args(argv)
    started = time.perf_counter()
    try:
        with naming(args.out):
            said = _index(args) if args.builder == "index" else _drawn(args)
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"memenvs.build {args.builder}: error: {one_line(error)}\n")
        return 2
    except KeyboardInterrupt:
        kept = "what is done is kept" if args.builder == "index" else "nothing was changed"
        sys.stderr.write(f"memenvs.build: interrupted; {kept}\n")
        return 130
    sys.stdout.write(f"{said}\n({time.perf_counter() - started:.1f} s)\n")
    return 0


def _index(args: argparse.Namespace) -> str:
    check_positive("--max-tokens", args.max_tokens, "tokens")
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


def _drawn(args: argparse.Namespace) -> str:
    """What is drawn by a seed: a task set or levels."""
    if args.seed < 0:
        raise ValueError(f"--seed must be at least 0, got {args.seed}")
    check_positive("--workers", args.workers, "processes")
    return _levels(args) if args.builder == "sokoban" else _task_set(args)


def _play(env: str, **env_args: Any) -> str:
    """The command that plays what was built."""
    shown = (shell_form(Parameter(name, default=value)) for name, value in env_args.items())
    return f"python -m memenvs.play {env} --env-args {' '.join(shown)}"


def _levels(args: argparse.Namespace) -> str:
    made = sokoban.build(
        args.size,
        args.boxes,
        args.min_solution,
        args.max_solution,
        args.levels,
        args.split,
        args.seed,
        args.out,
        args.workers,
    )
    split = args.split if args.out.suffix == ".npz" else "all"  # text keeps no splits
    return (
        f"{args.levels:,} levels in {args.out} ({made['bytes'] / 1e6:.2f} MB): solutions of "
        f"{made['mean_solution']:.1f} moves on average, {made['longest_solution']} at most\n"
        f"play one: {_play('MemSokoban-v0', levels=str(args.out), level_split=split)}"
    )


def _task_set(args: argparse.Namespace) -> str:
    check_replaceable(args.out)  # before the work, and again when it is done
    tokenizer = load_tokenizer(args.tokenizer)
    if args.tasks is not None:
        check_positive("--tasks", args.tasks, "tasks")
    draft = _BUILDERS[args.builder](args, tokenizer)
    card = Card(args.builder, arguments=_arguments(args, tokenizer))
    written = write_task_set(args.out, draft, card, tokenizer, exports=args.export)
    counts, env_args = written.card.counts, {"tasks": str(args.out)}
    if not counts["documents"]:
        env_args["retriever"] = "lexical:CORPUS"
    size = sum(facts["bytes"] for facts in written.card.files.values()) / 1e6
    also = "".join(f"\nalso {form}.{FORMS[form][0]}" for form in args.export)
    return (
        f"{counts['tasks']:,} tasks over {counts['documents']:,} documents in {args.out} ({size:.1f} MB)\n"
        f"up to {counts['max_documents']:,} documents and {counts['max_tokens']:,} tokens a task{also}\n"
        f"play one: {_play(written.card.environment, **env_args)}"
    )


def _hotpotqa(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    return _among(args, tokenizer, read_hotpotqa)


def _musique(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    return _among(args, tokenizer, read_musique)


def _jsonl(args: argparse.Namespace, tokenizer: TextTokenizer) -> Draft:
    return _among(args, tokenizer, read_jsonl, args.pool)


def _among(
    args: argparse.Namespace,
    tokenizer: TextTokenizer,
    read: Callable[[str, str], Any],
    pool: str | None = None,
) -> Draft:
    sources = [args.source] if pool is None else [args.source, pool]
    inputs = tuple(Path(source) for source in sources if not source.startswith("hf:"))
    return among_distractors(
        read(args.source, args.split),
        extra=() if pool is None else read_pool(pool, args.split),
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
    sources = [open_questions(source) for source in args.source]
    return multi(
        sources,
        objectives=args.objectives,
        count=args.tasks,
        weights=args.weights,
        **_common(args, tokenizer),
    )


_BUILDERS = {
    "hotpotqa": _hotpotqa,
    "musique": _musique,
    "jsonl": _jsonl,
    "niah": _niah,
    "world": _world,
    "multi": _multi,
}


def _common(args: argparse.Namespace, tokenizer: TextTokenizer) -> dict[str, Any]:
    return {"tokenizer": tokenizer, "split": args.split, "seed": args.seed}


def _size(args: argparse.Namespace, default: int | None = None) -> dict[str, Any]:
    documents = default if args.documents is None and args.tokens is None else args.documents
    return {"documents": documents, "tokens": args.tokens}


def _arguments(args: argparse.Namespace, tokenizer: TextTokenizer) -> dict[str, Any]:
    """What decides the content: paths by their names, and nothing about this machine."""
    left_out = {"builder", "out", "workers", "export"}
    given = {key: value for key, value in vars(args).items() if key not in left_out}
    for key in {"source", "pool", "essays"} & set(given):
        if isinstance(given[key], list):
            given[key] = [resolved(path).name for path in given[key]]
        elif given[key] is not None and not str(given[key]).startswith("hf:"):
            given[key] = resolved(given[key]).name
    return {**given, "tokenizer": tokenizer.name}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half-written is removed
    raise SystemExit(main())
