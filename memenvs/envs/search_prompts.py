"""An episode of searching comes in; its prompts go out, the agent's and those that scorers are asked with."""

from __future__ import annotations

from typing import Literal

from memenvs.envs.search_episode import SearchEpisode
from memenvs.envs.search_text import ASK, ASK_WITH_MEMORY, several
from memenvs.metrics import wrap_answer
from memenvs.scoring import gold_answer
from memenvs.tasks import Task


class SearchPrompts:
    """The prompts of a searching agent.

    Args:
        max_turns: turns in which a search is run, which the prompt tells.
        last_turn: turns in all.
        keep_turns: what a prompt with a memory repeats; None for an agent without one, whose prompt grows.
    """

    def __init__(self, max_turns: int, last_turn: int, keep_turns: int | Literal["all"] | None) -> None:
        self._max_turns, self._last_turn, self._keep_turns = max_turns, last_turn, keep_turns

    def prompt(self, task: Task, episode: SearchEpisode) -> str:
        """What the agent reads next; with a memory nothing once the episode has ended."""
        if self._keep_turns is None:
            how = several(len(task.answers))
            start = ASK.fill(question=task.question, searches=self._max_turns, several=how)
            return start + "".join(reply + came for reply, came in episode.history)
        if episode.end:
            return ""
        recent = episode.history if self._keep_turns == "all" else episode.history[-int(self._keep_turns) :]
        # With one turn kept, only what came back is shown: its reply is what the memory stands for.
        shown = [came if self._keep_turns == 1 else reply + came for reply, came in recent]
        left = self._last_turn - len(episode.history)
        return self._remembering(task, episode.memory, "".join(shown), left)

    def for_scorers(self, task: Task, episode: SearchEpisode, metric: str) -> dict[str, str]:
        """What reward methods ask a scorer about; see `SearchQAEnv`, under Privileged."""
        turns = self._last_turn  # one number of turns, so that prompts share a prefix
        past = "".join(reply + came for reply, came in episode.history)
        target = gold_answer(task.answers, metric)
        return {
            "question": task.question,
            "target": target,
            "target_wrapped": wrap_answer(target, "tag"),
            "memory": episode.memory,
            "prompt_with_memory": self._remembering(task, episode.memory, "", turns),
            "prompt_without_memory": self._remembering(task, "", "", turns),
            "prompt_with_history": self._remembering(task, "", past, turns),
        }

    @staticmethod
    def _remembering(task: Task, memory: str, recent: str, turns: int) -> str:
        how = several(len(task.answers))
        return ASK_WITH_MEMORY.fill(
            question=task.question, memory=memory, recent=recent, turns=turns, several=how
        )
