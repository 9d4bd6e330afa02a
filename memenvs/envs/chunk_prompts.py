"""The wording of chunked reading, our own; `ChunkQAEnv(template=…)` takes another."""

from __future__ import annotations

from memenvs.prompts import Template

READ = """\
You are reading a long text section by section, to answer a question when you have read it all. Only what \
you write into your memory is carried from one section to the next.

<question>
{question}
</question>

<memory>
{memory}
</memory>

<section>
{chunk}
</section>

This was section {turn} of {turns}. Write the memory anew: keep what may still help with the question, add \
what this section tells about it, and leave the rest out. Your whole reply becomes the memory, up to \
{max_memory} tokens.
"""

ANSWER = """\
You have read the whole text and kept this memory of it. Answer the question from the memory.

<question>
{question}
</question>

<memory>
{memory}
</memory>

Give the answer as short as it can be, in the form {format}.
"""

_PLACES = ("turn", "turns", "max_memory", "format")


def reading_templates(template: dict[str, str] | None) -> tuple[Template, Template]:
    """The reading and the answering template, given ones before our own.

    Raises:
        ValueError: an unknown part, or a part without a place that it must have.
    """
    texts = {"read": READ, "answer": ANSWER, **(template or {})}
    if unknown := sorted(set(texts) - {"read", "answer"}):
        raise ValueError(f"template has an unknown part {unknown[0]!r}; its parts are 'read' and 'answer'")
    return (
        Template(texts["read"], required=("question", "memory", "chunk"), optional=_PLACES, name="read"),
        Template(texts["answer"], required=("question", "memory"), optional=_PLACES, name="answer"),
    )
