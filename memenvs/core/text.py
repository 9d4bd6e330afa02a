"""Prompt templates, tags in replies, and sentences."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

_KNOWN_TAGS = re.compile(
    r"<(/?\s*(?:think|search|answer|information|mem|reasoning|tool|result|tool_call|tool_response)\s*)>",
    re.IGNORECASE,
)

Thoughts = Literal["strip", "opened", "keep"]
"""What to do with the thought that opens a reply; see `thought_end`."""


class Template:
    r"""A text with placeholders such as `{question}`; every other brace is plain text (`\boxed{…}`).

    Args:
        text: the template.
        required: placeholders it must have.
        optional: placeholders it may have.
        name: what the template is called in errors.

    Raises:
        ValueError: a required placeholder is missing.

    >>> Template("Q: {question} {x}", required=["question"], name="read").fill(question="{question}?")
    'Q: {question}? {x}'
    """

    def __init__(
        self,
        text: str,
        *,
        required: Collection[str] = (),
        optional: Collection[str] = (),
        name: str = "template",
    ) -> None:
        for place in required:
            if f"{{{place}}}" not in text:
                raise ValueError(f"the {name!r} template has no placeholder {{{place}}}; add it")
        self.required, self.optional = tuple(required), tuple(optional)
        self._parts = re.split(r"\{(" + "|".join((*required, *optional)) + r")\}", text)

    def fill(self, until: str = "", /, **values: object) -> str:
        """The text with its placeholders filled; values without a placeholder are left out.

        Args:
            until: a placeholder of the text; stop before its first occurrence.
            **values: what fills each placeholder, by name.
        """
        parts = list(self._parts)
        if until:
            parts = parts[: 2 * parts[1::2].index(until) + 1]
        parts[1::2] = [str(values[place]) for place in parts[1::2]]
        return "".join(parts)


def replace_templates(
    templates: Mapping[str, Template], texts: Mapping[str, str] | None
) -> dict[str, Template]:
    """An environment's templates, with the texts that its argument `template` gives.

    Args:
        templates: the environment's own, by their names.
        texts: other texts for some of them, or None. Each must, and may, have the same placeholders as the
            environment's own.

    Raises:
        ValueError: an unknown name, or a text without a required placeholder.
    """
    replaced = dict(templates)
    for name, text in (texts or {}).items():
        if name not in templates:
            parts = " and ".join(map(repr, templates))
            raise ValueError(f"template has an unknown part {name!r}; it may have {parts}")
        old = templates[name]
        replaced[name] = Template(text, required=old.required, optional=old.optional, name=name)
    return replaced


class Tagged(NamedTuple):
    """The content between `<tag>` and `</tag>`.

    Attributes:
        text: the content, not stripped.
        start: where the opening tag begins, in characters.
        end: one past the closing tag.
    """

    text: str
    start: int
    end: int


def first_pair(reply: str, tag: str, start: int = 0) -> Tagged | None:
    """The first `<tag>` from `start` on, up to the first `</tag>` behind it; None without such a pair.

    >>> first_pair("<a>x</a><a>y</a>", "a")
    Tagged(text='x', start=0, end=8)
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    begin = reply.find(opening, start)
    end = reply.find(closing, begin + len(opening)) if begin >= 0 else -1
    if end < 0:
        return None
    return Tagged(reply[begin + len(opening) : end], begin, end + len(closing))


def in_order(reply: str, *tags: str) -> list[Tagged] | None:
    """The pairs of a reply that is nothing but one pair of each tag, in this order and with spaces between.

    >>> [pair.text for pair in in_order("<think>t</think> <answer>Up</answer>", "think", "answer")]
    ['t', 'Up']
    >>> in_order("well, <think>t</think><answer>Up</answer>", "think", "answer") is None
    True
    """
    pairs: list[Tagged] = []
    at = 0
    for tag in tags:
        pair = first_pair(reply, tag, at)
        if pair is None or reply[at : pair.start].strip():
            return None
        pairs.append(pair)
        at = pair.end
    return None if reply[at:].strip() else pairs


def escape_tags(text: str) -> str:
    """`text` with the tags that agents and environments use written in ‹ ›, so that none is one."""
    return _KNOWN_TAGS.sub("‹\\1›", text)


def holds_known_tag(text: str) -> bool:
    """Whether the text contains a tag that agents or environments use."""
    return _KNOWN_TAGS.search(text) is not None


def thought_end(reply: str, thoughts: Thoughts = "strip") -> int:
    """Where a reply resumes behind the thought that opens it, in characters; 0 where no thought does.

    The thought is a leading `<think>…</think>`, or all that comes before a `</think>` without a `<think>`
    before it (the chat template wrote that one), and the white space after it. A leading `<think>` that
    is never closed was cut by the limit of the reply: nothing is left, and the result is the reply's length.

    Args:
        reply: the reply.
        thoughts: `"strip"`; `"opened"`, where the chat template writes `<think>` before every reply, so that
            a reply without `</think>` is a thought that was cut; or `"keep"`, for which the answer is 0.

    >>> "<think>Ada?</think> She wrote it."[thought_end("<think>Ada?</think> She wrote it."):]
    'She wrote it.'
    >>> thought_end("Ada? </think>Ada"), thought_end("<think>Ada?"), thought_end("Ada <think>?</think>")
    (13, 11, 0)
    """
    if thoughts == "keep":
        return 0
    closing = reply.find("</think>")
    leads = thoughts == "opened" or reply.lstrip().startswith("<think>")
    if closing < 0:
        return len(reply) if leads else 0
    if not leads and "<think>" in reply[:closing]:
        return 0
    return len(reply) - len(reply[closing + len("</think>") :].lstrip())


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, none empty; a sentence ends at white space after `.`, `!` or `?`."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence]


def open_thought(reply: str) -> str:
    """`reply` behind the `<think>` of the chat template, where it closes a thought that it does not open.

    >>> open_thought("Ada? </think>Ada"), open_thought("Ada <think>?</think>")
    ('<think>Ada? </think>Ada', 'Ada <think>?</think>')
    """
    closing = reply.find("</think>")
    return f"<think>{reply}" if closing >= 0 and "<think>" not in reply[:closing] else reply
