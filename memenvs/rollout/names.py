"""Names of the policies that play without a model; nothing here loads an environment."""

from __future__ import annotations

POLICIES = {
    "gold": "Knows the answer, which the environment tells it. It reads until the evidence has been shown, "
    "searches or calls the tool for the question once, and then answers. In Sokoban it plays a shortest "
    "solution, which the board alone decides.",
    "silent": "Always replies with nothing.",
    "random_text": "Replies with random words of the observation, and random tags.",
    "lexical": "Keeps the sentences that share rare words with the question and answers from them; it plays "
    "chunked reading, searching and the one tool call.",
    "careful": "Knows which sentences are needed and notes them as it reads, with slips and distractors, or "
    "calls the tool for the question; it answers only what it has read. A teacher for chunked reading and "
    "the one tool call.",
}
"""What each policy of a text environment does, by its name."""

OTHER_POLICIES = ", module:function of your own, or a model: hf:MODEL, openai:URL --model NAME"
"""What else plays one: the end of an error about an unknown name."""

TEACHERS = frozenset({"gold", "careful"})
"""Policies that look up in their environment what only a trainer may see; tables of scores say so."""


def policy_label(name: str) -> str:
    """A policy's name as tables show it.

    >>> policy_label("gold")
    'gold (sees privileged information)'
    """
    return f"{name} (sees privileged information)" if name in TEACHERS else name
