"""Contexts that no longer support an answer, written by a model at an endpoint (InfoMem, appendix B.2).

python -m research.false_contexts --source train-v2.0.json --url URL --model MODEL --out contexts.jsonl
python -m research.discriminate --contexts contexts.jsonl --answered-by hf:MODEL --measure hf:MODEL
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from memenvs.build.contexts import Example
from memenvs.build.ruler import read_squad
from memenvs.core.errors import ServerError
from memenvs.core.files import write_text
from memenvs.core.progress import progress
from memenvs.core.text import Template, replace_templates
from memenvs.envs.passages import holds_answer
from memenvs.wrappers import Judge
from memenvs.wrappers.method import Score

PROMPT = Template(
    """\
Write two false versions of a passage for a test of reading. Each is about the same subject, as long as the \
passage and in its style, and keeps most of what it says; but the facts that the answer rests on are \
changed, so that it supports another answer or none. It does not contain the right answer, and nothing in it \
says that it is false.

Question: {question}

Right answer: {reference}

Passage:
{context}

Reply with one JSON object and nothing else:
{"hallucinated_context_1": "…", "hallucinated_context_2": "…"}
""",
    required=("question", "reference", "context"),
)
"""In our words, with the names of the paper's reply."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write a file for `research.discriminate --contexts`; on an error return 2 and print one line."""
    parser = argparse.ArgumentParser(prog="python -m research.false_contexts", description=__doc__)
    parser.add_argument("--source", required=True, help="SQuAD's own file")
    parser.add_argument("--url", required=True, help="address of an OpenAI-compatible endpoint")
    parser.add_argument("--model", required=True, help="the model's name there")
    parser.add_argument(
        "--out", required=True, type=Path, help="file to write; OUT.replies keeps the replies"
    )
    parser.add_argument("--questions", type=int, default=500, help="questions to ask about (default 500)")
    parser.add_argument("--template", help="file with another prompt (docs/prompts.md)")
    parser.add_argument("--key-variable", help="environment variable with the endpoint's key")
    parser.add_argument("--max-tokens", type=int, default=4096, help="most tokens of a reply (default 4096)")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at a time (default 8)")
    args = parser.parse_args(argv)
    try:
        lines, failures = written(args)
        write_text(args.out, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"{parser.prog}: error: {' '.join(str(error).split())}\n")
        return 2
    left_out = "".join(f", {count} left out: {reason}" for reason, count in failures.items())
    sys.stdout.write(f"{len(lines)} questions with two false contexts in {args.out}{left_out}\n")
    return 0


def written(args: argparse.Namespace) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The records of the questions that the model wrote contexts for, and why it did not for the others."""
    if args.questions < 1:
        raise ValueError(f"--questions must be at least 1, got {args.questions}")
    templates, _ = replace_templates({"ask": PROMPT}, args.template)
    examples = [example for example in read_squad(args.source, "train").examples if example.answers]
    writer = Judge(
        args.url,
        args.model,
        level="outcome",
        rubric="equivalence",
        max_tokens=args.max_tokens,
        concurrency=args.concurrency,
        cache=f"{args.out}.replies",
        key_variable=args.key_variable,
    )

    def write(example: Example) -> tuple[dict[str, Any] | None, str]:
        answers, (_, context) = example.answers, example.paragraphs[example.evidence[0]]
        record: dict[str, Any] = {"question": example.question, "answer": answers[0], "context": context}

        def read(reply: str) -> list[Score]:
            texts, reason = read_pair(reply, context, answers)
            record["corrupted"] = texts
            return [(math.nan, reason) if reason else (1.0, "")]

        values = {"question": example.question, "reference": answers[0], "context": context}
        try:
            ((_, reason),) = writer.ask(templates["ask"].fill(**values), read)
        except ServerError as error:
            return None, f"endpoint: {error}"
        return (None, reason) if reason else (record, "")

    chosen = examples[: args.questions]
    with ThreadPoolExecutor(args.concurrency) as pool:
        results = list(progress(pool.map(write, chosen), len(chosen), "questions"))
    failures = Counter(reason for _, reason in results if reason)
    return [record for record, _ in results if record is not None], failures


def read_pair(reply: str, context: str, answers: Sequence[str]) -> tuple[list[str], str]:
    """The two contexts in a reply, with prose around them or not; or why they cannot be used.

    >>> reply = '{"hallucinated_context_1": "In Rome.", "hallucinated_context_2": "Far off."}'
    >>> read_pair(reply, "In Bonn.", ["Bonn"])
    (['In Rome.', 'Far off.'], '')
    """
    start, end = reply.find("{"), reply.rfind("}")
    try:
        pair = json.loads(reply[start : end + 1])
        texts = [pair[f"hallucinated_context_{number}"].strip() for number in (1, 2)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [], "no object with two contexts"
    if not all(texts) or len({*texts, context}) < 3:
        return [], "a context is empty, or equal to another"
    if any(holds_answer(texts, [answers])[1]):
        return [], "a context holds the right answer"
    return texts, ""


if __name__ == "__main__":
    sys.exit(main())
