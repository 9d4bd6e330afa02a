"""Sokoban in turns: a board in text goes out, a thought and a few moves come in."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memenvs.envs.sokoban_rules import (
    BUNDLED,
    choose_levels,
    levels_hash,
    open_levels,
    read_weights,
    replay,
)
from memenvs.envs.sokoban_text import FEEDBACK, PROMPT, MoveReader, Moves, legend, turns_left
from memenvs.envs.window import Window
from memenvs.render import block, reward_line
from memenvs.sokoban import LETTERS, Board, check_vocabulary, is_deadlocked, rgb, solve, to_text
from memenvs.sokoban.board import Grid
from memenvs.text_env import MAX_REPLY_CHARS, Episode, TextEnv
from memenvs.tokens import check_positive


@dataclass
class SokobanEpisode(Episode):
    """An episode of Sokoban.

    Attributes:
        history: everything read and written so far.
        moves: moves made.
        moved_player: moves that moved the player.
        moved_box: moves that moved a box.
        well_formed: replies that were.
    """

    history: str = ""
    moves: list[int] = field(default_factory=list)
    moved_player: int = 0
    moved_box: int = 0
    well_formed: int = 0


class SokobanEnv(TextEnv[str, SokobanEpisode]):
    """Solve a Sokoban level in a few turns of a few moves (MT-PPO, appendix E).

    Action:
        `<think>…</think><answer>Up || Right || Up</answer>`. Letter case and spaces are forgiven; a word that
        is no move ends the list. Moves after the level is solved are not made.

    Observation:
        The rules and the board, then all that was replied and what came of it. `info["context"]` is
        `"append"`.

    Reward:
        `outcome`, `placement`, `format` and `step`, weighted by `rewards`:

        - `"mt_ppo"`: +10 solved, +1 a box pushed on (0 pushed off), +0.5 a well-formed reply, -0.1 a step
          that leaves the level unsolved.
        - `"classic"`: +10 solved, +1 a box pushed on, -1 pushed off, -0.1 a step, the last one too.
        - `"outcome"`: +10 solved.
        - `"bounded"`: +10 solved, +1 a box pushed on, -1 pushed off, -0.5 a reply that is not well formed,
          -0.1 a step that leaves the level unsolved. Under `"mt_ppo"` each well-formed turn of idling pays
          +0.5, which is more than solving where `max_turns` is large; here nothing is earned by passing time.
        - a dictionary of `Weights`' fields.

    End:
        `terminated` when solved, `truncated` after `max_turns` turns or `max_steps` moves.

    Metrics:
        `success`; `effective_player` and `effective_box`, the shares of moves that moved the player and a
        box; `format`, the share of replies that were well formed; `steps`, `turns`, `deadlocked`;
        `optimal_length`, moves of a shortest solution (-1 where nobody has computed it).

    Privileged:
        `deadlocked` (no solution can be reached; found without a search) and `solution` (moves from the
        start).

    Args:
        levels: a bundled level set's name, or a file: .npz, XSB or Boxoban text.
        level_split: a split of the set; None takes all levels.
        min_solution: fewest moves of a shortest solution.
        max_solution: most moves; by default as many as the turns allow, so that every level can be solved.
        max_turns: turns.
        max_actions: moves a turn.
        max_steps: moves an episode.
        rewards: see Reward.
        separator: between two moves.
        action_names: of up, down, left and right.
        vocabulary: seven symbols: wall, floor, target, box on target, box, player, player on target.
        render_mode: `"ansi"`, `"rgb_array"`, `"human"` (needs pygame) or None.

    Version:
        v0: first.
    """

    episode_class = SokobanEpisode
    unhashed = ("render_mode", "levels")
    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 2}  # noqa: RUF012
    components = ("outcome", "placement", "format", "step")
    metric_names = (
        *("success", "effective_player", "effective_box", "format"),
        *("steps", "turns", "optimal_length", "deadlocked"),
    )
    context = "append"

    def __init__(
        self,
        levels: str = BUNDLED,
        level_split: str | None = "train",
        min_solution: int = 5,
        max_solution: int | None = None,
        max_turns: int = 3,
        max_actions: int = 3,
        max_steps: int = 100,
        rewards: str | dict[str, float] = "mt_ppo",
        separator: str = "||",
        action_names: tuple[str, str, str, str] = ("Up", "Down", "Left", "Right"),
        vocabulary: Sequence[str] = LETTERS,
        render_mode: str | None = None,
    ) -> None:
        for name, value in (("max_turns", max_turns), ("max_actions", max_actions), ("max_steps", max_steps)):
            check_positive(name, value, "turns" if name == "max_turns" else "moves")
        self._reader = MoveReader(action_names, separator, max_actions)
        check_vocabulary(vocabulary)
        self.max_turns, self.max_actions, self.max_steps = max_turns, max_actions, max_steps
        self.separator, self.action_names, self.vocabulary = separator, tuple(action_names), tuple(vocabulary)
        self.weights = read_weights(rewards)
        self._window = Window("memenvs Sokoban")
        reach = min(max_turns * max_actions, max_steps)
        self.levels, self._levels_name = open_levels(levels, level_split), Path(levels).name
        self.chosen = choose_levels(
            self.levels, min_solution, reach if max_solution is None else max_solution
        )
        self._prompt = functools.partial(
            PROMPT.fill,
            legend=legend(self.vocabulary),
            turns=max_turns,
            actions=max_actions,
            example=f" {separator} ".join((self.action_names[0], self.action_names[3], self.action_names[0])),
        )
        board = self.levels[int(self.chosen[0])].board
        text = len(self._prompt(board=to_text(board, self.vocabulary))) + board.size * max(
            map(len, self.vocabulary)
        )
        super().__init__(len(self.chosen), text + max_turns * (MAX_REPLY_CHARS + text + 200), render_mode)

    def gold_reply(self) -> str:
        """The next moves of a shortest solution from here; an empty list where there is none."""
        solution = solve(self._board.grid).moves
        listed = f" {self.separator} ".join(self.action_names[move] for move in solution[: self.max_actions])
        return f"<think></think><answer>{listed}</answer>"

    def render(self) -> Any:
        """The turn as text, the board as an RGB array, or a window."""
        if self.render_mode == "rgb_array":
            return rgb(self._board.grid, 32)
        if self.render_mode == "human":
            self._window.show(rgb(self._board.grid, 48), self.metadata["render_fps"])
            return None
        return self._ansi() if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the window, if there is one."""
        self._window.close()

    def _ansi(self) -> str:
        episode = self.episode
        lines = [f"level {self._task_id()}, {episode.turn} of {self.max_turns} turns played"]
        if self._last.reply is not None:
            lines += [*block("replied", self._last.reply, limit=400), reward_line(self._last.rewards)]
        return "\n".join([*lines, to_text(self._board.grid, self.vocabulary), episode.end])

    def _begin(self, task: int) -> SokobanEpisode:
        level = self.levels[int(self.chosen[task])]
        self._board = Board(level.board)
        self._deadlocked = is_deadlocked(level.board)
        text = self._prompt(board=to_text(level.board, self.vocabulary))
        return SokobanEpisode(task, history=text)

    def task_set(self) -> tuple[str, str]:
        """The level set's file and the hash of its levels."""
        return self._levels_name, levels_hash(self.levels)

    def _restored(self) -> None:
        episode = self.episode
        board = replay(self.levels[int(self.chosen[episode.task])].board, episode.moves)
        if episode.turn > self.max_turns or board.solved != (episode.end == "terminated"):
            raise ValueError(
                f"the state's episode cannot be: end={episode.end!r} after {len(episode.moves)} moves in "
                f"{episode.turn} of {self.max_turns} turns"
            )
        self._board, self._deadlocked = board, is_deadlocked(board.grid)

    @property
    def board(self) -> Grid:
        """The board now, cell codes (H, W) uint8, a copy."""
        return self._board.grid

    def _observe(self) -> str:
        return self.episode.history

    def _play(self, reply: str) -> dict[str, float]:
        episode, board = self.episode, self._board
        asked = self._reader.read(reply)
        pushes = episode.moved_box
        rewards = self._move(asked)
        turns = self.max_turns - episode.turn - 1
        if board.solved:
            episode.end = "terminated"
        elif turns == 0 or len(episode.moves) >= self.max_steps:
            episode.end = "truncated"
        if episode.moved_box != pushes:
            self._deadlocked = not board.solved and is_deadlocked(board.grid)
        left = turns_left(0 if episode.end else turns, solved=board.solved)
        self._last_feedback = FEEDBACK.fill(said=asked.said, board=board.text(self.vocabulary), left=left)
        episode.history += reply + self._last_feedback
        return rewards

    def _feedback(self) -> str:
        return self._last_feedback

    def _move(self, asked: Moves) -> dict[str, float]:
        """Make the moves; the components they earn."""
        episode, weights, board = self.episode, self.weights, self._board
        outcome = placement = steps = 0.0
        for action in asked.actions[: self.max_steps - len(episode.moves)]:
            done = board.step(action)
            episode.moves.append(action)
            episode.moved_player += done.moved_player
            episode.moved_box += done.moved_box
            earned = weights.components(done)
            outcome, placement, steps = outcome + earned[0], placement + earned[1], steps + earned[2]
            if done.solved:
                break
        episode.well_formed += asked.well_formed
        form = weights.format if asked.well_formed else weights.malformed
        return {"outcome": outcome, "placement": placement, "format": form, "step": steps}

    def _metrics(self) -> dict[str, float]:
        episode, moves = self.episode, max(len(self.episode.moves), 1)
        return {
            "success": self._board.solved,
            "effective_player": episode.moved_player / moves,
            "effective_box": episode.moved_box / moves,
            "format": episode.well_formed / episode.turn,
            "steps": len(episode.moves),
            "turns": episode.turn,
            "optimal_length": int(self.levels.lengths[self.chosen[episode.task]]),
            "deadlocked": self._deadlocked,
        }

    def _privileged(self) -> dict[str, Any]:
        moves = self.levels[int(self.chosen[self.episode.task])].moves
        return {"deadlocked": self._deadlocked, "solution": list(moves or ())}

    def _task_id(self) -> str:
        return f"level-{self.chosen[self.episode.task]}"
