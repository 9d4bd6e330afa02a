"""Sokoban as text, and as pictures.

`gym.make("MemSokoban-v0")`, `gym.make("MemSokobanImage-v0")`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from memenvs.core.data import Count, checked
from memenvs.core.env import EpisodeState, TextEnv, scoring_fields
from memenvs.core.errors import counted
from memenvs.core.spaces import UnicodeText
from memenvs.core.state import text_hash
from memenvs.core.text import Template, Texts, open_thought, replace_templates
from memenvs.core.tools import Tool, ToolUse
from memenvs.data import bundled
from memenvs.envs.render import reward_line, show_turn
from memenvs.sokoban import LETTERS, Board, LevelError, LevelSet, Step, is_deadlocked, rgb, solve, to_text
from memenvs.sokoban.board import WALL, Grid
from memenvs.sokoban.levels import in_short, why_unplayable
from memenvs.sokoban.solver import Budget
from memenvs.tasks.metrics import wrap_answer

BUNDLED = "sokoban_6x6_1box"
GOAL = "Push every box onto a target."
Rewards = Literal["mt_ppo", "classic", "outcome", "bounded"] | dict[str, float]
"""`REWARDS` by name, or the fields of `Weights`."""

MOVES = ("Up", "Down", "Left", "Right")  # by action
SEPARATOR = "||"  # between two moves of a reply
LEGEND = ", ".join(
    f"{symbol} {name}"
    for symbol, name in zip(
        LETTERS,
        ("wall", "floor", "target", "box on target", "box", "you", "you on target"),
        strict=True,
    )
)
"""What each symbol of a board means."""

PROMPT = Template(
    """\
You are playing Sokoban. Push every box onto a target. A move takes you one square up, down, left or right; \
moving into a box pushes it if the square behind it is free. You cannot pull boxes or push two at once.

Symbols: {legend}

{board}

You have {turns} turns and may make up to {actions} moves per turn. Think first, then write this turn's moves:
<think>…</think><answer>{example}</answer>
""",
    required=["board"],
    optional=["legend", "turns", "actions", "example"],
)

PROMPT_BY_TOOLS = Template(
    """\
You are playing Sokoban. Push every box onto a target with the tool `move`. A move takes you one square up, \
down, left or right; moving into a box pushes it if the square behind it is free. You may call the tool \
{turns} times, with up to {actions} moves each.

Symbols: {legend}

{board}
""",
    required=["board"],
    optional=["legend", "turns", "actions"],
)

SEARCH_BUDGET: dict[str, Any] = {"nodes": 100_000, "seconds": 30}
"""What a level set's levels without a known solution may take together, when it is opened."""
GOLD_BUDGET: dict[str, Any] = {"nodes": 10_000, "seconds": 5}
"""What a solution from the board now may take. On 10x10 with four boxes the nodes take under a second."""

NO_MOVES = "Your reply contained no <answer>…</answer> with moves."


@dataclass
class SokobanState(EpisodeState):
    """An episode of Sokoban."""

    history: str = ""  # everything read and written so far
    moves: list[int] = field(default_factory=list)
    moved_player: int = 0  # moves that moved the player
    moved_box: int = 0  # moves that moved a box
    well_formed: int = 0  # replies that were


class SokobanEnv(TextEnv[str, SokobanState]):
    """Solve a Sokoban level in a few turns of a few moves (MT-PPO, appendix E).

    The agent reads the board as text and replies with up to `max_actions` moves, then sees what they did. It
    must push every box onto a target. A box can be pushed but not pulled, so one wrong push can make the
    level unsolvable.

    Action:
        `<think>…</think><answer>Up || Right || Up</answer>`. Case and extra spaces do not matter; a word that
        is not a move ends the list. Moves after the level is solved are not made.

    Observation:
        The rules and the board, then all replies and what each of them did. `info["context"]` is `"append"`.

    Reward:
        `outcome`, `placement`, `format` and `step`, weighted by `rewards`:

        - `"mt_ppo"`: +10 solved, +1 per box pushed on (0 pushed off), +0.5 per well-formed reply, -0.1 per
          step that leaves the level unsolved.
        - `"classic"`: +10 solved, +1 per box pushed on, -1 pushed off, -0.1 per step, also the last one.
        - `"outcome"`: +10 solved.
        - `"bounded"`: +10 solved, +1 per box pushed on, -1 pushed off, -0.5 per reply that is not
          well-formed, -0.1 per step that leaves the level unsolved. With `"mt_ppo"` each idle turn in the
          right format pays +0.5, which beats solving if `max_turns` is large; here idling earns nothing.
        - a dictionary of `Weights`' fields.

    End:
        `terminated` when solved, `truncated` after `max_turns` turns or `max_steps` moves.

    Metrics:
        `success`; `effective_player` and `effective_box`, the shares of moves that moved the player and a
        box; `format`, the share of well-formed replies; `steps`, `turns`, `deadlocked`; `optimal_length`,
        the number of moves of a shortest solution.

    Privileged:
        - `deadlocked`: whether no solution can be reached, as far as that is found without a search.
        - `solution`: the moves from the start.
        - `state`: the board now, as text.
        - `question`: the goal and the board at the start.
        - `target`: the moves of a shortest solution from there, which a teacher reads after the observation.
        - The other scoring fields (see `TextEnv`). There are no `answers`: a level has many solutions.

    Args:
        levels: a bundled level set's name, or a file: .npz, or a collection in text or `.slc`.
        level_split: a split of the set; None takes all levels. A collection's levels are all "train".
        min_solution: minimum number of moves in a shortest solution.
        max_solution: maximum number of moves; by default what the turns allow, so every level can be solved.
            Levels without a known solution are solved when the set is opened, if that takes seconds;
            otherwise the error names `memenvs build sokoban --source`.
        max_turns: maximum number of turns.
        max_actions: moves per turn.
        max_steps: moves per episode.
        rewards: see Reward.
        template: another prompt: a file, its text, or `{"ask": …}` with either (docs/prompts.md), with the
            placeholder `{board}` and optionally `{legend}`, `{turns}`, `{actions}` (moves a turn) and
            `{example}` (a list of moves); the part `tools` is for agents that call tools. By default the
            environment's own wording.
        render_mode: `"ansi"`, `"rgb_array"` or None.

    Version:
        v0: first.
    """

    unhashed = ("render_mode", "levels")
    changing = (*TextEnv.changing, "_board")
    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 2}  # noqa: RUF012
    components = ("outcome", "placement", "format", "step")
    metric_names = (
        *("success", "effective_player", "effective_box", "format"),
        *("steps", "turns", "optimal_length", "deadlocked"),
    )
    context = "append"

    @checked
    def __init__(
        self,
        levels: str = BUNDLED,
        level_split: str | None = "train",
        min_solution: Count = 5,
        max_solution: Count | None = None,
        max_turns: Count = 3,
        max_actions: Count = 3,
        max_steps: Count = 100,
        rewards: Rewards = "mt_ppo",
        template: Texts | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.max_turns, self.max_actions, self.max_steps = max_turns, max_actions, max_steps
        self.weights = read_weights(rewards)
        most = min(max_turns * max_actions, max_steps) if max_solution is None else max_solution
        self.levels, self.chosen = open_levels(levels, level_split, min_solution, most)
        self._levels_name = Path(levels).name
        limits = {"legend": LEGEND, "turns": max_turns, "actions": max_actions}
        defaults = {"ask": PROMPT, "tools": PROMPT_BY_TOOLS}
        templates, self.template_texts = replace_templates(defaults, template)
        self._prompt = functools.partial(templates["ask"].fill, example=listed((0, 3, 0)), **limits)
        self._prompt_by_tools = functools.partial(templates["tools"].fill, **limits)
        super().__init__(len(self.chosen), render_mode)

    def gold_reply(self) -> str:
        """The next moves of a shortest solution from here; an empty list where `GOLD_BUDGET` finds none."""
        played = tuple(self.state.moves)
        if played == self._solution[: len(played)]:
            moves = self._solution[len(played) :]
        else:
            moves = solve(self._board.grid, **GOLD_BUDGET).moves
        return f"<think></think><answer>{listed(moves[: self.max_actions])}</answer>"

    def tool_use(self) -> ToolUse:
        meaning = "Up, Down, Left and Right in the order they are made, with || between them."
        wrap = functools.partial(wrap_answer, answer_format="tag")
        move = Tool("move", "Make moves on the board.", "moves", meaning, wrap)
        return ToolUse((move,), lambda: self._prompt_by_tools(board=self._board.text()), NO_MOVES)

    def n_choices(self, n_answers: int) -> int:
        """The length of `choices`."""
        return len(MOVES)

    def choices(self, answers: Sequence[str]) -> list[str]:
        """Replies of one move each."""
        return [f"<think></think><answer>{name}</answer>" for name in MOVES]

    def choice_mask(self) -> list[bool]:
        """Which of `choices` change the board."""
        return self._board.action_masks()

    def render(self) -> Any:
        """The turn as text, or the board as an RGB array."""
        if self.render_mode == "rgb_array":
            return rgb(self._board.grid, 32)
        if self.render_mode is None:
            return None
        state = self.state
        title = f"{self._task_id()}, {state.turn} of {self.max_turns} turns played"
        earned = self.reward_lines(reward_line(self._last.rewards))
        return show_turn(title, self._last.reply, earned, [[self._board.text()]], state.end)

    def task_set(self) -> tuple[str, str]:
        return self._levels_name, levels_hash(self.levels)

    @property
    def board(self) -> Grid:
        """The board now, cell codes (H, W) uint8, a copy."""
        return self._board.grid

    def _begin(self, task: int) -> SokobanState:
        number = int(self.chosen[task])
        level = self.levels[number]
        self._level_name = level_id(number)
        self._board = Board(level.board)
        self._deadlocked = is_deadlocked(self._board.grid)
        self._solution = level.moves or ()
        board, target = to_text(level.board), listed(self._solution)
        self._start = self._prompt(board=board)
        self._text = self._board.text()
        self._evidence = f"\nA shortest solution from the start: {target}\n"
        self._fixed = {
            "question": f"{GOAL}\n\n{board}",
            "target": target,
            "target_wrapped": wrap_answer(target, "tag"),
        }
        return SokobanState(task, history=self._start)

    def _observe(self) -> str:
        return self.state.history

    def _play(self, reply: str) -> dict[str, float]:
        state, weights, board = self.state, self.weights, self._board
        moves = read_moves(reply, self.max_actions)
        pushes = state.moved_box
        outcome = placement = steps = 0.0
        for action in moves.actions[: self.max_steps - len(state.moves)]:
            step = board.step(action)
            state.moves.append(action)
            state.moved_player += step.moved_player
            state.moved_box += step.moved_box
            earned = weights.components(step)
            outcome, placement, steps = outcome + earned[0], placement + earned[1], steps + earned[2]
            if step.solved:
                break
        state.well_formed += moves.well_formed
        form = weights.format if moves.well_formed else weights.malformed
        turns = self.max_turns - state.turn - 1
        left = f"{counted(turns, 'turn')} left."
        if board.solved:
            state.end = "terminated"
            left = "Solved."
        elif turns == 0 or len(state.moves) >= self.max_steps:
            state.end = "truncated"
            left = "You have no turns left."
        if state.moved_box != pushes:
            self._deadlocked = not board.solved and is_deadlocked(board.grid)
        self._text = board.text()
        self._last_feedback = f"\n{moves.remark}The board is now:\n\n{self._text}\n\n{left}\n"
        state.history += reply + self._last_feedback
        return {"outcome": outcome, "placement": placement, "format": form, "step": steps}

    def _feedback(self) -> str:
        return self._last_feedback

    def _metrics(self) -> dict[str, float]:
        state, moves = self.state, max(len(self.state.moves), 1)
        return {
            "success": self._board.solved,
            "effective_player": state.moved_player / moves,
            "effective_box": state.moved_box / moves,
            "format": state.well_formed / state.turn,
            "steps": len(state.moves),
            "turns": state.turn,
            "optimal_length": int(self.levels.lengths[self.chosen[state.task]]),
            "deadlocked": self._deadlocked,
        }

    def _privileged(self) -> Callable[[], dict[str, Any]]:
        fixed, solution, start, evidence = self._fixed, self._solution, self._start, self._evidence
        deadlocked, text, now = self._deadlocked, self._text, self.state.history
        reply, ended = self._last.reply or "", bool(self.state.end)
        memory, prompt = ("", now[: -len(reply + self._last_feedback)]) if ended else (reply, now)
        # What `_appended_fields` gives, but made only when a field is read: a step takes 9 us.
        return lambda: {
            "deadlocked": deadlocked,
            "solution": list(solution),
            "state": text,
            **fixed,
            **scoring_fields(reply, ended, memory, prompt, start, now + evidence),
        }

    def _task_id(self) -> str:
        return self._level_name


class SokobanImageEnv(SokobanEnv):
    """Solve a Sokoban level from a picture of the board at every turn.

    This is `MemSokoban-v0` for models that see: each observation is an image of the current board and the
    text that goes with it. Moves, rewards and metrics are the same.

    Observation:
        `{"image": (H * tile, W * tile, 3) uint8, "text": str}`: the board now, and the text of `SokobanEnv`.
        In a set of different sizes the picture of a smaller board ends in walls.

    Args:
        tile: pixels per side of a square, 4 to 256.
        **kwargs: those of `SokobanEnv`.

    Version:
        v0: first.
    """

    @checked
    def __init__(self, tile: Annotated[int, Meta(ge=4, le=256)] = 32, **kwargs: Any) -> None:
        self.tile = tile
        super().__init__(**kwargs)

    def _make_observation_space(self) -> gym.Space[Any]:
        height, width = self.levels.boards.shape[1:]
        shape = (height * self.tile, width * self.tile, 3)
        image = gym.spaces.Box(0, 255, shape, np.uint8)
        return gym.spaces.Dict({"image": image, "text": UnicodeText()})

    def _observe(self) -> Any:
        board, (height, width) = self._board.grid, self.levels.boards.shape[1:]
        rest = (0, height - len(board)), (0, width - len(board[0]))
        image = rgb(np.pad(board, rest, constant_values=WALL), self.tile)
        return {"image": image, "text": self.state.history}


class Moves(NamedTuple):
    """What a reply asks for."""

    actions: tuple[int, ...]  # 0 up, 1 down, 2 left, 3 right, at most as many as a turn allows
    well_formed: bool  # the reply is a thought and a list of moves, nothing else, every word a move
    remark: str  # what the feedback says about the list; empty if all is well


def listed(moves: Sequence[int]) -> str:
    """Moves as a reply lists them.

    >>> listed((0, 3))
    'Up || Right'
    """
    return f" {SEPARATOR} ".join(MOVES[move] for move in moves)


_ACTIONS = {name.lower(): action for action, name in enumerate(MOVES)}


def read_moves(reply: str, most: int) -> Moves:
    """The moves of a reply, `<think>…</think><answer>Up || Right</answer>`, at most `most`.

    Case, extra spaces and empty places do not matter. A word that is not a move ends the list. A list without
    a thought, or with text around it, is played but is not well formed. Moves beyond `most` are not played,
    and the reply is still well formed.
    """
    # By hand: `in_order` alone takes 1.9 us, longer than all of this.
    before, _, rest = open_thought(reply).partition("<think>")
    _, thought, behind = rest.partition("</think>")
    between, _, rest = (behind if thought else reply).partition("<answer>")
    answer, closing, after = rest.partition("</answer>")
    if not closing:
        return Moves((), False, f"{NO_MOVES} ")
    well_formed = bool(thought) and not (before + between + after).strip()
    remark = "" if well_formed else "Write one thought and one list of moves, and nothing else. "
    actions: list[int] = []
    for word in map(str.strip, answer.split(SEPARATOR)):
        action = _ACTIONS.get(word.lower())
        if action is not None:
            actions.append(action)
        elif word:
            excerpt = word if len(word) <= 20 else word[:20] + "…"
            ended = f"{remark}{excerpt!r} is not a move, so the list ended there. "
            return Moves(tuple(actions[:most]), False, ended)
    if not actions:
        return Moves((), False, remark + "Your list of moves was empty. ")
    if len(actions) > most:
        remark += f"Only the first {most} moves were made. "
    return Moves(tuple(actions[:most]), well_formed, remark)


@dataclass(frozen=True)
class Weights:
    """The weights of a reward.

    Attributes:
        outcome: once, when the level is solved.
        placed: for each box pushed onto a target.
        removed: for each box pushed off one.
        format: for each turn whose reply is well formed.
        malformed: for each turn whose reply is not.
        step: for each step that leaves the level unsolved.
        last_step: for the step that solves it.
    """

    outcome: float = 0.0
    placed: float = 0.0
    removed: float = 0.0
    format: float = 0.0
    malformed: float = 0.0
    step: float = 0.0
    last_step: float = 0.0

    def components(self, step: Step) -> tuple[float, float, float]:
        """Outcome, placement and step penalty of one step."""
        placement = self.placed * step.pushed_on + self.removed * step.pushed_off
        return self.outcome * step.solved, placement, self.last_step if step.solved else self.step

    def totals(self, step: Step) -> NDArray[np.float64]:
        """The sum of the components, of N boards: (N,)."""
        totals = np.where(step.solved, self.outcome + self.last_step, self.step)
        if self.placed:
            totals += self.placed * step.pushed_on
        if self.removed:
            totals += self.removed * step.pushed_off
        return totals


REWARDS = {
    "mt_ppo": Weights(outcome=10.0, placed=1.0, format=0.5, step=-0.1),  # MT-PPO, appendix E
    "classic": Weights(outcome=10.0, placed=1.0, removed=-1.0, step=-0.1, last_step=-0.1),  # gym-sokoban
    "outcome": Weights(outcome=10.0),
    # No component can be earned again and again: a turn costs what it earned in "mt_ppo", and a box pushed
    # off gives back what pushing it on earned.
    "bounded": Weights(outcome=10.0, placed=1.0, removed=-1.0, malformed=-0.5, step=-0.1),
}


def read_weights(rewards: Rewards) -> Weights:
    """Weights by name, or by the fields of `Weights`.

    Raises:
        ValueError: there is no such field.
    """
    if not isinstance(rewards, dict):
        return REWARDS[rewards]
    fields = asdict(Weights())
    if unknown := sorted(set(rewards) - set(fields)):
        raise ValueError(f"rewards has no field {unknown[0]!r}; its fields are {', '.join(fields)}")
    return Weights(**rewards)


@functools.lru_cache(maxsize=16)
def open_levels(
    name: str, split: str | None, min_solution: int, max_solution: int | None
) -> tuple[LevelSet, NDArray[np.intp]]:
    """A level set by bundled name or by file, read once a process, and the numbers of the levels to play.

    These are the levels of the split (None: of the whole set) whose shortest solution has `min_solution` to
    `max_solution` moves (None: no limit).
    Where a solution is not known, a search as far as these limits need looks for it within
    `SEARCH_BUDGET`, for all levels together. Levels that are solved or certainly lost at the start are left
    out, with a warning that names them.

    Raises:
        FileNotFoundError: no such file.
        LevelError: not a level file, no level to play, or the budget was spent.
    """
    levels = LevelSet.load(bundled(f"{name}.npz") if name == BUNDLED else name, split)
    faults = {
        number: reason
        for number in np.flatnonzero(levels.lengths < 0).tolist()
        if (reason := why_unplayable(levels[number].board))
    }
    levels, too_hard = _solve_as_needed(name, levels, faults, min_solution, max_solution)
    solved = levels.lengths >= 0
    most = levels.lengths.max() if max_solution is None else max_solution
    fits = ((levels.lengths >= min_solution) & (levels.lengths <= most)) | ~solved
    fits[[*faults, *too_hard]] = False
    (chosen,) = np.nonzero(fits)
    reasons = [f"level {number} is {reason}" for number, reason in faults.items()]
    if not len(chosen):
        if solved.any():
            reasons.insert(0, f"this set has {levels.lengths[solved].min()} to {levels.lengths.max()}")
        span = f"at least {min_solution}" if max_solution is None else f"{min_solution} to {max_solution}"
        raise LevelError(
            f"{name}: no level has a shortest solution of {span} moves; change min_solution or max_solution, "
            f"or allow more turns{f' ({in_short(reasons)})' if reasons else ''}"
        )
    if faults:
        count = counted(len(levels), "level")
        warnings.warn(f"{name}: {len(faults)} of {count} left out: {in_short(reasons)}", stacklevel=2)
    chosen.flags.writeable = False
    return levels, chosen


def _solve_as_needed(
    name: str, levels: LevelSet, faults: Collection[int], min_solution: int, max_solution: int | None
) -> tuple[LevelSet, list[int]]:
    """Levels with the solutions that `open_levels` needs, and the numbers of those that cannot be played."""
    # Whether a solution is at least so long, or at most so long, takes no search beyond that length.
    depth = min_solution - 1 if max_solution is None else max_solution
    budget = Budget(**SEARCH_BUDGET)
    solutions: dict[int, Sequence[int] | None] = {}
    too_hard = []
    for number in np.flatnonzero(levels.lengths < 0).tolist() if depth else ():
        if number in faults:
            continue
        solution = solve(levels[number].board, max_moves=depth, budget=budget)
        if solution.status == "limit":
            raise LevelError(
                f"{name}: shortest solutions are not known, and level {number} of {len(levels)} takes "
                "long to solve; solve them once by `memenvs build sokoban --source FILE --out levels.npz`"
            )
        if solution.status == "solved":
            solutions[number] = solution.moves
        elif max_solution is not None or solution.status != "longer":
            too_hard.append(number)  # longer than allowed, or without a solution
    if not solutions:
        return levels, too_hard
    moves = [solutions.get(number, level.moves) for number, level in enumerate(levels)]
    return LevelSet([level.board for level in levels], moves, levels.splits, levels.card), too_hard


def level_id(number: int) -> str:
    """A level's id, by which an info names the task."""
    return f"level-{number}"


def levels_hash(levels: LevelSet) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the boards."""
    return text_hash(levels.boards.tobytes())
