"""One episode on the terminal, by a policy or by a person, for `memenvs play`."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.commands.options import EnvOptions, PolicyOptions
from memenvs.core.env import Agent, Info, TextEnv
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EpisodeWriter
from memenvs.core.errors import counted, error_line, printable
from memenvs.core.terminal import BOLD, DIM, RESET, show, terminal_width
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.render import block, earned_lines
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.evaluation.run import check_methods_fit, completed
from memenvs.models.policy import TokenPolicy
from memenvs.models.settings import ModelOptions
from memenvs.rollout.collect import Loop, begin, maker, step
from memenvs.rollout.policies import KINDS, choose_policy
from memenvs.rollout.policy import Policy, Request, agent_policy, replies_to
from memenvs.rollout.scripted import make_policy
from memenvs.sokoban.grid import SokobanGridEnv
from memenvs.wrappers import RewardWrapper
from memenvs.wrappers.credit import check_methods
from memenvs.wrappers.registry import choose_scorer, make_methods, read_methods

MOVES = ("up", "down", "left", "right")
"""Actions of `MemSokobanGrid-v0` by their number."""

_KEYS = {**{word: word for word in MOVES}, **dict(zip("wsad", MOVES, strict=True))}
_KEYS |= {str(number): word for number, word in enumerate(MOVES)}
_KEYS |= {f"\x1b[{key}": word for key, word in zip("abdc", MOVES, strict=True)}  # the arrow keys
_MOVE = re.compile("|".join(map(re.escape, _KEYS)))  # "down" comes before "d"

_TYPING = (
    "You are the agent. A line is a reply. Put a line with a single `.` before and after a longer reply."
)
_GRID_KEYS = "Move with w a s d, up down left right or 0 to 3; a line may have several moves."


def play_episode(
    environment: EnvOptions,
    policy: PolicyOptions,
    models: ModelOptions,
    task: int | None,
    seed: int,
    save: Path | None,
) -> int:
    """Play an episode and show it turn by turn; see `memenvs.commands.play.play`."""
    plain_env: gym.Env[Any, Any] = maker(environment.env, environment.env_args, render_mode="ansi")()
    inner = plain_env.unwrapped
    name = policy.policy or ("lexical" if isinstance(inner, (ChunkQAEnv, SearchQAEnv)) else "gold")
    methods = read_methods(policy.methods)
    check_methods_fit(plain_env, methods, policy.scorer)
    if save:
        EpisodeWriter(save).close()  # raises here, not at the end of the episode
    env = GridInWords(plain_env) if isinstance(inner, SokobanGridEnv) else plain_env
    player, model = _player(name, env, models, seed)
    scorer = choose_scorer(policy.scorer, model) if methods else None
    plays_on = bool(methods) and any(method.continuations for method in make_methods(methods))
    if plays_on and name == "me":
        raise ValueError("Continuations would ask you to play on from every state; give another --policy")
    if methods and not plays_on:
        env = RewardWrapper(env, methods, scorer)
    loop = Loop(lambda: env, player, methods if plays_on else (), scorer)
    episode = Episode(seed=seed, number=task)
    is_person, is_grid = name == "me", isinstance(env, GridInWords)
    shows_text = (is_person and not is_grid) or type(inner).render is gym.Env.render
    stopped = False
    if is_person:
        show(f"{_GRID_KEYS if is_grid else _TYPING} Ctrl-D ends the episode.\n\n")
    try:
        first = begin(env, episode, np.random.default_rng(seed))
        check_methods(loop.methods, loop.scorer, first.info, plays_on=True)
        request: Request | None = first
        while True:
            if request is not None:
                loop.continuing.save(request)
            elif plays_on:
                loop.play_all([[episode]])
            screen = _as_read(env, episode, request, is_person) if shows_text else env.render()
            show(f"{DIM}{'─' * terminal_width()}{RESET}\n" if episode.turns else "", wrap=False)
            show(f"{screen}\n\n")
            if request is None:
                if plays_on:
                    lines = earned_lines(
                        episode.turns[-1].components,
                        episode.signals,
                        episode.credits,
                        episode.turn_rewards,
                        has_ended=True,
                    )
                    show("\n".join([*lines, "", ""]))
                break
            (reply,) = replies_to(player, [request])
            request = step(request, reply)
    except (EOFError, KeyboardInterrupt):
        stopped = True
    except Exception as error:
        episode.fail(error_line(error))
        show(_keep(episode, env, save, model))
        raise
    saved = _keep(episode, env, save, model)
    show(f"{_summary(episode, stopped)}\n{saved}")
    return 130 if stopped and not is_person else 0


def _player(
    name: str, env: gym.Env[Any, Any], options: ModelOptions, seed: int
) -> tuple[Policy, TokenPolicy | None]:
    """Who replies in an environment, and the model over token ids behind it, if there is one."""
    chosen = choose_policy(name, options)
    if name == "me" and isinstance(env.unwrapped, (TextEnv, SokobanGridEnv)):
        return agent_policy(_person(isinstance(env, GridInWords))), None
    if not isinstance(env, GridInWords) or name.startswith(KINDS):  # models refuse a grid
        return chosen.make(env)
    moves = make_policy(name, env.env, seed)
    return agent_policy(lambda board, info: MOVES[moves(board, info)]), None


def _person(is_grid: bool) -> Agent:
    """Who types replies, or moves of a grid."""
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")  # whatever is typed is a reply
    if is_grid:
        moves = _typed_moves()
        return lambda board, info: next(moves)
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # input() then edits its line
    return lambda observation, info: _read_reply()


def _keep(episode: Episode, env: gym.Env[Any, Any], path: Path | None, model: TokenPolicy | None) -> str:
    """Complete the record of an episode, even a stopped one, and append it to a file.

    The result is a line with its path; empty if it should not be kept or no turn was played.
    """
    inner = env.unwrapped
    if not episode.turns:
        return ""
    if isinstance(env, RewardWrapper):  # its record has what the methods gave so far
        for turn, paid in zip(episode.turns, env.episode.turns, strict=False):
            turn.signals, turn.credits = paid.signals, paid.credits
        played = len(episode.turns)  # the wrapper may have recorded one more, whose step was interrupted
        episode.measured = {
            name: [turn for turn in turns if turn < played] for name, turns in env.episode.measured.items()
        }
        episode.replaces_outcome = env.replaces_outcome
    if episode.over:
        completed(episode)
    episode.number = inner.state.task if isinstance(inner, TextEnv) else episode.turns[-1].info["number"]
    if not path:
        return ""
    with EpisodeWriter(path) as writer:
        writer.write(episode, model)
    return f"kept: memenvs view {shlex.quote(str(path))} --terminal\n"


class GridInWords(gym.Wrapper[Any, Any, Any, Any]):
    """`MemSokobanGrid-v0` with boards and moves as text, and with infos like a text environment's.

    One loop then plays it like the others, and its episode can be kept.

    Action:
        One of `MOVES`.

    Observation:
        The board as `render` draws it.

    Args:
        env: a `SokobanGridEnv`, wrapped or not.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._move, self._rewards = "", list[float]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start a level."""
        _, info = self.env.reset(seed=seed, options=options)
        self._move, self._rewards = "", []
        return self._board, self._info(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Make a move."""
        _, reward, terminated, truncated, info = self.env.step(MOVES.index(action))
        self._move = action
        self._rewards.append(float(reward))
        return self._board, float(reward), terminated, truncated, self._info(info)

    def render(self) -> str:
        """The board, after the last move and its reward."""
        if not self._rewards:
            return self._board
        return f"move {len(self._rewards)}: {self._move}, reward {self._rewards[-1]:+.2f}\n{self._board}"

    @property
    def _board(self) -> str:
        return str(self.env.render())

    def _info(self, info: Info) -> Info:
        inner: Any = self.unwrapped
        return {
            **info,
            "number": int(np.flatnonzero(inner.chosen == info["level"])[0]),
            "turn": info["steps"],
            "context": "rewrite",
            "feedback": "",
            "rewards": {"reward": self._rewards[-1] if self._rewards else 0.0},
            "turn_rewards": list(self._rewards),
            "metrics": {name: float(value) for name, value in info.items() if name != "task"},
        }


def _typed_moves() -> Iterator[str]:
    """The moves of a grid that a person types, as words and keys; EOFError if the input has ended."""
    while True:
        line = _read_line("> ").lower()
        if rest := _MOVE.sub("", line).replace(",", " ").split():
            show(f"{rest[0]!r} is no move; type w a s d, up down left right, or 0 to 3\n")
        else:
            yield from (_KEYS[key] for key in _MOVE.findall(line))


def _read_reply() -> str:
    """A line that is not empty, or the lines between two that are a single `.`."""
    while not (line := _read_line("> ")).strip():
        pass
    if line.strip() != ".":
        return line
    lines = list[str]()
    with contextlib.suppress(EOFError):  # a file may end without the second `.`
        while (line := _read_line(". ")).strip() != ".":
            lines.append(line)
    return "\n".join(lines)


def _read_line(prompt: str) -> str:
    """A line of standard input, with a prompt if a person types it; EOFError if the input has ended."""
    sys.stdout.flush()
    return input(prompt if sys.stdin.isatty() else "")


def _as_read(env: gym.Env[Any, Any], episode: Episode, request: Request | None, is_person: bool) -> str:
    """What the agent reads at this turn, after what its last reply earned; at the end the answer.

    A person has typed the reply, so it is not shown again.
    """
    turn, lines = len(episode.turns), list[str]()
    info = request.info if request else episode.turns[-1].info
    if turn:
        if not is_person:
            lines += block("replied", episode.turns[-1].action, limit=400)
        earned = env.info if isinstance(env, RewardWrapper) else info
        signals, credits = earned.get("signals", {}), earned.get("credits", {})
        lines += earned_lines(earned["rewards"], signals, credits, earned["turn_rewards"], request is None)
    if request is None:
        if feedback := printable(info["feedback"]).strip("\n"):
            lines.append(feedback)
        if target := info["privileged"].get("target"):
            lines += block("right answer", target, limit=800)
        return "\n".join([*lines, f"{BOLD}the episode is {episode.end}{RESET}"])
    return "\n".join([*lines, f"{BOLD}turn {turn + 1}{RESET}", printable(request.turn.text).strip("\n")])


def _summary(episode: Episode, stopped: bool) -> str:
    """The return and the metrics of an episode, or where it stopped."""
    total = sum(episode.turn_rewards)
    if stopped:
        return f"\nstopped after {counted(len(episode.turns), 'turn')}; return so far {total:g}"
    metrics = ", ".join(f"{name} {value:g}" for name, value in episode.metrics.items() if name != "return")
    return f"return {total:g}; {metrics}"
