"""An episode of searching: its turns go in one after another, its metrics come out at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memenvs.envs.search_text import Move, holds_answer_by_part, passages_shown
from memenvs.metrics import Objectives, multi_objective, wrap_answer
from memenvs.scoring import Grade
from memenvs.tags import Tagged
from memenvs.tasks import Task
from memenvs.text_env import Episode
from memenvs.tokens import TextTokenizer

NOTHING = {"searched": 0.0, "retrieved": 0.0, "retrieved_new": 0.0, "well_formed": 0.0}


@dataclass
class SearchEpisode(Episode):
    """An episode of searching.

    Attributes:
        memory: what was kept of the last `<mem>`.
        memory_span: where the last reply wrote it, [start, end) in characters; None if it wrote none.
        behind_memory: the last reply without its `<mem>…</mem>`.
        overflows: memories that were cut at `max_memory`.
        history: each turn's reply and what came back.
        prompts: each observation so far; with `"append"` the first alone, which the others begin with.
        answer: the answer given; None without one.
        searches: searches run.
        retrieved: whether any search found an accepted answer in its passages.
        found: contents of the passages in which one has been shown.
        well_formed: replies that were.
        events: of the last turn, 1.0 or 0.0: `searched`, `retrieved`, `retrieved_new`, `well_formed`.
    """

    memory: str = ""
    memory_span: tuple[int, int] | None = None
    behind_memory: str = ""
    overflows: int = 0
    history: list[tuple[str, str]] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    answer: str | None = None
    searches: int = 0
    retrieved: bool = False
    found: list[str] = field(default_factory=list)
    well_formed: int = 0
    events: dict[str, float] = field(default_factory=dict)

    def record(self, move: Move, passages: Sequence[str] | None, shown: str, task: Task) -> None:
        """Keep what a reply did.

        Args:
            move: the reply.
            passages: contents that a search brought; None where none was run.
            shown: what the agent reads of them.
            task: that is played.
        """
        searched, brought = passages is not None, passages or []
        retrieved, each = holds_answer_by_part(passages_shown(brought, shown), task.answers)
        new = [
            contents
            for contents, holds in zip(brought, each, strict=True)
            if holds and contents not in self.found
        ]
        self.found += new
        self.searches += searched
        self.retrieved |= retrieved
        self.well_formed += move.well_formed
        self.events = {
            "searched": float(searched),
            "retrieved": float(retrieved),
            "retrieved_new": float(bool(new)),
            "well_formed": float(move.well_formed),
        }

    def remember(self, reply: str, written: Tagged | None, tokenizer: TextTokenizer, max_memory: int) -> None:
        """Keep at most `max_memory` tokens of what the `<mem>` of a reply says; nothing without one."""
        if written is None:
            self.memory, self.memory_span, self.behind_memory = "", None, reply
            return
        self.behind_memory = reply[: written.start] + reply[written.end :]
        self.memory, cut = tokenizer.head(written.text.strip(), max_memory)
        self.overflows += cut
        start = written.start + len("<mem>")
        kept = len(written.text) - len(written.text.lstrip()) + len(self.memory)
        self.memory_span = (start, start + (kept if cut else len(written.text)))

    def metrics(self, task: Task, grade: Grade, prompt_tokens: list[int]) -> dict[str, float]:
        """The metrics of the ended episode; see `SearchQAEnv`.

        Args:
            task: that was played.
            grade: of the answer.
            prompt_tokens: tokens of each observation.
        """
        sums = Objectives(0.0, 0.0, True)
        if self.answer is not None:
            given = wrap_answer(self.answer, "tag")
            sums = multi_objective(given, [list(accepted) for accepted in task.answers])
        return {
            "success": float(grade.outcome == 1.0),
            **{name: getattr(grade, name) for name in ("em", "f1", "sub_em")},
            "em_sum": sums.em,
            "f1_sum": sums.f1,
            "format": float(self.answer is not None and self.well_formed == len(self.history)),
            "format_share": self.well_formed / len(self.history),
            "memory_overflow": self.overflows,
            "searches": self.searches,
            "retrieved": self.retrieved,
            "turns": len(self.history),
            "prompt_tokens": sum(prompt_tokens),
            "prompt_tokens_peak": max(prompt_tokens),
        }
