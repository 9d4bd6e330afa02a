"""Tags in a reply: what stands between them, and where its thought ends, in time linear in the reply."""

from __future__ import annotations

from typing import NamedTuple

THOUGHTS = ("strip", "opened", "keep")


class Tagged(NamedTuple):
    """What stands between `<tag>` and `</tag>`.

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


def thought_end(reply: str, thoughts: str = "strip") -> int:
    """Where a reply goes on behind the thought that opens it, in characters; 0 where no thought does.

    The thought is a leading `<think>…</think>`, or all that stands before a `</think>` without a `<think>`
    before it (the chat template wrote that one), and the white space behind. A `<think>` that leads and is
    never closed was cut by the limit of the reply: then nothing is left, and the end is the reply's length.

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
