"""A reply comes in; what stands between its tags goes out, in time linear in the reply."""

from __future__ import annotations

from typing import NamedTuple


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
