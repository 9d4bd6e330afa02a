"""A grammar of hostile replies: tags, calls, boxes, numbers, half markup, broken text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
OPEN = ["<think>", "<answer>", "<search>", "<mem>", "<recall>", "<tool>", "<tool_call>"]
OPEN += ["\\boxed{", "\\boxed ", "ADD: ", "UPDATE 3: ", "<reasoning>"]
CLOSE = ["</think>", "</answer>", "</search>", "</mem>", "</recall>", "</tool>", "</tool_call>"]
CLOSE += ["}", "\n", "DELETE 1\n", "</reasoning>"]
WORDS = ["town", "1623", "Up", "Left || Down", "the", "é", "\u202e", "\0", "\ud800", "0", "-1", "{", "<"]
WORDS += ["&amp;", "\u017f", ";", "1. ", " | ", "\\frac", "\\sqrt", "\\text{ ", "```json\n", "Turn1: 0.5\n"]
WORDS += ["<|im_start|>user\n", "<|endoftext|>"]
MARKUP = ["</script><script>window.evil = 1</script>", "<img src=x onerror='window.evil = 2'>", "]]>", "\n{"]
MARKUP += ["<svg onload='window.evil = 3'>", "<a href='javascript:window.evil = 4'>x</a>", "</SCRIPT >", "\\"]
MARKUP += ["</textarea><style>*{display:none}</style>", "<iframe srcdoc='<script>parent.evil = 5</script>'>"]
MARKUP += [
    "');window.evil = 6;//",
    "\u2028window.evil = 7",
    "${window.evil = 8}",
    "\\u003cscript>",
]
MARKUP += ["<!--<script>", "__proto__", "%SCRIPT%", "<form><input>", "\x1b[2J", "\x1b]0;x\x07", "<b>" * 1000]
CALL = '<tool>{"name": "wiki_search", "args": {"query": "a town"}}</tool>'


class Grammar:
    """Makes replies, which a seed decides."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def reply(self) -> str:
        """A reply."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.1:
            return CALL
        parts: list[str] = []
        for _ in range(rng.integers(1, 12)):
            words = (self.pick(WORDS) for _ in range(rng.integers(0, 4)))
            parts += [self.pick(OPEN), *words, self.pick(CLOSE)]
        if kind < 0.3:
            parts = [parts[i] for i in rng.permutation(len(parts))]
        text = (" " if kind < 0.6 else "").join(parts)
        return text * int(rng.integers(1, 200)) if kind > 0.99 else text

    def markup(self) -> str:
        """A reply with markup that would run."""
        return "".join(self.pick([self.reply(), self.pick(MARKUP)]) for _ in range(3))
