"""An episode of searching comes in; its prompts go out, the agent's and those that scorers are asked with."""

from __future__ import annotations

from typing import Any, Literal

from memenvs.envs.search_episode import SearchEpisode
from memenvs.envs.search_text import ASK, ASK_WITH_MEMORY, SHOWN, several
from memenvs.metrics import wrap_answer
from memenvs.prompts import replace_templates
from memenvs.scoring import gold_answer
from memenvs.tasks import Task


class SearchPrompts:
    """The prompts of a searching agent.

    Args:
        template: `{"ask": …}` instead of our own, or None.
        max_turns: turns in which a search is run, which the prompt tells.
        last_turn: turns in all.
        keep_turns: what a prompt with a memory repeats; None for an agent without one, whose prompt grows.
        max_memory: tokens of a memory, which the prompt tells.
    """

    def __init__(
        self,
        template: dict[str, str] | None,
        max_turns: int,
        last_turn: int,
        keep_turns: int | Literal["all"] | None,
        max_memory: int,
    ) -> None:
        own = ASK if keep_turns is None else ASK_WITH_MEMORY
        self._ask = replace_templates({"ask": own}, template)["ask"]
        self._last_turn, self._keep_turns = last_turn, keep_turns
        self._fixed = {
            "searches": str(max_turns),
            "shown": SHOWN[keep_turns or 1],
            "max_memory": str(max_memory),
        }

    def prompt(self, task: Task, episode: SearchEpisode) -> str:
        """What the agent reads next; with a memory nothing once the episode has ended."""
        if self._keep_turns is None:
            return self._fill(task) + "".join(reply + came for reply, came in episode.history)
        if episode.end:
            return ""
        recent = episode.history if self._keep_turns == "all" else episode.history[-int(self._keep_turns) :]
        shown = "".join(reply + came for reply, came in recent[:-1])
        if recent:  # the memory of the last reply stands above already
            shown += episode.behind_memory + recent[-1][1]
        left = self._last_turn - len(episode.history)
        return self._fill(task, memory=episode.memory, recent=shown, turns=left)

    def longest(self, turn: int, question: int, objectives: int) -> int:
        """Characters of the longest prompt.

        Args:
            turn: most characters of a turn, reply and what came back.
            question: most characters of a question.
            objectives: most objectives of a task.
        """
        history = (self._last_turn + 1) * turn
        frame = self._ask.longest(
            question=question,
            several=len(several(objectives)),
            turns=len(str(self._last_turn)),
            **{place: len(text) for place, text in self._fixed.items()},
            memory=turn,
            recent=history,
        )
        return frame + (history if self._keep_turns is None else 0)

    def for_scorers(self, task: Task, episode: SearchEpisode, metric: str) -> dict[str, Any]:
        """What reward methods ask a scorer about; see `SearchQAEnv`, under Privileged."""
        turns = self._last_turn  # one number of turns, so that prompts share a prefix
        past = "".join(reply + came for reply, came in episode.history)
        target = gold_answer(task.answers, metric)
        return {
            "question": task.question,
            "target": target,
            "target_wrapped": wrap_answer(target, "tag"),
            "memory": episode.memory,
            "memory_span": episode.memory_span and list(episode.memory_span),
            "prompt_with_memory": self._fill(task, memory=episode.memory, recent="", turns=turns),
            "prompt_without_memory": self._fill(task, memory="", recent="", turns=turns),
            "prompt_with_history": self._fill(task, memory="", recent=past, turns=turns),
        }

    def _fill(self, task: Task, **values: object) -> str:
        return self._ask.fill(
            question=task.question,
            several=several(len(task.answers)),
            **self._fixed,
            **values,
        )
