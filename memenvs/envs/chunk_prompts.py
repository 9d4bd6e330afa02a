"""What is read in a turn comes in; its prompt, in our own wording or another, goes out."""

from __future__ import annotations

from collections.abc import Mapping

from memenvs.envs.reading import Reading
from memenvs.prompts import Template, replace_templates
from memenvs.scoring import answer_form

_READ = """\
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

_ANSWER = """\
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


TEMPLATES = {
    "read": Template(_READ, required=("question", "memory", "chunk"), optional=_PLACES, name="read"),
    "answer": Template(_ANSWER, required=("question", "memory"), optional=_PLACES, name="answer"),
}


def reading_templates(template: dict[str, str] | None) -> tuple[Template, Template]:
    """The reading and the answering template, given ones before our own; see `replace_templates`."""
    templates = replace_templates(TEMPLATES, template)
    return templates["read"], templates["answer"]


class ReadingPrompts:
    """The prompts of chunked reading.

    Args:
        template: `{"read": …, "answer": …}`, each instead of our own.
        answer_format: `"boxed"` or `"tag"`.
        max_memory: tokens, which the prompt tells.
    """

    def __init__(self, template: dict[str, str] | None, answer_format: str, max_memory: int) -> None:
        self._read, self._answer = reading_templates(template)
        self._answer_format, self._max_memory = answer_format, max_memory

    def prompt(self, reading: Reading, turn: int, memory: str, section: str | None = None) -> str:
        """The prompt of turn `turn`, from 0; past the chunks the one that asks for the answer.

        `section` stands in the place of the turn's own section.
        """
        turns, question = len(reading.chunks), reading.task.question
        values = self._values(turn + 1, turns, len(reading.task.answers))
        if turn >= turns:
            return self._answer.fill(question=question, memory=memory, **values)
        shown = reading.section(turn) if section is None else section
        return self._read.fill(question=question, memory=memory, chunk=shown, **values)

    def for_scorers(self, reading: Reading, turn: int, memory: str) -> dict[str, str]:
        """The prompts that reward methods ask a scorer with; see `ChunkQAEnv`, under Privileged.

        Past the answer turn, `turn` is the number of turns played.
        """
        last, evidence = len(reading.chunks), reading.whole_evidence()
        reminded = self.prompt(reading, last, memory)
        local = everything = ""
        if turn == last:
            local = everything = self.prompt(reading, last, "\n\n".join([memory, *evidence]))
        elif turn < last:
            local = self.prompt(reading, turn, memory, section="\n\n".join(reading.evidence_in(turn)))
            everything = self.prompt(reading, turn, memory, section="\n\n".join(evidence))
        return {
            "prompt_with_memory": reminded,
            "prompt_without_memory": self.prompt(reading, last, ""),
            "prompt_with_history": reminded,
            "teacher_prompt": local,
            "teacher_prompt_global": everything,
        }

    def frames(self, reading: Reading) -> tuple[str, str]:
        """The last reading prompt and the answering one, with nothing in memory and section."""
        turns, question = len(reading.chunks), reading.task.question
        values = self._values(turns, turns, len(reading.task.answers))
        return (
            self._read.fill(question=question, memory="", chunk="", **values),
            self._answer.fill(question=question, memory="", **values),
        )

    def longest(self, counts: Mapping[str, int], memory: int, objectives: int) -> int:
        """Characters of the longest prompt, by the larger template.

        Args:
            counts: of the task set's card.
            memory: most characters of a memory.
            objectives: most objectives of a task.
        """
        digits = len(str(counts["max_chars"] + 1))  # a chunk has at least one character
        most = {
            "question": counts["max_question_chars"],
            "memory": memory,
            "chunk": counts["max_chars"],
            "turn": digits,
            "turns": digits,
            "max_memory": len(str(self._max_memory)),
            "format": len(answer_form(self._answer_format, objectives)),
        }
        return max(template.longest(**most) for template in (self._read, self._answer))

    def _values(self, turn: int, turns: int, objectives: int) -> dict[str, object]:
        form = answer_form(self._answer_format, objectives)
        return {"turn": turn, "turns": turns, "max_memory": self._max_memory, "format": form}
