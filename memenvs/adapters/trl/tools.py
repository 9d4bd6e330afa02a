"""The environments as tools: search, and moves on a board."""

from __future__ import annotations

from memenvs.adapters.trl.tool_env import ToolEnv
from memenvs.envs.search_text import several
from memenvs.envs.sokoban_text import legend
from memenvs.prompts import Template
from memenvs.sokoban import to_text

SEARCH = Template(
    """\
Answer the question. Look up what you do not know with the tool `search`, at most {searches} times. Then \
give the answer, as short as it can be, by the tool `answer`{several}.

Question: {question}
""",
    required=("question",),
    optional=("searches", "several"),
)

SOKOBAN = Template(
    """\
You are at a Sokoban board. Push every box onto a target with the tool `move`. A move takes you one square \
up, down, left or right; walking into a box pushes it, if the square behind it is free. You may call the \
tool {turns} times, with up to {actions} moves each.

Symbols: {legend}

{board}
""",
    required=("board",),
    optional=("turns", "actions", "legend"),
)


class SearchTools(ToolEnv):
    """`MemSearchQA-v0` by two tools; see `ToolEnv`. Every call counts as well formed."""

    _id = "MemSearchQA-v0"

    def search(self, query: str) -> str:
        """Look something up.

        Args:
            query: What to look up.

        Returns:
            The passages that were found.
        """
        return self._play(f"<think></think><search>{query}</search>")

    def answer(self, answer: str) -> str:
        """Give the final answer, which ends the episode.

        Args:
            answer: The answer, as short as it can be.

        Returns:
            That the episode is over.
        """
        return self._play(f"<think></think><answer>{answer}</answer>")

    def _prompt(self) -> str:
        env = self._inner
        task = env.questions[env.episode.task]
        return SEARCH.fill(question=task.question, searches=env.max_turns, several=several(len(task.answers)))


class SokobanTools(ToolEnv):
    """`MemSokoban-v0` by one tool; see `ToolEnv`."""

    _id = "MemSokoban-v0"

    def move(self, moves: str) -> str:
        """Make moves on the board.

        Args:
            moves: Up, Down, Left and Right in the order they are made, with || between them.

        Returns:
            The board as it is then.
        """
        return self._play(f"<think></think><answer>{moves}</answer>")

    def _prompt(self) -> str:
        env = self._inner
        return SOKOBAN.fill(
            board=to_text(env.board, env.vocabulary),
            turns=env.max_turns,
            actions=env.max_actions,
            legend=legend(env.vocabulary),
        )
